"""Random models, written as users write them, against enumeration; planted errors are found."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor.random.basic as prb
import pytest

from pymc_discrete.collapse import elimination
from pymc_discrete.differences.parts import tables
from pymc_discrete.model import masks, support
from pymc_discrete.space import constraints
from pymc_discrete.structure.ops import subtensors
from tests.tools.random_checks import LeftOut, check_model
from tests.tools.random_models import random_model

# in which, with those below, every kind of unknown, operation and term enters a log density
SEEDS = (
    *(1, 2, 5, 8, 11, 13, 14, 15, 17, 18, 19, 20, 24, 27, 29, 31, 32, 34, 38, 39),
    *(40, 42, 44, 45, 46, 48, 50, 53, 58, 59),
)
PIECE = 10
# beyond these: a slice up to a sum of another slice; matrix products of no rows (twice); a count divided by
# itself clipped, 0 / 0 in one state
FAILED_ONCE = (602, 619, 1018, 2177)
SUMMED = 4  # of so many models the discrete unknowns of one are summed out, too


def checks_of(seed):
    return ("differences", "equations", "sums") if seed % SUMMED == 0 else ("differences", "equations")


@pytest.mark.parametrize("first", range(0, len(SEEDS), PIECE))
@pytest.mark.slow
def test_random_models(first):
    """Differences, conditionals and sums; `python -m tests.tools.random_checks` looks at more of them."""
    refused, left_out = [], 0
    for seed in SEEDS[first : first + PIECE]:
        try:
            refused += check_model(random_model(seed), seed, checks_of(seed))
        except LeftOut:
            left_out += 1
        except Exception as error:
            error.add_note(f"Seed {seed}:\n{random_model(seed).source}")
            raise
    assert left_out <= PIECE // 4
    assert len(refused) <= PIECE // 10, refused


@pytest.mark.parametrize("seed", FAILED_ONCE)
@pytest.mark.slow
def test_models_that_once_failed(seed):
    assert not check_model(random_model(seed), seed)


# ---------------------------------------------------------------- planted errors
def a_bound_too_tight(monkeypatch):
    rule = support._rules[prb.BinomialRV]

    def tight(rv):
        low, high = rule(rv)
        return low, high if high is None else np.maximum(high - 1, 0)

    monkeypatch.setitem(support._rules, prb.BinomialRV, tight)


def transposed_tables(monkeypatch):
    right = tables.Pair.tables

    def transposed(self, arrays):
        joint, (one, other) = right(self, arrays)
        if self.widths[0] == self.widths[1]:
            one = tables.TablesOfSide(one.sites_first.mT, jnp.swapaxes(one.sites_last, 1, 2))
        return joint, (one, other)

    monkeypatch.setattr(tables.Pair, "tables", transposed)


def a_term_left_out(monkeypatch):
    right = tables.Tables.context

    def without_one(self, arrays):
        context = right(self, arrays)
        return context._replace(unary=dict(list(context.unary.items())[1:]))

    monkeypatch.setattr(tables.Tables, "context", without_one)


def an_index_off_by_one(monkeypatch):
    right = subtensors.inside
    monkeypatch.setattr(subtensors, "inside", lambda index, n: jnp.minimum(right(index, n) + 1, n - 1))


def moves_that_break_a_sum(monkeypatch):
    monkeypatch.setattr(
        constraints.FixedSums, "kept", lambda self, values, now: jnp.ones(values.shape[:2], bool)
    )


def a_mask_too_long(monkeypatch):
    right = masks.Cut.mask
    monkeypatch.setattr(masks.Cut, "mask", lambda self, ndim: right(self._replace(end=self.end + 1), ndim))


def a_sum_without_its_last_value(monkeypatch):
    right = elimination.logsumexp

    def short(a, axis):
        return right(jax.lax.slice_in_dim(a, 0, max(a.shape[axis] - 1, 1), axis=axis), axis)

    monkeypatch.setattr(elimination, "logsumexp", short)


# with the first seed that finds each
PLANTED = (
    (a_bound_too_tight, 0),
    (transposed_tables, 2),
    (a_term_left_out, 0),
    (an_index_off_by_one, 0),
    (moves_that_break_a_sum, 8),
    (a_mask_too_long, 233),
    (a_sum_without_its_last_value, 28),
)


@pytest.mark.parametrize(
    ("plant", "seed"), [pytest.param(*planted, id=planted[0].__name__) for planted in PLANTED]
)
@pytest.mark.by_default("a_bound_too_tight", "moves_that_break_a_sum")
def test_planted_errors_are_found(plant, seed, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"outside of|difference|log density"):
        check_model(random_model(seed), seed, checks_of(seed))
