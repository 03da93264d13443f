"""Variables that two steps move in turn: a flow's step, which leads between modes, and a local one beside it.

In `pm.sample` a step knows only the values that it is given, and not which step made them. A step that takes
another one beside it (`DiscreteStep.shared`) therefore writes down with which values it ended.
"""

from collections.abc import Iterable

import numpy as np
from pymc.blocking import PointType

from pymc_discrete.runtime.names import shown

# {variable: the values with which such a step ended its last draw}, in this process. An entry is removed once
# a local step has made its draw of the variable.
_left: dict[str, np.ndarray] = {}


def leave(values: PointType) -> None:
    """Write down the values {variable: array} with which a flow's step ends its draw."""
    _left.update(values)


def take(names: Iterable[str]) -> None:
    """Remove what a flow's step wrote down of these variables, as a local step has made its draw of them."""
    for name in names:
        _left.pop(name, None)


def untouched(names: Iterable[str], point: PointType) -> list[str]:
    """Those of the variables that have, in `point`, the values that a flow's step wrote down last."""
    return [name for name in names if np.array_equal(point[name], _left.get(name, ()))]


def without_local(step: str, names: Iterable[str]) -> str:
    """The warning that no local step moves these variables beside a flow's step."""
    return (
        f"{step}: no local step moves {shown(names)} beside it, and where few of its proposals are accepted "
        f"the chain stands still. Add one: pmd.BlockGibbs([{shown(names)}])."
    )
