"""Tree Gibbs, which also draws all sites at once where they can be summed out."""

from dataclasses import dataclass
from typing import Any, ClassVar

from pymc_discrete.collapse.at_once import sums_at_once
from pymc_discrete.kernels.block_gibbs import BlockGibbs
from pymc_discrete.kernels.kernel import Kernel
from pymc_discrete.kernels.tree_gibbs import tree_gibbs


@dataclass(frozen=True)
class TreeGibbs(BlockGibbs):
    """Tree Gibbs for discrete variables: exact joint draws of trees inside the model.

    Sites that the log density joins in pairs (neighbours in a hidden Markov chain, on a lattice, on a tree)
    are drawn together in sets without cycles, given all others. If a whole block is a chain or a tree, every
    draw of it is independent of the previous one, given the rest of the model. Draws are also independent
    where sites interact in cycles, even three or more sites in a term, if all sites can be summed out one
    after another for at most 16 times the work of a sweep: a network of tests and diseases, a narrow lattice;
    or for 64 times the work, if the sites have an order in which each interacts with a few that follow it: a
    chain in which a state depends on the two or three before it, states and durations, a few coupled chains.
    On other graphs with cycles a draw takes in turn random forests that together cover all sites. Sites that
    no pair joins (labels of a mixture, counts with windows, sites of a term whose elements read many) are
    drawn as by `BlockGibbs`, but at once if the sites of such a term have at most 4096 states together and
    the term excludes some of these, as the checks of a code do, or costs as little as said above.

    Parameters
    ----------
    differences : {"auto", "exact"}
        Where the conditionals come from; "exact" evaluates every neighbour where "auto" takes a gradient.

    Raises
    ------
    ValueError
        Where a conditional is not exact.

    Notes
    -----
    A draw costs K^2 operations for every edge of a forest. These run in successive steps, twice as many as
    the forest is deep: 1000 steps for a chain of 1000 sites, whose root is its middle. With many chains at
    once this latency matters less.

    References
    ----------
    Hamze and de Freitas 2004, From fields to trees. Carter and Kohn 1994, On Gibbs sampling for
    state space models. Lauritzen and Spiegelhalter 1988, Local computations with probabilities on graphical
    structures and their application to expert systems.

    Examples
    --------
    >>> with pm.Model():
    ...     z = pm.Bernoulli("z", 0.3, shape=10)
    ...     pm.Potential("chain", 2.0 * pt.eq(z[1:], z[:-1]).sum())
    ...     idata = pm.sample(step=pmd.TreeGibbs())  # doctest: +SKIP
    """

    constrained: ClassVar[bool] = False
    equations: ClassVar[bool] = False

    def kernel(self) -> tuple[Kernel, dict[str, Any]]:
        return tree_gibbs(sums_at_once)

    def joint(self, target: Any) -> bool:
        return sums_at_once(target.density) is not None or (
            target.interactions.tree and not target.interactions.scanned
        )

    def operations(self, target: Any) -> float:
        sums = sums_at_once(target.density)
        return super().operations(target) if sums is None else float(sums.entries)

    def computations(self, target: Any) -> int:
        sums = sums_at_once(target.density)
        if sums is not None:
            return 2 * len(sums.elimination.order.stages)
        return super().computations(target) + 2 * sum(
            len(forest.node) for forest in target.interactions.forests[0]
        )
