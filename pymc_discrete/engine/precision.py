"""The precision (float64 or float32) in which a run computes."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np
import pymc as pm
import pytensor

from pymc_discrete.model.in_32_bits import check_in_32_bits
from pymc_discrete.runtime.model_settings import model_settings


def check_precision(dtype: str) -> None:
    """Refuse "float64" if PyTensor is set to a narrower float type."""
    if dtype == "float64" and pytensor.config.floatX != "float64":
        raise ValueError(
            f"dtype='float64' is not available under pytensor.config.floatX={pytensor.config.floatX!r}. Pass "
            "dtype='float32'."
        )


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """A context in which JAX uses floats of type `dtype` and, for float32, integers of 32 bits."""
    if dtype == "float64":
        with model_settings(wide=True):
            yield
        return
    # JAX caches some traces by shape only, so that without clearing it would use traces with 64-bit types
    jax.clear_caches()
    try:
        with model_settings(wide=False), warnings.catch_warnings():
            # JAX warns about every constant and cast in the graph that asks for 64 bits, although 32 bits are
            # intended
            warnings.filterwarnings("ignore", message="Explicitly requested dtype")
            yield
    finally:
        jax.clear_caches()


def check_starts_in_32_bits(model: pm.Model, points: list[dict[str, np.ndarray]]) -> None:
    """Refuse starting values of discrete variables that do not fit into 32 bits."""
    for point in points:
        for value in model.discrete_value_vars:
            check_in_32_bits(str(value.name), point[str(value.name)])
