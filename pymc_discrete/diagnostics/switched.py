"""What the log says of label switching: chains that agree once their labels are permuted."""

from collections.abc import Mapping, Sequence
from itertools import chain, combinations

import numpy as np

from pymc_discrete.runtime.names import shown

COMPARED = 200  # so many elements of what may belong to labels are compared between chains
LEAST, LARGEST_RHAT = 100, 1.01  # of effective draws per chain, and of R-hat, as in PyMC's own checks

SWITCHING = (
    "This is label switching: the model is the same whatever its labels are called, and R-hat and ESS of the "
    "labels, and of what belongs to one (the mean of a component), say nothing. pmd.relabel undoes it; or "
    "order what the labels stand for (transform=pm.distributions.transforms.ordered, with an initval= in "
    "increasing order)."
)


def message(
    between: Mapping[tuple[str, ...], np.ndarray], within: Sequence[str], ordered: Sequence[str]
) -> str:
    """The warning of labels that are switched, one for all variables.

    Parameters
    ----------
    between : {variables that share labels: (chains, K) permutations}, of labels that chains order differently
    within : variables whose labels change their order within chains
    ordered : variables of which other warnings are about draws with the labels in one order
    """
    texts = []
    if between:
        names = [name for group in between for name in group]
        orders = next(iter(between.values()))
        permuted = np.flatnonzero((orders != np.arange(orders.shape[1])).any(axis=1))
        labels = np.flatnonzero(orders[permuted[0]] != np.arange(orders.shape[1]))[:6]
        example = ", ".join(f"{k} is {orders[permuted[0]][k]}" for k in labels)
        which = ", ".join(map(str, permuted[:6])) + (", ..." if len(permuted) > 6 else "")
        chains, of_first = f"{'chain' if len(permuted) == 1 else 'chains'} {which}", ""
        if len(between) > 1:
            chains, of_first = "some chains", f"for {shown(next(iter(between)))}, "
        texts.append(
            f"{shown(names)} {'differs' if len(names) == 1 else 'differ'} between chains by labels only: "
            f"with the labels of {chains} in another order ({of_first}in chain {permuted[0]}, {example} in "
            "chain 0) all chains agree."
        )
    if within:
        texts.append(
            f"The labels of {shown(within)} change within chains: with those of some draws in another order, "
            "all draws agree."
        )
    if ordered:
        texts.append(f"What is said of {shown(ordered)} is of draws with the labels in one order.")
    return " ".join([*texts, SWITCHING])


def in_order(draws: np.ndarray, to_new: Sequence[np.ndarray]) -> np.ndarray:
    """Draws (chains, draws, ...) of a parameter, with its components in the order of relabelled labels.

    Which axes are of components is not known: those of K elements are, if permuted along them the draws have
    more effective draws. Draws that mix well as they are stay as they are.

    Parameters
    ----------
    to_new : [(chains, 1 or draws, K) int, the new label of each label], one array for each variable of labels
    """
    best, most = draws, effective(draws)
    for new in to_new if most < LEAST * len(draws) else []:
        axes = [axis for axis in range(2, draws.ndim) if draws.shape[axis] == new.shape[2]]
        for chosen in chain.from_iterable(combinations(axes, n) for n in range(1, len(axes) + 1)):
            permuted = draws
            for axis in chosen:
                others = tuple(i for i in range(2, draws.ndim) if i != axis)
                permuted = np.take_along_axis(permuted, np.expand_dims(np.argsort(new, axis=2), others), axis)
            if (found := effective(permuted)) > most:
                best, most = permuted, found
    return best


def effective(draws: np.ndarray) -> float:
    """The effective number of draws (chains, draws, ...), at most `LEAST` a chain, a mean over elements."""
    from arviz_stats.base import array_stats  # imported only here, as that takes long

    flat = draws.reshape(*draws.shape[:2], -1)
    flat = flat[..., np.unique(np.linspace(0, flat.shape[2] - 1, COMPARED).astype(int))]
    ess = array_stats.ess(flat, chain_axis=0, draw_axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # R-hat of an element that never moves
        rhat = array_stats.rhat(flat, chain_axis=0, draw_axis=1)
    enough = float(LEAST * len(draws))
    return float(np.mean(np.where(rhat > LARGEST_RHAT, np.minimum(ess, enough - 1), np.fmin(ess, enough))))
