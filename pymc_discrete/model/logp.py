"""The log density of a model, written for a block of its variables."""

import weakref
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.distribution import PartialObservedRV
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import AND, LT, NEQ, OR, Switch
from pytensor.scan.op import Scan
from pytensor.sparse.type import SparseTensorType
from pytensor.sparse.variable import SparseConstant
from pytensor.tensor.basic import MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import All, Sum
from pytensor.tensor.math import Any as AnyOp
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.sort import SortOp
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor

from pymc_discrete.model.as_real import as_real
from pymc_discrete.model.guards import index_guards
from pymc_discrete.model.long_sums import with_long_sums
from pymc_discrete.model.masks import masked, refusal_of_sizes, with_fixed_sizes
from pymc_discrete.model.support import bounds_of_model
from pymc_discrete.model.totals import Totals, in_totals
from pymc_discrete.runtime.names import shown
from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.bounds import IntegerBounds, Interval, extent
from pymc_discrete.structure.comparisons import comparisons, value_of
from pymc_discrete.structure.jaxify import ONCE, adds_once
from pymc_discrete.structure.labels import labels_first
from pymc_discrete.structure.lifting import lift
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.numbers import (
    NUMBER,
    Derivation,
    NeedsValues,
    Number,
    decided,
    hoisted,
    numbers_in,
)
from pymc_discrete.structure.rebuild import known_size, opened, rebuild, rewrite, rewritten
from pymc_discrete.structure.scalar_ops import applies, computed_by
from pymc_discrete.structure.sparse import refuse_sparse
from pymc_discrete.structure.stacking import Stacked


# PyTensor would record a traceback for every node of the graph. Nothing reads the tracebacks, and recording
# them takes a tenth of the time of this function.
@pytensor.config.change_flags(traceback__limit=0)
def logp_graph(
    model: pm.Model,
    names: list[str],
    point: dict[str, np.ndarray],
    supports: dict[str, Any],
    kinds: dict[str, Hashable] | None = None,
    vectors: dict[str, list[str]] | None = None,
    constrained: Collection[str] = (),
    united: Sequence[list[str]] = (),
    equal: Mapping[tuple[int, int], tuple[int, ...]] | None = None,
    totals: Totals | None = None,
    counts: Collection[str] = (),
    terms: Sequence[Variable] | None = None,
) -> LogpGraph:
    """Rewrite the model's log density for a block of value variables.

    Checks of parameters and assertions are replaced by -inf where they fail, shared variables by constants.
    Terms of equal structure are combined (see `stacking`).

    Parameters
    ----------
    names : the names of the block's value variables
    point : a point of the model, which determines all shapes
    supports : {name: (lower, upper)} of the block's variables, None where there is no bound
    kinds : {name: key}; only variables of the block with equal keys may become parts of one vector, and a
        variable without a key stays by itself
    vectors : {name: variables outside the block that become parts of one vector of this name}
    united : names of variables of the block that become one vector each, whatever their terms
    constrained : names of variables of the block that are, at every state at which the graph is evaluated,
        counts with the sums of their distribution, or permutations: the graph does not check that
    equal : {(index of a term, index of a comparison in it): shape of the comparison}, comparisons that hold
        at every state at which the graph is evaluated, and are left out
    totals : counts of the block whose totals take their place; `supports` then has the bounds of the totals
    counts : integer variables of the block that real variables replace
    terms : the terms of the log density, if they differ from the terms that PyMC gives

    Raises
    ------
    ValueError
        Where the log density draws random numbers, or the block enters an unsupported sparse operation.
    NotImplementedError
        Where the size of a tensor depends on a variable in a way that masks cannot express.
    TypeError
        Where PyMC cannot write the log density of an imputed variable.
    """
    raw = in_totals(model, list(terms_of(model) if terms is None else terms), totals or {})
    labels = [str(v.name) for v in model.free_RVs + model.observed_RVs + model.potentials]
    refuse_random(list(zip(labels, raw, strict=True)))
    refuse_single_increments(list(zip(labels, raw, strict=True)), names)

    # the terms as functions of new inputs of known shape, in a form that JAX can run
    typed = of_known_shape(model, {name: np.shape(value) for name, value in point.items()})
    numbers = numbers_by_name(raw)
    block = {str(v.name): v for v in typed.values() if v.name in names}
    others = [*(v for v in typed.values() if v.name not in names), *numbers.values()]
    replace = typed | comparisons_that_hold(raw, equal or {}) | constants(raw, numbers)
    named = without_checks(labels, raw, replace, own_densities(model, raw, constrained))
    known = lambda: bounds_of_typed(model, typed, totals or {})
    named = rewritten_terms(named, lambda terms: with_fixed_sizes(terms, known))
    named = fixed_in_size(named, list(block.values()), others)
    named = rewritten_terms(named, lambda terms: with_long_sums(terms, list(typed.values())))
    if reals := {v: real(v) for name, v in block.items() if name in counts}:
        named = rewritten_terms(named, lambda terms: as_real(terms, reals))

    # terms of equal structure are written as one, in canonical form
    stacked = Stacked(
        named,
        [reals.get(block[name], block[name]) for name in names],
        kinds or {},
        in_groups(others, vectors or {}),
        united,
    )
    written, decisions = decided([t for _, t in stacked.terms])
    # A term of the block stays a term of the block if rewriting finds that it is the same at all states, as
    # the density of a uniform distribution is: such a term counts in sums over states.
    depend = [*map(Depends(stacked.values).of, written)]
    of_vectors = lambda values: bounds_of_vectors(dict(zip(values, stacked.groups, strict=True)), supports)
    values, others, outputs = canonical(
        stacked.values, stacked.others, written, lambda values: of_vectors(values)[0]
    )
    outputs, derived = hoisted(outputs, f"{NUMBER}for {shown(names)}: ")
    read = numbers_in(outputs)
    groups = dict(zip(values, stacked.groups, strict=True))
    groups_of_others = with_numbers_read(others, stacked.groups_of_others, read)

    # Guards, terms that are -inf where an index is out of bounds, join the other terms. Then all terms are
    # divided by whether they depend on the block.
    bounds, uniform = of_vectors(values)
    moving = Depends(values)
    named = rewritten_terms(stacked.terms, lambda _: outputs)
    guards, out_of_bounds, of_indices = index_guards(named, moving, bounds, uniform, derived)
    named += guards
    if not any(v.type.dtype.startswith("float") for v in values):
        refuse_sparse(named, moving, names)
        refuse_unknown_indices([t for _, t in named], moving, derived)
    return LogpGraph(
        values,
        list(groups_of_others),
        *divided(named, [*depend, *(guard in moving for _, guard in guards)]),
        {**point, **{str(v.name): v.value for v in read}},
        groups | groups_of_others,
        # how the numbers of another model give the numbers of this graph, and the conditions on numbers under
        # which the graph holds
        Derivation(read, derived, [*decisions, *of_indices]),
        stacked.written_as_one,
        out_of_bounds,
        bounds,
    )


def rewritten_terms(
    named: Sequence[tuple[str, Variable]], function: Callable[[list[Variable]], list[Variable]]
) -> list[tuple[str, Variable]]:
    """[(name, term)] with all terms rewritten by the function."""
    terms = function([term for _, term in named])
    return list(zip([name for name, _ in named], terms, strict=True))


def divided(
    named: list[tuple[str, Variable]], depends: list[bool]
) -> tuple[list[tuple[str, Variable]], list[tuple[str, Variable]]]:
    """Two lists of [(name, term)]: the terms that depend on the block, and the other terms."""
    pairs = list(zip(named, depends, strict=True))
    return [term for term, touched in pairs if touched], [term for term, touched in pairs if not touched]


def numbers_by_name(terms: list[Variable]) -> dict[str, Number]:
    """{name: the `Number`} of all numbers that the terms read.

    PyMC copies a graph together with its inputs, so that the terms may read several copies of one `Number`,
    all with its name. The result has one copy.
    """
    return {str(v.name): v for v in graph_inputs(terms) if isinstance(v, Number)}


def comparisons_that_hold(
    terms: list[Variable], equal: Mapping[tuple[int, int], tuple[int, ...]]
) -> dict[Variable, Variable]:
    """{comparison: its constant outcome} of the comparisons in `terms` that hold at every state.

    Parameters
    ----------
    equal : {(index of a term, index of a comparison in it): shape of the comparison}, which comparisons hold
    """
    return {
        comparison: pt.constant(np.full(equal[t, c], outcome))
        for t in {t for t, _ in equal}
        for c, (comparison, outcome) in enumerate(comparisons(terms[t]))
        if (t, c) in equal
    }


def constants(terms: list[Variable], numbers: Mapping[str, Number]) -> dict[Variable, Variable]:
    """{data, constant or `Number` that the terms read: its replacement}.

    Data become constants, and the copies of a `Number` become one of them.

    Parameters
    ----------
    numbers : {name: the copy of the `Number` that takes the place of the others}
    """
    replace = constants_of_data(terms)
    for v in graph_inputs(terms):
        if isinstance(v, Constant) and hasattr(v.type, "dtype"):
            replace[v] = promoted(v)
        elif isinstance(v, Number):
            replace[v] = numbers[str(v.name)]
    return replace


def with_numbers_read(
    others: list[Variable], groups: list[list[str]], read: list[Number]
) -> dict[Variable, list[str]]:
    """{input of a graph from outside the block: the names of the variables and numbers that it is made of}.

    Parameters
    ----------
    others, groups : all inputs from outside the block, and for each the names of what it is made of; the
        numbers among these inputs are replaced by the numbers in `read`
    read : the numbers that the graph reads in its present form
    """
    kept = {v: group for v, group in zip(others, groups, strict=True) if not isinstance(v, Number)}
    return kept | {v: [str(v.name)] for v in read}


def bounds_of_vectors(
    groups: Mapping[Variable, list[str]], supports: Mapping[str, Any]
) -> tuple[IntegerBounds, set[Variable]]:
    """The bounds of the block's vectors, and the set of vectors whose elements all have the same bounds.

    Parameters
    ----------
    groups : {vector: the names of the variables that it is made of}
    supports : {name: (lower, upper)} of the variables, None where there is no bound
    """
    of_members = {v: [supports[name] for name in members] for v, members in groups.items()}
    bounds = IntegerBounds({v: extent(widest(each)) for v, each in of_members.items()})
    return bounds, {v for v, each in of_members.items() if all_equal(each)}


def own_densities(
    model: pm.Model, terms: list[Variable], names: Collection[str]
) -> dict[Variable, set[Apply]]:
    """{value: the nodes of the log density of its own random variable} for the named value variables."""
    values = [model.rvs_to_values[rv] for rv in model.free_RVs]
    pairs = zip(values, terms, strict=False)
    return {value: set(toposort([term])) for value, term in pairs if value.name in names}


def bounds_of_typed(
    model: pm.Model, typed: Mapping[Variable, Variable], totals: Totals
) -> dict[Variable, Interval]:
    """The bounds of a model's discrete variables, without the counts whose totals take their place.

    Parameters
    ----------
    typed : {value variable: its replacement}
    """
    by_name = {str(v.name): v for v in typed.values()}
    return {by_name[name]: b for name, b in bounds_of_model(model).items() if name not in totals}


def of_known_shape(model: pm.Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[Variable, Variable]:
    """{value variable of a model: a variable of the same name and type whose shape is part of its type}.

    Parameters
    ----------
    shapes : {name: shape} of all value variables
    """
    # `pt.tensor` refuses a name that is also the name of a dtype, such as "half" or "b, c"
    return {v: pt.TensorType(v.type.dtype, shape=shapes[v.name])(name=v.name) for v in model.value_vars}


def real(variable: Variable) -> Variable:
    """A variable of the same name and shape whose values are real numbers."""
    return pt.TensorType("float64", shape=variable.type.shape)(name=variable.name)


def constants_of_data(outputs: list[Variable]) -> dict[Variable, Variable]:
    """{shared variable that the outputs depend on, such as `pm.Data` makes: a constant with its value}."""
    constants: dict[Variable, Variable] = {}
    for v in graph_inputs(outputs):
        # SparseTensorType is a subclass of TensorType, so it is asked for first
        if isinstance(v, SharedVariable) and isinstance(v.type, SparseTensorType):
            constants[v] = SparseConstant(v.type, v.get_value(), name=v.name)
        elif isinstance(v, SharedVariable) and isinstance(v.type, pt.TensorType):
            constants[v] = pt.constant(v.get_value(), name=v.name)
    return constants


def refuse_unknown_indices(outputs: list[Variable], moving: Depends, derived: dict[str, Variable]) -> None:
    """Raise an error if a number, whose value is not known yet, is an index into a tensor that depends on the
    block.

    The error asks for the values of such numbers. With them it is known which elements are read, and each
    element of the result reads one of them.

    Parameters
    ----------
    derived : how some numbers are computed from the model's own numbers

    Raises
    ------
    NeedsValues
    """
    needed: set[str] = set()
    for node in toposort(outputs):
        if isinstance(node.op, Subtensor | AdvancedSubtensor) and node.inputs[0] in moving:
            index = node.inputs[1:]
        elif isinstance(node.op, IncSubtensor | AdvancedIncSubtensor) and node.outputs[0] in moving:
            index = node.inputs[2:]
        else:
            continue
        for v in numbers_in(index):
            needed |= {str(n.name) for n in numbers_in([derived.get(str(v.name), v)])}
    if needed:
        raise NeedsValues(needed)


def without_checks(
    labels: list[str],
    terms_with_checks: list[Variable],
    replace: dict[Variable, Variable],
    valid: Mapping[Variable, set[Apply]] | None = None,
) -> list[tuple[str, Variable]]:
    """[(name, term)] of the log density with its inputs replaced, and without checks of parameters.

    A term is -inf where a check of its parameters fails. A check that is not elementwise becomes a term of
    its own, under the name of the first term that it guards.

    Parameters
    ----------
    labels : the names of the terms
    replace : {input: its replacement}
    valid : {value: nodes of its own log density}, for values that are known to be vectors of counts with the
        sums of their distribution, or permutations. The checks of this property in these nodes are left out:
        with them, each element of the log density would depend on all elements of the vector. Comparisons
        that contain the vector in other terms are kept.
    """
    guards: list[tuple[Apply, Variable]] = []
    never: set[Variable] = set()  # conditions that are always false, such as that a count is negative
    # log densities of the values in `valid`, from which the check that the value is possible was removed
    of_valid: set[Variable] = set()

    def replaced(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        if isinstance(node.op, OpFromGraph | SymbolicOp):
            return opened(node, inputs, replaced)
        if isinstance(node.op, Scan):
            return steps_without_checks(node, inputs)
        if (size := known_size(node, inputs)) is not None:
            return size
        vectors = [value for value, nodes in (valid or {}).items() if node in nodes]
        if (kept := without_comparison(node, inputs, vectors, never)) is not None:
            of_valid.update({kept} - never)
            return [kept]
        if not isinstance(node.op, CheckAndRaise):
            return None
        expr, *checked = inputs
        # A check of the parameters of a vector, such as that probabilities add up to 1, becomes a term of its
        # own. Inside the log density, the check would make each element depend on all parameters.
        apart = expr in of_valid
        for cond in (c for condition in checked for c in conditions(condition)):
            if (
                isinstance(node.op, CheckParameterValue)
                and not apart
                and expr.type.dtype.startswith("float")
                and fits(cond, expr)
            ):
                expr = pt.switch(cond, expr, -np.inf)
            else:
                guards.append((node, pt.switch(cond, 0.0, -np.inf)))
        return [expr]

    try:
        terms = rebuild(terms_with_checks, replace, replaced)
    except ValueError as error:
        culprit = first_to_fail(labels, lambda n: rebuild([terms_with_checks[n]], replace, replaced))
        raise ValueError(
            f"The log density of {culprit} cannot be computed, as shapes do not fit: {error}. If "
            "pm.set_data changed a length, change all else that has it: other data, what is observed, and "
            "coords= of their dims."
        ) from error
    first = first_guarded(labels, terms_with_checks)
    return [
        *zip(labels, terms, strict=True),
        *((first.get(node, labels[0]), guard) for node, guard in guards),
    ]


def steps_without_checks(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
    """The outputs of a Scan in whose steps a log density is -inf where a check of its parameters fails; None
    if the steps have no such check.

    PyTensor's conversion to JAX leaves checks out. A check in a step that is not of parameters, or guards
    integers, stays in the graph, and is left out there with a warning of PyTensor.
    """
    op = node.op
    given = [v.clone() for v in op.inner_inputs]
    # a copy of the graph of one step, since nodes of the Op's own graph cannot be copied later
    step = op.fgraph.bind(dict(zip(op.inner_inputs, given, strict=True)))
    found = False

    def replaced(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        nonlocal found
        if isinstance(node.op, OpFromGraph | SymbolicOp):
            return opened(node, inputs, replaced)
        if isinstance(node.op, Scan):
            inner = steps_without_checks(node, inputs)
            found = found or inner is not None
            return inner
        if not isinstance(node.op, CheckParameterValue) or not inputs[0].type.dtype.startswith("float"):
            return None
        found = True
        expr, *checked = inputs
        for cond in (c for condition in checked for c in conditions(condition)):
            expr = pt.switch(cond if fits(cond, expr) else pt.all(cond), expr, -np.inf)
        return [expr.astype(inputs[0].type.dtype)]

    outputs = rebuild(step, {}, replaced)
    if not found:
        return None
    made = Scan(
        given,
        outputs,
        op.info,
        mode=op.mode,
        truncate_gradient=op.truncate_gradient,
        name=op.name,
        allow_gc=op.allow_gc,
        strict=op.strict,
    )
    return made(*inputs, return_list=True)


def first_guarded(labels: list[str], terms: list[Variable]) -> dict[Apply, str]:
    """{check: the name of the first term that it guards}; the check is counted as a part of this term."""
    first: dict[Apply, str] = {}
    for name, term in zip(labels, terms, strict=True):
        for node in toposort([term], blockers=[out for n in first for out in n.outputs]):
            if isinstance(node.op, CheckAndRaise):
                first.setdefault(node, name)
    return first


def first_to_fail(labels: Sequence[str], make: Callable[[int], Any]) -> str:
    """The label of the first term for which `make` raises a ValueError, or all labels, for a message."""
    for n, label in enumerate(labels):
        try:
            make(n)
        except ValueError:
            return repr(label)
    return shown(labels)


def without_comparison(
    node: Apply, inputs: list[Variable], valid: Collection[Variable], never: set[Variable]
) -> Variable | None:
    """The log density of a vector without the check that the vector is in its support, where it surely is.

    The node with the check is `switch(any(x < 0) or sum(x) != n, -inf, logp)` for counts with the sum n, and
    `switch(any(sort(x) != arange(n)), -inf, logp)` for permutations.

    Parameters
    ----------
    node : a node of the graph
    inputs : the inputs of the copy of the node
    valid : the vectors x, along the last axis, whose own log density contains the node
    never : conditions of the copy that never hold; further such conditions that are found are added

    Returns
    -------
    The output of the copy without the check; None for other nodes.
    """
    if not valid:
        return None
    op = node.op.scalar_op if isinstance(node.op, Elemwise) else node.op
    shapes: list[Any] = [getattr(i.type, "shape", (None,)) for i in inputs]
    if isinstance(op, NEQ) and any(is_sum_of(i, valid) for i in node.inputs):
        shape = shapes
    elif isinstance(op, AnyOp) and (
        is_negative(node.inputs[0], valid) or compares_sorted(node.inputs[0], valid)
    ):
        shape = [shapes[0][:-1]]
    elif isinstance(op, OR) and all(i in never for i in inputs):
        shape = shapes
    elif isinstance(op, Switch) and inputs[0] in never and shapes[0] == shapes[2]:
        return inputs[2]
    else:
        return None
    if any(None in s for s in shape):
        return None
    condition = pt.constant(np.full(np.broadcast_shapes(*shape), False))
    never.add(condition)
    return condition


def is_sum_of(v: Variable, vectors: Collection[Variable]) -> bool:
    """Whether a tensor is the sum, along the last axis, of one of some variables."""
    if v.owner is not None and isinstance(v.owner.op, DimShuffle):
        return is_sum_of(v.owner.inputs[0], vectors)
    if v.owner is None or not isinstance(v.owner.op, Sum) or v.owner.inputs[0] not in vectors:
        return False
    last = v.owner.inputs[0].type.ndim - 1
    return v.owner.op.axis == (last,) or (v.owner.op.axis is None and last == 0)


def is_negative(v: Variable, vectors: Collection[Variable]) -> bool:
    """Whether a tensor is the comparison `variable < 0` for one of some variables."""
    return (
        computed_by(v, LT) and v.owner.inputs[0] in vectors and bool((value_of(v.owner.inputs[1]) == 0).all())
    )


def compares_sorted(v: Variable, permutations: Collection[Variable]) -> bool:
    """Whether a tensor is true where one of some variables, sorted, differs from 0, ..., n - 1."""
    node = v.owner
    if not applies(node, NEQ):
        return False
    ordered, wanted = node.inputs[0].owner, value_of(node.inputs[1])
    if ordered is None or not isinstance(ordered.op, SortOp) or ordered.inputs[0] not in permutations:
        return False
    return np.array_equal(wanted.reshape(-1), np.arange(wanted.size))


def canonical(
    values: list[Variable],
    others: list[Variable],
    terms: list[Variable],
    bounds_of: Callable[[list[Variable]], IntegerBounds],
) -> tuple[list[Variable], list[Variable], list[Variable]]:
    """Copies of the inputs `values` and `others`, and the terms as functions of the copies, rewritten.

    The form is PyTensor's canonical form, in which observed labels select before elementwise functions apply
    (see `labels_first`), and functions of what the block selects are computed before the selection (`lift`).

    Parameters
    ----------
    bounds_of : (values) -> the bounds of integer values
    """
    fg = FunctionGraph([*values, *others], terms, clone=False)
    rewrite(fg)
    # the graph is copied, since variables of one FunctionGraph cannot be used in another
    memo = {v: v.clone() for v in fg.inputs}
    values, others = [memo[v] for v in values], [memo[v] for v in others]
    # Rewriting creates Ops that contain other Ops, for example for the Cholesky factor of a diagonal matrix.
    # `opened` writes out the inner Ops, since the analyses have rules for these only.
    terms = labels_first(rebuild(list(fg.outputs), memo, opened), values)
    # the bounds of integers do not hold for real numbers that take their place
    real = any(v.type.dtype.startswith("float") for v in values)
    return values, others, rewritten(lift(terms, values, IntegerBounds({}) if real else bounds_of(values)))


def fixed_in_size(
    named: list[tuple[str, Variable]], block: list[Variable], others: list[Variable]
) -> list[tuple[str, Variable]]:
    """Terms in which masks take the place of slices whose sizes depend on variables.

    A term that does not depend on the block and cannot be written with masks stays as it is, and is evaluated
    without JAX.

    Raises
    ------
    NotImplementedError
        For a term that depends on the block and cannot be written with masks.
    """
    roots = [*block, *others]
    try:
        return list(zip([name for name, _ in named], masked([t for _, t in named], roots), strict=True))
    except NotImplementedError:
        moving = Depends(block)
        return [
            (name, t if t not in moving and refusal_of_sizes(t) else masked([t], roots)[0])
            for name, t in named
        ]


def in_groups(variables: list[Variable], vectors: dict[str, list[str]]) -> dict[str, list[Variable]]:
    """{name: its variables} for the vectors all of whose variables are given, and for every other variable by
    itself.
    """
    named = {str(v.name): v for v in variables}
    groups = {
        label: [named[name] for name in members]
        for label, members in vectors.items()
        if set(members) <= set(named)
    }
    grouped = {v for members in groups.values() for v in members}
    return groups | {name: [v] for name, v in named.items() if v not in grouped}


# {model: (the parts of its log density, its terms)}, the cache of `terms_of`
_terms: weakref.WeakKeyDictionary[pm.Model, tuple[list[Any], list[Variable]]] = weakref.WeakKeyDictionary()


def refuse_single_increments(terms: list[tuple[str, Variable]], names: Collection[str]) -> None:
    """Refuse increments that count a repeated index once, in terms that depend on the named variables.

    In other terms `jaxify` refuses such increments, unless PyMC evaluates the terms.

    Raises
    ------
    NotImplementedError
    """
    for label, term in terms:
        above = list(ancestors([term]))
        if any(v.name in names for v in above if v.owner is None) and any(
            adds_once(v.owner.op) for v in above if v.owner is not None
        ):
            raise NotImplementedError(
                f"The log density of {label!r} has an increment that JAX gets wrong. {ONCE}"
            )


def refuse_random(terms: list[tuple[str, Variable]]) -> None:
    """Refuse a log density that draws random numbers, and so differs from one evaluation to the next.

    Raises
    ------
    ValueError
    """
    for name, term in terms:
        if any(isinstance(v.type, RandomType) for v in graph_inputs([term])):
            raise ValueError(
                f"The log density of {name!r} draws random numbers, as pm.Minibatch does: it is another "
                "number every time, and no chain has the posterior as its distribution. Observe the whole "
                "data, and leave total_size out; minibatches are for pm.fit."
            )


def terms_of(model: pm.Model) -> list[Variable]:
    """The terms of the model's log density as PyMC gives them.

    The terms are kept until the model changes, since PyMC takes seconds to write them for hundreds of
    variables.

    Raises
    ------
    ValueError, TypeError
        Where PyMC cannot write the log density of a variable.
    """
    parts = [*model.rvs_to_values.items(), *model.rvs_to_transforms.items(), *model.potentials]
    parts = [p for part in parts for p in (part if isinstance(part, tuple) else (part,))]
    known = _terms.get(model)
    if (
        known is not None
        and len(known[0]) == len(parts)
        and all(a is b for a, b in zip(known[0], parts, strict=True))
    ):
        return known[1]
    try:
        terms = model.logp(sum=False)
    except ValueError as error:
        rvs, values = zip(*model.rvs_to_values.items(), strict=True)
        culprit = first_to_fail(
            [str(rv.name) for rv in rvs], lambda n: pm.logp(rvs[n], values[n], warn_rvs=False)
        )
        raise ValueError(f"PyMC cannot write the log density of {culprit}: {error}") from error
    except TypeError as error:
        imputed = [
            repr(rv.name)
            for rv in model.free_RVs
            if rv.owner is not None and isinstance(rv.owner.op, PartialObservedRV)
        ]
        if not imputed:
            raise
        raise TypeError(
            f"PyMC cannot write the log density of {', '.join(imputed)}, the missing elements of a variable "
            f"whose elements depend on one another: {str(error).splitlines()[0]}. Make the variable "
            "unobserved as a whole, z, and hold what is known of it with "
            'pm.Potential("known", pt.switch(pt.eq(z[places], values), 0.0, -np.inf)) and with initval=.'
        ) from error
    _terms[model] = (parts, terms)
    return terms


def conditions(cond: Variable) -> list[Variable]:
    """The elementwise conditions whose conjunction is a condition made of `all` and `and`."""
    node = cond.owner
    if node is None:
        return [cond]
    if isinstance(node.op, All | MakeVector | ScalarFromTensor | TensorFromScalar):
        return [c for i in node.inputs for c in conditions(i)]
    if applies(node, AND) and cond.type.dtype == "bool":
        return [c for i in node.inputs for c in conditions(i)]
    return [cond]


def fits(cond: Variable, expr: Variable) -> bool:
    """Whether `cond` broadcasts to the shape of `expr`."""
    if cond.ndim > expr.ndim:
        return False
    shapes = zip(cond.type.shape[::-1], expr.type.shape[::-1], strict=False)
    return all(c == 1 or (c == e and c is not None) for c, e in shapes)


def promoted(constant: Constant) -> Constant:
    """A float32 constant as a float64 constant, where floats have 64 bits; other constants are unchanged.

    PyTensor makes float32 constants of Python floats that float32 represents exactly. In PyTensor float32
    times int64 is float64, but in JAX it is float32, so that precision would be lost.
    """
    if constant.type.dtype == "float32" and pytensor.config.floatX == "float64":
        return pt.constant(constant.data.astype("float64"))
    return constant


def all_equal(bounds: list[tuple[Any, Any]]) -> bool:
    """Whether the elements of several supports all have the same two bounds."""
    lows, highs = zip(*bounds, strict=True)
    return all(
        all(b is not None for b in ends) and len(np.unique(np.concatenate([np.ravel(b) for b in ends]))) == 1
        for ends in (lows, highs)
    )


def widest(bounds: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """(lower, upper), the smallest support that contains several supports; None for a side without
    a bound."""
    lows, highs = zip(*bounds, strict=True)
    low = None if any(b is None for b in lows) else min(np.min(b) for b in lows)
    high = None if any(b is None for b in highs) else max(np.max(b) for b in highs)
    return low, high
