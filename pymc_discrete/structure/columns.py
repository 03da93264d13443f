"""Updates of linear maps: the change of the whole result when a few elements of the input change.

The rules of Ops are in `ops/`; an Op without a rule is not treated as linear.
"""

from collections.abc import Callable
from functools import singledispatch

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from scipy.sparse import issparse

from pymc_discrete.space.indexing import take
from pymc_discrete.structure.jaxify import jax_funcify
from pymc_discrete.structure.logp_graph import LogpGraph

# An update is a function (delta, index, rows, inputs) -> (r, k, *shape), the change of a node's output:
#   delta : (r, m, k), changes of m elements of the input, for each of r sites and its k neighbours
#   index : (R, m) int, the flat indices of the elements that change, for all R sites of a variable
#   rows : (r,) int, the sites that are asked for, counted within the variable; None for all of them
#   inputs : the values of the node's inputs
Update = Callable


LARGEST_FACTOR = 1e8  # a linear map with a larger constant is not updated, since rounding errors would grow


def is_tame(source: Variable, node: Apply, graph: LogpGraph) -> bool:
    """Whether the output of a linear node may be updated by adding the change that a column of the map gives.

    This is false if elements of the source, the input that depends on the block, may be infinite or very
    large. Subtracting an infinite element gives inf - inf. A very large element leaves a rounding error in
    the sum, which stays there after the element is subtracted.

    Parameters
    ----------
    source : the input of the node that depends on the block
    node : a node that is linear in `source`
    """
    for v in [*node.inputs, *(i for n in toposort([source], blockers=graph.values) for i in n.inputs)]:
        numbers = (v.data.data if issparse(v.data) else v.data) if isinstance(v, Constant) else ()
        if np.size(numbers) and not (np.abs(np.asarray(numbers, float)) <= LARGEST_FACTOR).all():
            return False
    return all(
        keeps_magnitude(n.op, n)
        for n in toposort([source], blockers=graph.values)
        if any(graph.depends(i) for i in n.inputs)
    )


@singledispatch
def keeps_magnitude(op: Op, node: Apply) -> bool:
    """Whether a node maps finite values to finite values of a similar order of magnitude."""
    return True


@singledispatch
def column_update(op: Op, node: Apply, moving: int, graph: LogpGraph) -> Update | None:
    """The update of a node's output when input number `moving` changes; None where the node is not linear in
    it.
    """
    return None


def one_hot(place: np.ndarray, n: int, rows, dtype):
    """(r, m, n), the one-hot encoding of the integers in the r rows `rows` of `place` (R, m), which are in
    0, ..., n - 1; `rows` is None for all R rows.
    """
    return (
        take(place.reshape(-1), np.arange(place.size).reshape(place.shape), rows)[..., None] == np.arange(n)
    ).astype(dtype)


def whole_input_update(node: Apply, moving: int, graph: LogpGraph) -> Update:
    """The update of a linear Op computed by applying the Op to the change of its whole input."""
    function = jax_funcify(node.op, node=node)
    shape = graph.shape(node.inputs[moving])

    def update(delta, index, rows, inputs):
        r, _, k = delta.shape
        elements = jnp.asarray(index) if rows is None else jnp.asarray(index)[rows]
        change = jnp.zeros((r, int(np.prod(shape)), k), delta.dtype)
        change = change.at[jnp.arange(r)[:, None], elements].add(delta)
        change = jnp.moveaxis(change, 2, 1).reshape(r, k, *shape)

        def of_change(c):
            return function(*(c if j == moving else i for j, i in enumerate(inputs)))

        return jax.vmap(jax.vmap(of_change))(change)

    return update
