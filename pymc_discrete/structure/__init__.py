"""PyTensor graphs, and the analyses of them."""

# This import registers the rules by which the analyses treat each Op, before any graph is analysed.
from pymc_discrete.structure import ops

__all__ = ["ops"]
