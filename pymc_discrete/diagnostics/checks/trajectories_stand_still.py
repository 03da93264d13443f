"""Chains in which NUTS never moved, because each of its transitions diverged at once."""

from collections.abc import Sequence

import numpy as np

from pymc_discrete.diagnostics.facts import Facts
from pymc_discrete.diagnostics.findings import Finding, chains_in_words, check


def said_of_trajectories(found: Sequence[Finding], facts: Facts) -> list[str]:
    return [
        f"NUTS never moved in {len(one.chains)} of {facts.chains} chains ({chains_in_words(one)}): all its "
        "transitions diverged. Their draws say nothing. Most often the gradient of the log density is not "
        "finite where they are: look at model.compile_dlogp() there, pass other initvals=, or, where "
        "variables are summed out, collapse=False."
        for one in found
    ]


@check(place=20, say=said_of_trajectories)
def trajectories_stand_still(facts: Facts) -> list[Finding]:
    stats = facts.tree["sample_stats"]
    if "diverging" not in stats.data_vars:
        return []
    still = np.asarray(stats["diverging"].data, bool).reshape(facts.chains, -1).all(axis=1)
    continuous = [name for name in facts.free if facts.posterior[name].dtype.kind == "f"]
    for name in continuous if still.any() else ():
        draws = facts.posterior[name].data
        still[still] = [bool((draws[chain] == draws[chain, :1]).all()) for chain in np.flatnonzero(still)]
    chains = np.flatnonzero(still).tolist()
    return [Finding("trajectories stand still", tuple(continuous), chains=chains)] if len(chains) else []
