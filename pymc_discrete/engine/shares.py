"""The chains of a run, split into equal shares, each of which one of several threads computes.

JAX computes the calls of one thread in order, and the calls of several threads side by side, even on one
device. On a CPU the chains of a device run one after another, so that as many threads as there are cores use
all of them. The alternative, more devices on the CPU, has to be chosen before JAX starts. All shares have the
same number of chains, so that all of them use one compiled program. If a CPU is the only device, each share
has one chain, so that the program can also be used for a run with another number of chains.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import jax
import numpy as np

from pymc_discrete.engine.program import ChainState, Identity, Program
from pymc_discrete.engine.storage import on_host
from pymc_discrete.runtime.model_settings import model_settings

# The chains are split into at most MOST_SHARES shares, since each takes a millisecond on the host per chunk.
MOST_SHARES = 64


def chains_of_shares(chains: int, single: bool) -> np.ndarray:
    """(shares, n) int, the indices of the chains in each share.

    If the chains do not divide evenly, the last chain is repeated: compiling another program for a smaller
    share would take longer than running the repeated chain.

    Parameters
    ----------
    single : whether every chain gets its own share, up to a limit; otherwise there is one share
    """
    size = -(-chains // MOST_SHARES) if single else chains
    shares = -(-chains // size)
    return np.minimum(np.arange(shares * size), chains - 1).reshape(shares, size)


class Share:
    """Some of the chains.

    Parameters
    ----------
    identities : (n,), the identities of the chains
    state : (n, ...), their states; while the share computes, only its thread may use them
    thread : the thread that computes the chains; None for JAX's own asynchronous dispatch
    """

    def __init__(self, identities: Identity, state: ChainState, thread: ThreadPoolExecutor | None):
        self.identities, self.state, self.thread = identities, state, thread

    def submit(self, compiled: Callable, *args: Any) -> Future:
        """Have the share run `compiled` once all functions submitted before have ended.

        The first of the values that `compiled` returns becomes the state of the share.
        """

        def compute():
            with model_settings():  # JAX's settings are local to a thread
                results = compiled(self.identities, self.state, *args)
                self.state = results[0]
                return results if self.thread is None else jax.block_until_ready(results)

        if self.thread is not None:
            return self.thread.submit(copy_context().run, compute)
        done: Future = Future()
        done.set_result(compute())
        return done


class RunningChains:
    """All chains of a run, on the devices of its program.

    Parameters
    ----------
    program : the compiled program
    states : (chains, ...), the states to start from, on the host
    seed : the seed of the run
    threads : the number of threads that compute the chains; None to compute all chains together
    """

    def __init__(self, program: Program, states: ChainState, seed: int, threads: int | None):
        self.program = program
        self.count = jax.tree.leaves(states)[0].shape[0]
        self._numbers = chains_of_shares(self.count, threads is not None)
        self._threads: list[ThreadPoolExecutor | None] = [None]
        if len(self._numbers) > 1:
            used = min(threads or 1, len(self._numbers))
            self._threads = [ThreadPoolExecutor(1, f"chains-{n}") for n in range(used)]
        layout = program.layout
        self._numbers_of_model = layout.put(program.numbers, layout.of_data)
        self.shares = [
            Share(
                layout.put(program.identities(seed, numbers), layout.of_chains),
                layout.put(part, layout.of_chains),
                self._threads[n % len(self._threads)],
            )
            for n, (numbers, part) in enumerate(zip(self._numbers, self._split(states), strict=True))
        ]

    def close(self) -> None:
        """End the threads after their current computation."""
        for thread in self._threads:
            if thread is not None:
                thread.shutdown(wait=False, cancel_futures=True)

    def _split(self, whole: Any) -> list[Any]:
        return [
            jax.tree.map(lambda a, chosen=chosen: np.asarray(a)[chosen], whole) for chosen in self._numbers
        ]

    def joined(self, parts: list[Any]) -> Any:
        """(chains, ...), a copy of the arrays of all shares, joined; repeated chains are dropped."""
        if len(parts) == 1:
            return parts[0]
        return jax.tree.map(
            lambda *arrays: np.concatenate([np.asarray(a) for a in arrays])[: self.count], *parts
        )

    @property
    def states(self) -> ChainState:
        """(chains, ...), the states of all chains; they must not be read while a share computes."""
        return self.joined([share.state for share in self.shares])

    def run(self, first: int, count: int, thin: int, size: int) -> list[Future]:
        """Start `Program.run` on all shares; `records` waits for the results."""
        numbers = tuple(np.asarray(a, jax.dtypes.canonicalize_dtype(int)) for a in (first, count, thin))
        compiled = self.begin(size).result()
        return [share.submit(compiled, self._numbers_of_model, *numbers) for share in self.shares]

    def begin(self, size: int) -> Future[Callable]:
        """Begin to compile `Program.run`, in a thread, for the chains of the run and at most `size`
        draws in a call."""
        number = np.zeros((), jax.dtypes.canonicalize_dtype(int))
        first = self.shares[0]
        arguments = (first.identities, first.state, self._numbers_of_model, *[number] * 3)
        return self.program.begin("run", *arguments, size=size)

    def records(
        self, pending: list[Future], count: int
    ) -> tuple[list[ChainState], dict[str, Any], dict[str, Any]]:
        """The states of the shares after `run`, and its `count` draws and statistics, {name: (chains, count,
        ...)}.
        """
        parts = [future.result() for future in pending]
        kept = [jax.tree.map(lambda a: on_host(a)[:, :count], tuple(records)) for _, *records in parts]
        draws, stats = self.joined(kept)
        return [state for state, *_ in parts], self.program.on_host(draws), stats

    def move_to(self, point: dict[str, np.ndarray]) -> None:
        """Put the only chain at a point {variable or vector: array}."""
        (share,) = self.shares
        now = share.state.point
        moved = {name: np.asarray(point[name], a.dtype).reshape(a.shape) for name, a in now.items()}
        share.state = share.state._replace(point=moved)

    def settle(self, t: int) -> None:
        """Move the chains that are stuck to points of higher probability, after tuning draw t."""
        after = np.asarray(t, jax.dtypes.canonicalize_dtype(int))
        first, numbers = self.shares[0], self._numbers_of_model
        compiled = self.program.compiled("settle", first.identities, first.state, numbers, after)
        for future in [share.submit(compiled, numbers, after) for share in self.shares]:
            future.result()

    def pool(self, ends: bool) -> None:
        """Pool the step size and, where `ends` (an adaptation window ends), the mass matrix."""
        single = len(self.shares) == 1
        placed = lambda states: self.program.layout.put(states, self.program.layout.of_chains)
        whole = self.states if single else placed(self.states)
        pooled = self.program.compiled("pool", whole, ends=ends)(whole)
        parts = [pooled] if single else map(placed, self._split(pooled))
        for share, part in zip(self.shares, parts, strict=True):
            share.state = part
