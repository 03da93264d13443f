"""The site: `sphinx-build -c docs . site`, from the root of the repository, whose pages link to one another.

The pages are Markdown that reads as well where it lies; the reference is made of docstrings. The pages of the
gallery are notebooks in Markdown, which are run when the site is built.
"""

import os
from html import escape
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

project = "pymc-discrete"
author = "The pymc-discrete developers"
package = metadata("pymc-discrete")
version = release = package["Version"]
urls = dict(entry.split(", ") for entry in package.get_all("Project-URL"))  # those of pyproject.toml

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",  # formulas need no other site
]
root_doc = "index"  # which shows the README
include_patterns = ["*.md", "docs/**", "benchmarks/*.md", "benchmarks/results/**"]
exclude_patterns = ["README.md", "docs/_templates"]
templates_path = [str(Path(__file__).parent / "_templates")]
# autosummary writes the pages of the reference with the first suffix
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb"}

# what GitHub makes of headings, for links to them
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
# pages may leave out a level of headings
suppress_warnings = ["myst.header"]

# A page of the gallery is run where its code is not that of a run before; after a change of the package,
# remove this folder to run all of them again. A cell that fails, or takes longer than the limit, is a
# warning, and with -W an error of the build, after all other pages were built.
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parents[1] / ".jupyter_cache")
nb_execution_raise_on_error = False
nb_execution_show_tb = True
nb_execution_timeout = 900  # seconds of a cell; most take a few, and more where other work is done beside
# the lines that samplers log, of one cell in one piece
nb_merge_streams = True
# progress bars are not shown, and need no widgets
os.environ.setdefault("PYTHONWARNINGS", "ignore:IProgress not found")

autosummary_generate = True
autosummary_imported_members = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"
numpydoc_show_class_members = False

html_theme = "pymc_sphinx_theme"
html_title = "pymc-discrete"
html_baseurl = urls["Documentation"]
html_theme_options = {
    "github_url": urls["Homepage"],
    "google_analytics_id": "",  # the theme's own counts visits of PyMC's pages
    "logo": {"text": "pymc-discrete"},
    "navbar_start": ["navbar-logo"],
    "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    "secondary_sidebar_items": ["page-toc", "edit-this-page"],
    "show_version_warning_banner": True,
    # the versions whose pages are published; a release adds itself
    "switcher": {
        "json_url": f"{html_baseurl}_static/switcher.json",
        "version_match": "dev" if ".dev" in version else version,
    },
    "check_switcher": False,  # the file is published with the site
    "use_edit_page_button": True,
    "use_search_override": False,  # the theme's second field searches PyMC's pages
}
owner, repository = urls["Homepage"].split("/")[-2:]
html_context = {
    "github_user": owner,
    "github_repo": repository,
    "github_version": "main",
    "doc_path": "",
}
# pages that are a section by themselves, beside which there is nothing to list
html_sidebars = {page: [] for page in ("index", "docs/which_sampler", "search", "genindex")}
html_search_scorer = str(Path(__file__).parent / "search_scorer.js")
html_static_path = ["_static"]
html_css_files = ["code.css", "gallery.css", "reference.css", "tables.css"]
html_show_sourcelink = False


def leave_out_of_search(app: Any, env: Any) -> None:
    """Tables of single runs of the benchmarks name every model, and would come first."""
    for page in env.found_docs:
        if page.startswith("benchmarks/results/"):
            env.metadata[page]["nosearch"] = True


LONGEST = 200  # characters of a description that other sites show


def preview(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """What is shown of a page where somebody links it: its title, how it begins, and a picture of it."""
    if doctree is None:  # the search, the index
        return
    found = doctree.findall(nodes.paragraph)
    paragraphs = (p.astext() for p in found if isinstance(p.parent, nodes.section | addnodes.desc_content))
    text = " ".join(next(paragraphs, package["Summary"]).split())
    if len(text) > LONGEST:
        text = text[:LONGEST].rsplit(" ", 1)[0] + " ..."
    own = f"docs/images/gallery_{page.removeprefix('docs/gallery/')}.png"
    _, picture = app.env.images[own if own in app.env.images else "docs/images/coal_mining.png"]
    properties = {
        "og:type": "website",
        "og:site_name": html_title,
        "og:title": app.env.titles[page].astext(),
        "og:description": text,
        "og:url": f"{html_baseurl}{page}.html",
        "og:image": f"{html_baseurl}_images/{picture}",
        "twitter:card": "summary_large_image",  # others read the same properties
    }
    tags = [f'<meta property="{name}" content="{escape(value)}" />' for name, value in properties.items()]
    context["metatags"] += "\n".join([f'<meta name="description" content="{escape(text)}" />', *tags])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("env-updated", leave_out_of_search)
    app.connect("html-page-context", preview)
