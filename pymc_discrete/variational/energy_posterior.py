"""Variational inference with an energy-based distribution, q(z) ∝ exp(-energy(z))."""

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pymc as pm
from arviz_stats.base import array_stats
from xarray import DataTree

from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.kernels import slice as slices
from pymc_discrete.kernels.random import key_of
from pymc_discrete.model.blocks import CONTINUOUS, DISCRETE, block_of, free, model_of
from pymc_discrete.model.initial import point_of
from pymc_discrete.model.without_jax import all_in_jax
from pymc_discrete.runtime.checks import check_count
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.runtime.progress import Progress, check_bar
from pymc_discrete.runtime.seeds import seed_of
from pymc_discrete.variational.differentiable_slice import differentiable_slice_sample
from pymc_discrete.variational.draws_of_q import draws_of_q
from pymc_discrete.variational.energies import TiltedNormal

_log = logging.getLogger("pymc.discrete")

FORGET = 0.02  # the weight of an iteration in the running averages of the mean and covariance of q
INITIAL_LEARNING_RATE = 0.02  # the initial learning rate of Adam
BEGIN = 50  # the number of sweeps from the initial point to the first draws of q
MOST_UPDATES = 50  # the largest number of updates of the progress bar
# An error is raised if the gradient is not finite in more than REFUSED_SHARE of the iterations.
REFUSED_SHARE = 0.1
# Shares of slice steps that are accepted, in the last tenth of the iterations: below the first an error is
# raised, below the second a warning is given.
ACCEPTED = (0.5, 0.9)


class EnergyPosterior:
    """An energy fitted to a posterior, q(z) ∝ exp(-energy(z)).

    Attributes
    ----------
    energy : (z (d,)) -> () float, nats, the fitted energy, up to a constant
    names : the value variables whose concatenation is z
    history : {name: (iterations,) float}
        "log_ratio_variance", nats², the variance of log p - log q over the chains, 0 if q is the posterior;
        "gradient_norm"; "accepted", the share of slice steps that were accepted; "skipped", 1 if the gradient
        was not finite and the iteration was left out.
    """

    def __init__(
        self,
        model: pm.Model,
        density: ContinuousDensity,
        energy: Any,
        history: dict[str, np.ndarray],
        z: np.ndarray,
    ):
        self.model, self.energy, self.history, self.names = model, energy, history, density.names
        self._density, self._z = density, z

    @model_settings()
    def sample(
        self, draws: int = 1000, *, tune: int = 500, chains: int = 4, thin: int = 1, random_seed: Any = None
    ) -> DataTree:
        """Draw from q with the exact slice sampler of `ReparameterizedSlice`.

        Parameters
        ----------
        draws, tune, chains : int
        thin : int, number of sweeps per draw kept
        random_seed : int or what `pm.sample` takes

        Returns
        -------
        xarray.DataTree
            The model's variables in the group posterior; in sample_stats `lp` (log p(x, z), nats), `log_q`
            (-energy, nats, not normalised) and `score_gap`, g' S g / d with g the gradient of log p - log q
            and S the covariance of q; the mean of `score_gap` is the Fisher divergence.
        """
        for name, value, least in (
            ("draws", draws, 1),
            ("tune", tune, 0),
            ("chains", chains, 1),
            ("thin", thin, 1),
        ):
            check_count(name, value, least)
        with all_in_jax("The sampler of an energy posterior"):
            return draws_of_q(
                self.model,
                self._density,
                self.energy,
                self._z,
                draws,
                tune,
                chains,
                thin,
                seed_of(random_seed),
            )

    @staticmethod
    def diagnostics(tree: DataTree) -> dict[str, float]:
        """Measures of the distance from q to the posterior that need no normalising constant.

        Parameters
        ----------
        tree : the result of `sample`

        Returns
        -------
        dict
            "fisher_divergence" : the Fisher divergence per coordinate, 0 if q is the posterior; for normals
            of the same shape it is the squared distance of the means in standard deviations, divided by the
            number of coordinates. "log_ratio_sd" : nats, standard deviation of log p - log q. "khat" : the
            shape of the tail in Pareto-smoothed importance sampling; if it is below 0.7, draws of q may be
            reweighted to the posterior. "ess_share" : effective sample size of the importance weights, as a
            share of the number of draws. All are computed from draws of q, and do not show that q has missed
            a mode of the posterior.

        References
        ----------
        Vehtari, Simpson, Gelman, Yao and Gabry 2024, Pareto Smoothed Importance Sampling. Yao et
        al. 2018, Yes, but Did It Work?: Evaluating Variational Inference.
        """
        stats = tree["sample_stats"].to_dataset()
        ratio = (stats["lp"] - stats["log_q"]).values.reshape(-1)
        weights, khat = array_stats.psislw(-ratio)  # The function `psislw` takes log q - log p.
        weights = np.exp(weights - weights.max())
        return {
            "fisher_divergence": float(stats["score_gap"].mean()),
            "log_ratio_sd": float(ratio.std()),
            "khat": float(khat),
            "ess_share": float(weights.sum() ** 2 / (weights**2).sum() / len(weights)),
        }


@model_settings()
def fit_energy_posterior(
    model: pm.Model | None = None,
    energy: Callable[..., Any] | None = None,
    *,
    iterations: int = 2000,
    chains: int = 64,
    n_steps: int | str = "auto",
    optimizer: optax.GradientTransformation | None = None,
    random_seed: Any = None,
    progressbar: bool = True,
) -> EnergyPosterior:
    r"""Fit q(z) ∝ exp(-energy(z)) to the posterior of a model's continuous variables.

    The ELBO is maximised by its path derivative,

    .. math:: \nabla_\phi = \nabla_z [\log p(x, z) + E_\phi(z)] \, \nabla_\phi z(\phi, \epsilon)

    with z the last point of `n_steps` differentiable slice steps (`differentiable_slice_sample`) of each
    chain (Zoltowski et al. 2021, Eq. 14 and 28). No normalising constant is needed. If q is the posterior,
    the gradient is 0 for every draw.

    Parameters
    ----------
    model : pm.Model, optional
        The default is the model of the `with` block. Its free variables must be continuous.
    energy : callable, optional
        A pytree, such as an equinox.Module, that is called as energy(z) -> () float, nats. z (d,) are the
        free variables in PyMC's unconstrained space, in the order of `EnergyPosterior.names`. exp(-energy)
        must be integrable for all parameters. By default a `TiltedNormal` around the model's initial point.
    iterations : int
    chains : int
        Number of chains of q. They continue from iteration to iteration; their gradients are averaged.
    n_steps : "auto" or int
        Slice steps of a chain in an iteration; by default 10 plus 2 per coordinate. The gradient leaves out
        how the distribution of a chain's first point depends on the parameters. This bias vanishes with the
        number of steps, as fast as the chain mixes.
    optimizer : optax.GradientTransformation, optional
        By default Adam with a learning rate that falls from 0.02 to 0 as a cosine, and b2 = 0.95.
    random_seed : int or what `pm.sample` takes, optional
    progressbar : bool

    Returns
    -------
    EnergyPosterior

    Raises
    ------
    ValueError, TypeError
        For a model with discrete variables, or without variables, and for an invalid energy.
    FloatingPointError
        If more than a tenth of the gradients are not finite, or exp(-energy) is not integrable.

    Notes
    -----
    Discrete variables are refused. If they were updated by Markov steps in alternation with z, the gradient
    would be biased for any number of iterations, because the discrete state would be drawn given an earlier
    z. Sum them out, or sample the whole model with `pmd.sample`.

    The directions of the slice steps have the covariance of the chains, averaged over past iterations. If
    slices of q consist of several intervals, the gradient leaves out how the probability of an interval
    depends on the parameters, and is biased for any `n_steps`.

    References
    ----------
    Zoltowski, Cai and Adams 2021, Slice Sampling Reparameterization Gradients, section 2.3 and
    App. C. Roeder, Wu and Duvenaud 2017, Sticking the Landing.

    Examples
    --------
    >>> with pm.Model():
    ...     x = pm.Normal("x")
    ...     y = pm.Normal("y", x**2, 0.5)
    ...     fit = pmd.fit_energy_posterior()  # doctest: +SKIP
    >>> idata = fit.sample()  # doctest: +SKIP
    """
    for name, value in (
        ("iterations", iterations),
        ("chains", chains),
        ("n_steps", 1 if n_steps == "auto" else n_steps),
    ):
        check_count(name, value, 2 if name == "chains" else 1)
    check_bar(progressbar)
    model = model_of(model)
    with all_in_jax("pmd.fit_energy_posterior"):
        names, density, start = block_of_all(model)
    seed = int(np.random.default_rng(seed_of(random_seed)).integers(2**31))
    key_energy, key_start, key_run = jax.random.split(key_of(seed), 3)
    with all_in_jax("pmd.fit_energy_posterior"):
        energy = TiltedNormal(start, 1.0, key=key_energy) if energy is None else energy
        check_energy(energy, names, start)
        params, static = eqx.partition(energy, eqx.is_inexact_array)
        if optimizer is None:
            # A small b2 makes Adam forget the first gradients soon, which are many orders of magnitude larger
            # than the last.
            optimizer = optax.adam(optax.cosine_decay_schedule(INITIAL_LEARNING_RATE, iterations), b2=0.95)
        ascent = Ascent(
            static,
            density.differentiable(jnp.asarray(start), []),
            chains,
            10 + 2 * density.size if n_steps == "auto" else int(n_steps),
            optax.apply_if_finite(optimizer, iterations),
        )
        state = ascent.start(key_start, params, start)
        run = jax.jit(lambda state, keys: jax.lax.scan(ascent.iteration, state, keys))
        keys, parts = jax.random.split(key_run, iterations), []
        with Progress(iterations, chains, progressbar, work="iterations") as bar:
            for indices in np.array_split(np.arange(iterations), min(MOST_UPDATES, iterations)):
                clock = time.perf_counter()
                state, part = run(state, keys[indices])
                parts.append(jax.tree.map(np.asarray, part))
                bar.advance(len(indices), time.perf_counter() - clock, {}, tuning=False)
    history = jax.tree.map(lambda *a: np.concatenate(a).astype(float), *parts)
    check_history(history)
    return EnergyPosterior(model, density, eqx.combine(state.params, static), history, np.asarray(state.z))


class AscentState(NamedTuple):
    """The state of the fit.

    Attributes
    ----------
    params : pytree, the parameters of the energy
    optimizer : the state of the optimizer
    z : (chains, d) float, draws of q
    mean, covariance : (d,), (d, d) float, the mean and covariance of q, running averages over past iterations
    """

    params: Any
    optimizer: Any
    z: Any
    mean: Any
    covariance: Any


class Ascent(NamedTuple):
    """Stochastic gradient ascent on the ELBO, by the path derivative.

    Attributes
    ----------
    static : the energy without its parameters, split by `eqx.partition`
    logdensity : (z (d,)) -> () float, nats, the log density of the model
    chains, n_steps : int, number of chains of q, and of slice steps of a chain in an iteration
    optimizer : an optimizer that skips gradients that are not finite
    """

    static: Any
    logdensity: Callable[..., Any]
    chains: int
    n_steps: int
    optimizer: optax.GradientTransformation

    def minus_energy(self, params: Any, z: jax.Array) -> jax.Array:
        """() float, log q up to a constant."""
        return -jnp.asarray(eqx.combine(params, self.static)(z), float)

    def start(self, key: jax.Array, params: Any, start: np.ndarray) -> AscentState:
        """The initial state, with draws of q that the exact slice kernel makes from `start` (d,)."""
        d = len(start)
        widths = jax.tree.map(jnp.asarray, slices.initial_widths(d))

        def begin(key: jax.Array) -> jax.Array:
            q = lambda z: self.minus_energy(params, z)
            return slices.slice_draw(key, jnp.asarray(start), q, widths, False, False, BEGIN)[0]

        z = jax.jit(jax.vmap(begin))(jax.random.split(key, self.chains))
        return AscentState(params, self.optimizer.init(params), z, z.mean(axis=0), jnp.cov(z.T).reshape(d, d))

    def end_of_path(
        self, params: Any, key: jax.Array, z: jax.Array, factor: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """z (d,) after `n_steps` slice steps, and the share of accepted steps.

        The steps are made in u, with z = `factor` u, so that their directions in z have the covariance of q.
        """
        u = jax.scipy.linalg.solve_triangular(factor, z, lower=True)
        path = differentiable_slice_sample(
            key, lambda params, u: self.minus_energy(params, factor @ u), params, u, self.n_steps
        )
        return factor @ path.x[-1], path.accepted.mean()

    def objective(
        self, params: Any, keys: jax.Array, z: jax.Array, factor: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
        """() float, of which only the gradient in `params` has a meaning: minus the ELBO's gradient.

        The function also returns the new draws of q, the variance of log p - log q, and the share of accepted
        steps.
        """
        z, accepted = jax.vmap(self.end_of_path, (None, 0, 0, None))(params, keys, z, factor)
        fixed = jax.lax.stop_gradient(params)
        ratio = jax.vmap(lambda z: self.logdensity(z) - self.minus_energy(fixed, z))(z)
        return -ratio.mean(), (jax.lax.stop_gradient(z), ratio.var(), accepted.mean())

    def iteration(self, before: AscentState, key: jax.Array) -> tuple[AscentState, dict[str, Any]]:
        """The state after one step of the optimiser, and the entries of `EnergyPosterior.history` for it."""
        factor = slices.shaped(before.covariance, self.chains, jnp.ones(before.z.shape[1]))
        gradient, (new, variance, accepted) = jax.grad(self.objective, has_aux=True)(
            before.params, jax.random.split(key, self.chains), before.z, factor
        )
        updates, optimizer = self.optimizer.update(gradient, before.optimizer, before.params)
        finite = jnp.isfinite(new).all(axis=1, keepdims=True)
        z = jnp.where(finite, new, before.z)
        offset = z - before.mean
        mean = before.mean + FORGET * offset.mean(axis=0)
        covariance = before.covariance + FORGET * (offset.T @ offset / self.chains - before.covariance)
        measured = {
            "log_ratio_variance": variance,
            "gradient_norm": jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient))),
            "accepted": accepted,
            "skipped": ~optimizer.last_finite,
        }
        params = optax.apply_updates(before.params, updates)
        return AscentState(params, optimizer, z, mean, covariance), measured


def check_history(history: dict[str, np.ndarray]) -> None:
    """Raise an error, or warn, if too many gradients were not finite or too many slice steps rejected."""
    iterations = len(history["skipped"])
    skipped, accepted = history["skipped"].mean(), history["accepted"][-max(iterations // 10, 1) :].mean()
    if skipped > REFUSED_SHARE:
        raise FloatingPointError(
            f"The gradient was not finite in {100 * skipped:.0f} of 100 iterations. Either the log density "
            "of the model has none where q puts its draws, or the energy jumps or is flat: write both "
            "smooth, and let exp(-energy) be integrable."
        )
    if not accepted >= ACCEPTED[0]:
        raise FloatingPointError(
            f"Only {100 * accepted:.0f} of 100 slices of q accepted their draw at the end. Where a slice "
            "never ends exp(-energy) is not integrable: add a term that grows with |z|, as "
            "`pmd.variational.TiltedNormal` has it. Where it has many pieces, smooth it."
        )
    if accepted < ACCEPTED[1]:
        _log.warning(
            f"{100 - 100 * accepted:.0f} of 100 slices of q stayed where they were at the end: they have "
            "several pieces, and the gradient leaves out how the chance of a piece depends on the "
            "parameters. Look at `EnergyPosterior.diagnostics`."
        )
    if skipped:
        _log.warning(
            f"fit_energy_posterior left out {int(history['skipped'].sum())} of {iterations} iterations "
            "without a finite gradient."
        )


def block_of_all(model: pm.Model) -> tuple[list[str], ContinuousDensity, np.ndarray]:
    """The names of a model's free variables, all continuous, their density, and the initial point (d,)."""
    discrete = free(model, DISCRETE)
    if discrete:
        raise ValueError(
            f"The model has the discrete variable{'s' * (len(discrete) > 1)} "
            f"{', '.join(map(repr, discrete))}, which q(z), a density, cannot describe. Sum them out "
            "(pmd.marginalize), or sample the model with pmd.sample."
        )
    names, point = block_of(model, None, CONTINUOUS), point_of(model)
    left = [n for n in free(model, CONTINUOUS) if n not in names]
    if left:
        block_of(model, left, CONTINUOUS)  # This raises an error with the reason.
    density = ContinuousDensity(model, names, point)
    density.untouched.check_in_jax()
    return names, density, density.ravel(point, np)


def check_energy(energy: Any, names: list[str], start: np.ndarray) -> None:
    """Refuse an energy that cannot be fitted, before the fit is traced."""
    if not callable(energy):
        raise TypeError(
            f"energy must be callable, energy(z) -> () float, such as an equinox.Module; got {energy!r}."
        )
    if not jax.tree.leaves(eqx.filter(energy, eqx.is_inexact_array)):
        raise TypeError(
            "energy has no parameters to fit: it must be a pytree with arrays of floats, such as an "
            "equinox.Module."
        )
    z = jnp.asarray(start)
    out = eqx.filter_eval_shape(energy, z)
    if getattr(out, "shape", None) != () or not jnp.issubdtype(out.dtype, jnp.floating):
        raise ValueError(
            f"energy must return one float for z of shape {z.shape} ({', '.join(names)} in this order); it "
            f"returns {out}."
        )
    if not np.isfinite(float(energy(z))):
        raise ValueError(
            f"energy is {float(energy(z))} at the model's initial point. It must be finite for every z."
        )
