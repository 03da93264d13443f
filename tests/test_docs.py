"""What pages say of the code is what the code says."""

import ast
import json
import re
import tomllib
from datetime import date
from types import SimpleNamespace

import nbformat
import pytest
from docutils import nodes

import pymc_discrete as pmd
from tests.tools.processes import ROOT
from tests.tools.scripts import script


def test_the_table_of_ops_is_that_of_the_rules():
    page = (ROOT / "docs/architecture.md").read_text()
    assert script("op_table").table() in page, "run python docs/op_table.py"


def test_lists_of_methods_have_them_all():
    lists = script("method_lists")
    pages = lists.STUB, lists.PAGE, lists.REFERENCE
    assert not [name for page in pages for name in lists.missing(page)], "run python docs/method_lists.py"
    assert lists.in_stub([]) == lists.STUB.read_text()
    new = lists.in_stub(["New"]), lists.in_table(["BlockGibbs"]), lists.in_reference(["New"])
    assert all(len(text) > len(page.read_text()) for text, page in zip(new, pages, strict=True))


@pytest.mark.filterwarnings("ignore")
def test_the_figure_of_the_architecture_names_what_there_is():
    figure = script("draw_architecture")
    for _, _, name, _ in figure.BOXES.values():
        if name is not None:
            _, sentence, _ = figure.caption(name)
            assert sentence
    assert {end for arrow in figure.ARROWS for end in arrow} <= set(figure.BOXES)


def test_all_addresses_of_the_project_are_those_of_pyproject():
    texts = [(ROOT / name).read_text() for name in ("pyproject.toml", "CITATION.cff", "conda/recipe.yaml")]
    owner, name = tomllib.loads(texts[0])["project"]["urls"]["Homepage"].split("/")[-2:]
    found = {
        match for text in texts for match in re.findall(r"github(?:usercontent)?\.com/([\w-]+/[\w-]+)", text)
    }
    assert found == {f"{owner}/{name}"}
    pages = {match for text in texts for match in re.findall(r"//([\w-]+\.github\.io/[\w-]+)", text)}
    assert pages == {f"{owner}.github.io/{name}"}


def test_bounds_of_the_recipe_are_those_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = {
        re.match(r"[\w-]+", one).group().lower(): re.sub(r"^[\w-]+|\s", "", one)
        for one in [*project["project"]["dependencies"], "python" + project["project"]["requires-python"]]
    }
    recipe = (ROOT / "conda/recipe.yaml").read_text()
    python = re.search(r'python_min: "(.*)"', recipe).group(1)
    run = re.search(r"^  run:\n((?:    - .*\n)*)", recipe, re.M).group(1).replace("${{ python_min }}", python)
    assert dict(re.findall(r"- (\S+) (\S+)", run)) == asked
    # the oldest Python is that of the job with the oldest versions
    job = (ROOT / ".github/workflows/tests.yml").read_text().split("\n  oldest:\n")[1].split("\n\n")[0]
    assert f'python-version: "{python}"' in job


def test_the_reference_has_every_public_name():
    listed = {line.strip() for line in (ROOT / "docs/api.md").read_text().splitlines()}
    assert set(pmd.__all__) - {"__version__"} <= listed


def toctree(page):
    """The pages that a page lists in its tables of contents, without suffixes."""
    text = (ROOT / f"{page}.md").read_text()
    entries = "\n".join(re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)).splitlines()
    return [re.sub(r".*<(.*)>", r"\1", e.strip()) for e in entries if e.strip() and not e.startswith(":")]


def test_pages_that_are_a_section_by_themselves_have_no_list_of_it():
    conf = script("conf")
    alone = {page for page in toctree("index") if not toctree(page) and page != "docs/api"}
    assert alone == {page for page in conf.html_sidebars if page.startswith("docs/")}


def test_every_page_of_the_gallery_has_a_picture_in_its_index():
    text = (ROOT / "docs/gallery/index.md").read_text()
    rows = re.findall(r"^\| \[!\[\]\((\S+)\)\]\((\w+)\.md\) \| \[.*?\]\((\w+)\.md\)", text, re.MULTILINE)
    assert [page for _, page, _ in rows] == [page for _, _, page in rows] == toctree("docs/gallery/index")
    assert [*script("draw_gallery").FIGURES] == toctree("docs/gallery/index")
    for picture, _, _ in rows:
        assert (ROOT / "docs/gallery" / picture).stat().st_size < 60_000


def test_the_menu_of_versions():
    found = script("versions").entries(["0.2.0", "0.10.0", "0.9.1"])
    assert [one["version"] for one in found] == ["dev", "0.10.0", "0.9.1", "0.2.0"]
    assert [one["version"] for one in found if one.get("preferred")] == ["0.10.0"]
    assert found[2]["url"].endswith(".github.io/pymc-discrete/0.9.1/")
    # before a release the site has what it writes
    assert json.loads((ROOT / "docs/_static/switcher.json").read_text()) == script("versions").entries([])


def test_a_page_that_fails_is_an_error_of_the_build_and_not_its_end():
    assert not script("conf").nb_execution_raise_on_error
    for file in (".ci/run", ".github/workflows/docs.yml"):
        builds = re.findall(r"sphinx-build (?!-b linkcheck).*", (ROOT / file).read_text())
        assert builds
        assert all("-W --keep-going" in line for line in builds)


def test_results_of_single_runs_are_left_out_of_the_search():
    """Of what the site has in folders of results, all is; and nothing else."""
    env = SimpleNamespace(found_docs={"benchmarks/results/gpu/a", "benchmarks/README", "docs/plots"})
    env.metadata = {page: {} for page in env.found_docs}
    script("conf").leave_out_of_search(None, env)
    assert [page for page, fields in env.metadata.items() if fields] == ["benchmarks/results/gpu/a"]


def test_the_entry_to_cite_is_that_of_the_citation_file():
    page, file = ((ROOT / name).read_text() for name in ("docs/cite.md", "CITATION.cff"))
    patterns = r'^title: "(.*)"', r"- name: (.*)", r"^repository-code: (.*)"
    title, name, address = (re.search(pattern, file, re.M).group(1) for pattern in patterns)
    assert f"title = {{{title}}}" in page
    assert f"author = {{{{{name}}}}}" in page
    assert f"url = {{{address}}}" in page


PICTURES = ["coal_mining", "gallery_ising"]


def preview_of(page, *paragraphs):
    """The head of a page with these paragraphs, as the site has it."""
    document = nodes.section("", *(nodes.paragraph(text=text) for text in paragraphs))
    images = {f"docs/images/{name}.png": ({"index"}, f"{name}.png") for name in PICTURES}
    titles = {page: nodes.title(text='A "title"')}
    app = SimpleNamespace(env=SimpleNamespace(images=images, titles=titles))
    context = {"metatags": "<first>"}
    script("conf").preview(app, page, "page.html", context, document)
    return context["metatags"]


def test_what_is_shown_of_a_page_elsewhere():
    head = preview_of("docs/gallery/ising", "What it says < all.", "More.")
    assert head.startswith("<first>")
    shown = dict(re.findall(r'<meta \w+="([\w:]+)" content="(.*?)" />', head))
    assert shown["og:title"] == "A &quot;title&quot;"
    assert shown["og:description"] == shown["description"] == "What it says &lt; all."
    assert shown["og:url"].endswith("/docs/gallery/ising.html")
    assert shown["og:image"].endswith("/_images/gallery_ising.png")
    other = preview_of("docs/sample", "word " * 100)
    assert "/_images/coal_mining.png" in other
    assert 'description" content="word word' in other
    assert len(re.search(r'description" content="(.*?)"', other).group(1)) < 210


def statements(cells):
    """What cells do in their order, what they import, and how they read data."""
    found = [ast.unparse(node) for cell in cells for node in ast.parse(cell).body]
    needs = {one for one in found if one.startswith(("import ", "from "))}
    reads = [one for one in found if ".csv" in one]
    return [one for one in found if one not in needs and one not in reads], needs, reads


@pytest.mark.parametrize("name", script("to_pymc_examples").OFFERED)
def test_pages_of_the_gallery_in_the_form_of_pymc_examples(name):
    """A valid notebook, with the cells of the page in order, and nothing that holds on this site only."""
    examples = script("to_pymc_examples")
    page = (ROOT / f"docs/gallery/{name}.md").read_text()
    cells, data = examples.offered(name, page, date(2026, 11, 28))
    notebook = nbformat.reads(examples.as_notebook(cells), as_version=4)
    nbformat.validate(notebook)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")

    style = examples.STYLE.split("\n")[1]
    cells_of_page = [text for kind, text in examples.cells_of(page) if kind == "code"]
    cells_of_notebook = [re.sub(r"^%.*$", "", cell, flags=re.M).replace(style, "") for cell in code]
    does, needs, reads = statements(cells_of_page)
    assert statements(cells_of_notebook)[0] == does
    assert statements(cells_of_notebook)[1] == needs | ({"import os"} if data else set())
    assert len(data) == len(reads)
    places = [
        [f"os.path.join('..', 'data', '{n}')", f"get_data('{n}')"] for n in map(examples.data_name, data)
    ]
    assert len(statements(cells_of_notebook)[2]) == len(places)
    for found, either in zip(statements(cells_of_notebook)[2], places, strict=True):
        assert all(place in found for place in either)
    assert not [path for path in data if not (ROOT / "docs/gallery" / path).exists()]

    first, last = notebook.cells[0].source, code[-1]
    assert re.match(
        r"\(\w+\)=\n# .*\n\n:::\{post\} November 28, 2026\n:tags: .*\n:category: .*\n:author: .*\n:::$", first
    )
    assert "%watermark" in last
    assert re.search(r"\n## Authors\n.*\n## References\n.*\n## Watermark\n", text, re.S)
    here = re.sub(r":::\{include\} \.\./\w+\.md\n:::", "", text)
    assert not re.findall(r"\]\((?!https?:)[^)]*\)|\.\./|\{include\}|doi\.org", here)
    keys = set(re.findall(r"@\w+\{(\w+),", examples.REFERENCES.read_text()))
    cited = set(re.findall(r"\{cite:[pt]\}`(\w+)`", text))
    assert cited
    assert cited <= keys
    assert notebook.metadata.myst.substitutions.extra_dependencies.startswith("pymc-discrete")
    myst = examples.as_myst(cells)
    assert re.findall(r"^```\{code-cell\} ipython3\n(.*?)\n```$", myst, re.M | re.S) == code


def test_everything_that_is_cited_elsewhere_is_cited():
    examples = script("to_pymc_examples")
    pages = [(ROOT / f"docs/gallery/{name}.md").read_text() for name in examples.OFFERED]
    cited = {key for page in pages for key in re.findall(r"cite:.\}`(\w+)`", examples.in_myst(page))}
    assert cited == set(re.findall(r"@\w+\{(\w+),", examples.REFERENCES.read_text()))


def test_the_folder_that_is_offered_has_notebooks_and_data(tmp_path):
    script("to_pymc_examples").write(tmp_path, date(2026, 11, 28))
    found = sorted(path.suffix for path in (tmp_path / "examples").rglob("*.*") if path.is_file())
    assert found == [".bib", *[".csv"] * 4, *[".ipynb"] * 5, *[".md"] * 5]
