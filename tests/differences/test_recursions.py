"""Recursions that are linear in the sites are updated by columns, and all others are not taken for such."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd

T = 6
R = np.random.default_rng(0)
Y = R.normal(size=T)


def scan(step, **options):
    return pytensor.scan(step, return_updates=False, **options)


def decay():
    """Calcium: what was there decays, and every spike adds to it; the first value is unknown."""
    s, gamma, first = pm.Bernoulli("s", 0.3, shape=T), pm.Beta("gamma", 5, 2), pm.Normal("first")
    options = {"sequences": [pt.cast(s, "float64")], "outputs_info": [first], "non_sequences": [gamma]}
    pm.Normal("y", scan(lambda s, c, gamma: gamma * c + s, **options), 0.5, observed=Y)


def second_order():
    """Two taps, counts as they are, and another sequence that scales them."""
    s, g = pm.Poisson("s", 0.6, shape=T), pm.Normal("g", 0, 0.3, shape=2)
    info = [{"initial": pt.zeros(2), "taps": [-1, -2]}]
    options = {"sequences": [s, pt.as_tensor(R.normal(size=T))], "outputs_info": info, "non_sequences": [g]}
    c = scan(lambda s, w, before, earlier, g: g[0] * before + g[1] * earlier + w * s, **options)
    pm.Normal("y", pt.exp(0.3 * c), 0.5, observed=Y)


def two_states():
    """A drug that moves from one compartment to another, of which the last is seen as well as all."""
    s, k = pm.Bernoulli("s", 0.3, shape=T), pm.Beta("k", 2, 2)

    def step(s, gut, blood, k):
        return gut * (1 - k) + s, blood * 0.8 + k * gut

    start = [pt.zeros(()), pt.constant(0.5, dtype="float64")]
    gut, blood = scan(step, sequences=[pt.cast(s, "float64")], outputs_info=start, non_sequences=[k])
    pm.Normal("y", blood, 0.5, observed=Y)
    pm.Normal("end", gut[-1], 0.5, observed=0.3)


def bent():
    """What is passed on is squashed: not linear."""
    s = pm.Bernoulli("s", 0.3, shape=T)
    options = {"sequences": [pt.cast(s, "float64")], "outputs_info": [pt.zeros(())]}
    pm.Normal("y", scan(lambda s, c: pt.tanh(c) + s, **options), 0.5, observed=Y)


def multiplied():
    """Linear in each of the sequence and what is passed on, and not in both."""
    s = pm.Bernoulli("s", 0.3, shape=T)
    options = {"sequences": [pt.cast(s, "float64")], "outputs_info": [pt.ones(())]}
    pm.Normal("y", scan(lambda s, c: c * (0.5 + s), **options), 0.5, observed=Y)


@pytest.mark.parametrize(
    ("build", "linear"),
    [(decay, True), (second_order, True), (two_states, True), (bent, False), (multiplied, False)],
)
@pytest.mark.by_default("multiplied-False")
def test_differences(build, linear):
    with pm.Model() as model:
        build()
    target = pmd.target_from_model(model, "s", differences="exact")
    assert (target.describe()["s"]["way"] == "incremental") == linear
    assert not linear or pmd.target_from_model(model, "s").exact
    point = {**model.initial_point(), "s": np.array([0, 1, 1, 0, 1, 0])}
    x, target = target.at(point)
    compare(model, target, x, point)


def compare(model, target, x, point):
    """All differences against PyTensor's log density of the model."""
    logp = model.compile_logp(mode="FAST_COMPILE")
    values, inside = target.space.neighbours(x)
    found, now = np.asarray(target.differences(x)), logp(point)
    for i, (row, there) in enumerate(zip(values, inside, strict=True)):
        for k in np.flatnonzero(there):
            s = np.array(x)
            s[i] = row[k]
            np.testing.assert_allclose(found[i, k], logp({**point, "s": s}) - now, atol=1e-9)


def refused_in_steps(carried):
    """A probability that is above 1 for k > 3, checked in the steps of a loop."""
    k, shift = pm.DiscreteUniform("k", 0, 5), pm.Normal("shift", 0, 0.01)
    p = lambda t, k, shift: 0.2 + 0.2 * k + shift * t
    of_step = lambda t, k, shift: pm.logp(pm.Bernoulli.dist(p(t, k, shift)), 1)
    add_up = lambda t, total, k, shift: total + of_step(t, k, shift)
    options = {"sequences": [np.arange(T)], "non_sequences": [k, shift]}
    if carried:
        total = scan(add_up, outputs_info=[pt.zeros(())], **options)[-1]
    else:
        total = scan(of_step, **options).sum()
    pm.Potential("y", total)


@pytest.mark.parametrize("carried", [False, True])
def test_checks_in_the_steps_of_a_loop(carried):
    """PyTensor's version for JAX leaves checks out: the log density was finite where PyMC's is -inf."""
    with pm.Model() as model:
        refused_in_steps(carried)
    target, logp = pmd.target_from_model(model), model.compile_logp()
    of_target, wanted = [], []
    for k in range(6):
        point = {"k": np.array(k), "shift": np.array(0.001)}
        x, at = target.at(point)
        of_target.append(float(at.logdensity(x)))
        wanted.append(float(logp(point)))
    assert np.isneginf(wanted).tolist() == [k > 3 for k in range(6)]
    # the target leaves out the prior of `shift`, in which k does not enter
    changes = np.subtract(of_target, of_target[0])
    np.testing.assert_allclose(changes, np.subtract(wanted, wanted[0]), rtol=1e-9)
