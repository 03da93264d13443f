"""Checks of the state at which a chain starts (support, log density, differences), and dispersed starts."""

import warnings
from collections.abc import Callable, Collection, Iterator
from typing import Any, cast

import numpy as np
from pymc.blocking import PointType
from pymc.exceptions import SamplingError

from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.model.without_jax import no_jax_version
from pymc_discrete.space.space import UNBOUNDED, Space
from pymc_discrete.space.target import Target
from pymc_discrete.starts.not_finite import raise_not_finite
from pymc_discrete.structure.rounding import NOT_WORTH_IT, room

CHECKED_NEIGHBOURS = 32  # number of random neighbours of the start at which differences are checked
BLURRED = 0.05  # the largest rounding error of a difference, in nats, that is accepted without a warning
KINDS_OF_START = ("point", "dispersed")
# Of the sites that gate many coefficients a random start should change only a few, since few coefficients are
# active at once: this is the mean number that it changes.
FEW_CHANGED = 16
ATTEMPTS = 5  # the number of states, drawn from the whole support, that are tried as a dispersed start


def check_start(target: Target, point: PointType, x: np.ndarray) -> None:
    """Check the support, the density and the differences at the start x (d,) of a chain.

    Raises
    ------
    pymc.exceptions.SamplingError
        If x is outside the support, if the log density is nan or +inf, or if differences that the target
        calls exact are wrong.
    NotImplementedError
        Where the model has an Op without a JAX version.
    """
    space = target.space
    check_support(space, x)
    cast(ModelDensity, target.density).check_integral(point)
    values, inside = (np.asarray(a) for a in space.neighbours(x))
    site, column = np.nonzero(inside & (values != x[:, None]))
    rng = np.random.default_rng(0)
    pick = rng.permutation(len(site))[:CHECKED_NEIGHBOURS]
    site, value = site[pick], values[site[pick], column[pick]]
    names = space.names[site].tolist()
    neighbours = [with_value(x, s, v) for s, v in zip(site, value, strict=True)]
    moves = random_moves(space, x, rng) if target.exact else {}
    for n, (sites, values_of_sites) in moves.items():
        names += [space.site(space.starts[n] + row[0])[0] for row in sites]
        neighbours += [
            with_value(x, space.starts[n] + row, v)
            for row, v in zip(sites, values_of_sites[:, 0], strict=True)
        ]
    try:
        _, target = target.at(point)
        logp = float(target.logdensity(x))
        claimed = np.asarray(target.differences(x))[site, column[pick]]
        if moves:
            jointly = [np.asarray(d)[:, 0] for d in target.differences_jointly(x, moves).values()]
            claimed = np.concatenate([claimed, *jointly])
        # The log density at each neighbour is a separate call of a function that is compiled already. A
        # single call for all neighbours would be another program to compile.
        logp_at_neighbours = np.array([float(target.logdensity(y)) for y in neighbours])
    except NotImplementedError as e:
        raise no_jax_version([m.name for m in space.members], e) from e
    if not logp < np.inf:
        density = cast(ModelDensity, target.density)
        raise_not_finite(density.graph, density.numbers | target.point(x), logp)
    if logp > -np.inf:
        actual = logp_at_neighbours - logp
        check_differences(target, x, logp, claimed, actual, np.array(names, str), neighbours)


def check_support(space: Space, x: np.ndarray, names: Collection[str] | None = None) -> None:
    """Raise a `pymc.exceptions.SamplingError` for a state x (d,) outside the support, see `refusal`."""
    if (why := refusal(space, x, names)) is not None:
        raise SamplingError(why)


def refusal(space: Space, x: np.ndarray, names: Collection[str] | None = None) -> str | None:
    """The message for a state x (d,) outside the support; None for one inside it.

    The message names the first vector that breaks its constraint, or the first site outside its support. A
    missing bound is written as the number `UNBOUNDED`; a value of this number or beyond also counts as
    outside, since a chain there could go no further.

    Parameters
    ----------
    names : the variables that are checked; by default all variables
    """
    looked_at = np.zeros(len(x), bool)
    for m in space.members:
        looked_at[m.start : m.start + m.size] = names is None or m.name in names
    for start, v in space.blocks:
        of_variable = slice(start, start + v.size)
        if v.constraint is None or not looked_at[of_variable].all():
            continue
        why = v.constraint.refusal(v.name, v.shape, x[of_variable])
        if why is not None:
            return why
    bounds = space if space.totals is None else space.totals
    lower, upper, values = bounds.lower, bounds.upper, space.values_at(x)
    far = ((upper == UNBOUNDED) & (values >= upper)) | ((lower == -UNBOUNDED) & (values <= lower))
    for site in np.flatnonzero(looked_at & ((values < lower) | (values > upper) | far))[:1]:
        name, flat = space.site(site)
        most = f" (and less than {UNBOUNDED} from 0 here)" if far[site] else ""
        return (
            f"{name!r} starts outside its support: element {flat} is {values[site]}, the support is "
            f"{interval(lower[site], upper[site])}{most}. Pass initvals={{{name!r}: ...}} within it."
        )
    return None


def solved(space: Space, x: np.ndarray) -> np.ndarray:
    """(d,) int, the state x, or, if x breaks linear equations or bounds, a state near it that keeps all."""
    y = x.copy()
    for start, v in space.blocks:
        if v.constraint is not None:
            y[start : start + v.size] = v.constraint.nearest(x[start : start + v.size])
    return y


def random_moves(space: Space, x: np.ndarray, rng: np.random.Generator) -> dict[int, tuple[Any, Any]]:
    """{variable number: (sites (r, m), values (r, 1, m))}, r random moves of m sites that keep constraints.

    Each variable with a constraint has r = `CHECKED_NEIGHBOURS` moves.
    """
    moves = {}
    for n, (start, v) in enumerate(space.blocks):
        if v.constraint is not None:
            now = x[start : start + v.size]
            found = v.constraint.random_moves(now, v.lower, v.upper, CHECKED_NEIGHBOURS, rng)
            if found is not None:
                moves[n] = found
    return moves


def check_differences(
    target: Target,
    x: np.ndarray,
    logp: float,
    claimed: np.ndarray,
    actual: np.ndarray,
    names: np.ndarray,
    neighbours: list[np.ndarray],
) -> None:
    """Compare differences with log densities: exact differences must agree with them, and first-order
    estimates must correlate with them, or a warning is given.

    Parameters
    ----------
    x : (d,) int, a state
    logp : the log density at x
    claimed : (n,) nats, differences between x and each of `neighbours`, as the target computes them
    actual : (n,) nats, the log density at each of `neighbours`, less the log density at x
    names : (n,) str, the variable in which each neighbour differs from x
    neighbours : list of n states (d,) int

    Raises
    ------
    pymc.exceptions.SamplingError
        If differences that the target calls exact are wrong.
    """
    actual = np.where(np.isnan(actual), -np.inf, actual)
    eps = np.finfo(claimed.dtype if claimed.size else float).eps
    for name, description in target.describe().items():
        of_variable = names == name
        a, b = claimed[of_variable], actual[of_variable]
        if description["exact"]:
            with np.errstate(invalid="ignore"):
                error = np.where(a == b, 0.0, np.abs(a - b))
            usual = np.maximum(
                1e4 * eps * (abs(logp) + np.where(np.isfinite(b), np.abs(b), 0) + 1), NOT_WORTH_IT
            )
            # An error above the usual may come from the rounding of large terms that cancel in the log
            # density, so it is compared with a bound that depends on the size of each term.
            large = np.flatnonzero(~(error <= usual))
            far = {n: neighbours[np.flatnonzero(of_variable)[n]] for n in large}
            if not all(error[n] <= rounding_room(target, x, y, eps) for n, y in far.items()):
                raise SamplingError(
                    f"The differences of {name!r} were taken for exact ({description['way']}: "
                    f"{description['reason']}) and miss the log density by {error.max():.2g} nats. This is a "
                    "bug in pymc_discrete: please report the model. differences='gradient' avoids it."
                )
            blurred = max((blur(target, x, y, a[n]) for n, y in far.items()), default=0.0)
            if blurred > BLURRED:
                warnings.warn(
                    f"Floats of {np.finfo(claimed.dtype).bits} bits are too short for the log density of "
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
    """The rounding error, in nats, of a claimed difference of the log density between the states x and y.

    The claimed difference is compared with a change that is added up summand by summand, as in the samplers.
    """
    return abs(float(target.centred(x).logdensity(y)) - claimed)


def rounding_room(target: Target, x: np.ndarray, y: np.ndarray, eps: float) -> float:
    """The largest rounding error, in nats, of the difference of the log density between two states.

    The error is computed from the terms of the log density, which may be far larger than their sum.
    """
    density = cast(ModelDensity, target.density)
    return sum(float(room(density.rounding(target.point(state)), eps)) for state in (x, y))


def with_value(x: np.ndarray, site: Any, value: Any) -> np.ndarray:
    """A copy of x (d,) in which one site, or several, have other values."""
    y = x.copy()
    y[site] = value
    return y


def dispersed(x: np.ndarray, target: Target, rng: np.random.Generator) -> np.ndarray:
    """A random state (d,) of positive density.

    Every finite site is drawn uniformly from its support, every windowed site from its neighbours, and each
    vector with a constraint as a whole. If `ATTEMPTS` such states have density zero, sites are drawn from the
    values that have positive density while all other sites are as in x: first all sites, then random sets of
    half as many sites again and again, until the state is possible or no site is left. If x also has density
    zero, x is returned. A site without bounds whose value is beyond `UNBOUNDED` stays as it is.
    """
    countable = ~target.space.windowed | ((x >= -UNBOUNDED) & (x <= UNBOUNDED))
    for drawn, share in attempts(x, target):
        chosen = countable & (shared_uniforms(rng.random(len(x)), target.space) < share)
        if (few := target.density.few_of) is not None:
            chosen &= ~few | (rng.random(len(x)) * few.sum() < FEW_CHANGED)
        y = np.where(chosen, drawn(x, target.space, rng), x)
        if float(target.logdensity(y)) > -np.inf:
            return y
    return x


def attempts(x: np.ndarray, target: Target) -> Iterator[tuple[Callable[..., Any], float]]:
    """The attempts by which `dispersed` looks for a random start: for each, a function that draws sites, and
    the share of the sites that are drawn.
    """
    yield from [(anywhere, 1.0)] * ATTEMPTS
    if float(target.logdensity(x)) > -np.inf:
        drawn, share = anywhere_possible(x, target), 1.0
        while share * len(x) >= 1:
            yield drawn, share
            share /= 2


def anywhere(x: np.ndarray, space: Space, rng: np.random.Generator) -> np.ndarray:
    """(d,) int, each site drawn uniformly: from its support, or from its neighbours if it has a window.

    A vector with a constraint is drawn as a whole, such that its constraint is met.
    """
    y, free = x.copy(), ~space.constrained
    finite, windowed = free & ~space.windowed, np.flatnonzero(free & space.windowed)
    y[finite] = rng.integers(space.lower[finite], space.upper[finite] + 1)
    if len(windowed):
        new = x[windowed] + space.column[windowed, column_at_random(space.exists[windowed], rng)]
        y[windowed] = np.clip(new, space.lower[windowed], space.upper[windowed])
    for start, v in space.blocks:
        if v.constraint is not None:
            y[start : start + v.size] = v.constraint.random(v.lower, v.upper, rng)
    return y


def shared_uniforms(uniforms: np.ndarray, space: Space) -> np.ndarray:
    """Uniforms (d,), where all sites of a vector with a constraint have the uniform of the vector's first
    site.
    """
    if not space.constrained.any():
        return uniforms
    _, first, of_site = np.unique(space.set_of, return_index=True, return_inverse=True)
    return np.where(space.constrained, uniforms[first[of_site]], uniforms)


def anywhere_possible(x: np.ndarray, target: Target) -> Callable[..., Any]:
    """A function that draws each site uniformly from its neighbours with positive density, given the others.

    The neighbours are those at which the density is positive while all other sites are as in x.
    """
    values, inside = target.space.neighbours(x)
    possible = inside & (np.asarray(target.differences(x)) > -np.inf)

    def drawn(x: np.ndarray, space: Space, rng: np.random.Generator) -> np.ndarray:
        return np.where(possible.any(axis=1), values[np.arange(space.d), column_at_random(possible, rng)], x)

    return drawn


def column_at_random(exists: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(n,) int, in each row a random column at which `exists` (n, K) is true; the first column if there is
    none.
    """
    return np.where(exists, rng.random(exists.shape), -1.0).argmax(axis=1)


def interval(lower: int, upper: int) -> str:
    """Bounds as text in mathematical notation, such as [0, inf)."""
    low = "(-inf" if lower == -UNBOUNDED else f"[{lower}"
    return f"{low}, inf)" if upper == UNBOUNDED else f"{low}, {upper}]"
