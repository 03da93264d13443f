"""The samplers that are compared, one registered function each.

A sampler is `run(spec, seed, recorder)`: it draws one chain of the model until `recorder.add` raises Done, and raises
CannotRun where it does not take the model. To add one that goes through pm.sample:

    @sampler("dmala", ours=True)
    def dmala(spec, seed, recorder):
        run_pymc(spec, seed, recorder, step=lambda pmd, names: pmd.DiscreteLangevin(names))
"""
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.recorder import CannotRun

SAMPLERS = {}
BUFFER_DRAWS, CHUNK_SECONDS = 2000, 1.0


@dataclass(frozen=True)
class Sampler:
    name: str
    run: Callable
    models: str  # names of the models it is meant for
    ours: bool
    note: str


def sampler(name, models="ABCDE", *, ours=False, note=""):
    """Register the decorated function as a sampler for these models."""

    def register(run):
        SAMPLERS[name] = Sampler(name, run, models, ours, note)
        return run

    return register


# ---------------------------------------------------------------- through pm.sample
def run_pymc(spec, seed, recorder, step=None, change=None, complete=None, initvals=None):
    """One chain of pm.sample, timed draw by draw in its callback.

    Compile seconds: from before the step is built to the end of the first draw, less a typical draw. Tuning follows.
    The first draw after tuning is dropped, as a sampler may compile again there; its excess counts as compilation.
    Sampling seconds are those between callbacks, so they hold all that pm.sample does for a draw and none of ours.

    step : (pymc_discrete, discrete names) -> step; None is PyMC's own choice
    change : model -> model, before the clock starts
    complete : (arrays, rng) -> arrays, inside the clock
    initvals : start values where `change` has taken them from the model
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
    mark = None  # start of the chunk that is being drawn

    def callback(trace, draw):
        nonlocal mark
        now = clock()
        if draw.tuning:
            tuning.append(now)
            return
        if mark is None:
            per_draw = np.diff([start, *tuning, now])
            typical = np.median(per_draw[len(per_draw) // 2 :])
            compiling = (per_draw[0] - typical) + max(0.0, per_draw[-1] - typical)
            recorder.ready(compiling, now - start - compiling)
        elif trace.draw_idx < BUFFER_DRAWS and now - mark < CHUNK_SECONDS:
            return
        else:
            arrays = {name: values[: trace.draw_idx].copy() for name, values in trace.samples.items()}
            arrays = complete(arrays, rng) if complete else arrays
            recorder.add(arrays, clock() - mark)
        trace.draw_idx = 0
        mark = clock()

    with model:
        start = clock()
        if step is not None:
            import pymc_discrete

            step = [step(pymc_discrete, names)]
        pm.sample(
            draws=10**9, tune=spec.tune, chains=1, cores=1, step=step, trace=Window(model=model), random_seed=seed,
            initvals=initvals, callback=callback, progressbar=False, compute_convergence_checks=False, return_inferencedata=False,
        )


@sampler("pymc", note="pm.sample() with PyMC's own steps")
def pymc_default(spec, seed, recorder):
    run_pymc(spec, seed, recorder)


@sampler("marginalize-nuts", "B", note="pymc_extras.marginalize and NUTS; z drawn exactly in NumPy, inside the clock")
def marginalize_nuts(spec, seed, recorder):
    import pymc_extras
    from pymc_extras.model.marginal import distributions

    if pymc_extras.__version__.startswith("0.12."):
        # pytensor 3.3 refuses the way in which this release inlines its inner graph ('FrozenApply' has no attribute
        # 'clone_with_new_inputs'), and later releases do not take pymc 6.4: bind the frozen graph instead.
        distributions.inline_ofg_outputs = lambda op, inputs: op.fgraph.bind(dict(zip(op.inner_inputs, inputs)))

    def change(model):  # marginalize does not take a model with initial values: they go to pm.sample
        model.rvs_to_initial_values.update(dict.fromkeys(model.rvs_to_initial_values))
        return pymc_extras.marginalize(model, ["z"])

    run_pymc(spec, seed, recorder, change=change, complete=spec.complete, initvals=spec.start_values)


def gibbs_with_gradients(n_flips):
    def run(spec, seed, recorder):
        run_pymc(spec, seed, recorder, step=lambda pmd, names: pmd.GibbsWithGradients(names, n_flips=n_flips))

    return run


sampler("gwg-1", ours=True)(gibbs_with_gradients(1))
for n in (4, 12, 24):
    sampler(f"gwg-{n}", "C", ours=True)(gibbs_with_gradients(n))


# ---------------------------------------------------------------- NumPyro
def run_numpyro(spec, seed, recorder, kernel):
    """One chain of a NumPyro kernel in a compiled loop of our own, `size` draws at a time.

    Not numpyro.infer.MCMC, which (0.22 on jax 0.12) compiles again at every `run` that continues a chain: seconds
    that are no part of sampling. The loop is the same: kernel.init, kernel.sample, kernel.postprocess_fn. `size` is
    an argument, so one compilation serves all calls, and compile seconds are those of init and a call of no draws.

    kernel : model function -> MCMC kernel
    """
    import jax
    import jax.numpy as jnp

    if spec.numpyro is None:
        raise CannotRun(spec.numpyro_missing)
    clock = time.perf_counter
    start = clock()
    mcmc = kernel(spec.numpyro())
    state = mcmc.init(jax.random.PRNGKey(seed), spec.tune, None, (), {})
    constrain = mcmc.postprocess_fn((), {})

    def values(state):
        return constrain(getattr(state, mcmc.sample_field))

    @jax.jit
    def loop(state, size):
        def body(i, carry):
            state, kept = carry
            state = mcmc.sample(state, (), {})
            return state, jax.tree.map(lambda all_, one: all_.at[i].set(one), kept, values(state))

        kept = jax.tree.map(lambda one: jnp.zeros((BUFFER_DRAWS, *jnp.shape(one)), jnp.result_type(one)), values(state))
        return jax.lax.fori_loop(0, size, body, (state, kept))

    jax.block_until_ready(loop(state, 0))
    compiled = clock()
    state, _ = jax.block_until_ready(loop(state, spec.tune))
    recorder.ready(compiled - start, clock() - compiled)
    size = 20
    while True:
        begin = clock()
        state, kept = loop(state, size)
        arrays = {name: np.asarray(all_)[:size] for name, all_ in kept.items()}
        seconds = clock() - begin
        recorder.add(arrays, seconds)
        size = int(np.clip(size * CHUNK_SECONDS / seconds, 20, BUFFER_DRAWS))


def discrete_gibbs(**options):
    """NumPyro's DiscreteHMCGibbs around NUTS; on a purely discrete model its discrete part alone."""

    def run(spec, seed, recorder):
        from numpyro.infer import NUTS, DiscreteHMCGibbs, init_to_value
        from numpyro.infer.gibbs import DiscreteGibbs

        def kernel(model):
            if not spec.continuous:
                return DiscreteGibbs(model, **options)
            start = {"init_strategy": init_to_value(values=spec.start_values)} if spec.start_values else {}
            return DiscreteHMCGibbs(NUTS(model, **start), **options)

        run_numpyro(spec, seed, recorder, kernel)

    return run


sampler("numpyro-gibbs", note="DiscreteHMCGibbs(NUTS)")(discrete_gibbs())
sampler("numpyro-gibbs-modified", note="DiscreteHMCGibbs(NUTS, modified=True)")(discrete_gibbs(modified=True))
sampler("numpyro-gibbs-walk", note="DiscreteHMCGibbs(NUTS, random_walk=True)")(discrete_gibbs(random_walk=True))


@sampler("numpyro-mixed-hmc", note="MixedHMC(HMC(trajectory_length=1.2)), one update per discrete site")
def mixed_hmc(spec, seed, recorder):
    from numpyro.infer import HMC, MixedHMC, init_to_value

    start = {"init_strategy": init_to_value(values=spec.start_values)} if spec.start_values else {}
    run_numpyro(spec, seed, recorder, lambda model: MixedHMC(HMC(model, trajectory_length=1.2, **start)))
