"""Perturb-and-max-product as a kernel for targets that are factor graphs. Its draws are biased."""

import jax.numpy as jnp

from pymc_discrete.factor_graphs.from_model import Extraction
from pymc_discrete.factor_graphs.max_product import check_sweeps
from pymc_discrete.factor_graphs.perturb_and_map import pmp
from pymc_discrete.kernels.kernel import Info, Kernel
from pymc_discrete.kernels.sweeps import sweep_kernel


def perturb_and_max_product(n_sweeps: int = 200, damping: float = 0.5) -> tuple[Kernel, dict[str, float]]:
    """The perturb-and-max-product kernel: every step is a new draw by `pmp`, independent of the state.

    Its draws are biased. If max-product ends at a configuration of probability 0, the state stays, and the
    step counts as not accepted.

    Parameters
    ----------
    n_sweeps, damping : see `pmp`

    Returns
    -------
    kernel : Kernel
    params : {"approximate": 1.0}

    References
    ----------
    Lazaro-Gredilla, Dedieu and George 2021, Algorithm 1.
    """

    check_sweeps(n_sweeps, damping)

    def sweeper(target):
        graph = Extraction.of(target.density).graph(target)

        def sweep(key, x, params):
            y = pmp(key, graph, n_sweeps=n_sweeps, damping=damping).x
            possible = graph.logdensity(y) > -jnp.inf
            accepted = possible + 0.0
            info = Info(accept=accepted, accepted=accepted, n_moves=jnp.asarray(target.space.d))
            return jnp.where(possible, y, x).astype(x.dtype), info

        return sweep

    return sweep_kernel(sweeper), {"approximate": 1.0}
