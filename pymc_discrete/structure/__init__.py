"""PyTensor graphs, and the analyses of them."""

# The rules of all Ops are registered here, before any graph is analysed.
from pymc_discrete.structure import ops

__all__ = ["ops"]
