"""A word for each element of a discrete variable: what its draws say of the sampling."""

import json
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_discrete.diagnostics.standing import CHANCE, FEW, FEWEST, Leaving, by_chance, words_of_still
from pymc_discrete.runtime.names import untransformed

RHAT = 1.01  # a larger R-hat is slow mixing, as in PyMC's own warning
EACH = 100  # so are fewer effective draws for each chain
MODES = 1.5  # R-hat from which chains are taken to be in different modes
STRETCHES = 10  # into so many stretches the draws of a chain are cut, to see in how many an element moved
VERDICTS = {"observed", "fixed", "certain", "constant", "labels", "stuck", "apart", "slow", "ok"}
# the attributes of a variable in the group `conditionals`
FACTS = ("joint", "together", "by", "unused", "summed")


class Movement(NamedTuple):
    """How the elements of a variable moved.

    Attributes
    ----------
    begin : (chains, elements) int, the first values
    moves : (chains, elements) int, how many draws differ from the one before
    stretches : (chains, elements) int, in how many of ten stretches of equal length it moved
    draws : number of draws of a chain
    """

    begin: np.ndarray
    moves: np.ndarray
    stretches: np.ndarray
    draws: int

    @property
    def still(self) -> np.ndarray:
        """(elements,) bool, which have one value in all draws."""
        return (self.moves == 0).all(axis=0) & (self.begin == self.begin[0]).all(axis=0)

    @property
    def seldom(self) -> np.ndarray:
        """(elements,) bool, which moved so rarely that what is known beside the draws matters."""
        return self.stretches.sum(axis=0) < max(CHANCE, len(self.moves))


def known_of(posterior: xr.Dataset, tree: xr.DataTree | None, name: str) -> Leaving | None:
    """What a result has of a variable besides its draws: conditional probabilities; or None.

    The group `conditionals` has the probability that an element changes where the chains ended;
    `probabilities` has those of all values of what was summed out, which are means over all draws. There a
    probability of 0 may be a value that is impossible, or one too improbable for floats, so an element has a
    single possible value only where the group has no other.
    """
    chains = posterior.sizes["chain"]
    found = None
    leaving = _group(tree, "conditionals", name, chains)
    if leaving is not None:
        leaving = np.asarray(leaving, float).reshape(chains, -1)
        facts = {k: v for k, v in tree["conditionals"][name].attrs.items() if k in FACTS}  # type: ignore[index]
        of_each = {}
        for fact in ("several", "certain", "alone"):
            a = _group(tree, "conditionals", f"{name} {fact}:")
            of_each[fact] = None if a is None else np.asarray(a, bool).ravel()
        several = of_each.pop("several")
        several = np.ones(leaving.shape[1], bool) if several is None else several
        found = Leaving(
            several,
            None if np.isnan(leaving).all() else leaving,
            bool(facts.get("joint", False)),
            str(facts.get("together", "")),
            by=tuple(json.loads(facts.get("by", "[]"))),
            unused=tuple(json.loads(facts.get("unused", "[]"))),
            summed=bool(facts.get("summed", False)),
            **of_each,
        )
    p = _group(tree, "probabilities", name, chains)
    if p is None:
        return found
    p = p.reshape(chains, -1, p.shape[-1])
    commonest = np.nansum(p, axis=0).argmax(axis=1)
    leaving = np.maximum(1.0 - p[:, np.arange(p.shape[1]), commonest], 0.0)
    unbounded = _group(tree, "probabilities", f"{name} outside") is not None
    several = np.full(p.shape[1], p.shape[2] > 1 or unbounded)
    if found is None:
        return Leaving(several, leaving, joint=True, summed=True)
    return found._replace(several=several & found.several, probability=leaving, joint=True, summed=True)


def conditionals(posterior: Any, known: dict[str, Leaving]) -> xr.Dataset:
    """What is known of the elements of sampled variables beside their draws, for `pmd.summary` and the plots.

    Returns
    -------
    xarray.Dataset
        For each variable NAME of the posterior an array (chain, <dims>), the probability that an element has
        another value than in the last draw of the chain, given everything else, nan where it is not known;
        and (<dims>) bool "NAME several:", whether it has several possible values, "NAME certain:", whether
        the odds of the others are the same wherever the rest of the model is, and "NAME alone:", whether a
        continuous variable enters its conditional only. The attributes of NAME are the rest of `Leaving`.
    """
    arrays = {}
    for name, of in known.items():
        last = posterior[name].isel(draw=-1, drop=True)
        p = np.full(last.shape, np.nan) if of.probability is None else of.probability.reshape(last.shape)
        arrays[name] = last.copy(data=p).assign_attrs(
            joint=int(of.joint),
            together=of.together,
            by=json.dumps([untransformed(n) for n in of.by]),
            unused=json.dumps(of.unused),
            summed=int(of.summed),
        )
        each = {"several": of.several, "certain": of.is_certain, "alone": of.is_alone}
        for fact, a in each.items():
            arrays[f"{name} {fact}:"] = last.isel(chain=0, drop=True).copy(data=a.reshape(last.shape[1:]))
    return xr.Dataset(arrays)


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
    known: Leaving | None = None,
    agree: np.ndarray | None = None,
    switch: bool = False,
    observed: np.ndarray | None = None,
) -> np.ndarray:
    """The verdict on each element, the first of these that applies.

    ========= =============================================================================================
    observed  it is data, and not drawn
    fixed     it has one possible value
    certain   one value in all chains, as was to be expected: others are too improbable, wherever the rest is
    constant  one value in all chains, and nothing says that the rest does not hold it there
    labels    draws differ, and no longer do once the labels of some chains, or of some draws, are permuted
    stuck     some chain never moved though it should have: others moved much, or other values are probable
    apart     no chain moved, and chains stand at different values
    slow      R-hat above 1.01, less than 100 effective draws for each chain, or too few moves to tell
    ok        none of these
    ========= =============================================================================================

    Parameters
    ----------
    movement : Movement
    rhat, ess : (elements,) float, of categories
    known : what is known of possible values and their probabilities
    agree : (elements,) bool, whether chains begin alike once labels are permuted, if that makes chains agree
    switch : whether labels are permuted within chains, and draws that are relabelled mix
    observed : (elements,) bool, which elements are data

    Returns
    -------
    (elements,) str
    """
    begin, moves, _, draws = movement
    immobile = moves == 0
    still, differ = immobile.all(axis=0), (begin != begin[0]).any(axis=0)
    constant, apart = still & ~differ, still & differ
    if draws < FEWEST and known is not None and known.probability is not None:
        apart &= [not all(by_chance(p, draws, FEW / draws) for p in each) for each in known.probability.T]
    mixes = (rhat <= RHAT) & (ess >= EACH * len(begin)) & ~too_few_moves(movement, known)
    found = np.where(mixes, "ok", "slow").astype(object)
    found[stuck_chains(movement, known).any(axis=0) & ~still] = "stuck"
    found[apart] = "apart"
    if switch:
        found[found == "slow"] = "labels"
    if agree is not None:
        found[~mixes & ~constant & (agree | ~still)] = "labels"
    found[constant] = words_of_still(known, constant, draws)[constant]
    if observed is not None:
        found[observed] = "observed"
    return found.astype(str)


def stuck_chains(movement: Movement, known: Leaving | None) -> np.ndarray:
    """(chains, elements) bool, chains in which an element stood still though it moved in others.

    It is no coincidence where the others moved in so many of their stretches that one would stand still in
    all of its own with a probability below e^-7, of any of the elements. Moves in clumps shorter than a
    stretch count once. Of what is summed out, and drawn anew each time, the probabilities in the chain itself
    tell how often it should have moved.
    """
    immobile = movement.moves == 0
    least = CHANCE + np.log(max(immobile.shape[1], 1))
    if known is not None and known.summed and known.probability is not None:
        return immobile & (known.probability * movement.draws > least)
    of_others = STRETCHES * (~immobile).sum(axis=0)
    without = (of_others - movement.stretches.sum(axis=0) + 1) / (of_others + 2)
    return immobile & (STRETCHES * np.log(without) < -least) & (movement.draws >= FEWEST)


def too_few_moves(movement: Movement, known: Leaving | None) -> np.ndarray:
    """(elements,) bool, elements that moved too rarely for their shares to mean anything, whatever ESS says.

    A variable of one element of which no chain came back to a value that it had left: nothing tells how long
    it stays there; or one that moved a few times in all, where nothing else is known of it. (Of many elements
    some have a rare value now and then, or where a chain begins or ends.) Or an element
    that a continuous variable holds where the chains ended, in all of them: it goes from mode to mode, a few
    times in all.
    """
    moved = (movement.moves > 0).any(axis=0)
    unknown = known is None or known.probability is None
    few = (movement.moves.max(axis=0) <= 1) | (movement.seldom & unknown)
    few &= movement.moves.shape[1] == 1
    if known is not None and known.probability is not None:
        held = (np.nan_to_num(known.probability, nan=1.0) * movement.draws < FEW).all(axis=0)
        few |= known.is_alone & held & movement.seldom
    return moved & few & (movement.draws >= FEWEST)
