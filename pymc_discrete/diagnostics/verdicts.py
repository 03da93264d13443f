"""A word for each element of a discrete variable: what its draws say of the sampling."""

from typing import NamedTuple

import numpy as np
import xarray as xr

from pymc_discrete.diagnostics.orders import relabelled
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
    joint : whether the elements are drawn jointly, so that no other element can keep one from moving
    """

    several: np.ndarray
    leaving: np.ndarray
    joint: bool = True


def known_of(posterior: xr.Dataset, tree: xr.DataTree | None, name: str) -> Known | None:
    """What a result says of a variable beside its draws, or None.

    The group `conditionals` has the probability that a sampled element changes; `probabilities` has those of
    all values of what was summed out. There a probability of 0 may be a value that is impossible, or one too
    improbable for floats, so an element has a single possible value only where the group has no other.
    """
    chains = posterior.sizes["chain"]
    p = _group(tree, "conditionals", name, chains)
    if p is not None:
        several = _group(tree, "conditionals", f"{name} several")
        joint = bool(tree["conditionals"][name].attrs.get("joint", False))  # type: ignore[index]
        several = np.ones(p[0].size, bool) if several is None else several.ravel()
        return Known(several, p.reshape(chains, -1), joint)
    p = _group(tree, "probabilities", name, chains)
    if p is None:
        return None
    p = p.reshape(chains, -1, p.shape[-1])
    commonest = np.nansum(p, axis=0).argmax(axis=1)
    leaving = 1.0 - p[:, np.arange(p.shape[1]), commonest]
    unbounded = _group(tree, "probabilities", f"{name} outside") is not None
    return Known(np.full(p.shape[1], p.shape[2] > 1 or unbounded), np.maximum(leaving, 0.0))


def _group(tree: xr.DataTree | None, group: str, name: str, chains: int | None = None) -> np.ndarray | None:
    """A variable of a group of a result; None if it is not there, or has not so many chains."""
    if tree is None or group not in tree.children or name not in tree[group].data_vars:
        return None
    data = tree[group][name].data
    return data if chains is None or len(data) == chains else None


def verdicts(
    movement: Movement,
    rhat: np.ndarray,
    ess: np.ndarray,
    known: Known | None = None,
    orders: np.ndarray | None = None,
    switch: bool = False,
) -> np.ndarray:
    """The verdict on each element, the first of these that applies.

    ========= =============================================================================================
    fixed     it has one possible value
    certain   one value in all chains, as was to be expected: others are too improbable, given everything else
    constant  one value in all chains, and nothing is known of others, or other elements may hold it there
    labels    draws differ, and no longer do once the labels of some chains, or of some draws, are permuted
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
    switch : whether labels are permuted within chains, and draws that are relabelled mix

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
    if switch:
        found[found == "slow"] = "labels"
    if orders is not None:
        same = relabelled(orders, begin)
        agree = (same == same[0]).all(axis=0)
        found[~mixes & ~constant & (agree | ~still)] = "labels"
    found[constant] = "constant"
    if known is not None:
        expected = np.nansum(known.leaving, axis=0) * draws
        judged = constant & ~np.isnan(known.leaving).all(axis=0)
        # one that is drawn given others may be held by these, however improbable other values look
        found[judged] = np.where(
            expected[judged] >= CHANCE, "stuck", "certain" if known.joint else "constant"
        )
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
        chance = np.vectorize(lambda p: by_chance(p, draws, FEW / draws), otypes=[bool])(
            np.nan_to_num(known.leaving)
        )
        stuck = np.where(np.isnan(known.leaving), stuck, immobile & ~chance & (~immobile).any(axis=0))
    return stuck
