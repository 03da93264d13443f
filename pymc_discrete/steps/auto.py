"""The automatic choice of the steps for a model, and its registration with PyMC."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymc as pm
import pytensor
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep, Competence, CompoundStep

from pymc_discrete.collapse import choice
from pymc_discrete.collapse.integrated import chosen_coefficients as chosen_coefficients
from pymc_discrete.engine.nuts_options import OfNuts
from pymc_discrete.model.analyses_on_disk import analyses_kept
from pymc_discrete.model.blocks import DISCRETE, block_of, free, model_of, value_name
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.model.support import can_take, reason_refused
from pymc_discrete.model.without_jax import variables_without_jax
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.waiting import watched
from pymc_discrete.steps.base import JaxStep
from pymc_discrete.steps.collapsed_nuts import CollapsedNUTS
from pymc_discrete.steps.discrete import DiscreteStep
from pymc_discrete.steps.draws_ahead import DrawsAhead
from pymc_discrete.steps.for_nuts import for_nuts, moved_in_jax
from pymc_discrete.steps.nuts_in_jax import NutsInJax
from pymc_discrete.steps.suited import steps_for
from pymc_discrete.steps.whole_model import WholeModel
from pymc_discrete.tempering.options import replicas_of
from pymc_discrete.tempering.path import without_discrete

_log = logging.getLogger("pymc.discrete")

# {option that says how discrete variables are sampled: its default}; with another value nothing is summed out
HOW = {"differences": "auto", "transitions": "auto", "window": "auto", "start": "point", "blocked": True}


class AutoStep(DiscreteStep):
    """The best steps of `pymc_discrete` for a model, or for some of its discrete variables.

    Calling the class returns these steps, and a logged line names each step and the reason for it. Without
    `vars`, the class first looks for variables that need not be sampled, by the rules of
    `pmd.sample(collapse="auto")`:

    - counts that a term joins, by their amount, with continuous variables (the size of a population and the
      probability to be seen): `CollapsedNUTS` takes all continuous variables, with the counts summed out;
    - labels of mixtures with unknown weights, means and standard deviations: `CollapsedNUTS` takes all
      continuous variables, with the labels summed out;
    - coefficients that discrete variables gate, in a regression with indicators: `CollapsedNUTS` with
      `integrate` takes the coefficients, the indicators and the other continuous variables.

    Vectors of counts with a fixed sum (Multinomial), permutations, and counts of which linear combinations
    are known get a `BlockGibbs` of their own, which draws elements together. All other discrete variables get
    `BlockGibbs` where conditionals are exact, or `TreeGibbs` where the sites that interact are chains or
    trees (hidden Markov chains), or `SwendsenWang` where pairs of sites prefer equal values (lattices);
    `DiscreteLangevin` in continuous time where differences are gradient estimates. Variables that enter a
    term with an Op without a JAX version get PyMC's own step. A model that needs several steps has them in a
    `CompoundStep`.

    Parameters
    ----------
    vars : RV, name or value variable, or a list of them, optional
        Discrete variables to sample, none of which is summed out; by default all of them.
    differences, transitions, support, window, start, integrate, target_accept, nuts
        Options of the steps for discrete variables, as in `GibbsWithGradients`. If one of these options is
        given, discrete variables are sampled in the way that it says, and nothing is summed or integrated
        out; `support` has this effect for the variables that it names only.
    temper : bool or dict
        As in `pmd.sample`: replicas at inverse temperatures between the prior and the posterior, for chains
        that do not stay in one mode. The step then moves the whole model, and no other step may stand beside
        it. The log says what the group ``tempering`` of `pmd.sample` holds.
    model, blocked, rng, initial_point, compile_kwargs
        As in PyMC's own steps; `compile_kwargs` has no effect, since these steps compile through JAX.

    Raises
    ------
    ValueError
        For variables or options that this step cannot take. The message gives the reason and the remedy.

    Notes
    -----
    Where conditionals are exact, a sweep over all sites costs about one evaluation of all differences. Every
    other method of this package pays as much for a proposal that changes only some of the sites and may be
    rejected. See "Which sampler?" in the documentation.

    Examples
    --------
    >>> with pm.Model():
    ...     z = pm.Categorical("z", p=[0.2, 0.3, 0.5], shape=10)
    ...     idata = pm.sample(step=pmd.AutoStep())  # doctest: +SKIP
    """

    name = "auto_step"

    @watched("Choosing the steps")
    def __new__(cls, vars: Any = None, **options: Any) -> Any:
        cls.check_options(options)
        model = model_of(options.pop("model", None), vars, cls.__name__)
        names = block_of(model, vars, constrained=True, equations=True)
        # A bare pm.sample() gives PyMC's Metropolis to discrete variables that no step of the package can
        # take. AutoStep leaves such variables at their starting values, and logs that.
        for name in free(model, DISCRETE):
            if name not in names and (why := reason_refused(model, name, constrained=True, equations=True)):
                _log.warning(f"AutoStep: no step moves {name!r}, which is {why}.")
        of_nuts = OfNuts.of_step(options.pop("target_accept", 0.8), options.pop("nuts", None))
        replicas = replicas_of(options.pop("temper", False))
        with analyses_kept(model):
            made = cls._chosen(model, vars, names, options, of_nuts, replicas is not None)
        return made if replicas is None else with_replicas(made, replicas)

    @staticmethod
    def _chosen(
        model: pm.Model, vars: Any, names: list[str], options: dict[str, Any], of_nuts: OfNuts, tempered: bool
    ) -> Any:
        """The step, or several in a `CompoundStep`, for the variables in `names`.

        Parameters
        ----------
        vars, options : the arguments of `AutoStep`
        tempered : whether the chain has replicas
        """
        asked = options.get("integrate") is not None or any(options.get(o, v) != v for o, v in HOW.items())
        described = DescribedModel(model, options.get("initial_point"))
        first = None
        if vars is None and not asked:
            first = not_sampled(described, names, options, of_nuts, tempered)
        left = names if first is None else [name for name in names if name not in first.own_variables]
        if first is not None and not left:
            return first
        others = steps_for(described, left, **options)
        if vars is not None or not options.get("blocked", True):
            return others
        steps = getattr(others, "methods", [others])
        return of_whole_model([*steps, *([] if first is None else [first])], of_nuts)

    @classmethod
    def option_names(cls) -> list[str]:
        return [*super().option_names(), "temper"]

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        return Competence.IDEAL if can_take(var) else Competence.INCOMPATIBLE


def with_replicas(step: Any, replicas: int | str) -> Any:
    """The step, which from now on makes its draws with replicas.

    Raises
    ------
    ValueError
        If the step does not move the whole model in one program.
    """
    if not (isinstance(step, DrawsAhead) and step.draws_ahead):
        raise ValueError(
            "temper= needs the whole model in one JAX program, which this step is not: name no vars, leave "
            "out blocked=False, and look above for a variable that PyMC's own step moves."
        )
    step.temper(replicas)
    return step


def of_whole_model(steps: list[Any], of_nuts: OfNuts) -> BlockedStep | CompoundStep:
    """One step for several, which makes its draws ahead if one program can move the whole model.

    Parameters
    ----------
    of_nuts : options of the NUTS that moves the continuous variables
    """
    ours = all(isinstance(s, JaxStep | NutsInJax) for s in steps)
    by_nuts = moved_in_jax(steps[0].model) if ours else None
    if by_nuts is None:
        return steps[0] if len(steps) == 1 else CompoundStep(steps)
    left = [name for name in by_nuts if not any(name in s.own_variables for s in steps)]
    if len(steps) > 1:
        return WholeModel(steps, left, of_nuts)
    if not steps[0].draws_ahead:
        steps[0].draw_ahead(left, of_nuts)
    return steps[0]


def not_sampled(
    described: DescribedModel,
    names: list[str],
    options: dict[str, Any],
    of_nuts: OfNuts,
    tempered: bool = False,
) -> BlockedStep | None:
    """The step that sums discrete variables out, or integrates coefficients out, if that pays.

    This step takes all continuous variables that PyMC gives to NUTS.

    Parameters
    ----------
    names : discrete variables
    options : the options of `AutoStep`
    of_nuts : options of NUTS
    tempered : whether discrete variables are to be summed out along the path of a tempered model, if possible
    """
    model = described.model
    named = {value_name(model, v) for v in options.get("support") or ()}
    vectors = described.moved_together(names)
    names = [name for name in names if name not in named and name not in vectors]
    if not names or not model.continuous_value_vars or pytensor.config.floatX != "float64":
        return None
    moved = for_nuts(model)
    if not moved:
        return None
    shared: dict[str, Any] = {key: options[key] for key in ("rng", "initial_point") if key in options}
    remedies = (
        f"pmd.AutoStep([{shown(names)}])",
        f"pmd.CollapsedNUTS([{shown([*moved, *names])}])",
    )
    collapsed = None
    if tempered and names == described.discrete and (found := without_discrete(model, names)):
        _, collapsed = found
    collapsed = collapsed or choice.variables_to_sum_out(described, names, moved, *remedies)
    if collapsed:
        names, integrate = collapsed.density.names, None
    else:
        integrate = chosen_coefficients(described, names, moved, remedies[0]) or None
    if not collapsed and not integrate:
        return None
    without_jax = variables_without_jax(model, [str(v.name) for v in model.value_vars])
    if without_jax:
        term, error = next(iter(without_jax.values()))
        _log.info(f"Sampled all the same: {term!r} has an Op without a JAX version. {error}".splitlines()[0])
        return None
    shared |= {"target_accept": of_nuts.target_accept, "max_treedepth": of_nuts.nuts["max_treedepth"]}
    return CollapsedNUTS([*moved, *names], integrate=integrate, model=model, **shared)


def register() -> None:
    """Let `pm.sample()` use `AutoStep` by default for every discrete variable that it can take.

    All other variables stay with PyMC's own steps.
    """
    if AutoStep not in STEP_METHODS:
        # `AutoStep` comes first, since PyMC takes the first of several steps with the same competence
        STEP_METHODS.insert(0, AutoStep)


def unregister() -> None:
    """Undo `register`."""
    if AutoStep in STEP_METHODS:
        STEP_METHODS.remove(AutoStep)


@contextmanager
def registered() -> Iterator[None]:
    """`register` within a `with` block.

    Examples
    --------
    >>> with pmd.registered(), model:
    ...     idata = pm.sample()  # doctest: +SKIP
    """
    before = AutoStep in STEP_METHODS
    register()
    try:
        yield
    finally:
        if not before:
            unregister()
