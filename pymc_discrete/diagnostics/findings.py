"""Findings: conclusions from draws about the sampling, as data, from which the log makes sentences.

A check is a function of the facts of a run that returns findings. The check is registered by `check`, in a
file of the folder `checks`, together with the function that turns the findings into lines. Each file of this
folder is found without being named elsewhere.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pymc.stats.convergence import SamplerWarning

from pymc_discrete.diagnostics.draws import labels_in_draws
from pymc_discrete.diagnostics.facts import Facts
from pymc_discrete.runtime.names import element_name, shown

SHOWN = 3  # up to this number, chains or elements are named one by one in a message

type Line = str | SamplerWarning  # a line of the log; a warning of PyMC is logged by PyMC
type Find = Callable[[Facts], list[Finding]]
type Say = Callable[[Sequence[Finding], Facts], Sequence[Line]]


class Finding(NamedTuple):
    """A conclusion from the draws about the sampling.

    Attributes
    ----------
    kind : the kind of the finding, such as "stuck"
    names : the variables that the finding is about; for ties, the elements and sums, as messages name them
    elements : {variable: (elements,) bool}, the elements concerned, unless whole variables are concerned
    measured : {quantity: the measured value}
    chains : the chains concerned, unless all chains are concerned
    remedy : what to do, and why, as a sentence or the end of one
    """

    kind: str
    names: tuple[str, ...]
    elements: Mapping[str, np.ndarray] = {}
    measured: Mapping[str, Any] = {}
    chains: Sequence[int] = ()
    remedy: str = ""


class Check(NamedTuple):
    """A check: a function that finds, and a function that puts its findings into words.

    Attributes
    ----------
    find : facts -> findings
    say : (findings, facts) -> lines of the log
    place : a number by which the lines of all checks are ordered
    of_one_draw : whether a single draw of each chain is enough
    """

    find: Find
    say: Say
    place: int
    of_one_draw: bool = False


CHECKS: dict[str, Check] = {}  # {name of the function: the check}


def check(place: int, say: Say, of_one_draw: bool = False) -> Callable[[Find], Find]:
    """Register a function that makes findings of facts, see `Check`.

    The function's docstring has rows about the check's log lines for the page on tuning, in Markdown,
    "| message | what it means | what to do |", which docs/judge_tables.py writes into the page.
    """

    def register(find: Find) -> Find:
        CHECKS[find.__name__] = Check(find, say, place, of_one_draw)
        return find

    return register


def chains_in_words(found: Finding, most: int = SHOWN) -> str:
    """The chains of a finding in words, of which at most the first few are named."""
    return ", ".join(map(str, found.chains[:most])) + (", ..." if len(found.chains) > most else "")


def elements_in_words(found: Finding, facts: Facts) -> str:
    """The elements that a finding is about, named as in `pmd.summary`, or their number."""
    (name, which), *_ = found.elements.items()
    draws = facts.posterior[name]
    axes, shape = labels_in_draws(draws), draws.shape[2:]
    places = [np.unravel_index(i, shape) if shape else () for i in np.flatnonzero(which)]
    if len(places) > SHOWN:
        return f"{len(places)} of the {len(which)} elements of {name!r}"
    return shown(element_name(name, axes, place) for place in places)
