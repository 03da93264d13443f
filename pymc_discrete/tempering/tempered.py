"""PyMC models whose likelihood is raised to a power."""

from collections import Counter

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import PartialObservedRV
from pymc.logprob.basic import conditional_logp
from pymc.model.fgraph import (
    fgraph_from_model,
    model_deterministic,
    model_free_rv,
    model_from_fgraph,
    model_potential,
)
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import graph_inputs

from pymc_discrete.collapse.marginalize import without_starts
from pymc_discrete.model.logp import terms_of, without_checks
from pymc_discrete.model.support import improper_priors
from pymc_discrete.runtime.names import shown

BETA = "~inverse temperature"  # the name of a free variable of the tempered model, which no step moves
LIKELIHOOD = "~log likelihood"  # the name of a Deterministic of the tempered model


def tempered(model: pm.Model) -> pm.Model:
    r"""The model with its likelihood raised to a power, the value of a new variable `BETA`.

    .. math:: p_\beta(\theta) \propto p(\theta) \, p(y \mid \theta)^\beta

    The log densities of observed variables, and the potentials, are the likelihood. Each becomes a potential,
    times the power; their sum is the Deterministic `LIKELIHOOD`. All other Deterministics are left out.

    Raises
    ------
    ValueError
        If the model has no likelihood.
    NotImplementedError
        If the likelihood of a variable has no term of its own.
    """
    if not model.observed_RVs and not model.potentials:
        raise ValueError(
            "The model has no observed variable and no potential, so that its evidence is 1. Pass observed= "
            "to what was observed."
        )
    partial = [str(v.name) for v in model.observed_RVs if isinstance(v.owner.op, PartialObservedRV)]
    if partial:
        raise NotImplementedError(
            f"{shown(partial)}: some elements are missing and depend on those that are observed, so that the "
            "likelihood has no term of its own. Make the variable of the observed elements alone."
        )
    terms_of(model)  # raises PyMC's error, with the name, for a variable whose log density PyMC cannot write
    values = {rv: rv.type(name=rv.name) for rv in model.free_RVs}
    terms = observed_log_densities(model, values)
    graph, new = fgraph_from_model(without_starts(model))
    named = [*model.basic_RVs, *model.deterministics, *model.data_vars]
    replace = {new[v]: new[v] for v in named} | {value: new[rv] for rv, value in values.items()}
    replace |= {v: new[v] for v in graph_inputs(terms) if isinstance(v, SharedVariable) and v in new}
    labels = [str(v.name) for v in [*model.observed_RVs, *model.potentials]]
    terms += [new[p].owner.inputs[0] for p in model.potentials]
    likelihood = without_checks(labels, terms, replace)
    for v in [*model.deterministics, *model.potentials, *model.observed_RVs]:
        graph.remove_output(graph.outputs.index(new[v]))
    flat = pm.Flat.dist()
    beta = model_free_rv(flat, flat.type(name=BETA), None, BETA)
    seen: Counter[str] = Counter()
    potentials = []
    # A check of the parameters of a distribution is a term of its own, under the name of the distribution's
    # term, so that a name may occur twice.
    for name, term in likelihood:
        seen[name] += 1
        number = f", {seen[name]}" if seen[name] > 1 else ""
        potentials.append(model_potential(beta * term, f"{name} (tempered{number})"))
    total = pt.add(pt.constant(0.0), *(pt.sum(term) for _, term in likelihood))
    for v in [beta, *potentials, model_deterministic(total, LIKELIHOOD)]:
        graph.add_output(v, import_missing=True)
    for v in model.observed_RVs:  # a prior may depend on observed values, which stay in the model
        _, data, *_ = new[v].owner.inputs
        graph.replace(new[v], data.astype(v.type.dtype), import_missing=True)
    result = model_from_fgraph(graph, mutate_fgraph=True)
    result.set_initval(result[BETA], 1.0)
    for rv, start in model.rvs_to_initial_values.items():
        if rv in model.free_RVs and start is not None and not isinstance(start, Variable):
            result.set_initval(result[str(rv.name)], start)
    return result


def check_proper(model: pm.Model) -> None:
    """Refuse an improper prior, since there is no path between it and the posterior.

    Raises
    ------
    ValueError
        For the variables whose prior is improper.
    """
    if improper := improper_priors(model):
        raise ValueError(
            f"temper= moves between the prior and the posterior, and the prior of {shown(improper)} is "
            "improper. Give it a proper one: in place of pm.Flat, say, pm.Normal(0, 10). Where it is "
            "pmd.marginalize that has written a prior into a potential, temper the model before that."
        )


def observed_log_densities(model: pm.Model, values: dict[Variable, Variable]) -> list[Variable]:
    """The log densities of the observed variables.

    Parameters
    ----------
    values : {free random variable: its value, without a transform}
    """
    if not model.observed_RVs:
        return []
    observed = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    found = conditional_logp({**values, **observed})
    return [found[observed[rv]] for rv in model.observed_RVs]
