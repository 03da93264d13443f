"""Which continuous variables have an element for each label."""

from collections.abc import Sequence

import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor

from pymc_discrete.structure.analysis import Depends


def selected_by(model: pm.Model, labels: Sequence[str]) -> list[str]:
    """Continuous variables with an element for each label that others use as an index, such as mu in mu[z].

    A variable with no axis as long as the axis that labels index, such as a mean for each column, is left
    out.
    """
    moved, found = Depends([model[name] for name in labels]), set[Variable]()
    for node in toposort([*model.basic_RVs, *model.potentials]) if labels else ():
        if not isinstance(node.op, AdvancedSubtensor | Subtensor):
            continue
        table, *flat = node.inputs
        lengths = {
            table.type.shape[axis]
            for axis, index in enumerate(indices_from_subtensor(flat, node.op.idx_list))
            if isinstance(index, Variable) and index in moved
        }
        if lengths:
            read = ancestors([table], blockers=model.basic_RVs)
            found.update(v for v in read if v in model.free_RVs and lengths.intersection(v.type.shape))
    return [str(rv.name) for rv in model.free_RVs if rv in found and rv.dtype.startswith("float")]
