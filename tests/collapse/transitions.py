"""Transitions of a block that sums variables out, with a random walk in the place of NUTS."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pymc_discrete.engine.assembly import blocks_of
from pymc_discrete.engine.nuts import NutsBlock
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.sampling.division import steps_of
from tests.tools.interpreted import interpreted
from tests.tools.running import lp_of

NUTS = {"max_treedepth": 3, "dense": False, "pooled": False}
STEPS, SCALE = 4, 0.8  # of the random walk
FEW = 8  # chains whose transitions are interpreted; those of more are compiled


def walk(nuts, key, t, point, state):
    """As `NutsBlock.draw`, a few steps of Metropolis on the same density, and zeros as statistics.

    They leave the same distribution as it is. Without the gradient and the tree of NUTS a chain is compiled in
    half of the time or less.
    """
    density = nuts.density
    others, start = density.others(point), density.ravel(point)

    def step(n, carried):
        """The first step stays, and finds the log density there: so its program is in the loop alone."""
        q, logp = carried
        key_of_step, key_of_coin = jax.random.split(jax.random.fold_in(key, n))
        new = q + jnp.where(n == 0, 0.0, SCALE) * jax.random.normal(key_of_step, q.shape)
        there = density.block(new, others)
        accept = (n == 0) | (jnp.log(jax.random.uniform(key_of_coin)) < there - logp)
        return jnp.where(accept, new, q), jnp.where(accept, there, logp)

    q, logp = jax.lax.fori_loop(0, STEPS + 1, step, (start, jnp.asarray(-jnp.inf)))
    stats = {name: jnp.zeros((), statistic.type) for name, statistic in nuts.stats.items()}
    return density.joined(q, point), state, stats | {"lp": logp + density.rest(others)}


@pytest.fixture
def walks(monkeypatch):
    """In `pmd.sample` and in steps that make draws ahead, the walk stands for NUTS."""
    monkeypatch.setattr(NutsBlock, "draw", walk)


def after_transitions(model, starts, transitions=3, seed=0, collapse=True, begins=False):
    """The points of chains after transitions that do not tune, and the log densities that these record.

    Parameters
    ----------
    starts : {value variable: (chains, ...)}
    begins : whether the first of them is the first of the chain

    Returns
    -------
    points : {value variable: (chains, ...)}
    lp : (chains,)
    """
    with model_settings():
        point = model.initial_point()
        steps, summed = steps_of(model, None, point, collapse)
        assert summed is not None
        (block, *_), points = blocks_of(model, steps, point, 0, 0.8, NUTS, summed)
        state = block.start({name: value[0] for name, value in starts.items()})
        block.nuts.draw, first = functools.partial(walk, block.nuts), 0 if begins else 10**6

        def chain(key, one):
            def move(n, carried):
                values, _ = carried
                at = {**values, **block.numbers, **block.settings}
                new, _, stats = block.draw(jax.random.fold_in(key, n), n + first, at, state)
                return {name: new[name] for name in values}, stats["lp"]

            return jax.lax.fori_loop(0, transitions, move, (one, jnp.asarray(0.0)))

        chains = len(next(iter(starts.values())))
        packed = {name: np.asarray(value) for name, value in starts.items()}
        for name, members in points.vectors.items():
            packed[name] = np.concatenate([packed.pop(m.name).reshape(chains, -1) for m in members], axis=1)

        def all_chains(packed):
            keys = jax.random.split(jax.random.key(seed), chains)
            return jax.lax.map(lambda one: chain(*one), (keys, packed))

        ends, lp = (interpreted if chains <= FEW else jax.jit)(all_chains)(packed)
        return points.unpacked(jax.tree.map(np.asarray, ends), 1), np.asarray(lp)


def logps_at(model, points):
    """(chains,) PyMC's log density at points {value variable: (chains, ...)}."""
    f = model.compile_logp(mode="FAST_COMPILE")
    chains = len(next(iter(points.values())))
    return np.array([float(f({name: v[c] for name, v in points.items()})) for c in range(chains)])


def logps(model, idata):
    """(chains, draws) PyMC's log density at the draws, at the values of its value variables."""
    values = {}
    for rv in model.free_RVs:
        transform, draws = model.rvs_to_transforms[rv], idata["posterior"][rv.name].values
        value = draws if transform is None else transform.forward(draws, *rv.owner.inputs).eval()
        values[model.rvs_to_values[rv].name] = value.reshape(-1, *value.shape[2:])
    return logps_at(model, values).reshape(lp_of(idata).shape)


def starts_of(model, chains=3):
    """The initial point of a model for some chains."""
    return {name: np.stack([value] * chains) for name, value in model.initial_point().items()}
