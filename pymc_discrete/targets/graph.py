"""The log density of a model as one rewritten PyTensor graph, split by what a block touches."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.compile.mode import optdb
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import AND, GE, LE, Add, Exp, Mul, Pow, Sqr, Switch
from pytensor.scalar.math import Sigmoid, Softplus
from pytensor.tensor.basic import MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import All, Dot, Prod, Sum
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_discrete.targets.guards import index_guards
from pymc_discrete.targets.sparse import refuse_sparse, without_sparse

REWRITES = RewriteDatabaseQuery(include=["ShapeOpt", "canonicalize", "stabilize"])


@dataclass
class LogpGraph:
    """Rewritten log density terms of a model.

    Attributes
    ----------
    values : block value variables, with static shapes
    others : the model's other value variables, with static shapes
    terms : [(name, tensor)] whose sums add to the part of the log density that depends on the block
    untouched : [(name, tensor)] of the rest of the log density
    shared : [(shared variable, value when the graph was built)]
    """

    values: list[Variable]
    others: list[Variable]
    terms: list[tuple[str, Variable]]
    untouched: list[tuple[str, Variable]]
    shared: list[tuple[SharedVariable, np.ndarray]]
    dependent: set[Variable] = field(default_factory=set)

    def shape(self, var: Variable) -> tuple[int, ...]:
        shape = self._shapes.get(var, var.type.shape)
        return tuple(int(n) for n in shape)

    def size(self, var: Variable) -> int:
        return int(np.prod(self.shape(var)))

    def __post_init__(self):
        outputs = [t for _, t in self.terms]
        self.dependent = dependent_variables(outputs, self.values)
        needed = [v for n in toposort(outputs) for v in [*n.inputs, *n.outputs]]
        vague = [v for v in dict.fromkeys(needed) if None in getattr(v.type, "shape", ())]
        self._shapes = {}
        if vague:
            inputs = [*self.values, *self.others]
            shapes = pytensor.function(inputs, [v.shape for v in vague], mode="FAST_COMPILE", on_unused_input="ignore")
            found = shapes(*(self.start[v.name] for v in inputs))
            self._shapes = dict(zip(vague, (tuple(s) for s in found), strict=True))

    @property
    def start(self) -> dict[str, np.ndarray]:
        """A point of the right shapes."""
        return {v.name: np.zeros(v.type.shape, v.type.dtype) for v in [*self.values, *self.others]}


def dependent_variables(outputs: Iterable[Variable], roots: Iterable[Variable]) -> set[Variable]:
    """Variables between `roots` and `outputs` that depend on a root, the roots included."""
    found = set(roots)
    for node in toposort(list(outputs)):
        if any(i in found for i in node.inputs):
            found.update(node.outputs)
    return found


def adds_up(var: Variable) -> bool:
    """Whether sums of this tensor are sums: booleans add by OR, and narrow integers wrap around."""
    return var.type.dtype.startswith("float") or var.type.dtype == "int64"


def mark_dependent(total: Variable, graph: LogpGraph) -> None:
    """Note that what was built on top of the graph depends on the block too."""
    for node in toposort([total]):
        if any(i in graph.dependent for i in node.inputs):
            graph.dependent.update(node.outputs)


def context_inputs(outputs: list[Variable], roots: list[Variable]) -> list[Variable]:
    """What `outputs` read that does not depend on `roots`: the largest such subgraphs, constants left out."""
    dependent = dependent_variables(outputs, roots)
    found = [o for o in outputs if o not in dependent]
    for node in toposort(outputs, blockers=roots):
        if any(i in dependent for i in node.inputs):
            found += [i for i in node.inputs if i not in dependent]
    return [v for v in dict.fromkeys(found) if not isinstance(v, Constant)]


def remade(node: Apply, inputs: list[Variable]) -> list[Variable]:
    """The node on inputs of other types, its own type found again: some Ops keep the one they were made with."""
    if isinstance(node.op, Sum | Prod):
        return type(node.op)(axis=node.op.axis).make_node(*inputs).outputs
    if isinstance(node.op, MakeVector):
        return MakeVector(dtype=np.result_type(*(i.type.dtype for i in inputs)).name).make_node(*inputs).outputs
    return node.op.make_node(*inputs).outputs


def rebuild(
    outputs: list[Variable],
    replace: dict[Variable, Variable],
    rewrite: Callable[[Apply, list[Variable]], list[Variable] | None] | None = None,
) -> list[Variable]:
    """Copy a graph with variables replaced, letting every Op infer its types again."""
    memo = dict(replace)
    for node in toposort(outputs, blockers=list(replace)):
        inputs = [memo.get(i, i) for i in node.inputs]
        new = rewrite(node, inputs) if rewrite else None
        if new is None and any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            same = all(a.type == b.type for a, b in zip(inputs, node.inputs, strict=True))
            new = node.clone_with_new_inputs(inputs).outputs if same else remade(node, inputs)
        for old, out in zip(node.outputs, new or node.outputs, strict=True):
            memo.setdefault(old, out)
    return [memo.get(o, o) for o in outputs]


def rewritten(outputs: list[Variable]) -> list[Variable]:
    """Canonical copies of `outputs`, in terms of the same inputs."""
    inputs = [v for v in graph_inputs(outputs) if not isinstance(v, Constant)]
    fg = FunctionGraph(inputs, outputs, clone=True)
    optdb.query(REWRITES).rewrite(fg)
    return rebuild(list(fg.outputs), dict(zip(fg.inputs, inputs, strict=True)))


def always_true(op: Any, inputs: list[Variable]) -> bool:
    """Whether a comparison says no more than that a probability, or an exponential, is one: 0 <= sigmoid(x) <= 1."""
    if not isinstance(op, GE | LE) or not isinstance(inputs[1], Constant):
        return False
    inner = inputs[0].owner
    function = inner.op.scalar_op if inner is not None and isinstance(inner.op, Elemwise) else None
    if isinstance(op, GE):
        return isinstance(function, Sigmoid | Exp | Sqr | Softplus) and bool((inputs[1].data <= 0).all())
    return isinstance(function, Sigmoid) and bool((inputs[1].data >= 1).all())


def lift(outputs: list[Variable], roots: list[Variable]) -> list[Variable]:
    """Write what moves in the form that costs least.

    Functions of one argument go inside selections from the context: `log(p[z])` is `log(p)[z]`, computed once per context. Products with
    sparse matrices become sums of a few elements, where what moves is discrete.
    """
    dependent = dependent_variables(outputs, roots)
    discrete = not any(r.type.dtype.startswith("float") for r in roots)
    made: set[Variable] = set()

    def rewrite(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        if discrete and any(i in dependent for i in node.inputs) and (product := without_sparse(node, inputs)) is not None:
            return product
        out = node.outputs[0]
        booleans = {Add: pt.or_, Mul: pt.and_}
        op = node.op.scalar_op if isinstance(node.op, Elemwise) else None
        if type(op) in booleans and out.type.dtype == "bool":  # PyTensor's JAX adds them up instead
            return [reduce(booleans[type(op)], inputs)]
        if isinstance(node.op, Dot) and set(out.type.shape) <= {1} and all(i in dependent for i in node.inputs):
            # a quadratic form, taken apart element by element
            return [(inputs[0].reshape((-1,)) * inputs[1].reshape((-1,))).sum().reshape((1,) * out.ndim)]
        if not isinstance(node.op, Elemwise) or len(node.outputs) != 1:
            return None
        if isinstance(node.op.scalar_op, Pow) and isinstance(inputs[1], Constant) and (inputs[1].data == 2).all():
            return [pt.sqr(inputs[0])] if pt.sqr(inputs[0]).type == out.type else None
        if always_true(node.op.scalar_op, inputs):
            return [pt.constant(np.ones([n or 1 for n in out.type.shape], bool))] if None not in out.type.shape else None
        moving = [j for j, i in enumerate(node.inputs) if i in dependent]
        others = [i for j, i in enumerate(inputs) if j not in moving]
        if len(moving) != 1 or not all(all(i.type.broadcastable) for i in others):
            return None
        selection = inputs[moving[0]].owner
        if selection is None:
            return None

        def inside(x: Variable) -> Variable:
            aligned = [i.reshape((1,) * x.ndim) if i.ndim else i for i in others]
            args = iter(aligned)
            return node.op(*(x if j == moving[0] else next(args) for j in range(len(inputs))))

        gather = isinstance(selection.op, AdvancedSubtensor | Subtensor)
        switch = isinstance(selection.op, Elemwise) and isinstance(selection.op.scalar_op, Switch)
        parts = selection.inputs[:1] if gather else selection.inputs[1:]
        if not (gather or switch) or any(p in dependent or p in made for p in parts):
            return None
        if gather:
            out = selection.op(inside(parts[0]), *selection.inputs[1:])
        else:
            out = pt.switch(selection.inputs[0], *(inside(p) for p in parts))
        if out.type.ndim != node.outputs[0].type.ndim:
            return None
        made.update([out])
        return [out]

    return rebuild(outputs, {}, rewrite)


def _conditions(cond: Variable) -> list[Variable]:
    """The elementwise conditions that an `all(...)` joins."""
    node = cond.owner
    if node is None:
        return [cond]
    if isinstance(node.op, All | MakeVector | ScalarFromTensor | TensorFromScalar):
        return [c for i in node.inputs for c in _conditions(i)]
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, AND) and cond.type.dtype == "bool":
        return [c for i in node.inputs for c in _conditions(i)]
    return [cond]


def _fits(cond: Variable, expr: Variable) -> bool:
    """Whether `cond` broadcasts against `expr` without enlarging it."""
    if cond.ndim > expr.ndim:
        return False
    shapes = zip(cond.type.shape[::-1], expr.type.shape[::-1], strict=False)
    return all(c == 1 or (c == e and c is not None) for c, e in shapes)


def _promoted(constant: Constant) -> Constant:
    # Python floats that float32 can hold become float32 constants, which JAX would carry through int64
    if constant.type.dtype == "float32" and pytensor.config.floatX == "float64":
        return pt.constant(constant.data.astype("float64"))
    return constant


def refuse_random(terms: list[tuple[str, Variable]]) -> None:
    """Refuse a log density that is another number every time it is asked for.

    Raises
    ------
    ValueError
    """
    for name, term in terms:
        if any(isinstance(v.type, RandomType) for v in graph_inputs([term])):
            raise ValueError(
                f"The log density of {name!r} draws random numbers, as pm.Minibatch does: it is another number every time, and no chain "
                "has the posterior as its distribution. Observe the whole data, and leave total_size out; minibatches are for pm.fit."
            )


def logp_graph(model: pm.Model, names: list[str], point: dict[str, np.ndarray], supports: dict[str, Any]) -> LogpGraph:
    """Rewrite the model's log density for a block of value variables.

    Checks and asserts go; what they guarded becomes -inf. Shared variables become constants. `supports` are the (lower, upper) of the
    block's variables, None where unbounded.
    """
    raw = model.logp(sum=False)
    labels = [v.name for v in model.free_RVs + model.observed_RVs + model.potentials]
    refuse_random(list(zip(labels, raw, strict=True)))
    shared = [(v, np.array(v.get_value(), copy=True)) for v in graph_inputs(raw) if isinstance(v, SharedVariable)]
    typed = {v: pt.tensor(v.name, shape=np.shape(point[v.name]), dtype=v.type.dtype) for v in model.value_vars}
    replace: dict[Variable, Variable] = dict(typed)
    replace.update({v: pt.constant(value, name=v.name) for v, value in shared})
    replace.update({v: _promoted(v) for v in graph_inputs(raw) if isinstance(v, Constant) and hasattr(v.type, "dtype")})
    values = [v for v in typed.values() if v.name in names]
    values.sort(key=lambda v: names.index(v.name))
    others = [v for v in typed.values() if v.name not in names]
    guards: list[tuple[Apply, Variable]] = []

    def without_checks(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        if isinstance(node.op, SymbolicOp):  # logsumexp, xlogy and their like: the rules know what they are made of
            return rebuild(node.op.build_inner_graph(*inputs), {}, without_checks)
        if isinstance(node.op, OpFromGraph):
            return rebuild(node.op.inner_outputs, dict(zip(node.op.inner_inputs, inputs, strict=True)), without_checks)
        if not isinstance(node.op, CheckAndRaise):
            return None
        expr, *conds = inputs
        for cond in (c for joined in conds for c in _conditions(joined)):
            if isinstance(node.op, CheckParameterValue) and expr.type.dtype.startswith("float") and _fits(cond, expr):
                expr = pt.switch(cond, expr, -np.inf)
            else:
                guards.append((node, pt.switch(cond, 0.0, -np.inf)))
        return [expr]

    terms = rebuild(raw, replace, without_checks)
    for node, guard in guards:  # a check counts as part of the first term it guards
        labels.append(next(n for n, t in zip(labels, raw, strict=False) if node.outputs[0] in ancestors([t])))
        terms.append(guard)
    fg = FunctionGraph([*values, *others], terms, clone=False)
    optdb.query(REWRITES).rewrite(fg)
    # out of the FunctionGraph, whose variables may not be used in another one
    memo = {v: v.clone() for v in [*values, *others]}
    values, others = [memo[v] for v in values], [memo[v] for v in others]
    outputs = rewritten(lift(rebuild(list(fg.outputs), memo), values))
    bounds = {v: supports[str(v.name)] for v in values}
    for name, guard in index_guards(list(zip(labels, outputs, strict=True)), dependent_variables(outputs, values), bounds):
        labels.append(name)
        outputs.append(guard)
    known = dependent_variables(outputs, values)
    named = list(zip(labels, outputs, strict=True))
    if not any(v.type.dtype.startswith("float") for v in values):
        refuse_sparse(named, known, names)
    return LogpGraph(values, others, [(n, t) for n, t in named if t in known], [(n, t) for n, t in named if t not in known], shared)
