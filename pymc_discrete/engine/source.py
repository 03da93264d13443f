"""What is said between the program that makes the draws of a chain and the step that hands them out.

Nothing here imports JAX, which a process that only hands out draws does not need.
"""

from typing import NamedTuple, Protocol

import numpy as np

# Places of steps in a list are indices. These two stand for steps that are not in it: for NUTS, and for one
# that draws variables which would be summed out, had other steps not taken all continuous ones. PyMC asked
# for the names of all statistics before that was known, so it gets none of the second one.
NUTS, STANDS_IN = -1, -2


class ChainOrder(NamedTuple):
    """The chain whose draws a source is asked for.

    Attributes
    ----------
    tune, draws : how many draws, as `setup_chain` announces them
    announced : whether it did; otherwise anybody may step from anywhere
    seed : the seed of all random numbers of the chain
    left : names of the variables that other steps move, and this one does not
    """

    tune: int
    draws: int
    announced: bool
    seed: int
    left: list[str]


class Chunk(NamedTuple):
    """Draws of a chain that follow one another.

    Attributes
    ----------
    first : index of the first draw
    draws : {value variable: (n, ...)}
    stats : {statistic: (n,) or (n, blocks that have it)}
    blocks : for each block of the program, the place of its step, NUTS or INSTEAD, and the names of its
        statistics
    """

    first: int
    draws: dict[str, np.ndarray]
    stats: dict[str, np.ndarray]
    blocks: list[tuple[int, list[str]]]

    @property
    def length(self) -> int:
        """The number of draws."""
        return len(self.stats["lp"])


class Handed(NamedTuple):
    """The state of a chain of which draws were handed out.

    Attributes
    ----------
    before : the arrays of the state of the chain before a chunk, as a message
    first : index of the first draw of the chunk
    used : how many draws of the chunk were handed out
    order : Order
    last : {value variable: bytes}, the draw that was handed out last
    divergences : how many trajectories have diverged after tuning
    """

    before: bytes
    first: int
    used: int
    order: ChainOrder
    last: dict[str, bytes]
    divergences: int


class ChainSource(Protocol):
    """An object that makes the draws of a chain.

    It is an `engine.course.Course` in the process of the step, and in other processes a
    `steps.served.Remote`, which asks a `Course` in that one.

    `used` is always how many draws of the last chunk were handed out.

    Attributes
    ----------
    spare : how many chains of the same run may be made beside this one
    """

    spare: int

    def foreseen(self, order: ChainOrder, point: dict[str, np.ndarray]) -> "ChainSource":
        """A source of another chain, which is being begun."""

    def allow(self, draws: int) -> None:
        """Make the next chunk of a foreseen chain in the background, if it has fewer draws than these."""

    def begin(self, order: ChainOrder, point: dict[str, np.ndarray]) -> Chunk:
        """The first draws of a chain that starts about a point."""

    def next(self) -> Chunk:
        """The draws after the last chunk, all of which were handed out."""

    def moved(self, used: int, point: dict[str, np.ndarray], left: list[str]) -> Chunk:
        """The draws that follow a point, at which other steps have moved variables."""

    def stop_tuning(self, used: int) -> tuple[list[str], Chunk | None]:
        """The warnings at the end of tuning, and the next draws if it ends before the announced draw."""

    def conclude(self, used: int) -> list[str]:
        """The warnings after the last draw."""

    def state(self) -> bytes:
        """The arrays of the state of the chain before the last chunk, as a message."""

    def resume(self, handed: Handed) -> Chunk:
        """A chunk without draws, before the draws that follow a state."""

    def close(self) -> None:
        """Make no more draws."""
