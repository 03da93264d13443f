"""Elements that never moved, in no chain or in some chains, and whether this indicates a problem."""

from collections.abc import Sequence

import numpy as np

from pymc_discrete.diagnostics.facts import Facts
from pymc_discrete.diagnostics.findings import Finding, chains_in_words, check, elements_in_words
from pymc_discrete.diagnostics.judge import Judged
from pymc_discrete.diagnostics.known.leaving import Leaving
from pymc_discrete.diagnostics.modes import of_index, of_models, of_modes
from pymc_discrete.diagnostics.remedies import Remedies
from pymc_discrete.diagnostics.thresholds import ENOUGH_DRAWS, IMPROBABLE
from pymc_discrete.runtime.names import shown


def said_of_still_elements(found: Sequence[Finding], facts: Facts) -> list[str]:
    """The lines for the log: one for all variables that have the same predicate."""
    names_of: dict[str, list[str]] = {}
    for one in found:
        names_of.setdefault(predicate(one, facts), []).extend(one.names)
    return [f"{shown(names)} {text}" for text, names in names_of.items()]


def predicate(found: Finding, facts: Facts) -> str:
    """The predicate of the sentence about the variable of a finding, without the variable's name."""
    (which,), of = found.elements.values(), found.measured["elements that can move"]
    count = int(which.sum())
    some = f"{count} of its {of} elements"
    match found.kind:
        case "apart":
            return (
                f"disagrees between chains: {some if of > 1 else 'it'} never moved within a chain and "
                f"{'differs' if count == 1 else 'differ'} from chain to chain. {found.remedy}."
            )
        case "stuck":
            return (
                f"is stuck: {some if of > 1 and count < of else 'it'} never moved in {len(found.chains)} of "
                f"{facts.chains} chains ({chains_in_words(found)}), and moved too often in others for that "
                f"to be chance. {found.remedy}."
            )
        case "still, summed out":
            return f"has the same value in all draws: {found.remedy}."
        case "still":
            return f"never moved in any chain, and all agree: {found.remedy}."
        case "still, though others are probable":
            elements = elements_in_words(found, facts)
            return f"has elements that never moved in any chain, {elements}: {found.remedy}."
        case _:
            return f"has elements that never moved, {elements_in_words(found, facts)}: {found.remedy}."


@check(place=70, say=said_of_still_elements)
def never_moved(facts: Facts) -> list[Finding]:
    """Elements of each variable that stood still.

    | `'z' disagrees between chains: ... never moved within a chain and differ from chain to chain` | the
    chains are in different modes. The shares of modes are those of the starts, also where all have the same
    mean lp | [`pmd.sample(temper=True)`](tempering.md); a step that moves sites together,
    `PathAuxiliary(path_length=5, recompute=True)`; where z is
    summed out or drawn as a whole no step helps: an order of the states, where modes differ by that only |

    | `'k' never moved ...` (of all chains in `pmd.sample`, of each chain in `pm.sample`) | what the message
    says of the conditional: other values are impossible or next to it given everything else, or they are
    probable and the step cannot get there. Nothing is said of a site with one value, of one whose other
    values are improbable wherever the rest of the model is, of other values so rare that none was to be
    expected, and of sites that do not depend on one another, which share the continuous variables that they
    depend on. Of variables that are summed out it is `'k' has the same value in all draws` | other
    `initvals=`, `PathAuxiliary(path_length=5, recompute=True)` |

    | `... given where 'mu' is, other values are improbable, but 'k' need not be certain: 'mu' holds it there
    ... 'mu[0]' does not enter the likelihood ...: 'k' chooses among models` | a parameter that the chosen
    model does not have follows its prior, where the other model is improbable; so chains hardly ever change
    the model | [`pmd.log_evidence`](evidence.md) of each model |
    """
    return [one for name, of in facts.judged.items() for one in of_variable(facts, name, of)]


def of_variable(facts: Facts, name: str, of: Judged) -> list[Finding]:
    """The findings of one variable."""
    verdict, known = of.decided.verdict, of.known
    can_move = elements_that_can_move(verdict)
    found = []

    def add(kind: str, which: np.ndarray, remedy: str = "", chains: Sequence[int] = ()) -> None:
        measured = {"elements that can move": int(can_move.sum())}
        found.append(Finding(kind, (name,), {name: which}, measured, chains, remedy))

    if (apart := verdict == "apart").any():
        add("apart", apart, of_modes(facts, [name], bool(can_move.sum() > 1)))
    if (stuck := of.decided.stuck_in.any(axis=0)).any():
        remedy = of_index(facts, [name]) or "Run longer, pass other initvals, or try another step"
        add("stuck", stuck, remedy, np.flatnonzero(of.decided.stuck_in.any(axis=1)).tolist())
    still = of.movement.still
    probable = still & (verdict == "stuck")
    if facts.draws < ENOUGH_DRAWS and not probable.any():
        return found
    if whole := all_still(name, known, still, verdict, of.decided.unexplained, facts.remedies):
        found.append(whole)
    elif probable.any():
        add("still, though others are probable", probable, why_probable(name, facts.remedies))
    elif known is not None and (held := of.decided.unexplained & known.is_alone).any():
        add("held by a continuous variable", held, held_outside(repr(name), known))
    return found


def elements_that_can_move(verdict: np.ndarray) -> np.ndarray:
    """(elements,) bool, the elements that are drawn and have several possible values, judged by their
    verdicts.
    """
    return (verdict != "fixed") & (verdict != "observed")


def all_still(
    name: str,
    known: Leaving | None,
    still: np.ndarray,
    verdict: np.ndarray,
    unexplained: np.ndarray,
    remedies: Remedies,
) -> Finding | None:
    """The finding that no element of a variable moved, in a run or in a chain; None if this is no problem.

    Parameters
    ----------
    still : (elements,) bool, whether an element has one value in all draws
    verdict : (elements,) str
    unexplained : (elements,) bool, whether an element is constant and nothing known explains it
    """
    can_move = elements_that_can_move(verdict)
    if not can_move.any() or not still[can_move].all():
        return None
    why = why_still(name, known, bool((still & (verdict == "stuck")).any()), unexplained, remedies)
    if why is None:
        return None
    kind = "still, summed out" if known is not None and known.summed else "still"
    measured = {"elements that can move": int(can_move.sum())}
    return Finding(kind, (name,), {name: still & can_move}, measured, remedy=why)


# ---------------------------------------------------------------- the reason, as part of a sentence
def why_still(
    name: str, known: Leaving | None, probable: bool, unexplained: np.ndarray, remedies: Remedies
) -> str | None:
    """The reason why a variable has the same values in all draws; None if this is no problem.

    Parameters
    ----------
    probable : whether other values of some element are probable
    unexplained : (elements,) bool, whether an element is constant and nothing known explains it
    """
    if probable:
        return why_probable(name, remedies)
    if not unexplained.any():
        return None
    if known is None or known.probability is None:
        return "either the data leave one value only, or the step cannot move it"
    if (known.is_alone & unexplained).any():
        return held_outside(repr(name), known)
    if known.together:
        return (
            f"given everything else, {known.together} (with a probability of {IMPROBABLE:g} or more). Either "
            "the data leave one value only, or more must change at once: see whether other initvals= end "
            "elsewhere. Write hard conditions as known sums, which draws keep "
            "(docs/linear_constraints.md), or, where they are none, as a soft likelihood"
        )
    return (
        f"given everything else, other values have a probability below {IMPROBABLE:g}. Either the data leave "
        "one value only, or several sites must change together: see whether other initvals= end "
        f"elsewhere. {remedies.along_sums([name])}; to change more at once, try "
        f"{remedies.several_sites([name])}"
    )


def why_probable(name: str, remedies: Remedies) -> str:
    """The reason why an element whose other values are probable has one value in all draws."""
    try_this = remedies.by_site([name]) or "a longer run, or other initvals="
    return f"though given everything else other values are probable: the step cannot move it. Try {try_this}"


def held_outside(name: str, known: Leaving) -> str:
    """The reason why a discrete variable did not move, where it and continuous ones hold each other at their
    values.
    """
    by = shown(known.by)
    is_at, holds, stands = ("are", "hold", "stand") if len(known.by) > 1 else ("is", "holds", "stands")
    return (
        f"given where {by} {is_at}, other values are improbable, but {name} need not be certain: {by} "
        f"{holds} it there, and {stands} where {name} has it. {of_models(name, known)}"
    )
