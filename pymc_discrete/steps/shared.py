"""Variables that two steps move in turn: the step of a flow, which moves between modes, and a local step.

In `pm.sample` a step knows only the values that it is given, and not which step made them. A step that shares
its variables with another step (`DiscreteStep.shared`) therefore keeps the values with which its last draw
ended, and the other steps of its process ask for these values. A process that PyMC starts for a chain runs
that chain only.
"""

from collections.abc import Iterable
from typing import ClassVar
from weakref import WeakSet

import numpy as np
from pymc.blocking import PointType

from pymc_discrete.runtime.names import shown


class LeftValues:
    """The values that a step which shares its variables keeps from its last draw.

    Attributes
    ----------
    values : {variable: the value with which the draw ended}, until another step has drawn the variable
    """

    # every `LeftValues` of this process, so that a step finds the values that other steps have kept
    _all: ClassVar[WeakSet["LeftValues"]] = WeakSet()

    def __init__(self) -> None:
        self.values: dict[str, np.ndarray] = {}
        self._all.add(self)

    @classmethod
    def taken(cls, names: Iterable[str]) -> None:
        """Forget the values left for these variables, which a step that shares no variables has now drawn."""
        for one in cls._all:
            for name in names:
                one.values.pop(name, None)

    @classmethod
    def untouched(cls, names: Iterable[str], point: PointType) -> list[str]:
        """The variables whose values in `point` are the values with which a sharing step ended its draw."""
        left = [one.values for one in cls._all]
        return [name for name in names if any(np.array_equal(point[name], v.get(name, ())) for v in left)]


def without_local(step: str, names: Iterable[str]) -> str:
    """The warning that only the step of a flow, and no local step, moves some variables."""
    return (
        f"{step}: no local step moves {shown(names)} beside it, and where few of its proposals are accepted "
        f"the chain stands still. Add one: pmd.BlockGibbs([{shown(names)}])."
    )
