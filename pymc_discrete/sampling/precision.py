"""The width of the numbers of a run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import pytensor


def check_precision(dtype: str) -> None:
    if dtype == "float64" and pytensor.config.floatX != "float64":
        raise ValueError(f"dtype='float64' is not to be had under pytensor.config.floatX={pytensor.config.floatX!r}. Pass dtype='float32'.")


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Whatever JAX traces and runs inside has floats of this width and, for float32, integers of 32 bits."""
    with jax.enable_x64(dtype == "float64"):
        yield


def check_integers(points: list[dict[str, Any]]) -> None:
    """Refuse integers that 32 bits do not hold, by name."""
    for point in points:
        for name, value in point.items():
            if np.asarray(value).dtype.kind in "iu" and np.size(value) and np.abs(value).max() > np.iinfo(np.int32).max:
                raise ValueError(f"{name!r} starts at {np.abs(value).max()}, which 32 bits do not hold. Pass dtype='float64'.")
