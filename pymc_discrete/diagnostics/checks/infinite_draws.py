"""Variables whose draws went to infinity, because only a flat prior restricts them."""

from collections.abc import Sequence

import numpy as np

from pymc_discrete.diagnostics.draws import some_elements
from pymc_discrete.diagnostics.facts import NUMBERS_IN_MEMORY, Facts
from pymc_discrete.diagnostics.findings import Finding, check
from pymc_discrete.diagnostics.thresholds import INFINITE
from pymc_discrete.runtime.names import shown


def said_of_infinite_draws(found: Sequence[Finding], facts: Facts) -> list[str]:
    return [
        f"Draws of {shown(one.names)} are infinite, or next to it: the posterior cannot be normalised, and "
        "no draws are right. A flat prior needs data that bound the variable whatever the other unknowns "
        "are, and a state or component to which no observation belongs has none. Give a proper prior."
        for one in found
    ]


@check(place=10, say=said_of_infinite_draws)
def infinite_draws(facts: Facts) -> list[Finding]:
    """Variables whose draws are infinite.

    | `Draws of 'mu' are infinite, or next to it` | the posterior is improper: where a state or component has
    no observation, a flat prior is all that is known of its parameters | a proper prior |
    """
    continuous = [name for name in facts.free if facts.posterior[name].dtype.kind == "f"]
    gone = [name for name in continuous if goes_to_infinity(facts.posterior[name].data)]
    return [Finding("infinite", tuple(gone))] if gone else []


def goes_to_infinity(draws: np.ndarray) -> bool:
    """Whether some draws (chains, draws, ...) are infinite, or so large that they have gone to infinity."""
    # in 32 bits no number is as large as the threshold: there, a draw counts whose square is infinite
    limit = min(INFINITE, float(np.finfo(draws.dtype).max) ** 0.5)
    return any((np.abs(x) > limit).any() for x in some_elements(draws, NUMBERS_IN_MEMORY))
