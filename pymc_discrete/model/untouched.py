"""The terms of a log density that do not depend on the block, which only the statistic `lp` needs."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import graph_inputs

from pymc_discrete.model.masks import refusal_of_sizes
from pymc_discrete.structure.jaxify import PYTENSOR, refusal_of_jax
from pymc_discrete.structure.logp_graph import LogpGraph


class Untouched:
    """The terms that do not depend on the block, split by whether JAX can compile them.

    Terms that JAX cannot compile are evaluated by PyTensor on the host.

    Attributes
    ----------
    in_jax : [scalar], the terms that JAX can compile
    """

    def __init__(self, graph: LogpGraph):
        self._inputs = graph.others
        totals = [(t.sum(), refusal_of_term(t)) for _, t in graph.untouched]
        self.in_jax = [t for t, refusal in totals if refusal is None]
        self._on_host = [(t, refusal) for t, refusal in totals if refusal is not None]

    @functools.cached_property
    def _compiled(self) -> Callable:
        terms = [t for t, _ in self._on_host]
        return pytensor.function(
            self._inputs, pt.add(pt.constant(0.0), *terms), mode="FAST_COMPILE", on_unused_input="ignore"
        )

    def on_host(self, others: list[Any]) -> float:
        """() nats, the sum of the terms that JAX cannot compile, given the variables outside the block."""
        if not self._on_host:
            return 0.0
        arrays = [np.asarray(a, v.type.dtype) for a, v in zip(others, self._inputs, strict=True)]
        with PYTENSOR:
            return float(self._compiled(*arrays))

    def check_in_jax(self) -> None:
        """Refuse terms that JAX cannot compile.

        Raises
        ------
        NotImplementedError
        """
        for _, refusal in self._on_host:
            raise refusal


def refusal_of_term(term: Variable) -> NotImplementedError | None:
    """The error for a term that JAX cannot compile, with an Op without a JAX version or a variable size; else
    None.
    """
    return refusal_of_sizes(term) or refusal_of_jax([term])


def terms_without_jax(
    terms: list[tuple[str, Variable]], names: list[str]
) -> dict[str, tuple[str, NotImplementedError]]:
    """The variables that enter terms that JAX cannot compile.

    Returns
    -------
    {name of a value variable, one of `names`: (name of such a term, the error for it)}
    """
    refusals: dict[str, tuple[str, NotImplementedError]] = {}
    for label, term in terms:
        refusal = refusal_of_term(term)
        if refusal is not None:
            refusals.update({str(v.name): (label, refusal) for v in graph_inputs([term]) if v.name in names})
    return refusals
