"""Learning of energy-based models of discrete variables, and a distance between sets of samples."""

from pymc_discrete.evidence.log_partition import log_partition
from pymc_discrete.learning.fit import Fit, fit
from pymc_discrete.learning.metrics import squared_mmd
from pymc_discrete.learning.models import RBM, Ising, Model, Potts
from pymc_discrete.learning.samplers import PMP, ContrastiveDivergence, PersistentPMP, Sampler

__all__ = [
    "PMP",
    "RBM",
    "ContrastiveDivergence",
    "Fit",
    "Ising",
    "Model",
    "PersistentPMP",
    "Potts",
    "Sampler",
    "fit",
    "log_partition",
    "squared_mmd",
]
