"""Label switching: chains that agree once their labels are permuted."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from xarray import DataTree

from pymc_discrete.targets.names import alike, shown

AGREE = 0.1  # two chains agree if the mean total variation distance of their labels is at most this
# smallest numbers of sites, and of sites per label, from which a permutation is estimated; with fewer sites,
# some permutation fits by chance
FEWEST, EACH = 10, 3
SITES, DRAWS = 1000, 1000  # largest numbers of sites and of draws that are compared; they are evenly spaced


def switched(tree: DataTree, model: pm.Model) -> dict[tuple[str, ...], np.ndarray]:
    """The variables of which some chain has the labels in another order, and the permutations.

    The permutations match how often each site has each label. They are given only if the log densities of
    the chains agree too.

    Returns
    -------
    {variables that share labels: (chains, K) int, the label in chain 0 of each label of a chain}
    """
    posterior, lp = tree["posterior"], np.asarray(tree["sample_stats"]["lp"])
    if len(lp) < 2:
        return {}
    by_names = {}
    for names in groups(posterior, model):
        x = thinned([posterior[name].data for name in names])
        K = 1 + int(x.max(initial=0))
        if K < 2 or x.min(initial=0) < 0 or x.shape[2] < max(FEWEST, EACH * K):
            continue
        orders = permutations(np.stack([(x == k).mean(axis=1) for k in range(K)], axis=2), lp)
        if orders is not None:
            by_names[names] = orders
    return by_names


def thinned(variables: list[np.ndarray]) -> np.ndarray:
    """(chains, n, m), at most `DRAWS` draws of at most `SITES` sites of variables (chains, draws, ...)."""
    draws = variables[0].shape[1]
    sizes = [int(np.prod(a.shape[2:], dtype=int)) for a in variables]
    parts = []
    for a, size in zip(variables, sizes, strict=True):
        kept = np.arange(0, size, -(-sum(sizes) // SITES))
        index = np.unravel_index(kept, a.shape[2:]) if a.ndim > 2 else (None,)
        parts.append(a[:, :: -(-draws // DRAWS)][(slice(None), slice(None), *index)])
    return np.concatenate(parts, axis=2)


def groups(posterior: Any, model: pm.Model) -> list[tuple[str, ...]]:
    """Groups of categorical variables: scalars named alike (`z0`, `z1`, ...) are one, all others alone."""
    names = [
        str(rv.name)
        for rv in model.free_RVs
        if isinstance(rv.owner.op, CategoricalRV | BernoulliRV) and rv.name in posterior
    ]
    scalars = [name for name in names if posterior[name].ndim == 2]
    return [*((name,) for name in names if name not in scalars), *map(tuple, alike(scalars))]


def permutations(frequencies: np.ndarray, lp: np.ndarray) -> np.ndarray | None:
    """(chains, K) int, the label in chain 0 of each label of a chain.

    None if all chains have their labels in the order of chain 0, or if some chain differs from chain 0 in
    more than the order of its labels.

    Parameters
    ----------
    frequencies : (chains, sites, K) float, how often each site has each label
    lp : (chains, draws) float, log densities, nats
    """
    from scipy.optimize import linear_sum_assignment  # imported only here, as that takes long

    first, K = frequencies[0], frequencies.shape[2]
    orders = np.tile(np.arange(K), (len(frequencies), 1))
    spread, mean = lp.std(axis=1), lp.mean(axis=1)
    for chain, other in enumerate(frequencies[1:], start=1):
        distance = total_variation(first, other)
        if distance <= AGREE:
            continue
        # the K x K table counts how often a site has one label in this chain and the other in chain 0
        of_chain, of_first = linear_sum_assignment(-(other.T @ first))
        as_probable = abs(mean[chain] - mean[0]) <= spread[chain] + spread[0] + 0.1
        left = total_variation(first[:, of_first], other[:, of_chain])
        if left > min(AGREE, distance / 2) or not as_probable:
            return None
        orders[chain, of_chain] = of_first
    return orders if (orders != np.arange(K)).any() else None


def total_variation(a: np.ndarray, b: np.ndarray) -> float:
    """The total variation distance of the frequencies (sites, K) of two chains, averaged over the sites."""
    return float(np.abs(a - b).sum(axis=1).mean() / 2)


def message(names: tuple[str, ...], orders: np.ndarray) -> str:
    """The warning for variables `names` whose labels are switched by `orders` (chains, K)."""
    permuted = np.flatnonzero((orders != np.arange(orders.shape[1])).any(axis=1))
    labels = np.flatnonzero(orders[permuted[0]] != np.arange(orders.shape[1]))[:6]
    example = ", ".join(f"{k} is {orders[permuted[0]][k]}" for k in labels)
    which = ", ".join(map(str, permuted[:6])) + (", ..." if len(permuted) > 6 else "")
    verb = "differs" if len(names) == 1 else "differ"
    chains = "chain" if len(permuted) == 1 else "chains"
    return (
        f"{shown(names)} {verb} between chains by labels only: with the labels of {chains} {which} in "
        f"another order (in chain {permuted[0]}, {example} in chain 0) all chains agree. This is label "
        "switching: the model is the same whatever its labels are called, and R-hat and ESS of the labels, "
        "and of what belongs to one (the mean of a component), say nothing. Order what the labels stand for "
        "(transform=pm.distributions.transforms.ordered), or relabel the chains before looking at them."
    )


def relabelled(orders: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(chains, elements), the labels of all chains replaced by those of chain 0."""
    known = (labels >= 0) & (labels < orders.shape[1])
    first = np.take_along_axis(orders, np.where(known, labels, 0).astype(int), axis=1)
    return np.where(known, first, labels)


def order_of(name: str, switched: Mapping[tuple[str, ...], np.ndarray]) -> np.ndarray | None:
    """(chains, K) int, the permutations of the labels of variable `name`, or None."""
    return next((orders for names, orders in switched.items() if name in names), None)
