"""Balancing functions g with g(t) = t g(1/t) (Zanella 2020).

Each function is given in logarithms, as log g(exp(d)) for a difference d of the log density.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

BALANCING: dict[str, Callable] = {
    "sqrt": lambda d: d / 2,  # g(t) = sqrt(t): Grathwohl et al. 2021, Eq. 2 at temperature 2
    "barker": jax.nn.log_sigmoid,  # g(t) = t / (1 + t)
    "min": lambda d: jnp.minimum(d, 0.0),  # g(t) = min(1, t)
    "max": lambda d: jnp.maximum(d, 0.0),  # g(t) = max(1, t)
}

# The difference of leaving an impossible state is +inf. It is replaced by this finite number, large enough to
# exceed every other difference.
LARGEST_DIFFERENCE = 1e8


def log_weights(differences, current, balancing: str):
    """Logarithms of the balancing function g for all differences, -inf at current and at impossible values.

    The current and the impossible values are masked after g is applied, because g(t) = max(1, t) would give
    impossible values the weight 1.
    """
    g = BALANCING[balancing](jnp.minimum(differences, LARGEST_DIFFERENCE))
    return jnp.where(current | jnp.isneginf(differences), -jnp.inf, g)
