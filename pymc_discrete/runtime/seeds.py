"""The seed of a run."""

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from pymc.util import get_random_generator


def seed_of(random_seed: Any) -> int | None:
    """One integer from any `random_seed` that `pm.sample` takes."""
    if random_seed is None:
        return None
    if isinstance(random_seed, int | np.integer) and 0 <= random_seed < 2**31:
        # An integer is used as it is, so that the seed stored in a result reproduces its draws.
        return int(random_seed)
    try:
        return int(get_random_generator(random_seed).integers(2**31))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"random_seed must be an integer of at least 0, or what numpy takes for one, got {random_seed!r}."
        ) from error


def new_seed() -> int:
    """A random seed, the same in all processes in which JAX runs together."""
    seed = np.random.default_rng().integers(2**31)
    return int(multihost_utils.broadcast_one_to_all(seed) if jax.process_count() > 1 else seed)
