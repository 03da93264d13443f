"""Differentiable slice sampling: gradients against finite differences, exact invariance, and where a gradient
is not known.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import pymc_discrete  # noqa: F401  (float64)
from pymc_discrete.variational.differentiable_slice import differentiable_slice_sample, ends, same_class
from tests.tools.interpreted import interpreted

KEY = jax.random.key(1)
RNG = np.random.default_rng(0)
ENDLESS = (-np.inf, np.inf)


def normal(params, x):
    return -0.5 * jnp.sum(((x - params["mean"]) * jnp.exp(-params["log_scale"])) ** 2)


def scale_only(params, x):
    return -0.5 * jnp.sum((x / params) ** 2)


def logcosh(params, x):
    z = (x - params[0]) / params[1]
    return -jnp.sum(jnp.logaddexp(z, -z))


def several(params, x):
    """Of every kind, in coordinates of their own or together."""
    return (
        scale_only(params["scale"], x[:1])
        + normal(params["normal"], x[1:2])
        + logcosh(params["logcosh"], x[2:])
        + jax.nn.log_sigmoid(np.array([1, -1, 1]) * (params["features"] @ x[1:3])).sum()
    )


def mixture(params, x):
    """Of two normals, the second at `apart` from 0."""
    far = -0.5 * jnp.sum(((x - params["apart"]) / params["width"]) ** 2) - x.size * jnp.log(params["width"])
    return jnp.logaddexp(-0.5 * jnp.sum(x**2), params["log_odds"] + far)


def half_normal(params, x):
    return -0.5 * jnp.sum((x / params) ** 2)


def gamma(params, x):
    return jnp.sum((params[0] - 1) * jnp.log(x) - params[1] * x)


def edges(params, x):
    """A uniform density, a half-normal, an exponential, one that is 0 at its edge, and one far from 0."""
    return (
        half_normal(params["width"], x[1:2])
        + gamma(params["gamma"], x[3:4])
        - params["rates"] @ (x - np.array([0, 0, 0, 0, FAR]))[jnp.array([2, 4])]
    )


def beta(params, x):
    return jnp.sum((params[0] - 1) * jnp.log(x) + (params[1] - 1) * jnp.log1p(-x))


def flat(params, x):
    return params * 0.0


NORMAL = {"mean": np.array([1.0]), "log_scale": np.array([0.3])}
INSIDE = {
    "scale": np.array(1.7),
    "normal": NORMAL,
    "logcosh": np.array([0.5, 1.3]),
    "features": RNG.normal(size=(3, 2)),
}
APART = {"apart": np.array(3.0), "width": np.array(0.6), "log_odds": np.array(0.4)}
FAR = 1e3
AT_EDGES = {"width": np.array(1.5), "gamma": np.array([2.5, 1.5]), "rates": np.array([0.5, 0.8])}
LOWER, UPPER = np.array([0.0, 0.0, 0.0, 0.0, FAR]), np.array([1.0, *[np.inf] * 4])
# (log density, parameters, start, support, numbers of steps)
LOG_CONCAVE = {
    "inside": (several, INSIDE, np.array([0.4, 0.4, 0.4, -1.0]), ENDLESS, (1, 10, 100)),
    "at edges": (edges, AT_EDGES, np.array([0.3, 0.7, 0.7, 0.7, FAR + 0.5]), (LOWER, UPPER), (30,)),
    "infinite at an edge": (beta, np.array([0.5, 1.5]), np.array([0.3]), (0.0, 1.0), (10,)),
}


def compare(logdensity, params, x, lengths, support=ENDLESS):
    """Relative errors of the gradients in parameters and start against finite differences, the noise held: of
    losses of the first steps.
    """
    flat, unravel = ravel_pytree((params, x))

    def losses(flat):
        path = differentiable_slice_sample(KEY, logdensity, *unravel(flat), max(lengths), support=support)
        moved = path.x - x
        terms = (jnp.cos(moved) + 0.1 * moved**2).sum(1)
        found = jnp.stack([terms[:n].mean() + moved[n - 1, 0] for n in lengths])
        return found, (found, path)

    h = 2e-4
    moves = (np.array([1, -1, 0.5, -0.5])[:, None, None] * h * np.eye(flat.size)).reshape(-1, flat.size)
    every = np.concatenate([flat[None], flat + moves])
    # gradients at all points, of which one is used: one program compiles in less time than two
    gradients, (values, paths) = jax.jit(jax.vmap(jax.jacrev(losses, has_aux=True)))(every)
    gradients, path = gradients[0], jax.tree.map(lambda a: a[0], paths)
    up, down, half_up, half_down = np.asarray(values[1:]).reshape(4, flat.size, -1)
    differences = (4 * (half_up - half_down) / h - (up - down) / (2 * h)).T / 3  # Richardson: an error of h^4
    assert path.differentiable.all()
    return np.linalg.norm(gradients - differences, axis=1) / np.linalg.norm(differences, axis=1), path


@pytest.mark.parametrize("name", LOG_CONCAVE)
@pytest.mark.by_default("at edges", "infinite at an edge")
def test_gradient_of_a_path(name):
    *given, support, lengths = LOG_CONCAVE[name]
    errors, path = compare(*given, lengths, support)
    assert errors.max() < 1e-5
    assert path.accepted.all()
    assert ((path.x >= support[0]) & (path.x <= support[1])).all()


@pytest.mark.slow
def test_gradient_of_a_path_between_modes():
    errors, _ = compare(mixture, APART, np.array([0.3, 1.0]), (1, 10))
    assert errors.max() < 1e-5


def loss_and_path(logdensity, params, key, x, checkpoint=False):
    def loss(params, x):
        path = differentiable_slice_sample(key, logdensity, params, x, 10, checkpoint=checkpoint)
        return jnp.sin(path.x).sum(), path

    return jax.value_and_grad(loss, (0, 1), has_aux=True)(params, x)


def assert_same(a, b):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), a, b)


@pytest.mark.slow
def test_chains_together_equal_each_alone():
    """Compiled side by side, with checkpoints, and interpreted one by one, without."""
    keys, x = jax.random.split(KEY, 20), RNG.normal(size=(20, 2))
    together = jax.jit(jax.vmap(partial(loss_and_path, mixture, APART, checkpoint=True)))(keys, x)
    assert not together[0][1].accepted.all()
    alone = interpreted(lambda words, x: loss_and_path(mixture, APART, jax.random.wrap_key_data(words), x))
    for i in (0, 7, 19):
        words = np.asarray(jax.random.key_data(keys[i]))
        assert_same(alone(words, x[i]), jax.tree.map(lambda a, i=i: a[i], together))


def test_parameters_may_differ_between_chains_and_be_closed_over():
    means = jnp.array([[0.0], [1.0], [5.0]])

    def last(key, mean, closed):
        given = {"log_scale": jnp.zeros(1)} | ({} if closed else {"mean": mean})
        logdensity = (lambda p, x: normal(p | {"mean": mean}, x)) if closed else normal
        return differentiable_slice_sample(key, logdensity, given, jnp.zeros(1), 5).x[-1, 0]

    def total(means, closed):
        return jax.vmap(lambda key, mean: last(key, mean, closed))(jax.random.split(KEY, 3), means).sum()

    of_params, of_closure = (
        interpreted(jax.value_and_grad(partial(total, closed=closed)))(means) for closed in (False, True)
    )
    assert_same(of_params, of_closure)
    assert (np.abs(of_params[1]) > 0.1).all()


@pytest.mark.slow
def test_memory_is_of_the_path_alone():
    """What a step keeps for the backward pass does not grow with the parameters, nor with the search."""
    params = jnp.ones(20_000)

    def kept(n_steps, checkpoint=False):
        def loss(params):
            return differentiable_slice_sample(
                KEY, lambda p, x: -jnp.sum(p * x**2), params, np.ones(1), n_steps, checkpoint=checkpoint
            ).x.sum()

        return jax.jit(jax.grad(loss)).lower(params).compile().memory_analysis().temp_size_in_bytes

    many, checkpointed = kept(30_000), kept(30_000, True)
    assert many / 30_000 < 200  # bytes a step
    assert checkpointed < many / 2


def test_ends_are_roots_and_nothing_is_rejected():
    def logdensity(scale, x):
        return scale_only(scale, x - scale * np.array([1.0, -2.0]))

    def one(key, scale):
        key_x, key_height, key_direction = jax.random.split(key, 3)
        x = scale * (np.array([1.0, -2.0]) + jax.random.normal(key_x, (2,)))
        direction = jax.random.normal(key_direction, (2,))
        direction /= jnp.linalg.norm(direction)
        log_u1 = -jax.random.exponential(key_height)
        found = ends(logdensity, scale, x, direction, log_u1, jnp.full(2, -jnp.inf), jnp.full(2, jnp.inf))
        f = (
            jax.vmap(lambda a: logdensity(scale, x + a * direction))(found.alpha)
            - log_u1
            - logdensity(scale, x)
        )
        share = jnp.array([1e-12, 1e-6, 0.5, 1 - 1e-6, 1 - 1e-12])
        again = jax.vmap(lambda s: same_class(found, s * found.alpha[0] + (1 - s) * found.alpha[1]))(share)
        return f, found.alpha, found.known, again

    run = jax.jit(jax.vmap(one, (0, None)))
    for scale in (1e-8, 1.0, 1e8):
        f, alpha, known, again = run(jax.random.split(KEY, 500), scale)
        assert np.abs(f).max() <= 1e-12
        assert (alpha * np.array([1, -1]) > 0).all()
        assert known.all()
        assert again.all()


@pytest.mark.parametrize("name", ["laplace", "quartic"])
@pytest.mark.by_default("laplace")
def test_no_log_concave_density_rejects(name):
    """A value that the compiler rounds in two ways once lost the bracket of 1 in 20 quartic roots."""
    power = {"laplace": 1, "quartic": 4}[name]
    run = jax.jit(
        jax.vmap(
            lambda key: differentiable_slice_sample(
                key, lambda p, x: -(jnp.abs(x[0]) ** power), (), np.full(1, 0.3), 200
            )
        )
    )
    path = run(jax.random.split(KEY, 150))
    assert path.accepted.all()
    assert path.differentiable.all()


def test_a_jump_has_no_gradient():
    def stepped(params, x):
        return -0.5 * jnp.sum(x**2) + 1.5 * (x[0] > params)

    def places(params, x):
        path = differentiable_slice_sample(KEY, stepped, params, x, 10)
        return path.x[:, 0], path

    (of_params, of_x), path = interpreted(jax.jacrev(places, (0, 1), has_aux=True))(0.3, np.array([0.8]))
    first = int(np.argmin(path.differentiable))
    assert first > 0
    assert path.accepted.all()  # the draws are right all the same
    assert np.isfinite(path.x).all()
    for rows in (of_params, of_x):
        assert np.isfinite(rows[:first]).all()
        assert np.isnan(rows[first]).all()


def test_an_edge_that_is_not_given_is_a_jump():
    def truncated(params, x):
        return jnp.where(x[0] > 0, -params * x[0], -jnp.inf)

    path = differentiable_slice_sample(KEY, truncated, 1.0, np.ones(1), 10)
    assert path.accepted.all()
    assert not path.differentiable.any()
    assert (path.x > 0).all()


def test_a_slope_of_zero_has_no_gradient():
    @interpreted
    def found(x):
        of = ends(
            lambda p, x: -((x[0] - 1) ** 3),
            None,
            x,
            jnp.ones(1),
            -1.0,
            jnp.full(1, -2.0),
            jnp.full(1, jnp.inf),
        )
        return of.alpha, of.known

    alpha, known = found(np.zeros(1))
    np.testing.assert_allclose(alpha, [1, -2], atol=1e-4)
    assert known.tolist() == [False, True]


@pytest.mark.parametrize("logdensity", [flat, lambda p, x: p * x[0]], ids=["flat", "rising"])
def test_an_improper_density_is_flagged(logdensity):
    def last(x):
        path = differentiable_slice_sample(KEY, logdensity, 1.0, x, 3)
        return path.x[-1, 0], path

    gradient, path = interpreted(jax.grad(last, has_aux=True))(np.array([0.5]))
    assert not path.accepted.any()
    assert not path.differentiable.any()
    assert (path.x == 0.5).all()
    assert gradient.tolist() == [1.0]


def test_float32():
    with jax.enable_x64(False):
        params, x = {"mean": jnp.ones(1), "log_scale": jnp.zeros(1)}, jnp.zeros((100, 1))
        one = partial(loss_and_path, normal, params)
        (loss, path), gradient = jax.jit(jax.vmap(one))(jax.random.split(KEY, 100), x)
        assert path.x.dtype == loss.dtype == np.float32
        assert path.accepted.mean() > 0.99
        assert path.differentiable.mean() > 0.99
        assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradient))


N_CHAINS = 6_000
MIXTURES = {
    "20 apart": (20.0, 1.0, 0.5),
    "3 apart": (3.0, 0.8, 0.0),
    "unequal widths": (4.0, 0.2, 0.0),
    "one within another": (20.0, 12.0, 1.0),
}


def drawn(name):
    """params, exact draws (N, 1), and the distribution function."""
    apart, width, log_odds = MIXTURES[name]
    share = 1 / (1 + np.exp(-log_odds))
    rng = np.random.default_rng(3)
    far = rng.random(N_CHAINS) < share
    x = np.where(far, apart + width * rng.normal(size=N_CHAINS), rng.normal(size=N_CHAINS))
    params = {"apart": apart, "width": width, "log_odds": log_odds}
    return (
        params,
        x[:, None],
        lambda x: share * stats.norm.cdf(x, apart, width) + (1 - share) * stats.norm.cdf(x),
    )


@pytest.fixture(scope="module")
def five_steps():
    """Compiled once for all mixtures."""
    return jax.jit(
        jax.vmap(lambda key, params, x: differentiable_slice_sample(key, mixture, params, x, 5), (0, None, 0))
    )


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.by_default("one within another")
def test_draws_stay_draws(name, five_steps):
    params, x, cdf = drawn(name)
    path = five_steps(jax.random.split(KEY, N_CHAINS), params, x)
    assert path.differentiable.mean() > 0.999
    assert path.accepted.all() == (name == "20 apart")
    assert np.abs(path.x[:, -1] - x).max() > 1
    assert stats.kstest(np.asarray(path.x[:, -1, 0]), cdf).pvalue > 1e-3 / len(MIXTURES)


@pytest.mark.slow
def test_a_thin_piece_beside_a_wide_one_keeps_its_mass():
    """Ends that lie near one another are not the same, in 32 bits: uniform on (0, 1) and (1.005, 1.015)."""

    def pieces(height, x):
        return jnp.where(((x[0] > 0) & (x[0] < 1)) | ((x[0] > 1.005) & (x[0] < 1.015)), height, -jnp.inf)

    x = 1.01 * np.random.default_rng(0).random((N_CHAINS, 1))
    x = np.where(x < 1, x, x + 0.005)
    with jax.enable_x64(False):
        run = jax.jit(jax.vmap(lambda key, x: differentiable_slice_sample(key, pieces, jnp.zeros(()), x, 5)))
        path = run(jax.random.split(KEY, N_CHAINS), jnp.asarray(x, float))
        inside = np.asarray((path.x > 1).sum(axis=(0, 2)))
    assert 0.5 < path.accepted.mean() < 0.6  # the search from the wide piece often ends at the thin one
    want = N_CHAINS * 0.01 / 1.01
    assert (np.abs(inside - want) < 4.5 * np.sqrt(want)).all()


def test_without_the_second_search_draws_do_not_stay_draws():
    params, x, cdf = drawn("unequal widths")

    def naive(key, x):
        def move(x, key):
            key_height, key_place = jax.random.split(key)
            log_u1 = -jax.random.exponential(key_height)
            found = ends(mixture, params, x, jnp.ones(1), log_u1, jnp.full(1, -jnp.inf), jnp.full(1, jnp.inf))
            u2 = jax.random.uniform(key_place)
            return x + u2 * found.alpha[0] + (1 - u2) * found.alpha[1], None

        return jax.lax.scan(move, x, jax.random.split(key, 5))[0]

    x = jax.jit(jax.vmap(naive))(jax.random.split(KEY, N_CHAINS), x)
    assert stats.kstest(np.asarray(x[:, 0]), cdf).pvalue < 1e-6


ONE = np.zeros(1)
REFUSED = {
    "no steps": ({"n_steps": 0}, ValueError, "n_steps must be an integer of at least 1"),
    "half a step": ({"n_steps": 1.5}, ValueError, "n_steps must be an integer"),
    "steps of truth": ({"n_steps": True}, ValueError, "n_steps must be an integer"),
    "a scalar": ({"x": 0.5}, ValueError, r"Pass a scalar as x\[None\]"),
    "chains": ({"x": np.zeros((3, 1))}, ValueError, "use jax.vmap for chains"),
    "nothing": ({"x": np.zeros(0)}, ValueError, "one point of shape"),
    "integers": ({"x": np.zeros(1, int)}, TypeError, "x must hold floats"),
    "integer parameters": (
        {"params": {"mean": ONE, "log_scale": np.zeros(1, int)}},
        TypeError,
        r"params\['log_scale'\] is of int64",
    ),
    "turned support": ({"support": (1.0, -1.0)}, ValueError, "lower < upper"),
    "nan support": ({"support": (np.nan, 1.0)}, ValueError, "lower < upper"),
    "support of another shape": (
        {"support": (np.zeros(3), 1.0)},
        ValueError,
        "support must be .lower, upper., each a number",
    ),
    "half a support": ({"support": (0.0,)}, ValueError, "support must be"),
    "support elsewhere": ({"support": (1.0, 2.0)}, ValueError, "outside of support"),
    "no function": ({"logdensity": 3.0}, TypeError, "logdensity must be a function"),
    "terms": ({"logdensity": lambda p, x: -(x**2)}, ValueError, "must return one float.*Sum over its terms"),
    "integer density": ({"logdensity": lambda p, x: jnp.int32(1)}, ValueError, "must return one float"),
    "two densities": ({"logdensity": lambda p, x: (x[0], x[0])}, ValueError, "must return one float"),
    "support by name": ({"support": {0: 0.0, 1: 1.0}}, ValueError, r"support must be \(lower, upper\)"),
    "nan": ({"x": np.full(1, np.nan)}, ValueError, "x = .nan. is nan"),
    "text": ({"x": "abc"}, TypeError, "x must be one point"),
    "text parameters": ({"params": {"mean": "q"}}, TypeError, r"params\['mean'\] must be a float"),
    "number for a key": ({"key": 0}, TypeError, r"key must be one JAX key, as jax.random.key\(0\)"),
    "keys": ({"key": jax.random.split(jax.random.key(0), 3)}, TypeError, "use jax.vmap over keys"),
    "some checkpoints": ({"checkpoint": "yes"}, ValueError, "checkpoint must be True or False"),
    "one argument": ({"logdensity": lambda x: x[0]}, TypeError, r"a function of \(params, x\)"),
    "no JAX function": ({"logdensity": lambda p, x: float(x[0])}, TypeError, "made of JAX's functions"),
    "impossible start": (
        {"logdensity": lambda p, x: jnp.log(x[0])},
        ValueError,
        "logdensity is -inf at the start",
    ),
    "nan at the start": (
        {"logdensity": lambda p, x: jnp.log(x[0] - 1)},
        ValueError,
        "logdensity is nan at the start",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    given, error, message = REFUSED[name]
    arguments = {
        "key": KEY,
        "logdensity": normal,
        "params": {"mean": ONE, "log_scale": ONE},
        "x": ONE,
        "n_steps": 2,
    } | given
    with pytest.raises(error, match=message):
        differentiable_slice_sample(**arguments)
    if "start" in name or "nan at" in name:  # and within a compiled function, where the start is known
        with pytest.raises(error, match=message):
            jax.jit(lambda key: differentiable_slice_sample(**(arguments | {"key": key})))(KEY)


def test_what_is_traced_and_may_not_be():
    params = {"mean": ONE, "log_scale": ONE}
    with pytest.raises(ValueError, match=r"support must hold plain numbers.*sample u ="):
        jax.grad(
            lambda p: differentiable_slice_sample(KEY, normal, params, ONE, 2, support=(-1.0, p)).x.sum()
        )(1.0)
    with pytest.raises(ValueError, match="let it be static"):
        jax.jit(lambda n: differentiable_slice_sample(KEY, normal, params, ONE, n).x)(2)


def test_an_impossible_start_that_is_not_known_is_flagged():
    run = jax.jit(
        lambda x, support: differentiable_slice_sample(
            KEY, gamma, np.array([2.0, 1.0]), x, 3, support=(0.0, 5.0)
        ),
        static_argnums=1,
    )
    for x in (0.0, -1.0, 7.0, np.nan):
        path = run(np.array([x]), None)
        assert not path.accepted.any()
        assert not path.differentiable.any()
