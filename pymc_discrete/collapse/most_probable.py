"""The most probable states of discrete variables, given draws of the other variables."""

from typing import Any

import pymc as pm
import xarray
from xarray import DataTree

from pymc_discrete.collapse.marginalize import check_truncate
from pymc_discrete.collapse.recover import arrays_of_states, group_of, of_draws, variables_to_recover
from pymc_discrete.collapse.sums import Sums, SumTooLarge
from pymc_discrete.model.blocks import DISCRETE, free, model_of
from pymc_discrete.runtime.checks import check_choice, check_result, check_switch
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.waiting import watched

EACH_DRAW, MEANS = "draws", "means"
LOG_PROBABILITY = "log_probability"


@watched("Finding the most probable states")
def most_probable(
    idata: DataTree,
    model: pm.Model | None = None,
    vars: Any = None,
    *,
    given: str = EACH_DRAW,
    probabilities: bool = False,
    truncate: dict[str, tuple[int, int]] | None = None,
) -> DataTree:
    r"""Add to a result the most probable states of discrete variables, all of their elements together.

    .. math:: z^* = \arg\max_z p(z \mid \theta)

    The state is exact, for every draw of the other variables :math:`\theta`, or for their posterior means. In
    a hidden Markov model this is the Viterbi path; it is found in the same way in every model whose discrete
    variables can be summed out, by elimination with maxima in place of sums. The result also has the
    posterior mode of each element, whatever the others are: the value that is most often right, while z* is
    the most probable state as a whole. The modes of all elements together may be an impossible state.

    Parameters
    ----------
    idata : DataTree
        Draws of the model, or of the marginalised model, by any sampler, with a group ``posterior``.
    model : pm.Model, optional
        The model, before it was marginalised; by default the model of the `with` block.
    vars : list of variables or names, optional
        Discrete variables; by default all that can be summed out. Other discrete variables keep their values
        in each draw.
    given : {"draws", "means"}
        Whether the states are found for each draw of the other variables, or for their means over all draws
        and chains. Means make no sense where labels are switched between draws.
    probabilities : bool
        Add :math:`p(z_i = k \mid \theta)` of every element i (forward-backward), for each draw or at the
        means.
    truncate : {name: (lower, upper)}, optional
        The values, inclusive, that are considered for a variable without bounds. By default they are a range
        about its draws, which is widened until it leaves out less than a probability of 1e-12 for each
        element.

    Returns
    -------
    DataTree
        A copy with the groups

        - ``most_probable``: z* of each variable (chain, draw, ...), and ``log_probability`` (chain, draw),
          :math:`\log p(z^* \mid \theta)`, nats, of all variables together;
        - ``site_modes``: for each variable NAME (...) the value of each element with the largest mean of
          :math:`p(z_i = k \mid \theta)` over all draws and chains, and ``NAME probability`` (...), that mean;
        - ``site_probabilities``, where asked for: arrays (chain, draw, ..., value), whose coordinate
          ``NAME value`` holds the values.

        With ``given="means"`` there are no axes of chains and draws. If several states are equally probable,
        one of them is returned.

    Raises
    ------
    TypeError
        If `idata` is no DataTree with a group ``posterior``, or `model` no model.
    ValueError
        If the posterior lacks a variable that the discrete ones depend on, or sites interact with too many
        others, or a mean is asked for of a discrete variable.
    NotImplementedError
        If a term joins too many sites.

    Warns
    -----
    A message is logged if a sum leaves out more than a probability of 1e-6 in some draw. The message names a
    sufficient bound.

    References
    ----------
    Viterbi 1967, Error bounds for convolutional codes and an asymptotically optimum decoding algorithm. Dawid
    1992, Applications of a general propagation algorithm for probabilistic expert systems.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pmd.sample()
    >>> pmd.most_probable(idata, model)["most_probable"]["z"]  # doctest: +SKIP
    """
    check_result(idata, "pmd.most_probable(idata, model)")
    check_choice("given", given, (EACH_DRAW, MEANS))
    check_truncate(truncate)
    check_switch("probabilities", probabilities)
    model = model_of(model, vars)
    names = variables_to_recover(model, vars, "find states of")
    posterior = idata["posterior"].to_dataset()
    at = means_of(posterior, model, names) if given == MEANS else posterior

    def best(sums: Sums, key: Any, context: Any) -> tuple[Any, Any, Any]:
        total, log_probability, x, p = sums.most_probable(context)
        return total, (log_probability, x, p if probabilities else ()), p

    try:
        density, (log_probability, x, p), mean = of_draws(model, names, posterior, best, truncate, given=at)
    except (SumTooLarge, NotImplementedError) as error:
        raise type(error)(
            f"The most probable states are found where all states can be summed: {error} Or name fewer in "
            "vars= of pmd.most_probable; the others are then as in each draw."
        ) from error
    known = {n: at.coords[n].values for n in ("chain", "draw")}
    groups = {
        "most_probable": arrays_of_states(density.space, x, model).assign(
            {LOG_PROBABILITY: (["chain", "draw"], log_probability)}
        )
    }
    if probabilities:
        each = group_of(model, density, p.reshape(-1, *p.shape[2:]))
        groups["site_probabilities"] = xarray.Dataset(
            {
                name: (
                    ["chain", "draw", *array.dims[1:]],
                    array.values.reshape(*p.shape[:2], *array.shape[1:]),
                )
                for name, array in each.items()
            },
            {name: values for name, values in each.coords.items() if name != "chain"},
        )
    found = idata.copy()
    for name, group in groups.items():
        group = group.assign_coords(known)
        found[name] = DataTree(group.isel(chain=0, draw=0, drop=True) if given == MEANS else group)
    found["site_modes"] = DataTree(modes_of(group_of(model, density, mean.mean(0, keepdims=True))))
    return found


def means_of(posterior: xarray.Dataset, model: pm.Model, names: list[str]) -> xarray.Dataset:
    """A posterior of one draw, the means of the continuous variables over all draws and chains.

    Parameters
    ----------
    names : the discrete variables whose states are found

    Raises
    ------
    ValueError
        If the model has further discrete variables: a mean is none of their values.
    """
    others = [name for name in free(model, DISCRETE) if name not in names]
    if others:
        raise ValueError(
            f"given='means' takes the means of all variables but {shown(names)}, and the mean of "
            f"{shown(others)}, which is discrete, is none of its values. Pass given='draws'."
        )
    means = posterior.mean(("chain", "draw")).expand_dims(chain=1, draw=1)
    return means.assign_coords(chain=[0], draw=[0])


def modes_of(probabilities: xarray.Dataset) -> xarray.Dataset:
    """The most probable value of every element, and its probability.

    Parameters
    ----------
    probabilities : a group made by `probabilities.dataset`, with one chain
    """
    found: dict[str, xarray.DataArray] = {}
    for name, array in probabilities.isel(chain=0, drop=True).items():
        values = f"{name} value"
        found[str(name)] = array.coords[values][array.argmax(values)].drop_vars(values)
        found[f"{name} probability"] = array.max(values)
    return xarray.Dataset(found)
