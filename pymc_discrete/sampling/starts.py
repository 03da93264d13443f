"""Where the chains start: dispersed, and possible."""

from typing import Any

import jax
import numpy as np
import pymc as pm
from pymc.initial_point import make_initial_point_fns_per_chain

from pymc_discrete.sampling.discrete import DiscreteBlock
from pymc_discrete.steps.checks import check_start, dispersed

RETRIES = 10


def starts(model: pm.Model, blocks, initvals: Any, chains: int, seed: np.random.SeedSequence) -> list[dict[str, np.ndarray]]:
    """A start per chain: continuous variables jittered by U(-1, 1) as in `pm.sample`, discrete ones dispersed unless `initvals` gives them.

    Raises
    ------
    pymc.exceptions.SamplingError
        Where no possible start was found, with the term that is in the way.
    """
    jittered = {rv for rv in model.free_RVs if rv.dtype.startswith("float")}
    functions = make_initial_point_fns_per_chain(model=model, overrides=initvals, jitter_rvs=jittered, chains=chains)
    given = initvals if isinstance(initvals, list | tuple) else [initvals] * chains
    points = []
    for function, own, child in zip(functions, given, seed.spawn(chains), strict=True):
        rng = np.random.default_rng(child)
        for attempt in range(RETRIES + 1):
            point = {name: np.asarray(value) for name, value in function(int(rng.integers(2**30))).items()}
            point = spread_out(point, blocks, own, rng)
            logp = density(blocks, point)
            if np.isfinite(logp):
                break
            if attempt == RETRIES and not (np.isneginf(logp) and any(isinstance(b, DiscreteBlock) for b in blocks)):
                model.check_start_vals(point, mode="FAST_COMPILE")  # raises; an impossible discrete state is left in tuning
        points.append(point)
    for block in blocks:
        if isinstance(block, DiscreteBlock):
            check_start(block.target, points[0], np.asarray(block.split(points[0])[0]))
    return points


def spread_out(point: dict[str, np.ndarray], blocks, given: dict | None, rng: np.random.Generator) -> dict[str, np.ndarray]:
    named = {getattr(k, "name", k) for k in (given or {})}
    for block in blocks:
        if isinstance(block, DiscreteBlock) and not named & {v.name for v in block.target.space.variables}:
            x, target = block.target.at(point)
            point = {**point, **{k: v for k, v in block.target.density.join(dispersed(x, target, rng), point).items() if k in point}}
    return point


def density(blocks, point: dict[str, np.ndarray]) -> float:
    """The log density of the whole model."""
    return float(jax.jit(blocks[0].logdensity)(point))
