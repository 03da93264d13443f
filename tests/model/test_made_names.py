"""No name that the package makes can be one of a user's: models whose variables have such names."""

import ast
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.collapse.collapsed import Collapsed
from pymc_discrete.differences.from_model import target_from_model
from pymc_discrete.engine.block import TUNE
from pymc_discrete.engine.nuts import SCHEDULE, TARGET
from pymc_discrete.runtime.names import MADE, made_name, shown
from pymc_discrete.starts.softened import PENALTY, SHARE
from pymc_discrete.structure.numbers import NUMBER

CONSTANTS = (TUNE, SCHEDULE, TARGET, NUMBER, PENALTY, SHARE)


@pytest.mark.parametrize("make", [pm.Normal, pm.Bernoulli, pm.Deterministic, pm.Potential, pm.Data])
@pytest.mark.parametrize("name", [made_name(["a", "b"]), *CONSTANTS])
def test_pymc_refuses_what_we_make(make, name):
    assert MADE in name
    given = {pm.Normal: (), pm.Bernoulli: (0.5,), pm.Data: (1.0,)}.get(make, (pt.constant(1.0),))
    with pm.Model(), pytest.raises(ValueError, match="cannot contain"):
        make(name, *given)


def tied(a, b, other):
    """Two counts whose sum is known, one beside them, and equal terms that are written as one."""
    with pm.Model() as model:
        x, y = pm.Poisson(a, 2.0, initval=1), pm.Poisson(b, 3.0, initval=3)
        z = pm.Poisson(other, 1.5)
        pm.Potential("sum", pt.switch(pt.eq(x + y, 4), 0.0, -np.inf))
        pm.Potential("pair", 0.1 * z * x)
    return model


@pytest.mark.parametrize(
    "names",
    [("a", "b", "a, b"), ("a, b", "c", "a"), ("half", "b, c", "half, b, c"), ("number 0", "~stretches", "")],
    ids=str,
)
def test_beside_equations(names):
    given, plain = (
        target_from_model(tied(*n), list(n), initial_point=dict(zip(n, np.array([1, 3, 0]), strict=True)))
        for n in (names, ("x", "y", "w"))
    )
    order = [
        [list(n).index(m.name) for m in t.space.members]
        for n, t in ((names, given), (("x", "y", "w"), plain))
    ]
    for state in ([1, 3, 0], [2, 2, 1]):
        values = [t.logdensity(np.array(state)[o]) for t, o in zip((given, plain), order, strict=True)]
        np.testing.assert_allclose(*values, rtol=1e-12)


def alike(names):
    with pm.Model() as model:
        for name in names:
            pm.Bernoulli(name, 0.3)
        pm.Potential("e", 0.7 * model[names[0]] * model[names[1]] - model[names[2]] * model[names[-1]])
    return model


@pytest.mark.parametrize(
    "names",
    [("a", "b", "c", "a, b, c"), ("a, b", "c", "a", "b, c"), ("a ... d (4 variables)", "a", "b", "c", "d")],
)
def test_vectors_of_variables_that_are_alike(names):
    plain = [f"v{n}" for n in range(len(names))]
    given, other = (target_from_model(alike(list(n)), list(n)) for n in (names, plain))
    x = np.arange(len(names)) % 2
    np.testing.assert_allclose(given.logdensity(x), other.logdensity(x), rtol=1e-12)
    np.testing.assert_allclose(given.differences(x), other.differences(x), rtol=1e-12)


def test_a_variable_that_is_called_as_the_sum():
    with pm.Model() as model:
        z, y = pm.Bernoulli("z", 0.3), pm.Bernoulli("y", 0.4)
        u = pm.Normal("summed out", z)
        pm.Normal("v", y)
    collapsed = Collapsed.of(model, ["z"])
    assert "summed out" in {v.name for v in collapsed.model.free_RVs}
    once = pmd.marginalize(model, ["z"])
    twice = pmd.marginalize(once, ["y"])
    assert [p.name for p in once.potentials] == ["summed out 2"]
    assert [p.name for p in twice.potentials] == ["summed out 2"]  # the new one contains the old one
    assert u.name in twice.named_vars


def test_in_messages_made_names_are_those_of_the_variables():
    assert shown([made_name(["a", "b"]), "c"]) == "'a', 'b', 'c'"
    assert shown([made_name([f"z{n}" for n in range(50)])]) == "z0 ... z49 (50 variables)"


def test_no_key_is_joined_by_a_comma():
    """Strings that join names with what a name may hold are for messages, and are no keys."""
    for file in Path(pmd.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            keys = [node.slice] if isinstance(node, ast.Subscript) else []
            keys += [k for k in node.keys if k is not None] if isinstance(node, ast.Dict) else []
            for key in keys:
                joins = [
                    c
                    for c in ast.walk(key)
                    if isinstance(c, ast.Call)
                    and (getattr(c.func, "attr", "") == "join" or getattr(c.func, "id", "") == "shown")
                ]
                assert not joins, f"{file}:{key.lineno} makes a key from joined names: use made_name"
