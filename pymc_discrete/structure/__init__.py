"""Graphs of PyTensor, and the questions that are asked of them."""

# the rules of all Ops, which must be registered before anything is asked
from pymc_discrete.structure import ops

__all__ = ["ops"]
