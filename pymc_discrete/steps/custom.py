"""A step of the user's own for `pmd.sample`."""

from collections.abc import Callable
from typing import Any, ClassVar

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_discrete.model.blocks import CUSTOM, is_of, known_names, model_of, unknown, value_name
from pymc_discrete.runtime.checks import check_options


class CustomStep:
    """A move of your own, beside the other steps of `pmd.sample`: a conjugate update, or a jump.

    Parameters
    ----------
    vars : RV, name or value variable, or a list of them
        The free variables that the move changes, discrete or continuous.
    step : callable
        A JAX function (key, point, state) -> (point, state). `key` is a JAX key, which is another key in
        every call. `point` is {name: array}, the values of all free variables of the model as the user sees
        them (a scale, not its logarithm); the returned point has the new values of `vars`, and may have the
        other values unchanged. The move must leave the posterior, given the other variables, invariant;
        nothing can test this.
    init : callable, optional
        (point) -> state, before the first draw of a chain: a pytree of arrays, whose shapes and types stay.
        By default there is no state, and `step` gets and returns ().
    model : pm.Model, optional
        The default is the model of the `with` block.

    Raises
    ------
    TypeError, ValueError
        For variables that the model does not have, and for arguments that cannot be called. What `step`
        returns is checked once, at the start of the first chain.

    Notes
    -----
    Programs are used again only for the same function object: define `step` once, and not in a loop.

    Examples
    --------
    >>> import jax
    >>> def step(key, point, state):
    ...     precision = 1 + 20 / point["s"] ** 2
    ...     mean = 20 * 0.4 / point["s"] ** 2 / precision
    ...     return {"mu": mean + jax.random.normal(key) / precision**0.5}, state
    >>> with pm.Model():
    ...     mu, s = pm.Normal("mu"), pm.HalfNormal("s")
    ...     pm.Normal("y", mu, s, observed=[0.4] * 20)
    ...     idata = pmd.sample(step=pmd.CustomStep("mu", step))  # doctest: +SKIP
    """

    kind: ClassVar[str] = CUSTOM

    def __init__(
        self,
        vars: Any,
        step: Callable[[Any, dict[str, Any], Any], tuple[dict[str, Any], Any]],
        init: Callable[[dict[str, Any]], Any] | None = None,
        *,
        model: pm.Model | None = None,
        **options: Any,
    ):
        check_options("CustomStep", options, ("vars", "step", "init", "model"))
        self.model = model_of(model, vars, type(self).__name__)
        for name, function in (("step", step), ("init", init)):
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function, got {function!r}.")
        if step is None:
            raise TypeError("step must be a JAX function (key, point, state) -> (point, state), got None.")
        self.function, self.init = step, init
        self.vars = variables_meant(self.model, vars)

    @property
    def own_variables(self) -> list[str]:
        """Names of the value variables that the step moves."""
        return [str(v.name) for v in self.vars]

    def named(self) -> str:
        """The step and its variables, as messages name them."""
        return f"CustomStep({', '.join(str(v.name) for v in self.vars)})"

    def options(self) -> dict[str, Any]:
        """{name: value} of the functions by which the step moves."""
        return {"step": self.function, "init": self.init}

    def described(self) -> str:
        """The step, its variables and its function, in one line."""
        module = getattr(self.function, "__module__", "")
        function = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"{self.named()[:-1]}; step={module}.{function})"


def variables_meant(model: pm.Model, vars: Any) -> list[Variable]:
    """The value variables that the argument `vars` of the user stands for.

    Raises
    ------
    TypeError, ValueError
        If one of them is no free variable of the model.
    """
    given = list(vars) if isinstance(vars, list | tuple) else [vars]
    if not given or not all(isinstance(v, str | Variable) for v in given):
        raise TypeError(f"vars must be a free variable, its name, or a list of them, got {vars!r}.")
    values = {str(v.name): v for v in model.value_vars}
    chosen: list[Variable] = []
    for var in given:
        name = value_name(model, var)
        if name not in values:
            raise ValueError(unknown(model, name, "discrete"))
        if not isinstance(var, str) and not is_of(model, var):
            raise ValueError(f"{name!r} belongs to another model. {known_names(model, 'discrete')}")
        if values[name] in chosen:
            raise ValueError(f"{name!r} is named twice in vars.")
        chosen.append(values[name])
    return chosen
