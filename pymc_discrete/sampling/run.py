"""The chains on their way: chunk after chunk, each stored while the next is computed."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

import jax
import numpy as np
from pymc.exceptions import SamplingError

from pymc_discrete.sampling.progress import Progress
from pymc_discrete.sampling.shares import Chains
from pymc_discrete.sampling.storage import Checkpoint, Memory, on_host
from pymc_discrete.steps.not_finite import impossible
from pymc_discrete.steps.standing import Leaving

_log = logging.getLogger("pymc.discrete")

WARMUP, POSTERIOR = "warmup", "posterior"
TUNING_CHUNK = 50  # fixed, so that where a chain is helped out of a bad start does not depend on `chunk`
UPDATES = 20  # of the progress bar
SMALLEST_CHUNK = 50
LARGEST_CHUNK = 2**27  # bytes of draws on the device


class Run:
    """All draws of all chains.

    Parameters
    ----------
    chains : where they are after what the store already holds
    tune, draws, thin, chunk, callback : as in `sample`
    """

    def __init__(
        self,
        chains: Chains,
        store: Memory | Checkpoint,
        tune: int,
        draws: int,
        thin: int,
        chunk: int | str,
        bar: Progress,
        callback: Callable | None,
    ):
        self.chains, self.store, self.tune, self.draws, self.thin = chains, store, tune, draws, thin
        self.program = chains.program
        self.size = self._chunk_size(chunk)
        self.bar, self.callback = bar, callback

    def _chunk_size(self, chunk: int | str) -> int:
        if chunk != "auto":
            return min(int(chunk), self.draws)
        each = self.program.bytes_per_draw(self.chains.states)
        size = max(-(-self.draws // UPDATES), SMALLEST_CHUNK)
        return int(min(size, self.draws, max(LARGEST_CHUNK // max(each, 1), 1)))

    def complete(self, keep_warmup: bool) -> None:
        """Tune and draw; after an interrupt the draws made so far are kept."""
        try:
            self.tune_all(keep_warmup)
            self.draw_all()
        except KeyboardInterrupt:
            done = self.store.done(POSTERIOR)
            if not done:
                raise
            more = " The same call goes on from there." if isinstance(self.store, Checkpoint) else ""
            _log.warning(f"Interrupted after {done} of {self.draws} draws; they are returned.{more}")

    def tune_all(self, keep: bool) -> None:
        """The warm-up, in stretches: after each, chains that stand still are helped on, and what they share
        is shared.

        A stretch whose draws are not kept leaves one record, its last.
        """
        t = self.store.done(WARMUP)
        if t or self.store.done(POSTERIOR):
            self.bar.resumed(t + self.store.done(POSTERIOR))
        ends = sorted({*range(TUNING_CHUNK, self.tune, TUNING_CHUNK), *self.program.shared_ends, self.tune})
        while t < self.tune:
            end, begin = next(e for e in ends if e > t), time.perf_counter()
            count, every = (min(self.size, end - t), 1) if keep else (1, end - t)
            _, draws, stats = self.chains.records(self.chains.run(t, count, every, self.size), count)
            t += count * every
            if t == end:
                self._between(t)
            if t == self.tune:
                self._end_of_tuning(stats["lp"][:, -1])
            self.store.write(
                WARMUP, count * every, {"draws": draws, "stats": stats} if keep else {}, self.chains.states
            )
            self.bar.advance(count * every, time.perf_counter() - begin, stats, tuning=True)

    def _between(self, t: int) -> None:
        """What happens to the chains after tuning draw t, besides drawing."""
        states = self.chains.states.blocks
        if any(b.stuck(own).any() for b, own in zip(self.program.blocks, states, strict=True)):
            self.chains.settle(t)
        if self.program.pooled and (t in self.program.shared_ends or t == self.tune):
            self.chains.pool(t in self.program.shared_ends)

    def _end_of_tuning(self, lp: np.ndarray) -> None:
        for block, state in zip(self.program.blocks, self.chains.states.blocks, strict=True):
            complain(block.complaints(state))
        self._check_possible(lp)

    def _check_possible(self, lp: np.ndarray) -> None:
        """Stop the run where a chain has a log density `lp` (chains, ...) of -inf.

        Raises
        ------
        pymc.exceptions.SamplingError
        """
        stuck = np.isneginf(lp).reshape(len(lp), -1).any(axis=1)
        if stuck.any():
            block = self.program.blocks[-1]
            raise SamplingError(
                impossible(block.density.graph, self._points()[int(stuck.argmax())], block.density.names)
            )

    def _points(self) -> list[dict[str, np.ndarray]]:
        """The point of the model, {variable: value}, that each chain has reached."""
        points = self.program.points.unpacked(jax.tree.map(on_host, self.chains.states.point), lead=1)
        return [{name: value[n] for name, value in points.items()} for n in range(self.chains.count)]

    def conclusions(self) -> list[str]:
        """What the blocks say of a run that was not interrupted."""
        if self.store.done(POSTERIOR) < self.draws:
            return []
        states, transitions = self.chains.states, self.draws * self.thin * self.chains.count
        each = zip(self.program.blocks, states.blocks, strict=True)
        return [text for block, own in each for text in block.conclusions(own, states.point, transitions)]

    def leaving(self) -> dict[str, Leaving]:
        """{discrete variable: how probable another value of its sites is}, where the chains are now."""
        points = self._points()
        each = [block.leaving(points) for block in self.program.blocks]
        return {name: own for variables in each for name, own in variables.items()}

    def draw_all(self) -> None:
        """Each chunk goes to the host while the next is computed."""
        sent = self.store.done(POSTERIOR)
        waiting: list[tuple[list[Future], int]] = []
        begin = time.perf_counter()
        while sent < self.draws or waiting:
            if sent < self.draws:
                count = min(self.size, self.draws - sent)
                waiting.append(
                    (self.chains.run(self.tune + sent * self.thin, count, self.thin, self.size), count)
                )
                sent += count
                if len(waiting) == 1 and sent < self.draws:
                    continue
            pending, count = waiting.pop(0)
            states, draws, stats = self.chains.records(pending, count)
            if np.isnan(stats["lp"]).any() or np.isposinf(stats["lp"]).any():
                raise SamplingError(
                    "The log density became nan or +inf. Look for nan in the data and for parameters "
                    "outside their domain."
                )
            self._check_possible(stats["lp"])
            self.store.write(POSTERIOR, count, {"draws": draws, "stats": stats}, states)
            self.bar.advance(count, time.perf_counter() - begin, stats, tuning=False)
            begin = time.perf_counter()
            if self.callback is not None:
                self.callback(draws, self.store.done(POSTERIOR))


def complain(chains: list[list[str]]) -> None:
    """What tuning leaves to say, of the first chain that has something to say and of how many more."""
    complaining = [(n, texts) for n, texts in enumerate(chains) if texts]
    if complaining:
        n, texts = complaining[0]
        more = f" So is it in {len(complaining) - 1} more." if len(complaining) > 1 else ""
        for text in texts:
            _log.warning(f"Chain {n}: {text}{more}")
