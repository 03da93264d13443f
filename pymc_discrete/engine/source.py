"""The messages between the program that makes the draws of a chain and the step that hands them out.

This module does not import JAX, which a process that only hands out draws does not need.
"""

from typing import NamedTuple, Protocol

import numpy as np

# The steps of a program are identified by their index in a list. NUTS and STANDS_IN stand for steps that are
# not in the list: NUTS, and a step for variables that would be summed out if other steps had not taken all
# continuous variables. PyMC asks for the names of all statistics before it is known whether the latter is
# needed, so that PyMC gets no statistics of STANDS_IN.
NUTS, STANDS_IN = -1, -2


class ChainOrder(NamedTuple):
    """The chain whose draws a source must make.

    Attributes
    ----------
    tune, draws : the numbers of draws that `setup_chain` announces
    announced : whether `setup_chain` announced the chain; otherwise each draw may start from any point
    seed : the seed of all random numbers of the chain
    left : names of the variables that only other steps move
    """

    tune: int
    draws: int
    announced: bool
    seed: int
    left: list[str]


class Chunk(NamedTuple):
    """Consecutive draws of a chain.

    Attributes
    ----------
    first : index of the first draw
    draws : {value variable: (n, ...)}
    stats : {statistic: (n,) or (n, number of blocks that have it)}
    blocks : for each block of the program, the index of its step, or NUTS or STANDS_IN, and the names of its
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
    """The state of a chain whose draws were handed out to PyMC.

    Attributes
    ----------
    before : the arrays of the state of the chain before a chunk, as a message
    first : index of the first draw of the chunk
    used : the number of draws of the chunk that were handed out
    order : ChainOrder
    last : {value variable: bytes}, the draw that was handed out last
    divergences : the number of trajectories that have diverged after tuning
    """

    before: bytes
    first: int
    used: int
    order: ChainOrder
    last: dict[str, bytes]
    divergences: int


class ChainSource(Protocol):
    """An object that makes the draws of a chain.

    In the process of the step it is an `engine.course.Course`. In other processes it is a
    `steps.served.Remote`, which asks a `Course` in the process of the step. The argument `used` is always the
    number of draws of the last chunk that were handed out.

    Attributes
    ----------
    spare : the number of chains of the same run that may be made beside this chain
    """

    spare: int

    def foreseen(self, order: ChainOrder, point: dict[str, np.ndarray]) -> "ChainSource":
        """A source of another chain of the run, which is begun before PyMC asks for it."""

    def allow(self, draws: int) -> None:
        """For a chain that was begun ahead: make the next chunk in the background if it has fewer draws than
        allowed.
        """

    def begin(self, order: ChainOrder, point: dict[str, np.ndarray]) -> Chunk:
        """The first draws of a chain that starts near a point."""

    def next(self) -> Chunk:
        """The draws after the last chunk, all of which were handed out."""

    def moved(self, used: int, point: dict[str, np.ndarray], left: list[str]) -> Chunk:
        """The draws that follow a point, at which other steps have moved variables."""

    def stop_tuning(self, used: int) -> tuple[list[str], Chunk | None]:
        """The warnings at the end of tuning, and the next draws if tuning ends before the announced draw."""

    def conclude(self, used: int) -> list[str]:
        """The warnings after the last draw."""

    def state(self) -> bytes:
        """The arrays of the state of the chain before the last chunk, as a message."""

    def resume(self, handed: Handed) -> Chunk:
        """An empty chunk, after which `next` returns the draws that follow a given state of a chain."""

    def close(self) -> None:
        """Make no more draws."""
