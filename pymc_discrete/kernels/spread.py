"""The unit of distance of each ordinal site: its standard deviation in the tuning draws."""

from typing import Any

import numpy as np

from pymc_discrete.space.space import Space

SMALLEST_UNIT = 0.5  # lower bound of a unit
FEWEST_FOR_UNITS = 20  # smallest number of draws from which a standard deviation is estimated


def has_units(space: Space) -> bool:
    """Whether any site is ordinal and has more than two values."""
    return bool((~space.nominal & many_values(space)).any())


def many_values(space: Space) -> np.ndarray:
    """(d,) bool, whether a site has more than two values."""
    return space.windowed | (space.upper - space.lower > 1)


def initial_units(space: Space, x: np.ndarray) -> np.ndarray:
    """(d,) float, units before the first draw.

    On a finite support, the unit is the standard deviation of the uniform distribution. On a windowed site,
    it is the standard deviation of a Poisson distribution whose mean is the site's value in x (d,).
    """
    uniform = np.sqrt(np.maximum((np.minimum(space.upper - space.lower, 1e6) + 1.0) ** 2 - 1, 1) / 12)
    return units(space, np.where(space.windowed, np.sqrt(np.abs(x)), uniform))


def units(space: Space, sd: Any, xp: Any = np) -> Any:
    """(d,) float, units from standard deviations `sd` (d,); 1 on sites with two values."""
    return xp.where(many_values(space), xp.maximum(sd, SMALLEST_UNIT), 1.0)


def no_sums(space: Space) -> np.ndarray:
    """(3, d) float, zeros: the sums of 1, x and x^2 over the draws since the units were last renewed."""
    return np.zeros((3, space.d))


def updated_units(
    sums: Any, scale: Any, x: Any, seen: Any, tune: float, space: Space, xp: Any = np
) -> tuple[Any, Any]:
    """(sums, units) after a tuning draw; the units are renewed after a quarter and after half of tuning.

    Parameters
    ----------
    sums : (3, d) float, the sums of 1, x and x^2 over the draws since the units were last renewed
    scale : (d,) float, the units so far
    x : (d,) int, the state at the end of the draw
    seen : number of tuning draws so far, this one included
    tune : number of tuning draws in all
    """
    sums = xp.where(seen <= tune / 2, sums + xp.stack([xp.ones_like(x), x, x**2]), sums)
    count, total, squares = sums
    count = xp.maximum(count, 1.0)
    sd = xp.sqrt(xp.maximum(squares / count - (total / count) ** 2, 0.0))
    due = ((seen == tune // 4) | (seen == tune // 2)) & (seen >= FEWEST_FOR_UNITS)
    return xp.where(due, 0.0, sums), xp.where(due, units(space, sd, xp), scale)
