"""What is known of Ops: a file for each family, with the answers to all questions about it.

A question is a function of `structure/` with a rule for each class of Op (`elements_of`, `bounds_after`, and
so on). The package `structure` imports this one, so that all rules are there before anything can be asked.
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
