"""The log density of a model as one rewritten PyTensor graph, split by what a block touches."""

from dataclasses import dataclass

import numpy as np
import pytensor
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.traversal import toposort

from pymc_discrete.targets.graph.analysis import Depends

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
