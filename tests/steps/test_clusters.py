"""Cluster sweeps as AutoStep takes them: for which pairs, and how many of them once tuning has ended."""

import re

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.kernels.swendsen_wang import NOTHING, OF_TUNING, ChangeBySweeps, share_of_tuning
from tests.models import model_of
from tests.tools.running import QUIET, same_draws, walk

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]


def summed(x, of_pair):
    """The sum over the pairs of neighbours on a lattice."""
    return of_pair(x[1:], x[:-1]).sum() + of_pair(x[:, 1:], x[:, :-1]).sum()


def spins(coupling, field=0.0, side=8):
    s = 2 * pm.Bernoulli("x", 0.5, shape=(side, side)) - 1
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (side, side))
    pm.Potential("e", coupling * summed(s, pt.mul) + field * (signs * s).sum())


def attract():
    spins(0.44)


def wide():
    """A lattice of which not all sites can be drawn at once."""
    spins(0.44, side=12)


def at_once():
    """A site times the sum of both of its neighbours, as such a lattice is often written."""
    s = 2 * pm.Bernoulli("x", 0.5, shape=(8, 8)) - 1
    pm.Potential("e", 0.44 * (s * (pt.roll(s, 1, 0) + pt.roll(s, 1, 1))).sum())


def weak():
    spins(0.05)


def frustrated():
    x = pm.Bernoulli("x", 0.5, shape=(8, 8))
    signs = np.random.default_rng(1).choice([-1.0, 1.0], (8, 8))
    pm.Potential("e", (signs[1:] * x[1:] * x[:-1]).sum() + (signs[:, 1:] * x[:, 1:] * x[:, :-1]).sum())


def potts():
    pm.Potential("e", 0.9 * summed(pm.Categorical("x", np.ones(4) / 4, shape=(8, 8)), pt.eq))


def segmented():
    """Regions of an image, with the strength and the levels unknown: at the start, of strength 0."""
    x = pm.Categorical("x", np.ones(3) / 3, shape=(8, 8))
    strength = pm.Normal("strength")
    pm.Potential("e", pt.tanh(strength) * summed(x, pt.eq))
    pm.Normal("y", pm.Normal("mu", [0, 2, 4])[x], 1.0, observed=np.ones((8, 8)))


def ordered():
    pm.Potential("e", -0.5 * summed(pm.DiscreteUniform("x", 0, 3, shape=(8, 8)), lambda a, b: pt.abs(a - b)))


def repelled():
    pm.Potential("e", -0.9 * summed(pm.Categorical("x", np.ones(3) / 3, shape=(8, 8)), pt.eq))


def excluded():
    both = lambda a, b: pt.switch(pt.eq(a + b, 2), -np.inf, 0.0)
    pm.Potential("e", summed(pm.Bernoulli("x", 0.3, shape=(12, 12)), both))


def chain():
    x = pm.Bernoulli("x", 0.5, shape=20)
    pm.Potential("e", pt.eq(x[1:], x[:-1]).sum())


def alone():
    pm.Bernoulli("x", 0.5, shape=20)


@pytest.mark.parametrize(
    ("build", "kind"),
    [
        (attract, "TreeGibbs"),
        (wide, "SwendsenWang"),
        (at_once, "SwendsenWang"),
        (frustrated, "SwendsenWang"),
        (potts, "SwendsenWang"),
        (segmented, "SwendsenWang"),
        (ordered, "BlockGibbs"),
        (repelled, "BlockGibbs"),
        (excluded, "BlockGibbs"),
        (chain, "TreeGibbs"),
        (alone, "BlockGibbs"),
    ],
)
def test_what_is_chosen(build, kind):
    assert type(pmd.AutoStep(["x"], model=model_of(build))).__name__ == kind


# what Gibbs sweeps and cluster sweeps changed of 64 sites, and the mean size of a cluster
@pytest.mark.parametrize(
    ("measured", "share", "said"),
    [
        ((20.0, 2000.0, 50.0, 5.0), (1.0, 1.0), None),
        ((20.0, 400.0, 20.0, 5.0), (0.05, 0.9), r"a cluster sweep in \d+% of the transitions"),
        ((20.0, 30.0, 1.2, 2.0), (0.0, 0.0), "no more cluster sweeps.*hardly more than single sites"),
        ((20.0, 0.0, 60.0, 3.0), (0.0, 0.0), "no more cluster sweeps.*most of the sites and hardly moves"),
        (
            (20.0, 60.0, 8.0, 3.0),
            (0.0, 0.0),
            r"changes hardly more than a Gibbs sweep, or less \(a site's cluster has 8 of 64",
        ),
        ((0.0, 500.0, 60.0, 3.0), (1.0, 1.0), None),
        ((0.0, 0.0, 60.0, 3.0), (0.0, 0.0), "hardly moves"),
    ],
)
def test_the_share_of_cluster_sweeps(measured, share, said):
    step, found = pmd.SwendsenWang(model=model_of(attract)), []
    for swept in (1.0, 0.125):  # the share of transitions with a cluster sweep while tuning
        means = ChangeBySweeps(swept, *(swept * np.array(measured)))
        chosen = float(step.tuner.chosen(means, np)["clusters"])
        assert share[0] <= chosen <= share[1]
        line = step.method.remark(step.target, means, "'x'")
        assert line is None if said is None else re.match(f"SwendsenWang: 'x': .*{said}", line)
        found.append((chosen, line))
    assert found[0] == found[1]


def test_it_stays_that_of_tuning_where_tuning_saw_no_cluster_sweep():
    step = pmd.SwendsenWang(model=model_of(attract))
    assert float(step.tuner.chosen(NOTHING, np)["clusters"]) == step.params["clusters"]
    assert step.method.remark(step.target, NOTHING, "'x'") is None
    assert 0 < share_of_tuning(step.target) < 1


def test_a_share_that_is_given_stays():
    step = pmd.SwendsenWang(clusters=0.25, model=model_of(attract))
    assert step.params == {"clusters": 0.25}
    assert step.tuner.chosen is None
    assert step.method.remark(step.target, ChangeBySweeps(1.0, 20.0, 0.0, 1.0, 1.0), "'x'") is None


@pytest.mark.parametrize(("build", "dropped"), [(attract, False), (weak, True)])
@pytest.mark.by_default("weak-True")
def test_it_is_fixed_when_tuning_ends(build, dropped, caplog):
    """Of a step beside others, draw by draw; then what the program of `pmd.sample` does."""
    step = pmd.SwendsenWang(model=model_of(build))
    step.draws_ahead = False
    step.setup_chain(np.random.default_rng(0), tune=40, draws=10)
    point = walk(step, step.model.initial_point(), 40)[-1][0]
    assert step.params == {"clusters": OF_TUNING}
    with caplog.at_level("INFO", "pymc.discrete"):
        step.stop_tuning()
    share = step.params["clusters"]
    assert share == 0 if dropped else 0.5 < share <= 1
    assert isinstance(step.params["clusters"], float)  # so that nothing is compiled again
    assert sum("no more cluster sweeps" in r.message for r in caplog.records) == dropped
    walk(step, point)
    caplog.clear()
    with caplog.at_level("INFO", "pymc.discrete"):
        again = {"step": pmd.SwendsenWang(model=step.model), "model": step.model, "random_seed": 1, **QUIET}
        idata = pmd.sample(20, tune=40, chains=2, **again)
    lines = [r.message for r in caplog.records if "cluster sweeps" in r.message]
    assert len(lines) == dropped
    assert all(line.endswith("(and so for 1 more chain)") for line in lines)
    assert same_draws(idata, pmd.sample(20, tune=40, chains=2, **again))


@pytest.mark.slow
def test_a_cold_lattice_turns_over():
    """Where single sites never would: half of the draws have most spins up."""
    with pm.Model():
        spins(0.7)
        idata = pmd.sample(1000, tune=200, chains=4, step=pmd.SwendsenWang(), random_seed=1, **QUIET)
    up = (idata.posterior["x"].mean(("x_dim_0", "x_dim_1")) > 0.5).values
    # a cluster sweep forgets which side most spins were on: 4,000 independent coins
    assert abs(up.mean() - 0.5) < 4 * 0.5 / np.sqrt(up.size)
    assert (up[:, 1:] != up[:, :-1]).mean() > 0.4
