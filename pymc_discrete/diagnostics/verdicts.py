"""The verdict on each element of a discrete variable: a word, and the reasons for it.

Only this file decides that an element mixes slowly, or is stuck, apart, constant or certain. The table, the
log, the plots and a chain of `pm.sample` read what its functions return.
"""

from typing import NamedTuple

import numpy as np

from pymc_discrete.diagnostics.known.leaving import Leaving
from pymc_discrete.diagnostics.statistics.movement import Movement
from pymc_discrete.diagnostics.thresholds import (
    ENOUGH_DRAWS,
    FEWEST_EFFECTIVE,
    HARDLY_MOVES,
    IMPROBABLE,
    LARGEST_RHAT,
    RARE_VALUE,
    RHAT_OF_MODES,
    STRETCHES,
    SURELY_MOVES,
)

VERDICTS = {"observed", "fixed", "certain", "constant", "labels", "stuck", "apart", "slow", "ok"}


class Decided(NamedTuple):
    """The verdicts on the elements of a variable.

    Attributes
    ----------
    verdict : (elements,) str, the first of these that applies

        ========= =========================================================================================
        observed  it is data, and not drawn
        fixed     it has one possible value
        certain   one value in all chains, as was to be expected: other values are too improbable,
                  whatever the other unknowns are
        constant  one value in all chains, which perhaps the other unknowns hold there
        labels    draws differ, and no longer do once the labels of some chains, or of some draws, are
                  permuted
        stuck     some chain never moved though it should have: others moved much, or other values are
                  probable
        apart     no chain moved, and chains stand at different values
        slow      R-hat above 1.01, less than 100 effective draws for each chain, or too few moves to tell
        ok        none of these
        ========= =========================================================================================
    stuck_in : (chains, elements) bool, in which chains elements that are stuck stand still
    too_few_moves : (elements,) bool, whether an element moved too rarely for the shares of its values to
        mean anything
    unexplained : (elements,) bool, whether an element is constant and nothing known explains it
    in_modes : (elements,) bool, whether R-hat is so large that chains seem to be in different modes
    """

    verdict: np.ndarray
    stuck_in: np.ndarray
    too_few_moves: np.ndarray
    unexplained: np.ndarray
    in_modes: np.ndarray

    @property
    def suspect(self) -> np.ndarray:
        """(elements,) bool, the elements that never moved in a chain, for no known reason, or whose chains
        seem to be in different modes.
        """
        in_modes = (self.too_few_moves | self.in_modes) & (self.verdict != "labels")
        return self.unexplained | np.isin(self.verdict, ("stuck", "apart")) | in_modes


def decide(
    movement: Movement,
    rhat: np.ndarray,
    ess: np.ndarray,
    known: Leaving | None = None,
    agree: np.ndarray | None = None,
    switch: bool = False,
    observed: np.ndarray | None = None,
) -> Decided:
    """The verdicts on the elements of a variable.

    Parameters
    ----------
    movement : how the elements moved
    rhat, ess : (elements,) float, R-hat and ESS of categories
    known : what is known of possible values and their probabilities
    agree : (elements,) bool, whether the first draws of all chains have the same label once the labels of
        each chain are permuted; None if no permutations make the chains agree
    switch : whether labels are permuted within chains, and draws that are relabelled mix
    observed : (elements,) bool, which elements are data
    """
    draws, chains = movement.draws, movement.chains
    constant = movement.still
    apart = movement.immobile & ~constant
    if draws < ENOUGH_DRAWS and known is not None and known.probability is not None:
        apart &= ~stood_still_by_chance(known.probability, draws)
    few, stuck = too_few_moves(movement, known), stuck_chains(movement, known)
    mixes = ~np.isnan(ess) & ~slow(effective_per_chain(ess, rhat, chains)) & ~few
    word = np.where(mixes, "ok", "slow").astype(object)
    word[stuck.any(axis=0) & ~movement.immobile] = "stuck"
    word[apart] = "apart"
    if switch:
        word[word == "slow"] = "labels"
    if agree is not None:
        word[~mixes & ~constant & (agree | ~movement.immobile)] = "labels"
    word[constant] = words_of_still(known, constant, draws)[constant]
    if observed is not None:
        word[observed] = "observed"
    verdict = word.astype(str)
    return Decided(
        verdict,
        stuck & (verdict == "stuck") & ~constant,
        few,
        unexplained(known, verdict, draws * chains),
        in_modes(rhat),
    )


# ---------------------------------------------------------------- slow mixing
def effective_per_chain(ess: np.ndarray | float, rhat: np.ndarray | float, chains: int) -> np.ndarray:
    """Effective draws per chain; just below `FEWEST_EFFECTIVE` if R-hat is too large, infinite if neither is
    known.

    Parameters
    ----------
    ess, rhat : float, nan where they are not known
    """
    too_large = np.where(rhat > LARGEST_RHAT, FEWEST_EFFECTIVE - 1 + 1 / np.maximum(rhat, 1.0), np.inf)
    return np.fmin(ess / chains, too_large)


def slow(per_chain: np.ndarray) -> np.ndarray:
    """Whether something mixes slowly, given its effective draws per chain, see `effective_per_chain`."""
    return per_chain < FEWEST_EFFECTIVE


def in_modes(rhat: np.ndarray) -> np.ndarray:
    """Whether R-hat is so large that chains seem to be in different modes."""
    return rhat > RHAT_OF_MODES


# ---------------------------------------------------------------- elements that move rarely
def seldom(movement: Movement) -> np.ndarray:
    """(elements,) bool, the elements that moved so rarely that knowledge besides the draws matters."""
    return movement.stretches.sum(axis=0) < max(SURELY_MOVES, movement.chains)


def few_stays(movement: Movement) -> np.ndarray:
    """(elements,) bool, the elements with fewer moves per chain than 100, the effective draws that are
    required, or than 5 % of the draws if that is less.

    A variable that other variables hold for a long time, such as an index of models, stays at one value from
    one move to the next: each stay is as good as one draw, however long it lasts.
    """
    enough = min(FEWEST_EFFECTIVE, RARE_VALUE * movement.draws)
    return movement.moves.sum(axis=0) < enough * movement.chains


def stuck_chains(movement: Movement, known: Leaving | None) -> np.ndarray:
    """(chains, elements) bool, chains in which an element stood still though it moved in others.

    This is no coincidence if the other chains moved in so many of their intervals of draws (see `Movement`)
    that the probability that any element stands still in all intervals of a chain is below e^-7. Moves in
    clumps shorter than an interval count once. For a variable that is summed out and drawn anew each time,
    the probabilities in the chain itself say how often it should have moved.
    """
    immobile = movement.moves == 0
    least = SURELY_MOVES + np.log(max(immobile.shape[1], 1))
    if known is not None and known.summed and known.probability is not None:
        return immobile & (known.probability * movement.draws > least)
    of_others = STRETCHES * (~immobile).sum(axis=0)
    without = (of_others - movement.stretches.sum(axis=0) + 1) / (of_others + 2)
    return immobile & (STRETCHES * np.log(without) < -least) & (movement.draws >= ENOUGH_DRAWS)


def too_few_moves(movement: Movement, known: Leaving | None) -> np.ndarray:
    """(elements,) bool, elements that moved too rarely for their shares to mean anything, whatever ESS says.

    There are three cases. A variable of one element moved at most once in each chain, or it moved a few times
    in all and nothing else is known about it; among many elements, some have a rare value now and then. An
    element is held by a continuous variable where the chains ended, in all chains: it goes from mode to mode
    a few times in all. An index of models is held in most chains and moved rarely: a chain gets to another
    model when the parameters of that model are near by chance, and leaves it at once, or stays until the
    parameters of the first model are near again, so that a few visits say nothing about its probability.
    """
    rarely = seldom(movement)
    unknown = known is None or known.probability is None
    few = (movement.moves.max(axis=0) <= 1) | (rarely & unknown)
    few &= movement.moves.shape[1] == 1
    if known is not None and known.probability is not None:
        held = held_where_they_ended(movement, known.probability)
        few |= known.is_alone & held.all(axis=0) & rarely
        few |= known.is_among_models & (held.mean(axis=0) > 0.5) & few_stays(movement)
    return ~movement.immobile & few & (movement.draws >= ENOUGH_DRAWS)


def held_where_they_ended(movement: Movement, probability: np.ndarray) -> np.ndarray:
    """(chains, elements) bool, whether no move is expected in as many draws as a chain has, judged by the
    probability of a move at the chain's last point.

    Parameters
    ----------
    probability : (chains, elements) float, the probability of another value where the chains ended
    """
    return np.nan_to_num(probability, nan=1.0) * movement.draws < HARDLY_MOVES


# ---------------------------------------------------------------- elements that never moved
def stood_still_by_chance(probability: np.ndarray, draws: int) -> np.ndarray:
    """(elements,) bool, whether in every chain the absence of moves is plausible as chance.

    It is not plausible as chance if a move is so improbable that the element counts as held at its value.

    Parameters
    ----------
    probability : (chains, elements) float, the probability of a move in one draw
    draws : number of draws of a chain
    """
    expected = probability * draws
    return ((expected >= HARDLY_MOVES) & (expected < SURELY_MOVES)).all(axis=0)


def words_of_still(known: Leaving | None, still: np.ndarray, draws: int) -> np.ndarray:
    """A verdict for each element that has the same value in all draws.

    Parameters
    ----------
    known : how probable other values of the elements are, if it is known
    still : (elements,) bool, the elements with the same value in all draws; the words for other elements mean
        nothing
    draws : number of draws of a chain

    Returns
    -------
    (elements,) of "fixed", "certain", "stuck" and "constant"
    """
    found = np.full(len(still), "constant", object)
    if known is None:
        return found
    if known.probability is not None:
        judged = ~np.isnan(known.probability).all(axis=0)
        expected = np.where(judged, known.least, 0.0) * len(known.probability) * draws
        found[judged & known.is_certain] = "certain"
        several = known.several & judged
        # If each of many elements is expected to move rarely, some of them should have moved.
        together = still[known.several].all() and expected[several].sum() >= SURELY_MOVES
        # Among very many elements some stand still by chance, so that more moves must have been expected of a
        # single one.
        surely = SURELY_MOVES + np.log(max(len(still), 1))
        found[several & (expected >= (HARDLY_MOVES if together else surely))] = "stuck"
    found[~known.several] = "fixed"
    return found


def unexplained(known: Leaving | None, verdict: np.ndarray, draws: int) -> np.ndarray:
    """(elements,) bool, constant elements for which nothing known, such as a small probability of other
    values, explains that no other value was seen.

    Parameters
    ----------
    verdict : (elements,) str
    draws : number of draws of all chains
    """
    constant = verdict == "constant"
    if known is None or known.probability is None:
        return constant & (known is None or not known.summed)
    p = np.nanmean(np.where(np.isnan(known.probability), 1.0, known.probability), axis=0)
    rare = (p >= IMPROBABLE) & (known.least * draws < SURELY_MOVES)  # no move was expected
    return constant & (known.is_alone | ~(rare | known.joint))
