"""Transitions of a block that sums variables out, with a random walk in the place of NUTS."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pymc_discrete.engine.assembly import blocks_of
from pymc_discrete.engine.block import TUNE
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.sampling.division import steps_of
from tests.tools import interpreted as interpreter
from tests.tools.running import lp_of
from tests.tools.walk import walk

NUTS = {"max_treedepth": 3, "dense": False, "pooled": False}
FEW = 8  # chains whose transitions are interpreted; those of more are compiled


def after_transitions(model, starts, transitions=3, seed=0):
    """The points of chains after transitions that do not tune, and the log densities that these record.

    Parameters
    ----------
    starts : {value variable: (chains, ...)}

    Returns
    -------
    points : {value variable: (chains, ...)}
    lp : (chains,)
    """
    return run_of_block(model, starts, transitions, seed)[1:3]


def run_of_block(model, starts, transitions, seed=0, begins=False):
    """As `after_transitions`; before these results the block, and after them its states.

    Parameters
    ----------
    begins : whether the first of the transitions is the first of the chain
    """
    with model_settings():
        point = model.initial_point()
        steps, summed = steps_of(model, None, point, True)
        assert summed is not None
        (block,), points = blocks_of(model, steps, point, 0, 0.8, NUTS, summed)
        start = block.start({name: value[0] for name, value in starts.items()})
        block.nuts.draw, first = functools.partial(walk, block.nuts), 0 if begins else 10**6

        def chain(key, one):
            def move(n, carried):
                values, state, _ = carried
                at = {**values, **block.numbers, TUNE: np.asarray(0)}
                new, state, stats = block.draw(jax.random.fold_in(key, n), n + first, at, state)
                return {name: new[name] for name in values}, state, stats["lp"]

            state = jax.tree.map(jnp.asarray, start)
            return jax.lax.fori_loop(0, transitions, move, (one, state, jnp.asarray(0.0)))

        chains = len(next(iter(starts.values())))
        packed = {name: np.asarray(value) for name, value in starts.items()}
        for name, members in points.vectors.items():
            packed[name] = np.concatenate([packed.pop(m.name).reshape(chains, -1) for m in members], axis=1)

        def all_chains(packed):
            keys = jax.random.split(jax.random.key(seed), chains)
            return jax.lax.map(lambda one: chain(*one), (keys, packed))

        with pytest.MonkeyPatch.context() as patch:
            # tables that loops hand on, as of logarithms of factorials, count as if loops computed them
            patch.setattr(interpreter, "LARGEST", 10 * interpreter.LARGEST)
            run = (interpreter.interpreted if chains <= FEW else jax.jit)(all_chains)
            ends, states, lp = jax.tree.map(np.asarray, run(packed))
        return block, points.unpacked(ends, 1), lp, states


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
        if transform is not None:
            draws = transform.forward(draws, *rv.owner.inputs).eval(mode="FAST_COMPILE")
        values[model.rvs_to_values[rv].name] = draws.reshape(-1, *draws.shape[2:])
    return logps_at(model, values).reshape(lp_of(idata).shape)


def starts_of(model, chains=3):
    """The initial point of a model for some chains."""
    return {name: np.stack([value] * chains) for name, value in model.initial_point().items()}
