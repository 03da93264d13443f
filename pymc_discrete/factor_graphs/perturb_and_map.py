"""Perturb-and-max-product: approximate draws that maximise a perturbed log density by max-product.

Lazaro-Gredilla, Dedieu and George 2021.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.factor_graphs import max_product
from pymc_discrete.factor_graphs.graph import SumOfFactors
from pymc_discrete.factor_graphs.semiring import MAX
from pymc_discrete.runtime.checks import is_number
from pymc_discrete.runtime.jax_settings import default_settings


class Draw(NamedTuple):
    """A draw of perturb-and-max-product.

    Attributes
    ----------
    x : (d,) int
    value : () nats
        The perturbed log density at x, whose mean over draws estimates log Z. -inf if max-product ended at a
        configuration of probability 0, which it always does if the clamped values contradict each other:
        leave such draws out.
    change : () nats, the largest change of a message in the last sweep
    sweeps : () int, number of sweeps
    normals : [(K, n)], the standard normals from which the perturbation was computed, see `gumbel`
    messages : pytree, the last messages of max-product
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
    r"""One draw by perturb-and-max-product (Lazaro-Gredilla et al. 2021, Eq. 2 and Alg. 1).

    .. math:: x = \arg\max_x \log p(x) + \sum_i \varepsilon_i[x_i]

    Max-product approximates this x, with independent :math:`\varepsilon` of the distribution Gumbel(-c, 1),
    whose mean is 0 for c Euler's constant. Use `jax.vmap` over keys for many draws. The draws are exact if
    the graph has unary terms only (section 2.2), and approximate otherwise: on trees the maximum is exact,
    but the draws are not.

    Parameters
    ----------
    key : JAX key
    graph : FactorGraph; `graph.clamp(...)` for draws given some of the sites
    n_sweeps : int, largest number of sweeps
    damping : float in [0, 1), the weight of the old message in its average with the new message
    tolerance : nats; stop once no message changes by more
    persistent : Draw, optional
        The previous draw, with whose messages max-product starts (App. A of the paper).
    correlation : float in [0, 1]
        The parameter rho of App. A, the share of the previous draw's perturbation in this one's: 0 for a new
        perturbation, 1 for the previous one.

    Raises
    ------
    TypeError, ValueError
        For invalid arguments.
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
            f"correlation={correlation!r} is with the perturbation of a previous draw: pass it, "
            "persistent=draw."
        )
    normals = [
        jax.random.normal(k, np.shape(u))
        for k, u in zip(jax.random.split(key, len(graph.unary)), graph.unary, strict=True)
    ]
    if persistent is not None:  # Lazaro-Gredilla et al. 2021, App. A, has the correlation of perturbations.
        normals = [
            jnp.sqrt(correlation) * a + jnp.sqrt(1 - correlation) * b
            for a, b in zip(persistent.normals, normals, strict=True)
        ]
    perturbed = graph.perturbed([gumbel(a) for a in normals])
    messages = None if persistent is None else persistent.messages
    result = max_product.run(
        perturbed, MAX, n_sweeps=n_sweeps, damping=damping, tolerance=tolerance, messages=messages
    )
    x = max_product.decode(perturbed, result)
    return Draw(
        x, perturbed.logdensity(x), result.change[result.sweeps - 1], result.sweeps, normals, result.messages
    )


def check_correlation(correlation: Any) -> None:
    """Refuse a correlation that is no number between 0 and 1."""
    if not (is_number(correlation) and 0 <= correlation <= 1):
        raise ValueError(f"correlation must be between 0 and 1, got {correlation!r}.")


def gumbel(normals):
    """Draws of Gumbel(-c, 1), whose mean is 0 for c Euler's constant, transformed from standard normals
    (Lazaro-Gredilla et al. 2021, App. A).
    """
    return -jnp.log(-jax.scipy.special.log_ndtr(normals)) - np.euler_gamma
