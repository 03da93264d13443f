"""Chains that move through temperatures together, by the blocks of one compiled program."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.engine.program import ChainState, Identity, Program
from pymc_discrete.engine.shares import Share
from pymc_discrete.engine.storage import on_host
from pymc_discrete.runtime.compiling import announced
from pymc_discrete.runtime.jax_settings import SELDOM, jitted
from pymc_discrete.runtime.reuse import PROGRAMS, Kept
from pymc_discrete.tempering.tempered import BETA, LIKELIHOOD

# the number of temperatures in one call of the compiled function, whose arrays have this length
TEMPERATURES_PER_CALL = 128


class Walked(NamedTuple):
    """The result of a walk of n chains through some temperatures.

    Attributes
    ----------
    states : ChainState (n, ...), at the end
    log_weights : (n,) float, nats, by how much the log weight of each chain grew
    likelihoods : (n, steps) float, nats, the log likelihood after the move at each temperature
    """

    states: ChainState
    log_weights: np.ndarray
    likelihoods: np.ndarray


class Population:
    """Walks of chains of a tempered model.

    Parameters
    ----------
    program : the program of a tempered model, which records the log likelihood
    size : int, the number of chains that are computed in one call
    threads : int, how many calls are computed side by side
    """

    def __init__(self, program: Program, size: int, threads: int):
        self.program, self.size = program, size
        self._threads = [ThreadPoolExecutor(1, f"annealing-{n}") for n in range(threads)]
        self._likelihood = jitted(jax.vmap(self._likelihood_at, (0, None)), SELDOM)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)

    def likelihoods(self, points: list[dict[str, np.ndarray]]) -> np.ndarray:
        """(n,) float, nats, the log likelihood at points {variable: value}; -inf where it is undefined."""
        packed = [self.program.points.packed(p) for p in points]
        stacked = {name: np.stack([p[name] for p in packed]) for name in packed[0]}
        values = np.asarray(self._likelihood(stacked, self.program.numbers))
        finite = np.all([np.isfinite(a).reshape(len(a), -1).all(1) for a in stacked.values()], axis=0)
        return np.where(finite & ~np.isnan(values), values, -np.inf)

    def walk(self, seed: int, states: ChainState, first: int, path: np.ndarray) -> Walked:
        """Move chains (n, ...) from path[0] through path[1], ... path[-1].

        Parameters
        ----------
        seed : the seed of the random numbers
        first : the index of the first transition; transitions with an index below the number of tuning draws
            adapt
        path : (steps + 1,) float, inverse temperatures
        """
        n = len(states.point[BETA])
        numbers = np.minimum(np.arange(-(-n // self.size) * self.size), n - 1).reshape(-1, self.size)
        shares = [
            Share(
                self.program.identities(seed, own),
                jax.tree.map(lambda a, own=own: np.asarray(a)[own], states),
                self._threads[k % len(self._threads)],
            )
            for k, own in enumerate(numbers)
        ]
        log_weights, likelihoods = np.zeros(numbers.size), []
        for start in range(0, len(path) - 1, TEMPERATURES_PER_CALL):
            part = path[start : start + TEMPERATURES_PER_CALL + 1]
            padded = np.append(part, np.full(TEMPERATURES_PER_CALL + 1 - len(part), part[-1]))
            args = (self.program.numbers, np.asarray(first + start), padded, np.asarray(len(part) - 1))
            compiled = self._compiled_for(shares[0], args)
            results = [f.result() for f in [share.submit(compiled, *args) for share in shares]]
            log_weights += np.concatenate([on_host(r[1]) for r in results])
            likelihoods.append(np.concatenate([on_host(r[2]) for r in results])[:, : len(part) - 1])
        joined = jax.tree.map(
            lambda *arrays: np.concatenate([on_host(a) for a in arrays])[:n], *(s.state for s in shares)
        )
        return Walked(joined, log_weights[:n], np.concatenate(likelihoods, axis=1)[:n])

    def pool(self, states: ChainState, ends: bool) -> ChainState:
        """The states (n, ...) with pooled adapted parameters, see `Program.pool`."""
        placed = self.program.layout.put(states, self.program.layout.of_chains)
        return jax.tree.map(on_host, self.program.compiled("pool", placed, ends=ends)(placed))

    def _compiled_for(self, share: Share, args: tuple[Any, ...]) -> Callable:
        """The compiled walk of the chains of one call; all calls have the same shapes."""

        def compiled() -> Callable:
            blocks = "; ".join(b.named() for b in self.program.blocks)
            with announced(f"the annealed chains: {blocks}"):
                return jitted(self._traced).lower(share.identities, share.state, *args).compile()

        leaves, tree = jax.tree.flatten((share.identities, share.state, *args))
        shapes = tuple((np.shape(a), np.asarray(a).dtype.str) for a in leaves)
        return _walks.get((self.program.key, tree, shapes), compiled)

    def _likelihood_at(self, point: dict[str, Any], numbers: dict[str, Any]) -> Any:
        """() float, nats, the log likelihood at a point {variable or vector: array}."""
        return jnp.asarray(self.program.recorder(point | numbers)[LIKELIHOOD], float).reshape(())

    def _traced(
        self, identities: Identity, states: ChainState, numbers: Any, first: Any, path: Any, steps: Any
    ) -> tuple[ChainState, Any, Any]:
        """The states, increments of the log weights and log likelihoods, all (n, ...); traced by JAX."""

        def chain(identity: Identity, state: ChainState) -> tuple[ChainState, Any, Any]:
            def step(j: Any, carried: Any) -> Any:
                state, weight, likelihood, seen = carried
                # The log weight grows by a term of the state before the move, not after it (Neal 2001).
                weight = weight + (path[j + 1] - path[j]) * likelihood
                there = state._replace(point=state.point | {BETA: path[j + 1]})
                state, _ = self.program.transition(identity.key(), first + j, there, numbers)
                likelihood = self._likelihood_at(state.point, numbers)
                return state, weight, likelihood, seen.at[j].set(likelihood)

            begin = (
                state,
                jnp.zeros(()),
                self._likelihood_at(state.point, numbers),
                jnp.zeros(TEMPERATURES_PER_CALL),
            )
            state, weight, _, seen = jax.lax.fori_loop(0, steps, step, begin)
            return state, weight, seen

        # On a CPU, chains are computed one after another: `vmap` would compute both branches of every
        # condition.
        if self.program.together:
            return jax.vmap(chain)(identities, states)
        return jax.lax.map(lambda each: chain(*each), (identities, states))


_walks: Kept[Callable] = Kept(PROGRAMS)  # the compiled programs of `Population.walk`
