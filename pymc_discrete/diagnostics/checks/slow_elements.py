"""Discrete elements that mix slowly, whose chains are in different modes, or that changed a few times."""

from collections.abc import Sequence

import numpy as np

from pymc_discrete.diagnostics.facts import Facts
from pymc_discrete.diagnostics.findings import Finding, check, elements_in_words
from pymc_discrete.diagnostics.modes import of_index, of_modes, or_summed_out
from pymc_discrete.runtime.names import shown


def said_of_slow_elements(found: Sequence[Finding], facts: Facts) -> list[str]:
    return [{"slow": slowly, "changed a few times": a_few_times}[one.kind](one, facts) for one in found]


def slowly(found: Finding, facts: Facts) -> str:
    of = sum(slow.size for slow in found.elements.values())
    count = sum(int(slow.sum()) for slow in found.elements.values())
    some = f"{count} of the {of}" if count < of else f"All {of}"
    which = f"{some} elements of {shown(found.names)}"
    if count == of == len(found.names):
        which = shown(found.names)
    return (
        f"{which} {'mix' if of > 1 else 'mixes'} slowly: of a value of the worst there are "
        f"{found.measured['effective draws per chain']:.0f} effective draws per chain, and R-hat is up to "
        f"{found.measured['rhat']:.2f}. {found.remedy}; pmd.summary has a row for each element."
    )


def a_few_times(found: Finding, facts: Facts) -> str:
    (rare,), cannot = found.elements.values(), ""
    if found.measured["held where chains ended"]:
        cannot = f", and where they ended {'it cannot' if rare.sum() == 1 else 'they cannot'}"
    changed = changed_only(found.measured["times"], f"in all chains{cannot}")
    return f"{elements_in_words(found, facts)} {changed}. {found.remedy}."


def changed_only(times: int, where: str) -> str:
    """The sentence about elements that changed a few times, without their names and the remedy."""
    return (
        f"changed only {times} time{'s' * (times > 1)} {where}: whatever R-hat and ESS are, the shares of "
        "the values need not be those of the posterior"
    )


@check(place=60, say=said_of_slow_elements)
def slow_elements(facts: Facts) -> list[Finding]:
    """Elements of discrete variables whose verdict is slow, and what they have in common.

    | `16 of the 16 elements of 'z' mix slowly ... R-hat is up to 16.90. The chains seem to be in different
    modes` | R-hat is above 1.5. Where chains stay in their modes, the shares of the modes are those of the
    starts | [`pmd.sample(temper=True)`](tempering.md); `PathAuxiliary(path_length=5, recompute=True)` where
    modes are a few changes apart; else [a flow](flows.md), fitted to these draws |

    | `'k' changed only 6 times in all chains, and where they ended it cannot` (in `pm.sample` of each chain,
    and of an index of models only) | the chains went between modes a few times in all, whatever R-hat and ESS
    are. An index of models comes to another model where the parameters of that one are near by chance, and
    what it left wanders over its prior: short visits say nothing of how probable a model is | as above; of an
    index of models [`pmd.log_evidence`](evidence.md) of each model |
    """
    if not facts.compared:
        return []
    slow, found = {}, []
    for name, of in facts.judged.items():
        decided = of.decided
        rare = (decided.verdict == "slow") & decided.too_few_moves
        others = (decided.verdict == "slow") & ~decided.too_few_moves
        if others.any():
            slow[name] = others
        if rare.any():
            known = of.known
            held = known is not None and known.probability is not None and known.is_alone[rare].any()
            times = int(of.movement.moves[:, rare].sum(axis=0).max())
            measured = {"times": times, "held where chains ended": held}
            remedy = of_index(facts, [name]) or of_modes(facts, [name], len(rare) > 1)
            found.append(Finding("changed a few times", (name,), {name: rare}, measured, remedy=remedy))
    if slow:
        ess, rhat = (
            np.concatenate([facts.judged[name].columns[c][of] for name, of in slow.items()])
            for c in ("ess", "rhat")
        )
        measured = {
            "effective draws per chain": np.nanmin(ess) / facts.chains,
            "rhat": np.nanmax(rhat),
        }
        modes = [name for name, of in slow.items() if (of & facts.judged[name].decided.in_modes).any()]
        several = sum(of.size for of in slow.values()) > 1
        index = "" if several else of_index(facts, list(slow))
        remedy = index or f"Draw more{or_summed_out(facts, list(slow))}"
        if modes:
            remedy = f"The chains seem to be in different modes. {of_modes(facts, modes, several)}"
        found.append(Finding("slow", tuple(slow), slow, measured, remedy=remedy))
    return found
