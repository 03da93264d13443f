"""Models of which PyTensor knows no shape are sampled as those of which it knows all."""

import contextlib
import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.recorder import Recorder
from tests import models
from tests.collapse import models as summed
from tests.integrals import models as integrated
from tests.tools.shapes import unknown_shapes

pytestmark = pytest.mark.filterwarnings("ignore:Data in .* contains missing values", "ignore:.*imputation")


def masked(values):
    return np.ma.masked_array(values, mask=np.arange(np.size(values)).reshape(np.shape(values)) % 4 == 0)


def missing_labels():
    """Labels, some of them missing, select from a random vector and from rows."""
    region = np.arange(12) % 3
    share = pm.Dirichlet("share", np.ones(2), shape=(3, 2))
    s = pm.Categorical("s", share[region], observed=masked(np.arange(12) % 2))
    b, c = pm.Normal("b", 0, 1, shape=2), pm.Normal("c", 0, 1, shape=(3, 2))
    pm.Normal("y", b[s] + c[region, s], 1.0, observed=np.linspace(-1, 1, 12))


def missing_counts():
    n = pm.Poisson("n", np.full(8, 3.0), observed=masked(np.arange(8)))
    a = pm.Normal("a", 0, 1)
    pm.Binomial("k", n, pm.math.sigmoid(a), observed=np.zeros(8, int))
    pm.Deterministic("total", n.sum() + pt.zeros(n.shape)[-1])


def rows_and_columns():
    """Rows, columns, slices and lengths that are computed from shapes."""
    z = pm.Categorical("z", np.full((6, 3), 1 / 3), shape=6)
    mu = pm.Normal("mu", 0, 1, shape=(3, 4))
    x = pm.Deterministic("x", mu[z] + pt.arange(z.shape[0])[:, None] + pt.eye(z.shape[0], 4))
    pm.Normal("y", x - x.mean(axis=0), 1.0, observed=np.arange(24.0).reshape(6, 4))
    pm.Potential("same", pt.eq(z[1:], z[:-1]).sum() / (z.shape[0] - 1))


BUILDS = {
    f.__name__: f
    for f in [
        missing_labels, missing_counts, rows_and_columns, models.hidden_markov, models.labels_and_count,
        models.softplus, models.totals, models.ising, summed.captures, integrated.gated,
    ]
}  # fmt: skip


def asked(build, unknown, caplog):
    """What the package finds out about a model, and what it made of its Deterministics."""
    with pm.Model() as model, unknown_shapes() if unknown else contextlib.nullcontext():
        built = build()
    model = built if isinstance(built, pm.Model) else model
    assert not unknown or any(None in v.type.shape for v in model.basic_RVs)
    point = model.initial_point()
    caplog.clear()
    with caplog.at_level(logging.INFO, "pymc.discrete"):
        pmd.AutoStep(model=model)
    names = [v.name for v in model.continuous_value_vars]
    if names:
        ContinuousDensity.of(model, names, point)
    recorder, numbers = Recorder.of(model, [v.name for v in model.deterministics], Points([]), {})
    one = {name: np.asarray(a)[None] for name, a in point.items()}
    # but for how long it takes, on a machine that is busy
    said = [r.getMessage() for r in caplog.records if r.module != "waiting"]
    return pmd.target_from_model(model).describe(), said, recorder.bytes_per_draw(one, numbers)


@pytest.mark.parametrize("build", BUILDS.values(), ids=list(BUILDS))
@pytest.mark.by_default("labels_and_count", "totals", "ising")
def test_as_with_known_shapes(build, caplog):
    assert asked(build, False, caplog) == asked(build, True, caplog)
