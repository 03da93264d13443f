"""Perturb-and-max-product: nearly independent draws by maximising perturbed log densities (Lazaro-Gredilla,
Dedieu and George 2021).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.checks import is_number
from pymc_discrete.factor_graphs import max_product
from pymc_discrete.factor_graphs.graph import SumOfFactors
from pymc_discrete.factor_graphs.semiring import MAX
from pymc_discrete.targets.jax_settings import default_settings


class Draw(NamedTuple):
    """A draw of perturb-and-max-product.

    Attributes
    ----------
    x : (d,) int
    value : () nats, the perturbed log density at x; its mean over draws estimates log Z. -inf where
        max-product ended at an impossible
        configuration, as it must where the evidence contradicts itself: leave such draws out
    change : () nats, the largest change of a message in the last sweep
    sweeps : () int
    normals : [(K, n)], what the perturbation was made of (App. A)
    messages : pytree, where max-product ended
    """

    x: Any
    value: Any
    change: Any
    sweeps: Any
    normals: Any
    messages: Any


@default_settings()
def pmp(
    key,
    graph: SumOfFactors,
    *,
    n_sweeps: int = 200,
    damping: float = 0.5,
    tolerance: float = 0.0,
    persistent: Draw | None = None,
    correlation: float = 0.0,
) -> Draw:
    r"""One draw (Alg. 1, `pmp`; Eq. 2): :math:`\arg\max_x \log p(x) + \sum_i \varepsilon_i[x_i]` by
    max-product, :math:`\varepsilon` of Gumbel(-c, 1), mean 0. For many, `jax.vmap` over keys.

    Exact where the graph has unary terms only (section 2.2); elsewhere approximate, on trees too, though the
    maximum is exact there.

    Parameters
    ----------
    graph : FactorGraph; `graph.clamp(...)` for draws given some of the sites
    n_sweeps, damping, tolerance : of max-product
    persistent : Draw
        The draw before this, whose messages are gone on from (App. A).
    correlation : float in [0, 1]
        rho of App. A, of this perturbation's normals with the one before.

    Raises
    ------
    TypeError, ValueError
        For arguments that mean nothing.
    """
    if not isinstance(graph, SumOfFactors):
        raise TypeError(
            f"pmp takes a key and a FactorGraph, in this order, got {type(graph).__name__} for the graph."
        )
    check_correlation(correlation)
    if not isinstance(persistent, Draw | None):
        raise TypeError(
            f"persistent must be the draw before, as pmp returns it, got {type(persistent).__name__}."
        )
    if correlation and persistent is None:
        raise ValueError(
            f"correlation={correlation!r} is with the perturbation of a draw before: pass it, "
            "persistent=draw."
        )
    normals = [
        jax.random.normal(k, np.shape(u))
        for k, u in zip(jax.random.split(key, len(graph.unary)), graph.unary, strict=True)
    ]
    if persistent is not None:  # App. A
        normals = [
            jnp.sqrt(correlation) * a + jnp.sqrt(1 - correlation) * b
            for a, b in zip(persistent.normals, normals, strict=True)
        ]
    perturbed = graph.perturbed([gumbel(a) for a in normals])
    messages = None if persistent is None else persistent.messages
    found = max_product.run(
        perturbed, MAX, n_sweeps=n_sweeps, damping=damping, tolerance=tolerance, messages=messages
    )
    x = max_product.decode(perturbed, found)
    return Draw(
        x, perturbed.logdensity(x), found.change[found.sweeps - 1], found.sweeps, normals, found.messages
    )


def check_correlation(correlation: Any) -> None:
    if not (is_number(correlation) and 0 <= correlation <= 1):
        raise ValueError(f"correlation must be between 0 and 1, got {correlation!r}.")


def gumbel(normals):
    """Gumbel(-c, 1) by the inverse of its distribution function at that of normals: mean 0 (App. A)."""
    return -jnp.log(-jax.scipy.special.log_ndtr(normals)) - np.euler_gamma
