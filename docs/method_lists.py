"""Add new methods to the lists of their names: the package's stub, docs/methods/index.md, docs/api.md.

python docs/method_lists.py  # adds what is missing
"""

import re
from collections.abc import Iterable
from pathlib import Path

from pymc_discrete.kernels.method import snake_case
from pymc_discrete.runtime.docstrings import sections
from pymc_discrete.steps import methods

FOLDER = Path(__file__).parent
STUB, PAGE = FOLDER.parent / "pymc_discrete" / "__init__.pyi", FOLDER / "methods" / "index.md"
REFERENCE = FOLDER / "api.md"
# the row of the table and the line of the contents that new methods come before
ROW, LINE = "| [`CollapsedNUTS()`]", "\nreparameterized_slice\n"


def missing(page: Path) -> list[str]:
    """Names of methods that a list lacks."""
    text = page.read_text()
    return [name for name in methods.names_of_methods() if name not in text]


def in_stub(names: Iterable[str]) -> str:
    """The stub with some more names."""
    text = STUB.read_text()
    head, rest = text.split("from .steps.methods import (\n")
    listed, rest = rest.split(")\n", 1)
    imported = sorted({*listed.splitlines(), *(f"    {name}," for name in names)})
    before, public = rest.split("__all__ = [\n")
    exported = sorted({*public.split("]\n")[0].splitlines(), *(f'    "{name}",' for name in names)})
    lines = "\n".join(imported), "\n".join(exported)
    return f"{head}from .steps.methods import (\n{lines[0]}\n)\n{before}__all__ = [\n{lines[1]}\n]\n"


def in_table(names: Iterable[str]) -> str:
    """The page with a line and a row for each of some more methods: its first sentence and reference."""
    rows, lines = "", ""
    for name in names:
        parts = sections(methods.method_named(name))
        sentence = parts[""].split("\n\n")[0].replace("\n", " ").rstrip(".")
        found = re.match(r".*?\b\d{4}\b", parts.get("References", "").replace("\n", " "))  # up to the year
        source = found[0] if found else ""
        lines += f"\n{snake_case(name)}"
        rows += f"| [`{name}()`]({snake_case(name)}.md) | {sentence} | {source} |\n"
    return PAGE.read_text().replace(ROW, rows + ROW).replace(LINE, lines + LINE)


def in_reference(names: Iterable[str]) -> str:
    """The reference with some more names."""
    last = "   ReparameterizedSlice\n"
    return REFERENCE.read_text().replace(last, last + "".join(f"   {name}\n" for name in names))


def main() -> None:
    STUB.write_text(in_stub(missing(STUB)))
    PAGE.write_text(in_table(missing(PAGE)))
    REFERENCE.write_text(in_reference(missing(REFERENCE)))


if __name__ == "__main__":
    main()
