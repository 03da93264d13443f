"""Ops without a JAX version: steps refuse them in the terms that their variables enter, and nowhere else."""

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py

import pymc_discrete as pmd
from tests.tools.running import FAST, QUIET

pytestmark = pytest.mark.filterwarnings(
    "ignore:Only .* samples", "ignore:Numba will use object mode"
)  # PyMC's and PyTensor's own


@wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])
def minus_square(a):
    return np.asarray(-a * a)


def elsewhere(bessel=False):
    """Labels, a continuous variable beside them, and one, `k`, of a term that JAX does not have."""
    k, mu = pm.Normal("k"), pm.Normal("mu")
    z = pm.Bernoulli("z", 0.5, shape=3)
    pm.Potential("p", pt.log(pt.kv(1, 1.0 + k**2)) if bessel else minus_square(k))
    pm.Normal("y", mu + z, 1.0, observed=[0.1, 1.2, 2.0])


def entered():
    """A count that Python reads, beside labels."""
    n, z = pm.Poisson("n", 3.0), pm.Bernoulli("z", 0.5, shape=3)
    pm.Potential("p", minus_square(0.5 * n))
    pm.Normal("y", z, 1.0, observed=[0.1, 1.2, 2.0])


def check_lp(model, idata):
    """`lp` is the model's log density at every draw; its last column where there are several."""
    logp = model.compile_logp(mode="FAST_COMPILE")
    lp = idata["sample_stats"]["lp"].values
    lp = (lp if lp.ndim == 2 else lp[..., -1])[0]
    points = [
        {v.name: idata["posterior"][v.name].values[0, t] for v in model.value_vars} for t in range(len(lp))
    ]
    np.testing.assert_allclose(
        lp, [logp(p) for p in points], rtol=1e-7
    )  # PyTensor keeps constants such as 0.5 in 32 bits


def sampled(model, step=None):
    with model:
        return pm.sample(8, tune=8, chains=1, cores=1, step=step, random_seed=1, **QUIET, **FAST)


@pytest.mark.slow
@pytest.mark.parametrize("bessel", [False, True], ids=["Python", "Bessel"])
def test_elsewhere_in_the_model(bessel):
    """The last step, of either kind, records the log density."""
    with pm.Model() as model:
        elsewhere(bessel)
        steps = [pmd.ReparameterizedSlice("mu"), pmd.BlockGibbs("z")]
        steps = [pm.Slice([model["k"]], **FAST), *(steps[::-1] if bessel else steps)]
    check_lp(model, sampled(model, steps))


def test_registered():
    with pm.Model() as model:
        elsewhere()
    with pmd.registered():
        idata = sampled(model)
    assert idata["posterior"]["z"].values.any()


@pytest.mark.slow
def test_auto_step_leaves_to_pymc_what_it_cannot_take(caplog):
    with pm.Model() as model:
        entered()
    with caplog.at_level(logging.INFO, "pymc.discrete"), pmd.registered():
        idata = sampled(model)
    assert "PyMC's Metropolis for 'n': it enters 'p', which has an Op without a JAX version" in caplog.text
    assert "BlockGibbs for 'z'" in caplog.text
    check_lp(model, idata)
    step = pmd.AutoStep("n", model=model)
    assert isinstance(step, pm.Metropolis)
    for kind in (pmd.BlockGibbs, pmd.GibbsWithGradients):
        with pytest.raises(
            NotImplementedError,
            match=r"A term that depends on 'n', 'z' has an Op without a JAX version.*pm.Metropolis",
        ):
            sampled(model, kind(model=model))


@pytest.mark.parametrize("build", [elsewhere, entered])
def test_pmd_sample_takes_none(build):
    with pm.Model():
        build()
        step = [pmd.ReparameterizedSlice("k")] if build is elsewhere else None
        with pytest.raises(
            NotImplementedError, match=r"runs the whole model in JAX.* the Op FromFunctionOp.*Use pm.sample"
        ):
            pmd.sample(5, tune=5, step=step, **QUIET)


def test_energy_posterior_takes_none():
    with pm.Model():
        pm.Potential("p", pt.log(pt.kv(1, 1.0 + pm.Normal("x") ** 2)))
        with pytest.raises(
            NotImplementedError,
            match=r"pmd.fit_energy_posterior runs the whole model in JAX.*No JAX implementation for Op",
        ):
            pmd.fit_energy_posterior(progressbar=False)


def test_one_of_data_alone_is_a_constant():
    with pm.Model() as model:
        pm.Bernoulli("z", 0.5, shape=3)
        pm.Potential("p", minus_square(pm.Data("data", 2.0)))
    target = pmd.target_from_model(model).at(model.initial_point())[1]
    assert float(target.ready().untouched) == -4


# ---------------------------------------------------------------- increments, of which JAX's version is wrong
def counted_once(z):
    return pt.inc_subtensor(pt.zeros(2)[z], 1.0, ignore_duplicates=True)


def in_a_scan(z):
    from pytensor.scan.basic import scan

    return scan(counted_once, non_sequences=[z], n_steps=2, return_updates=False)[-1]


@pytest.mark.parametrize("write", [counted_once, in_a_scan])
def test_an_increment_that_counts_an_element_once_is_refused(write):
    with pm.Model() as model:
        z = pm.Categorical("z", [0.3, 0.7], shape=3)
        pm.Normal("y", write(z), 1.0, observed=[0.4, 1.1])
    with pytest.raises(
        NotImplementedError, match=r"ignore_duplicates=True.*x\[index\].set\(x\[index\] \+ y\)"
    ):
        pmd.BlockGibbs(model=model).step(model.initial_point())


def test_an_increment_is_refused_where_pytensor_does_not_evaluate_it():
    """In terms beside the step's variables it is PyMC's affair; a Deterministic would be recorded wrong."""
    with pm.Model() as model:
        pm.Categorical("k", [0.4, 0.6], shape=3)
        pm.Normal("y", counted_once(pm.Categorical("z", [0.3, 0.7], shape=3)), 1.0, observed=[0.4, 1.1])
    step = pmd.BlockGibbs("k", model=model)
    point = model.initial_point()
    new, (stats,) = step.step(point)
    assert stats["model_logp"] == pytest.approx(model.compile_logp(mode="FAST_COMPILE")(new), rel=1e-7)
    with pm.Model():
        z = pm.Bernoulli("z", 0.5, shape=3)
        pm.Deterministic("d", counted_once(z))
        with pytest.raises(NotImplementedError, match=r"ignore_duplicates=True"):
            pmd.sample(5, tune=5, **QUIET)
