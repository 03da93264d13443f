"""Learning the parameters of an energy-based model from data."""

import re
import time
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from pymc_discrete.kernels.random import key_of
from pymc_discrete.learning.checkpoint import FitCheckpoint
from pymc_discrete.learning.data import Batch, Observations, checked_data, normalised_weights
from pymc_discrete.learning.models import GraphModel, Learnable
from pymc_discrete.learning.objectives import OBJECTIVES, Likelihood, Objective
from pymc_discrete.learning.samplers import PMP, Sampler
from pymc_discrete.runtime.checks import check_count, check_not_negative, is_number
from pymc_discrete.runtime.jax_settings import default_settings
from pymc_discrete.runtime.progress import Progress, check_bar
from pymc_discrete.sampling.fingerprint import checksum
from pymc_discrete.sampling.lock import holding

KINDS_OF_MEASURE = {
    "model": (
        "one of pmd.learning (Ising, Potts, RBM, Neural) or of your own, a subclass of Model or GraphModel"
    ),
    "sampler": (
        "one of pmd.learning (PMP, PersistentPMP, ContrastiveDivergence, ReplayBuffer) or of your own, with "
        "begin, draw and conditional"
    ),
    "optimizer": "an optimiser of optax, such as optax.adam(0.01)",
    "objective": (
        "'likelihood', 'pseudo-likelihood', 'energy discrepancy', an objective of pmd.learning, or one of "
        "your own, with begin and loss"
    ),
}
MOST_ITERATIONS_AT_ONCE = 1000  # the largest number of iterations between two looks at the clock
# The number of iterations between two looks at the clock grows until the iterations take this many seconds.
SECONDS_AT_ONCE = 1.0
CHECKPOINT_SECONDS = 10.0  # the least number of seconds between two checkpoints


class Fit(NamedTuple):
    """The result of `fit`.

    Attributes
    ----------
    params : pytree, the learned parameters, with the structure of `model.start`
        By default the parameters of the last iteration; with `ema` the average over iterations; with
        `evaluate` the parameters with the highest score.
    last : pytree, the parameters of the last iteration
    mismatch : (iterations,) float
        The norm of the gradient of the objective, without penalties; for the likelihood, the gradient is the
        difference between the statistics of data and of draws, in nats.
    scores : (n, 2) float, each row is an iteration and the score that `evaluate` gave to its parameters
    kept : the last state of the objective; for the likelihood, the state of its sampler
    """

    params: Any
    last: Any
    mismatch: Any
    scores: Any
    kept: Any


class FitState(NamedTuple):
    """The quantities that an iteration changes.

    Attributes
    ----------
    params : pytree, the parameters of the model
    optimizer : the state of the optimiser
    kept : the state of the objective; for the likelihood, the state of its sampler
    averaged : the moving average of the parameters; () without an average
    """

    params: Any
    optimizer: Any
    kept: Any
    averaged: Any


class Record(NamedTuple):
    """The progress of a fit.

    Attributes
    ----------
    done : () int, number of iterations
    state : FitState, from which the next iteration goes on
    mismatch : (iterations,) float, the norms of the gradient, nan where an iteration is still to come
    scores : (n, 2) float, the iteration and the score of each evaluation, nan where one is still to come
    best : pytree, the parameters with the highest score; () without evaluations
    """

    done: Any
    state: FitState
    mismatch: np.ndarray
    scores: np.ndarray
    best: Any


@default_settings()
def fit(
    model: Learnable,
    data: dict[str, Any],
    *,
    objective: str | Objective = "likelihood",
    sampler: Sampler | None = None,
    optimizer: optax.GradientTransformation | None = None,
    iterations: int = 1000,
    chains: int = 100,
    batch: int | None = 100,
    weights: Any = None,
    l1: float = 0.0,
    group_l1: float = 0.0,
    energy_l2: float = 0.0,
    ema: float | None = None,
    evaluate: Callable[[Any], float] | None = None,
    evaluate_every: int | None = None,
    checkpoint: Any = None,
    params: Any = None,
    seed: int = 0,
    progressbar: bool = True,
) -> Fit:
    r"""Learn the parameters of a model from data by stochastic gradients.

    The gradient of the log likelihood is

    .. math:: \nabla_\theta = \frac1S \sum_s \nabla f_\theta(y_+^{(s)})
        - \frac1S \sum_s \nabla f_\theta(y_-^{(s)})

    with :math:`f` the log density up to its constant, :math:`y_+` data whose hidden sites are drawn given the
    visible ones, and :math:`y_-` draws of the model. Both are drawn by `sampler`.

    Parameters
    ----------
    model : `Ising`, `Potts`, `RBM`, `Neural`, or a model of your own (see `Model` and `GraphModel`)
    data : {name: (N, ...) int}
        Values of the visible variables, N for each variable; all other variables of the model are hidden.
    objective : "likelihood", "pseudo-likelihood", "energy discrepancy", or an `Objective`
        `PseudoLikelihood` and `EnergyDiscrepancy` need neither draws nor a sampler, and take no hidden
        variables.
    sampler : `PMP` (default), `PersistentPMP`, `ContrastiveDivergence` or `ReplayBuffer`
        For the likelihood; the first two take factor graphs only.
    optimizer : optax optimiser; by default `optax.adam(0.01)`
    iterations : int
    chains : int, number of draws of the model in an iteration
    batch : int or None
        Number of observations in an iteration, drawn with replacement; None takes all.
    weights : (N,) float, the weights of the observations; by default all equal
    l1 : float, strength of the penalty on the absolute values of the model's interactions
    group_l1 : float
        Strength of the penalty on the norms of the tables of pairs (Grathwohl et al. 2021, Eq. 34).
    energy_l2 : float, strength of the penalty on the squares of the energies of data and draws, 1/nats
    ema : float in (0, 1), optional
        Weight of the past in an exponential moving average of the parameters, as Adam averages gradients: the
        weights of all iterations are divided by their sum.
    evaluate : callable, optional
        (params) -> float, better if larger, such as a log likelihood of data that are held out.
    evaluate_every : int, optional
        Number of iterations between evaluations; by default a tenth of all.
    checkpoint : path of a file, optional
        The state is written to the file now and then. A call with the same arguments resumes the fit from the
        file, with the same result as without an interruption; a call that would learn otherwise is refused.
    params : pytree, the parameters to start from; by default the result of `model.start`
    seed : int
    progressbar : bool

    Returns
    -------
    Fit

    Raises
    ------
    ValueError, TypeError
        For data that do not fit the model's variables, and for invalid options.
    FloatingPointError
        If the gradient is not finite.
    CheckpointError
        If the file cannot be written, is damaged, is in use by another process, or holds another fit.

    References
    ----------
    Lazaro-Gredilla, Dedieu and George 2021, Algorithm 1. Grathwohl et al. 2021, Eq. 12, sections 7 and 8.

    Notes
    -----
    Parameters that are learned with perturb-and-max-product give good samples by perturb-and-max-product. As
    parameters of the Gibbs distribution they may be far from the maximum of the likelihood (section 5.1).
    """
    for name, value, least in (
        ("iterations", iterations, 1),
        ("chains", chains, 1),
        ("batch", 1 if batch is None else batch, 1),
        ("evaluate_every", 1 if evaluate_every is None else evaluate_every, 1),
        ("seed", seed, 0),
    ):
        check_count(name, value, least)
    check_bar(progressbar)
    penalties = {"l1": l1, "group_l1": group_l1}
    for name, penalty in {**penalties, "energy_l2": energy_l2}.items():
        check_not_negative(name, penalty)
    if ema is not None and not (is_number(ema) and 0 < ema < 1):
        raise ValueError(f"ema must be a number between 0 and 1, such as 0.999, got {ema!r}.")
    optimizer = optimizer or optax.adam(0.01)
    check_kind("model", model, Learnable)
    check_kind("optimizer", optimizer, optax.GradientTransformation)
    objective = objective_of(objective, sampler, chains, energy_l2)
    values = checked_data(model.space, data)
    observations = Observations(
        model.space, values, normalised_weights(weights, len(next(iter(values.values())))), batch
    )
    check_hidden(model, observations, objective)
    key_start, key_kept, key_run = jax.random.split(key_of(seed), 3)
    params = start_of(model, key_start, params)
    check_penalties(model, params, penalties)

    descent = Descent(model, observations, objective, optimizer, penalties, ema, key_run)
    every = evaluate_every or max(iterations // 10, 1)
    if every > iterations:
        raise ValueError(
            f"evaluate_every={every} is more than iterations={iterations}: nothing would be evaluated."
        )
    averaged = () if ema is None else jax.tree.map(jnp.zeros_like, params)
    record = Record(
        np.asarray(0),
        FitState(params, optimizer.init(params), objective.begin(key_kept, model, params), averaged),
        np.full(iterations, np.nan),
        np.full((iterations // every if evaluate else 0, 2), np.nan),
        params if evaluate else (),
    )
    store = None
    if checkpoint is not None:
        options = {"iterations": iterations, "chains": chains, "batch": batch, "seed": seed, "ema": ema}
        options |= penalties | description_of_fit(model, objective, observations)
        store = FitCheckpoint(checkpoint, options | {"program": checksum_of_fit(descent, record.state)})
    with holding(store.file.with_name(f"{store.file.name}.in-use"), store.file) if store else nullcontext():
        record = (store.read(record) if store else None) or record
        record = completed(record, descent, evaluate, every, store, progressbar)
    state = record.state
    learned = descent.learned(state, iterations)
    return Fit(record.best if evaluate else learned, state.params, record.mismatch, record.scores, state.kept)


class Descent(NamedTuple):
    """The iterations of a fit.

    Attributes
    ----------
    model : the model whose parameters are learned
    observations : the data, of which each iteration draws a batch
    objective : what is minimised
    optimizer : optax optimiser
    penalties : {"l1": float, "group_l1": float}, the strengths of the penalties on interactions
    ema : float, the weight of the past in the moving average of the parameters; None for no average
    key : JAX key, from which the keys of all iterations are made
    """

    model: Learnable
    observations: Observations
    objective: Objective
    optimizer: optax.GradientTransformation
    penalties: dict[str, float]
    ema: float | None
    key: Any

    def batch(self, key: Any, state: FitState) -> Batch:
        """The observations of an iteration, with hidden sites drawn given the visible ones."""
        key_batch, key_hidden = jax.random.split(key)
        visible, weights = self.observations.draw(key_batch)
        if not self.observations.hidden:
            return Batch(self.observations.ravelled(visible), weights)
        assert isinstance(self.model, GraphModel)
        assert isinstance(self.objective, Likelihood)
        graph, sampler = self.model.graph(state.params), self.objective.sampler
        draw = jax.vmap(lambda k, values: sampler.conditional(k, graph.clamp(values), state.kept))
        return Batch(draw(jax.random.split(key_hidden, len(weights)), visible), weights)

    def iteration(self, t: Any, state: FitState) -> tuple[FitState, Any]:
        """The state after iteration t, and the norm of the gradient of the objective."""
        key_data, key_model = jax.random.split(jax.random.fold_in(self.key, t))
        params, batch = state.params, self.batch(key_data, state)
        loss, kept = self.objective.loss(key_model, self.model, params, batch, state.kept)
        gradient = jax.grad(loss)(params)
        penalised = gradient
        if any(self.penalties.values()):
            of_penalties = jax.grad(lambda p: penalty(self.model.interactions(p), **self.penalties))(params)
            penalised = jax.tree.map(jnp.add, gradient, of_penalties)
        updates, optimizer = self.optimizer.update(penalised, state.optimizer, params)
        params = optax.apply_updates(params, updates)
        averaged = state.averaged
        if self.ema is not None:
            averaged = jax.tree.map(lambda a, p: self.ema * a + (1 - self.ema) * p, averaged, params)
        return FitState(params, optimizer, kept, averaged), jnp.sqrt(
            sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient))
        )

    def learned(self, state: FitState, t: int) -> Any:
        """The parameters after t iterations; with `ema` their moving average over the iterations, in which
        the parameters at the start have no weight.
        """
        if self.ema is None:
            return state.params
        return jax.tree.map(lambda a: jnp.asarray(a) / (1 - self.ema**t), state.averaged)

    def run(self, state: FitState, first: Any, count: Any) -> tuple[FitState, Any]:
        """The state after `count` iterations from iteration `first`, and the norms of gradients."""

        def body(t: Any, carried: Any) -> Any:
            state, norms = carried
            state, norm = self.iteration(t, state)
            return state, norms.at[t - first].set(norm)

        return jax.lax.fori_loop(first, first + count, body, (state, jnp.zeros(MOST_ITERATIONS_AT_ONCE)))


def completed(
    record: Record,
    descent: Descent,
    evaluate: Callable[[Any], float] | None,
    every: int,
    store: FitCheckpoint | None,
    progressbar: bool,
) -> Record:
    """The record after all iterations, with evaluations and checkpoints on the way."""
    total, run = len(record.mismatch), jax.jit(descent.run)
    observations = descent.observations.batch or len(descent.observations.probabilities)
    count, written, score = 1, time.perf_counter(), ""
    with Progress(total, observations, progressbar, unit="observation", work="iterations") as bar:
        if record.done:
            bar.resumed(int(record.done))
        while record.done < total:
            first = int(record.done)
            ahead = min(total, (first // every + 1) * every) if evaluate else total
            now = min(count, ahead - first)
            clock = time.perf_counter()
            state, norms = jax.block_until_ready(run(record.state, first, now))
            seconds = time.perf_counter() - clock
            record.mismatch[first : first + now] = np.asarray(norms)[:now]
            check_finite_gradients(record.mismatch, first, now)
            record = record._replace(done=np.asarray(first + now), state=state)
            if evaluate and record.done % every == 0:
                params = descent.learned(record.state, int(record.done))
                record = with_evaluation(record, params, evaluate, int(record.done) // every - 1)
                score = f", score {record.scores[int(record.done) // every - 1, 1]:.4g}"
            text = f"{now / max(seconds, 1e-9):,.3g} iterations/s, mismatch {record.mismatch[first]:.3g}"
            bar.show(now, text + score)
            ended = record.done == total
            if store is not None and (ended or time.perf_counter() - written >= CHECKPOINT_SECONDS):
                store.write(record)
                written = time.perf_counter()
            if seconds < SECONDS_AT_ONCE:
                count = min(2 * count, MOST_ITERATIONS_AT_ONCE)
    return record


def with_evaluation(record: Record, params: Any, evaluate: Callable[[Any], float], n: int) -> Record:
    """The record with the score of `params`, from evaluation number n, and the best parameters so far."""
    score = float(evaluate(params))
    if np.isnan(score):
        raise ValueError(
            f"evaluate returned nan after {int(record.done)} iterations. It must return a number that is "
            "larger for better parameters."
        )
    best = record.best if n and score <= record.scores[:n, 1].max() else params
    record.scores[n] = record.done, score
    return record._replace(best=best)


# ---------------------------------------------------------------- penalties on interactions
def penalty(interactions: Any, l1: float, group_l1: float) -> Any:
    """() float, the penalty on interactions, with derivative 0 where an interaction is 0."""
    leaves = jax.tree.leaves(interactions)
    total = jnp.zeros(())
    if l1:
        total += l1 * sum((a * jnp.sign(jax.lax.stop_gradient(a))).sum() for a in leaves)
    if group_l1:
        total += group_l1 * sum(norms_of_tables(a).sum() for a in leaves)
    return total


def norms_of_tables(tables: Any) -> Any:
    """(E,) float, the Euclidean norms of tables (E, K, K), with derivative 0 at 0."""
    squares = (tables**2).sum(axis=(-2, -1))
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)


# ---------------------------------------------------------------- checks of arguments
def check_kind(name: str, given: Any, kind: type) -> None:
    """Raise a TypeError unless the argument `name` of `fit` is of the class `kind`."""
    if not isinstance(given, kind):
        raise TypeError(f"{name} must be {KINDS_OF_MEASURE[name]}, got {given!r}.")


def objective_of(given: Any, sampler: Any, chains: int, energy_l2: float) -> Objective:
    """The objective that the arguments of `fit` ask for."""
    if isinstance(given, str) and given == "likelihood":
        sampler = sampler or PMP()
        check_kind("sampler", sampler, Sampler)
        return Likelihood(sampler, chains, energy_l2)
    objective = OBJECTIVES[given]() if isinstance(given, str) and given in OBJECTIVES else given
    check_kind("objective", objective, Objective)
    if sampler is not None or energy_l2:
        raise ValueError(
            f"sampler and energy_l2 are of the likelihood, which takes draws; objective={given!r} has no "
            "use for them. Leave them out."
        )
    return objective


def check_hidden(model: Learnable, observations: Observations, objective: Objective) -> None:
    """Raise a ValueError for hidden variables where they cannot be drawn."""
    if observations.hidden and not (isinstance(model, GraphModel) and isinstance(objective, Likelihood)):
        raise ValueError(
            f"data lack {', '.join(map(repr, observations.hidden))}, and hidden variables are drawn for the "
            "likelihood of factor graphs only. Pass data of every variable, or use objective='likelihood' "
            "with Ising, Potts, RBM or another GraphModel."
        )


def check_penalties(model: Learnable, params: Any, penalties: dict[str, float]) -> None:
    """Raise a ValueError for penalties on interactions that the model does not have."""
    shapes = [np.shape(a) for a in jax.tree.leaves(model.interactions(params))]
    if any(penalties.values()) and not shapes:
        raise ValueError(
            f"l1 and group_l1 are penalties on interactions, and a {type(model).__name__} names none. Leave "
            "them out, or write `interactions` of your model."
        )
    if penalties["group_l1"] and any(len(shape) != 3 for shape in shapes):
        raise ValueError(
            f"group_l1 is a penalty on tables (E, K, K) of pairs, and the interactions of "
            f"{type(model).__name__} have the shapes {shapes}. Use l1."
        )


def start_of(model: Learnable, key: Any, params: Any) -> Any:
    """The parameters to start from: `params`, which must fit the model, or new ones if it is None."""
    shapes = jax.tree.map(jnp.shape, jax.eval_shape(model.start, key))
    if params is not None and jax.tree.map(jnp.shape, params) != shapes:
        raise ValueError(f"params must be arrays of the shapes {shapes}, as model.start(key) makes them.")
    return model.start(key) if params is None else params


def check_finite_gradients(mismatch: np.ndarray, first: int, count: int) -> None:
    """Raise a FloatingPointError if the gradient of an iteration was not finite."""
    bad = np.flatnonzero(~np.isfinite(mismatch[first : first + count]))
    if len(bad):
        raise FloatingPointError(
            f"The gradient of iteration {first + bad[0]} is not finite. Take a smaller learning rate, such "
            "as optimizer=optax.adam(1e-4), clip gradients (optax.clip_by_global_norm), or penalise large "
            "energies (energy_l2=0.1)."
        )


def description_of_fit(model: Learnable, objective: Objective, observations: Observations) -> dict[str, Any]:
    """{name: text} of the model, the objective and the data of a fit, by which fits are compared."""
    crc = zlib.crc32(np.ascontiguousarray(observations.probabilities).tobytes())
    for name, a in sorted(observations.values.items()):
        crc = zlib.crc32(np.ascontiguousarray(a).tobytes(), zlib.crc32(name.encode(), crc))
    # The text of an objective may contain addresses of functions, which differ between processes and are
    # removed.
    objective_text = re.sub(r" at 0x[0-9a-f]+", "", repr(objective))
    return {"model": type(model).__name__, "objective": objective_text, "data": f"{crc:08x}"}


def checksum_of_fit(descent: Descent, state: FitState) -> str:
    """A checksum of what an iteration computes, with all constants, and of the state at the start.

    The checksum tells fits apart that the description does not: optimisers, networks, base distributions,
    samplers.
    """
    closed = jax.make_jaxpr(descent.iteration)(0, state)
    text = re.sub(r"0x[0-9a-f]+", "", str(closed.jaxpr))
    return checksum("the fit", [text, held_by(closed), jax.tree.leaves(state)])


def held_by(program: Any) -> list[Any]:
    """The constants, also of inner programs, and callbacks of a JAX program, which its text does not show."""
    held = list(getattr(program, "consts", ()))
    for equation in program.eqns:
        held += [v.val for v in equation.invars if hasattr(v, "val")]
        for value in jax.tree.leaves(equation.params, is_leaf=lambda v: hasattr(v, "eqns")):
            if hasattr(value, "eqns"):
                held += held_by(value)
            elif hasattr(value, "callback_func"):
                held.append(value.callback_func)
    return held
