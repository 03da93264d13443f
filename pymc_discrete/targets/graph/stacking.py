"""Parts of a log density that have one structure, over many variables, written as one: 150 scalar states of a
Markov chain as a vector.

Users write such models in loops: a list of scalar variables, each with its own prior term. Compiled one by
one, a program grows with the number of variables. Here graphs of the same Ops are laid on top of one another.
Where all have the same variable it stays; constants and variables that differ are stacked along a new first
axis, and the Ops above work along it. Discrete variables that stand in the same place of such graphs become
parts of one vector, so that all that follows meets one variable in place of many.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import _vectorize_node
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, Neg, Sub
from pytensor.tensor.basic import Alloc, ExtractDiag, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor

from pymc_discrete.targets.graph.rebuild import rebuild
from pymc_discrete.targets.names import shown

LEAST = 3  # alike parts that are laid on top of one another; fewer are left as they are

Term = tuple[str, Variable]

# Ops that PyTensor itself knows to write with a further axis in front, with results that there are rules for
BATCHED = (
    Elemwise, DimShuffle, CAReduce, Join, MakeVector, Alloc, Reshape, SpecifyShape, JoinDims, SplitDims,
    ExtractDiag, CumOp, Softmax, LogSoftmax, Dot, Blockwise,
)  # fmt: skip


class NotAlike(Exception):
    """Some parts of a graph cannot be written as one."""


class Signatures:
    """Numbers of graphs, equal where the Ops are and the types of the leaves."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._of: dict[Variable, int] = {}

    def of(self, var: Variable) -> int:
        waiting = [var]
        while waiting:  # depth first, without recursion: a sum may be nested as deeply as it has terms
            now = waiting[-1]
            missing = [i for i in (now.owner.inputs if now.owner is not None else ()) if i not in self._of]
            if missing:
                waiting += missing
                continue
            self._of[now] = self._number(self._key(now))
            waiting.pop()
        return self._of[var]

    def _key(self, var: Variable) -> Hashable:
        if var.owner is not None:
            return (var.owner.op, var.owner.outputs.index(var), tuple(self._of[i] for i in var.owner.inputs))
        if isinstance(var, Constant) and not has_values(var):
            return ("constant", var.type, repr(var.data))
        return ("leaf", var.type, isinstance(var, Constant))

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def has_values(var: Variable) -> bool:
    """Whether this is a tensor or a number, and neither a slice nor None."""
    return hasattr(var.type, "dtype")


class Stack:
    """Graphs laid on top of one another.

    Parameters
    ----------
    leaf : (variables) -> their stack, for variables of the model
    """

    def __init__(self, leaf: Callable[[tuple[Variable, ...]], Variable]):
        self.leaf = leaf
        self._made: dict[tuple[Variable, ...], tuple[Variable, bool]] = {}

    def of(self, members: Sequence[Variable]) -> Variable:
        """(n, ...) the members, which have one signature, along a new first axis.

        Raises
        ------
        NotAlike
        """
        whole = tuple(members)
        waiting = [whole]
        while waiting:  # depth first, without recursion
            now = waiting[-1]
            missing = [below for below in self._below(now) if below not in self._made]
            if missing:
                waiting += missing
                continue
            self._made[now] = self._make(now)
            waiting.pop()
        stacked, batched = self._made[whole]
        return stacked if batched else pt.stack([stacked] * len(whole))

    def _below(self, members: tuple[Variable, ...]) -> Iterator[tuple[Variable, ...]]:
        distinct = tuple(dict.fromkeys(members))
        if len(distinct) == 1 or members[0].owner is None:
            return
        if len(distinct) < len(members):
            yield distinct
            return
        yield from zip(*(m.owner.inputs for m in members), strict=True)

    def _make(self, members: tuple[Variable, ...]) -> tuple[Variable, bool]:
        """The stack, or what all members are, and whether it is a stack."""
        distinct = list(dict.fromkeys(members))
        first = members[0]
        if len(distinct) == 1:
            return first, False
        if len(distinct) < len(members) and first.owner is not None:
            stacked, batched = self._made[tuple(distinct)]
            place = {m: n for n, m in enumerate(distinct)}
            return (stacked[np.array([place[m] for m in members])], True) if batched else (stacked, False)
        if isinstance(first, Constant):
            values = [m.data for m in members]
            if not has_values(first):
                raise NotAlike
            if all(np.array_equal(values[0], v) for v in values):
                return first, False
            return pt.constant(np.stack(values)), True
        if first.owner is None:
            return self.leaf(members), True
        inputs = [self._made[below] for below in zip(*(m.owner.inputs for m in members), strict=True)]
        if not any(batched for _, batched in inputs):
            return first, False
        return with_axis(first.owner, inputs, len(members))[first.owner.outputs.index(first)], True


def with_axis(node: Apply, inputs: list[tuple[Variable, bool]], n: int) -> list[Variable]:
    """The outputs of a node whose inputs are stacks of n, or the same for all of them."""
    op, args = node.op, [i for i, _ in inputs]
    if isinstance(op, ScalarFromTensor | TensorFromScalar):
        return args
    if isinstance(op, Subtensor | AdvancedSubtensor):
        return [indexed(node, inputs, n)]
    if not isinstance(op, BATCHED):
        raise NotAlike
    if any(
        batched and not hasattr(i.type, "ndim")
        for i, batched in zip(node.inputs, (b for _, b in inputs), strict=True)
    ):
        raise NotAlike  # numbers that are no tensors: an axis, a length
    try:
        made = _vectorize_node(op, node, *args)
    except (NotImplementedError, ValueError, TypeError) as error:
        raise NotAlike from error
    return made.outputs if isinstance(made, Apply) else list(made)


def indexed(node: Apply, inputs: list[tuple[Variable, bool]], n: int) -> Variable:
    """x[i, :, j] with x, some of the indices, or all of them stacks of n."""
    (x, stacked), *flat = inputs
    old, *_ = node.inputs
    places = list(indices_from_subtensor(range(len(flat)), node.op.idx_list))
    places += [slice(None)] * (old.type.ndim - len(places))
    arrays = [d for d, place in enumerate(places) if not isinstance(place, slice)]
    if any(
        flat[p][1]
        for place in places
        if isinstance(place, slice)
        for p in (place.start, place.stop, place.step)
        if p is not None
    ):
        raise NotAlike  # slices of different lengths
    index: dict[int, Any] = {}
    for d, place in enumerate(places):
        if d in arrays:
            index[d] = flat[place][0]
        else:
            index[d] = slice(
                *(None if p is None else flat[p][0] for p in (place.start, place.stop, place.step))
            )
    if any(getattr(index[d].type, "dtype", "") == "bool" for d in arrays):
        raise NotAlike
    old_ndim = {
        d: node.inputs[1 + places[d]].type.ndim if hasattr(node.inputs[1 + places[d]].type, "ndim") else 0
        for d in arrays
    }
    wide = max(old_ndim.values(), default=0)  # dimensions that the indices span together
    apart = bool(arrays) and arrays != list(range(arrays[0], arrays[-1] + 1))
    if not any(flat[places[d]][1] for d in arrays):
        if stacked and not (apart and isinstance(node.op, AdvancedSubtensor)):
            return x[(slice(None), *index.values())]
        if not stacked:
            raise NotAlike
    for d in arrays:  # (n, 1, ..., its own dimensions), or what broadcasts to that
        i = (
            pt.as_tensor_variable(index[d])
            if flat[places[d]][1] or hasattr(index[d].type, "ndim")
            else pt.tensor_from_scalar(index[d])
        )
        lead = 1 if flat[places[d]][1] else 0
        own = i.ndim - lead
        if lead:
            i = i.dimshuffle(0, *["x"] * (wide - own), *range(1, 1 + own))
        index[d] = i
    before = arrays[0]  # sliced dimensions before the first index
    if stacked:
        line = pt.constant(np.arange(n)).dimshuffle(0, *["x"] * wide)
        out = x[(line, *index.values())]
        moved_to_front = apart or before > 0
    else:
        out = x[tuple(index.values())]
        moved_to_front = apart
    basic = (
        isinstance(node.op, Subtensor) and len(arrays) > 0
    )  # whole numbers drop their dimensions where they stand
    if moved_to_front:
        # (n, indices, slices): back to where the indices of one member stand
        ahead = 0 if apart and not basic else before
        return out.dimshuffle(
            0, *range(1 + wide, 1 + wide + ahead), *range(1, 1 + wide), *range(1 + wide + ahead, out.ndim)
        )
    return out.dimshuffle(before, *range(before), *range(before + 1, out.ndim))


def summands(term: Variable) -> list[tuple[Variable, bool]]:
    """[(summand, whether it is subtracted)] of nested additions of the same shape; the term alone where it is
    none.
    """
    found, waiting = [], [(term, False)]
    while waiting:
        var, minus = waiting.pop()
        op = var.owner.op.scalar_op if var.owner is not None and isinstance(var.owner.op, Elemwise) else None
        inputs = var.owner.inputs if isinstance(op, Add | Sub | Neg) else []
        if isinstance(op, Add):  # Python's sum begins with 0
            inputs = [i for i in inputs if not (isinstance(i, Constant) and i.type.ndim == 0 and i.data == 0)]
        floats = all(i.type.dtype == var.type.dtype and i.type.dtype.startswith("float") for i in inputs)
        if (
            not inputs
            or None in var.type.shape
            or not floats
            or any(i.type.shape != var.type.shape for i in inputs)
        ):
            found.append((var, minus))
            continue
        flips = [isinstance(op, Neg) or (isinstance(op, Sub) and j == 1) for j in range(len(inputs))]
        waiting += [(i, minus != flip) for i, flip in zip(inputs, flips, strict=True)][::-1]
    return found


class Alike:
    """What of a graph has one structure and is enough to be worth laying on top of one another."""

    def __init__(self) -> None:
        self._signatures = Signatures()

    def of(self, parts: Sequence[Variable]) -> list[list[int]]:
        """Numbers of the parts that are alike; leaves are not looked at."""
        return self._same([(n, part) for n, part in enumerate(parts) if part.owner is not None])

    def inputs(self, node: Apply) -> list[list[int]]:
        """Numbers of the tensors that are joined to one and are alike, leaves included."""
        if not isinstance(node.op, Join | MakeVector):
            return []
        return self._same(
            [
                (n, i)
                for n, i in enumerate(node.inputs)
                if not isinstance(i, Constant) and None not in i.type.shape
            ]
        )

    def _same(self, parts: list[tuple[int, Variable]]) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for n, part in parts:
            found.setdefault(self._signatures.of(part), []).append(n)
        return [rows for rows in found.values() if len(rows) >= LEAST]


class Vectors:
    """Vectors in place of several variables each.

    Parameters
    ----------
    groups : {name: variables of static shapes}; a single one stays as it is

    Attributes
    ----------
    values : the vectors, and the variables that stay
    """

    def __init__(self, groups: Mapping[str, Sequence[Variable]]):
        self.values: list[Variable] = []
        self._places: dict[
            Variable, tuple[Variable, int]
        ] = {}  # variable -> the vector that holds it, and where it begins there
        for name, members in groups.items():
            if len(members) == 1:
                self.values.append(members[0])
                continue
            sizes = [int(np.prod(m.type.shape)) for m in members]
            self.values.append(pt.TensorType(members[0].type.dtype, shape=(sum(sizes),))(name=name))
            begins = np.cumsum([0, *sizes]).tolist()
            self._places.update(
                {m: (self.values[-1], begin) for m, begin in zip(members, begins, strict=False)}
            )
        self.parts = {v: self._part(v) for v in self._places}

    def _part(self, v: Variable) -> Variable:
        """One of the members of a vector."""
        vector, begin = self._places[v]
        shape = v.type.shape
        return vector[begin] if shape == () else vector[begin : begin + int(np.prod(shape))].reshape(shape)

    def stack(self, members: tuple[Variable, ...]) -> Variable:
        """(n, ...) the stack of variables."""
        vectors = {self._places[m][0] for m in members if m in self._places}
        if len(vectors) != 1 or any(m not in self._places for m in members):
            return pt.stack([self.parts.get(m, m) for m in members])
        (vector,), shape = vectors, members[0].type.shape
        size = int(np.prod(shape))
        begins = np.array([self._places[m][1] for m in members])
        if (np.diff(begins) == size).all():  # one after the other
            line = vector[begins[0] : begins[-1] + size]
        else:
            line = vector[(begins[:, None] + np.arange(size)).reshape(-1)]
        return line if shape == () else line.reshape((len(members), *shape))


def joined_alike(outputs: list[Variable], vectors: Vectors, stack: Stack, alike: Alike) -> list[Variable]:
    """The graph in terms of the vectors, and of what is joined the alike inputs as one."""

    def join(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        own = alike.inputs(node)
        return joined(node, inputs, own, stack, vectors) if own else None

    return rebuild(outputs, vectors.parts, join)


def joined(
    node: Apply, inputs: list[Variable], alike: list[list[int]], stack: Stack, vectors: Vectors
) -> list[Variable] | None:
    """What a node joins, its alike inputs as one."""
    pieces: list[Variable] = []
    order: list[int] = []  # of the inputs, as the pieces have them
    axis = node.op.axis % node.outputs[0].type.ndim if isinstance(node.op, Join) else 0
    lengths = [i.type.shape[axis] if isinstance(node.op, Join) else 1 for i in node.inputs]
    if None in lengths:
        return None
    for rows in alike:
        try:
            (part,) = rebuild([stack.of([node.inputs[j] for j in rows])], vectors.parts)
        except NotAlike:
            continue
        order += rows
        if isinstance(
            node.op, Join
        ):  # the new axis goes before the one along which they are joined, and the two become one
            shape = node.inputs[rows[0]].type.shape
            part = part.dimshuffle(*range(1, 1 + axis), 0, *range(1 + axis, part.ndim))
            part = part.reshape((*shape[:axis], len(rows) * shape[axis], *shape[axis + 1 :]))
        pieces.append(part)
    if not pieces:
        return None
    for j, i in enumerate(inputs):
        if j not in order:
            order.append(j)
            pieces.append(i if isinstance(node.op, Join) else i.dimshuffle("x"))
    whole = pieces[0] if len(pieces) == 1 else pt.join(axis, *pieces)
    ends = np.cumsum([0, *(lengths[j] for j in order)])
    begin = dict(zip(order, ends[:-1], strict=True))
    wanted = np.concatenate([begin[j] + np.arange(lengths[j]) for j in range(len(inputs))])
    if not np.array_equal(wanted, np.arange(len(wanted))):
        whole = whole[(*[slice(None)] * axis, wanted)]
    return (
        [whole.astype(node.outputs[0].type.dtype)]
        if whole.type.dtype != node.outputs[0].type.dtype
        else [whole]
    )


def in_vectors(
    outputs: list[Variable], groups: Mapping[str, Sequence[Variable]]
) -> tuple[list[Variable], list[Variable]]:
    """The values of `Vectors`, and the outputs in terms of them."""
    vectors = Vectors(groups)
    return vectors.values, joined_alike(outputs, vectors, Stack(vectors.stack), Alike())


class Stacked:
    """The terms of a log density, those alike as one, and the block's variables that they join.

    Parameters
    ----------
    terms : [(name, tensor)]
    values : the block's value variables, of static shapes
    kinds : {name of a value variable: what must agree for two of them to become one}; one that is left out
        stays by itself
    others : {name: the model's other value variables that are parts of one vector of this name, or a single
        one}

    Attributes
    ----------
    terms : [(name, tensor)] in terms of the new values
    values, others : value variables, or the vectors that they are parts of, in the order of the first of
        these
    groups, groups_of_others : for each of these the names of its members
    written_as_one : {name of a term: the names of those that it is made of}
    """

    def __init__(
        self,
        terms: list[Term],
        values: list[Variable],
        kinds: dict[str, Hashable],
        others: Mapping[str, Sequence[Variable]],
    ):
        similar = Alike()
        parts = [(name, part) for name, term in terms for part in taken_apart(term, similar)]
        alike = similar.of([part for _, part in parts])
        every = [[parts[i][1] for i in rows] for rows in alike]
        every += [
            [n.inputs[j] for j in rows]
            for n in toposort([part for _, part in parts])
            for rows in similar.inputs(n)
        ]
        united = groups_of(values, kinds, every)
        self.groups = [[str(v.name) for v in own] for own in united]
        self.groups_of_others = [[str(v.name) for v in own] for own in others.values()]
        block = {shown(names, quoted=False): own for names, own in zip(self.groups, united, strict=True)}
        vectors = Vectors(block | dict(others))
        self.values, self.others = vectors.values[: len(block)], vectors.values[len(block) :]
        stack = Stack(vectors.stack)
        made: dict[int, Variable] = {}
        dropped: set[int] = set()
        for rows in alike:
            try:
                made[rows[0]] = stack.of([parts[i][1] for i in rows])
                dropped.update(rows[1:])
            except NotAlike:
                continue
        members = {
            rows[0]: list(dict.fromkeys(parts[i][0] for i in rows)) for rows in alike if rows[0] in made
        }
        labels = {i: shown(names, quoted=False) for i, names in members.items()}
        self.written_as_one = {labels[i]: names for i, names in members.items()}
        kept = [
            (labels.get(i, name), made.get(i, part))
            for i, (name, part) in enumerate(parts)
            if i not in dropped
        ]
        outputs = joined_alike([part for _, part in kept], vectors, stack, similar)
        self.terms = list(zip([name for name, _ in kept], outputs, strict=True))


def taken_apart(term: Variable, alike: Alike) -> list[Variable]:
    """The summands of a sum that are like enough others of it, and the sum of the rest."""
    found = [-part if minus else part for part, minus in summands(term)]
    some = {n for rows in alike.of(found) for n in rows} if len(found) >= LEAST else set()
    if not some:
        return [term]
    rest = [part for n, part in enumerate(found) if n not in some]
    return [found[n] for n in sorted(some)] + ([pt.add(*rest) if len(rest) > 1 else rest[0]] if rest else [])


def groups_of(
    values: list[Variable], kinds: dict[str, Hashable], every: list[list[Variable]]
) -> list[list[Variable]]:
    """The variables that are to be one, in their order: those of one kind that stand in the same place of
    alike graphs.
    """
    wanted = {v for v in values if v.name in kinds}
    above = {v: v for v in wanted}

    def root(v: Variable) -> Variable:
        while above[v] is not v:
            v = above[v]
        return v

    def unite(members: tuple[Variable, ...]) -> None:
        mine = [m for m in members if m in wanted]
        for m in mine[1:]:
            if kinds[str(m.name)] == kinds[str(mine[0].name)]:
                above[root(m)] = root(mine[0])

    for members in every:
        seen, waiting = set(), [tuple(members)]
        while waiting:
            now = waiting.pop()
            if now in seen or len(set(now)) == 1:
                continue
            seen.add(now)
            if all(m.owner is None for m in now):
                unite(now)
            elif not any(m.owner is None for m in now):
                waiting += list(zip(*(m.owner.inputs for m in now), strict=True))
    found: dict[Variable, list[Variable]] = {}
    for v in values:
        found.setdefault(root(v) if v in wanted else v, []).append(v)
    groups: dict[Variable, list[Variable]] = {}  # by their first member
    for v in values:
        own = found[root(v) if v in wanted else v]
        own = own if len(own) >= LEAST else [v]
        groups.setdefault(own[0], own)
    return list(groups.values())
