"""The start of a chain: its support, the density there, the claims about differences; dispersed starts."""

import warnings
from typing import cast

import numpy as np
from pymc.blocking import PointType
from pymc.exceptions import SamplingError

from pymc_discrete.steps.not_finite import raise_not_finite
from pymc_discrete.steps.without_jax import no_jax_version
from pymc_discrete.targets.from_model import ModelDensity
from pymc_discrete.targets.graph.rounding import NOT_WORTH_IT, room
from pymc_discrete.targets.space import UNBOUNDED, Space
from pymc_discrete.targets.target import Target

CHECKED_NEIGHBOURS = 32
BLURRED = 0.05  # nats by which rounding may move a difference before a user is told
STARTS = ("point", "dispersed")


def check_start(target: Target, point: PointType, x: np.ndarray) -> None:
    """The support, the density, and the claims about the differences, at the start x of a chain.

    Raises
    ------
    pymc.exceptions.SamplingError
        Outside the support, where the density is nan or +inf, where differences said to be exact are not.
    NotImplementedError
        Where the model has an Op without a JAX version.
    """
    space = target.space
    check_support(space, x)
    values, inside = (np.asarray(a) for a in space.neighbours(x))
    site, column = np.nonzero(inside & (values != x[:, None]))
    pick = np.random.default_rng(0).permutation(len(site))[:CHECKED_NEIGHBOURS]
    site, value = site[pick], values[site[pick], column[pick]]
    try:
        _, target = target.at(point)
        logp = float(target.logdensity(x))
        got = np.asarray(target.differences(x))[site, column[pick]]
        # one call after another of what is compiled already: all at once would be one more program to compile
        then = np.array([float(target.logdensity(moved(x, s, v))) for s, v in zip(site, value, strict=True)])
    except NotImplementedError as e:
        raise no_jax_version([m.name for m in space.members], e) from e
    if not logp < np.inf:
        raise_not_finite(cast(ModelDensity, target.density).graph, target.point(x), logp)
    if logp > -np.inf:
        check_differences(target, x, logp, got, then - logp, site, value)


def check_support(space: Space, x: np.ndarray) -> None:
    for site in np.flatnonzero(~space.contains(x))[:1]:
        name, flat = space.sites[site]
        beyond = abs(x[site]) > UNBOUNDED and UNBOUNDED in (space.upper[site], -space.lower[site])
        most = f" (and no more than {UNBOUNDED} here)" if beyond else ""
        raise SamplingError(
            f"{name!r} starts outside its support: element {flat} is {x[site]}, the support is "
            f"{interval(space.lower[site], space.upper[site])}{most}. Pass initvals={{{name!r}: ...}} within "
            "it."
        )


def check_differences(
    target: Target,
    x: np.ndarray,
    logp: float,
    got: np.ndarray,
    want: np.ndarray,
    site: np.ndarray,
    value: np.ndarray,
) -> None:
    """Differences that were taken for exact must be, and gradients must say something.

    Parameters
    ----------
    x, logp : a state (d,) and its log density
    got, want : (n,) nats, differences by the target, and by log densities, where `site` (n,) goes to `value`
        (n,)
    """
    rows = target.describe()
    names = np.array([target.space.sites[s][0] for s in site])
    want = np.where(np.isnan(want), -np.inf, want)
    eps = np.finfo(got.dtype if got.size else float).eps
    for name, row in rows.items():
        mine = names == name
        a, b = got[mine], want[mine]
        if row["exact"]:
            with np.errstate(invalid="ignore"):
                off = np.where(a == b, 0.0, np.abs(a - b))
            usual = np.maximum(
                1e4 * eps * (abs(logp) + np.where(np.isfinite(b), np.abs(b), 0) + 1), NOT_WORTH_IT
            )
            far = np.flatnonzero(~(off <= usual))
            if not all(
                off[n] <= rounding_room(target, x, moved(x, site[mine][n], value[mine][n]), eps) for n in far
            ):
                raise SamplingError(
                    f"The differences of {name!r} were taken for exact ({row['way']}: {row['reason']}) and "
                    f"miss the log density by {off.max():.2g} nats. This is a bug in pymc_discrete: please "
                    "report the model. differences='gradient' avoids it."
                )
            blurred = max(
                (blur(target, x, moved(x, site[mine][n], value[mine][n]), a[n]) for n in far), default=0.0
            )
            if blurred > BLURRED:
                warnings.warn(
                    f"Floats of {np.finfo(got.dtype).bits} bits are too short for the log density of "
                    f"{name!r}: terms that cancel leave it off by {blurred:.2g} nats, and the draws are off "
                    "with it. Pass dtype='float64' to pmd.sample, or leave pytensor.config.floatX at "
                    "'float64'.",
                    UserWarning,
                    stacklevel=2,
                )
            continue
        both = np.isfinite(a) & np.isfinite(b)
        if both.sum() > 4 and np.ptp(b[both]) > 1e-9:
            corr = np.corrcoef(a[both], b[both])[0, 1] if np.ptp(a[both]) > 0 else 0.0
            if not corr >= 0.2:
                warnings.warn(
                    f"The gradient says little about {name!r}: its correlation with the true differences is "
                    f"{corr:.2f}. The chain is right but slow; differences='exact' may pay.",
                    UserWarning,
                    stacklevel=2,
                )


def blur(target: Target, x: np.ndarray, y: np.ndarray, claimed: float) -> float:
    """Nats by which rounding moves a difference even where the change is added up summand by summand, as the
    samplers do.
    """
    return abs(float(target.centred(x).logdensity(y)) - claimed)


def rounding_room(target: Target, x: np.ndarray, y: np.ndarray, eps: float) -> float:
    """Nats by which rounding may move the difference of two states: terms that cancel may be far larger than
    the log density.
    """
    density = cast(ModelDensity, target.density)
    return sum(float(room(density.rounding(target.point(state)), eps)) for state in (x, y))


def moved(x: np.ndarray, site: int, value: int) -> np.ndarray:
    y = x.copy()
    y[site] = value
    return y


def dispersed(x: np.ndarray, target: Target, rng: np.random.Generator) -> np.ndarray:
    """A random state of finite log density: every site anywhere in its support (within its window where that
    is wide), or else as many sites as the density allows.
    """
    share, space = 1.0, target.space
    for attempt in range(200):
        y, picked = x.copy(), rng.random(space.d) < share
        finite, wide = picked & ~space.windowed, np.flatnonzero(picked & space.windowed)
        y[finite] = rng.integers(space.lower[finite], space.upper[finite] + 1)
        if len(wide):
            column = np.where(space.exists[wide], rng.random(space.exists[wide].shape), -1.0).argmax(axis=1)
            y[wide] = np.clip(x[wide] + space.column[wide, column], space.lower[wide], space.upper[wide])
        if float(target.logdensity(y)) > -np.inf:
            return y
        share = share if attempt < 20 else 0.9 * share
    return x


def interval(lower: int, upper: int) -> str:
    """Bounds as a reader would write them."""
    low = "(-inf" if lower == -UNBOUNDED else f"[{lower}"
    return f"{low}, inf)" if upper == UNBOUNDED else f"{low}, {upper}]"
