"""Remedies for chains that are in different modes."""

from collections.abc import Sequence

from pymc_discrete.diagnostics.facts import Facts
from pymc_discrete.diagnostics.known.leaving import Leaving
from pymc_discrete.diagnostics.labels.agreement import equally_probable
from pymc_discrete.model.support import improper_priors, is_nominal
from pymc_discrete.runtime.names import shown


def of_modes(facts: Facts, names: Sequence[str], several: bool) -> str:
    """A sentence with the remedy for variables whose chains are in different modes.

    Parameters
    ----------
    several : whether the variables have several sites, which might change together
    """
    if index := of_index(facts, names):
        return f"The shares of the values are those of the starts and not of the posterior. {index}"
    known = [facts.judged[name].known for name in names]
    means = ", ".join(f"{mean:.1f}" for mean in facts.lp.mean(axis=1))
    alike = equally_probable(facts.lp)
    if alike:
        text = (
            f"All chains have the same mean lp up to its Monte Carlo error ({means}): no mode is better, and "
            "their shares are those of the starts and not of the posterior. "
        )
    else:
        text = (
            f"The mean lp of each chain: {means}. The shares of the modes are those of the starts and not of "
            "the posterior. "
        )
    text += by_tempering(facts)
    if all(of is not None and (of.joint or of.summed) for of in known):
        best = "" if alike else "Pass initvals= of the continuous variables in the mode with the highest. "
        is_drawn = "is" if len(names) == 1 else "are"
        return (
            f"{text}The chains are in different modes of the variables beside {shown(names)}, which "
            f"{is_drawn} drawn exactly given these, so that no other step helps. {best}If modes differ by "
            "the order of states only, constrain it (transform=pm.distributions.transforms.ordered, with an "
            "initval= in increasing order)"
        )
    if not several:
        return f"{text}Draw more{or_summed_out(facts, names)}"
    step = facts.remedies.several_sites(names)
    if not step.startswith("pmd.FlowStep"):
        step = (
            f"another step, that moves sites together ({step}), or pmd.FlowStep, whose flow is fitted to "
            "these draws"
        )
    return f"{text}If more draws do not join them, try {step}"


def by_tempering(facts: Facts) -> str:
    """A sentence about tempering, if the run was not tempered and could have been; else nothing."""
    model = facts.model
    possible = (model.observed_RVs or model.potentials) and not improper_priors(model)
    if not possible or "tempering" in facts.tree.children:
        return ""
    return "With temper=True chains pass from mode to mode: pmd.sample(temper=True), see docs/tempering.md. "


def of_index(facts: Facts, names: Sequence[str]) -> str:
    """The remedy if one of the variables, such as an index of models, and continuous variables hold each
    other at their values; "" if none does.

    The text does not name the mean log density of each chain: models differ in the parameters that wander
    over their priors, so the densities do not say which model is more probable.
    """
    for name in names:
        known = facts.judged[name].known
        if known is not None and (known.unused or known.is_alone.any()):
            return by_tempering(facts) + of_models(repr(name), known)
    return ""


def of_models(name: str, known: Leaving) -> str:
    """The remedy if a discrete variable and continuous ones hold each other at their values."""
    unused = ""
    if known.unused:
        several = len(known.unused) > 1
        does, wanders = ("do", "wander over their priors") if several else ("does", "wanders over its prior")
        unused = (
            f"{shown(known.unused)} {does} not enter the likelihood where a chain ended and {wanders}: "
            f"{name} chooses among models. "
        )
    return (
        f"{unused}How probable its values are, pmd.log_evidence tells, of the model with each of them: "
        f"pmd.log_evidence(pm.observe(model, {{{name}: value}}))"
    )


def or_summed_out(facts: Facts, names: Sequence[str]) -> str:
    """The end of a sentence that advises to sum out the counts among some variables; "" if that is not
    possible.
    """
    counts = [name for name in facts.remedies.to_sum_out(names) if not is_nominal(facts.model, name)]
    if not counts or not facts.remedies.can_be_summed_out(counts):
        return ""
    them = shown(counts) if len(counts) < len(names) else "it" if len(counts) == 1 else "them"
    return f", or sum {them} out while NUTS moves: pmd.sample(collapse=[{shown(counts)}])"
