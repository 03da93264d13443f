"""Weights of which one changes at a time, and by which one is drawn."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pymc_discrete.kernels.random import entry_and_rest, running_sum


class Sites(NamedTuple):
    """Weights of all sites in a tree of three levels: one changes, and what it is part of is summed again.

    Attributes
    ----------
    leaves : (b^2, b) float, b^3 >= d
    branches : (b, b) float, their sums
    stems : (b,) float, the sums of these
    """

    leaves: Any
    branches: Any
    stems: Any

    @classmethod
    def of(cls, weights) -> "Sites":
        d = weights.shape[0]
        b = math.ceil(round(d ** (1 / 3), 9))
        leaves = jnp.pad(weights, (0, b**3 - d)).reshape(b * b, b)
        branches = leaves.sum(axis=1).reshape(b, b)
        return cls(leaves, branches, branches.sum(axis=1))

    def draw(self, u):
        """() int, a site, by its weight."""
        b = len(self.stems)
        t = u * self.stems.sum()
        stem, t = entry_and_rest(running_sum(self.stems), t)
        branch, t = entry_and_rest(running_sum(row_of(self.branches, stem)), t)
        leaf, _ = entry_and_rest(running_sum(row_of(self.leaves, stem * b + branch)), t)
        return (stem * b + branch) * b + leaf

    def put(self, site, weight) -> "Sites":
        b = len(self.stems)
        twig, stem = site // b, site // b**2
        leaves = put(row_of(self.leaves, twig), site % b, weight)
        branches = put(row_of(self.branches, stem), twig % b, leaves.sum())
        return Sites(
            jax.lax.dynamic_update_index_in_dim(self.leaves, leaves, twig, 0),
            jax.lax.dynamic_update_index_in_dim(self.branches, branches, stem, 0),
            put(self.stems, stem, branches.sum()),
        )


def row_of(table, index):
    return jax.lax.dynamic_index_in_dim(table, index, keepdims=False)


def put(array, index, value):
    """`array` with one entry changed, in place where the compiler can."""
    return jax.lax.dynamic_update_index_in_dim(array, jnp.asarray(value, array.dtype), index, 0)
