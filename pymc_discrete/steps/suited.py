"""The choice of steps for discrete variables, by the way in which the differences of their log density are
found.
"""

import logging
from typing import Any, cast

import pymc as pm
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep, CompoundStep

from pymc_discrete.collapse.at_once import sums_at_once
from pymc_discrete.collapse.choice import tied_counts
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.differences.from_model import target_of
from pymc_discrete.model.blocks import block_of
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.model.in_tensors import values_by_name
from pymc_discrete.model.untouched import terms_without_jax
from pymc_discrete.model.without_jax import no_jax_version, variables_without_jax
from pymc_discrete.runtime.names import shown
from pymc_discrete.space.target import Target
from pymc_discrete.steps.clusters import clusters_suit
from pymc_discrete.steps.discrete import DiscreteStep
from pymc_discrete.steps.for_nuts import for_nuts
from pymc_discrete.steps.methods import BlockGibbs, DiscreteLangevin, SwendsenWang, TreeGibbs

_log = logging.getLogger("pymc.discrete")


# {step: the reason for its choice, which is logged}; the step itself logs how differences are found
WHY = {
    BlockGibbs: "conditionals are exact",
    TreeGibbs: "conditionals are exact, and the sites that interact are drawn at once",
    SwendsenWang: "conditionals are exact, and sites that pairs hold together move in clusters",
    DiscreteLangevin: "differences are first-order",
}


def steps_for(
    described: DescribedModel, names: list[str], *, all_in_jax: bool = False, **options: Any
) -> BlockedStep | CompoundStep:
    """The step for discrete variables, or one step made of several, and a logged line for each.

    Parameters
    ----------
    names : value variables
    all_in_jax : whether a term without a JAX version is refused, instead of left to PyMC's own steps
    options : the options of `AutoStep`

    Raises
    ------
    NotImplementedError, ValueError
        For variables or options that no step can take. The message gives the reason and the remedy.
    """
    if vectors := described.moved_together(names):
        return with_step_of_vectors(described, vectors, names, all_in_jax, options)
    model = described.model
    try:
        whole = target_for(described, names, options)
        without_jax = terms_without_jax(cast(ModelDensity, whole.density).graph.terms, names)
    except NotImplementedError:  # the analysis of a graph refuses some Ops without a JAX version
        without_jax = variables_without_jax(model, names)
        if not without_jax:
            raise
    if without_jax:
        if all_in_jax or options.get("integrate") is not None:
            raise next(error for _, error in without_jax.values())
        return with_steps_of_pymc(described, names, without_jax, options)
    descriptions = whole.describe()
    exact = [name for name in names if descriptions[name]["exact"]]
    others = [name for name in names if name not in exact]
    if others and options.get("integrate") is not None:
        raise ValueError(
            "integrate= needs one step for all variables, and that of "
            f"{shown(others)} would take gradients. Pass "
            "differences='exact', or name the variables of one step."
        )
    steps: list[BlockedStep] = []
    if exact:
        own = whole
        if others:
            own = target_for(described, exact, {**options, **restricted(options, model, exact)})
        steps.append(exact_step(described, exact, own, options))
    if others:
        say_chosen(DiscreteLangevin, others, cast(ModelDensity, whole.density))
        more = {**options, **restricted(options, model, others)}
        steps.append(DiscreteLangevin(others, model=model, proposal="dlmc", **more))
    return steps[0] if len(steps) == 1 else CompoundStep(steps)


def target_for(described: DescribedModel, names: list[str], options: dict[str, Any], **more: Any) -> Target:
    """The target of some variables, built with the `options` of `AutoStep` that concern a target."""
    concerned = ("differences", "support", "window", "integrate")
    own = {key: value for key, value in options.items() if key in concerned}
    return target_of(described, names, **own, with_numbers=True, **more)


def exact_step(
    described: DescribedModel, names: list[str], target: Target, options: dict[str, Any]
) -> DiscreteStep:
    """The step for variables whose differences are all exact.

    Parameters
    ----------
    target : the target of these variables, in whose space each site moves alone
    """
    model = described.model
    more = {**options, **restricted(options, model, names)}
    tree = target.interactions.tree or sums_at_once(target.density) is not None
    pairs = options.get("integrate") is None and not tree and bool(described.lines(names))
    if pairs:  # in `target` each site moves alone; a new target can also move pairs of counts
        exact = {**more, "differences": "exact"}
        target = target_for(described, names, exact, constrained=True, equations=True)
    clusters = not (tree or pairs) and clusters_suit(cast(ModelDensity, target.density))
    kind = TreeGibbs if tree else SwendsenWang if clusters else BlockGibbs
    say_chosen(kind, names, cast(ModelDensity, target.density))
    step = kind(names, model=model, _target=target, **more)
    if pairs:
        step.along = counts_along(step)
    return step


def say_chosen(kind: type[DiscreteStep], names: list[str], density: ModelDensity) -> None:
    """Log which step draws some variables, and a warning where their differences may be far off."""
    _log.info(f"AutoStep: {kind.__name__} for {shown(names)}: {WHY[kind]}")
    guessed = [name for name in density.plan.guessed_choices if name in names]
    if guessed:
        choose, whose = ("chooses", "its") if len(guessed) == 1 else ("choose", "their")
        _log.warning(
            f"AutoStep: {shown(guessed)} {choose} among values, as in mu[z], and {whose} differences "
            "are estimates by a gradient, which may be off by many nats: the chain is right but may "
            "hardly move. Pass differences='exact' to AutoStep, or write the term so that each of "
            "its elements depends on few sites."
        )


def sampled_instead(model: pm.Model, names: list[str]) -> list[Any]:
    """The steps for discrete variables that would be summed out if other steps had left a variable
    to NUTS."""
    drawn = steps_for(DescribedModel(model), names, all_in_jax=True)
    return getattr(drawn, "methods", [drawn])


def counts_along(step: DiscreteStep) -> list[str]:
    """Variables, in the space of a step, that are counts which limit each other, and that NUTS may also move.

    If some counts of the step mix slowly with continuous variables that NUTS moves, all counts of the step
    are named. None are named where counts are independent given the continuous variables, such as the
    abundances at several places: draws of each from its conditional are as good as moves by NUTS.
    """
    moved = for_nuts(step.model)
    density, space = cast(ModelDensity, step.target.density), step.target.space
    if not moved or not tied_counts(density, moved):
        return []
    return [
        v.name
        for start, v in space.blocks
        if v.constraint is None
        and not space.nominal[start : start + v.size].any()
        and (v.upper - v.lower > 1).all()
    ]


def with_step_of_vectors(
    described: DescribedModel, vectors: list[str], names: list[str], all_in_jax: bool, options: dict[str, Any]
) -> BlockedStep | CompoundStep:
    """The step for discrete variables, or one step made of several, where elements of the `vectors` cannot
    change alone.

    The vectors get a step of their own, for which conditionals must be exact, whatever they cost. None of
    PyMC's own steps can move them.
    """
    if options.get("integrate") is not None:
        raise ValueError(
            f"integrate= does not go with {shown(vectors)}, whose elements change together. Leave "
            "integrate= out, or name the variables that are to move with coefficients integrated out, and "
            f"give {shown(vectors)} a pmd.BlockGibbs."
        )
    model = described.model
    for _, error in variables_without_jax(model, vectors).values():
        raise no_jax_version(vectors, error, None) from error
    others = [name for name in names if name not in vectors]
    steps: list[BlockedStep] = []
    if others:
        more = {**options, **restricted(options, model, others)}
        step = steps_for(described, others, all_in_jax=all_in_jax, **more)
        steps += getattr(step, "methods", [step])
    _log.info(f"AutoStep: BlockGibbs for {shown(vectors)}: elements change together")
    exact = {**options, **restricted(options, model, vectors), "differences": "exact"}
    steps.append(BlockGibbs(vectors, model=model, **exact))
    return steps[0] if len(steps) == 1 else CompoundStep(steps)


def with_steps_of_pymc(
    described: DescribedModel,
    names: list[str],
    without_jax: dict[str, tuple[str, NotImplementedError]],
    options: dict[str, Any],
) -> BlockedStep | CompoundStep:
    """The step for discrete variables, or one step made of several, where some enter terms that JAX cannot
    run.

    Parameters
    ----------
    without_jax : {variable that enters such a term: (name of the term, the error for it)}
    """
    model = described.model
    steps = [pymc_step(model, name, *reason) for name, reason in without_jax.items()]
    if names := [n for n in names if n not in without_jax]:
        step = steps_for(described, names, **{**options, **restricted(options, model, names)})
        # Steps of this package come last: their statistics contain the model's log density, which must be
        # evaluated after all steps of the draw.
        steps += getattr(step, "methods", [step])
    return steps[0] if len(steps) == 1 else CompoundStep(steps)


def pymc_step(model: pm.Model, name: str, term: str, error: NotImplementedError) -> BlockedStep:
    """PyMC's own best step for a discrete variable, which enters a term that JAX cannot run.

    Parameters
    ----------
    name : the value variable
    term : name of the term
    error : the error for the term
    """
    value = next(v for v in model.value_vars if v.name == name)
    rv = model.values_to_rvs[value]
    kind = max(
        (k for k in STEP_METHODS if not issubclass(k, DiscreteStep)),
        key=lambda k: max(k._competence(rv, False)),
    )
    why = str(error).splitlines()[0]
    _log.info(
        f"AutoStep: PyMC's {kind.__name__} for {name!r}: it enters {term!r}, which has an Op without a JAX "
        f"version ({why})"
    )
    step = kind([value], model=model)
    step.vars = [values_by_name(model)[name]]
    return step


def restricted(options: dict[str, Any], model: Any, names: list[str]) -> dict[str, Any]:
    """The options that are dictionaries by variable, reduced to the keys of these variables."""
    out: dict[str, Any] = {}
    for key in ("support", "window"):
        if isinstance(options.get(key), dict):
            given = options[key].items()
            out[key] = {
                k: v for k, v in given if block_of(model, k, constrained=True, equations=True)[0] in names
            }
    return out
