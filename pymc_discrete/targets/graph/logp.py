"""The log density of a model, written for a block of its variables."""

import weakref
from collections.abc import Hashable
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
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import AND
from pytensor.tensor.basic import MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import All
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.shape import Shape

from pymc_discrete.targets.graph.analysis import Depends
from pymc_discrete.targets.graph.guards import index_guards
from pymc_discrete.targets.graph.lifting import lift
from pymc_discrete.targets.graph.logp_graph import LogpGraph
from pymc_discrete.targets.graph.masks import masked, refusal_of_sizes
from pymc_discrete.targets.graph.rebuild import opened, rebuild, rewrite, rewritten
from pymc_discrete.targets.graph.sparse import refuse_sparse
from pymc_discrete.targets.graph.stacking import Stacked


@pytensor.config.change_flags(
    traceback__limit=0
)  # where a node was made is of no use to anyone, and takes a tenth of the time
def logp_graph(
    model: pm.Model,
    names: list[str],
    point: dict[str, np.ndarray],
    supports: dict[str, Any],
    kinds: dict[str, Hashable] | None = None,
    vectors: dict[str, list[str]] | None = None,
) -> LogpGraph:
    """Rewrite the model's log density for a block of value variables.

    Checks and asserts go; what they guarded becomes -inf. Shared variables become constants. Terms of one
    structure become one.

    Parameters
    ----------
    names : the block
    point : a point of the model, which gives all shapes
    supports : {name: (lower, upper)} of the block, None where unbounded
    kinds : {name: what must agree for two variables of the block to be parts of one vector}; one that is left
        out stays by itself
    vectors : {name: variables beside the block that are given as parts of one vector of this name}
    """
    raw = written(model)
    labels = [str(v.name) for v in model.free_RVs + model.observed_RVs + model.potentials]
    refuse_random(list(zip(labels, raw, strict=True)))
    shared = [
        (v, np.array(v.get_value(), copy=True)) for v in graph_inputs(raw) if isinstance(v, SharedVariable)
    ]
    typed = {
        v: pt.tensor(v.name, shape=np.shape(point[v.name]), dtype=v.type.dtype) for v in model.value_vars
    }
    replace: dict[Variable, Variable] = dict(typed)
    replace.update({v: pt.constant(value, name=v.name) for v, value in shared})
    replace.update(
        {v: promoted(v) for v in graph_inputs(raw) if isinstance(v, Constant) and hasattr(v.type, "dtype")}
    )
    block = {str(v.name): v for v in typed.values() if v.name in names}
    others = [v for v in typed.values() if v.name not in names]
    guards: list[tuple[Apply, Variable]] = []

    def without_checks(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        if isinstance(node.op, OpFromGraph | SymbolicOp):
            return opened(node, inputs, without_checks)
        if isinstance(node.op, Shape) and None not in inputs[0].type.shape:
            return [pt.constant(np.array(inputs[0].type.shape, "int64"))]
        if not isinstance(node.op, CheckAndRaise):
            return None
        expr, *joined = inputs
        for cond in (c for whole in joined for c in conditions(whole)):
            if (
                isinstance(node.op, CheckParameterValue)
                and expr.type.dtype.startswith("float")
                and fits(cond, expr)
            ):
                expr = pt.switch(cond, expr, -np.inf)
            else:
                guards.append((node, pt.switch(cond, 0.0, -np.inf)))
        return [expr]

    terms = rebuild(raw, replace, without_checks)
    first: dict[Apply, str] = {}  # a check counts as part of the first term it guards
    for name, term in zip(labels, raw, strict=True):
        for node in toposort([term], blockers=[out for n in first for out in n.outputs]):
            if isinstance(node.op, CheckAndRaise):
                first.setdefault(node, name)
    named = [
        *zip(labels, terms, strict=True),
        *((first.get(node, labels[0]), guard) for node, guard in guards),
    ]
    named = fixed_in_size(named, list(block.values()), others)
    stacked = Stacked(named, [block[name] for name in names], kinds or {}, in_groups(others, vectors or {}))
    fg = FunctionGraph([*stacked.values, *stacked.others], [t for _, t in stacked.terms], clone=False)
    rewrite(fg)
    # out of the FunctionGraph, whose variables may not be used in another one
    memo = {v: v.clone() for v in fg.inputs}
    values, others = [memo[v] for v in stacked.values], [memo[v] for v in stacked.others]
    # rewriting makes such Ops too: a Cholesky factor of a diagonal matrix
    outputs = rewritten(lift(rebuild(list(fg.outputs), memo, opened), values))
    labels = [name for name, _ in stacked.terms]
    bounds = {
        v: together([supports[name] for name in own]) for v, own in zip(values, stacked.groups, strict=True)
    }
    uniform = {
        v for v, own in zip(values, stacked.groups, strict=True) if alike([supports[name] for name in own])
    }
    guarded, out_of_bounds = index_guards(
        list(zip(labels, outputs, strict=True)), Depends(values), bounds, uniform
    )
    for name, guard in guarded:
        labels.append(name)
        outputs.append(guard)
    moving = Depends(values)
    named = list(zip(labels, outputs, strict=True))
    touched, untouched = ([(n, t) for n, t in named if (t in moving) == whether] for whether in (True, False))
    discrete = not any(v.type.dtype.startswith("float") for v in values)
    if discrete:
        refuse_sparse(named, moving, names)
    made_of = dict(zip([*values, *others], [*stacked.groups, *stacked.groups_of_others], strict=True))
    return LogpGraph(
        values, others, touched, untouched, shared, point, made_of, stacked.written_as_one, out_of_bounds
    )


def fixed_in_size(
    named: list[tuple[str, Variable]], block: list[Variable], others: list[Variable]
) -> list[tuple[str, Variable]]:
    """Terms with masks in place of slices of unknown size. A term for which that cannot be done, and that the
    block does not enter, stays as it is: it is evaluated without JAX.
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
    """{name: the variables that are parts of the vector of this name}; each of the others is one
    by itself.
    """
    named = {str(v.name): v for v in variables}
    held = {name for own in vectors.values() for name in own}
    whole = {label: [named[name] for name in own] for label, own in vectors.items() if set(own) <= set(named)}
    return whole | {
        name: [v]
        for name, v in named.items()
        if name not in held or not any(v in own for own in whole.values())
    }


_terms: weakref.WeakKeyDictionary[pm.Model, tuple[list[Any], list[Variable]]] = weakref.WeakKeyDictionary()


def refuse_random(terms: list[tuple[str, Variable]]) -> None:
    """Refuse a log density that is another number every time it is asked for.

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


def written(model: pm.Model) -> list[Variable]:
    """The terms of the model's log density, as PyMC writes them; once as long as the model stays as it is,
    since that takes seconds for hundreds of variables.
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
    """The elementwise conditions that an `all(...)` joins."""
    node = cond.owner
    if node is None:
        return [cond]
    if isinstance(node.op, All | MakeVector | ScalarFromTensor | TensorFromScalar):
        return [c for i in node.inputs for c in conditions(i)]
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, AND) and cond.type.dtype == "bool":
        return [c for i in node.inputs for c in conditions(i)]
    return [cond]


def fits(cond: Variable, expr: Variable) -> bool:
    """Whether `cond` broadcasts against `expr` without enlarging it."""
    if cond.ndim > expr.ndim:
        return False
    shapes = zip(cond.type.shape[::-1], expr.type.shape[::-1], strict=False)
    return all(c == 1 or (c == e and c is not None) for c, e in shapes)


def promoted(constant: Constant) -> Constant:
    """Python floats that float32 can hold become float32 constants, which JAX would carry through int64."""
    if constant.type.dtype == "float32" and pytensor.config.floatX == "float64":
        return pt.constant(constant.data.astype("float64"))
    return constant


def alike(bounds: list[tuple[Any, Any]]) -> bool:
    """Whether all elements of several supports have the same two bounds."""
    ends = zip(*bounds, strict=True)
    return all(
        all(b is not None for b in own) and len(np.unique(np.concatenate([np.ravel(b) for b in own]))) == 1
        for own in map(list, ends)
    )


def together(bounds: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """(lower, upper) of several supports; None where one of them has no bound."""
    lows, highs = zip(*bounds, strict=True)
    low = None if any(b is None for b in lows) else min(np.min(b) for b in lows)
    high = None if any(b is None for b in highs) else max(np.max(b) for b in highs)
    return low, high
