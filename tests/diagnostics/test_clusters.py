"""Partitions are judged by what does not depend on the names of clusters."""

import json

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_base import from_dict

import pymc_discrete as pmd
from pymc_discrete.diagnostics.convergence import check_convergence
from pymc_discrete.diagnostics.draws import PARTITIONS_ATTRIBUTE
from pymc_discrete.diagnostics.judge import Judge
from pymc_discrete.diagnostics.labels.clusters import first_sites, sizes_of_clusters
from pymc_discrete.model.of_labels import selected_by

CHAINS, DRAWS, SITES, K = 4, 400, 8, 6


def model_of(max_clusters=K, **prior):
    with pm.Model() as model:
        a = pm.Gamma("a", 2, 2)
        prior = prior or {"kind": "crp", "concentration": a}
        z = pmd.Partition("z", shape=SITES, max_clusters=max_clusters, **prior)
        mu = pm.Normal("mu", 0, 1, shape=K)
        raw, scale = pm.Normal("raw", 0, 1, shape=K), pm.HalfNormal("scale", 1)
        of_sites = pm.Normal("of_sites", 0, 1, shape=SITES)
        pm.Normal("y", mu[z] + (scale * pt.exp(raw))[z] + of_sites, 1, observed=np.zeros(SITES))
    return model


def result(labels, r):
    """A result with draws (chains, draws, sites) of z, whose other unknowns are noise."""
    posterior = {"z": labels, "mu": r.normal(size=(CHAINS, DRAWS, K)) + np.arange(CHAINS)[:, None, None]}
    posterior |= {name: r.random((CHAINS, DRAWS)) for name in ("a", "scale")}
    posterior |= {name: r.normal(size=(CHAINS, DRAWS, n)) for name, n in (("raw", K), ("of_sites", SITES))}
    tree = from_dict({"posterior": posterior, "sample_stats": {"lp": r.normal(size=(CHAINS, DRAWS))}})
    tree["posterior"].attrs[PARTITIONS_ATTRIBUTE] = json.dumps(["z"])
    return tree


def renamed(labels, r):
    """The same partitions, the clusters of every draw named anew."""
    names = np.argsort(r.random((*labels.shape[:2], K)), axis=-1)
    return np.take_along_axis(names, labels, axis=-1)


def mixing(r):
    """Independent draws of one to three clusters."""
    return r.integers(0, r.integers(1, 4, (CHAINS, DRAWS, 1)), (CHAINS, DRAWS, SITES))


def test_sizes_of_clusters(monkeypatch):
    labels = mixing(np.random.default_rng(0))
    sizes, number = sizes_of_clusters(labels)
    for c, d in np.ndindex(2, 30):
        z = labels[c, d].tolist()
        assert sizes[c, d].tolist() == [z.count(label) for label in z]
        assert number[c, d] == len(set(z))
    monkeypatch.setattr("pymc_discrete.diagnostics.labels.draws_of_labels.CHUNK", 100)
    assert all((a == b).all() for a, b in zip(sizes_of_clusters(labels), (sizes, number), strict=True))


def test_first_sites_of_clusters():
    labels = mixing(np.random.default_rng(0))
    found = first_sites(labels)
    for c, d in np.ndindex(2, 30):
        z = labels[c, d].tolist()
        assert found[c, d].tolist() == [z.index(label) for label in z]


def test_names_of_clusters_do_not_matter():
    r = np.random.default_rng(1)
    labels = mixing(r)
    tables = [pmd.summary(result(z, r)) for z in (labels, renamed(labels, r))]
    assert tables[0].equals(tables[1])
    assert list(tables[0].index) == ["clusters of z", *(f"z[{i}]" for i in range(SITES))]
    vectors = [pmd.diagnostics.summary_of_vectors(result(z, r)) for z in (labels, renamed(labels, r))]
    assert vectors[0].equals(vectors[1])
    assert tables[0].loc["clusters of z", "P(1)"] == pytest.approx(0.34, abs=0.05)
    assert set(tables[0]["verdict"]) == {"ok"}


def test_chains_that_name_clusters_differently_are_not_warned_of(caplog):
    r = np.random.default_rng(2)
    labels = mixing(r)
    for chain in range(CHAINS):  # each has names of its own, as `mu` has
        labels[chain] = np.argsort(r.random(K))[labels[chain]]
    check_convergence(result(labels, r), model_of())
    assert not caplog.messages


def test_chains_in_different_modes_are_warned_of(caplog):
    r = np.random.default_rng(3)
    labels = mixing(r)
    labels[:2] = np.minimum(labels[:2], 1)  # two chains have two clusters at most, which no names explain
    check_convergence(result(labels, r), model_of())
    assert any("elements of 'z' mix slowly" in m for m in caplog.messages)
    assert any("The number of clusters of 'z' mixes slowly" in m for m in caplog.messages)
    assert not any("mu" in m or "label" in m for m in caplog.messages)


def test_sizes_of_clusters_are_no_labels():
    """Half of the sites are in pairs, the first or the last half: exchanging 1 and 2 explains nothing."""
    pairs_first = np.concatenate([np.repeat(np.arange(10), 2), np.arange(10, 30)])
    labels = np.stack([pairs_first, pairs_first, pairs_first[::-1], pairs_first[::-1]])
    draws = np.repeat(labels[:, None], DRAWS, axis=1)
    judge = Judge(from_dict({"posterior": {"z": draws}}), partitions=["z"])
    assert judge.labels("clusters of z") == judge.labels("z") == (None, False)
    assert set(judge.of("z").decided.verdict) == {"apart"}


@pytest.mark.parametrize("still", [True, False])
def test_partitions_of_equal_sizes_are_told_apart(still, caplog):
    """Two chains divide the sites in the middle, two by turns: into two clusters of equal size."""
    r = np.random.default_rng(5)
    ways = np.array([np.repeat([0, 1], SITES // 2), np.tile([0, 1], SITES // 2)])
    labels = np.repeat(ways[[0, 0, 1, 1], None], DRAWS, axis=1)
    if not still:
        labels = np.where(r.random((CHAINS, DRAWS, 1)) < 0.1, 2, labels)  # all in one cluster now and then
    check_convergence(result(labels, r), model_of())
    table = pmd.summary(result(labels, r), "z")
    assert table.loc["clusters of z", "verdict"] == ("constant" if still else "ok")
    assert table.loc["z[1]", "verdict"] == ("apart" if still else "slow")
    assert table.loc["z[1]", "rhat"] > 2
    assert still or table.loc["z[1]", "ess"] < 20
    assert not any("all agree" in m for m in caplog.messages)
    assert any("'z" in m and "mode" in m for m in caplog.messages)


@pytest.mark.parametrize(
    ("prior", "warned"),
    [
        ({"max_clusters": 4}, True),
        ({"max_clusters": 6}, False),
        ({"max_clusters": None}, False),
        ({"max_clusters": 4, "kind": "mfm", "components": pm.Geometric.dist(0.1)}, True),
        # there are no more components
        ({"max_clusters": None, "kind": "mfm", "components": [0.1, 0.2, 0.3, 0.4]}, False),
    ],
)
def test_too_few_labels(prior, warned, caplog):
    r = np.random.default_rng(4)
    check_convergence(result(mixing(r), r), model_of(**prior))  # of three clusters
    assert any("Pass a larger max_clusters=" in m for m in caplog.messages) == warned
    assert len(caplog.messages) == warned


def test_what_labels_select():
    assert selected_by(model_of(), ["z"]) == ["mu", "raw"]
    assert selected_by(model_of(), []) == []


def test_vectors_of_another_length_than_that_of_labels_are_compared():
    with pm.Model() as model:
        z = pmd.Partition("z", "crp", concentration=1.0, shape=SITES, max_clusters=K)
        of_columns, raw = pm.Normal("of_columns", 0, 1, shape=2), pm.Normal("raw", 0, 1, shape=(K, 2))
        pm.Normal("y", (of_columns + raw)[z], 1, observed=np.zeros((SITES, 2)))
        pm.Normal("x", pm.Normal("of_one", 0, 1, shape=K)[z[0]], 1, observed=0.0)
    assert selected_by(model, ["z"]) == ["raw", "of_one"]
