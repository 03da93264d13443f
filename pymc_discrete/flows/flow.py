"""A flow: a network, the path that it follows, and the times of its steps."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.flows.kernel import back_and_forth
from pymc_discrete.flows.paths import Path
from pymc_discrete.flows.process import Process, check_flow_space, check_path, check_same
from pymc_discrete.flows.simulate import drawn_values, forward_table
from pymc_discrete.flows.sources import SourceDistribution
from pymc_discrete.flows.weights import FlowWeights, log_probability, weighted_draws
from pymc_discrete.kernels.random import key_of
from pymc_discrete.runtime.checks import check_count
from pymc_discrete.runtime.jax_settings import default_settings
from pymc_discrete.space.space import Space
from pymc_discrete.space.target import Target


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["params"],
    meta_fields=["space", "path", "source", "network", "times"],
)
@dataclass(frozen=True, eq=False)
class Flow(Process):
    """A discrete flow, which makes draws of all sites in a few steps from a source.

    A flow is an approximation, whose draws are made exact by weights (`log_partition`) or by a step that
    accepts or rejects draws (`pmd.FlowStep`). **Modes that occur neither in the draws that the flow was
    fitted to nor in the flow's own draws stay unseen.**

    Parameters
    ----------
    space : Space, of finite supports, whose sites change alone
    path : Path, from the source to the target
    source : SourceDistribution, from which the flow starts at time 0
    network : callable (params, x (d,) int, t ()) -> (d, K) float, logits of the values at time 1 given x at
        time t
    params : pytree of arrays, the weights of the network
    times : tuple of float, the times of the flow's steps, which increase from 0 to 1

    Raises
    ------
    ValueError
        For a space with windows or constraints, a source of another space, times that do not increase from 0
        to 1, a path that does not lead from the source to values and back, and a network whose logits have
        another shape than (d, K).

    References
    ----------
    Gat et al. 2024, Discrete flow matching. Campbell et al. 2024, Generative flows on discrete state-spaces.
    """

    @classmethod
    def build(
        cls, space: Space, path: Path, source: SourceDistribution, network: Any, params: Any, times: Any
    ) -> "Flow":
        """A flow with checked parts; parameters as in the class, except that times may be any sequence."""
        check_flow_space(space)
        source.check(space)
        grid = np.asarray(times, float)
        if grid.ndim != 1 or len(grid) < 2 or grid[0] != 0 or grid[-1] != 1 or (np.diff(grid) <= 0).any():
            raise ValueError(f"times must increase from 0 to 1, got {times!r}: np.linspace(0, 1, 33).")
        check_path(path, grid)
        logits = jax.eval_shape(network, params, jnp.zeros(space.d, int), jnp.zeros(()))
        if logits.shape != (space.d, space.K):
            raise ValueError(
                f"The network gives logits of shape {logits.shape}, and the space has {space.d} sites of up "
                f"to {space.K} values: it must give {(space.d, space.K)}."
            )
        return cls(space, path, source, network, params, tuple(grid.tolist()))

    @default_settings()
    def sample(self, n: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Draws of the flow itself, neither weighted nor rejected.

        Parameters
        ----------
        n : int, the number of draws
        seed : int

        Returns
        -------
        {name: (n, *shape) int}

        Raises
        ------
        ValueError
            Where the network gives nan.
        """
        check_count("n", n, 1)
        x = self.values(sampled(self, jax.random.split(key_of(seed), n)))
        return {m.name: x[:, m.start : m.start + m.size].reshape(n, *m.shape) for m in self.space.members}

    @default_settings()
    def log_partition(self, target: Target, n: int = 1000, seed: int = 0) -> FlowWeights:
        r"""An unbiased estimate of :math:`Z = \sum_x e^{f(x)}`, and the draws with their weights.

        Parameters
        ----------
        target : Target
            The log density f, over the flow's space: `pmd.target_from_model(model, names)` for the evidence
            of a discrete block given everything else.
        n : int, number of draws
        seed : int

        Returns
        -------
        FlowWeights
            Modes that the flow never draws are missing in Z, and nothing says so.

        Raises
        ------
        ValueError
            For a target of other variables or supports, a source of data, a network that gives nan, and a log
            density that is nan or infinite upwards.
        """
        check_count("n", n, 2)
        self.check_factorised("weigh its draws")
        self.check_target(target)
        return weighted_draws(self, target, n, key_of(seed))

    @default_settings()
    def log_probability(self, x: Any, n: int = 100, seed: int = 0) -> np.ndarray:
        r"""Estimates of the log probabilities of states under the flow, which are too small in expectation.

        .. math:: p(x) = \mathrm E_B \frac{p_0(x_0) \prod_k F(x_k \mid x_{k-1})}{\prod_k B(x_{k-1} \mid x_k)}

        with F and B the probabilities of steps forth and back in time, and trajectories drawn back from x.
        The estimate is unbiased for p(x), so that its logarithm is a stochastic lower bound. (The thesis on
        discrete flow samplers calls this probability intractable.)

        Parameters
        ----------
        x : (m, d) int, states, in the values of the space
        n : int, number of trajectories from each state
        seed : int

        Returns
        -------
        (m,) float, nats

        Raises
        ------
        ValueError
            For a source of data, and states of another shape or outside of the supports.
        """
        check_count("n", n, 1)
        self.check_factorised("find the probability of a state")
        states = np.asarray(x)
        if states.ndim != 2 or states.shape[1] != self.space.d or states.dtype.kind not in "iu":
            raise ValueError(
                f"x must be integers (m, {self.space.d}), one row for each state, got {states.dtype} of "
                f"shape {states.shape}."
            )
        outside = np.flatnonzero(~self.space.contains(states).all(axis=0))
        if len(outside):
            names = ", ".join(map(repr, self.space.names_at(outside)))
            raise ValueError(f"x has values of {names} outside of the support, where the probability is 0.")
        return log_probability(self, states, n, key_of(seed))

    @default_settings()
    def diagnostics(
        self, target: Target, n: int = 1000, turn: float = 0.0, seed: int = 0
    ) -> dict[str, float]:
        """Measures of how well the flow fits a target, computed from draws of the flow.

        Parameters
        ----------
        target : Target, a log density over the flow's space
        n : int, number of draws
        seed : int
        turn : float, one of the flow's times, at which `pmd.FlowStep` would turn

        Returns
        -------
        {"khat", "ess share", "accept"}
            The shape of the tail of the weights, good below 0.7; the effective sample size of the weighted
            draws as a share of their number; the mean acceptance probability of `pmd.FlowStep`, from weighted
            draws. **None of them tells of modes that the flow never draws.**

        Raises
        ------
        ValueError
            In the cases of `log_partition` and `back_and_forth`, and if the target is 0 at all draws.
        """
        kernel, params = back_and_forth(self, turn)
        found = self.log_partition(target, n, seed)
        if found.ess == 0:
            raise ValueError(
                f"The target is 0 at all {n} draws of the flow, from which nothing can start. Fit the flow "
                "to draws of this target."
            )
        w = np.exp(found.log_weights - found.log_weights.max())
        starts = np.random.default_rng(seed).choice(n, n, p=w / w.sum())

        def accept(key: Any, x: Any) -> Any:
            return kernel.step(key, kernel.init(x, target), target, params)[1].accept

        keys = jax.random.split(jax.random.fold_in(key_of(seed), 1), n)
        accepted = jax.jit(jax.vmap(accept))(keys, jnp.asarray(found.x[starts]))
        return {"khat": found.khat, "ess share": found.ess / n, "accept": float(np.mean(accepted))}

    def check_target(self, target: Any) -> None:
        """Refuse a target whose variables, shapes or supports are not those of the flow.

        Raises
        ------
        TypeError, ValueError
        """
        if not isinstance(target, Target):
            raise TypeError(
                f"target must be a Target, as pmd.target_from_model(model, names) makes it, got {target!r}."
            )
        remedy = "Make both of the same variables of one model: pmd.target_from_model(model, flow.names)."
        check_same(self.space, target.space, "the target", remedy)


@jax.jit
def sampled(flow: Flow, keys: Any) -> Any:
    """(n, d) int, draws of a flow by keys (n,), counted from the lower bounds."""

    times = jnp.asarray(flow.times)

    def one(key: Any) -> Any:
        key_start, key_run = jax.random.split(key)

        def move(k: Any, x: Any) -> Any:
            return drawn_values(
                jax.random.fold_in(key_run, k), forward_table(flow, x, times[k], times[k + 1])
            )

        return jax.lax.fori_loop(0, len(times) - 1, move, flow.source.draw(key_start, flow.space).astype(int))

    return jax.vmap(one)(keys)
