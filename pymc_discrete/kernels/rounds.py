"""How many turns a sweep takes with sites that change together: enough to try each move once, where cheap.

A sweep draws each site that may change alone once. If it matched n sites that change in pairs only once, it
would try n / 2 of the n (n - 1) / 2 pairs. If it drew along as many lines as a lattice has dimensions, it
would try few of the known lines. So a sweep takes several turns, one after another: enough to try each pair
and each line once, or as many as are cheap. The cost is counted and not measured, so that draws do not depend
on the clock.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Costs are estimates from the graph of the log density, in units of one addition (`structure/costs.py`). The
# turns of a sweep cost up to this much together, about 400 microseconds, but there are never fewer turns than
# `Round.fewest`.
CHEAP_ROUND = 1e6
COMPUTATION = 1250.0  # the overhead of one computation in a compiled loop
CHOICE = 30.0  # the cost of the random choice among several values, for each of the values
ENTRY = 4.0  # the least cost of evaluating the log density of one site at one value


class Round(NamedTuple):
    """The numbers of turns that a sweep may take with some sets of sites that change together, and their
    cost.

    Attributes
    ----------
    fewest : int, the number of turns that a sweep takes at least, whatever they cost
    full : int, the number of turns that try each move once
    computations : int, how many computations of a turn have to run one after another
    operations : float, the estimated cost of a turn, in additions
    """

    fewest: int
    full: int
    computations: int
    operations: float

    @property
    def cost(self) -> float:
        """The estimated cost of a turn, with the overhead of its computations, in additions."""
        return self.computations * COMPUTATION + self.operations


# how a sweep moves some sets: the turns that it may take, and a function (number of turns) -> visit
Way = tuple[Round, Callable[[int], Callable]]


def numbers_of_turns(rounds: list[Round]) -> list[int]:
    """For each of `rounds`, the number of turns that a sweep takes.

    The sweep takes the same share of the `Round.full` turns of each round: all of them, or as many as cost
    `CHEAP_ROUND` additions together, but never fewer turns than `Round.fewest`.
    """
    whole = sum(r.full * r.cost for r in rounds if r.full > r.fewest)
    share = min(1.0, CHEAP_ROUND / whole) if whole else 1.0
    return [int(np.clip(np.floor(share * r.full), r.fewest, max(r.full, r.fewest))) for r in rounds]


def cost_of_draws(target, n: int, values: int, sites: int) -> float:
    """The estimated cost, in additions, of draws that choose among `values` candidates in all.

    A candidate gives new values to `sites` sites, all of variable n. The cost is infinite where the cost of
    the log density is not known.
    """
    each = target.density.cost_of_value(n) / max(target.space.variables[n].size, 1)
    return values * (CHOICE + sites * max(each, ENTRY))
