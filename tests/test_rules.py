"""Rules of docs/architecture.md and CONTRIBUTING.md that the source itself shows."""

import ast
import re
from pathlib import Path

from tests.tools.processes import ROOT

PACKAGE = ROOT / "pymc_discrete"
SOURCES = {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(text) for name, text in SOURCES.items()}

# who draws by weight without kernels/random.py, and what
OWN_DRAWS = {
    "distributions/partition.py": "the prior, by NumPy",
    "distributions/permutation.py": "the prior, by NumPy",
    "evidence/annealed.py": "the base, from which a chain starts",
    "flows/amortised.py": "resampling by importance weights, by NumPy",
    "flows/flow.py": "resampling by importance weights, by NumPy",
    "flows/model.py": "noise of the training",
    "flows/sources.py": "the source, from which a trajectory starts",
    "learning/data.py": "observations of an iteration",
    "learning/samplers.py": "where chains start",
    "space/constraints.py": "starting points, by NumPy",
    "tempering/prior_draws.py": "the prior",
}
# where an energy is what the field calls so
ENERGIES = ("learning/", "variational/", "engine/nuts.py", "engine/nuts_with_counts.py")


def draws_by_weight(tree: ast.Module) -> bool:
    """Whether a file calls a function of JAX or NumPy that draws by weight."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    return any(
        call.func.attr in ("categorical", "gumbel", "multinomial")
        or (call.func.attr == "choice" and any(k.arg == "p" for k in call.keywords))
        for call in calls
    )


def test_transitions_draw_by_weight_with_the_functions_of_one_file():
    assert {name for name, tree in TREES.items() if draws_by_weight(tree)} == set(OWN_DRAWS)
    examples = re.findall(r"^```python\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.M | re.S)
    assert examples
    assert not any(draws_by_weight(ast.parse(code)) for code in examples)


def names_in(tree: ast.Module) -> set[str]:
    """The names of functions, classes, arguments and variables of a file."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name | ast.Attribute):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


def test_what_is_added_up_is_a_log_density_and_no_energy():
    wrong = [
        f"{name}: {found}"
        for name, tree in TREES.items()
        if not name.startswith(ENERGIES)
        for found in sorted(names_in(tree))
        if "energy" in found.lower() and "energy_" not in found  # pmd.fit_energy_posterior is a public name
    ]
    assert not wrong, wrong


def test_what_a_barrier_prevents_is_said_beside_it():
    wrong = []
    for name, tree in TREES.items():
        lines = SOURCES[name].splitlines()
        for node in tree.body:
            here = lines[node.lineno - 1 : node.end_lineno]
            for n, line in enumerate(here):
                comments = [text for text in here[max(n - 5, 0) : n + 1] if "#" in text]
                said = any("barrier" in text or "XLA" in text for text in comments)
                if "optimization_barrier" in line and not said:
                    wrong.append(f"{name}:{node.lineno + n}")
    assert not wrong, wrong


def test_tests_have_the_folders_of_the_package():
    def folders(root: Path) -> set[str]:
        return {path.parent.name for path in root.glob("*/__init__.py")}

    assert folders(ROOT / "tests") - {"tools"} <= folders(PACKAGE)
