"""Gradient-informed sampling of discrete unknowns in PyMC models."""

from pymc_discrete import factor_graphs, kernels, learning, variational
from pymc_discrete.factor_graphs import FactorGraph
from pymc_discrete.sampling.sample import sample
from pymc_discrete.steps.auto import AutoStep, register, registered, unregister
from pymc_discrete.steps.block_gibbs import BlockGibbs
from pymc_discrete.steps.discrete_langevin import DiscreteLangevin
from pymc_discrete.steps.gibbs_with_gradients import GibbsWithGradients
from pymc_discrete.steps.path_auxiliary import PathAuxiliary
from pymc_discrete.steps.perturb_and_max_product import PerturbAndMaxProduct
from pymc_discrete.steps.reparameterized_slice import ReparameterizedSlice
from pymc_discrete.steps.tree_gibbs import TreeGibbs
from pymc_discrete.targets.from_logdensity import target_from_logdensity
from pymc_discrete.targets.from_model import target_from_model
from pymc_discrete.targets.space import Space
from pymc_discrete.targets.target import Target
from pymc_discrete.variational.differentiable_slice import differentiable_slice_sample
from pymc_discrete.variational.energy_posterior import fit_energy_posterior

__all__ = [
    "AutoStep",
    "BlockGibbs",
    "DiscreteLangevin",
    "FactorGraph",
    "GibbsWithGradients",
    "PathAuxiliary",
    "PerturbAndMaxProduct",
    "ReparameterizedSlice",
    "Space",
    "Target",
    "TreeGibbs",
    "differentiable_slice_sample",
    "factor_graphs",
    "fit_energy_posterior",
    "kernels",
    "learning",
    "register",
    "registered",
    "sample",
    "target_from_logdensity",
    "target_from_model",
    "unregister",
    "variational",
]
