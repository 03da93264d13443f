"""Draws made ahead of pm.sample, by a step that moves all variables of its model.

PyMC asks a step for one draw at a time. A step that moves all variables of its model need not wait to be
asked: it hands out the next of a chunk of draws, which the program of `pmd.sample` has made, as long as the
point that comes in is, bit for bit, the one that it handed out last. If another step has moved a variable in
between, the draws that were made and not handed out are discarded, and the chain goes on from the point that
came in. This is exact, since whether another step moves does not depend on draws that were not handed out.
Nothing here starts JAX or imports it: where PyMC runs a chain in a process of its own, this module hands out
draws there that the process of the step makes (`steps/served.py`).
"""

import copy
import functools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np
from pymc.blocking import PointType, StatsType
from pymc.step_methods.state import DataClassState, dataclass_state

from pymc_discrete.engine.source import NUTS, STANDS_IN, ChainOrder, ChainSource, Chunk, Handed
from pymc_discrete.runtime.names import shown
from pymc_discrete.steps.shared import LeftValues

_log = logging.getLogger("pymc.discrete")

# the largest number of random numbers that PyMC may draw from a chain's generator before the chain begins
MOST_FIRST = 2
TUNE_BY_DEFAULT = 1000  # the number of tuning draws of a chain that `setup_chain` did not announce
# statistics of NUTS that have two names: {name in a program and in PyMC's results: name in a PyMC step}
NUTS_NAMES = {"acceptance_rate": "mean_tree_accept", "n_steps": "tree_size", "tree_depth": "depth"}
NUTS_STATISTICS: dict[str, tuple[type, list[int]]] = {
    "depth": (np.int64, []),
    "step_size": (np.float64, []),
    "mean_tree_accept": (np.float64, []),
    "step_size_bar": (np.float64, []),
    "tree_size": (np.float64, []),
    "diverging": (bool, []),
    "divergences": (int, []),
    "energy": (np.float64, []),
    "reached_max_treedepth": (bool, []),
    "model_logp": (np.float64, []),
}


@dataclass_state
class AheadState(DataClassState):
    """The state of a step that makes its draws ahead: its fixed settings, and its chain."""

    settings: str = field(metadata={"frozen": True})
    ahead_state: Any


class Ahead:
    """The draws of the chains of a model, which are made before the step hands them out.

    Parameters
    ----------
    source : a function that makes a `ChainSource`
    who : the name, in messages, of the step that hands the draws out
    own : the variables that are summed out, and then for each step of the program the variables it draws
    by_nuts : continuous value variables that NUTS moves
    slots : for NUTS and then for each step, the index of the dictionary, among those that PyMC gets for a
        draw, that has its statistics
    """

    def __init__(
        self,
        source: Callable[[], ChainSource],
        who: str,
        own: Sequence[Sequence[str]],
        by_nuts: Sequence[str],
        slots: Sequence[int],
    ):
        self._make_source, self.who, self.slots = source, who, list(slots)
        self.own, self.by_nuts = [list(names) for names in own], list(by_nuts)
        self._source: ChainSource | None = None
        self._handed: Handed | None = None  # a state that was set, from which the next draw continues
        # variables that were left to other steps; each of these is logged once
        self._left_before: list[str] = []
        self._to_come = 0  # the number of chains of this run that have not been set up
        self._foreseen: deque[Foreseen] = deque()
        self.set_up(np.random.default_rng(), TUNE_BY_DEFAULT, 0, announced=False)

    def set_up(self, rng: np.random.Generator, tune: int, draws: int, announced: bool = True) -> None:
        """Begin a chain, with the arguments of `setup_chain` of a step.

        A chain that does not tune begins with the adaptation of a state that was set, if there is one.
        """
        self._handed = self._handed if tune == 0 and announced else None
        self.close()
        self._siblings: Callable[[int], np.random.Generator] | None = None
        if announced:
            self._to_come = max(self._to_come - 1, 0)
        self._rng, self._order = rng, ChainOrder(tune, draws, announced, 0, [])
        self._chunk: Any = None
        self._used, self._divergences = 0, 0
        self._state: bytes | None = None  # the chain's state before the chunk, if it was asked for
        self._last: dict[str, bytes] = {}
        self._said = False  # whether a warning was logged that two steps move the same variable
        self._ended = tune == 0  # whether tuning has ended

    def close(self) -> None:
        """Make no more draws."""
        if self._source is not None:
            self._source.close()
        self._source = None

    # ------------------------------------------------------------ the next chains
    def expect(self, chains: int) -> None:
        """Note that a run of some chains begins, each of which is set up after the previous chain has ended.

        If one process runs all chains, other processors would be idle. So the draws of the next chain are
        made beside the draws of this chain, from the seed and the point with which PyMC is expected to begin
        it. If the chain begins otherwise, these draws are discarded. A chain that is begun ahead has no more
        draws than this chain, so that after a run is stopped no further draws are made.
        """
        self._foresee_nothing()
        self._to_come = chains

    def _foresee_nothing(self) -> None:
        for chain in self._foreseen:
            chain.source.close()
        self._foreseen.clear()
        self._to_come = 0

    def _foresee(self) -> None:
        """Have draws of the next chains made in the background.

        The method is called only after PyMC has taken a whole chunk of this chain, which shows that no other
        step moves the chain's variables.
        """
        assert self._source is not None
        while self._siblings is not None and len(self._foreseen) < min(self._to_come, self._source.spare):
            rng = self._siblings(len(self._foreseen) + 1)
            order = self._order._replace(seed=seed_from(rng), left=[])
            source = self._source.foreseen(order, self._first)
            self._foreseen.append(Foreseen(order, in_bytes(self._first), source))
        for chain in self._foreseen:
            chain.source.allow(self._chunk.first + self._chunk.length)

    def _source_of(self, order: ChainOrder, point: dict[str, np.ndarray]) -> ChainSource:
        """The source of the draws of a chain that begins at a given point."""
        if self._foreseen:
            chain = self._foreseen.popleft()
            if chain.order == order and chain.point == in_bytes(point):
                return chain.source
            chain.source.close()
            self._foresee_nothing()
        return self._make_source()

    # ------------------------------------------------------------ draws
    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """The next draw of the chain, and its statistics."""
        if self._source is None and self._handed is not None:
            self._go_on(point)
        if self._source is None:
            self._begin(point)
        elif changed := [n for n, kept in self._last.items() if np.asarray(point[n]).tobytes() != kept]:
            self._moved_by_others(changed, point)
        assert self._source is not None
        if self._used == self._chunk.length:
            self._take(self._source.next())
            if self._order.announced:
                self._foresee()
        n, chunk = self._used, self._chunk
        self._used += 1
        new = {name: chunk.draws[name][n, ...].copy() for name in point}
        self._last = {name: a.tobytes() for name, a in new.items()}
        for names in self.own:
            LeftValues.taken(names)
        if self._order.announced and chunk.first + self._used == self._order.tune + self._order.draws:
            for text in self._source.conclude(self._used):
                _log.warning(text)
        return new, self._statistics({name: a[n] for name, a in chunk.stats.items()})

    def _begin(self, point: PointType) -> None:
        self._first, self._siblings = copied(point), siblings(self._rng)
        self._order = self._order._replace(seed=seed_from(self._rng))
        self._source = self._source_of(self._order, self._first)
        self._take(self._source.begin(self._order, self._first))

    def _take(self, chunk: Chunk) -> None:
        """Hand out the draws of a given chunk from now on."""
        self._chunk, self._used, self._state = chunk, 0, None

    def _moved_by_others(self, changed: list[str], point: PointType) -> None:
        """Continue from a point at which other steps have moved variables."""
        assert self._source is not None
        # draws made ahead for the next chains are discarded, since other steps will move their variables
        self._foresee_nothing()
        left = [] if self._ended else [n for n in changed if n in self.by_nuts]
        if left := [name for name in left if name not in self._order.left]:
            if new := [name for name in left if name not in self._left_before]:
                _log.info(f"{self.who} leaves {shown(new)} to another step, which moves {them(new)} as well.")
                self._left_before += new
            self._order = self._order._replace(left=sorted([*self._order.left, *left]))
        ours = {*self.by_nuts, *(name for names in self.own for name in names)} - {*self._order.left}
        both = [name for name in changed if name in ours]
        by_flows = LeftValues.untouched(both, point)
        if (twice := [n for n in both if n not in by_flows]) and not self._said and self._order.announced:
            _log.warning(moved_by_another(self.who, twice))
            self._said = True
        self._take(self._source.moved(self._used, copied(point), self._order.left))

    def _statistics(self, values: dict[str, Any]) -> StatsType:
        """The dictionaries with the statistics of one draw.

        Parameters
        ----------
        values : {statistic: () or (number of blocks that have it,)}
        """
        all_names = [name for _, names in self._chunk.blocks for name in names]
        seen: dict[str, int] = {}
        each: list[dict[str, Any]] = [{} for _ in range(max(self.slots) + 1)]
        if self.by_nuts:  # these zeros are the result if other steps move all variables of NUTS
            each[self.slots[0]] = {name: dtype() for name, (dtype, _) in NUTS_STATISTICS.items()}
        for place, names in self._chunk.blocks:
            # A NUTS that is needed only because a discrete step integrates variables out has no statistics:
            # the step had declared its statistics to PyMC before.
            nowhere = place == STANDS_IN or (place == NUTS and not self.by_nuts)
            stats = {} if nowhere else each[self.slots[place + 1]]
            for name in names:
                several = all_names.count(name) > 1 and np.ndim(values[name]) > 0
                value = values[name][seen.get(name, 0)] if several else values[name]
                seen[name] = seen.get(name, 0) + 1
                stats[NUTS_NAMES.get(name, name)] = value
            if "diverging" in names:
                self._divergences += int(stats["diverging"]) if self._ended else 0
                stats["divergences"] = self._divergences
        for stats in each:
            stats.pop("lp", None)
            stats.pop("model_logp", None)
        each[-1]["model_logp"] = values["lp"]
        return each

    # ------------------------------------------------------------ the end of tuning
    def stop_tuning(self) -> None:
        """Tune no further, and log the warnings and remarks about the chain."""
        if self._source is None and self._handed is not None and not self._ended:
            self._go_on({})
        self._ended = True
        if self._source is None:
            return
        texts, chunk = self._source.stop_tuning(self._used)
        for text in texts:
            _log.warning(text)
        if chunk is not None:
            self._take(chunk)

    # ------------------------------------------------------------ the state of a chain
    @property
    def state(self) -> Handed | None:
        """The state that a chain needs to continue after the draw that was handed out last; None before the
        first draw.
        """
        if self._source is None:
            return self._handed
        if self._state is None:
            self._state = self._source.state()
        return Handed(
            self._state, self._chunk.first, self._used, self._order, dict(self._last), self._divergences
        )

    def go_on_from(self, handed: Handed | None) -> None:
        """Continue from the given state of a chain."""
        self.close()
        self._handed = handed
        if handed is not None:
            self._order, self._last, self._divergences = handed.order, dict(handed.last), handed.divergences
            self._ended = handed.first + handed.used >= handed.order.tune

    def _go_on(self, point: PointType) -> None:
        """Have the source continue from the state that was set, and hand out the draws after this state."""
        assert self._handed is not None
        handed, self._handed = self._handed, None
        # whether a new chain begins at the given point, with the adaptation of the state that was set
        another = not self._last
        if another:
            done, tune = handed.first + handed.used, handed.order.tune
            seed, draws = seed_from(self._rng), done - tune + self._order.draws
            handed = handed._replace(order=handed.order._replace(seed=seed, draws=draws, announced=True))
            self._order = handed.order
        self._source = self._make_source()
        self._take(self._source.resume(handed))
        if another:
            self._take(self._source.moved(0, copied(point), self._order.left))


class Foreseen(NamedTuple):
    """A chain whose draws are made before PyMC begins it: its seed and numbers of draws (`order`), its first
    point in bytes, and what makes its draws (`source`).
    """

    order: ChainOrder
    point: dict[str, bytes]
    source: ChainSource


class HasChain:
    """A base class of steps with the state of a chain whose draws are made before PyMC asks for them."""

    ahead: Ahead

    @property
    def ahead_state(self) -> Handed | None:
        """The state of the chain; None before its first draw."""
        return self.ahead.state

    @ahead_state.setter
    def ahead_state(self, state: Handed | None) -> None:
        self.ahead.go_on_from(state)


def seed_from(rng: np.random.Generator) -> int:
    """An integer drawn from a generator, from which all random numbers of a chain are made."""
    return int(rng.integers(2**63))


def siblings(rng: np.random.Generator) -> Callable[[int], np.random.Generator] | None:
    """A function that finds the generators that NumPy spawned together with this one, as `pm.sample` does for
    chains.

    Returns
    -------
    function of a distance: 1 gives the generator of the next chain, 2 the generator of the chain after it.
    None for a generator that was not spawned, or from which more was drawn than `pm.sample` draws before a
    chain
    """
    own = rng.bit_generator.seed_seq
    if not isinstance(own, np.random.SeedSequence) or not own.spawn_key:
        return None

    def after(numbers: int, distance: int) -> np.random.Generator:
        key = (*own.spawn_key[:-1], own.spawn_key[-1] + distance)
        seed = np.random.SeedSequence(own.entropy, spawn_key=key, pool_size=own.pool_size)
        made = np.random.Generator(type(rng.bit_generator)(seed))
        for _ in range(numbers):
            made.integers(2**30)  # `pm.sample` draws such numbers before a chain begins
        return made

    coming = copy.deepcopy(rng.bit_generator).random_raw(3)
    for numbers in range(MOST_FIRST + 1):
        if (after(numbers, 0).bit_generator.random_raw(3) == coming).all():
            return functools.partial(after, numbers)
    return None


def in_bytes(point: dict[str, np.ndarray]) -> dict[str, bytes]:
    """The values of a point as bytes, to compare them bit for bit."""
    return {name: a.tobytes() for name, a in point.items()}


def copied(point: PointType) -> dict[str, np.ndarray]:
    """A copy of a point, since PyMC may keep the point in memory that it shares with other processes."""
    return {name: np.array(value) for name, value in point.items()}


def moved_by_another(step: str, names: list[str]) -> str:
    """The warning for variables that have moved between two draws of the step that is meant to move them."""
    belong = "belongs" if len(names) == 1 else "belong"
    return (
        f"{step}: {shown(names)} {belong} to two steps: another one moves {them(names)}, too. The draws are "
        "right, and the work is done twice. Name each variable in one step."
    )


def them(names: Sequence[str]) -> str:
    """The pronoun, "it" or "them", for some variables."""
    return "it" if len(names) == 1 else "them"
