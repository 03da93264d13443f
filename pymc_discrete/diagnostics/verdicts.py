"""A word for each element of a discrete variable: what its draws say of the sampling."""

from typing import NamedTuple

import numpy as np
import xarray as xr

from pymc_discrete.sampling import labels
from pymc_discrete.steps.standing import CHANCE, FEW, FEWEST, by_chance

RHAT = 1.01  # a larger R-hat is slow mixing, as in PyMC's own warning
EACH = 100  # so are fewer effective draws for each chain


class Movement(NamedTuple):
    """How the elements of a variable moved.

    Attributes
    ----------
    begin : (chains, elements) int, the first values
    moves : (chains, elements) int, how many draws differ from the one before
    draws : number of draws of a chain
    """

    begin: np.ndarray
    moves: np.ndarray
    draws: int


class Known(NamedTuple):
    """What is known of the elements of a variable beside their draws.

    Attributes
    ----------
    several : (elements,) bool, whether an element has more than one possible value
    leaving : (chains, elements) float, the probability that it has another value, given everything else; nan
        where it is not known
    """

    several: np.ndarray
    leaving: np.ndarray


def known_of(posterior: xr.Dataset, tree: xr.DataTree | None, name: str) -> Known | None:
    """What the group `probabilities` of a result says of a variable, or None.

    A probability of 0 may be a value that is impossible, or one too improbable for floats. So an element has
    a single possible value only where the group has no other.
    """
    if tree is None or "probabilities" not in tree.children or name not in tree["probabilities"].data_vars:
        return None
    p = tree["probabilities"][name].data.astype(float)
    p = p.reshape(len(p), -1, p.shape[-1])
    if len(p) != posterior.sizes["chain"]:
        return None
    known = np.moveaxis(p, 0, 1)
    commonest = np.nansum(known, axis=1).argmax(axis=1)
    leaving = 1.0 - p[:, np.arange(p.shape[1]), commonest]
    unbounded = f"{name} outside" in tree["probabilities"].data_vars
    return Known(np.full(p.shape[1], p.shape[2] > 1 or unbounded), np.maximum(leaving, 0.0))


def verdicts(
    movement: Movement,
    rhat: np.ndarray,
    ess: np.ndarray,
    known: Known | None = None,
    orders: np.ndarray | None = None,
) -> np.ndarray:
    """The verdict on each element, the first of these that applies.

    ========= =============================================================================================
    fixed     it has one possible value
    certain   one value in all chains, as was to be expected: others are too improbable, given everything else
    constant  one value in all chains, and nothing is known of others
    labels    chains differ, and no longer do once the labels of some are permuted
    apart     no chain moved, and chains stand at different values
    stuck     some chain never moved though it should have: others did, or other values are probable
    slow      R-hat above 1.01, or less than 100 effective draws for each chain
    ok        none of these
    ========= =============================================================================================

    Parameters
    ----------
    movement : Movement
    rhat, ess : (elements,) float, of categories
    known : what is known of possible values and their probabilities
    orders : (chains, K) int, permutations of the labels to those of chain 0, if such were found

    Returns
    -------
    (elements,) str
    """
    begin, moves, draws = movement
    chains = len(begin)
    immobile = moves == 0
    still = immobile.all(axis=0)
    differ = (begin != begin[0]).any(axis=0)
    stuck = stuck_chains(movement, known).any(axis=0)
    constant = still & ~differ
    apart = still & differ
    mixes = (rhat <= RHAT) & (ess >= EACH * chains)
    found = np.where(mixes, "ok", "slow").astype(object)
    found[stuck & ~still] = "stuck"
    found[apart] = "apart"
    if orders is not None:
        same = labels.relabelled(orders, begin)
        agree = (same == same[0]).all(axis=0)
        found[~mixes & ~constant & (agree | ~still)] = "labels"
    found[constant] = "constant"
    if known is not None:
        expected = np.nansum(known.leaving, axis=0) * draws
        judged = constant & ~np.isnan(known.leaving).all(axis=0)
        found[judged] = np.where(expected[judged] < CHANCE, "certain", "stuck")
        found[constant & ~known.several] = "fixed"
    return found.astype(str)


def stuck_chains(movement: Movement, known: Known | None) -> np.ndarray:
    """(chains, elements) bool, chains in which an element stood still though it moved in others.

    It is no coincidence where the others lead one to expect more than `CHANCE` visits to another value, two
    moves each; or, where the probability of other values at the end of a chain is known, if either more moves
    were to be expected, or it is so much smaller than in the others that the chain is in another mode.
    """
    moves, draws = movement.moves, movement.draws
    immobile = moves == 0
    moving = np.maximum((~immobile).sum(axis=0), 1)
    visits = moves.sum(axis=0) / moving / 2
    stuck = immobile & (visits >= CHANCE)
    if known is not None and draws >= FEWEST:
        chance = np.vectorize(lambda p: by_chance(p, draws, FEW / draws), otypes=[bool])(known.leaving)
        stuck = np.where(np.isnan(known.leaving), stuck, immobile & ~chance & (~immobile).any(axis=0))
    return stuck


def label_orders(draws: np.ndarray, lp: np.ndarray | None) -> np.ndarray | None:
    """(chains, K) int, the label in chain 0 of each label; None unless chains differ by labels only.

    Parameters
    ----------
    draws : (chains, draws, ...) int, of one variable
    lp : (chains, draws) float, log densities, nats; None where they are not known
    """
    if len(draws) < 2 or draws.ndim < 3 or draws.size == 0:
        return None
    x = labels.thinned([draws])
    K = 1 + int(x.max())
    if K < 2 or x.min() < 0 or x.shape[2] < max(labels.FEWEST, labels.EACH * K):
        return None
    frequencies = np.stack([(x == k).mean(axis=1) for k in range(K)], axis=2)
    return labels.permutations(frequencies, np.zeros((len(draws), 1)) if lp is None else lp)
