"""Write the table of Ops and questions in docs/architecture.md, from the rules that are registered.

python docs/op_table.py          # writes the table
python docs/op_table.py --check  # says by its exit status whether it is the one in the page
"""

import ast
import sys
from pathlib import Path

from pytensor.graph.op import Op

from pymc_discrete.structure import ops
from pymc_discrete.structure.bounds import REARRANGING, bounds_after
from pymc_discrete.structure.columns import column_update
from pymc_discrete.structure.degree import degree_after
from pymc_discrete.structure.lifting import for_rows, simplified
from pymc_discrete.structure.reads import elements_of
from pymc_discrete.structure.rounding import error_after
from pymc_discrete.structure.stacking import with_axis
from pymc_discrete.structure.sums import summands_of

PAGE = Path(__file__).parent / "architecture.md"
BEGIN, END = "<!-- op table: begin -->\n", "<!-- op table: end -->\n"
QUESTIONS = {
    "what it reads": (elements_of.registry, "structure/reads.py", "whole"),
    "linear in an input": (column_update.registry, "structure/columns.py", "no"),
    "degree": (degree_after.registry, "structure/degree.py", "infinite"),
    "rounding": (error_after.registry, "structure/rounding.py", "the largest"),
    "bounds of integers": ({**bounds_after.registry, **REARRANGING}, "structure/bounds.py", "unknown"),
    "has a simpler form": (simplified.registry, "structure/lifting.py", "no"),
    "goes row by row": (for_rows.registry, "structure/lifting.py", "no"),
    "written for many at once": (with_axis.registry, "structure/stacking.py", "no"),
    "summed by parts": (summands_of.registry, "structure/sums.py", "no"),
}


def families() -> dict[str, set[str]]:
    """{file of `structure/ops/`: the Ops that have rules there}.

    An Op is named there where its rules are registered: in a decorator, as the annotation of a rule's first
    argument, or in a statement of the module.
    """
    found = {}
    for path in sorted(Path(ops.__file__).parent.glob("*.py")):
        parts: list[ast.AST | None] = []
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, ast.FunctionDef):
                first = statement.args.args[:1] if statement.decorator_list else []
                parts += [*statement.decorator_list, *(argument.annotation for argument in first)]
            elif isinstance(statement, ast.For | ast.Assign | ast.Expr):
                parts.append(statement)
        names = (node for part in parts if part is not None for node in ast.walk(part))
        found[f"structure/ops/{path.name}"] = {node.id for node in names if isinstance(node, ast.Name)}
    return found


def table() -> str:
    """Ops in rows, questions in columns; a dot where an Op has a rule of its own."""
    known = {op for registry, _, _ in QUESTIONS.values() for op in registry if op not in (object, Op)}
    lines = ["| Op | its rules | " + " | ".join(QUESTIONS) + " |", "|---|---|" + ":-:|" * len(QUESTIONS)]
    lines.append("| *asked in* | | " + " | ".join(f"`{file}`" for _, file, _ in QUESTIONS.values()) + " |")
    for op in sorted(known, key=lambda op: op.__name__):
        (family,) = [file for file, names in families().items() if op.__name__ in names]
        marks = ("●" if op in registry else "" for registry, _, _ in QUESTIONS.values())
        lines.append(f"| {op.__name__} | `{family}` | " + " | ".join(marks) + " |")
    lines.append(
        "| *any other* | | " + " | ".join(f"*{default}*" for _, _, default in QUESTIONS.values()) + " |"
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
