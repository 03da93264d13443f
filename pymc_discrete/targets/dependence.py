"""Which sites each element of the log density graph depends on."""

from collections.abc import Iterator

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort

from pymc_discrete.targets.graph import LogpGraph
from pymc_discrete.targets.rules import LARGEST_TABLE, Elements, Entries, elements_of


class Dependence:
    """Sites of each element of the variables between a block's values and the log density.

    `sites(var)`: (n, J) int, site numbers in increasing order from the left, -1 for none; None where the
    variable is dense.
    """

    def __init__(self, graph: LogpGraph, starts: list[int], d: int):
        self.graph, self.d = graph, d
        self._sites: dict[Variable, np.ndarray | None] = {}
        self._rules: dict[Apply, Elements | Entries | None] = {}
        self.dense_ops: dict[Variable, str] = {}
        for var, start in zip(graph.values, starts, strict=True):
            n = graph.size(var)
            self._sites[var] = np.arange(start, start + n)[:, None]

    @property
    def largest(self) -> int:
        """More sites than this per element and the element counts as dense."""
        return max(4, min(16, self.d // 4))

    def rule(self, node: Apply) -> Elements | Entries | None:
        if node not in self._rules:
            self._rules[node] = elements_of(node.op, node, self.graph)
        return self._rules[node]

    def sites(self, var: Variable) -> np.ndarray | None:
        if var not in self._sites:
            for node in self._pending(var):
                found, rule = self._propagate(node), self.rule(node)
                for n, out in enumerate(node.outputs):
                    self._sites[out] = (
                        found[rule.entry[n]] if found is not None and isinstance(rule, Entries) else found
                    )
        return self._sites[var]

    def sparse(self, var: Variable) -> np.ndarray:
        """`sites` of a variable that is known not to be dense."""
        found = self.sites(var)
        assert found is not None
        return found

    def _pending(self, var: Variable) -> Iterator[Apply]:
        known = [v for v in self._sites if v is not var]
        return (n for n in toposort([var], blockers=known) if n.outputs[0] in self.graph.dependent)

    def _propagate(self, node: Apply) -> np.ndarray | None:
        """The sites of every element of the node's output, or of every entry of its outputs."""
        moving = [(j, self._sites[i]) for j, i in enumerate(node.inputs) if i in self.graph.dependent]
        if any(own is None for _, own in moving):
            return None
        rule = self.rule(node)
        if rule is None or any(rule.reads[j] is None for j, _ in moving):
            self._blame(node)
            return None
        parts = []
        for j, own in moving:
            reads = rule.reads[j]
            assert reads is not None
            assert own is not None
            if reads.size * own.shape[1] > LARGEST_TABLE:
                self._blame(node)
                return None
            part = (
                np.where(reads[..., None] >= 0, own[reads], -1)
                if own.size
                else np.full((*reads.shape, 0), -1)
            )
            parts.append(part.reshape(len(reads), reads.shape[1] * own.shape[1]))
        merged = distinct(np.concatenate(parts, axis=1))
        if merged.shape[1] > self.largest:
            self._blame(node)
            return None
        return merged

    def _blame(self, node: Apply) -> None:
        """Note that the outputs are dense because of this node."""
        self.dense_ops.update(dict.fromkeys(node.outputs, str(node.op)))


def distinct(sites: np.ndarray) -> np.ndarray:
    """Distinct entries of every row, increasing from the left, padded with -1 and as narrow as can be."""
    if sites.shape[1] > 1:
        top = np.iinfo(sites.dtype).max
        s = np.sort(np.where(sites < 0, top, sites), axis=1)
        s[:, 1:][s[:, 1:] == s[:, :-1]] = top
        s = np.sort(s, axis=1)
        sites = np.where(s == top, -1, s)
    width = int((sites >= 0).sum(1).max(initial=0))
    return sites[:, :width]
