"""Combines terms of equal structure into one vectorised term, and their variables into one vector.

Users write models in loops: 150 scalar states of a Markov chain, each with its own prior term. Compiled one
by one, the program grows with the number of variables. This module *stacks* graphs that consist of the same
Ops: a variable that all graphs share stays, constants and variables that differ are put along a new first
axis, and the Ops are applied along that axis. Discrete variables at the same position of stacked graphs
become parts of one vector, so that all later code sees one variable in place of many. The rules of Ops are in
`ops/`.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import singledispatch

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, Neg, Sub
from pytensor.tensor.basic import Join, MakeVector

from pymc_discrete.runtime.names import made_name, shown
from pymc_discrete.structure.rebuild import rebuild
from pymc_discrete.structure.scalar_ops import scalar_op_of

FEWEST_STACKED = (
    3  # the smallest number of graphs of equal structure that are stacked; fewer graphs stay as they are
)

NamedTerm = tuple[str, Variable]


class NotAlike(Exception):
    """Graphs cannot be stacked: written as one graph, with a new first axis along which they differ."""


class Signatures:
    """Numbers that identify the structure of graphs, equal for graphs of the same Ops on leaves of the same
    types.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._of: dict[Variable, int] = {}

    def of(self, var: Variable) -> int:
        """The number of the structure of the graph that computes a variable."""
        pending = [var]
        # The walk is depth first and not recursive, since a sum may be nested as deeply as it has terms.
        while pending:
            current = pending[-1]
            inputs = current.owner.inputs if current.owner is not None else ()
            missing = [i for i in inputs if i not in self._of]
            if missing:
                pending += missing
                continue
            self._of[current] = self._number(self._key(current))
            pending.pop()
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
    """Whether a variable is a tensor or a number, rather than a slice or None."""
    return hasattr(var.type, "dtype")


class Stack:
    """Stacks graphs of equal structure along a new first axis.

    Parameters
    ----------
    leaf : (variables of the model) -> the tensor of these variables along a new first axis
    """

    def __init__(self, leaf: Callable[[tuple[Variable, ...]], Variable]):
        self.leaf = leaf
        # for each tuple of variables to be stacked: (their stack, True), or (x, False) if all are equal to
        # one variable x
        self._stacks: dict[tuple[Variable, ...], tuple[Variable, bool]] = {}

    def of(self, members: Sequence[Variable]) -> Variable:
        """(n, ...), the n members, whose signatures are equal, along a new first axis.

        Raises
        ------
        NotAlike
            Where an Op cannot be vectorised, or slices differ.
        """
        requested = tuple(members)
        pending = [requested]
        while pending:  # The walk is depth first and not recursive.
            current = pending[-1]
            missing = [below for below in self._inputs(current) if below not in self._stacks]
            if missing:
                pending += missing
                continue
            self._stacks[current] = self._make(current)
            pending.pop()
        stacked, batched = self._stacks[requested]
        return stacked if batched else pt.stack([stacked] * len(requested))

    def _inputs(self, members: tuple[Variable, ...]) -> Iterator[tuple[Variable, ...]]:
        """The tuples of variables whose stacks the stack of `members` is computed from."""
        distinct = tuple(dict.fromkeys(members))
        if len(distinct) == 1 or members[0].owner is None:
            return
        if len(distinct) < len(members):
            yield distinct
            return
        yield from zip(*(m.owner.inputs for m in members), strict=True)

    def _make(self, members: tuple[Variable, ...]) -> tuple[Variable, bool]:
        """(the stack of some variables, True), or (x, False) if all are equal to one variable x."""
        distinct = list(dict.fromkeys(members))
        first = members[0]
        if len(distinct) == 1:
            return first, False
        if len(distinct) < len(members) and first.owner is not None:
            stacked, batched = self._stacks[tuple(distinct)]
            position = {m: n for n, m in enumerate(distinct)}
            return (stacked[np.array([position[m] for m in members])], True) if batched else (stacked, False)
        if isinstance(first, Constant):
            values = [m.data for m in members]
            if not has_values(first):
                raise NotAlike
            if all(np.array_equal(values[0], v) for v in values):
                return first, False
            return pt.constant(np.stack(values)), True
        if first.owner is None:
            return self.leaf(members), True
        inputs = [self._stacks[below] for below in zip(*(m.owner.inputs for m in members), strict=True)]
        if not any(batched for _, batched in inputs):
            return first, False
        outputs = with_axis(first.owner.op, first.owner, inputs, len(members))
        return outputs[first.owner.outputs.index(first)], True


@singledispatch
def with_axis(op: Op, node: Apply, inputs: list[tuple[Variable, bool]], n: int) -> list[Variable]:
    """The outputs of a node, vectorised over a new first axis of length n.

    Parameters
    ----------
    inputs : [(variable, whether it is a stack of n)]; a variable that is no stack is the same for all n

    Raises
    ------
    NotAlike
        Where the node cannot be vectorised; always for an Op without a rule.
    """
    raise NotAlike


def vectorised(op: Op, node: Apply, inputs: list[tuple[Variable, bool]], n: int) -> list[Variable]:
    """The outputs of a node with a new first axis, for an Op that PyTensor itself vectorises.

    The Ops that PyTensor makes of such an Op are Ops for which this package has rules.
    """
    if any(
        batched and not hasattr(i.type, "ndim") for i, (_, batched) in zip(node.inputs, inputs, strict=True)
    ):
        raise NotAlike  # scalars that are not tensors, such as an axis or a length, cannot be stacked
    try:
        outputs = _vectorize_node(op, node, *(i for i, _ in inputs))
    except (NotImplementedError, ValueError, TypeError) as error:
        raise NotAlike from error
    return outputs.outputs if isinstance(outputs, Apply) else list(outputs)


def nested_summands(term: Variable) -> list[tuple[Variable, bool]]:
    """[(summand, whether it is subtracted)] of nested additions of tensors of one shape.

    A term that is no addition is its own only summand.
    """
    parts, pending = [], [(term, False)]
    while pending:
        var, minus = pending.pop()
        op = scalar_op_of(var)
        inputs = var.owner.inputs if isinstance(op, Add | Sub | Neg) else []
        if isinstance(op, Add):  # Python's `sum` starts with the summand 0, which is left out
            inputs = [i for i in inputs if not (isinstance(i, Constant) and i.type.ndim == 0 and i.data == 0)]
        floats = all(i.type.dtype == var.type.dtype and i.type.dtype.startswith("float") for i in inputs)
        if (
            not inputs
            or None in var.type.shape
            or not floats
            or any(i.type.shape != var.type.shape for i in inputs)
        ):
            parts.append((var, minus))
            continue
        flips = [isinstance(op, Neg) or (isinstance(op, Sub) and j == 1) for j in range(len(inputs))]
        pending += [(i, minus != flip) for i, flip in zip(inputs, flips, strict=True)][::-1]
    return parts


class Alike:
    """Finds groups of at least `FEWEST_STACKED` graphs of equal structure."""

    def __init__(self) -> None:
        self._signatures = Signatures()

    def of(self, parts: Sequence[Variable]) -> list[list[int]]:
        """Groups of the indices of `parts` whose graphs have equal structure, without those that no node
        computes.
        """
        return self._same([(n, part) for n, part in enumerate(parts) if part.owner is not None])

    def inputs(self, node: Apply) -> list[list[int]]:
        """Groups of the indices of inputs of a Join or MakeVector that have equal structure.

        Constants, and inputs whose shape is not static, are left out.
        """
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
        groups: dict[int, list[int]] = {}
        for n, part in parts:
            groups.setdefault(self._signatures.of(part), []).append(n)
        return [numbers for numbers in groups.values() if len(numbers) >= FEWEST_STACKED]


class Vectors:
    """Joins the variables of each of some groups into one vector, and writes each variable as a part of it.

    Parameters
    ----------
    groups : {name of the vector: variables of static shapes}; a group of one variable stays that variable

    Attributes
    ----------
    values : the vectors, and the variables that stay, in the order of `groups`
    parts : {variable: its value as a part of a vector}
    """

    def __init__(self, groups: Mapping[str, Sequence[Variable]]):
        self.values: list[Variable] = []
        # {variable: (the vector that contains it, the position of its first element there)}
        self._places: dict[Variable, tuple[Variable, int]] = {}
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
        """A variable, read from its vector."""
        vector, begin = self._places[v]
        shape = v.type.shape
        return vector[begin] if shape == () else vector[begin : begin + int(np.prod(shape))].reshape(shape)

    def stack(self, members: tuple[Variable, ...]) -> Variable:
        """(n, ...) n variables of one shape along a new first axis; one slice of a vector where possible."""
        vectors = {self._places[m][0] for m in members if m in self._places}
        if len(vectors) != 1 or any(m not in self._places for m in members):
            return pt.stack([self.parts.get(m, m) for m in members])
        (vector,), shape = vectors, members[0].type.shape
        size = int(np.prod(shape))
        begins = np.array([self._places[m][1] for m in members])
        if (np.diff(begins) == size).all():  # the members follow one another in the vector
            elements = vector[begins[0] : begins[-1] + size]
        else:
            elements = vector[(begins[:, None] + np.arange(size)).reshape(-1)]
        return elements if shape == () else elements.reshape((len(members), *shape))


def joined_alike(outputs: list[Variable], vectors: Vectors, stack: Stack, alike: Alike) -> list[Variable]:
    """`outputs` as functions of vectors of variables; inputs of a Join with equal structure are stacked."""

    def join(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        groups = alike.inputs(node)
        return joined(node, inputs, groups, stack, vectors) if groups else None

    return rebuild(outputs, vectors.parts, join)


def joined(
    node: Apply, inputs: list[Variable], groups: list[list[int]], stack: Stack, vectors: Vectors
) -> list[Variable] | None:
    """The output of a Join or MakeVector with groups of its inputs stacked; None where none can be stacked.

    Parameters
    ----------
    inputs : the inputs of the node, as functions of the vectors
    groups : groups of indices of inputs with equal structure
    """
    pieces: list[Variable] = []
    # the indices of the inputs of the Join, in the order in which the pieces of the new tensor contain them
    order: list[int] = []
    axis = node.op.axis % node.outputs[0].type.ndim if isinstance(node.op, Join) else 0
    lengths = [i.type.shape[axis] if isinstance(node.op, Join) else 1 for i in node.inputs]
    if None in lengths:
        return None
    for group in groups:
        try:
            (part,) = rebuild([stack.of([node.inputs[j] for j in group])], vectors.parts)
        except NotAlike:
            continue
        order += group
        # the first axis of the stack is merged with the axis along which the Join joins its inputs
        if isinstance(node.op, Join):
            shape = node.inputs[group[0]].type.shape
            part = part.dimshuffle(*range(1, 1 + axis), 0, *range(1 + axis, part.ndim))
            part = part.reshape((*shape[:axis], len(group) * shape[axis], *shape[axis + 1 :]))
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
    dtype = node.outputs[0].type.dtype
    return [whole if whole.type.dtype == dtype else whole.astype(dtype)]


def in_vectors(
    outputs: list[Variable], groups: Mapping[str, Sequence[Variable]]
) -> tuple[list[Variable], list[Variable]]:
    """Outputs as functions of vectors of variables.

    Parameters
    ----------
    groups : {name of the vector: variables of static shapes}; a group of one variable stays that variable

    Returns
    -------
    values : the vectors, and the variables that stay, in the order of `groups`
    outputs : the outputs as functions of `values`
    """
    vectors = Vectors(groups)
    return vectors.values, joined_alike(outputs, vectors, Stack(vectors.stack), Alike())


class Stacked:
    """The terms of a log density, where terms of equal structure are stacked, as functions of vectors of
    variables.

    Parameters
    ----------
    terms : [(name, tensor)]
    values : the block's value variables, of static shapes
    kinds : {name of a value variable: key}; of the variables in stacked terms, only those of equal keys
        become parts of one vector, and one without a key stays by itself
    others : {name: the model's other value variables that become one vector of this name, or a single one}
    united : groups of names of value variables without keys; each group becomes one vector, whatever terms
        the variables are in

    Attributes
    ----------
    terms : [(name, tensor)] as functions of the new `values` and `others`
    values, others : variables and vectors, ordered by the first variable that each contains
    groups, groups_of_others : for each of `values`, and of `others`, the names of the variables it contains
    written_as_one : {name of a stacked term: the names of the terms that it is made of}
    """

    def __init__(
        self,
        terms: list[NamedTerm],
        values: list[Variable],
        kinds: dict[str, Hashable],
        others: Mapping[str, Sequence[Variable]],
        united: Sequence[list[str]] = (),
    ):
        similar = Alike()
        parts = [(name, part) for name, term in terms for part in similar_summands(term, similar)]
        graphs = [part for _, part in parts]
        alike = similar.of(graphs)
        vectors_of_block = variables_to_unite(values, kinds, of_equal_structure(graphs, similar), united)
        self.groups = [[str(v.name) for v in members] for members in vectors_of_block]
        self.groups_of_others = [[str(v.name) for v in members] for members in others.values()]
        block = {
            made_name(names): members for names, members in zip(self.groups, vectors_of_block, strict=True)
        }
        vectors = Vectors(block | dict(others))
        self.values, self.others = vectors.values[: len(block)], vectors.values[len(block) :]
        stack = Stack(vectors.stack)
        stacks: dict[int, Variable] = {}  # {index of the first of the stacked terms: the stack}
        names_of: dict[int, list[str]] = {}
        dropped: set[int] = set()
        for first, *rest in alike:
            numbers = [first, *rest]
            try:
                stacks[first] = stack.of([graphs[i] for i in numbers])
            except NotAlike:
                continue
            names_of[first] = list(dict.fromkeys(parts[i][0] for i in numbers))
            dropped.update(rest)
        labels = {i: shown(names, quoted=False) for i, names in names_of.items()}
        self.written_as_one = {labels[i]: names for i, names in names_of.items()}
        kept = [
            (labels.get(i, name), stacks.get(i, part))
            for i, (name, part) in enumerate(parts)
            if i not in dropped
        ]
        outputs = joined_alike([part for _, part in kept], vectors, stack, similar)
        self.terms = list(zip([name for name, _ in kept], outputs, strict=True))


def of_equal_structure(graphs: list[Variable], alike: Alike) -> list[list[Variable]]:
    """Groups of graphs of equal structure, and of inputs of a Join or MakeVector in them."""
    groups = [[graphs[i] for i in numbers] for numbers in alike.of(graphs)]
    for node in toposort(graphs):
        groups += [[node.inputs[j] for j in numbers] for numbers in alike.inputs(node)]
    return groups


def similar_summands(term: Variable, alike: Alike) -> list[Variable]:
    """The summands of a term that share their structure with enough others, then the sum of all other
    summands.
    """
    parts = [-part if minus else part for part, minus in nested_summands(term)]
    similar = {n for numbers in alike.of(parts) for n in numbers} if len(parts) >= FEWEST_STACKED else set()
    if not similar:
        return [term]
    rest = [part for n, part in enumerate(parts) if n not in similar]
    total = [pt.add(*rest) if len(rest) > 1 else rest[0]] if rest else []
    return [parts[n] for n in sorted(similar)] + total


def variables_to_unite(
    values: list[Variable],
    kinds: dict[str, Hashable],
    graphs: list[list[Variable]],
    united: Sequence[list[str]] = (),
) -> list[list[Variable]]:
    """Groups of variables that become one vector each, ordered by their first variables.

    Variables belong to one group if they are at the same position of graphs of equal structure and have equal
    kinds.

    Parameters
    ----------
    kinds : {name of a variable: key}, equal for variables that may become parts of one vector
    graphs : groups of graphs of equal structure
    united : groups of names of variables without a kind; each group becomes one vector
    """
    candidates = {v for v in values if v.name in kinds}
    parent = {v: v for v in candidates}  # a union-find forest

    def root(v: Variable) -> Variable:
        while parent[v] is not v:
            v = parent[v]
        return v

    def unite(leaves: tuple[Variable, ...]) -> None:
        members = [v for v in leaves if v in candidates]
        for v in members[1:]:
            if kinds[str(v.name)] == kinds[str(members[0].name)]:
                parent[root(v)] = root(members[0])

    for members in graphs:
        for leaves in leaves_at_equal_positions(members):
            unite(leaves)
    by_root: dict[Variable, list[Variable]] = {}
    for v in values:
        by_root.setdefault(root(v) if v in candidates else v, []).append(v)
    groups: dict[Variable, list[Variable]] = {}  # {first variable of a group: its variables}
    for v in values:
        group = by_root[root(v) if v in candidates else v]
        group = group if len(group) >= FEWEST_STACKED else [v]
        for names in united:
            group = [u for u in values if u.name in names] if v.name in names else group
        groups.setdefault(group[0], group)
    return list(groups.values())


def leaves_at_equal_positions(graphs: list[Variable]) -> Iterator[tuple[Variable, ...]]:
    """For each position at which graphs of equal structure have different leaves (variables that no node
    computes), the tuple of these leaves.
    """
    seen, pending = set(), [tuple(graphs)]
    while pending:
        current = pending.pop()
        if current in seen or len(set(current)) == 1:
            continue
        seen.add(current)
        if all(v.owner is None for v in current):
            yield current
        elif not any(v.owner is None for v in current):
            pending += list(zip(*(v.owner.inputs for v in current), strict=True))
