"""Tensors that are a multiple of a parameter, or a power of a multiple: a standard deviation is the power
-1/2 of a precision."""

from collections.abc import Callable

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable, equal_computations
from pytensor.scalar.basic import Abs, Add, Mul, Pow, Reciprocal, Second, Sign, Sqrt, Sub, TrueDiv
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_discrete.integrals.families import Refusal, known_value
from pymc_discrete.structure.scalar_ops import computed_by, scalar_op_of

Varies = Callable[[Variable], bool]  # says whether a variable depends on the parameter that is looked for


def as_multiple(
    v: Variable, moves: Varies, power: float, name: str
) -> tuple[Variable, Variable | None, Variable | None]:
    """(elements, factor, offset) with which a tensor is (factor * elements + offset) ** power.

    The elements are elements of a parameter. A factor None stands for 1, and an offset None for 0.

    Parameters
    ----------
    v : the tensor
    moves : (variable) -> whether it depends on the parameter
    power : 1, -1, or, for a positive parameter, 1/2 or -1/2
    name : the name of the variable that reads the parameter, for the message

    Raises
    ------
    Refusal
        If the tensor is computed in another way.
    """
    exponents = {1.0, -1.0} if float(power).is_integer() else {1.0, -1.0, 0.5, -0.5}
    factor, offset, found = None, None, 1.0
    while True:
        if (selected := selected_first(v, moves)) is not None:
            v = selected
        elif (raised := as_power(v, moves)) is not None and raised[1] in exponents:
            v, exponent, more = raised
            if offset is not None and exponent != 1.0:
                break
            factor = factor if more is None else product_with(factor, more)
            factor = factor if factor is None else to_power(factor, 1 / exponent)
            found *= exponent
        elif (shifted := as_sum(v, moves)) is not None:
            v, added = shifted
            added = product_with(factor, added)
            offset = added if offset is None else offset + added
        else:
            break
    if found != power:
        raise Refusal(f"{name} reads a function of it")
    return v, factor, offset


def as_power(v: Variable, moves: Varies) -> tuple[Variable, float, Variable | None] | None:
    """(inside, exponent, factor) with which a tensor is factor * inside ** exponent, where only `inside`
    depends on the parameter.

    A factor None stands for 1. The result is None if the tensor is computed in another way.
    """
    if not computed_by(v):
        return None
    scalar, inputs = v.owner.op.scalar_op, v.owner.inputs
    moving, rest = [i for i in inputs if moves(i)], [i for i in inputs if not moves(i)]
    if isinstance(scalar, Mul) and len(moving) == 2 and not rest:
        return power_with_sign(*moving)
    if len(moving) != 1:
        return None
    (inside,) = moving
    match scalar:
        case Second() if inside is inputs[1]:  # Second gives its second input the shape of its first
            return inside, 1.0, None
        case Reciprocal():
            return inside, -1.0, None
        case Sqrt():
            return inside, 0.5, None
        case Pow() if inside is inputs[0]:
            exponent = known_number(rest[0])
            return None if exponent is None else (inside, exponent, None)
        case Mul():
            return inside, 1.0, pt.mul(*rest) if len(rest) > 1 else rest[0]
        case TrueDiv():
            return (inside, -1.0, rest[0]) if inside is inputs[1] else (inside, 1.0, 1 / rest[0])
    return None


def power_with_sign(*factors: Variable) -> tuple[Variable, float, Variable | None] | None:
    """(v, exponent, None) for the factors abs(v) ** exponent and sign(v), in any order; else None.

    PyMC writes the standard deviation of a precision v as the product of two such factors.
    """
    for power, sign in (factors, factors[::-1]):
        scalar_ops = [scalar_op_of(w) for w in (power, sign)]
        if not (isinstance(scalar_ops[0], Pow) and isinstance(scalar_ops[1], Sign)):
            continue
        base, exponent = power.owner.inputs
        (v,) = sign.owner.inputs
        absolute = computed_by(base, Abs)
        if absolute and equal_computations(base.owner.inputs, [v]):
            number = known_number(exponent)
            return None if number is None else (v, number, None)
    return None


def known_number(v: Variable) -> float | None:
    """The value of a tensor of one element that is computed from constants; None for any other tensor."""
    value = known_value(v)
    return float(value.ravel()[0]) if value is not None and value.size == 1 else None


def as_sum(v: Variable, moves: Varies) -> tuple[Variable, Variable] | None:
    """(inside, added), whose sum is the tensor v, where only `inside` depends on the parameter; None if v is
    no such sum.
    """
    if not computed_by(v):
        return None
    scalar, inputs = v.owner.op.scalar_op, v.owner.inputs
    moving, rest = [i for i in inputs if moves(i)], [i for i in inputs if not moves(i)]
    if len(moving) == 1 and isinstance(scalar, Add):
        return moving[0], pt.add(*rest) if len(rest) > 1 else rest[0]
    if len(moving) == 1 and isinstance(scalar, Sub) and moving[0] is inputs[0]:
        return moving[0], -rest[0]
    return None


def selected_first(v: Variable, moves: Varies) -> Variable | None:
    """A selection from an elementwise function, written as the function of selections: f(v)[z] as f(v[z]).

    The result is None if the tensor is no such selection, or if the function combines tensors of several
    shapes other than single numbers.
    """
    node = v.owner
    if node is None or not isinstance(node.op, DimShuffle | Subtensor | AdvancedSubtensor):
        return None
    whole, *index = node.inputs
    if not computed_by(whole) or not moves(whole) or any(moves(i) for i in index):
        return None
    inputs = [selected_of(i, node) for i in whole.owner.inputs]
    if any(i is None for i in inputs):
        return None
    deeper = [selected_first(i, moves) for i in inputs]
    return whole.owner.op(*(i if d is None else d for i, d in zip(inputs, deeper, strict=True)))


def selected_of(v: Variable, node: Apply) -> Variable | None:
    """The selection that a node makes from its first input, made from another tensor v of the same shape.

    If v is a single number, the result is v without axes. For any other shape the result is None.
    """
    if v.type.broadcastable == node.inputs[0].type.broadcastable:
        return node.op.make_node(v, *node.inputs[1:]).outputs[0]
    return v.dimshuffle() if all(v.type.broadcastable) else None


def to_power(v: Variable, power: float) -> Variable:
    """A tensor to the power of 1, 2, 1/2, -1, -2 or -1/2."""
    root = {1.0: v, 2.0: v**2, 0.5: pt.sqrt(v)}[abs(power)]
    return 1 / root if power < 0 else root


def product_with(factor: Variable | None, *more: Variable) -> Variable:
    """The product of a factor with one or more tensors; a factor None stands for 1."""
    factors = [*more] if factor is None else [factor, *more]
    return pt.mul(*factors) if len(factors) > 1 else factors[0]
