"""`pmd.sample`: samples a whole model in one compiled JAX program."""

import inspect
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import partial
from os import PathLike
from typing import Any

import jax
import numpy as np
import pymc as pm
from xarray import DataTree

from pymc_discrete.diagnostics.convergence import check_convergence, import_meanwhile
from pymc_discrete.diagnostics.draws import COUNTED_ATTRIBUTE, DISCRETE_ATTRIBUTE, PARTITIONS_ATTRIBUTE
from pymc_discrete.diagnostics.known.leaving import Leaving
from pymc_discrete.engine.block import Block, GradientNotFinite
from pymc_discrete.engine.ladder import report_of
from pymc_discrete.engine.nuts_options import nuts_options
from pymc_discrete.engine.precision import check_precision, check_starts_in_32_bits, precision
from pymc_discrete.engine.program import Program, recorded
from pymc_discrete.engine.run import POSTERIOR, WARMUP, ChainsRun, chunk_size
from pymc_discrete.engine.shares import RunningChains
from pymc_discrete.engine.starts import by_name, check_initvals, check_supports
from pymc_discrete.engine.storage import Checkpoint, Memory
from pymc_discrete.engine.summed import SummedBlock
from pymc_discrete.model.analyses_on_disk import analyses_kept
from pymc_discrete.model.blocks import model_of
from pymc_discrete.model.support import partitions_of
from pymc_discrete.model.without_jax import all_in_jax
from pymc_discrete.runtime.checks import check_entries
from pymc_discrete.runtime.devices import FEWEST_SHARED, spread_over
from pymc_discrete.runtime.fork import refuse_after_fork
from pymc_discrete.runtime.progress import Progress
from pymc_discrete.runtime.seeds import seed_of
from pymc_discrete.runtime.waiting import watched
from pymc_discrete.sampling.fingerprint import checksum, fingerprint, starts_fingerprint
from pymc_discrete.sampling.lock import folder_held
from pymc_discrete.sampling.options import (
    check_arguments,
    check_collapse,
    check_names,
    check_superchains,
    check_tempered,
    refuse,
)
from pymc_discrete.sampling.planned import PlannedRun
from pymc_discrete.sampling.results import KNOWN, data_tree
from pymc_discrete.steps.base import JaxStep
from pymc_discrete.tempering.options import replicas_of
from pymc_discrete.version import __version__

_log = logging.getLogger("pymc.discrete")

# the warning where several devices share each chain and nothing can be divided between them
UNDIVIDED = (
    f"{{}} devices share each chain, but no array of the model has the {FEWEST_SHARED:,} elements that "
    "they would divide between them: each computes all of the chain. One device for each chain takes no "
    "longer: devices=jax.devices()[:chains]."
)


@watched("Preparing the model")
def sample(
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    *,
    model: pm.Model | None = None,
    step: Any = None,
    nuts: dict[str, Any] | None = None,
    collapse: Any = "auto",
    random_seed: Any = None,
    initvals: Any = None,
    target_accept: float = 0.8,
    var_names: Sequence[str] | None = None,
    thin: int = 1,
    discard_tuned_samples: bool = True,
    progressbar: bool | str = True,
    devices: Sequence[jax.Device] | None = None,
    dtype: str = "float64",
    chunk: int | str = "auto",
    checkpoint: str | PathLike[str] | None = None,
    idata_kwargs: dict[str, Any] | None = None,
    compute_convergence_checks: bool = True,
    return_inferencedata: bool = True,
    callback: Callable[[dict[str, np.ndarray], int], None] | None = None,
    superchains: int | None = None,
    temper: bool | dict[str, Any] = False,
    **options: Any,
) -> DataTree:
    """Sample a model with all its chains in one compiled JAX program.

    Discrete variables move by the steps of `pymc_discrete`, continuous ones by blackjax's NUTS with Stan's
    staged warm-up, or by `ReparameterizedSlice` where a step names them.

    Parameters
    ----------
    draws : int
        Draws kept per chain.
    tune : int
        Tuning draws per chain, in which everything adapts; they come before the draws that are kept.
    chains : int
    model : pm.Model, optional
        The default is the model of the `with` block.
    step : step of `pymc_discrete` or list of them, optional
        Discrete variables that no step names are given to `AutoStep`, continuous ones to NUTS.
    nuts : dict, optional
        "max_treedepth" (10); "dense" ("auto"), whether the mass matrix is dense: True, False, or "auto",
        which chooses by the tuning draws if variables are summed or integrated out, for up to 32 coordinates,
        and else means False; "pooled" (False), whether the chains share one step size and mass matrix learned
        from all of them, for many chains and a short warm-up. Chains that are pooled are not independent.
    collapse : "auto", bool or list
        Discrete variables to sum out of the density on which NUTS moves, as names or variables, or True for
        all that have no step. By default these are counts that a term ties to continuous variables, and
        labels of unknown probability if a sum is cheap; the log names them. They are drawn from their exact
        conditional after each transition of NUTS. This removes the tie between discrete and continuous
        variables, as between counts and their detection probability, at the price of a sum over all states in
        each evaluation. Counts without a bound are summed over some values at random about their current
        value, which leaves the posterior exact. The group ``probabilities`` of the result has the mean of
        p(z_i = k | theta) over all transitions after tuning, for every value k.
    random_seed : int or what `pm.sample` takes, optional
        All random numbers are a function of it, the index of the chain and the index of the draw.
    initvals : dict or list of dicts, optional
        Starting values as in `pm.sample`: continuous variables are jittered about them, and discrete
        variables start at them. Other discrete variables are dispersed.
    target_accept : float
        Acceptance that NUTS tunes its step size to.
    var_names : list of str, optional
        What to keep; by default every free variable and Deterministic, except discrete variables of more than
        100,000 elements with at most 16 values: for these the group ``probabilities`` has how often each
        element had each value, and ``NAME counts`` in the posterior has the number of elements with each
        value in each draw.
    thin : int
        Transitions of the whole model per draw kept. Sampler statistics summarise all of them: means of
        acceptances, sums of n_steps, whether any diverged.
    discard_tuned_samples : bool
        False keeps the tuning draws in the groups warmup_posterior and warmup_sample_stats.
    progressbar : bool or str
        Words that `pm.sample` takes, such as "split", show the one bar that there is.
    devices : list of jax.Device, optional
        The devices that the chains are spread over; by default as many of `jax.devices()` as divide the
        chains evenly, and of all processes if `jax.distributed` was initialised. If more devices are given
        than there are chains, all of them share each chain: each computes some of the rows of the data and of
        the unknowns. If a CPU is the only device, one thread per core shares the chains; a device that is
        given here is used by one thread.
    dtype : {"float64", "float32"}
        Type of the floats; with "float32" integers have 32 bits. Acceptance is then computed from sums of
        changes, because the rounding of a log density of a million nats would affect it.
    chunk : "auto" or int
        Draws of each chain that are computed before they are transferred to the host.
    checkpoint : path, optional
        A folder to which the run is saved after every chunk. The same call resumes an interrupted run, and
        gives the same draws to the last bit; with more `draws` a run goes on, also one that had ended, as if
        so many had been asked for at first. The draws of the result stay on the disk, memory-mapped.
    idata_kwargs : dict, optional
        "log_likelihood", "log_prior" (True or names), "coords", "dims". The log likelihood "marginal" has one
        term for each observation given the other observations, with the variables of `collapse` summed out,
        or all discrete variables without `collapse`; "component" has one term for each component of connected
        sites. Variables that are not summed out are conditioned on. See `recover`.
    compute_convergence_checks : bool
        Report divergences, R-hat and ESS as `pm.sample` does, and discrete variables that never move.
    return_inferencedata : bool
        Must be True: there is no MultiTrace.
    callback : callable, optional
        Called after every chunk with the kept draws of the chunk, {name: (chains, n, ...)}, and the number of
        draws done.
    superchains : int, optional
        The number of groups of chains; all chains of a group start at the same point, for
        `pmd.diagnostics.nested_rhat`: many chains, too short for R-hat of each. Superchain n has the chains n
        * chains / superchains and so on. A list of `initvals` has one entry for each superchain.
    temper : bool or dict
        True for chains that do not stay in one mode: each chain has replicas at inverse temperatures from 0,
        the prior, to 1, the posterior, and replicas exchange temperatures (non-reversible parallel tempering,
        Syed et al. 2022). {"replicas": n} says how many; by default their number is chosen while tuning, 64
        at most. The draws are the states at 1. The group ``tempering`` of the result has the schedule, the
        rejection rates, round trips and the log evidence. Discrete variables are summed out at all
        temperatures if all of them can be summed out at little cost, unless `collapse` is False or a step
        names them; ``lp`` is then the log density with these variables summed out.
    **options
        No further options are accepted. For an argument that only `pm.sample` has, the error says what to do
        instead.

    Returns
    -------
    xarray.DataTree
        As `pm.sample` returns it. Finite discrete variables have the smallest signed integer type that holds
        their support: convert with `.astype(int)` before arithmetic that exceeds it (int8 ends at 127).

    Raises
    ------
    ValueError, TypeError
        For invalid options, steps and variables, with the reason and the remedy. Among them are continuous
        variables by which the log density has no gradient: give these to `ReparameterizedSlice`.
    CheckpointError
        If the folder cannot be written to, is in use by another process, holds another run or damaged draws,
        or the model holds something that cannot be compared between processes, such as an open file. Draws
        that were written before are kept.
    NotImplementedError
        If the model has an Op without a JAX implementation.
    pymc.exceptions.SamplingError
        If a chain cannot start, or ends tuning at a point of log density -inf.

    References
    ----------
    Hoffman and Gelman 2014, The No-U-Turn Sampler; Syed, Bouchard-Cote, Deligiannidis and Doucet 2022,
    Non-reversible parallel tempering; the steps name their own.

    Examples
    --------
    >>> with pm.Model():
    ...     z = pm.Bernoulli("z", 0.3, shape=10)
    ...     idata = pmd.sample()  # doctest: +SKIP
    """
    refuse(options, [*inspect.signature(sample).parameters])
    draws, tune, chains, thin = map(as_plain, (draws, tune, chains, thin))
    counts = {"draws": (draws, 1), "tune": (tune, 0), "chains": (chains, 1), "thin": (thin, 1)}
    check_arguments(
        counts, target_accept, chunk, dtype, return_inferencedata, callback, checkpoint, model, progressbar
    )
    nuts = nuts_options(nuts)
    replicas = replicas_of(temper)
    if replicas is not None:
        check_tempered(dtype, nuts)
    check_entries("idata_kwargs", idata_kwargs, KNOWN)
    of_idata = idata_kwargs or {}
    check_precision(dtype)
    model = model_of(model)
    collapse = check_collapse(collapse, dtype, model)
    check_names(model, var_names)
    points_wanted = check_superchains(superchains, chains)
    initvals = by_name(model, initvals)
    check_initvals(model, initvals, points_wanted, "superchain" if superchains else "chain")
    refuse_after_fork()
    writes = not jax.process_index()  # if JAX runs on several machines, only the first machine writes
    with (
        folder_held(checkpoint) if checkpoint is not None and writes else nullcontext(),
        precision(dtype),
        all_in_jax(),
        analyses_kept(model),
    ):
        planned = PlannedRun.of(
            model, step, collapse, replicas, tune, target_accept, nuts, var_names, of_idata
        )
        blocks, outputs, counted = planned.blocks, planned.outputs, planned.counted
        check_supports(blocks, planned.point, initvals)
        settings = {
            "draws": draws,
            "tune": tune,
            "chains": chains,
            "superchains": superchains,
            "thin": thin,
            "target_accept": target_accept,
            "nuts": nuts,
            "variables": sorted(str(v.name) for v in model.value_vars),
            "var_names": var_names and sorted(var_names),
            "steps": [b.described() for b in blocks],
            "keep_warmup": not discard_tuned_samples,
            "dtype": dtype,
        }
        if counted.variables:
            settings["counted"] = counted.names
        if replicas is not None:
            settings["replicas"] = replicas
        store = store_of(checkpoint, settings, model, var_names, initvals, blocks)
        finished = store.done(POSTERIOR) == draws
        seed = store.seed(seed_of(random_seed))
        used, threads = spread_over(devices, chains)
        shown = bool(progressbar) and jax.process_index() == 0
        with Progress(tune + draws, chains, shown) as bar:
            program = Program(model, blocks, planned.packing, outputs, used, counted, planned.ladder)
            if used.shape[1] > 1 and not program.divides_chains(planned.point):
                _log.warning(UNDIVIDED.format(used.shape[1]))
            # It returns states of all chains, whose values mean nothing: to compile the shapes are enough.
            anywhere = partial(program.start, [planned.point] * chains, False)
            if not program.begun("run"):
                begin_to_compile(RunningChains(program, anywhere(), seed, threads), chunk)
            for with_gradient in (False, True):
                if store.begun:
                    states = store.load_state(like=anywhere())
                    _log.info(resumed(checkpoint, store.done(POSTERIOR), draws))
                else:
                    of_starts = np.random.SeedSequence(seed)
                    points = planned.starts(initvals, points_wanted, of_starts, with_gradient)
                    points = [point for point in points for _ in range(chains // points_wanted)]
                    if dtype == "float32":
                        check_starts_in_32_bits(model, points)
                    states = program.start(points)
                begun = time.perf_counter()
                try:
                    with closing(RunningChains(program, states, seed, threads)) as all_chains:
                        del states  # which may be large, and are now on the devices
                        run = ChainsRun(model, all_chains, store, tune, draws, thin, chunk, bar, callback)
                        if compute_convergence_checks:
                            import_meanwhile()
                        run.complete(keep_warmup=not discard_tuned_samples)
                    break
                # A gradient that is not finite is found with the first draws, before anything is stored. So
                # the run begins again, from starting points at which the gradient is finite.
                except GradientNotFinite:
                    if with_gradient:
                        raise
        conclusions = run.conclusions() if compute_convergence_checks else []
    if counted.variables:
        _log.info(counted.said(draws * chains))
    if report := report_of(run.states):
        _log.info(report.said())
    seconds, done = time.perf_counter() - begun, store.done(POSTERIOR)
    if not finished:
        _log.info(
            f"Sampling {chains} chain{'s' * (chains > 1)} for {tune:_d} tune and {done:_d} draw iterations "
            f"took {seconds:.0f} seconds."
        )
    attributes: dict[str, Any] = {
        "sampling_time": seconds,
        "tuning_steps": tune,
        "thin": thin,
        "random_seed": seed,
        "sampler": "pymc_discrete.sample",
        "sampler_version": __version__,
        "interrupted": int(done < draws),
        "dtype": dtype,
        "target_accept": target_accept,
        "steps": "; ".join(b.described() for b in blocks),
    }
    tree = result_of(model, planned, run, store, attributes, of_idata, discard_tuned_samples)
    if compute_convergence_checks:
        with watched("Looking at the draws"):
            check_convergence(
                tree, model, partial(leaving_at_the_end, run, dtype), finished, used_by(planned.steps, blocks)
            )
        for text in conclusions:
            _log.warning(text)
    return tree


def begin_to_compile(chains: RunningChains, chunk: int | str) -> None:
    """Begin to compile the program in a thread, while starting points are checked.

    The chains are those of any states of the right shapes, and are closed, which does not stop the thread.
    """
    with closing(chains):
        chains.begin(chunk_size(chains, chunk))


def as_plain(n: Any) -> Any:
    """A number as a Python number, if it is one of NumPy's integers."""
    return int(n) if isinstance(n, np.integer) else n


def result_of(
    model: pm.Model,
    planned: PlannedRun,
    run: ChainsRun,
    store: Memory | Checkpoint,
    attributes: dict[str, Any],
    of_idata: dict[str, Any],
    discard_tuned: bool,
) -> DataTree:
    """The draws of a run as `sample` returns them.

    Parameters
    ----------
    attributes : those of the posterior, without the ones that list variables
    of_idata : the argument `idata_kwargs` of `sample`
    """
    outputs, counted = planned.outputs, planned.counted
    attributes = attributes | discrete_recorded(model, outputs)
    if counted.variables:
        attributes[COUNTED_ATTRIBUTE] = json.dumps(counted.names)
    warmup = None if discard_tuned else (store.read(WARMUP, "draws"), store.read(WARMUP, "stats"))
    kept, stats = store.read(POSTERIOR, "draws"), store.read(POSTERIOR, "stats")
    kept = in_order_of([*(v.name for v in outputs), *(v.totals for v in counted.variables)], kept)
    groups, axes = run.groups, counted.axes()
    return data_tree(model, kept, stats, warmup, attributes, of_idata, groups, planned.likelihood, axes)


def discrete_recorded(model: pm.Model, outputs: Sequence[Any]) -> dict[str, str]:
    """The attributes of the result that name the recorded discrete variables, and the partitions
    among them."""
    discrete = {str(v.name) for v in model.discrete_value_vars}
    drawn = [v.name for v in outputs if v.name in discrete]
    partitions = [name for name in drawn if name in partitions_of(model)]
    recorded = {DISCRETE_ATTRIBUTE: drawn, PARTITIONS_ATTRIBUTE: partitions}
    return {attribute: json.dumps(names) for attribute, names in recorded.items() if names}


def in_order_of(names: Sequence[str], draws: Mapping[str, Any]) -> dict[str, Any]:
    """The draws in PyMC's order of variables, which JAX has lost: it sorts dictionaries by their keys."""
    return {name: draws[name] for name in names}


def used_by(steps: Sequence[Any], blocks: Sequence[Block]) -> dict[str, str]:
    """{variable: a description of the step that draws it or the block that sums it out}."""
    ours = [s for s in steps if isinstance(s, JaxStep)]
    sums = [b for b in blocks if isinstance(b, SummedBlock)]
    drawn = {name: s.described() for s in ours for name in s.own_variables}
    return drawn | {name: b.described() for b in sums for name in b.collapsed.density.names}


def leaving_at_the_end(run: ChainsRun, dtype: str) -> dict[str, Leaving]:
    """For each discrete variable the probability that its sites change, at the last points of the chains."""
    with precision(dtype):
        return run.leaving()


def resumed(checkpoint: Any, done: int, draws: int) -> str:
    """The log message when a run is resumed from a folder."""
    outcome = "they are returned" if done == draws else "the run goes on"
    return f"{checkpoint} holds {done} of {draws} draws: {outcome}."


def store_of(
    checkpoint: str | PathLike[str] | None,
    settings: dict[str, Any],
    model: pm.Model,
    var_names: Sequence[str] | None,
    initvals: Any,
    blocks: list[Block],
) -> Memory | Checkpoint:
    """The storage of the draws; a folder belongs to one run, known by its settings, model, data
    and starts."""
    if checkpoint is None:
        return Memory()
    fingerprints = {
        "model and data": fingerprint(model, recorded(model, var_names)),
        "initvals": starts_fingerprint(model, initvals),
        "coords": checksum("the coordinates", model.coords),
        "options of the steps": checksum("the steps", [b.options() for b in blocks]),
    }
    return Checkpoint(
        checkpoint, {**settings, **fingerprints}, {WARMUP: settings["tune"], POSTERIOR: settings["draws"]}
    )
