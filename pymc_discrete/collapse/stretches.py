"""The values of a site that are summed in a transition, if the site has too many values to sum over all.

The L values that are summed are the site's stretch s. A third of them are consecutive, about a usual value.
On both sides of these the support is divided into L / 8 intervals of two values, L / 8 intervals of four
values, and so on. The stretch has one value of each interval. This value counts w times, where w is the
number of values of the interval: the sum over s estimates the sum over all values in the intervals.

A number u, uniform in [0, 1), says which value of each interval is in s: the value with the index floor(u w).
Given that the current value z has the index n in its own interval, u is uniform in [n / w, (n + 1) / w). Its
density there is w, so that p(theta, z | u) is proportional to w(z) p(theta, z) for the values z in s. A
transition that leaves the sum of w(z) p(theta, z) over s invariant, followed by a draw of z from its terms,
leaves p(theta, z) invariant, for every L.

A current value beyond all intervals has a stretch of L consecutive values. In one transition of twenty, the
integers are divided, without looking at z, into sets of L values that are one, four or sixteen apart, and s
is the set that holds z. So every value can be reached from every other one.
"""

from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.random import uniforms

# With probability ELSEWHERE, a stretch is one of the sets of equally spaced values into which the integers
# are divided at random; the distance between these values is one of STRIDES.
ELSEWHERE, STRIDES = 0.05, (1, 4, 16)
FAR_END = 0.25  # the outermost fraction, FAR_END, of the range of the intervals on each side is their far end


class FarOut(NamedTuple):
    """Counts of draws in which the values of sites were at the far end of their stretches, or beyond.

    Attributes
    ----------
    draws : (d,) int, the number of such draws
    run : (d,) int, the number of such draws in a row, up to the last draw
    longest : (d,) int, the largest number of such draws in a row
    """

    draws: Any
    run: Any
    longest: Any

    def after(self, out, xp: Any = jnp) -> "FarOut":
        """The counts after one more draw, in which `out` (d,) bool has the sites whose values are at the far
        end of their stretches, or beyond.
        """
        run = xp.where(out, self.run + 1, 0)
        return FarOut(self.draws + out, run, xp.maximum(self.longest, run))


class Stretches:
    """The stretches of some sites.

    Parameters
    ----------
    lengths : (d,) int, the number of values that are summed
    stretched : (d,) bool, whether a site has more values than its length, and so has a stretch
    lower, upper : (d,) int, the bounds of the sites
    """

    def __init__(self, lengths: np.ndarray, stretched: np.ndarray, lower: np.ndarray, upper: np.ndarray):
        self.lengths, self.stretched, self.lower, self.upper = lengths, stretched, lower, upper
        self.columns = np.arange(lengths.max(initial=1))
        self.single = -(-lengths // 3)  # the number of consecutive values

    @cached_property
    def _doublings(self) -> np.ndarray:
        """(d, K) int, the logarithms to base 2 of the numbers of values of a stretch's outer intervals."""
        # After every L / 8 intervals, for a stretch of L values, the number of values of an interval doubles.
        same = np.maximum(self.lengths // 8, 1)[:, None]
        return np.minimum(1 + self.columns // same, 30)

    @cached_property
    def _ends(self) -> np.ndarray:
        """(d, K) int, for each outer interval the number of values in it and in the intervals before it."""
        return np.cumsum(2**self._doublings, axis=1)

    def intervals(self, usual, xp: Any = jnp) -> tuple[Any, Any]:
        """The intervals about usual values; a stretch has one value of each of them.

        Parameters
        ----------
        usual : (..., d) float, usual values of the sites, which do not depend on the current state of the
            chain
        xp : the array module

        Returns
        -------
        first, doublings : (..., d, K) int, the first value of each interval, and the logarithm to base 2 of
            its number of values
        """
        lower, upper, single = (xp.asarray(a) for a in (self.lower, self.upper, self.single))
        ends, outer = xp.asarray(self._ends), xp.asarray(self.lengths) - single
        middle = xp.minimum(xp.round(usual).astype(int) - single // 2, upper + 1 - single)
        middle = xp.maximum(middle, lower)
        after = middle + single
        # The number of intervals on the left: as many as extend to the lower bound, but at most half of all
        # intervals, or as many as are left over where fewer extend to the upper bound.
        gaps = middle - lower, upper - after + 1
        to_lower, to_upper = (xp.where(g > 0, (ends < g[..., None]).sum(-1) + 1, 0) for g in gaps)
        left = xp.minimum(xp.minimum(to_lower, outer), xp.maximum(outer // 2, outer - to_upper))
        number = self.columns - single[..., None]
        right = number - left[..., None]
        k = xp.clip(xp.where(right < 0, number, right), 0, len(self.columns) - 1)
        ends, doublings = (
            xp.take_along_axis(xp.broadcast_to(xp.asarray(a), k.shape), k, axis=-1)
            for a in (self._ends, self._doublings)
        )
        doublings = xp.where(number < 0, 0, doublings)
        outside = xp.where(right < 0, middle[..., None] - ends, after[..., None] + ends - 2**doublings)
        return xp.where(number < 0, middle[..., None] + self.columns, outside), doublings

    def _reach(self, first, doublings, xp: Any = jnp) -> tuple[Any, Any]:
        """(..., d) int, the least value of all intervals of a site, and one more than the largest."""
        here = self.columns < self.lengths[:, None]
        high = xp.where(here, first + 2**doublings, first[..., :1]).max(-1)
        return xp.where(here, first, first[..., :1]).min(-1), high

    def drawn(self, key, x, usual, first: Any = False) -> tuple[Any, Any]:
        """Stretches that contain the current values.

        Parameters
        ----------
        x : (d,) int, the current values
        usual : (d,) float, usual values of the sites, which do not depend on the current state of the chain
        first : () bool, whether the chain is at its start. The starting value may be impossible while values
            near the usual one are possible, so that the stretch is then always about the usual value.

        Returns
        -------
        values, doublings : (d, K) int, the values that are summed; each counts 2**doublings times
        """
        key_coin, key_u, key_stride = jax.random.split(key, 3)
        u = uniforms(key_u, x.shape)
        values, doublings = self.about(u, x, usual)
        stride = jax.random.choice(key_stride, np.array(STRIDES))
        elsewhere = jax.random.bernoulli(key_coin, ELSEWHERE) & ~jnp.asarray(first)
        values = jnp.where(elsewhere, self.anywhere(u, x, stride), values)
        return values, jnp.where(elsewhere, 0, doublings)

    def about(self, u, x, usual) -> tuple[Any, Any]:
        """Stretches about the usual values that contain x (d,): the values that are summed, and the logarithm
        to base 2 of how often each counts.

        If the value of a site in x is beyond all of its intervals, its stretch is consecutive values.

        Parameters
        ----------
        u : (d,) float, random numbers, uniform in [0, 1)
        usual : (d,) float, usual values of the sites, which do not depend on x
        """
        first, doublings = self.intervals(usual)
        width = 2**doublings
        own = (first <= x[:, None]) & (x[:, None] < first + width) & (self.columns < self.lengths[:, None])
        n = jnp.where(own, x[:, None] - first, 0).sum(1)
        w = jnp.where(own, width, 0).sum(1)
        given_x = (n + u) / jnp.maximum(w, 1)
        place = jnp.minimum(jnp.floor(given_x[:, None] * width).astype(int), width - 1)
        values = jnp.where(own, x[:, None], first + place)
        low, high = self._reach(first, doublings)
        beyond = self._cells(x, jnp.where(x < low, low, high), 1)
        within = (w > 0)[:, None]
        return jnp.where(within, values, beyond), jnp.where(within, doublings, 0)

    def anywhere(self, u, x, stride):
        """(d, K) int, for each site a set of equally spaced values that contains its value in x, laid without
        looking at x.

        Parameters
        ----------
        u : (d,) float, random numbers, uniform in [0, 1)
        stride : () int, the distance from one value to the next
        """
        return self._cells(x, jnp.floor(u * self.lengths * stride).astype(int), stride)

    def _cells(self, x, origin, stride):
        """(d, K) int, for each site the set of equally spaced values that contains its value in x.

        The sets divide the integers. A set has the L values origin + m L stride + r + k stride, k = 0..L-1,
        with L the length of the stretch; there is one set for each integer m and each r from 0 to stride - 1.
        """
        span = jnp.asarray(self.lengths) * stride
        first = origin + (x - origin) // span * span + (x - origin) % stride
        return first[:, None] + stride * self.columns

    def far_out(self, x, usual, xp: Any = jnp):
        """(..., d) bool, whether the value of a site is at the far end of the intervals that its stretch
        takes values from, or beyond them; False where this end is a bound of the site.
        """
        first, doublings = self.intervals(usual, xp)
        low, high = self._reach(first, doublings, xp)
        middle = first[..., 0]
        left, right = FAR_END * (middle - low), FAR_END * (high - middle - self.single)
        down = (x < low + left) & (low > xp.asarray(self.lower))
        up = (x >= high - right) & (high <= xp.asarray(self.upper))
        return xp.asarray(self.stretched) & (down | up)
