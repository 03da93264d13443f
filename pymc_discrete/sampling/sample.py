"""`pmd.sample`: the whole model in JAX, all chains at once."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pymc as pm
from pymc.exceptions import SamplingError
from pymc.model import modelcontext
from pymc.step_methods.compound import CompoundStep
from pymc.util import get_random_generator
from xarray import DataTree

from pymc_discrete.sampling.continuous import OPTIONS, NutsBlock
from pymc_discrete.sampling.discrete import DiscreteBlock
from pymc_discrete.sampling.program import ChainState, Program
from pymc_discrete.sampling.progress import Progress
from pymc_discrete.sampling.results import KNOWN, check_convergence, data_tree
from pymc_discrete.sampling.starts import starts
from pymc_discrete.steps.auto import AutoStep
from pymc_discrete.steps.fork import refuse_after_fork
from pymc_discrete.steps.step import DiscreteStep

_log = logging.getLogger("pymc.discrete")

TUNING_CHUNK = 50  # fixed, so that where a chain is helped out of a bad start does not depend on `chunk`
UPDATES = 20  # of the progress bar
LARGEST_CHUNK = 2**27  # bytes of draws on the device


def sample(
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    *,
    model: pm.Model | None = None,
    step: Any = None,
    nuts: dict[str, Any] | None = None,
    random_seed: Any = None,
    initvals: Any = None,
    target_accept: float = 0.8,
    var_names: Sequence[str] | None = None,
    thin: int = 1,
    discard_tuned_samples: bool = True,
    progressbar: bool = True,
    chunk: int | str = "auto",
    idata_kwargs: dict[str, Any] | None = None,
    compute_convergence_checks: bool = True,
    callback: Callable[[dict[str, np.ndarray], int], None] | None = None,
) -> DataTree:
    """Sample a model with all its chains in one compiled JAX program.

    Discrete variables move by the steps of `pymc_discrete`, continuous ones by blackjax's NUTS with Stan's staged warm-up.

    Parameters
    ----------
    draws : int
        Draws kept per chain.
    tune : int
        Draws per chain before them, in which everything adapts.
    chains : int
    model : pm.Model, optional
        By default the model of the context.
    step : step of `pymc_discrete` or list of them, optional
        For discrete variables; those that no step names are given to `AutoStep`.
    nuts : dict, optional
        "max_treedepth" (10) and "dense" (False, whether the mass matrix is dense).
    random_seed : int or what `pm.sample` takes, optional
        All random numbers depend on it, on the number of the chain and on that of the draw, and on nothing else.
    initvals : dict or list of dicts, optional
        Starting values as in `pm.sample`. Other continuous variables are jittered, other discrete ones dispersed.
    target_accept : float
        Acceptance that NUTS tunes its step size to.
    var_names : list of str, optional
        What to keep; by default every free variable and Deterministic.
    thin : int
        Transitions of the whole model per draw kept.
    discard_tuned_samples : bool
        False keeps the tuning draws in the groups warmup_posterior and warmup_sample_stats.
    progressbar : bool
    chunk : "auto" or int
        Draws between two looks of the host.
    idata_kwargs : dict, optional
        "log_likelihood", "log_prior" (True or names), "coords", "dims".
    compute_convergence_checks : bool
    callback : callable, optional
        Called after every chunk with the kept draws of the chunk, {name: (chains, n, ...)}, and the number of draws done.

    Returns
    -------
    xarray.DataTree
        As `pm.sample` returns it. Finite discrete variables have the smallest integer type that holds them.

    Raises
    ------
    ValueError, TypeError
        For options, steps and variables that cannot be sampled so, each with the reason and the remedy.
    pymc.exceptions.SamplingError
        Where the chains cannot start, or end tuning in an impossible state.

    References
    ----------
    Hoffman and Gelman 2014, The No-U-Turn Sampler; the steps name their own.

    Examples
    --------
    >>> with pm.Model():
    ...     z = pm.Bernoulli("z", 0.3, shape=10)
    ...     idata = pmd.sample()  # doctest: +SKIP
    """
    for name, value, least in (("draws", draws, 1), ("tune", tune, 0), ("chains", chains, 1), ("thin", thin, 1)):
        check_count(name, value, least)
    if chunk != "auto":
        check_count("chunk", chunk, 1)
    if not 0 < target_accept < 1:
        raise ValueError(f"target_accept must be between 0 and 1, got {target_accept!r}.")
    nuts_options = chosen("nuts", nuts, OPTIONS)
    options = chosen("idata_kwargs", idata_kwargs, dict.fromkeys(KNOWN))
    model = modelcontext(model)
    refuse_after_fork()
    steps = steps_of(model, step)
    named = {v.name for s in steps for v in s.vars}
    continuous = [v.name for v in model.value_vars if v.name not in named]
    point = model.initial_point()
    blocks: list[NutsBlock | DiscreteBlock] = [DiscreteBlock(s, tune) for s in steps]
    if continuous:
        blocks.insert(0, NutsBlock(model, continuous, point, tune, target_accept, **nuts_options))
    rng = get_random_generator(random_seed)
    seed = int(rng.integers(2**31))
    unknown = [n for n in var_names or () if n not in {v.name for v in model.unobserved_value_vars}]
    if unknown:
        raise ValueError(f"var_names has {', '.join(map(repr, unknown))}, which the model does not have.")
    program = Program(model, blocks, var_names, seed)
    points = starts(model, blocks, initvals, chains, np.random.SeedSequence(seed))
    states = program.start(points)

    begin = time.perf_counter()
    with Progress(tune + draws, chains, progressbar) as bar:
        run = Run(program, states, tune, draws, thin, chunk_size(chunk, draws, program, states, chains), bar, callback)
        try:
            run.tune_all(keep=not discard_tuned_samples)
            run.draw_all()
        except KeyboardInterrupt:
            if not run.draws:
                raise
            _log.warning(f"Interrupted after {run.done} of {draws} draws; they are returned.")
    seconds = time.perf_counter() - begin
    _log.info(
        f"Sampling {chains} chain{'s' * (chains > 1)} for {tune:_d} tune and {run.done:_d} draw iterations took {seconds:.0f} seconds."
    )
    told = {"sampling_time": seconds, "tuning_steps": tune, "thin": thin, "random_seed": seed, "sampler": "pymc_discrete.sample"}
    warmup = None if discard_tuned_samples else (gathered(run.warmup_draws), gathered(run.warmup_stats))
    tree = data_tree(model, gathered(run.draws), gathered(run.stats), warmup, told, options)
    if compute_convergence_checks:
        check_convergence(tree, model)
    return tree


class Run:
    """The chains on their way."""

    def __init__(self, program: Program, states: ChainState, tune: int, draws: int, thin: int, size: int, bar: Progress, callback):
        self.program, self.states, self.tune, self.wanted, self.thin, self.size = program, states, tune, draws, thin, size
        self.bar, self.callback = bar, callback
        self.draws: list[dict[str, np.ndarray]] = []
        self.stats: list[dict[str, np.ndarray]] = []
        self.warmup_draws: list[dict[str, np.ndarray]] = []
        self.warmup_stats: list[dict[str, np.ndarray]] = []
        self.done = 0

    def tune_all(self, keep: bool) -> None:
        program, t = self.program, 0
        while t < self.tune:
            count, begin = min(TUNING_CHUNK, self.tune - t), time.perf_counter()
            self.states, draws, stats = program.run(self.states, t, count, 1, size=TUNING_CHUNK)
            stats = fetched(stats, count)
            if keep:
                self.warmup_draws.append(fetched(draws, count))
                self.warmup_stats.append(stats)
            t += count
            self.bar.advance(count, time.perf_counter() - begin, stats, tuning=True)
            if any(np.any(s.adaptation.stuck) for b, s in self._discrete()):
                self.states = program.settle(self.states, t)
        for block, state in self._discrete():
            if self.tune:
                complain(block, state, self.tune)
        if self.tune and np.isneginf(stats["lp"][:, -1]).any():
            raise SamplingError(next((b.step.impossible_message() for b, _ in self._discrete()), "The log density is -inf at the start."))

    def _discrete(self):
        return [(b, s) for b, s in zip(self.program.blocks, self.states.blocks, strict=True) if isinstance(b, DiscreteBlock)]

    def draw_all(self) -> None:
        """Each chunk goes to the host while the next is computed."""
        program, sent, waiting = self.program, 0, []
        begin = time.perf_counter()
        while sent < self.wanted or waiting:
            if sent < self.wanted:
                count = min(self.size, self.wanted - sent)
                self.states, draws, stats = program.run(self.states, self.tune + sent * self.thin, count, self.thin, size=self.size)
                sent += count
                waiting.append((draws, stats, count))
                if len(waiting) == 1 and sent < self.wanted:
                    continue
            draws, stats, count = waiting.pop(0)
            self.draws.append(fetched(draws, count))
            self.stats.append(fetched(stats, count))
            self.done += count
            lp = self.stats[-1]["lp"]
            if np.isnan(lp).any() or np.isposinf(lp).any():
                raise SamplingError("The log density became nan or +inf. Look for nan in the data and for parameters outside their domain.")
            self.bar.advance(count, time.perf_counter() - begin, self.stats[-1], tuning=False)
            begin = time.perf_counter()
            if self.callback is not None:
                self.callback(self.draws[-1], self.done)


def complain(block: DiscreteBlock, state: Any, tune: int) -> None:
    """What tuning left to say, once for all chains."""
    chains = len(np.asarray(state.adaptation.accept))
    said: dict[str, list[int]] = {}
    for n in range(chains):
        one = jax.tree.map(lambda a, n=n: float(np.asarray(a)[n]), state.adaptation)
        for text in block.step.complaints(one, tune):
            said.setdefault(text.split(" is at its lower")[0] if "lower bound" in text else text, []).append(n)
            if len(said[text.split(" is at its lower")[0] if "lower bound" in text else text]) == 1:
                _log.warning(f"Chain {n}: {text}")


def steps_of(model: pm.Model, step: Any) -> list[DiscreteStep]:
    """The steps of all discrete variables."""
    asked = [] if step is None else list(step) if isinstance(step, list | tuple) else [step]
    flat = [s for given in asked for s in (given.methods if isinstance(given, CompoundStep) else [given])]
    for s in flat:
        if not isinstance(s, DiscreteStep):
            raise TypeError(
                f"pmd.sample takes the steps of pymc_discrete, got {type(s).__name__}. Continuous variables get NUTS here (see nuts=); "
                "pm.sample takes all steps."
            )
        if s.model is not model:
            raise ValueError(f"{type(s).__name__} was made for another model. Make it in the context of the model that is sampled.")
    named = [v.name for s in flat for v in s.vars]
    twice = sorted({n for n in named if named.count(n) > 1})
    if twice:
        raise ValueError(f"{', '.join(map(repr, twice))} belongs to two steps. Name each variable once.")
    left = [str(v.name) for v in model.discrete_value_vars if v.name not in named]
    if left:
        made = AutoStep(left, model=model)
        flat += getattr(made, "methods", [made])
    return flat


def check_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")


def chosen(name: str, given: dict[str, Any] | None, known: dict[str, Any]) -> dict[str, Any]:
    """`given`, whose keys must be among those of `known`."""
    for key in given or {}:
        if key not in known:
            raise ValueError(f"{name} has no entry {key!r}; it has {', '.join(known)}.")
    return dict(given or {})


def chunk_size(chunk: int | str, draws: int, program: Program, states: ChainState, chains: int) -> int:
    if chunk != "auto":
        return min(int(chunk), draws)
    shapes = jax.eval_shape(lambda s: program.run(s, 0, 1, 1, size=1)[1:], states)
    each = sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(shapes))
    return int(np.clip(-(-draws // UPDATES), min(50, draws), max(LARGEST_CHUNK // max(each, 1), 1)))


def fetched(records: dict[str, Any], count: int) -> dict[str, np.ndarray]:
    return {name: np.asarray(a)[:, :count] for name, a in records.items()}


def gathered(chunks: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([c[name] for c in chunks], axis=1) for name in chunks[0]} if chunks else {}
