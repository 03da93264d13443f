"""Base class of analyses of a graph, which assign a value to every variable.

The value of a variable is derived from the values of the inputs of the node that computes it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.link.jax.ops import JAXOp


class Analysis[T](ABC):
    """An analysis of a graph: a value for every variable, computed on request and kept.

    A subclass defines the values of the leaves, which are the variables that no node computes, and how the
    values of a node's outputs follow from those of its inputs, mostly by one rule per Op.

    Parameters
    ----------
    known : {variable: value}, the variables at which the analysis starts; it does not visit their inputs
    """

    def __init__(self, known: Mapping[Variable, T]):
        self._values: dict[Variable, T] = dict(known)
        self._causes: dict[Variable, str] = {}

    @abstractmethod
    def after(self, node: Apply, values: list[T]) -> Sequence[T]:
        """The values of the outputs of a node, given the values of its inputs."""

    @abstractmethod
    def at_leaf(self, var: Variable) -> T:
        """The value of a leaf, a variable to whose inputs the analysis does not go, unless it is known."""

    def is_leaf(self, var: Variable) -> bool:
        """Whether the analysis goes no further at a computed variable, as at one that no node computes."""
        return False

    def of(self, var: Variable) -> T:
        """The value that the analysis gives to a variable."""
        pending = [var]
        while pending:  # The walk is depth first and not recursive, since graphs may be deep.
            current = pending[-1]
            node = current.owner
            if current not in self._values and (node is None or self.is_leaf(current)):
                self._values[current] = self.at_leaf(current)
            if current in self._values:
                pending.pop()
                continue
            missing = [i for i in node.inputs if i not in self._values]
            if missing:
                pending += missing
                continue
            values = self.after(node, [self._values[i] for i in node.inputs])
            for out, value in zip(node.outputs, values, strict=True):
                self._values.setdefault(out, value)
        return self._values[var]

    def blame(self, node: Apply) -> None:
        """Record that a node is the reason why no better value of its outputs is known, for messages."""
        # The name that PyTensor gives to an Op that wraps a function of JAX is the memory address of this
        # function, which tells a user nothing. A message names the class of the Op instead.
        name = type(node.op).__name__ if isinstance(node.op, JAXOp) else str(node.op)
        self._causes.update(dict.fromkeys(node.outputs, name))

    def cause(self, var: Variable) -> str | None:
        """The name of the first Op in the graph of a variable that was recorded by `blame`; None if there is
        none.
        """
        outputs = (out for node in toposort([var]) for out in node.outputs)
        return next((self._causes[out] for out in outputs if out in self._causes), None)


class Depends(Analysis[bool]):
    """The variables of a graph that depend on given ones: `var in Depends(roots)`.

    Parameters
    ----------
    roots : the given variables, which depend on themselves
    """

    def __init__(self, roots: Iterable[Variable]):
        super().__init__(dict.fromkeys(roots, True))

    def after(self, node: Apply, values: list[bool]) -> list[bool]:
        return [any(values)] * len(node.outputs)

    def at_leaf(self, var: Variable) -> bool:
        return False

    def __contains__(self, var: Variable) -> bool:
        return self.of(var)


def directly_read(graphs: Sequence[Variable], variables: Sequence[Variable]) -> list[Variable]:
    """The variables of a list that graphs read directly, not only by way of other variables of the list."""
    wanted = set(variables)
    inputs = [v for node in toposort(list(graphs), blockers=list(variables)) for v in node.inputs]
    return [v for v in dict.fromkeys([*graphs, *inputs]) if v in wanted]
