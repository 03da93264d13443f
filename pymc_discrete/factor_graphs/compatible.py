"""Checks, before JAX runs, that a log density is a sum of tables and can be made a factor graph."""

from typing import Any

import numpy as np
import pytensor

from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.differences.parts.tables import LARGEST_TABLES
from pymc_discrete.factor_graphs.graph import check_graph_space
from pymc_discrete.factor_graphs.tables import MOST_TABLE_ENTRIES
from pymc_discrete.structure.rounding import room, rounding_of

TRIPLES = 32  # the number of triples of sites, at random points, whose third difference is computed
# the standard deviation of the noise that is added to the starting point of the model's other variables, for
# random points at which a log density is checked
JITTER = 0.3
EXACT_STEP = "pmd.AutoStep() samples it exactly."


def check_compatible(density: ModelDensity) -> None:
    """Refuse a log density that is no sum of tables over pairs and small groups of sites.

    Raises
    ------
    ValueError
        Names the term, its largest deviation from a sum of tables, and the remedy.
    """
    check_graph_space(density.space)
    plan, space = density.plan, density.space
    mixed = sorted({n for part in plan.incremental for n in part.variables})
    size = sum(space.variables[n].size * (space.variables[n].K - 1) for n in mixed) ** 2
    if size > LARGEST_TABLES:
        names = ", ".join(repr(part.term.name) for part in plan.incremental)
        raise ValueError(
            f"{names} would be tables of {size} entries over all pairs of its sites, and {LARGEST_TABLES} "
            f"are taken. {EXACT_STEP}"
        )
    triples = ThirdDifferences(density)
    for part in plan.incremental:
        name = repr(part.term.name)
        blocks = [(space.starts[n], space.variables[n].size) for n in sorted(part.variables)]
        worst = triples.of(part.total, [np.concatenate([start + np.arange(size) for start, size in blocks])])
        if np.isinf(worst):
            raise ValueError(
                f"{name} joins many sites and is infinite or nan at some of their values: no sum "
                f"of tables over pairs. {EXACT_STEP}"
            )
        if worst > 0:
            raise ValueError(
                f"{name} is no factor graph: it joins more than two sites at a time in a way "
                f"that is no sum over pairs (changing three sites changes it by up to {worst:.2g} nats more "
                "than their pairs do). Perturb-and-max-product takes sums of tables, and quadratic forms "
                "such as x @ W @ x or v @ W @ h with the hidden units h as variables; of a network, none. "
                f"{EXACT_STEP}"
            )
        # The random points may miss products of three sites that are not 0 in rare states only. The degree,
        # which is derived from the graph, reveals them.
        if part.degree > 2:
            how = part.why_degree
            raise ValueError(
                f"{name} is no factor graph: {f'{how} joins' if how else 'products join'} more "
                f"than two of its sites, which is no sum over pairs in rare states. {EXACT_STEP}"
            )
    for group in plan.in_place.groups:
        values = (space.upper - space.lower + 1.0)[group.sites]
        entries = values.prod(axis=1).max()
        if entries > MOST_TABLE_ENTRIES and not group.pairwise:
            raise ValueError(
                f"{group.term.name!r} joins {group.sites.shape[1]} sites in one element, a table of up to "
                f"{entries:.0f} entries that is no sum over pairs: a factor graph takes "
                f"{MOST_TABLE_ENTRIES}. Write it as a sum of smaller terms. {EXACT_STEP}"
            )


class ThirdDifferences:
    """Third differences of a log density over triples of sites; all are 0 for a sum of tables over pairs.

    Parameters
    ----------
    density : ModelDensity
    """

    def __init__(self, density: ModelDensity):
        self.density, self.inputs = density, [*density.graph.values, *density.graph.others]

    def of(self, total: Any, elements: list[np.ndarray]) -> float:
        """The largest third difference of a term over random triples.

        Parameters
        ----------
        total : the term, a PyTensor scalar
        elements : [(n,) int], groups of sites; all sites of a triple are taken from one group

        Returns
        -------
        float, nats; 0 where it may be rounding, inf where the term is not finite
        """
        density, space, rng = self.density, self.density.space, np.random.default_rng(0)
        evaluate = pytensor.function(self.inputs, total, mode="FAST_COMPILE", on_unused_input="ignore")
        varying = [sites[space.upper[sites] > space.lower[sites]] for sites in elements]
        elements = [sites for sites in varying if len(sites)]
        worst, scale = 0.0, 1.0
        corners: list[list[np.ndarray]] = []
        for _ in range(TRIPLES if elements else 0):
            sites = elements[rng.integers(len(elements))]
            others, x = perturbed_point(density, rng), random_state(space, rng)
            triple = rng.choice(sites, min(3, len(sites)), replace=False)
            changed = random_state(space, rng, different_from=x)
            values, points = np.zeros((2, 2, 2)), []
            for corner in np.ndindex(2, 2, 2):
                y = x.copy()
                for i, is_changed in zip(triple, corner, strict=False):
                    y[i] = changed[i] if is_changed else x[i]
                points.append([*values_in_graph(density, y), *others])
                values[corner] = evaluate(*points[-1])
            if not np.isfinite(values).all():
                return np.inf
            if len(triple) == 3:
                third = np.diff(np.diff(np.diff(values, axis=0), axis=1), axis=2)
                worst, corners = max(
                    (worst, corners), (float(np.abs(third).max()), points), key=lambda pair: pair[0]
                )
                scale = max(scale, float(np.abs(values).max()))
        eps = np.finfo(float).eps
        if worst <= np.sqrt(eps) * scale:
            return 0.0
        rounding = rounding_of(total, self.inputs)
        return worst if worst > sum(float(room(rounding(*point), eps)) for point in corners) else 0.0


def values_in_graph(density: ModelDensity, x: np.ndarray) -> list[np.ndarray]:
    """The values x (d,) of a block as the inputs of its PyTensor graph, an array for each variable."""
    values = zip(density.graph.values, density.space.blocks, strict=True)
    return [x[a : a + v.size].reshape(v.shape).astype(value.type.dtype) for value, (a, v) in values]


def perturbed_point(density: ModelDensity, rng: np.random.Generator) -> list[np.ndarray]:
    """Values of the model's other variables: the starting point, with noise on the continuous ones."""
    start = density.numbers | density.start
    values = [np.asarray(start[v.name]) for v in density.graph.others]
    return [
        (value + JITTER * rng.normal(size=value.shape)).astype(value.dtype)
        if value.dtype.kind == "f" and v.name not in density.numbers
        else value
        for v, value in zip(density.graph.others, values, strict=True)
    ]


def random_state(
    space: Any, rng: np.random.Generator, different_from: np.ndarray | None = None
) -> np.ndarray:
    """(d,) int, random values; at sites with two values or more, they differ from `different_from`."""
    x = rng.integers(space.lower, space.upper + 1)
    if different_from is None:
        return x
    count = space.upper - space.lower + 1
    shifted = space.lower + (x - space.lower + rng.integers(1, np.maximum(count, 2))) % count
    return np.where(x == different_from, shifted, x)
