"""Kernels: pure JAX functions by which the state of a chain moves, for any target."""

from pymc_discrete.kernels.block_gibbs import block_gibbs
from pymc_discrete.kernels.discrete_langevin import discrete_langevin
from pymc_discrete.kernels.gibbs_with_gradients import gibbs_with_gradients
from pymc_discrete.kernels.kernel import Info, Kernel, State, loop
from pymc_discrete.kernels.path_auxiliary import path_auxiliary
from pymc_discrete.kernels.swendsen_wang import swendsen_wang
from pymc_discrete.kernels.tree_gibbs import tree_gibbs

__all__ = [
    "Info",
    "Kernel",
    "State",
    "block_gibbs",
    "discrete_langevin",
    "gibbs_with_gradients",
    "loop",
    "path_auxiliary",
    "swendsen_wang",
    "tree_gibbs",
]
