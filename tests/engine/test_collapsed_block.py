"""What is summed out beside discrete variables that another step draws."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from tests.tools.running import QUIET


@pytest.mark.slow
def test_beside_scalars_that_are_drawn_as_one_vector():
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=4)
        z = pm.Bernoulli("z", 0.5, shape=4)
        k = [pm.Poisson(f"k{i}", pt.exp(a[i])) for i in range(4)]
        for i in range(4):
            pm.Normal(f"y{i}", k[i] + a[i] + z[i], 1.0, observed=2.0)
        idata = pmd.sample(4, tune=4, chains=1, collapse=["z"], random_seed=1, **QUIET)
    draw = {v.name: idata["posterior"][v.name].values[0, -1] for v in model.value_vars}
    lp = model.compile_logp(mode="FAST_COMPILE")(draw)
    np.testing.assert_allclose(idata["sample_stats"]["lp"].values.reshape(-1)[-1], lp, rtol=1e-6)
