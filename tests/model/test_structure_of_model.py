"""Keys of models: equal where the log density is the same, different where anything in it differs."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import scipy.sparse
from pymc.distributions import transforms

from pymc_discrete.model.identity import key_of_graph
from pymc_discrete.model.structure_of_model import key_of_model

Y = np.array([1, 2, 0, 3])


def a_model(
    *,
    rate=2.0,
    upper=1.0,
    y=Y,
    initval=1,
    name="a",
    transform=None,
    dims=None,
    weight=(1.0, 0.5),
    index=(0, 1, 1, 0),
    comparison=pt.gt,
    scale=1.0,
):
    coords = {"place": dims} if dims else {}
    with pm.Model(coords=coords) as model:
        a = pm.Gamma(name, 2.0, rate, shape=2, dims=dims and "place")
        pm.Uniform("u", 0.0, upper)
        transformed = {"transform": transform} if transform else {}
        pm.Normal("o", shape=3, initval=[0.0, 1.0, 2.0], **transformed)
        z = pm.Poisson("z", 3.0, initval=initval)
        pm.Poisson("y", a[np.array(index)] * z, observed=y)
        pm.Potential("e", pt.switch(comparison(z, 2), a @ np.array(weight), 0.0))
        pm.Deterministic("d", scale * a)
    return model


def test_the_same_model_again():
    assert key_of_model(a_model()) == key_of_model(a_model())
    assert hash(key_of_model(a_model())) == hash(key_of_model(a_model()))
    # where the chain starts and what the axes are called do not matter
    assert key_of_model(a_model()) == key_of_model(a_model(initval=7, dims=("left", "right")))


@pytest.mark.parametrize(
    "changed",
    [
        {"rate": 3.0},
        {"upper": 2.0},
        {"y": Y + 1},
        {"y": np.append(Y[:3], 4)},
        {"name": "b"},
        {"transform": transforms.ordered},
        {"weight": (1.0, 0.6)},
        {"index": (0, 1, 1, 1)},
        {"comparison": pt.ge},
        {"scale": 2.0},
    ],
    ids=range(10),
)
def test_another_model(changed):
    assert key_of_model(a_model()) != key_of_model(a_model(**changed))


def test_transforms_are_compared_by_what_they_do():
    def with_bounds(lower):
        return a_model(transform=transforms.Interval(lower, 9.0))

    assert key_of_model(with_bounds(-1.0)) == key_of_model(with_bounds(-1.0))
    assert key_of_model(with_bounds(-1.0)) != key_of_model(with_bounds(-2.0))


def test_functions_of_the_user_are_equal_to_themselves_only():
    def build(logp):
        with pm.Model() as model:
            pm.CustomDist("x", 0.0, logp=logp)
        return model

    model = build(lambda value, mu: -((value - mu) ** 2))
    assert key_of_model(model) == key_of_model(model)
    assert key_of_model(model) != key_of_model(build(lambda value, mu: -((value - mu) ** 2)))


def test_data_that_change():
    with pm.Model() as model:
        data = pm.Data("data", np.arange(3.0))
        pm.Normal("x", data, shape=3)
    before = key_of_model(model)
    pm.set_data({"data": np.ones(3)}, model=model)
    assert key_of_model(model) != before
    pm.set_data({"data": np.arange(3.0)}, model=model)
    assert key_of_model(model) == before


def test_roles_are_told_apart():
    """The same parts, put together in another way."""

    def build(swap):
        with pm.Model() as model:
            a, b = pm.Normal("a"), pm.Normal("b")
            pm.Potential("e", a - 2 * b if swap else b - 2 * a)
        return model

    assert key_of_model(build(False)) != key_of_model(build(True))


def test_leaves():
    x, sparse = pt.vector("x"), scipy.sparse.csr_matrix(np.eye(2))
    assert key_of_graph([x]) == key_of_graph([pt.vector("x")])
    assert key_of_graph([x]) != key_of_graph([pt.vector("y")])
    same, other = (pt.constant(a) for a in (np.zeros(2), np.array([0.0, -0.0])))
    assert key_of_graph([same]) != key_of_graph([other])  # 1 / -0.0 is -inf
    from pytensor.sparse import as_sparse_variable

    assert key_of_graph([as_sparse_variable(sparse)]) == key_of_graph([as_sparse_variable(sparse.copy())])
    assert key_of_graph([as_sparse_variable(sparse)]) != key_of_graph([as_sparse_variable(2 * sparse)])
