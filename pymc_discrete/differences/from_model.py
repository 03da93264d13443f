"""A target from a PyMC model and some of its discrete variables."""

from typing import Any, cast

import numpy as np
import pymc as pm

from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.integrals.augmented import augmented, refuse_outside_of_program
from pymc_discrete.integrals.conjugate import conjugate_in, conjugate_parameters, why_not_integrated
from pymc_discrete.integrals.integrate import quadratic_in
from pymc_discrete.model.blocks import CONTINUOUS, block_of, model_of, value_name
from pymc_discrete.model.described import DescribedBlock, DescribedModel
from pymc_discrete.model.identity import key_of_object
from pymc_discrete.model.kept_for_models import KeptForModels
from pymc_discrete.model.logp import logp_graph
from pymc_discrete.model.structure_of_model import Structure
from pymc_discrete.runtime.checks import check_way
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.waiting import watched
from pymc_discrete.space.target import Target

_kept: KeptForModels[ModelDensity, ModelDensity] = KeptForModels("densities of discrete variables")


def target_from_model(
    model: pm.Model | None = None,
    vars: Any = None,
    *,
    differences: str = "auto",
    support: dict[str, tuple[Any, Any]] | None = None,
    window: Any = "auto",
    initial_point: dict[str, np.ndarray] | None = None,
    integrate: Any = None,
) -> Target:
    """A target from a PyMC model and some of its discrete variables.

    Parameters
    ----------
    model : pm.Model, optional
        The default is the model of the `with` block.
    vars : RV, name or value variable, or a list of them
        The block; by default every discrete free variable whose elements can change alone. Vectors of counts
        with a fixed sum and permutations, which `kernels.block_gibbs`, `gibbs_with_gradients` and
        `path_auxiliary` move, are taken where they are named.
    differences : {"auto", "exact", "gradient"}
        "auto" computes exact differences where their cost is acceptable and takes the gradient elsewhere;
        "exact" never takes the gradient; "gradient" always does (Grathwohl et al. 2021, Eq. 3 and 4).
    support : {name: (lower, upper)}, optional
        Inclusive bounds of variables, which take precedence over those of their distributions; None for a
        side without a bound.
    window : "auto", "geometric", int or {name: one of these}
        The neighbours of integers without a bound, or with more than 256 values if evaluating all of them
        costs too much: the offsets ±1, ±2, ±4, ..., or -w, ..., w for an integer w.
    initial_point : {value variable name: array}, optional
        A point that gives the shapes of the variables; by default `model.initial_point()`.
    integrate : None, "auto", or RV, name or value variable, or a list of them
        Continuous variables that are integrated out. Given all else, the log density must be a quadratic form
        in the variables; or labels select their elements, ``phi[z]``, and their prior is conjugate to the
        terms that read them. "auto" takes the conjugate variables; if there are none, it takes all variables
        with a quadratic form that the block's terms depend on. (Coefficients of a logistic or probit
        likelihood are integrated out in `sample` only.)

    Returns
    -------
    Target

    Raises
    ------
    ValueError
        For variables that cannot be sampled one coordinate at a time, with the reason and the remedy.
    """
    target = target_of(
        DescribedModel(model_of(model, vars), initial_point),
        vars,
        differences=differences,
        support=support,
        window=window,
        integrate=integrate,
        # Data stay constants of the density, since a user may make a factor graph of the target, which needs
        # constants.
        with_numbers=False,
        constrained=vars is not None,
    )
    density = cast(ModelDensity, target.density)
    refuse_outside_of_program(density.integrated, density.numbers)
    return target


def target_of(
    described: DescribedModel,
    vars: Any = None,
    *,
    differences: str = "auto",
    support: dict[str, tuple[Any, Any]] | None = None,
    window: Any = "auto",
    integrate: Any = None,
    with_numbers: bool,
    constrained: bool = False,
    equations: bool = False,
) -> Target:
    """A target like that of `target_from_model`, with further options.

    Parameters
    ----------
    constrained : whether the block may have vectors whose elements cannot change alone
    equations : whether linear equations become a constraint of the space if the log density is -inf where
        the equations do not hold, and counts that limit each other also move along lines
    with_numbers : whether data and constants of the model may be inputs of the density, which is then shared
        with models that differ only in them
    """
    model = described.model
    names = block_of(model, vars, constrained=constrained, equations=equations)
    check_way(differences)
    if support is not None and not isinstance(support, dict):
        raise TypeError(f"support must be a dictionary {{name: (lower, upper)}}, got {support!r}.")
    support = {value_name(model, k): v for k, v in (support or {}).items()}
    for name in support:
        if name not in names:
            raise ValueError(
                f"support names {name!r}, which is no variable of the block: {', '.join(names)}."
            )
    if isinstance(window, dict):
        window = {value_name(model, k): v for k, v in window.items()}
    missing = [str(v.name) for v in model.value_vars if v.name not in described.point]
    if missing:
        raise ValueError(
            f"initial_point has no value for {', '.join(missing)}. Give every value variable, as "
            "model.initial_point() does."
        )
    if not any(np.size(described.point[name]) for name in names):
        raise ValueError(
            f"{', '.join(map(repr, names))} has no elements: there is nothing to sample. Leave the step out."
        )
    with model_settings(), watched(f"Analysing how the log density depends on {shown(names)}"):
        options: dict[str, Any] = {"support": support}
        if equations:
            options["equations"] = described.equations(names)
            options["lines"] = described.lines(names) if integrate is None else {}
        integrated = coefficients_of(model, integrate, names)
        if integrated and (given := augmented(model, integrated)):
            described = DescribedModel(given.model, described.point | given.start)
        block = described.block(names, **options)
        return Target(density_of(block, differences, window, with_numbers, integrated))


def coefficients_of(model: pm.Model, integrate: Any, names: list[str]) -> tuple[str, ...]:
    """Names of the continuous value variables that are integrated out.

    Parameters
    ----------
    integrate : None, "auto", or RV, name or value variable, or a list of them, as in `target_from_model`
    names : value variables of the block

    Raises
    ------
    TypeError, ValueError
        If "auto" finds no variable that can be integrated out, or a variable that is named cannot be.
    """
    if integrate is None:
        return ()
    if isinstance(integrate, str) and integrate == "auto" and "auto" not in model.named_vars:
        if conjugate := conjugate_in(model, names, DescribedModel(model).point):
            return tuple(conjugate)
        given = augmented(model, names)
        written = model if given is None else given.model
        block = DescribedModel(written).block(names)
        with model_settings():
            chosen = quadratic_in(logp_graph(written, names, block.point, block.supports), written)
        if not chosen:
            raise ValueError(
                f"integrate='auto' finds nothing to integrate out: {shown(names)} selects elements of no "
                "parameter with a conjugate prior, and in no continuous variable without bounds that enters "
                "a term of it is the log density a quadratic form, as it is with Normal priors and a Normal "
                "or logistic likelihood of a linear predictor. Leave integrate= out."
            )
        return tuple(chosen)
    chosen = block_of(model, integrate, CONTINUOUS, "integrate")
    found = conjugate_parameters(model, DescribedModel(model).point)
    for rv, value in model.rvs_to_values.items():
        name = str(value.name)
        if name not in chosen or model.rvs_to_transforms[rv] is None:
            continue
        if (why := why_not_integrated(found, name, chosen)) is not None:
            raise ValueError(
                f"{rv.name!r} cannot be integrated out: its values have bounds, and {why}. Leave it out of "
                "integrate=; NUTS moves it then."
            )
    return tuple(chosen)


def density_of(
    block: DescribedBlock,
    differences: str,
    window: Any,
    with_numbers: bool,
    integrate: tuple[str, ...] = (),
    whole: tuple[str, ...] = (),
) -> ModelDensity:
    """A density that shares its analysis and compiled functions with models of the same structure.

    Parameters
    ----------
    block : the variables, described
    differences, window : how differences are computed, and the neighbours of sites without a finite support
    integrate : names of value variables that are integrated out
    whole : names of variables and potentials whose terms are counted among the terms of the block, even if
        they do not depend on it
    with_numbers : whether the numbers of the model are inputs of the density, and not constants in it; only
        then can models with other numbers share it
    """
    asked = (*block.key, differences, integrate, whole, key_of_object(window))

    def make(structure: Structure) -> ModelDensity:
        return ModelDensity(block, differences, window, structure=structure, integrate=integrate, whole=whole)

    def use(kept: ModelDensity, numbers: dict[str, np.ndarray]) -> ModelDensity | None:
        return kept.for_model(block.point, numbers)

    # Numbers in linear equations of sites are a part of the space, so a density with equations is not used
    # again for a model with other numbers.
    return _kept.get(block.model, asked, make, use, with_numbers and not block.equations)
