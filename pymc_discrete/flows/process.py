"""The process of a flow: a network, the path that the flow follows, and the times of its steps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.flows.paths import Path
from pymc_discrete.flows.sources import Factorised, SourceDistribution
from pymc_discrete.runtime.names import shown
from pymc_discrete.space.space import LARGEST_SUPPORT, Space


@dataclass(frozen=True, eq=False)
class Process:
    """A process of jumps of all sites, from a source at time 0 to a target at time 1.

    Parameters
    ----------
    space : Space
        A space of finite supports, whose sites change alone.
    path : Path
    source : SourceDistribution
    network : callable (params, x (d,) int, t ()) -> (d, K) float, logits of the values of each site at time
        1, given the values x at time t, which are counted from the lower bounds, and K for a masked site.
        `posterior` turns logits into probabilities.
    params : pytree of arrays, the weights of the network
    times : tuple of float, increasing from 0 to 1
    """

    space: Space
    path: Path
    source: SourceDistribution
    network: Callable[..., Any]
    params: Any
    times: tuple[float, ...]

    @property
    def names(self) -> list[str]:
        """The names of the variables of the process."""
        return [m.name for m in self.space.members]

    @property
    def K(self) -> int:
        """The largest number of values of a site; this number as a value stands for a mask."""
        return self.space.K

    def posterior(self, x: Any, t: Any) -> Any:
        """(d, K) nats, normalised log probabilities of the values of each site at time 1; see `network`.

        The log probabilities are -inf beyond the support of a site, whatever the logits are.
        """
        return log_probabilities(self.network(self.params, x, t), self.space)

    @property
    def source_probabilities(self) -> np.ndarray:
        """(d, K + 1) float, the probabilities of the source, which must be `Factorised`: of independent
        sites.
        """
        assert isinstance(self.source, Factorised)
        return self.source.probabilities(self.space)

    def log_source(self, x: Any) -> Any:
        """() float, nats, the log probability of x (d,) under the source."""
        p = jnp.take_along_axis(jnp.asarray(self.source_probabilities), x[:, None], axis=1)
        return jnp.log(p).sum()

    def values(self, x: Any) -> np.ndarray:
        """(n, d) int, draws x (n, d) at time 1 in the values of the space.

        Raises
        ------
        ValueError
            Where the network gave nan, so that nothing was drawn.
        """
        values = np.asarray(x) + self.space.lower
        if not self.space.contains(values).all():
            raise ValueError(
                "The network of the flow gives nan, so that nothing can be drawn: its training diverged. Fit "
                "it again with a smaller learning rate."
            )
        return values

    def check_factorised(self, what: str) -> None:
        """Refuse a source whose probabilities are unknown, but needed to do `what`.

        Raises
        ------
        ValueError
        """
        if not isinstance(self.source, Factorised):
            raise ValueError(
                f"The probabilities of a source of data are not known, so that the flow can be sampled only: "
                f"one cannot {what}. Fit a flow from source='mask' or 'uniform'."
            )


def log_probabilities(logits: Any, space: Space) -> Any:
    """(d, K) nats, log probabilities of values from logits (d, K); -inf beyond the support of a site."""
    return jax.nn.log_softmax(jnp.where(jnp.asarray(space.exists), logits, -jnp.inf), axis=1)


def check_path(path: Path, times: np.ndarray) -> None:
    """Refuse a path on which the trajectories of a flow do not lead from its source to values and back.

    Steps forth draw nothing from the source, and steps back nothing from the target, which is known only at
    time 1. The path must allow such steps, and be the source alone at time 0 and the target alone at time 1.

    Parameters
    ----------
    path : Path
    times : (n,) float, increasing from 0 to 1

    Raises
    ------
    ValueError
    """
    with jax.ensure_compile_time_eval():  # The check needs numbers, also while JAX traces a program.
        ahead, behind = jax.vmap(path.step)(times[:-1], times[1:]), jax.vmap(path.step)(times[1:], times[:-1])
        ends = np.array([path.weights(0.0), path.weights(1.0)])
    for component, shares in (("source", ahead.source), ("target", behind.target)):
        wrong = np.flatnonzero(np.asarray(shares) > 0)
        if len(wrong):
            t, s = times[wrong[0] : wrong[0] + 2]
            raise ValueError(
                f"The path {path.name!r} draws from the {component} between the times {t:.4g} and {s:.4g}. "
                "Take one on which the source shrinks fastest forth in time, and the target fastest back."
            )
    if not np.array_equal(ends, [[0, 0, 1], [1, 0, 0]]):
        raise ValueError(
            f"The path {path.name!r} has the weights {ends[0]} at time 0 and {ends[1]} at time 1, of target, "
            "uniform distribution and source: they must be 0, 0, 1 and 1, 0, 0."
        )


def check_same(flow: Space, other: Space, where: str, remedy: str) -> None:
    """Refuse a space that is not the one that a flow was made for.

    Parameters
    ----------
    flow : Space, for which the flow was made
    other : Space, which is compared with it
    where : the object that has the other space, for the error
    remedy : a sentence with the remedy

    Raises
    ------
    ValueError
        For other variables, another order of the variables, other shapes, and other supports.
    """
    ours, theirs = ({m.name: m for m in space.members} for space in (flow, other))
    if [*ours] != [*theirs]:
        raise ValueError(
            f"The flow is of the variables {shown(ours)}, and {where} of {shown(theirs)}: they must be the "
            f"same, in the same order. {remedy}"
        )
    for name, m in ours.items():
        if theirs[name].shape != m.shape:
            raise ValueError(
                f"{name!r} has the shape {theirs[name].shape} in {where}, and {m.shape} in the flow. {remedy}"
            )
    wrong = np.flatnonzero((flow.lower != other.lower) | (flow.upper != other.upper))
    if len(wrong):
        names = shown(other.names_at(wrong))
        raise ValueError(f"The supports of {names} in {where} are others than in the flow. {remedy}")


def check_flow_space(space: Space) -> None:
    """Refuse a space that has windows or constraints.

    Raises
    ------
    ValueError
    """
    if space.windowed.any():
        names = ", ".join(map(repr, space.names_at(np.flatnonzero(space.windowed))))
        raise ValueError(
            f"{names} has no finite support of at most {LARGEST_SUPPORT} values, and a flow gives a "
            "probability to each value. Bound it by its prior, or leave it to another step."
        )
    if space.constrained.any():
        names = ", ".join(map(repr, space.names_at(np.flatnonzero(space.constrained))))
        raise ValueError(
            f"The sites of {names} change only together, and a flow draws each site alone. Leave it to "
            "pmd.BlockGibbs."
        )
