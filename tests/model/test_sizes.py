"""Ops with sizes, which JAX must know when it compiles, wherever they come from."""

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph

import pymc_discrete as pmd
from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.recorder import Recorder
from pymc_discrete.structure.jaxify import jaxify

# functions of a vector of 6 elements and of a size, which is 3
SIZED = {
    "arange": lambda x, n: x[pt.arange(n)],
    "alloc": lambda x, n: pt.alloc(x[0], n) * x[:3],
    "zeros": lambda x, n: pt.set_subtensor(pt.zeros((n, 6))[0], x),
    "eye": lambda x, n: pt.dot(pt.eye(n, 6), x),
    "tri": lambda x, n: pt.dot(pt.tri(n, 6), x),
    "reshape": lambda x, n: x.reshape((n, -1)).sum(axis=0),
    "repeat": lambda x, n: pt.repeat(x, n) ** 2,
    "repeat each": lambda x, n: pt.repeat(x[:3], pt.stack([n, 1, n - 1])) ** 2,
    "tile": lambda x, n: pt.tile(x, n) ** 2,
    "split": lambda x, n: pt.split(x, [n, 6 - n], n_splits=2)[0] ** 2,
    "join": lambda x, n: pt.concatenate([pt.ones(n), x, pt.zeros(n - 1)]) ** 2,
    "slice": lambda x, n: x[: n - 1] ** 2,
    "slice from": lambda x, n: x[n:] * x[:n],
    "set of a slice": lambda x, n: pt.set_subtensor(x[n:], x[:n]) ** 2,
    "diff": lambda x, n: pt.diff(x, n=1)[:n] ** 2,
    "linspace": lambda x, n: pt.linspace(0, 1, n) * x[:n],
    "broadcast": lambda x, n: pt.broadcast_to(x, (n, 6)) ** 2,
    "roll": lambda x, n: pt.roll(x, n) * x,
    "diagonal": lambda x, n: pt.diagonal(x.reshape((n, 2))),
    "one-hot": lambda x, n: pt.eq(pt.arange(n)[:, None], pt.arange(6)) * x,
    "one-hot by ravel": lambda x, n: pt.unravel_index(pt.arange(n), (n, 2))[0] * x[:n],
    "rows of a batch": lambda x, n: batched(lambda v: pt.concatenate([pt.ones(n), v]) ** 2, x),
    "bincount": lambda x, n: pt.bincount(pt.cast(pt.gt(x, 0), "int64"), minlength=n) * 1.0,
}  # fmt: skip


def batched(f, x):
    row = pt.vector(shape=(2,))
    return vectorize_graph(f(row), {row: x.reshape((3, 2))})


DATA = np.array([0.3, -0.2, 0.5])
SIZES = {
    "constant": lambda model: 3,
    "data": lambda model: pm.Data("data", DATA).shape[0],
    "dims": lambda model: model.dim_lengths["place"],
    "variable": lambda model: pm.Normal("v", 0, 1, dims="place").shape[0],
}


def traced(model):
    """Look at the gradient, the differences and what is recorded, without compiling them."""
    point = model.initial_point()
    density, numbers = ContinuousDensity.of(model, [v.name for v in model.continuous_value_vars], point)
    others = density.others(point | numbers)
    jax.eval_shape(lambda q: density.value_and_slope(q, others)(q), density.ravel(point))
    recorder, numbers = Recorder.of(model, [v.name for v in model.deterministics], Points([]), {})
    recorder.bytes_per_draw({name: np.asarray(a)[None] for name, a in point.items()}, numbers)
    x, target = pmd.target_from_model(model).at(point)
    jax.eval_shape(target.differences, x)


@pytest.mark.slow
def test_no_error_of_jax():
    """Each function is asked for three of the sizes, by turns another one of the three unknowns."""
    with pm.Model(coords={"place": range(3)}) as model:
        x, z = pm.Normal("x", 0, 1, shape=6), pm.Bernoulli("z", 0.5, shape=6)
        sizes = [size(model) for size in SIZES.values()]
        for number, (name, sized) in enumerate(SIZED.items()):
            of = {"x": x, "z": z * np.linspace(0.5, 1, 6), "both": x * z}
            for turn, (where, v) in enumerate(of.items(), number):
                made = pm.Deterministic(f"{name} of {where}", sized(v, sizes[turn % len(sizes)]))
                pm.Potential(f"{name} {where}", made.sum())
    traced(model)


def graded():
    """Categories between thresholds, in a loop: the gradient of stacked joins splits them."""
    theta = pm.Normal("theta", 0, 1, shape=5)
    for j in range(4):
        above = pm.math.sigmoid(theta[:, None] - np.array([1.0, 2.0 + j]))
        above = pt.concatenate([pt.ones((5, 1)), above, pt.zeros((5, 1))], axis=1)
        grades = np.ma.masked_array([0, 1, 2, 0, 1], mask=np.arange(5) == j)
        pm.Categorical(f"y{j}", p=above[:, :-1] - above[:, 1:], observed=grades)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Data in .* contains missing values")
def test_gradients_of_stacked_joins():
    with pm.Model() as model:
        graded()
    traced(model)


def test_sizes_that_are_not_known_are_refused_by_name():
    x, n = pt.dvector("x"), pt.lvector("n")
    compute = jaxify([x, n], [pt.exp(pt.repeat(x, n))])
    with pytest.raises(
        NotImplementedError, match=r"JAX does not run the Op Repeat.*'x', 'n' enter: sizes"
    ) as e:
        jax.eval_shape(compute, np.ones(3), np.arange(3))
    assert isinstance(e.value.__cause__, jax.errors.ConcretizationTypeError)
