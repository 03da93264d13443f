"""Log densities that are nan or infinite: errors that name the responsible term and the remedy."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pymc.blocking import PointType
from pymc.exceptions import SamplingError
from pymc.logprob.utils import ParameterValueError
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_discrete.model.support import bounds_of, is_constrained, is_nominal
from pymc_discrete.runtime.names import shown
from pymc_discrete.structure.logp_graph import LogpGraph

# A term of the log density that is -inf at the start of a chain is evaluated again with all discrete
# variables at each of the values in LEVELS, to see whether the start is the cause. The list has all values of
# a variable with at most 16 values from 0. A vector whose elements cannot change alone is put in a random
# order instead, once for each value in the list.
LEVELS = [*range(16), *(2**k for k in range(4, 21, 2))]
NOT_LEFT = "tuning found nothing possible near it"
NOT_FOUND = "no possible one was found"  # what a message says if a search for a possible start fails
MOST_NAMED = 3  # the largest number of elements that a message lists


def terms_at(graph: LogpGraph, point: PointType) -> dict[str, list[str]]:
    """The terms of a graph that are not finite at a point, as {"nan", "inf" or "-inf": names of terms}."""
    inputs = [*graph.values, *graph.others]
    terms = [*graph.terms, *graph.untouched]
    f = pytensor.function(inputs, [t.sum() for _, t in terms], mode="FAST_COMPILE", on_unused_input="ignore")
    with np.errstate(all="ignore"):
        values = f(*graph.arguments(point))
    return by_value(zip([name for name, _ in terms], values, strict=True))


def of_model_at(model: pm.Model, point: PointType) -> dict[str, list[str]]:
    """The terms of a model that are not finite at a point, as {"nan", "inf" or "-inf": names of terms}."""
    return by_value((term.name, term.at(point).sum()) for term in term_values(model))


def by_value(values: Iterable[tuple[str, Any]]) -> dict[str, list[str]]:
    """Pairs (name, value) sorted by value, as {"nan", "inf" or "-inf": names}; finite values are left out."""
    found: dict[str, list[str]] = {}
    for name, value in values:
        if not np.isfinite(value) and name not in found.setdefault(f"{float(value):g}", []):
            found[f"{float(value):g}"].append(str(name))
    return found


def impossible(
    model: pm.Model,
    point: PointType,
    names: list[str],
    searched: str = NOT_LEFT,
) -> str:
    """The error message for a chain whose state has the log density -inf, and which finds no other state.

    Parameters
    ----------
    point : {value variable: value}, the state of the chain
    names : the variables that are sampled
    searched : words for the message that say how a search for another start ended
    """
    discrete = {
        str(v.name): bounds_of(model.values_to_rvs[v]) or (None, None) for v in model.discrete_value_vars
    }
    vectors = {str(v.name) for v in model.discrete_value_vars if is_constrained(model.values_to_rvs[v])}
    trials = [
        {
            name: np.random.default_rng(level).permuted(point[name], axis=-1)
            if name in vectors
            else np.clip(np.full_like(point[name], level), low, high)
            for name, (low, high) in discrete.items()
        }
        for level in LEVELS
    ]
    at_start, always, read = [], [], set[str]()
    for term in term_values(model):
        here = np.isneginf(term.at(point))
        if here.any():
            at_start.append(term.named(here))
            read |= term.read
            throughout = here
            # `TermValue.at` returns a single -inf, and not one for each element, where an index is out of
            # bounds; `&` broadcasts it to the elements that another evaluation has.
            for trial in trials:
                throughout = throughout & np.isneginf(term.at({**point, **trial}))
            if throughout.any():
                always.append(term.named(throughout))
    what = f"The log density is -inf, through {', '.join(always or at_start) or 'one of its terms'}"
    to_blame = [name for name in discrete if name in read] or names
    said = f"{what}: the start of {shown(to_blame)} is impossible, and {searched}."
    of_term = (
        "observed values outside their distribution's support, a parameter outside its domain, a p that does "
        "not sum to 1. model.debug() says which."
    )
    if always and discrete:
        remedy = " Where the start of a continuous variable is to blame, pass initvals= for it."
        return (
            f"{said} That is so at every other value of {shown(discrete)} that was tried, too. Look for "
            f"{of_term}{remedy if model.continuous_value_vars else ''}"
        )
    examples = []
    counts = any(name not in vectors and not is_nominal(model, name) for name in discrete)
    if counts:
        examples.append("a latent count smaller than what was counted")
    if model.continuous_value_vars:
        examples.append("a continuous unknown at which a probability is 0 or 1")
    start = (
        f"Either the start contradicts the data{f' ({", or ".join(examples)})' if examples else ''}: pass "
    )
    start += "initvals= that they allow"
    if counts:
        start += ", or let pmd.sample sum such counts out, which needs no start (collapse=[...], in float64)"
    start += "."
    return f"{said} {start} Or the term is impossible whatever the start: {of_term}"


class TermValue:
    """Evaluates a term of a model's log density, and names elements of the term in messages.

    Parameters
    ----------
    variable : a random variable or a potential
    logp : the elements of the term, nats

    Attributes
    ----------
    read : set of str, names of the free value variables that the term depends on
    """

    def __init__(self, model: pm.Model, variable: Variable, logp: Variable):
        self.name, self._values = str(variable.name), model.value_vars
        above = set(ancestors([logp]))
        self.read = {str(v.name) for v in self._values if v in above}
        observed = [model.rvs_to_values[variable]] if variable in model.observed_RVs else []
        self._function = pytensor.function(
            self._values, [logp, *observed], mode="FAST_COMPILE", on_unused_input="ignore"
        )
        self._observed: np.ndarray | None = None
        self._why = ""

    def at(self, point: PointType) -> np.ndarray:
        """The elements of the term at a point, nats.

        The result is a single -inf if an index is beyond the end of a table, or if PyMC's check of the
        parameters of the term's distribution fails.
        """
        try:
            with np.errstate(all="ignore"):
                logp, *observed = self._function(*(np.asarray(point[v.name], v.dtype) for v in self._values))
        except IndexError:
            self._why = "an index into a table is out of bounds"
            return np.array(-np.inf)
        except ParameterValueError as error:
            self._why = f"its parameters must meet {str(error).splitlines()[0]}"
            return np.array(-np.inf)
        for values in observed:
            self._observed = values if values.shape == logp.shape else None
        return logp

    def named(self, elements: np.ndarray) -> str:
        """Text for a message: the term, the indices of some of its elements, and their observed values.

        Parameters
        ----------
        elements : bool array, True for the elements that the message is about
        """
        where = np.argwhere(elements)
        values = [] if self._observed is None else [f"{v:g}" for v in self._observed[elements][:MOST_NAMED]]
        observed = [f"observed as {', '.join(values)}"] if values else []
        if not elements.ndim:
            places = [self._why] if self._why else []
        elif len(where) > MOST_NAMED and elements.all():
            places = [f"all {len(where)} elements"]
        else:
            more = f" and {len(where) - MOST_NAMED} more" if len(where) > MOST_NAMED else ""
            listed = ", ".join(str(index.tolist()) for index in where[:MOST_NAMED])
            places = [f"element{'s' * (len(where) > 1)} {listed}{more}"]
        details = ", ".join([*places, *observed])
        return f"{self.name!r} ({details})" if details else repr(self.name)


def term_values(model: pm.Model) -> Iterator[TermValue]:
    """A `TermValue` for each term of the model's log density."""
    variables = [*model.basic_RVs, *model.potentials]
    for variable, logp in zip(variables, model.logp(variables, sum=False), strict=True):
        yield TermValue(model, variable, logp)


def read_by_impossible(model: pm.Model, point: PointType) -> set[str]:
    """Names of the free value variables that the terms which are -inf at a point depend on."""
    terms = [term for term in term_values(model) if np.isneginf(term.at(point)).any()]
    return set().union(*(term.read for term in terms))


def raise_not_finite(graph: LogpGraph, point: PointType, logp: float) -> None:
    """Raise an error that names the terms of the log density that are nan or +inf at a point.

    Raises
    ------
    pymc.exceptions.SamplingError
    """
    raise SamplingError(not_finite(terms_at(graph, point), logp))


def not_finite(terms: dict[str, list[str]], logp: float) -> str:
    """The error message for a log density that is nan or +inf.

    Parameters
    ----------
    terms : {value, as shown in the message: names} of the terms that are not finite
    logp : the log density
    """
    bad = ", ".join(f"{shown(names)} ({value})" for value, names in terms.items() if value != "-inf")
    return (
        f"The log density is {logp:g}, through {bad or 'its sum'}. Look for nan in the data and for "
        "parameters outside their domain; a density must be finite, or -inf where it is impossible."
    )
