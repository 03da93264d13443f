"""The ranges of values over which variables without bounds are summed, and the probability that they leave
out.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pymc as pm
import xarray

from pymc_discrete.model.support import support_of
from pymc_discrete.space.space import Space

_log = logging.getLogger("pymc.discrete")

ENDS = 8  # the number of values at each end of a range from which the probability beyond it is estimated
TOLERATED = 1e-6  # the largest probability that a sum may leave out without a warning
# A range that the user does not give is widened until it leaves out at most the probability NEGLIGIBLE, up to
# WIDEST_SUM values. It has at least VALUES_BEYOND values below and above all draws.
NEGLIGIBLE = 1e-12
WIDEST_SUM = 2**14
VALUES_BEYOND = 32

# {variable: (lower, upper)}, numbers or arrays of the variable's shape
NamedBounds = Mapping[str, tuple[Any, Any]]


def tails(p, last):
    """(2, n), estimates of the probability of values below and above the values that a sum is taken over.

    Let a be the probability of the last few values, and b the probability of the same number of values before
    them. The probability is assumed to go on falling by the factor a / b, so that all values beyond have the
    probability a (a / b) / (1 - a / b).

    Parameters
    ----------
    p : (n, K), the probabilities of the values of each site
    last : (n, 1) int, the column of the last value of each site
    """
    K = p.shape[1]
    steps = np.arange(min(ENDS, max(K // 2, 1)))
    found = []
    for first, sign in ((0 * last, 1), (last, -1)):
        a, b = (
            jnp.where((k >= 0) & (k <= last), jnp.take_along_axis(p, jnp.clip(k, 0, K - 1), axis=1), 0.0).sum(
                axis=1
            )
            for k in (first + sign * steps, first + sign * (steps + len(steps)))
        )
        beyond = jnp.where(a < b, a * a / jnp.maximum(b - a, 1e-300), 1.0)
        found.append(jnp.where(a > 0, jnp.minimum(beyond, 1.0), 0.0))
    return jnp.stack(found)


class Ranges:
    """The ranges (lower, upper) of values over which variables of a model are summed.

    Parameters
    ----------
    plain : pm.Model, the model without transforms
    names : the names of discrete variables
    truncate : {name: (lower, upper)}, the ranges, inclusive, that the user gives

    Attributes
    ----------
    open : the variables whose range has to be chosen: they have no bounds, or too many values to sum all
    """

    def __init__(self, plain: pm.Model, names: Sequence[str], truncate: NamedBounds | None):
        self.truncate = dict(truncate or {})
        self._supports = {
            # the bounds of a variable, also bounds that follow from the ranges that the user gives to other
            # variables
            name: support_of(plain, name, {k: v for k, v in self.truncate.items() if k != name})
            for name in names
        }
        self.open = [
            name
            for name, (lower, upper) in self._supports.items()
            if name not in self.truncate
            and (lower is None or upper is None or np.max(np.asarray(upper) - lower) >= WIDEST_SUM)
        ]

    def about(self, draws: Mapping[Any, Any]) -> NamedBounds:
        """Ranges that contain draws (chain, draw, *shape) of the `open` variables, or single
        values of them."""
        found = {}
        for name in self.open:
            values = draws[name]
            if isinstance(values, xarray.DataArray):
                values = values.transpose("chain", "draw", ...).values.reshape(-1, *values.shape[2:])
            else:
                values = np.asarray(values)[None]
            low, high = (f(0).astype(np.int64) for f in (values.min, values.max))
            reach = max(VALUES_BEYOND, int((high - low).max(initial=0)))
            found[name] = self._inside(name, low - reach, high + reach)
        return found

    def _inside(self, name: str, low: Any, high: Any) -> tuple[Any, Any]:
        """The range (low, high), cut off at the bounds of the variable."""
        lower, upper = self._supports[name]
        return (
            low if lower is None else np.maximum(low, lower),
            high if upper is None else np.minimum(high, upper),
        )

    def wider(self, ranges: NamedBounds, space: Space, left_out: np.ndarray) -> NamedBounds | None:
        """Wider ranges for the variables whose sums leave out too much; None if no range has to be widened.

        Parameters
        ----------
        space : the space whose bounds are the present ranges
        left_out : (2, d) the probability below and above the values of each site
        """
        found = dict(ranges)
        for name, (low, high) in ranges.items():
            sites = space.numbers(name)
            width = int(np.max(np.asarray(high) - low)) + 1
            below, above = (left_out[side, sites] > NEGLIGIBLE for side in (0, 1))
            step = min(3 * width, WIDEST_SUM - width)
            if step > 0:
                found[name] = self._inside(name, low - below * step, high + above * step)
        pairs = [(a, b) for name in ranges for a, b in zip(ranges[name], found[name], strict=True)]
        return None if all(np.array_equal(a, b) for a, b in pairs) else found

    def warn(self, space: Space, left_out: np.ndarray, what: str, usually: np.ndarray | None = None) -> None:
        """Log a warning for variables whose sums leave out too much.

        Parameters
        ----------
        left_out : (2, d), the probability below and above the values of each site
        what : the sum that leaves values out, for the message
        usually : (2, d), the mean over draws of the probability that is left out; `left_out` is its maximum
        """
        for name in [*self.truncate, *self.open]:
            if name not in {m.name for m in space.members}:
                continue
            sites = space.numbers(name)
            for side, (limit, bounds) in enumerate(
                zip(self._supports[name], (space.lower, space.upper), strict=True)
            ):
                cut = np.full(sites.shape, True) if limit is None else bounds[sites] != limit
                most = float(left_out[side][sites[cut]].max(initial=0))
                if most > TOLERATED:
                    where, end = (
                        ("below", bounds[sites].min()) if side == 0 else ("above", bounds[sites].max())
                    )
                    wider = "lower" if side == 0 else "higher"
                    mean = (
                        ""
                        if usually is None
                        else f", and {float(usually[side][sites[cut]].max()):.1g} in the mean over draws"
                    )
                    _log.warning(
                        f"{what} leaves out about {most:.1g} of the probability of {name!r} {where} {end} in "
                        f"some draw{mean}. Take a {wider} bound in truncate=, such as "
                        f"{2 * end if side else end - 50}."
                    )
