"""What a model's log density is made of, as a key: models with equal keys have the same log density.

What has been analysed and compiled for a model is used again for another one with an equal key (see
`pymc_discrete.reuse`). The key is computed from the graphs of the random variables, which is much faster than
to derive the log density.
"""

import hashlib
from collections.abc import Hashable, Iterable
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.tensor.random.type import RandomType
from scipy.sparse import issparse


class Same(NamedTuple):
    """An object without a key: it is equal to itself only."""

    thing: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is other.thing

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return id(self.thing)


def key_of_model(model: pm.Model) -> Hashable:
    """The key of a model: its variables, how they depend on one another, constants, data and transforms.

    Starting values and coordinates are no part of it. Functions of the user (of a `pm.CustomDist` or a
    transform) are equal to themselves only, since what they read cannot be known.
    """
    rvs = list(model.rvs_to_values)
    made = [*rvs, *model.potentials, *model.deterministics]
    values = [
        (str(value.name), key_of_graph([value]), key_of_object(model.rvs_to_transforms.get(rv)))
        for rv, value in model.rvs_to_values.items()
    ]
    kinds = [[str(v.name) for v in group] for group in (model.free_RVs, model.observed_RVs, model.value_vars)]
    return (
        tuple(str(v.name) for v in made),
        tuple(map(tuple, kinds)),
        key_of_graph(made, {value: number for number, value in enumerate(model.value_vars)}),
        tuple(values),
    )


def shared_values(model: pm.Model) -> list[tuple[SharedVariable, np.ndarray]]:
    """[(shared variable of the model, its value now)], of pm.Data and mutable lengths of dimensions."""
    made = [*model.basic_RVs, *model.rvs_to_values.values(), *model.potentials, *model.deterministics]
    shared = [v for v in graph_inputs(made) if isinstance(v, SharedVariable) and hasattr(v.type, "dtype")]
    return [(v, np.array(v.get_value(), copy=True)) for v in shared]


def key_of_graph(outputs: Iterable[Variable], known: dict[Variable, int] | None = None) -> Hashable:
    """The key of PyTensor graphs: their Ops, how they are connected, and their leaves.

    Parameters
    ----------
    known : {leaf: number}, leaves whose identity is part of the key
    """
    outputs = list(outputs)
    number: dict[Variable, int] = {}
    parts: list[Hashable] = []

    def numbered(v: Variable) -> int:
        if v not in number:
            number[v] = len(number)
            parts.append(("known", known[v]) if known and v in known else key_of_leaf(v))
        return number[v]

    for node in toposort(outputs):
        inputs = tuple(map(numbered, node.inputs))
        for out in node.outputs:
            number[out] = len(number)
        parts.append((node.op, inputs, tuple(out.type for out in node.outputs)))
    ends = tuple(map(numbered, outputs))
    return (*parts, ends)


def key_of_leaf(v: Variable) -> Hashable:
    """The key of a variable that no Op computes."""
    if isinstance(v.type, RandomType):
        return "random generator"
    if isinstance(v, SharedVariable):
        return ("shared", v.type, key_of_object(v.get_value(borrow=True)))
    if isinstance(v, Constant):
        return ("constant", v.type, key_of_object(v.data))
    return ("input", v.type, v.name)


def key_of_object(thing: Any) -> Hashable:
    """The key of data, and of objects of PyMC and their functions."""
    if isinstance(thing, np.ndarray) and thing.dtype != object:
        return (thing.dtype.str, thing.shape, digest(thing))
    if issparse(thing):
        compressed = thing.tocsr()
        return (
            thing.shape,
            *(key_of_object(a) for a in (compressed.data, compressed.indices, compressed.indptr)),
        )
    if isinstance(thing, Variable):
        return key_of_graph([thing])
    if isinstance(thing, list | tuple):
        return (type(thing), *map(key_of_object, thing))
    if isinstance(thing, dict):
        return tuple((str(name), key_of_object(value)) for name, value in sorted(thing.items()))
    if thing is None or isinstance(thing, str | bytes | int | float | complex | np.generic | np.dtype):
        return (type(thing), thing)
    if isinstance(thing, slice):
        return (slice, thing.start, thing.stop, thing.step)
    module = getattr(thing, "__module__", None) or ""
    if module == "pymc" or module.startswith("pymc."):
        if isinstance(thing, FunctionType):
            cells = [cell.cell_contents for cell in thing.__closure__ or ()]
            return (thing.__code__, *map(key_of_object, [*cells, thing.__defaults__, thing.__kwdefaults__]))
        if not isinstance(thing, type) and hasattr(thing, "__dict__"):
            return (type(thing), key_of_object(vars(thing)))
    return thing if isinstance(thing, type) else Same(thing)


def digest(a: np.ndarray) -> bytes:
    """A checksum of the numbers of an array."""
    return hashlib.blake2b(np.ascontiguousarray(a).tobytes(), digest_size=16).digest()
