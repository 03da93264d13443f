"""Gradient-informed sampling of discrete unknowns in PyMC models."""

from pymc_discrete import kernels
from pymc_discrete.steps.block_gibbs import BlockGibbs
from pymc_discrete.steps.gibbs_with_gradients import GibbsWithGradients
from pymc_discrete.targets.from_logdensity import target_from_logdensity
from pymc_discrete.targets.from_model import target_from_model
from pymc_discrete.targets.space import Space
from pymc_discrete.targets.target import Target

__all__ = ["BlockGibbs", "GibbsWithGradients", "Space", "Target", "kernels", "target_from_logdensity", "target_from_model"]
