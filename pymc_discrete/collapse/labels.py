"""Which elements of a tensor are equal, read off the graph that computes it.

Elements are equal if the same operations compute them, from equal constants, from the same elements of other
variables, and from sites that the caller has given the same label.
"""

from collections.abc import Sequence

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable

from pymc_discrete.structure.analysis import Analysis
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.numbers import Number
from pymc_discrete.structure.reads import Entries


class Labels(Analysis[np.ndarray]):
    """Labels of the elements of tensors, (n,) int: two elements of one tensor with the same label are equal.

    Parameters
    ----------
    dependence : tells which elements of its inputs each element of a tensor is computed from
    sites : {variable of the block: labels of its sites}
    by_value : whether data are compared by their present values, as constants are
    """

    def __init__(self, dependence: Dependence, sites: dict[Variable, np.ndarray], by_value: bool = False):
        super().__init__(sites)
        self.dependence, self.by_value = dependence, by_value

    def at_leaf(self, var: Variable) -> np.ndarray:
        if not hasattr(var.type, "ndim"):
            return np.zeros(1, int)
        if not isinstance(var, Constant) and not (self.by_value and isinstance(var, Number)):
            return self._distinct(var)
        data = np.ascontiguousarray(var.data if isinstance(var, Constant) else var.value).reshape(-1)
        # floats are compared bit by bit, since 1 / 0.0 and 1 / -0.0 differ
        return np.unique(data.view(f"V{data.itemsize}"), return_inverse=True)[1]

    def after(self, node: Apply, values: list[np.ndarray]) -> list[np.ndarray]:
        rule = self.dependence.rule(node)
        if rule is None:
            return [self._distinct(v) for v in node.outputs]
        # An input that every element reads as a whole cannot distinguish elements, and is left out. Of such
        # an input, the list of what each element reads has None, or an array whose second axis has length 0.
        read = [
            np.where(reads >= 0, labels[reads], -1)
            for reads, labels in zip(rule.reads, values, strict=True)
            if reads is not None and reads.shape[1]
        ]
        if isinstance(rule, Entries):
            entries = classes(read, max(map(np.max, rule.entry)) + 1)
            pairs = zip(rule.entry, rule.place, strict=True)
            return [classes([entries[e][:, None], place[:, None]], len(e)) for e, place in pairs]
        n = self.dependence.graph.size(node.outputs[0])
        return [classes([*read, *(f.reshape(n, -1) for f in rule.fixed)], n)]

    def _distinct(self, var: Variable) -> np.ndarray:
        return np.arange(self.dependence.graph.size(var) if hasattr(var.type, "ndim") else 1)


def classes(tables: Sequence[np.ndarray], n: int) -> np.ndarray:
    """(n,) int, the same number for rows that are equal in all tables (n, m)."""
    found = np.zeros(n, int)
    for column in (column for table in tables for column in table.T):
        if not n or found.max() == n - 1:
            break  # all rows are different
        values = np.unique(column, return_inverse=True)[1]
        found = np.unique(found * (values.max() + 1) + values, return_inverse=True)[1]
    return found


def colours(d: int, scopes: Sequence[np.ndarray]) -> np.ndarray:
    """(d,) int, a colour for each site, different for sites that share a table.

    Parameters
    ----------
    scopes : a list of (E, J) int, the sites of the tables of each array
    """
    found = np.zeros(d, int)
    joining = [sites for sites in scopes if sites.shape[1] > 1]
    if not joining:
        return found
    around: list[set[int]] = [set() for _ in range(d)]
    for sites in joining:
        for scope in sites.tolist():
            for i in scope:
                around[i].update(scope)
    for i, near in enumerate(around):
        taken = {int(found[j]) for j in near if j < i}
        found[i] = next(c for c in range(len(taken) + 1) if c not in taken)
    return found


def first_alike(numbers: np.ndarray) -> np.ndarray:
    """(n,) int, for each element the index of the first element with the same number."""
    _, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    return first[which.reshape(-1)]
