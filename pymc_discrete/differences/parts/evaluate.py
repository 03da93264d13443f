"""Values of single elements of the log density graph in JAX, with sites held at candidate values."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable

from pymc_discrete.space.indexing import take
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.reads import Elements, Entries


class JointMoves(NamedTuple):
    """Sites of one variable that move together: m sites in each of r rows.

    Attributes
    ----------
    sites : (r, m) int
        The sites, counted within the variable. A row may repeat a site, with the same values.
    values : (r, C, m) int
        The values that the sites move to, at each of C candidates.
    """

    sites: Any
    values: Any

    @property
    def each(self) -> Any:
        """(r m,) int, all sites that move, row by row."""
        return self.sites.reshape(-1)

    @property
    def values_of_each(self) -> Any:
        """(r m, C) int, the values that each site moves to."""
        return jnp.moveaxis(self.values, 2, 1).reshape(-1, self.values.shape[1])

    @property
    def first(self) -> Any:
        """(r m,) bool, for each site of each row whether it is its first occurrence in the row."""
        before = np.tri(self.sites.shape[1], k=-1, dtype=bool)
        again = (self.sites[:, :, None] == self.sites[:, None, :]) & before
        return ~again.any(axis=-1).reshape(-1)

    def summed(self, changes: Any) -> Any:
        """(r, ...), the sum over the sites of each row of the changes (r m, ...) that each site makes."""
        return changes.reshape(*self.sites.shape, *changes.shape[1:]).sum(axis=1)


class Moves(NamedTuple):
    """The site, or sites, that move in each entry of an index table, with the values that they move to.

    An index table (R, ...) has flat indices of elements that are read; its R rows are called entries. The
    lists `sites` and `candidates` have one item for each site that moves in an entry. If several sites move
    in an entry, they take their k-th candidates together.

    Attributes
    ----------
    sites : [(R,) int]
        The site that moves in each entry of the index tables.
    candidates : [(r, k) int]
        The values that the site in `sites` takes, for the r entries that are evaluated.
    jointly : (variable of the graph, JointMoves), optional
        Sites of one variable, known at run time only: in entry e the m sites of row e // m move.
    """

    sites: list[np.ndarray]
    candidates: list[Any]
    jointly: tuple[Variable, JointMoves] | None = None


class Choice(NamedTuple):
    """Values at the k candidates of a site that differ only by a condition: `where(which, then, otherwise)`.

    Functions of the values are computed for the two alternatives, and not for each candidate.

    Attributes
    ----------
    which : (..., k) bool
        The condition at each candidate.
    then, otherwise : (..., 1)
        The values where the condition holds, and where it does not.
    """

    which: Any
    then: Any
    otherwise: Any

    @classmethod
    def of(cls, which) -> "Choice":
        """A Boolean array (..., k) as a `Choice` between True and False, whose condition is the array."""
        shape = (1,) * jnp.ndim(which)
        return cls(which, jnp.ones(shape, bool), jnp.zeros(shape, bool))

    def values(self):
        return jnp.where(*self)


def common_condition(values: list[Any], reads: list[np.ndarray | None]):
    """The condition that the `Choice`s among the values share, if nothing else depends on the candidate; else
    None.

    A function of such values is itself a `Choice` with this condition, computed twice in place of k times.
    The result is None if there is no `Choice`, if their conditions differ, or if another value depends on the
    candidate. The last axis of a value is the axis of candidates; it has length 1 if the value is the same
    for all candidates.

    Parameters
    ----------
    values : list
        The inputs of an Op: arrays, `Choice`s, or None for inputs that are not read.
    reads : list
        For each input the elements that are read, None for inputs that do not depend on the block.
    """
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
    """Evaluates elements of the graph at one state.

    Parameters
    ----------
    dependence : Dependence
        The rules by which elements are computed from one another.
    arrays : {variable: flat array}
        The values of the block's variables and of the leaves of the graph.
    positions : (r,) int, optional
        The entries to evaluate: rows of the arrays (R, ...) of flat indices that `read` gets; by default all.
    moves : Moves, optional
        The sites that move in each entry: the elements are evaluated at each candidate value of the sites.
    """

    def __init__(
        self, dependence: Dependence, arrays: dict[Variable, Any], positions=None, moves: Moves | None = None
    ):
        self.dependence, self.arrays, self.positions, self.moves = dependence, arrays, positions, moves
        self._starts = {}
        start = 0
        for v in dependence.graph.values:
            self._starts[v] = start
            start += dependence.graph.size(v)
        self._memo: dict[Any, Any] = {}

    def read(self, var: Variable, index: np.ndarray):
        """Elements of a tensor at each candidate.

        Parameters
        ----------
        var : Variable
        index : (R, ...) int
            Flat indices of the elements.

        Returns
        -------
        (r, ..., k)
            An axis has length 1 where the values do not vary along it.
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
            return take(np.asarray(var.data).reshape(-1), index, self.positions)[..., None]
        if var in self._starts:
            return self._site(var, index)
        if var in self.arrays:
            return take(self.arrays[var], index, self.positions)[..., None]
        node = var.owner
        rule = self.dependence.rule(node)
        assert rule is not None  # tensors of Ops without a rule are not read element by element
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
            take(f.reshape(-1), index, self.positions) if f.ndim == 1 else self._fixed(f, index)
            for f in rule.fixed
        ]
        if (which := common_condition(values, rule.reads)) is not None:
            alternatives = [
                [getattr(v, field) if isinstance(v, Choice) else v for v in values]
                for field in ("then", "otherwise")
            ]
            return Choice(which, *(self._computed(node, rule, inputs, fixed) for inputs in alternatives))
        inputs = [v.values() if isinstance(v, Choice) else v for v in values]
        result = self._computed(node, rule, inputs, fixed)
        return Choice.of(result) if var.type.dtype == "bool" and jnp.shape(result)[-1] > 2 else result

    def _computed(self, node: Apply, rule: Elements, values: list[Any], fixed: list[Any]):
        """Elements of the output of a node, computed from the elements of the node's inputs in `values`."""
        return rule.compute(values, fixed)

    def _whole(self, var: Variable):
        """The whole value of an input that does not depend on the block: flat, or for a constant as it is."""
        return (
            self.arrays[var]
            if not isinstance(var, Constant)
            else np.asarray(var.data)
            if hasattr(var.type, "ndim")
            else var.data
        )

    def _group(self, var: Variable, index: np.ndarray):
        """Groups of g elements at each candidate, (r, ..., g, k), where the axis g has its full length.

        Parameters
        ----------
        index : (R, ..., g) int
            Flat indices of the elements, -1 where a group has fewer.
        """
        value = self.read(var, np.maximum(index, 0))
        shape = list(jnp.shape(value))
        shape[-2] = index.shape[-1]
        return jnp.broadcast_to(value, shape)

    def _of_entries(self, rule: Entries, var: Variable, index: np.ndarray):
        """Elements of an Op's output that the Op computes in groups (entries), such as the rows of a softmax.

        Each entry is computed once, however many of its elements are read.
        """
        n = var.owner.outputs.index(var)
        entry, place = rule.entry[n][index], rule.place[n][index]
        # Last axes of `index` along which the entry does not change are left out: it is computed once.
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
        values = self._memo[key][n]  # (r, ..., c, k): c elements of each entry at k candidates
        place = place.reshape(*entry.shape, -1)
        places = place.reshape(-1, place.shape[-1])
        if (places == places[:1]).all():  # one slice serves, since all entries are read at the same places
            values = (
                values
                if np.array_equal(places[0], np.arange(values.shape[-2]))
                else values[..., places[0], :]
            )
        else:
            order = np.arange(place.size).reshape(place.shape)
            which = take(place.reshape(-1), order, self.positions)[..., None]
            shape = jnp.broadcast_shapes(values.shape[:-2], which.shape[:-2])
            values = jnp.broadcast_to(values, (*shape, *values.shape[-2:]))
            values = jnp.take_along_axis(
                values, jnp.broadcast_to(which, (*shape, *which.shape[-2:])), axis=-2, mode="clip"
            )
        return values.reshape(*values.shape[:-2], *index.shape[entry.ndim :], values.shape[-1])

    def _fixed(self, f: np.ndarray, index: np.ndarray):
        """The rows `index` of a constant table that an Op's rule has: a row (m,) for each output element."""
        inner = index[..., None] * f.shape[1] + np.arange(f.shape[1])
        value = take(f.reshape(-1), inner, self.positions)
        return value if f.shape[1] > 1 else value.reshape(jnp.shape(value))

    def _site(self, var: Variable, index: np.ndarray):
        """Elements of a variable of the block: candidate values for the sites that move, else the current
        values.
        """
        values = take(self.arrays[var], index, self.positions)[..., None]
        if self.moves is None:
            return values
        tail = (1,) * (index.ndim - 1)
        if self.moves.jointly is not None and self.moves.jointly[0] is var:
            values = self._moved_jointly(index, values, self.moves.jointly[1])
        for site, candidates in zip(self.moves.sites, self.moves.candidates, strict=True):
            moved = candidates.reshape(candidates.shape[0], *tail, candidates.shape[1])
            moves = index + self._starts[var] == site.reshape(-1, *tail)
            if not moves.any():
                continue
            if moves.all():
                values = moved
            else:
                where = take(moves.reshape(-1), np.arange(moves.size).reshape(moves.shape), self.positions)
                values = jnp.where(where[..., None], moved, values)
        return values

    def _moved_jointly(self, index: np.ndarray, values: Any, moves: JointMoves):
        """(r m, ..., C), elements of a variable after all sites of each row have moved.

        Parameters
        ----------
        index : (R, ...) int
            Flat indices of the elements.
        values : (r m, ..., 1)
            The current values of these elements.
        """
        tail, m = (1,) * (index.ndim - 1), moves.sites.shape[1]
        row = np.arange(moves.sites.size) // m
        read = take(index.reshape(-1), np.arange(index.size).reshape(index.shape), self.positions)
        same = read[..., None] == moves.sites[row].reshape(-1, *tail, m)
        then = jnp.moveaxis(moves.values, 2, 1)[row.reshape(-1, *tail), jnp.argmax(same, axis=-1)]
        return jnp.where(same.any(axis=-1)[..., None], then, values)
