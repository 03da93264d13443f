"""Moves expensive computations out of switches: functions of the branches, and sums of the branches.

Both branches of a switch are evaluated for every element. The density of a Bernoulli variable is such a
switch, between the logarithms of p and of 1 - p, and the logarithms take most of the time of its evaluation.
"""

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.elemwise import Elemwise

from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.rebuild import rebuild
from pymc_discrete.structure.scalar_ops import scalar_op_of


def pulled_out(outputs: list[Variable], graph: LogpGraph) -> list[Variable]:
    """The graph with `f(switch(c, a, b))` in place of `switch(c, f(a), f(b))`, where a and b depend on the
    block.
    """

    def of_switch(condition: Variable, a: Variable, b: Variable, size: int) -> Variable | None:
        """`f(switch(condition, c, d))` if a = f(c) and b = f(d) for some f; else None."""
        if not (pays(a, size) and pays(b, size)):
            return None
        f, g = operation(a), operation(b)
        if {f, g} == {ps.log, ps.log1p} and a.type.dtype == b.type.dtype == "float64":
            # log1p(x) is written as log(1 + x). Rounding of 1 + x changes the logarithm by 1e-16, as much as
            # rounding changes the log density that the logarithm is added to. In 32 bits the change would be
            # 6e-8, too much for a sum of a million logarithms.
            x, y = (v.owner.inputs[0] if h == ps.log else 1 + v.owner.inputs[0] for v, h in ((a, f), (b, g)))
            return pt.log(pt.switch(condition, x, y))
        if f is None or f != g:
            return None
        inputs = list(a.owner.inputs)
        # Two sums, or two products, are merged only if they have equally many inputs.
        if len(inputs) != len(b.owner.inputs):
            return None
        different = [n for n, pair in enumerate(zip(inputs, b.owner.inputs, strict=True)) if not same(*pair)]
        if len(different) != 1:
            return None
        (n,) = different
        x, y = inputs[n], b.owner.inputs[n]
        if x.type.dtype != y.type.dtype:
            return None
        inner = of_switch(condition, x, y, size)
        inputs[n] = pt.switch(condition, x, y) if inner is None else inner
        return a.owner.op(*inputs)

    def pays(x: Variable, size: int) -> bool:
        """Whether x depends on the block and has at least as many elements as the switch."""
        return graph.depends(x) and graph.size(x) >= size

    def rewrite(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        if not is_elementwise_switch(node):
            return None
        condition, a, b = inputs
        new = of_switch(condition, a, b, graph.size(node.outputs[0]))
        return None if new is None or new.type != node.outputs[0].type else [new]

    return rebuild(outputs, {}, rewrite)


def added_up(term: Variable) -> Variable:
    """(), the sum of all elements of a term.

    The elements of a check, which are 0 where a condition holds and -inf elsewhere, need not be added up.
    """
    if term.owner is not None and is_elementwise_switch(term.owner):
        condition, holds, fails = term.owner.inputs
        if is_filled(holds, 0.0) and is_filled(fails, -np.inf):
            return pt.switch(condition.all(), pt.constant(0.0), pt.constant(-np.inf))
    return term.sum()


def is_elementwise_switch(node: Apply) -> bool:
    """Whether a node is an elementwise switch."""
    return isinstance(node.op, Elemwise) and node.op.scalar_op == ps.switch


def is_filled(x: Variable, value: float) -> bool:
    """Whether a tensor is a constant whose elements all have the given value."""
    return isinstance(x, Constant) and bool((x.data == value).all())


def operation(x: Variable) -> ps.ScalarOp | None:
    """The elementwise function by which a tensor is computed; None where it is computed in another way."""
    return scalar_op_of(x) if x.owner is not None and len(x.owner.outputs) == 1 else None


def same(a: Variable, b: Variable) -> bool:
    """Whether two variables are one, or are equal constants."""
    return a is b or (isinstance(a, Constant) and isinstance(b, Constant) and a.equals(b))
