"""The width of the numbers of a run."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np
import pymc as pm
import pytensor

from pymc_discrete.targets.graph.in_32_bits import check_in_32_bits
from pymc_discrete.targets.model_settings import model_settings


def check_precision(dtype: str) -> None:
    if dtype == "float64" and pytensor.config.floatX != "float64":
        raise ValueError(
            f"dtype='float64' is not to be had under pytensor.config.floatX={pytensor.config.floatX!r}. Pass "
            "dtype='float32'."
        )


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Whatever JAX traces and runs inside has floats of this width and, for float32, integers of 32 bits."""
    if dtype == "float64":
        with model_settings(wide=True):
            yield
        return
    jax.clear_caches()  # JAX keeps some traces by shape and not by width
    try:
        with model_settings(wide=False), warnings.catch_warnings():
            # said for each constant and cast of the graph that asks for 64 bits: they are to have 32 here
            warnings.filterwarnings("ignore", message="Explicitly requested dtype")
            yield
    finally:
        jax.clear_caches()


def check_starts_in_32_bits(model: pm.Model, points: list[dict[str, np.ndarray]]) -> None:
    """Refuse starts of discrete variables that 32 bits do not hold."""
    for point in points:
        for value in model.discrete_value_vars:
            check_in_32_bits(str(value.name), point[str(value.name)])
