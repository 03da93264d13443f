"""How a state moves: pure JAX transitions on any target."""

from pymc_discrete.kernels.block_gibbs import block_gibbs
from pymc_discrete.kernels.gibbs_with_gradients import gibbs_with_gradients
from pymc_discrete.kernels.kernel import Info, Kernel, State, loop

__all__ = ["Info", "Kernel", "State", "block_gibbs", "gibbs_with_gradients", "loop"]
