"""Blocks of a compiled chain in which coefficients of logistic likelihoods are integrated out.

The blocks that integrate them out come first in each draw. They read Polya-Gamma variables that were drawn,
before any of them, given all else, and that nothing reads after them: these variables are no part of the
state of a chain. All other blocks move as if there were none.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm

from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.engine.block import Block
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.recorder import Recorder
from pymc_discrete.engine.statistic import Statistic
from pymc_discrete.integrals.logistic import Augmented, Logistic
from pymc_discrete.integrals.polya_gamma import random_polyagamma
from pymc_discrete.runtime.names import shown


class ReportsDensity(Block):
    """A block that moves nothing and reports the log density, which those before it have of another model.

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


class PolyaGammaBlock(ReportsDensity):
    """Draws the Polya-Gamma variables of logistic likelihoods, given all else.

    Parameters
    ----------
    model, names, point, points : as in `ReportsDensity`
    given : the model with these variables
    """

    stats: Mapping[str, Statistic] = {}

    def __init__(
        self,
        model: pm.Model,
        names: Sequence[str],
        point: dict[str, np.ndarray],
        points: Points,
        given: Augmented,
    ):
        super().__init__(model, names, point, points)
        self.likelihoods = given.likelihoods
        outputs = [name for of in given.likelihoods for name in (of.log_odds, of.trials)]
        self.recorder, own = Recorder.of(given.model, outputs, points, {}, "of Polya-Gamma variables")
        self.numbers = {**self.numbers, **own, **given.start}

    @property
    def key(self) -> Hashable:
        return (type(self), self.recorder, tuple(map(repr, self.likelihoods)))

    def described(self) -> str:
        return f"Polya-Gamma variables of {shown(of.name for of in self.likelihoods)}"

    def named(self) -> str:
        return f"the {self.described()}"

    def draw(self, key, t, point: dict[str, Any], state: Any):
        values, drawn = self.recorder(point), dict(point)
        for n, of in enumerate(self.likelihoods):
            drawn.update(polya_gamma_of(jax.random.fold_in(key, n), of, values))
        return drawn, state, {}


def polya_gamma_of(key, of: Logistic, values: Mapping[str, Any]) -> dict[str, Any]:
    """{name: draw} of the Polya-Gamma variables of a likelihood, and of its further variables.

    Parameters
    ----------
    values : {name: array} of its log odds and trials
    """
    log_odds, trials = values[of.log_odds].reshape(-1), values[of.trials].reshape(-1)
    shape, new = values[of.log_odds].shape, dict[str, Any]()
    if of.shift is not None:
        few, key_more = trials < 1, jax.random.fold_in(key, 1)
        more = jax.random.uniform(key_more, trials.shape, trials.dtype) < jax.nn.sigmoid(log_odds)
        new[of.shift] = jnp.where(few, more - 0.5, 0.0).reshape(shape)
        trials = trials + few
    bounds = (max(of.least, 1.0), max(of.most, 1.0) + (of.shift is not None))
    omega = random_polyagamma(key, trials, log_odds, bounds)
    return {**new, of.precision: omega.reshape(shape)}
