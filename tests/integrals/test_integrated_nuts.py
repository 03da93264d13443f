"""`CollapsedNUTS(integrate=)`: NUTS for variances with coefficients integrated out, in `pm.sample`."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from tests.integrals.models import X, Y, gated, groups

pytestmark = [pytest.mark.shares_programs, pytest.mark.usefixtures("only_walks")]


def jittered(model, r):
    return {
        k: v + 0.3 * r.normal(size=np.shape(v)) if v.dtype.kind == "f" else v
        for k, v in model.initial_point().items()
    }


def prepared(build, draws=4):
    model, _, coefficients = build()
    with model:
        step = pmd.CollapsedNUTS(integrate=coefficients)
    step.setup_chain(np.random.default_rng(1), tune=2, draws=draws)
    return model, step


# ---------------------------------------------------------------- what NUTS moves on, and the order
@pytest.mark.slow
def test_nuts_moves_on_the_integral():
    """The log density at two points, and its gradient, against the integral and its differences.

    What the step does not name is given: another discrete variable, and a continuous one.
    """
    with pm.Model() as model:
        s, tau, h = pm.HalfNormal("s"), pm.HalfNormal("tau"), pm.Bernoulli("h", 0.4)
        g, a = pm.Bernoulli("g", 0.4, shape=4), pm.Normal("a", 0.0, 10.0)
        b = pm.Normal("b", 0.0, 2 * s * tau, shape=4)
        pm.Normal("y", a + X[:, :4] @ pt.switch(g, b, 0) + h, s, observed=Y)
        step = pmd.CollapsedNUTS([s, g], integrate="auto")
    assert {v.name for v in step.vars} == {"s_log__", "g", "a", "b"}
    point = jittered(model, np.random.default_rng(2))
    point |= {"g": np.array([1, 0, 1, 0]), "h": np.array(1)}
    function = step._function
    function.hold(point)
    q = np.concatenate([np.ravel(point[name]) for name in function.names])

    logp, names = model.compile_logp(mode="FAST_COMPILE"), step.integrated

    def integral(q):
        """By the quadratic form that values of PyMC's own log density have."""
        here = point | {name: np.asarray(v) for name, v in zip(function.names, q, strict=True)}
        sizes = [np.size(point[n]) for n in names]
        ends = np.cumsum(sizes)

        def at(v):
            parts = {
                n: v[e - k : e].reshape(np.shape(point[n]))
                for n, e, k in zip(names, ends, sizes, strict=True)
            }
            return float(logp(here | parts))

        e = np.eye(ends[-1])
        zero, up, down = at(0 * e[0]), np.array([at(v) for v in e]), np.array([at(-v) for v in e])
        A = np.array([[up[i] + up[j] - zero - at(a + b) for j, b in enumerate(e)] for i, a in enumerate(e)])
        A[np.diag_indices(len(e))] = 2 * zero - up - down
        b = (up - down) / 2
        return zero + 0.5 * b @ np.linalg.solve(A, b) - 0.5 * np.linalg.slogdet(A / 2 / np.pi)[1]

    value, slope = function._pytensor_function(q)
    other, _ = function._pytensor_function(q + 0.1)
    assert other - value == pytest.approx(integral(q + 0.1) - integral(q), abs=1e-7)
    step_size = 1e-5 * np.eye(len(q))
    differences = [(integral(q + h) - integral(q - h)) / 2e-5 for h in step_size]
    np.testing.assert_allclose(slope, differences, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("native", [False, True], ids=["NUTS", "a discrete step"])
def test_no_move_reads_the_old_coefficients(native):
    """From points that differ in them alone, the same numbers lead to the same draw."""
    model, names, coefficients = gated()
    with model:
        step = (
            pmd.BlockGibbs(names, integrate=coefficients) if native else pmd.CollapsedNUTS(integrate="auto")
        )
    ends = []
    for seed in (1, 2):
        step.setup_chain(np.random.default_rng(5), tune=2, draws=2)
        r = np.random.default_rng(seed)
        point = model.initial_point() | {"b": r.normal(size=4)}
        for _ in range(3):
            point, _ = step.step(point)
        ends.append(point)
    for name, value in ends[0].items():
        np.testing.assert_array_equal(value, ends[1][name], err_msg=name)
    if not native:
        assert ends[0]["s_log__"] != model.initial_point()["s_log__"]


@pytest.mark.slow
def test_a_draw_has_the_log_density_that_is_recorded():
    model, step = prepared(gated)
    logp, point = model.compile_logp(mode="FAST_COMPILE"), model.initial_point()
    for n in range(4):
        if n == 2:
            step.stop_tuning()
        point, (stats,) = step.step(point)
        assert stats["model_logp"] == pytest.approx(float(logp(point)), abs=1e-6)
        assert {"step_size", "discrete_n_moved", "accept"} <= set(stats)
        assert list(point) == list(model.initial_point())


# ---------------------------------------------------------------- the step among others
def test_without_variances_it_is_the_discrete_step(caplog):
    caplog.set_level("INFO", "pymc.discrete")
    model, names, _ = groups()
    with model:
        step = pmd.CollapsedNUTS(integrate="auto")
    assert isinstance(step, pmd.BlockGibbs)
    assert [v.name for v in step.vars] == [*names, "a", "b"]
    (line,) = [r.getMessage() for r in caplog.records if r.getMessage().startswith("CollapsedNUTS")]
    assert "a discrete step alone draws" in line
    assert "no continuous variable but 'a', 'b', integrated out, is among its variables" in line


@pytest.mark.slow
def test_it_travels_to_another_process():
    model, step = prepared(gated)
    other = cloudpickle.loads(cloudpickle.dumps(step))
    other.setup_chain(np.random.default_rng(1), tune=2, draws=4)
    ends = [one.step(model.initial_point())[0] for one in (step, other)]
    for name, value in ends[0].items():
        np.testing.assert_array_equal(value, ends[1][name])


@pytest.mark.slow
def test_new_data_are_sampled():
    with pm.Model() as model:
        x, s = pm.Data("x", np.zeros(3)), pm.HalfNormal("s")
        g, b = pm.Bernoulli("g", 0.5), pm.Normal("b")
        pm.Normal("y", g * b * x, s, observed=[9.0, 9.1, 8.9])
        step = pmd.CollapsedNUTS(integrate=["b"])
        pm.set_data({"x": np.full(3, 9.0)})
    step.setup_chain(np.random.default_rng(3), tune=0, draws=20)
    point = model.initial_point()
    for _ in range(20):
        point, _ = step.step(point)
    assert point["g"] == 1
    assert point["b"] == pytest.approx(1.0, abs=0.3)


# ---------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("vars", "integrate", "words"),
    [
        (["s"], ["b"], "has no discrete variable"),
        (None, ["nothing"], "no variable 'nothing'"),
        (["nothing"], ["b"], "'nothing' is no free variable"),
        (None, ["s"], "'s' cannot be integrated out"),
    ],
)
def test_bad_input_is_named(vars, integrate, words):
    with gated()[0], pytest.raises(ValueError, match=words):
        pmd.CollapsedNUTS(vars, integrate=integrate)


@pytest.mark.slow
def test_an_improper_integral_is_refused_before_the_first_move():
    with pm.Model() as model:
        s, g, b = pm.HalfNormal("s"), pm.Bernoulli("g", 0.3, shape=3), pm.Flat("b", shape=3)
        pm.Normal("y", X[:, :3] @ (g * b), s, observed=Y)
        step = pmd.CollapsedNUTS(integrate=["b"])
    step.setup_chain(np.random.default_rng(3), tune=0, draws=20)
    with pytest.raises(pm.exceptions.SamplingError, match="'b' cannot be integrated out"):
        step.step(model.initial_point())
