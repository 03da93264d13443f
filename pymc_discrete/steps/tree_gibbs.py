"""The tree Gibbs step."""

from pymc_discrete.collapse.at_once import sums_at_once
from pymc_discrete.kernels.kernel import Kernel
from pymc_discrete.kernels.tree_gibbs import tree_gibbs
from pymc_discrete.steps.block_gibbs import BlockGibbs


class TreeGibbs(BlockGibbs):
    """Tree Gibbs for discrete variables: exact joint draws of trees inside the model.

    Sites that the log density joins in pairs (neighbours in a hidden Markov chain, on a lattice, on a tree)
    are drawn together in sets without cycles, given all others. If a whole block is a chain or a tree, every
    draw of it is independent of the previous one, given the rest of the model. So is it where sites interact
    in cycles, also three and more in a term, and all can be summed out one after another for at most 16 times
    the work of a sweep: a network of tests and diseases, a chain in which a state depends on the two before
    it, a few coupled chains, a narrow lattice. On other graphs with cycles a draw takes in turn random
    forests that together cover all sites. Sites that no pair joins (labels of a mixture, counts with windows,
    sites of a dense term) are drawn as by `BlockGibbs`.

    Parameters
    ----------
    vars : RV, name or value variable, or a list of them, optional
        What to sample; by default every discrete free variable that is not a constrained vector.
    differences, transitions, support, window, start, integrate, target_accept, nuts
        As in `BlockGibbs`.
    model, blocked, rng, initial_point, compile_kwargs
        As in `BlockGibbs`.

    Raises
    ------
    ValueError
        Where a conditional is not exact, and for variables or options that this step cannot take. The message
        gives the reason and the remedy.

    Notes
    -----
    A draw costs K^2 operations for every edge of a forest. They run in successive steps, twice as many as the
    forest is deep: 1000 for a chain of 1000 sites, whose root is its middle. With many chains at once this
    latency matters less.

    Sampler statistics: those of `BlockGibbs`.

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

    name = "tree_gibbs"
    constrained = False
    equations = False

    def _make_kernel(self) -> tuple[Kernel, dict[str, float]]:
        return tree_gibbs(sums_at_once)

    @property
    def joint(self) -> bool:
        return sums_at_once(self.density) is not None or (self.target.tree and not self.target.scanned)

    def _cost(self) -> float:
        sums = sums_at_once(self.density)
        return super()._cost() if sums is None else float(sums.entries)

    @property
    def _rounds(self) -> int:
        sums = sums_at_once(self.density)
        if sums is not None:
            return 2 * len(sums.elimination.order.stages)
        return super()._rounds + 2 * sum(len(forest.node) for forest in self.target.forests[0])
