"""`pmd.sample`: the whole model in JAX, all chains at once."""

import logging
import time
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import jax
import numpy as np
import pymc as pm
from pymc.model import modelcontext
from pymc.step_methods.compound import CompoundStep
from pymc.util import get_random_generator
from xarray import DataTree

from pymc_discrete.sampling.continuous import OPTIONS, NutsBlock
from pymc_discrete.sampling.discrete import DiscreteBlock
from pymc_discrete.sampling.program import Program
from pymc_discrete.sampling.progress import Progress
from pymc_discrete.sampling.results import KNOWN, check_convergence, data_tree
from pymc_discrete.sampling.run import POSTERIOR, WARMUP, Run
from pymc_discrete.sampling.starts import starts
from pymc_discrete.sampling.storage import Checkpoint, Memory
from pymc_discrete.steps.auto import AutoStep
from pymc_discrete.steps.fork import refuse_after_fork
from pymc_discrete.steps.step import DiscreteStep

_log = logging.getLogger("pymc.discrete")


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
    devices: Sequence[jax.Device] | None = None,
    chunk: int | str = "auto",
    checkpoint: str | PathLike[str] | None = None,
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
    devices : list of jax.Device, optional
        Over which the chains are spread; by default as many of `jax.devices()` as divide the chains evenly, those of all processes where
        `jax.distributed` was initialised.
    chunk : "auto" or int
        Draws between two looks of the host.
    checkpoint : path, optional
        A folder that holds the run after every chunk. Calling again with the same arguments goes on where a run was cut off, and ends
        with the same draws to the last bit; the draws of the result stay on the disk.
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
    CheckpointError
        Where the folder cannot be written to, or holds another run or damaged draws; what was written before is kept.
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
    unknown = [n for n in var_names or () if n not in {v.name for v in model.unobserved_value_vars}]
    if unknown:
        raise ValueError(f"var_names has {', '.join(map(repr, unknown))}, which the model does not have.")
    settings = {"draws": draws, "tune": tune, "chains": chains, "thin": thin, "target_accept": target_accept, "nuts": nuts_options}
    settings |= {"variables": sorted(str(v.name) for v in model.value_vars), "var_names": var_names and sorted(var_names)}
    settings |= {"steps": [f"{type(s).__name__} {[v.name for v in s.vars]}" for s in steps], "keep_warmup": not discard_tuned_samples}
    store = Memory() if checkpoint is None else Checkpoint(checkpoint, settings, {WARMUP: tune, POSTERIOR: draws})
    seed = store.seed(None if random_seed is None else int(get_random_generator(random_seed).integers(2**31)))
    program = Program(model, blocks, var_names, seed, spread_over(devices, chains))
    if store.begun:
        states = program.placed(store.load_state(like=program.start([point] * chains)))
    else:
        states = program.start(starts(model, blocks, initvals, chains, np.random.SeedSequence(seed)))
    begin = time.perf_counter()
    with Progress(tune + draws, chains, progressbar) as bar:
        run = Run(program, states, store, tune, draws, thin, chunk, bar, callback)
        try:
            run.tune_all(keep=not discard_tuned_samples)
            run.draw_all()
        except KeyboardInterrupt:
            if not store.done(POSTERIOR):
                raise
            _log.warning(f"Interrupted after {store.done(POSTERIOR)} of {draws} draws; they are returned.")
    seconds, done = time.perf_counter() - begin, store.done(POSTERIOR)
    _log.info(f"Sampling {chains} chain{'s' * (chains > 1)} for {tune:_d} tune and {done:_d} draw iterations took {seconds:.0f} seconds.")
    told = {"sampling_time": seconds, "tuning_steps": tune, "thin": thin, "random_seed": seed, "sampler": "pymc_discrete.sample"}
    warmup = None if discard_tuned_samples else (store.read(WARMUP, "draws"), store.read(WARMUP, "stats"))
    tree = data_tree(model, store.read(POSTERIOR, "draws"), store.read(POSTERIOR, "stats"), warmup, told, options)
    if compute_convergence_checks:
        check_convergence(tree, model)
    return tree


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


def spread_over(devices: Sequence[jax.Device] | None, chains: int) -> list[jax.Device]:
    """The devices that share the chains evenly."""
    if devices is not None:
        found = list(devices)
        if not found or chains % len(found):
            raise ValueError(f"{chains} chains cannot be spread evenly over {len(found)} devices. Give a multiple, or other devices.")
        return found
    found = jax.devices()
    number = next(n for n in range(min(chains, len(found)), 0, -1) if chains % n == 0)
    if jax.process_count() > 1 and number < len(found):
        raise ValueError(f"{chains} chains cannot be spread evenly over the {len(found)} devices of all processes. Give a multiple.")
    return found[:number]


def check_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")


def chosen(name: str, given: dict[str, Any] | None, known: dict[str, Any]) -> dict[str, Any]:
    """`given`, whose keys must be among those of `known`."""
    for key in given or {}:
        if key not in known:
            raise ValueError(f"{name} has no entry {key!r}; it has {', '.join(known)}.")
    return dict(given or {})
