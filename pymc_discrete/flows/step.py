"""The step of a discrete flow: global moves, beside those of a local step."""

import zlib
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import numpy as np

from pymc_discrete.flows.flow import Flow
from pymc_discrete.flows.kernel import back_and_forth
from pymc_discrete.flows.process import check_same
from pymc_discrete.kernels import Kernel
from pymc_discrete.kernels.method import Method
from pymc_discrete.steps.discrete import DiscreteStep

LOW_ACCEPTANCE = 0.01  # If a smaller share of the proposals is accepted, the user is warned.


@dataclass(frozen=True)
class BackAndForth(Method):
    """Proposals that lead back and forth through a flow, see `FlowStep`."""

    flow: Flow = field(repr=False)
    turn: float = 0.0
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", digest_of(self.flow))

    def options(self) -> dict[str, Any]:
        flow = self.flow
        parts = [flow.path, flow.source, flow.times, flow.network, jax.tree.leaves(flow.params)]
        return {"turn": self.turn, "digest": self.digest, "flow": parts}

    def check(self, target: Any) -> None:
        check_same(self.flow.space, target.space, "the model", "Fit a flow to draws of this model.")

    def kernel(self) -> tuple[Kernel, dict[str, Any]]:
        return back_and_forth(self.flow, self.turn)

    def expected_moves(self, space: Any, params: dict[str, Any]) -> float:
        return float(space.d)

    def complaint(self, accept: float, variables: str) -> str:
        if accept >= LOW_ACCEPTANCE:
            return ""
        return (
            f"FlowStep: fewer than one in a hundred proposals of {variables} was accepted in the second half "
            "of tuning: the flow does not fit the posterior. Fit it to more draws, of chains from dispersed "
            "starts, with more iterations or steps, or let it turn nearer to 1 (turn=)."
        )


class FlowStep(DiscreteStep):
    r"""Back and forth through a discrete flow: proposals that lead from mode to mode.

    A transition takes the block's values x from time 1 back to a state m at time `turn`, which forgets a part
    of them, and forth again along the flow, to x'. With the trajectories :math:`\tau` back from x to m and
    :math:`\tau'` forth from m to x' as auxiliary variables, x' is accepted with probability

    .. math:: \min\Bigl(1, \frac{\pi(x') \, B(\bar\tau' \mid x') \, F(\bar\tau \mid m)}
        {\pi(x) \, B(\tau \mid x) \, F(\tau' \mid m)}\Bigr)

    where B and F are the probabilities of steps back and forth, and a bar reverses a trajectory. Such
    transitions leave the posterior as it is for any flow, well fitted or not, whose weights and times do not
    change: the step does not tune the flow.

    The step stands beside a local step for the same variables, which makes the small moves, and reaches
    states that the flow does not know: `step=[pmd.FlowStep(flow), pmd.BlockGibbs()]`, in `pm.sample` and in
    `pmd.sample`.

    Parameters
    ----------
    flow : Flow, such as a result of `fit_flow`
        The flow's variables are variables of the model, which the step moves.
    turn : float, a time of the flow's grid
        Where a proposal turns. At 0 everything is proposed anew; nearer to 1 less changes, and more is
        accepted.
    differences, transitions, start, integrate
        Where differences come from, the transitions of a draw (by default one), where chains start, and the
        continuous variables that are integrated out, as for `GibbsWithGradients`.
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
        For an argument that is no flow, a flow of other variables, shapes or supports than the model has, and
        a turn that is not on the flow's grid.

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
    method_class = BackAndForth
    prefix = "flow_"
    columns: ClassVar[dict[str, tuple[str, str, Any]]] = {"flow_accept": ("Flow accept", "0.2f", 0.0)}

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
        super().__init__(flow.names, **{"flow": flow, "turn": turn, "transitions": 1, **options})

    @classmethod
    def option_names(cls) -> list[str]:
        return [name for name in super().option_names() if name != "flow"]


def digest_of(flow: Flow) -> str:
    """A checksum of all that determines the moves of a flow: its path, source, times, network and weights."""
    network = (getattr(flow.network, "__module__", ""), getattr(flow.network, "__qualname__", ""))
    leaves, structure = jax.tree.flatten(flow.params)
    shapes = [np.shape(a) for a in leaves]
    crc = zlib.crc32(repr((flow.path.name, flow.source, flow.times, network, structure, shapes)).encode())
    for a in leaves:
        crc = zlib.crc32(np.ascontiguousarray(a).tobytes(), crc)
    return f"{crc:08x}"
