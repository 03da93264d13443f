"""What every part of a log density answers: which sites it depends on, and by how much moves change it.

A target's log density is a sum of parts. Each finds the differences of its own terms in its own way:

====================  ======================================================================================
`Tables`              elements of one or two sites, tabulated once per context `InPlace`             elements
of a few sites, evaluated at the moves of each `Incremental`         a term that joins many sites, evaluated
on what a move changes; `Quadratic` in one product `Gradient`            a term that joins many sites, by a
first-order estimate ====================
======================================================================================

Whoever needs differences, conditionals or factors loops over the parts once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from pytensor.graph.basic import Variable

from pymc_discrete.targets.space import Space
from pymc_discrete.targets.structure.dependence import Dependence


class Here(NamedTuple):
    """A state of the block in a context.

    Attributes
    ----------
    x : (d,) int
    state : {variable of the graph: flat array}, the block's variables and the context's leaves
    tensors : {variable of the graph: array}, what the parts' `tensors` are at x; empty where no part that is
        asked has any
    """

    x: Any
    state: dict[Variable, Any]
    tensors: dict[Variable, Any]


class Factors(NamedTuple):
    """Some of a log density as a sum of functions of few sites, up to a constant.

    Where a site has fewer values than its variable's widest, the entries beyond them mean nothing.

    Attributes
    ----------
    unary : {variable number: (size, K) nats}
    tables : [((E, J) int, (E, K1, ..., KJ) nats)], tables over J sites each; the sites of a column are of
        one variable
    pairs : {(n, m): (size of n, K - 1, size of m, K - 1) nats}, n <= m: what every two sites of two variables
        add, once each, by their values but for the lowest, at which they add nothing
    """

    unary: dict[int, Any]
    tables: list[tuple[np.ndarray, Any]]
    pairs: dict[tuple[int, int], Any]


class Part(ABC):
    """Some of the terms of a log density, and one way to find what moves change in them.

    Parameters
    ----------
    dependence : which sites each element of the graph depends on
    space : the block's space

    Attributes
    ----------
    exact : whether the differences are exact
    mixing : whether the part joins every one of its sites to every other, so that only one can be drawn at a
        time
    """

    exact: ClassVar[bool] = True
    mixing: ClassVar[bool] = False

    def __init__(self, dependence: Dependence, space: Space):
        self.dependence, self.space, self.graph = dependence, space, dependence.graph

    # ------------------------------------------------------------ what it depends on
    @property
    @abstractmethod
    def sites(self) -> np.ndarray:
        """(m,) int, numbers of the sites that it depends on, sorted."""

    @property
    @abstractmethod
    def variables(self) -> set[int]:
        """Numbers of the variables that these sites belong to."""

    @property
    def links(self) -> list[np.ndarray]:
        """[(n, J) int], for each element the sites that it joins, -1 for none; of a `mixing` part nothing."""
        return []

    # ------------------------------------------------------------ what it reads of the graph
    @property
    @abstractmethod
    def leaves(self) -> list[Variable]:
        """What it reads that does not depend on the block."""

    @property
    def tensors(self) -> list[Variable]:
        """What it reads whole that depends on the block."""
        return []

    # ------------------------------------------------------------ differences, pure JAX functions
    def context(self, state: dict[Variable, Any]) -> Any:
        """What does not depend on x, computed once per context; `state` as of `Here`, with some x."""
        return ()

    def context_of(self, n: int, context: Any, rows: Any) -> Any:
        """What `differences` reads of the context for the sites `rows` of variable n, whatever x is."""
        return context

    def at(self, here: Here) -> Any:
        """What depends on x and on no move: computed once for all moves from x."""
        return ()

    @abstractmethod
    def differences(
        self, n: int, here: Here, at: Any, context: Any, rows: Any = None, candidates: Any = None
    ):
        """(r, K) nats, what the moves of the sites of variable n change.

        Parameters
        ----------
        n : one of `variables`
        at : as `at` gives it for `here`
        context : as `context_of` gives it for these rows
        rows : (r,) int, sites counted within the variable; None is all
        candidates : (r, K) int, values to go to; None is the neighbours
        """

    def log_weights(self, n: int, here: Here, at: Any, context: Any, inside: np.ndarray):
        """(r, K) nats at each value of the sites of variable n, up to a constant a site.

        Without what joins two sites `inside` (d,) bool and is tabulated.
        """
        return self.differences(n, here, at, context)

    def moved(self, n: int, here: Here, site: Any, value: Any) -> dict[Variable, Any]:
        """{tensor: its value} of the `tensors` that change when site `site` (1,) of variable n goes to
        `value` (1,).
        """
        return {}

    def factors(self, context: Any, here_at: Callable[[Any], Here]) -> Factors | None:
        """The part as factors, None where it is no sum of functions of a few sites.

        Parameters
        ----------
        context : as `context` gives it
        here_at : (x) -> `Here`, in the same context
        """
        return None

    # ------------------------------------------------------------ what it costs
    @abstractmethod
    def cost(self, share: float, values: list[int]) -> float:
        """Counted operations of the differences of a transition.

        Parameters
        ----------
        share : of the sites whose differences are computed, where these are few
        values : for each variable the values that a site is evaluated at
        """

    def cost_of_value(self, n: int) -> float:
        """Counted operations of evaluating all sites of variable n at one more value."""
        return 0.0
