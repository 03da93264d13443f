"""Exact draws of all sites of a block at once, where variable elimination takes little work.

Where each site interacts with few others, as in a network of tests and diseases, in a chain in which a state
depends on the two before it, or in a narrow lattice, the graph has cycles, and a draw of all sites together
still takes no more work than a few sweeps that draw them one by one (Lauritzen and Spiegelhalter 1988,
Local computations with probabilities on graphical structures).
"""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order

from pymc_discrete.collapse.elements import Joint, Sparse
from pymc_discrete.collapse.elimination import PRODUCTS, Elimination, Paths, TooDear
from pymc_discrete.collapse.sums import Sums, SumTooLarge
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.runtime.float32 import floats_are_32_bit
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.runtime.reuse import MODELS, Kept
from pymc_discrete.space.density import Density
from pymc_discrete.structure import costs
from pymc_discrete.structure.comparisons import excludes_values

# Work is counted in table entries that are computed. A sweep that draws the sites of a block one by one takes
# as long as this many entries, plus the entries of the conditionals of all sites.
WORK_PER_SWEEP = 1000
# A draw of all sites at once may take the work of this many sweeps. Sites that are drawn one by one need tens
# to thousands of sweeps for an independent draw if they depend strongly on each other, and otherwise one or
# two.
WORTH_SWEEPS = 16
# A draw of all sites at once may take the work of this many sweeps if most sites of the block lie along a
# path. Drawn one by one, sites along a path need more sweeps for an independent draw than other sites, since
# information at one end reaches the other end only through all sites between.
WORTH_SWEEPS_OF_PATH = 64
# the largest number of stages of an elimination by which all sites are drawn at once: each makes the program
# larger
MOST_STAGES = 64
# For a block with more sites than this, the elimination of this many sites around one of them is planned
# first. If it takes too much work, so does the elimination of all sites, and to plan that would take long.
SITES_TRIED = 4096

_kept: Kept[Sums | None] = Kept(MODELS, "sums to draw all sites at once")


def sums_at_once(density: Density) -> Sums | None:
    """The sums by which all sites are drawn at once; None where this takes too much work or gains nothing.

    The result is None for trees, since `tree_gibbs` draws them with less work.
    """
    interactions = density.interactions if isinstance(density, ModelDensity) else None
    tree = interactions is not None and interactions.tree and not interactions.scanned
    return None if tree else affordable_sums(density)


def affordable_sums(density: Density) -> Sums | None:
    """The sums by which all sites of a density can be drawn at once; None where that takes too much work.

    The result is also None where no sites interact, and in single precision.
    """
    if not isinstance(density, ModelDensity) or floats_are_32_bit():
        return None
    space, plan = density.space, density.plan
    apart = not space.windowed.any() and not space.constrained.any()
    if not apart or not density.exact or plan.swept:
        return None
    with model_settings():
        return _kept.get((density,), lambda: sums_worth_it(density))


def sums_worth_it(density: ModelDensity) -> Sums | None:
    """The sums by which all sites of a density with finite supports can be drawn at once; None where no sites
    interact, or where such a draw takes too much work.
    """
    try:
        counts = np.concatenate([np.full(v.size, v.counts.max(initial=1)) for v in density.space.variables])
        elements = Sparse(density, counts)
        groups = elements.groups
        if all(len(g.widths) < 2 for g in groups):
            return None  # no table joins two sites: they are independent, and a sweep draws all at once
        more, of_dense = work_of_dense(elements)
        sweep = WORK_PER_SWEEP + sum(len(g.sites) * sum(g.widths) for g in groups) + of_dense
        check_about_one_site(counts, [g.sites for g in groups], WORTH_SWEEPS_OF_PATH * sweep)
        tables = sum(g.entries for g in elements.with_shared_tables())
        sums = Sums(density, counts, WORTH_SWEEPS_OF_PATH * sweep - tables - more, shared=True)
    except (NotImplementedError, SumTooLarge, TooDear):
        return None
    stages = sums.elimination.order.stages
    along = sum((g.sites >= 0).sum() for stage in stages for g in stage if isinstance(g, Paths))
    worth = WORTH_SWEEPS_OF_PATH if along > len(counts) / 2 else WORTH_SWEEPS
    return sums if len(stages) <= MOST_STAGES and sums.work + more <= worth * sweep else None


def work_of_dense(elements: Sparse) -> tuple[float, float]:
    """What dense terms add to the work, in additions: of a draw of all sites at once, and of a sweep.

    Both are 0 where dense terms exclude states: moves of single sites may never leave such a state, whatever
    their number.
    """
    density = elements.density
    graph, joint = density.graph, [g for g in elements.groups if isinstance(g, Joint)]
    totals = [[t.total for t in g.terms] for g in joint]
    if any(excludes_values(of_group, graph) for of_group in totals):
        return 0.0, 0.0
    each = [costs.of_graph(of_group, graph, set(graph.values)) for of_group in totals]
    at_once = sum(cost * g.entries for g, cost in zip(joint, each, strict=True))
    return at_once, sum(part.cost_of_all for part in density.plan.incremental)


def check_about_one_site(counts: np.ndarray, scopes: list[np.ndarray], most: float) -> None:
    """Refuse a large block if a sum over one site and the sites nearest to it already takes too much work.

    Parameters
    ----------
    counts : (d,) int, the number of values of each site
    scopes : a list of (E, J) int, for each array of tables the sites that each table joins
    most : the largest number of entries of all tables, if a table that several sites share is counted once.
        The limit is `PRODUCTS` times as high, since a shared table is counted once for each site

    Raises
    ------
    TooDear
        If the tables of the sum over these few sites have too many entries. The tables of the sum over all
        sites then have too many, too.
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
