"""Label switching: chains that agree once their labels are permuted."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from xarray import DataTree

from pymc_discrete.diagnostics.orders import orders_of
from pymc_discrete.targets.names import alike, shown

SWITCHING = (
    "This is label switching: the model is the same whatever its labels are called, and R-hat and ESS of the "
    "labels, and of what belongs to one (the mean of a component), say nothing. pmd.relabel undoes it; or "
    "order what the labels stand for (transform=pm.distributions.transforms.ordered)."
)


def switched(tree: DataTree, model: pm.Model) -> dict[tuple[str, ...], np.ndarray]:
    """The variables of which some chain has the labels in another order, and the permutations.

    Returns
    -------
    {variables that share labels: (chains, K) int, the label in chain 0 of each label of a chain}
    """
    posterior, lp = tree["posterior"], np.asarray(tree["sample_stats"]["lp"])
    found = {
        names: orders_of([posterior[name].data for name in names], lp) for names in groups(posterior, model)
    }
    return {names: orders for names, orders in found.items() if orders is not None}


def categories(posterior: Any, model: pm.Model) -> list[str]:
    """The variables whose values are categories; an indicator is one with the two categories 0 and 1."""
    return [
        str(rv.name)
        for rv in model.free_RVs
        if isinstance(rv.owner.op, CategoricalRV | BernoulliRV) and rv.name in posterior
    ]


def groups(posterior: Any, model: pm.Model) -> list[tuple[str, ...]]:
    """Groups of variables of categories: scalars named alike (`z0`, `z1`, ...) are one, all others alone."""
    names = categories(posterior, model)
    scalars = [name for name in names if posterior[name].ndim == 2]
    return [*((name,) for name in names if name not in scalars), *map(tuple, alike(scalars))]


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
        f"another order (in chain {permuted[0]}, {example} in chain 0) all chains agree. {SWITCHING}"
    )


def message_within(names: list[str]) -> str:
    """The warning for variables `names` whose labels change their order within chains."""
    return (
        f"The labels of {shown(names)} change within chains: with those of some draws in another order, all "
        f"draws agree. {SWITCHING}"
    )


def order_of(name: str, switched: Mapping[tuple[str, ...], np.ndarray]) -> np.ndarray | None:
    """(chains, K) int, the permutations of the labels of variable `name`, or None."""
    return next((orders for names, orders in switched.items() if name in names), None)
