"""What holds for every kernel: it leaves the target as it is, and reaches all of it.

Kernels that accept or reject single steps are not here: from every state of targets of every kind their
compiled steps are compared, in files of their own, with a matrix that leaves the target as it is and reaches
all of it. One of them is, which shows that the check passes such a kernel. Sweeps are compared so too, but
not the draws of several sweeps, which are made in a way of their own. A method that has no line here is found
by itself, with the options that it has by default.
"""

import jax
import jax.numpy as jnp
import pytest

import pymc_discrete as pmd
from pymc_discrete.collapse.at_once import sums_at_once
from pymc_discrete.kernels import block_gibbs, discrete_langevin, swendsen_wang, tree_gibbs
from pymc_discrete.kernels.kernel import State
from pymc_discrete.kernels.metropolis import Proposed, metropolis
from tests.models import SMALL, binary, bounded, categorical, mixed
from tests.tools.enumeration import check_kernel, small
from tests.tools.methods import others

# Sites that are drawn all at once, and pairs of sites with clusters, are those of other models. The sweeps of
# forests are made as those of "block gibbs" are.
KERNELS = {
    "langevin": (mixed, discrete_langevin("dlp", 0.5)),
    "block gibbs": (mixed, block_gibbs()),
    "tree gibbs, all at once": (bounded, tree_gibbs(sums_at_once)),
    "swendsen-wang": (categorical, swendsen_wang()),
}
IN_LINES = (
    pmd.GibbsWithGradients,
    pmd.PathAuxiliary,
    pmd.DiscreteLangevin,
    pmd.BlockGibbs,
    pmd.TreeGibbs,
    pmd.SwendsenWang,
    pmd.PerturbAndMaxProduct,  # its draws are biased
)
OTHERS = others(*IN_LINES)
KERNELS |= {
    f"{name}-{build.__name__}": (build, step.method_class().kernel())
    for name, step in OTHERS.items()
    for build in SMALL
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.by_default("langevin", "swendsen-wang", *(f"{name}-mixed" for name in OTHERS))
def test_leaves_the_target_as_it_is_and_reaches_all_of_it(name):
    build, kernel = KERNELS[name]
    check_kernel(small(build, "exact"), *kernel)


def test_the_check_sees_an_unadjusted_kernel():
    """Of Langevin without accept or reject, whose bias is large at a long step."""
    with pytest.raises(AssertionError, match="not distributed as those before"):
        check_kernel(small(binary, "exact"), *discrete_langevin("dlp", 5.0, adjusted=False))


def test_the_check_sees_a_sweeper_that_stays():
    kernel, params = block_gibbs()
    stays = kernel._replace(
        sweeper=lambda target: lambda key, x, params: (x, kernel.sweeper(target)(key, x, params)[1])
    )
    with pytest.raises(AssertionError, match="a walk of draws"):
        check_kernel(small(binary, "exact"), stays, params)


def test_the_check_sees_a_kernel_that_keeps_parity():
    """Two flips in every step: the target is invariant, and half of its states are never reached."""

    def two_flips(key, target, state, params):
        sites = jax.random.choice(key, target.space.d, (2,), replace=False)
        y = state.x.at[sites].set(1 - state.x[sites])
        there = State(y, target.logdensity(y), target.differences(y), ())
        return Proposed(there, jnp.zeros(()), jnp.zeros(()), jnp.asarray(2))

    kernel = metropolis(two_flips, lambda x, differences, space: ())
    with pytest.raises(AssertionError, match="never comes to"):
        check_kernel(small(binary, "exact"), kernel, {})
