"""What the log says of a run: each line with a situation that brings it and one that must not."""

import logging
import re
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_base import from_dict
from pymc.exceptions import SamplingError
from pytensor.raise_op import Assert
from xarray import Dataset

import pymc_discrete as pmd
from pymc_discrete.diagnostics.checks.never_moved import why_still
from pymc_discrete.diagnostics.checks.ties import sentence, ties, weighted_sums
from pymc_discrete.diagnostics.convergence import check_convergence
from pymc_discrete.diagnostics.judge import Judge
from pymc_discrete.diagnostics.known.leaving import Leaving, leaving
from pymc_discrete.diagnostics.known.stored import conditionals, known_of
from pymc_discrete.diagnostics.remedies import Remedies
from pymc_discrete.diagnostics.statistics.movement import Movement
from pymc_discrete.diagnostics.verdicts import VERDICTS, decide, stuck_chains, unexplained, words_of_still
from pymc_discrete.engine.nuts import Edge, NutsBlock
from pymc_discrete.engine.nuts_options import DEFAULTS
from pymc_discrete.engine.points import Points
from pymc_discrete.runtime.names import merged_texts, shown
from tests.tools.running import FAST, QUIET

CHAINS, DRAWS = 4, 400


@pytest.fixture
def log(caplog):
    """A function that gives the lines logged since it was last called."""
    caplog.set_level(logging.INFO, logger="pymc")

    def lines():
        found = [r.getMessage() for r in caplog.records]
        caplog.clear()
        return found

    return lines


# ---------------------------------------------------------------- names
@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "'a'"),
        (
            ["p_logodds__", "a_b_log__", "q_log_exp_m1__", "L_cholesky_corr__", "c_1"],
            "'p', 'a_b', 'q', 'L', 'c_1'",
        ),
        (["z1", "z2", "z3"], "'z1', 'z2', 'z3'"),
        ([f"z{n}" for n in range(150)], "z0 ... z149 (150 variables)"),
        (["z9", "z10", "z2", "z1"], "z1 ... z10 (4 variables)"),
        (["k", *(f"z_{i}_{j}" for i in range(2) for j in range(3))], "'k', z_0_0 ... z_1_2 (6 variables)"),
        ("abcdefghijkl", "'a', 'b', 'c', 'd', 'e', 'f', 'g', ... 'l' (12 variables in all)"),
    ],
)
def test_names(names, text):
    assert shown(names) == text


def test_texts_that_differ_in_names_only_are_one():
    texts = {f"z{n}": f"every element of 'z{n + 1}' depends on at most 2 sites" for n in range(9)} | {
        "k": "no term depends on it"
    }
    several, one = merged_texts(texts)
    assert several == (
        [f"z{n}" for n in range(9)],
        "every element of z1 ... z9 (9 variables) depends on at most 2 sites",
    )
    assert one == (["k"], "no term depends on it")


@pytest.mark.parametrize(
    ("lower", "shift", "said"),
    [(0, 0, "index from 0 to 2 into 2 entries in 'y'"), (1, 0, "from 1 to 2 into 2"), (1, 1, None)],
)
def test_indices_out_of_bounds(lower, shift, said, log):
    """More values than entries, labels that count from 1, and the same made right."""
    with pm.Model():
        z = pm.DiscreteUniform("z", lower, 2, shape=5)
        pm.Normal("y", pt.constant(np.array([0.0, 3.0]))[z - shift], 1, observed=np.arange(5.0))
        pmd.AutoStep()
    found = [line for line in log() if line.startswith("'z' gives an index")]
    assert len(found) == (said is not None)
    assert all(said in line for line in found)


def test_elements_with_bounds_of_their_own_are_not_out_of_bounds(log):
    """One vector with a bound for each element, and two scalars of one kind that count from 0 and from 1."""
    two, three = pt.constant(np.array([0.0, 1.0])), pt.constant(np.array([0.0, 1.0, 2.0]))
    with pm.Model():
        v = pm.DiscreteUniform("v", [0, 0], [1, 2])
        a, b = pm.DiscreteUniform("a", 0, 1), pm.DiscreteUniform("b", 1, 2)
        pm.Normal("y", two[v[0]] + three[v[1]] + two[a] + two[b - 1], 1, observed=1.0)
        pmd.BlockGibbs()
    assert not [line for line in log() if "gives an index" in line]


@pytest.mark.slow
def test_what_is_impossible_is_named():
    """The term, whatever variable the chain is stuck with."""
    with pm.Model():
        k, rate = pm.Bernoulli("k", 0.5), pm.Gamma("rate", 2, 1)
        pm.Poisson("counts", rate + k, observed=[1, -2])
        with pytest.raises(
            SamplingError, match=r"-inf, through 'counts' \(element \[1\].*observed values outside"
        ):
            pmd.sample(5, tune=5, chains=1, random_seed=1, **QUIET)
        step = pmd.BlockGibbs()
        step.setup_chain(np.random.default_rng(1), tune=0, draws=5)
        with pytest.raises(SamplingError, match=r"\(element \[1\], observed as -2\): the start of 'k'"):
            step.step(pm.modelcontext(None).initial_point())


def test_two_valued_ties_name_a_step_that_moves_both():
    flips = np.repeat(np.random.default_rng(1).integers(0, 2, (4, 8)), 50, axis=1)
    with pm.Model() as model:
        pm.Bernoulli("z", 0.5, shape=2)
    (found,) = ties({"z[0]": flips, "z[1]": 1 - flips}, {}, Remedies(model, {}).of_tie)
    assert "PathAuxiliary(path_length=5, recompute=True)" in sentence(found)


def test_many_variables_take_two_lines(log):
    with pm.Model():
        for n in range(12):
            pm.Bernoulli(f"z{n}", 0.3)
        pmd.AutoStep()
    said = log()
    assert len(said) == 2
    assert all("z0 ... z11 (12 variables)" in text and len(text) < 250 for text in said)


def series(n, labels):
    """A correlated series about means, of labels or in proportion to indicators."""
    away = np.arange(n)[:, None] - np.arange(n)
    cov = np.exp(-0.5 * (away / 5.0) ** 2) + 0.1 * np.eye(n)
    with pm.Model() as model:
        z, mu = pm.Bernoulli("z", 0.4, shape=n), pm.Normal("mu", 0, 1, shape=2)
        pm.MvNormal("y", mu=mu[z] if labels else mu[0] * z, cov=cov, observed=np.linspace(-1, 1, n))
    return model


@pytest.mark.parametrize(("labels", "said"), [(True, True), (False, False)])
def test_a_gradient_of_what_labels_choose_is_reported(labels, said, log):
    with series(150, labels):
        step = pmd.AutoStep("z")
    assert type(step).__name__ == "DiscreteLangevin"
    assert any("'z' chooses among values" in line and "differences='exact'" in line for line in log()) == said


# ---------------------------------------------------------------- compiling
def small():
    with pm.Model() as model:
        x = pm.Bernoulli("x", np.full(3, 0.4))
        pm.Potential("e", 0.5 * (x[1:] * x[:-1]).sum())
    return model


@pytest.mark.parametrize(("seconds", "said"), [(0.0, True), (1e6, False)])
def test_what_takes_long_to_compile_is_named(seconds, said, monkeypatch, log):
    monkeypatch.setattr("pymc_discrete.runtime.compiling.LOGGED_AFTER", seconds)
    with small() as model:
        step = pmd.BlockGibbs()
        step.step(model.initial_point())
        lines = log()
        assert ("Compiling the chains: BlockGibbs for 'x' ..." in lines) == said
        step.step(model.initial_point())
        assert log() == []  # it is compiled
        pmd.sample(10, tune=10, chains=1, step=step, random_seed=1, **QUIET)
    assert not any("Compiling the chains" in line for line in log())  # the same program


@pytest.mark.slow
def test_variables_are_named_as_the_user_named_them(monkeypatch, log):
    monkeypatch.setattr("pymc_discrete.runtime.compiling.LOGGED_AFTER", 0.0)
    with pm.Model():
        p = pm.Beta("p", 1, 1)
        pm.Bernoulli("z", p, shape=2)
        pmd.sample(5, tune=5, chains=1, collapse=False, random_seed=1, **QUIET)
    assert log().count("Compiling the chains: NUTS for 'p'; BlockGibbs for 'z' ...") == 1


# ---------------------------------------------------------------- labels that chains call differently
SITES, R = 30, np.random.default_rng(0)
TRUTH = R.integers(0, 3, SITES)


def labelled(*orders, noise=0.02, K=3):
    """(chains, draws, sites) of labels that each chain calls by its own order, some wrong at random."""
    draws = np.stack([np.broadcast_to(np.asarray(order)[TRUTH % K], (DRAWS, SITES)) for order in orders])
    return np.where(R.random(draws.shape) < noise, R.integers(0, K, draws.shape), draws)


def merged():
    """One chain takes two of three labels for one."""
    draws = labelled((0, 1, 2), (0, 1, 2))
    draws[1][draws[1] == 2] = 1
    return draws


SWITCHED = [
    # labels, the density of each chain; what is said, or None
    (
        labelled((0, 1, 2), (1, 2, 0)),
        (0, 0),
        "labels of chain 1 in another order (in chain 1, 0 is 2, 1 is 0, 2 is 1 in chain 0)",
    ),
    (
        labelled((0, 1, 2), (0, 1, 2), (2, 1, 0), (0, 2, 1)),
        (0, 0, 0, 0),
        "labels of chains 2, 3 in another order",
    ),
    (
        labelled((0, 1), (1, 0), K=2),
        (0, 0),
        "labels of chain 1 in another order (in chain 1, 0 is 1, 1 is 0 in chain 0)",
    ),
    (labelled((0, 1, 2), (0, 1, 2)), (0, 0), None),
    (labelled((0, 1, 2), (1, 2, 0)), (0, 40), None),  # another mode: no symmetry keeps its density
    (labelled((0, 1, 2), (1, 2, 0)), (0, 1), None),  # nor one whose densities overlap
    (merged(), (0, 0), None),
    (labelled((0, 1, 2), (1, 2, 0))[:, :, :2], (0, 0), None),  # of two sites any two can be exchanged
    (R.integers(0, 3, (2, DRAWS, SITES)), (0, 0), None),
]


@pytest.mark.parametrize("scalars", [False, True])
@pytest.mark.parametrize(("draws", "density", "said"), SWITCHED)
def test_labels_in_another_order_are_recognised_first(draws, density, said, scalars, log):
    sites, K = draws.shape[2], 3
    lp = np.random.default_rng(1).normal(size=draws.shape[:2]) + np.asarray(density)[:, None]
    with pm.Model() as model:
        if scalars:
            for n in range(sites):
                pm.Categorical(f"z{n}", np.full(K, 1 / K))
            posterior = {f"z{n}": draws[..., n] for n in range(sites)}
        else:
            pm.Categorical("z", np.full(K, 1 / K), shape=sites)
            posterior = {"z": draws}
    check_convergence(from_dict({"posterior": posterior, "sample_stats": {"lp": lp}}), model)
    lines = log()
    assert any("label switching" in line for line in lines) == (said is not None)
    if any(density):
        assert any("in different modes" in line and "pmd.FlowStep" in line for line in lines)
    if said is not None:
        assert said in lines[0]
        assert lines[0].startswith(
            f"z0 ... z{sites - 1} ({sites} variables) differ " if scalars else "'z' differs "
        )


@pytest.mark.parametrize(
    ("lower", "said"), [(0.0, "change within chains"), (1.0, "mix slowly"), (40.0, "mix slowly")]
)
def test_labels_that_change_within_chains_are_no_slow_mixing(lower, said, log):
    """Unless the density is another one in each order."""
    draws, other = labelled((0, 1, 2), (0, 1, 2)), labelled((1, 2, 0), (1, 2, 0))
    in_other = np.array([np.arange(DRAWS) > 300, np.arange(DRAWS) < 150])
    draws = np.where(in_other[..., None], other, draws)
    lp = np.random.default_rng(1).normal(size=draws.shape[:2]) - lower * in_other
    with pm.Model() as model:
        pm.Categorical("z", np.full(3, 1 / 3), shape=SITES)
    check_convergence(from_dict({"posterior": {"z": draws}, "sample_stats": {"lp": lp}}), model)
    lines = "".join(line for line in log() if "'z'" in line)
    assert said in lines
    assert ("mix slowly" in lines) != ("label switching" in lines)


def test_switched_labels_that_stand_still_are_no_other_mode(log):
    with pm.Model() as model:
        pm.Categorical("z", np.full(3, 1 / 3), shape=SITES)
    for orders, said in (
        (((0, 1, 2), (1, 2, 0)), "differs between chains by labels only"),
        (((0, 1, 2), (0, 1, 1)), "try another step"),
    ):
        draws = labelled(*orders, noise=0.0)
        check_convergence(
            from_dict({"posterior": {"z": draws}, "sample_stats": {"lp": np.zeros(draws.shape[:2])}}), model
        )
        (line,) = [line for line in log() if "'z'" in line]
        assert said in line


ORDERS = {
    "between chains": np.tile([[[0, 1, 2]], [[1, 2, 0]], [[0, 1, 2]], [[2, 1, 0]]], (1, DRAWS, 1)),
    "within chains": np.where(
        (np.arange(DRAWS) // 100 + np.arange(4)[:, None])[..., None] % 2, [0, 1, 2], [1, 2, 0]
    ),
}


def of_mixture(to_new, apart=False):
    """Draws of labels, means, weights and a transition matrix, permuted; `apart` if a mean has two modes."""
    r = np.random.default_rng(2)
    c, d = np.arange(4)[:, None, None], np.arange(DRAWS)[:, None]
    to_old = np.argsort(to_new, axis=2)
    z = np.where(r.random((4, DRAWS, SITES)) < 0.02, r.integers(0, 3, (4, DRAWS, SITES)), TRUTH)
    mu = np.arange(3.0) + 0.1 * r.normal(size=(4, DRAWS, 3))
    mu[2:, :, 1] += 10.0 * apart
    P = r.dirichlet([1.0, 5.0, 25.0], size=(4, DRAWS, 3))
    return {
        "z": np.take_along_axis(to_new, z, axis=2),
        "mu": mu[c, d, to_old],
        "P": P[c[..., None], d[..., None], to_old[..., None], to_old[:, :, None]],
        "beta": r.normal(size=(4, DRAWS, 3)),  # as many elements, which belong to no labels
    }


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("where", ORDERS)
def test_of_labels_that_switch_there_is_one_message(where, apart, log):
    """Warnings of what belongs to labels are of draws with these in one order."""
    with pm.Model() as model:
        pm.Categorical("z", np.full(3, 1 / 3), shape=SITES)
        pm.Normal("mu", shape=3)
        pm.Dirichlet("P", np.ones(3), shape=(3, 3))
        pm.Normal("beta", shape=3)
    stats = {"lp": np.random.default_rng(1).normal(size=(4, DRAWS))}
    tree = from_dict({"posterior": of_mixture(ORDERS[where], apart), "sample_stats": stats})
    check_convergence(tree, model)
    lines = log()
    assert "label switching" in lines[0]
    assert where in lines[0]
    assert "'mu', 'P'" in lines[0]
    assert "beta" not in lines[0]
    assert len(lines) == 1 + 3 * apart  # R-hat, effective draws, and which are slow
    if apart:
        assert lines[-1].startswith("Slow, the slowest first: 'mu[")
    check_convergence(tree, model, finished=True)  # read from a folder, after they were reported
    assert "label switching" not in "".join(log())


def test_several_variables_of_switched_labels_share_a_message(log):
    with pm.Model() as model:
        for name in "abc":
            pm.Categorical(name, np.full(3, 1 / 3), shape=SITES)
    draws = {name: of_mixture(ORDERS["between chains"])["z"] for name in "ab"}
    draws["c"] = of_mixture(ORDERS["within chains"])["z"]
    stats = {"lp": np.random.default_rng(1).normal(size=(4, DRAWS))}
    check_convergence(from_dict({"posterior": draws, "sample_stats": stats}), model)
    (line,) = log()
    assert "'a', 'b' differ between chains" in line
    assert "labels of 'c' change within chains" in line


def test_elements_that_are_slow_are_named(log):
    with pm.Model() as model:
        pm.Normal("x", shape=3)
    r = np.random.default_rng(0)
    draws = r.normal(size=(4, 400, 3))
    draws[:, :, 1] = np.cumsum(draws[:, :, 1], axis=1)
    stats = {"lp": np.zeros((4, 400))}
    check_convergence(from_dict({"posterior": {"x": draws}, "sample_stats": stats}), model)
    assert any(line.startswith("Slow, the slowest first: 'x[1]'.") for line in log())


@pytest.mark.parametrize(("dtype", "far"), [("float64", np.inf), ("float32", np.inf), ("float32", 1e30)])
def test_flat_priors_that_leave_a_posterior_improper_are_named(dtype, far, log):
    """A component that no observation belongs to, of which nothing else is known."""
    with pm.Model() as model:
        pm.Flat("mu", shape=2)
        pm.HalfFlat("sigma")
    draws = {"mu": R.normal(size=(2, 200, 2)), "sigma": R.gamma(2, size=(2, 200))}
    draws = {name: x.astype(dtype) for name, x in draws.items()}
    stats = {"lp": R.normal(size=(2, 200))}
    check_convergence(from_dict({"posterior": draws, "sample_stats": stats}), model)
    assert not any("infinite" in text for text in log())
    draws["sigma"][1, 100:] = far
    check_convergence(from_dict({"posterior": draws, "sample_stats": stats}), model)
    assert log()[0].startswith(
        "Draws of 'sigma' are infinite, or next to it: the posterior cannot be normalised"
    )


def test_trajectories_that_all_diverge_are_named(log):
    with pm.Model() as model:
        pm.Normal("mu")
    diverging = np.zeros((4, 200), bool)
    diverging[[1, 3]] = True
    stats = {"lp": np.zeros((4, 200)), "diverging": diverging}
    draws = np.random.default_rng(1).normal(size=(4, 200))
    # a transition that diverges may move before it does
    check_convergence(from_dict({"posterior": {"mu": draws}, "sample_stats": stats}), model)
    assert not any("NUTS never moved" in line for line in log())
    draws[[1, 3]] = 0.7
    check_convergence(from_dict({"posterior": {"mu": draws}, "sample_stats": stats}), model)
    assert log()[0].startswith("NUTS never moved in 2 of 4 chains (1, 3): all its transitions diverged.")
    stats["diverging"] = diverging & (np.arange(200) > 0)
    check_convergence(from_dict({"posterior": {"mu": draws}, "sample_stats": stats}), model)
    assert not any("NUTS never moved" in line for line in log())


# ---------------------------------------------------------------- what the log, the table and the plot say
class Row(NamedTuple):
    """Draws of a variable `k`, what is known of it, and what is said: one row for each verdict and reason."""

    draws: np.ndarray
    known: Leaving | None
    verdicts: str
    log: str
    suspect: int = 0
    lp: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)


def known(probability, elements=1, **facts):
    """What is known of elements of which other values have these probabilities in all four chains."""
    p = None if probability is None else np.broadcast_to(probability, (CHAINS, elements)).astype(float)
    of_each = {"several": True, "certain": False, "alone": False, "among_models": False}
    fields = of_each | facts
    for fact in of_each:
        fields[fact] = np.broadcast_to(fields[fact], elements)
    return Leaving(probability=p, **({"joint": False} | fields))


def coins(seed, *shape, p=0.5):
    return (np.random.default_rng(seed).random((CHAINS, DRAWS, *shape)) < p).astype(int)


def still(*values):
    """(chains, draws), the value of each chain."""
    return np.broadcast_to(np.reshape(values, (-1, 1)), (CHAINS, DRAWS)).astype(int)


def in_chain(draws, chain, *places):
    """The draws with the value 1 at places of a chain."""
    out = np.array(draws)
    for place in places:
        out[chain, place] = 1
    return out


ZEROS = still(0)
MODEL = {"joint": True, "alone": True, "by": ("mu",), "unused": ("mu[a]",)}
LABELS = np.random.default_rng(3).integers(0, 2, 30)
SLOW_ONE = np.broadcast_to(np.arange(DRAWS) // 100 % 2, (CHAINS, DRAWS))
SLOW_IN_MODES = np.where(np.arange(CHAINS)[:, None] == 0, 1, 0) ^ (np.arange(DRAWS) % 100 < 5)
SLOW_IN_TURN = np.broadcast_to(np.arange(DRAWS) // 50 % 2, (CHAINS, DRAWS))
VISITS = (np.arange(DRAWS) % 160 == 40 + 9 * np.arange(CHAINS)[:, None]).astype(int)
NEVER = "'k' never moved in any chain, and all agree: "
IN_MODES = "no mode is better, and their shares are those of the starts and not of the posterior"
ROWS = {
    "mixes": Row(coins(1), None, "ok", ""),
    "one possible value": Row(ZEROS, known(0.0, several=False), "fixed", ""),
    "the data leave one": Row(ZEROS, known(0.0, certain=True), "certain", ""),
    "the data leave one, summed out": Row(ZEROS, known(0.0, certain=True, summed=True), "certain", ""),
    "rare, whatever the rest": Row(ZEROS, known(1e-4, certain=True), "certain", ""),
    "rare given the rest": Row(ZEROS, known(1e-4), "constant", ""),
    "nothing known": Row(ZEROS, None, "constant", NEVER + "either the data leave one value only", 1),
    "an estimate": Row(ZEROS, known(None), "constant", NEVER + "either the data leave one value only", 1),
    "held by other sites": Row(
        ZEROS, known(0.0), "constant", NEVER + "given everything else, other values .*PathAuxiliary", 1
    ),
    "held together": Row(
        ZEROS, known(0.0, together="no two can change"), "constant", NEVER + ".*no two can change", 1
    ),
    "given what many sites share": Row(ZEROS, known(0.0, joint=True), "constant", ""),
    "summed out, what many sites share": Row(ZEROS, known(0.0, joint=True, summed=True), "constant", ""),
    "an index of models": Row(
        ZEROS,
        known(0.0, **MODEL),
        "constant",
        NEVER + r"given where 'mu' is, .* need not be certain: .*'mu\[a\]' does not enter .* chooses among "
        r"models.*pmd.log_evidence\(pm.observe\(model, \{'k': value\}\)\)\.$",
        1,
    ),
    "an index of models, summed out": Row(
        ZEROS,
        known(0.0, **MODEL, summed=True),
        "constant",
        "'k' has the same value in all draws: given where",
        1,
    ),
    "the step cannot": Row(ZEROS, known(0.3), "stuck", NEVER + "though .* the step cannot move it", 1),
    "the step cannot, in short chains": Row(
        ZEROS[:, :50], known(0.3), "stuck", NEVER + "though .* the step cannot move it", 1
    ),
    "the step cannot, summed out": Row(
        ZEROS,
        known(0.3, summed=True),
        "stuck",
        "'k' has the same value in all draws: though .* the step cannot move it",
        1,
    ),
    "the step cannot move one, summed out": Row(
        np.stack([ZEROS, coins(4)], axis=2),
        known(0.3, 2, summed=True),
        "stuck ok",
        r"'k' has elements that never moved in any chain, 'k\[a\]': though given everything else",
        1,
    ),
    "an index of models beside what many sites share": Row(
        np.stack([ZEROS] * 2, axis=2),
        known(0.0, 2, **{**MODEL, "alone": [True, False]}),
        "constant constant",
        NEVER + "given where 'mu' is",
        1,
    ),
    "too few to tell": Row(ZEROS[:, :50], known(0.0), "constant", "", 1),
    "modes of other sites": Row(
        still(0, 1, 0, 1),
        known(0.0),
        "apart",
        f"'k' disagrees between chains: it never moved .*{IN_MODES}",
        1,
    ),
    "modes of models": Row(
        still(0, 0, 0, 1),
        known(0.0, **MODEL),
        "apart",
        "'k' disagrees .*shares of the values are those of the starts.* among models.*pmd.log_evidence",
        1,
        (0, 0, 0, -60),
    ),
    "modes of what it is drawn by": Row(
        still(0, 0, 0, 1),
        known(0.0, joint=True),
        "apart",
        r"'k' disagrees .* mean lp of each chain: .*, -60.0.* no other step helps. Pass initvals=",
        1,
        (0, 0, 0, -60),
    ),
    "short chains apart by chance": Row(still(0, 1, 0, 1)[:, :5], known(0.5), "slow", "", 1),
    "short chains, one element apart and one by chance": Row(
        np.stack([still(0, 1, 0, 1)] * 2, axis=2)[:, :5],
        known(np.array([1e-12, 0.5]), 2),
        "apart slow",
        r"'k' disagrees between chains: 1 of its 2 elements never moved within a chain and differs from",
        2,
    ),
    "short chains apart": Row(still(0, 1, 0, 1)[:, :5], known(1e-12), "apart", "'k' disagrees between", 1),
    "a rare value": Row(in_chain(in_chain(ZEROS, 0, 7, 300), 2, 100), known(1e-3), "ok", ""),
    "a rare value in one chain": Row(in_chain(ZEROS, 1, 30, 31, 200), known(1e-3), "ok", ""),
    "a few moves of which nothing is known": Row(
        in_chain(ZEROS, 1, 30, 31, 200), None, "slow", "'k' changed only 4 times in all chains: whatever", 1
    ),
    "a chain is stuck": Row(
        np.where(np.arange(CHAINS)[:, None] == 2, 1, coins(2)),
        None,
        "stuck",
        r"'k' is stuck: it never moved in 1 of 4 chains \(2\)",
        1,
    ),
    "a chain is stuck in a model": Row(
        np.where(np.arange(CHAINS)[:, None] == 2, 1, np.arange(DRAWS) // 30 % 2),
        known(0.0, **MODEL),
        "stuck",
        "'k' is stuck: .* that to be chance. 'mu.a.' does not enter .*pmd.log_evidence",
        1,
    ),
    "one of several at a rare value at the end": Row(
        np.stack([in_chain(ZEROS, 1, 0), coins(1), coins(1)], axis=2),
        known(1e-3, 3),
        "ok ok ok",
        "",
    ),
    "the step cannot move one": Row(
        np.stack([ZEROS, coins(4)], axis=2),
        known(0.3, 2),
        "stuck ok",
        r"'k' has elements that never moved in any chain, 'k\[a\]': though given everything else",
        1,
    ),
    "free for a moment where a chain ended": Row(
        np.stack([ZEROS, coins(4)], axis=2),
        known(np.array([[0.3], [1e-9], [1e-9], [1e-9]]), 2),
        "constant ok",
        "",
    ),
    "a chain left its first value once": Row(
        in_chain(ZEROS, 1, slice(0, 4)), None, "slow", "'k' changed only 1 time in all chains", 1
    ),
    "models, a chain went between them": Row(
        in_chain(ZEROS, 1, slice(0, 4), 6, 8),
        known(0.0, **MODEL),
        "slow",
        "'k' changed only 5 times.*log_evidence",
        1,
    ),
    "models, chains came to another for moments": Row(
        VISITS,
        known(np.array([[0.0], [0.0], [0.3], [0.0]]), **MODEL | {"alone": False}, among_models=True),
        "slow",
        "'k' changed only 24 times in all chains: whatever .* chooses among models.*pmd.log_evidence",
        1,
    ),
    "a rare value, among models and possible where chains ended": Row(
        VISITS, known(1e-3, among_models=True), "ok", ""
    ),
    "a rare value whose parameter is near for moments": Row(VISITS, known(0.0, **MODEL), "ok", ""),
    "chains in modes of a model's parameters": Row(
        SLOW_IN_MODES,
        known(1e-2, joint=True, unused=("b",)),
        "slow",
        "'k' mixes slowly: .*different modes.* 'b' does not enter .* wanders over its prior: 'k' chooses "
        "among models.*pmd.log_evidence",
        1,
        (0, 0, 0, -60),
    ),
    "slow, among models": Row(
        SLOW_IN_TURN,
        known(1e-2, joint=True, unused=("b",)),
        "slow",
        "'k' mixes slowly: .*R-hat is up to 1.00. 'b' does not enter .*pmd.log_evidence",
    ),
    "slow": Row(SLOW_ONE, None, "slow", "'k' mixes slowly: .* Draw more"),
    "all slow": Row(
        np.stack([SLOW_ONE] * 2, axis=2), None, "slow slow", "All 2 elements of 'k' mix slowly: "
    ),
    "one of two slow": Row(
        np.stack([SLOW_ONE, coins(7)], axis=2), None, "slow ok", "1 of the 2 elements of 'k' mix slowly: "
    ),
    "elements of their own": Row(
        np.stack([ZEROS, coins(4)], axis=2),
        known(0.0, 2, **{**MODEL, "alone": [True, False]}),
        "constant ok",
        r"'k' has elements that never moved, 'k\[a\]': given where",
        1,
    ),
    "two of three apart": Row(
        np.stack([still(0, 0, 0, 1), still(0, 0, 1, 1), coins(5)], axis=2),
        None,
        "apart apart ok",
        "'k' disagrees between chains: 2 of its 3 elements never moved within a chain and differ from",
        2,
    ),
    "labels": Row(
        np.where(np.arange(CHAINS)[:, None, None] == 3, 1 - LABELS, LABELS) ^ coins(6, 30, p=0.02),
        None,
        " ".join(["labels"] * 30),
        "'k' differs between chains by labels only",
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_log_the_table_and_the_plot_agree(name, log):
    """Of each kind of run: what is logged, the verdicts, and where the plot has a cross."""
    row = ROWS[name]
    shape = row.draws.shape[2:]
    dims = {"k": ["who"]} if shape else {}
    coords = {"who": list("abcdefghijklmnopqrstuvwxyzABCD")[: shape[0]]} if shape else {}
    with pm.Model(coords=coords) as model:
        pm.Categorical("k", np.full(2, 0.5), dims=dims.get("k"))
    lp = np.random.default_rng(1).normal(size=row.draws.shape[:2]) * 0.01 + np.array(row.lp)[:, None]
    tree = from_dict({"posterior": {"k": row.draws}, "sample_stats": {"lp": lp}}, coords=coords, dims=dims)
    check_convergence(tree, model, None if row.known is None else lambda: {"k": row.known})
    said = [line for line in log() if "'k'" in line]
    assert len(said) == bool(row.log), said
    assert not row.log or re.search(row.log, said[0])
    assert list(pmd.summary(tree)["verdict"]) == row.verdicts.split()
    assert Judge(tree).of("k").decided.suspect.sum() == row.suspect
    assert set(row.verdicts.split()) <= VERDICTS


@pytest.mark.parametrize(("among_models", "at"), [(True, 0.0), (False, 0.02)])
def test_what_holds_an_index_of_models_that_is_summed_out_is_read_where_chains_ended(among_models, at):
    """In a few draws the parameter of the other model was near, so that the mean is no small number."""
    of = known(0.0, summed=True, among_models=among_models)
    drawn = from_dict({"posterior": {"k": VISITS}})["posterior"].to_dataset()
    means = Dataset({"k": (("chain", "k value"), np.tile([0.98, 0.02], (CHAINS, 1)))})
    groups = {"conditionals": conditionals(drawn, {"k": of}), "probabilities": means}
    assert known_of(groups, "k", CHAINS).probability == pytest.approx(np.full((CHAINS, 1), at))


@pytest.mark.parametrize(
    ("rhat", "ess", "verdict", "in_modes"),
    [
        (1.009, 4_000.0, "ok", False),
        (1.011, 4_000.0, "slow", False),
        (1.0, 401.0, "ok", False),
        (1.0, 399.0, "slow", False),
        (1.49, 4_000.0, "slow", False),
        (1.51, 4_000.0, "slow", True),
        (np.inf, 4_000.0, "slow", True),
        (1.0, np.nan, "slow", False),
    ],
)
def test_limits_of_slow_mixing(rhat, ess, verdict, in_modes):
    """Those of PyMC's warnings, of four chains; and R-hat from which chains seem to be in modes."""
    often = np.full((CHAINS, 1), 10)
    found = decide(Movement(np.zeros_like(often), often, often, 1000), np.array([rhat]), np.array([ess]))
    assert found.verdict.tolist() == [verdict]
    assert found.in_modes.tolist() == [in_modes]


def test_a_chain_stands_still_by_chance():
    """Where it is one of very many elements, or is summed out and was improbable in this chain."""
    one = np.array([[0], [0], [0], [10]])  # in how many stretches it moved, in each chain
    few = np.where(np.arange(4)[:, None] == 3, 7, np.zeros((4, 2500), int))

    def stuck(stretches, known):
        movement = Movement(np.zeros_like(stretches), stretches, stretches, 1000)
        return stuck_chains(movement, known).any(axis=0)

    assert stuck(one, None).all()
    assert not stuck(one, known(1e-3, summed=True)).any()
    assert stuck(one, known(0.3, summed=True)).all()
    assert stuck(few[:, :1], None).all()
    assert not stuck(few, None).any()


def test_every_verdict_has_a_row():
    words = {word for row in ROWS.values() for word in row.verdicts.split()}
    assert words == VERDICTS - {"observed"}


def test_leaving_is_the_conditional():
    with pm.Model() as model:
        pm.Bernoulli("b", [3e-4, 0.3])
        pm.DiscreteUniform("d", 3, 3)
        k = pm.DiscreteUniform("k", 0, 6, shape=3)
        pm.Potential("nine", pt.switch(pt.eq(k.sum(), 9), 0.0, -np.inf))
    target, point = (
        pmd.target_from_model(model),
        {"b": np.array([0, 1]), "d": np.array(3), "k": np.array([3, 2, 4])},
    )
    found = leaving(target, model, [point, point], joint=False, complete=True)
    np.testing.assert_allclose(found["b"].probability, [[3e-4, 0.7]] * 2)
    np.testing.assert_array_equal(found["k"].probability, np.zeros((2, 3)))
    assert [found[name].several.tolist() for name in "bdk"] == [[True, True], [False], [True, True, True]]
    assert [found[name].joint for name in "bdk"] == [True, True, False]
    assert not leaving(target, model, [point], joint=False, complete=False)[
        "b"
    ].joint  # another step draws what may hold it


def test_leaving_of_sites_that_change_together():
    """The mean over pairs, by brute force; counts of which the product is known have no pair that moves."""
    with pm.Model() as model:
        pm.Multinomial("free", 3, [0.2, 0.3, 0.5])
        o = pmd.Permutation("o", 3)
        pm.Potential("first", pt.switch(pt.eq(o[0], 2), 0.0, -np.inf))
        k = pm.Multinomial("k", 4, [0.2, 0.3, 0.5])
        pm.Potential("product", pt.switch(pt.eq(k[0] * k[1] + 10 * k[2], 21), 0.0, -np.inf))
    point = {"free": np.array([1, 1, 1]), "o": np.array([2, 0, 1]), "k": np.array([1, 1, 2])}
    found = leaving(pmd.BlockGibbs(model=model).target, model, [point], joint=True, complete=True)

    p, pairs = np.array([0.2, 0.3, 0.5]), {0: [(0, 1), (0, 2)], 1: [(0, 1), (1, 2)], 2: [(0, 2), (1, 2)]}

    def moves(i, j):
        """How probable a transfer between i and j is: three ways to share two units."""
        stay, *others = (p[i] * p[j], p[i] ** 2 / 2, p[j] ** 2 / 2)
        return sum(others) / (stay + sum(others))

    np.testing.assert_allclose(
        found["free"].probability[0], [np.mean([moves(*ij) for ij in pairs[i]]) for i in range(3)], rtol=1e-5
    )
    np.testing.assert_allclose(found["o"].probability[0], [0, 0.25, 0.25], atol=1e-6)
    np.testing.assert_array_equal(found["k"].probability[0], np.zeros(3))
    assert all(of.several.all() and not of.joint for of in found.values())


def nine():
    """Nine, and no linear equation, along which BlockGibbs would move."""
    k = pm.DiscreteUniform("k", 0, 6, shape=3, initval=[3, 3, 3])
    pm.Potential("nine", pt.switch(pt.eq(k.sum() % 19, 9), 0.0, -np.inf))


def product():
    """Counts of which a product is known, too, which no transfer between two of them keeps."""
    k = pm.Multinomial("k", 4, [0.2, 0.3, 0.5], initval=[1, 1, 2])
    pm.Potential("product", pt.switch(pt.eq(k[0] * k[1] + 10 * k[2], 21), 0.0, -np.inf))


def rare():
    pm.Bernoulli("b", 3e-4)


def single():
    pm.DiscreteUniform("d", 3, 3)


ALONE = "other values have a probability below 1e-09"
IN_PAIRS = "no two counts can change together"


@pytest.mark.parametrize(
    ("build", "said"), [(nine, ALONE), (product, IN_PAIRS), (rare, None), (single, None)]
)
@pytest.mark.by_default("rare-None")
def test_what_never_moves_is_reported_by_both_samplers(build, said, log):
    with pm.Model():
        build()
        step = pmd.BlockGibbs()
        log()
        idata = pmd.sample(400, tune=10, chains=2, random_seed=1, step=step, progressbar=False)
        ours = [line for line in log() if "never moved" in line]
        pm.sample(
            400,
            tune=10,
            chains=2,
            cores=1,
            step=step,
            random_seed=1,
            **QUIET,
            **FAST,
        )
        theirs = [line for line in log() if "never moved" in line]
    assert all((a.values == a.values[:, :1]).all() for a in idata["posterior"].data_vars.values())
    assert len(ours) == bool(said)
    assert len(theirs) == 2 * bool(said)  # a step sees one chain
    if said:
        assert ours[0].startswith(
            f"'k' never moved in any chain, and all agree: given everything else, {said}"
        )
        assert theirs[0].startswith(
            f"'k' never moved in the 400 draws of a chain: given everything else, {said}"
        )
        assert set(pmd.summary(idata)["verdict"]) == {"constant"}


# ---------------------------------------------------------------- remedies
def counts_and_detection():
    p, N = pm.Uniform("p"), pm.Poisson("N", 20.0, shape=2)
    pm.Binomial("y", n=N, p=p, observed=[15, 12])


def counts_that_join_all():
    """A sum over all counts at once is too much work."""
    p, N = pm.Uniform("p"), pm.Poisson("N", 20.0, shape=40)
    pm.Normal("y", p * N.sum() + (N[1:] * N[:-1] ** 2).sum(), 1.0, observed=700.0)


@pytest.mark.parametrize(("build", "possible"), [(counts_and_detection, True), (counts_that_join_all, False)])
def test_a_sum_is_recommended_where_it_is_possible(build, possible, log):
    with pm.Model() as model:
        build()
    size = model["N"].type.shape[0]
    slow = walk(0.98, 1, size)
    draws = {"N": np.round(5 * slow + 30).astype(int), "p": 1 / (1 + np.exp(around(slow[..., 0], 0.05)))}
    stats = {"lp": np.random.default_rng(1).normal(size=(CHAINS, DRAWS))}
    check_convergence(from_dict({"posterior": draws, "sample_stats": stats}), model)
    (slowly, *tied) = [line for line in log() if "'N' mix" in line or "tied to" in line]
    assert tied
    for line in (slowly, *tied[:1]):
        assert ("pmd.sample(collapse=['N'])" in line) == possible


def counts_that_add_up(more):
    lam = pm.Gamma("lam", 2, 0.01)
    x = pm.Poisson("x", lam * np.array([0.5, 0.3, 0.2]))
    pm.Normal("a", x[0] + 2 * x[1], 1, observed=250)
    more()


@pytest.mark.parametrize(
    ("more", "step"),
    [
        (lambda: None, "step=pmd.CollapsedNUTS()"),
        (lambda: pm.Multinomial("m", 4, [0.3, 0.7]), "step=pmd.CollapsedNUTS(['lam', 'x'])"),
    ],
    ids=["all", "some"],
)
def test_the_step_that_sums_counts_out_can_be_made(more, step):
    with pm.Model() as model:
        counts_that_add_up(more)
        said = Remedies(model, {}).sum_out(["x"])
        assert said.endswith(f"pmd.sample(collapse=['x']), or {step}.")
        assert eval(step.removeprefix("step="), {"pmd": pmd}).summed == ["x"]


def test_what_cannot_be_summed_out_or_is_already_is_not_recommended(log):
    with pm.Model() as model:
        x, z = pm.Multinomial("x", 4, [0.3, 0.7]), pm.Bernoulli("z", 0.3)
        pm.Normal("u", z + x[0])
    assert not Remedies(model, {}).can_be_summed_out(["x", "z"])
    assert Remedies(model, {}).can_be_summed_out(["z"])
    slow = walk(0.98, 1, 2)
    z, first = (slow[..., 0] > 0).astype(int), np.clip(np.round(slow[..., 1] + 2), 0, 4).astype(int)
    stats = {"lp": np.random.default_rng(1).normal(size=(CHAINS, DRAWS))}
    draws = {"x": np.stack([first, 4 - first], axis=-1), "z": z, "u": slow[..., 0]}
    tree = from_dict({"posterior": draws, "sample_stats": stats})
    for used, said in ({}, True), ({"z": "SummedOut(z)"}, False), ({"z": "CollapsedNUTS(u, z)"}, False):
        check_convergence(tree, model, used=used)
        (slowly,) = [line for line in log() if "mix slowly" in line]
        assert ("sum 'z' out while NUTS moves: pmd.sample(collapse=['z'])" in slowly) == said
        assert "collapse=['x" not in slowly
        assert ("collapse=" in slowly) == said
        tied = Remedies(model, used).of_tie(["z"], two_valued=False)
        assert ("pmd.sample(collapse=['z'])" in tied) == said


def test_the_step_in_use_is_not_recommended():
    with pm.Model() as model:
        pm.Bernoulli("z", 0.5, shape=3)
        path = pmd.PathAuxiliary(["z"], path_length=5, recompute=True)
    others = "pmd.PathAuxiliary(path_length=5, recompute=True)"
    assert Remedies(model, {}).several_sites(["z"]) == others
    assert (
        Remedies(model, {"z": pmd.BlockGibbs(["z"], model=model).described()}).several_sites(["z"]) == others
    )
    used = Remedies(model, {"z": path.described()})
    assert used.of_hard_proposal(["z"], exact=True) == "Try pmd.BlockGibbs."
    assert "PathAuxiliary" not in used.several_sites(["z"])
    assert "PathAuxiliary" not in used.of_tie(["z"], two_valued=True)
    for step in (path, pmd.BlockGibbs(["z"], model=model)):
        remedies = Remedies(model, {"z": step.described()})
        for probability in (0.0, 0.3):
            known_of = known(probability, 3)
            words = words_of_still(known_of, np.ones(3, bool), DRAWS)
            odd = unexplained(known_of, words, CHAINS * DRAWS)
            why = why_still("z", known_of, (words == "stuck").any(), odd, remedies)
            assert why is not None
            assert f"Try pmd.{type(step).__name__}" not in why
            assert others not in why or step is not path


@pytest.mark.parametrize(
    ("through", "said"),
    [
        (pt.round, "through round"),
        (pt.floor, "through floor"),
        (lambda x: pt.cast(x, "int64"), "through integers"),
        (lambda x: pt.switch(np.arange(5) < x, 1.0, 2.0).sum(), "through a comparison"),
        (pt.exp, None),
        (lambda x: Assert("x is not finite")(x, pt.abs(x) < np.inf), None),
    ],
)
def test_what_has_no_gradient_is_named(through, said, log):
    with pm.Model() as model:
        x = pm.Normal("x", 0, 10)
        pm.Normal("mu", x)
        pm.Poisson("y", 1.0 + pt.abs(through(x)), observed=3)
    slow = {name: walk(0.99, n)[..., 0] for n, name in enumerate(["x", "mu"])}
    stats = {"lp": np.random.default_rng(1).normal(size=(CHAINS, DRAWS))}
    check_convergence(from_dict({"posterior": slow, "sample_stats": stats}), model)
    (line,) = [line for line in log() if line.startswith("Slow")]
    assert ("pmd.ReparameterizedSlice(['x'])" in line) == (said is not None)
    assert said is None or said in line


def test_elements_have_the_names_of_the_table(log):
    """Coordinates, where there are some."""
    with pm.Model(coords={"who": ["a", "b"]}) as model:
        pm.Normal("x", dims="who")
        pm.Poisson("N", 5.0, dims="who")
    slow = walk(0.98, 1, 2)
    draws = {"x": around(slow, 0.05), "N": np.round(9 * slow + 40).astype(int)}
    stats = {"lp": np.random.default_rng(1).normal(size=(CHAINS, DRAWS))}
    dims = {"x": ["who"], "N": ["who"]}
    tree = from_dict({"posterior": draws, "sample_stats": stats}, coords={"who": ["a", "b"]}, dims=dims)
    check_convergence(tree, model)
    said = " ".join(log())
    assert "'x[a]'" in said
    assert "'N[b]' is tied to 'x[b]'" in said
    assert not re.search(r"\[\d\]", said)
    assert {"N[a]", "N[b]"} == set(pmd.summary(tree).index)


# ---------------------------------------------------------------- ties
def walk(share, seed, size=1):
    """(chains, draws, size) autoregressive series."""
    out, rng = np.zeros((CHAINS, DRAWS, size)), np.random.default_rng(seed)
    for t in range(1, DRAWS):
        out[:, t] = share * out[:, t - 1] + rng.normal(size=(CHAINS, size))
    return out


def around(x, scale=0.3):
    return x + scale * np.random.default_rng(9).normal(size=x.shape)


SLOW_WALK, QUICK = walk(0.98, 1)[..., 0], walk(0.0, 2)[..., 0]
PARTS = walk(0.98, 3, 3)
PARTS -= PARTS.mean(-1, keepdims=True)
TIED = [
    # counts, continuous series; what is said
    (
        {"'N'": np.round(10 * SLOW_WALK)},
        {"'p'": -np.exp(0.2 * around(SLOW_WALK))},
        r"'N' is tied to 'p' \(correlation -",
    ),
    ({"'N'": np.round(10 * QUICK)}, {"'p'": around(QUICK, 0.1)}, None),  # tied, and yet quick
    ({"'N'": np.round(10 * SLOW_WALK)}, {"'p'": QUICK}, None),
    ({"'N'": np.zeros((CHAINS, DRAWS))}, {"'p'": QUICK}, None),
    (
        {f"the sum of '{n}'": np.round(10 * PARTS[..., i]) for i, n in enumerate("abc")},
        {},
        r"The sum of 'a', the sum of 'b', the sum of 'c' are tied to one another: their total varies little",
    ),
    ({f"'{n}'": np.round(10 * walk(0.98, seed)[..., 0]) for seed, n in enumerate("ab")}, {}, None),
]


def no_advice(names, two_valued):
    return ""


def test_counts_of_one_multinomial_are_not_tied_to_one_another():
    """Their sum is known, and so is their correlation; to those of another one they may be tied."""
    of_first = np.round(10 * SLOW_WALK)
    counts = {"x[0]": of_first, "x[1]": 50 - of_first, "y[0]": np.round(10 * around(SLOW_WALK))}
    rows = {"x[0]": "x", "x[1]": "x", "y[0]": "y"}
    assert ties({k: counts[k] for k in ("x[0]", "x[1]")}, {}, no_advice, rows) == []
    (tie,) = ties(counts, {}, no_advice, rows)
    assert sentence(tie).startswith("Y[0] is tied to x[0]")
    one_only = {"x[0]": counts["x[0]"], "y[0]": counts["y[0]"]}
    assert ties(one_only, {}, no_advice, rows)[0].names == tie.names[:2]


def test_a_weighted_sum_of_counts_is_named():
    """One unknown follows what animals that were taken for others add up to, and another one does not."""
    rng = np.random.default_rng(5)
    free = walk(0.9, 7, 8) * 60
    free[..., 2] = 30 * SLOW_WALK - 2 * free[..., 5]  # each alone says little of 1 x[2] + 2 x[5]
    counts = {f"'x[{i}]'": np.round(free[..., i]) for i in range(8)}
    follows = np.exp(0.03 * (SLOW_WALK + 0.1 * rng.normal(size=SLOW_WALK.shape)))
    (tie,) = weighted_sums(counts, {"'p'": follows, "'q'": walk(0.98, 11)[..., 0], "'r'": QUICK}, no_advice)
    assert set(tie.names) == {"'p'", "'x[2]'", "'x[5]'"}
    assert "'p' is tied to a weighted sum of" in sentence(tie)


@pytest.mark.parametrize("seed", range(20))
def test_of_slow_series_no_sum_fits_by_chance(seed):
    counts = {f"{i}": np.round(10 * walk(0.97, 100 + seed, 30)[..., i]) for i in range(30)}
    assert weighted_sums(counts, {"'q'": walk(0.98, 900 + seed)[..., 0]}, no_advice) == []


@pytest.mark.parametrize(("counts", "others", "said"), TIED)
def test_ties_are_named_where_they_slow(counts, others, said):
    found = ties(counts, others, no_advice)
    assert len(found) == (said is not None)
    assert said is None or re.match(said, sentence(found[0]))


@pytest.mark.parametrize("nominal", [False, True])
def test_ties_of_a_model_name_sums_and_elements(nominal, log):
    slow, other = walk(0.98, 5, 2), walk(0.0, 6, 8)
    counts = np.concatenate([np.round(3 * slow), np.round(30 * other)], axis=2) + 500
    with pm.Model() as model:
        pm.Categorical("n", np.full(1000, 1e-3), shape=10) if nominal else pm.Poisson("n", 5.0, shape=10)
        pm.Poisson("total", 5.0)
        pm.Normal("mu", shape=(2, 2))
    draws = {
        "n": counts.astype(int),
        "total": np.round(9 * slow[..., 1]).astype(int),
        "mu": np.concatenate([other[..., :2], around(slow, 0.1)], axis=2),
    }
    draws["mu"] = draws["mu"].reshape(CHAINS, DRAWS, 2, 2)
    check_convergence(
        from_dict({"posterior": draws, "sample_stats": {"lp": np.zeros((CHAINS, DRAWS))}}), model
    )
    said = [line.split(" (")[0] for line in log() if "tied to" in line]
    # the sum of "n" is quick, and the values of a category count nothing
    elements = [] if nominal else ["'n[0]' is tied to 'mu[1, 0]'", "'n[1]' is tied to 'mu[1, 1]'"]
    assert sorted(said) == [*elements, "'total' is tied to 'mu[1, 1]'"]


@pytest.mark.parametrize("tuning_steps", [0, 500])
def test_without_tuning_the_remedy_is_to_tune(tuning_steps, log):
    with pm.Model() as model:
        pm.Normal("a")
    draws = np.random.default_rng(3).normal(size=(CHAINS, DRAWS))
    stats = {"lp": draws, "diverging": draws > 1, "reached_max_treedepth": draws > 0, "tree_depth": 0 * draws}
    groups = {"posterior": {"a": draws}, "sample_stats": stats}
    attrs = {name: {"tuning_steps": tuning_steps} for name in groups}
    check_convergence(from_dict(groups, attrs=attrs), model)
    about_nuts = [line for line in log() if "divergences" in line or "tree depth" in line]
    assert len(about_nuts) == 2
    for line in about_nuts:
        assert ("target_accept" in line) == (tuning_steps > 0)
        assert ("Nothing was tuned, neither step size nor mass matrix" in line) == (tuning_steps == 0)


def waterbuck():
    p, N = pm.Uniform("p", initval=0.3), pm.NegativeBinomial("N", mu=300.0, alpha=1.0, initval=200)
    pm.Binomial("y", n=N, p=p, observed=[53, 57, 66, 67, 72])


def separate():
    p, N = pm.Uniform("p"), pm.Poisson("N", 200.0)
    pm.Binomial("y", n=100, p=p, observed=[53, 57, 66, 67, 72])
    pm.Normal("x", N, 3.0, observed=190.0)


@pytest.mark.parametrize(("build", "said"), [(waterbuck, True), (separate, False)])
@pytest.mark.by_default("separate-False")
def test_a_chain_of_pm_sample_names_its_ties(build, said, log):
    with pm.Model() as model:
        build()
        step = pmd.BlockGibbs("N")
    step.setup_chain(np.random.default_rng(1), tune=0, draws=500)
    point, rng = model.initial_point(), np.random.default_rng(2)
    log()
    for _ in range(500):
        N = point["N"]
        p = rng.beta(1 + 315, 1 + 5 * N - 315) if said else rng.beta(316, 186)
        point, _ = step.step({**point, "p_interval__": np.log(p / (1 - p))})
    found = [line for line in log() if "tied to" in line]
    assert len(found) == said
    assert not said or found[0].startswith("'N' is tied to 'p' (correlation -0.9")


# ---------------------------------------------------------------- where the density ends
def about_one():
    e = pt.exp(pm.Normal("u", 0, 1, shape=3))
    pm.Categorical("z", p=(e + 1e-5) / e.sum(), shape=4)  # sums to 1 within 1e-5 where e.sum() > 3 only


def cut():
    u = pm.Normal("u", 0, 1, shape=3)
    pm.Potential("cut", pt.switch(u.sum() > 0, 0.0, -np.inf))


EDGES = [
    (
        about_one,
        50,
        r"50 of 1000 trajectories .* log density is -inf, through 'z': .* of 'u'\. "
        "The p of 'z' must sum to 1",
    ),
    (
        cut,
        50,
        r"50 of 1000 trajectories .* log density is -inf, through 'cut': .* of 'u'\. "
        "Write the model without it",
    ),
    (cut, 5, None),
]


@pytest.mark.parametrize(("build", "count", "said"), EDGES)
def test_an_edge_of_the_density_is_named(build, count, said):
    with pm.Model() as model:
        build()
        block = NutsBlock(model, ["u"], model.initial_point(), Points([]), 10, 0.8, **DEFAULTS)
    state = block.start({})._replace(
        edge=Edge(np.array([0, count]), np.array([np.zeros(3), np.full(3, -3.0)]))
    )
    points = {name: np.stack([value, value]) for name, value in model.initial_point().items()}
    found = block.conclusions(state, points, 1000)
    assert len(found) == (said is not None)
    assert said is None or re.match(said, found[0])


@pytest.mark.slow
def test_steps_beyond_the_edge_are_counted(log):
    with pm.Model():
        about_one()
        idata = pmd.sample(
            300, tune=200, chains=2, random_seed=1, initvals={"u": np.ones(3)}, progressbar=False
        )
    (line,) = [line for line in log() if "log density is -inf" in line]
    divergences = int(idata["sample_stats"]["diverging"].sum())
    assert line.startswith(f"{divergences} of 600 trajectories")  # all of them
    assert divergences > 60


def test_of_very_many_elements_some_stand_still_by_chance():
    """A site that should have moved eight times stands still once in 3,000; of 20,000 some do."""
    n, still = 20_000, np.zeros(20_000, bool)
    still[7] = True
    for moves, word in ((8.0, "constant"), (30.0, "stuck")):
        probability = np.full((CHAINS, n), moves / (CHAINS * DRAWS))
        of_sites = Leaving(np.ones(n, bool), probability, joint=True)
        assert words_of_still(of_sites, still, DRAWS)[7] == word


def test_a_variable_that_also_enters_smoothly_has_a_gradient():
    with pm.Model() as model:
        place, x, y = pm.Uniform("place", 0, 5), pm.Normal("x"), pm.Normal("y")
        pm.Normal("z", pt.switch(np.arange(5) < place, 0.0, x), 1, observed=np.arange(5.0))
        pm.Potential("sides", pt.switch(x > 0, pt.exp(-x), 1 - x) + pt.round(y))
        pm.OrderedProbit("w", pm.Normal("eta"), [0.0, 1.0], observed=[0, 1])
    assert Remedies(model, {}).without_gradient == {"place": "a comparison", "y": "round"}
