"""Converts a factor graph to a term of a PyMC model, and to a target of the kernels."""

import functools
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.factor_graphs.graph import SumOfFactors, Wiring, unnormalised_log_density
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.model.support import check_within
from pymc_discrete.runtime.checks import check_way
from pymc_discrete.space.target import Target


def potential(graph: SumOfFactors, values: dict[str, Any]) -> pt.TensorVariable:
    """The log density of the graph as a PyTensor expression; see `FactorGraph.potential`."""
    variables = graph.space.variables
    if set(values) != {v.name for v in variables}:
        raise ValueError(
            f"potential needs a tensor for each of {', '.join(v.name for v in variables)}; got "
            f"{', '.join(values) or 'none'}."
        )
    tensors = [pt.as_tensor(values[v.name]) for v in variables]
    for tensor, v in zip(tensors, variables, strict=True):
        shape = tuple(tensor.type.shape)
        if len(shape) != len(v.shape) or any(
            got not in (None, want) for got, want in zip(shape, v.shape, strict=True)
        ):
            raise ValueError(
                f"{v.name!r} has shape {v.shape} in the graph, and the tensor given for it has shape {shape}."
            )
        check_within(tensor, v.name, v.lower.reshape(v.shape), v.upper.reshape(v.shape))
    unary = [pt.as_tensor(np.asarray(u)) for u in graph.unary]
    parameters = [
        {name: pt.as_tensor(np.asarray(a)) for name, a in of_factor.items()} for of_factor in graph.parameters
    ]
    return log_density_tensor(graph.wiring, unary, parameters, tensors)


def log_density_tensor(
    wiring: Wiring, unary: list[Any], parameters: list[dict[str, Any]], tensors: list[Any]
) -> pt.TensorVariable:
    """The log density as a PyTensor expression of the log potentials and of the variables' values."""
    places = [t.reshape((v.size,)) - v.lower for t, v in zip(tensors, wiring.space.variables, strict=True)]
    return unnormalised_log_density(wiring, unary, parameters, places, pt)


def to_target(graph: SumOfFactors, differences: str) -> Target:
    """The target of the graph, whose context is the log potentials; see `FactorGraph.to_target`."""
    check_way(differences)
    inputs = [*graph.unary, *(a for of_factor in graph.parameters for a in of_factor.values())]
    return Target(density_of_graph(graph.wiring, differences)).with_inputs(inputs)


@functools.lru_cache(maxsize=32)
def density_of_graph(wiring: Wiring, differences: str) -> ModelDensity:
    """The density of a PyMC model that has the graph's variables as its block, and the graph's log potentials
    as continuous variables.
    """
    space = wiring.space
    with pm.Model() as model:
        tensors = [
            pm.DiscreteUniform(v.name, v.lower.reshape(v.shape), v.upper.reshape(v.shape), shape=v.shape)
            for v in space.variables
        ]
        unary = [pm.Flat(f"unary of {v.name}", shape=(v.K, v.size)) for v in space.variables]
        parameters = [
            {
                name: pm.Flat(f"{name} of factors {f}", shape=np.shape(a))
                for name, a in factor.parameters.items()
            }
            for f, factor in enumerate(wiring.factors)
        ]
        # The term `uniform` cancels the log density of the uniform distributions, which only declare the
        # variables.
        uniform = sum(np.log(v.counts).sum() for v in space.variables)
        pm.Potential("factors", log_density_tensor(wiring, unary, parameters, tensors) + uniform)
    block = DescribedModel(model).block([v.name for v in space.variables])
    density = ModelDensity(block, differences, "auto", join=False)
    # The density computes in the precision that JAX is set to, in which the graph's own arrays are.
    density.width_of_jax = True
    return density
