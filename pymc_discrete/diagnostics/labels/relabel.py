"""Undoing label switching: the labels of every draw are permuted such that all draws agree."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray
from xarray import DataTree

from pymc_discrete.diagnostics.draws import lp_of
from pymc_discrete.diagnostics.known.leaving import Leaving
from pymc_discrete.diagnostics.known.stored import conditionals, known_of
from pymc_discrete.diagnostics.labels.draws_of_labels import chunks, in_one_table, labels_of
from pymc_discrete.diagnostics.labels.matching import (
    as_most_draws,
    by_agreement,
    by_probabilities,
    matched,
)
from pymc_discrete.runtime.checks import check_choice
from pymc_discrete.runtime.names import shown

_log = logging.getLogger("pymc.discrete")

METHODS = ("ecr", "stephens", "pivot")
# the groups of a result that are permuted
PER_DRAW = ("posterior", "posterior_predictive", "predictions", "log_likelihood")
TOLERANCE = 1e-3  # the largest difference from 1 of a sum of probabilities, which may be float32


def relabel(
    idata: DataTree,
    z: str,
    dims: str | Sequence[str] | None = None,
    method: str = "ecr",
    *,
    order_by: str | None = None,
    probabilities: Any = None,
) -> DataTree:
    r"""Permute the labels of every draw, and all that belongs to them, such that the draws agree.

    In a mixture or a hidden Markov model with exchangeable components the posterior is the same however the
    components are numbered, chains and draws number them differently, and the mean, R-hat and ESS of
    parameters of a component (its mean, its weight) say nothing until the draws are relabelled.

    Parameters
    ----------
    idata : DataTree
        Draws by `pm.sample`, `pmd.sample` or any other sampler, with a group ``posterior``.
    z : str
        The variable of labels, 0 to K - 1, with one label per site.
    dims : str or sequence of str, optional
        The dimension of the components, of size K; several where it has several names, as ArviZ gives them
        to variables without dims (``("mu_dim_0", "w_dim_0")``), or as the two dimensions of a transition
        matrix must have. By default the only dimension in the posterior, besides those of `z`, that is large
        enough for the labels, if there is only one; if there is none, nothing belongs to the labels, and
        they alone are permuted.
    method : {"ecr", "stephens", "pivot"}
        What the draws are matched with: ``"ecr"`` with the labels that each site has most often, found by
        iteration; ``"pivot"`` with the draw of the largest log density, ``lp``; ``"stephens"`` with the mean
        of `probabilities`, also found by iteration.
    order_by : str, optional
        A parameter with one value for each label, such as the means of the components: label 0 is then the
        component with the smallest posterior mean of this parameter, and so on. By default labels keep the
        order that most draws had, which is arbitrary.
    probabilities : (chain, draw, ..., K) array_like, optional
        For ``method="stephens"``: in each draw, the probability of each label of each site given the other
        unknowns of the draw. In a mixture it is proportional to the weight of a component times the density
        of the observation in it.

    Returns
    -------
    DataTree
        A copy in which `z` and all variables along `dims` are permuted, in the groups ``posterior``,
        ``posterior_predictive``, ``predictions`` and ``log_likelihood``, along every axis that is in
        `dims`. The group ``permutations`` has under the name of `z` an array (chain, draw, dims), the new
        label of each label; its attributes are ``method``, ``order_by`` ("" if it was not given) and
        ``share_permuted``, the share of draws whose permutation is not the identity. Coordinates of `dims`
        are not permuted.

        Means over draws cannot be permuted: variables in the group ``probabilities`` that depend on labels
        are left out, and so is all of ``unconstrained_posterior``.

    Raises
    ------
    TypeError
        If `idata` is no DataTree with a group ``posterior``, or a name no string.
    ValueError
        If there is no such variable or dimension, if the dimension cannot be told, if `z` is a scalar or has
        labels outside 0 to K - 1, if there is only one draw, if ``method="pivot"`` finds no ``lp``, if
        `probabilities` are missing or are no probabilities, or if `order_by` does not have one finite value
        per label.

    Warns
    -----
    A message is logged that names what was left out; another one if labels were permuted whose dimension has
    names, such as low and high, which say nothing of a component without `order_by`.

    Notes
    -----
    A draw is matched by the permutation :math:`\tau` with the largest
    :math:`\sum_i 1[\tau(z_i) = z^*_i]` (``"ecr"``, ``"pivot"``), or the largest
    :math:`\sum_{ik} p_{ik} \log q_{i\tau(k)}` (``"stephens"``), found as an assignment. Iteration replaces
    :math:`z^*` by the commonest label of each site, q by the mean of the permuted p, until nothing improves.

    References
    ----------
    Papastamoulis and Iliopoulos, Journal of Computational and Graphical Statistics 19 (2010): ECR.
    Stephens, Journal of the Royal Statistical Society B 62 (2000).
    Marin, Mengersen and Robert, Handbook of Statistics 25 (2005): the pivot.
    Papastamoulis, Journal of Statistical Software 69 (2016), compares them.

    Examples
    --------
    >>> relabelled = pmd.relabel(idata, "z", dims="component")  # doctest: +SKIP
    >>> az.summary(relabelled, var_names="mu")  # doctest: +SKIP
    """
    check_choice("method", method, METHODS)
    labels = labels_of(idata, z, "pmd.relabel")
    if probabilities is not None and method != "stephens":
        raise ValueError(f'probabilities= is for method="stephens", and method is {method!r}. Leave it out.')
    draws = in_one_table(labels)
    if len(draws) == 1:
        raise ValueError(f"{z!r} has one draw only, which has nothing to agree with. Pass several draws.")
    names, K = components(idata["posterior"].to_dataset(), labels, dims)
    check_range(labels, names[0], K)
    posterior = idata["posterior"]
    parameter = None if order_by is None else ordering(posterior.to_dataset(), order_by, names)
    if method == "stephens":
        p = checked_probabilities(probabilities, z, labels.shape, K)
        to_new = by_probabilities(p, matched(draws, by_agreement(draws, K), K)[0])
    else:
        reference = by_agreement(draws, K) if method == "ecr" else labels_of_likeliest_draw(idata, z, draws)
        to_new = matched(draws, reference, K)[0]
        # A draw keeps its labels if no permutation of them agrees better. So the reference gets the labels
        # that most draws have, and the draws are matched with it again.
        to_new = matched(draws, as_most_draws(to_new)[reference], K)[0]
    if parameter is None:
        to_new = as_most_draws(to_new)[to_new]
    else:
        to_new = by_mean(parameter, to_new)[to_new]
    share = float((to_new != np.arange(K)).any(axis=1).mean())
    found = xarray.DataArray(
        to_new.reshape(*labels.shape[:2], K),
        {d: posterior[d].values for d in ("chain", "draw", names[0]) if d in posterior.coords},
        ["chain", "draw", names[0]],
        z,
        {"method": method, "order_by": order_by or "", "share_permuted": share},
    )
    if parameter is None and share > 0:
        warn_of_names(posterior.to_dataset(), z, names)
    return permuted(idata, z, names, found)


def components(posterior: xarray.Dataset, labels: xarray.DataArray, dims: Any) -> tuple[list[str], int]:
    """The dimensions along which parameters have an element for each label, and their size.

    These are `dims`, or by default the only dimension that is long enough for all labels. If there is no such
    dimension, the result is a new dimension, which no variable has.

    Raises
    ------
    TypeError, ValueError
    """
    z, used = labels.name, 1 + int(labels.max())
    others = {str(d): s for d, s in posterior.sizes.items() if d not in labels.dims}
    listed = ", ".join(f"{d!r} of size {size}" for d, size in others.items()) or "no other dimension"
    if dims is None:
        names = [d for d, size in others.items() if size >= used]
        if not names:
            return [f"{z}_label"], used
        if len(names) > 1:
            raise ValueError(
                f"Which dimension has the components whose labels are in {z!r} cannot be told: of size "
                f"{used} or more, as its labels ask for, are {', '.join(map(repr, names))}. Pass dims=, one "
                f"or several of them; the posterior has {listed}."
            )
        return names, others[names[0]]
    names = [dims] if isinstance(dims, str) else list(dims) if isinstance(dims, Sequence) else []
    if not names or not all(isinstance(d, str) for d in names):
        raise TypeError(f"dims must be the name of a dimension, or several, got {dims!r}.")
    for d in names:
        if d in labels.dims:
            raise ValueError(
                f"dims={d!r} is a dimension of {z!r} itself, whose values are labels. Pass the dimension of "
                f"what belongs to the labels; the posterior has {listed}."
            )
        if d not in others:
            raise ValueError(f"The posterior has no dimension {d!r}; it has {listed}.")
    sizes = {others[d] for d in names}
    if len(sizes) > 1:
        raise ValueError(
            f"The dimensions of one kind of component must have one size, and dims={dims!r} are of sizes "
            f"{', '.join(str(others[d]) for d in names)}. Pass those that have a value per label of {z!r}."
        )
    return names, sizes.pop()


def check_range(labels: xarray.DataArray, dim: str, K: int) -> None:
    """Raise a ValueError unless all labels are in 0, ..., K - 1."""
    least, largest = int(labels.min()), int(labels.max())
    if least < 0 or largest >= K:
        raise ValueError(
            f"The labels of {labels.name!r} must be 0 to {K - 1}, as the dimension {dim!r} has {K} "
            f"components, and {least if least < 0 else largest} is among its draws. Pass as dims= the "
            "dimension that has one component per label."
        )


def ordering(posterior: xarray.Dataset, order_by: Any, names: list[str]) -> np.ndarray:
    """(draws, K) float, the parameter by which labels are ordered, one of whose dimensions is in `names`.

    Raises
    ------
    TypeError, ValueError
    """
    if not isinstance(order_by, str):
        raise TypeError(f"order_by must be the name of a parameter, got {order_by!r}.")
    fitting = parameters_of_labels(posterior, names)
    remedy = f"Pass one of {shown(fitting)}." if fitting else "No variable of the posterior has that."
    if order_by not in posterior.data_vars:
        raise ValueError(
            f"order_by={order_by!r} is no variable of the posterior. It must have one value per label, along "
            f"{shown(names)}. {remedy}"
        )
    parameter = posterior[order_by]
    others = [str(d) for d in parameter.dims if d not in ("chain", "draw")]
    if order_by not in fitting:
        if set(others) & set(names):
            left = [d for d in others if d not in names] or others[1:]
            one = ", ".join(f"{d}=0" for d in left)
            remedy = (
                f"Make one: idata.posterior['order'] = idata.posterior[{order_by!r}].isel({one}, drop=True), "
                "or another function of it, and pass order_by='order'."
            )
        raise ValueError(
            f"order_by must have one value per label, along {shown(names)} only, and {order_by!r} has the "
            f"dimensions {shown(others) or 'chain and draw'}. {remedy}"
        )
    if parameter.dtype.kind not in "fiub" or not np.isfinite(parameter.values).all():
        raise ValueError(
            f"order_by={order_by!r} must have finite numbers in all draws, and has others. {remedy}"
        )
    return parameter.transpose("chain", "draw", ...).values.reshape(-1, parameter.sizes[others[0]])


def parameters_of_labels(posterior: xarray.Dataset, names: list[str]) -> list[str]:
    """The variables that have one value for each label, along a dimension in `names`."""
    return [
        str(name)
        for name, v in posterior.data_vars.items()
        if v.ndim == 3 and {"chain", "draw"} < set(v.dims) and set(names) & set(map(str, v.dims))
    ]


def by_mean(parameter: np.ndarray, to_new: np.ndarray) -> np.ndarray:
    """(K,) int, for each new label its rank by the mean of a parameter (draws, K)."""
    means = np.take_along_axis(parameter, np.argsort(to_new, axis=1), axis=1).mean(axis=0)
    return np.argsort(np.argsort(means, kind="stable"))


def warn_of_names(posterior: xarray.Dataset, z: str, names: list[str]) -> None:
    """Log a warning if a dimension of labels that were permuted has other coordinates than 0, 1, ..."""
    named = [d for d in names if d in posterior.coords]
    named = [
        d for d in named if list(map(str, posterior[d].values)) != list(map(str, range(posterior.sizes[d])))
    ]
    if named:
        fitting = parameters_of_labels(posterior, names)
        which = f" ({shown(fitting)})" if fitting else ""
        _log.warning(
            "The labels of %r were permuted, and the names along %s (%s) were not: they say nothing of a "
            "component. Pass order_by=, a parameter with one value per label%s, and the names are in the "
            "order of its posterior mean.",
            z,
            shown(named),
            shown(map(str, posterior[named[0]].values)),
            which,
        )


def checked_probabilities(probabilities: Any, z: str, shape: tuple[int, ...], K: int) -> np.ndarray:
    """The probabilities (draws, n, K) of labels, checked; the labels have the shape (chain, draw, ...).

    Raises
    ------
    ValueError
        If the probabilities are missing, of another shape, or no probabilities.
    """
    wanted = (*shape, K)
    if probabilities is None:
        raise ValueError(
            'method="stephens" needs the probabilities of the labels in each draw, which draws do not hold '
            f"(the group probabilities has means). Pass probabilities=, an array of shape {wanted}, "
            f'(chain, draw, sites of {z!r}, component), or take method="ecr".'
        )
    p = np.asarray(probabilities)
    if p.shape != wanted or p.dtype.kind not in "fiub":
        raise ValueError(
            f"probabilities must be numbers of shape {wanted}, (chain, draw, sites of {z!r}, component), got "
            f"{p.dtype} of shape {p.shape}."
        )
    p = p.reshape(shape[0] * shape[1], -1, K)
    for rows in chunks(len(p), p[0].size):
        # the condition is written such that nan, for which every comparison is false, is refused as well
        if not (p[rows] >= 0).all() or not (np.abs(p[rows].sum(axis=2) - 1) <= TOLERANCE).all():
            raise ValueError(
                f"probabilities must not be negative, and sum to 1 over the {K} labels of each site; those "
                f"between draws {rows.start} and {rows.stop - 1}, counted over all chains, do not. Divide "
                "them by their sum."
            )
    return p


def labels_of_likeliest_draw(idata: DataTree, z: str, draws: np.ndarray) -> np.ndarray:
    """(n,) int, the labels of the draw with the largest log density.

    Raises
    ------
    ValueError
        If there are no log densities, or if all of them are equal.
    """
    remedy = f'Take method="ecr", which needs none: pmd.relabel(idata, {z!r}).'
    lp = lp_of(idata)
    if lp is None:
        raise ValueError(
            "method=\"pivot\" takes the draw of the largest log density, and idata has no 'lp' in a group "
            f"'sample_stats'. {remedy}"
        )
    lp = lp.reshape(-1)
    if lp.shape != draws.shape[:1]:
        raise ValueError(
            f"'lp' of the group 'sample_stats' has {lp.size} values for {len(draws)} draws of {z!r}. {remedy}"
        )
    lp = np.where(np.isfinite(lp), lp, -np.inf)
    if lp.max() == lp.min():
        raise ValueError(
            f"'lp' of the group 'sample_stats' is the same in all draws, or not finite: it tells no draw "
            f"from another. {remedy}"
        )
    return draws[lp.argmax()]


def permuted(idata: DataTree, z: str, names: list[str], to_new: xarray.DataArray) -> DataTree:
    """A copy of `idata` in which the labels `z`, and variables along the dimensions `names`, are permuted.

    Parameters
    ----------
    to_new : (chain, draw, K) int, the new label of each label
    """
    found, left_out = idata.copy(), []
    to_old = np.argsort(to_new.values, axis=2)
    for group in PER_DRAW:
        if group not in idata.children:
            continue
        dataset = idata[group].to_dataset()
        concerned = [name for name, v in dataset.data_vars.items() if depends(v, z, names)]
        if concerned and not same_draws(dataset, to_new):
            left_out.append(f"the group {group}, which has other draws than the posterior")
            del found[group]
            continue
        for name in concerned:
            dataset[name] = permuted_along(dataset[name], names, to_old)
            if name == z:
                dataset[name] = renamed(dataset[name], to_new.values)
        found[group] = DataTree(dataset)
    if "probabilities" in idata.children:
        means = idata["probabilities"].to_dataset()
        lost = [name for name, v in means.data_vars.items() if depends(v, z, names)]
        if lost:
            left_out.append(f"{shown(map(str, lost))} of the group probabilities, which are means over draws")
            found["probabilities"] = DataTree(means.drop_vars(lost))
        if z in lost:
            of_z = conditionals(idata["posterior"], {z: summed_out(idata, z, to_new.values)})
            others = (
                idata["conditionals"].to_dataset() if "conditionals" in idata.children else xarray.Dataset()
            )
            found["conditionals"] = DataTree(others.assign(dict(of_z.data_vars)))
    if "unconstrained_posterior" in idata.children:
        left_out.append("the group unconstrained_posterior, whose values have no value per component")
        del found["unconstrained_posterior"]
    if left_out:
        _log.info("What cannot be relabelled with %r is left out: %s.", z, "; ".join(left_out))
    before = idata["permutations"].to_dataset() if "permutations" in idata.children else xarray.Dataset()
    found["permutations"] = DataTree(before.assign({z: to_new}))
    return found


def summed_out(idata: DataTree, z: str, to_new: np.ndarray) -> Leaving:
    """The stored probabilities of labels that were summed out, after the labels are permuted.

    The stored probabilities are means over draws. Where the permutation changes within a chain, such a mean
    is taken over different labels, and does not say how probable a change of label is: so the probabilities
    are left out.
    """
    groups = {str(name): idata[name].to_dataset() for name in idata.children}
    known = known_of(groups, z, len(to_new))
    assert known is not None
    return known if (to_new == to_new[:, :1]).all() else known._replace(probability=None)


def depends(variable: xarray.DataArray, z: str, names: list[str]) -> bool:
    """Whether a variable is the labels `z`, or has an element for each of the labels."""
    return variable.name == z or bool(set(names) & set(map(str, variable.dims)))


def same_draws(dataset: xarray.Dataset, to_new: xarray.DataArray) -> bool:
    """Whether a group has the chains and draws of the permutations."""
    return all(d in dataset.sizes and dataset[d].equals(to_new[d]) for d in ("chain", "draw"))


def permuted_along(variable: xarray.DataArray, names: list[str], to_old: np.ndarray) -> xarray.DataArray:
    """A variable with its components permuted along all axes of `names`.

    The argument `to_old` (chain, draw, K) is the old label of each new label.
    """
    where = [variable.dims.index(d) for d in ("chain", "draw")]
    dims = [d for d in variable.dims if d not in ("chain", "draw")]
    values = np.moveaxis(variable.values, where, (0, 1))
    for axis, d in enumerate(dims, start=2):
        if d in names:
            index = np.expand_dims(to_old, tuple(i for i in range(2, values.ndim) if i != axis))
            values = np.take_along_axis(values, index, axis)
    return variable.copy(data=np.moveaxis(values, (0, 1), where))


def renamed(labels: xarray.DataArray, to_new: np.ndarray) -> xarray.DataArray:
    """Labels (..., chain, ..., draw, ...) replaced by the new label of each, to_new (chain, draw, K)."""
    where = [labels.dims.index(d) for d in ("chain", "draw")]
    values = np.moveaxis(labels.values, where, (0, 1))
    flat = values.reshape(*values.shape[:2], -1).astype(int, copy=False)
    new = np.take_along_axis(to_new, flat, axis=2).astype(values.dtype).reshape(values.shape)
    return labels.copy(data=np.moveaxis(new, (0, 1), where))
