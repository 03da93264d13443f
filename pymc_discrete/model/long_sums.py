"""Long sums of scalar counts, such as all infections so far, become products with one vector of the counts.

The terms of a model written in a loop then have the same Ops, however many counts each term adds up, so that
they can be combined into one.
"""

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort

from pymc_discrete.structure.bounds import IntegerBounds
from pymc_discrete.structure.linear_forms import Form, LinearForms
from pymc_discrete.structure.rebuild import rebuild

SHORTEST_LONG_SUM = 8  # shorter sums stay as they are, since they depend on few sites
# Sums become products with a vector of all counts in them only if at least this fraction of the coefficients
# is nonzero: a product also computes with the zeros.
SPARSEST = 0.25


def with_long_sums(terms: list[Variable], values: list[Variable]) -> list[Variable]:
    """The terms, with each long sum of scalars among `values` written as coefficients times a vector of them.

    The vector holds all the scalars, so that many sums are one product of a matrix with it.
    """
    forms = LinearForms(IntegerBounds({}), lambda v: False)
    scalars = {v for v in values if v.type.ndim == 0 and v.type.dtype == "int64"}
    if len(scalars) < SHORTEST_LONG_SUM:
        return terms

    def is_sum(var: Variable) -> bool:
        return var.owner is not None and not forms.is_leaf(var)

    nodes = list(toposort(terms))
    read = [i for node in nodes if not any(map(is_sum, node.outputs)) for i in node.inputs]
    sums = {v: forms.of(v) for v in [*read, *terms] if is_sum(v)}
    sums = {v: form for v, form in sums.items() if len(scalars & form.keys()) > 1}
    counts = [v for v in values if v in scalars and any(v in form for form in sums.values())]
    lengths = [len(scalars & form.keys()) for form in sums.values()]
    if max(lengths, default=0) < SHORTEST_LONG_SUM or sum(lengths) < SPARSEST * len(sums) * len(counts):
        return terms
    vector = pt.stack(counts)
    return rebuild(terms, {v: product_with_vector(v, form, vector, counts) for v, form in sums.items()})


def product_with_vector(var: Variable, form: Form, vector: Variable, counts: list[Variable]) -> Variable:
    """The linear form of a variable: the product of constants with a vector of counts, plus its other
    summands.
    """
    coefficients = np.array([form.get(v, 0) for v in counts], np.int64)
    total = pt.dot(pt.constant(coefficients), vector)
    for other, c in form.items():
        if other is None:
            total = total + np.int64(c)
        elif other not in counts:
            total = total + (other if c == 1 else np.int64(c) * other)
    added = var.type.ndim - total.type.ndim
    return pt.expand_dims(total, tuple(range(added))) if added else total
