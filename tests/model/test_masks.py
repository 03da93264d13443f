"""Slices whose length depends on an unknown, and writes to places that depend on one."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.model import masks
from tests.tools.oracle import compare
from tests.tools.running import FAST, QUIET

A = np.random.default_rng(0).normal(size=9)
M = np.random.default_rng(1).normal(size=(4, 9))


def k(lower=0, upper=9, name="k"):
    return pm.DiscreteUniform(name, lower, upper)


def summed():
    pm.Normal("y", pt.constant(A)[: k()].sum(), 1, observed=0.3)


def before_and_after():
    """A changepoint as it is often written."""
    t, mu = k(), pm.Normal("mu", 0, 1, shape=2)
    before, after = pm.Deterministic("before", pt.constant(A)[:t]), pt.constant(A)[t:]
    pm.Potential(
        "p", pm.logp(pm.Normal.dist(mu[0], 1), before).sum() + pm.logp(pm.Normal.dist(mu[1], 2), after).sum()
    )


def of_a_matrix():
    t = k(2, 8)
    pm.Potential(
        "p",
        pt.constant(M)[1:, t:].mean(axis=1).sum()
        + pt.constant(M)[2, : t - 1].max()
        - pt.constant(M)[:2, :-t].T.sum(axis=0).min(),
    )


def from_the_end():
    t = k(1, 8)
    pm.Potential(
        "p", pt.constant(A)[-t:].prod() + (pt.constant(A)[:t] > 0).all() - (pt.constant(A)[t:] > 1).any()
    )


def up_to_what_is_in_another_slice():
    z = pm.Bernoulli("z", 0.4, shape=3)
    pm.Normal("y", pt.constant(A)[: z[k(0, 3) :].sum()].sum(), 1, observed=0.3)


def set_up_to():
    t = k()
    rate = pt.set_subtensor((pt.zeros(9) + pm.Normal("m"))[:t], 2.0)
    pm.Normal("y", pt.inc_subtensor(rate[t:], pt.constant(A)[t:]), 1, observed=A)


def joined():
    t = k()
    pm.Normal("y", pt.concatenate([pt.exp(pt.constant(A)[:t]), -pt.constant(A)[t:]]), 1, observed=A)


def between_two():
    pm.Normal("y", pt.constant(A)[k() : k(name="u")].sum(), 1, observed=0.2)


def of_sites():
    t, x = k(), pm.Bernoulli("x", 0.4, shape=9)
    pm.Normal("y", x[:t].sum() - x[t:].sum(), 1.0, observed=1.0)


def chosen():
    """By bools, none of which is true at the start."""
    z, x = pm.Bernoulli("z", 0.4, shape=9, initval=np.zeros(9, int)), pm.Normal("x", shape=9)
    rows = pt.constant(M.T)[z > 0].sum(axis=0)[1]
    pm.Potential("p", (x[z > 0] * pt.constant(A)[z > 0]).sum() + pt.sqr(x[pt.eq(z, 0)] - 1).sum() + rows)


def rows_chosen():
    """All of a matrix: PyTensor's own rewrite for JAX puts the bools along the last axis in place of the
    first.
    """
    z = pm.Bernoulli("z", 0.4, shape=3, initval=np.array([1, 0, 1]))
    pm.Potential("p", pt.constant(M[:3, :3])[z > 0].sum() + pt.constant(M[:3, :1])[z.astype("bool")].sum())


def columns_and_elements_chosen():
    z, x = pm.Bernoulli("z", 0.4, shape=(2, 3), initval=np.zeros((2, 3), int)), pm.Normal("x", shape=(2, 3))
    of_both = x[z > 0].sum() + pt.constant(M[:2, :3, None] * A[:4])[z > 0].prod(axis=0)[2]
    pm.Potential("p", of_both + x[:, z[0] > 0].sum() + pt.sqr(x[:, pt.eq(z[1], 0)]).sum(axis=1)[1])


def set_where_chosen():
    z, x = pm.Bernoulli("z", 0.4, shape=4, initval=np.zeros(4, int)), pm.Normal("x", shape=4)
    rate = pt.set_subtensor(x[z > 0], 1.5)
    rows = pt.inc_subtensor((x[:, None] * A[:3])[pt.eq(z, 0)], A[3:6])
    columns = pt.set_subtensor((x * M[:2, :4])[:, z > 0], x[z > 0] * 2)
    pm.Potential("p", (rate * A[:4]).sum() + pt.sqr(rows).sum() + pt.sqr(columns - 1).sum())


def chosen_by_data():
    """Bools that are known, along the first axis of a matrix and along both."""
    u, x = pm.Bernoulli("u", 0.4, shape=(3, 3)), pm.Normal("x", shape=(3, 3))
    seen = pm.Data("seen", np.array([True, False, True]))
    pm.Potential(
        "p",
        (u * x)[seen].sum()
        + (u * M[:3, :3])[pt.eq(pm.Data("number", [[1, 0, 1], [0, 0, 1], [1, 1, 1]]), 1)].sum(),
    )
    pm.Normal(
        "y",
        pt.set_subtensor(u[:, 0][seen], 2).sum() + (u * M[:3, :3])[pt.constant([False, True, True])].cumsum(),
        1,
        observed=A[:6],
    )


def how_many_are_chosen():
    z = pm.Bernoulli("z", 0.4, shape=5, initval=np.ones(5, int))
    part = pt.constant(A[:5])[z > 0]
    pm.Potential("p", pt.switch(part.shape[0] > 0, part.sum() + part.shape[0], 0.5))


def its_length():
    t = k(1, 8)
    part = pt.constant(A)[:t]
    pm.Potential("p", part.sum() / part.shape[0])


def written_beyond_the_end():
    """PyMC raises there: the density is zero."""
    pm.Normal("y", pt.set_subtensor(pt.zeros(3)[k(0, 5)], 1.5).sum(), 0.3, observed=1.0)


def increased_beyond_the_end():
    pm.Normal("y", pt.inc_subtensor(pt.ones(4)[k(-6, 5) + 1], 1.5), 0.3, observed=np.ones(4))


def windows():
    """Slices of a fixed length; a negative end or one beyond the axis would mean another slice."""
    t, u, x = k(0, 6), k(2, 5, "u"), pm.Bernoulli("x", 0.4, shape=(3, 9))
    pm.Normal("y", pt.constant(A)[t : t + 3] * x[1, 8 - u : 11 - u], 1.0, observed=A[:3])
    pm.Normal("w", (x[:, u - 2 : u + 1] * pt.constant(M)[:3, 6 - t : 9 - t]).T, 1.0, observed=M.T[:3, :3])
    pm.Potential("p", pt.constant(A)[t - 3 : t].sum())


def rolled():
    x = pm.Bernoulli("x", 0.4, shape=(2, 5))
    mu = pt.roll(pt.constant(A), k(-3, 12))[:5] + pt.roll(x, k(0, 4, "u"), axis=1)
    pm.Normal("y", mu, 1.0, observed=M[:2, :5])


MODELS = [
    summed,
    before_and_after,
    of_a_matrix,
    from_the_end,
    up_to_what_is_in_another_slice,
    set_up_to,
    joined,
    between_two,
    of_sites,
    its_length,
    chosen,
    rows_chosen,
    columns_and_elements_chosen,
    set_where_chosen,
    chosen_by_data,
    how_many_are_chosen,
    windows,
    rolled,
]
MODELS += [written_beyond_the_end, increased_beyond_the_end]


@pytest.mark.parametrize("build", MODELS, ids=[b.__name__ for b in MODELS])
@pytest.mark.by_default(
    "chosen_by_data",
    "of_a_matrix",
    "columns_and_elements_chosen",
    "increased_beyond_the_end",
    "between_two",
    "before_and_after",
    "summed",
    "windows",
    "rolled",
)
def test_differences(build):
    with pm.Model() as model:
        build()
    target, *_ = compare(model)
    assert target.exact


def test_a_wrong_end_is_found(monkeypatch):
    place = masks.place
    monkeypatch.setattr(
        masks, "place", lambda end, length, missing: place(end if end is None else end + 1, length, missing)
    )
    with pm.Model() as model:
        before_and_after()
    with pytest.raises(AssertionError):
        compare(model)


def test_a_wrong_choice_is_found(monkeypatch):
    mask = masks.Chosen.mask
    monkeypatch.setattr(masks.Chosen, "mask", lambda cut, ndim: ~mask(cut, ndim))
    with pm.Model() as model:
        chosen()
    with pytest.raises(AssertionError):
        compare(model)


def test_gradients():
    """The gradient by mu is that of the masked sums."""
    with pm.Model() as model:
        before_and_after()
    mu = np.array([0.4, -1.3])
    density, numbers = ContinuousDensity.of(model, ["mu"], model.initial_point())
    for n in (0, 4, 9):
        _, slopes = density.value_and_slopes({"k": np.array(n), "mu": mu} | numbers)
        want = np.array([(A[:n] - mu[0]).sum(), (A[n:] - mu[1]).sum() / 4]) - mu
        np.testing.assert_allclose(slopes["mu"], want, atol=1e-9)


@pytest.mark.slow
def test_deterministics():
    """What pmd.sample records of slices and selections is what NumPy makes of the same draws."""
    with pm.Model():
        z, x = pm.Bernoulli("z", 0.5, shape=3), pm.Normal("x", shape=3)
        pm.Deterministic("rows", (x * M[:3, :3])[z > 0].sum())
        pm.Deterministic("slice", x[: z.sum()].sum())
        pm.Deterministic("part", x[z > 0])
        options = {
            "tune": 20,
            "chains": 1,
            "random_seed": 1,
            "progressbar": False,
            "compute_convergence_checks": False,
        }
        draws = pmd.sample(50, var_names=["z", "x", "rows", "slice"], **options)["posterior"].isel(chain=0)
        with pytest.raises(
            NotImplementedError, match=r"'part' has a size that differs from draw to draw.*var_names="
        ):
            pmd.sample(50, **options)
    for z, x, rows, part in zip(*(draws[name].values for name in ("z", "x", "rows", "slice")), strict=True):
        np.testing.assert_allclose(
            [rows, part], [(x * M[:3, :3])[z > 0].sum(), x[: z.sum()].sum()], atol=1e-12
        )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda t: pt.sort(pt.constant(A)[:t])[0],
            "SortOp.*depends on a variable of the model \\(k\\).*pt.switch",
        ),
        (lambda t: (pt.constant(A)[:t] * pt.constant(A)[t:]).sum(), "Mul.*only sums"),
        (lambda t: pt.sort(pt.constant(A)[t - 3 : t])[0], r"SortOp.*k \+ np.arange"),
        (lambda t: pt.sort(pt.constant(A)[t : t + 3])[0], r"SortOp.*k \+ np.arange"),
        (lambda t: pt.constant(A)[:t:2].sum(), "with a step"),
        (lambda t: pt.sort(pt.constant(A)[pt.arange(9) < t])[0], "SortOp.*only sums"),
        (lambda t: pt.constant(np.arange(9))[:t].max(), "of integers in a slice.*pt.cast"),
        (lambda t: pt.ones(t).sum(), "Alloc.*size depends on a variable of the model .k."),
        (lambda t: pt.arange(t).sum(), "ARange.*size depends"),
        (
            lambda t: pt.repeat(pt.constant(A), pt.eq(np.arange(9), t).astype(int)).sum(),
            "Repeat.*size depends",
        ),
        (lambda t: pt.constant(A)[pt.nonzero(pt.arange(9) < t)[0]].sum(), "Nonzero.*size depends"),
        (lambda t: pt.constant(M.T)[pt.arange(9) < t, 0].sum(), "AdvancedSubtensor.*pt.switch"),
        (
            lambda t: pt.set_subtensor(pt.zeros(9)[pt.arange(9) < t], A[:3]).sum(),
            "AdvancedSetSubtensor.*pt.switch",
        ),
        (
            lambda t: pt.set_subtensor(pt.zeros(9)[t:], A[:3] + pt.constant(A)[:t].sum()).sum(),
            "SetSubtensor.*pt.switch",
        ),
    ],
    ids=[
        "sorted",
        "of two lengths",
        "with a negative end",
        "with an end beyond the axis",
        "a step",
        "chosen and sorted",
        "the largest integer",
        "ones",
        "a range",
        "repeated",
        "places",
        "beside an index",
        "set to several",
        "set to several that depend on a slice",
    ],
)
def test_what_is_refused(build, message):
    with pm.Model() as model:
        pm.Potential("p", build(k()))
    with pytest.raises(NotImplementedError, match=message):
        pmd.target_from_model(model)


def test_elsewhere_in_the_model():
    """A term of no fixed size hinders no step whose variables it does not read, and its own are
    left to PyMC.
    """
    with pm.Model():
        z = pm.Bernoulli("z", 0.3, shape=4)
        pm.Normal("y", z, 1, observed=np.ones(4))
        t = k(0, 7)
        refused = [pt.arange(t).sum(), pt.ones(t).sum(), pt.sort(pt.constant(A)[: pt.maximum(t, 0) + 1])[0]]
        for n, term in enumerate(refused):
            pm.Potential(f"p{n}", 0.1 * term)
        step = pmd.AutoStep()
        assert [type(s).__name__ for s in step.methods][-1] == "BlockGibbs"
        idata = pm.sample(
            20,
            tune=5,
            chains=1,
            cores=1,
            step=step,
            random_seed=1,
            **QUIET,
            **FAST,
        )
    lp = idata["sample_stats"]["lp"].values[..., -1]
    assert np.isfinite(lp).all()
