"""Exact draws of all sites of a block at once, where variable elimination takes little work.

Where each site interacts with few others, as in a network of tests and diseases, in a chain in which a state
depends on the two before it, or in a narrow lattice, the graph has cycles, and a draw of all sites together
still takes no more work than a few sweeps that draw them one by one (Lauritzen and Spiegelhalter 1988,
Local computations with probabilities on graphical structures).
"""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order

from pymc_discrete.collapse.elements import ElementGroup, Sparse
from pymc_discrete.collapse.elimination import PRODUCTS, Elimination, Paths, TooDear
from pymc_discrete.collapse.sums import Sums, SumTooLarge
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.runtime.float32 import floats_are_32_bit
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.runtime.reuse import MODELS, Kept
from pymc_discrete.space.density import Density

# Work is counted in entries of tables. All else that a sweep does takes as long as this many of them.
WORK_PER_SWEEP = 1000
# A draw of all sites at once may take the work of this many sweeps. Sites that are drawn one by one need
# tens to thousands of sweeps for an independent draw where they depend strongly on each other, else one or
# two.
WORTH_SWEEPS = 16
# Along a path they need more: what is known at one end reaches the other through all sites between them.
WORTH_SWEEPS_OF_PATH = 64
MOST_STAGES = 64  # most stages of the elimination, since the compiled program grows with each of them
# If there are more sites, the sum over this many around one of them is tried first: where it takes too much
# work, so does the whole, which would take long to find out.
SITES_TRIED = 4096

_kept: Kept[Sums | None] = Kept(MODELS)


def sums_at_once(density: Density) -> Sums | None:
    """The sums by which all sites are best drawn at once; None where that takes too much work, or gains
    nothing.

    Not for trees, whose draws `tree_gibbs` makes with less work.
    """
    tree = isinstance(density, ModelDensity) and density.interactions.tree
    return None if tree else affordable_sums(density)


def affordable_sums(density: Density) -> Sums | None:
    """The sums by which all sites of a density can be drawn at once; None where that takes too much work.

    None where nothing interacts, too, and in single precision.
    """
    if not isinstance(density, ModelDensity) or floats_are_32_bit():
        return None
    space, plan = density.space, density.plan
    apart = not space.windowed.any() and not space.constrained.any()
    if not apart or not density.exact or plan.dense or plan.swept:
        return None
    with model_settings():
        return _kept.get((density,), lambda: sums_worth_it(density))


def sums_worth_it(density: ModelDensity) -> Sums | None:
    """What `affordable_sums` returns, once it is known that all supports are finite and all terms sparse."""
    try:
        counts = np.concatenate([np.full(v.size, v.counts.max(initial=1)) for v in density.space.variables])
        groups = [g for g in Sparse(density, counts, shared=True).groups if isinstance(g, ElementGroup)]
        if all(len(g.widths) < 2 for g in groups):
            return None  # independent sites, which a sweep draws at once
        sweep = WORK_PER_SWEEP + sum(len(g.sites) * sum(g.widths) for g in groups)
        tables = sum(g.entries for g in groups)
        check_about_one_site(counts, [g.sites for g in groups], WORTH_SWEEPS_OF_PATH * sweep)
        sums = Sums(density, counts, WORTH_SWEEPS_OF_PATH * sweep - tables, shared=True)
    except (NotImplementedError, SumTooLarge, TooDear):
        return None
    stages = sums.elimination.order.stages
    along = sum((g.sites >= 0).sum() for stage in stages for g in stage if isinstance(g, Paths))
    worth = WORTH_SWEEPS_OF_PATH if along > len(counts) / 2 else WORTH_SWEEPS
    return sums if len(stages) <= MOST_STAGES and sums.work <= worth * sweep else None


def check_about_one_site(counts: np.ndarray, scopes: list[np.ndarray], most: float) -> None:
    """Look at a part of a large graph, a site with those nearest to it, which takes no longer for more sites.

    Parameters
    ----------
    counts, scopes, most : as in `Elimination`; tables that many sites share may have `PRODUCTS` times as many
        entries

    Raises
    ------
    TooDear
        If the sum over this part takes too many entries, and so that over all sites.
    """
    d = len(counts)
    if d <= SITES_TRIED:
        return
    joined = np.concatenate([sites[:, [0, n]] for sites in scopes for n in range(1, sites.shape[1])])
    graph = coo_array((np.ones(len(joined)), joined.T), shape=(d, d)).tocsr()
    near = breadth_first_order(graph, d // 2, directed=False, return_predecessors=False)[:SITES_TRIED]
    number = np.full(d, -1)
    number[near] = np.arange(len(near))
    inside = [number[sites] for sites in scopes]
    Elimination(counts[near], [sites[(sites >= 0).all(axis=1)] for sites in inside], most=PRODUCTS * most)
