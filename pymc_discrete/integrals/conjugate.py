r"""Finds conjugate parameters in the graph of a model, and writes the log density without them.

A parameter array phi is integrated out if the rest of the model reads it as phi[z] only, where z are labels
of elements of discrete or observed variables, and if its prior is conjugate to the distributions of these
variables:

.. math:: \log p(z) = \log p(z, \phi_0) + \sum_k \log m_k(S_k)

where the first term has the likelihoods at a fixed value phi_0, and no prior of phi. m_k is the integral over
the parameter of label k of its prior times the likelihood, relative to the likelihood at phi_0. It depends on
the data through S_k, the sums of the sufficient statistics over the elements with label k.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import SimplexTransform
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_discrete.integrals.families import (
    FAMILIES,
    MULTIVARIATE_NORMAL_PRIOR,
    NORMAL_PRIOR,
    ConjugateLikelihood,
    Family,
    Refusal,
    known_value,
)
from pymc_discrete.integrals.integrate import check_width
from pymc_discrete.integrals.multiples import as_multiple
from pymc_discrete.integrals.over_labels import (
    ConjugateParameter,
    Coordinates,
    Read,
    at_reference,
    integral_over,
    prior_of,
)
from pymc_discrete.model.logp import constants_of_data, terms_of
from pymc_discrete.runtime.names import shown
from pymc_discrete.structure.analysis import Depends, directly_read
from pymc_discrete.structure.logp_graph import Conjugate, LogpGraph
from pymc_discrete.structure.rebuild import rebuild, rewritten


def conjugate_parameter(model: pm.Model, rv: Variable, shape: tuple[int, ...]) -> ConjugateParameter:
    """A free variable of the given shape as a conjugate parameter that is integrated out separately.

    Raises
    ------
    Refusal
    """
    node = rv.owner
    random = [*model.basic_RVs]
    children = [child for child in random if rv in directly_read(child.owner.inputs, random)]
    families = [f for f in FAMILIES if type(node.op) in f.priors]
    if not families:
        raise Refusal(f"its prior, {type(node.op).__name__.removesuffix('RV')}, is no conjugate one")
    fit = (f for f in families if all(type(child.owner.op) in f.likelihoods for child in children))
    family = next(fit, families[0])
    transform = model.rvs_to_transforms[rv]
    if (type(transform) if transform else None) not in (family.transforms or (None,)):
        raise Refusal(f"it has the transform {type(transform).__name__}")
    if prior_of(rv, family) is None:
        raise Refusal("its prior is no conjugate one")
    if rv in directly_read(model.potentials, random):
        raise Refusal("a Potential reads it")
    if not children:
        raise Refusal("nothing reads it")
    moved = [v for v in children if v in model.free_RVs and v.type.dtype.startswith("float")]
    if left := [str(v.name) for v in moved if not reads_precision(v, family)]:
        raise Refusal(left_to_nuts(left))
    reads = [read_of(c, c in model.free_RVs, rv, family, shape, random) for c in children]
    p = ConjugateParameter(str(model.rvs_to_values[rv].name), rv, family, shape, reads)
    if family is MULTIVARIATE_NORMAL_PRIOR:
        Coordinates.of(p)  # raises a Refusal if covariances are unknown or differ between elements
    return p


def reads_precision(child: Variable, family: Family) -> bool:
    """Whether the distribution of a variable can read a parameter of the given family as its precision."""
    reading = family.likelihoods.get(type(child.owner.op))
    return reading is not None and reading.precision


def left_to_nuts(names: Sequence[str]) -> str:
    """The reason why a parameter is not integrated out if continuous variables that NUTS moves read it.

    Parameters
    ----------
    names : the names of these variables
    """
    return f"{shown(names)}, which {'reads' if len(names) == 1 else 'read'} it, NUTS moves"


def means_given_precision(
    p: ConjugateParameter, found: Mapping[str, ConjugateParameter | str]
) -> list[ConjugateParameter]:
    """The unknowns that read a parameter as their precision: means that are integrated out before it.

    Raises
    ------
    Refusal
        If one of these unknowns is no such mean, or if a variable reads two of the means.
    """
    means = [mean_given_precision(r, p, found) for r in p.reads if r.unknown and r.reading.precision]
    for r in p.reads:
        if len(of := [m.name for m in means if r.rv in (s.rv for s in m.reads)]) > 1:
            raise Refusal(f"{str(r.rv.name)!r} reads {shown(of)}")
    return means


def mean_given_precision(
    read: Read, p: ConjugateParameter, found: Mapping[str, ConjugateParameter | str]
) -> ConjugateParameter:
    """A mean that reads a precision, as a parameter that can be integrated out before the precision.

    Parameters
    ----------
    read : how the mean reads the precision
    p : the precision
    found : {name of a value variable: its `ConjugateParameter`, or the reason why it is none}; a mean has no
        transform, and so its value variable has its name

    Raises
    ------
    Refusal
    """
    name = str(read.rv.name)
    mean = found.get(name)
    if not isinstance(mean, ConjugateParameter) or mean.family is not NORMAL_PRIOR:
        raise Refusal(left_to_nuts([name]))
    if p.rows > 1:
        rows = known_value(read.labels)
        if p.shape != mean.shape or rows is None or not np.array_equal(rows.ravel(), np.arange(p.rows)):
            raise Refusal(f"{name!r} reads it at other labels than its own")
    of = {r.rv: r for r in p.reads}
    for r in mean.reads:
        if r.rv not in of:
            raise Refusal(f"{str(r.rv.name)!r} reads {name!r} and not it")
        if p.rows > 1 and not equal_computations([r.labels], [of[r.rv].labels]):
            raise Refusal(f"{str(r.rv.name)!r} reads it at other labels than {name!r}")
    return mean


def read_of(
    child: Variable,
    unknown: bool,
    rv: Variable,
    family: Family,
    shape: tuple[int, ...],
    random: Sequence[Variable],
) -> Read:
    """How the distribution of the variable `child` reads the parameter `rv`, as a `Read`.

    Parameters
    ----------
    unknown : whether `child` is an unknown of the model, and no data
    family, shape : the family and the shape of the parameter
    random : all random variables of the model

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
    if rv in directly_read(others, random):
        raise Refusal(f"another parameter of {name} reads it, too")
    power = -reading.power if family.inverted else reading.power
    # a view, which is how PyMC writes a Deterministic in a graph, is replaced by its input
    bare = lambda node, inputs: inputs[:1] if isinstance(node.op, ViewOp) else None
    (param,) = rebuild([params[reading.place]], {v: v for v in random}, bare)
    path, factor, offset = as_multiple(param, lambda v: rv in directly_read([v], random), power, name)
    if (factor is not None and not reading.scaled) or (offset is not None and not reading.shifted):
        raise Refusal(f"{name} reads a function of it")
    labels = rows_read(path, rv, shape, family.vectors, name)
    if factor is not None and family.inverted:
        factor = 1 / factor
    one, zero = pt.constant(np.float64(1.0)), pt.constant(np.float64(0.0))
    of = ConjugateLikelihood(
        child, params, one if factor is None else factor, zero if offset is None else offset
    )
    return Read(child, unknown, labels, of, reading)


def rows_read(path: Variable, rv: Variable, shape: tuple[int, ...], vectors: bool, name: str) -> Variable:
    """(...) int, for each element of a tensor of selected rows of a parameter, which row it is.

    Parameters
    ----------
    path : the tensor
    rv, shape : the parameter and its shape
    vectors : whether a row of the parameter is a vector along its last axis, and not a number; rows are
        counted along all other axes
    name : the variable that reads the tensor, for the message

    Raises
    ------
    Refusal
        If the tensor is anything other than selected rows.
    """
    moved = Depends([rv])
    for node in toposort([path], blockers=[rv]):
        first, *index = node.inputs
        if first not in moved and not any(i in moved for i in index):
            continue
        ndim, op = first.type.ndim if first in moved else 0, node.op
        if isinstance(op, DimShuffle):
            selects = not vectors or bool(op.new_order and op.new_order[-1] == ndim - 1)
        elif isinstance(op, Subtensor | AdvancedSubtensor):
            selects = not vectors or len(op.idx_list) < ndim
        else:
            selects = isinstance(op, SpecifyShape)
        if not selects or any(i in moved for i in index):
            raise Refusal(f"{name} reads a function of it")
    # in this table of the numbers of rows, the axis of vectors, from which nothing is selected, has length 1
    batch = (*shape[:-1], 1) if vectors else shape
    numbers = pt.constant(np.arange(int(np.prod(batch))).reshape(batch))
    as_it_is = lambda node, inputs: inputs[:1] if isinstance(node.op, SpecifyShape) else None
    (labels,) = rebuild([path], {rv: numbers}, as_it_is)
    return labels[..., 0] if vectors else labels


# ---------------------------------------------------------------- the log density without conjugate
# parameters
def without_conjugate(
    model: pm.Model, names: Collection[str], point: Mapping[str, np.ndarray]
) -> tuple[list[Variable] | None, list[Conjugate]]:
    """The terms of a log density with conjugate parameters integrated out, and the distributions of the
    parameters.

    Parameters
    ----------
    names : the names of value variables; variables that are no conjugate parameters stay
    point : a point of the model, which determines all shapes

    Returns
    -------
    terms : the terms of the free variables, of the observed variables and of the potentials, or None if
        nothing has changed
    conjugate : the integrated parameters, with graphs of the model's value variables

    Raises
    ------
    ValueError
        In single precision, and if two of the parameters are read together.
    """
    if names:
        check_width(list(names))
    if not (parameters := apart(model, names, point)):
        return None, []
    new, integrated = list(terms_of(model)), []
    number = {rv: n for n, rv in enumerate([*model.free_RVs, *model.observed_RVs])}
    discrete = Depends([rv for rv in model.free_RVs if not rv.type.dtype.startswith("float")])

    def drawn(p: ConjugateParameter, posterior: list[Variable], given: Sequence[Variable] = ()) -> Conjugate:
        return Conjugate(p.name, np.shape(point[p.name]), p.family.name, posterior, list(given))

    for p in parameters:
        means = [m.rv for m in p.means]
        for r in p.reads:
            new[number[r.rv]] = pt.zeros(()) if r.rv in means else at_reference(model, r, p, discrete)
        new[number[p.rv]], *posterior = model.replace_rvs_by_values(integral_over(p, discrete))
        integrated.append(drawn(p, posterior))
        for mean in p.means:
            _, *posterior = model.replace_rvs_by_values(integral_over(mean, discrete))
            integrated.append(drawn(mean, posterior, [model.rvs_to_values[p.rv]]))
    return new, integrated


def apart(
    model: pm.Model, names: Collection[str], point: Mapping[str, np.ndarray]
) -> list[ConjugateParameter]:
    """The conjugate parameters among some variables that can each be integrated out separately.

    Normal parameters that unknown labels do not select, or that are added to others, are left out: they are
    integrated out together, as coefficients of one quadratic form.

    Raises
    ------
    ValueError
        If two of the parameters are read together, so that neither is conjugate while the other has no value.
    """
    found = conjugate_parameters(model, point) if names else {}
    parameters = {n: p for n, p in found.items() if n in names and isinstance(p, ConjugateParameter)}
    rvs = {model.values_to_rvs[v] for v in model.value_vars if v.name in names}
    labels = Depends([rv for rv in model.free_RVs if not rv.type.dtype.startswith("float")])
    with_precisions = {m.rv for p in parameters.values() for m in p.means}
    chosen = []
    for name, p in parameters.items():
        own = {p.rv, *(m.rv for m in p.means)}
        if p.rv in with_precisions or not own <= rvs:
            continue
        beside = [*p.rv.owner.inputs, *(v for r in p.reads for v in r.rv.owner.inputs)]
        together = not (rvs - own).isdisjoint(directly_read(beside, model.basic_RVs))
        if p.family in (NORMAL_PRIOR, MULTIVARIATE_NORMAL_PRIOR):
            moving = [v for r in p.reads for v in (r.likelihood.factor, r.likelihood.offset) if v in labels]
            if together or moving or not all(r.labels in labels for r in p.reads):
                continue
        elif together:
            others = shown(sorted(set(names) - {name, *(m.name for m in p.means)}))
            raise ValueError(
                f"{name!r} cannot be integrated out together with {others}: a distribution reads both, so "
                "that neither is conjugate without the other's value. Leave one of them out of integrate=; "
                "NUTS moves it then."
            )
        chosen.append(p)
    return chosen


def conjugate_in(model: pm.Model, names: Collection[str], point: Mapping[str, np.ndarray]) -> list[str]:
    """Names of the conjugate parameters that are read at labels of a block, or by a variable of the block.

    A precision that means read is included only together with the means. A parameter that an unknown outside
    of the block reads, such as missing counts, is left out: if the parameter were integrated out, all
    elements of this unknown would depend on one another.

    Parameters
    ----------
    names : value variables of the block
    point : a point of the model, which determines all shapes
    """
    block = {rv for rv, value in model.rvs_to_values.items() if value.name in names}
    moved, chosen, number = Depends(block), list[str](), 0
    found = conjugate_parameters(model, point)
    parameters = [p for p in found.values() if isinstance(p, ConjugateParameter)]
    for p in parameters:  # the parents of a variable come before it: a precision before means that read it
        beside = [v for r in p.reads for v in (r.likelihood.factor, r.likelihood.offset)]
        beside += [r.likelihood.params[0] for r in p.reads if r.reading.precision and r not in p.of_means]
        at_labels = any(r.rv in block or r.labels in moved for r in p.reads)
        outside = any(r.unknown and r.rv not in block and not r.reading.precision for r in p.reads)
        if p.name in chosen or not at_labels or outside or any(v in moved for v in beside):
            continue
        together = [*chosen, *(m.name for m in p.means), p.name]
        try:
            if len(apart(model, together, point)) > number:
                chosen, number = together, number + 1
        except ValueError:  # a distribution reads p and a chosen parameter: p is left out
            continue
    return [name for name in found if name in chosen]


def conjugate_parameters(
    model: pm.Model, point: Mapping[str, np.ndarray]
) -> dict[str, ConjugateParameter | str]:
    """{name of a continuous value variable: its `ConjugateParameter`, or the reason why it is none}."""
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
    for name, p in found.items():
        if isinstance(p, ConjugateParameter):
            try:
                found[name] = replace(p, means=means_given_precision(p, found))
            except Refusal as refusal:
                found[name] = str(refusal)
    return found


def why_not_integrated(
    found: Mapping[str, ConjugateParameter | str], name: str, names: Collection[str]
) -> str | None:
    """The reason why a variable is not integrated out in closed form beside others; None if it can be.

    Parameters
    ----------
    found : {name of a continuous value variable: its `ConjugateParameter`, or the reason why it is none}
    names : the names of the variables that are integrated out
    """
    p = found[name]
    if isinstance(p, str):
        return p
    left = [m.name for m in p.means if m.name not in names]
    return left_to_nuts(left) if left else None


def read_from(graph: LogpGraph, conjugate: Sequence[Conjugate], prefix: str) -> LogpGraph:
    """The graph of a log density, with the distributions of integrated parameters as functions of its inputs.

    Parameters
    ----------
    graph : the graph, which is changed
    conjugate : the integrated parameters, with distributions as functions of a model's value variables
    prefix : the prefix of the names of numbers that become inputs of the graph
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
    by_graph = {v: of_name[str(v.name)].astype(v.type.dtype) for v in inputs if v.name in of_name}
    by_graph |= constants_of_data(posterior)
    new = iter(graph.hoist(rewritten(rebuild(posterior, by_graph)), prefix))
    graph.conjugate = [c._replace(posterior=[next(new) for _ in c.posterior]) for c in conjugate]
    return graph
