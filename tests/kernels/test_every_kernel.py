"""What holds for every kernel: it leaves the target as it is, and reaches all of it.

The kernels of all methods are here, with the options that they have by default. A line is for others.

The exact transition matrices of the papers' kernels are in their own files, beside what the compiled kernels
do from every state.
"""

import jax
import jax.numpy as jnp
import pytest

import pymc_discrete as pmd
from pymc_discrete.collapse.at_once import sums_at_once
from pymc_discrete.kernels import (
    block_gibbs,
    discrete_langevin,
    gibbs_with_gradients,
    path_auxiliary,
    swendsen_wang,
    tree_gibbs,
)
from pymc_discrete.kernels.kernel import State
from pymc_discrete.kernels.metropolis import Proposed, metropolis
from tests.models import SMALL, binary, bounded, categorical, five, mixed
from tests.tools.enumeration import check_kernel, small
from tests.tools.methods import others

KERNELS = {
    "gibbs with gradients": gibbs_with_gradients(),
    "gibbs with gradients, several": gibbs_with_gradients(2.5),
    "path auxiliary": path_auxiliary(path_length=2),
    "path auxiliary, recomputed": path_auxiliary(path_length=2, recompute=True),
    "langevin": discrete_langevin("dlp", 0.5),
    "langevin in continuous time": discrete_langevin("dlmc", 0.5),
    "block gibbs": block_gibbs(),
    "tree gibbs": tree_gibbs(),
    "tree gibbs, all at once": tree_gibbs(sums_at_once),
    "swendsen-wang": swendsen_wang(),
    "swendsen-wang, at times": swendsen_wang(0.4),
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
KERNELS |= {name: step.method_class().kernel() for name, step in OTHERS.items()}
# Clusters, and sites that are drawn all at once, need targets of one kind. One of three kinds is enough for
# kernels that are compared with an enumeration in files of their own.
OWN = {
    "tree gibbs, all at once": (bounded,),
    "swendsen-wang": (categorical,),
    "swendsen-wang, at times": (five,),
}
CASES = [(name, build) for name in KERNELS for build in OWN.get(name, SMALL if name in OTHERS else (mixed,))]
# With two values a proposal is as probable as the one back, so that a wrong ratio of them is not seen there.
BY_DEFAULT = ["langevin", *OTHERS]


@pytest.mark.parametrize(("name", "build"), CASES, ids=[f"{name}-{build.__name__}" for name, build in CASES])
@pytest.mark.by_default(*(f"{name}-mixed" for name in BY_DEFAULT), "swendsen-wang-categorical")
def test_leaves_the_target_as_it_is_and_reaches_all_of_it(name, build):
    check_kernel(small(build, "exact"), *KERNELS[name])


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
