"""A kernel that goes back and forth along a flow, and leaves any target invariant."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.flows.process import Process
from pymc_discrete.flows.simulate import back, forth
from pymc_discrete.kernels.kernel import Kernel, State
from pymc_discrete.kernels.metropolis import Proposed, metropolis
from pymc_discrete.runtime.checks import is_number


def back_and_forth(flow: Process, turn: float = 0.0) -> tuple[Kernel, dict[str, Any]]:
    r"""The kernel that goes back along a flow from x to a state m at time `turn`, and forth again to x'.

    The trajectories :math:`\tau` from x back to m and :math:`\tau'` forth to x' are auxiliary variables, and
    reversing both trajectories is an involution. With B the probabilities of steps back, F the probabilities
    of steps forth, and :math:`\bar\tau` the reversed trajectory, x' is accepted with probability

    .. math:: \min\Bigl(1, \frac{\pi(x') \, B(\bar\tau' \mid x') \, F(\bar\tau \mid m)}
        {\pi(x) \, B(\tau \mid x) \, F(\tau' \mid m)}\Bigr),

    which makes the kernel reversible for every network, trained or not, and for every grid of times. The
    ratio is the one in the thesis on discrete flow samplers, Algorithm 5, line 16. Section 4.4 of the thesis
    calls the ratio heuristic, since x' can be reached by many trajectories; it is exact, as the trajectory
    belongs to the proposal.

    Parameters
    ----------
    flow : Flow, whose source is factorised
    turn : float, one of the flow's times, except the last

    Returns
    -------
    kernel : Kernel
    params : {"flow": the weights of the network}, which do not change

    Raises
    ------
    ValueError
        For a time that is not on the grid, and for a source whose probabilities are unknown.

    References
    ----------
    Andrieu, Lee and Livingstone 2020, A general perspective on the Metropolis-Hastings kernel.
    """
    flow.check_factorised("go back along it")
    places = [k for k, t in enumerate(flow.times[:-1]) if is_number(turn) and np.isclose(t, turn)]
    if not places:
        shown = ", ".join(f"{t:.4g}" for t in flow.times[:-1])
        raise ValueError(f"turn must be one of the flow's times but the last, {shown}; got {turn!r}.")
    times = flow.times[places[0] :]

    def propose(key: Any, target: Any, state: State, params: Any) -> Proposed:
        key_back, key_forth = jax.random.split(key)
        used = replace(flow, params=params["flow"])
        x = (state.x - target.space.lower).astype(int)
        there = back(key_back, used, x, jnp.asarray(times))
        again = forth(key_forth, used, there.x, jnp.asarray(times))
        y = (again.x + target.space.lower).astype(state.x.dtype)
        proposed = State(y, target.logdensity(y), state.differences)
        return Proposed(
            proposed,
            there.log_backward + again.log_forward,
            again.log_backward + there.log_forward,
            (y != state.x).sum(),
        )

    def density_only(x: Any, target: Any) -> tuple[Any, Any]:
        return target.logdensity(x), jnp.zeros(())

    return metropolis(propose, at=density_only), {"flow": flow.params}
