"""The initial point of chains of states, which PyTensor's stack traces make large."""

import ast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.link.c.basic import CLinker

from pymc_discrete.model.initial import point_of
from tests.tools.processes import ROOT, run_python

IN_TWO_GB = """
import resource
resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))
from tests.model.test_initial import chain
"""


def chain(links):
    """States, each by a switch on the one before, between probabilities that all share."""
    with pm.Model() as model:
        a, b = pm.Beta("a", 1, 1), pm.Beta("b", 1, 1)
        z = [pm.Bernoulli("z0", 0.5)]
        for n in range(1, links):
            z.append(pm.Bernoulli(f"z{n}", pt.switch(z[-1], a, b)))
        pm.Normal("y", pt.stack(z), 1.0, observed=np.linspace(-1, 1, links))
    return model


@pytest.mark.slow
def test_traces_of_a_chain_do_not_double():
    """With them, 22 links take 10 GB."""
    run_python(f"{IN_TWO_GB}\nfrom pymc_discrete.model.initial import point_of\npoint_of(chain(40))")


def test_the_point_is_pymc_s():
    model = chain(4)
    by_pymc, point = model.initial_point(), point_of(model)
    assert list(point) == list(by_pymc)
    assert all(np.array_equal(point[name], by_pymc[name]) for name in point)


def called(node):
    """The name of the function that a node of Python's syntax tree calls; None for other nodes."""
    return ast.unparse(node.func).split(".")[-1] if isinstance(node, ast.Call) else None


def test_every_point_is_made_so():
    makes = {"initial_point", "make_initial_point_fn", "make_initial_point_fns_per_chain", "compile_fn"}
    for file in (ROOT / "pymc_discrete").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text())))
        withs = [
            n
            for n in nodes
            if isinstance(n, ast.With) and called(n.items[0].context_expr) == "for_long_chains"
        ]
        inside = {n for w in withs for n in ast.walk(w)}
        assert not [ast.unparse(n) for n in nodes if called(n) in makes and n not in inside], file


def test_sums_of_many_counts_have_no_code_of_their_own(monkeypatch):
    """PyTensor compiles C, two seconds for each, where more than 31 counts are subtracted from a number."""
    with pm.Model() as model:
        left = 100
        for n in range(40):
            left = left - pm.Binomial(f"x{n}", left, 0.1)

    def compiled(*args, **kwargs):
        raise AssertionError("C is compiled")

    monkeypatch.setattr(CLinker, "make_thunk", compiled)
    assert point_of(model)["x0"] == 10
