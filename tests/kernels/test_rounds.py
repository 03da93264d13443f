"""How many turns a sweep takes with sites that change together."""

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.kernels import block_gibbs, rounds
from pymc_discrete.kernels.block_gibbs import BlockGibbs, taking_turns
from pymc_discrete.kernels.rounds import COMPUTATION, Round, numbers_of_turns
from tests.kernels.test_fixed_sums import four_cells, sets_matrix
from tests.tools.enumeration import check_runs, check_sweep, enumerate_target, run_steps


def costing(fewest, full, cost):
    return Round(fewest, full, 1, cost - COMPUTATION)


def test_all_turns_where_that_is_cheap():
    assert numbers_of_turns([costing(1, 9, 1e4), costing(2, 30, 2e4), costing(1, 1, 1e9)]) == [9, 30, 1]


def test_the_same_share_of_each_round_else(monkeypatch):
    each = [costing(1, 100, 1e4), costing(3, 300, 2e4), costing(50, 60, 1e3)]
    monkeypatch.setattr(rounds, "CHEAP_ROUND", (100 * 1e4 + 300 * 2e4 + 60 * 1e3) / 4)
    assert numbers_of_turns(each) == [25, 75, 50]
    # never fewer than the fewest
    assert numbers_of_turns([costing(1, 100, np.inf), costing(7, 70, 1e4)]) == [1, 7]
    assert numbers_of_turns([]) == []


@pytest.fixture
def three_kinds():
    """A ranking, counts with a fixed sum, indicators of one of several categories, and counts that add up."""
    with pm.Model() as model:
        x = pmd.Permutation("x", 6, np.random.default_rng(0).normal(size=(6, 6)))
        pm.Multinomial("c", 5, np.full(4, 0.25))
        pm.Multinomial("one", 1, np.full(4, 0.25))
        t = pm.Poisson("t", 2.0, shape=(2, 3))
        sums = pt.concatenate([t.sum(axis=0), t.sum(axis=1)])
        pm.Potential("e", pt.switch(pt.all(pt.eq(sums, [4, 3, 2, 5, 4])), 0.0, -np.inf) + 0.1 * x[0])
    return model


def test_what_a_sweep_moves(three_kinds, caplog):
    with caplog.at_level(logging.INFO, "pymc.discrete"), three_kinds:
        step = pmd.BlockGibbs()
    lines = step.target.space.variables[-1].constraint
    short = lines.lines(lines.moving).number.max()
    moves = step.method.joint_moves(step.target)
    assert moves == {"x": 5, "c": 3, "t": short + 1}
    for name, number in moves.items():
        assert any(f"{name!r}" in text and f"; {number} moves of" in text for text in caplog.messages)
    assert not any("'one'" in text and " moves of" in text for text in caplog.messages)
    # what the host counts by, to choose how many sweeps make a draw: one computation for each turn
    assert step.method.computations(step.target) == 1 + sum(moves.values())


def test_a_long_round_is_cut_short(three_kinds, monkeypatch):
    def moves():
        with three_kinds:
            step = pmd.BlockGibbs()
        return step.method.joint_moves(step.target), step.method.operations(step.target)

    whole, operations = moves()
    monkeypatch.setattr(rounds, "CHEAP_ROUND", 1.0)
    least, fewer = moves()
    assert set(least) == {"t"}
    assert 1 < least["t"] <= whole["t"]
    assert fewer < operations


def test_many_places_are_matched_in_part():
    """As docs/permutations.md says."""
    with pm.Model():
        pmd.Permutation("x", 1000, np.zeros((1000, 1000)))
        step = pmd.BlockGibbs()
    assert step.method.joint_moves(step.target) == {"x": 22}


def test_part_of_a_round_leaves_the_target_as_it_is(monkeypatch):
    """Two of three matchings."""
    with pm.Model() as model:
        ranges, _ = four_cells()
    e = enumerate_target(pmd.target_from_model(model, ["x"]), ranges)
    ((together, turns),) = taking_turns(e.target)
    assert turns == 3
    monkeypatch.setattr(rounds, "CHEAP_ROUND", 2.5 * together.round.cost)
    P = sets_matrix(e, [np.arange(4)], 2)
    check_sweep(e.pi, P, P)
    check_runs(run_steps(e, *block_gibbs(), runs=5_000, seed=1), P)


def test_functions_of_unknown_cost_move_once():
    with pm.Model() as model:
        pmd.Permutation("x", 4)
    target = pmd.target_from_model(model, ["x"])
    assert BlockGibbs().joint_moves(target) == {"x": 3}
    target = pmd.target_from_logdensity(target.logdensity, target.space)
    assert BlockGibbs().joint_moves(target) == {}
