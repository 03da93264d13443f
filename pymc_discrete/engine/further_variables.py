"""Blocks of a compiled chain in which coefficients are integrated out given further variables.

The blocks that integrate them out come first in each draw. They read further variables that were drawn,
before any of them, given all else, and that nothing reads after them: these variables are no part of the
state of a chain. All other blocks move as if there were none.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import pymc as pm

from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.engine.block import Block
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.recorder import Recorder
from pymc_discrete.engine.statistic import Statistic
from pymc_discrete.integrals.augmented import AugmentedModel
from pymc_discrete.runtime.names import shown


class ReportsDensity(Block):
    """Moves nothing and reports the log density of the model, where the blocks before it have another one's.

    Parameters
    ----------
    model : pm.Model
    names : continuous value variables
    point : {value variable: array}, which tells their shapes
    points : how a chain packs its values
    """

    leaves_impossible = False
    start_program = True
    stats: Mapping[str, Statistic] = {"lp": Statistic(float)}

    def __init__(self, model: pm.Model, names: Sequence[str], point: dict[str, np.ndarray], points: Points):
        self.points = points
        self.density, self.numbers = ContinuousDensity.of(
            model, list(names), point, points.names, slopes=False
        )

    @property
    def key(self) -> Hashable:
        return (type(self), self.density)

    def described(self) -> str:
        return f"log density beside {shown(self.density.names)}"

    def named(self) -> str:
        return f"the log density of {shown(self.density.names)}"

    def start(self, point: dict[str, np.ndarray]) -> Any:
        return ()

    def logdensity(self, point: dict[str, np.ndarray]) -> float:
        return float(self.density.compiled("logdensity")(self.points.packed(point) | self.numbers))

    def draw(self, key, t, point: dict[str, Any], state: Any):
        return point, state, {"lp": self.density.logdensity(point)}


class FurtherVariables(ReportsDensity):
    """Draws the further variables of an augmented model, given all else.

    Parameters
    ----------
    model, names, point, points : as in `ReportsDensity`
    given : the augmented model
    """

    stats: Mapping[str, Statistic] = {}

    def __init__(
        self,
        model: pm.Model,
        names: Sequence[str],
        point: dict[str, np.ndarray],
        points: Points,
        given: AugmentedModel,
    ):
        super().__init__(model, names, point, points)
        self.given = given
        read = [name for of in given.likelihoods for name in of.read.values()]
        self.recorder, own = Recorder.of(given.model, read, points, {}, "for further variables")
        self.numbers = {**self.numbers, **own, **given.start}

    @property
    def key(self) -> Hashable:
        return (type(self), self.recorder, tuple(map(repr, self.given.likelihoods)))

    def described(self) -> str:
        return self.given.described()

    def named(self) -> str:
        return f"the {self.described()}"

    def draw(self, key, t, point: dict[str, Any], state: Any):
        values, drawn = self.recorder(point), dict(point)
        for n, of in enumerate(self.given.likelihoods):
            drawn.update(of.draw(jax.random.fold_in(key, n), values))
        return drawn, state, {}
