r"""The ends of a slice along a line, and their derivatives.

With :math:`\alpha` along the line :math:`x + \alpha d`, an end is a root of Zoltowski, Cai and Adams 2021,
Eq. 8,

.. math:: f(\alpha) = \ln \pi_\theta(x + \alpha d) - \ln u_1 - \ln \pi_\theta(x),

or the edge of the support. The two ends of a line are in one array, the positive one first.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SIGNS = np.array([1.0, -1.0])
# The largest number of iterations in the search for a root. Bisection alone takes 53 from a bracket as large
# as the root, and 3 or 4 more for every factor of 10 by which the bracket is larger.
MOST_ITERATIONS = 200


class Reach(NamedTuple):
    """Where a line meets the box that is the support.

    Attributes
    ----------
    edge : (2,) float, infinite if there is none; differentiable in x
    last : (2,) float
        The last point that is evaluated, a few rounding errors before the edge, on which a density may be 0,
        infinite or nan.
    """

    edge: Any
    last: Any


def reach(x, direction, lower, upper) -> Reach:
    """The points at which the line from x (d,) along direction (d,) meets the box from `lower` to `upper`."""

    def one(sign):
        bound = jnp.where(sign * direction > 0, upper, lower)
        per_unit = jnp.where(direction == 0, 1, direction)
        alpha = jnp.where(direction == 0, sign * jnp.inf, (bound - x) / per_unit)
        binding = jnp.argmin(sign * alpha)
        edge = alpha[binding]
        rounding = 4 * jnp.finfo(x.dtype).eps * (jnp.abs(edge) + jnp.abs(bound[binding] / per_unit[binding]))
        return Reach(edge, jnp.where(jnp.isfinite(edge), edge - sign * rounding, edge))

    return jax.vmap(one)(jnp.asarray(SIGNS, x.dtype))


def ends_of_slice(f: Callable, start, line: Reach):
    """The ends of a slice as a deterministic function of one of its points.

    In each direction a step of 1 is doubled until it leads outside of the slice; then a root is computed
    between the last two points. If there are several roots, the result need not be the nearest one.

    Parameters
    ----------
    f : () float -> () float
        The log density at a point of the line, less the height of the slice (Zoltowski et al. 2021, Eq. 8):
        positive within the slice; 0, negative or nan outside.
    start : () float, a point of the line
    line : Reach

    Returns
    -------
    alpha : (2,) float
        The ends; nan if the density never falls below the height, or `start` is outside of the slice.
    is_edge : (2,) bool, whether the end is an edge of the support
    """
    limits = jnp.finfo(start.dtype)

    def height(alpha):
        value = f(alpha)
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    f_start = height(start)

    def one(sign, edge, last):
        room = jnp.maximum(sign * (last - start), 0)

        def inside(carried):
            width, _, _, _, f_outer = carried
            return (f_outer > 0) & (width < room) & (width < limits.max / 4)

        def widen(carried):
            width, _, _, outer, f_outer = carried
            width = jnp.minimum(jnp.maximum(2 * width, 1), room)
            return width, outer, f_outer, start + sign * width, height(start + sign * width)

        begin = (jnp.zeros_like(start), start, f_start, start, f_start)
        _, inner, f_inner, outer, f_outer = jax.lax.while_loop(inside, widen, begin)
        bracketed = (f_start > 0) & ~(f_outer > 0)
        is_edge = (f_outer > 0) & jnp.isfinite(edge)
        alpha = root(height, inner, f_inner, outer, f_outer, bracketed)
        return jnp.where(is_edge, edge, alpha), is_edge

    return jax.vmap(one)(jnp.asarray(SIGNS, start.dtype), line.edge, line.last)


def root(f: Callable, a, f_a, b, f_b, bracketed):
    """() float, a point between a and b where f changes its sign, to a few rounding errors.

    The result is nan if a and b are not known to bracket a root (`bracketed`), or after `MOST_ITERATIONS`.

    Chandrupatla 1997, "A new hybrid quadratic/bisection algorithm for finding the zero of a nonlinear
    function without using derivatives".
    """
    eps = jnp.finfo(a.dtype).eps

    def unfinished(carried):
        i, answer, *_ = carried
        return bracketed & (i < MOST_ITERATIONS) & jnp.isnan(answer)

    def shrink(carried):
        # f(x) is computed at the end of an iteration and used in the next one. If it were used in the same
        # iteration, XLA might compute it once for each use, and rounding might change its sign between uses.
        i, _, x, value, x1, f1, x2, f2 = carried
        same = (value > 0) == (f1 > 0)
        # Of three points, from which the next one is found, x1 is the newest, x2 is on the other side of the
        # root, and x3 is the point that was replaced last.
        x1, f1, x2, f2, x3, f3 = jnp.where(
            same, jnp.stack([x, value, x2, f2, x1, f1]), jnp.stack([x, value, x1, f1, x2, f2])
        )
        best = jnp.where(jnp.abs(f1) < jnp.abs(f2), x1, x2)
        rounding, width = 2 * eps * jnp.abs(best), jnp.abs(x2 - x1)
        answer = jnp.where((width <= 2 * rounding) | (f1 == 0) | (f2 == 0), best, jnp.nan)
        xi, phi = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
        quadratic = (1 - jnp.sqrt(1 - xi) < phi) & (phi < jnp.sqrt(xi))
        t = f1 / (f2 - f1) * f3 / (f2 - f3) + f1 / (f3 - f1) * f2 / (f3 - f2) * (x3 - x1) / (x2 - x1)
        least = jnp.minimum(rounding / width, 0.5)
        x = x1 + jnp.where(quadratic, jnp.clip(t, least, 1 - least), 0.5) * (x2 - x1)
        return i + 1, answer, x, f(x), x1, f1, x2, f2

    begin = (0, jnp.full_like(a, jnp.nan), a, f_a, b, f_b, b, f_b)
    return jax.lax.while_loop(unfinished, shrink, begin)[1]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def differentiable_ends(logdensity: Callable, params, x, direction, alpha, known):
    """`alpha`, with the derivatives of the ends as implicit functions of `params` and `x`.

    Parameters
    ----------
    logdensity : (params, x) -> () float, nats
    x, direction : (d,) float
    alpha : (2,) float
    known : (2,) bool, whether the end is a root; if not, its derivative is nan
    """
    return alpha


def differentiable_ends_fwd(logdensity, params, x, direction, alpha, known):
    """The forward pass of `differentiable_ends`."""
    return alpha, (params, x, direction, alpha, known)


def differentiable_ends_bwd(logdensity, kept, cotangent):
    """The backward pass of `differentiable_ends`: vector-Jacobian products, Zoltowski et al. 2021, App. B."""
    params, x, direction, alpha, known = kept

    def f(params, x, alpha):
        at_ends = jax.vmap(lambda a: logdensity(params, x + a * direction))(alpha)
        return at_ends - logdensity(params, x)  # Eq. 8 of Zoltowski et al. 2021, up to a constant

    _, pull = jax.vjp(f, params, x, jnp.where(known, alpha, 0))
    slope = pull(jnp.ones_like(alpha))[2]
    # An end that does not enter the loss contributes nothing, also if its derivative is unknown.
    enters_loss = cotangent != 0
    # the derivatives of the ends: Eqs. 9 and 10 of Zoltowski et al. 2021
    of_params, of_x, _ = pull(jnp.where(enters_loss & known, -cotangent / slope, 0))
    # `pull` got 0 for an end whose derivative is unknown, which would make its gradient 0, so nan is set.
    unknown = (enters_loss & ~known).any()

    def flagged(g):
        return g if g.dtype == jax.dtypes.float0 else jnp.where(unknown, jnp.nan, g)

    return jax.tree.map(flagged, of_params), flagged(of_x), None, None, None


differentiable_ends.defvjp(differentiable_ends_fwd, differentiable_ends_bwd)
