"""Tuning of a kernel's parameters to a chain, during its tuning draws only.

Every function runs with NumPy on the host, where a step of `pm.sample` makes one draw after another, and
with jax.numpy in the compiled loop of `pmd.sample`. The argument `xp` is one of the two modules.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from pymc_discrete.kernels import adaptation, spread
from pymc_discrete.kernels.kernel import Kernel
from pymc_discrete.space.space import Space


class Learned(NamedTuple):
    """What tuning has learned of a chain.

    Attributes
    ----------
    adaptation : Adaptation, of the parameter that is tuned to the acceptance probability
    sums : (3, d) float, the sums of 1, x and x^2 over draws, which give the units of distance; () where units
        are not tuned
    scale : (d,) float, the unit of distance of every site; () where it is not tuned
    """

    adaptation: adaptation.Adaptation
    sums: Any
    scale: Any


class Tuner(NamedTuple):
    """Which parameters of a kernel are tuned, and their values before the first draw.

    Attributes
    ----------
    params : {name: value}, all parameters of the kernel before the first draw
    name : the parameter that is tuned to the acceptance probability; None where there is none
    bounds : (lower, upper), of this parameter
    scaled : whether the parameter "scale", each site's unit of distance, is tuned too
    space : Space
    measured : zeros in place of the means of `Info.measured`, what the kernel's own tuning looks at
    chosen : (means of `Info.measured`, xp) -> {name: value}, parameters that are chosen when tuning ends
    """

    params: dict[str, Any]
    name: str | None
    bounds: tuple[float, float]
    scaled: bool
    space: Space
    measured: Any = ()
    chosen: Callable[[Any, Any], dict[str, Any]] | None = None

    @classmethod
    def of(cls, kernel: Kernel, params: dict[str, Any], space: Space, x: np.ndarray | None = None) -> "Tuner":
        """The tuner of a kernel.

        Parameters
        ----------
        kernel : Kernel
        params : {name: value}, the kernel's parameters before tuning
        space : Space
        x : (d,) int, a state from which the units of distance are guessed; None leaves them as in `params`
        """
        params, scaled = dict(params), False
        if x is not None and kernel.scaled(space):
            params["scale"], scaled = spread.initial_units(space, x), True
        if kernel.tuned is None:
            return cls(params, None, (1.0, 1.0), scaled, space, kernel.measured)
        name, bounds = kernel.tuned.name, kernel.tuned.bounds(space)
        params[name] = float(np.clip(params[name], *bounds))
        return cls(params, name, bounds, scaled, space, kernel.measured)

    def start(self) -> Learned:
        """What is known before the first draw, as NumPy arrays."""
        value = 1.0 if self.name is None else self.params[self.name]
        initial = adaptation.initial_adaptation(value, self.measured)
        initial = jax.tree.map(lambda a: np.asarray(a, float), initial)
        if not self.scaled:
            return Learned(initial, (), ())
        return Learned(initial, spread.no_sums(self.space), np.asarray(self.params["scale"]))

    def value(self, learned: Learned, tuning: Any, xp: Any = np) -> Any:
        """() float, the tuned parameter: its latest value while `tuning`, afterwards its mean."""
        a = learned.adaptation
        return xp.exp(xp.where(tuning, a.log_value, a.mean))

    def tuned(self, learned: Learned, tuning: Any, xp: Any = np) -> dict[str, Any]:
        """{name: value} of all parameters of the kernel, for a draw."""
        params = dict(self.params)
        if self.scaled:
            params["scale"] = learned.scale
        if self.name is not None:
            params[self.name] = self.value(learned, tuning, xp)
        if self.chosen is not None:
            as_before = tuning | (learned.adaptation.seen == 0)
            for name, value in self.chosen(learned.adaptation.measured, xp).items():
                params[name] = xp.where(as_before, params[name], value)
        return params

    def update(
        self,
        learned: Learned,
        x: Any,
        accept: Any,
        n_moves: Any,
        n_changed: Any,
        tune: float,
        xp: Any = np,
        measured: Any = (),
    ) -> Learned:
        """What is learned after one more tuning draw.

        Parameters
        ----------
        learned : what tuning had learned before this draw
        x : (d,) int, the state at the end of the draw; not read where units are not tuned
        accept : mean acceptance probability of the draw's proposals
        n_moves : mean number of moves in a proposal
        n_changed : number of sites whose value differs between the beginning and the end of the draw
        tune : number of tuning draws in all; infinite where tuning never ends
        measured : means of `Info.measured` over the draw
        """
        latest = adaptation.updated_adaptation(
            learned.adaptation, accept, n_moves, n_changed, self.bounds, tune, xp, measured
        )
        latest = jax.tree.map(lambda a: xp.asarray(a, float), latest)
        if not self.scaled:
            return learned._replace(adaptation=latest)
        sums, scale = spread.updated_units(learned.sums, learned.scale, x, latest.seen, tune, self.space, xp)
        return Learned(latest, sums, scale)


def one_pass(d: int, n_moves: Any, xp: Any = np) -> Any:
    """() int, how many proposals of `n_moves` moves together make at least d moves, one per site."""
    return xp.ceil(d / xp.maximum(n_moves, 1.0)).astype(int)
