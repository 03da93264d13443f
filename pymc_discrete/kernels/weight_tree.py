"""A tree of weights, in which one weight can be changed and one entry drawn in few operations."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pymc_discrete.kernels.random import entry_and_rest, running_sum


class Sites(NamedTuple):
    """Weights of all sites in a tree of three levels; a change of one weight updates the sums above it.

    Attributes
    ----------
    leaves : (b^2, b) float, the weights, padded with zeros to b^3 >= d
    branches : (b, b) float, sums over the rows of `leaves`
    stems : (b,) float, sums over the rows of `branches`
    """

    leaves: Any
    branches: Any
    stems: Any

    @classmethod
    def of(cls, weights) -> "Sites":
        """The tree of the weights (d,) of all sites."""
        d = weights.shape[0]
        b = math.ceil(round(d ** (1 / 3), 9))
        leaves = jnp.pad(weights, (0, b**3 - d)).reshape(b * b, b)
        branches = leaves.sum(axis=1).reshape(b, b)
        return cls(leaves, branches, branches.sum(axis=1))

    def draw(self, u):
        """() int, a site drawn with probability proportional to its weight, by a uniform u ()."""
        b = len(self.stems)
        t = u * self.stems.sum()
        stem, t = entry_and_rest(running_sum(self.stems), t)
        branch, t = entry_and_rest(running_sum(row_of(self.branches, stem)), t)
        leaf, _ = entry_and_rest(running_sum(row_of(self.leaves, stem * b + branch)), t)
        return (stem * b + branch) * b + leaf

    def put(self, site, weight) -> "Sites":
        """The tree after the weight of one site is replaced."""
        b = len(self.stems)
        branch, stem = site // b, site // b**2
        leaves = put(row_of(self.leaves, branch), site % b, weight)
        branches = put(row_of(self.branches, stem), branch % b, leaves.sum())
        return Sites(
            jax.lax.dynamic_update_index_in_dim(self.leaves, leaves, branch, 0),
            jax.lax.dynamic_update_index_in_dim(self.branches, branches, stem, 0),
            put(self.stems, stem, branches.sum()),
        )


def row_of(table, index):
    """One row of `table` (n, m), by an index that is known at run time only."""
    return jax.lax.dynamic_index_in_dim(table, index, keepdims=False)


def put(array, index, value):
    """`array` with one entry replaced; the compiler updates it in place where it can."""
    return jax.lax.dynamic_update_index_in_dim(array, jnp.asarray(value, array.dtype), index, 0)
