"""Packed points, in which all variables that a step draws together are one array, a vector."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from pymc_discrete.space.space import Member, Space


class Points:
    """Which variables of a model a chain keeps together in one vector, and conversion to and from this form.

    Parameters
    ----------
    spaces : the spaces of the steps that draw discrete variables; no variable is in two of them

    Attributes
    ----------
    vectors : {name of a vector: the variables in it, each with the index `start` at which it begins there}
    """

    def __init__(self, spaces: Iterable[Space]):
        self.vectors: dict[str, list[Member]] = {}
        for space in spaces:
            for start, v in space.blocks:
                members = [m for m in space.members if m.size and start <= m.start < start + v.size]
                if len(members) > 1:
                    self.vectors[v.name] = [m._replace(start=m.start - start) for m in members]
        self._places = {m.name: (name, m) for name, members in self.vectors.items() for m in members}

    @property
    def names(self) -> dict[str, list[str]]:
        """{name of a vector: names of the variables in it}."""
        return {name: [m.name for m in members] for name, members in self.vectors.items()}

    def packed(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The packed form {variable or vector: array} of a point {variable: array}."""
        vectors = {
            name: np.concatenate([np.ravel(point[m.name]) for m in members])
            for name, members in self.vectors.items()
        }
        return {
            name: np.asarray(value) for name, value in point.items() if name not in self._places
        } | vectors

    def pieces(self, space: Space) -> list[Member]:
        """The arrays of a point {variable or vector: array} with the sites of a space, in their order.

        If the point has variables of the space in a vector of another step's space, each of these variables
        is a piece of its own.
        """
        pieces = []
        for start, v in space.blocks:
            members = [m for m in space.members if start <= m.start < start + v.size]
            parts = [m._replace(start=m.start - start) for m in members]
            whole = len(members) < 2 or self.vectors.get(v.name) == parts
            pieces += [Member(v.name, v.shape, start)] if whole else members
        return pieces

    def replaced(self, values: Mapping[str, Any], name: str, new: Any) -> dict[str, Any]:
        """`values` {variable or vector: array} with a new array for `name`, which may be in a vector."""
        if name in values:
            return {**values, name: new.reshape(values[name].shape).astype(values[name].dtype)}
        vector, m = self._places[name]
        whole = values[vector]
        return {**values, vector: whole.at[m.start : m.start + m.size].set(new.astype(whole.dtype))}

    def unpacked(self, values: Mapping[str, Any], lead: int = 0) -> dict[str, Any]:
        """{variable: array}, unpacked from {variable or vector: array}, whose first `lead` axes are chains or
        draws.
        """
        parts = {}
        for name, value in values.items():
            for m in self.vectors.get(name, ()):
                parts[m.name] = value[(*[slice(None)] * lead, slice(m.start, m.start + m.size))].reshape(
                    *value.shape[:lead], *m.shape
                )
            if name not in self.vectors:
                parts[name] = value
        return parts

    def by_name(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """`values` {variable or vector: array} as a mapping that also has the parts of every vector."""
        return ByName(self._places, values)


class ByName(Mapping[str, Any]):
    """A mapping from the names of vectors, and of all variables, to their arrays at a point of a chain."""

    def __init__(self, places: dict[str, tuple[str, Member]], values: Mapping[str, Any]):
        self._places, self._values = places, values

    def __getitem__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        vector, m = self._places[name]
        return self._values[vector][m.start : m.start + m.size].reshape(m.shape)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._values, *self._places])

    def __len__(self) -> int:
        return len(self._values) + len(self._places)
