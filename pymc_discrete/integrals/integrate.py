"""Rewrites a log density with coefficients integrated out.

Coefficients beta whose log density, given all else, is a quadratic form are integrated out in closed form:

    log p(z) = log p(z, beta = 0) + log of the integral of exp(-beta' A(z) beta / 2 + b(z)' beta)

The terms of the log density stay, evaluated at beta = 0, and one term is added. Whether the form is quadratic
is read off the graph (`degree_after`) and never guessed from values.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_discrete.integrals.active import columns_integral
from pymc_discrete.integrals.coefficients import (
    Coefficients,
    float_constant,
    is_discrete,
    linear_and_precision,
)
from pymc_discrete.integrals.columns import form_by_columns
from pymc_discrete.integrals.gates import gated_products, is_separable, products_first
from pymc_discrete.integrals.gaussian_integral import gaussian_integral
from pymc_discrete.runtime.names import shown
from pymc_discrete.structure.analysis import Analysis, Depends
from pymc_discrete.structure.degree import degree_after
from pymc_discrete.structure.logp_graph import AUXILIARY, INTEGRATED, Gates, Integral, LogpGraph
from pymc_discrete.structure.numbers import NUMBER
from pymc_discrete.structure.rebuild import rebuild, rewritten


class QuadraticDegree(Analysis[float]):
    """The degree of tensors as polynomials in given variables; inf where the degree is not known."""

    def __init__(self, variables: Sequence[Variable]):
        super().__init__(dict.fromkeys(variables, 1))

    def after(self, node, values: list[float]) -> list[float]:
        if not any(values):
            return [0] * len(node.outputs)
        degree = degree_after(node.op, node, values)
        if degree > 2 and max(values) <= 2:
            self.blame(node)
        return [degree] * len(node.outputs)

    def at_leaf(self, var: Variable) -> float:
        return 0


def integrated(graph: LogpGraph, names: Sequence[str]) -> LogpGraph:
    """The graph of a log density after continuous variables are integrated out.

    Parameters
    ----------
    names : names of value variables that are not in the block

    Raises
    ------
    ValueError
        For a variable in which the log density is no quadratic form; the message names the term and the Op.
    """
    coefficients = Coefficients([v for name in names for v in graph.others if v.name == name], graph)
    named = [*graph.terms, *graph.untouched]
    moved = Depends(coefficients.variables)
    quadratic = [(name, t) for name, t in named if t in moved]
    check_quadratic(quadratic, coefficients.variables)
    terms = [t for _, t in quadratic]
    columns = form_by_columns(terms, coefficients)
    gates = None if columns else gates_of(terms, coefficients)
    parts: list[Variable] = []  # the tensors from which the integral over the coefficients is computed
    if columns:
        parts, value = columns.form, columns_integral(*columns.form)
    else:
        if gates is None:
            linear, precision = linear_and_precision(terms, coefficients.of, coefficients.p)
            coupled = pt.constant(np.ones(coefficients.p, bool))
        else:
            linear = gates.prior_linear + gates.gates * gates.data_linear
            pairs = gates.gates[:, None] * gates.gates[None, :]
            precision = gates.prior_precision + pairs * gates.data_precision
            coupled = pt.or_(pt.constant(~gates.gated), pt.neq(gates.gates, 0))
        value = gaussian_integral(precision, linear, coupled)
        parts = [precision, linear, coupled, *(gates.variables if gates else ())]
    zeros = coefficients.of(float_constant(np.zeros(coefficients.p)))
    outputs = [*rewritten(rebuild([t for _, t in named], zeros)), value]

    # the graph of the new log density, in which the tensors in `parts` are evaluated, too
    new = dataclasses.replace(
        graph,
        others=[v for v in graph.others if v not in coefficients.variables],
        start={name: value for name, value in graph.start.items() if name not in names},
        terms=[],
        untouched=[],
    )
    block = shown([str(v.name) for v in graph.values])
    prefix = f"{NUMBER}for {block} with {shown(list(names))} integrated out: "
    outputs = new.hoist([*outputs, *parts], prefix)
    outputs, parts = outputs[: len(named) + 1], outputs[len(named) + 1 :]
    labelled = list(zip([*(name for name, _ in named), INTEGRATED], outputs, strict=True))
    new.terms = [(name, t) for name, t in labelled if graph.depends(t)]
    new.untouched = [(name, t) for name, t in labelled if not graph.depends(t)]
    shapes = {str(v.name): graph.shape(v) for v in coefficients.variables}
    if columns:
        # numbers that neither the new terms nor the tensors of the integral read need not be inputs
        new.forget_numbers([*outputs, *parts])
        new.integral = Integral(shapes, None, None, None, None, columns._replace(form=parts))
    else:
        precision, linear, coupled, *parts = parts
        new.integral = Integral(shapes, precision, linear, coupled, gates.of(parts) if gates else None)
    return new


def check_width(names: Sequence[str]) -> None:
    """Refuse to integrate variables out in single precision.

    Raises
    ------
    ValueError
    """
    if pytensor.config.floatX != "float64":
        raise ValueError(
            f"{shown(list(names))} cannot be integrated out in float32, in which the differences of large "
            'quadratic forms are lost. Set pytensor.config.floatX = "float64", or leave out integrate=.'
        )


def quadratic_in(graph: LogpGraph, model: pm.Model) -> list[str]:
    """Names of continuous variables without a transform in which, together, the log density is quadratic.

    Only variables that enter a term which depends on the block are included. Variables are added one after
    another; one in which the log density is not quadratic together with those before it is left out.
    """
    plain = {
        str(value.name)
        for rv, value in model.rvs_to_values.items()
        if rv in model.free_RVs
        and model.rvs_to_transforms[rv] is None
        and not str(value.name).startswith(AUXILIARY)
    }
    chosen: list[Variable] = []
    for v in graph.others:
        if v.name not in plain or not v.type.dtype.startswith("float"):
            continue
        enters = Depends([v])
        degree = QuadraticDegree([*chosen, v])
        terms = [t for _, t in [*graph.terms, *graph.untouched]]
        if any(t in enters for _, t in graph.terms) and all(degree.of(t) <= 2 for t in terms):
            chosen.append(v)
    return [str(v.name) for v in chosen]


def check_quadratic(named: list[tuple[str, Variable]], coefficients: Sequence[Variable]) -> None:
    """Refuse to integrate where the log density is no quadratic form in the coefficients.

    Raises
    ------
    ValueError
    """
    shown_names = shown([str(v.name) for v in coefficients])
    degree = QuadraticDegree(coefficients)
    for name, term in named:
        if degree.of(term) > 2:
            op = degree.cause(term) or "a product of them"
            raise ValueError(
                f"{shown_names} cannot be integrated out: given all else, the log density must be a "
                f"quadratic form in them, and {name!r} is none ({op}). It is one with Normal priors and a "
                "Normal, logistic or probit likelihood of a linear predictor, if no discrete unknown enters "
                f"its trials or size. Leave out of integrate= what enters {name!r}; NUTS moves it then."
            )


def gates_of(terms: Sequence[Variable], coefficients: Coefficients) -> Gates | None:
    """A log density as a quadratic form in coefficients that gates multiply; None if it is no such form.

    Discrete sites must enter as factors of single coefficients only (`X @ (gamma * beta)`), and the prior of
    each coefficient that sites multiply must be independent of all other coefficients.
    """
    graph, p = coefficients.graph, coefficients.p
    discrete = Depends([v for v in [*graph.values, *graph.others] if is_discrete(v)])
    data, prior = [t for t in terms if t in discrete], [t for t in terms if t not in discrete]
    data = products_first(data, Depends(coefficients.variables), discrete)
    products = gated_products(data, coefficients.variables, discrete, graph)
    index = np.concatenate([q.places.ravel() for q in products]) if products else np.empty(0, int)
    gated = np.isin(np.arange(p), index)
    if not products or len(np.unique(index)) < len(index):
        return None

    def effective(vector: Variable) -> dict[Variable, Variable]:
        return {q.var: elements(vector, q.places) for q in products}

    # Outside of products with gates, the terms of the data may read only coefficients that have no gate.
    left = rebuild(data, effective(float_constant(np.zeros(p))))
    under_gates = Depends([v for v in coefficients.variables if gated[coefficients.places(v)].any()])
    moved = Depends(coefficients.variables)
    if any(t in under_gates for t in left) or not all(
        is_separable(t, coefficients.variables, moved, graph) for t in prior if t in under_gates
    ):
        return None
    linear, precision = linear_and_precision(data, lambda v: coefficients.of(v) | effective(v), p)
    if linear in discrete or precision in discrete:
        return None
    prior_linear, prior_precision = linear_and_precision(prior, coefficients.of, p)
    factors = [q.factor.reshape((-1,)).astype(pytensor.config.floatX) for q in products]
    together = pt.concatenate([*factors, float_constant(np.ones((~gated).sum()))])
    gates = elements(together, np.argsort(np.append(index, np.flatnonzero(~gated))))
    (gates,) = rewritten([gates])
    return Gates(gated, gates, precision, linear, prior_precision, prior_linear)


def elements(vector: Variable, index: np.ndarray) -> Variable:
    """The elements of a vector at the indices `index`, in the shape of `index`."""
    flat = index.ravel()
    if np.array_equal(flat, np.arange(flat[0], flat[0] + len(flat))):
        return vector[flat[0] : flat[0] + len(flat)].reshape(index.shape)
    return vector[flat].reshape(index.shape)
