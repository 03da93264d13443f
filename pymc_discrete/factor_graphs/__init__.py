"""Factor graphs: message passing, and perturb-and-max-product."""

from pymc_discrete.factor_graphs.dense import Bipartite, Quadratic
from pymc_discrete.factor_graphs.factor_graph import FactorGraph
from pymc_discrete.factor_graphs.logical import Cardinality, LogicalAnd, LogicalOr
from pymc_discrete.factor_graphs.max_product import bethe_log_partition, decode, marginals, run
from pymc_discrete.factor_graphs.perturb_and_map import Draw, pmp
from pymc_discrete.factor_graphs.perturb_and_max_product import perturb_and_max_product
from pymc_discrete.factor_graphs.semiring import MAX, SUM
from pymc_discrete.factor_graphs.tables import Pairwise, Table

__all__ = [
    "MAX",
    "SUM",
    "Bipartite",
    "Cardinality",
    "Draw",
    "FactorGraph",
    "LogicalAnd",
    "LogicalOr",
    "Pairwise",
    "Quadratic",
    "Table",
    "bethe_log_partition",
    "decode",
    "marginals",
    "perturb_and_max_product",
    "pmp",
    "run",
]
