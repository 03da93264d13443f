"""The recipes of CONTRIBUTING.md work as they stand: each example with its test."""

import inspect
import re
import sys
from types import ModuleType

import pytest

from pymc_discrete.diagnostics.findings import CHECKS
from pymc_discrete.diagnostics.judge import SUMMARY_COLUMNS
from tests.tools.processes import ROOT

# {heading: the module that the first example is to be, "" where its place does not matter}
RECIPES = {
    "A new kernel": "pymc_discrete.kernels.uniform_flip",
    "A new check of draws": "",
    "A new statistic of draws": "",
}


def examples(heading):
    """The blocks of Python below a heading."""
    _, after = (ROOT / "CONTRIBUTING.md").read_text().split(f"\n## {heading}\n")
    return re.findall(r"^```python\n(.*?)^```", after.split("\n## ")[0], re.M | re.S)


@pytest.fixture
def nothing_registered(monkeypatch):
    """What the recipes register is gone after the test."""
    checks, columns = dict(CHECKS), list(SUMMARY_COLUMNS)
    yield
    CHECKS.clear()
    CHECKS.update(checks)
    SUMMARY_COLUMNS[:] = columns


@pytest.mark.parametrize("heading", RECIPES)
@pytest.mark.by_default("A new check of draws", "A new statistic of draws")
def test_a_recipe_works_as_it_stands(heading, nothing_registered, monkeypatch, request):
    recipe, check = examples(heading)
    module = ModuleType(RECIPES[heading] or "recipe")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(recipe, vars(module))
    tests = {}
    exec(check, tests)
    (test,) = (made for name, made in tests.items() if name.startswith("test_"))
    test(**{name: request.getfixturevalue(name) for name in inspect.signature(test).parameters})
