"""The automatic choice of a step, and its registration with PyMC."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pymc as pm
from pymc.model import modelcontext
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep, Competence, CompoundStep

from pymc_discrete.steps.block_gibbs import BlockGibbs
from pymc_discrete.steps.discrete import DiscreteStep
from pymc_discrete.steps.discrete_langevin import DiscreteLangevin
from pymc_discrete.steps.tree_gibbs import TreeGibbs
from pymc_discrete.targets.blocks import block_of
from pymc_discrete.targets.from_model import ModelDensity, target_from_model
from pymc_discrete.targets.graph.untouched import terms_without_jax
from pymc_discrete.targets.names import merged_texts, shown
from pymc_discrete.targets.support import can_take

_log = logging.getLogger("pymc.discrete")


WHY = {
    BlockGibbs: "conditionals are exact",
    TreeGibbs: "conditionals are exact, and the sites that interact are chains or trees, drawn at once",
    DiscreteLangevin: "differences are first-order",
}


class AutoStep(DiscreteStep):
    """The best step of `pymc_discrete` for each discrete variable of a model.

    Calling the class returns that step: `BlockGibbs` for the variables whose conditionals are exact, or
    `TreeGibbs` where the sites that interact are chains or trees (hidden Markov chains); `DiscreteLangevin`
    in continuous time for variables known by a gradient only; both, in a `CompoundStep`, where a model has
    both kinds. Variables that enter a term with an Op without a JAX version get PyMC's own step. One logged
    line says what and why.

    Parameters
    ----------
    vars : RV, name or value variable, or a list of them, optional
        What to sample; by default every discrete free variable that is no constrained vector.
    differences, transitions, support, window, start, model, blocked, rng, initial_point, compile_kwargs
        As in `GibbsWithGradients`.

    Raises
    ------
    ValueError
        For variables or options that cannot be sampled so, each with the reason and the remedy.

    Notes
    -----
    Where conditionals are exact, a sweep over all sites costs about one evaluation of all differences,
    and every other method of this package pays as much for a proposal that moves some of the sites and may be
    rejected. See "Which sampler?" in the documentation.

    Examples
    --------
    >>> with pm.Model():
    ...     z = pm.Categorical("z", p=[0.2, 0.3, 0.5], shape=10)
    ...     idata = pm.sample(step=pmd.AutoStep())  # doctest: +SKIP
    """

    name = "auto_step"

    def __new__(cls, vars: Any = None, *, _all_in_jax: bool = False, **options: Any):
        cls.check_options(options)
        model = modelcontext(options.get("model"))
        names = block_of(model, vars)
        asked: dict[str, Any] = {
            key: options[key]
            for key in ("differences", "support", "window", "initial_point")
            if key in options
        }
        try:
            target = whole = target_from_model(model, names, **asked)
            left = terms_without_jax(cast(ModelDensity, target.density).graph.terms, names)
        except NotImplementedError:  # some Ops say so as soon as they are looked at
            left = left_to_pymc(model, names)
            if not left:
                raise
        if left and _all_in_jax:
            raise next(refusal for _, refusal in left.values())
        if left:
            names = [n for n in names if n not in left]
            theirs = [pymc_step(model, name, *why) for name, why in left.items()]
            if not names:
                return theirs[0] if len(theirs) == 1 else CompoundStep(theirs)
            ours = cls(names, **{**options, **restricted(options, model, names)})
            return CompoundStep(
                [*theirs, *getattr(ours, "methods", [ours])]
            )  # ours last: it knows the model's log density
        rows = target.describe()
        exact = [name for name in names if rows[name]["exact"]]
        steps: list[BlockedStep] = []
        if 0 < len(exact) < len(names):
            target = target_from_model(model, exact, **{**asked, **restricted(asked, model, exact)})
        tree = bool(exact) and target.tree
        kinds: tuple[tuple[list[str], type[DiscreteStep], dict[str, Any]], ...] = (
            (exact, TreeGibbs if tree else BlockGibbs, {"_target": target}),
            ([n for n in names if n not in exact], DiscreteLangevin, {"proposal": "dlmc"}),
        )
        for chosen, kind, more in kinds:
            if not chosen:
                continue
            reasons = "; ".join(
                text for _, text in merged_texts({name: rows[name]["reason"] for name in chosen})
            )
            _log.info(f"AutoStep: {kind.__name__} for {shown(chosen)}: {WHY[kind]} ({reasons})")
            guessed = [
                name for name in cast(ModelDensity, whole.density).plan.guessed_choices if name in chosen
            ]
            if guessed:
                choose = "chooses" if len(guessed) == 1 else "choose"
                _log.warning(
                    f"AutoStep: {shown(guessed)} {choose} among values, as in mu[z], and of how the density "
                    "changes with that only a gradient is known, which may be off by many nats: the chain "
                    "is right but may hardly move. Pass differences='exact' to AutoStep, or write the term "
                    "so that each of its elements depends on few sites."
                )
            steps.append(kind(chosen, **more, **{**options, **restricted(options, model, chosen)}))
        return steps[0] if len(steps) == 1 else CompoundStep(steps)

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        return Competence.IDEAL if can_take(var) else Competence.INCOMPATIBLE


def left_to_pymc(model: pm.Model, names: list[str]) -> dict[str, tuple[str, NotImplementedError]]:
    """{value variable: (a term that it enters, what JAX says of it)} of the variables that no step in JAX can
    take.
    """
    labels = [str(v.name) for v in model.free_RVs + model.observed_RVs + model.potentials]
    return terms_without_jax(list(zip(labels, model.logp(sum=False), strict=True)), names)


def pymc_step(model: pm.Model, name: str, term: str, refusal: NotImplementedError) -> BlockedStep:
    """PyMC's own best step for a discrete variable."""
    value = next(v for v in model.value_vars if v.name == name)
    rv = model.values_to_rvs[value]
    kind = max((k for k in STEP_METHODS if k is not AutoStep), key=lambda k: max(k._competence(rv, False)))
    why = str(refusal).splitlines()[0]
    _log.info(
        f"AutoStep: PyMC's {kind.__name__} for {name!r}: it enters {term!r}, which has an Op without a JAX "
        f"version ({why})"
    )
    return kind([value], model=model)


def restricted(options: dict[str, Any], model: Any, names: list[str]) -> dict[str, Any]:
    """The options that name variables, for some of these only."""
    out: dict[str, Any] = {}
    for key in ("support", "window"):
        if isinstance(options.get(key), dict):
            out[key] = {k: v for k, v in options[key].items() if block_of(model, k)[0] in names}
    return out


def register() -> None:
    """Let a bare `pm.sample()` use `AutoStep` for every discrete variable that it can take; everything else
    stays with PyMC's own steps.
    """
    if AutoStep not in STEP_METHODS:
        STEP_METHODS.insert(0, AutoStep)  # first, since ties go to the first


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
