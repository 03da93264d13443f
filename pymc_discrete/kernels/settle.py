"""Moves a chain to the bulk of its target, for kernels that accept no move far away from it."""

from pymc_discrete.kernels.gibbs_with_gradients import gibbs_with_gradients
from pymc_discrete.kernels.kernel import loop
from pymc_discrete.kernels.path_auxiliary import path_auxiliary

MOST_STEPS = 1_000  # the largest number of transitions of one call


def settle(key, x, target):
    """(d,) int, x after d single-site proposals (at most `MOST_STEPS`), for use while tuning only.

    Hundreds of nats from the bulk of the target, the weights sqrt(t) of neighbouring states differ by so many
    orders of magnitude that every proposal is rejected. The weights t / (1 + t) are bounded, so the
    normalising constants of neighbouring states stay comparable and moves uphill are accepted (Zanella 2020,
    section 3.2).

    Parameters
    ----------
    x : (d,) int
    target : Target
    """
    if len(target.space.tied):
        # Sites that linear equations tie are moved by Gibbs sampling only, which rejects nothing, so no chain
        # is stuck.
        return x
    # a path of one move, which can also change sites that change only together
    together = target.space.constrained.any()
    kernel, params = (
        path_auxiliary(1, balancing="barker") if together else gibbs_with_gradients(balancing="barker")
    )
    return loop(kernel, key, kernel.init(x, target), target, params, min(target.space.d, MOST_STEPS))[0].x
