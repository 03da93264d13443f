"""The site: `sphinx-build -c docs . site`, from the root of the repository, whose pages link to one another.

The pages are Markdown that reads as well where it lies; the reference is made of docstrings.
"""

from importlib.metadata import version as version_of

project = "pymc-discrete"
author = "The pymc-discrete developers"
version = release = version_of("pymc-discrete")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
]
root_doc = "docs/index"
include_patterns = ["docs/**", "README.md", "CONTRIBUTING.md", "benchmarks/*.md", "benchmarks/results/**"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

# what GitHub makes of headings, for links to them
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
# pages may leave out a level of headings
suppress_warnings = ["myst.header"]

autosummary_generate = True
autosummary_imported_members = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"
numpydoc_show_class_members = False

html_theme = "pymc_sphinx_theme"
html_title = "pymc-discrete"
html_theme_options = {
    "google_analytics_id": "",  # the theme's own counts visits of PyMC's pages
    "logo": {"text": "pymc-discrete"},
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
}
html_show_sourcelink = False
