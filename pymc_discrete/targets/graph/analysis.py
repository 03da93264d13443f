"""A question asked of a graph: a value for every variable, found once from those of what it is
computed from.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort


class Analysis[T](ABC):
    """One walk over a graph, as far as it is asked for; values are kept.

    A subclass says what holds at the leaves and how values pass through a node, mostly by one rule per Op.

    Parameters
    ----------
    known : {variable: value}; what these are computed from is not looked at
    """

    def __init__(self, known: Mapping[Variable, T]):
        self._values: dict[Variable, T] = dict(known)
        self._causes: dict[Variable, str] = {}

    @abstractmethod
    def after(self, node: Apply, values: list[T]) -> Sequence[T]:
        """The values of a node's outputs, given those of its inputs."""

    @abstractmethod
    def at_leaf(self, var: Variable) -> T:
        """The value of a variable that is not known, and where the walk ends."""

    def is_leaf(self, var: Variable) -> bool:
        """Whether the walk ends at a variable, besides those that are computed from nothing."""
        return False

    def of(self, var: Variable) -> T:
        """The value of a variable."""
        waiting = [var]
        while waiting:
            now = waiting[-1]
            node = now.owner
            if now not in self._values and (node is None or self.is_leaf(now)):
                self._values[now] = self.at_leaf(now)
            if now in self._values:
                waiting.pop()
                continue
            missing = [i for i in node.inputs if i not in self._values]
            if missing:
                waiting += missing
                continue
            values = self.after(node, [self._values[i] for i in node.inputs])
            for out, value in zip(node.outputs, values, strict=True):
                self._values.setdefault(out, value)
        return self._values[var]

    def blame(self, node: Apply) -> None:
        """Note that nothing better is known of the outputs because of this node."""
        self._causes.update(dict.fromkeys(node.outputs, str(node.op)))

    def cause(self, var: Variable) -> str | None:
        """The first Op on the way to a variable that was blamed, by its name."""
        below = (out for node in toposort([var]) for out in node.outputs)
        return next((self._causes[out] for out in below if out in self._causes), None)


class Depends(Analysis[bool]):
    """Whether a variable depends on some others, asked by `in`.

    Parameters
    ----------
    roots : the others
    """

    def __init__(self, roots: Iterable[Variable]):
        super().__init__(dict.fromkeys(roots, True))

    def after(self, node: Apply, values: list[bool]) -> list[bool]:
        return [any(values)] * len(node.outputs)

    def at_leaf(self, var: Variable) -> bool:
        return False

    def __contains__(self, var: Variable) -> bool:
        return self.of(var)
