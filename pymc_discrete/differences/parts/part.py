"""The interface of the parts of a log density: the sites that a part depends on, and its differences.

A target's log density is a sum of parts. A part has some of the terms, and one way to find their differences:

- `Tables`: elements of one or two sites, tabulated once per context.
- `InPlace`: elements of a few sites, evaluated at the moves of each of these sites.
- `Incremental`: a term that joins many sites, evaluated on the tensors that a move changes.
- `Quadratic`: a quadratic function of a linear map, by two matrix products.
- `ByLabel`: a function of sums by label, evaluated at the two labels whose sums a move changes.
- `Swept`: an integral over coefficients that sites gate, from a swept tableau.
- `ActiveColumns`: an integral over coefficients of many columns, of which few are active, without a tableau.
- `Gradient`: a term that joins many sites, by a first-order estimate.

Code that needs differences, conditionals or factors loops over the parts.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from pytensor.graph.basic import Variable

from pymc_discrete.space.space import Space
from pymc_discrete.structure.dependence import Dependence


class BlockState(NamedTuple):
    """A state of the block in a context.

    Attributes
    ----------
    x : (d,) int
        The values of the sites.
    arrays : {variable of the graph: flat array}
        The values of the block's variables and of the context's leaves.
    tensors : {variable of the graph: array}
        The values at x of the tensors of the block that parts read as a whole; empty if no part in use reads
        any.
    """

    x: Any
    arrays: dict[Variable, Any]
    tensors: dict[Variable, Any]


class Factors(NamedTuple):
    """A part of a log density as a sum of functions of a few sites each, up to a constant.

    A variable's tables have columns for K values. Where a site has fewer values, the columns beyond these are
    undefined.

    Attributes
    ----------
    unary : {variable number: (size, K) nats}
    tables : [((E, J) int, (E, K1, ..., KJ) nats)]
        E sets of J sites, and the table of each set. All sites in a column belong to one variable.
    pairs : {(n, m): (size of n, K - 1, size of m, K - 1) nats}, n <= m
        The interaction of every site of variable n with every site of variable m, indexed by their values
        without the lowest, at which the interaction is 0. Each pair of sites is counted once.
    """

    unary: dict[int, Any]
    tables: list[tuple[np.ndarray, Any]]
    pairs: dict[tuple[int, int], Any]


class Part(ABC):
    """Some of the terms of a log density, and one method to compute their differences.

    Parameters
    ----------
    dependence : Dependence
        Which sites each element of the graph depends on.
    space : Space
        The block's space.

    Attributes
    ----------
    exact : bool
        Whether the differences are exact.
    mixing : bool
        Whether every site of the part interacts with every other, so that only one site can be drawn at a
        time.
    """

    exact: ClassVar[bool] = True
    mixing: ClassVar[bool] = False

    def __init__(self, dependence: Dependence, space: Space):
        self.dependence, self.space, self.graph = dependence, space, dependence.graph

    # ------------------------------------------------------------ the sites that the part depends on
    @property
    @abstractmethod
    def sites(self) -> np.ndarray:
        """(m,) int, the indices in x of the sites that the part depends on, sorted."""

    @cached_property
    def variables(self) -> set[int]:
        """The indices of the variables that the sites in `sites` belong to."""
        numbers = np.searchsorted(self.space.starts, self.sites, side="right") - 1
        return set(np.unique(numbers).tolist())

    # ------------------------------------------------------------ the variables that the part reads
    @property
    @abstractmethod
    def leaves(self) -> list[Variable]:
        """The variables of the graph that the part reads and that do not depend on the block."""

    @property
    def tensors(self) -> list[Variable]:
        """The variables of the graph that depend on the block and that the part reads as whole tensors."""
        return []

    # ------------------------------------------------------------ differences, pure JAX functions
    def context(self, arrays: dict[Variable, Any]) -> Any:
        """Quantities that `differences` needs and that do not depend on x, computed once per context.

        `arrays` has flat arrays of the block's variables, at any x, and of what is read outside the block.
        """
        return ()

    def context_of(self, n: int, context: Any, rows: Any) -> Any:
        """What of the part's context `differences` needs for the sites `rows` of variable n, at any x."""
        return context

    def at(self, state: BlockState, context: Any) -> Any:
        """Quantities that `differences` needs and that depend on x but not on the move, computed
        once per x."""
        return ()

    def at_after(
        self, n: int, site: Any, before: BlockState, after: BlockState, at: Any, context: Any
    ) -> Any:
        """What `at` computes of a state, after a site (1,) of variable n has moved; from what `at` had
        computed before the move.
        """
        return self.at(after, context)

    @abstractmethod
    def differences(
        self, n: int, state: BlockState, at: Any, context: Any, rows: Any = None, candidates: Any = None
    ):
        """(r, K) nats, the changes of the log density when sites of variable n move.

        Parameters
        ----------
        n : int
            The number of a variable that the part depends on.
        at : what `Part.at` computes at the state
        context : what `context_of` picks for `rows` out of the part's context
        rows : (r,) int
            Sites, counted within the variable; None means all.
        candidates : (r, K) int
            The values to move to; None means the neighbours.
        """

    def joint_differences(self, n: int, state: BlockState, at: Any, context: Any, moves: Any):
        """(r, C) nats, the changes of the log density when several sites of variable n move together.

        With T an element that depends on sites a and b, the change is T(x_a', x_b') - T(x_a, x_b). The change
        is not a sum of single changes, since a state between the two may be impossible.

        Parameters
        ----------
        at : what `Part.at` computes at the state
        context : what `Part.context` computes, for all sites
        moves : JointMoves
        """
        raise TypeError(
            f"{type(self).__name__} has no differences of sites that move together. Pass differences='exact'."
        )

    def log_weights(self, n: int, state: BlockState, at: Any, context: Any, inside: np.ndarray):
        """(r, K) nats, the terms of the part at each value of each site of variable n, given all other sites.

        They are known up to a constant for each site. Tables of pairs are left out if both sites of the pair
        are `inside` (d,) bool.
        """
        return self.differences(n, state, at, context)

    def tensors_after(self, n: int, state: BlockState, site: Any, value: Any) -> dict[Variable, Any]:
        """{tensor: new value} of those tensors read as a whole that change when a site of variable n moves.

        Parameters
        ----------
        site : (1,) int
            The site that moves, counted within the variable.
        value : (1,) int
            The value that it moves to.
        """
        return {}

    def factors(self, context: Any, state_at: Callable[[Any], BlockState]) -> Factors | None:
        """The part as factors, or None where it is not a sum of functions of a few sites.

        Parameters
        ----------
        context : what `Part.context` computes, which does not depend on x
        state_at : callable, (x) -> `BlockState` in the same context
        """
        return None

    # ------------------------------------------------------------ the cost of the differences
    @abstractmethod
    def cost(self, share: float, values: list[int]) -> float:
        """Counted operations of the differences that one transition computes.

        Parameters
        ----------
        share : float
            The fraction of the sites whose differences are computed, where the part can compute some alone.
        values : list of int
            For each variable the number of values at which a site is evaluated.
        """

    def cost_of_value(self, n: int) -> float:
        """Counted operations of evaluating all sites of variable n at one more value."""
        return 0.0


class MoveByMove(Part):
    """A part that computes the difference of each move separately, each at the same cost."""

    @property
    @abstractmethod
    def cost_of_move(self) -> float:
        """Counted operations of the difference of one move, on average."""

    def moves_of(self, n: int) -> int:
        """The number of moves of all sites of a variable."""
        return self.space.variables[n].size * self.space.variables[n].moves

    @cached_property
    def cost_of_all(self) -> float:
        """Counted operations of all differences."""
        return sum(self.moves_of(n) for n in self.variables) * self.cost_of_move

    def cost(self, share: float, values: list[int]) -> float:
        return self.cost_of_all

    def cost_of_value(self, n: int) -> float:
        return self.space.variables[n].size * self.cost_of_move if n in self.variables else 0.0
