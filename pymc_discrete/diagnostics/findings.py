"""Findings: what draws say of the sampling, as data, of which the log makes sentences.

A check is a function of the facts of a run that returns findings. It is registered by `check`, in a file of
the folder `checks`, with the function that makes lines of them: each file there is found without being named
elsewhere.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pymc.stats.convergence import SamplerWarning

from pymc_discrete.diagnostics.draws import labels_in_draws
from pymc_discrete.diagnostics.facts import Facts
from pymc_discrete.runtime.names import element_name, shown

SHOWN = 3  # up to this many chains or elements are named one by one in a message

type Line = str | SamplerWarning  # what is logged; a warning of PyMC goes to the log of PyMC
type Find = Callable[[Facts], list[Finding]]
type Say = Callable[[Sequence[Finding], Facts], Sequence[Line]]


class Finding(NamedTuple):
    """Something that draws say of the sampling.

    Attributes
    ----------
    kind : what it is, such as "stuck"
    names : the variables that it is about; of ties the elements and sums, as messages name them
    elements : {variable: (elements,) bool}, which elements, where it is not about whole variables
    measured : {quantity: what was measured}
    chains : in which chains, where it is not about all
    remedy : what to do, and why, in words that end a sentence or are one
    """

    kind: str
    names: tuple[str, ...]
    elements: Mapping[str, np.ndarray] = {}
    measured: Mapping[str, Any] = {}
    chains: Sequence[int] = ()
    remedy: str = ""


class Check(NamedTuple):
    """A check.

    Attributes
    ----------
    find : facts -> findings
    say : (findings, facts) -> lines of the log
    place : lines of a lower place come first; nothing else depends on it
    of_one_draw : whether a single draw of each chain is enough
    """

    find: Find
    say: Say
    place: int
    of_one_draw: bool = False


CHECKS: dict[str, Check] = {}  # by the names of their functions


def check(place: int, say: Say, of_one_draw: bool = False) -> Callable[[Find], Find]:
    """Register a function that makes findings of facts, see `Check`.

    Its docstring has what the page on tuning says of its lines: rows of Markdown, "| message | what it means
    | what to do |", which docs/judge_tables.py writes there.
    """

    def register(find: Find) -> Find:
        CHECKS[find.__name__] = Check(find, say, place, of_one_draw)
        return find

    return register


def chains_in_words(found: Finding, most: int = SHOWN) -> str:
    """The chains of a finding, the first of many."""
    return ", ".join(map(str, found.chains[:most])) + (", ..." if len(found.chains) > most else "")


def elements_in_words(found: Finding, facts: Facts) -> str:
    """The elements that a finding is about, as `pmd.summary` names them, or how many they are."""
    (name, which), *_ = found.elements.items()
    draws = facts.posterior[name]
    axes, shape = labels_in_draws(draws), draws.shape[2:]
    places = [np.unravel_index(i, shape) if shape else () for i in np.flatnonzero(which)]
    if len(places) > SHOWN:
        return f"{len(places)} of the {len(which)} elements of {name!r}"
    return shown(element_name(name, axes, place) for place in places)
