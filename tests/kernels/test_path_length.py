"""How many moves a proposal has: the probability of each number, over a grid of both uniforms."""

import numpy as np
import pytest

import pymc_discrete as pmd
from pymc_discrete.kernels.path_length import PathLength
from tests.tools.interpreted import interpreted
from tests.tools.transition_matrices import count_probabilities

CELLS = 60  # the ends of all intervals are among the ends of so many cells


@pytest.mark.parametrize(
    ("option", "mean", "wanted"),
    [
        *((mean, mean, count_probabilities(mean)) for mean in (1, 2, 2.5, 3)),
        ("adapt", 2.5, count_probabilities(2.5)),
        ((3, 4), 3.5, {1: 1 / 6, 3: 5 / 12, 4: 5 / 12}),
        ((2, 2), 2.0, {1: 1 / 3, 2: 2 / 3}),
    ],
    ids=["1", "2", "2.5", "3", "adapt", "3 to 4", "2 or 1"],
)
def test_every_number_of_moves_has_its_probability(option, mean, wanted):
    lengths = PathLength("n_flips", option, 100)
    u, v = np.meshgrid(*[(np.arange(CELLS) + 0.5) / CELLS] * 2)
    drawn = interpreted(lambda u, v: lengths.draw(u, v, mean))(u, v)
    shares = {n: (drawn == n).mean() for n in np.unique(drawn)}
    assert shares == pytest.approx(wanted)
    space = pmd.Space.build({"x": (np.zeros(5), np.ones(5))})
    assert lengths.most(space) == max(wanted)


@pytest.mark.parametrize(("sites", "bounds"), [(1, (1, 1)), (2, (1, 1)), (5, (1.5, 2.5)), (400, (1.5, 100))])
def test_a_tuned_mean_is_at_most_half_of_the_sites(sites, bounds):
    space = pmd.Space.build({"x": (np.zeros(sites), np.ones(sites))})
    lengths = PathLength("n_flips", "adapt", 100)
    assert lengths.tuned.bounds(space) == bounds
    assert lengths.most(space) == 2 * np.ceil(bounds[1]) - 1
