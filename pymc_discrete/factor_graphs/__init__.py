"""Factor graphs: messages, perturb-and-max-product, exact trees."""

from pymc_discrete.factor_graphs.dense import Bipartite, Quadratic
from pymc_discrete.factor_graphs.graph import FactorGraph
from pymc_discrete.factor_graphs.logical import Cardinality, LogicalAnd, LogicalOr
from pymc_discrete.factor_graphs.tables import Pairwise, Table

__all__ = ["Bipartite", "Cardinality", "FactorGraph", "LogicalAnd", "LogicalOr", "Pairwise", "Quadratic", "Table"]
