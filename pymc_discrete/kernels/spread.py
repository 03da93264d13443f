"""The unit of distance of each ordered site: its standard deviation in the tuning draws."""

from typing import Any

import numpy as np

from pymc_discrete.targets.space import Space

SMALLEST = 0.5
FEWEST = 20  # draws that a standard deviation is taken from


def has_units(space: Space) -> bool:
    """Whether there is an ordered site of more than two values."""
    return bool((~space.nominal & many_values(space)).any())


def many_values(space: Space) -> np.ndarray:
    return space.windowed | (space.upper - space.lower > 1)


def guess(space: Space, x: np.ndarray) -> np.ndarray:
    """(d,) float: a uniform's standard deviation on a finite support, a Poisson's at x (d,) where there is a
    window.
    """
    uniform = np.sqrt(np.maximum((np.minimum(space.upper - space.lower, 1e6) + 1.0) ** 2 - 1, 1) / 12)
    return units(space, np.where(space.windowed, np.sqrt(np.abs(x)), uniform))


def units(space: Space, sd: Any, xp: Any = np) -> Any:
    """(d,) standard deviations as units, 1 where there are but two values."""
    return xp.where(many_values(space), xp.maximum(sd, SMALLEST), 1.0)


def no_sums(space: Space) -> np.ndarray:
    """(3, d) float: of 1, x and x^2 over the draws since the last unit was taken."""
    return np.zeros((3, space.d))


def update(
    sums: Any, scale: Any, x: Any, seen: Any, tune: int, space: Space, xp: Any = np
) -> tuple[Any, Any]:
    """(sums, units) after tuning draw `seen` (1 the first) of `tune`, which ended at x: new units at a
    quarter and at half of tuning.
    """
    sums = xp.where(seen <= tune / 2, sums + xp.stack([xp.ones_like(x), x, x**2]), sums)
    count, total, squares = sums
    count = xp.maximum(count, 1.0)
    sd = xp.sqrt(xp.maximum(squares / count - (total / count) ** 2, 0.0))
    due = ((seen == tune // 4) | (seen == tune // 2)) & (seen >= FEWEST)
    return xp.where(due, 0.0, sums), xp.where(due, units(space, sd, xp), scale)
