"""Tables of draws, and verdicts on runs that were constructed to deserve them."""

import json

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from arviz_base import from_dict

import pymc_discrete as pmd
from pymc_discrete import diagnostics
from tests.diagnostics.chains import markov, two_states
from tests.tools.running import FAST, QUIET

CHAINS, DRAWS = 4, 500


@pytest.fixture
def rng():
    return np.random.default_rng(2)


def tree_of(z, probabilities=None, **more):
    """A result with draws z (chains, draws, ...), and mean probabilities (chains, ..., values) if given."""
    tree = from_dict({"posterior": {"z": z, **more}, "sample_stats": {"lp": np.zeros(z.shape[:2])}})
    if probabilities is not None:
        names = ["chain", *(f"z_dim_{i}" for i in range(z.ndim - 2)), "z value"]
        tree["probabilities"] = xr.DataTree(xr.Dataset({"z": (names, probabilities)}))
    return tree


def independent(rng):
    return rng.integers(0, 3, (CHAINS, DRAWS, 2))


def constant(rng):
    return np.ones((CHAINS, DRAWS, 2), int)


def frozen_apart(rng):
    z = constant(rng)
    z[1:3] = 0
    return z


def one_stuck(rng):
    z = independent(rng)
    z[2] = 1
    return z


def slow(rng):
    return markov(rng, two_states(0.99), 2, CHAINS, DRAWS)


def other_labels(rng):
    usual = rng.permutation(np.arange(20) % 2)
    z = np.where(rng.random((CHAINS, DRAWS, 20)) < 0.95, usual, 1 - usual)
    z[3] = 1 - z[3]
    return z


def labels_within(rng):
    """All chains exchange their labels now and then."""
    usual = rng.permutation(np.arange(30) % 3)
    z = np.where(rng.random((CHAINS, DRAWS, 30)) < 0.9, usual, rng.integers(0, 3, (CHAINS, DRAWS, 30)))
    return switched_now_and_then(rng, z)


def switched_now_and_then(rng, z):
    """The labels 0, 1, 2 of z (chains, draws, sites), permuted anew after 50 draws on average."""
    for chain in z:
        begins = np.flatnonzero(rng.random(DRAWS) < 0.02)
        for first, last in zip([0, *begins], [*begins, DRAWS], strict=True):
            chain[first:last] = rng.permutation(3)[chain[first:last]]
    return z


def two_patterns(rng):
    """Chains jump between two patterns that no permutation of labels makes equal."""
    one = rng.integers(0, 3, 30)
    other = (one + rng.integers(1, 3, 30)) % 3
    which = markov(rng, two_states(0.98), 1, CHAINS, DRAWS)
    return np.where(rng.random((CHAINS, DRAWS, 30)) < 0.9, np.where(which == 0, one, other), 0)


def rare(rng):
    """A value that a few chains happened to visit, and others not: nothing is wrong."""
    z = np.zeros((CHAINS, DRAWS, 2), int)
    z[0, [7, 300]] = 1
    z[2, 100] = 1
    return z


@pytest.mark.parametrize(
    ("draws", "probabilities", "verdict"),
    [
        (independent, None, "ok"),
        (constant, None, "constant"),
        (constant, [1e-7, 1 - 1e-7], "constant"),
        (constant, [1.0], "fixed"),
        (constant, [0.3, 0.7], "stuck"),
        (frozen_apart, None, "apart"),
        (one_stuck, None, "stuck"),
        (other_labels, None, "labels"),
        (labels_within, None, "labels"),
        (two_patterns, None, "slow"),
        (slow, None, "slow"),
        (rare, None, "ok"),
    ],
)
def test_verdicts(rng, draws, probabilities, verdict):
    z = draws(rng)
    if probabilities is not None:
        probabilities = np.broadcast_to(probabilities, (CHAINS, z.shape[2], len(probabilities)))
    assert set(pmd.summary(tree_of(z, probabilities))["verdict"]) == {verdict}


def test_each_element_has_its_verdict(rng):
    parts = [independent, constant, frozen_apart, one_stuck, slow]
    z = np.concatenate([part(rng) for part in parts], axis=2)
    table = pmd.summary(tree_of(z))
    assert list(table["verdict"][::2]) == ["ok", "constant", "apart", "stuck", "slow"]
    whole = diagnostics.summary_of_vectors(tree_of(z)).loc["z"]
    assert whole["elements"] == 10
    assert whole["verdict"] == "2 stuck, 2 slow, 2 ok, 2 constant, 2 apart"
    assert whole["worst rhat"] == np.inf


def test_frozen_labels_are_labels(rng):
    usual = np.arange(20) % 2
    z = np.tile(usual, (CHAINS, DRAWS, 1))
    z[1] = 1 - z[1]
    assert set(pmd.summary(tree_of(z))["verdict"]) == {"labels"}


def test_columns(rng):
    p = np.array([0.5, 0.3, 0.2])
    z = rng.choice(3, size=(CHAINS, DRAWS, 2), p=p)
    k = rng.poisson(20, (CHAINS, DRAWS))
    tree = from_dict(
        {"posterior": {"z": z, "k": k, "b": z[..., 0] > 0, "mu": rng.normal(size=(CHAINS, DRAWS))}},
        coords={"who": ["a", "b"]},
        dims={"z": ["who"]},
    )
    table = pmd.summary(tree)
    assert list(table.index) == ["z[a]", "z[b]", "k", "b"]
    one = table.loc["z[b]"]
    shares = np.array([(z[..., 1] == v).mean() for v in range(3)])
    np.testing.assert_allclose([one[f"P({v})"] for v in range(3)], shares)
    assert one["mode"] == 0
    assert one["P(mode)"] == shares[0]
    assert one["mcse P(mode)"] == one["mcse P(0)"]
    assert one["mcse P(mode)"] == pytest.approx(np.sqrt(0.25 / (CHAINS * DRAWS)), rel=0.15)
    assert one["entropy"] == pytest.approx(-(shares * np.log(shares)).sum())
    assert one["moved"] == pytest.approx(1 - (p**2).sum(), abs=0.05)
    count = table.loc["k"]
    assert count["mean"] == pytest.approx(k.mean())
    assert count["mcse mean"] == pytest.approx(np.sqrt(20 / k.size), rel=0.15)
    np.testing.assert_array_equal(count[["5%", "median", "95%"]], np.quantile(k, [0.05, 0.5, 0.95]))
    assert np.isnan(count["P(0)"])
    assert table.loc["b", "P(1)"] == pytest.approx((z[..., 0] > 0).mean())
    assert list(pmd.summary(tree, "k").index) == ["k"]


@pytest.mark.parametrize("named", [True, False], ids=["pmd.sample", "pm.sample"])
def test_columns_of_a_mixed_table(rng, named):
    """Columns of P(k) are few, whatever is computed from the variables that the model draws."""
    z = rng.integers(0, 3, (CHAINS, DRAWS, 5))
    few = rng.integers(0, 3, (CHAINS, DRAWS))
    variables = {
        "z": z,
        "spin": 2 * (z[..., :2] > 0) - 1,
        "total": 54 + few,  # few values, far away
        "year": 1850 + few,
        "sum": 3 + few,  # values that are others than those of z and spin
        "same": z[..., 0] == z[..., 1],
        "largest": z.max(axis=2),
        "N": rng.poisson(30, (CHAINS, DRAWS)),
    }
    tree = from_dict({"posterior": variables})
    if named:
        tree["posterior"].attrs["discrete_variables"] = json.dumps(["z", "spin", "year", "N"])
    table = pmd.summary(tree)
    of_values = {-1, 0, 1, 2} | (set() if named else {3, 4, 5})
    columns = [c for c in table.columns if c.startswith("P(") and c != "P(mode)"]
    assert columns == [f"P({k})" for k in sorted(of_values)]
    counts = table.index[table["mean"].notna()]
    assert set(counts) == {"total", "year", "N", *(["sum"] if named else [])}
    assert table.loc["total", "median"] == np.median(variables["total"])
    np.testing.assert_allclose(table.loc[~table.index.isin(counts), columns].sum(axis=1), 1.0)
    # what is asked for alone makes no other row wider
    np.testing.assert_allclose(pmd.summary(tree, "sum")[["P(3)", "P(4)", "P(5)"]].sum(axis=1), 1.0)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("mu", r"'mu' is not of integers \(float64\).*arviz.summary"),
        (["z", "y"], "has no 'y'. It has 'z', 'mu'"),
    ],
)
def test_bad_names(rng, names, message):
    with pytest.raises(ValueError, match=message):
        pmd.summary(tree_of(independent(rng), mu=rng.normal(size=(CHAINS, DRAWS))), names)


def certain_fixed_and_ordinary():
    with pm.Model(coords={"who": ["a", "b"]}) as model:
        pm.Bernoulli("z", [0.3, 1e-12], dims="who")
        pm.DiscreteUniform("k", [0, 2], [4, 2])
        pm.Normal("mu", 0, 1)
    return model


def test_a_result_of_pmd_sample_tells_certain_and_fixed():
    quiet = QUIET | {"compute_convergence_checks": True}
    idata = pmd.sample(200, tune=50, chains=4, random_seed=1, model=certain_fixed_and_ordinary(), **quiet)
    table = pmd.summary(idata)
    assert list(table.index) == ["z[a]", "z[b]", "k[0]", "k[1]"]
    assert list(table["verdict"]) == ["ok", "certain", "ok", "fixed"]
    known = idata["conditionals"]
    np.testing.assert_allclose(known["z"].sel(who="b"), 1e-12, rtol=1e-6)
    np.testing.assert_array_equal(known["k several:"], [True, False])
    # without them nothing is known of the values that were not seen
    del idata["conditionals"]
    assert list(pmd.summary(idata)["verdict"]) == ["ok", "constant", "ok", "constant"]


@pytest.mark.slow
def test_rare_values_of_what_is_drawn_jointly_are_not_stuck():
    """Draws are independent here; given the last draw of `first`, `second` may be impossible, or probable."""
    with pm.Model() as model:
        first = pm.Bernoulli("first", 0.01, shape=200)
        pm.Bernoulli("second", 0.5 * first, shape=200)
        step = pmd.TreeGibbs()
    quiet = QUIET | {"compute_convergence_checks": True}
    idata = pmd.sample(200, tune=0, chains=4, random_seed=1, model=model, step=step, **quiet)
    assert "conditionals" in idata.children
    assert "stuck" not in set(pmd.summary(idata)["verdict"])


def test_a_result_of_pm_sample():
    with certain_fixed_and_ordinary():
        options = {"chains": 4, "cores": 1, "random_seed": 1, **QUIET, **FAST}
        idata = pm.sample(200, tune=50, step=pmd.BlockGibbs(), **options)
    table = pmd.summary(idata)
    assert list(table.index) == ["z[a]", "z[b]", "k[0]", "k[1]"]
    assert list(table["verdict"]) == ["ok", "constant", "ok", "constant"]
    assert table.loc["z[a]", "P(1)"] == pytest.approx(0.3, abs=5 * np.sqrt(0.21 / 800))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Data in x contains missing values")
def test_values_of_which_a_part_is_missing():
    """What PyMC puts together of observed and drawn values is not summarised unless it is named."""
    with pm.Model() as model:
        pm.Poisson("x", 3.0, observed=np.ma.masked_equal([2, -1, 5, -1], -1))
    idata = pmd.sample(50, tune=20, chains=2, random_seed=1, model=model, **QUIET)
    assert list(pmd.summary(idata).index) == ["x_unobserved[0]", "x_unobserved[1]"]
    table = pmd.summary(idata, "x")
    assert list(table.index) == ["x[0]", "x[1]", "x[2]", "x[3]"]
    assert list(table["verdict"] == "observed") == [True, False, True, False]
    assert idata["posterior"].attrs["discrete_variables"] == '["x_unobserved"]'


def test_data_among_values_that_never_moved(rng):
    """Which of two equal constants is data, the order of those that are drawn tells."""
    drawn = np.stack([constant(rng)[..., 0], rng.integers(0, 3, (CHAINS, DRAWS))], axis=2)
    data = np.array([1, 2])
    ones, twos = constant(rng)[..., 0], 2 * constant(rng)[..., 0]
    tree = tree_of(np.stack([ones, twos, ones, drawn[..., 1]], axis=2), z_unobserved=drawn)
    tree["observed_data"] = xr.DataTree(xr.Dataset({"z_observed": ("n", data)}))
    found = list(pmd.summary(tree, "z")["verdict"])
    assert sorted(found[:3]) == ["constant", "observed", "observed"]
    assert found[1] == "observed"
    assert found[3] == "ok"


def test_scalars_that_share_labels_are_judged_together(rng):
    """As the log does: `z0`, `z1`, ... are elements of one set of labels."""
    z = other_labels(rng)
    tree = from_dict(
        {
            "posterior": {f"z{n}": z[..., n] for n in range(20)},
            "sample_stats": {"lp": np.zeros((CHAINS, DRAWS))},
        }
    )
    assert set(pmd.summary(tree)["verdict"]) == {"labels"}
    assert set(pmd.summary(tree, "z3")["verdict"]) == {"labels"}


def test_few_moves_are_no_evidence(rng):
    z = np.zeros((CHAINS, DRAWS), int)
    z[1, :4] = 1
    row = pmd.summary(tree_of(z)).loc["z"]
    assert row["verdict"] == "slow"
    assert row["ess"] == 1
    assert np.isnan(row["mcse P(mode)"])


def test_what_others_hold_is_not_certain():
    """Each of two equal sites is improbable to move given the other, and either value has probability 1/2."""
    with pm.Model() as model:
        a = pm.Bernoulli("a", 0.5, shape=2)
        pm.Potential("alike", -40.0 * (a[0] - a[1]) ** 2)
        step = pmd.BlockGibbs(["a"])
    quiet = QUIET | {"compute_convergence_checks": True}
    start = {"a": np.array([1, 1])}
    idata = pmd.sample(200, tune=20, step=step, model=model, initvals=start, random_seed=1, **quiet)
    assert list(pmd.summary(idata)["verdict"]) == ["constant", "constant"]
