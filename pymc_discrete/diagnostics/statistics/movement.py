"""How often, and in which chains, elements of discrete variables move."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pymc_discrete.diagnostics.draws import batches, per_element
from pymc_discrete.diagnostics.thresholds import STRETCHES


class Movement(NamedTuple):
    """How the elements of a variable moved.

    Attributes
    ----------
    begin : (chains, elements) int, the first values
    moves : (chains, elements) int, the number of draws that differ from the draw before
    stretches : (chains, elements) int, in how many of ten equally long intervals of draws the element moved
    draws : number of draws of a chain
    """

    begin: np.ndarray
    moves: np.ndarray
    stretches: np.ndarray
    draws: int

    @property
    def chains(self) -> int:
        """Number of chains."""
        return len(self.moves)

    @property
    def immobile(self) -> np.ndarray:
        """(elements,) bool, the elements that moved in no chain."""
        return (self.moves == 0).all(axis=0)

    @property
    def still(self) -> np.ndarray:
        """(elements,) bool, the elements that have one value in all draws."""
        return self.immobile & (self.begin == self.begin[0]).all(axis=0)


class MovementOfChain:
    """The movement of some elements in one chain, counted draw by draw.

    Parameters
    ----------
    first : (elements,) int, the values in the first draw
    draws : number of draws that the chain will have
    """

    def __init__(self, first: np.ndarray, draws: int):
        self._first, self._last, self._draws, self._seen = first, first, draws, 0
        self._ends = ends_of_stretches(draws - 1)
        self._moves = np.zeros(len(first), int)
        self._moved_in = np.zeros((STRETCHES, len(first)), bool)

    def note(self, x: np.ndarray) -> None:
        """Count the moves from the last draw to the next draw x (elements,)."""
        changed = x != self._last
        self._moves += changed
        self._moved_in[np.searchsorted(self._ends, self._seen, side="right") - 1] |= changed
        self._last, self._seen = x, self._seen + 1

    def counted(self) -> Movement:
        """The movement in the draws so far."""
        return Movement(self._first[None], self._moves[None], self._moved_in.sum(axis=0)[None], self._draws)


def moved(data: Any, var_names: str | list[str] | None = None) -> Any:
    """The share of draws of each element that differ from the draw before.

    Parameters
    ----------
    data : array (chains, draws, ...) of integers, DataArray, Dataset, or DataTree with a group posterior
    var_names : names of discrete variables of a Dataset or DataTree; all of them by default

    Returns
    -------
    Shares from 0 to 1, in the type of `data` without the axes of chains and draws
    """
    return per_element(lambda x: moves_of(x).mean(axis=1) / (x.shape[2] - 1), data, var_names)


def any_moved(draws: np.ndarray) -> float:
    """The share of draws (chains, draws, ...) in which any element differs from the draw before."""
    changed = np.zeros((draws.shape[0], draws.shape[1] - 1), bool)
    for x in batches(draws):
        changed |= (x[..., 1:] != x[..., :-1]).any(axis=0)
    return float(changed.mean())


def moves_of(x: np.ndarray) -> np.ndarray:
    """(sites, chains) int, the number of draws of x (sites, chains, draws) that differ from the
    draw before."""
    return np.count_nonzero(x[..., 1:] != x[..., :-1], axis=2)


def stretches_of(x: np.ndarray) -> np.ndarray:
    """(sites, chains) int, the number of the `STRETCHES` intervals of x (sites, chains, draws)
    with a move."""
    changed = x[..., 1:] != x[..., :-1]
    ends = ends_of_stretches(changed.shape[2])
    parts = [changed[..., a:b].any(axis=2) for a, b in pairwise(ends)]
    return np.sum(parts, axis=0)


def ends_of_stretches(changes: int) -> np.ndarray:
    """(STRETCHES + 1,) int, the ends of the `STRETCHES` intervals into which a chain with `changes` steps
    from draw to draw is divided.
    """
    return np.linspace(0, changes, STRETCHES + 1).astype(int)
