"""The variables that PyMC gives to its NUTS."""

import pymc as pm
import pytensor
from pymc.step_methods import STEP_METHODS
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable

from pymc_discrete.model.without_jax import variables_without_jax


def for_nuts(model: pm.Model) -> list[str]:
    """Names of the continuous value variables that PyMC gives to NUTS if no step is named."""
    logp, values = model.logp(), model.continuous_value_vars
    if not has_gradient(logp, values):
        values = [v for v in values if has_gradient(logp, [v])]
    return [
        str(v.name)
        for v in values
        if max(STEP_METHODS, key=lambda k: max(k._competence(model.values_to_rvs[v], True))) is pm.NUTS
    ]


def moved_in_jax(model: pm.Model) -> list[str] | None:
    """Names of the continuous value variables that NUTS can move in a JAX program of the whole model.

    None if the model has no such program: a term has an Op without a JAX version, or floats have 32 bits, for
    which `pm.sample` is left unchanged.
    """
    if pytensor.config.floatX != "float64":
        return None
    if variables_without_jax(model, [str(v.name) for v in model.value_vars]):
        return None
    return for_nuts(model) if model.continuous_value_vars else []


def has_gradient(logp: Variable, values: list[Variable]) -> bool:
    """Whether PyTensor can differentiate a log density, which PyMC asks before it chooses NUTS."""
    try:
        pytensor.grad(logp, values)
    except (NotImplementedError, NullTypeGradError):
        return False
    return True
