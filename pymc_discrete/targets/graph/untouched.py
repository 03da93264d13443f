"""The terms of a log density that a block does not enter: they count in `lp`, and in nothing else."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import graph_inputs

from pymc_discrete.targets.graph.jaxify import refusal_of_jax
from pymc_discrete.targets.graph.logp_graph import LogpGraph
from pymc_discrete.targets.graph.masks import refusal_of_sizes


class Untouched:
    """In JAX, and on the host those that have an Op without a JAX version.

    Attributes
    ----------
    in_jax : sums of the terms in JAX
    """

    def __init__(self, graph: LogpGraph):
        self._inputs = graph.others
        found = [(t.sum(), refusal_of_term(t)) for _, t in graph.untouched]
        self.in_jax = [t for t, refusal in found if refusal is None]
        self._left = [(t, refusal) for t, refusal in found if refusal is not None]

    @functools.cached_property
    def _compiled(self) -> Callable:
        terms = [t for t, _ in self._left]
        return pytensor.function(
            self._inputs, pt.add(pt.constant(0.0), *terms), mode="FAST_COMPILE", on_unused_input="ignore"
        )

    def on_host(self, others: list[Any]) -> float:
        """() nats, of the terms that are not in JAX, given the other variables."""
        if not self._left:
            return 0.0
        return float(
            self._compiled(*(np.asarray(a, v.type.dtype) for a, v in zip(others, self._inputs, strict=True)))
        )

    def check_in_jax(self) -> None:
        """Refuse terms that are not in JAX.

        Raises
        ------
        NotImplementedError
        """
        for _, refusal in self._left:
            raise refusal


def refusal_of_term(term: Variable) -> NotImplementedError | None:
    """Why a term cannot be compiled, an Op without a JAX version or a size that is not fixed, or None."""
    return refusal_of_jax([term]) or refusal_of_sizes(term)


def terms_without_jax(
    terms: list[tuple[str, Variable]], names: list[str]
) -> dict[str, tuple[str, NotImplementedError]]:
    """{value variable of `names`: (a term that it enters, what JAX says of it)}, where JAX cannot compile a
    term.
    """
    found: dict[str, tuple[str, NotImplementedError]] = {}
    for label, term in terms:
        refusal = refusal_of_term(term)
        if refusal is not None:
            found.update({str(v.name): (label, refusal) for v in graph_inputs([term]) if v.name in names})
    return found
