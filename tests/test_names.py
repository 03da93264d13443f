"""A name at the level of a module means one thing in the whole package."""

import ast
from collections import defaultdict

from tests.tools.processes import ROOT

PACKAGE = ROOT / "pymc_discrete"

# names that several modules have for the same thing, with the reason
SHARED = {
    "__all__": "what Python reads of a module",
    "__getattr__": "what Python calls for a name that a module does not have yet",
    "_": "rules that are registered by the class of an Op, and called by nobody",
    "_log": "PyMC's logger, from which a module logs",
    "_kept": "what the module keeps in this process to be used again, a `reuse.Kept`",
}
# public names, which stay as they are, and other modules' for what the field calls so too
PUBLIC = {
    "Quadratic": "a factor of pmd.factor_graphs, and a part of a log density",
    "SUM": "a semiring of pmd.factor_graphs, and a way to reduce a statistic",
    "moved": "a statistic of pmd.diagnostics, and the column of pmd.summary that shows it",
}


def names_of(tree: ast.Module) -> set[str]:
    """The functions, classes and constants of a module."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {
                name.id
                for target in targets
                for name in ast.walk(target)
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            }
    return found


def namesakes() -> dict[str, list[str]]:
    """{name: the modules that define it}, of names that two and more define."""
    modules = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in names_of(ast.parse(path.read_text())):
            modules[name].append(str(path.relative_to(PACKAGE)))
    return {name: places for name, places in modules.items() if len(places) > 1}


def test_a_name_means_one_thing():
    known = {*SHARED, *PUBLIC}
    new = {name: places for name, places in namesakes().items() if name not in known}
    assert not new, f"A second meaning of a name; find another name for one of them: {new}"


def test_lists_have_namesakes_only():
    alone = {*SHARED, *PUBLIC} - set(namesakes())
    assert not alone, f"One module has this name by now, take it out of the list: {sorted(alone)}"
