"""The interface of a block of a compiled chain: a sampler of some of its variables."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from pymc.exceptions import SamplingError
from xarray import Dataset

from pymc_discrete.diagnostics.known.leaving import Leaving
from pymc_discrete.engine.statistic import Statistic
from pymc_discrete.space.space import Space

# the name under which a point has, besides the values of variables, the number of tuning draws, () int
TUNE = "/tuning draws of the run"


class GradientNotFinite(SamplingError):
    """A chain has started at a point at which the gradient that a block needs is not finite."""


class Block(ABC):
    """Some variables of a model, and the sampler that moves them.

    Unless a method says otherwise, a `point` is {variable or vector: array}, where variables that a step
    draws together are one vector (see `Points`), and a list `points` has one {variable: value} for each
    chain.

    Attributes
    ----------
    density : the model's log density as a function of these variables, with its `graph` and their `names`
    space : Space of the discrete variables that the block draws, if it draws any
    numbers : {name: array}, data and constants of the model, which are in every point that a program gets
    settings : {name: array}, numbers of the run, such as TUNE, which are in every point as well
    stats : {name: Statistic}, the sampler statistics of a draw
    leaves_impossible : bool
        Whether tuning can move a chain from a log density of -inf to a finite one.
    start_program : bool
        Whether `logdensity` compiles a program that is used for nothing else; starting points are then
        evaluated by a block that needs no such program, if there is one.
    knows_point : whether the adaptation state depends on the chain's point, see `moved_to`
    with_probabilities : the variables of which `groups` has the mean probability of each value
    pooled : whether the chains share adapted parameters, see `shared`
    shared_ends : tuning draws that end an adaptation window, after which its estimates are pooled
    """

    density: Any
    space: Space | None = None
    numbers: dict[str, np.ndarray]
    settings: Mapping[str, np.ndarray] = MappingProxyType({})
    stats: Mapping[str, Statistic]
    leaves_impossible = True
    start_program = False
    knows_point = False
    with_probabilities: Collection[str] = ()
    pooled = False
    shared_ends: Sequence[int] = ()

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """A key that is equal for blocks that compute the same at equal points: the density and
        the options."""

    @abstractmethod
    def described(self) -> str:
        """The sampler, its options and its variables in one line, for the settings of a run."""

    def options(self) -> dict[str, Any]:
        """{name: value} of the options that decide how the block samples and are not among the settings of a
        run.
        """
        return {}

    @abstractmethod
    def named(self) -> str:
        """The name of the sampler and its variables, for a message."""

    @abstractmethod
    def start(self, point: dict[str, np.ndarray]) -> Any:
        """The adaptation state of a chain that starts at a point {variable: value}, a pytree of arrays."""

    @abstractmethod
    def logdensity(self, point: dict[str, Any]) -> Any:
        """() float, nats, the log density of the whole model at a point {variable: value}, on the host."""

    @abstractmethod
    def draw(self, key, t, point: dict[str, Any], state: Any) -> tuple[dict[str, Any], Any, dict[str, Any]]:
        """The point, the adaptation state and {statistic: value} after transition t of a chain."""

    # ------------------------------------------------------------ before the chains begin
    def moved_to(self, point: dict[str, np.ndarray], state: Any) -> Any:
        """The adaptation state, adapted to the point {variable: value} at which a chain was put.

        The method runs on the host. Only a block with `knows_point` changes its state.
        """
        return state

    @property
    def dtypes(self) -> dict[str, Any]:
        """{variable or vector: type} for variables that are recorded in another type than in the model."""
        return {}

    def dispersed(
        self, point: dict[str, np.ndarray], given: set[str], rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """The point {variable: value} with the block's variables dispersed, except those named in `given`."""
        return point

    def possible(self, point: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The point {variable: value}, with the block's discrete variables where the density is not zero.

        The variables are changed only if the density is zero at the point, and stay as they are if no other
        point is found.
        """
        return point

    def gradient_is_finite(self, point: dict[str, np.ndarray]) -> bool:
        """Whether the gradient that the block needs, if it needs one, is finite at a point {variable: value}.

        The method may compile a program.
        """
        return True

    def check_starts(self, points: list[dict[str, np.ndarray]]) -> None:  # noqa: B027
        """Raise an error for starting points from which the block cannot move."""

    # ------------------------------------------------------------ between intervals of tuning draws
    def check_first(self, states: Any) -> None:  # noqa: B027
        """Raise an error if the first tuning draws show that the block cannot move from its start.

        Parameters
        ----------
        states : (chains, ...), the adaptation states after the first tuning draws

        Raises
        ------
        pymc.exceptions.SamplingError
            The error is `GradientNotFinite` if another start may help.
        """

    def stuck(self, states: Any) -> np.ndarray:
        """() or (chains,) bool, whether chains do not move, so that `settled` must put them at another point.

        The argument has the adaptation states of the chains, (chains, ...).
        """
        return np.zeros((), bool)

    def settled(self, key, point: dict[str, Any], state: Any) -> dict[str, Any]:
        """The point of one chain; if the chain does not move, a point of higher probability."""
        return point

    def shared(self, states: Any, ends: bool) -> Any:
        """The states (chains, ...) after the chains have pooled their adapted parameters.

        The argument `ends` says whether an adaptation window ends at the last draw, so that the estimates of
        the window are pooled, too.
        """
        return states

    # ------------------------------------------------------------ warnings
    def complaints(self, states: Any) -> list[list[str]]:
        """The warnings of each chain at the end of tuning, given states (chains, ...)."""
        return []

    def remarks(self, states: Any) -> list[str | None]:
        """For each chain a line for the log about the parameters that its tuning has found, or None.

        The argument `states` has the adaptation states (chains, ...) at the end of tuning.
        """
        return []

    def conclusions(self, states: Any, points: dict[str, np.ndarray], transitions: int) -> list[str]:
        """The warnings after the last draw, given the chains' states and points, (chains, ...)."""
        return []

    def completed(self, points: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        """The points, with a draw of the variables that this block makes only for later blocks of the same
        draw.

        These variables are no part of a chain's state, so that the points at the end of a run lack them.
        """
        return points

    def leaving(self, points: list[dict[str, np.ndarray]]) -> dict[str, Leaving]:
        """For each discrete variable the probability that its sites change when they move from given
        points, one for each chain.
        """
        return {}

    # ------------------------------------------------------------ results
    def groups(self, states: Any, coords: Mapping[str, Any], dims: Mapping[str, Any]) -> dict[str, Dataset]:
        """Groups of the result other than draws and statistics, given the states (chains, ...) at the end.

        The arguments `coords` and `dims` are the model's, in the form of `arviz_base.from_dict`.
        """
        return {}


class BlockOfStep(Block):
    """A block that runs a step, and takes its description from the step.

    Attributes
    ----------
    step : a step of `steps/`
    """

    step: Any

    def described(self) -> str:
        return self.step.described()

    def options(self) -> dict[str, Any]:
        return self.step.options()

    def named(self) -> str:
        return self.step.named()
