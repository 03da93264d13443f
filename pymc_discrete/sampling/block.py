"""What a compiled chain asks of each of its blocks."""

from typing import Any, Protocol

import numpy as np

from pymc_discrete.steps.standing import Leaving


class Block(Protocol):
    """Some variables of a model and what moves them.

    Attributes
    ----------
    density : the model's log density over them, with its `graph` and their `names`
    """

    density: Any

    @property
    def stats(self) -> dict[str, type]:
        """{name of a statistic: its type}."""

    def described(self) -> str:
        """The block in a line."""

    def named(self) -> str:
        """What it is and its variables, for a message."""

    def start(self) -> Any:
        """What a chain knows of the block before its first draw, NumPy arrays."""

    def logdensity(self, point: dict[str, Any]) -> Any:
        """() float, nats, of the whole model; a point, here and below, is as `Points` holds it."""

    def check_starts(self, points: list[dict[str, np.ndarray]]) -> None:
        """Refuse starts of the chains that the block cannot move from."""

    def draw(self, key, t, point: dict[str, Any], state: Any) -> tuple[dict[str, Any], Any, dict[str, Any]]:
        """(point, state, statistics) after draw t."""

    def complaints(self, state: Any) -> list[list[str]]:
        """What a user should know when tuning has ended, of each chain of a state (chains, ...)."""

    def conclusions(self, state: Any, points: dict[str, np.ndarray], transitions: int) -> list[str]:
        """What a user should know when all is drawn, of a state and points (chains, ...) after so many
        transitions.
        """

    def leaving(self, points: list[dict[str, np.ndarray]]) -> dict[str, Leaving]:
        """{discrete variable: how probable another value of its sites is} at the points of the chains."""
