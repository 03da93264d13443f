"""A chain with replicas: each replica has its own inverse temperature, and neighbours swap theirs."""

import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from jax import Array

from pymc_discrete.engine.block import TUNE
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.recorder import Recorder
from pymc_discrete.engine.storage import on_host
from pymc_discrete.tempering.prior_draws import CannotDraw, PriorDraws
from pymc_discrete.tempering.report import Report
from pymc_discrete.tempering.schedule import (
    FIRST_RUNGS,
    ends_round,
    equal_rejections,
    first_schedule,
    rungs_for,
)
from pymc_discrete.tempering.swaps import Traffic, acceptance, arrived, observed, swapped, uniforms_of_swaps
from pymc_discrete.tempering.tempered import BETA, LIKELIHOOD

_log = logging.getLogger("pymc.discrete")

MOST = 64  # the largest number of replicas that is chosen automatically
# The inverse temperature of the rung of the prior, if the prior is not drawn from directly. It is not 0,
# since 0 times an infinite log likelihood is nan.
LEAST_BETA = 1e-15
# the number of bytes that the replicas of all chains may take if their number is chosen automatically
LARGEST = 2**30
# Numbers that are folded into the key of a chain for the random numbers of its ladder; rungs use smaller
# numbers.
KEY_OF_SWAPS, KEY_OF_PRIOR = 2**31, 2**31 + 1


class Replicas(NamedTuple):
    """The replicas of a chain. A rung is an inverse temperature, which one of the replicas has.

    Attributes
    ----------
    point : {variable or vector: (R, ...)}, the points of all replicas
    likelihoods : (R,) float, nats, the log likelihood of each replica
    blocks : (R, ...), the adaptation states of the blocks at each rung
    betas : (R,) float, inverse temperatures of the rungs, from 0 to 1
    replica_at : (R,) int, the replica at each rung
    rungs : () int, the number of rungs in use
    traffic : statistics of the swaps between replicas
    """

    point: dict[str, Any]
    likelihoods: Any
    blocks: tuple[Any, ...]
    betas: Any
    replica_at: Any
    rungs: Any
    traffic: Traffic


def report_of(states: Any) -> Report | None:
    """A report on the replicas of chains with the states (chains, ...); None if they are not tempered."""
    replicas = states.replicas
    if not isinstance(replicas, Replicas):
        return None
    return Report.of(*jax.tree.map(on_host, (replicas.betas, replicas.rungs, replicas.traffic)))


class Ladder:
    """The replicas of the chains of a tempered model.

    Parameters
    ----------
    model : pm.Model, the tempered model
    points : which of its discrete variables a chain keeps together in one vector
    replicas : int, or "auto" for a number chosen during tuning
    tune : the number of tuning draws

    Attributes
    ----------
    numbers : {name: array}, data and constants of the model that the ladder reads
    prior : an object that draws exactly from the prior; None if a distribution of the prior has no JAX
        version
    """

    def __init__(self, model: pm.Model, points: Points, replicas: int | str, tune: int):
        self.replicas = replicas
        self.likelihood, of_likelihood = Recorder.of(model, [LIKELIHOOD], points, {}, of="likelihood")
        self.prior: PriorDraws | None = None
        self.points, self.numbers = points, {TUNE: np.asarray(tune), **of_likelihood}
        names = [str(v.name) for v in model.value_vars if v.name != BETA]
        try:
            self.prior, of_prior = PriorDraws.of(model, names)
            self.numbers = self.numbers | of_prior
        except CannotDraw as error:
            _log.info(
                f"Tempering: {error}. The replica at the prior moves by the steps, and the evidence is not "
                "known."
            )

    @property
    def key(self) -> Hashable:
        """A key that is equal for ladders that compute the same."""
        return (self.likelihood, self.prior, self.replicas == "auto")

    def start(self, point: Mapping[str, Any], blocks: tuple[Any, ...], chains: int) -> Replicas:
        """The replicas of a chain before the first iteration, all at one point, on the host."""
        size, rungs = self._size(point, blocks, chains)
        betas = np.array(first_schedule(rungs, size))
        betas[0] = 0.0 if self.prior else LEAST_BETA
        several = lambda a: np.broadcast_to(np.asarray(a), (size, *np.shape(a))).copy()
        return Replicas(
            {name: several(a) for name, a in point.items() if name != BETA},
            np.full(size, -np.inf),
            jax.tree.map(several, blocks),
            betas,
            np.arange(size),
            np.asarray(rungs),
            jax.tree.map(np.asarray, Traffic.fresh(size)),
        )

    def _size(self, point: Mapping[str, Any], blocks: Any, chains: int) -> tuple[int, int]:
        """The length of the arrays of replicas, and the number of replicas with which tuning begins."""
        if self.replicas != "auto":
            return int(self.replicas), int(self.replicas)
        bytes_of_one = sum(np.asarray(a).nbytes for a in jax.tree.leaves((dict(point), blocks)))
        most = int(np.clip(LARGEST // max(bytes_of_one * chains, 1), FIRST_RUNGS, MOST))
        return most, FIRST_RUNGS

    # ------------------------------------------------------------ parts of the compiled program
    def transition(
        self, move: Callable, stats: Any, key: Array, t: Any, replicas: Replicas, numbers: dict[str, Any]
    ) -> tuple[Replicas, Any]:
        """The replicas after iteration t, and the statistics of the replica at the last rung.

        Neighbours swap first, then every replica moves.

        Parameters
        ----------
        move : (key, t, point, blocks) -> (point, blocks, stats), a move of all blocks
        stats : the statistics of a move, as zeros
        numbers : {name: array}, the data, constants and settings that the program takes as arguments
        """
        size, tune = len(replicas.betas), numbers[TUNE]
        replicas = jax.lax.cond(ends_round(t, tune), self._rearranged, lambda r: r, replicas)
        traffic = jax.tree.map(
            lambda now, fresh: jnp.where(t == tune, fresh, now), replicas.traffic, Traffic.fresh(size)
        )
        by_rung = replicas.likelihoods[replicas.replica_at]
        accept = acceptance(replicas.betas, by_rung, replicas.rungs)
        seen = observed(traffic, replicas.betas, by_rung, accept)
        # The first iteration is left out of the statistics of swaps, since the log likelihoods are not known
        # before the first move.
        traffic = jax.tree.map(lambda new, old: jnp.where(t > 0, new, old), seen, traffic)
        drawn = uniforms_of_swaps(jax.random.fold_in(jax.random.fold_in(key, KEY_OF_SWAPS), t), size)
        replica_at = swapped(drawn, t, replicas.replica_at, accept)
        traffic = arrived(traffic, replica_at, replicas.rungs)

        def moved(k: Any, point: dict[str, Any], blocks: Any) -> Any:
            """The point, the adaptation states and the statistics of the replica at rung k after its move."""
            there = point | {BETA: replicas.betas[k]} | numbers

            def by_blocks() -> Any:
                after, adapted, found = move(jax.random.fold_in(key, k), t, there, blocks)
                return {name: after[name] for name in point}, adapted, found

            prior = self.prior
            if prior is None:
                return by_blocks()

            def by_prior() -> Any:
                key_now = jax.random.fold_in(jax.random.fold_in(key, KEY_OF_PRIOR), t)
                return self._packed(prior(key_now, there), point), blocks, stats

            return jax.lax.cond(k == 0, by_prior, by_blocks)

        def step(k: Any, carried: Any) -> Any:
            points, likelihoods, adapted, _ = carried
            one = replica_at[k]
            point = {name: a[one] for name, a in points.items()}
            point, own, found = moved(k, point, jax.tree.map(lambda a: a[k], adapted))
            value = self._likelihood_at(point | {BETA: replicas.betas[k]} | numbers)
            # A draw of the prior may have no finite value under a variable's transform, for example if it is
            # out of order for an ordered vector. Its log likelihood is -inf, so that no swap takes it.
            finite = [jnp.isfinite(a).all() for a in point.values() if jnp.issubdtype(a.dtype, jnp.floating)]
            value = jnp.where(jnp.all(jnp.array([True, *finite])), value, -jnp.inf)
            return (
                {name: a.at[one].set(point[name]) for name, a in points.items()},
                likelihoods.at[one].set(value),
                jax.tree.map(lambda a, new: a.at[k].set(new), adapted, own),
                found,
            )

        begin = (replicas.point, replicas.likelihoods, replicas.blocks, stats)
        point, likelihoods, blocks, found = jax.lax.fori_loop(0, replicas.rungs, step, begin)
        after = replicas._replace(
            point=point, likelihoods=likelihoods, blocks=blocks, replica_at=replica_at, traffic=traffic
        )
        return after, found

    def at_posterior(self, replicas: Replicas) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """The point of the replica at the last rung, and the adaptation states at this rung."""
        one = replicas.replica_at[replicas.rungs - 1]
        point = {name: a[one] for name, a in replicas.point.items()}
        return point, jax.tree.map(lambda a: a[replicas.rungs - 1], replicas.blocks)

    def _likelihood_at(self, point: dict[str, Any]) -> Array:
        """() float, nats, the log likelihood at a point; -inf where it is nan."""
        value = jnp.asarray(self.likelihood(point)[LIKELIHOOD], float).reshape(())
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    def _packed(self, values: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
        """Values {variable: array} as {variable or vector: array}, and what is missing from `like`."""
        packed = {}
        for name, old in like.items():
            parts = [m.name for m in self.points.vectors.get(name, ())] or [name]
            # a variable without a value is summed out of the tempered model, and a later block draws it
            if parts[0] not in values:
                packed[name] = old
                continue
            joined = jnp.concatenate([jnp.ravel(values[part]) for part in parts])
            packed[name] = joined.reshape(old.shape).astype(old.dtype)
        return packed

    def _rearranged(self, replicas: Replicas) -> Replicas:
        """The replicas with the schedule, and the number of rungs, that the last round of tuning suggests."""
        size, seen = len(replicas.betas), replicas.traffic
        rejections = seen.rejections / jnp.maximum(seen.iterations, 1)
        rejections = jnp.where(jnp.arange(size - 1) < replicas.rungs - 1, rejections, 0.0)
        rungs = rungs_for(rejections.sum(), size) if self.replicas == "auto" else replicas.rungs
        betas = equal_rejections(replicas.betas, rejections, replicas.rungs, rungs)
        # a new rung begins with the adaptation of the nearest old rung, and with a copy of its replica
        logs = jnp.log(jnp.maximum(replicas.betas, jnp.finfo(float).tiny))
        gaps = jnp.abs(jnp.log(jnp.maximum(betas, jnp.finfo(float).tiny))[:, None] - logs)
        old = jnp.arange(size)
        # rung 0, the prior, is not copied: if it is drawn from directly, no block adapts there
        gaps = jnp.where((old > 0) & (old < replicas.rungs), gaps, jnp.inf)
        nearest = jnp.argmin(gaps, axis=1).at[0].set(0).at[rungs - 1].set(replicas.rungs - 1)
        of_replicas = replicas.replica_at[nearest]
        return Replicas(
            {name: a[of_replicas] for name, a in replicas.point.items()},
            replicas.likelihoods[of_replicas],
            jax.tree.map(lambda a: a[nearest], replicas.blocks),
            betas,
            jnp.arange(size),
            rungs,
            Traffic.fresh(size),
        )
