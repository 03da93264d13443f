"""Which sites each element of the log density graph depends on."""

import numpy as np
from pytensor.graph.basic import Apply, Variable

from pymc_discrete.structure.analysis import Analysis
from pymc_discrete.structure.logp_graph import LogpGraph
from pymc_discrete.structure.reads import LARGEST_TABLE, Elements, Entries, elements_of, in_order


class Dependence(Analysis[np.ndarray | None]):
    """The sites that each element depends on, for the variables between a block's values and the log density.

    The value of a variable with n elements is (n, J) int: the sites of each element in increasing order,
    padded with -1 on the right. It is None where the variable is *dense*: where an element depends on more
    than `largest` sites, or where the sites are not known.

    Parameters
    ----------
    starts : the number of the first site of each variable of the block
    d : the number of sites
    largest : int, optional
        The most sites that an element may depend on; a variable with an element that depends on more counts
        as dense. The default is `most_sites`.
    """

    def __init__(self, graph: LogpGraph, starts: list[int], d: int, largest: int | None = None):
        sizes = [graph.size(var) for var in graph.values]
        blocks = zip(graph.values, starts, sizes, strict=True)
        super().__init__({var: np.arange(start, start + n)[:, None] for var, start, n in blocks})
        self.graph = graph
        self.largest = most_sites(d) if largest is None else largest
        self._rules: dict[Apply, Elements | Entries | None] = {}

    def rule(self, node: Apply) -> Elements | Entries | None:
        """The elements that the outputs of a node read (see `elements_of`), found once for each node."""
        if node not in self._rules:
            self._rules[node] = elements_of(node.op, node, self.graph)
        return self._rules[node]

    def sparse(self, var: Variable) -> np.ndarray:
        """The sites of a variable that is known not to be dense."""
        sites = self.of(var)
        assert sites is not None
        return sites

    def is_leaf(self, var: Variable) -> bool:
        return not self.graph.depends(var)

    def at_leaf(self, var: Variable) -> np.ndarray:
        return np.zeros((self.graph.size(var) if hasattr(var.type, "ndim") else 1, 0), int)

    def after(self, node: Apply, values: list[np.ndarray | None]) -> list[np.ndarray | None]:
        sites, rule = self._merged(node, values), self.rule(node)
        if sites is None or not isinstance(rule, Entries):
            return [sites] * len(node.outputs)
        return [sites[rule.entry[n]] for n in range(len(node.outputs))]

    def _merged(self, node: Apply, values: list[np.ndarray | None]) -> np.ndarray | None:
        """For each element of a node's outputs, all sites of the input elements that the element reads.

        For an Op that computes groups of elements together (`Entries`), for each group in place of each
        element.
        """
        moving = [(j, values[j]) for j, i in enumerate(node.inputs) if self.graph.depends(i)]
        if any(sites is None for _, sites in moving):
            return None
        rule = self.rule(node)
        if rule is None or any(rule.reads[j] is None for j, _ in moving):
            self.blame(node)
            return None
        parts: list[np.ndarray] = []
        for j, sites in moving:
            reads = rule.reads[j]
            assert reads is not None
            assert sites is not None
            if reads is in_order(len(reads)):
                parts.append(sites)
                continue
            if reads.size * sites.shape[1] > LARGEST_TABLE:
                self.blame(node)
                return None
            part = (
                np.where(reads[..., None] >= 0, sites[reads], -1)
                if sites.size
                else np.full((*reads.shape, 0), -1)
            )
            parts.append(part.reshape(len(reads), reads.shape[1] * sites.shape[1]))
        same = all(part is parts[0] for part in parts[1:])
        merged = distinct(parts[0] if same else np.concatenate(parts, axis=1))
        if merged.shape[1] > self.largest:
            self.blame(node)
            return None
        return merged


def most_sites(d: int) -> int:
    """The most of d sites that an element may depend on without being dense."""
    return max(4, min(16, d // 4))


def distinct(sites: np.ndarray) -> np.ndarray:
    """The distinct sites of every row of an array (n, J) in increasing order, where -1 is padding.

    The rows are padded on the right, up to the number of sites of the row with most sites.
    """
    if sites.shape[1] > 1 and not ((sites[:, :1] >= 0).all() and (sites[:, 1:] > sites[:, :-1]).all()):
        top = np.iinfo(sites.dtype).max
        s = np.sort(np.where(sites < 0, top, sites), axis=1)
        s[:, 1:][s[:, 1:] == s[:, :-1]] = top
        s = np.sort(s, axis=1)
        sites = np.where(s == top, -1, s)
    width = int((sites >= 0).sum(1).max(initial=0))
    return sites if width == sites.shape[1] else sites[:, :width]
