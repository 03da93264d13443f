"""Findings as data: what checks find depends on the draws, and on no other check."""

import numpy as np
import pymc as pm
import pytest
from arviz_base import from_dict

import pymc_discrete as pmd
from pymc_discrete.diagnostics.convergence import check_convergence, checks_in_order
from pymc_discrete.diagnostics.facts import Facts
from pymc_discrete.diagnostics.findings import CHECKS, Finding, check
from pymc_discrete.diagnostics.judge import SUMMARY_COLUMNS
from pymc_discrete.diagnostics.known.leaving import Leaving
from pymc_discrete.diagnostics.statistics.batch import BatchOfElements, column
from tests.tools.scripts import script

CHAINS, DRAWS, SITES = 4, 400, 30


def troubled():
    """A model and draws of it in which there is something for every check; the chains of labels differ."""
    r = np.random.default_rng(1)
    with pm.Model() as model:
        pm.Categorical("z", np.full(3, 1 / 3), shape=SITES)
        pm.Bernoulli("k", 0.5, shape=4)
        pm.Poisson("N", 50.0)
        pm.Normal("mu", shape=3)
        pm.Normal("p")
        pm.Flat("gone")
    orders = np.array([[0, 1, 2], [1, 2, 0], [0, 1, 2], [2, 1, 0]])
    labels = r.integers(0, 3, SITES)
    z = np.broadcast_to(orders[:, labels][:, None], (CHAINS, DRAWS, SITES))
    walk = np.cumsum(r.normal(size=(CHAINS, DRAWS)), axis=1)
    k = r.integers(0, 2, (CHAINS, DRAWS, 4))
    k[..., 1], k[..., 2], k[2, :, 3] = 0, np.arange(CHAINS)[:, None] % 2, 1
    posterior = {
        "z": np.where(r.random(z.shape) < 0.02, r.integers(0, 3, z.shape), z),
        "k": k,
        "N": np.round(10 * walk + 500).astype(int),
        "mu": np.arange(3.0)[np.argsort(orders)][:, None] + 0.1 * r.normal(size=(CHAINS, DRAWS, 3)),
        "p": walk + 0.01 * r.normal(size=walk.shape),
        "gone": np.full((CHAINS, DRAWS), np.inf),
    }
    diverging = np.zeros((CHAINS, DRAWS), bool)
    diverging[:, ::7] = True
    stats = {"lp": r.normal(size=(CHAINS, DRAWS)), "diverging": diverging}
    return from_dict({"posterior": posterior, "sample_stats": stats}), model


def leaving():
    p = np.zeros((CHAINS, 4))
    return {"k": Leaving(np.ones(4, bool), p, False)}


def lines_of(facts, name):
    found = CHECKS[name].find(facts)
    return [str(getattr(line, "message", line)) for line in CHECKS[name].say(found, facts)]


def test_the_order_of_checks_decides_the_order_of_lines_only():
    """Each alone, and all in the other order, say what they say in their order; the result is not changed."""
    tree, model = troubled()
    names = [name for name, _ in checks_in_order()]
    groups = {name: tree[name].to_dataset().copy(deep=True) for name in tree.children}

    def facts():
        return Facts(tree, model, leaving)

    together, backwards = facts(), facts()
    usual = {name: lines_of(together, name) for name in names}
    assert {name: lines_of(backwards, name) for name in reversed(names)} == usual
    assert {name: lines_of(facts(), name) for name in names} == usual
    assert sum(bool(lines) for lines in usual.values()) >= 7  # those that are compared say something
    assert set(tree.children) == set(groups)
    assert all(tree[name].to_dataset().identical(groups[name]) for name in groups)


def test_findings_are_data():
    tree, model = troubled()
    facts = Facts(tree, model, leaving)
    found = {(one.kind, one.names): one for _, c in checks_in_order() for one in c.find(facts)}
    stuck = found["stuck", ("k",)]
    assert stuck.elements["k"].tolist() == [False, False, False, True]
    assert stuck.chains == [2]
    apart = found["apart", ("k",)]
    assert apart.elements["k"].tolist() == [False, False, True, False]
    assert "pmd.PathAuxiliary" in apart.remedy
    assert found["labels of chains", ("z",)].chains == [1, 3]
    slow = found["slow", ("N",)]
    assert slow.measured["rhat"] == pytest.approx(pmd.summary(tree, "N")["rhat"].max())
    assert any(one.kind == "tie" and set(one.names) == {"'N'", "'p'"} for one in found.values())
    for (kind, names), one in found.items():
        for name, which in one.elements.items():
            words = pmd.summary(tree, name)["verdict"].to_numpy()[which]
            assert set(words) == {kind}, (kind, names)


def test_a_check_and_a_column_take_one_function_each(caplog):
    """They are in the log, in the table, and in the pages that are written of them."""
    tree, model = troubled()

    def said(found, facts):
        return [f"The sum of {one.names[0]!r} never changed." for one in found]

    def planted(facts):
        """| `The sum ... never changed` | it is fixed | nothing |"""
        vectors = [n for n in facts.discrete if facts.posterior[n].ndim > 2]
        return [
            Finding("constant sum", (n,)) for n in vectors if np.ptp(facts.posterior[n].data.sum(-1)) == 0
        ]

    def returns(batch: BatchOfElements):
        return (batch.x[..., 2:] == batch.x[..., :-2]).mean(axis=(1, 2))

    tree["posterior"]["k"].data[..., :2] = np.array([0, 1])
    tree["posterior"]["k"].data[..., 2:] = np.array([0, 1])[
        (np.arange(DRAWS) % 2)[:, None] ^ np.array([0, 1])
    ]
    try:
        check(place=5, say=said)(planted)
        column("P(back)", "how often a draw is the last but one", place=99)(returns)
        check_convergence(tree, model)
        assert caplog.messages[0] == "The sum of 'k' never changed."
        table = pmd.summary(tree, "k")
        np.testing.assert_allclose(table["P(back)"], 1.0)
        pages = script("judge_tables")
        assert "| P(back) | how often a draw is the last but one |" in pages.columns()
        assert "| `The sum ... never changed` | it is fixed | nothing |" in pages.messages()
    finally:
        del CHECKS["planted"], SUMMARY_COLUMNS[-1]


def test_pages_have_the_tables_of_columns_and_checks():
    pages = script("judge_tables")
    wrong = [path.name for path in pages.TABLES if pages.page(path) != path.read_text()]
    assert not wrong, "run python docs/judge_tables.py"
    assert all(c.names.split(",")[0] in pmd.summary.__doc__ for c in SUMMARY_COLUMNS)
