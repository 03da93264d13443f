"""Diagnostics of draws of discrete variables: statistics of categories, tables, and the checks of a run."""

from pymc_discrete.diagnostics.statistics.chi_square import chi_square, share_rejected
from pymc_discrete.diagnostics.statistics.effective import categorical_ess, hamming_ess
from pymc_discrete.diagnostics.statistics.movement import moved
from pymc_discrete.diagnostics.statistics.r_star import r_star
from pymc_discrete.diagnostics.statistics.rhat import categorical_rhat, hamming_rhat, nested_rhat
from pymc_discrete.diagnostics.summary import summary, summary_of_vectors

__all__ = [
    "categorical_ess",
    "categorical_rhat",
    "chi_square",
    "hamming_ess",
    "hamming_rhat",
    "moved",
    "nested_rhat",
    "r_star",
    "share_rejected",
    "summary",
    "summary_of_vectors",
]
