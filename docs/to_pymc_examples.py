"""Writes pages of the gallery as notebooks in the form of pymc-examples, to be offered to it.

python docs/to_pymc_examples.py FOLDER

The folder is laid out as that repository is: a notebook and its text in MyST, data, and references. A page of
the gallery is the one source: change that, and write the notebook anew. Run a notebook before it is offered,
since pymc-examples shows what it printed.
"""

import ast
import json
import re
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent
SITE = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]["urls"]["Documentation"]
REFERENCES = DOCS / "gallery/references.bib"
AUTHORS = "the pymc-discrete developers"


class Offered(NamedTuple):
    """What pymc-examples asks of a notebook beside its text."""

    target: str  # by which other notebooks link to it
    tags: str
    folder: str = "case_studies"
    category: str = "intermediate, how-to"


OFFERED = {
    "occupancy": Offered("occupancy_missing_visits", "ecology, hierarchical model, discrete variables"),
    "n_mixture": Offered("n_mixture", "ecology, count data, discrete variables"),
    "capture_recapture": Offered("capture_recapture", "ecology, survival analysis, discrete variables"),
    "hidden_markov": Offered("hidden_markov_earthquakes", "hidden markov model, time series", "time_series"),
    "raters": Offered("dawid_skene", "latent class model, categorical data, discrete variables"),
}
# packages that PyMC does not bring, by the name that is imported
EXTRA = {"pymc_discrete": "pymc-discrete", "pymc_extras": "pymc-extras"}
# files of data that pymc-examples has by the same name, with other columns
RENAMED = {"crossbill.csv": "crossbill_1999.csv"}
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}

STYLE = """%config InlineBackend.figure_format = 'retina'  # high resolution figures
az.style.use("arviz-darkgrid")"""

Cell = tuple[str, str]  # "markdown" or "code", and the text


def cells_of(page: str) -> list[Cell]:
    """The cells of a notebook in Markdown, without its head and the tags of cells."""
    text = re.sub(r"\A---\n.*?\n---\n", "", page, flags=re.S)
    parts = re.split(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", text, flags=re.M | re.S)
    # text and code take turns
    cells = [("code" if i % 2 else "markdown", part) for i, part in enumerate(parts)]
    return [(kind, re.sub(r"\A:tags:.*", "", part).strip()) for kind, part in cells if part.strip()]


def offered(name: str, page: str, day: date) -> tuple[list[Cell], list[str]]:
    """The cells of a page in the form of pymc-examples, and the paths of the data that it reads."""
    spec = OFFERED[name]
    (_, first), *rest = cells_of(page)
    title, begin = first.split("\n", 1)
    head = (
        f"({spec.target})=\n{title}\n\n:::{{post}} {day:%B %d, %Y}\n:tags: {spec.tags}\n"
        f":category: {spec.category}\n:author: {AUTHORS}\n:::"
    )
    imports: set[str] = set()
    data: list[str] = []
    body: list[Cell] = [("markdown", in_myst(begin))]
    for kind, text in rest:
        body.append((kind, in_myst(text) if kind == "markdown" else in_code(text, imports, data)))
    place = next(i for i, (kind, _) in enumerate(body) if kind == "code")
    body[place:place] = preamble(imports, bool(data))
    source = f"[gallery of pymc-discrete]({SITE}docs/gallery/{name}.html)"
    end = [
        ("markdown", f"## Authors\n\n- Adapted from the {source} by {AUTHORS} in {day:%B %Y}"),
        ("markdown", "## References\n\n:::{bibliography}\n:filter: docname in docnames\n:::"),
        ("markdown", "## Watermark"),
        ("code", "%load_ext watermark\n%watermark -n -u -v -iv -w -p pytensor"),
        ("markdown", ":::{include} ../page_footer.md\n:::"),
    ]
    return [cell for cell in [("markdown", head), *body, *end] if cell[1]], data


def preamble(imports: set[str], reads: bool) -> list[Cell]:
    """The first cells: what PyMC brings, what it does not, the style of plots."""
    extra = {line for line in imports if line.split()[1].split(".")[0] in EXTRA}
    common = sorted(imports - extra, key=lambda line: (line.startswith("from"), line))
    return [
        ("code", "import os\n\n" * reads + "\n".join(common)),
        ("markdown", ":::{include} ../extra_installs.md\n:::"),
        ("code", "\n".join(sorted(extra))),
        ("code", STYLE),
    ]


def in_code(text: str, imports: set[str], data: list[str]) -> str:
    """A cell without its imports, which go into `imports`; it reads data wherever it runs."""
    lines = text.split("\n")
    for node in reversed(ast.parse(text).body):
        at = slice(node.lineno - 1, node.end_lineno)
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.add("\n".join(lines[at]))
            lines[at] = []
            continue
        constants = [str(c.value) for c in ast.walk(node) if isinstance(c, ast.Constant)]
        for path in (value for value in constants if value.endswith(".csv")):
            data.append(path)
            lines[at] = read_anywhere("\n".join(lines[at]), path)
    return "\n".join(lines).strip()


def read_anywhere(statement: str, path: str) -> list[str]:
    """A statement that reads a file, from a clone of pymc-examples or from the net."""
    name = data_name(path)
    lines = ["try:"]
    for source in (f'os.path.join("..", "data", "{name}")', f'pm.get_data("{name}")'):
        lines += ["    " + line for line in statement.replace(f'"{path}"', source).split("\n")]
        lines += ["except FileNotFoundError:"]
    return lines[:-1]


def data_name(path: str) -> str:
    """The name of a file of data in pymc-examples."""
    name = Path(path).name
    return RENAMED.get(name, name)


def in_myst(text: str) -> str:
    """Text of a page with what it includes, with references, and with links that hold elsewhere."""
    text = re.sub(r"^To run the cells elsewhere, .*?(\n\n|\Z)", "", text, flags=re.M | re.S)
    text = re.sub(r"```\{include\} (\S+)\n:start-after: (.*)\n:end-before: (.*)\n```", included, text)
    entries = re.findall(r"@\w+\{(\w+),.*?doi = \{(.*?)\}", REFERENCES.read_text(), re.S)
    for key, doi in entries:
        link = re.escape(f"](<https://doi.org/{doi}>)") + "|" + re.escape(f"](https://doi.org/{doi})")
        text = re.sub(rf"\(\[[^\]]*(?:{link})\)", f"{{cite:p}}`{key}`", text)
        text = re.sub(rf"\[[^\]]*\d(?:{link})", f"{{cite:t}}`{key}`", text)
        text = re.sub(rf"\[([^\]]*)(?:{link})", rf"\1 {{cite:p}}`{key}`", text)  # a name without a year
    return re.sub(r"\]\(([\w/.-]+)\.md(#[\w-]+)?\)", on_site, text).strip()


def included(match: re.Match[str]) -> str:
    """The part of another page that a page of the gallery includes."""
    file, start, end = match.groups()
    return (DOCS / "gallery" / file).read_text().split(start)[1].split(end)[0].strip()


def on_site(match: re.Match[str]) -> str:
    """A link to another page of this site, by its address."""
    page = (DOCS / "gallery" / match[1]).resolve().relative_to(DOCS.parent.resolve())
    return f"]({SITE}{page}.html{match[2] or ''})"


def dependencies(cells: list[Cell]) -> str:
    """The packages that a notebook needs and PyMC does not bring, as pip knows them."""
    code = "\n".join(text for kind, text in cells if kind == "code")
    return " ".join(package for name, package in EXTRA.items() if re.search(rf"^import {name}\b", code, re.M))


def as_notebook(cells: list[Cell]) -> str:
    """The notebook, not run."""
    found = []
    for i, (kind, text) in enumerate(cells):
        cell = {"cell_type": kind, "id": f"cell-{i}", "metadata": {}}
        cell["source"] = text.splitlines(keepends=True)
        found.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    metadata = {"kernelspec": KERNEL, "myst": {"substitutions": {"extra_dependencies": dependencies(cells)}}}
    notebook = {"cells": found, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1) + "\n"


def as_myst(cells: list[Cell]) -> str:
    """The same in Markdown, as jupytext writes it."""
    lines = ["---", "jupytext:", "  text_representation:", "    extension: .md", "    format_name: myst"]
    kernel = [f"  {key}: {value}" for key, value in KERNEL.items()]
    lines += ["    format_version: 0.13", "kernelspec:", *kernel]
    lines += ["myst:", "  substitutions:", f"    extra_dependencies: {dependencies(cells)}", "---"]
    before = "code"
    for kind, text in cells:
        if kind == before == "markdown":
            lines += ["", "+++"]
        lines += ["", *(["```{code-cell} ipython3", text, "```"] if kind == "code" else [text])]
        before = kind
    return "\n".join(lines) + "\n"


def write(folder: Path, day: date) -> None:
    """All notebooks that are offered, their data and what they cite."""
    examples = folder / "examples"
    (examples / "data").mkdir(parents=True, exist_ok=True)
    (examples / "references.bib").write_text(REFERENCES.read_text())
    for name, spec in OFFERED.items():
        cells, data = offered(name, (DOCS / f"gallery/{name}.md").read_text(), day)
        (examples / spec.folder).mkdir(exist_ok=True)
        path = examples / spec.folder / spec.target
        path.with_suffix(".ipynb").write_text(as_notebook(cells))
        path.with_suffix(".myst.md").write_text(as_myst(cells))
        for file in data:
            (examples / "data" / data_name(file)).write_bytes((DOCS / "gallery" / file).read_bytes())


if __name__ == "__main__":
    write(Path(sys.argv[1]), date.today())
