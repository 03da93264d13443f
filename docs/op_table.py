"""Write the table of Ops and questions in docs/architecture.md, from the rules that are registered.

python docs/op_table.py          # writes the table
python docs/op_table.py --check  # says by its exit status whether it is the one in the page
"""

import sys
from pathlib import Path

from pytensor.graph.op import Op

from pymc_discrete.structure.bounds import REARRANGING, bounds_after
from pymc_discrete.structure.columns import column_update
from pymc_discrete.structure.degree import degree_after
from pymc_discrete.structure.lifting import for_rows
from pymc_discrete.structure.reads import elements_of
from pymc_discrete.structure.rounding import error_after
from pymc_discrete.structure.stacking import BATCHED

PAGE = Path(__file__).parent / "architecture.md"
BEGIN, END = "<!-- op table: begin -->\n", "<!-- op table: end -->\n"
QUESTIONS = {
    "what it reads": (elements_of.registry, "structure/reads.py", "whole"),
    "linear in an input": (column_update.registry, "structure/columns.py", "no"),
    "degree": (degree_after.registry, "structure/degree.py", "infinite"),
    "rounding": (error_after.registry, "structure/rounding.py", "the largest"),
    "bounds of integers": ({**bounds_after.registry, **REARRANGING}, "structure/bounds.py", "unknown"),
    "goes row by row": (for_rows.registry, "structure/lifting.py", "no"),
    "written for many at once": (dict.fromkeys(BATCHED), "structure/stacking.py", "no"),
}


def table() -> str:
    """Ops in rows, questions in columns; a dot where an Op has a rule of its own."""
    ops = {op for registry, _, _ in QUESTIONS.values() for op in registry if op not in (object, Op)}
    lines = ["| Op | " + " | ".join(QUESTIONS) + " |", "|---|" + ":-:|" * len(QUESTIONS)]
    lines.append("| *in* | " + " | ".join(f"`{file}`" for _, file, _ in QUESTIONS.values()) + " |")
    for op in sorted(ops, key=lambda op: op.__name__):
        marks = ("●" if op in registry else "" for registry, _, _ in QUESTIONS.values())
        lines.append(f"| {op.__name__} | " + " | ".join(marks) + " |")
    lines.append(
        "| *any other* | " + " | ".join(f"*{default}*" for _, _, default in QUESTIONS.values()) + " |"
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    new = before + BEGIN + table() + END + after
    if "--check" in sys.argv:
        sys.exit(f"{PAGE.name} has another table: run python docs/op_table.py." if new != page else 0)
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
