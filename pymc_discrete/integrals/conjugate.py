r"""Finds conjugate parameters in the graph of a model, and writes the log density without them.

A parameter array phi that the rest of the model reads as phi[z] only, z the labels of elements of discrete
or observed variables, and whose prior is conjugate to how they read it, is integrated out:

.. math:: \log p(z) = \log p(z, \phi_0) + \sum_k \log m_k(S_k)

where m_k has the prior of label k, S_k are the sums of the sufficient statistics over its elements, and the
first term, without the prior of phi, has the likelihoods at one fixed value of phi.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import SimplexTransform
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.scalar.basic import Add, Mul, Reciprocal, Sub, TrueDiv
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import MultinomialRV
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_discrete.integrals.families import FAMILIES, ConjugateLikelihood, Family, Reading
from pymc_discrete.integrals.integrate import check_width
from pymc_discrete.model.logp import constants_of_data, terms_of
from pymc_discrete.runtime.names import shown
from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.logp_graph import Conjugate, LogpGraph
from pymc_discrete.structure.rebuild import rebuild, rewritten


@dataclass
class Read:
    """One variable that reads a parameter.

    Attributes
    ----------
    rv : that variable
    unknown : whether it is an unknown of the model, and no data
    labels : (...) int, which row of the parameter each of its elements reads
    likelihood, reading : how
    """

    rv: Variable
    unknown: bool
    labels: Variable
    likelihood: ConjugateLikelihood
    reading: Reading


@dataclass
class ConjugateParameter:
    """A parameter that can be integrated out in closed form.

    Attributes
    ----------
    rv : its random variable
    family : Family
    shape : of the variable
    reads : by what it is read
    """

    rv: Variable
    family: Family
    shape: tuple[int, ...]
    reads: list[Read]


class Refusal(Exception):
    """Says why a parameter cannot be integrated out, in words that follow "since" in a message."""


def conjugate_parameter(model: pm.Model, rv: Variable, shape: tuple[int, ...]) -> ConjugateParameter:
    """A free variable of this shape as a conjugate parameter.

    Raises
    ------
    Refusal
    """
    node = rv.owner
    family = next((f for f in FAMILIES if type(node.op) in f.priors), None)
    if family is None:
        raise Refusal(f"its prior, {type(node.op).__name__.removesuffix('RV')}, is no conjugate one")
    transform = model.rvs_to_transforms[rv]
    if (type(transform) if transform else None) not in (family.transforms or (None,)):
        raise Refusal(f"it has the transform {type(transform).__name__}")
    if prior_of(rv, family) is None:
        raise Refusal("its prior is no conjugate one")
    random = [*model.basic_RVs]
    if any(depend_directly([potential], rv, random) for potential in model.potentials):
        raise Refusal("a Potential reads it")
    children = [child for child in random if depend_directly(child.owner.inputs, rv, random)]
    if not children:
        raise Refusal("nothing reads it")
    moved = [str(v.name) for v in children if v in model.free_RVs and v.type.dtype.startswith("float")]
    if moved:
        raise Refusal(f"{shown(moved)}, which {'reads' if len(moved) == 1 else 'read'} it, NUTS moves")
    return ConjugateParameter(
        rv, family, shape, [read_of(c, c in model.free_RVs, rv, family, shape, random) for c in children]
    )


def depend_directly(graphs: Sequence[Variable], rv: Variable, random: Sequence[Variable]) -> bool:
    """Whether graphs depend on a random variable other than by way of further random variables."""
    return rv in graphs or any(rv in node.inputs for node in toposort(graphs, blockers=random))


def prior_of(rv: Variable, family: Family) -> tuple[Any, ...] | None:
    """The parameters of a prior, as the family has them."""
    return family.priors[type(rv.owner.op)](*rv.owner.op.dist_params(rv.owner))


def read_of(
    child: Variable,
    unknown: bool,
    rv: Variable,
    family: Family,
    shape: tuple[int, ...],
    random: Sequence[Variable],
) -> Read:
    """How a variable reads a parameter.

    Raises
    ------
    Refusal
    """
    node, name = child.owner, repr(str(child.name))
    reading = family.likelihoods.get(type(node.op))
    if reading is None:
        raise Refusal(f"{name}, which reads it, has a likelihood to which its prior is not conjugate")
    params = node.op.dist_params(node)
    others = [p for n, p in enumerate(params) if n != reading.place]
    if depend_directly(others, rv, random):
        raise Refusal(f"another parameter of {name} reads it, too")
    path, factor, offset = as_multiple(params[reading.place], rv, reading.inverse, random, name)
    if (factor is not None and not reading.scaled) or (offset is not None and not reading.shifted):
        raise Refusal(f"{name} reads a function of it")
    labels = rows_read(path, rv, shape, family.categories, name)
    one, zero = pt.constant(np.float64(1.0)), pt.constant(np.float64(0.0))
    of = ConjugateLikelihood(
        child, params, one if factor is None else factor, zero if offset is None else offset
    )
    return Read(child, unknown, labels, of, reading)


def as_multiple(
    param: Variable, rv: Variable, inverse: bool, random: Sequence[Variable], name: str
) -> tuple[Variable, Variable | None, Variable | None]:
    """(elements of a parameter, factor, offset): `param` is factor * elements + offset, None for 1 and 0.

    Parameters
    ----------
    inverse : whether `param` is the inverse of that
    name : of the variable that reads the parameter, for the message

    Raises
    ------
    Refusal
    """

    def moves(v: Variable) -> bool:
        return depend_directly([v], rv, random)

    factor, offset = None, None
    while is_elementwise(param):
        scalar, inputs = param.owner.op.scalar_op, param.owner.inputs
        moving = [i for i in inputs if moves(i)]
        rest = [i for i in inputs if not moves(i)]
        if len(moving) != 1:
            break
        if isinstance(scalar, Reciprocal) and inverse:
            param, inverse = moving[0], False
        elif isinstance(scalar, TrueDiv) and inverse and moving[0] is inputs[1]:
            param, inverse, factor = moving[0], False, product_with(factor, 1 / rest[0])
        elif isinstance(scalar, Mul) and not inverse:
            param, factor = moving[0], product_with(factor, *rest)
        elif isinstance(scalar, TrueDiv) and not inverse and moving[0] is inputs[0]:
            param, factor = moving[0], product_with(factor, 1 / rest[0])
        elif isinstance(scalar, Add) and not inverse:
            more = product_with(factor, pt.add(*rest) if len(rest) > 1 else rest[0])
            param, offset = moving[0], more if offset is None else offset + more
        elif isinstance(scalar, Sub) and not inverse and moving[0] is inputs[0]:
            more = product_with(factor, -rest[0])
            param, offset = moving[0], more if offset is None else offset + more
        else:
            break
    if inverse:
        raise Refusal(f"{name} reads a function of it")
    return param, factor, offset


def product_with(factor: Variable | None, *more: Variable) -> Variable:
    """A product, of which None is no factor."""
    factors = [*more] if factor is None else [factor, *more]
    return pt.mul(*factors) if len(factors) > 1 else factors[0]


def is_elementwise(v: Variable) -> bool:
    """Whether a variable is computed element by element."""
    return v.owner is not None and isinstance(v.owner.op, Elemwise)


def rows_read(path: Variable, rv: Variable, shape: tuple[int, ...], categories: bool, name: str) -> Variable:
    """(...) int, which row of a parameter each element of a tensor is, by the parameter's shape.

    Rows are counted along all axes of the parameter, but for the last one where that has `categories`.

    Raises
    ------
    Refusal
        Where the tensor is anything but selected rows.
    """
    moved = Depends([rv])
    for node in toposort([path], blockers=[rv]):
        first, *index = node.inputs
        if first not in moved and not any(i in moved for i in index):
            continue
        ndim, op = first.type.ndim if first in moved else 0, node.op
        if isinstance(op, DimShuffle):
            selects = not categories or bool(op.new_order and op.new_order[-1] == ndim - 1)
        elif isinstance(op, Subtensor | AdvancedSubtensor):
            selects = not categories or len(op.idx_list) < ndim
        else:
            selects = isinstance(op, SpecifyShape)
        if not selects or any(i in moved for i in index):
            raise Refusal(f"{name} reads a function of it")
    # the axis of categories, which nothing selects from, has length 1 here
    batch = (*shape[:-1], 1) if categories else shape
    numbers = pt.constant(np.arange(int(np.prod(batch))).reshape(batch))
    as_it_is = lambda node, inputs: inputs[:1] if isinstance(node.op, SpecifyShape) else None
    (labels,) = rebuild([path], {rv: numbers}, as_it_is)
    return labels[..., 0] if categories else labels


# ---------------------------------------------------------------- the log density without them
def without_conjugate(
    model: pm.Model, names: Collection[str], point: Mapping[str, np.ndarray]
) -> tuple[list[Variable] | None, list[Conjugate]]:
    """The terms of a log density with conjugate parameters integrated out, and the distributions of these.

    Parameters
    ----------
    names : of value variables; those that are no conjugate parameters stay
    point : a point of the model, which determines all shapes

    Returns
    -------
    terms : of the free variables, of the observed ones, of the potentials, or None where nothing has changed
    conjugate : with graphs of the model's value variables

    Raises
    ------
    ValueError
        In single precision, and where two of them are read together.
    """
    if names:
        check_width(list(names))
    if not (parameters := apart(model, names, point)):
        return None, []
    new, integrated = list(terms_of(model)), []
    number = {rv: n for n, rv in enumerate([*model.free_RVs, *model.observed_RVs])}
    for p in parameters:
        value = model.rvs_to_values[p.rv]
        shape = np.shape(point[str(value.name)])
        for r in p.reads:
            new[number[r.rv]] = at_reference(model, r, p)
        new[number[p.rv]], *posterior = model.replace_rvs_by_values(integral_over(p))
        integrated.append(Conjugate(str(value.name), shape, p.family.name, posterior))
    return new, integrated


def apart(
    model: pm.Model, names: Collection[str], point: Mapping[str, np.ndarray]
) -> list[ConjugateParameter]:
    """The conjugate parameters among some variables that can be integrated out, each for itself.

    Normal ones that unknown labels do not select, or that are added up with others, are left to the integral
    over all of them together.

    Raises
    ------
    ValueError
        Where two of them are read together, so that neither is conjugate when the other has no value.
    """
    found = conjugate_parameters(model, point) if names else {}
    parameters = {n: p for n, p in found.items() if n in names and isinstance(p, ConjugateParameter)}
    rvs = {model.values_to_rvs[v] for v in model.value_vars if v.name in names}
    labels = Depends([rv for rv in model.free_RVs if not rv.type.dtype.startswith("float")])
    chosen = []
    for name, p in parameters.items():
        beside = [*p.rv.owner.inputs, *(v for r in p.reads for v in r.rv.owner.inputs)]
        together = any(depend_directly(beside, rv, model.basic_RVs) for rv in rvs - {p.rv})
        if p.family.name == "normal":
            moving = [v for r in p.reads for v in (r.likelihood.factor, r.likelihood.offset) if v in labels]
            if together or moving or not all(r.labels in labels for r in p.reads):
                continue
        elif together:
            others = shown(sorted(set(names) - {name}))
            raise ValueError(
                f"{name!r} cannot be integrated out together with {others}: a distribution reads both, so "
                "that neither is conjugate without the other's value. Leave one of them out of integrate=; "
                "NUTS moves it then."
            )
        chosen.append(p)
    return chosen


def at_reference(model: pm.Model, read: Read, p: ConjugateParameter) -> Variable:
    """What a likelihood has besides the factor that depends on the parameter.

    That is its log density at the family's reference value, less the logarithm of that factor there.
    """
    node, reading = read.rv.owner, read.reading
    categories = p.shape[-1] if p.family.categories else 1
    if p.family.categories:
        param = pt.constant(np.full(categories, 1 / categories))
    else:
        param = read.likelihood.factor * p.family.reference + read.likelihood.offset
        param = 1 / param if reading.inverse else param
    params = [param if n == reading.place else v for n, v in enumerate(read.likelihood.params)]
    statistics = [of_floats(s) for s in reading.statistics(read.likelihood)]
    factor, *params = model.replace_rvs_by_values([p.family.log_weights(statistics, categories), *params])
    _, rv = node.op(*params, rng=node.op.rng_param(node), return_next_rng=True)
    logp = pm.logp(rv, model.rvs_to_values[read.rv], warn_rvs=False)
    # of a vector of counts the log density is one number
    return logp - (factor.sum(-1) if factor.type.ndim > logp.type.ndim else factor)


def conjugate_in(model: pm.Model, names: Collection[str], point: Mapping[str, np.ndarray]) -> list[str]:
    """Names of the conjugate parameters that are read at labels of a block, or by a variable of the block.

    Parameters
    ----------
    names : value variables of the block
    point : a point of the model, which determines all shapes
    """
    block = {rv for rv, value in model.rvs_to_values.items() if value.name in names}
    moved, chosen = Depends(block), list[str]()
    for name, p in conjugate_parameters(model, point).items():
        if isinstance(p, str):
            continue
        beside = [v for r in p.reads for v in (r.likelihood.factor, r.likelihood.offset) if v in moved]
        if beside or not any(r.rv in block or r.labels in moved for r in p.reads):
            continue
        try:
            if len(apart(model, [*chosen, name], point)) > len(chosen):
                chosen.append(name)
        except ValueError:  # read together with one that is chosen
            continue
    return chosen


def conjugate_parameters(
    model: pm.Model, point: Mapping[str, np.ndarray]
) -> dict[str, ConjugateParameter | str]:
    """{name of a continuous value variable: what it is as a conjugate parameter, or why it is none}."""
    found: dict[str, ConjugateParameter | str] = {}
    for rv in model.free_RVs:
        value = model.rvs_to_values[rv]
        if not value.type.dtype.startswith("float"):
            continue
        shape = np.shape(point[str(value.name)])
        if isinstance(model.rvs_to_transforms[rv], SimplexTransform):
            shape = (*shape[:-1], shape[-1] + 1)
        try:
            found[str(value.name)] = conjugate_parameter(model, rv, shape)
        except Refusal as refusal:
            found[str(value.name)] = str(refusal)
    return found


def read_from(graph: LogpGraph, conjugate: Sequence[Conjugate], prefix: str) -> LogpGraph:
    """The graph with the distributions of what was integrated out, as functions of the graph's inputs.

    Parameters
    ----------
    conjugate : with graphs of a model's value variables
    prefix : what the names of new numbers begin with
    """
    names = {c.name for c in conjugate}
    graph.others = [v for v in graph.others if v.name not in names]
    graph.start = {name: value for name, value in graph.start.items() if name not in names}
    of_name: dict[str, Variable] = {}
    for v in [*graph.values, *graph.others]:
        ends = np.cumsum([np.size(graph.start[name]) for name in graph.groups[v]])
        for name, end in zip(graph.groups[v], ends, strict=True):
            start = graph.start[name]
            whole = v.type.shape == start.shape
            of_name[name] = v if whole else v.ravel()[end - start.size : end].reshape(start.shape)
    posterior = [g for c in conjugate for g in c.posterior]
    inputs = [v for v in graph_inputs(posterior) if not isinstance(v, Constant)]
    replace = {v: of_name[str(v.name)].astype(v.type.dtype) for v in inputs if v.name in of_name}
    replace |= constants_of_data(posterior)
    new = iter(graph.hoist(rewritten(rebuild(posterior, replace)), prefix))
    graph.conjugate = [c._replace(posterior=[next(new) for _ in c.posterior]) for c in conjugate]
    return graph


def integral_over(p: ConjugateParameter) -> list[Variable]:
    """The integral over a parameter, a sum over its labels, and the parameters given all else."""
    batch = p.shape[:-1] if p.family.categories else p.shape
    rows = int(np.prod(batch))
    params = [of_floats(v) for v in prior_of(p.rv, p.family) or ()]
    if not p.family.categories:
        prior = [pt.broadcast_to(v, batch).reshape((rows,)) for v in params]
        each = [[of_floats(s) for s in r.reading.statistics(r.likelihood)] for r in p.reads]
        labels = pt.concatenate([of_elements(r.labels, r.rv) for r in p.reads])
        sums = [
            sums_by_label(
                labels,
                pt.concatenate([of_elements(s, r.rv) for s, r in zip(own, p.reads, strict=True)]),
                rows,
            )
            for own in zip(*each, strict=True)
        ]
        return [p.family.log_marginal(prior, sums).sum(), *p.family.posterior(prior, sums)]
    (a,), V = params, p.shape[-1]
    # Counts that one site changes between are neighbours in memory: those of all labels, where the labels are
    # unknown, and of all categories, where these are.
    by_category = not any(r.unknown for r in p.reads)
    table = pt.broadcast_to(a, p.shape).reshape((rows, V))
    prior = [(table.T if by_category else table).reshape((rows * V,))]
    index, stats, labels, totals = [], [], [], []
    for r in p.reads:
        (count,) = map(of_floats, r.reading.statistics(r.likelihood))
        vectors = isinstance(r.rv.owner.op, MultinomialRV)  # counts of each category, not a category
        own = pt.broadcast_to(r.labels, r.rv.shape[:-1] if vectors else r.rv.shape)
        labels.append(own.ravel())
        totals.append((count.sum(-1) if vectors else count).ravel())
        row, category = (own[..., None], np.arange(V)) if vectors else (own, r.rv)
        index.append((category * rows + row if by_category else row * V + category).ravel())
        stats.append(count.ravel())
    counts = [sums_by_label(pt.concatenate(index), pt.concatenate(stats), rows * V)]
    total = sums_by_label(pt.concatenate(labels), pt.concatenate(totals), rows)
    concentration = table.sum(-1)
    of_totals = pt.gammaln(concentration) - pt.gammaln(concentration + total)
    (posterior,) = p.family.posterior(prior, counts)
    posterior = posterior.reshape((V, rows)).T if by_category else posterior.reshape((rows, V))
    return [p.family.log_marginal(prior, counts).sum() + of_totals.sum(), posterior]


def of_floats(v: Any) -> Variable:
    """A tensor as floats."""
    v = pt.as_tensor(v)
    return v if v.type.dtype.startswith("float") else v.astype("float64")


def of_elements(v: Variable, rv: Variable) -> Variable:
    """A vector with one entry for each element of a random variable, to whose shape a tensor is broadcast."""
    return pt.broadcast_to(v, rv.shape).ravel()


def sums_by_label(labels: Variable, numbers: Variable, size: int) -> Variable:
    """(size,) sums of the numbers of each label."""
    return pt.inc_subtensor(pt.zeros(size)[labels], numbers)
