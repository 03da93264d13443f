"""The block Gibbs step."""

import logging
from typing import Any

from pymc.step_methods.state import dataclass_state

from pymc_discrete.kernels.block_gibbs import block_gibbs, turns_of
from pymc_discrete.kernels.kernel import Kernel
from pymc_discrete.steps.discrete import DiscreteStep, DiscreteStepState
from pymc_discrete.targets.linear_constraint import LinearConstraint
from pymc_discrete.targets.names import shown

_log = logging.getLogger("pymc.discrete")


@dataclass_state
class BlockGibbsState(DiscreteStepState):
    pass


class BlockGibbs(DiscreteStep):
    """Block Gibbs for discrete variables: exact conditionals, colour by colour or site by site.

    Where the terms of the log density are sparse, the graph of interacting sites is coloured, and the sites
    of a colour are drawn at once: a mixture, an occupancy or an outlier model has one colour, a hidden Markov
    model or a lattice two. Sites of a dense term (spike-and-slab, a Boltzmann machine) are drawn in turn, and
    the linear map that joins them is updated by one column per site. Integers with a window instead of a full
    support are drawn from a random set of equally spaced values that contains the current one. The counts of
    a `pm.Multinomial` or `pm.DirichletMultinomial` are drawn in random pairs, each given its sum; random
    pairs of places of a `pmd.Permutation` keep or swap their values. Counts x of which a `pm.Potential`
    says that A x = y, `pt.switch(pt.all(pt.eq(A @ x, y)), 0, -np.inf)`, are drawn along integer vectors v
    with A v = 0, each from its conditional on the line x + t v. So are counts that limit each other, as in
    `pm.Binomial("left", n=before, p=0.5)`: alone, and in pairs of which both grow or one takes what the other
    gives.

    Parameters
    ----------
    vars : RV, name or value variable, or a list of them, optional
        What to sample; by default every discrete free variable.
    differences : {"auto", "exact"}
        Where the conditionals come from; "exact" evaluates every neighbour where "auto" takes a gradient.
        See `target_from_model`.
    transitions : "auto" or int
        Sweeps per draw; by default one, and more where they take no longer than the overhead of PyMC's loop.
    support : {name: (lower, upper)}, optional
        Inclusive bounds of variables whose distribution does not determine them.
    window : "auto", "geometric", int or {name: one of these}
        Neighbours of integers without bounds, or with more than 256 values where evaluating all of them is
        too expensive.
    start : {"point", "dispersed"}
        Where a chain starts: at PyMC's initial point (the same for every chain of a mixed model), or at a
        random state of positive density.
    integrate : None, "auto", or a list of variables or names
        Coefficients that are integrated out while the sites move, see `GibbsWithGradients`.
    target_accept, nuts
        As in `GibbsWithGradients`.
    model, blocked, rng, initial_point, compile_kwargs
        As in PyMC's own steps; `compile_kwargs` has no effect, since this step compiles through JAX.

    Attributes
    ----------
    target : Target
    kernel : Kernel
    params : {}
    transitions : int

    Raises
    ------
    ValueError
        Where a conditional is not exact, and for variables or options that this step cannot take. The message
        gives the reason and the remedy.

    Notes
    -----
    Sampler statistics: `accept` and `accepted` (1: nothing is rejected), `discrete_n_moved` (sites that
    ended the draw at another value), `lp`.

    References
    ----------
    Geman and Geman 1984, Stochastic relaxation, Gibbs distributions, and the Bayesian restoration of images.

    Examples
    --------
    >>> with pm.Model():
    ...     z = pm.Bernoulli("z", 0.3, shape=10)
    ...     idata = pm.sample(step=pmd.BlockGibbs())  # doctest: +SKIP
    """

    name = "block_gibbs"
    constrained = True
    equations = True
    _state_class = BlockGibbsState

    def __init__(self, vars: Any = None, **options: Any):
        if options.get("differences") == "gradient":
            raise ValueError(
                f"{type(self).__name__} needs exact conditionals, and differences='gradient' asks for "
                "estimates. Pass 'auto' or 'exact'."
            )
        super().__init__(vars, **options)

    def check_density(self) -> None:
        for name, description in self.target.describe().items():
            if not description["exact"]:
                raise ValueError(
                    f"{type(self).__name__} needs exact conditionals, and those of {name!r} are not: "
                    f"{description['reason']}. Use pmd.PathAuxiliary or pmd.GibbsWithGradients, or pass "
                    "differences='exact' to pay for exact ones."
                )

        for v in self.target.space.variables:
            if isinstance(v.constraint, LinearConstraint) and not len(v.constraint.moving):
                names = shown([v.name])
                _log.info(f"BlockGibbs: {names} has one value that meets all equations: nothing is drawn.")

    def _make_kernel(self) -> tuple[Kernel, dict[str, float]]:
        return block_gibbs()

    def _cost(self) -> float:
        return self.density.cost(one_site=False, stretches=True)

    def expected_moves(self) -> float:
        return float(self.target.space.d)

    @property
    def _rounds(self) -> int:
        target = self.target
        in_turn = sum(len(sites) for _, sites in target.scanned)
        in_turn += sum(len(sets.sets) * turns_of(target, sets) for sets in target.scanned_sets)
        in_turn += sum(turns_of(target, sets) for sets in target.coloured_sets)
        for n, sets, _ in [*target.coloured_lines, *target.scanned_lines]:
            lines = target.space.variables[n].lines
            assert lines is not None
            in_turn += lines.of(sets).turns
        return max(len(target.colours) + in_turn, 1)
