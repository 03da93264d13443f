"""Tuning of a kernel's parameters to a chain, during its tuning draws only.

The same functions run with NumPy on the host, where a step of `pm.sample` makes one draw after another, and
with jax.numpy in the compiled loop of `pmd.sample`: `xp` is one of the two.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from pymc_discrete.kernels import adaptation, spread
from pymc_discrete.kernels.kernel import Kernel
from pymc_discrete.targets.space import Space


class Learned(NamedTuple):
    """What tuning has learned of a chain.

    Attributes
    ----------
    adaptation : Adaptation, of the parameter that is tuned to the acceptance
    sums, scale : what `spread` keeps, and the unit of distance of every site; () where units are not tuned
    """

    adaptation: adaptation.Adaptation
    sums: Any
    scale: Any


class Tuner(NamedTuple):
    """Which parameters of a kernel are tuned, and from where.

    Attributes
    ----------
    params : all parameters, as they are before the first draw
    name : the one that is tuned to the acceptance; None where none is
    bounds : (lower, upper), between which it stays
    scaled : whether the parameter "scale" is tuned too, each site's unit of distance
    space : Space
    """

    params: dict[str, Any]
    name: str | None
    bounds: tuple[float, float]
    scaled: bool
    space: Space

    @classmethod
    def of(cls, kernel: Kernel, params: dict[str, Any], space: Space, x: np.ndarray | None = None) -> "Tuner":
        """The tuner of a kernel.

        Parameters
        ----------
        params : as the kernel came with
        x : (d,) int, a state from which units of distance are guessed; None leaves them as `params` has them
        """
        params, scaled = dict(params), False
        if x is not None and kernel.scaled(space):
            params["scale"], scaled = spread.guess(space, x), True
        if kernel.tuned is None:
            return cls(params, None, (1.0, 1.0), scaled, space)
        name, bounds = kernel.tuned.name, kernel.tuned.bounds(space)
        params[name] = float(np.clip(params[name], *bounds))
        return cls(params, name, bounds, scaled, space)

    def start(self) -> Learned:
        """Before the first draw, as NumPy arrays."""
        first = adaptation.start(1.0 if self.name is None else self.params[self.name])
        first = jax.tree.map(lambda a: np.asarray(a, float), first)
        if not self.scaled:
            return Learned(first, (), ())
        return Learned(first, spread.no_sums(self.space), np.asarray(self.params["scale"]))

    def value(self, learned: Learned, tuning: Any, xp: Any = np) -> Any:
        """() float, the tuned parameter: the latest while `tuning`, then the mean of the second half."""
        a = learned.adaptation
        return xp.exp(xp.where(tuning, a.log_value, a.mean))

    def tuned(self, learned: Learned, tuning: Any, xp: Any = np) -> dict[str, Any]:
        """All parameters of a draw."""
        params = dict(self.params)
        if self.scaled:
            params["scale"] = learned.scale
        if self.name is not None:
            params[self.name] = self.value(learned, tuning, xp)
        return params

    def update(
        self, learned: Learned, x: Any, accept: Any, n_moves: Any, moved: Any, tune: int, xp: Any = np
    ) -> Learned:
        """After one tuning draw, of `tune` in all.

        Parameters
        ----------
        x : (d,) int, where the draw ended; not read where units are not tuned
        accept, n_moves : mean acceptance probability of its proposals, and moves in each
        moved : sites that ended at another value
        """
        latest = adaptation.update(learned.adaptation, accept, n_moves, moved, self.bounds, tune, xp)
        latest = jax.tree.map(lambda a: xp.asarray(a, float), latest)
        if not self.scaled:
            return learned._replace(adaptation=latest)
        sums, scale = spread.update(learned.sums, learned.scale, x, latest.seen, tune, self.space, xp)
        return Learned(latest, sums, scale)


def one_pass(d: int, n_moves: Any, xp: Any = np) -> Any:
    """() int, how many proposals of `n_moves` moves make as many moves as there are sites."""
    return xp.ceil(d / xp.maximum(n_moves, 1.0)).astype(int)
