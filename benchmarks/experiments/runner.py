"""Run chains of a kernel in compiled loops that keep summaries, not states.

Compiling is not timed: both loops are compiled ahead and called once before timing starts. On a CPU the
chains of one run follow each other (`lax.map`), since under `vmap` both branches of every condition are
computed. On an accelerator they run side by side. A caller can ask for that on a CPU too: it pays for a dense
model, whose products are then of matrices.
"""

import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.scores import bulk_ess
from pymc_discrete.kernels import Info, block_gibbs, loop
from pymc_discrete.kernels.settle import settle
from pymc_discrete.kernels.tuning import Tuner

TUNE_STEPS = 20  # transitions between two updates of a tuned parameter
RECORDS = 50  # records per compiled call; between calls the budget of seconds is checked


@dataclass
class Run:
    """The result of a run.

    Attributes
    ----------
    records : {name: (chains, records, ...)}
    x : (chains, d) int, the last states
    steps : per chain, after burn-in
    thin : steps between two records
    burn_in : steps per chain before
    seconds : of all chains together, without burn-in and compiling
    accept, moves : means per step
    params : of the kernel, after tuning
    """

    records: dict[str, np.ndarray]
    x: np.ndarray
    steps: int
    thin: int
    burn_in: int
    seconds: float
    accept: float
    moves: float
    params: dict[str, Any]


def timed(function, *args):
    """function(*args), compiled beforehand, and the seconds of the call."""
    compiled = jax.jit(function).lower(*args).compile()
    begin = time.perf_counter()
    return jax.block_until_ready(compiled(*args)), time.perf_counter() - begin


def approximate_draw(target, x, key, sweeps):
    """(d,) int, the state after many sweeps of block Gibbs from x."""
    kernel, params = block_gibbs()

    @jax.jit
    def sweep(key, x, target):
        return loop(kernel, key, kernel.init(x, target), target, params, sweeps)[0].x

    return sweep(key, x, target)


def tuner(kernel, params, target, transitions):
    """A function (key, x, begin, steps) -> (value, acceptance).

    It tunes the kernel's parameter from the value `begin` as a step of `pm.sample` does in `steps` draws of
    so many transitions.
    """
    name = kernel.tuned.name

    @jax.jit
    def call(key, x, target, value):
        state, info = loop(kernel, key, kernel.init(x, target), target, {**params, name: value}, transitions)
        return state.x, info.accept, (state.x != x).sum()

    settled = jax.jit(settle)

    def tune(key, x, begin, steps):
        own = Tuner.of(kernel, {**params, name: begin}, target.space)
        learned = own.start()
        for t in range(steps):
            key_settle, key_draw = jax.random.split(jax.random.fold_in(key, t))
            x = settled(key_settle, x, target) if learned.adaptation.stuck else x
            x, accept, moved = call(key_draw, x, target, float(own.value(learned, tuning=True)))
            learned = own.update(learned, x, float(accept), 1.0, int(moved), steps)
        return float(own.value(learned, tuning=False)), float(learned.adaptation.accept)

    return tune


def each_chain(function, together):
    """`function(own, shared)` over chains; `own` has a leading axis of chains, `shared` is common to all.

    together : whether the chains run side by side
    """
    if not together:
        return lambda own, shared: jax.lax.map(lambda a: function(a, shared), own)
    return lambda own, shared: jax.vmap(function, in_axes=(0, None))(own, shared)


def run(
    target,
    kernel,
    params,
    starts,
    record,
    *,
    steps,
    thin=1,
    burn_in=0,
    seconds=np.inf,
    seed=0,
    restart=False,
    together=None,
    size=RECORDS,
    report=None,
):
    """Burn in (and tune), then sample until `steps` per chain, or for about `seconds`.

    Parameters
    ----------
    starts : (chains, d) int
    record : state -> {name: array}, traced, called every `thin` steps
    steps, burn_in : per chain; burn-in takes half of `seconds` at most
    restart : whether to return to the starts after tuning, to see the burn-in itself
    together : whether all chains run side by side; by default not on a CPU
    size : records per compiled call
    report : (steps after burn-in, x (chains, d)) -> None, called after every compiled call, not timed

    Returns
    -------
    Run
    """
    chains = len(starts)
    size = int(min(size, max(steps // thin, 1)))
    together = jax.default_backend() != "cpu" if together is None else together
    shared = (target, jax.tree.map(lambda p: jnp.asarray(float(p)), params))
    zero = Info(jnp.zeros(()), jnp.zeros((), int), jnp.zeros((), int))

    def some_steps(key, state, total, shared, count):
        def body(t, carried):
            state, total = carried
            state, info = kernel.step(jax.random.fold_in(key, t), state, *shared)
            return state, jax.tree.map(lambda a, b: (a + b).astype(a.dtype), total, info)

        return jax.lax.fori_loop(0, count, body, (state, total))

    @jax.jit
    def steps_only(keys, states, shared, count):
        return each_chain(lambda own, shared: some_steps(own[0], own[1], zero, shared, count), together)(
            (keys, states), shared
        )

    @jax.jit
    def steps_and_records(keys, states, shared, thin):
        def chain(own, shared):
            def body(carried, t):
                carried = some_steps(jax.random.fold_in(own[0], t), *carried, shared, thin)
                return carried, record(carried[0])

            return jax.lax.scan(body, (own[1], zero), jnp.arange(size))

        return each_chain(chain, together)((keys, states), shared)

    def keys():
        keys.count += 1
        return jax.random.split(jax.random.fold_in(jax.random.key(seed), keys.count), chains)

    keys.count = 0
    clock = time.perf_counter
    begin_at = jax.jit(lambda starts, target: each_chain(kernel.init, together)(starts, target))
    settled = jax.jit(
        lambda keys, x, target: each_chain(lambda own, target: settle(*own, target), together)(
            (keys, x), target
        )
    )
    states = begin_at(jnp.asarray(starts), target)
    steps_only = steps_only.lower(keys(), states, shared, TUNE_STEPS).compile()
    steps_and_records = steps_and_records.lower(keys(), states, shared, thin).compile()
    jax.block_until_ready(
        (steps_only(keys(), states, shared, 1), steps_and_records(keys(), states, shared, 0))
    )

    # ---- burn-in
    begin = clock()
    states, _ = jax.block_until_ready(steps_only(keys(), states, shared, TUNE_STEPS))
    draws = int(min(burn_in // TUNE_STEPS, max(seconds / 2 / (clock() - begin), 1)))
    own = Tuner.of(kernel, params, target.space)
    learned = own.start()
    if restart and own.name is None:
        draws = 0
    for t in range(draws):
        if clock() - begin > seconds:  # the tuned value grew, and steps cost more than the first ones
            draws = t
            break
        if own.name is not None:
            shared = with_param(shared, own.name, own.value(learned, tuning=True))
            if learned.adaptation.stuck:
                states = begin_at(settled(keys(), states.x, target), target)
        before = np.asarray(states.x)
        states, total = steps_only(keys(), states, shared, TUNE_STEPS)
        if own.name is not None:
            accept = float(np.mean(total.accept)) / TUNE_STEPS
            moved = int((np.asarray(states.x) != before).sum())
            learned = own.update(learned, states.x, accept, 1.0, moved, draws)
    if own.name is not None and draws:
        shared = with_param(shared, own.name, own.value(learned, tuning=False))
    if restart:
        states = begin_at(jnp.asarray(starts), target)
    jax.block_until_ready(states)

    # ---- sampling
    kept, totals, done, spent = [], [], 0, 0.0
    while done < steps and spent < seconds:
        begin = clock()
        (states, total), records = jax.block_until_ready(steps_and_records(keys(), states, shared, thin))
        spent += clock() - begin
        done += size * thin
        kept.append(jax.tree.map(np.asarray, records))
        totals.append(jax.tree.map(lambda a: float(np.mean(a)), total))
        if report is not None:
            report(done, np.asarray(states.x))
    return Run(
        records={name: np.concatenate([k[name] for k in kept], axis=1) for name in kept[0]},
        x=np.asarray(states.x),
        steps=done,
        thin=thin,
        burn_in=(draws + 1) * TUNE_STEPS,
        seconds=spent,
        accept=sum(t.accept for t in totals) / done,
        moves=sum(t.n_moves for t in totals) / done,
        params=jax.tree.map(float, shared[1]),
    )


def with_param(shared, name, value):
    target, params = shared
    return target, {**params, name: jnp.asarray(value, params[name].dtype)}


def random_starts(space, chains, seed):
    """(chains, d) int, every site uniform over its support."""
    r = np.random.default_rng(seed)
    return r.integers(space.lower, space.upper + 1, size=(chains, space.d))


def ess(values):
    """Bulk ESS of (chains, records), per chain.

    It is that of all chains together by their number, so that chains that disagree have a small one. The
    values are rounded: a log density carried from step to step drifts by 1e-13, which would separate equal
    values in the ranks from which ESS is computed.
    """
    values = np.round(np.asarray(values, float), 6)
    moved = np.ptp(values, axis=1)
    if not moved.any():
        return 0.0
    import arviz as az

    value = float(az.ess(values, method="bulk")) if len(values) > 1 else bulk_ess({"": values[0]})[""]
    return value / len(values) if np.isfinite(value) else 0.0


def figures(result, sampler, space, names, drop=0.0):
    """The numbers of a row: ESS of the recorded summaries `names`, per 100,000 steps, second and evaluation.

    ESS per second is summed over chains. The first share `drop` of the records is left out of the ESS, which
    is scaled up accordingly.
    """
    chains = len(result.x)
    each = {
        name: ess(np.asarray(v)[:, int(drop * v.shape[1]) :]) / (1 - drop)
        for name, v in result.records.items()
        if name in names
    }
    least = min(each.values())
    evaluations = sampler.evaluations(result.moves, space) * result.steps
    return {
        "steps": result.steps,
        "chains": chains,
        "steps per s": chains * result.steps / result.seconds,
        "accept": result.accept,
        "moves": result.moves,
        **{f"ESS {name} per 1e5 steps": 1e5 * value / result.steps for name, value in each.items()},
        "ESS/s": chains * least / result.seconds,
        "ESS per 1e5 evaluations": 1e5 * least / evaluations,
        "params": ", ".join(f"{k}={v:.3g}" for k, v in result.params.items()),
    }
