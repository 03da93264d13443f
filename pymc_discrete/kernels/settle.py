"""The way to where a chain belongs, for kernels that accept nothing far from there."""

from pymc_discrete.kernels.gibbs_with_gradients import gibbs_with_gradients
from pymc_discrete.kernels.kernel import loop

LONGEST = 1_000


def settle(key, x, target):
    """(d,) int, x after one single move a site (or `LONGEST`), for use while tuning.

    Hundreds of nats from the bulk, the weights sqrt(t) of two neighbouring states have nothing in common, and
    all is rejected. The weights t / (1 + t) are bounded, so that a move uphill is accepted about as often as
    there are others (Zanella 2020, section 3.2).
    """
    kernel, params = gibbs_with_gradients(balancing="barker")
    return loop(kernel, key, kernel.init(x, target), target, params, min(target.space.d, LONGEST))[0].x
