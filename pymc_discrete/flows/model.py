"""The model of a flow that `pymc_discrete.learning.fit` trains."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.flows.flow import Flow
from pymc_discrete.flows.paths import FROM_SOURCE, FROM_TARGET, PATHS, Path
from pymc_discrete.flows.process import check_flow_space, log_probabilities
from pymc_discrete.flows.simulate import one_hot_values
from pymc_discrete.flows.sources import SOURCES, Mask, SourceDistribution, uniform
from pymc_discrete.learning.models import Learnable
from pymc_discrete.space.space import Space


class FlowModel(Learnable):
    """A network that is trained to predict the values at time 1 from the values at time t.

    `pymc_discrete.learning.fit(model, data, objective=DFM())` trains it; `flow` then makes a `Flow` of it.

    Parameters
    ----------
    space : Space
        A space of finite supports, whose sites change alone.
    network : equinox.Module
        The network is called as `network(encoded, t, *features)`, with the one-hot values (d, K + 1) float,
        of which the last column is the mask, and the time () float; it returns d K logits, of any shape.
    path : Path or its name: "linear", "quadratic", "cubic", "noise"
    source : SourceDistribution or its name: "mask", "uniform"

    Raises
    ------
    ValueError
        For a space that a flow does not take, and for unknown names.
    """

    def __init__(
        self,
        space: Space,
        network: Any,
        path: Path | str = "linear",
        source: SourceDistribution | str = "mask",
    ):
        check_flow_space(space)
        self.space = space
        self.path = named("path", path, PATHS, Path)
        self.source = named("source", source, SOURCES, SourceDistribution)
        self.source.check(space)
        self.params, self._static = eqx.partition(network, eqx.is_inexact_array)

    def start(self, key: Any) -> Any:
        """The weights of the network as it was given; `key` is not used."""
        return self.params

    def posterior(self, params: Any, x: Any, t: Any, *features: Any) -> Any:
        """(d, K) float, nats, log probabilities of the values at time 1, given x (d,) at time t ()."""
        return log_probabilities(self._logits((params, features), x, t), self.space)

    def flow(self, params: Any, times: Any, *features: Any) -> Flow:
        """The flow with the weights `params`, on a grid of times, given the features."""
        return Flow.build(self.space, self.path, self.source, self._logits, (params, features), times)

    def _logits(self, params: Any, x: Any, t: Any) -> Any:
        """(d, K) float, the logits of the network, given its weights and the features as `params`."""
        weights, features = params
        network, d, K = eqx.combine(weights, self._static), self.space.d, self.space.K
        return jnp.asarray(network(one_hot_values(x, K + 1), t, *features), float).reshape(d, K)

    def noised(self, key: Any, x: Any, t: Any) -> tuple[Any, Any]:
        """Values at time t of states x (d,) at time 1, counted from the lower bounds.

        Returns
        -------
        x_t : (d,) int, drawn by the path, given x
        hidden : (d,) bool, the sites whose value at time 1 x_t does not show
        """
        key_part, key_uniform, key_source = jax.random.split(key, 3)
        part = jax.random.categorical(key_part, jnp.log(self.path.weights(t)), shape=x.shape)
        noise = jax.random.categorical(key_uniform, jnp.log(jnp.asarray(uniform(self.space))))
        source = self.source.draw(key_source, self.space)
        x_t = jnp.select([part == FROM_TARGET, part == FROM_SOURCE], [x, source], noise)
        by_mask = isinstance(self.source, Mask) and self.path.uniform is None
        return x_t, (x_t == self.space.K) if by_mask else jnp.ones(x.shape, bool)


def named(what: str, given: Any, known: dict[str, Any], kind: type) -> Any:
    """The path or the source with the name `given`; a path or a source is returned as it is."""
    if isinstance(given, kind):
        return given
    if not isinstance(given, str) or given not in known:
        names = ", ".join(map(repr, known))
        raise ValueError(f"{what} must be {names}, or a {kind.__name__}, got {given!r}.")
    return known[given]


def grid(steps: int) -> np.ndarray:
    """(steps + 1,) float, times from 0 to 1 at equal distances."""
    return np.linspace(0.0, 1.0, steps + 1)
