"""Runs the chains chunk by chunk; each chunk of draws is stored while the next one is computed."""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import jax
import numpy as np
import pymc as pm
from pymc.exceptions import SamplingError
from xarray import Dataset

from pymc_discrete.diagnostics.known.leaving import Leaving
from pymc_discrete.engine.ladder import report_of
from pymc_discrete.engine.program import ChainState
from pymc_discrete.engine.shares import RunningChains
from pymc_discrete.engine.storage import Checkpoint, Memory, on_host
from pymc_discrete.runtime.progress import Progress
from pymc_discrete.starts.not_finite import impossible

_log = logging.getLogger("pymc.discrete")

WARMUP, POSTERIOR = "warmup", "posterior"
# Chains that do not move are brought to the bulk of the target (`kernels/settle.py`) after each interval of
# TUNING_CHUNK tuning draws. The number is fixed, so that the draws do not depend on `chunk`.
TUNING_CHUNK = 50
# the largest number of updates of the progress bar, unless chunks must be shorter for other reasons
PROGRESS_UPDATES = 20
# The length of the arrays with the draws of a chunk is part of the compiled program. The length does not
# depend on the number of draws of a run, so that a run with more draws need not be compiled again.
LARGEST_CHUNK = 1024  # the largest number of draws in a chunk
# The draws of a chunk are kept on the device, so that the bytes that they take are limited:
CHAIN_BYTES = 2**21  # the bytes of the draws of one chain
SHARE_BYTES = 2**27  # the bytes of the draws of all chains that are computed together


class ChainsRun:
    """All draws of all chains.

    Parameters
    ----------
    model : the model that is sampled
    chains : the chains, in their states after the draws that `store` already has
    store : the storage of the draws
    tune, draws, thin, chunk, callback : arguments of `pmd.sample`
    bar : the progress bar
    """

    def __init__(
        self,
        model: pm.Model,
        chains: RunningChains,
        store: Memory | Checkpoint,
        tune: int,
        draws: int,
        thin: int,
        chunk: int | str,
        bar: Progress,
        callback: Callable | None,
    ):
        self.model, self.chains, self.store = model, chains, store
        self.tune, self.draws, self.thin = tune, draws, thin
        self.program = chains.program
        self.size = chunk_size(chains, chunk)
        self.count = min(
            self.size, max(-(-draws // PROGRESS_UPDATES), TUNING_CHUNK)
        )  # the number of draws in a chunk
        self.bar, self.callback = bar, callback
        # the states of the shares after the last stored draw
        self._after = [share.state for share in chains.shares]

    @property
    def states(self) -> ChainState:
        """(chains, ...), the states of the chains after the last stored draw."""
        return self.chains.joined(self._after)

    def complete(self, keep_warmup: bool) -> None:
        """Tune and draw. After a KeyboardInterrupt the draws made so far are kept."""
        self.bar.show(0, "sampling")
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
        """Tune in intervals; after each interval, move chains that are stuck and pool adapted parameters.

        If the tuning draws are not kept, only the last one of an interval is recorded.
        """
        t = self.store.done(WARMUP)
        if t or self.store.done(POSTERIOR):
            self.bar.resumed(t + self.store.done(POSTERIOR))
        ends = sorted({*range(TUNING_CHUNK, self.tune, TUNING_CHUNK), *self.program.shared_ends, self.tune})
        while t < self.tune:
            end, begin = next(e for e in ends if e > t), time.perf_counter()
            count, thin = (min(self.count, end - t), 1) if keep else (1, end - t)
            _, draws, stats = self.chains.records(self.chains.run(t, count, thin, self.size), count)
            if t == 0:
                self._check_first(self.chains.states)
            t += count * thin
            if t == end:
                self._between(t)
            if t == self.tune:
                self._end_of_tuning(stats["lp"][:, -1])
            groups = {"draws": draws, "stats": stats} if keep else {}
            self.store.write(WARMUP, count * thin, groups, lambda: self.chains.states)
            self.bar.advance(count * thin, time.perf_counter() - begin, stats, tuning=True)

    def _between(self, t: int) -> None:
        """Settle chains that do not move, and pool adapted parameters where due, after tuning draw t."""
        states = self.chains.states.blocks
        # with tempering, stuck chains are not settled: they exchange states with other temperatures
        pairs = [] if self.program.ladder else [*zip(self.program.blocks, states, strict=True)]
        if any(b.stuck(state).any() for b, state in pairs):
            self.chains.settle(t)
        if self.program.pooled and (t in self.program.shared_ends or t == self.tune):
            self.chains.pool(t in self.program.shared_ends)

    def _check_first(self, states: ChainState) -> None:
        """Raise an error if a block sees by the states after the first draws that it cannot move."""
        for block, adapted in zip(self.program.blocks, states.blocks, strict=True):
            block.check_first(adapted)

    def _end_of_tuning(self, lp: np.ndarray) -> None:
        for block, state in zip(self.program.blocks, self.chains.states.blocks, strict=True):
            # with tempering, no warning is given of a step that fails: exchanges of temperatures repair it
            if not self.program.ladder:
                warn_of_first(block.complaints(state))
            say_first(block.remarks(state))
        self._check_possible(lp)

    def _check_possible(self, lp: np.ndarray) -> None:
        """Stop the run if the log density `lp` (chains, ...) of a chain is -inf.

        Raises
        ------
        pymc.exceptions.SamplingError
        """
        stuck = np.isneginf(lp).reshape(len(lp), -1).any(axis=1)
        if stuck.any():
            point, names = self._points()[int(stuck.argmax())], self.program.blocks[-1].density.names
            raise SamplingError(impossible(self.model, point, names))

    def _points(self) -> list[dict[str, np.ndarray]]:
        """The point {variable: value} of each chain."""
        points = self.program.points.unpacked(jax.tree.map(on_host, self.chains.states.point), lead=1)
        return [{name: value[n] for name, value in points.items()} for n in range(self.chains.count)]

    def conclusions(self) -> list[str]:
        """The warnings of the blocks after the last draw; none if the run was interrupted."""
        if self.store.done(POSTERIOR) < self.draws:
            return []
        states, transitions = self.chains.states, self.draws * self.thin * self.chains.count
        pairs = zip(self.program.blocks, states.blocks, strict=True)
        of_blocks = [block.conclusions(state, states.point, transitions) for block, state in pairs]
        report = report_of(states)
        return [text for texts in [*of_blocks, report.warnings() if report else []] for text in texts]

    def leaving(self) -> dict[str, Leaving]:
        """For each discrete variable the probability that its sites change from the present states of the
        chains.
        """
        points = self._points()
        for block in self.program.blocks:
            points = block.completed(points)
        return {name: leaving for b in self.program.blocks for name, leaving in b.leaving(points).items()}

    def groups(self, coords: Mapping[str, Any], dims: Mapping[str, Any]) -> dict[str, Dataset]:
        """The groups that the blocks add to the result, see `Block.groups`."""
        pairs = zip(self.program.blocks, self.states.blocks, strict=True)
        of_blocks = [b.groups(s, coords, dims) for b, s in pairs]
        groups: dict[str, Dataset] = {}
        for found in [*of_blocks, self.program.counts.groups(self.states.counts, coords, dims)]:
            # the group `probabilities` has variables that are summed out and variables that are counted
            groups |= {name: groups[name].merge(g) if name in groups else g for name, g in found.items()}
        if report := report_of(self.states):
            groups["tempering"] = report.dataset()
        return groups

    def draw_all(self) -> None:
        """Draw in chunks; each chunk is transferred to the host and stored while the next one is computed."""
        sent = self.store.done(POSTERIOR)
        waiting: list[tuple[list[Future], int]] = []
        begin = time.perf_counter()
        while sent < self.draws or waiting:
            if sent < self.draws:
                count = min(self.count, self.draws - sent)
                waiting.append(
                    (self.chains.run(self.tune + sent * self.thin, count, self.thin, self.size), count)
                )
                sent += count
                if len(waiting) == 1 and sent < self.draws:
                    continue
            pending, count = waiting.pop(0)
            after, draws, stats = self.chains.records(pending, count)
            if not self.tune and not self.store.done(POSTERIOR):
                self._check_first(self.chains.joined(after))
            if np.isnan(stats["lp"]).any() or np.isposinf(stats["lp"]).any():
                raise SamplingError(
                    "The log density became nan or +inf. Look for nan in the data and for parameters "
                    "outside their domain."
                )
            self._check_possible(stats["lp"])
            groups = {"draws": draws, "stats": stats}
            self.store.write(POSTERIOR, count, groups, partial(self.chains.joined, after))
            self._after = after
            self.bar.advance(count, time.perf_counter() - begin, stats, tuning=False)
            begin = time.perf_counter()
            if self.callback is not None:
                self.callback(draws, self.store.done(POSTERIOR))


def chunk_size(chains: RunningChains, chunk: int | str) -> int:
    """The number of draws for which the arrays of a chunk have room.

    It is the argument `chunk`, or, for "auto", a power of two whose draws take no more than `CHAIN_BYTES` per
    chain and `SHARE_BYTES` for all chains that are computed together.
    """
    if chunk != "auto":
        return int(chunk)
    points = chains.shares[0].state.point
    each = max(chains.program.recorder.bytes_per_draw(points, chains.program.numbers), 1)
    together = jax.tree.leaves(points)[0].shape[0]
    most = min(CHAIN_BYTES / each, SHARE_BYTES / (each * together))
    return int(2 ** np.floor(np.log2(np.clip(most, 1, LARGEST_CHUNK))))


def say_first(remarks: list[str | None]) -> None:
    """Log the line of the first chain that has a line, and the number of other chains that have one."""
    with_lines = [text for text in remarks if text]
    if with_lines:
        others = len(with_lines) - 1
        more = f" (and so for {others} more chain{'s' if others > 1 else ''})" if others else ""
        _log.info(f"{with_lines[0]}{more}")


def warn_of_first(warnings: list[list[str]]) -> None:
    """Log the warnings of the first chain that has any, and the number of other chains that have some."""
    with_warnings = [(n, texts) for n, texts in enumerate(warnings) if texts]
    if with_warnings:
        n, texts = with_warnings[0]
        others = len(with_warnings) - 1
        more = f" {others} more chain{'s have' if others > 1 else ' has'} such warnings." if others else ""
        for text in texts:
            _log.warning(f"Chain {n}: {text}{more}")
