"""Counts of values in place of the draws of discrete variables of very many elements."""

import logging

import numpy as np
import pymc as pm
import pytest

import pymc_discrete as pmd
from pymc_discrete.engine import counts, program
from pymc_discrete.runtime import jax_settings, programs_on_disk, reuse
from tests.tools.running import QUIET, assert_same_draws

# which variables are counted is a part of the key of a program
pytestmark = pytest.mark.shares_programs(patched=True)

DRAWS, TUNE, CHAINS = 40, 20, 3
RUN = {"draws": DRAWS, "tune": TUNE, "chains": CHAINS, "random_seed": 1, **QUIET}


def mixture():
    rng = np.random.default_rng(0)
    with pm.Model(coords={"row": [f"row {n}" for n in range(30)]}) as model:
        w = pm.Dirichlet("w", np.ones(3))
        mu = pm.Normal("mu", 0, 3, shape=3)
        z = pm.Categorical("z", p=w, dims="row")
        pm.Normal("y", mu[z], 1, observed=rng.normal(rng.choice([-2, 2], 30), 1))
    return model


def lattice():
    """Spins that are counted, and labels in the same vector that are not; offsets from 0 and a free count."""
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=(5, 6))
        k = pm.DiscreteUniform("k", 2, 3, shape=3)
        far = pm.DiscreteUniform("far", -1, 2, shape=20)
        n = pm.Poisson("n", 2.0, shape=12)
        s = 2 * x - 1
        pm.Potential("pairs", 0.3 * (s[1:] * s[:-1]).sum() + 0.2 * (x[0, :3] * k).sum())
        pm.Potential("others", -0.1 * (n * far[:12]).sum())
    return model


@pytest.fixture
def few(monkeypatch):
    """A variable of more than ten elements counts as large."""
    monkeypatch.setattr(counts, "MOST_ELEMENTS", 10)


def both(monkeypatch, model):
    """A run with draws of all variables, and one with counts."""
    whole = pmd.sample(model=model, **RUN)
    monkeypatch.setattr(counts, "MOST_ELEMENTS", 10)
    return whole, pmd.sample(model=model, **RUN)


def compared(whole, counted, exact=()):
    """Compare a run with one that has counts; the names of the variables that are counted.

    Parameters
    ----------
    exact : variables whose probabilities are means of exact ones in both
    """
    found = []
    for name, values in counted["posterior"].items():
        if name in whole["posterior"]:
            np.testing.assert_array_equal(values, whole["posterior"][name])
            continue
        variable = name.removesuffix(" counts")
        found.append(variable)
        draws, p = whole["posterior"][variable], counted["probabilities"][variable]
        assert p.dims == ("chain", *draws.dims[2:], f"{variable} value")
        assert values.dims == ("chain", "draw", f"{variable} value")
        for k in p[f"{variable} value"].values:
            is_k, at = draws.values == k, {f"{variable} value": k}
            np.testing.assert_array_equal(values.sel(at), is_k.reshape(*is_k.shape[:2], -1).sum(-1))
            if variable not in exact:
                np.testing.assert_allclose(p.sel(at), is_k.mean(1), atol=1e-12)
    for name in exact:
        np.testing.assert_array_equal(counted["probabilities"][name], whole["probabilities"][name])
    return found


def test_counts_are_those_of_the_draws(monkeypatch):
    whole, counted = both(monkeypatch, lattice())
    assert sorted(compared(whole, counted)) == ["far", "x"]
    assert {"k", "n"} < set(counted["posterior"].data_vars)
    np.testing.assert_array_equal(counted["probabilities"]["far value"], [-1, 0, 1, 2])


@pytest.mark.slow
def test_every_transition_is_counted_where_draws_are_thinned(monkeypatch):
    whole = pmd.sample(model=lattice(), **RUN)
    monkeypatch.setattr(counts, "MOST_ELEMENTS", 10)
    thinned = pmd.sample(model=lattice(), **{**RUN, "draws": DRAWS // 4}, thin=4)
    p = (whole["posterior"]["x"] == 1).mean("draw")
    np.testing.assert_allclose(thinned["probabilities"]["x"].sel({"x value": 1}), p, atol=1e-12)


@pytest.mark.slow
def test_labels_that_are_summed_out_keep_their_exact_probabilities(monkeypatch):
    whole, counted = both(monkeypatch, mixture())
    assert compared(whole, counted, ["z"]) == ["z"]
    assert list(counted["probabilities"]["row"].values) == [f"row {n}" for n in range(30)]


@pytest.mark.slow
def test_a_run_from_a_folder_goes_on_counting(tmp_path, few):
    at_once = pmd.sample(model=lattice(), **RUN)
    pmd.sample(model=lattice(), **{**RUN, "draws": 15}, checkpoint=tmp_path / "run")
    resumed = pmd.sample(model=lattice(), **RUN, checkpoint=tmp_path / "run")
    for group in ("posterior", "probabilities"):
        for name, values in at_once[group].items():
            np.testing.assert_array_equal(values, resumed[group][name])


@pytest.mark.slow
def test_what_is_kept_can_be_chosen(few, caplog):
    caplog.set_level(logging.INFO, "pymc.discrete")
    kept = pmd.sample(model=lattice(), var_names=["x", "k"], **RUN)
    assert set(kept["posterior"].data_vars) == {"x", "k"}
    assert "probabilities" not in kept
    assert "not kept" not in caplog.text
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.3, shape=20)
        pm.Bernoulli("y", 0.2 + 0.5 * x, observed=np.ones(20))
    needed = pmd.sample(model=model, **RUN, idata_kwargs={"log_likelihood": True})
    assert needed["log_likelihood"]["y"].shape == (CHAINS, DRAWS, 20)
    pmd.sample(model=model, **RUN)
    assert "Draws of 'x' are not kept" in caplog.text
    assert "name 'x' in var_names=" in caplog.text


@pytest.mark.slow
def test_checks_of_the_draws_go_on_without_those_that_are_not_kept(few, caplog):
    run = {**RUN, "draws": 200, "compute_convergence_checks": True}
    found = pmd.sample(model=lattice(), **run)
    assert "x counts" in str(pmd.summary(found))
    for ask in (
        lambda: pmd.relabel(found, "x"),
        lambda: pmd.summary(found, var_names=["x"]),
        lambda: pmd.plot_probabilities(found, "x"),
    ):
        with pytest.raises(ValueError, match=r"name it in var_names= of pmd\.sample"):
            ask()


@pytest.mark.slow
def test_chains_that_disagree_by_totals_are_named(few, caplog):
    with pm.Model() as model:
        s = pm.Bernoulli("s", 0.5, shape=64)
        pm.Potential("p", 0.06 * (2 * s - 1).sum() ** 2)
    run = {**RUN, "draws": 150, "chains": 4, "compute_convergence_checks": True}
    pmd.sample(model=model, **run)
    assert "'s' disagrees between chains about how many elements have each value" in caplog.text


@pytest.mark.slow
def test_a_variable_whose_totals_would_have_a_name_of_the_model_is_kept(few):
    with pm.Model() as model:
        pm.Bernoulli("x", 0.3, shape=20)
        pm.Bernoulli("z", 0.3, shape=20)
        pm.Normal("x counts", 100, 0.001)
        pm.Normal("z value", 100, 0.001)
    kept = pmd.sample(model=model, **RUN)["posterior"]
    assert set(kept.data_vars) == {"x", "z", "x counts", "z value"}
    for name in ("x counts", "z value"):
        assert (abs(kept[name] - 100) < 1).all()


@pytest.mark.slow
def test_arrays_that_are_arguments_of_a_program_change_no_draw(monkeypatch):
    """Programs with many indices and data take them as arguments in place of holding them."""
    with pm.Model() as built:
        x = pm.Bernoulli("x", 0.5, shape=(5, 6))
        pm.Potential("pairs", 0.3 * (x[1:] * x[:-1]).sum())
        pm.Normal("y", x, 1.0, observed=np.random.default_rng(1).normal(size=(5, 6)))
    run = {**RUN, "dtype": "float32"}
    held = pmd.sample(model=built, **run)
    reuse.forget()
    given = []
    lower = jax_settings.lower

    def noted(*args, **options):
        found = lower(*args, **options)
        given.append(sum(a.size for a in found[1]))
        return found

    monkeypatch.setattr(jax_settings, "LARGE_TOGETHER", 0)
    monkeypatch.setattr(jax_settings, "LARGE_ARRAY", 8)
    for module in (program, programs_on_disk):
        monkeypatch.setattr(module, "lower", noted)
    assert_same_draws(held, pmd.sample(model=built, **run))
    assert max(given) > 100
