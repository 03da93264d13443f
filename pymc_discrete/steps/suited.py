"""The steps that suit discrete variables, by how the differences of their log density are found."""

import logging
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pymc as pm
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep, CompoundStep

from pymc_discrete.collapse.at_once import sums_at_once
from pymc_discrete.collapse.choice import tied_counts
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.differences.from_model import lines_of, target_of
from pymc_discrete.model.blocks import block_of
from pymc_discrete.model.equations import equations_of
from pymc_discrete.model.initial import point_of
from pymc_discrete.model.support import is_constrained
from pymc_discrete.model.untouched import terms_without_jax
from pymc_discrete.model.without_jax import no_jax_version, variables_without_jax
from pymc_discrete.runtime.names import shown
from pymc_discrete.steps.discrete import DiscreteStep
from pymc_discrete.steps.for_nuts import for_nuts
from pymc_discrete.steps.methods import BlockGibbs, DiscreteLangevin, TreeGibbs

_log = logging.getLogger("pymc.discrete")


# the reason that is logged for a step, which then says itself how it finds the differences of its variables
WHY = {
    BlockGibbs: "conditionals are exact",
    TreeGibbs: "conditionals are exact, and the sites that interact are drawn at once",
    DiscreteLangevin: "differences are first-order",
}


def steps_for(
    model: pm.Model, names: list[str], *, all_in_jax: bool = False, **options: Any
) -> BlockedStep | CompoundStep:
    """The step of discrete variables, or one of several steps, and a logged line for each.

    Parameters
    ----------
    names : value variables
    all_in_jax : whether a term without a JAX version is refused, instead of left to PyMC's own steps
    options : of `AutoStep`

    Raises
    ------
    NotImplementedError, ValueError
        As `AutoStep`.
    """
    vectors = moved_together(model, names, options.get("initial_point"))
    if vectors:
        return with_step_of_vectors(model, vectors, names, all_in_jax, options)
    target_options: dict[str, Any] = {
        key: options[key]
        for key in ("differences", "support", "window", "initial_point", "integrate")
        if key in options
    }
    try:
        target = whole = target_of(model, names, **target_options, with_numbers=True)
        without_jax = terms_without_jax(cast(ModelDensity, target.density).graph.terms, names)
    except NotImplementedError:  # some Ops without a JAX version already fail when the graph is analysed
        without_jax = variables_without_jax(model, names)
        if not without_jax:
            raise
    if without_jax and all_in_jax:
        raise next(error for _, error in without_jax.values())
    if without_jax and options.get("integrate") is not None:
        raise next(error for _, error in without_jax.values())
    if without_jax:
        names = [n for n in names if n not in without_jax]
        pymc_steps = [pymc_step(model, name, *reason) for name, reason in without_jax.items()]
        if not names:
            return pymc_steps[0] if len(pymc_steps) == 1 else CompoundStep(pymc_steps)
        step = steps_for(model, names, **{**options, **restricted(options, model, names)})
        # Our steps come last, because their statistics contain the model's log density, which has to be
        # that after all steps of the draw.
        return CompoundStep([*pymc_steps, *getattr(step, "methods", [step])])
    descriptions = target.describe()
    exact = [name for name in names if descriptions[name]["exact"]]
    steps: list[BlockedStep] = []
    if options.get("integrate") is not None and len(exact) < len(names):
        raise ValueError(
            "integrate= needs one step for all variables, and that of "
            f"{shown([n for n in names if n not in exact])} would take gradients. Pass "
            "differences='exact', or name the variables of one step."
        )
    if 0 < len(exact) < len(names):
        target_options |= restricted(target_options, model, exact)
        target = target_of(model, exact, **target_options, with_numbers=True)
    tree = bool(exact) and (target.interactions.tree or sums_at_once(target.density) is not None)
    # The pairs of counts that move together are a part of a target's space. `target` was made without them:
    # the step is not given it, and makes its own.
    point = options.get("initial_point") or point_of(model)
    pairs = options.get("integrate") is None and not tree and bool(lines_of(model, exact, point))
    kinds: tuple[tuple[list[str], type[DiscreteStep], dict[str, Any]], ...] = (
        (exact, TreeGibbs if tree else BlockGibbs, {} if pairs else {"_target": target}),
        ([n for n in names if n not in exact], DiscreteLangevin, {"proposal": "dlmc"}),
    )
    for chosen, kind, kind_options in kinds:
        if not chosen:
            continue
        _log.info(f"AutoStep: {kind.__name__} for {shown(chosen)}: {WHY[kind]}")
        guessed = [name for name in cast(ModelDensity, whole.density).plan.guessed_choices if name in chosen]
        if guessed:
            choose, whose = ("chooses", "its") if len(guessed) == 1 else ("choose", "their")
            _log.warning(
                f"AutoStep: {shown(guessed)} {choose} among values, as in mu[z], and {whose} differences "
                "are estimates by a gradient, which may be off by many nats: the chain is right but may "
                "hardly move. Pass differences='exact' to AutoStep, or write the term so that each of "
                "its elements depends on few sites."
            )
        step = kind(chosen, model=model, **kind_options, **{**options, **restricted(options, model, chosen)})
        if kind is BlockGibbs and pairs:
            step.along = counts_along(step)
        steps.append(step)
    return steps[0] if len(steps) == 1 else CompoundStep(steps)


def sampled_instead(model: pm.Model, names: list[str]) -> list[Any]:
    """The steps of discrete variables that would be summed out, had other steps left something to NUTS."""
    drawn = steps_for(model, names, all_in_jax=True)
    return getattr(drawn, "methods", [drawn])


def counts_along(step: DiscreteStep) -> list[str]:
    """Variables of the space of a step of counts that limit each other, which NUTS may move along.

    They are its counts, if some are tied to continuous variables that NUTS moves. Of counts that are
    independent given these, as the abundances of sites, conditionals are as good.
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


def moved_together(
    model: pm.Model, names: list[str], point: Mapping[str, np.ndarray] | None = None
) -> list[str]:
    """Those of some value variables that cannot change alone: tied by equations, or `is_constrained`.

    Parameters
    ----------
    point : a point of the model, by default its initial point
    """
    tied = {name for e in equations_of(model, names, point) for name in e.coefficients}
    vectors = {str(v.name) for rv, v in model.rvs_to_values.items() if is_constrained(rv)}
    return [name for name in names if name in tied | vectors]


def with_step_of_vectors(
    model: pm.Model, vectors: list[str], names: list[str], all_in_jax: bool, options: dict[str, Any]
) -> BlockedStep | CompoundStep:
    """The steps of discrete variables of which the elements of `vectors` cannot change alone, as `steps_for`.

    The vectors get a step of their own, for which conditionals must be exact, whatever they cost. None of
    PyMC's own steps can move them.
    """
    if options.get("integrate") is not None:
        raise ValueError(
            f"integrate= does not go with {shown(vectors)}, whose elements change together. Leave "
            "integrate= out, or name the variables that are to move with coefficients integrated out, and "
            f"give {shown(vectors)} a pmd.BlockGibbs."
        )
    for _, error in variables_without_jax(model, vectors).values():
        raise no_jax_version(vectors, error, None) from error
    others = [name for name in names if name not in vectors]
    steps: list[BlockedStep] = []
    if others:
        step = steps_for(
            model, others, all_in_jax=all_in_jax, **{**options, **restricted(options, model, others)}
        )
        steps += getattr(step, "methods", [step])
    _log.info(f"AutoStep: BlockGibbs for {shown(vectors)}: elements change together")
    exact = {**options, **restricted(options, model, vectors), "differences": "exact"}
    steps.append(BlockGibbs(vectors, model=model, **exact))
    return steps[0] if len(steps) == 1 else CompoundStep(steps)


def pymc_step(model: pm.Model, name: str, term: str, error: NotImplementedError) -> BlockedStep:
    """PyMC's own best step for a discrete variable, which enters a term that JAX cannot run.

    Parameters
    ----------
    name : the value variable
    term : name of the term
    error : what was raised for the term
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
    return kind([value], model=model)


def restricted(options: dict[str, Any], model: Any, names: list[str]) -> dict[str, Any]:
    """The options that are dictionaries by variable, reduced to the entries of these variables."""
    out: dict[str, Any] = {}
    for key in ("support", "window"):
        if isinstance(options.get(key), dict):
            given = options[key].items()
            out[key] = {
                k: v for k, v in given if block_of(model, k, constrained=True, equations=True)[0] in names
            }
    return out
