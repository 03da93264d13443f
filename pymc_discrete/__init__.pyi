from . import diagnostics, factor_graphs, kernels, learning, variational
from .collapse.marginalize import marginalize
from .collapse.most_probable import most_probable
from .collapse.recover import recover
from .diagnostics.labels.coclustering import coclustering
from .diagnostics.labels.partition import partition
from .diagnostics.labels.relabel import relabel
from .diagnostics.summary import summary
from .differences.from_logdensity import target_from_logdensity
from .differences.from_model import target_from_model
from .distributions.partition import Partition
from .distributions.permutation import Permutation
from .evidence.log_evidence import log_evidence
from .factor_graphs import FactorGraph
from .flows.fit import fit_flow
from .flows.step import FlowStep
from .plots.chains import plot_chains
from .plots.coclustering import plot_coclustering
from .plots.counts import plot_counts
from .plots.inclusion import plot_inclusion
from .plots.moves import plot_moves
from .plots.probabilities import plot_probabilities
from .sampling.sample import sample
from .space.space import Space
from .space.target import Target
from .steps.auto import AutoStep, register, registered, unregister
from .steps.collapsed_nuts import CollapsedNUTS
from .steps.custom import CustomStep
from .steps.methods import (
    BlockGibbs,
    DiscreteLangevin,
    GibbsWithGradients,
    PathAuxiliary,
    PerturbAndMaxProduct,
    SwendsenWang,
    TreeGibbs,
)
from .steps.reparameterized_slice import ReparameterizedSlice
from .variational.differentiable_slice import differentiable_slice_sample
from .variational.energy_posterior import fit_energy_posterior
from .version import __version__

__all__ = [
    "AutoStep",
    "BlockGibbs",
    "CollapsedNUTS",
    "CustomStep",
    "DiscreteLangevin",
    "FactorGraph",
    "FlowStep",
    "GibbsWithGradients",
    "Partition",
    "PathAuxiliary",
    "Permutation",
    "PerturbAndMaxProduct",
    "ReparameterizedSlice",
    "Space",
    "SwendsenWang",
    "Target",
    "TreeGibbs",
    "__version__",
    "coclustering",
    "diagnostics",
    "differentiable_slice_sample",
    "factor_graphs",
    "fit_energy_posterior",
    "fit_flow",
    "kernels",
    "learning",
    "log_evidence",
    "marginalize",
    "most_probable",
    "partition",
    "plot_chains",
    "plot_coclustering",
    "plot_counts",
    "plot_inclusion",
    "plot_moves",
    "plot_probabilities",
    "recover",
    "register",
    "registered",
    "relabel",
    "sample",
    "summary",
    "target_from_logdensity",
    "target_from_model",
    "unregister",
    "variational",
]
