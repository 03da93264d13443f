"""Assigns every variable of a model to a step."""

import logging
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pymc.step_methods.compound import CompoundStep

from pymc_discrete.collapse import choice
from pymc_discrete.collapse.collapsed import Collapsed
from pymc_discrete.collapse.integrated import chosen_coefficients as chosen_coefficients
from pymc_discrete.collapse.integrated import say_not_integrated
from pymc_discrete.engine.assembly import in_order_of_moves
from pymc_discrete.engine.nuts_options import OfNuts
from pymc_discrete.model.blocks import DISCRETE, block_of, free, refuse_counts_as_floats
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.reuse import collection_paused
from pymc_discrete.steps.base import JaxStep
from pymc_discrete.steps.collapsed_nuts import CollapsedNUTS
from pymc_discrete.steps.custom import CustomStep
from pymc_discrete.steps.discrete import DiscreteStep
from pymc_discrete.steps.integrated_nuts import IntegratedNUTS
from pymc_discrete.steps.nuts_in_jax import NutsInJax
from pymc_discrete.steps.shared import without_local
from pymc_discrete.steps.suited import steps_for

_log = logging.getLogger("pymc.discrete")


@collection_paused()
def steps_of(
    model: pm.Model,
    step: Any,
    point: dict[str, np.ndarray],
    collapse: Any = False,
    fixed: Sequence[str] = (),
) -> tuple[list[JaxStep | CustomStep], Collapsed | None]:
    """The steps, in the order in which they move, and the discrete variables that are summed out.

    `AutoStep` chooses for discrete variables that have no step and are not summed out.

    Parameters
    ----------
    step : None, a step, or a list of steps
    point : {value variable: array}, a point that gives the shapes of the variables
    collapse : the discrete variables to sum out, as in `pmd.sample`
    fixed : value variables that no step moves
    """
    refuse_counts_as_floats(model, [str(v.name) for v in model.value_vars])
    given, flat = given_and_flat(step)
    for s in [*given, *flat]:
        refuse_options_of_nuts(s)
        refuse_replicas(s)
    for s in flat:
        refuse_foreign(s)
        refuse_other_model(s, model)
    said = {name for s in flat if isinstance(s, CollapsedNUTS) for name in s.summed}
    collapse, flat = natively(flat, collapse)
    refuse_two_steps(flat)
    of = Division.of(DescribedModel(model, point), flat, fixed)
    collapsed = summed_by(of, flat, collapse)
    # A step has logged the variables that it sums out when it was made, and the automatic choice logs the
    # variables that it takes. So only the variables that the user asked for by `collapse` are still to be
    # logged.
    chosen = isinstance(collapse, str)
    if not chosen and collapsed and said != set(collapsed.density.names) and (line := collapsed.parts()):
        _log.info(line)
    of = of.without(collapsed.density.names if collapsed else ())
    for s in flat:
        if lacking := [name for name in s.own_variables if name in of.lent]:
            _log.warning(without_local(type(s).__name__, lacking))
    if of.left or of.vectors:
        flat += steps_of_the_rest(of, flat, collapsed, chosen)
    return in_order_of_moves(flat), collapsed


def given_and_flat(step: Any) -> tuple[list[Any], list[Any]]:
    """The steps that a user gives, and the same list with each `CompoundStep` replaced by its steps."""
    given = [] if step is None else list(step) if isinstance(step, list | tuple) else [step]
    return given, [s for one in given for s in (one.methods if isinstance(one, CompoundStep) else [one])]


def steps_on(moved: pm.Model, model: pm.Model, step: Any) -> list[Any]:
    """The user's steps for a model, made anew for the tempered model that is made from it.

    Parameters
    ----------
    moved, model : the tempered model, and the user's model
    step : None, a step, or a list of steps

    Raises
    ------
    TypeError, ValueError
        For an object that is no step of this package, for a step of another model, and for a step of the
        user's own, which cannot know the power of the likelihood.
    """
    given, flat = given_and_flat(step)
    for s in given:
        refuse_replicas(s)
    for s in flat:
        refuse_foreign(s)
        refuse_other_model(s, model)
        if isinstance(s, CustomStep):
            raise ValueError(
                f"{s.named()} leaves the posterior as it is, and with temper= most replicas are at other "
                "densities, where the likelihood has a power below 1. Leave out temper=, or the step."
            )
    return [s.on(moved) for s in flat]


def summed_on_path(model: pm.Model, step: Any, collapse: Any) -> list[str]:
    """The discrete variables that may be summed out of a model before it is tempered: all, or none.

    Parameters
    ----------
    step : the steps that the user gives
    collapse : the discrete variables to sum out, as in `pmd.sample`
    """
    described = DescribedModel(model)
    names = described.discrete
    _, flat = given_and_flat(step)
    moved = {name for s in flat for name in getattr(s, "own_variables", ())}
    if collapse is False or moved.intersection(names):
        return []
    asked = names if isinstance(collapse, str | bool) else block_of(model, collapse, argument="collapse")
    return names if {*asked} == {*names} and described.continuous else []


# ---------------------------------------------------------------- steps that pmd.sample cannot run
def refuse_options_of_nuts(step: Any) -> None:
    if getattr(step, "of_nuts", OfNuts()) != OfNuts():
        raise ValueError(
            f"{step.who} has options of NUTS here, which are for pm.sample. Pass them to pmd.sample, as "
            "target_accept= and nuts={'max_treedepth': ...}."
        )


def refuse_replicas(step: Any) -> None:
    if getattr(step, "replicas", None) is not None:
        raise ValueError(
            f"{step.who} has temper= here, which is for pm.sample. Pass it to pmd.sample: "
            "pmd.sample(temper=True)."
        )


def refuse_foreign(step: Any) -> None:
    if isinstance(step, type):
        raise TypeError(
            f"{step.__name__} is the class of a step, not a step: call it, step={step.__name__}()."
        )
    if not isinstance(step, JaxStep | CustomStep | NutsInJax):
        raise TypeError(
            f"pmd.sample takes the steps of pymc_discrete, got {getattr(type(step), '__name__', step)}. "
            "Continuous variables get NUTS here (see nuts=), or pmd.ReparameterizedSlice; a JAX function "
            "of your own is a step by pmd.CustomStep; pm.sample takes all steps."
        )


def refuse_other_model(step: Any, model: pm.Model) -> None:
    if step.model is not model:
        raise ValueError(
            f"{type(step).__name__} was made for another model. Make it in the context of the model that is "
            "sampled."
        )


def refuse_two_steps(steps: Sequence[Any]) -> None:
    """Refuse a variable that two steps move, if neither shares it with the other."""
    unshared = [name for s in steps if not shares_variables(s) for name in s.own_variables]
    twice = sorted({n for n in unshared if unshared.count(n) > 1})
    if twice:
        raise ValueError(
            f"{shown(twice)} {'belongs' if len(twice) == 1 else 'belong'} to two steps. Name each variable "
            "once."
        )


# ---------------------------------------------------------------- variables that have no step
class Division(NamedTuple):
    """The variables of a model that no step moves, or only a step that needs another one beside it.

    Attributes
    ----------
    described : the model
    left : discrete variables without a step whose elements may change alone
    vectors : discrete variables without a step whose elements change only together: they are summed out only
        where the user names them
    lent : discrete variables that only a flow's step moves, which needs another step beside it
    moved : continuous variables that no step moves, and NUTS moves
    """

    described: DescribedModel
    left: list[str]
    vectors: list[str]
    lent: list[str]
    moved: list[str]

    @classmethod
    def of(cls, described: DescribedModel, steps: Sequence[Any], fixed: Sequence[str]) -> "Division":
        """The variables that some steps leave; nothing moves the variables that are `fixed`."""
        assigned = {name for s in steps for name in s.own_variables}
        unshared = {name for s in steps if not shares_variables(s) for name in s.own_variables}
        discrete = described.discrete
        left = [name for name in discrete if name not in assigned and np.size(described.point[name])]
        vectors = described.moved_together(left)
        return cls(
            described,
            [name for name in left if name not in vectors],
            vectors,
            [name for name in discrete if name in assigned - unshared],
            [name for name in described.continuous if name not in {*assigned, *fixed}],
        )

    def without(self, names: Collection[str]) -> "Division":
        """The division without some of its discrete variables."""
        left, vectors, lent = (
            [name for name in group if name not in names] for group in (self.left, self.vectors, self.lent)
        )
        return self._replace(left=left, vectors=vectors, lent=lent)


def integrates(steps: Sequence[Any]) -> bool:
    """Whether one of the steps integrates coefficients out."""
    return any(isinstance(s, DiscreteStep) and s.integrated for s in steps)


def summed_by(of: Division, steps: Sequence[Any], collapse: Any) -> Collapsed | None:
    """The sums over the variables that the argument `collapse` names, or that the package chooses if it is
    "auto"; None if there are none.
    """
    if isinstance(collapse, str):
        # Nothing is summed out beside a step that integrates coefficients out: the step must have drawn the
        # coefficients before any other variable may move.
        free = of.left and of.moved and not integrates(steps)
        return choice.variables_to_sum_out(of.described, of.left, of.moved) if free else None
    named = of.left if collapse is True else [*of.left, *of.vectors, *of.lent]
    return collapsed_by_name(of.described.model, named, of.moved, collapse)


def steps_of_the_rest(
    of: Division,
    steps: Sequence[Any],
    collapsed: Collapsed | None,
    chosen: bool,
) -> list[Any]:
    """The steps for the discrete variables that have no step and are not summed out.

    Parameters
    ----------
    chosen : whether the package has chosen the variables that are summed out
    """
    options: dict[str, Any] = {"initial_point": of.described.point}
    if not collapsed and not of.vectors and not integrates(steps):
        options["integrate"] = chosen_coefficients(of.described, of.left, of.moved) or None
    elif collapsed and chosen:
        say_not_integrated(of.described, of.left, of.moved, collapsed.density.names)
    names = block_of(of.described.model, [*of.left, *of.vectors], constrained=True, equations=True)
    automatic = steps_for(of.described, names, all_in_jax=True, **options)
    return getattr(automatic, "methods", [automatic])


def shares_variables(step: JaxStep | CustomStep | NutsInJax) -> bool:
    """Whether a step allows another step to move its variables, too."""
    return isinstance(step, DiscreteStep) and step.shared


def natively(flat: list[Any], collapse: Any) -> tuple[Any, list[JaxStep | CustomStep]]:
    """The argument `collapse` and the steps for `pmd.sample` that stand for the user's steps, of which some
    were made for `pm.sample`.

    A `CollapsedNUTS` becomes variables that are added to `collapse`, and an `IntegratedNUTS` becomes the step
    of its discrete variables. The continuous variables of both steps are left to the NUTS of the compiled
    program.
    """
    names: list[str] = []
    steps: list[JaxStep | CustomStep] = []
    for s in flat:
        if isinstance(s, CollapsedNUTS):
            names += s.summed
        else:
            steps.append(s.sites if isinstance(s, IntegratedNUTS) else s)
    if not names or collapse is True:
        return collapse, steps
    if collapse is False:
        raise ValueError(
            f"{shown(names)} {'is' if len(names) == 1 else 'are'} summed out by a step, and not with "
            "collapse=False. Leave one of them out, or name what AutoStep is to sample."
        )
    return names if isinstance(collapse, str) else [*collapse, *names], steps


def collapsed_by_name(model: pm.Model, names: list[str], moved: list[str], collapse: Any) -> Collapsed | None:
    """The sums over discrete variables that are named in `collapse`; None if there are none.

    Parameters
    ----------
    names : discrete variables that no step moves, or only the step of a flow, which needs another step beside
        it
    moved : continuous variables that NUTS moves
    collapse : the discrete variables to sum out, as in `pmd.sample`
    """
    if collapse is False:
        return None
    wanted = names if collapse is True else block_of(model, collapse, argument="collapse")
    if not moved or not names:
        if names:
            lacks = "no continuous variable is moved by NUTS"
        elif free(model, DISCRETE):
            lacks = "every discrete variable has a step"
        else:
            lacks = "the model has no discrete free variable"
        raise ValueError(f"There is nothing to sum out: {lacks}. Leave out collapse=.")
    taken = [name for name in wanted if name not in names]
    if taken:
        raise ValueError(
            f"{shown(taken)} cannot be summed out: a step was given for it. Leave it out of collapse= or "
            "of step=."
        )
    try:
        return Collapsed.of(model, wanted)
    except NotImplementedError as error:
        raise ValueError(f"{error} Without collapse= they are sampled as they are.") from error
