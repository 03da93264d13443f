"""The block of a model that a flow moves: the block's space, and draws of the block, both checked."""

from typing import Any

import numpy as np
import pymc as pm

from pymc_discrete.differences.from_model import target_of
from pymc_discrete.flows.process import check_flow_space
from pymc_discrete.model.blocks import block_of
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.runtime.checks import check_result
from pymc_discrete.runtime.names import shown
from pymc_discrete.space.space import Member, Space

CALL = "pmd.fit_flow(model, ['z'], draws=idata)"


def space_of(model: pm.Model, vars: Any) -> Space:
    """The space of some discrete variables of a model, with one variable for each of them.

    The order of the variables is the order of their sites in a step of the model.

    Raises
    ------
    TypeError, ValueError
        For variables that are not discrete, that have no finite support, or whose elements cannot change
        alone, with the remedy.
    """
    names = block_of(model, vars)
    return alone(target_of(DescribedModel(model), names, with_numbers=True).space)


def alone(space: Space) -> Space:
    """A space with one variable for each variable of the model in `space`, after a check that all sites have
    finite supports.

    Raises
    ------
    ValueError
    """
    check_flow_space(space)
    supports: dict[str, tuple[Any, Any]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    nominal = []
    for m in space.members:
        sites = slice(m.start, m.start + m.size)
        low, high = (bound[sites].reshape(m.shape) for bound in (space.lower, space.upper))
        supports[m.name] = (low, high)
        shapes[m.name] = m.shape
        if space.nominal[sites].any():
            nominal.append(m.name)
    return Space.build(supports, shapes, nominal=nominal, whole=[*supports])


def draws_of(space: Space, draws: Any) -> dict[str, np.ndarray]:
    """{name: (chains draws, *shape) int}, draws of all chains of a result, checked.

    Parameters
    ----------
    draws : DataTree of pm.sample or pmd.sample

    Raises
    ------
    TypeError, ValueError
        If `draws` is no result of a sampler, or has draws of other variables, shapes or values.
    """
    check_result(draws, CALL)
    posterior, found = draws["posterior"], {}
    for m in space.members:
        if m.name not in posterior.data_vars:
            raise ValueError(
                f"The draws have no {m.name!r}; they have {shown(map(str, posterior.data_vars))}. Pass those "
                "of a run of this model that kept it."
            )
        a = posterior[m.name].transpose("chain", "draw", ...).values
        if a.shape[2:] != m.shape:
            raise ValueError(
                f"The draws of {m.name!r} have shape {a.shape[2:]}, and the variable {m.shape}. Pass "
                "those of a run of this model."
            )
        found[m.name] = supported_values(space, m, a.reshape(-1, *m.shape))
    return found


def supported_values(space: Space, m: Member, a: np.ndarray) -> np.ndarray:
    """The values a (n, *shape) of a variable m in the space, after a check that they are in its support."""
    low, high = (bound[m.start : m.start + m.size].reshape(m.shape) for bound in (space.lower, space.upper))
    if a.dtype.kind not in "iub" or not len(a):
        raise ValueError(
            f"The draws of {m.name!r} must be integers, at least one, got {len(a)} of {a.dtype}."
        )
    outside = (a < low) | (a > high)
    if outside.any():
        place = tuple(int(i) for i in np.argwhere(outside)[0][1:])
        element = f" of its element {list(place)}" if place else ""
        raise ValueError(
            f"The draws of {m.name!r} hold {a[outside][0]}, and the support{element} is {low[place]} to "
            f"{high[place]}. Pass those of a run of this model."
        )
    return a.astype(int)
