"""Interval arithmetic against enumeration: every rule, over all small intervals, for each kind of inputs."""

import itertools
import math
from functools import cache

import numpy as np
import pytensor
import pytensor.scalar.basic as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import ViewOp
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor import basic as ptb
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp, Repeat
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor

from pymc_discrete.structure.bounds import REARRANGING, IntegerBounds, bounds_after
from pymc_discrete.structure.ops.elementwise import SCALAR_RULES

INF = math.inf
SMALL = np.arange(-3, 4)


def intervals(values):
    """All intervals with ends among the values, and those without a lower, an upper or any end."""
    inner = [(float(a), float(b)) for a, b in itertools.combinations_with_replacement(values, 2)]
    middle = float(values[len(values) // 2])
    return [*inner, (-INF, middle), (middle, INF), (-INF, INF)]


# {scalar Op: [(graph of it, {dtype of each input: values}, whether all bounds are attained)]}
WIDE = np.array([-128, -127, -1, 0, 1, 126, 127])
HALVES = np.arange(-3, 4) / 2


def all_of(build, n, attained=True, values=SMALL, dtype="int64"):
    return build, [dtype] * n, [values] * n, attained


def exponents(values=SMALL):
    return (lambda a, n: a**n), ["int64", "int64"], [values, np.arange(5)], True


SCALARS = {
    ps.Add: [
        all_of(lambda a, b: a + b, 2),
        all_of(lambda a, b: a + b, 2, False, WIDE, "int8"),
        all_of(lambda a, b: a + b, 2, True, HALVES, "float64"),
    ],
    ps.Sub: [
        all_of(lambda a, b: a - b, 2),
        all_of(lambda a, b: a - b, 2, False, np.arange(4), "uint8"),
        all_of(lambda a, b: a - b, 2, False, np.arange(4), "uint64"),
    ],
    ps.Mul: [
        all_of(lambda a, b: a * b, 2),
        all_of(lambda a, b, c: pt.mul(a, b, c), 3, True, np.arange(-2, 3)),
        all_of(lambda a, b: a * b, 2, False, WIDE, "int8"),
    ],
    ps.Neg: [all_of(lambda a: -a, 1), all_of(lambda a: -a, 1, False, np.arange(4), "uint64")],
    ps.Invert: [all_of(lambda a: ~a, 1), all_of(lambda a: ~a, 1, False, np.arange(4), "uint8")],
    ps.Abs: [all_of(pt.abs, 1), all_of(pt.abs, 1, False, WIDE, "int8")],
    ps.Sqr: [all_of(pt.sqr, 1), all_of(pt.sqr, 1, False, WIDE, "int8")],
    ps.Pow: [exponents(), exponents(np.arange(-1, 2))],
    ps.ScalarMaximum: [all_of(pt.maximum, 2)],
    ps.ScalarMinimum: [all_of(pt.minimum, 2)],
    ps.Clip: [
        all_of(pt.clip, 3, False, np.arange(-2, 3)),
        all_of(pt.clip, 3, False, HALVES[1:-1], "float64"),
    ],
    ps.Switch: [
        (
            lambda c, a, b: pt.switch(c, a, b),
            ["bool", "int64", "int64"],
            [np.array([False, True]), np.arange(-2, 3), np.arange(-2, 3)],
            False,
        )
    ],
    ps.Cast: [
        all_of(lambda a: a.astype("int32"), 1),
        all_of(lambda a: a.astype("int64"), 1, True, np.array([-1.5, -1, -0.5, 0, 0.5, 1.5]), "float64"),
        all_of(lambda a: a.astype("int8"), 1, False, np.array([-129, -128, 0, 127, 128])),
        all_of(lambda a: a.astype("uint64"), 1, False),
        all_of(lambda a: a.astype("float32"), 1, True, np.array([-(2**24) - 1, 0, 2**24 + 1, 2**25 + 3])),
    ],
    ps.Identity: [all_of(lambda a: pt.tensor_copy(a), 1)],
    ps.Ceil: [all_of(pt.ceil, 1, True, HALVES, "float64")],
    ps.Floor: [all_of(pt.floor, 1, True, HALVES, "float64")],
    ps.Second: [all_of(lambda a, b: pt.second(a, b), 2)],
    ps.Sign: [all_of(pt.sign, 1)],
    ps.IntDiv: [all_of(lambda a, b: a // b, 2, False), all_of(lambda a, b: a // b, 2, True, np.arange(1, 8))],
    ps.Mod: [all_of(lambda a, b: a % b, 2, False), all_of(lambda a, b: a % b, 2, False, np.arange(7))],
    ps.AND: [all_of(lambda a, b: a & b, 2, False)],
    ps.OR: [all_of(lambda a, b: a | b, 2, False)],
    ps.XOR: [all_of(lambda a, b: a ^ b, 2, False)],
}


class Planted(IntegerBounds):
    """Bounds of which one end, of the outputs of one kind of Op, is too tight by one."""

    def __init__(self, known, kind, end):
        super().__init__(known)
        self.kind, self.end = kind, end

    def after_one(self, node, out, values):
        low, high = super().after_one(node, out, values)
        if isinstance(getattr(node.op, "scalar_op", None), self.kind) or isinstance(node.op, self.kind):
            return (low + 1, high) if self.end == 0 else (low, high - 1)
        return low, high


def outside(bounds, low, high):
    """Whether an attained value lies outside of bounds."""
    return low < bounds[0] or high > bounds[1]


@cache
def enumerated(kind, n):
    """The n-th case of a scalar Op: its inputs, its output, and a table of the latter at all values."""
    build, dtypes, values, _ = SCALARS[kind][n]
    leaves = [pt.tensor(dtype=dtype, shape=(None,)) for dtype in dtypes]
    out = build(*leaves)
    grid = np.meshgrid(*(np.asarray(v, d) for v, d in zip(values, dtypes, strict=True)), indexing="ij")
    with np.errstate(all="ignore"):
        f = pytensor.function(leaves, out, mode="FAST_COMPILE", on_unused_input="ignore")
        return leaves, out, f(*(g.ravel() for g in grid)).reshape(grid[0].shape)


def faults_of_scalar(kind, n, bounds_of=IntegerBounds):
    """[(intervals, bounds claimed, bounds attained)] of one Op wherever these contradict each other."""
    _, _, values, attained = SCALARS[kind][n]
    leaves, out, table = enumerated(kind, n)
    for chosen in itertools.product(*(intervals(v) for v in values)):
        inside = [np.flatnonzero((v >= a) & (v <= b)) for v, (a, b) in zip(values, chosen, strict=True)]
        part = table[np.ix_(*inside)].astype(float)
        low, high = float(part.min()), float(part.max())
        claimed = bounds_of(dict(zip(leaves, chosen, strict=True))).of(out)
        tight = attained and np.isfinite(chosen).all()
        # an interval of floats holds more numbers than those of the grid
        if outside(claimed, low, high) or (tight and claimed != (low, high)):
            yield chosen, claimed, (low, high)


def names(kinds):
    return [kind.__name__ for kind in kinds]


@pytest.mark.parametrize("kind", SCALARS, ids=names(SCALARS))
def test_scalar_ops_have_the_bounds_that_enumeration_finds(kind):
    for n in range(len(SCALARS[kind])):
        assert list(faults_of_scalar(kind, n)) == []


def test_every_rule_is_compared_with_enumeration():
    assert {op for op, rules in SCALAR_RULES.items() if rules.bounds is not None} == set(SCALARS)
    assert {op for op, rules in SCALAR_RULES.items() if rules.bounds_of_floats} <= set(SCALARS)
    assert {*bounds_after.registry, *REARRANGING} - {object, Elemwise, ptb.AllocEmpty} == set(TENSORS)


@pytest.mark.parametrize("end", [0, 1], ids=["lower", "upper"])
@pytest.mark.parametrize("kind", SCALARS, ids=names(SCALARS))
def test_a_scalar_rule_that_is_too_tight_by_one_is_found(kind, end):
    assert any(faults_of_scalar(kind, 0, lambda known: Planted(known, kind, end)))


# ---------------------------------------------------------------- Ops of tensors
SHORT = [(-1.0, 1.0), (0.0, 2.0), (1.0, 2.0), (-2.0, -1.0), (0.0, 0.0)]
A = np.array([[1, -2], [0, 3]])


def ints(*shape):
    return pt.tensor(dtype="int64", shape=shape)


def graph(build, *shapes, given=None):
    """(output, its leaves with all intervals, {leaf: the one interval}) of `build` of leaves with shapes.

    A length in brackets is what stands for an unknown one.
    """
    leaves = [ints(*(None if isinstance(n, list) else n for n in shape)) for shape in shapes]
    sizes = [tuple(n[0] if isinstance(n, list) else n for n in shape) for shape in shapes]
    fixed = {leaf: (size, bounds) for leaf, size, bounds in (given or [])}
    return build(*leaves, *fixed), dict(zip(leaves, sizes, strict=True)), fixed


def at(high, *shape):
    """An index of values 0, ..., high."""
    return (
        ints(*(None if isinstance(n, list) else n for n in shape)),
        tuple(n[0] if isinstance(n, list) else n for n in shape),
        (0.0, float(high)),
    )


TENSORS = {
    ptb.Alloc: [lambda: graph(lambda x: pt.alloc(x, 2, 3), (3,))],
    DimShuffle: [lambda: graph(lambda x: x.T, (2, 1))],
    ptb.ExtractDiag: [lambda: graph(pt.diagonal, (2, 2))],
    ptb.Join: [lambda: graph(lambda x, y: pt.concatenate([x, y]), (2,), (1,))],
    JoinDims: [lambda: graph(lambda x: pt.join_dims(x, start_axis=0, n_axes=2), (2, 2))],
    ptb.MakeVector: [lambda: graph(lambda x, y: pt.stack([x, y]), (), ())],
    Repeat: [lambda: graph(lambda x, n: pt.repeat(x, n), (2,), given=[at(2, 2)])],
    Reshape: [lambda: graph(lambda x: x.reshape((4,)), (2, [2]))],
    ptb.ScalarFromTensor: [lambda: graph(ptb.scalar_from_tensor, ())],
    CheckAndRaise: [lambda: graph(lambda x: CheckAndRaise(ValueError, "")(x, pt.all(x < 99)), (2,))],
    SortOp: [lambda: graph(pt.sort, (3,))],
    SpecifyShape: [lambda: graph(lambda x: pt.specify_shape(x, (2,)), ([2],))],
    ptb.Split: [lambda: graph(lambda x: pt.split(x, [1, 2])[1], (3,))],
    SplitDims: [lambda: graph(lambda x: pt.split_dims(x, shape=(2, 2), axis=0), (4,))],
    ptb.TensorFromScalar: [lambda: graph(lambda x: pt.tensor_from_scalar(ptb.scalar_from_tensor(x)), ())],
    AdvancedSubtensor: [
        lambda: graph(lambda x, i: x[i], (2,), given=[at(1, 3)]),
        lambda: graph(lambda x, y: x[y > 0], (2,), (2,)),
    ],
    Subtensor: [lambda: graph(lambda x: x[1:], (3,)), lambda: graph(lambda x: x[0], (2, 1))],
    ViewOp: [lambda: graph(lambda x: ViewOp()(x), (2,))],
    CAReduce: [
        lambda: graph(pt.sum, (3,)),
        lambda: graph(lambda x: x.sum(axis=1), (1, 3)),
        lambda: graph(pt.sum, ([3],)),
        lambda: graph(pt.sum, ([0],)),
        lambda: graph(pt.sum, (0,)),
        lambda: graph(pt.prod, (1,)),
        lambda: graph(pt.prod, (2,)),
        lambda: graph(pt.prod, (3,)),
        lambda: graph(pt.prod, (4,)),
        lambda: graph(pt.prod, ([3],)),
        lambda: graph(pt.prod, ([0],)),
        lambda: graph(pt.max, (3,)),
        lambda: graph(pt.min, (3,)),
    ],
    CumOp: [
        lambda: graph(pt.cumsum, (3,)),
        lambda: graph(lambda x: pt.cumsum(x, axis=-1), (1, 3)),
        lambda: graph(pt.cumsum, ([3],)),
        lambda: graph(pt.cumprod, (1,)),
        lambda: graph(pt.cumprod, (3,)),
        lambda: graph(pt.cumprod, (4,)),
        lambda: graph(pt.cumprod, ([3],)),
    ],
    Dot: [
        lambda: graph(lambda x, y: pt.dot(x, y), (2, 2), (2, 1)),
        lambda: graph(lambda x, y: pt.dot(x, y), (1, [2]), ([2], 1)),
        lambda: graph(lambda x: pt.dot(A, x), (2, 1)),
        lambda: graph(lambda x: pt.dot(x, A), (1, 2)),
        lambda: graph(lambda x: pt.dot(x, -A), (2, 2)),
    ],
    Blockwise: [
        lambda: graph(lambda x, y: pt.matmul(x, y), (1, 1, 2), (1, 2, 1)),
        lambda: graph(lambda x, y: pt.matmul(x, y), (1, 1, [2]), (1, [2], 1)),
    ],
    IncSubtensor: [
        lambda: graph(lambda x, y: x[1:].inc(y), (3,), ()),
        lambda: graph(lambda x, y: x[0].inc(y), (2,), ()),
        lambda: graph(lambda x, y: x[:, 0].inc(y), (2, 1), (2,)),
        lambda: graph(lambda x, y: x[1:].set(y), (3,), (1,)),
    ],
    AdvancedIncSubtensor: [
        lambda: graph(lambda x, y, i: x[i].inc(y), (2,), (), given=[at(1, 3)]),
        lambda: graph(lambda x, y, i: x[i].inc(y), (2,), (1,), given=[at(1, [2])]),
        lambda: graph(lambda x, y, i: x[i].inc(y), (2,), (2,), given=[at(1, 2)]),
        lambda: graph(lambda x, y, i: x[:, i].inc(y), (1, 2), (), given=[at(1, 2)]),
        lambda: graph(lambda x, y, i, j: x[i[:, None], j].inc(y), (1, 2), (), given=[at(0, 2), at(1, 2)]),
        lambda: graph(lambda x, y, z: x[z > 0].inc(y), (2,), (), (2,)),
        lambda: graph(lambda x, y, z, i: x[z > 0, i].inc(y), (2, 1), (), (2,), given=[at(0, 1)]),
        lambda: graph(lambda x, y, i: x[i].inc(y, ignore_duplicates=True), (2,), (), given=[at(1, 2)]),
        lambda: graph(lambda x, y, i: x[i].set(y), (2,), (), given=[at(1, 2)]),
        lambda: graph(lambda i: pt.bincount(i, minlength=2), given=[at(1, 3)]),
        lambda: graph(lambda w, i: pt.bincount(i, weights=w, minlength=2), (3,), given=[at(1, 3)]),
    ],
    ptb.ARange: [
        lambda: graph(lambda: pt.arange(3)),
        lambda: graph(lambda: pt.arange(5, 0, -2)),
        lambda: graph(lambda x: pt.arange(x, 4), ()),
        lambda: graph(lambda x: pt.arange(-3, x), ()),
    ],
    ArgSortOp: [
        lambda: graph(pt.argsort, (3,)),
        lambda: graph(lambda x: pt.argsort(x, axis=0), (2, 1)),
        lambda: graph(lambda x: pt.argsort(x, axis=None), (2, 1)),
    ],
    Argmax: [
        lambda: graph(pt.argmax, (3,)),
        lambda: graph(lambda x: pt.argmax(x, axis=0), (2, 1)),
        lambda: graph(lambda x: pt.argmin(x, axis=-1), (1, 3)),
    ],
    ptb.AllocDiag: [lambda: graph(lambda x: ptb.AllocDiag(axis1=0, axis2=1, offset=0)(x), (2,))],
    Shape: [lambda: graph(lambda x: x.shape, ([3], 2)), lambda: graph(lambda x: x.shape, (3, 2))],
    Shape_i: [
        lambda: graph(lambda x: Shape_i(0)(x), ([3], 1)),
        lambda: graph(lambda x: Shape_i(0)(x), (3, 1)),
    ],
}  # fmt: skip


@cache
def evaluated(case):
    """(output, what `graph` says of its leaves, kinds of its Ops, the value at a row of elements)."""
    out, shapes, fixed = case()
    kinds = {type(node.op) for node in pytensor.graph.traversal.toposort([out])}
    out = pt.as_tensor(out)
    f = pytensor.function([*shapes, *fixed], out, mode="FAST_COMPILE", on_unused_input="ignore")
    sizes = [*shapes.values(), *(size for size, _ in fixed.values())]
    lengths = [math.prod(size) for size in sizes]

    @cache
    def value_at(row):
        parts = np.split(np.array(row, "int64"), np.cumsum(lengths)[:-1]) if row else [[]] * len(sizes)
        return f(*(np.reshape(p, size).astype("int64") for p, size in zip(parts, sizes, strict=True)))

    return out, shapes, fixed, kinds, value_at


def faults_of_tensor(case, kind, bounds_of=IntegerBounds, most=300):
    """As `faults_of_scalar`, of a graph of tensors: at all values of its leaves, of many at some."""
    out, shapes, fixed, kinds, value_at = evaluated(case)
    assert any(issubclass(k, kind) for k in kinds), kinds
    leaves = [*shapes, *fixed]
    sizes = [*shapes.values(), *(size for size, _ in fixed.values())]
    lengths = [math.prod(size) for size in sizes]
    rng = np.random.default_rng(1)
    for chosen in itertools.product(SHORT, repeat=len(shapes)):
        ends = [*chosen, *(bounds for _, bounds in fixed.values())]
        claimed = bounds_of(dict(zip(leaves, ends, strict=True))).of(out)
        axes = [range(int(a), int(b) + 1) for (a, b), n in zip(ends, lengths, strict=True) for _ in range(n)]
        if math.prod(map(len, axes)) <= most:
            rows = itertools.product(*axes)
        else:  # all corners, where there are few, and random rows
            corners = itertools.islice(itertools.product(*({r[0], r[-1]} for r in axes)), most)
            rows = itertools.chain(
                corners, (tuple(int(rng.choice(r)) for r in axes) for _ in range(most // 3))
            )
        for row in rows:
            value = value_at(row)
            if np.size(value) and outside(claimed, np.min(value), np.max(value)):
                yield chosen, claimed, row, value
                break


@pytest.mark.parametrize("kind", TENSORS, ids=names(TENSORS))
def test_ops_of_tensors_have_the_bounds_that_enumeration_finds(kind):
    for case in TENSORS[kind]:
        assert list(faults_of_tensor(case, kind)) == []


@pytest.mark.parametrize("end", [0, 1], ids=["lower", "upper"])
@pytest.mark.parametrize("kind", TENSORS, ids=names(TENSORS))
def test_a_rule_of_tensors_that_is_too_tight_by_one_is_found(kind, end):
    planted = (
        faults_of_tensor(case, kind, lambda known: Planted(known, kind, end)) for case in TENSORS[kind]
    )
    assert any(itertools.chain.from_iterable(planted))
