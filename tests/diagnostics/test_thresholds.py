"""All numbers by which draws are judged stand in thresholds.py."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pymc_discrete.diagnostics import thresholds
from tests.tools.processes import ROOT

PACKAGE = ROOT / "pymc_discrete"
FOLDER = PACKAGE / "diagnostics"
HERE = sorted(path for path in FOLDER.rglob("*.py") if path.name != "thresholds.py")
# How much is computed, looked at or named at once: no verdict on draws depends on it.
SIZES = {
    "DRAWS_OF_BATCH",
    "NUMBERS_IN_MEMORY",
    "PRODUCTS_AT_ONCE",
    "BESIDE",
    "CANDIDATES",
    "PARTITION_CANDIDATES",
    "CATEGORIES",
    "CHUNK",
    "COMPARED",
    "CONTEXTS",
    "DENSE",
    "DRAWS",
    "EACH",
    "DISTANCES",
    "FEW",
    "IN_ALL",
    "LARGEST_COCLUSTERING",
    "LARGEST_CLUSTER_TABLE",
    "LARGEST_PRIOR_SUPPORT",
    "LARGEST_WORK",
    "LISTED",
    "MOST_MOVED_ALONE",
    "MOST_JOINT_MOVES",
    "MOST_CATEGORIES",
    "MOST_KEPT",
    "MOST_SERIES",
    "NAMED_PER_COUNT",
    "NAMED_IN_SUM",
    "QUANTILES",
    "ROUNDS",
    "SHOWN",
    "TIES_OF_CHAIN",
    "SITES",
    "STARTS",
    "STRETCH",
    "TRAINED",
}
# of arithmetic: what rounding leaves, and how probabilities of 32 bits may miss 1
ROUNDING = {"ROUNDING", "TOLERANCE"}
# effective draws of weights, and not of a chain
OF_WEIGHTS = {"LEAST_ESS"}
DISTINCTIVE = {1.01, 1.5, 100}  # the limits that stood in several files
USUAL = {*range(5), 0.5}  # of axes, values and labels that are counted; of medians and coins
LIMIT = re.compile(r"R_?HAT|(^|_)ESS(_|$)|EFFECTIVE|CORRELAT|TIED|TIES|IN_MODES|OF_MODES|ENOUGH_DRAWS")


def number_of(node: ast.AST) -> set[float]:
    is_number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
    return {node.value} if is_number else set()


def numbers(node: ast.AST) -> set[float]:
    return set().union(*map(number_of, ast.walk(node)))


def constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names in capitals that a file gives numbers, at its top, and what it gives them."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and numbers(node.value):
            for name in ast.walk(node):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and name.id.isupper():
                    yield name.id, node.value


def own_thresholds(path: Path) -> list[str]:
    """What a file decides about draws with numbers of its own."""
    tree = ast.parse(path.read_text())
    inside = FOLDER in path.parents
    found = [
        f"{path.name} has the constant {name}"
        for name, value in constants(tree)
        if name not in (SIZES | ROUNDING if inside else OF_WEIGHTS)
        and (inside or LIMIT.search(name) or 1.01 in numbers(value))
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            powers = set().union(*(numbers(n) for n in ast.walk(node) if is_power(n)))
            limits = {n for n in numbers(node) - powers - USUAL if abs(n) > 1e-9}  # less is rounding
            read = {n.id.lower() for n in ast.walk(node) if isinstance(n, ast.Name)}
            if limits and (inside or "rhat" in read):
                found.append(f"{path.name}, line {node.lineno}, compares with {limits}")
        elif inside and DISTINCTIVE & number_of(node) and not in_a_size(tree, node):
            found.append(f"{path.name}, line {node.lineno}, has {number_of(node)}")
    return found


def is_power(node: ast.AST) -> bool:
    """Whether it is 2**15 or the like, of numbers of bits."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)


def in_a_size(tree: ast.Module, constant: ast.AST) -> bool:
    return any(constant in set(ast.walk(value)) for name, value in constants(tree) if name in SIZES)


def test_no_other_file_has_thresholds():
    found = [
        text
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != FOLDER / "thresholds.py"
        for text in own_thresholds(path)
    ]
    assert not found, found


def test_every_threshold_is_used_and_has_a_reason():
    text = (FOLDER / "thresholds.py").read_text()
    names = [name for name in vars(thresholds) if name.isupper()]
    used = {name for path in HERE for name in re.findall(r"\b[A-Z][A-Z_]+\b", path.read_text())}
    assert not set(names) - used
    lines = text.splitlines()
    for name in names:
        (i,) = [i for i, line in enumerate(lines) if re.match(rf"(\w+, )*{name}\b.* = ", line)]
        above = next(line for line in reversed(lines[:i]) if not re.match(r"\w+(, \w+)* = ", line))
        assert "#" in lines[i] or (above.startswith("# ") and "-----" not in above), name


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("diagnostics/checks", "LIMIT = 1.01"),
        ("diagnostics", "def slow(ess): return ess < 100"),
        ("diagnostics", "def slow(rhat): return rhat > RHAT if (RHAT := 1.01) else 0"),
        ("diagnostics", "LARGEST_RHAT = 1.05"),
        ("sampling", "LARGEST_RHAT = 1.05"),
        ("engine", "FEWEST_EFFECTIVE = 200"),
        ("plots", "def slow(rhat): return rhat > 1.1"),
    ],
)
def test_thresholds_elsewhere_are_found(folder, line, tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.FOLDER", tmp_path / "diagnostics")
    path = tmp_path / folder / "new.py"
    path.parent.mkdir(parents=True)
    path.write_text(line + "\n")
    assert own_thresholds(path)
