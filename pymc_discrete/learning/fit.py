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
    """What was learned.

    Attributes
    ----------
    params : pytree, as of `model.start`
    mismatch : (iterations,) nats, the gradient's norm: how far the statistics of the draws were from those of
        the data
    kept : what the sampler keeps, to go on from
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
    r"""Stochastic gradient ascent on the log likelihood: the statistics of data against those of draws.

    .. math:: \nabla_\Theta = \frac1S \sum_s \Phi(y_+^{(s)}) - \frac1S \sum_s \Phi(y_-^{(s)})

    with :math:`y_+` of the data, hidden sites drawn given the visible ones, and :math:`y_-` of the model,
    both by `sampler`.

    Parameters
    ----------
    model : `Ising`, `Potts`, `RBM`, or one of your own (see `Model`)
    data : {name: (N, *shape) int}
        Of the visible variables; those that are left out are hidden.
    sampler : `PMP` (default), `PersistentPMP` or `ContrastiveDivergence`
    optimizer : optax optimiser; by default `optax.adam(0.01)`
    iterations : int
    chains : int, draws of the model in an iteration
    batch : int or None
        Rows of data in an iteration, drawn with replacement; None takes all.
    weights : (N,) of the rows; by default all the same
    l1 : float, strength of the penalty on the absolute values of the model's interactions, in nats
    params : to go on from; by default `model.start`
    seed : int

    Returns
    -------
    Fit

    Raises
    ------
    ValueError, TypeError
        For data that do not fit the model's variables, and for numbers that mean nothing.

    References
    ----------
    Lazaro-Gredilla, Dedieu and George 2021, Algorithm 1.

    Notes
    -----
    What perturb-and-max-product learns is a good sampler by perturb-and-max-product; as parameters of a
    Gibbs distribution the numbers may be far off (section 5.1).
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
    rows = checked(model, data)
    own = Data(rows, probabilities(weights, len(next(iter(rows.values())))), batch)
    key_start, key_kept, key_run = jax.random.split(key_of(seed), 3)
    params = start_of(model, key_start, params)

    def iteration(carried, key):
        params, state, kept = carried
        key_data, key_model = jax.random.split(key)
        graph = model.graph(params)
        plus, share = own.draw(key_data, model, graph, sampler)
        minus, kept = sampler.draw(key_model, graph, kept, chains)

        def likelihood(params):
            """Its gradient is that of the log likelihood, its value is not."""
            logdensity = jax.vmap(model.graph(params).logdensity)
            return share @ logdensity(plus) - logdensity(minus).mean()

        def loss(params):
            return l1 * size(model.interactions(params)) - likelihood(params)

        mismatch = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(jax.grad(likelihood)(params))))
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return (optax.apply_updates(params, updates), state, kept), mismatch

    def run(params, kept, key):
        begin = (params, optimizer.init(params), kept)
        return jax.lax.scan(iteration, begin, jax.random.split(key, iterations))

    kept = sampler.start(key_kept, model.graph(params), chains)
    (params, _, kept), mismatch = jax.jit(run)(params, kept, key_run)
    return Fit(params, mismatch, kept)


class Data(NamedTuple):
    """Observations.

    Attributes
    ----------
    rows : {name: (N, *shape) int}, of the visible variables
    probabilities : (N,) float, of the rows
    batch : int, rows in an iteration; None for all
    """

    rows: dict[str, Any]
    probabilities: np.ndarray
    batch: int | None

    def draw(self, key: Any, model: Model, graph: FactorGraph, sampler: Sampler) -> tuple[Any, Any]:
        """The x (S, d) of an iteration, hidden sites drawn given the visible ones, and their weights (S,)."""
        key_rows, key_hidden = jax.random.split(key)
        n, p = len(self.probabilities), jnp.asarray(self.probabilities)
        if self.batch is None:
            chosen, share = jnp.arange(n), p
        else:
            chosen = jax.random.choice(key_rows, n, (self.batch,), p=p)
            share = jnp.full(self.batch, 1 / self.batch)
        visible = {name: a[chosen] for name, a in self.rows.items()}
        if any(v.name not in visible for v in model.space.variables):
            keys = jax.random.split(key_hidden, len(share))
            return jax.vmap(lambda k, own: sampler.conditional(k, graph.clamp(own)))(keys, visible), share
        parts = [visible[v.name].reshape(len(share), v.size) for v in model.space.variables]
        return jnp.concatenate(parts, axis=1), share


def size(interactions: Any) -> Any:
    """() float, the sum of absolute values, with slope 0 at 0."""
    return sum((a * jnp.sign(jax.lax.stop_gradient(a))).sum() for a in jax.tree.leaves(interactions))


def probabilities(weights: Any, n: int) -> np.ndarray:
    """(n,) float, of the rows of data; by default all the same."""
    p = np.ones(n) if weights is None else np.asarray(weights, float)
    if p.shape != (n,) or not ((p >= 0).all() and 0 < p.sum() < np.inf):
        raise ValueError(
            f"weights must be {n} numbers, one for each row of data, none negative and not all 0, got "
            f"{weights!r}."
        )
    return p / p.sum()


def start_of(model: Model, key: Any, params: Any) -> Any:
    """The parameters to begin with: those given, where they fit the model, or new ones."""
    shapes = jax.tree.map(jnp.shape, jax.eval_shape(model.start, key))
    if params is not None and jax.tree.map(jnp.shape, params) != shapes:
        raise ValueError(f"params must be arrays of the shapes {shapes}, as model.start(key) makes them.")
    return model.start(key) if params is None else params


def checked(model: Model, data: dict[str, Any]) -> dict[str, Any]:
    """The data as arrays, once they are known to fit."""
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
        v, rows = known[name], np.asarray(given)
        if rows.shape[1:] != v.shape:
            raise ValueError(
                f"The rows of {name!r} have shape {rows.shape[1:]} in data, and {v.shape} in the model."
            )
        flat = rows.reshape(len(rows), v.size)
        if rows.dtype.kind not in "iub" or (flat < v.lower).any() or (flat > v.upper).any():
            raise ValueError(f"data of {name!r} must be integers from {v.lower.min()} to {v.upper.max()}.")
    return {name: jnp.asarray(np.asarray(a, int)) for name, a in data.items()}
