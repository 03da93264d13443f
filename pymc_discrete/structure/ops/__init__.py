"""The rules for Ops: a file for each family of Ops, with its answers to all questions about a graph.

A question is a function of `structure/` with a rule for each class of Op (`elements_of`, `bounds_after`, and
so on). The package `structure` imports this package, so that all rules are registered before any graph is
analysed.
"""

from pymc_discrete.structure.ops import (
    elementwise,
    linear_algebra,
    reductions,
    shapes,
    softmax,
    sorting,
    subtensors,
)

__all__ = ["elementwise", "linear_algebra", "reductions", "shapes", "softmax", "sorting", "subtensors"]
