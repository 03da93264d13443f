"""Learning of energy-based models of discrete variables, and measures of what was learned."""

from pymc_discrete.evidence.log_partition import log_partition
from pymc_discrete.learning.fit import Fit, fit
from pymc_discrete.learning.metrics import (
    coupling_rmse,
    coupling_strengths,
    hamming_distance_ess,
    recall_of_contacts,
    squared_mmd,
)
from pymc_discrete.learning.models import RBM, GraphModel, Ising, Model, Potts
from pymc_discrete.learning.neural import Embedding, Neural
from pymc_discrete.learning.objectives import (
    EnergyDiscrepancy,
    Objective,
    PseudoLikelihood,
    log_pseudo_likelihoods,
)
from pymc_discrete.learning.samplers import (
    PMP,
    ContrastiveDivergence,
    PersistentPMP,
    ReplayBuffer,
    Sampler,
)

__all__ = [
    "PMP",
    "RBM",
    "ContrastiveDivergence",
    "Embedding",
    "EnergyDiscrepancy",
    "Fit",
    "GraphModel",
    "Ising",
    "Model",
    "Neural",
    "Objective",
    "PersistentPMP",
    "Potts",
    "PseudoLikelihood",
    "ReplayBuffer",
    "Sampler",
    "coupling_rmse",
    "coupling_strengths",
    "fit",
    "hamming_distance_ess",
    "log_partition",
    "log_pseudo_likelihoods",
    "recall_of_contacts",
    "squared_mmd",
]
