"""Whether cluster sweeps suit the pairs of a block, judged by their tables at a point, on the host."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.kernels.swendsen_wang import pairs_with_tables
from pymc_discrete.structure.jaxify import PYTENSOR

LOOKED_AT = 8  # the number of pairs whose tables are evaluated
VALUES = 3  # the number of values of each site at which the table of a pair is evaluated
# the amount by which continuous variables are moved from their starts, since an interaction may be 0 there
OFF_START = 0.1
ROUNDED = 1e-10  # differences of log densities that count as rounding errors, relative to the log densities


def clusters_suit(density: ModelDensity) -> bool:
    """Whether pairs of sites only prefer equal values, or have two values each, judged by some of the pairs.

    The answer only decides which step is chosen: `SwendsenWang` itself looks at every table in every context.
    So a few tables suffice, and PyTensor evaluates their elements, without starting JAX.
    """
    pairs = pairs_with_tables(density)
    if not pairs.alike.any():
        return False
    some = np.unique(np.linspace(0, len(pairs.ends) - 1, LOOKED_AT).astype(int))
    if not pairs.alike[some].all():
        return False
    logdensity, space = host_logdensity(density), density.space
    x = space.ravel(density.start)
    strengths = [strength(logdensity, x, space.lower, space.upper, *pairs.ends[n]) for n in some]
    return None not in strengths and any(strengths)


def host_logdensity(density: ModelDensity) -> Callable[[np.ndarray], float]:
    """The log density as a function of x (d,) on the host, with continuous variables near their starts."""
    graph = density.graph
    point = {
        n: a + OFF_START if np.issubdtype(np.asarray(a).dtype, np.floating) else a
        for n, a in density.start.items()
    }
    others = graph.arguments(density.numbers | point)[len(graph.values) :]
    total = pt.add(pt.constant(0.0), *(t.sum() for _, t in graph.terms))
    with PYTENSOR:
        function: Any = pytensor.function(
            [*graph.values, *graph.others], total, mode="FAST_COMPILE", on_unused_input="ignore"
        )

    def logdensity(x: np.ndarray) -> float:
        blocks = zip(density.space.blocks, graph.values, strict=True)
        values = [x[a : a + v.size].reshape(v.shape).astype(g.type.dtype) for (a, v), g in blocks]
        with PYTENSOR, np.errstate(all="ignore"):
            return float(function(*values, *others))

    return logdensity


def strength(
    logdensity: Callable[[np.ndarray], float],
    x: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    a: int,
    b: int,
) -> float | None:
    """The strength of the interaction of two sites, in nats, if it is one that `SwendsenWang` takes; else
    None.

    The result is J where the interaction adds J nats if the two sites have equal values, and adds nothing
    otherwise. J is at least 0, except between two sites of two values each, which may also prefer different
    values (J < 0). The argument `x` has the values of all other sites.
    """
    n = int(min(upper[a] - lower[a] + 1, VALUES))
    f = np.empty((n, n))
    for i, j in np.ndindex(n, n):
        y = x.copy()
        y[a], y[b] = lower[a] + i, lower[b] + j
        f[i, j] = logdensity(y)
    if not np.isfinite(f).all():
        return None
    # Less its first row and column, which removes the unary terms, the table of an interaction J [i = j] is
    # 2 J on the diagonal and J elsewhere.
    twice = (f - f[:, :1] - f[:1] + f[0, 0])[1:, 1:]
    J, noise = twice[0, 0] / 2, ROUNDED * np.abs(f).max()
    if n == 2:
        return abs(J) if abs(J) > noise else 0.0
    form = J * (1 + np.eye(n - 1))
    return float(max(J, 0.0)) if -noise < J and np.abs(twice - form).max() <= noise + 1e-9 * abs(J) else None
