"""Which scalar function computes a tensor element by element."""

from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import ScalarOp, Switch
from pytensor.tensor.elemwise import Elemwise


def applies(node: Apply | None, *kinds: type[ScalarOp]) -> bool:
    """Whether a node applies a scalar Op of one of some kinds to each element of its inputs.

    Without kinds, any scalar Op counts. None, the owner of a variable that is not computed, applies nothing.
    """
    return (
        node is not None and isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, kinds or object)
    )


def computed_by(v: Variable, *kinds: type[ScalarOp]) -> bool:
    """Whether a scalar Op of one of some kinds computes a tensor element by element.

    Without kinds, any scalar Op counts.
    """
    return applies(v.owner, *kinds)


def scalar_op_of(v: Variable, *kinds: type[ScalarOp]) -> ScalarOp | None:
    """The scalar Op that computes a tensor element by element, if it is of one of the given kinds; else None.

    Without kinds, any scalar Op counts.
    """
    return v.owner.op.scalar_op if computed_by(v, *kinds) else None


def is_switch(node: Apply) -> bool:
    """Whether a node selects each element from one of two tensors."""
    return applies(node, Switch)
