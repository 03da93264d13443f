"""Variables whose draws are not kept: whether chains agree about how many elements have each value."""

from collections.abc import Sequence

import numpy as np

from pymc_discrete.diagnostics.draws import name_of_totals, names_not_kept
from pymc_discrete.diagnostics.facts import Facts
from pymc_discrete.diagnostics.findings import Finding, check
from pymc_discrete.diagnostics.thresholds import LARGEST_RHAT


def said_of_counted(found: Sequence[Finding], facts: Facts) -> list[str]:
    return [
        f"{one.names[0]!r} disagrees between chains about how many elements have each value: R-hat of "
        f"{name_of_totals(one.names[0])!r} is {one.measured['rhat']:.3g}. Draw more; where the chains are in "
        "different modes, draws of it say more, which var_names= keeps."
        for one in found
    ]


@check(place=65, say=said_of_counted)
def counted_apart(facts: Facts) -> list[Finding]:
    """Variables whose draws are not kept, judged by the R-hat of how many elements have each value.

    | `'z' disagrees between chains about how many elements have each value` | the chains are in different
    modes, among them those that differ by the names of labels only, or have not run for long enough | more
    draws; `var_names=` with z keeps the draws, by which `pmd.sample` can tell these cases apart |
    """
    names = names_not_kept(facts.posterior) if facts.compared else []
    if not names:
        return []
    from arviz_stats import rhat  # imported only here, since the import takes long

    found = []
    for name in names:
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.asarray(rhat(facts.posterior[[name_of_totals(name)]])[name_of_totals(name)])
        largest = float(np.nan_to_num(each, nan=1.0, posinf=np.inf).max())
        if largest > LARGEST_RHAT:
            found.append(Finding("apart", (name,), measured={"rhat": largest}))
    return found
