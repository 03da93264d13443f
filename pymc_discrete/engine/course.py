"""The course of one chain in `pm.sample`, whose draws are made ahead by the program of `pmd.sample`."""

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
import pymc as pm
from pymc.exceptions import SamplingError

from pymc_discrete.collapse.collapsed import Collapsed
from pymc_discrete.diagnostics.watch import Watch
from pymc_discrete.engine.assembly import blocks_of, in_order_of_moves
from pymc_discrete.engine.block import GradientNotFinite
from pymc_discrete.engine.discrete import DiscreteBlock
from pymc_discrete.engine.ladder import Ladder, report_of
from pymc_discrete.engine.nuts_options import OfNuts
from pymc_discrete.engine.program import ChainState, Program
from pymc_discrete.engine.run import TUNING_CHUNK, chunk_size, say_first
from pymc_discrete.engine.shares import RunningChains
from pymc_discrete.engine.source import NUTS, STANDS_IN, ChainOrder, Chunk, Handed
from pymc_discrete.engine.starts import Around, starts_of_chains
from pymc_discrete.engine.storage import on_host
from pymc_discrete.model.analyses_on_disk import analyses_kept
from pymc_discrete.model.blocks import CONTINUOUS, free
from pymc_discrete.model.initial import point_of
from pymc_discrete.model.structure_of_model import Snapshot
from pymc_discrete.runtime.devices import cores, spread_over
from pymc_discrete.runtime.fork import refuse_after_fork
from pymc_discrete.runtime.messages import decoded, encoded
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.runtime.names import shown
from pymc_discrete.starts.not_finite import NOT_FOUND, impossible, not_finite, of_model_at
from pymc_discrete.tempering.path import path
from pymc_discrete.tempering.tempered import BETA, check_proper

_log = logging.getLogger("pymc.discrete")

CHUNK_SECONDS = 0.2  # the time, in seconds, that a chunk should take
GROWTH = 4  # the largest ratio of the lengths of two consecutive chunks
# After more than QUIET chunks of a chain in a row without a discarded draw, a thread makes the next chunk
# while PyMC takes the draws of the last one.
QUIET = 2
# The thread makes no more draws of a chain, such as one that is begun before PyMC asks for it, while draws
# that PyMC has not fetched take more than MOST_FORESEEN bytes.
MOST_FORESEEN = 2**27


class Engine:
    """The program that makes the draws of the chains of a step.

    Parameters
    ----------
    model : pm.Model
    steps : the steps that draw discrete variables, or continuous ones by slice sampling
    summed : value variables that are summed out
    fixed : value variables that neither these steps nor NUTS move
    tune : number of tuning draws
    of_nuts : options of NUTS
    instead : (model, names) -> steps for the variables that would be summed out, if other steps have taken
        all continuous variables
    replicas : the number of replicas of each chain, as in `Ladder`; None without tempering
    """

    def __init__(
        self,
        model: pm.Model,
        steps: Sequence[Any],
        summed: Sequence[str],
        fixed: Sequence[str],
        tune: int,
        of_nuts: OfNuts,
        instead: Callable[[pm.Model, list[str]], list[Any]] | None,
        replicas: int | str | None,
    ):
        self.model, self.tune, self.tempered = model, tune, replicas is not None
        drawn = None  # a `Collapsed`, which draws the variables that are summed out of the tempered model
        if self.tempered:
            if fixed:
                raise ValueError(
                    f"With temper= one program moves all variables, and another step moves {shown(fixed)}. "
                    "Leave that step out."
                )
            check_proper(model)
            every = {str(v.name) for v in model.discrete_value_vars}
            model, drawn = path(model, summed if {*summed} == every else [])
            steps, fixed = [s.on(model) for s in steps], [BETA]
        places: dict[int | None, int] = {None: NUTS} | {id(step): n for n, step in enumerate(steps)}
        point = point_of(model)
        if drawn:
            point, summed = point_of(self.model) | point, []
        self.jittered = [n for n in free(model, CONTINUOUS) if n not in fixed]
        own = {name for s in steps for name in s.own_variables}
        if summed and not {*self.jittered} - own:
            # Variables are summed out of the density in which NUTS moves. If other steps move all continuous
            # variables, there is no NUTS, and discrete steps draw the variables instead.
            assert instead is not None
            steps, summed = [*steps, *instead(model, [*summed])], []
        try:
            collapsed = Collapsed.of(model, [*summed]) if summed else None
        except NotImplementedError as error:
            # With temper=, the likelihood is raised to a power, with which sums may be impossible. Discrete
            # steps then draw the variables that were to be summed out.
            if not self.tempered or instead is None:
                raise
            _log.info(f"Sampled all the same: {shown(summed)}. {error}".splitlines()[0])
            steps, summed, collapsed = [*steps, *instead(model, [*summed])], [], None
        self.blocks, packing = blocks_of(
            model, in_order_of_moves(steps), point, tune, *of_nuts, collapsed, fixed, drawn
        )
        devices, _ = spread_over(None, 1)
        ladder = None if replicas is None else Ladder(model, packing, replicas, tune)
        self.program = Program(
            self.model, self.blocks, packing, self.model.value_vars, devices, ladder=ladder
        )
        of_blocks = [id(b.step) if hasattr(b, "step") else None for b in self.blocks]
        self.names = [
            (places.get(of, STANDS_IN), [*b.stats]) for of, b in zip(of_blocks, self.blocks, strict=True)
        ]

    def fresh(self, point: dict[str, np.ndarray]) -> ChainState:
        """The state (1, ...) of a chain at a point, before any tuning, on the host."""
        return self.program.start([self.whole(point)])

    def whole(self, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """A point of the user's model, with the inverse temperature 1 added if the chains are tempered."""
        return {**point, BETA: np.ones(())} if self.tempered else point

    def point(self, states: ChainState) -> dict[str, np.ndarray]:
        """The point {variable: value} of a chain with the states (1, ...)."""
        packed = jax.tree.map(on_host, states.point)
        return {name: a[0] for name, a in self.program.points.unpacked(packed, lead=1).items()}

    def at(self, states: ChainState, point: dict[str, np.ndarray]) -> ChainState:
        """The states (1, ...), put at another point, on the host."""
        whole, own = self.whole(point), on_hosts(states)
        packed, one = self.program.points.packed(whole), jax.tree.map(lambda a: a[0], own.blocks)
        blocks = tuple(b.moved_to(whole, state) for b, state in zip(self.blocks, one, strict=True))
        return own._replace(
            point={name: np.asarray(packed[name], a.dtype)[None] for name, a in own.point.items()},
            blocks=jax.tree.map(lambda a: np.asarray(a)[None], blocks),
        )


class Engines:
    """The engines of a step, one for each number of tuning draws and each set of variables moved by other
    steps.

    Parameters
    ----------
    model, steps, summed, of_nuts, instead, replicas : passed to each `Engine`
    moved : value variables that the steps and NUTS move

    Attributes
    ----------
    lock : held while an engine is made, and while a chain starts
    """

    def __init__(
        self,
        model: pm.Model,
        steps: Sequence[Any],
        summed: Sequence[str],
        moved: Sequence[str],
        of_nuts: OfNuts,
        instead: Callable[[pm.Model, list[str]], list[Any]] | None = None,
        replicas: int | str | None = None,
    ):
        self.model, self.steps, self.summed, self.moved = model, list(steps), list(summed), {*moved}
        spread_over(None, 1)  # this starts JAX, since it asks for the devices
        self._of_nuts, self._instead, self._replicas = of_nuts, instead, replicas
        self._made: dict[Any, Engine] = {}
        self._snapshot = Snapshot.of(model)
        self.lock = threading.RLock()

    def are_of_model(self) -> bool:
        """Whether the model is the same as when the engines and steps were made."""
        return self._snapshot.is_of(self.model)

    def of(self, tune: int, left: Sequence[str]) -> Engine:
        """The engine for chains with `tune` tuning draws, whose variables `left` only other steps move."""
        with self.lock:
            if not self.are_of_model():
                self._made, self._snapshot = {}, Snapshot.of(self.model)
            key = (tune, *left)
            if key not in self._made:
                others = [str(v.name) for v in self.model.value_vars if v.name not in self.moved]
                fixed = [*others, *left]
                with analyses_kept(self.model):
                    self._made[key] = Engine(
                        self.model,
                        self.steps,
                        self.summed,
                        fixed,
                        tune,
                        self._of_nuts,
                        self._instead,
                        self._replicas,
                    )
            return self._made[key]


class Made(NamedTuple):
    """A chunk, and the states (1, ...) of the chain before and after it."""

    chunk: Chunk
    before: ChainState
    after: ChainState

    @property
    def bytes(self) -> int:
        """The number of bytes that the draws take in memory."""
        return sum(a.nbytes for a in self.chunk.draws.values())


class Changed(Exception):
    """The model has changed since its engines were made."""


class Course:
    """A `ChainSource` that makes the draws of one chain in this process.

    Parameters
    ----------
    engines : the compiled programs of the step
    learns : whether the steps keep what tuning has learned about the chain
    """

    def __init__(self, engines: Engines, learns: bool):
        self._engines, self._learns = engines, learns
        self._thread: ThreadPoolExecutor | None = None
        # the first chunk of a chain that was begun before PyMC asked for it
        self._begun: Future[Chunk] | None = None
        self._coming: deque[Future[Made | None]] = deque()  # chunks that the thread is making or has made
        self._allowed = math.inf  # once the chain has this many draws, the thread makes no more draws of it
        self._kept = 0  # the bytes of draws that the thread has made and that were not fetched yet
        self._failed = False  # whether making a chunk of the chain has failed
        self._last: Made
        self._watches: list[tuple[Any, Watch]] = []

    # ------------------------------------------------------------ running a chain
    @property
    def spare(self) -> int:
        return cores() - 1

    def foreseen(self, order: ChainOrder, point: dict[str, np.ndarray]) -> "Course":
        course = Course(self._engines, self._learns)
        course._begun = course._submit(course._begin, order, point, True)
        return course

    def allow(self, draws: int) -> None:
        self._allowed = draws
        self._make_ahead()

    def begin(self, order: ChainOrder, point: dict[str, np.ndarray]) -> Chunk:
        begun, self._begun = self._begun, None
        if begun is not None:
            while self._coming and self._coming[-1].cancel():  # chunks that the thread has not begun to make
                self._coming.pop()
            self._allowed = math.inf
            with contextlib.suppress(Changed):
                chunk = begun.result()
                if self._engines.are_of_model():
                    return chunk
            self._forget_coming()
        return self._begin(order, point)

    @model_settings()
    def _begin(self, order: ChainOrder, point: dict[str, np.ndarray], foreseen: bool = False) -> Chunk:
        refuse_after_fork()
        self._order = order
        with self._engines.lock:
            if foreseen and not self._engines.are_of_model():
                # Steps that belong to an older model are renewed, which must not happen while another chain,
                # which uses the steps, is running. The chain is begun again when PyMC asks for it.
                raise Changed
            for s in self._engines.steps:
                s.renew()
            self._engine = self._engines.of(order.tune, order.left)
            program = self._engine.program
            if not program.begun("run"):  # the start is checked while the program compiles
                chains = RunningChains(program, self._engine.fresh(point), order.seed, None)
                chains.begin(chunk_size(chains, "auto"))
            for with_gradient in (False, True):
                self._go_on(self._engine.fresh(self._start(point, with_gradient)), 0)
                try:
                    return self._hand_out(self._make())
                except GradientNotFinite:
                    if with_gradient:
                        raise
        raise AssertionError("one of the two attempts returns or raises")

    def _start(self, point: dict[str, np.ndarray], with_gradient: bool) -> dict[str, np.ndarray]:
        """A state of positive density from which the chain starts.

        If PyMC announced the chain by `setup_chain`, the state is looked for at random about the given point;
        else it is the given point itself.
        """
        engine, model = self._engine, self._engine.model
        apart = [s for s in self._engines.steps if getattr(s, "start", "") == "dispersed"]
        dispersed = {name for s in apart for name in s.own_variables}
        about = Around(engine.whole(point), engine.jittered if self._order.announced else [])
        stay = [{str(v.name) for v in model.discrete_value_vars} - dispersed]
        seed = np.random.SeedSequence(self._order.seed)
        return starts_of_chains(model, engine.blocks, about, stay, seed, with_gradient)[0]

    def _go_on(self, states: ChainState, first: int) -> None:
        """Let the chunks that are made next continue from given states (1, ...), after `first` draws."""
        self._chains = RunningChains(self._engine.program, states, self._order.seed, None)
        self._size = chunk_size(self._chains, "auto")
        self._done, self._count, self._quiet = first, 1, 0

    # ------------------------------------------------------------ chunks that a thread makes
    def _submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        self._thread = self._thread or ThreadPoolExecutor(1, "draws-ahead")
        return self._thread.submit(function, *args)

    def _make_ahead(self) -> None:
        """Have the thread make the next chunk in the background."""
        self._coming.append(self._submit(self._coming_chunk))

    @model_settings()
    def _coming_chunk(self) -> Made | None:
        """A new chunk of the chain, made by the thread; None if no more may be made ahead now.

        None stands for a chain that has all the draws that it may have, for too many bytes of draws that PyMC
        has not fetched, and for a chain in which an earlier chunk failed.
        """
        announced = self._order.tune + self._order.draws if self._order.announced else math.inf
        if self._failed or self._kept > MOST_FORESEEN or self._done >= min(announced, self._allowed):
            return None
        try:
            made = self._make()
        except BaseException:
            self._failed = True
            raise
        self._kept += made.bytes
        return made

    def _next_made(self) -> Made:
        """The next chunk of the chain: from the thread if it has made or is making one, or else made now."""
        while self._coming:
            made = self._coming.popleft().result()
            if made is not None:
                self._kept -= made.bytes
                return made
        return self._make()

    def _forget_coming(self) -> None:
        """Discard the chunks of the thread, and wait until it makes no chunk."""
        while self._coming:
            future = self._coming.popleft()
            if not future.cancel():
                future.exception()
        self._kept, self._failed = 0, False

    def _make(self, limit: int | None = None) -> Made:
        """Make the next chunk, with at most `limit` draws.

        Raises
        ------
        pymc.exceptions.SamplingError
            If the chain cannot move from its start, is impossible after tuning, or its log density is not
            finite.
        """
        engine, chains, first, tune = self._engine, self._chains, self._done, self._order.tune
        before = chains.states
        most = self._size
        if first < tune:  # the chunk ends at a draw after which a stuck chain is moved, see `settle`
            most = min(tune, (first // TUNING_CHUNK + 1) * TUNING_CHUNK) - first
        if self._order.announced:
            most = min(most, max(tune + self._order.draws - first, 1))
        count = max(min(self._count, most, self._size, limit or self._size), 1)
        compiled, begin = engine.program.begun("run"), time.perf_counter()
        (states,), draws, stats = chains.records(chains.run(first, count, 1, self._size), count)
        each = (time.perf_counter() - begin) / count
        grown = self._count * GROWTH
        self._count = max(min(grown, int(CHUNK_SECONDS / each)) if compiled else grown, 1)
        self._done = first + count
        pairs = [*zip(engine.blocks, states.blocks, strict=True)]
        if first == 0:
            for block, adapted in pairs:
                block.check_first(adapted)
        lp = stats["lp"]
        if (wrong := np.isnan(lp[0]) | np.isposinf(lp[0])).any():
            one = {name: a[0, wrong.argmax()] for name, a in draws.items()}
            raise SamplingError(not_finite(of_model_at(engine.model, one), float(lp[0, wrong.argmax()])))
        between = self._done < tune and self._done % TUNING_CHUNK == 0 and not engine.tempered
        if between and any(block.stuck(adapted).any() for block, adapted in pairs):
            chains.settle(self._done)
            states = chains.states
        # NUTS never leaves a point of log density -inf, so such a start is an error at once if NUTS moves
        # variables; steps of discrete variables may leave it while they tune.
        at_once = first == 0 and not all(block.leaves_impossible for block in engine.blocks)
        if (at_once or first >= tune) and np.isneginf(lp[0]).any():
            names, where = engine.blocks[-1].density.names, engine.point(states)
            raise SamplingError(impossible(engine.model, where, names, *([NOT_FOUND] if at_once else [])))
        types = {str(v.name): v.type.dtype for v in engine.model.value_vars}
        one = {name: np.asarray(a[0], types[name]) for name, a in draws.items()}
        chunk = Chunk(first, one, {name: a[0] for name, a in stats.items()}, engine.names)
        return Made(chunk, before, states)

    def _hand_out(self, made: Made) -> Chunk:
        self._last = made
        return made.chunk

    @model_settings()
    def next(self) -> Chunk:
        self._note(self._last.chunk.length)
        chunk = self._hand_out(self._next_made())
        self._quiet += 1
        if self._quiet > QUIET and not self._coming:
            self._make_ahead()
        return chunk

    @model_settings()
    def moved(self, used: int, point: dict[str, np.ndarray], left: list[str]) -> Chunk:
        self._note(used)
        # With temper=, the point of the chain is a copy of the point of one replica, which does not follow if
        # another step moves the copy.
        if self._engine.tempered:
            raise SamplingError(
                "With temper= one program moves all variables, and another step has moved one of them, too. "
                "Leave that step out."
            )
        only_the_point = not any(b.knows_point for b in self._engine.blocks)
        if (
            only_the_point
            and left == self._order.left
            and used == self._last.chunk.length
            and not self._coming
        ):
            # Another step has moved its variables after a draw of this step, as it usually does after each.
            # All draws of the last chunk were used, so that only the point of the chain has to be replaced.
            self._chains.move_to(self._engine.program.points.packed(point))
            self._count, self._quiet = 1, 0
            return self._hand_out(self._make(1))
        self._forget_coming()
        states, done = self._states_after(used), self._last.chunk.first + used
        if left == self._order.left:
            self._go_on(self._engine.at(states, point), done)
        else:
            before, self._order = self._engine, self._order._replace(left=list(left))
            self._engine = self._engines.of(self._order.tune, left)
            kept = {
                id(block.step): adapted
                for block, adapted in zip(before.blocks, on_hosts(states).blocks, strict=True)
                if isinstance(block, DiscreteBlock)
            }
            fresh = self._engine.fresh(point)
            pairs = zip(self._engine.blocks, fresh.blocks, strict=True)
            blocks = tuple(kept.get(id(getattr(b, "step", None)), adapted) for b, adapted in pairs)
            self._go_on(fresh._replace(blocks=blocks), done)
        return self._hand_out(self._make(1))

    def _states_after(self, used: int) -> ChainState:
        """The states (1, ...) of the chain after the first `used` draws of the last chunk."""
        chunk, before, after = self._last
        if used == chunk.length:
            return after
        if used == 0:
            return before
        again = RunningChains(self._engine.program, on_hosts(before), self._order.seed, None)
        again.records(again.run(chunk.first, used, 1, self._size), used)
        return again.states

    # ------------------------------------------------------------ warnings
    def _note(self, used: int) -> None:
        """Keep a record of the draws after tuning that were handed out to PyMC."""
        chunk = self._last.chunk
        for n in range(max(self._order.tune - chunk.first, 0), used):
            point = {name: a[n] for name, a in chunk.draws.items()}
            if not self._watches:
                watches = [(s, s.watch_from(self._order.draws, point)) for s in self._engines.steps]
                self._watches = [(s, watch) for s, watch in watches if watch is not None]
            for s, watch in self._watches:
                watch.note(s.target.space.ravel(point), point)

    @model_settings()
    def stop_tuning(self, used: int) -> tuple[list[str], Chunk | None]:
        states, done = self._states_after(used), self._last.chunk.first + used
        pairs = [*zip(self._engine.blocks, states.blocks, strict=True)]
        if self._learns:
            for block, adapted in pairs:
                if isinstance(block, DiscreteBlock):
                    block.step.use_learned(jax.tree.map(lambda a: on_host(a)[0], adapted))
        complaints = [] if self._engine.tempered else [b.complaints(adapted) for b, adapted in pairs]
        texts = [text for of_block in complaints for texts in of_block for text in texts]
        for block, adapted in pairs:
            say_first(block.remarks(adapted))
        if done >= self._order.tune:
            return texts, None
        self._forget_coming()
        self._go_on(on_hosts(states), self._order.tune)
        return texts, self._hand_out(self._make(1))

    @model_settings()
    def conclude(self, used: int) -> list[str]:
        self._note(used)
        states = self._states_after(used)
        pairs = zip(self._engine.blocks, states.blocks, strict=True)
        of_blocks = [b.conclusions(adapted, states.point, self._order.draws) for b, adapted in pairs]
        if report := report_of(states):
            _log.info(report.said())
            of_blocks.append(report.warnings())
        point = self._engine.point(states)
        of_steps = [watch.conclusions(s.target, point) for s, watch in self._watches]
        return [text for texts in [*of_blocks, *of_steps] for text in texts]

    # ------------------------------------------------------------ the state of a chain
    def state(self) -> bytes:
        return encoded([on_host(a) for a in jax.tree.leaves(self._last.before)])

    @model_settings()
    def resume(self, handed: Handed) -> Chunk:
        refuse_after_fork()
        self._order = handed.order
        self._engine = self._engines.of(self._order.tune, self._order.left)
        structure = jax.tree.structure(self._engine.fresh(point_of(self._engine.model)))
        self._go_on(jax.tree.unflatten(structure, decoded(handed.before)), handed.first)
        while self._done < handed.first + handed.used:
            self._make(handed.first + handed.used - self._done)
        states = self._chains.states
        return self._hand_out(Made(Chunk(self._done, {}, {"lp": np.zeros(0)}, []), states, states))

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def on_hosts(states: ChainState) -> ChainState:
    """The states as NumPy arrays."""
    return jax.tree.map(on_host, states)
