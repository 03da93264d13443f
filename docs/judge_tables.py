"""Write the tables of what draws say: the columns of `pmd.summary` in diagnostics.md, messages in tuning.md.

python docs/judge_tables.py  # writes both, from the columns and checks that are registered
"""

import re
from collections.abc import Iterable
from pathlib import Path

from pymc_discrete.diagnostics.convergence import checks_in_order
from pymc_discrete.diagnostics.judge import SUMMARY_COLUMNS

FOLDER = Path(__file__).parent


def columns() -> str:
    """The columns of the table, with the verdict, which the page explains."""
    rows = [(c.names, c.meaning) for c in SUMMARY_COLUMNS]
    after = [names for names, _ in rows].index("rhat") + 1
    return table(("column", "what"), [*rows[:after], ("verdict", "see below"), *rows[after:]])


def messages() -> str:
    """What the checks of a run say, in the order of the log, as their docstrings have it."""
    texts = [" ".join((check.find.__doc__ or "").split()) for _, check in checks_in_order()]
    rows = [
        row.split(" | ") for text in texts for row in re.findall(r"\| (.*? \| .*? \| .*?) \|(?: |$)", text)
    ]
    return table(("message", "what it means", "what to do"), rows)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    lines = [" | ".join(row) for row in (head, *rows)]
    return "\n".join([f"| {lines[0]} |", "|" + "---|" * len([*head]), *(f"| {line} |" for line in lines[1:])])


TABLES = {FOLDER / "diagnostics.md": columns, FOLDER / "tuning.md": messages}


def page(path: Path) -> str:
    """A page with the table that it must have between two comments."""
    before, rest = path.read_text().split("<!-- judge table: begin -->\n")
    after = rest.split("<!-- judge table: end -->")[1]
    marks = "<!-- judge table: begin -->\n{}\n<!-- judge table: end -->"
    return before + marks.format(TABLES[path]()) + after


if __name__ == "__main__":
    for path in TABLES:
        path.write_text(page(path))
