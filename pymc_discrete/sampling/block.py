"""What a compiled chain asks of each of its blocks: what it may leave out has a default here."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_discrete.steps.standing import Leaving


class Over(NamedTuple):
    """How the values that a statistic has in the draws between two records become one.

    Attributes
    ----------
    add : (value of the draws so far, 0 of none, and value of one more) -> value of all of them
    end : (value of all draws, their number) -> what is recorded
    """

    add: Callable[[Any, Any], Any]
    end: Callable[[Any, Any], Any] = lambda value, count: value


MEAN = Over(operator.add, lambda value, count: (value / count).astype(value.dtype))
SUM = Over(operator.add)
ANY = Over(operator.or_)
LAST = Over(lambda before, value: value)


class Statistic(NamedTuple):
    """A sampler statistic of a block: its type, and what becomes of those of several draws."""

    type: type
    over: Over = LAST


class Block(ABC):
    """Some variables of a model and what moves them.

    A point is everywhere as `Points` holds it, but for lists of `points`, which are {variable: value}.

    Attributes
    ----------
    density : the model's log density over them, with its `graph` and their `names`
    stats : {name: Statistic}
    leaves_impossible : whether a chain that starts where the log density is -inf leaves it in tuning
    pooled : whether the chains share what they have learned, see `shared`
    shared_ends : tuning draws after which they share what a window of tuning has taught
    """

    density: Any
    stats: Mapping[str, Statistic]
    leaves_impossible = True
    pooled = False
    shared_ends: Sequence[int] = ()

    @abstractmethod
    def described(self) -> str:
        """The block in a line."""

    @abstractmethod
    def named(self) -> str:
        """What it is and its variables, for a message."""

    @abstractmethod
    def start(self) -> Any:
        """What a chain knows of the block before its first draw, NumPy arrays."""

    @abstractmethod
    def logdensity(self, point: dict[str, Any]) -> Any:
        """() float, nats, of the whole model."""

    @abstractmethod
    def draw(self, key, t, point: dict[str, Any], state: Any) -> tuple[dict[str, Any], Any, dict[str, Any]]:
        """(point, state, {statistic: value}) after draw t."""

    # ------------------------------------------------------------ before the chains
    @property
    def dtypes(self) -> dict[str, Any]:
        """{variable or vector: type} of those that are recorded in another type than the model's."""
        return {}

    def dispersed(
        self, point: dict[str, np.ndarray], given: set[str], rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """The point {variable: value} with the block's variables elsewhere, but for those `given`."""
        return point

    def check_starts(self, points: list[dict[str, np.ndarray]]) -> None:  # noqa: B027
        """Refuse starts of the chains that the block cannot move from."""

    # ------------------------------------------------------------ between stretches of tuning
    def stuck(self, states: Any) -> np.ndarray:
        """() or (chains,) bool, which chains need `settled`; of states (chains, ...)."""
        return np.zeros((), bool)

    def settled(self, key, point: dict[str, Any], state: Any) -> dict[str, Any]:
        """The point of a chain, nearer to the bulk where the chain stands still."""
        return point

    def shared(self, states: Any, ends: bool) -> Any:
        """The states (chains, ...) once the chains have shared what they learned.

        `ends`: of the window of tuning that has ended too.
        """
        return states

    # ------------------------------------------------------------ what to tell the user
    def complaints(self, states: Any) -> list[list[str]]:
        """Of each chain, when tuning has ended, of states (chains, ...)."""
        return []

    def conclusions(self, states: Any, points: dict[str, np.ndarray], transitions: int) -> list[str]:
        """When all is drawn, of states and points (chains, ...) after so many transitions."""
        return []

    def leaving(self, points: list[dict[str, np.ndarray]]) -> dict[str, Leaving]:
        """{discrete variable: how probable another value of its sites is} at the points of the chains."""
        return {}
