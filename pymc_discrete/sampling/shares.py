"""The chains of a run in equal shares, each computed by a thread of its own.

JAX computes the calls of one thread in order and those of several threads side by side, also on one device.
On a CPU the chains of a device run one after another, so that as many threads as there are cores, each with a
share of the chains, use all of them; JAX need not be asked for more devices, which is possible only before it
starts. All shares have the same number of chains, so that one compiled program serves them all.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import jax
import numpy as np

from pymc_discrete.sampling.program import ChainState, Program
from pymc_discrete.sampling.storage import on_host
from pymc_discrete.targets.model_settings import model_settings


def shares_of(chains: int, threads: int) -> np.ndarray:
    """(shares, n) int, the numbers of the chains in each share.

    Where the chains do not divide evenly, the last one is repeated: a program for a smaller share would take
    longer to compile than the repeated chain, which runs beside the others, takes to run.
    """
    size = -(-chains // min(threads, chains))
    shares = -(-chains // size)
    return np.minimum(np.arange(shares * size), chains - 1).reshape(shares, size)


class Share:
    """Some of the chains.

    Parameters
    ----------
    numbers : (n,) int, of the chains
    state : (n, ...), where they are; while the share computes, it belongs to its thread
    thread : what computes them; None where JAX's own asynchronous dispatch does
    """

    def __init__(self, numbers: jax.Array, state: ChainState, thread: ThreadPoolExecutor | None):
        self.numbers, self.state, self.thread = numbers, state, thread

    def submit(self, compiled: Callable, *args: Any) -> Future:
        """What `compiled` returns, the new state first, once everything submitted before is done."""

        def compute():
            with model_settings():  # JAX's settings are those of a thread
                results = compiled(self.numbers, self.state, *args)
                self.state = results[0]
                return results if self.thread is None else jax.block_until_ready(results)

        if self.thread is not None:
            return self.thread.submit(copy_context().run, compute)
        done: Future = Future()
        done.set_result(compute())
        return done


class Chains:
    """All chains of a run, on the devices of its program.

    Parameters
    ----------
    program : what is computed
    states : (chains, ...), where the chains start, on the host
    threads : how many compute them
    """

    def __init__(self, program: Program, states: ChainState, threads: int):
        self.program = program
        self.count = jax.tree.leaves(states)[0].shape[0]
        self._numbers = shares_of(self.count, threads)
        several = len(self._numbers) > 1
        self._threads = (
            [ThreadPoolExecutor(1, f"chains-{own[0]}-to-{own[-1]}") for own in self._numbers]
            if several
            else [None]
        )
        self.shares = [
            Share(program.placed(own), program.placed(part), thread)
            for own, part, thread in zip(self._numbers, self._split(states), self._threads, strict=True)
        ]

    def close(self) -> None:
        """Let the threads end, once they have computed what they are at."""
        for thread in self._threads:
            if thread is not None:
                thread.shutdown(wait=False, cancel_futures=True)

    def _split(self, whole: Any) -> list[Any]:
        return [jax.tree.map(lambda a, own=own: np.asarray(a)[own], whole) for own in self._numbers]

    def _joined(self, parts: list[Any]) -> Any:
        """(chains, ...) of what the shares have, a chain that is there twice only once."""
        if len(parts) == 1:
            return parts[0]
        return jax.tree.map(
            lambda *arrays: np.concatenate([np.asarray(a) for a in arrays])[: self.count], *parts
        )

    @property
    def states(self) -> ChainState:
        """(chains, ...), between two computations."""
        return self._joined([share.state for share in self.shares])

    def run(self, first: int, count: int, thin: int, size: int) -> list[Future]:
        """Begin to draw, see `Program.run`; `records` waits for it."""
        numbers = tuple(np.asarray(a, jax.dtypes.canonicalize_dtype(int)) for a in (first, count, thin))
        compiled = self.program.compiled(
            "run", self.shares[0].numbers, self.shares[0].state, *numbers, size=size
        )
        return [share.submit(compiled, *numbers) for share in self.shares]

    def records(self, pending: list[Future], count: int) -> tuple[ChainState, dict[str, Any], dict[str, Any]]:
        """The states after `run`, and the `count` draws and statistics {name: (chains, count, ...)} that it
        made.
        """
        parts = [future.result() for future in pending]
        kept = [jax.tree.map(lambda a: on_host(a)[:, :count], tuple(records)) for _, *records in parts]
        draws, stats = self._joined(kept)
        return self._joined([state for state, *_ in parts]), self.program.recorder.on_host(draws), stats

    def settle(self, t: int) -> None:
        """Move the chains that stand still nearer to the bulk, after tuning draw t."""
        after = np.asarray(t, jax.dtypes.canonicalize_dtype(int))
        compiled = self.program.compiled("settle", self.shares[0].numbers, self.shares[0].state, after)
        for future in [share.submit(compiled, after) for share in self.shares]:
            future.result()

    def pool(self, ends: bool) -> None:
        """Let the chains share a step size and, where a window of tuning ends, a mass matrix."""
        alone = len(self.shares) == 1
        whole = self.states if alone else self.program.placed(self.states)
        pooled = self.program.compiled("pool", whole, ends=ends)(whole)
        parts = [pooled] if alone else map(self.program.placed, self._split(pooled))
        for share, part in zip(self.shares, parts, strict=True):
            share.state = part
