"""The slice sampler: invariance from exact draws, what tuning learns, the step in pm.sample and pmd.sample,
posteriors.
"""

import pickle

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError
from pytensor.graph import Apply, Op
from scipy import stats

import pymc_discrete as pmd
from pymc_discrete.kernels import slice as slices
from pymc_discrete.targets.continuous import ContinuousDensity

FAST = {"compile_kwargs": {"mode": "FAST_COMPILE"}}
QUIET = {"progressbar": False, "compute_convergence_checks": False}
SIGNIFICANCE = 1e-3  # of all tests of a function together
N = 10_000

# ---------------------------------------------------------------- invariance
CORRELATED = 0.9 * np.ones((5, 5)) + 0.1 * np.eye(5)
PRECISION = np.linalg.inv(CORRELATED)


def bimodal(rng):
    x = rng.normal(size=(N, 1))
    return x + 20.0 * (rng.random((N, 1)) < 0.3)


def funnel(rng):
    v = rng.normal(size=(N, 1)) * 3.0
    return np.concatenate([v, np.exp(v / 2) * rng.normal(size=(N, 4))], axis=1)


def stairs(rng):
    """Density 3, 0, 1 on thirds of the unit interval: a jump, and a gap between two pieces."""
    third = np.where(rng.random((N, 1)) < 0.75, 0, 2)
    return (third + rng.random((N, 1))) / 3


def log_stairs(x):
    inside = (x[0] > 0) & (x[0] < 1)
    return jnp.where(
        inside, jnp.log(jnp.array([3.0, 0.0, 1.0]))[jnp.clip((3 * x[0]).astype(int), 0, 2)], -jnp.inf
    )


def log_half_normal(x):
    return jnp.where(x[0] > 0, -0.5 * x[0] ** 2, -jnp.inf)


# {name: (log density, exact draws)}; every function of the draws below is tested against the exact ones
DENSITIES = {
    "normal": (lambda x: -0.5 * x @ x, lambda r: r.normal(size=(N, 1))),
    "correlated": (
        lambda x: -0.5 * x @ PRECISION @ x,
        lambda r: r.multivariate_normal(np.zeros(5), CORRELATED, N),
    ),
    "bimodal": (
        lambda x: jnp.logaddexp(jnp.log(0.7) - x[0] ** 2 / 2, jnp.log(0.3) - (x[0] - 20) ** 2 / 2),
        bimodal,
    ),
    "box": (lambda x: jnp.where(jnp.all((x > 0) & (x < 1)), 0.0, -jnp.inf), lambda r: r.random((N, 3))),
    "half-normal": (log_half_normal, lambda r: np.abs(r.normal(size=(N, 1)))),
    "cauchy": (lambda x: -jnp.log1p(x[0] ** 2), lambda r: r.standard_cauchy((N, 1))),
    "laplace": (lambda x: -jnp.abs(x).sum(), lambda r: r.laplace(size=(N, 2))),
    "funnel": (lambda x: -(x[0] ** 2) / 18 - 2 * x[0] - 0.5 * jnp.exp(-x[0]) * (x[1:] @ x[1:]), funnel),
    "stairs": (log_stairs, stairs),
    "small": (lambda x: -0.5 * (x / 1e-8) @ (x / 1e-8), lambda r: 1e-8 * r.normal(size=(N, 2))),
    "large": (lambda x: -0.5 * (x / 1e8) @ (x / 1e8), lambda r: 1e8 * r.normal(size=(N, 2))),
}
SCALE = {"small": 1e-8, "large": 1e8, "stairs": 0.3, "box": 0.5}


def sweeper(logdensity):
    """(x (n, d), widths, seed, sweeps) -> (n, d)."""

    def run(key, x, widths, sweeps):
        return slices.draw(key, x, logdensity, widths, False, False, sweeps)[0]

    compiled = jax.jit(jax.vmap(run, (0, 0, None, None)))
    return lambda x, widths, seed, sweeps=1: np.asarray(
        compiled(jax.random.split(jax.random.key(seed), len(x)), x, widths, sweeps)
    )


@pytest.mark.parametrize("name", DENSITIES)
def test_one_sweep_leaves_exact_draws_exact(name):
    """Kolmogorov and Smirnov on coordinates, sums and log densities, each against as many draws
    of its own.
    """
    logdensity, exact = DENSITIES[name]
    p, sweep = [], sweeper(logdensity)
    for n, width in enumerate((0.3, 3.0, 100.0)):
        rng = np.random.default_rng(n)
        x, fresh = exact(rng), exact(rng)
        d = x.shape[1]
        shape = np.linalg.cholesky(CORRELATED) if name == "correlated" else np.eye(d) + 0.5 * np.tri(d, k=-1)
        scale = SCALE.get(name, 1.0) * width
        widths = slices.start(d)._replace(axes=np.full(d, scale))
        widths = widths._replace(
            factor=scale / slices.SPREADS * shape if d in slices.FRAMES else widths.factor
        )
        y = sweep(x, widths, n)
        assert (y != x).mean() > 0.99  # alive
        assert np.isfinite(jax.vmap(logdensity)(y)).all()
        values = [*zip(y.T, fresh.T, strict=True), (y.sum(1), fresh.sum(1))]
        values.append(tuple(np.asarray(jax.vmap(logdensity)(a)) for a in (y, fresh)))
        p += [stats.ks_2samp(a, b).pvalue for a, b in values]
        # and the pair is as likely there and back: orders in which the larger comes first
        p.append(stats.binomtest(int((y[:, 0] > x[:, 0]).sum()), N).pvalue)
    assert min(p) > SIGNIFICANCE / len(p) / len(DENSITIES), f"{min(p):.2g} of {len(p)}"


def test_modes_far_apart_are_both_reached():
    """From one mode, with a width that spans both."""
    logdensity, exact = DENSITIES["bimodal"]
    widths = slices.start(1)._replace(axes=np.array([60.0]))
    x = sweeper(logdensity)(np.zeros((N, 1)), widths, 0, 30)
    assert stats.ks_2samp(x[:, 0], exact(np.random.default_rng(9))[:, 0]).pvalue > SIGNIFICANCE


def test_an_impossible_height_lets_nothing_in():
    """log(0) as the height of a slice would hold every point, the impossible ones too."""
    rng = np.random.default_rng(0)
    x = rng.random((N, 1))
    y = sweeper(lambda x: -jnp.inf + 0 * x[0])(x, slices.start(1), 0)
    np.testing.assert_array_equal(y, x)  # nowhere to go


# ---------------------------------------------------------------- tuning
def tuned(logdensity, x, tune, seed=0):
    due = jnp.asarray(slices.renewals(tune))

    def draw(n, carried):
        x, widths, _ = carried
        return slices.draw(
            jax.random.fold_in(jax.random.key(seed), n), x, logdensity, widths, True, due[n], 1
        )

    begin = x, jax.tree.map(jnp.asarray, slices.start(len(x))), slices.SliceInfo(*jnp.zeros(3))
    return jax.jit(lambda begin: jax.lax.fori_loop(0, tune, draw, begin))(begin)


def test_tuning_finds_scales_and_shape():
    scale = 10.0 ** np.array([-8, -3, 0, 3, 8])
    L = np.linalg.cholesky(CORRELATED)
    x, widths, info = tuned(lambda x: -0.5 * (x / scale) @ PRECISION @ (x / scale), 50 * scale, 2000)
    assert np.isfinite(x).all()
    conditional = scale / np.sqrt(np.diag(PRECISION))
    ratio = np.asarray(widths.axes) / conditional  # a slice of a normal is 3.2 sd long in the mean
    assert ((ratio > 1.5) & (ratio < 8)).all()
    found = np.asarray(widths.factor) / scale[:, None]
    np.testing.assert_allclose(found @ found.T, L @ L.T, atol=0.35)
    assert info.expansions < 4
    assert info.shrinkages < 6
    assert info.stayed == 0


def test_renewals():
    for tune in (0, 1, 2, 3, 10, 1000, 1024):
        due = slices.renewals(tune)
        assert due.shape == (tune,)
        assert not tune or due[-1]
    assert np.flatnonzero(slices.renewals(100)).tolist() == [0, 1, 3, 7, 15, 31, 99]


def test_many_coordinates_have_no_frame():
    d = max(slices.FRAMES) + 1
    widths = slices.start(d)
    assert widths.factor.shape == widths.scatter.shape == (0, 0)
    y = sweeper(lambda x: -0.5 * x @ x)(np.random.default_rng(0).normal(size=(2, d)), widths, 1)
    assert stats.kstest(y.ravel(), "norm").pvalue > SIGNIFICANCE


# ---------------------------------------------------------------- the step
def mixed():
    """A support that depends on a count, a kink, and labels."""
    n = pm.Poisson("n", 3.0)
    x = pm.Uniform("x", 0.0, 1.0 + n)
    a = pm.Laplace("a", 0.0, 1.0, shape=2)
    z = pm.Bernoulli("z", 0.4, shape=3)
    pm.Normal("y", x + a[z * 1], 0.7, observed=[0.4, 0.8, 1.9])


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        mixed()
    return model


def ready(model, tune=20, **options):
    step = pmd.ReparameterizedSlice(model=model, **options)
    step.setup_chain(np.random.default_rng(0), tune=tune, draws=20)
    return step


def walk(step, point, n=5):
    found = []
    for _ in range(n):
        point, [told] = step.step(point)
        found.append({**point, **told})
    return found


def same(a, b):
    return all(np.array_equal(p[k], q[k]) for p, q in zip(a, b, strict=True) for k in p)


def test_contract(model):
    point = model.initial_point()
    frozen = {k: np.array(v) for k, v in point.items()}
    for v in frozen.values():
        v.flags.writeable = False
    step = ready(model)
    assert [v.name for v in step.vars] == ["x_interval__", "a"]
    new, [told] = step.step(frozen)
    assert list(new) == list(point)
    assert {k: (v.dtype, v.shape) for k, v in new.items()} == {
        k: (v.dtype, v.shape) for k, v in point.items()
    }
    assert set(told) == set(step.stats_dtypes_shapes)
    np.testing.assert_allclose(told["model_logp"], model.compile_logp(mode="FAST_COMPILE")(new), rtol=1e-6)
    assert all(new[k] == point[k] for k in ("n",))
    assert (new["a"] != point["a"]).all()
    # a new chain begins anew, a saved state goes on, and so does what another process was sent
    first = walk(step, point, 8)
    step.setup_chain(np.random.default_rng(0), tune=20, draws=20)
    step.step(point)
    again = walk(step, point, 8)
    assert same(first, again)
    state = pickle.loads(pickle.dumps(step.sampling_state))
    after = walk(step, point)
    for other in (ready(model), pickle.loads(pickle.dumps(step))):
        other.sampling_state = state
        assert same(walk(other, point), after)


def test_frozen_after_tuning(model):
    step = ready(model, tune=4)
    point = walk(step, model.initial_point(), 4)[-1]
    step.stop_tuning()
    learned = step.widths
    assert (learned.axes != 1).all()
    walk(step, {k: point[k] for k in model.initial_point()})
    assert all(np.array_equal(a, b) for a, b in zip(step.widths, learned, strict=True))


def test_not_blocked_and_by_name(model):
    steps = pmd.ReparameterizedSlice(model=model, blocked=False).methods
    assert [[v.name for v in s.vars] for s in steps] == [["x_interval__"], ["a"]]
    assert [v.name for v in pmd.ReparameterizedSlice(model["a"], model=model).vars] == ["a"]


def test_changed_data_are_seen():
    with pm.Model() as model:
        data = pm.Data("data", np.zeros(3))
        mu = pm.Normal("mu", 0.0, 10.0)
        pm.Normal("y", mu, 0.01, observed=data, shape=data.shape)
        step = ready(model)
        point = model.initial_point()
        near = walk(step, point, 20)[-1]
        assert abs(near["mu"]) < 0.1
        data.set_value(np.full(5, 7.0))
        step.setup_chain(np.random.default_rng(0), tune=20, draws=20)
        assert abs(walk(step, point, 20)[-1]["mu"] - 7) < 0.1


def test_two_routes_and_nuts(model):
    """The posterior of a mixed model by pm.sample, by pmd.sample, and by NUTS with the labels beside it."""
    with model:
        step = [pmd.ReparameterizedSlice(["x", "a"]), pmd.GibbsWithGradients()]
        ours = pm.sample(2000, tune=500, chains=2, cores=1, step=step, random_seed=1, **QUIET, **FAST)
        whole = pmd.sample(
            2000,
            tune=500,
            chains=4,
            step=pmd.ReparameterizedSlice(["x", "a"]),
            thin=3,
            random_seed=1,
            **QUIET,
        )
        nuts = pmd.sample(2000, tune=1000, chains=4, thin=3, target_accept=0.95, random_seed=2, **QUIET)
    assert {"slice_expansions", "slice_shrinkages", "slice_stayed", "accept", "lp"} <= set(
        whole["sample_stats"]
    )
    tests, worst = 0, 0.0
    for name in ("x", "a", "n", "z"):
        for power in (1, 2):
            moments = []
            for tree in (ours, whole, nuts):
                draws = (
                    tree["posterior"][name]
                    .values.astype(float)
                    .reshape(*tree["posterior"][name].shape[:2], -1)
                    ** power
                )
                ess = [float(az.ess(draws[..., k], method="mean")) for k in range(draws.shape[-1])]
                moments.append((draws.mean((0, 1)), draws.var((0, 1)) / np.array(ess)))
            for first, second in ((0, 2), (1, 2)):
                z = (moments[first][0] - moments[second][0]) / np.sqrt(moments[first][1] + moments[second][1])
                worst, tests = max(worst, np.abs(z).max()), tests + z.size
    assert 2 * tests * stats.norm.sf(worst) > SIGNIFICANCE


class NoGradient(Op):
    """A square, of which PyTensor knows no gradient; JAX does it."""

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.as_tensor(x).type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] ** 2


def test_what_nuts_refuses_is_sampled():
    from pytensor.link.jax.dispatch import jax_funcify

    jax_funcify.register(NoGradient)(lambda op, **_: lambda x: x**2)
    with pm.Model() as model:
        x = pm.Flat("x")
        pm.Potential("p", -0.5 * NoGradient()(x))
        with pytest.raises(ValueError, match=r"PyTensor has none.*ReparameterizedSlice"):
            pmd.sample(**QUIET)
        idata = pmd.sample(
            4000, tune=200, chains=2, step=pmd.ReparameterizedSlice(), random_seed=1, thin=3, **QUIET
        )
    draws = idata["posterior"]["x"].values
    assert model.free_RVs
    assert abs(draws.mean()) * np.sqrt(float(az.ess(draws, method="mean"))) < 4.5
    squares = draws**2
    assert abs(squares.mean() - 1) / np.sqrt(2 / float(az.ess(squares, method="mean"))) < 4.5


def test_float32_of_a_million_nats():
    """Differences of a log density of a million nats, which 32 bits know to a tenth of a nat."""
    y = 4.3 * np.random.default_rng(0).normal(size=100_000) + 0.3
    with pm.Model():
        mu = pm.Flat("mu")
        pm.Normal("y", mu, 1.0, observed=y)
        idata = pmd.sample(
            2000, tune=300, chains=2, step=pmd.ReparameterizedSlice(), random_seed=1, dtype="float32", **QUIET
        )
    draws = idata["posterior"]["mu"].values.astype(float)
    assert idata["posterior"]["mu"].dtype == np.float32
    sd = 100_000**-0.5
    assert abs(draws.mean() - y.mean()) / (sd / np.sqrt(float(az.ess(draws, method="mean")))) < 4.5
    squares = (draws - y.mean()) ** 2
    assert abs(squares.mean() - sd**2) / (sd**2 * np.sqrt(2 / float(az.ess(squares, method="mean")))) < 4.5


@pytest.mark.slow
def test_simulation_based_calibration():
    """Ranks of the prior draw among posterior draws of a hierarchical model are uniform (Talts et
    al. 2018).
    """
    replicates, kept, thin = 500, 63, 8
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        tau = pm.HalfNormal("tau", 1.0)
        theta = pm.Normal("theta", mu, tau, shape=4)
        pm.Normal("y", theta, 0.8, shape=4)
    drawn = dict(
        zip(
            ("mu", "tau", "theta", "y"),
            pm.draw([mu, tau, theta, model["y"]], replicates, random_seed=3),
            strict=True,
        )
    )
    density = ContinuousDensity(model, ["mu", "tau_log__", "theta"], model.initial_point())
    tune = 200
    due = jnp.asarray(np.append(slices.renewals(tune), False))

    def chain(key, y, start):
        def draw(n, carried):
            q, widths, out = carried
            logdensity = density.near(q, [y])
            q, widths, _ = slices.draw(
                jax.random.fold_in(key, n), q, logdensity, widths, n < tune, due[jnp.minimum(n, tune)], 1
            )
            return q, widths, out.at[jnp.maximum(n - tune, 0) // thin].set(q)

        begin = start, jax.tree.map(jnp.asarray, slices.start(density.size)), jnp.zeros((kept, density.size))
        return jax.lax.fori_loop(0, tune + kept * thin, draw, begin)[2]

    keys = jax.random.split(jax.random.key(1), replicates)
    truth = np.concatenate([drawn["mu"][:, None], np.log(drawn["tau"])[:, None], drawn["theta"]], axis=1)
    start = np.random.default_rng(2).normal(size=truth.shape)
    draws = np.asarray(jax.jit(lambda *a: jax.lax.map(lambda one: chain(*one), a))(keys, drawn["y"], start))
    ranks = (draws < truth[:, None]).sum(axis=1)  # 0..63
    p = []
    for k in range(truth.shape[1]):
        p.append(stats.chisquare(np.bincount(ranks[:, k] // 8, minlength=8)).pvalue)
    assert min(p) > SIGNIFICANCE / len(p)


# ---------------------------------------------------------------- refusals
def refused_models():
    x = pm.Normal("x")
    pm.Bernoulli("b", 0.5)
    pm.Dirichlet("w", np.ones(3), default_transform=None)
    pm.Normal("y", x, 1, observed=0.0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"vars": "b"}, ValueError, "'b' is discrete .*AutoStep"),
        ({"vars": "q"}, ValueError, "no variable 'q'.*continuous free variables: 'x'"),
        ({"vars": "y"}, ValueError, "'y' is observed"),
        ({"vars": ["x", "x"]}, ValueError, "named twice"),
        ({"vars": []}, ValueError, "at least one continuous"),
        (
            {"vars": "w"},
            ValueError,
            "'w' is a constrained array .Dirichlet. without its transform.*default_transform",
        ),
        ({"vars": 3}, TypeError, "vars must be"),
        ({"vars": "x", "sweeps": 0}, ValueError, "sweeps must be 'auto' or an integer of at least 1.*0"),
        ({"vars": "x", "sweeps": True}, ValueError, "sweeps must be"),
        ({"vars": "x", "sweeps": "many"}, ValueError, "sweeps must be"),
        ({"vars": "x", "w": 2.0}, TypeError, "no option 'w'.*sweeps"),
        ({"vars": "x", "initial_point": {}}, ValueError, "initial_point has no value for x"),
    ],
)
def test_refusals(options, error, message):
    with pm.Model() as model:
        refused_models()
    with pytest.raises(error, match=message):
        pmd.ReparameterizedSlice(options.pop("vars"), model=model, **options)


def test_positional_options_are_refused(model):
    with pytest.raises(TypeError, match="in one list"):
        pmd.ReparameterizedSlice("x", "a", model=model)


def test_nothing_continuous():
    with pm.Model() as model:
        pm.Bernoulli("b", 0.5)
    with pytest.raises(ValueError, match="no continuous free variable"):
        pmd.ReparameterizedSlice(model=model)


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (np.inf, "inf")])
def test_infinite_density_names_its_term(value, shown):
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("bad", pt.switch(x > 100, 0.0, value))
    step = ready(model)
    with pytest.raises(SamplingError, match=rf"'bad' .{shown}"):
        step.step(model.initial_point())


def test_an_impossible_start_is_left():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 5)
        pm.Potential("p", pt.switch(x > 3.0, 0.0, -np.inf))
        idata = pmd.sample(50, tune=50, chains=2, step=pmd.ReparameterizedSlice(), random_seed=1, **QUIET)
    assert (idata["posterior"]["x"] > 3).all()
    with pm.Model() as model:
        x = pm.Normal("x", 0, 5)
        pm.Potential("p", pt.switch(x > 1e9, 0.0, -np.inf))
    step = ready(model, tune=3)
    point = walk(step, model.initial_point(), 3)[-1]
    step.stop_tuning()
    with pytest.raises(SamplingError, match=r"'x' is impossible.*initvals"):
        step.step({"x": point["x"]})


def test_a_chain_that_stands_still_says_so(caplog):
    with pm.Model() as model:
        pm.Normal("x", 1.0, 1e-18)
    step = ready(model, tune=100)
    point = {"x": np.array(1.0)}
    walk(step, point, 100)
    step.stop_tuning()
    assert "'x' all but stands still" in caplog.text
