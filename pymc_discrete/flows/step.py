"""The step of a discrete flow: global moves, beside those of a local step."""

import zlib
from dataclasses import field
from typing import Any, ClassVar

import jax
import numpy as np
from pymc.step_methods.state import dataclass_state

from pymc_discrete.flows.flow import Flow
from pymc_discrete.flows.kernel import back_and_forth
from pymc_discrete.flows.process import check_same
from pymc_discrete.kernels import Kernel
from pymc_discrete.kernels.tuning import Learned
from pymc_discrete.steps.discrete import DiscreteStep, DiscreteStepState
from pymc_discrete.targets.names import shown

LOW = 0.01  # if a smaller share of the proposals is accepted, the user is warned


@dataclass_state
class FlowStepState(DiscreteStepState):
    turn: float = field(metadata={"frozen": True})
    digest: str = field(metadata={"frozen": True})


class FlowStep(DiscreteStep):
    r"""Back and forth through a discrete flow: proposals that lead from mode to mode.

    A transition takes the block's values x from time 1 back to `turn`, which forgets a part of them, and
    forth again along the flow, to x'. With the trajectories :math:`\tau` back from x to m and :math:`\tau'`
    forth from m to x' as auxiliary variables it is accepted with probability

    .. math:: \min\Bigl(1, \frac{\pi(x') \, B(\bar\tau' \mid x') \, F(\bar\tau \mid m)}
        {\pi(x) \, B(\tau \mid x) \, F(\tau' \mid m)}\Bigr)

    where a bar reverses a trajectory. This leaves the posterior as it is for any flow, well fitted or not,
    whose weights and times stay as they are: nothing of it is tuned.

    It stands beside a local step for the same variables, which does the fine work and reaches what the flow
    does not know: `step=[pmd.FlowStep(flow), pmd.BlockGibbs()]`, in `pm.sample` and in `pmd.sample`.

    Parameters
    ----------
    flow : Flow, as `fit_flow` returns it
        Of variables of the model, which the step moves.
    turn : float, a time of the flow's grid
        Where a proposal turns. At 0 everything is proposed anew; nearer to 1 less changes, and more is
        accepted.
    differences, transitions, start, integrate
        As in `GibbsWithGradients`. By default a draw makes one transition.
    model, rng, initial_point, compile_kwargs
        As in PyMC's own steps; `compile_kwargs` has no effect, since this step compiles through JAX.

    Attributes
    ----------
    target : Target
    kernel : Kernel
    params : {"flow": the weights of the network}
    transitions : int

    Raises
    ------
    TypeError, ValueError
        For what is no flow, a flow of other variables, shapes or supports than the model has, and a turn
        that is not on the flow's grid.

    Notes
    -----
    Sampler statistics: `flow_accept` (mean acceptance probability), `flow_accepted` (share accepted),
    `flow_n_moved` (sites that ended the draw at another value), `lp`.

    References
    ----------
    Andrieu, Lee and Livingstone 2020, A general perspective on the Metropolis-Hastings kernel, for moves
    along auxiliary trajectories.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     flow = pmd.fit_flow(draws=pmd.sample(chains=8))
    ...     idata = pmd.sample(step=[pmd.FlowStep(flow), pmd.BlockGibbs()])
    """

    name = "flow_step"
    shared = True
    summary: ClassVar[tuple[str, str, str]] = ("flow_accept", "flow_accepted", "flow_n_moved")
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "flow_accept": (np.float64, []),
        "flow_accepted": (np.float64, []),
        "flow_n_moved": (np.int64, []),
        "model_logp": (np.float64, []),
    }
    columns: ClassVar[dict[str, tuple[str, str, Any]]] = {"flow_accept": ("Flow accept", "0.2f", 0.0)}
    _state_class = FlowStepState

    def __new__(cls, flow: Any, *positional: Any, **options: Any) -> Any:
        if not isinstance(flow, Flow):
            raise TypeError(
                f"flow must be a Flow, as pmd.fit_flow(draws=...) and flow.given(data) return it, got "
                f"{type(flow).__name__}."
            )
        if options.get("blocked") is False:
            raise ValueError("A flow moves its variables together: leave out blocked=False.")
        return super().__new__(cls, flow.names, *positional, **options)

    def __init__(self, flow: Flow, *, turn: float = 0.0, **options: Any):
        self.flow, self.turn, self.digest = flow, turn, digest_of(flow)
        super().__init__(flow.names, **{"transitions": 1, **options})

    def options(self) -> dict[str, Any]:
        flow = self.flow
        parts = [flow.path, flow.source, flow.times, flow.network, jax.tree.leaves(flow.params)]
        return {**super().options(), "flow": parts}

    def check_density(self) -> None:
        remedy = "Fit a flow to draws of this model."
        check_same(self.flow.space, self.target.space, "the model", remedy)

    def _make_kernel(self) -> tuple[Kernel, dict[str, Any]]:
        return back_and_forth(self.flow, self.turn)

    def expected_moves(self) -> float:
        return float(self.target.space.d)

    def complaints(self, learned: Learned, tune_draws: int) -> list[str]:
        measured = learned.adaptation
        if tune_draws < 100 or measured.accept >= LOW:
            return []
        return [
            f"FlowStep: fewer than one in a hundred proposals of {shown(self._names)} was accepted in the "
            "second half of tuning: the flow does not fit the posterior. Fit it to more draws, of chains "
            "from dispersed starts, with more iterations or steps, or let it turn nearer to 1 (turn=)."
        ]


def digest_of(flow: Flow) -> str:
    """A checksum of what decides how a flow moves: its path, source, times, network and weights."""
    network = (getattr(flow.network, "__module__", ""), getattr(flow.network, "__qualname__", ""))
    leaves, structure = jax.tree.flatten(flow.params)
    shapes = [np.shape(a) for a in leaves]
    crc = zlib.crc32(repr((flow.path.name, flow.source, flow.times, network, structure, shapes)).encode())
    for a in leaves:
        crc = zlib.crc32(np.ascontiguousarray(a).tobytes(), crc)
    return f"{crc:08x}"
