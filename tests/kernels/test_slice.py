"""The slice sampler: exact draws stay exact draws, what tuning learns, and ranks of prior draws."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.kernels import slice as slices

SIGNIFICANCE = 1e-3  # of all tests of a function together
N = 10_000

# A program that runs longer than it takes to compile.
optimised = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 1})


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


# {name: (log density, exact draws)}; every function of the draws below is tested against the exact ones
DENSITIES = {
    "correlated": (
        lambda x: -0.5 * x @ PRECISION @ x,
        lambda r: r.multivariate_normal(np.zeros(5), CORRELATED, N),
    ),
    "bimodal": (
        lambda x: jnp.logaddexp(jnp.log(0.7) - x[0] ** 2 / 2, jnp.log(0.3) - (x[0] - 20) ** 2 / 2),
        bimodal,
    ),
    "cauchy": (lambda x: -jnp.log1p(x[0] ** 2), lambda r: r.standard_cauchy((N, 1))),
    "funnel": (lambda x: -(x[0] ** 2) / 18 - 2 * x[0] - 0.5 * jnp.exp(-x[0]) * (x[1:] @ x[1:]), funnel),
    "stairs": (log_stairs, stairs),
    "small": (lambda x: -0.5 * (x / 1e-8) @ (x / 1e-8), lambda r: 1e-8 * r.normal(size=(N, 2))),
}
SCALE = {"small": 1e-8, "stairs": 0.3}


def sweeper(logdensity):
    """(x (n, d), widths, seed, sweeps) -> (n, d), and the log densities there (n,)."""

    @optimised
    def compiled(key, x, widths, sweeps):
        def run(key, x):
            y = slices.slice_draw(key, x, logdensity, widths, False, False, sweeps)[0]
            return y, logdensity(y)

        return jax.vmap(run)(jax.random.split(key, len(x)), x)

    return lambda x, widths, seed, sweeps=1: tuple(
        map(np.asarray, compiled(jax.random.key(seed), x, widths, sweeps))
    )


@pytest.mark.parametrize("name", DENSITIES)
@pytest.mark.by_default("small", "stairs")
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
        widths = slices.initial_widths(d)._replace(axes=np.full(d, scale))
        widths = widths._replace(
            factor=scale / slices.SPREADS * shape if d in slices.FRAMES else widths.factor
        )
        y, logp = sweep(x, widths, n)
        assert (y != x).mean() > 0.99  # alive
        assert np.isfinite(logp).all()
        values = [*zip(y.T, fresh.T, strict=True), (y.sum(1), fresh.sum(1))]
        values.append((logp, sweep(fresh, widths, n, 0)[1]))
        p += [stats.ks_2samp(a, b).pvalue for a, b in values]
        # and the pair is as likely there and back: orders in which the larger comes first
        p.append(stats.binomtest(int((y[:, 0] > x[:, 0]).sum()), N).pvalue)
    assert min(p) > SIGNIFICANCE / len(p) / len(DENSITIES), f"{min(p):.2g} of {len(p)}"
    if name == "bimodal":  # and from one mode both are reached, with a width that spans them
        widths = slices.initial_widths(1)._replace(axes=np.array([60.0]))
        x, _ = sweep(np.zeros((N, 1)), widths, 0, 30)
        assert stats.ks_2samp(x[:, 0], exact(np.random.default_rng(9))[:, 0]).pvalue > SIGNIFICANCE


def test_an_impossible_height_lets_nothing_in():
    """log(0) as the height of a slice would hold every point, the impossible ones too."""
    rng = np.random.default_rng(0)
    x = rng.random((N, 1))
    y, _ = sweeper(lambda x: -jnp.inf + 0 * x[0])(x, slices.initial_widths(1), 0)
    np.testing.assert_array_equal(y, x)  # nowhere to go


# ---------------------------------------------------------------- tuning
def tuned(logdensity, x, tune, seed=0):
    def draw(n, carried):
        x, widths, _ = carried
        return slices.slice_draw(
            jax.random.fold_in(jax.random.key(seed), n),
            x,
            logdensity,
            widths,
            True,
            slices.renewal_due(n, tune),
            1,
        )

    begin = x, jax.tree.map(jnp.asarray, slices.initial_widths(len(x))), slices.SliceInfo(*jnp.zeros(3))
    return jax.jit(lambda begin: jax.lax.fori_loop(0, tune, draw, begin))(begin)


@pytest.mark.slow
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
        due = slices.renewal_due(np.arange(2 * tune), tune)
        assert not due[tune:].any()
        assert not tune or due[tune - 1]
    assert np.flatnonzero(slices.renewal_due(np.arange(200), 100)).tolist() == [0, 1, 3, 7, 15, 31, 99]


def test_many_coordinates_have_no_frame():
    d = max(slices.FRAMES) + 1
    widths = slices.initial_widths(d)
    assert widths.factor.shape == widths.scatter.shape == (0, 0)
    y, _ = sweeper(lambda x: -0.5 * x @ x)(np.random.default_rng(0).normal(size=(2, d)), widths, 1)
    assert stats.kstest(y.ravel(), "norm").pvalue > SIGNIFICANCE


# ---------------------------------------------------------------- posteriors
@pytest.mark.slow
def test_simulation_based_calibration():
    """Ranks of the prior draw among posterior draws of a hierarchical model are uniform (Talts et
    al. 2018).
    """
    replicates, kept, thin = 320, 63, 8
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        tau = pm.HalfNormal("tau", 1.0)
        theta = pm.Normal("theta", mu, tau, shape=4)
        pm.Normal("y", theta, 0.8, shape=4)
    drawn = dict(
        zip(
            ("mu", "tau", "theta", "y"),
            pm.draw([mu, tau, theta, model["y"]], replicates, random_seed=3, mode="FAST_COMPILE"),
            strict=True,
        )
    )
    density = ContinuousDensity(model, ["mu", "tau_log__", "theta"], model.initial_point())
    tune = 200

    def chain(key, y, start):
        def draw(n, carried):
            q, widths, out = carried
            logdensity = density.near(q, [y])
            q, widths, _ = slices.slice_draw(
                jax.random.fold_in(key, n), q, logdensity, widths, n < tune, slices.renewal_due(n, tune), 1
            )
            return q, widths, out.at[jnp.maximum(n - tune, 0) // thin].set(q)

        begin = (
            start,
            jax.tree.map(jnp.asarray, slices.initial_widths(density.size)),
            jnp.zeros((kept, density.size)),
        )
        return jax.lax.fori_loop(0, tune + kept * thin, draw, begin)[2]

    keys = jax.random.split(jax.random.key(1), replicates)
    truth = np.concatenate([drawn["mu"][:, None], np.log(drawn["tau"])[:, None], drawn["theta"]], axis=1)
    start = np.random.default_rng(2).normal(size=truth.shape)
    draws = np.asarray(optimised(lambda *a: jax.lax.map(lambda one: chain(*one), a))(keys, drawn["y"], start))
    ranks = (draws < truth[:, None]).sum(axis=1)  # 0..63
    p = []
    for k in range(truth.shape[1]):
        p.append(stats.chisquare(np.bincount(ranks[:, k] // 8, minlength=8)).pvalue)
    assert min(p) > SIGNIFICANCE / len(p)
