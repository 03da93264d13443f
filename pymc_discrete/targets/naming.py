"""How many variables are named in a line that a person reads."""

import re
from collections.abc import Sequence

SHOWN = 4  # names that are written out


def shortened(names: Sequence[str]) -> str:
    """The names in a line: `z0 ... z149 (150 variables)` where they are many."""
    names = list(dict.fromkeys(names))
    if len(names) <= SHOWN:
        return ", ".join(names)
    stems = {re.sub(r"\d+", "", name) for name in names}
    if len(stems) == 1:
        return f"{names[0]} ... {names[-1]} ({len(names)} variables)"
    return f"{', '.join(names[: SHOWN - 1])} ... {names[-1]} ({len(names)} variables)"
