"""Which discrete variables are summed out where the user names none."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.collapse import choice
from pymc_discrete.differences.from_model import target_of
from pymc_discrete.engine.precision import precision
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.sampling.division import steps_of
from pymc_discrete.sampling.options import check_collapse

pytestmark = pytest.mark.shares_programs

Y = np.array([[2, 3], [1, 0], [4, 2]])


def messages(caplog):
    return [r.getMessage() for r in caplog.records]


def abundance():
    lam, p = pm.Gamma("lam", 2, 0.5), pm.Beta("p", 1, 1)
    N = pm.Poisson("N", lam, shape=3, initval=Y.max(1))
    pm.Binomial("y", N[:, None], p, observed=Y)


def trials():
    """The size of a group; what is known of it before has a bound."""
    N, p = pm.DiscreteUniform("N", 5, 90), pm.Beta("p", 1, 1)
    pm.Binomial("y", N, p, observed=[3, 4, 5])


def total():
    """A count by its sum, and a rate."""
    k, rate = pm.Poisson("k", 3.0, shape=4), pm.HalfNormal("rate", 1.0)
    pm.Poisson("y", rate * k.sum(), observed=4)


def changepoint():
    tau, rate = pm.DiscreteUniform("tau", 0, 5), pm.Exponential("rate", 1.0, shape=2)
    pm.Poisson("y", pt.switch(tau >= np.arange(6), rate[0], rate[1]), observed=Y.ravel())


def levels():
    """A count that is an index."""
    k, mu = pm.Binomial("k", 3, 0.5, shape=6), pm.Normal("mu", shape=4)
    pm.Normal("y", mu[k], 1.0, observed=Y.ravel())


def labels():
    w, mu = pm.Dirichlet("w", np.ones(3)), pm.Normal("mu", shape=3)
    z = pm.Categorical("z", w, shape=6)
    pm.Normal("y", mu[z], 1.0, observed=Y.ravel())


def mixture():
    """Weights, means and standard deviations are unknown."""
    w, mu, sd = pm.Dirichlet("w", np.ones(3)), pm.Normal("mu", shape=3), pm.HalfNormal("sd", shape=3)
    z = pm.Categorical("z", w, shape=6)
    pm.Normal("y", mu[z], sd[z], observed=Y.ravel())


def two_components():
    w, mu, sd = pm.Beta("w", 1, 1), pm.Normal("mu", shape=2), pm.HalfNormal("sd", shape=2)
    z = pm.Bernoulli("z", w, shape=6)
    pm.Normal("y", mu[z], sd[z], observed=Y.ravel())


def strategies():
    """Weights alone are unknown: what each strategy answers is known."""
    z = pm.Categorical("z", pm.Dirichlet("w", np.ones(2)), shape=6)
    pm.Categorical("y", pt.as_tensor([[0.7, 0.2, 0.1], [0.2, 0.2, 0.6]])[z], observed=[0, 2, 1, 0, 2, 2])


def surveyed_twice():
    """The second survey's outcome depends on the label, and on nothing unknown."""
    z = pm.Bernoulli("z", pm.Beta("psi", 1, 1), shape=3)
    pm.Bernoulli("y", z * 0.4, observed=[0, 0, 1])
    pm.Potential("e", -0.1 * z.sum())


def skills():
    """Two labels of a person enter one answer."""
    a = pm.Bernoulli("a", pm.Beta("p", 1, 1), shape=(5, 2))
    pm.Bernoulli("y", 0.1 + 0.8 * a.prod(axis=1), observed=[0, 1, 1, 0, 1])


def alike():
    """A label for each of two vectors enters one answer."""
    p = pm.Beta("p", 1, 1, shape=2)
    a, b = pm.Bernoulli("a", p[0], shape=5), pm.Bernoulli("b", p[1], shape=5)
    pm.Bernoulli("y", 0.1 + 0.8 * a * b, observed=[0, 1, 1, 0, 1])


def chain():
    """Each label depends on the one before."""
    P = pm.Dirichlet("P", np.ones((2, 2)))
    z = pm.Categorical("z", P[0], shape=6)
    pm.Potential("chain", pt.log(P)[z[:-1], z[1:]].sum())


def known_weights():
    mu, sd = pm.Normal("mu", shape=3), pm.HalfNormal("sd", shape=3)
    z = pm.Categorical("z", np.ones(3) / 3, shape=6)
    pm.Normal("y", mu[z], sd[z], observed=Y.ravel())


def occupancy():
    psi, p = pm.Beta("psi", 1, 1), pm.Beta("p", 1, 1)
    z = pm.Bernoulli("z", psi, shape=3, initval=[1, 1, 1])
    pm.Bernoulli("y", z[:, None] * p, observed=Y > 1)


def known():
    """Nothing continuous is joined with the count but its prior."""
    lam = pm.Gamma("lam", 2, 0.5)
    N = pm.Poisson("N", lam, shape=3, initval=Y.max(1))
    pm.Binomial("y", N[:, None], 0.4, observed=Y)


def measured():
    """A count that is known up to a Normal error."""
    N, sd = pm.Poisson("N", 5.0, shape=3), pm.HalfNormal("sd", 1.0)
    pm.Normal("y", N[:, None], sd, observed=Y)


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (abundance, {"N": ["p_logodds__"]}),
        (trials, {"N": ["p_logodds__"]}),
        (total, {"k": ["rate_log__"]}),
        (changepoint, {}),
        (levels, {}),
        (labels, {}),
        (occupancy, {}),
        (known, {}),
        (measured, {}),
    ],
)
def test_counts_that_are_tied_to_continuous_variables(build, wanted):
    with pm.Model() as model:
        build()
    moved = [str(v.name) for v in model.continuous_value_vars]
    density = target_of(
        DescribedModel(model), [str(v.name) for v in model.discrete_value_vars], with_numbers=True
    ).density
    assert choice.tied_counts(density, moved) == wanted
    assert choice.tied_counts(density, []) == {}


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (mixture, ({"z": ["mu", "sd_log__"]}, {})),
        (two_components, ({"z": ["mu", "sd_log__"]}, {})),
        (known_weights, ({}, {})),
        (labels, ({}, {"z": ["w_simplex__"]})),
        (strategies, ({}, {"z": ["w_simplex__"]})),
        (occupancy, ({}, {"z": ["psi_logodds__"]})),
        (surveyed_twice, ({}, {"z": ["psi_logodds__"]})),
        (skills, ({}, {"a": ["p_logodds__"]})),
        (alike, ({}, {"a": ["p_logodds__"], "b": ["p_logodds__"]})),
        (chain, ({}, {})),
        (abundance, ({}, {})),
    ],
)
def test_labels_of_unknown_probabilities(build, wanted):
    with pm.Model() as model:
        build()
    moved = [str(v.name) for v in model.continuous_value_vars]
    density = target_of(
        DescribedModel(model), [str(v.name) for v in model.discrete_value_vars], with_numbers=True
    ).density
    assert choice.tied_labels(density, moved) == wanted


def test_labels_are_summed_out_unless_they_depend_on_one_another(caplog):
    caplog.set_level("INFO", "pymc.discrete")
    with pm.Model() as model:
        mixture()
    steps, collapsed = steps_of(model, None, model.initial_point(), "auto")
    assert not steps
    assert collapsed.density.names == ["z"]
    said = [t for t in messages(caplog) if t.startswith("Summed out")]
    assert said == [
        "Summed out while NUTS moves: 'z', labels tied to 'mu', 'sd'. collapse=False draws them instead."
    ]
    with model:  # neighbours are alike
        z = model["z"]
        pm.Potential("alike", pt.eq(z[1:], z[:-1]).sum())
    steps, collapsed = steps_of(model, None, model.initial_point(), "auto")
    assert collapsed is None
    assert [v.name for s in steps for v in s.vars] == ["z"]


@pytest.mark.slow
def test_counts_are_summed_out_alone_where_labels_beside_them_are_too_many(caplog):
    caplog.set_level("INFO", "pymc.discrete")
    with pm.Model() as model:
        abundance()
        mixture_of = np.arange(40) % 7
        w, mu, sd = pm.Dirichlet("w", np.ones(3)), pm.Normal("mu", shape=3), pm.HalfNormal("sd", shape=3)
        z = pm.Categorical("z", w, shape=40)
        pm.Normal("y of z", mu[z], sd[z], observed=mixture_of)
        # all labels in one term: the table of a sum would have 3^40 entries
        pm.Potential("few of a kind", -pt.log1p(pt.eq(z, 0).sum()))
    steps, collapsed = steps_of(model, None, model.initial_point(), "auto")
    assert collapsed.density.names == ["N"]
    assert [v.name for s in steps for v in s.vars] == ["z"]
    said = [t for t in messages(caplog) if "ummed out" in t]
    assert len(said) == 1
    assert said[0].startswith("Summed out while NUTS moves: 'N', counts tied to 'p'.")


def test_what_pmd_sample_does_by_default(caplog, monkeypatch):
    caplog.set_level("INFO", "pymc.discrete")
    with pm.Model() as model:
        abundance()
        pm.Bernoulli("other", 0.3)
    point = model.initial_point()
    steps, collapsed = steps_of(model, None, point, "auto")
    assert [v.name for s in steps for v in s.vars] == ["other"]
    assert collapsed.density.names == ["N"]
    assert any("Summed out while NUTS moves: 'N', counts tied to 'p'" in t for t in messages(caplog))
    monkeypatch.setattr(choice, "MOST_TIMES_THE_WORK", 1.0)
    caplog.clear()
    steps, collapsed = steps_of(model, None, point, "auto")
    assert collapsed is None
    assert [v.name for s in steps for v in s.vars] == ["N", "other"]
    assert any(t.startswith("Not summed out: 'N'") and "times the work" in t for t in messages(caplog))


def test_what_depends_on_a_count_is_summed_out_with_it(caplog):
    """As observations that are missing, which PyMC makes variables of."""
    caplog.set_level("INFO", "pymc.discrete")
    with pm.Model() as model:
        abundance()
        pm.Binomial("kept", model["N"], 0.5, initval=[1, 1, 1])
    steps, collapsed = steps_of(model, None, model.initial_point(), "auto")
    assert not steps
    assert sorted(collapsed.density.names) == ["N", "kept"]
    assert any("with 'kept', which depends on them" in t for t in messages(caplog))


def test_what_cannot_be_summed_out_alone_is_sampled(caplog):
    caplog.set_level("INFO", "pymc.discrete")
    with pm.Model() as model:
        abundance()
        pm.Binomial("kept", model["N"], 0.5, initval=[1, 1, 1])
        step = pmd.BlockGibbs(["kept"])
    _, collapsed = steps_of(model, step, model.initial_point(), "auto")
    assert collapsed is None
    assert any("Not summed out: 'N'" in t and "Sum out 'kept' too" in t for t in messages(caplog))


@pytest.mark.slow
def test_gates_beside_a_count_that_is_summed_out_are_said(caplog):
    caplog.set_level("INFO", "pymc.discrete")
    with pm.Model() as model:
        abundance()
        g, b = pm.Bernoulli("g", 0.5, shape=2), pm.Normal("b", 0, 2, shape=2)
        pm.Normal("w", pt.dot(np.arange(6.0).reshape(3, 2), g * b), 1.0, observed=[1.0, 0.0, 2.0])
    steps, collapsed = steps_of(model, None, model.initial_point(), "auto")
    assert collapsed.density.names == ["N"]
    assert not any(s.integrated for s in steps)
    assert any("Not integrated out while 'g' moves: 'b', since" in t for t in messages(caplog))


def test_with_32_bits_nothing_is_summed_out(caplog):
    caplog.set_level("INFO", "pymc.discrete")
    with pm.Model() as model:
        abundance()
    with precision("float32"):
        _, collapsed = steps_of(model, None, model.initial_point(), "auto")
    assert collapsed is None
    assert any("Not summed out: 'N'" in t and 'dtype="float64"' in t for t in messages(caplog))
    with pytest.raises(ValueError, match=r"got 'N'. To sum out 'N' alone: collapse=..N"):
        check_collapse("N", "float64", model)


def test_what_joins_too_many_sites_is_refused_before_it_is_made(monkeypatch, caplog):
    caplog.set_level("INFO", "pymc.discrete")
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        left, counts = 300, []
        for t in range(10):
            counts.append(f"caught{t}")
            left = left - pm.Binomial(f"caught{t}", left, p)
            pm.Binomial(f"seen{t}", left, 0.1, observed=20 - t)
    monkeypatch.setattr(choice, "Collapsed", None)
    assert choice.variables_to_sum_out(DescribedModel(model), counts, ["p_logodds__"]) is None
    (said,) = [t for t in messages(caplog) if t.startswith("Not summed out")]
    assert "joins too many" in said


@pytest.mark.parametrize("all_in_one", [False, True])
def test_more_states_than_floats_can_count(all_in_one, caplog):
    caplog.set_level("INFO", "pymc.discrete")
    with pm.Model() as model:
        z = pm.Bernoulli("z", pm.Beta("p", 2, 2), shape=1100)
        pm.Normal("y", z, 1.0, observed=np.arange(1100) % 2)
        if all_in_one:
            pm.Potential("few", -pt.log1p(z.sum()))
    if all_in_one:
        with pytest.raises(NotImplementedError, match="more than 1e308 states"):
            pmd.marginalize(model, ["z"])
    else:
        found = choice.variables_to_sum_out(DescribedModel(model), ["z"], ["p_logodds__"])
        assert found.density.names == ["z"]
