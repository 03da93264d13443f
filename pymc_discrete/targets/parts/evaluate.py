"""Values of single elements of the log density graph, as JAX expressions, with a site held at each of its
candidates.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Constant, Variable

from pymc_discrete.targets.indexing import take
from pymc_discrete.targets.structure.dependence import Dependence
from pymc_discrete.targets.structure.reads import Entries


class Moves(NamedTuple):
    """Which sites move in each row of an evaluation, and to what.

    sites : [(R,) int], static, the sites that belong to each row of the index tables
    candidates : [(r, k)] the values they take together, for the rows asked for
    """

    sites: list[np.ndarray]
    candidates: list[Any]


class Choice(NamedTuple):
    """Values with a candidate axis that only a condition varies along: what follows is computed for both
    sides, not for every candidate.

    which : (..., k) bool
    then, otherwise : (..., 1)
    """

    which: Any
    then: Any
    otherwise: Any

    @classmethod
    def of(cls, which) -> "Choice":
        """A condition itself."""
        shape = (1,) * jnp.ndim(which)
        return cls(which, jnp.ones(shape, bool), jnp.zeros(shape, bool))

    def values(self):
        return jnp.where(*self)


def condition(values: list[Any], reads: list[np.ndarray | None]):
    """The one condition that values vary by along the candidate axis; None where there is no such."""
    choices = [v for v in values if isinstance(v, Choice)]
    others = [
        v for v, r in zip(values, reads, strict=True) if not (r is None or v is None or isinstance(v, Choice))
    ]
    one = (
        choices
        and all(c.which is choices[0].which for c in choices)
        and all(jnp.shape(v)[-1] == 1 for v in others)
    )
    return choices[0].which if one else None


class Reader:
    """Evaluate elements at one state.

    Parameters
    ----------
    dependence : the rules
    state : {variable: flat array} for the block's variables and the leaves of the graph
    rows : None, or (r,) int, the rows of every index table that are wanted
    moves : None, or the sites that move, one per row: then the results are wanted with each row's site at
        each candidate
    """

    def __init__(
        self, dependence: Dependence, state: dict[Variable, Any], rows=None, moves: Moves | None = None
    ):
        self.dependence, self.state, self.rows, self.moves = dependence, state, rows, moves
        self._starts = {}
        start = 0
        for v in dependence.graph.values:
            self._starts[v] = start
            start += dependence.graph.size(v)
        self._memo: dict[Any, Any] = {}

    def read(self, var: Variable, index: np.ndarray):
        """Elements `index` (R, ...) of `var`, with a trailing candidate axis: (r, ..., k), or 1 wherever
        nothing varies.
        """
        value = self._read(var, index)
        return value.values() if isinstance(value, Choice) else value

    def _read(self, var: Variable, index: np.ndarray):
        key = (var, index.shape, index.tobytes())
        if key not in self._memo:
            self._memo[key] = self._compute(var, index)
        return self._memo[key]

    def _compute(self, var: Variable, index: np.ndarray):
        if isinstance(var, Constant):
            return take(np.asarray(var.data).reshape(-1), index, self.rows)[..., None]
        if var in self._starts:
            return self._site(var, index)
        if var in self.state:
            return take(self.state[var], index, self.rows)[..., None]
        node = var.owner
        rule = self.dependence.rule(node)
        assert rule is not None  # only sparse tensors are read
        if isinstance(rule, Entries):
            return self._of_entries(rule, var, index)
        values = []
        for reads, i in zip(rule.reads, node.inputs, strict=True):
            if reads is None:
                values.append(self._whole(i))
            elif reads.shape[1] == 0:
                values.append(None)
            elif reads.shape[1] == 1:
                values.append(self._read(i, np.maximum(reads[index][..., 0], 0)))
            else:
                values.append(self._group(i, reads[index]))
        fixed = [
            take(f.reshape(-1), index, self.rows) if f.ndim == 1 else self._fixed(f, index)
            for f in rule.fixed
        ]
        if (which := condition(values, rule.reads)) is not None:
            sides = [[v[side] if isinstance(v, Choice) else v for v in values] for side in (1, 2)]
            return Choice(which, *(rule.compute(side, fixed) for side in sides))
        found = rule.compute([v.values() if isinstance(v, Choice) else v for v in values], fixed)
        return Choice.of(found) if var.type.dtype == "bool" and jnp.shape(found)[-1] > 2 else found

    def _whole(self, var: Variable):
        """A context input, flat; as it is where it is no array."""
        return (
            self.state[var]
            if not isinstance(var, Constant)
            else np.asarray(var.data)
            if hasattr(var.type, "ndim")
            else var.data
        )

    def _group(self, var: Variable, index: np.ndarray):
        """Elements `index` (R, ..., g) of a group, -1 for none, as an array (r, ..., g, k) with the whole of
        the group axis.
        """
        value = self.read(var, np.maximum(index, 0))
        shape = list(jnp.shape(value))
        shape[-2] = index.shape[-1]
        return jnp.broadcast_to(value, shape)

    def _of_entries(self, rule: Entries, var: Variable, index: np.ndarray):
        """Elements that are computed an entry at a time: each entry once, however many of its elements are
        read.
        """
        n = var.owner.outputs.index(var)
        entry, place = rule.entry[n][index], rule.place[n][index]
        while entry.ndim > 1 and (entry == entry[..., :1]).all():
            entry = entry[..., 0]
        key = (var.owner, entry.shape, entry.tobytes())
        if key not in self._memo:
            self._memo[key] = rule.compute(
                [
                    self._whole(i)
                    if reads is None
                    else None
                    if reads.shape[1] == 0
                    else self._group(i, reads[entry])
                    for reads, i in zip(rule.reads, var.owner.inputs, strict=True)
                ]
            )
        values = self._memo[key][n]  # (r, ..., c, k)
        place = place.reshape(*entry.shape, -1)
        wanted = place.reshape(-1, place.shape[-1])
        if (wanted == wanted[:1]).all():  # the same elements of all entries
            values = (
                values
                if np.array_equal(wanted[0], np.arange(values.shape[-2]))
                else values[..., wanted[0], :]
            )
        else:
            which = take(place.reshape(-1), np.arange(place.size).reshape(place.shape), self.rows)[..., None]
            shape = jnp.broadcast_shapes(values.shape[:-2], which.shape[:-2])
            values = jnp.broadcast_to(values, (*shape, *values.shape[-2:]))
            values = jnp.take_along_axis(
                values, jnp.broadcast_to(which, (*shape, *which.shape[-2:])), axis=-2, mode="clip"
            )
        return values.reshape(*values.shape[:-2], *index.shape[entry.ndim :], values.shape[-1])

    def _fixed(self, f: np.ndarray, index: np.ndarray):
        inner = index[..., None] * f.shape[1] + np.arange(f.shape[1])
        value = take(f.reshape(-1), inner, self.rows)
        return value if f.shape[1] > 1 else value.reshape(jnp.shape(value))

    def _site(self, var: Variable, index: np.ndarray):
        now = take(self.state[var], index, self.rows)[..., None]
        if self.moves is None:
            return now
        tail = (1,) * (index.ndim - 1)
        for site, candidates in zip(*self.moves, strict=True):
            mine = index + self._starts[var] == site.reshape(-1, *tail)
            if not mine.any():
                continue
            moved = candidates.reshape(candidates.shape[0], *tail, candidates.shape[1])
            if mine.all():
                now = moved
            else:
                where = take(mine.reshape(-1), np.arange(mine.size).reshape(mine.shape), self.rows)
                now = jnp.where(where[..., None], moved, now)
        return now
