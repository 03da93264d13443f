"""JAX's settings for programs of PyMC models: numbers have the width of PyTensor's floats."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
import pytensor

from pymc_discrete.runtime.jax_settings import default_settings

# whether numbers have 64 bits in the `model_settings` that are active, None outside of them
_wide: ContextVar[bool | None] = ContextVar("wide", default=None)


def width_of_models() -> bool:
    """Whether numbers of a model have 64 bits: as in the active `model_settings`, else as PyTensor's floatX
    says.
    """
    inside = _wide.get()
    return pytensor.config.floatX == "float64" if inside is None else inside


@contextmanager
def model_settings(wide: bool | None = None) -> Iterator[None]:
    """`default_settings` with the width of a model's numbers; as a decorator, while a function runs.

    A thread that is started inside this context does not inherit JAX's settings: it must enter the context
    itself, in a copy of the context variables.

    Parameters
    ----------
    wide : bool, optional
        Whether numbers have 64 bits in this program and in all that it calls; by default
        `width_of_models()`.
    """
    token = _wide.set(width_of_models() if wide is None else wide)
    try:
        with default_settings(_wide.get()):
            yield
    finally:
        _wide.reset(token)


def refuse_another_width() -> None:
    """Raise an error inside a JAX program whose numbers have another width than the numbers of a model.

    Raises
    ------
    ValueError
        If JAX's setting differs from `width_of_models()`.
    """
    wide = width_of_models()
    if jax.config.jax_enable_x64 != wide:
        raise ValueError(
            f"A program that JAX traces with jax_enable_x64={not wide} contains the target of a PyMC model, "
            f"whose numbers have {64 if wide else 32} bits. Trace it under jax.enable_x64({wide}), or make "
            f"the model under pytensor.config.floatX={'float32' if wide else 'float64'!r}."
        )
