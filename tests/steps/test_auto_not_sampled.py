"""AutoStep without `vars`: what it sums out, what it integrates out, and what it leaves to other steps."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.sampling.division import steps_of
from pymc_discrete.steps import for_nuts
from tests.tools.processes import forkserver
from tests.tools.running import draws_of, sample_with_pymc, walk

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]

R = np.random.default_rng(3)
X, Y = R.normal(size=(12, 4)), R.normal(size=12)
SEEN = np.array([2, 4, 3])


def population():
    """The posterior has 30 states of N, each with a Beta posterior of p."""
    p = pm.Beta("p", 1, 1)
    N = pm.DiscreteUniform("N", 4, 33)
    pm.Binomial("y", N, p, observed=SEEN)


def exact_population():
    """p(N | y), the integral over p known in closed form."""
    from scipy.special import betaln, gammaln

    N = np.arange(4, 34)
    binomials = sum(gammaln(N + 1) - gammaln(k + 1) - gammaln(N - k + 1) for k in SEEN)
    logp = binomials + betaln(1 + SEEN.sum(), 1 + 3 * N - SEEN.sum())
    return np.exp(logp - np.logaddexp.reduce(logp))


def population_and_labels():
    population()
    z, mu = pm.Bernoulli("z", 0.3, shape=12), pm.Normal("mu", shape=2)
    pm.Normal("x", mu[z], 1.0, observed=Y)


def population_with_a_bessel_function():
    """A term of the continuous variables that JAX cannot run."""
    population()
    pm.Potential("bessel", pt.log(pt.kv(1, 1.0 + pm.Normal("a") ** 2)))


def indicators():
    g, b, s = pm.Bernoulli("g", 0.3, shape=4), pm.Normal("b", 0, 2, shape=4), pm.HalfNormal("s")
    pm.Normal("y", X @ (g * b), s, observed=Y)


def indicators_and_a_known_error():
    """Nothing is left for NUTS."""
    g, b = pm.Bernoulli("g", 0.3, shape=4), pm.Normal("b", 0, 2, shape=4)
    pm.Normal("y", X @ (g * b), 1.0, observed=Y)


def labels():
    w, mu = pm.Dirichlet("w", np.ones(2)), pm.Normal("mu", shape=2)
    pm.Normal("y", mu[pm.Categorical("z", w, shape=12)], 1.0, observed=Y)


def hidden_chain():
    stay, z = pm.Beta("stay", 5, 1), pm.Bernoulli("z", np.float64(0.5), shape=6)
    pm.Potential("chain", pt.switch(pt.eq(z[1:], z[:-1]), pt.log(stay), pt.log1p(-stay)).sum())
    pm.Normal("y", 2.0 * z, 1.0, observed=Y[:6])


def occupancy():
    z, p = pm.Bernoulli("z", pm.Beta("psi", 1, 1), shape=3, initval=[1, 1, 1]), pm.Beta("p", 1, 1)
    pm.Binomial("y", 4, z * p, observed=[0, 2, 1])


def lattice():
    s = pm.Bernoulli("s", 0.5, shape=(3, 3))
    pm.Potential("pairs", 0.3 * (s[1:] * s[:-1]).sum() + 0.3 * (s[:, 1:] * s[:, :-1]).sum())


def model_of(build):
    with pm.Model() as model:
        build()
    return model


def kinds(step):
    return [(type(s).__name__, s.own_variables) for s in getattr(step, "methods", [step])]


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (population, [("CollapsedNUTS", ["p_logodds__", "N"])]),
        (population_and_labels, [("BlockGibbs", ["z"]), ("CollapsedNUTS", ["p_logodds__", "mu", "N"])]),
        (population_with_a_bessel_function, [("BlockGibbs", ["N"])]),
        (indicators, [("IntegratedNUTS", ["s_log__", "g", "b"])]),
        (indicators_and_a_known_error, [("BlockGibbs", ["g", "b"])]),
        (labels, [("CollapsedNUTS", ["w_simplex__", "mu", "z"])]),
        (hidden_chain, [("TreeGibbs", ["z"])]),
        (occupancy, [("CollapsedNUTS", ["psi_logodds__", "p_logodds__", "z"])]),
        (lattice, [("TreeGibbs", ["s"])]),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
@pytest.mark.by_default("hidden_chain-", "population_with_a_bessel_function-", "indicators-")
def test_what_is_not_sampled(build, wanted, caplog):
    caplog.set_level("INFO", "pymc.discrete")
    model = model_of(build)
    assert kinds(pmd.AutoStep(model=model)) == wanted
    texts = [r.getMessage() for r in caplog.records]
    not_sampled = any("NUTS" in kind for kind, _ in wanted) or build is indicators_and_a_known_error
    said = [t for t in texts if t.startswith(("Summed out", "Integrated out"))]
    assert len(said) == (not_sampled or build is population_with_a_bessel_function)
    assert any("'bessel' has an Op" in t for t in texts) == (build is population_with_a_bessel_function)
    # named variables are sampled, as they are
    names = [v.name for v in model.discrete_value_vars]
    assert not any(
        "NUTS" in kind or len(vs) > len(names) for kind, vs in kinds(pmd.AutoStep(names, model=model))
    )


def test_a_variable_without_a_gradient_is_left_to_pymc(monkeypatch):
    model = model_of(population_and_labels)
    monkeypatch.setattr(for_nuts, "has_gradient", lambda logp, values: "mu" not in {v.name for v in values})
    assert kinds(pmd.AutoStep(model=model))[-1] == ("CollapsedNUTS", ["p_logodds__", "N"])


@pytest.mark.parametrize(
    "options",
    [{"differences": "exact"}, {"transitions": 3}, {"window": 4}, {"start": "dispersed"}, {"blocked": False},
     {"support": {"N": (4, 33)}}],
    ids=str,
)  # fmt: skip
def test_an_option_says_how_variables_are_sampled(options):
    assert kinds(pmd.AutoStep(model=model_of(population), **options)) == [("BlockGibbs", ["N"])]


def test_with_32_bits_all_is_sampled():
    with pytensor.config.change_flags(floatX="float32"):
        assert kinds(pmd.AutoStep(model=model_of(population))) == [("BlockGibbs", ["N"])]


def walked(step, model):
    step.setup_chain(np.random.default_rng(1), tune=3, draws=3)
    return walk(step, model.initial_point())


@pytest.mark.slow
@pytest.mark.parametrize("build", [population, indicators], ids=lambda build: build.__name__)
def test_draws_are_those_of_the_step_that_is_named(build):
    model = model_of(build)
    by_hand = pmd.CollapsedNUTS(integrate=["b"] if build is indicators else None, model=model)
    draws = walked(pmd.AutoStep(model=model), model)
    sent = cloudpickle.loads(cloudpickle.dumps(pmd.AutoStep(model=model)))
    for other in (walked(by_hand, model), walked(sent, model)):
        for (a, _), (b, _) in zip(draws, other, strict=True):
            assert [*a] == [*b]
            assert all(np.array_equal(a[name], b[name]) for name in a)
    logp = model.compile_logp(mode="FAST_COMPILE")
    for point, stats in draws:
        assert {n: (v.shape, v.dtype) for n, v in point.items()} == {
            n: (np.shape(v), np.asarray(v).dtype) for n, v in model.initial_point().items()
        }
        assert stats["model_logp"] == pytest.approx(float(logp(point)), rel=1e-7)


@pytest.mark.slow
def test_several_steps_keep_their_statistics_and_the_draws_of_tuning(capsys):
    model = model_of(population_and_labels)
    tree = sample_with_pymc(model, pmd.AutoStep, 6, 5, discard_tuned_samples=False, progressbar=True)
    assert "".join(capsys.readouterr()).strip()
    assert tree["posterior"]["N"].shape == (2, 6)
    assert tree["warmup_posterior"]["z"].shape == (2, 5, 12)
    stats = tree["sample_stats"]
    assert {"accept", "discrete_n_moved", "tree_depth", "diverging", "lp"} <= set(stats.data_vars)
    assert stats["tree_depth"].shape == (2, 6)
    assert np.isfinite(stats["lp"].values[..., -1]).all()


def two_kinds_and_a_parameter():
    """A chain and counts of a fixed sum, each with a step, and what NUTS moves beside them."""
    p, z = pm.Dirichlet("p", np.ones(3)), pm.Bernoulli("z", 0.4, shape=4)
    pm.Multinomial("x", 6, p)
    pm.Potential("pairs", 0.5 * (z[1:] * z[:-1]).sum() + p[0] * z[0])


@pytest.mark.slow
def test_the_bar_of_several_steps():
    """Of NUTS, too."""
    with model_of(two_kinds_and_a_parameter):
        step = pmd.AutoStep()
    assert [type(s).__name__ for s in step.methods] == ["TreeGibbs", "BlockGibbs"]
    columns, _ = step._progressbar_config(1)
    assert [c.get_table_column().header for c in columns][:4] == [
        "Divergences",
        "Step size",
        "Grad evals",
        "Accept",
    ]


@pytest.mark.slow
def test_workers_draw_what_one_process_draws():
    model = model_of(population_and_labels)
    one = sample_with_pymc(model, pmd.AutoStep, 5, 5)
    two = sample_with_pymc(model, pmd.AutoStep, 5, 5, cores=2, mp_ctx=forkserver())
    for name, value in draws_of(one).items():
        np.testing.assert_array_equal(value, draws_of(two)[name], err_msg=name)


@pytest.mark.slow
def test_only_while_the_chain_tunes():
    """Afterwards a transition does not depend on what was seen before."""
    model = model_of(population)
    with model:
        step = pmd.AutoStep()
        point = model.initial_point()
        step.setup_chain(np.random.default_rng(1), tune=0, draws=3)
        for _ in range(2):
            point, _ = step.step(point)
            point = {**point, "p_logodds__": point["p_logodds__"] + 0.1}
        assert step.ahead.state.order.left == []
        logp = model.compile_logp(mode="FAST_COMPILE")
        step.setup_chain(np.random.default_rng(1), tune=3, draws=3)
        for _ in range(2):
            point, (stats,) = step.step(point)
            assert stats["model_logp"] == pytest.approx(float(logp(point)), rel=1e-7)
            point = {**point, "p_logodds__": point["p_logodds__"] + 0.1}
        assert step.ahead.state.order.left == ["p_logodds__"]
        # and another chain begins with all variables
        step.setup_chain(np.random.default_rng(1), tune=3, draws=3)
        step.step(point)
        assert step.ahead.state.order.left == []


@pytest.mark.slow
def test_what_another_step_moves_is_left_to_it_and_the_posterior_is_exact(caplog):
    """The distribution of N and the mean of p given N, against sums and integrals over all of their values.

    N alone would not tell that it was drawn given an old p.
    """
    import arviz as az

    def build():
        population()
        pm.Normal("mu")

    caplog.set_level("INFO", "pymc.discrete")
    steps = lambda: [pmd.AutoStep(), pm.Slice([pm.modelcontext(None)["p"]])]
    draws = draws_of(sample_with_pymc(model_of(build), steps, 600, 200))
    assert set(draws) == {"p", "N", "mu"}
    assert sum("leaves 'p' to another step" in r.getMessage() for r in caplog.records) == 1
    sizes, exact = np.arange(4, 34), exact_population()
    mean_p = (1 + SEEN.sum()) / (2 + 3 * sizes)
    for lower, upper in ((4, 6), (6, 10), (10, 20), (20, 34)):
        here = (sizes >= lower) & (sizes < upper)
        inside = (draws["N"] >= lower) & (draws["N"] < upper)
        for values, wanted in (
            (1.0 * inside, exact[here].sum()),
            (draws["p"] * inside, (exact * mean_p)[here].sum()),
        ):
            assert abs(values.mean() - wanted) < 4.5 * float(az.mcse(values)), (lower, upper)


def chosen(step):
    """What decides about the draws of a step."""
    return (
        type(step),
        step.own_variables,
        step.asked_method,
        step.transitions,
        step.start,
        step.target.describe(),
    )


@pytest.mark.slow
def test_in_pmd_sample_it_chooses_the_same():
    """As is chosen without a step."""
    model = model_of(population_and_labels)
    with model:
        step = pmd.AutoStep()
        given, collapsed = steps_of(model, step, model.initial_point(), "auto")
    assert [name for s in given for name in s.own_variables] == ["z"]
    assert collapsed.density.names == ["N"]
    others, without_a_step = steps_of(model, None, model.initial_point(), "auto")
    assert [*map(chosen, given)] == [*map(chosen, others)]
    assert without_a_step.density.names == ["N"]
    for collapse, wanted in ((True, ["N"]), ([], ["N"])):
        assert steps_of(model, step, model.initial_point(), collapse)[1].density.names == wanted
    with pytest.raises(ValueError, match=r"'N' is summed out by a step, and not with collapse=False"):
        steps_of(model, step, model.initial_point(), False)
    with model, pytest.raises(ValueError, match=r"Pass them to pmd.sample"):
        steps_of(model, pmd.CollapsedNUTS(target_accept=0.9), model.initial_point(), "auto")
    with model, pytest.raises(ValueError, match=r"BlockGibbs has options of NUTS here"):
        steps_of(model, pmd.BlockGibbs(target_accept=0.9), model.initial_point(), "auto")
    model = model_of(indicators)
    with model:
        (given,), collapsed = steps_of(model, pmd.AutoStep(), model.initial_point(), "auto")
    assert (given.integrated, collapsed) == (("b",), None)
