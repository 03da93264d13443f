"""The variables that a step samples: the argument `vars` of the user, checked."""

from collections.abc import Sequence
from typing import Any

import pymc as pm
from pymc.model import modelcontext
from pytensor.graph.basic import Variable

from pymc_discrete.model.in_tensors import in_tensors, written_by_user
from pymc_discrete.model.support import counts_as_floats, reason_refused
from pymc_discrete.runtime.names import untransformed

DISCRETE, CONTINUOUS = "discrete", "continuous"
CUSTOM = "custom"  # the kind of the variables of a step that the user defines: any, discrete or continuous


def model_of(model: Any, vars: Any = None, step: str = "") -> pm.Model:
    """The model that a user passed as `model`, by default the model of the `with` block, in plain tensors.

    Parameters
    ----------
    vars : the user's argument for variables, which may be a model by mistake
    step : the name of the step that is made for the model, if a step is made

    Raises
    ------
    TypeError
        If there is no model, or the argument is no model.
    """
    misplaced = isinstance(vars, pm.Model)
    if model is not None and not isinstance(model, pm.Model):
        order = " vars is one: the two are in each other's place." if misplaced else ""
        raise TypeError(f"model must be a pm.Model, got {model!r}.{order}")
    if misplaced:
        raise TypeError("vars is a pm.Model, and takes variables or their names. Pass the model as model=...")
    try:
        given = modelcontext(model)
    except TypeError as error:
        if step:
            raise TypeError(
                f"There is no model for pmd.{step}: make the step within `with model:`, or pass model= to "
                f"the step itself, pmd.{step}(..., model=model). The model= of pm.sample or pmd.sample does "
                "not reach a step that is made before."
            ) from error
        raise TypeError("There is no model: call this within `with model:`, or pass model=...") from error
    return in_tensors(given)


def block_of(
    model: pm.Model,
    vars: Any,
    kind: str = DISCRETE,
    argument: str = "vars",
    constrained: bool = False,
    equations: bool = False,
) -> list[str]:
    """Names of the value variables of a block.

    Parameters
    ----------
    model : pm.Model
    vars : RV, name or value variable, or a list of them
        None means all free variables of the kind that can be sampled.
    kind : {"discrete", "continuous"}
    argument : the name of the argument `vars` in the user's call, for messages
    constrained : whether vectors whose elements cannot change alone can be sampled
    equations : whether variables that only change together with others can be sampled

    Raises
    ------
    TypeError, ValueError
        For variables that cannot be sampled, each with the reason and the remedy.
    """
    values = {str(v.name): v for v in model.value_vars}
    if vars is None:
        refuse_counts_as_floats(model, [str(v.name) for v in model.value_vars])
        all_names = free(model, kind)
        reasons = {n: why for n in all_names if (why := reason_refused(model, n, constrained, equations))}
        names = [n for n in all_names if n not in reasons]
        if constrained and names:
            refuse_left_out(reasons)
        if not names:
            why = "; ".join(f"{n!r} is {reason}" for n, reason in reasons.items())
            why = why or f"it has no {kind} free variable"
            raise ValueError(
                f"Nothing in the model for this step to sample: {why}. Leave the step out, or name the "
                "variables with vars=."
            )
        return names
    given = [vars] if isinstance(vars, str | Variable) or not isinstance(vars, Sequence) else [*vars]
    if not all(isinstance(var, str | Variable) for var in given):
        raise TypeError(f"{argument} must be a variable, its name, or a list of them, got {vars!r}.")
    vars = given
    if not vars:
        which = "none" if argument == "integrate" else "all of them"
        raise ValueError(
            f"{argument} is empty: name at least one {kind} free variable, or leave it out for {which}."
        )
    chosen: list[str] = []
    for var in vars:
        name = value_name(model, var)
        if name not in values:
            raise ValueError(unknown(model, name, kind))
        if not isinstance(var, str) and not is_of(model, var):
            raise ValueError(f"{untransformed(name)!r} belongs to another model. {known_names(model, kind)}")
        if name in chosen:
            raise ValueError(f"{untransformed(name)!r} is named twice in {argument}.")
        refuse_counts_as_floats(model, [name])
        if name not in free(model, kind):
            dtype = values[name].type.dtype
            other = (
                "continuous ({}): sample it with NUTS"
                if kind == DISCRETE
                else "discrete ({}): sample it with pmd.AutoStep"
            )
            raise ValueError(
                f"{untransformed(name)!r} is {other.format(dtype)}, and leave it out of {argument}."
            )
        reason = reason_refused(model, name, constrained, equations)
        if reason:
            raise ValueError(f"{name!r} is {reason}.")
        chosen.append(name)
    return chosen


def refuse_left_out(reasons: dict[str, str]) -> None:
    """Raise an error if, among all variables to be sampled, some can be moved by no step of this package or
    of PyMC.

    PyMC would give these variables a Metropolis step that never accepts.

    Raises
    ------
    ValueError
    """
    for name, why in reasons.items():
        raise ValueError(
            f"{name!r} is {why}. If it has a step of its own, name the variables of this one with vars=."
        )


def refuse_counts_as_floats(model: pm.Model, names: list[str]) -> None:
    """Refuse value variables of truncated counts that PyMC represents as continuous.

    NUTS would draw values for them that are not integers.

    Raises
    ------
    ValueError
        If one of the named value variables is such a count.
    """
    for rv in model.free_RVs:
        name = str(model.rvs_to_values[rv].name)
        if name in names and counts_as_floats(rv) is not None:
            raise ValueError(f"{rv.name!r} is {reason_refused(model, name)}.")


def free(model: pm.Model, kind: str) -> list[str]:
    """Names of the free value variables of a kind."""
    discrete = {v.name for v in model.discrete_value_vars}
    return [str(v.name) for v in model.value_vars if (v.name in discrete) == (kind == DISCRETE)]


def value_name(model: pm.Model, var: Any) -> str:
    """The name of the value variable that an RV, a name or a value variable stands for."""
    if isinstance(var, str):
        rv = model.named_vars.get(var)
        return str(model.rvs_to_values[rv].name) if rv in model.rvs_to_values else var
    written = written_by_user(model)
    for each in (model, written):
        if var in each.rvs_to_values:
            return str(each.rvs_to_values[var].name)
    return str(getattr(var, "name", var))


def is_of(model: pm.Model, var: Variable) -> bool:
    """Whether a variable is an RV or a value variable of the model, or of the user's model that it was made
    from.
    """
    known = [
        v for each in (model, written_by_user(model)) for pair in each.rvs_to_values.items() for v in pair
    ]
    return any(var is v for v in known)


def known_names(model: pm.Model, kind: str) -> str:
    """A sentence for messages that names the free variables of a kind that can be sampled."""
    shown_as = {str(v.name): str(rv.name) for rv, v in model.rvs_to_values.items()}
    names = [repr(shown_as.get(n, n)) for n in free(model, kind) if not reason_refused(model, n)]
    return f"The model's {kind} free variables: {', '.join(names) or 'none'}."


def unknown(model: pm.Model, name: str, kind: str) -> str:
    """The message for a name that is no free variable: what the name stands for, and what can be sampled."""
    rv = model.named_vars.get(name)
    if rv is None:
        return f"The model has no variable {name!r}. {known_names(model, kind)}"
    if rv in model.observed_RVs:
        return f"{name!r} is observed: there is nothing to sample. {known_names(model, kind)}"
    return f"{name!r} is no free random variable of the model. {known_names(model, kind)}"
