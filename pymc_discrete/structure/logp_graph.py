"""The log density of a model as a rewritten PyTensor graph, split by whether terms depend on a block."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytensor
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.traversal import ancestors, toposort

from pymc_discrete.runtime.names import untransformed
from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.bounds import IntegerBounds
from pymc_discrete.structure.numbers import Derivation, Number, hoisted, numbers_in

SHAPES = Mode(linker="py", optimizer=RewriteDatabaseQuery(include=["ShapeOpt", "local_shape_to_shape_i"]))
INTEGRATED = "integrated out"  # the name of the term that stands for an integral
# prefix of the names of the further variables: variables that no model has, which a program draws at the
# start of each draw, and given which a likelihood is a quadratic form
AUXILIARY = "/auxiliary: "


class Gates(NamedTuple):
    """A quadratic form in coefficients, of which some are multiplied by gates: functions of discrete sites.

    The log density of the coefficients beta (p,) is -beta' A beta / 2 + b' beta, up to a constant. The data
    depend on the effective coefficients gates * beta, so that, with products element by element,

        A = prior_precision + gates gates' * data_precision
        b = prior_linear + gates * data_linear

    Attributes
    ----------
    gated : (p,) bool, which coefficients have a gate; the priors of these coefficients are independent
    gates : (p,), the gates, 1 for coefficients without a gate
    data_precision, data_linear : (p, p) and (p,), the log likelihood as a quadratic form in gates * beta
    prior_precision, prior_linear : (p, p) and (p,), the log prior as a quadratic form in beta
    """

    gated: np.ndarray
    gates: Variable
    data_precision: Variable
    data_linear: Variable
    prior_precision: Variable
    prior_linear: Variable

    @property
    def variables(self) -> list[Variable]:
        """The attributes that are variables of a graph, in their order: all but `gated`."""
        return list(self[1:])

    def of(self, variables: list[Variable]) -> "Gates":
        """This quadratic form with other variables in place of its own, in the order of `self.variables`."""
        return Gates(self.gated, *variables)


class Columns(NamedTuple):
    """A quadratic form in a linear predictor X (gates * beta), without a matrix over all coefficients beta.

    Attributes
    ----------
    places : (q,) int, for each column of X with a gate, the index of its coefficient among all coefficients;
        the priors of the coefficients with a gate are independent
    others : (m,) int, the indices of the coefficients without a gate
    form : the gates (q,), X and the coefficients of the quadratic form, as variables of the graph, in the
        order of the attributes of `integrals.active.PredictorForm`
    """

    places: np.ndarray
    others: np.ndarray
    form: list[Variable]

    @property
    def gates(self) -> Variable:
        """(q,), the gate of each column of X that has one."""
        return self.form[0]


class Integral(NamedTuple):
    """The density of coefficients beta that were integrated out, given all else.

    The density is exp(-beta' A beta / 2 + b' beta), up to a constant factor.

    Attributes
    ----------
    shapes : {coefficient variable: its shape}; their elements, one variable after another, are beta (p,)
    precision, linear : A (p, p) and b (p,); None where there are `columns` instead
    coupled : (p,) bool, False for rows of A that are 0 off the diagonal; None where there are `columns`
    gates : how A and b depend on gates; None where they depend on discrete sites in another way
    columns : the form without A, where there are many coefficients
    """

    shapes: dict[str, tuple[int, ...]]
    precision: Variable | None
    linear: Variable | None
    coupled: Variable | None
    gates: Gates | None
    columns: Columns | None = None


class Conjugate(NamedTuple):
    """A parameter that was integrated out in closed form, whose distribution given all else is known.

    Attributes
    ----------
    name : the name of its value variable
    shape : the shape of its value variable
    family : the name of the conjugate family
    posterior : parameters of its distribution
    given : value variables that were also integrated out, and that the parameters of `posterior` read; they
        are drawn first
    """

    name: str
    shape: tuple[int, ...]
    family: str
    posterior: list[Variable]
    given: list[Variable]


@dataclass
class LogpGraph:
    """Rewritten log density terms of a model.

    Attributes
    ----------
    values : the block's variables, with static shapes: value variables, or vectors of several of them
    others : the model's other value variables, or vectors of several of them, with static shapes
    terms : [(name, tensor)] that depend on the block; the log density is the sum of all elements of all terms
    untouched : [(name, tensor)] that do not depend on the block
    start : {value variable: array}, a point of the model
    groups : {variable of `values` or `others`: the names of the value variables that it is made of}
    derivation : how the numbers among `others` are computed from the numbers of a model
    written_as_one : {name of a term that combines several: their names}
    out_of_bounds : [(variable, warning)] for variables of the block that are an index and may be out of
        bounds
    bounds : the bounds of the integers of the graph, at all states at which it is evaluated
    integral : the coefficients that were integrated out together, or None
    conjugate : the parameters that were integrated out each in closed form
    """

    values: list[Variable]
    others: list[Variable]
    terms: list[tuple[str, Variable]]
    untouched: list[tuple[str, Variable]]
    start: dict[str, np.ndarray]
    groups: dict[Variable, list[str]]
    derivation: Derivation
    written_as_one: dict[str, list[str]]
    out_of_bounds: list[tuple[str, str]]
    bounds: IntegerBounds
    integral: Integral | None = None
    conjugate: list[Conjugate] = field(default_factory=list)

    def __post_init__(self):
        self._shapes: dict[Variable, tuple[int, ...]] = {}
        self._depends = Depends(self.values)

    def claim(self, names: Collection[str]) -> None:
        """Count the terms of the named variables and potentials as terms that depend on the block."""
        own = [
            (name, t)
            for name, t in self.untouched
            if not set(names).isdisjoint(self.written_as_one.get(name, [name]))
        ]
        self.untouched = [term for term in self.untouched if term not in own]
        self.terms = [*self.terms, *own]

    def depends(self, var: Variable) -> bool:
        """Whether a variable, which the graph may or may not contain, depends on the block."""
        return var in self._depends

    @property
    def read(self) -> list[Variable]:
        """The variables of `others` that the terms of the block read."""
        above = set(ancestors([t for _, t in self.terms]))
        return [v for v in self.others if v in above]

    @property
    def read_by_block_alone(self) -> list[Variable]:
        """Variables of `others` that are read only by their own priors and by terms that the block enters.

        Variables that the prior of a variable of the block reads are left out: they say how probable the
        values of this variable are, and not what they mean for the data.
        """
        own = {v: {untransformed(name) for name in self.groups[v]} for v in self.others}
        block, elsewhere = {name for v in self.values for name in self.groups[v]}, set[Variable]()
        for name, term in [*self.terms, *self.untouched]:
            named = set(self.written_as_one.get(name, [name]))
            if not named.isdisjoint(block) or not self.depends(term):
                above = set(ancestors([term]))
                elsewhere |= {v for v in self.others if v in above and named.isdisjoint(own[v])}
        return [v for v in self.read if v not in elsewhere]

    def shape(self, var: Variable) -> tuple[int, ...]:
        """The shape of a tensor of the graph, or of a tensor computed from tensors of the graph.

        A shape that the type of the tensor leaves open is computed at the point `start`.
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
            at_start = shapes(*self.arguments(self.start))
            self._shapes.update({v: tuple(map(int, s)) for v, s in zip(vague, at_start, strict=True)})
        return self._shapes[var]

    def size(self, var: Variable) -> int:
        """The number of elements of a tensor."""
        return int(np.prod(self.shape(var)))

    def hoist(self, outputs: list[Variable], prefix: str) -> list[Variable]:
        """`outputs` with a new number in place of each largest part that is computed from numbers alone.

        The new numbers become inputs of this graph. Their names begin with `prefix`.
        """
        outputs, derived = hoisted(outputs, prefix)
        known = {v.name for v in self.others}
        new = [v for v in numbers_in(outputs) if v.name not in known]
        self.others += new
        self.groups |= {v: [str(v.name)] for v in new}
        self.start |= {str(v.name): v.value for v in new}
        self.derivation = self.derivation.extended(
            {str(v.name): derived[str(v.name)] for v in new if v.name in derived},
            [v for v in new if v.name not in derived],
        )
        return outputs

    def forget_numbers(self, outputs: list[Variable]) -> None:
        """Remove from the inputs of the graph the numbers that none of `outputs` reads."""
        read = set(numbers_in(outputs))
        self.others = [v for v in self.others if v in read or not isinstance(v, Number)]

    def arguments(self, point: dict[str, np.ndarray]) -> list[np.ndarray]:
        """The values of `values` and `others` at a point of the model.

        A vector is taken from the point by its own name, or concatenated from the variables that it is made
        of.
        """

        def at(v: Variable) -> np.ndarray:
            if v.name in point:
                return point[str(v.name)]
            return np.concatenate([np.ravel(point[name]) for name in self.groups[v]])

        return [np.asarray(at(v), v.type.dtype) for v in [*self.values, *self.others]]


def adds_up(var: Variable) -> bool:
    """Whether `+` adds the elements of a tensor as numbers, which is so for floats and int64.

    The sum of booleans is OR, and shorter integers wrap around: such sums must not be split.
    """
    return var.type.dtype.startswith("float") or var.type.dtype == "int64"
