"""Variables that two steps move in turn: a flow's step, which leads between modes, and a local one beside it.

In `pm.sample` a step knows only the values that it is given, and not which step made them. A step that takes
another one beside it (`DiscreteStep.shared`) therefore keeps the values with which it ended its last draw,
and the other steps of its process ask for them. A process that PyMC starts for a chain runs that chain only.
"""

from collections.abc import Iterable
from typing import ClassVar
from weakref import WeakSet

import numpy as np
from pymc.blocking import PointType

from pymc_discrete.runtime.names import shown


class LeftValues:
    """What a step that shares its variables keeps of its last draw.

    Attributes
    ----------
    values : {variable: the value with which the draw ended}, until another step has drawn the variable
    """

    # every `LeftValues` of this process, so that a step finds what other steps have left
    _all: ClassVar[WeakSet["LeftValues"]] = WeakSet()

    def __init__(self) -> None:
        self.values: dict[str, np.ndarray] = {}
        self._all.add(self)

    @classmethod
    def taken(cls, names: Iterable[str]) -> None:
        """Note that a step which shares nothing has drawn these variables."""
        for one in cls._all:
            for name in names:
                one.values.pop(name, None)

    @classmethod
    def untouched(cls, names: Iterable[str], point: PointType) -> list[str]:
        """Those of the variables that have, in `point`, the values with which a sharing step left them."""
        left = [one.values for one in cls._all]
        return [name for name in names if any(np.array_equal(point[name], v.get(name, ())) for v in left)]


def without_local(step: str, names: Iterable[str]) -> str:
    """The warning that no local step moves these variables beside a flow's step."""
    return (
        f"{step}: no local step moves {shown(names)} beside it, and where few of its proposals are accepted "
        f"the chain stands still. Add one: pmd.BlockGibbs([{shown(names)}])."
    )
