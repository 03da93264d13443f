"""How a state moves: pure JAX transitions on any target."""

from pymc_discrete.kernels.discrete_langevin import discrete_langevin
from pymc_discrete.kernels.gibbs_with_gradients import gibbs_with_gradients
from pymc_discrete.kernels.kernel import Info, Kernel, State, loop
from pymc_discrete.kernels.path_auxiliary import path_auxiliary

__all__ = ["Info", "Kernel", "State", "discrete_langevin", "gibbs_with_gradients", "loop", "path_auxiliary"]
