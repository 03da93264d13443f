"""The samplers that are compared, one registered function each.

A sampler is `run(spec, seed, recorder)`: it draws one chain of the model until `recorder.add` raises Done,
and raises CannotRun where it does not support the model. To add one of our steps:

    sampler("dmala", ours=True)(our_step("DiscreteLangevin"))
"""

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import numpy as np

from benchmarks.harness import CannotRun

SAMPLERS = {}
BUFFER_DRAWS, CHUNK_SECONDS = 2000, 1.0
BUFFER_BYTES = 2**28  # an upper limit to the buffer of many chains
# draws between two callbacks of pmd.sample, for one chain: 0.3 to 1 s on the CPU of the results
CHUNKS = {"A": 700, "B": 5000, "C": 50_000, "D": 3000, "E": 2000, "F": 12_000, "I": 12_000}
SMALLEST_CHUNK = 25
SWEEPS_PER_DRAW = 1  # of BlockGibbs within pmd.sample, which sets transitions=1


@dataclass(frozen=True)
class Sampler:
    name: str
    run: Callable
    models: str  # names of the models it is meant for
    ours: bool
    note: str


def sampler(name, models="ABCDEF", *, ours=False, note=""):
    """Register the decorated function as a sampler for these models."""

    def register(run):
        SAMPLERS[name] = Sampler(name, run, models, ours, note)
        return run

    return register


# ---------------------------------------------------------------- through pm.sample
def run_pymc(spec, seed, recorder, step=None, change=None, complete=None, initvals=None):
    """One chain of pm.sample, timed draw by draw in its callback.

    Compile seconds: from before the step is built to the end of the first draw, less a typical draw. The
    first draw after tuning is dropped, as a sampler may compile again there; its excess counts as compiling.
    Sampling seconds are those between callbacks: all that pm.sample does for a draw, and nothing of what the
    recorder does.

    step : (pymc_discrete, discrete names) -> step; None is PyMC's own choice
    change : model -> model, applied before timing starts
    complete : (arrays, rng) -> arrays, timed as part of sampling
    initvals : start values, where `change` has removed those of the model
    """
    import pymc as pm
    from pymc.backends.ndarray import NDArray

    class Window(NDArray):
        """PyMC's own trace, but of a fixed size and reused: the number of draws is not known beforehand."""

        def setup(self, draws, chain, sampler_vars=None):
            super().setup(BUFFER_DRAWS, chain, sampler_vars)

        def record(self, *args, **kwargs):
            if self.draw_idx == self.draws:
                self.draw_idx = 0  # only while tuning: afterwards the callback empties it in time
            super().record(*args, **kwargs)

    model, names = spec.pymc()
    model = change(model) if change else model
    rng = np.random.default_rng(seed)
    clock = time.perf_counter
    tuning = []  # end of every tuning draw
    mark = None  # time at which the current chunk began
    nuts_seconds = 0.0

    def callback(trace, draw):
        nonlocal mark, nuts_seconds
        now = clock()
        if draw.tuning:
            tuning.append(now)
            return
        nuts_seconds += sum(stats.get("perf_counter_diff", 0.0) for stats in draw.stats)  # only NUTS has it
        if mark is None:
            nuts_seconds = 0.0
            per_draw = np.diff([start, *tuning, now])
            typical = np.median(per_draw[len(per_draw) // 2 :])
            compiling = (per_draw[0] - typical) + max(0.0, per_draw[-1] - typical)
            recorder.ready(compiling, now - start - compiling)
        elif trace.draw_idx < BUFFER_DRAWS and now - mark < CHUNK_SECONDS:
            return
        else:
            arrays = {name: values[: trace.draw_idx].copy() for name, values in trace.samples.items()}
            arrays = complete(arrays, rng) if complete else arrays
            seconds = clock() - mark
            recorder.nuts_seconds = nuts_seconds
            recorder.add(arrays, seconds)
        trace.draw_idx = 0
        mark = clock()

    with model:
        if step is not None:
            import pymc_discrete  # importing is not compiling
        start = clock()
        step = None if step is None else [step(pymc_discrete, names)]
        pm.sample(
            draws=10**9,
            tune=spec.tune,
            chains=1,
            cores=1,
            step=step,
            trace=Window(model=model),
            random_seed=seed,
            initvals=initvals,
            callback=callback,
            progressbar=False,
            compute_convergence_checks=False,
            return_inferencedata=False,
        )


@sampler("pymc", note="pm.sample() with PyMC's own steps")
def pymc_default(spec, seed, recorder):
    run_pymc(spec, seed, recorder)


def marginalized(model):
    """The model with `z` summed out by pymc_extras, and without start values, which its function refuses."""
    import pymc_extras
    from pymc_extras.model.marginal import distributions

    if pymc_extras.__version__.startswith("0.12."):
        # pytensor 3.3 refuses the way in which this release inlines its inner graph ('FrozenApply' object
        # has no attribute 'clone_with_new_inputs'), and later releases do not support pymc 6.4: replace it.
        def inline(op, inputs):
            return op.fgraph.bind(dict(zip(op.inner_inputs, inputs, strict=True)))

        distributions.inline_ofg_outputs = inline
    model.rvs_to_initial_values.update(dict.fromkeys(model.rvs_to_initial_values))
    return pymc_extras.marginalize(model, ["z"])


@sampler(
    "marginalize-nuts", "B", note="pymc_extras.marginalize, NUTS; z drawn exactly in NumPy, inside the clock"
)
def marginalize_nuts(spec, seed, recorder):
    run_pymc(spec, seed, recorder, change=marginalized, complete=spec.complete, initvals=spec.start_values)


def our_step(name, **options):
    """One of the package's steps on all discrete variables of the model."""

    def build(pmd, names):
        if not hasattr(pmd, name):
            raise CannotRun(f"this commit has no {name}")
        try:
            return getattr(pmd, name)(names, **options)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise CannotRun(f"{type(error).__name__}: {error}") from error

    def run(spec, seed, recorder):
        run_pymc(spec, seed, recorder, step=build)

    return run


sampler("gwg-1", ours=True)(our_step("GibbsWithGradients", n_flips=1))
for n in (4, 12, 24):
    sampler(f"gwg-{n}", "C", ours=True)(our_step("GibbsWithGradients", n_flips=n))
sampler("gwg-adapt", ours=True)(our_step("GibbsWithGradients", n_flips="adapt"))
sampler("pafs", ours=True)(our_step("PathAuxiliary"))
sampler("pas", ours=True)(our_step("PathAuxiliary", recompute=True))
sampler("no-backtrack", ours=True)(our_step("PathAuxiliary", backtrack=False))
sampler("dmala", ours=True)(our_step("DiscreteLangevin"))
sampler("dlmc", ours=True)(our_step("DiscreteLangevin", proposal="dlmc"))
sampler("block-gibbs", ours=True)(our_step("BlockGibbs"))
sampler("auto", ours=True, note="what pmd.AutoStep() chooses")(our_step("AutoStep"))


# ---------------------------------------------------------------- through pmd.sample
def run_sample(spec, seed, recorder, chains=1, chunk=None, **options):
    """Chains of pmd.sample in one compiled program, timed in its callback.

    pmd.sample computes the next chunk while the callback runs. The callback therefore waits for that chunk
    before it does anything else. A chunk is timed from the callback's return, when pmd.sample starts it, to
    the end of this wait: the host's work on the chunk before is included, the recorder's is not.

    Compile seconds: up to the end of the first stretch of tuning, less the time of its draws, and the time by
    which the first chunk exceeds the third. The first two chunks are not counted, as one wait covers both.

    chunk : draws of a chain per chunk; by default CHUNKS of the model shared among the chains
    options : of pmd.sample
    """
    import jax

    import pymc_discrete as pmd
    from pymc_discrete.sampling.sample import Progress

    missing = set(options) - set(inspect.signature(pmd.sample).parameters)
    if missing:
        raise CannotRun(f"this commit's pmd.sample has no {', '.join(missing)}")
    model, _ = spec.pymc()
    clock = time.perf_counter
    tuned = []  # (draws, seconds, end) of every stretch of tuning
    chunk_seconds = [0.0, 0.0]  # of every chunk; the first two are not timed
    released = begun = 0.0

    class Watched(Progress):
        def advance(self, draws, seconds, stats, tuning):
            if tuning:
                tuned.append((draws, seconds, clock()))
            super().advance(draws, seconds, stats, tuning)

    def callback(draws, done):
        nonlocal released, begun
        begun = begun or clock()
        jax.block_until_ready([a for a in jax.live_arrays() if not a.is_deleted()])
        if released:
            chunk_seconds.append(clock() - released)
        number = len(chunk_seconds) - 2  # of the chunk in `draws`, from 0
        if number == 2:
            recorder.ready(*setup_seconds(start, tuned, begun, chunk_seconds[2]))
        if number > 1:
            recorder.add_chains(dict(draws), chunk_seconds[number])
        draws.clear()  # pmd.sample would keep them in memory
        released = clock()

    with mock.patch("pymc_discrete.sampling.sample.Progress", Watched):
        start = clock()
        pmd.sample(
            draws=10**7,
            tune=spec.tune,
            chains=chains,
            model=model,
            random_seed=seed,
            chunk=chunk or max(CHUNKS[spec.name] // chains, SMALLEST_CHUNK),
            callback=callback,
            progressbar=False,
            **options,
        )


def setup_seconds(start, tuned, first_chunk_end, chunk):
    """(compile seconds, tune seconds) of pmd.sample.

    start : time of the call
    tuned : (draws, seconds, end) of every stretch of tuning
    first_chunk_end : time at which the first chunk of draws ended
    chunk : seconds of a chunk once everything is compiled
    """
    draws, seconds, end = tuned[0]
    usual = draws * np.median([s / n for n, s, _ in tuned[1:] or tuned])
    compiling_again = max(0.0, first_chunk_end - tuned[-1][2] - chunk)
    return end - start - usual + compiling_again, sum(s for _, s, _ in tuned) - seconds + usual


@sampler("sample", ours=True, note="pmd.sample, one compiled program; discrete variables as in auto")
def sample(spec, seed, recorder):
    run_sample(spec, seed, recorder)


# ---------------------------------------------------------------- NumPyro
def run_numpyro(spec, seed, recorder, kernel, chains=1):
    """Chains of a NumPyro kernel in a compiled loop of our own, `size` draws at a time; several by jax.vmap,
    which its Gibbs kernels require.

    numpyro.infer.MCMC (0.22 on jax 0.12) compiles again at every `run` that continues a chain, which would
    count as sampling. The loop here does the same: kernel.init, .sample, .postprocess_fn. `size` is traced,
    so that it is compiled once; compile seconds are those of init and of a call of 0 draws.

    kernel : model function -> MCMC kernel
    """
    import jax
    import jax.numpy as jnp

    together = chains > 1

    if spec.numpyro is None:
        raise CannotRun(spec.numpyro_missing)
    recorder.precision = "float64" if jax.config.jax_enable_x64 else "float32"
    clock = time.perf_counter
    start = clock()
    mcmc = kernel(spec.numpyro())
    key = jax.random.PRNGKey(seed)
    state = mcmc.init(key, spec.tune, None, (), {})
    constrain, sample = mcmc.postprocess_fn((), {}), lambda state: mcmc.sample(state, (), {})
    if together:
        state = jax.vmap(lambda key: mcmc.init(key, spec.tune, None, (), {}))(jax.random.split(key, chains))
        constrain, sample = jax.vmap(constrain), jax.vmap(sample)

    def values(state):
        return constrain(getattr(state, mcmc.sample_field))

    shapes = jax.tree.leaves(jax.eval_shape(values, state))
    most = int(np.clip(BUFFER_BYTES // sum(a.size * a.dtype.itemsize for a in shapes), 1, BUFFER_DRAWS))
    least = min(1 if together else 20, most)

    @jax.jit
    def loop(state, size):
        def body(i, carry):
            state, kept = carry
            state = sample(state)
            return state, jax.tree.map(lambda all_, one: all_.at[i].set(one), kept, values(state))

        def buffer(one):
            return jnp.zeros((most, *jnp.shape(one)), jnp.result_type(one))

        kept = jax.tree.map(buffer, values(state))
        return jax.lax.fori_loop(0, size, body, (state, kept))

    jax.block_until_ready(loop(state, 0))
    compiled = clock()
    state, _ = jax.block_until_ready(loop(state, spec.tune))
    recorder.ready(compiled - start, clock() - compiled)
    size = least
    while True:
        begin = clock()
        state, kept = loop(state, size)
        arrays = {name: np.asarray(all_)[:size] for name, all_ in kept.items()}
        seconds = clock() - begin
        recorder.add_chains(
            {name: a.swapaxes(0, 1) if together else a[None] for name, a in arrays.items()}, seconds
        )
        size = int(np.clip(size * CHUNK_SECONDS / seconds, least, most))


def discrete_gibbs(**options):
    """NumPyro's DiscreteHMCGibbs around NUTS; on a purely discrete model (C, F) its discrete part alone."""

    def run(spec, seed, recorder, chains=1):
        from numpyro.infer import NUTS, DiscreteHMCGibbs
        from numpyro.infer.gibbs import DiscreteGibbs

        def kernel(model):
            if not spec.continuous:
                return DiscreteGibbs(model, **options)
            return DiscreteHMCGibbs(NUTS(model, **start_at(spec)), **options)

        run_numpyro(spec, seed, recorder, kernel, chains)

    return run


sampler("numpyro-gibbs", note="DiscreteHMCGibbs(NUTS); on C and F its DiscreteGibbs alone")(discrete_gibbs())
sampler("numpyro-gibbs-modified", note="DiscreteHMCGibbs(NUTS, modified=True)")(discrete_gibbs(modified=True))
sampler("numpyro-gibbs-walk", note="DiscreteHMCGibbs(NUTS, random_walk=True)")(
    discrete_gibbs(random_walk=True)
)


@sampler(
    "numpyro-mixed-hmc", "ABCDE", note="MixedHMC(HMC(trajectory_length=1.2)), one update per discrete site"
)
def mixed_hmc(spec, seed, recorder):
    import jax
    from numpyro.infer import HMC, MixedHMC

    jax.config.update("jax_enable_x64", True)  # in float32 its step size collapses on B: a draw takes minutes

    def kernel(model):
        return MixedHMC(HMC(model, trajectory_length=1.2, **start_at(spec)))

    run_numpyro(spec, seed, recorder, kernel)


@sampler("numpyro-by-hand", "ABC", note="exact Gibbs written by hand in HMCGibbs(NUTS), see by_hand.py")
def by_hand(spec, seed, recorder):
    from benchmarks.by_hand import KERNELS

    run_numpyro(spec, seed, recorder, lambda model: KERNELS[spec.name](model, **start_at(spec)))


@sampler("numpyro-by-hand-64", "ABC", note="the same in float64")
def by_hand_in_float64(spec, seed, recorder):
    import jax

    jax.config.update("jax_enable_x64", True)
    by_hand(spec, seed, recorder)


def start_at(spec):
    """The option that starts HMC or NUTS at the model's start values, where it has some."""
    import jax.numpy as jnp
    from numpyro.infer import init_to_value

    values = {name: jnp.asarray(value) for name, value in spec.start_values.items()}
    return {"init_strategy": init_to_value(values=values)} if values else {}
