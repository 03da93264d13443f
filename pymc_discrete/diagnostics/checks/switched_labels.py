"""Label switching: labels whose order differs between chains, or changes within a chain.

Later checks read draws in which the labels were put in one order.
"""

from collections.abc import Sequence

import numpy as np

from pymc_discrete.diagnostics.facts import Facts
from pymc_discrete.diagnostics.findings import Finding, chains_in_words, check
from pymc_discrete.runtime.names import shown

KINDS_OF_SWITCHING = BETWEEN, WITHIN, ORDERED = "labels of chains", "labels of draws", "in one order"
LISTED = 6  # the largest numbers of chains, and of labels, that the message lists
SWITCHING = (
    "This is label switching: the model is the same whatever its labels are called, and R-hat and ESS of the "
    "labels, and of what belongs to one (the mean of a component), say nothing. pmd.relabel undoes it; or "
    "order what the labels stand for (transform=pm.distributions.transforms.ordered, with an initval= in "
    "increasing order)."
)


def said_of_labels(found: Sequence[Finding], facts: Facts) -> list[str]:
    between, within, ordered = ([one for one in found if one.kind == kind] for kind in KINDS_OF_SWITCHING)
    texts = [differ_between_chains(between)] if between else []
    texts += [
        f"The labels of {shown(one.names)} change within chains: with those of some draws in another order, "
        "all draws agree."
        for one in within
    ]
    texts += [
        f"What is said of {shown(one.names)} is of draws with the labels in one order." for one in ordered
    ]
    return [" ".join([*texts, SWITCHING])] if texts else []


def differ_between_chains(found: Sequence[Finding]) -> str:
    """The sentence about variables whose labels differ in order between chains."""
    names, first = [name for one in found for name in one.names], found[0]
    orders = first.measured["orders"]
    labels = np.flatnonzero(orders != np.arange(len(orders)))[:LISTED]
    example = ", ".join(f"{k} is {orders[k]}" for k in labels)
    chains, of_first = f"chain{'s' * (len(first.chains) > 1)} {chains_in_words(first, LISTED)}", ""
    if len(found) > 1:
        chains, of_first = "some chains", f"for {shown(first.names)}, "
    return (
        f"{shown(names)} {'differs' if len(names) == 1 else 'differ'} between chains by labels only: with "
        f"the labels of {chains} in another order ({of_first}in chain {first.chains[0]}, {example} in chain "
        "0) all chains agree."
    )


@check(place=30, say=said_of_labels)
def switched_labels(facts: Facts) -> list[Finding]:
    """Labels whose order differs between chains or draws, and the parameters that belong to them.

    | `'z' differs between chains by labels only ... label switching` | the chains call the same groups by
    other names: matching the labels site by site makes all chains agree. R-hat of labels, and of what belongs
    to one, means nothing; other warnings are about draws with the labels in one order, where there are such |
    order what the labels stand for, or [relabel](labels.md) the draws before looking at them |
    """
    found = []
    for names, orders in facts.switched.between.items():
        permuted = np.flatnonzero((orders != np.arange(orders.shape[1])).any(axis=1))
        # the message has the permutation of the first chain whose labels are permuted, as an example
        measured = {"orders": orders[permuted[0]]}
        found.append(Finding(BETWEEN, names, measured=measured, chains=permuted.tolist()))
    if facts.switched.within:
        found.append(Finding(WITHIN, tuple(facts.switched.within)))
    if facts.in_one_order:
        found.append(Finding(ORDERED, tuple(facts.in_one_order)))
    return found
