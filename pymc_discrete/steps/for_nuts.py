"""The variables that PyMC gives to its NUTS."""

import pymc as pm
import pytensor
from pymc.step_methods import STEP_METHODS
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable


def for_nuts(model: pm.Model) -> list[str]:
    """Names of the continuous value variables that PyMC gives to NUTS where no step is named."""
    logp, values = model.logp(), model.continuous_value_vars
    if not has_gradient(logp, values):
        values = [v for v in values if has_gradient(logp, [v])]
    return [
        str(v.name)
        for v in values
        if max(STEP_METHODS, key=lambda k: max(k._competence(model.values_to_rvs[v], True))) is pm.NUTS
    ]


def has_gradient(logp: Variable, values: list[Variable]) -> bool:
    """Whether PyTensor can differentiate a log density, as PyMC asks before it takes NUTS."""
    try:
        pytensor.grad(logp, values)
    except (NotImplementedError, NullTypeGradError):
        return False
    return True
