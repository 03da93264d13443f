"""Learning the log potentials of a factor graph from data."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from pymc_discrete.checks import check_count, check_not_negative
from pymc_discrete.factor_graphs import FactorGraph
from pymc_discrete.kernels.random import key_of
from pymc_discrete.learning.models import Model
from pymc_discrete.learning.samplers import PMP, Sampler
from pymc_discrete.targets.jax_settings import default_settings

KINDS = {
    "model": (
        "one of pmd.learning (Ising, Potts, RBM) or of your own, with space, start, graph and interactions"
    ),
    "sampler": (
        "one of pmd.learning (PMP, PersistentPMP, ContrastiveDivergence) or of your own, with start, draw "
        "and conditional"
    ),
    "optimizer": "an optimiser of optax, such as optax.adam(0.01)",
}


class Fit(NamedTuple):
    """The result of `fit`.

    Attributes
    ----------
    params : pytree, the learned parameters, with the structure of `model.start`
    mismatch : (iterations,) nats
        The norm of the gradient, which is the difference between the statistics of data and of draws.
    kept : the last state of the sampler
    """

    params: Any
    mismatch: Any
    kept: Any


@default_settings()
def fit(
    model: Model,
    data: dict[str, Any],
    *,
    sampler: Sampler | None = None,
    optimizer: optax.GradientTransformation | None = None,
    iterations: int = 1000,
    chains: int = 100,
    batch: int | None = 100,
    weights: Any = None,
    l1: float = 0.0,
    params: Any = None,
    seed: int = 0,
) -> Fit:
    r"""Learn the parameters of a model from data by stochastic gradient ascent on the log likelihood.

    .. math:: \nabla_\Theta = \frac1S \sum_s \Phi(y_+^{(s)}) - \frac1S \sum_s \Phi(y_-^{(s)})

    with :math:`\Phi` the sufficient statistics, :math:`y_+` data whose hidden sites are drawn given the
    visible ones, and :math:`y_-` draws of the model. Both are drawn by `sampler`.

    Parameters
    ----------
    model : `Ising`, `Potts`, `RBM`, or one of your own (see `Model`)
    data : {name: (N, ...) int}
        Values of the visible variables, N of each variable's shape; all others of the model are hidden.
    sampler : `PMP` (default), `PersistentPMP` or `ContrastiveDivergence`
    optimizer : optax optimiser; by default `optax.adam(0.01)`
    iterations : int
    chains : int, number of draws of the model in an iteration
    batch : int or None
        Number of observations in an iteration, drawn with replacement; None takes all.
    weights : (N,) float, of the observations; by default all equal
    l1 : float, strength of the penalty on the absolute values of the model's interactions, in nats
    params : pytree, the parameters to start from; by default those of `model.start`
    seed : int

    Returns
    -------
    Fit

    Raises
    ------
    ValueError, TypeError
        For data that do not fit the model's variables, and for invalid options.

    References
    ----------
    Lazaro-Gredilla, Dedieu and George 2021, Algorithm 1.

    Notes
    -----
    Parameters that are learned with perturb-and-max-product give good samples by perturb-and-max-product. As
    parameters of the Gibbs distribution they may be far from the maximum of the likelihood (section 5.1).
    """
    for name, value, least in (
        ("iterations", iterations, 1),
        ("chains", chains, 1),
        ("batch", 1 if batch is None else batch, 1),
    ):
        check_count(name, value, least)
    check_not_negative("l1", l1)
    check_count("seed", seed, 0)
    sampler, optimizer = sampler or PMP(), optimizer or optax.adam(0.01)
    for what, given, kind in (
        ("model", model, Model),
        ("sampler", sampler, Sampler),
        ("optimizer", optimizer, optax.GradientTransformation),
    ):
        if not isinstance(given, kind):
            raise TypeError(f"{what} must be {KINDS[what]}, got {given!r}.")
    values = checked(model, data)
    n = len(next(iter(values.values())))
    observations = Data(values, probabilities(weights, n), batch)
    key_start, key_kept, key_run = jax.random.split(key_of(seed), 3)
    params = start_of(model, key_start, params)

    def iteration(carried: Any, key: Any) -> tuple[Any, Any]:
        params, state, kept = carried
        key_data, key_model = jax.random.split(key)
        graph = model.graph(params)
        plus, weights = observations.draw(key_data, model, graph, sampler)
        minus, kept = sampler.draw(key_model, graph, kept, chains)

        def likelihood(params: dict[str, Any]) -> Any:
            """A function whose gradient estimates that of the log likelihood; its value does not."""
            logdensity = jax.vmap(model.graph(params).logdensity)
            return weights @ logdensity(plus) - logdensity(minus).mean()

        def loss(params: dict[str, Any]) -> Any:
            return l1 * l1_norm(model.interactions(params)) - likelihood(params)

        mismatch = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(jax.grad(likelihood)(params))))
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return (optax.apply_updates(params, updates), state, kept), mismatch

    def run(params: dict[str, Any], kept: Any, key: Any) -> tuple[Any, Any]:
        begin = (params, optimizer.init(params), kept)
        return jax.lax.scan(iteration, begin, jax.random.split(key, iterations))

    kept = sampler.start(key_kept, model.graph(params), chains)
    (params, _, kept), mismatch = jax.jit(run)(params, kept, key_run)
    return Fit(params, mismatch, kept)


class Data(NamedTuple):
    """The observations, and how they are drawn in an iteration.

    Attributes
    ----------
    values : {name: (N, *shape) int}, of the visible variables
    probabilities : (N,) float, with which an observation is drawn
    batch : int, number of observations in an iteration; None for all
    """

    values: dict[str, Any]
    probabilities: np.ndarray
    batch: int | None

    def draw(self, key: Any, model: Model, graph: FactorGraph, sampler: Sampler) -> tuple[Any, Any]:
        """x (S, d), data with drawn hidden sites for an iteration, and weights (S,), which sum to 1."""
        key_batch, key_hidden = jax.random.split(key)
        n, p = len(self.probabilities), jnp.asarray(self.probabilities)
        if self.batch is None:
            chosen, weights = jnp.arange(n), p
        else:
            chosen = jax.random.choice(key_batch, n, (self.batch,), p=p)
            weights = jnp.full(self.batch, 1 / self.batch)
        visible = {name: a[chosen] for name, a in self.values.items()}
        if any(v.name not in visible for v in model.space.variables):
            keys = jax.random.split(key_hidden, len(weights))
            draw = jax.vmap(lambda k, values: sampler.conditional(k, graph.clamp(values)))
            return draw(keys, visible), weights
        parts = [visible[v.name].reshape(len(weights), v.size) for v in model.space.variables]
        return jnp.concatenate(parts, axis=1), weights


def l1_norm(interactions: Any) -> Any:
    """() float, the sum of absolute values, with derivative 0 at 0."""
    return sum((a * jnp.sign(jax.lax.stop_gradient(a))).sum() for a in jax.tree.leaves(interactions))


def probabilities(weights: Any, n: int) -> np.ndarray:
    """(n,) float, the `weights` of n observations divided by their sum; by default all equal."""
    p = np.ones(n) if weights is None else np.asarray(weights, float)
    if p.shape != (n,) or not ((p >= 0).all() and 0 < p.sum() < np.inf):
        raise ValueError(
            f"weights must be {n} numbers, one for each row of data, none negative and not all 0, got "
            f"{weights!r}."
        )
    return p / p.sum()


def start_of(model: Model, key: Any, params: Any) -> Any:
    """The parameters to start from: `params`, which must fit the model, or new ones if it is None."""
    shapes = jax.tree.map(jnp.shape, jax.eval_shape(model.start, key))
    if params is not None and jax.tree.map(jnp.shape, params) != shapes:
        raise ValueError(f"params must be arrays of the shapes {shapes}, as model.start(key) makes them.")
    return model.start(key) if params is None else params


def checked(model: Model, data: dict[str, Any]) -> dict[str, Any]:
    """The data as integer arrays, after a check that they fit the variables of the model."""
    if not isinstance(data, dict) or not all(np.ndim(a) for a in data.values()):
        raise TypeError(
            "data must be a dictionary {name of a variable: its values (N, *shape)}, a row for each "
            "observation."
        )
    known, lengths = {v.name: v for v in model.space.variables}, {name: len(a) for name, a in data.items()}
    if not data or set(data) - set(known):
        raise ValueError(
            f"data must name variables of the model ({', '.join(known)}), got {', '.join(data) or 'none'}."
        )
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise ValueError(f"data must hold as many rows of every variable, and at least one; got {lengths}.")
    for name, given in data.items():
        v, values = known[name], np.asarray(given)
        if values.shape[1:] != v.shape:
            raise ValueError(
                f"The rows of {name!r} have shape {values.shape[1:]} in data, and {v.shape} in the model."
            )
        flat = values.reshape(len(values), v.size)
        if values.dtype.kind not in "iub" or (flat < v.lower).any() or (flat > v.upper).any():
            raise ValueError(f"data of {name!r} must be integers from {v.lower.min()} to {v.upper.max()}.")
    return {name: jnp.asarray(np.asarray(a, int)) for name, a in data.items()}
