"""The log density of a model as one rewritten PyTensor graph, split by what a block touches."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytensor
from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.compile.mode import Mode, optdb
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.math import Prod, Sum

from pymc_discrete.targets.analysis import Depends

REWRITES = RewriteDatabaseQuery(include=["ShapeOpt", "canonicalize", "stabilize"])
SHAPES = Mode(linker="py", optimizer=RewriteDatabaseQuery(include=["ShapeOpt", "local_shape_to_shape_i"]))


@dataclass
class LogpGraph:
    """Rewritten log density terms of a model.

    Attributes
    ----------
    values : the block's variables, with static shapes: a value variable, or a vector made of several
    others : the model's other value variables, with static shapes
    terms : [(name, tensor)] whose sums add to the part of the log density that depends on the block
    untouched : [(name, tensor)] of the rest of the log density
    shared : [(shared variable, value when the graph was built)]
    start : {value variable: array}, a point of the model
    groups : {variable of `values` or `others`: the names of the value variables that it is made of}
    written_as_one : {name of a term: those that it is made of}, where it is made of several
    out_of_bounds : what to say of variables of the block that are an index with values out of bounds
    """

    values: list[Variable]
    others: list[Variable]
    terms: list[tuple[str, Variable]]
    untouched: list[tuple[str, Variable]]
    shared: list[tuple[SharedVariable, np.ndarray]]
    start: dict[str, np.ndarray]
    groups: dict[Variable, list[str]]
    written_as_one: dict[str, list[str]]
    out_of_bounds: list[str]

    def __post_init__(self):
        self._shapes: dict[Variable, tuple[int, ...]] = {}
        self._depends = Depends(self.values)

    def depends(self, var: Variable) -> bool:
        """Whether a variable of the graph, or one built on it, depends on the block."""
        return var in self._depends

    def shape(self, var: Variable) -> tuple[int, ...]:
        """The shape of a tensor of the graph, or of one built on it; where its type does not say, that at the
        start.
        """
        known = getattr(var.type, "shape", ())
        if None not in known:
            return known
        if var not in self._shapes:
            below = [v for n in toposort([var, *(t for _, t in self.terms)]) for v in n.outputs]
            vague = [
                v
                for v in dict.fromkeys([var, *below])
                if None in getattr(v.type, "shape", ()) and v not in self._shapes
            ]
            inputs = [*self.values, *self.others]
            shapes = pytensor.function(
                inputs, [v.shape for v in vague], mode=SHAPES, on_unused_input="ignore"
            )
            found = shapes(*self.arguments(self.start))
            self._shapes.update({v: tuple(map(int, s)) for v, s in zip(vague, found, strict=True)})
        return self._shapes[var]

    def size(self, var: Variable) -> int:
        return int(np.prod(self.shape(var)))

    def arguments(self, point: dict[str, np.ndarray]) -> list[np.ndarray]:
        """The values of `values` and `others` at a point of the model, which may hold a vector whole or in
        parts.
        """

        def at(v: Variable) -> np.ndarray:
            own = self.groups[v]
            return (
                point[str(v.name)]
                if v.name in point
                else np.concatenate([np.ravel(point[name]) for name in own])
            )

        return [np.asarray(at(v), v.type.dtype) for v in [*self.values, *self.others]]


def adds_up(var: Variable) -> bool:
    """Whether sums of this tensor are sums: booleans add by OR, and narrow integers wrap around."""
    return var.type.dtype.startswith("float") or var.type.dtype == "int64"


def context_inputs(outputs: list[Variable], roots: list[Variable]) -> list[Variable]:
    """What `outputs` read that does not depend on `roots`: the largest such subgraphs, constants left out."""
    dependent = Depends(roots)
    found = [o for o in outputs if o not in dependent]
    for node in toposort(outputs, blockers=roots):
        if any(i in dependent for i in node.inputs):
            found += [i for i in node.inputs if i not in dependent]
    return [v for v in dict.fromkeys(found) if not isinstance(v, Constant)]


def remade(node: Apply, inputs: list[Variable]) -> list[Variable]:
    """The node on inputs of other types, its own type found again: some Ops keep the one they
    were made with.
    """
    if isinstance(node.op, Sum | Prod):
        return type(node.op)(axis=node.op.axis).make_node(*inputs).outputs
    if isinstance(node.op, MakeVector):
        return (
            MakeVector(dtype=np.result_type(*(i.type.dtype for i in inputs)).name).make_node(*inputs).outputs
        )
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


def opened(node: Apply, inputs: list[Variable], inside: Callable | None = None) -> list[Variable] | None:
    """What an Op that is made of others is made of (logsumexp, xlogy): those are what there are rules for."""
    inside = opened if inside is None else inside
    if isinstance(node.op, SymbolicOp):
        return rebuild(node.op.build_inner_graph(*inputs), {}, inside)
    if isinstance(node.op, OpFromGraph):
        return rebuild(node.op.fgraph.bind(dict(zip(node.op.inner_inputs, inputs, strict=True))), {}, inside)
    return None


def rewrite(fg: FunctionGraph) -> None:
    """Bring a graph to PyTensor's canonical form."""
    optdb.query(REWRITES).rewrite(fg)


def rewritten(outputs: list[Variable]) -> list[Variable]:
    """Canonical copies of `outputs`, in terms of the same inputs."""
    inputs = [v for v in graph_inputs(outputs) if not isinstance(v, Constant)]
    fg = FunctionGraph(inputs, outputs, clone=True)
    rewrite(fg)
    return rebuild(list(fg.outputs), dict(zip(fg.inputs, inputs, strict=True)))
