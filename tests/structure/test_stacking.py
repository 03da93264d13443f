"""Graphs of one structure that are written as one, and what that makes of models written in loops."""

import itertools

import jax
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.structure import stacking
from pymc_discrete.structure.stacking import NotAlike, Signatures, Stack
from tests.structure.loops import LOOPS, LargerOf, chain, edges
from tests.tools.oracle import compare

N = 4  # members
i, j = pt.lscalar("i"), pt.lscalar("j")  # stand for the leaves of one member
v, w = pt.tensor("v", shape=(3,), dtype="int64"), pt.tensor("w", shape=(2, 3), dtype="int64")
x, m, t = pt.tensor("x", shape=(5,)), pt.tensor("m", shape=(5, 6)), pt.tensor("t", shape=(5, 6, 7))
LEAVES = {"i": i, "j": j, "v": v, "w": w, "x": x, "m": m, "t": t}

INDEXED = {
    "x[i]": lambda: x[i],
    "x[v]": lambda: x[v],
    "m[i]": lambda: m[i],
    "m[:, i]": lambda: m[:, i],
    "m[i, j]": lambda: m[i, j],
    "m[v]": lambda: m[v],
    "m[:, v]": lambda: m[:, v],
    "m[v, i]": lambda: m[v, i],
    "m[v[:, None], w[0]]": lambda: m[v[:, None], w[0]],
    "m[w, v]": lambda: m[w, v],
    "m[1:4, i]": lambda: m[1:4, i],
    "m[1:4, v]": lambda: m[1:4, v],
    "t[i]": lambda: t[i],
    "t[:, i]": lambda: t[:, i],
    "t[:, :, i]": lambda: t[:, :, i],
    "t[i, :, j]": lambda: t[i, :, j],
    "t[:, i, j]": lambda: t[:, i, j],
    "t[v, :, v]": lambda: t[v, :, v],
    "t[:, v, v]": lambda: t[:, v, v],
    "t[i, :, v]": lambda: t[i, :, v],
    "t[v, v]": lambda: t[v, v],
    "t[:, w]": lambda: t[:, w],
    "t[:, w, i]": lambda: t[:, w, i],
    "t[w, :, v]": lambda: t[w, :, v],
    "t[:, :, v]": lambda: t[:, :, v],
    "t[2, :, v]": lambda: t[2, :, v],
    "t[:, 2:5, v]": lambda: t[:, 2:5, v],
    "m[i][j]": lambda: m[i][j],
    "m[v][:, i]": lambda: m[v][:, i],
}
COMPUTED = {
    "sum": lambda: pt.exp(m).sum(axis=1) + x,
    "all axes": lambda: (t * x[:, None, None]).sum(),
    "joined": lambda: pt.join(0, x, m[:, 0]),
    "vector": lambda: pt.stack([x[0], x[i], m[0, 1]]),
    "reshaped": lambda: m.reshape((6, 5)) * x,
    "transposed": lambda: t.transpose(2, 0, 1)[:, :, 1].sum(axis=0),
    "product": lambda: pt.dot(x, m),
    "softmax": lambda: pt.special.log_softmax(m, axis=1)[:, i],
    "switch": lambda: pt.switch(pt.eq(v, i), x[:3], -1.0),
    "filled": lambda: pt.alloc(x[i], 4),
    "linear algebra": lambda: pt.linalg.cholesky(pt.dot(m, m.T) + 9 * pt.eye(5)),
    "counted": lambda: pt.cumsum(x * 1.0),
}


@pytest.mark.parametrize("build", [*INDEXED.values(), *COMPUTED.values()], ids=[*INDEXED, *COMPUTED])
def test_a_stack_is_the_stack_of_its_members(build):
    """Whichever of the leaves differ between members; the others are the same for all."""
    r = np.random.default_rng(5)
    graph = build()
    used = [leaf for leaf in LEAVES.values() if leaf in pytensor.graph.traversal.graph_inputs([graph])]
    for differ in itertools.product([True, False], repeat=len(used)):
        values, replaced = {}, []
        for leaf, own in zip(used, differ, strict=True):
            shape = leaf.type.shape
            draw = r.integers(0, 5, (N, *shape)) if leaf.type.dtype == "int64" else r.normal(size=(N, *shape))
            values[leaf] = draw if own else np.repeat(draw[:1], N, axis=0)
            single = leaf.type(name=leaf.name)
            replaced.append([leaf.type(name=f"{leaf.name}{n}") if own else single for n in range(N)])
        members = [
            pytensor.graph.replace.clone_replace(graph, dict(zip(used, own, strict=True)))
            for own in zip(*replaced, strict=True)
        ]
        assert len({Signatures().of(member) for member in members[:1]}) == 1
        signatures = Signatures()
        assert len({signatures.of(member) for member in members}) == 1
        stacked = Stack(lambda leaves: pt.stack(leaves)).of(members)
        given = {leaf: values[used[k]][n] for k, own in enumerate(replaced) for n, leaf in enumerate(own)}
        inputs = list(given)
        f = pytensor.function(inputs, [stacked, *members], mode="FAST_COMPILE", on_unused_input="ignore")
        got, *want = f(*given.values())
        np.testing.assert_allclose(got, np.stack(want), atol=1e-12)


def test_leaves_that_stand_in_several_places():
    """Members that share a leaf, one leaf in two places, and members that occur twice."""
    a = [pt.dscalar(f"a{n}") for n in range(4)]
    members = [a[n] * a[(n + 1) % 3] for n in (0, 1, 2, 0, 1)]
    f = pytensor.function(
        a[:3], [Stack(lambda leaves: pt.stack(leaves)).of(members), *members], mode="FAST_COMPILE"
    )
    got, *want = f(1.0, 2.0, 3.0)
    np.testing.assert_array_equal(got, want)


def test_what_cannot_be_written_as_one_is_left():
    lengths = [x[:n].sum() for n in (2, 3, 4)]
    signatures = Signatures()
    assert len({signatures.of(member) for member in lengths}) == 1
    with pytest.raises(NotAlike):
        Stack(lambda leaves: pt.stack(leaves)).of(lengths)


# ---------------------------------------------------------------- models
@pytest.mark.parametrize("build", LOOPS, ids=[b.__name__ for b in LOOPS])
@pytest.mark.by_default("captures", "places_of_a_vector", "edges")
def test_models_in_loops(build):
    """Differences are those of PyMC's own log density, and the program does not grow with the number of
    variables.
    """
    sizes = []
    for length in (4, 7):
        with pm.Model() as model:
            names = build(length)
        target, *_ = compare(model, names) if length == 4 else (pmd.target_from_model(model, names),)
        assert {row["way"] for row in target.describe().values()} == {"exact"}
        assert list(target.describe()) == [
            name for name, _ in dict.fromkeys((m.name, 0) for m in target.space.members)
        ]
        graph = target.density.graph
        sizes.append((len(target.space.variables), len(graph.terms), len(graph.untouched)))
    assert sizes[0] == sizes[1]


def test_terms_of_other_structures_stay_apart():
    with pm.Model() as model:
        z = [pm.Bernoulli(f"z{n}", 0.4) for n in range(3)] + [
            pm.Categorical(f"c{n}", p=np.ones(3) / 3) for n in range(3)
        ]
        pm.Potential("first", LargerOf(z[0], z[3]))
        pm.Normal("y", z[0] + 2 * z[1] - z[2] + z[3] * z[4] - z[5], 1.0, observed=0.3)
    target, *_ = compare(model, None)
    assert [v.size for v in target.space.variables] == [3, 3]
    assert [m.name for m in target.space.members] == [str(v.name) for v in z]


def test_points_round_trip():
    """Whatever the order in which variables that become one are named."""
    with pm.Model() as model:
        edges(5)
        k = pm.Poisson("k", 300.0)
        pm.Normal("seen", k * model["z2"], 5.0, observed=300.0)
    names = ["z3", "k", "z0", "z4", "z1", "z2"]
    target = pmd.target_from_model(model, names)
    point = {**model.initial_point(), **{f"z{n}": np.array(n % 2) for n in range(5)}, "k": np.array(298)}
    at, there = target.at(point)
    assert [name for name, _ in target.space.sites] == ["z3", "z0", "z4", "z1", "z2", "k"]
    assert at.tolist() == [1, 0, 0, 1, 0, 298]
    back = there.point(at)
    assert {name: int(value) for name, value in back.items()} == {
        name: int(value) for name, value in point.items()
    }
    assert [int(target.space.numbers(name)) for name in names] == [0, 5, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "planted", ["members in another order", "a member at a neighbour's place", "one term lost"]
)
def test_planted_errors_are_found(planted, monkeypatch):
    if planted == "members in another order":
        leaf = stacking.Vectors.stack
        monkeypatch.setattr(
            stacking.Vectors, "stack", lambda self, members: leaf(self, (*members[1:], members[0]))
        )
    elif planted == "a member at a neighbour's place":
        part = stacking.Vectors.stack
        monkeypatch.setattr(
            stacking.Vectors, "stack", lambda self, members: part(self, (*members[:-1], members[-2]))
        )
    else:
        stack = Stack.of
        monkeypatch.setattr(
            Stack,
            "of",
            lambda self, members: pt.concatenate([stack(self, members)[:1], stack(self, members)[:-1]]),
        )
    with pm.Model() as model:
        names = chain(5)
    with pytest.raises(AssertionError):
        compare(model, names)


@pytest.mark.slow
def test_steps_draw_what_the_vector_form_draws():
    """The sites of 6 scalars in a list and of a vector, in the same order: the same program, the same
    numbers.
    """
    drawn = []
    for build in (chain, lambda n: chain(n, vector=True)):
        with pm.Model() as model:
            names = build(6)
            step = pmd.AutoStep(names, rng=np.random.default_rng(3))
        assert type(step).__name__ == "TreeGibbs"
        step.setup_chain(np.random.default_rng(4), tune=0, draws=3)
        point, rows = model.initial_point(), []
        for _ in range(3):
            point, _ = step.step(point)
            rows.append(np.concatenate([np.ravel(point[name]) for name in names]))
        drawn.append(np.stack(rows))
    np.testing.assert_array_equal(*drawn)
    jax.clear_caches()
