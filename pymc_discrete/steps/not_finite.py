"""Log densities that are nan or infinite: errors that name the term responsible, and the remedy."""

import numpy as np
import pytensor
from pymc.blocking import PointType
from pymc.exceptions import SamplingError

from pymc_discrete.targets.graph.logp_graph import LogpGraph
from pymc_discrete.targets.names import shown


def terms_at(graph: LogpGraph, point: PointType) -> dict[str, list[str]]:
    """{value as formatted in a message: names of terms} of the terms that are not finite at a point."""
    inputs = [*graph.values, *graph.others]
    terms = [*graph.terms, *graph.untouched]
    f = pytensor.function(inputs, [t.sum() for _, t in terms], mode="FAST_COMPILE", on_unused_input="ignore")
    with np.errstate(all="ignore"):
        values = f(*graph.arguments(point))
    by_value: dict[str, list[str]] = {}
    for (name, _), value in zip(terms, values, strict=True):
        if not np.isfinite(value) and name not in by_value.setdefault(f"{float(value):g}", []):
            by_value[f"{float(value):g}"].append(str(name))
    return by_value


def impossible(graph: LogpGraph, point: PointType, names: list[str]) -> str:
    """The error message for a chain whose log density is still -inf when tuning ends.

    Parameters
    ----------
    graph : the model's log density
    point : where the chain is
    names : the variables that it samples
    """
    terms = terms_at(graph, point).get("-inf", [])
    return (
        f"The log density is -inf, through {shown(terms) or 'one of its terms'}: the start of {shown(names)} "
        "is impossible, and tuning found nothing possible near it. Either the start contradicts the data (a "
        "latent count smaller than what was counted): pass initvals= that they allow, or let pmd.sample sum "
        "such counts out, which needs no start (collapse=[...], in float64). Or the term is "
        "impossible whatever the start: observed values outside their distribution's support, a parameter "
        "outside its domain, a p that does not sum to 1. model.debug() says which."
    )


def raise_not_finite(graph: LogpGraph, point: PointType, logp: float) -> None:
    """Raise an error that names the terms of the log density that are nan or +inf at a point.

    Raises
    ------
    pymc.exceptions.SamplingError
    """
    terms = {value: names for value, names in terms_at(graph, point).items() if value != "-inf"}
    bad = ", ".join(f"{shown(names)} ({value})" for value, names in terms.items()) or "its sum"
    raise SamplingError(
        f"The log density is {logp:g}, through {bad}. Look for nan in the data and for parameters outside "
        "their domain; a density must be finite, or -inf where it is impossible."
    )
