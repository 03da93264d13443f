"""Importing and building start no JAX backend, and the layers import one way."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.parts import PARTS
from tests.tools.processes import ROOT, run_python

PACKAGE = ROOT / "pymc_discrete"
# each folder and file at the top may import those before it, and files beside it
LAYERS = (
    "version",
    "runtime",
    "space",
    "kernels",
    "distributions",
    "structure",
    "model",
    "integrals",
    "differences",
    "collapse",
    "starts",
    "diagnostics",
    "tempering",
    "engine",
    "steps",
    "sampling",
)
# what knows neither PyMC nor PyTensor: these folders, and factor_graphs/ but for MODEL
PURE = ("space", "kernels", "factor_graphs")
MODEL = (
    "factor_graphs/from_model.py",
    "factor_graphs/as_model.py",
    "factor_graphs/compatible.py",
)
MODULES = sorted(PACKAGE.rglob("*.py"))

BUILD = """
import sys, warnings
import numpy as np
warnings.simplefilter("ignore")
import pymc_discrete as pmd
import jax._src.xla_bridge as bridge
import pymc as pm
import pytensor.tensor as pt

def started(after):
    assert not bridge._backends, f"a JAX backend was started by {after}"
    assert "blackjax" not in sys.modules, f"blackjax was imported by {after}"

started("import pymc_discrete")
public = [getattr(pmd, name) for name in pmd.__all__]
steps = [c for c in public if isinstance(c, type) and hasattr(c, "stats_dtypes_shapes")]
assert pmd.GibbsWithGradients in steps
X = np.random.default_rng(0).normal(size=(7, 3))
def scalar():
    pm.Bernoulli("x", 0.3)
def tables():
    z = pm.Categorical("z", np.ones(3) / 3, shape=4)
    mu = pm.Normal("mu", 0, 1, shape=3)
    pm.Normal("y", mu[z], 1, observed=np.arange(4.0))
    pm.Potential("pair", pt.eq(z[1:], z[:-1]).sum())
def linear():
    g = pm.Bernoulli("g", 0.2, shape=3)
    pm.Normal("y", pt.dot(X, g * pm.Normal("b", 0, 1, shape=3)), 1, observed=np.zeros(7))
def counts():
    n, p = pm.Poisson("n", pm.Gamma("lam", 2, 1), shape=2, initval=[4, 4]), pm.Beta("p", 1, 1)
    pm.Binomial("y", n=n, p=p, observed=[1, 2])
def dense():
    g = pm.Bernoulli("g", 0.3, shape=3)
    pm.MvNormal("y", np.zeros(7), cov=pt.eye(7) + pt.dot(X * (4.0 * g), X.T), observed=np.ones(7))
for build in (scalar, tables, counts, linear, dense):
    with pm.Model() as model:
        build()
    for step in steps:
        if step is pmd.FlowStep:  # it takes a flow, which is fitted by JAX
            continue
        if step is pmd.ReparameterizedSlice:
            if model.continuous_value_vars:
                step(model=model).sweeps
                started(f"ReparameterizedSlice on {build.__name__}")
            continue
        if step is pmd.CollapsedNUTS:
            if model.continuous_value_vars:
                step(model=model)
                started(f"CollapsedNUTS on {build.__name__}")
            continue
        if step is pmd.PerturbAndMaxProduct and build in (counts, dense):
            continue
        if step is pmd.SwendsenWang and build is not tables:
            continue
        # the code that builds a step with these options is that of all steps
        for options in ({}, {"blocked": False}, {"differences": "gradient"}):
            if options and (build is scalar or step is not pmd.GibbsWithGradients):
                continue
            built = step(model=model, **options)
            started(f"{step.__name__}(**{options}) on {build.__name__}")
            for one in getattr(built, "methods", [built]):
                if isinstance(one, pmd.CollapsedNUTS):
                    continue
                one = getattr(one, "sites", one)
                one.target.describe(), one.kernel, one.params
                started(f"describe() of {step.__name__} on {build.__name__}")
print("quiet")
"""


USED = """
import sys
import pymc as pm

def added(since):
    return {name.split(".")[0] for name in set(sys.modules) - since}

since = set(sys.modules)
import pymc_discrete as pmd
found = added(since) - {"pymc_discrete", "lazy_loader"}
assert not found, f"import pymc_discrete imports {found}"
with pm.Model():
    pm.Bernoulli("x", 0.3, shape=4)
    pmd.AutoStep()
pmd.sample
unused = {"optax", "equinox", "blackjax", "arviz_stats", "arviz_plots", "matplotlib", "plotly"} & added(since)
assert not unused, f"a step and pmd.sample import {unused}"
assert "scipy.stats" not in set(sys.modules) - since, "a step and pmd.sample import scipy.stats"
assert not [m for m in sys.modules if m.startswith(("pymc_discrete.learning", "pymc_discrete.variational"))]
assert {pmd.learning, pmd.variational} and set(pmd.__all__) <= set(dir(pmd))
print("little")
"""


def test_what_is_not_used_is_not_imported():
    assert "little" in run_python(USED)


@pytest.mark.slow
def test_import_build_and_describe_start_no_backend():
    assert "quiet" in run_python(BUILD)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> set[str]:
    """Every module that a file imports, at any depth, relative ones resolved."""
    found = set()
    here = ["pymc_discrete", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found.update(a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.add(module)
            found.update(f"{module}.{a.name}" for a in node.names)
    return found


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def folder_of(path: Path) -> str:
    """The folder at the top in which a file is, or its own name if it is in none."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported(path: Path) -> set[str]:
    """The folders and files at the top that a file imports."""
    modules = [module.split(".") for module in imports(path)]
    return {rest[0] for root, *rest in modules if root == "pymc_discrete" and rest} - {folder_of(path)}


def test_layers_import_one_way():
    rank = {name: n for n, name in enumerate([*LAYERS, *PARTS])}
    found = {folder_of(path) for path in MODULES} - {"__init__"}
    assert found == set(rank), f"without a rank, or without a folder: {found ^ set(rank)}"
    wrong = [
        f"{name_of(path)} imports {name}"
        for path in MODULES
        if folder_of(path) in rank
        for name in sorted(imported(path))
        if rank.get(name, len(rank)) >= rank[folder_of(path)]
    ]
    wrong += [f"{name_of(path)} imports the package" for path in MODULES if "pymc_discrete" in imports(path)]
    assert not wrong, wrong


def test_no_module_imports_itself_in_a_circle():
    """Also by imports inside functions."""
    names = {
        ".".join(["pymc_discrete", *path.relative_to(PACKAGE).with_suffix("").parts]): path
        for path in MODULES
    }
    graph = {name: {m for m in imports(path) if m in names and m != name} for name, path in names.items()}
    while leaves := [name for name, reads in graph.items() if not reads]:
        graph = {name: reads - set(leaves) for name, reads in graph.items() if name not in leaves}
    assert not graph, f"Import one another in a circle: {', '.join(sorted(graph))}"


def libraries(path: Path) -> set[str]:
    """The libraries of which a file imports something."""
    return {module.split(".")[0] for module in imports(path)}


def test_pure_folders_do_not_know_pymc():
    pure = [path for path in MODULES if folder_of(path) in PURE and name_of(path) not in MODEL]
    wrong = [name_of(path) for path in pure if libraries(path) & {"pymc", "pytensor"}]
    wrong += [
        name_of(path) for path in MODULES if folder_of(path) == "structure" and "pymc" in libraries(path)
    ]
    assert not wrong, wrong


def test_kernels_know_spaces_only():
    wrong = [
        f"{name_of(path)} imports {name}"
        for path in MODULES
        if folder_of(path) == "kernels"
        for name in sorted(imported(path) - {"space", "runtime"})
    ]
    assert not wrong, wrong


def test_blackjax_is_never_imported_at_module_level():
    wrong = []
    for path in MODULES:
        top = [n for n in parsed(path).body if isinstance(n, ast.Import | ast.ImportFrom)]
        names = {a.name for n in top for a in n.names} | {
            n.module or "" for n in top if isinstance(n, ast.ImportFrom)
        }
        wrong += [name_of(path) for n in names if n.split(".")[0] == "blackjax"]
    assert not wrong, wrong
