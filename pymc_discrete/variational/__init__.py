"""Differentiable slice sampling, and variational inference with energy-based distributions."""

from pymc_discrete.variational.differentiable_slice import SlicePath, differentiable_slice_sample
from pymc_discrete.variational.energies import TiltedNormal
from pymc_discrete.variational.energy_posterior import EnergyPosterior, fit_energy_posterior

__all__ = [
    "EnergyPosterior",
    "SlicePath",
    "TiltedNormal",
    "differentiable_slice_sample",
    "fit_energy_posterior",
]
