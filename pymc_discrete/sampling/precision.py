"""The width of the numbers of a run."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np
import pymc as pm
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs

from pymc_discrete.targets.model_settings import model_settings


def check_precision(dtype: str) -> None:
    if dtype == "float64" and pytensor.config.floatX != "float64":
        raise ValueError(f"dtype='float64' is not to be had under pytensor.config.floatX={pytensor.config.floatX!r}. Pass dtype='float32'.")


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


def check_integers(model: pm.Model, points: list[dict[str, np.ndarray]]) -> None:
    """Refuse integers that 32 bits do not hold: of the data and constants, and of where the chains start."""
    inputs = graph_inputs([*model.logp(sum=False), *model.deterministics])
    fixed = [(str(v.name or "a constant"), v.data) for v in inputs if isinstance(v, Constant) and hasattr(v.type, "dtype")]
    fixed += [(str(v.name), v.get_value(borrow=True)) for v in inputs if isinstance(v, SharedVariable) and hasattr(v.type, "dtype")]
    for name, value in fixed + [item for point in points for item in point.items()]:
        value = np.asarray(value)
        if value.dtype.kind in "iu" and value.size and np.abs(value.astype(float)).max() > np.iinfo(np.int32).max:
            top = np.abs(value.astype(float)).max()
            raise ValueError(f"{name} is or holds the integer {top:.0f}, which 32 bits do not hold. Pass dtype='float64'.")
