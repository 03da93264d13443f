"""Multinomial and DirichletMultinomial unknowns in pm.sample and pmd.sample, and what is said of them."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError

import pymc_discrete as pmd
from pymc_discrete.diagnostics.checks.ties import sentence, ties
from pymc_discrete.differences.parts.in_place import InPlace
from pymc_discrete.starts.start import check_start, dispersed
from tests.posteriors import probabilities
from tests.tools.running import QUIET, sample_with_pymc
from tests.tools.statistics import LARGEST_Z, check_proportions, z_of_moments

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]


# ---------------------------------------------------------------- against enumeration
def overdispersed():
    x = pm.DirichletMultinomial("x", n=6, a=np.array([0.4, 1.0, 2.5]))
    pm.Poisson("y", 0.5 + x[0] * x[2], observed=4)
    return {"x": [range(7)] * 3}


def sums_of_columns():
    """A dense term of all counts."""
    x = pm.Multinomial("x", np.array([2, 1, 3, 1]), np.full((4, 2), 0.5))
    pm.Poisson("y", 0.2 + x.sum(axis=0), observed=[6, 1])
    return {"x": [range(n + 1) for n in (2, 1, 3, 1) for _ in range(2)]}


def with_pymc(step, **options):
    return lambda model: sample_with_pymc(model, lambda: step(**options), draws=2000, tune=300, random_seed=3)


WAYS = {
    "BlockGibbs": with_pymc(pmd.BlockGibbs),
    "PathAuxiliary in pmd.sample": lambda model: pmd.sample(
        3000, tune=300, chains=2, model=model, random_seed=6, step=pmd.PathAuxiliary(model=model), **QUIET
    ),
    "pmd.sample": lambda model: pmd.sample(3000, tune=100, chains=2, model=model, random_seed=5, **QUIET),
}


@pytest.mark.parametrize(
    ("build", "way"),
    [
        (overdispersed, "BlockGibbs"),
        (sums_of_columns, "pmd.sample"),
        (overdispersed, "PathAuxiliary in pmd.sample"),
    ],
    ids=lambda v: getattr(v, "__name__", v),
)
@pytest.mark.by_default("overdispersed-BlockGibbs")
def test_against_enumeration(build, way):
    with pm.Model() as model:
        values = build()
    check_proportions(WAYS[way](model)["posterior"], list(values), *probabilities(model, values))


# ---------------------------------------------------------------- Rao 1973, section 5g: genetic linkage
COUNTS = np.array([125, 18, 20, 34])


def linkage_of_five_cells():
    """Of the first cell only the total of two is seen."""
    theta = pm.Uniform("theta", 0, 1)
    p = pt.stack([0.5 + 0 * theta, theta / 4, (1 - theta) / 4, (1 - theta) / 4, theta / 4])
    x = pm.Multinomial("x", COUNTS.sum(), p, initval=[95, 30, 18, 20, 34])
    seen = pt.stack([x[0] + x[1], x[2], x[3], x[4]])
    pm.Potential("seen", pt.switch(pt.eq(seen, COUNTS), 0.0, -np.inf))


def linkage_of_two_cells():
    """The seen cell, split in two."""
    theta = pm.Uniform("theta", 0, 1)
    p = pt.stack([0.5 + 0 * theta, theta / 4])
    pm.Multinomial("x", COUNTS[0], p / p.sum())
    whole = pt.stack([0.5 + theta / 4, (1 - theta) / 4, (1 - theta) / 4, theta / 4])
    pm.Multinomial("y", COUNTS.sum(), whole, observed=COUNTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "way"),
    [
        (linkage_of_five_cells, "pmd.sample"),
        (linkage_of_two_cells, "pm.sample"),
    ],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_linkage(build, way):
    with pm.Model() as model:
        build()
    if way == "pm.sample":
        tree = sample_with_pymc(model, lambda: pmd.BlockGibbs(), draws=2000, tune=500, random_seed=6)
    else:
        tree = pmd.sample(3000, tune=500, chains=2, model=model, random_seed=7, **QUIET)
    grid = np.linspace(0, 1, 20001)[1:-1]
    logp = 125 * np.log(2 + grid) + 38 * np.log1p(-grid) + 34 * np.log(grid)
    density = np.exp(logp - logp.max())
    density /= density.sum()
    mean = (density * grid).sum()
    sd = np.sqrt((density * (grid - mean) ** 2).sum())
    assert (round(mean, 3), round(sd, 3)) == (0.623, 0.051)
    assert np.abs(z_of_moments(tree["posterior"]["theta"].values, mean, sd)).max() < LARGEST_Z
    counts = tree["posterior"]["x"].values
    assert (counts[..., :2].sum(-1) == 125).all()
    assert len(np.unique(counts[..., 1])) > 10


# ---------------------------------------------------------------- what is chosen
def chain_and_counts():
    z = pm.Categorical("z", p=[0.4, 0.6], shape=6)
    pm.Potential("chain", 0.5 * pt.eq(z[1:], z[:-1]).sum())
    p = pm.Dirichlet("p", np.ones(3))
    pm.Multinomial("x", 9, p)


@pytest.mark.slow
def test_what_auto_step_chooses(caplog):
    caplog.set_level("INFO", logger="pymc.discrete")
    with pm.Model() as model:
        chain_and_counts()
        steps = pmd.AutoStep().methods
    assert [type(s) for s in steps] == [pmd.TreeGibbs, pmd.BlockGibbs]
    assert [s.own_variables for s in steps] == [["z"], ["x"]]
    assert any("elements change together" in r.getMessage() for r in caplog.records)
    one = pmd.BlockGibbs(model=model)
    assert {*one.own_variables} == {"z", "x"}
    with pmd.registered(), model:
        _, chosen = pm.sampling.mcmc.assign_step_methods(model)
    assert {v.name for v in chosen[pmd.AutoStep]} == {"z", "x"}


@pytest.mark.slow
def test_sums_are_a_part_of_what_is_kept():
    """Models that differ by n share no density, and a change of data is seen."""
    totals = []
    for n in (3, 5):
        with pm.Model():
            pm.Multinomial("x", n, np.full(3, 1 / 3))
            totals.append(pmd.BlockGibbs().target.space.variables[0].constraint.totals.tolist())
    assert totals == [[3], [5]]
    with pm.Model() as model:
        n = pm.Data("n", 4)
        pm.Multinomial("x", n, np.full(3, 1 / 3))
        step = pmd.BlockGibbs()
        n.set_value(7)
        point, _ = step.step(model.initial_point())
    assert point["x"].sum() == 7


# ---------------------------------------------------------------- starts
def test_dispersed_starts_have_the_sums():
    with pm.Model() as model:
        pm.Multinomial("x", np.array([7, 2]), np.array([[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]]))
        pm.Bernoulli("b", 0.3, shape=4)
    x, target = pmd.BlockGibbs(model=model).target.at(model.initial_point())
    rng, starts = np.random.default_rng(0), []
    for _ in range(20):
        starts.append(dispersed(x, target, rng))
        assert float(target.logdensity(starts[-1])) > -np.inf
    assert len(np.unique(starts, axis=0)) > 10


def test_starts_with_a_wrong_sum():
    with pm.Model() as model:
        pm.Multinomial("x", np.array([7, 2]), np.full((2, 3), 1 / 3))
        step = pmd.BlockGibbs()
    message = r"'x' starts outside its support: vector 1, \[0, 2, 1\], adds up to 3, and n is 2.*initvals"
    with pytest.raises(SamplingError, match=message):
        step.step({"x": np.array([[1, 2, 4], [0, 2, 1]])})
    with pytest.raises(SamplingError, match=message):
        pmd.sample(5, tune=5, model=model, initvals={"x": [[1, 2, 4], [0, 2, 1]]}, **QUIET)


@pytest.mark.slow
def test_wrong_differences_of_pairs_are_found_at_the_start(monkeypatch):
    with pm.Model() as model:
        x = pm.Multinomial("x", 7, np.full(3, 1 / 3))
        pm.Potential("e", 0.3 * x[0] * x[1])
        target = pmd.BlockGibbs().fresh_target()
    right = InPlace.joint_differences
    monkeypatch.setattr(InPlace, "joint_differences", lambda *a: 1.1 * right(*a))
    point = model.initial_point()
    with pytest.raises(SamplingError, match="'x' were taken for exact"):
        check_start(target, point, target.space.ravel(point))


# ---------------------------------------------------------------- ties
def test_what_is_said_of_counts_that_mix_slowly():
    """How their prior may be written, and not that their sum is constant."""
    rng = np.random.default_rng(1)
    walks = np.cumsum(rng.normal(size=(2, 500, 3)), axis=1)
    p = np.exp(0.05 * walks)
    p /= p.sum(-1, keepdims=True)
    x = np.round(10_000 * p)
    x[..., 2] = 10_000 - x[..., :2].sum(-1)
    counts = {f"'x[{i}]'": x[..., i] for i in range(3)}
    found = ties(counts, {"'p[0]'": p[..., 0]}, lambda names, two_valued: "", dict.fromkeys(counts, "x"))
    assert any("'p[0]'" in tie.names and "pm.DirichletMultinomial" in sentence(tie) for tie in found)
    assert not any("total varies" in sentence(tie) for tie in found)
    without_rows = ties(counts, {}, lambda names, two_valued: "")
    assert any("total varies" in sentence(tie) for tie in without_rows)


# ---------------------------------------------------------------- what is refused
def counts():
    pm.Multinomial("x", 5, np.full(3, 1 / 3))


def unknown_sum():
    n = pm.Poisson("n", 5)
    pm.DirichletMultinomial("x", n=n, a=np.ones(3), initval=[2, 2, 1])


@pytest.mark.parametrize(
    ("build", "step", "options", "message"),
    [
        *(
            (counts, step, {"vars": vars}, r"'x' is a constrained vector.*pmd.BlockGibbs or pmd.AutoStep")
            for step in ("DiscreteLangevin", "TreeGibbs")
            for vars in (None, "x")
        ),
        *(
            (unknown_sum, step, {"vars": "x"}, r"'x'.*n depends on another variable.*pmd.BlockGibbs or")
            for step in ("GibbsWithGradients", "PathAuxiliary")
        ),
        *(
            (unknown_sum, step, {"vars": vars}, r"'x' adds up to n, which depends on 'n'.*Name '[xn]' in the")
            for step in ("BlockGibbs", "AutoStep")
            for vars in ("x", "n")
        ),
        (counts, "BlockGibbs", {"support": {"x": (0, 1)}}, r"'x' cannot have the sum 5.*sums from 0 to 3"),
        (counts, "AutoStep", {"integrate": "auto"}, r"integrate= does not go with 'x'.*pmd.BlockGibbs"),
    ],
)
def test_refused(build, step, options, message):
    with pm.Model() as model:
        build()
    with pytest.raises(ValueError, match=message):
        getattr(pmd, step)(model=model, **options)


def test_sums_are_not_summed_out():
    with pm.Model() as model:
        counts()
        mu = pm.Normal("mu")
        pm.Normal("y", mu + pm.Bernoulli("b", 0.4), 1.0, observed=0.3)
    with pytest.raises(ValueError, match="'x' is a constrained vector"):
        pmd.marginalize(model, "x")
    for vars in (None, ["mu", "x"]):
        with pytest.raises(ValueError, match=r"'x' is a constrained vector.*Sample it with pmd\.BlockGibbs"):
            pmd.CollapsedNUTS(vars, model=model)
    assert {v.name for v in pmd.marginalize(model).free_RVs} == {"x", "mu"}


def test_counts_of_an_unknown_total_are_never_left_out_in_silence(caplog):
    with pm.Model() as model:
        n = pm.Poisson("n", 10.0)
        pm.Multinomial("x", n=n, p=[0.2, 0.3, 0.5])
    with pytest.raises(ValueError, match=r"'x' is a constrained.* pmd.AutoStep, or .* If .* with vars=\."):
        pmd.PathAuxiliary(model=model)
    for step in (pmd.AutoStep, pmd.BlockGibbs):
        assert {v.name for v in step(model=model).vars} == {"n", "x"}
        with pytest.raises(ValueError, match="'x' adds up to n, which depends on 'n'"):
            step("n", model=model)
    with caplog.at_level("INFO", "pymc.discrete"):
        pmd.DiscreteLangevin(model=model)
    assert caplog.messages[0].startswith(
        "DiscreteLangevin leaves 'x' to another step: it is a constrained vector"
    )
