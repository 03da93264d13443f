"""Variables that a step shares with another one, in `pm.sample`, where a step does not see the others."""

from collections.abc import Iterable

import numpy as np
from pymc.blocking import PointType

from pymc_discrete.targets.names import shown

# {variable: where a step that shares it left it, until another one has had its turn}, in this process
_left: dict[str, np.ndarray] = {}


def leave(values: PointType) -> None:
    """Note where a step that shares these variables has left them."""
    _left.update(values)


def take(names: Iterable[str]) -> None:
    """Note that a step which does not share these variables has had its turn."""
    for name in names:
        _left.pop(name, None)


def untouched(names: Iterable[str], point: PointType) -> list[str]:
    """Those variables that a step which shares them was the last to move, as far as this process knows."""
    return [name for name in names if np.array_equal(point[name], _left.get(name, ()))]


def without_local(step: str, names: Iterable[str]) -> str:
    """The warning for variables that no other step moves than those which are to share them."""
    return (
        f"{step}: no local step moves {shown(names)} beside it, and where few of its proposals are accepted "
        f"the chain stands still. Add one: pmd.BlockGibbs([{shown(names)}])."
    )
