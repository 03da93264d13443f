"""The block of a compiled chain that draws further variables, given which coefficients can be integrated out.

The blocks that integrate the coefficients out come right after this block in each draw. No later block reads
the further variables, so that they are no part of the state of a chain, and all other blocks move as if there
were none.
"""

from collections.abc import Hashable, Mapping
from typing import Any

import jax
import numpy as np

from pymc_discrete.engine.block import Block
from pymc_discrete.engine.nuts import NutsBlock
from pymc_discrete.engine.recorder import Recorder
from pymc_discrete.engine.statistic import Statistic
from pymc_discrete.integrals.augmented import AugmentedModel
from pymc_discrete.runtime.jax_settings import jitted


class FurtherVariables(Block):
    """Draws the further variables of an augmented model, given all else.

    Parameters
    ----------
    of_model : a block that moves continuous variables of the model itself; its log density is used for starts
    given : the augmented model
    """

    leaves_impossible = False
    start_program = True
    stats: Mapping[str, Statistic] = {}

    def __init__(self, of_model: NutsBlock, given: AugmentedModel):
        self.density, self.given, self._of_model = of_model.density, given, of_model
        read = [name for of in given.likelihoods for name in of.read.values()]
        self.recorder, own = Recorder.of(given.model, read, of_model.points, {}, "for further variables")
        # Later blocks are also evaluated at a start, before further variables are drawn. So the numbers,
        # which are in every point, have start values of the further variables.
        self.numbers = own | given.start

    @property
    def key(self) -> Hashable:
        return (type(self), self.recorder, tuple(map(repr, self.given.likelihoods)))

    def described(self) -> str:
        return self.given.described()

    def named(self) -> str:
        return f"the {self.described()}"

    def start(self, point: dict[str, np.ndarray]) -> Any:
        return ()

    def logdensity(self, point: dict[str, np.ndarray]) -> float:
        return self._of_model.logdensity(point)

    def draw(self, key, t, point: dict[str, Any], state: Any):
        return point | self.drawn(key, point), state, {}

    def drawn(self, key, point: dict[str, Any]) -> dict[str, Any]:
        """{further variable: a draw given all else}."""
        values, drawn = self.recorder(point), dict[str, Any]()
        for n, of in enumerate(self.given.likelihoods):
            drawn.update(of.draw(jax.random.fold_in(key, n), values))
        return drawn

    def settled(self, key, point: dict[str, Any], state: Any) -> dict[str, Any]:
        return point | self.drawn(key, point)

    def completed(self, points: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        draw, pack = jitted(self.drawn), self._of_model.points.packed
        drawn = [draw(jax.random.key(n), pack(point) | self.numbers) for n, point in enumerate(points)]
        return [point | jax.tree.map(np.asarray, more) for point, more in zip(points, drawn, strict=True)]
