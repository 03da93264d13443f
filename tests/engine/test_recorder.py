"""Deterministics as chains record them."""

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_discrete.engine.points import Points
from pymc_discrete.engine.recorder import Recorder

A = np.arange(12.0).reshape(4, 3)

SELECTIONS = {
    "element": lambda x, z: x[z, z],
    "row": lambda x, z: x[z],
    "column": lambda x, z: x[:, z],
    "rows": lambda x, z: x[pt.stack([z, 0])],
    "rows up to": lambda x, z: x[: z + 1].sum(),
    "along an axis": lambda x, z: pt.take_along_axis(x, z + pt.zeros((1, 3), dtype="int64"), axis=0),
    "set": lambda x, z: pt.set_subtensor(x[z], 0.0),
    "increased": lambda x, z: pt.inc_subtensor(x[z], 1.0),
    "searched": lambda x, z: pt.searchsorted(x[0], pt.cast(z, "float64")),
    "switch": lambda x, z: pt.switch(z > 0, x, 2 * x).max() + x.T[0][z],
}


def test_names_are_not_read_as_types():
    names = ["half", "int64", "'a', 'b'"]
    with pm.Model() as model:
        for name in names:
            pm.Poisson(name, 2.0)
    recorder, numbers = Recorder.of(model, names, Points([]), {})
    values = {name: np.array(n) for n, name in enumerate(names)}
    assert {name: int(value) for name, value in recorder(values | numbers).items()} == values


@pytest.mark.slow
def test_constants_are_read_where_a_discrete_variable_points():
    """The numbers of a model are NumPy's arrays where a program is only looked at, and not run."""
    with pm.Model() as model:
        z = pm.Categorical("z", [0.2, 0.3, 0.5])
        recorded = {name: pm.Deterministic(name, f(pt.as_tensor(A), z)) for name, f in SELECTIONS.items()}
    recorder, numbers = Recorder.of(model, ["z", *recorded], Points([]), {})
    assert numbers
    zs = np.arange(3)
    size = recorder.bytes_per_draw({"z": zs}, numbers)
    values = jax.vmap(lambda z: recorder({"z": z} | numbers))(zs)
    assert size == sum(v[0].nbytes for v in values.values())
    by_pymc = model.compile_fn(list(recorded.values()), inputs=[z], mode="FAST_COMPILE", point_fn=False)
    for n in zs:
        for name, expected in zip(recorded, by_pymc(n), strict=True):
            np.testing.assert_allclose(values[name][n], expected, err_msg=name)
