r"""Exact differences of a function of sums by label, such as the sizes of clusters or counts of pairs.

Let :math:`S_{jk} = \sum_{e: l_e = k} s_{je}` be sums of numbers s over the elements e whose label l is k, and
the term

.. math:: T = h\Bigl(\sum_k F_1(S_{\cdot k}), \dots, \sum_k F_m(S_{\cdot k})\Bigr)

A move that takes an element from label a to b changes two of the summands :math:`F_i(S_{\cdot k})` of each
sum over labels, so that differences cost two evaluations of :math:`F_i` for each value of a site, however
many labels or elements there are. The integrals of conjugate parameters and the log densities of partitions
are such terms.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, Mul, Neg, Sub
from pytensor.scalar.math import GammaLn
from pytensor.tensor.basic import ScalarFromTensor
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.subtensor import AdvancedIncSubtensor, Subtensor

from pymc_discrete.differences.parts.elements import (
    SiteElements,
    after_joint_moves,
    after_moves,
    counted_once,
    difference,
    elements_per_variable,
)
from pymc_discrete.differences.parts.evaluate import JointMoves, Reader
from pymc_discrete.differences.parts.incremental import MEMORY_CAP, in_batches
from pymc_discrete.differences.parts.part import BlockState, MoveByMove
from pymc_discrete.space.space import Space
from pymc_discrete.structure import costs
from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.jaxify import jaxify
from pymc_discrete.structure.jumps import decided_by_rounding
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.rebuild import context_inputs, rebuild
from pymc_discrete.structure.scalar_ops import computed_by
from pymc_discrete.structure.terms import Term

# If at most this many elements depend on a site, the sums of only their labels are computed anew for each
# move; elements with the same label are found by comparing all pairs. Else the
# sums of all labels are computed anew.
FEW_ELEMENTS = 4


@dataclass
class SumsByLabel:
    """Sums by label in a graph: a vector to which numbers are added at the positions that an index gives.

    Attributes
    ----------
    var : (B,) the sums
    index : (E,) int, the label of each element
    stat : (E,) or (), what each element adds
    """

    var: Variable
    index: Variable
    stat: Variable

    @classmethod
    def of(cls, var: Variable) -> "SumsByLabel | None":
        """A variable of the graph as `SumsByLabel`; None if it is computed in another way."""
        node = var.owner
        if node is None or not isinstance(node.op, AdvancedIncSubtensor) or node.op.set_instead_of_inc:
            return None
        _, stat, *index = node.inputs
        flat = var.type.ndim == 1 and len(index) == 1 and tuple(node.op.idx_list) == (0,)
        if not (flat and index[0].type.ndim == 1 and stat.type.ndim <= 1):
            return None
        if node.op.ignore_duplicates or index[0].type.dtype == "bool":
            return None
        return cls(var, index[0], stat)


class ByRows:
    """A function F of the sums by label, which is evaluated at some labels only.

    Parameters
    ----------
    summands : (B,), a graph: F at each of B labels
    sums : the sums by label (B,) that the graph reads
    size : B
    """

    def __init__(self, summands: Variable, sums: Sequence[Variable], size: int):
        inner = [
            v
            for node in toposort([summands], blockers=[*sums])
            for v in node.inputs
            if isinstance(v, Constant)
        ]
        self.whole = context_inputs([summands], [*sums])
        self.sums = [*sums]
        self.constants = [
            v for v in dict.fromkeys(inner) if getattr(v.type, "shape", ()) == (size,) and size > 1
        ]
        self.by_label = [v.type.shape == (size,) and size > 1 for v in self.whole]
        rows: dict[Variable, Variable] = {
            v: pt.tensor(dtype=v.type.dtype, shape=(None,))
            for v in [*sums, *(w for w, each in zip(self.whole, self.by_label, strict=True) if each)]
        }
        rows |= {v: pt.tensor(dtype=v.type.dtype, shape=(None,)) for v in self.constants}
        inputs = [rows.get(v, v) for v in [*sums, *self.whole, *self.constants]]
        self.function = jaxify(inputs, rebuild([summands], rows))

    def at(self, labels: Any, values: Sequence[Any], arrays: dict[Variable, Any]):
        """The function at some labels, in the shape of `labels`.

        Parameters
        ----------
        labels : (...) int
        values : arrays of the same shape, the sums at these labels
        """
        flat, shape = jnp.ravel(labels), jnp.shape(labels)
        own = [
            jnp.ravel(arrays[v])[flat] if each else jnp.asarray(arrays[v]).reshape((1,) * v.type.ndim)
            for v, each in zip(self.whole, self.by_label, strict=True)
        ]
        constants = [jnp.asarray(v.data)[flat] for v in self.constants]
        out = self.function(*(jnp.ravel(v) for v in values), *own, *constants)[0]
        return jnp.broadcast_to(out, flat.shape).reshape(shape)


def after_adding(summands: Variable, sums: Mapping[Variable, Variable]) -> Variable:
    """The change of a function of sums by label when numbers are added to the sums, as a graph.

    If the argument of a log gamma function changes by 1, the change of the function is written as a
    logarithm, which is cheaper, and accurate even if the two values of the function are large.

    Parameters
    ----------
    summands : (B,), the function at each label
    sums : {sums by label: the number that is added to each of them, (1,)}
    """
    found = change_after_adding(summands, sums, Depends(sums))
    if found is None:
        (then,) = rebuild([summands], {v: v + c.astype(v.type.dtype) for v, c in sums.items()})
        counts = summands.type.dtype == "bool"  # booleans are subtracted as integers
        found = then.astype("int64") - summands.astype("int64") if counts else then - summands
    return found + pt.zeros_like(summands)


def change_after_adding(v: Variable, sums: Mapping[Variable, Variable], moved: Depends) -> Any:
    """The change of v when numbers are added to sums, as a graph that does not subtract two values of v; None
    if there is no such graph.

    Parameters
    ----------
    sums : {sums by label: the number that is added to each of them, (1,)}
    moved : the variables that depend on the sums
    """
    if v in sums:
        return sums[v].astype(v.type.dtype)
    node = v.owner
    if node is None or not isinstance(node.op, Elemwise):
        return None
    scalar, moving = node.op.scalar_op, [i for i in node.inputs if i in moved]
    if isinstance(scalar, GammaLn) and (by := constant_step(moving[0], sums, moved)) in (1.0, -1.0):
        (inside,) = moving
        return pt.log(inside) if by == 1.0 else -pt.log(inside - 1.0)
    if not isinstance(scalar, Add | Sub | Neg | Mul) or (isinstance(scalar, Mul) and len(moving) > 1):
        return None
    changes = {i: change_after_adding(i, sums, moved) for i in moving}
    if any(change is None for change in changes.values()):
        return None
    if isinstance(scalar, Mul):
        return changes[moving[0]] * pt.mul(*[i for i in node.inputs if i not in moved])
    signed = [
        changes[i] if n == 0 or not isinstance(scalar, Sub) else -changes[i]
        for n, i in enumerate(node.inputs)
        if i in changes
    ]
    total = pt.add(*signed) if len(signed) > 1 else signed[0]
    return -total if isinstance(scalar, Neg) else total


def constant_step(v: Variable, sums: Mapping[Variable, Variable], moved: Depends) -> float | None:
    """The constant number by which v changes when numbers are added to sums by label; None if its change is
    not one constant number.

    The parameters are those of `change_after_adding`.
    """
    if v in sums:
        return constant_number(sums[v])
    node = v.owner
    scalar = node.op.scalar_op if isinstance(node.op, Elemwise) else None
    moving = [i for i in node.inputs if i in moved]
    if not isinstance(scalar, Add) or len(moving) > 1:
        return None
    return constant_step(moving[0], sums, moved)


@dataclass
class FunctionOfSums:
    """A term, written as a function of sums over labels, whose summands are functions of sums by label.

    Attributes
    ----------
    sums : the sums by label (B,), which share one index
    inner : the sums over all B labels, scalars
    rows : {sum over labels: its summands (B,)}, each summand a function of the sums by label at one label
    """

    sums: list[SumsByLabel]
    inner: list[Variable]
    rows: dict[Variable, Variable]


def sums_apart(total: Variable, graph: LogpGraph) -> Variable:
    """The graph of a term, rewritten so that sums by label start from 0 and not from another tensor.

    PyTensor's rewrites turn `base + sums` into an increment of `base`. Where `base` depends on the block,
    this is undone, so that `base` and `sums` can each be analysed.
    """
    made: dict[tuple[Variable, ...], Variable] = {}

    def rewrite(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        (out, *_) = node.outputs
        if SumsByLabel.of(out) is None or not graph.depends(node.inputs[0]):
            return None
        base, *added = inputs
        if tuple(added) not in made:
            zeros = pt.constant(np.zeros(graph.shape(out), out.type.dtype))
            made[tuple(added)] = node.op(zeros, *added)
        return [base + made[tuple(added)]]

    return rebuild([total], {}, rewrite)[0]


def as_function_of_sums(total: Variable, dependence: Dependence) -> FunctionOfSums | None:
    """A scalar of the graph as a `FunctionOfSums`; None if the scalar is computed in another way."""
    graph = dependence.graph
    sums: dict[Variable, SumsByLabel] = {}
    inner: dict[Variable, Variable] = {}
    seen: set[Variable] = set()
    stack = [total]
    while stack:
        var = stack.pop()
        if var in seen or not graph.depends(var):
            continue
        seen.add(var)
        node = var.owner
        if node is not None and isinstance(node.op, ScalarFromTensor):
            stack += node.inputs
            continue
        if node is None or graph.size(var) != 1 or dependence.of(var) is not None:
            return None
        if isinstance(node.op, Sum) and node.inputs[0].type.ndim == 1:
            found = sums_read(node.inputs[0], dependence)
            if found is not None:
                sums |= found
                inner[var] = node.inputs[0]
                continue
        # A `Subtensor` may select an element of a vector at a position that depends on the sums by label. A
        # vector that itself depends on the sums ends the search, since its size is not 1.
        if not isinstance(node.op, Elemwise | DimShuffle | Sum | Subtensor):
            return None
        stack += node.inputs
    if not inner or len({s.index for s in sums.values()}) != 1:
        return None
    return FunctionOfSums(list(sums.values()), list(inner), inner)


def sums_read(summands: Variable, dependence: Dependence) -> dict[Variable, SumsByLabel] | None:
    """{variable: its `SumsByLabel`} for the sums by label that an elementwise graph reads.

    The result is None if the graph reads sites of the block in another way, too, or reads no sums by label.
    """
    graph, found, seen, stack = dependence.graph, dict[Variable, SumsByLabel](), set(), [summands]
    size = graph.size(summands)
    while stack:
        var = stack.pop()
        if var in seen:
            continue
        seen.add(var)
        if not graph.depends(var):
            if graph.size(var) not in (1, size) or var.type.ndim > 1 or None in var.type.shape:
                return None
            continue
        counted = SumsByLabel.of(var)
        if counted is not None:
            begins = var.owner.inputs[0]
            if graph.depends(begins) or not sparse_stat(counted, dependence) or graph.size(var) != size:
                return None
            found[var] = counted
            continue
        if not computed_by(var) or len(var.owner.outputs) > 1:
            return None
        if var.type.shape != summands.type.shape:
            return None
        stack += var.owner.inputs
    return found or None


def sparse_stat(counted: SumsByLabel, dependence: Dependence) -> bool:
    """Whether each label, and each number that is added to sums by label, depends on a few sites at most."""
    moving = [v for v in (counted.index, counted.stat) if dependence.graph.depends(v)]
    return bool(moving) and not any(dependence.of(v) is None or v.type.ndim == 0 for v in moving)


def merged_by_label(terms: Sequence[Term], dependence: Dependence) -> list[Term]:
    """The terms, where those that are sums over the same labels are added up, so that a label is read once.

    Terms in which every element adds the same number to the sums by label are added up only with each other:
    their changes can be read from tables, and the changes of other terms cannot.
    """
    alike: dict[tuple[Variable, bool], list[Term]] = {}
    others = []
    for t in terms:
        sums = [*(sums_read(t.var, dependence) or {}).values()] if t.var.type.ndim == 1 else []
        if len({s.index for s in sums}) == 1:
            same = all(same_for_all(s.stat) is not None for s in sums)
            alike.setdefault((sums[0].index, same), []).append(t)
        else:
            others.append(t)
    for own in alike.values():
        weighted = [t.var if t.weight is None else t.var * t.weight for t in own]
        others.append(own[0] if len(own) == 1 else Term(own[0].name, pt.add(*weighted), None))
    return others


def same_sites(variables: Sequence[Variable], dependence: Dependence) -> bool:
    """Whether the elements of several tensors depend on the same sites, element by element."""
    first, *others = map(dependence.sparse, variables)
    return all(np.array_equal(first, other) for other in others)


class ByLabel(MoveByMove):
    """A term that is a function of sums by label; a move changes the sums of two labels.

    Parameters
    ----------
    term : Term
    total : the scalar value of the term in the graph, written so that sums by label start from 0
    found : the term as a function of sums over labels
    """

    mixing = True
    linear = True
    way = "incremental"
    what = "is evaluated at the labels whose sums change"
    degree = np.inf  # as a polynomial in the sites: the term multiplies any number of them
    why_degree = "a function of sums by label"

    def __init__(
        self, term: Term, total: Variable, found: FunctionOfSums, dependence: Dependence, space: Space
    ):
        super().__init__(dependence, space)
        self.term, self.total, self.found = term, total, found
        self.index = found.sums[0].index
        self.size = self.graph.size(found.sums[0].var)
        # If the labels and the numbers that elements add both depend on sites, they depend on the same sites,
        # which either of them tells.
        moving = [v for s in found.sums for v in (self.index, s.stat) if self.graph.depends(v)]
        self.source = self.index if self.graph.depends(self.index) else moving[0]
        self.stats_move = any(self.graph.depends(s.stat) for s in found.sums)
        self.elements: dict[int, SiteElements] = elements_per_variable(
            dependence.sparse(self.source), space, pad=True
        )
        self.row_elements = self.size
        self.tabulated = self._tables()

    def _tables(self) -> list[tuple[Variable, Variable]]:
        """For each sum over labels two tables (B,): how its summand at a label changes when an element leaves
        the label, and when an element joins it.

        The list is empty if elements may add different numbers, or if more than one element depends on a
        site.
        """
        if self.stats_move or any(e.index.shape[1] > 1 for e in self.elements.values()):
            return []
        added = {s.var: c for s in self.found.sums if (c := same_for_all(s.stat)) is not None}
        if len(added) < len(self.found.sums):
            return []
        tables = []
        for summands in self.found.rows.values():
            more = {v: c for v, c in added.items() if v in ancestors_of(summands)}
            less = {v: pt.constant(-c.data) if isinstance(c, Constant) else -c for v, c in more.items()}
            tables.append((after_adding(summands, less), after_adding(summands, more)))
        return tables

    @classmethod
    def of(cls, term: Term, dependence: Dependence, space: Space) -> "ByLabel | None":
        """The `ByLabel` part of a term; None for a term of another kind."""
        total = sums_apart(term.total, dependence.graph)
        found = as_function_of_sums(total, dependence)
        if found is None:
            return None
        moving = [v for s in found.sums for v in (s.index, s.stat) if dependence.graph.depends(v)]
        if not same_sites(moving, dependence):
            return None
        if any(map(decided_by_rounding(total, dependence.graph), (s.var for s in found.sums))):
            return None
        return cls(term, total, found, dependence, space)

    # ------------------------------------------------------------ sites and variables that enter the term
    @cached_property
    def sites(self) -> np.ndarray:
        return np.unique(np.concatenate([e.site[e.mask.any(axis=1)] for e in self.elements.values()]))

    @property
    def _sums(self) -> list[Variable]:
        return [s.var for s in self.found.sums]

    @property
    def tensors(self) -> list[Variable]:
        return [*self._sums, *self._kept]

    @cached_property
    def _kept(self) -> dict[Variable, ByRows]:
        """{tensor with a value for each label: how it is computed at some labels}.

        The tensors are the tables of changes; without tables, the summands of the sums over labels.
        """
        if self.tabulated:
            return {table: self._by_rows(table) for pair in self.tabulated for table in pair}
        return dict(zip(self.found.rows.values(), self._rows, strict=True))

    def _by_rows(self, summands: Variable) -> ByRows:
        """A function that evaluates the summands of a sum over labels at some of the labels only."""
        return ByRows(summands, [s for s in self._sums if s in ancestors_of(summands)], self.size)

    @cached_property
    def leaves(self) -> list[Variable]:
        moving = [self.index, *(s.stat for s in self.found.sums)]
        own = [v for v in moving if not self.graph.depends(v) and not isinstance(v, Constant)]
        sources = context_inputs([v for v in moving if self.graph.depends(v)], self.graph.values)
        of_rows = [v for rows in [*self._rows, *self._kept.values()] for v in rows.whole]
        return list(dict.fromkeys([*own, *sources, *of_rows, *self._outer_inputs]))

    @cached_property
    def _rows(self) -> list[ByRows]:
        """For each sum over labels, a function that evaluates the summands of the sum at some labels."""
        return [self._by_rows(summands) for summands in self.found.rows.values()]

    @cached_property
    def _outer_inputs(self) -> list[Variable]:
        return context_inputs([self.total], self.found.inner)

    @cached_property
    def _outer(self):
        return jaxify([*self.found.inner, *self._outer_inputs], [self.total])

    def _outer_at(self, sums: Sequence[Any], arrays: dict[Variable, Any]):
        """The term, as a function of its sums over labels, at given values of these sums, in their shape."""
        inputs = [arrays[v].reshape(self.graph.shape(v)) for v in self._outer_inputs]
        shaped = jnp.broadcast_arrays(*sums)
        # An integer sum over labels to which changes were added is a float. It becomes an integer again,
        # since the term may use it as an index.
        typed = [s.astype(v.type.dtype) for s, v in zip(shaped, self.found.inner, strict=True)]
        function = lambda *one: jnp.asarray(self._outer(*one, *inputs)[0]).reshape(())
        return jnp.vectorize(function)(*typed)

    @cached_property
    def _adds(self) -> bool:
        """Whether the term is itself a sum over labels, so that its change is that of its summands."""
        return self.total in self.found.rows

    def _inner_at(self, tensors: dict[Variable, Any], arrays: dict[Variable, Any]) -> list[Any]:
        """The values of the sums over labels, given the sums by label and the other arrays that they read."""
        labels = np.arange(self.size)
        return [rows.at(labels, [tensors[v] for v in rows.sums], arrays).sum() for rows in self._rows]

    def at(self, state: BlockState, context: Any) -> Any:
        return () if self._adds else tuple(self._inner_at(state.tensors, state.arrays))

    # ------------------------------------------------------------ changes of the sums by label
    def _now(self, n: int, state: BlockState, rows) -> tuple[Any, list[Any]]:
        """The labels (r, m) of the elements that depend on each site, and for each sum by label the numbers
        (r, m) that the elements add; 0 for padding.
        """
        index, mask = self.elements[n].index, self.elements[n].mask
        reader = Reader(self.dependence, state.arrays, rows)
        shape = (len(index) if rows is None else len(rows), index.shape[1])
        mask = mask if rows is None else jnp.asarray(mask)[rows]
        labels = jnp.broadcast_to(self._read(reader, self.index, index)[..., 0], shape)
        stats = [
            jnp.where(mask, jnp.broadcast_to(self._read(reader, s.stat, index)[..., 0], shape), 0)
            for s in self.found.sums
        ]
        return labels, stats

    def _read(self, reader: Reader, var: Variable, index: np.ndarray):
        return reader.read(
            var, np.zeros_like(index) if var.type.ndim == 0 or self.graph.size(var) == 1 else index
        )

    def _after(self, n: int, state: BlockState, rows, candidates) -> tuple[Any, list[Any]]:
        """The labels (r, m, K) of the elements that depend on each site, after each move of the site, and for
        each sum by label the numbers (r, m, K) that the elements then add.
        """
        elements = self.elements[n]
        mask = elements.mask if rows is None else jnp.asarray(elements.mask)[rows]

        def after(var: Variable):
            if var.type.ndim == 0 or self.graph.size(var) == 1:
                reader = Reader(self.dependence, state.arrays, rows)
                return self._read(reader, var, elements.index)
            return after_moves(var, elements, n, state, self.dependence, self.space, rows, candidates)

        stats = [jnp.where(mask[..., None], after(s.stat), 0) for s in self.found.sums]
        return after(self.index), stats

    # ------------------------------------------------------------ differences
    def differences(self, n: int, state: BlockState, at: Any, context: Any, rows=None, candidates=None):
        v = self.space.variables[n]
        m = self.elements[n].index.shape[1]
        each = 8 * v.moves * (16 * m if m <= FEW_ELEMENTS else 2 * self.size + 4 * m) * len(self._sums)

        def some(rows, candidates=None):
            return self._of_moves(n, state, at, rows, candidates)

        if rows is not None or each * v.size <= MEMORY_CAP:
            found = some(rows, candidates)
        else:
            found = in_batches(some, v.size, max(1, int(MEMORY_CAP // each)))
        return self.space.by_value(state.x, n, found, rows, candidates)

    def _of_moves(self, n: int, state: BlockState, at: Any, rows, candidates):
        """(r, moves) nats, the differences of sites of variable n, with a column for each of their moves."""
        before, taken = self._now(n, state, rows)
        after, added = self._after(n, state, rows, candidates)
        after = jnp.broadcast_to(after, jnp.broadcast_shapes(after.shape, added[0].shape))
        m = before.shape[1]
        if self.tabulated:
            a, b, tensors = before, after[:, 0], state.tensors
            changes = [tensors[less][a] + tensors[more][b] for less, more in self.tabulated]
            changes = [jnp.where(a == b, 0.0, jnp.where(jnp.isnan(c), -jnp.inf, c)) for c in changes]
        elif m == 1 and not self.stats_move:
            changes = self._of_one_element(state, before, taken, after)
        elif m <= FEW_ELEMENTS:
            changes = self._of_few_elements(state, before, taken, after, added)
        else:
            changes = self._of_many_elements(state, before, taken, after, added)
        return self._changed(at, changes, state.arrays)

    def _changed(self, at: Any, changes: list[Any], arrays: dict[Variable, Any]):
        """The change of the term, from the changes of its sums over labels."""
        if self._adds:
            return changes[0]
        after = self._outer_at([now + c for now, c in zip(at, changes, strict=True)], arrays)
        return difference(after, self._outer_at(at, arrays))

    def _of_one_element(self, state: BlockState, before, taken, after) -> list[Any]:
        """Changes (r, K) of the sums over labels if each site decides the label of one element."""
        a, b = before, after[:, 0]
        stats = dict(zip(self._sums, taken, strict=True))
        changes = []
        for summands, rows in self._kept.items():
            now, sums = state.tensors[summands], [state.tensors[v] for v in rows.sums]
            own = [stats[v].astype(s.dtype) for v, s in zip(rows.sums, sums, strict=True)]
            without = [s[a] - t for s, t in zip(sums, own, strict=True)]
            within = [s[b] + t for s, t in zip(sums, own, strict=True)]
            left = difference(rows.at(a, without, state.arrays), now[a])
            joined = difference(rows.at(b, within, state.arrays), now[b])
            changes.append(jnp.where(a == b, 0.0, left + joined))
        return changes

    def _of_few_elements(self, state: BlockState, before, taken, after, added) -> list[Any]:
        """Changes of the sums over labels, (r, K) each, when r sites move to each of their K values.

        This is for sites of each of which few elements depend; several of these elements may have one label.
        """
        K = after.shape[2]
        before = jnp.broadcast_to(before[..., None], after.shape)
        labels = jnp.concatenate([before, after], axis=1)  # (r, 2 m, K): of m elements, before and after
        same = labels[:, :, None] == labels[:, None]
        first = ~(same & np.tri(labels.shape[1], k=-1, dtype=bool)[..., None]).any(axis=2)
        whole = []
        for t, s in zip(taken, added, strict=True):
            each = jnp.concatenate(
                [jnp.broadcast_to(-t[..., None], after.shape), jnp.broadcast_to(s, after.shape)], axis=1
            )
            whole.append((same * each[:, None]).sum(axis=2))
        by_tensor = dict(zip(self._sums, whole, strict=True))
        changes = []
        for summands, rows in self._kept.items():
            sums = [state.tensors[v][labels] for v in rows.sums]
            then = [s + by_tensor[v].astype(s.dtype) for v, s in zip(rows.sums, sums, strict=True)]
            change = difference(rows.at(labels, then, state.arrays), state.tensors[summands][labels])
            changes.append(jnp.where(first, change, 0.0).sum(axis=1).reshape(-1, K))
        return changes

    def _of_many_elements(self, state: BlockState, before, taken, after, added) -> list[Any]:
        """Changes (r, K) of the sums over labels, from the sums by label at all labels after each move."""
        r, _, K = after.shape
        row, column = np.arange(r)[:, None, None], np.arange(K)[None, None]
        taken = jnp.stack(jnp.broadcast_arrays(*taken), axis=-1)
        added = jnp.stack([jnp.broadcast_to(s, after.shape) for s in added], axis=-1)
        less = jnp.zeros((r, self.size, len(self._sums)), added.dtype).at[row[..., 0], before].add(-taken)
        change = jnp.broadcast_to(less[:, None], (r, K, *less.shape[1:])).at[row, column, after].add(added)
        return self._of_new_sums(
            state,
            [
                state.tensors[v] + change[..., k].astype(state.tensors[v].dtype)
                for k, v in enumerate(self._sums)
            ],
        )

    def _of_new_sums(self, state: BlockState, sums: list[Any]) -> list[Any]:
        """Changes (r, C) of the sums over labels, given all sums by label (r, C, B) after each of C moves."""
        by_tensor = dict(zip(self._sums, sums, strict=True))
        labels = jnp.broadcast_to(np.arange(self.size), sums[0].shape)
        changes = []
        for summands, rows in zip(self.found.rows.values(), self._rows, strict=True):
            now = state.tensors.get(summands)  # None if the state has tables in place of the summands
            if now is None:
                now = rows.at(np.arange(self.size), [state.tensors[v] for v in rows.sums], state.arrays)
            then = rows.at(labels, [by_tensor[v] for v in rows.sums], state.arrays)
            changes.append(difference(then, now).sum(axis=-1))
        return changes

    # ------------------------------------------------------------ sites that move together
    def joint_differences(self, n: int, state: BlockState, at: Any, context: Any, moves: JointMoves):
        count, candidates, m = moves.values.shape
        size = 8 * count * candidates * (2 * self.size + 4 * m) * len(self._sums)
        if size <= MEMORY_CAP:
            return self._of_joint_moves(n, state, at, moves)
        sites, values = jnp.asarray(moves.sites), moves.values
        some = lambda rows: self._of_joint_moves(n, state, at, JointMoves(sites[rows], values[rows]))
        return in_batches(some, count, max(1, int(MEMORY_CAP // (size / count))))

    def _of_joint_moves(self, n: int, state: BlockState, at: Any, moves: JointMoves):
        """(r, C) nats, the `joint_differences` of so few rows of moves that they fit into memory together."""
        elements = self.elements[n]
        r, C, m = moves.values.shape
        mask = counted_once(self.source, elements, n, self.dependence, self.space, moves)

        def after(var: Variable):
            if not self.graph.depends(var):
                return self._read(Reader(self.dependence, state.arrays, moves.each), var, elements.index)
            return after_joint_moves(var, elements, n, state, self.dependence, self.space, moves)

        labels, taken = self._now(n, state, moves.each)
        after_labels = after(self.index)
        k = labels.shape[1]
        shape = (r * m, k, C)
        row = np.repeat(np.arange(r), m)[:, None, None]
        column = np.arange(C)[None, None]
        sums = []
        for s, t in zip(self.found.sums, taken, strict=True):
            tensor = state.tensors[s.var]
            less = jnp.where(mask, -t, 0)[..., None]
            more = jnp.where(mask[..., None], after(s.stat), 0)
            change = jnp.zeros((r, C, self.size), tensor.dtype)
            change = change.at[row, column, jnp.broadcast_to(labels[..., None], shape)].add(
                jnp.broadcast_to(less, shape).astype(tensor.dtype)
            )
            change = change.at[row, column, jnp.broadcast_to(after_labels, shape)].add(
                jnp.broadcast_to(more, shape).astype(tensor.dtype)
            )
            sums.append(tensor + change)
        return self._changed(at, self._of_new_sums(state, sums), state.arrays)

    def tensors_after(self, n: int, state: BlockState, site: Any, value: Any) -> dict[Variable, Any]:
        before, taken = self._now(n, state, site)
        after, added = self._after(n, state, site, value[:, None])
        after = jnp.broadcast_to(after, (*before.shape, 1))[0, :, 0]
        new = {}
        for s, t, more in zip(self.found.sums, taken, added, strict=True):
            tensor = state.tensors[s.var]
            more = jnp.broadcast_to(more, (*before.shape, 1))[0, :, 0]
            tensor = tensor.at[before[0]].add(-t[0].astype(tensor.dtype))
            new[s.var] = tensor.at[after].add(more.astype(tensor.dtype))
        labels = jnp.concatenate([before[0], after])
        for var, rows in self._kept.items():
            values = rows.at(labels, [new[v][labels] for v in rows.sums], state.arrays)
            tensor, values = state.tensors[var], values.astype(state.tensors[var].dtype)
            if len(labels) > 2 * FEW_ELEMENTS:
                new[var] = tensor.at[labels].set(values)
                continue
            for label, value in zip(labels, values, strict=True):
                # The few values are set one by one: if one `set` wrote them all, XLA would copy the tensor.
                tensor = tensor.at[label].set(value)
            new[var] = tensor
        return new

    # ------------------------------------------------------------ cost
    @cached_property
    def _of_row(self) -> float:
        """Counted operations of evaluating the summands of all sums over labels at one label."""
        return costs.of_graph([*self.found.rows.values()], self.graph, set(self._sums)) / max(self.size, 1)

    @cached_property
    def cost_of_move(self) -> float:
        """Counted operations of the changes of the sums over labels for one move, on average."""
        most = max(e.index.shape[1] for e in self.elements.values())
        rows = 2 * most if most <= FEW_ELEMENTS else self.size + 2 * most
        return (self._of_row + 4) * rows


def same_for_all(v: Variable) -> Variable | None:
    """(1,), the one number that all elements of a tensor have; None where elements may differ."""
    if (number := constant_number(v)) is not None:
        return pt.constant(np.full(1, number))
    return v.reshape((1,)) if all(n == 1 for n in v.type.shape) else None


def constant_number(v: Variable) -> float | None:
    """The one number that all elements of a constant have; None for any other variable."""
    if isinstance(v, Constant) and np.size(v.data) and not np.ptp(np.asarray(v.data, float)):
        return float(np.ravel(v.data)[0])
    return None


def ancestors_of(var: Variable) -> set[Variable]:
    """The variables that a graph is computed from, and the variable itself."""
    return {var} | {i for node in toposort([var]) for i in node.inputs}
