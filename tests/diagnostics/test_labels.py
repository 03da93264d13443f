"""Switched labels are put right, and what does not depend on labels is what enumeration gives."""

from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import xarray
from arviz_stats import rhat
from xarray import DataTree

import pymc_discrete as pmd
from pymc_discrete.diagnostics.judge import Judge, labels_switch

K, CHAINS, DRAWS, N = 3, 4, 200, 40
METHODS = ("ecr", "pivot", "stephens")


def mixture(switched=True):
    """Draws of a mixture with a transition matrix: as they were, and as a tree with permuted labels."""
    rng = np.random.default_rng(0)
    truth = np.arange(N) % K
    noisy = rng.random((CHAINS, DRAWS, N)) < 0.2
    noisy[1, 7] = False  # the draw of the largest log density
    z = np.where(noisy, rng.integers(0, K, noisy.shape), truth)
    mu = np.arange(K) + 0.3 * rng.normal(size=(CHAINS, DRAWS, K))
    P = rng.dirichlet(np.ones(K), size=(CHAINS, DRAWS, K))
    to_new = np.tile(np.arange(K), (CHAINS, DRAWS, 1))
    if switched:
        to_new = rng.permuted(to_new, axis=2)
    to_old = np.argsort(to_new, axis=2)
    c, d = np.arange(CHAINS)[:, None, None], np.arange(DRAWS)[:, None]
    p = np.broadcast_to(0.8 * np.eye(K)[truth] + 0.2 / K, (CHAINS, DRAWS, N, K))
    switched_z = np.take_along_axis(to_new, z, axis=2).astype(np.int8)
    of_draws = ["chain", "draw"]
    posterior = xarray.Dataset(
        {
            "z": ([*of_draws, "site"], switched_z),
            "mu": ([*of_draws, "state"], mu[c, d, to_old]),
            "P": (
                ["state", *of_draws, "next"],
                np.moveaxis(P[c[..., None], d[..., None], to_old[..., None], to_old[:, :, None]], 2, 0),
            ),
            "sigma": (of_draws, rng.gamma(2, size=(CHAINS, DRAWS))),
        },
        {
            "chain": np.arange(CHAINS),
            "draw": np.arange(DRAWS),
            "site": [f"s{i}" for i in range(N)],
            "state": list("abc"),
            "next": list("abc"),
        },
    )
    stats = xarray.Dataset({"lp": (of_draws, -noisy.sum(axis=2) - 1.0)})
    tree = DataTree.from_dict({"posterior": posterior, "sample_stats": stats})
    return SimpleNamespace(
        tree=tree, z=z, mu=mu, P=P, p=np.take_along_axis(p, to_old[:, :, None], axis=3), to_new=to_new
    )


def along(tree):
    return pmd.relabel(tree, "z", dims=("state", "next"))


@pytest.mark.parametrize("method", METHODS)
def test_switched_labels_come_back(method):
    m = mixture()
    p = m.p if method == "stephens" else None
    assert rhat(m.tree["posterior"].to_dataset()[["mu"]])["mu"].max() < 1.2  # all modes in every chain
    found = pmd.relabel(m.tree, "z", dims=("state", "next"), method=method, probabilities=p)
    posterior, to_new = found["posterior"], found["permutations"]["z"]
    order = np.argsort(posterior["mu"].mean(("chain", "draw")).values)  # which numbering is arbitrary
    np.testing.assert_array_equal(np.argsort(order)[posterior["z"].values], m.z)
    np.testing.assert_array_equal(posterior["mu"].values[..., order], m.mu)
    P = posterior["P"].transpose("chain", "draw", "state", "next").values
    np.testing.assert_array_equal(P[..., order, :][..., order], m.P)
    xarray.testing.assert_identical(posterior["sigma"], m.tree["posterior"]["sigma"])
    assert rhat(posterior.to_dataset()[["mu"]])["mu"].max() < 1.01
    assert posterior["z"].dtype == np.int8
    assert posterior["P"].dims == ("state", "chain", "draw", "next")
    # the permutations say what was done to the labels that were given
    given = m.tree["posterior"]["z"].values
    np.testing.assert_array_equal(np.take_along_axis(to_new.values, given.astype(int), 2), posterior["z"])
    assert to_new.dims == ("chain", "draw", "state")
    assert to_new.attrs["method"] == method
    assert to_new.attrs["order_by"] == ""
    changed = (to_new.values != np.arange(K)).any(axis=2).mean()
    assert to_new.attrs["share_permuted"] == changed > 0.5


def with_three_means(order=(2, 0, 1)):
    """Draws of three named regimes, in another order in half of the draws, and the means in that order."""
    m = mixture(switched=False)
    posterior = m.tree["posterior"].to_dataset().drop_dims("next")
    posterior = posterior.assign_coords(state=["low", "mid", "high"])
    to_new = np.where(np.arange(DRAWS)[:, None] % 4 == 0, np.arange(K), order)
    posterior["z"].data = np.take_along_axis(np.broadcast_to(to_new, (CHAINS, DRAWS, K)), m.z, axis=2)
    to_old = np.broadcast_to(np.argsort(to_new, axis=1), (CHAINS, DRAWS, K))
    posterior["mu"].data = np.take_along_axis(m.mu, to_old, axis=2)
    return DataTree.from_dict({"posterior": posterior.assign(scale=-posterior["mu"])}), m


def test_labels_in_the_order_of_a_parameter(caplog):
    """The names of regimes are those of their order, which that of most draws is not."""
    tree, m = with_three_means()
    found = pmd.relabel(tree, "z")
    assert np.argsort(found["posterior"]["mu"].mean(("chain", "draw")).values).tolist() != [0, 1, 2]
    (message,) = caplog.messages
    assert "names along 'state' ('low', 'mid', 'high') were not" in message
    assert "order_by=, a parameter with one value per label ('mu', 'scale')" in message
    caplog.clear()
    for order_by, sign in (("mu", 1), ("scale", -1)):
        found = pmd.relabel(tree, "z", order_by=order_by)
        means = found["posterior"][order_by].mean(("chain", "draw"))
        assert means.idxmin() == "low"
        assert means.idxmax() == "high"
        np.testing.assert_array_equal(found["posterior"]["z"], (m.z if sign > 0 else K - 1 - m.z))
        np.testing.assert_array_equal(found["posterior"]["mu"], m.mu[..., ::sign])
        assert found["permutations"]["z"].attrs["order_by"] == order_by
    assert not caplog.messages


def test_sites_that_only_change_together_switch():
    """Once permuted, each site has one value in all draws, and no R-hat."""
    r = np.random.default_rng(1)
    draws = np.arange(12) % 2 ^ r.integers(0, 2, (4, 200, 1))
    assert labels_switch(draws, r.normal(size=(4, 200)))


@pytest.mark.parametrize("names", [None, [0, 1, 2], list("012"), [1, 2, 3], ["low", "mid", "high"]])
@pytest.mark.parametrize("switched", [False, True])
def test_names_of_labels_that_were_permuted(names, switched, caplog):
    """Those that are numbers from 0 name nothing; nor were names wrong that stayed where they were."""
    tree = mixture(switched=switched).tree
    posterior = tree["posterior"].to_dataset().drop_dims("next").drop_vars("state")
    tree["posterior"] = DataTree(posterior if names is None else posterior.assign_coords(state=names))
    pmd.relabel(tree, "z")
    named = names is not None and str(names[0]) != "0"
    assert any("say nothing of a component" in line for line in caplog.messages) == (named and switched)


@pytest.mark.parametrize(("variable", "dims"), [("P", ("state", "next")), ("P", "state"), ("Q", "state")])
def test_a_matrix_orders_labels_by_what_is_made_of_it(variable, dims):
    """As the error says that refuses it."""
    idata = mixture().tree
    posterior = idata["posterior"].to_dataset()
    Q = posterior["P"].rename(next="feature").transpose("chain", "draw", "feature", "state")
    idata["posterior"] = DataTree(posterior.assign(Q=Q))
    with pytest.raises(ValueError, match=r"has the dimensions '(state|feature)', '") as refused:
        pmd.relabel(idata, "z", dims=dims, order_by=variable)
    exec(str(refused.value).split("Make one: ")[1].split(", or another")[0])
    found = pmd.relabel(idata, "z", dims=dims, order_by="order")
    assert (np.diff(found["posterior"]["order"].mean(("chain", "draw"))) > 0).all()


def test_the_check_sees_permutations_that_go_the_wrong_way(monkeypatch):
    """The new label of each label, taken for the old one; of two components both are the same."""
    module = import_module("pymc_discrete.diagnostics.labels.matching")
    assigned = module.assigned

    def inverse(scores):
        to_new, total = assigned(scores)
        return np.argsort(to_new, axis=1), total

    monkeypatch.setattr(module, "assigned", inverse)
    with pytest.raises(AssertionError):
        test_switched_labels_come_back("ecr")


def test_chains_of_which_each_has_its_own_order():
    m = mixture(switched=False)
    tree = m.tree.copy()
    posterior = tree["posterior"].to_dataset()
    for chain, order in enumerate([[0, 1, 2], [1, 2, 0], [0, 1, 2], [2, 1, 0]]):
        posterior["z"][chain] = np.array(order)[posterior["z"][chain].values]
        posterior["mu"][chain] = posterior["mu"][chain].values[:, np.argsort(order)]
    tree["posterior"] = DataTree(posterior)
    assert rhat(posterior[["mu"]])["mu"].max() > 2
    found = along(tree)
    np.testing.assert_array_equal(found["posterior"]["mu"], m.mu)  # the order that most draws had is kept
    assert found["permutations"]["z"].attrs["share_permuted"] == 0.5


def test_labels_that_were_not_switched_stay():
    """Also where some label is seldom used: ties leave the labels as they are."""
    m = mixture(switched=False)
    tree = m.tree.copy()
    posterior = tree["posterior"].to_dataset()
    posterior["z"] = posterior["z"].where(posterior["z"] < 1, 1).astype(int)
    tree["posterior"] = DataTree(posterior)
    for method in ("ecr", "pivot"):
        found = pmd.relabel(tree, "z", dims=("state", "next"), method=method)
        assert found["permutations"]["z"].attrs["share_permuted"] == 0
        xarray.testing.assert_equal(found["posterior"].to_dataset(), posterior)


def test_the_tree_that_was_given_stays():
    m = mixture()
    before = m.tree.copy(deep=True)
    along(m.tree)
    xarray.testing.assert_identical(m.tree, before)


def test_the_dimension_is_found_if_there_is_one():
    tree = mixture().tree
    tree["posterior"] = DataTree(tree["posterior"].to_dataset().drop_dims("next"))
    found = pmd.relabel(tree, "z")
    xarray.testing.assert_identical(found, pmd.relabel(tree, "z", dims="state"))


def test_labels_that_nothing_belongs_to():
    tree = mixture().tree
    want = along(tree)["posterior"]["z"]
    tree["posterior"] = DataTree(tree["posterior"].to_dataset()[["z", "sigma"]])
    found = pmd.relabel(tree, "z")
    np.testing.assert_array_equal(found["posterior"]["z"], want)
    assert found["permutations"]["z"].sizes["z_label"] == K


def test_what_cannot_be_permuted_is_left_out(caplog):
    m = mixture()
    means = xarray.Dataset({"z": (["chain", "site", "z value"], np.zeros((CHAINS, N, K))), "k": 1.0})
    other = xarray.Dataset({"y": (["chain", "draw", "state"], np.zeros((CHAINS, 5, K)))})
    same = m.tree["posterior"].to_dataset()[["mu"]].rename(mu="nu")
    tree = m.tree.assign(
        {
            "probabilities": DataTree(means),
            "unconstrained_posterior": DataTree(same),
            "predictions": DataTree(other),
            "posterior_predictive": DataTree(same),
            "prior": DataTree(same),
        }
    )
    with caplog.at_level("INFO", "pymc.discrete"):
        found = along(tree)
    assert set(found["probabilities"].data_vars) == {"k"}
    assert not {"unconstrained_posterior", "predictions"} & set(found.children)
    np.testing.assert_array_equal(found["posterior_predictive"]["nu"], found["posterior"]["mu"])
    xarray.testing.assert_identical(found["prior"], tree["prior"])
    _, message = caplog.messages  # the first is about names
    assert all(part in message for part in ("'z' of the group probabilities", "unconstrained", "predictions"))


@pytest.mark.parametrize("within", [False, True])
def test_that_labels_were_summed_out_is_still_known(within):
    """Sites that have one label each are no alarm in a table or plot, before or after they are relabelled."""
    z = np.zeros((2, 200, 6), int) + np.array([0, 0, 0, 1, 1, 1])
    z[1, 100 * within :] = 1 - z[1, 100 * within :]  # the same groups by other names
    p = np.stack([(z == 0).mean(axis=1), (z == 1).mean(axis=1)], axis=-1)
    tree = DataTree.from_dict(
        {
            "posterior": xarray.Dataset(
                {
                    "z": (["chain", "draw", "site"], z),
                    "mu": (["chain", "draw", "state"], 1.0 * z[..., [0, 5]]),
                }
            ),
            "probabilities": xarray.Dataset(
                {"z": (["chain", "site", "z value"], p)}, coords={"z value": [0, 1]}
            ),
        }
    )
    found = pmd.relabel(tree, "z", dims="state")
    assert (found["posterior"]["z"] == found["posterior"]["z"][0, 0]).all()
    judged = Judge(found).of("z")
    assert judged.known.summed
    assert not judged.decided.suspect.any()
    assert set(judged.decided.verdict) == {"constant"}
    without = found.drop_nodes("conditionals")
    assert Judge(without).of("z").decided.suspect.all()


@pytest.mark.filterwarnings("ignore:Duplicate dimension names")
def test_a_dimension_that_a_variable_has_twice():
    m = mixture()
    posterior = m.tree["posterior"].to_dataset()
    P = posterior["P"].transpose("chain", "draw", "state", "next").values
    posterior["P"] = (["chain", "draw", "state", "state"], P)
    tree = DataTree.from_dict({"posterior": posterior.drop_vars("next")})
    found, expected = pmd.relabel(tree, "z", dims="state"), along(m.tree)
    np.testing.assert_array_equal(
        found["posterior"]["P"].values, expected["posterior"]["P"].transpose("chain", "draw", "state", "next")
    )


def tree_of(z, dims=("site",), **coords):
    of_draws = ["chain", "draw", *dims]
    coords |= {"chain": np.arange(len(z)), "draw": np.arange(z.shape[1])}
    return DataTree.from_dict({"posterior": xarray.Dataset({"z": (of_draws, z)}, coords)})


def test_coclustering_against_brute_force():
    z = np.random.default_rng(0).integers(-3, 9, (2, 30, 4, 5))
    flat = z.reshape(60, 20)
    expected = (flat[:, :, None] == flat[:, None, :]).mean(axis=0)
    found = pmd.coclustering(tree_of(z.reshape(2, 30, 20), site=np.arange(20) * 10), "z")
    np.testing.assert_array_equal(found, expected)
    assert found.dims == ("site", "site_other")
    np.testing.assert_array_equal(found["site_other"], np.arange(20) * 10)
    both = pmd.coclustering(tree_of(z, ("row", "column")), "z")
    assert both.dims == ("row", "column", "row_other", "column_other")
    np.testing.assert_array_equal(both.values.reshape(20, 20), expected)


def test_coclustering_in_small_batches(monkeypatch):
    z = np.random.default_rng(1).integers(0, 4, (2, 30, 20))
    whole = pmd.coclustering(tree_of(z), "z")
    monkeypatch.setattr(f"{pmd.coclustering.__module__}.PRODUCTS_AT_ONCE", 100)
    np.testing.assert_array_equal(pmd.coclustering(tree_of(z), "z"), whole)


def partitions_of(n):
    """All partitions of n sites, numbered in the order of their first sites."""
    found = [[0]]
    for _ in range(n - 1):
        found = [[*one, k] for one in found for k in range(max(one) + 2)]
    return np.array(found)


def entropy(*labels):
    """Of the clusters of labels (partitions, n), or of the intersections of those of several, in nats."""
    same = np.all([one[..., :, None] == one[..., None, :] for one in np.broadcast_arrays(*labels)], axis=0)
    return -np.log(same.mean(axis=-1)).mean(axis=-1)


def variation(a, b):
    return 2 * entropy(a, b) - entropy(a) - entropy(b)


def binder(a, b):
    i, j = np.triu_indices(a.shape[-1], 1)
    return ((a[..., i] == a[..., j]) != (b[..., i] == b[..., j])).mean(axis=-1)


@pytest.mark.parametrize(("loss", "distance"), [("VI", variation), ("Binder", binder)])
@pytest.mark.parametrize("seed", range(4))
def test_partition_against_all_partitions(loss, distance, seed):
    rng = np.random.default_rng(seed)
    noisy = rng.random((2, 30, 6)) < 0.2 + 0.1 * seed
    z = np.where(noisy, rng.integers(0, 4, noisy.shape), rng.integers(0, 3, 6))
    draws, every = z.reshape(-1, 6), partitions_of(6)
    assert len(every) == 203
    expected = distance(every[:, None], draws[None]).mean(axis=1)
    found = pmd.partition(tree_of(z * 7 - 3), "z", loss=loss)
    np.testing.assert_allclose(found.attrs["expected_loss"], expected.min(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(distance(found.values, draws).mean(), expected.min(), rtol=0, atol=1e-12)
    assert found.attrs["loss"] == loss
    assert found.dims == ("site",)
    sizes = np.bincount(found)
    assert (np.diff(sizes) <= 0).all()
    assert len(sizes) == found.attrs["clusters"]


@pytest.mark.parametrize("loss", ["VI", "Binder"])
def test_partition_of_draws_that_are_all_different(loss):
    """Single sites are moved: no draw has the partition that is found."""
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [10, 20, 30])
    noisy = rng.random((2, 100, 60)) < 0.2
    z = np.where(noisy, rng.integers(0, 3, noisy.shape), truth)
    z = np.take_along_axis(rng.permuted(np.tile(np.arange(3), (2, 100, 1)), axis=2), z, axis=2)
    found = pmd.partition(tree_of(z), "z", loss=loss)
    np.testing.assert_array_equal(found, 2 - truth)


@pytest.mark.parametrize("loss", ["VI", "Binder"])
def test_partition_of_equal_draws_is_theirs(loss):
    z = np.tile([4, 4, 1, 1, 1, 9], (2, 5, 1))
    found = pmd.partition(tree_of(z), "z", loss=loss)
    np.testing.assert_array_equal(found, [1, 1, 0, 0, 0, 2])
    assert found.attrs["expected_loss"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("planted", ["no search", "draws of one partition count once"])
def test_the_checks_see_partitions_that_are_not_the_best(planted, monkeypatch):
    module = import_module("pymc_discrete.diagnostics.labels.partition")
    if planted == "no search":
        monkeypatch.setattr(module.Information, "moved", lambda self, one: one)
        with pytest.raises(AssertionError):
            test_partition_of_draws_that_are_all_different("VI")
        return
    made = module.Information.__init__

    def unweighted(self, *args):
        made(self, *args)
        self.weights = np.full(len(self.weights), 1 / len(self.weights))

    monkeypatch.setattr(module.Information, "__init__", unweighted)
    with pytest.raises(AssertionError):
        test_partition_against_all_partitions("VI", variation, 0)


def relabel(change=lambda dataset: dataset, **arguments):
    """A function that calls pmd.relabel on a tree whose posterior is changed."""

    def call():
        tree = mixture().tree
        tree["posterior"] = DataTree(change(tree["posterior"].to_dataset()))
        return pmd.relabel(tree, **{"z": "z", "dims": ("state", "next"), **arguments})

    return call


def without_lp():
    tree = mixture().tree
    del tree["sample_stats"]
    return pmd.relabel(tree, "z", dims="state", method="pivot")


def constant_lp():
    tree = mixture().tree
    tree["sample_stats"] = DataTree(tree["sample_stats"].to_dataset() * 0)
    return pmd.relabel(tree, "z", dims="state", method="pivot")


SHAPE = (CHAINS, DRAWS, N, K)
BAD = {
    "no tree": (lambda: pmd.relabel(3, "z"), TypeError, "DataTree with a group 'posterior'.*got a int"),
    "no name": (relabel(z=3), TypeError, "by its name, got 3"),
    "unknown variable": (relabel(z="w"), ValueError, "no variable 'w'; it has 'z', 'mu', 'P', 'sigma'"),
    "no labels": (relabel(z="mu"), ValueError, "'mu' is no variable of labels: its draws are float64"),
    "scalar": (relabel(lambda d: d.isel(site=0)), ValueError, "'z' is a scalar, and pmd.relabel compares"),
    "one draw": (
        relabel(lambda d: d.isel(chain=[0], draw=[0])),
        ValueError,
        "'z' has one draw only.*Pass several",
    ),
    "unknown method": (relabel(method="ECR"), ValueError, "method must be one of 'ecr', 'stephens', 'pivot'"),
    "unknown dims": (relabel(dims="component"), ValueError, "no dimension 'component'; it has.*'state' of"),
    "dims of z": (relabel(dims="site"), ValueError, "dims='site' is a dimension of 'z' itself"),
    "no dims": (relabel(dims=[]), TypeError, "dims must be the name of a dimension"),
    "dims of two sizes": (
        relabel(lambda d: d.isel(next=[0, 1])),
        ValueError,
        r"must have one size, and dims=\('state', 'next'\) are of sizes 3, 2",
    ),
    "dims not told": (relabel(dims=None), ValueError, "cannot be told: of size 3 or more.*'state', 'next'"),
    "too small dims": (
        relabel(lambda d: d.isel(state=[0, 1]), dims="state"),
        ValueError,
        "labels of 'z' must be 0 to 1, as the dimension 'state' has 2 components, and 2 is among",
    ),
    "negative labels": (relabel(lambda d: d.assign(z=d["z"] - 1)), ValueError, "must be 0 to 2.*and -1 is"),
    "no lp": (without_lp, ValueError, "idata has no 'lp'.*Take method=\"ecr\""),
    "constant lp": (constant_lp, ValueError, 'is the same in all draws.*Take method="ecr"'),
    "no probabilities": (
        relabel(method="stephens"),
        ValueError,
        r"needs the.*\(4, 200, 40, 3\)",
    ),
    "shape of probabilities": (
        relabel(method="stephens", probabilities=np.ones(3)),
        ValueError,
        r"of shape \(4, 200, 40, 3\).*got float64 of shape \(3,\)",
    ),
    "sums of probabilities": (
        relabel(method="stephens", probabilities=np.ones(SHAPE)),
        ValueError,
        "sum to 1 over the 3 labels.*between draws 0 and",
    ),
    "nan probabilities": (
        relabel(method="stephens", probabilities=np.full(SHAPE, np.nan)),
        ValueError,
        "must not be negative, and sum to 1",
    ),
    "order_by no name": (relabel(order_by=0), TypeError, "order_by must be the name of a parameter, got 0"),
    "order_by unknown": (
        relabel(order_by="nu"),
        ValueError,
        "order_by='nu' is no variable.*along 'state', 'next'. Pass one of 'mu'",
    ),
    "order_by of a scalar": (
        relabel(order_by="sigma"),
        ValueError,
        "'sigma' has the dimensions chain and draw. Pass one of 'mu'",
    ),
    "order_by of labels": (
        relabel(order_by="z"),
        ValueError,
        "'z' has the dimensions 'site'. Pass one of 'mu'",
    ),
    "order_by nan": (
        relabel(lambda d: d.assign(mu=d["mu"] * np.nan), order_by="mu"),
        ValueError,
        "order_by='mu' must have finite numbers",
    ),
    "order_by where nothing belongs to labels": (
        relabel(lambda d: d[["z", "sigma"]], dims=None, order_by="sigma"),
        ValueError,
        "along 'z_label' only.*No variable of the posterior has that",
    ),
    "probabilities for ecr": (relabel(probabilities=np.ones(SHAPE)), ValueError, 'is for method="stephens"'),
    "scalar of coclustering": (
        lambda: pmd.coclustering(tree_of(np.zeros((2, 3), int), ()), "z"),
        ValueError,
        "'z' is a scalar, and pmd.coclustering",
    ),
    "no draws": (
        lambda: pmd.coclustering(tree_of(np.zeros((2, 0, 3), int)), "z"),
        ValueError,
        r"'z' has no draws: its shape is \(2, 0, 3\)",
    ),
    "too many sites": (
        lambda: pmd.coclustering(tree_of(np.zeros((1, 2, 20_000), np.int8)), "z"),
        ValueError,
        r"20000 sites.*3.0 GiB.*idata.isel\({'site': slice\(None, None, 2\)}\)",
    ),
    "too many sites for Binder": (
        lambda: pmd.partition(tree_of(np.zeros((1, 2, 20_000), np.int8)), "z", loss="Binder"),
        ValueError,
        r"20000 sites.*pmd.partition\(idata.isel",
    ),
    "too many clusters": (
        lambda: pmd.partition(tree_of(np.array([[np.arange(12_000), np.zeros(12_000, int)]])), "z"),
        ValueError,
        "2 draws of 'z' with up to 12000 clusters need a table of 1.1 GiB. Take fewer draws",
    ),
    "unknown loss": (
        lambda: pmd.partition(tree_of(np.zeros((1, 2, 3), int)), "z", loss="binder"),
        ValueError,
        "loss must be one of 'VI', 'Binder', got 'binder'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_inputs(name):
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()
