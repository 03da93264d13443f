"""The samplers of the experiments, by name: how each is made, and what a step of it costs in evaluations."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.experiments import baselines
from benchmarks.harness import CannotRun
from pymc_discrete import kernels


@dataclass(frozen=True)
class Sampler:
    """A sampler.

    Attributes
    ----------
    make : (model) -> (kernel, params)
    evaluations : (mean moves of a proposal, space) -> evaluations per step. One evaluation is one log
        density, or the differences of all neighbours computed together: by one gradient, or by exact tables,
        which cost about as much
    """

    name: str
    make: Callable
    evaluations: Callable


def baseline(name, factory, evaluations, **options):
    def make(model):
        return factory(**options)

    return Sampler(name, make, evaluations)


def ours(name, factory, evaluations=lambda moves, space: 1.0, **options):
    def make(model):
        if not hasattr(kernels, factory):
            raise CannotRun(f"pymc_discrete.kernels has no {factory} here")
        try:
            return getattr(kernels, factory)(**options)
        except (TypeError, NotImplementedError) as error:
            raise CannotRun(f"kernels.{factory}: {error}") from error

    return Sampler(name, make, evaluations)


def auto_step(model):
    """The kernel that pmd.AutoStep chooses, where it chooses one for the whole model."""
    import pymc_discrete as pmd

    if not hasattr(pmd, "AutoStep"):
        raise CannotRun("pymc_discrete has no AutoStep here")
    with model:
        step = pmd.AutoStep()
    if not hasattr(step, "kernel"):
        raise CannotRun(f"AutoStep made a {type(step).__name__} of several steps")
    print(f"AutoStep: {type(step).__name__}", flush=True)
    return step.kernel, dict(step.params)


def neighbours(space):
    return int((space.upper - space.lower).sum())


ALL = [
    baseline("RW", baselines.random_walk, lambda m, s: 1.0),
    baseline("Gibbs-1", baselines.gibbs, lambda m, s: s.K, scan="random"),
    baseline("Gibbs-1-systematic", baselines.gibbs, lambda m, s: s.K, scan="systematic"),
    baseline("Gibbs-2", baselines.gibbs, lambda m, s: s.K**2, block=2, scan="shuffled"),
    baseline("HB-10-1", baselines.hamming_ball, lambda m, s: 1 + 10 * (s.K - 1)),
    baseline("LB", baselines.locally_balanced, lambda m, s: 1 + neighbours(s)),
    ours("GWG-1", "gibbs_with_gradients", n_flips=1),
    ours("GWG-adapt", "gibbs_with_gradients", n_flips="adapt"),
    *[ours(f"GWG-{n}", "gibbs_with_gradients", n_flips=n) for n in (2, 3, 5, 10, 20)],
    *[ours(f"PAFS-{n}", "path_auxiliary", path_length=n) for n in (1, 2, 3, 5, 10, 20)],
    ours("PAFS-adapt", "path_auxiliary", path_length="adapt"),
    # differences at every point of a path but the first, which is the state's
    *[
        ours(f"PAS-{n}", "path_auxiliary", lambda m, s: m, path_length=n, recompute=True)
        for n in (1, 2, 3, 5, 10, 20)
    ],
    ours("PAS-adapt", "path_auxiliary", lambda m, s: m, path_length="adapt", recompute=True),
    *[ours(f"NB-{n}", "path_auxiliary", path_length=n, backtrack=False) for n in (1, 2, 3, 5, 10, 20)],
    ours("NB-adapt", "path_auxiliary", path_length="adapt", backtrack=False),
    ours("DMALA", "discrete_langevin", proposal="dlp"),
    ours("DLMC", "discrete_langevin", proposal="dlmc"),
    ours("BlockGibbs", "block_gibbs"),
    Sampler("AutoStep", auto_step, lambda m, s: 1.0),
]
SAMPLERS = {s.name: s for s in ALL}
