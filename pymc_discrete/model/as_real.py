"""Log densities in which real numbers take the place of counts."""

from collections.abc import Mapping

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import Cast
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor

from pymc_discrete.structure.rebuild import rebuild
from pymc_discrete.structure.scalar_ops import applies


def as_real(outputs: list[Variable], replace: Mapping[Variable, Variable]) -> list[Variable]:
    """Graphs in which real variables take the place of integer variables.

    The formulas stay the same, but casts to integers are left out, so that log Gamma(n + 1) becomes a smooth
    function of n.

    Parameters
    ----------
    replace : {integer variable: real variable of the same shape}

    Raises
    ------
    NotImplementedError
        Where an Op takes integers only, such as an index.
    """
    try:
        return rebuild(outputs, dict(replace), of_reals)
    except (TypeError, ValueError, IndexError) as error:
        raise NotImplementedError(f"The log density needs integers: {error}") from error


def of_reals(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
    """A rule for `rebuild`: the outputs of a node of which some integer inputs have become real."""
    became_real = [
        is_integer(old) and not is_integer(new) for old, new in zip(node.inputs, inputs, strict=True)
    ]
    if not any(became_real):
        return None
    if applies(node, Cast) and is_integer(node.outputs[0]):
        return [inputs[0]]
    if isinstance(node.op, IncSubtensor | AdvancedIncSubtensor) and is_integer(inputs[0]):
        return node.op.make_node(pt.cast(inputs[0], "float64"), *inputs[1:]).outputs
    return None


def is_integer(variable: Variable) -> bool:
    return getattr(variable.type, "dtype", "").startswith(("int", "uint"))
