"""The joint log density of discrete unknowns and data, as a target whose input is the data."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.basic import conditional_logp
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.shape import Shape, Shape_i

from pymc_discrete.differences.from_logdensity import target_from_logdensity
from pymc_discrete.model.logp import promoted, without_checks
from pymc_discrete.model.structure_of_model import shared_values
from pymc_discrete.runtime.compiling import QUICKLY_COMPILED
from pymc_discrete.runtime.names import shown
from pymc_discrete.space.space import Space
from pymc_discrete.space.target import Target
from pymc_discrete.structure.jaxify import jaxify


def check_given(model: pm.Model, space: Space, given: Any) -> list[str]:
    """The names of the observed variables that a flow is conditioned on, which must be all of the model's.

    Raises
    ------
    TypeError, ValueError
    """
    names = [given] if isinstance(given, str) else [*given] if isinstance(given, list | tuple) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"given must be names of observed variables, such as ['y'], got {given!r}.")
    observed = [str(rv.name) for rv in model.observed_RVs]
    for name in names:
        if name not in observed:
            raise ValueError(
                f"given names {name!r}, which is not observed. The model observes "
                f"{shown(observed) or 'nothing'}. Pass observed= to it, any data of the right shape and "
                "type: the flow answers for others."
            )
    if missing := [name for name in observed if name not in names]:
        raise ValueError(
            f"{shown(missing)} is observed, too, and not in given. Name all observed variables: the flow "
            "answers for data of all of them."
        )
    refuse_other_models(model, space)
    refuse_data_read_twice(model, names)
    return names


def refuse_other_models(model: pm.Model, space: Space) -> None:
    """Refuse a model whose joint density of a block and data is unknown, or is not the density of its draws.

    Raises
    ------
    ValueError
    """
    block = {m.name for m in space.members}
    if left := [str(rv.name) for rv in model.free_RVs if rv.name not in block]:
        raise ValueError(
            f"{shown(left)} is unknown, too, and not among the variables of the flow, whose density given "
            "the data would be needed without it. Name a discrete one in vars, or sum it out with "
            "pmd.marginalize; integrate a continuous one out by hand, or fit a flow to draws= for one data "
            "set."
        )
    if scaled := [str(rv.name) for rv in model.basic_RVs if isinstance(rv.owner.op, MinibatchRandomVariable)]:
        raise ValueError(
            f"The log density of {shown(scaled)} is scaled by total_size=, and what the model predicts is "
            "not, so that it is no density of the data. Leave total_size= out, and give the whole data; for "
            "one data set a flow can be fitted to draws=."
        )
    if model.potentials:
        raise ValueError(
            f"{shown([str(v.name) for v in model.potentials])} is a potential, and draws of the prior do not "
            "know of it. Write it as the distribution of a variable, or fit a flow to draws=."
        )


def refuse_data_read_twice(model: pm.Model, names: Sequence[str]) -> None:
    """Refuse observed variables whose data are read elsewhere in the model, too.

    Raises
    ------
    ValueError
    """
    # Only the sizes of data may be read elsewhere: PyMC takes the shapes of observed variables from them, and
    # new data have the same sizes.
    sizes = [v for v in ancestors(model.basic_RVs) if v.owner and isinstance(v.owner.op, Shape | Shape_i)]
    for name in names:
        data = [v for v in ancestors([model.rvs_to_values[model[name]]]) if isinstance(v, SharedVariable)]
        if twice := [v for v in ancestors(model.basic_RVs, blockers=sizes) if v in data]:
            raise ValueError(
                f"The data {shown([str(v.name) for v in twice])} of {name!r} are read elsewhere, too, where "
                "new data would not reach. Pass numbers there, or another pm.Data."
            )


def covariates(model: pm.Model, given: Sequence[str]) -> list[tuple[SharedVariable, np.ndarray]]:
    """[(pm.Data of the model, its present value)], except the data that a flow is conditioned on."""
    conditioned = set(ancestors([model.rvs_to_values[model[name]] for name in given]))
    return [(v, value) for v, value in shared_values(model) if v not in conditioned]


def prior_pairs(
    model: pm.Model, space: Space, given: Sequence[str], n: int, seed: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """{variable: (n, *shape)} of the unknowns, drawn from the prior, and of the data that they predict."""
    names = [m.name for m in space.members]
    drawn = pm.draw(
        [model[name] for name in [*names, *given]], draws=n, random_seed=seed, mode=QUICKLY_COMPILED
    )
    pairs = dict(zip([*names, *given], drawn, strict=True))
    return {name: pairs[name] for name in names}, {name: pairs[name] for name in given}


def joint_target(model: pm.Model, space: Space, given: Sequence[str]) -> Target:
    """The target log p(z, y) of the sites z of a space and data y, nats, with all normalising constants.

    The sum of p(z, y) over all z is the evidence p(y). The inputs of the target are the data, in the order of
    `given`, in the shapes of the model: `target.with_inputs(data)`.
    """
    values = {rv: rv.type(name=str(rv.name)) for rv in model.basic_RVs}
    densities = conditional_logp(values)
    raw = [densities[value] for value in values.values()]
    seen = {name: np.asarray(model.rvs_to_values[model[name]].eval(mode=QUICKLY_COMPILED)) for name in given}
    shapes = {m.name: m.shape for m in space.members} | {name: a.shape for name, a in seen.items()}
    typed = {v: pt.TensorType(v.type.dtype, shape=shapes[str(v.name)])(name=v.name) for v in values.values()}
    constants = {
        v: pt.constant(v.get_value()) if isinstance(v, SharedVariable) else promoted(v)
        for v in graph_inputs(raw)
        if isinstance(v, SharedVariable | Constant) and hasattr(v.type, "dtype")
    }
    terms = without_checks([str(v.name) for v in values.values()], raw, typed | constants)
    inputs = {str(v.name): v for v in typed.values()}
    compute = jaxify([inputs[name] for name in shapes], [pt.add(0.0, *(pt.sum(term) for _, term in terms))])

    def logdensity(x: Any, *data: Any) -> Any:
        sites = space.unravel(x)
        z = [sites[m.name].astype(inputs[m.name].type.dtype) for m in space.members]
        return jnp.asarray(compute(*z, *data)[0], float)

    return target_from_logdensity(logdensity, space, inputs=tuple(map(jnp.asarray, seen.values())))
