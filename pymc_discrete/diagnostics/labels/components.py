"""Draws of parameters that belong to labels, such as means of components, with the labels in one order."""

from collections.abc import Sequence
from itertools import chain, combinations

import numpy as np

from pymc_discrete.diagnostics.thresholds import FEWEST_EFFECTIVE
from pymc_discrete.diagnostics.verdicts import effective_per_chain, slow

COMPARED = 200  # up to this many elements of a variable that may belong to labels are compared between chains


def components_in_order(draws: np.ndarray, to_new: Sequence[np.ndarray]) -> np.ndarray:
    """Draws (chains, draws, ...) of a parameter, with its components in the order of relabelled labels.

    It is not known which axes are axes of components: an axis of K elements counts as one if permuting along
    it gives more effective draws. Draws that already mix well are unchanged.

    Parameters
    ----------
    to_new : [(chains, 1 or draws, K) int, the new label of each label], one array for each variable of labels
    """
    best, most = draws, effective_up_to_enough(draws)
    for new in to_new if slow(most) else []:
        axes = [axis for axis in range(2, draws.ndim) if draws.shape[axis] == new.shape[2]]
        for chosen in chain.from_iterable(combinations(axes, n) for n in range(1, len(axes) + 1)):
            permuted = draws
            for axis in chosen:
                others = tuple(i for i in range(2, draws.ndim) if i != axis)
                permuted = np.take_along_axis(permuted, np.expand_dims(np.argsort(new, axis=2), others), axis)
            if (found := effective_up_to_enough(permuted)) > most:
                best, most = permuted, found
    return best


def effective_up_to_enough(draws: np.ndarray) -> np.ndarray:
    """Effective draws per chain, each cut off at `FEWEST_EFFECTIVE`, as a mean over elements.

    The argument `draws` is (chains, draws, ...). Of many elements about `COMPARED`, evenly spaced, are used.
    """
    from arviz_stats.base import array_stats  # imported only here, since the import takes long

    flat = draws.reshape(*draws.shape[:2], -1)
    flat = flat[..., np.unique(np.linspace(0, flat.shape[2] - 1, COMPARED).astype(int))]
    ess = array_stats.ess(flat, chain_axis=0, draw_axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # R-hat of an element that never moves divides by 0
        rhat = array_stats.rhat(flat, chain_axis=0, draw_axis=1)
    return np.minimum(effective_per_chain(ess, rhat, len(draws)), FEWEST_EFFECTIVE).mean()
