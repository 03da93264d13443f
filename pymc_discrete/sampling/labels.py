"""Chains that differ by the names of their labels only."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from scipy.optimize import linear_sum_assignment
from xarray import DataTree

from pymc_discrete.targets.names import alike, shown

AGREE = 0.1  # mean total variation between the labels of two chains up to which they say the same
FEWEST, EACH = 10, 3  # sites, and sites a label, that a permutation is read from: of fewer one fits by chance
SITES, DRAWS = 1000, 1000  # that are looked at


def switched(tree: DataTree, model: pm.Model) -> dict[tuple[str, ...], np.ndarray]:
    """{variables that share labels: (chains, K) int, the label of chain 0 that each label of a chain is}.

    Those of which some chain has the labels in another order. Found by matching how often each site has each
    label, and only between chains whose log densities agree too.
    """
    posterior, lp = tree["posterior"], np.asarray(tree["sample_stats"]["lp"])
    if len(lp) < 2:
        return {}
    orders_of = {}
    for names in groups(posterior, model):
        x = some_of([posterior[name].data for name in names])
        K = 1 + int(x.max(initial=0))
        if K < 2 or x.min(initial=0) < 0 or x.shape[2] < max(FEWEST, EACH * K):
            continue
        orders = permutations(np.stack([(x == k).mean(axis=1) for k in range(K)], axis=2), lp)
        if orders is not None:
            orders_of[names] = orders
    return orders_of


def some_of(variables: list[np.ndarray]) -> np.ndarray:
    """(chains, some draws, some sites) of variables (chains, draws, ...), evenly spaced, as many as tell the
    labels.
    """
    draws = variables[0].shape[1]
    each = [int(np.prod(a.shape[2:], dtype=int)) for a in variables]
    parts = []
    for a, size in zip(variables, each, strict=True):
        kept = np.arange(0, size, -(-sum(each) // SITES))
        where = np.unravel_index(kept, a.shape[2:]) if a.ndim > 2 else (None,)
        parts.append(a[:, :: -(-draws // DRAWS)][(slice(None), slice(None), *where)])
    return np.concatenate(parts, axis=2)


def groups(posterior: Any, model: pm.Model) -> list[tuple[str, ...]]:
    """The variables of labels: scalars that are named alike (`z0`, `z1`, ...) together, all others alone."""
    names = [
        str(rv.name)
        for rv in model.free_RVs
        if isinstance(rv.owner.op, CategoricalRV | BernoulliRV) and rv.name in posterior
    ]
    scalars = [name for name in names if posterior[name].ndim == 2]
    return [*((name,) for name in names if name not in scalars), *map(tuple, alike(scalars))]


def permutations(frequencies: np.ndarray, lp: np.ndarray) -> np.ndarray | None:
    """(chains, K) int of frequencies (chains, sites, K) and log densities (chains, draws).

    None where no chain has its labels in another order than chain 0, or some chain differs by more.
    """
    first, K = frequencies[0], frequencies.shape[2]
    orders = np.tile(np.arange(K), (len(frequencies), 1))
    spread, mean = lp.std(axis=1), lp.mean(axis=1)
    for chain, own in enumerate(frequencies[1:], start=1):
        apart = between(first, own)
        if apart <= AGREE:
            continue
        mine, theirs = linear_sum_assignment(-(own.T @ first))  # the K x K table of joint counts
        as_probable = abs(mean[chain] - mean[0]) <= spread[chain] + spread[0] + 0.1
        if between(first[:, theirs], own[:, mine]) > min(AGREE, apart / 2) or not as_probable:
            return None
        orders[chain, mine] = theirs
    return orders if (orders != np.arange(K)).any() else None


def between(a: np.ndarray, b: np.ndarray) -> float:
    """The mean total variation of the rows (sites, K) of two chains."""
    return float(np.abs(a - b).sum(axis=1).mean() / 2)


def message(names: tuple[str, ...], orders: np.ndarray) -> str:
    moved = np.flatnonzero((orders != np.arange(orders.shape[1])).any(axis=1))
    labels = np.flatnonzero(orders[moved[0]] != np.arange(orders.shape[1]))[:6]
    example = ", ".join(f"{k} is {orders[moved[0]][k]}" for k in labels)
    which = ", ".join(map(str, moved[:6])) + (", ..." if len(moved) > 6 else "")
    verb = "differs" if len(names) == 1 else "differ"
    chains = "chain" if len(moved) == 1 else "chains"
    return (
        f"{shown(names)} {verb} between chains by labels only: with the labels of {chains} {which} in "
        f"another order (in chain {moved[0]}, {example} in chain 0) all chains agree. This is label "
        "switching: the model is the same whatever its labels are called, and R-hat and ESS of the labels, "
        "and of what belongs to one (the mean of a component), say nothing. Order what the labels stand for "
        "(transform=pm.distributions.transforms.ordered), or relabel the chains before looking at them."
    )


def renamed(orders: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """(chains, elements) labels of the chains as chain 0 calls them."""
    known = (begin >= 0) & (begin < orders.shape[1])
    return np.where(known, np.take_along_axis(orders, np.where(known, begin, 0).astype(int), axis=1), begin)


def order_of(name: str, switched: Mapping[tuple[str, ...], np.ndarray]) -> np.ndarray | None:
    """The permutations of the variables that `name` is among."""
    return next((orders for names, orders in switched.items() if name in names), None)
