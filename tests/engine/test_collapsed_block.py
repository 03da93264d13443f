"""What is summed out beside discrete variables that another step draws."""

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.collapse.collapsed import STRETCH_VARIABLE, Collapsed
from pymc_discrete.engine.assembly import blocks_of
from pymc_discrete.engine.course import Engine
from pymc_discrete.engine.nuts_options import DEFAULTS, OfNuts
from pymc_discrete.engine.precision import precision
from pymc_discrete.engine.program import Program, recorded
from pymc_discrete.model.initial import point_of
from tests.tools.running import QUIET


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_draw_begins_with_the_gradient_at_the_end_of_the_one_before(dtype):
    with pm.Model() as model:
        z = pm.Categorical("z", pm.Dirichlet("w", [2.0, 3.0]), shape=5)
        pm.Normal("y", pm.Normal("mu", [-1, 1], shape=2)[z], 1, observed=[-2.0, 0.5, 1.0, 3.0, 0.0])
    with precision(dtype):
        point = point_of(model)
        collapsed = Collapsed.of(model, ["z"])
        blocks, packing = blocks_of(model, [], point, 10, 0.8, DEFAULTS, collapsed)
        (block,) = blocks
        assert block.knows_point
        program = Program(model, blocks, packing, recorded(model, None), jax.devices()[:1])
        states, chains = (
            program.layout.put(program.start([point]), program.layout.of_chains),
            program.identities(1, np.arange(1)),
        )
        states, *_ = jax.jit(lambda s: program.run(chains, s, program.numbers, 0, 6, 1, size=6))(states)
        there = {name: np.asarray(a)[0] for name, a in states.point.items()} | {
            STRETCH_VARIABLE: np.zeros(0, int)
        }
        found, expected = states.blocks[0].nuts.here, block.density.at(there | block.numbers)
        assert not np.allclose(found.slope[0], program.start([point]).blocks[0].nuts.here.slope[0])
        close = {"rtol": 1e-10, "atol": 1e-10} if dtype == "float64" else {"rtol": 1e-4, "atol": 1e-4}
        np.testing.assert_allclose(found.slope[0], expected[1], **close)
        if dtype == "float64":
            np.testing.assert_allclose(found.logdensity[0], expected[0], **close)


def test_a_chain_that_is_put_at_another_point_has_the_gradient_there():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.4, shape=3)
        pm.Normal("y", pm.Normal("mu") * z, 1, observed=[0.1, 2.0, 1.0])
    engine = Engine(model, [], ["z"], [], 10, OfNuts(0.8, DEFAULTS), None, None)
    here, there = ({**model.initial_point(), "mu": np.array(mu)} for mu in (0.0, 1.5))
    slope = lambda states: states.blocks[0].nuts.here.slope
    assert slope(engine.fresh(here)) != slope(engine.fresh(there))
    assert slope(engine.at(engine.fresh(here), there)) == slope(engine.fresh(there))


def test_a_gradient_is_not_kept_where_another_step_moves_what_it_depends_on():
    with pm.Model() as model:
        z, n = pm.Bernoulli("z", 0.4, shape=3), pm.Poisson("n", 3)
        pm.Normal("y", pm.Normal("mu") * z + n, 1, observed=[0.1, 2.0, 1.0])
    step = pmd.BlockGibbs(["n"], model=model)
    collapsed = Collapsed.of(model, ["z"])
    blocks, _ = blocks_of(model, [step], point_of(model), 10, 0.8, DEFAULTS, collapsed)
    assert not any(b.knows_point for b in blocks)
    blocks, _ = blocks_of(model, [], point_of(model), 10, 0.8, DEFAULTS, collapsed, fixed=["n"])
    assert not any(b.knows_point for b in blocks)


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
