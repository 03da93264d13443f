"""Slice sampling whose draws are a differentiable function of the parameters."""

from collections.abc import Callable
from functools import partial
from math import isqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from pymc_discrete.runtime.checks import check_switch, is_integer_from
from pymc_discrete.runtime.jax_settings import default_settings
from pymc_discrete.variational.slice_ends import SIGNS, differentiable_ends, ends_of_slice, reach


class SlicePath(NamedTuple):
    """The draws of one chain of slice sampling.

    Attributes
    ----------
    x : (n_steps, d) float, the points after the start
    accepted : (n_steps,) bool, False where the chain stayed
    differentiable : (n_steps,) bool
        False where the density jumps at an end of the slice, or has slope 0 there: the gradient through the
        step is nan. Also False where no end was found because the slice is unbounded (the density is
        improper): the chain stayed.
    """

    x: Any
    accepted: Any
    differentiable: Any


@default_settings()
def differentiable_slice_sample(
    key: Array,
    logdensity: Callable[..., Any],
    params: Any,
    x: ArrayLike,
    n_steps: int,
    *,
    support: tuple[Any, Any] = (-np.inf, np.inf),
    checkpoint: bool = False,
) -> SlicePath:
    r"""Slice sampling along random directions, differentiable for fixed noise.

    The points are differentiable functions of `params` and of the start `x`.

    .. math:: x_{n+1} = x_n + u_2 \alpha^+ d + (1 - u_2) \alpha^- d

    with the ends :math:`\alpha^\pm` of the slice on the line along :math:`d`, which are found by a search and
    differentiated implicitly.

    Parameters
    ----------
    key : JAX key, the noise; for several chains use `jax.vmap` over `key` and `x`
    logdensity : (params, x (d,)) -> () float, nats, need not be normalised
        A JAX function. Arrays that it closes over are differentiated like `params`.
    params : pytree of floats
    x : (d,) float, the start, where the density is positive
    n_steps : int
    support : (lower, upper), each () or (d,) float, plain numbers
        A box outside of which the density is 0. A bounded support has to be given here, because the gradient
        is nan at other jumps of the density.
    checkpoint : bool
        Store about 2 sqrt(`n_steps`) points for the backward pass in place of `n_steps`, and search for the
        ends a second time.

    Returns
    -------
    SlicePath

    Raises
    ------
    ValueError, TypeError
        For arguments of the wrong shape, type or size, and for a start of density 0.

    References
    ----------
    Zoltowski, Cai and Adams 2021, "Slice Sampling Reparameterization Gradients".

    Notes
    -----
    *Exactness.* If a slice consists of several intervals, the paper's search finds the end of any of them,
    and a uniform draw between the ends need not be reversible. So the search is repeated from the draw, and
    the chain stays where it was unless the draw is in the slice and leads to the same ends. Given height and
    direction, the ends are a deterministic function of the starting point; points with the same ends form a
    class. A uniform draw between the ends that is accepted only within the class has the same density in both
    directions, and so leaves the uniform distribution on the slice invariant. Log-concave densities have one
    class: nothing is rejected, except by rounding.

    *Differentiability*, in reverse mode. The path is differentiable for almost all noise, and if all steps
    are accepted the path's gradient is an unbiased estimate of the gradient of an expectation. A rejected
    step has the identity as its derivative: how the probability of rejection depends on the parameters is
    left out, and so is how the probability of finding one end or another does.
    """
    # While JAX traces the caller, the point x where the sampler starts would be traced too. If its values are
    # known they are computed at once, so that `checked_support` can see that they lie in the support.
    with jax.ensure_compile_time_eval():
        x = as_point(x)
    check_slice_options(key, n_steps, checkpoint)
    lower, upper = checked_support(params, x, support)
    logdensity, params = explicit(logdensity, params, x)
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((params, x))):
        with jax.ensure_compile_time_eval():
            value = float(logdensity(params, x))
        if not np.isfinite(value):
            raise ValueError(
                f"logdensity is {value} at the start x = {x}, and a slice needs a height there. Start where "
                "the density is finite."
            )
    block = isqrt(n_steps) if checkpoint else n_steps
    n_blocks = -(-n_steps // block)
    keys = jax.random.split(key, n_blocks * block)  # The result leaves out surplus steps of the last group.
    walk = partial(
        jax.lax.scan, lambda x, key: step(key, logdensity, params, x, jnp.asarray(lower), jnp.asarray(upper))
    )
    if not checkpoint:
        return walk(x, keys)[1]
    _, blocks = jax.lax.scan(jax.checkpoint(walk), x, keys.reshape(n_blocks, block, *keys.shape[1:]))
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:n_steps], blocks)


def step(
    key: Array, logdensity: Callable[..., Any], params: Any, x: Array, lower: Array, upper: Array
) -> tuple[Array, SlicePath]:
    """One step: the new x (d,), and a `SlicePath` without its first axis."""
    key_height, key_place, key_direction = jax.random.split(key, 3)
    log_u1 = -jax.random.exponential(key_height, dtype=x.dtype)
    u2 = jax.random.uniform(key_place, dtype=x.dtype)
    direction = jax.random.normal(key_direction, x.shape, x.dtype)
    direction = direction / jnp.linalg.norm(direction)
    slice_ends = ends(logdensity, params, x, direction, log_u1, lower, upper)
    place = u2 * slice_ends.alpha[0] + (1 - u2) * slice_ends.alpha[1]
    proposal = x + place * direction  # Eq. 4 of Zoltowski et al. 2021
    # Rounding may lead outside of the support; the correction has no gradient.
    proposal += jax.lax.stop_gradient(jnp.clip(proposal, lower, upper) - proposal)
    accepted = same_class(slice_ends, jax.lax.stop_gradient(place))
    differentiable = jnp.where(accepted, slice_ends.known.all(), jnp.isfinite(slice_ends.alpha).all())
    x = jnp.where(accepted, proposal, x)
    return x, SlicePath(x, accepted, differentiable)


class Ends(NamedTuple):
    """The ends of a slice on a line.

    Attributes
    ----------
    alpha : (2,) float, differentiable
    known : (2,) bool, whether the derivative of `alpha` is known
    rounding : (2,) float, how far from `alpha` a search from another point may find the same end
    again : () float -> (2,) float, the ends that a search from another point of the line finds
    """

    alpha: Any
    known: Any
    rounding: Any
    again: Callable[..., Any]


def ends(
    logdensity: Callable[..., Any],
    params: Any,
    x: Array,
    direction: Array,
    log_u1: Array,
    lower: Array,
    upper: Array,
) -> Ends:
    """The ends, along direction (d,), of the slice where the log density is above its value at x (d,) plus
    log_u1 (), which is negative.
    """
    line = reach(x, direction, lower, upper)
    fixed_params, fixed_x, fixed_line = jax.lax.stop_gradient((params, x, line))
    height = log_u1 + logdensity(fixed_params, fixed_x)
    height = jnp.where(((x >= lower) & (x <= upper)).all() & jnp.isfinite(height), height, jnp.nan)

    def point(alpha: Array) -> Array:
        return jnp.clip(fixed_x + alpha * direction, lower, upper)

    def f(alpha: Array) -> Array:
        return logdensity(fixed_params, point(alpha)) - height  # Eq. 8 of Zoltowski et al. 2021

    alpha, is_edge = ends_of_slice(f, jnp.zeros((), x.dtype), fixed_line)
    is_root = jnp.isfinite(alpha) & ~is_edge
    places = jax.vmap(point)(jnp.where(is_root, alpha, 0))
    value, gradient = jax.vmap(jax.value_and_grad(logdensity, 1), (None, 0))(fixed_params, places)
    is_smooth, rounding = smoothness(value, gradient, alpha, places, height, direction)
    is_root &= is_smooth
    roots = differentiable_ends(logdensity, params, x, direction, jax.lax.stop_gradient(alpha), is_root)
    return Ends(
        jnp.where(is_edge, line.edge, roots),
        is_root | is_edge,
        rounding,
        lambda place: ends_of_slice(f, place, fixed_line)[0],
    )


def same_class(slice_ends: Ends, place: Array) -> Array:
    """() bool, whether a search from `place` () on the line finds the ends `slice_ends`."""
    return (jnp.abs(slice_ends.again(place) - slice_ends.alpha) <= slice_ends.rounding).all()


def smoothness(
    value: Array, gradient: Array, alpha: Array, places: Array, height: Array, direction: Array
) -> tuple[Array, Array]:
    """For both ends, whether the density is smooth there, and how far rounding may move the end.

    Parameters
    ----------
    value, gradient : (2,), (2, d) float, the log density and its gradient at `places` (2, d), the ends
    alpha : (2,) float, the ends on the line along `direction` (d,)
    height : () float, the log density at the ends, if they are roots

    Returns
    -------
    smooth : (2,) bool, whether the density falls continuously through the height
    rounding : (2,) float
        The distance that rounding may move an end. It is small compared with any interval of a slice that
        floats can resolve, so that the ends of different intervals are not taken to be the same.
    """
    eps = jnp.finfo(value.dtype).eps
    length = alpha[0] - alpha[1]
    # At a root the log density equals the height, up to the rounding of its value and of its argument. At a
    # jump it differs from the height by nearly as much as the jump.
    rounding_of_place = (jnp.abs(gradient) * (jnp.abs(places) + jnp.abs(alpha[:, None] * direction))).sum(
        axis=1
    )
    nats = 1024 * eps * jnp.abs(height) + 16 * eps * rounding_of_place
    slope = -(gradient @ direction) * jnp.asarray(SIGNS, value.dtype)
    falling = (slope * length > jnp.sqrt(eps)) & (slope * length < jnp.inf)
    smooth = (jnp.abs(value - height) <= jnp.sqrt(eps) + nats) & falling
    rounding_at_jump = (
        16
        * eps
        * jnp.where(direction == 0, 0, jnp.abs(places / jnp.where(direction == 0, 1, direction))).max(axis=1)
    )
    rounding = 64 * eps * length + jnp.where(smooth, nats / jnp.where(smooth, slope, 1), rounding_at_jump)
    return smooth, jnp.minimum(rounding, 64 * jnp.sqrt(eps) * length)


def explicit(logdensity: Callable[..., Any], params: Any, x: Array) -> tuple[Callable[..., Any], Any]:
    """`logdensity` with the arrays that it closes over as part of its parameters, and these parameters."""
    if not callable(logdensity):
        raise TypeError(f"logdensity must be a function (params, x) -> log density, got {logdensity!r}.")
    try:
        traced, out = jax.make_jaxpr(logdensity, return_shape=True)(params, x)
    # `logdensity` raises a TypeError if it takes other arguments, or makes a traced number a Python number.
    except TypeError as error:
        raise TypeError(
            "logdensity must be a function of (params, x), made of JAX's functions (jax.numpy, "
            f"jax.lax.cond). It ended with: {str(error).splitlines()[0]}"
        ) from error
    if (
        not isinstance(out, jax.ShapeDtypeStruct)
        or out.shape != ()
        or not jnp.issubdtype(out.dtype, jnp.floating)
    ):
        raise ValueError(
            f"logdensity must return one float, the log density of x of shape {x.shape}; it returns {out}. "
            "Sum over its terms."
        )

    def evaluated(params: Any, x: Array) -> Array:
        params, constants = params
        return jax.core.eval_jaxpr(traced.jaxpr, constants, *jax.tree.leaves(params), x)[0].astype(x.dtype)

    return evaluated, (params, traced.consts)


def as_point(x: ArrayLike) -> Array:
    """x as an array of numbers."""
    try:
        return jnp.asarray(x)
    except (TypeError, ValueError) as error:
        raise TypeError(f"x must be one point, an array of floats of shape (d,), got {x!r}.") from error


def check_slice_options(key: Any, n_steps: Any, checkpoint: Any) -> None:
    """Refuse a `key`, `n_steps` or `checkpoint` of the wrong type or value."""
    if not is_integer_from(n_steps, 1):
        more = (
            " It is fixed when a function is compiled: let it be static."
            if isinstance(n_steps, jax.core.Tracer)
            else ""
        )
        raise ValueError(f"n_steps must be an integer of at least 1, got {n_steps!r}.{more}")
    check_switch("checkpoint", checkpoint)
    dtype = getattr(key, "dtype", None)
    shape = getattr(key, "shape", None)
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if not ((typed and shape == ()) or (dtype == jnp.uint32 and shape == (2,))):
        raise TypeError(
            f"key must be one JAX key, as jax.random.key(0) makes it, got {key!r}. For several chains use "
            "jax.vmap over keys."
        )


def checked_support(params: Any, x: Array, support: Any) -> tuple[np.ndarray, np.ndarray]:
    """The bounds (d,), (d,) of the support, after a check of all arguments."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"x must hold floats, for a slice is of a continuous density; got {x.dtype}. Convert it with "
            "x.astype(float)."
        )
    if x.ndim != 1 or not x.size:
        raise ValueError(
            f"x must be one point of shape (d,), got shape {x.shape}. Pass a scalar as x[None], and use "
            "jax.vmap for chains."
        )
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name = f"params{jax.tree_util.keystr(path)}"
        if not isinstance(leaf, int | float | np.generic | np.ndarray | jax.Array):
            raise TypeError(f"{name} must be a float or an array of floats, got {leaf!r}.")
        dtype = jnp.result_type(leaf)
        if not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(
                f"{name} is of {dtype}, without a gradient. Make it float, or let logdensity close over it."
            )
    if not isinstance(support, tuple | list) or len(support) != 2:
        raise ValueError(f"support must be (lower, upper), got {support!r}.")
    if any(isinstance(bound, jax.core.Tracer) for bound in support):
        raise ValueError(
            "support must hold plain numbers: it is neither differentiated nor mapped over. Where an edge "
            "depends on parameters, sample u = (x - lower) / (upper - lower) on a box that is fixed, and "
            "let x be a function of u and the parameters."
        )
    try:
        lower, upper = (np.broadcast_to(np.asarray(bound, x.dtype), x.shape) for bound in support)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"support must be (lower, upper), each a number or of shape {x.shape}, got {support!r}."
        ) from error
    if not (lower < upper).all():
        raise ValueError(f"support must have lower < upper everywhere, got {support!r}.")
    if not isinstance(x, jax.core.Tracer) and np.isnan(np.asarray(x)).any():
        raise ValueError(f"The start x = {x} is nan. Start where the density is finite.")
    if not isinstance(x, jax.core.Tracer) and not ((np.asarray(x) >= lower) & (np.asarray(x) <= upper)).all():
        raise ValueError(
            f"The start x = {x} is outside of support = {support!r}. Start within, or widen the support."
        )
    return lower, upper
