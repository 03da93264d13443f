"""Rules of Ops: what elements read, against brute force; and all rules are in the files of the families."""

import ast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import toposort
from pytensor.tensor.extra_ops import SearchsortedOp

import pymc_discrete as pmd
from pymc_discrete.structure.rebuild import MOST_COMPARED, opened, rebuild
from tests.tools.oracle import compare
from tests.tools.processes import ROOT

R = np.random.default_rng(0)
BAND = pt.constant(np.tri(4, 5) - np.tri(4, 5, -2))  # two entries in every row but the first
ENDS = np.array([0, 4])
STEPS = pt.constant([1, 2, 4])

# {what: (a function of a matrix of binary sites (5, 4), how many sites an element of it depends on)}
READS = {
    "the elements of a row in order": (lambda x: pt.sort(x, axis=1), 4),
    "the order of a row": (lambda x: pt.argsort(x, axis=1, stable=True), 4),
    "the place of the largest": (lambda x: pt.argmax(x, axis=1), 4),
    "a product along an axis": (lambda x: pt.cumprod(1 + x, axis=1), 4),
    "a softmax": (lambda x: pt.special.softmax(0.3 * x, axis=1), 4),
    "a log of a sum of exponentials": (lambda x: pm.math.logsumexp(0.3 * x, axis=1), 4),
    "a product with many zeros": (lambda x: pt.dot(BAND, x), 2),
    "a diagonal": (lambda x: pt.diagonal(x, offset=1), 1),
    "two columns joined": (lambda x: pt.concatenate([x[:, 0], 2 * x[:, 2]]), 1),
    "what a site selects": (lambda x: pt.constant(R.normal(size=(2, 3)))[x[:, 0]], 1),
    "one of two sites, which a third selects": (lambda x: x[:, :2][pt.arange(5), x[:, 3]], 3),
    "the position in a sorted vector": (lambda x: pt.searchsorted(STEPS, x[:, :2] + 2 * x[:, 2:]), 2),
    "an increment": (lambda x: pt.inc_subtensor(x[ENDS, 1], 3 * x[:2, 2]), 2),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.by_default("the order of a row", "one of two sites, which a third selects", "an increment")
def test_elements_read_few_sites(name):
    build, sites = READS[name]
    with pm.Model() as model:
        out = pt.cast(build(pm.Bernoulli("x", 0.4, shape=(5, 4))), "float64")
        pm.Potential("p", pt.tanh(out * R.normal(size=out.type.shape)))
    density = pmd.target_from_model(model).density
    read = density.plan.dependence.of(dict(density.graph.terms)["p"])
    # where no rule was used, each element depends on more sites than are listed
    found = "many" if read is None else read.shape[1]
    assert found == sites, f"an element depends on {found} of the 20 sites, and should on {sites}"
    target, *_ = compare(model)
    assert target.exact


@pytest.mark.parametrize("side", ["left", "right"])
def test_positions_in_a_sorted_vector(side):
    values = np.array([[-1.0, 0.0, 0.5], [2.0, 9.0, np.nan]])
    for ordered, sorter in [(np.array([0.0, 2.0, 2.0, 3.0]), None), (np.array([3.0, 0.0, 2.0]), [1, 2, 0])]:
        found = pt.searchsorted(pt.constant(ordered), values, side=side, sorter=sorter)
        (opened_up,) = rebuild([found], {}, opened)
        assert not any(isinstance(node.op, SearchsortedOp) for node in toposort([opened_up]))
        assert opened_up.type.dtype == found.type.dtype
        np.testing.assert_array_equal(
            opened_up.eval(), np.searchsorted(ordered, values, side=side, sorter=sorter)
        )
    long = pt.searchsorted(pt.constant(np.arange(MOST_COMPARED // 6 + 1)), values, side=side)
    assert rebuild([long], {}, opened) == [long]


@pytest.mark.parametrize(
    "build",
    [
        lambda x: x * (2 * pt.roll(x, 1, 0) - pt.roll(x, 1, 1)),
        lambda x: 0.3 * x * (pt.roll(x, 1, 0) + pt.roll(x, 1, 1) + pt.roll(x, -1, 1)),
        lambda x: (x + x[::-1]) * (1.0 - x[:, ::-1]),
    ],
)
def test_products_with_sums_are_distributed(build):
    with pm.Model() as model:
        pm.Potential("p", build(pm.Bernoulli("x", 0.4, shape=(5, 4))) * R.normal(size=(5, 4)))
    target, *_ = compare(model)
    assert target.exact
    assert "at most 2 sites" in target.describe()["x"]["reason"]


# ---------------------------------------------------------------- where rules are
PACKAGE = ROOT / "pymc_discrete"
STRUCTURE = PACKAGE / "structure"


def questions():
    """The functions of `structure/` that have a rule for each class of Op."""
    functions = [
        f
        for path in STRUCTURE.glob("*.py")
        for f in ast.walk(ast.parse(path.read_text()))
        if isinstance(f, ast.FunctionDef)
    ]
    dispatch = lambda f: any(getattr(d, "id", None) == "singledispatch" for d in f.decorator_list)
    return {f.name for f in functions if dispatch(f)}


def registered_in(text, names):
    """The lines of a file that register a rule, or change the table of Ops that rearrange data."""
    tables = ("REARRANGING", "SCALAR_RULES")
    name_of = lambda node: getattr(node, "id", getattr(node, "attr", None))
    lines = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):  # `question.register`, `TABLE.update`
            owner = name_of(node.value)
            found = (node.attr == "register" and owner in names) or (
                node.attr == "update" and owner in tables
            )
        else:
            stores = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
            found = stores and name_of(node.value) in tables
        if found:
            lines.append(node.lineno)
    return lines


def test_rules_are_registered_in_the_files_of_the_families():
    names = questions()
    assert {"elements_of", "bounds_after", "degree_after", "error_after", "for_rows", "with_axis"} <= names
    files = {path: registered_in(path.read_text(), names) for path in PACKAGE.rglob("*.py")}
    assert all(path.is_relative_to(STRUCTURE / "ops") for path, lines in files.items() if lines)
    assert sum(map(len, files.values())) > 50


@pytest.mark.parametrize(
    "text",
    [
        "@elements_of.register\ndef _(op: Dot, node, graph): ...",
        "reads.elements_of.register(Dot)(rule)",
        "REARRANGING[Dot] = 1",
        "bounds.REARRANGING.update({Dot: 1})",
    ],
)
def test_a_rule_elsewhere_is_found(text):
    assert registered_in(text, questions()) == [1]


def test_every_family_is_imported_with_the_package():
    """`structure` imports `ops`, and `ops` every family: no question is asked before its rules are there."""
    imported = {
        a.name
        for path in (STRUCTURE / "__init__.py", STRUCTURE / "ops" / "__init__.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for a in node.names
    }
    files = {path.stem for path in (STRUCTURE / "ops").glob("*.py")} - {"__init__", "rearranging"}
    assert imported == {"ops", *files}
