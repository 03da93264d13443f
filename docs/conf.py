"""The site: `sphinx-build -c docs . site`, from the root of the repository, whose pages link to one another.

The pages are Markdown that reads as well where it lies; the reference is made of docstrings. The pages of the
gallery are notebooks in Markdown, which are run when the site is built.
"""

import os
from importlib.metadata import metadata
from pathlib import Path

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
# remove this folder to run all of them again. An error in a cell is an error of the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parents[1] / ".jupyter_cache")
nb_execution_raise_on_error = True
nb_execution_timeout = 300
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
    "navbar_end": ["theme-switcher", "navbar-icon-links"],
    "secondary_sidebar_items": ["page-toc"],
}
html_static_path = ["_static"]
html_css_files = ["gallery.css", "reference.css", "tables.css"]
html_show_sourcelink = False
