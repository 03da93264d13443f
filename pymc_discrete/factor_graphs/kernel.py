"""Perturb-and-max-product as a kernel: draws of a target that is a factor graph. Biased."""

from typing import Any

import jax.numpy as jnp

from pymc_discrete.factor_graphs.perturb_and_map import pmp
from pymc_discrete.kernels.kernel import Info, Kernel, State, evaluate


def perturb_and_max_product(n_sweeps: int = 200, damping: float = 0.5) -> tuple[Kernel, dict[str, float]]:
    """The perturb-and-max-product kernel: every step is a new draw, whatever the state was (`pmp`). Its draws are biased.

    Where max-product has ended at a configuration that the model excludes, the state stays, and the step counts as not accepted.

    Parameters
    ----------
    n_sweeps, damping : of `pmp`

    Returns
    -------
    kernel : Kernel
    params : {"approximate": 1.0}

    References
    ----------
    Lazaro-Gredilla, Dedieu and George 2021, Algorithm 1.
    """

    def sweeper(target):
        from pymc_discrete.factor_graphs.from_model import Extraction  # which knows PyMC

        graph = Extraction.of(target.density).graph(target)

        def sweep(key, x, params):
            y = pmp(key, graph, n_sweeps=n_sweeps, damping=damping).x
            possible = graph.logdensity(y) > -jnp.inf
            return jnp.where(possible, y, x).astype(x.dtype), Info(possible + 0.0, possible + 0.0, jnp.asarray(target.space.d))

        return sweep

    def init(x, target) -> State:
        return evaluate(jnp.asarray(x), target, lambda x, differences, space: ())

    def step(key, state: State, target, params: Any) -> tuple[State, Info]:
        x, info = sweeper(target)(key, state.x, params)
        return init(x, target), info

    def refresh(state: State, target) -> State:
        return init(state.x, target)

    return Kernel(init, step, refresh, sweeper=sweeper), {"approximate": 1.0}
