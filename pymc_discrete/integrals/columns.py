"""Finds coefficients of many columns that sites gate, `X @ (gamma * beta)`, and their quadratic form.

No p x p matrix of the coefficients is made. The terms of the data must read the coefficients with gates
through one product with a matrix that is constant or data, and must be sums of quadratic functions of single
elements of this product.
"""

from collections.abc import Sequence

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import toposort
from pytensor.tensor.math import Dot

from pymc_discrete.integrals.coefficients import (
    Coefficients,
    float_constant,
    is_discrete,
    linear_and_precision,
)
from pymc_discrete.integrals.gates import (
    Product,
    gated_products,
    is_separable,
    places,
    products_first,
)
from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.degree import is_separable_quadratic
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.logp_graph import Columns, LogpGraph
from pymc_discrete.structure.numbers import OfNumbers
from pymc_discrete.structure.rebuild import opened, rebuild, rewritten

# A p x p matrix of coefficients is used if there are at most MOST_IN_TABLEAU coefficients, or more than
# MOST_ROWS rows of data for each coefficient. Without the matrix, with n rows of data and k active
# coefficients, a move costs n (n + p) operations, and what is computed once per draw costs k times as many.
MOST_IN_TABLEAU, MOST_ROWS = 300, 2.0


def form_by_columns(terms: Sequence[Variable], coefficients: Coefficients) -> Columns | None:
    """A log density as a quadratic form in a linear predictor and in p coefficients, without a p x p matrix.

    The result is None if the log density has no such form, or if a p x p matrix costs less.

    Parameters
    ----------
    terms : the terms of the log density that read the coefficients
    """
    graph = coefficients.graph
    if coefficients.p <= MOST_IN_TABLEAU:
        return None
    discrete = Depends([v for v in [*graph.values, *graph.others] if is_discrete(v)])
    data, prior = [t for t in terms if t in discrete], [t for t in terms if t not in discrete]
    data = products_first(data, Depends(coefficients.variables), discrete)
    products = gated_products(data, coefficients.variables, discrete, graph)
    if (found := gated_design(data, products, coefficients)) is None:
        return None
    node, design, index, factor = found
    others = np.setdiff1d(np.arange(coefficients.p), index)
    under_gates = [v for v in coefficients.variables if np.isin(coefficients.places(v), index).any()]
    if any(not np.isin(coefficients.places(v), index).all() for v in under_gates):
        return None

    # the log density of the data as a function of the linear predictor and the coefficients without a gate
    n, m = graph.shape(design)[1], len(others)
    moved, of_gated = Depends(coefficients.variables), Depends(under_gates)
    of_prior = [t for t in prior if t in of_gated]
    predictor, a = pt.tensor("eta", shape=(n,), dtype="float64"), pt.tensor("a", shape=(m,), dtype="float64")
    data = rebuild(data, {node.outputs[0]: as_output(predictor, node)})
    if any(t in of_gated for t in data) or not all(
        is_separable(t, coefficients.variables, moved, graph) for t in of_prior
    ):
        return None
    entered = Depends([predictor])
    total = pt.add(pt.constant(0.0), *(t.sum() for t in data if t in entered))
    if not is_separable_quadratic(total, predictor, graph.size):
        return None
    apart = {v: places for v, places in of_others(coefficients, under_gates)}

    def elements_of(vector: Variable) -> dict[Variable, Variable]:
        return {v: vector[start:stop].reshape(graph.shape(v)) for v, (start, stop) in apart.items()}

    (total,) = rebuild([total], elements_of(a))
    nothing = {predictor: float_constant(np.zeros(n)), a: float_constant(np.zeros(m))}
    slope, weights, cross = expanded(total, predictor, a, nothing)

    # the priors, and terms that read only coefficients without a gate
    left = [*rebuild(data, {predictor: nothing[predictor]}), *(t for t in prior if t not in of_gated)]
    own_slope, own = linear_and_precision(left if m else [], elements_of, m)
    linear, precision = separable_form(of_prior, coefficients)
    form = [
        factor,
        design,
        broadcast(weights, (n,)),
        broadcast(slope, (n,)),
        broadcast(cross, (n, m)),
        broadcast(own, (m, m)),
        broadcast(own_slope, (m,)),
        broadcast(precision, (coefficients.p,))[index],
        broadcast(linear, (coefficients.p,))[index],
    ]
    form = rewritten(form)
    if any(v in discrete for v in form[1:]):
        return None
    return Columns(index, others, form)


def gated_design(
    terms: Sequence[Variable], products: Sequence[Product], coefficients: Coefficients
) -> tuple[Apply, Variable, np.ndarray, Variable] | None:
    """The product of a design matrix with coefficients and their gates; None if a p x p matrix costs less, or
    if the terms have no such product.

    Parameters
    ----------
    terms : the terms of the data
    products : the coefficients with gates, each multiplied by its gate

    Returns
    -------
    node : the node of the product
    design : (q, n), the transpose of the design matrix
    index : (q,), the coefficient of each column of the design matrix
    factor : (q,), the gate of each, which is one site
    """
    graph = coefficients.graph
    node, design, vector = product_with_matrix(terms, products)
    if node is None or graph.shape(design)[1] > MOST_ROWS * coefficients.p:
        return None
    index, factor = arranged(vector, products, coefficients)
    if index is None or len(np.unique(index)) < len(index) or not one_site_each(factor, graph):
        return None
    return node, design, index, factor


def expanded(
    total: Variable, predictor: Variable, a: Variable, nothing: dict[Variable, Variable]
) -> tuple[Variable, Variable, Variable]:
    """The derivatives of a quadratic function of a linear predictor (n,) and of coefficients (m,), at 0.

    Each summand of the function reads one element of the predictor.

    Parameters
    ----------
    total : the function, a scalar
    a : the coefficients
    nothing : {predictor: zeros, a: zeros}

    Returns
    -------
    slope : (n,), the first derivatives by the predictor
    weights : (n,), the second derivatives by the predictor times -1
    cross : (n, m), the derivatives by the predictor and the coefficients times -1
    """
    (n,), (m,) = predictor.type.shape, a.type.shape
    direction, along = pt.tensor("direction", shape=(n,), dtype="float64"), a.type("along")
    (slope,) = pytensor.grad(total, [predictor])
    (curved,) = pytensor.grad((slope * direction).sum(), [predictor], disconnected_inputs="ignore")
    cross = float_constant(np.zeros((n, m)))
    if m:
        (by_others,) = pytensor.grad(total, [a], disconnected_inputs="ignore")
        (mixed,) = pytensor.grad(
            (by_others * along).sum(), [predictor], disconnected_inputs="ignore", return_disconnected="zero"
        )
        (mixed,) = rewritten(rebuild(rebuild([mixed], nothing), {}, opened))
        if mixed in Depends([along]):
            cross = -vectorize_graph(mixed, {along: float_constant(np.eye(m))}).T
    (weights,) = rebuild([-curved], {direction: float_constant(np.ones(n))})
    slope, weights = rebuild([slope, weights], nothing)
    slope, weights = rebuild([slope, weights], {}, opened)
    return slope, weights, cross


def broadcast(v: Variable, shape: tuple[int, ...]) -> Variable:
    """A variable broadcast to a given shape, which the type of the result states."""
    return pt.specify_shape(pt.broadcast_to(v, shape) if v.type.shape != shape else v, shape)


def as_output(predictor: Variable, node: Apply) -> Variable:
    """The linear predictor (n,) in the shape and dtype of the product of the design matrix with a vector.

    Parameters
    ----------
    node : the node of the product, whose output has one row or one column
    """
    column = node.outputs[0].type.shape[1] == 1
    return (predictor[:, None] if column else predictor[None, :]).astype(node.outputs[0].type.dtype)


def product_with_matrix(terms: Sequence[Variable], products: Sequence[Product]):
    """The product of a design matrix with a vector through which terms read all gated coefficients.

    Parameters
    ----------
    terms : the terms of the data
    products : the coefficients with gates, each multiplied by its gate

    Returns
    -------
    node : the node of the product
    matrix : (q, n), the transpose of the design matrix, which is constant or data
    vector : the vector that the design matrix is multiplied with
        All three are None if the terms have no such product, or several.
    """
    if products:
        mixed, known = Depends([q.var for q in products]), OfNumbers()
        nodes = [node for node in toposort(terms) if isinstance(node.op, Dot)]
        reading = [node for node in nodes if any(i in mixed for i in node.inputs)]
        if len(reading) == 1:
            (node,) = reading
            left, right = node.inputs
            fixed = lambda v: v not in mixed and known.of(v) is not False
            if right.type.shape[1:] == (1,) and fixed(left):
                return node, transposed(left), right
            if left.type.shape[:1] == (1,) and fixed(right):
                return node, right, left
    return None, None, None


def transposed(matrix: Variable) -> Variable:
    """The transpose of a matrix; of a constant, a copy in which each row is contiguous in memory.

    Products read the matrix row by row.
    """
    if isinstance(matrix, Constant):
        return pt.constant(np.ascontiguousarray(matrix.data.T))
    return matrix.T


def arranged(vector: Variable, products: Sequence[Product], coefficients: Coefficients):
    """For each element of a vector, the index of the coefficient that it is a multiple of, and the factor.

    The result is (None, None) unless the elements of the vector are the elements of all `products`,
    rearranged.
    """
    graph = coefficients.graph
    fresh = {q.var: pt.tensor(shape=graph.shape(q.var), dtype=q.var.type.dtype) for q in products}
    (moved,) = rebuild([vector], dict(fresh))
    index = places(moved, list(fresh.values()), graph) if moved in Depends(fresh.values()) else None
    if index is None or index.size != sum(q.places.size for q in products):
        return None, None
    each = np.concatenate([q.places.ravel() for q in products])
    factors = {q.var: pt.broadcast_to(q.factor, graph.shape(q.var)) for q in products}
    (factor,) = rebuild([vector], dict(factors))
    factor = factor.reshape((index.size,)).astype("float64")
    return each[index.ravel()], factor


def one_site_each(gates: Variable, graph: LogpGraph) -> bool:
    """Whether no gate depends on two sites of the block, and no site is read by two gates."""
    if not graph.depends(gates):
        return True
    sizes = [graph.size(v) for v in graph.values]
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    sites = Dependence(graph, starts, sum(sizes)).of(gates)
    if sites is None or sites.shape[1] > 1:
        return False
    moved = sites[sites >= 0]
    return len(np.unique(moved)) == len(moved)


def of_others(coefficients: Coefficients, under_gates: Sequence[Variable]):
    """[(variable, (start, stop))], where each coefficient without a gate is in a vector of all of them.

    Parameters
    ----------
    under_gates : the coefficients with a gate
    """
    start, found = 0, []
    for v in coefficients.variables:
        if v not in under_gates:
            size = coefficients.graph.size(v)
            found.append((v, (start, start + size)))
            start += size
    return found


def separable_form(terms: Sequence[Variable], coefficients: Coefficients) -> tuple[Variable, Variable]:
    """h (p,) and D (p,) with which some terms are sum(-D_k beta_k^2 / 2 + h_k beta_k), plus a constant.

    Each term must be a sum of quadratic functions of single coefficients beta_k.
    """
    p = coefficients.p
    vector, direction = (pt.tensor(name, shape=(p,), dtype="float64") for name in ("vector", "direction"))
    total = pt.add(pt.constant(0.0), *rebuild([t.sum() for t in terms], coefficients.of(vector)))
    (slope,) = pytensor.grad(total, [vector], disconnected_inputs="ignore")
    (curved,) = pytensor.grad((slope * direction).sum(), [vector], disconnected_inputs="ignore")
    slope, curved = rebuild([slope, curved], {vector: float_constant(np.zeros(p))})
    (curved,) = rebuild([curved], {direction: float_constant(np.ones(p))})
    slope, curved = rebuild([slope, -curved], {}, opened)
    return slope, curved
