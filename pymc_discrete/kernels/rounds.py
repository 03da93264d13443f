"""How often a sweep moves sites that change together: a full round of their moves, where that is cheap.

A sweep draws each site that may change alone once. If it matched n sites that change in pairs only once, it
would try n / 2 of the n (n - 1) / 2 pairs; along as many lines as a lattice has dimensions, it would try few
of those that are known. So a sweep takes several turns, one after another: as many as try each pair and each
line once, or as are cheap. The cost is counted and not measured, so that draws do not depend on the clock.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# A sweep takes as many turns as have so many counted operations together, which take about 400 microseconds,
# but never fewer than `Round.fewest`.
CHEAP_ROUND = 1e6
COMPUTATION = 1250.0  # counted operations that a computation in a compiled loop takes besides its own
CHOICE = 30.0  # counted operations by which one of several values is chosen, for each of them
ENTRY = 4.0  # fewest counted operations of a site at one value


class Round(NamedTuple):
    """The turns that a sweep takes with some sets of sites that change together.

    Attributes
    ----------
    fewest : int, the number of turns of which a sweep takes no fewer, whatever they cost
    full : int, the number of turns that try each move once
    computations : int, those of a turn that run one after another
    operations : float, counted operations of a turn
    """

    fewest: int
    full: int
    computations: int
    operations: float

    @property
    def cost(self) -> float:
        """Counted operations of a turn, with what its computations take besides."""
        return self.computations * COMPUTATION + self.operations


# a way in which a sweep moves some sets: the turns that it may take, and (number of turns) -> the visit
Way = tuple[Round, Callable[[int], Callable]]


def numbers_of_turns(rounds: list[Round]) -> list[int]:
    """How many turns of each round a sweep takes.

    The same share of each: all of them, or as many as take `CHEAP_ROUND` operations together.
    """
    whole = sum(r.full * r.cost for r in rounds if r.full > r.fewest)
    share = min(1.0, CHEAP_ROUND / whole) if whole else 1.0
    return [int(np.clip(np.floor(share * r.full), r.fewest, max(r.full, r.fewest))) for r in rounds]


def cost_of_draws(target, n: int, values: int, sites: int) -> float:
    """Counted operations of draws from `values` in all, each with so many sites of variable n.

    Infinite where the cost of the log density is not known.
    """
    each = target.density.cost_of_value(n) / max(target.space.variables[n].size, 1)
    return values * (CHOICE + sites * max(each, ENTRY))
