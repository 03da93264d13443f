"""Numbers of a graph: data and constants that are arguments of compiled programs.

A program is compiled once for models that differ by such numbers only. In a graph they are inputs, and not
constants, so that their values are no part of the program, with one exception: a comparison of numbers that
has the same outcome for all elements (a scale is positive) is replaced by this outcome, and the program is
used for other numbers only if their outcome is the same. A tensor that is computed from numbers alone is
computed once, on the host, and not in every draw.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_discrete.structure.analysis import Analysis
from pymc_discrete.structure.jaxify import PYTENSOR
from pymc_discrete.structure.rebuild import known_size, rebuild

NUMBER = "/number "  # the beginning of the names of a model's numbers
AS_WRITTEN = Mode(linker="py", optimizer=None)


class Number(TensorVariable):
    """An input of a graph that stands for data or a constant of a model.

    Attributes
    ----------
    value : its value in the model for which the graph was made
    """

    value: np.ndarray

    @classmethod
    def of(cls, name: str, value: np.ndarray) -> "Number":
        """The number with the given name and value."""
        number = cls(TensorType(value.dtype, shape=value.shape), None, name=name)
        number.value = value
        return number

    def clone(self, **options: Any) -> "Number":
        copy = super().clone(**options)
        copy.value = self.value
        return copy


class OfNumbers(Analysis[bool | None]):
    """Whether a variable is computed from numbers and constants alone; None if from constants alone."""

    def __init__(self) -> None:
        super().__init__({})

    def after(self, node, values: list[bool | None]) -> list[bool | None]:
        alone = False if False in values else True if True in values else None
        return [alone] * len(node.outputs)

    def at_leaf(self, var: Variable) -> bool | None:
        return True if isinstance(var, Number) else None if isinstance(var, Constant) else False


def numbers_in(graphs: Iterable[Variable]) -> list[Number]:
    """The numbers that graphs read, each once."""
    return list(dict.fromkeys(v for v in ancestors(list(graphs)) if isinstance(v, Number)))


def values_of_graphs(graphs: Sequence[Variable], values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The values of graphs whose only inputs are numbers, given {name of a number: value}."""
    if not graphs:
        return []
    numbers = numbers_in(graphs)
    function = pytensor.function(numbers, list(graphs), mode=AS_WRITTEN)
    with np.errstate(all="ignore"):
        return function(*(values[str(v.name)] for v in numbers))


class Decision(NamedTuple):
    """A comparison of numbers whose outcome is the same for all elements."""

    condition: Variable
    outcome: bool


def decided(outputs: list[Variable]) -> tuple[list[Variable], list[Decision]]:
    """Graphs in which comparisons of numbers with the same outcome for all elements are replaced by this
    outcome.
    """
    alone = OfNumbers()
    below = [v for node in toposort(outputs) for v in [*node.inputs, *node.outputs]]
    computed = [v for v in dict.fromkeys(below) if v.owner is not None and is_bool(v)]
    conditions = [v for v in computed if alone.of(v) is True]
    known = {v.name: v.value for v in numbers_in(conditions)}
    decisions, replace = [], {}
    for condition, value in zip(conditions, values_of_graphs(conditions, known), strict=True):
        if value.size and (value == value.flat[0]).all() and None not in condition.type.shape:
            outcome = bool(value.flat[0])
            decisions.append(Decision(condition, outcome))
            replace[condition] = pt.constant(np.full(condition.type.shape, outcome))
    return rebuild(outputs, replace), decisions


def is_bool(v: Variable) -> bool:
    """Whether a variable is a tensor of booleans."""
    return isinstance(v.type, TensorType) and v.type.dtype == "bool"


class NeedsValues(Exception):
    """A graph can only be analysed if the values of some numbers are known.

    The values then become a part of the key by which what was made for a model is kept, so that it is used
    again only for models with these values.

    Attributes
    ----------
    names : the names of the numbers whose values are needed
    """

    def __init__(self, names: set[str]):
        super().__init__(", ".join(sorted(names)))
        self.names = names


def hoisted(outputs: list[Variable], prefix: str) -> tuple[list[Variable], dict[str, Variable]]:
    """Graphs in which each largest part that is computed from numbers alone is replaced by a new number.

    Returns
    -------
    outputs
    derived : {name of a new number, beginning with `prefix`: the part that it replaces, a graph of other
        numbers}

    Raises
    ------
    NeedsValues
        Where the shape of a part may depend on the values of numbers.
    """
    outputs = rebuild(outputs, {}, known_size)  # sizes stay constants, since a program must know them
    alone = OfNumbers()
    parts = [o for o in outputs if alone.of(o) is True]
    for node in toposort(outputs):
        if not all(alone.of(o) is True for o in node.outputs):
            parts += [i for i in node.inputs if alone.of(i) is True]
    parts = [v for v in dict.fromkeys(parts) if v.owner is not None and isinstance(v.type, TensorType)]
    vague = [part for part in parts if None in part.type.shape]
    # A part without a static shape may have a shape that depends on the values of numbers. A program could
    # then not be used for other numbers, since shapes are a part of it.
    if vague:
        raise NeedsValues({str(v.name) for v in numbers_in(vague)})
    values = values_of_graphs(parts, {str(v.name): v.value for v in numbers_in(parts)})
    numbers = {
        part: Number.of(f"{prefix}{n}", np.asarray(value))
        for n, (part, value) in enumerate(zip(parts, values, strict=True))
    }
    return rebuild(outputs, dict(numbers)), {str(number.name): part for part, number in numbers.items()}


class Derivation:
    """Computes the inputs of a graph that are numbers, from the data and constants of a model.

    Parameters
    ----------
    inputs : the numbers that the graph reads: numbers of the model, and numbers derived from them
    derived : {name of a derived number: the graph of other numbers that computes it}, as from `hoisted`
    decisions : the comparisons of numbers that were replaced by their outcome, as from `decided`
    """

    def __init__(self, inputs: Sequence[Number], derived: dict[str, Variable], decisions: Sequence[Decision]):
        self._plain = [str(v.name) for v in inputs if v.name not in derived]
        self._derived = {str(v.name): derived[str(v.name)] for v in inputs if v.name in derived}
        self._decisions = list(decisions)

    def extended(self, derived: dict[str, Variable], read: Sequence[Number] = ()) -> "Derivation":
        """A derivation that also computes further inputs.

        Parameters
        ----------
        derived : {name of a further input: the graph of numbers that computes it}
        read : further inputs that are numbers of the model themselves
        """
        graphs = list(derived.values())
        known: dict[Variable, Variable] = {
            v: self._derived[str(v.name)] for v in numbers_in(graphs) if v.name in self._derived
        }
        more = Derivation([], {}, self._decisions)
        more._plain = [*self._plain, *(str(v.name) for v in read)]
        more._derived = self._derived | dict(zip(derived, rebuild(graphs, known), strict=True))
        return more

    @property
    def _graphs(self) -> list[Variable]:
        return [*self._derived.values(), *(d.condition for d in self._decisions)]

    @cached_property
    def _numbers(self) -> list[Number]:
        return numbers_in(self._graphs)

    @cached_property
    def _function(self) -> Callable:
        return pytensor.function(self._numbers, self._graphs, mode=AS_WRITTEN)

    def of(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """The values of the inputs, given the values of a model's numbers.

        None where the graph does not hold for these values: where a comparison has another outcome, or a
        derived number another shape or dtype.
        """
        if not self._graphs:
            return {name: values[name] for name in self._plain}
        with PYTENSOR, np.errstate(all="ignore"):
            found = self._function(*(values[str(v.name)] for v in self._numbers))
        derived, outcomes = found[: len(self._derived)], found[len(self._derived) :]
        types = [graph.type for graph in self._derived.values()]
        if any((np.shape(a), a.dtype) != (t.shape, t.dtype) for a, t in zip(derived, types, strict=True)):
            return None
        if any((a != d.outcome).any() for a, d in zip(outcomes, self._decisions, strict=True)):
            return None
        return {name: values[name] for name in self._plain} | dict(zip(self._derived, derived, strict=True))
