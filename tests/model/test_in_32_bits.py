"""Integers that leave 32 bits under dtype="float32": as exact as a float where they become one, exact in
comparisons, or refused.
"""

import itertools

import jax
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError

import pymc_discrete as pmd
from pymc_discrete.engine.precision import precision
from pymc_discrete.model import in_32_bits
from pymc_discrete.structure.bounds import IntegerBounds
from pymc_discrete.structure.jaxify import jaxify
from tests.tools.running import QUIET, walk

WEIGHTS = np.array([2 * 10**9, 2 * 10**9, 10**9])
TABLE = np.linspace(-1, 1, 7)
squares = lambda k: (50_000 + k) * (50_000 + k)  # 2.5e9 and more: past 2^31
cast = lambda v: pt.cast(v, "float64")

# of k (3,), each from 0 to 3
EXPRESSIONS = {
    "a sum": lambda k: (k * WEIGHTS).sum() / 1e9,
    "a product": lambda k: (squares(k) / 1e9).sum(),
    "a power": lambda k: ((1300 + k) ** 3 / 1e9).sum(),
    "a power of 2": lambda k: (2 ** (10 * k) / 1e9).sum(),
    "a product of all": lambda k: (1500 + k).prod() / 1e9,
    "a dot": lambda k: pt.dot(pt.constant(WEIGHTS), k) / 1e9,
    "a dot of two": lambda k: pt.dot(50_000 + k, 50_000 - k) / 1e9,
    "a matrix": lambda k: (pt.dot(pt.constant(np.outer([1, -1], WEIGHTS)), k) / 1e9).sum(),
    "running sums": lambda k: (pt.cumsum(k * 10**9) / 1e9).sum(),
    "running products": lambda k: (pt.cumprod(1500 + k) / 1e9).sum(),
    "a function": lambda k: (pt.gammaln(squares(k)) / 1e10).sum(),
    "a difference that cancels": lambda k: (squares(k[1:]) - squares(k[:-1])).sum() / 1e5,
    "integers themselves": lambda k: squares(k[1]) - squares(k[0]),
    "many that each stay": lambda k: -(10**9) * k[:2] + 10**9 * k[1:],
    "equality": lambda k: -1.5 * pt.eq(squares(k[0]), (50_000 + k[1]) * (50_000 + k[2])),
    "inequality": lambda k: -1.5 * cast(pt.neq(squares(k[:-1]), squares(k[1:])).sum()),
    "order": lambda k: cast(
        (squares(k[:-1]) < squares(k[1:])).sum() + 2 * (squares(k[0]) >= 50_001 * (50_000 + k[1]))
    ),
    "order beside floats": lambda k: cast((squares(k) > 2.50015e9).sum()),
    "a maximum": lambda k: (pt.maximum(squares(k[0]), 50_000 * (50_001 + k[1])) - squares(k[2])) / 1e5,
    "a minimum": lambda k: (pt.minimum(-squares(k[0]), -50_000 * (50_001 + k[1])) + squares(k[2])) / 1e5,
    "an absolute value": lambda k: abs(squares(k[0]) - squares(k[1])) / 1e5 + abs(-squares(k[2])) / 1e9,
    "clipped": lambda k: pt.clip(squares(k[0]) - squares(k[1]), -7, 2 * 10**9) / 10.0,
    "a sign": lambda k: cast(pt.sign(squares(k[0]) - squares(k[1])) * pt.sign(squares(k[2]))),
    "a condition": lambda k: (
        pt.switch(squares(k[0]) - squares(k[1]), 1.0, 0.25)
        + cast(pt.cast(squares(k[2]) - squares(k[1]), "bool"))
    ),
    "a choice": lambda k: pt.switch(pt.eq(k[0], 1), squares(k[1]), 3 * squares(k[2])) / 1e9,
    "an index": lambda k: pt.constant(TABLE)[pt.clip(squares(k[0]) - squares(k[1]) + 3, 0, 6)],
    "a selection": lambda k: squares(k)[::2].sum() / 1e9 + pt.concatenate([squares(k), k])[1] / 1e9,
    "put in its place": lambda k: (
        (pt.set_subtensor(k[:1], squares(k[1:2])).sum() + pt.inc_subtensor(squares(k)[1:], k[1:]).sum()) / 1e9
    ),
    "a shorter type": lambda k: cast(pt.cast(squares(k), "int16").sum()) / 1e4,
}


STATES = np.array(list(itertools.product(range(4), repeat=3)))


@pytest.fixture(scope="module")
def evaluated():
    """{name: the expressions at all states, with 64 bits and rewritten for 32}, each in one program."""
    k = pt.tensor("k", dtype="int64", shape=(3,))
    every = [pt.as_tensor(f(k)).sum() for f in EXPRESSIONS.values()]
    with precision("float32"):
        tensors = in_32_bits.in_32_bits(list(zip(EXPRESSIONS, every, strict=True)), {k: (0.0, 3.0)})
        narrow = jax.tree.map(np.asarray, jax.jit(jax.vmap(jaxify([k], tensors)))(STATES))
    wide = zip(*map(pytensor.function([k], every, mode="FAST_COMPILE"), STATES), strict=True)
    return dict(zip(EXPRESSIONS, zip(map(np.array, wide), narrow, strict=True), strict=True))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_as_with_64_bits(name, evaluated):
    wide, narrow = evaluated[name]
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, wide, rtol=5e-6, atol=1e-6)


def counts(expression):
    k = pm.DiscreteUniform("k", 0, 3, shape=3)
    pm.Potential("e", expression(k))


def compare(build, states):
    """The log density at all states and its differences there, with 64 bits and with 32."""
    found = []
    for dtype in ("float64", "float32"):
        with pm.Model() as model:
            build()
        with precision(dtype):
            target = pmd.target_from_model(model)
            found.append(
                jax.tree.map(
                    np.asarray,
                    jax.jit(jax.vmap(lambda x, t=target: (t.logdensity(x), t.differences(x))))(states),
                )
            )
    for wide, narrow in zip(*found, strict=True):
        assert narrow.dtype == np.float32
        np.testing.assert_allclose(
            narrow, wide, rtol=1e-5, atol=2e-6 * max(np.abs(wide[np.isfinite(wide)]).max(), 1.0)
        )


@pytest.mark.parametrize(
    "name",
    [
        "a product",
        "a difference that cancels",
        "integers themselves",
        "many that each stay",
        "equality",
        "an index",
    ],
)
@pytest.mark.by_default("integers themselves", "an index")
def test_differences(name):
    compare(lambda: counts(EXPRESSIONS[name]), STATES)


MANY = 10**7 * np.arange(11, 31) + np.arange(20) ** 3  # their sum is 4e9
MOST = MANY // 2  # theirs is not past 2^31
LINEAR = {
    "a large sum is met": lambda x: (
        -3.0 * pt.eq(pt.dot(pt.constant(MANY), x), pt.dot(pt.constant(MANY), 1 - x) + MANY[3])
    ),
    "a sum is met": lambda x: (
        -3.0 * pt.eq(pt.dot(pt.constant(MOST), x), int(MOST[:5].sum())) + 1.0 * (pt.dot(MOST, x) > 10**9)
    ),
    "two sums are in order": lambda x: (
        2.0 * (pt.dot(pt.constant(MANY), x) < pt.dot(pt.constant(MANY[::-1].copy()), x))
    ),
    "running sums are met": lambda x: -1.0 * pt.eq(pt.cumsum(MANY * x), pt.cumsum(MANY * x)[::-1]).sum(),
    "a matrix of sums": lambda x: -1.0 * pt.eq(*pt.dot(pt.constant(np.stack([MANY, MANY[::-1]])), x)),
}


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.by_default("a sum is met", "running sums are met", "two sums are in order")
def test_linear_maps(name):
    """Of many sites, so that a move adds a column to what is there."""

    def build():
        x = pm.Bernoulli("x", 0.5, shape=20)
        pm.Potential("e", LINEAR[name](x))

    r = np.random.default_rng(0)
    states = np.concatenate(
        [r.integers(0, 2, (40, 20)), [np.arange(20) < 5, np.arange(20) < 4, np.zeros(20), np.ones(20)]]
    ).astype(int)
    compare(build, states)


@pytest.mark.slow
def test_of_another_block_and_beside_nuts():
    """What the context holds is computed as well, and what a continuous variable is beside."""
    with pm.Model() as model:
        k, N, mu = (
            pm.DiscreteUniform("k", 0, 3, shape=3),
            pm.Poisson("N", 50_000.0, initval=50_000),
            pm.Normal("mu"),
        )
        pm.Normal("y", N * N / 1e9 + mu + k.sum(), 0.5, observed=3.0)
    found = {}
    for dtype in ("float64", "float32"):
        with precision(dtype):
            x, target = pmd.target_from_model(model, "k").at(model.initial_point())
            step = pmd.ReparameterizedSlice("mu", model=model)
            found[dtype] = [
                np.asarray(target.differences(x)),
                np.asarray(step.density.logdensity(model.initial_point() | step.numbers)),
            ]
    for wide, narrow in zip(*found.values(), strict=True):
        np.testing.assert_allclose(
            narrow, wide, rtol=2e-5, atol=0.05
        )  # a Poisson's terms of 5e5 nats are known to as much


# ---------------------------------------------------------------- refusals
POWER = 10**9
REFUSED = {
    "a remainder": (
        lambda k: cast(pt.mod(squares(k[0]), 7)),
        r"In 'e' the integer expression .* of 'k' reads an integer that may",
    ),
    "a division": (
        lambda k: cast(squares(k[0]) // (1 + k[1])),
        r"In 'e' .* of 'k' may leave 32 bits. Write it in floats",
    ),
    "the largest": (lambda k: cast(squares(k).max()), r"In 'e' .* of 'k' may leave 32 bits"),
    "an order": (lambda k: cast(pt.sort(squares(k))[0]), r"In 'e' .* of 'k' may leave 32 bits"),
    "a constant": (
        lambda k: cast(k[0] * 3 * POWER),
        r"a constant is or holds the integer 3000000000, which 32 bits do not hold",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    expression, message = REFUSED[name]
    with pm.Model():
        counts(expression)
        with pytest.raises(ValueError, match=message + r".*Or pass dtype='float64' to pmd.sample"):
            pmd.sample(5, tune=5, dtype="float32", **QUIET)


def far_support():
    pm.DiscreteUniform("k", 0, 4 * 10**9)


def recorded_remainder():
    pm.Deterministic("d", pt.mod(squares(pm.Poisson("k", 3.0)), 7))


def recorded_constant():
    pm.Deterministic("d", pm.Poisson("k", 3.0) * 0 + 3 * POWER)


def far_start():
    pm.Poisson("k", 3e9)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            far_support,
            ValueError,
            r"'k' may be as far as 4000000000 from 0, which 32 bits do not hold\. Or pass dtype='float64'",
        ),
        (
            recorded_remainder,
            ValueError,
            r"In 'd' the integer expression .* of 'k' reads an integer that may leave 32 bits",
        ),
        (recorded_constant, ValueError, r"In 'd' .* holds the integer 3000000000"),
        (far_start, SamplingError, r"'k' (went as far as|starts outside its support)"),
    ],
)
def test_models_that_32_bits_do_not_hold(build, error, message):
    with pm.Model():
        build()
        with pytest.raises(error, match=message):
            pmd.sample(5, tune=5, dtype="float32", **QUIET)


@pytest.mark.slow
def test_counts_are_watched(monkeypatch):
    with pm.Model() as model:
        pm.Poisson("k", 90.0)
    monkeypatch.setattr(in_32_bits, "ASSUMED_BOUND", 95)
    with (
        model,
        pytest.raises(
            SamplingError,
            match=r"'k' went as far as \d+: integers of 32 bits end at 2147483647. Or pass dtype='float64'",
        ),
    ):
        pmd.sample(200, tune=10, dtype="float32", random_seed=1, **QUIET)
    with precision("float32"):
        step, point = pmd.BlockGibbs(model=model), model.initial_point()
        with pytest.raises(SamplingError, match="'k' went as far as"):
            walk(step, point, 200)


# ---------------------------------------------------------------- what is recorded
@pytest.mark.slow
def test_posteriors_and_recorded_integers():
    """A sum of weights and a cube past 2^31, against enumeration; integers beside them are recorded whole."""
    with pm.Model():
        z = pm.Bernoulli("z", 0.5, shape=4)
        pm.Normal("y", (z * np.array([2, 2, 1, 1]) * 10**9).sum() / 1e9, 1, observed=4.0)
        N = pm.Poisson("N", 1300.0)
        pm.Normal("of N", N**3 / 1e9, 0.2, observed=[2.3])
        k = pm.Poisson("k", 50_000.0)
        n = pm.Poisson("n", 3.0, shape=4)
        pm.Deterministic("square", k * k)
        pm.Deterministic("minus cube", -(k**3))
        pm.Deterministic("total", n.sum())
        pm.Deterministic("all", pt.stack([k * k * (1 - 2 * z[0]), n[0], z.sum()]))
        pm.Deterministic("root", pt.sqrt(k * k))
        pm.Deterministic("on", z.sum())
        steps = [pmd.GibbsWithGradients(["z", "n"]), pmd.AutoStep(["N", "k"])]
        idata = pmd.sample(5000, tune=300, chains=2, random_seed=1, dtype="float32", step=steps, **QUIET)
    check_recorded(idata)
    states = np.array(list(itertools.product(range(2), repeat=4)))
    prob = np.exp(-0.5 * (states @ [2, 2, 1, 1] - 4.0) ** 2)
    prob /= prob.sum()
    draws = idata["posterior"]["z"].values.reshape(-1, 4)
    share = np.array([(draws == s).all(axis=1).mean() for s in states])
    assert np.abs(share - prob).max() < 0.02  # 3 standard errors of 1,000 effective draws
    values = np.arange(1100, 1500)
    logp = (
        values * np.log(1300.0)
        - np.cumsum(np.log(np.arange(1, 1500)))[values - 1]
        - 0.5 * ((values**3 / 1e9 - 2.3) / 0.2) ** 2
    )
    prob = np.exp(logp - logp.max())
    mean = prob @ values / prob.sum()
    assert abs(idata["posterior"]["N"].values.mean() - mean) < 4  # sd 23


def check_recorded(idata):
    drawn = {
        name: a.values.astype(np.int64)
        for name, a in idata["posterior"].data_vars.items()
        if name in ("k", "n", "z")
    }
    k, n, z = drawn["k"], drawn["n"], drawn["z"]
    whole = {
        "square": k * k,
        "minus cube": -(k**3),
        "total": n.sum(-1),
        "all": np.stack([k * k * (1 - 2 * z[..., 0]), n[..., 0], z.sum(-1)], axis=-1),
        "on": z.sum(-1),
    }
    for name, values in whole.items():
        kept = idata["posterior"][name].values
        assert kept.dtype.kind == "i"
        np.testing.assert_array_equal(kept, values, err_msg=name)
    np.testing.assert_allclose(idata["posterior"]["root"].values, k, rtol=1e-6)


# ---------------------------------------------------------------- bounds
def test_bounds_hold_for_every_state():
    k, m = (pt.tensor(name, dtype="int64", shape=(3,)) for name in "km")
    matrix = np.random.default_rng(0).integers(-5, 6, size=(4, 3))
    made = [
        k + m,
        k - m,
        k * m,
        -k,
        abs(k),
        pt.sqr(k),
        k**3,
        pt.maximum(k, m),
        pt.minimum(k, m),
        pt.clip(k, -1, 1),
        pt.switch(k > 0, k, 5 * m),
        k // 3,
        k % 4,
        k.sum(),
        k.prod(),
        k.max(),
        pt.cumsum(k),
        pt.cumprod(k),
        pt.dot(matrix, k),
        pt.dot(k, matrix.T),
        pt.dot(k, m),
        k[::2] * 2,
        pt.set_subtensor(k[0], 7 * m[1]),
        pt.inc_subtensor(k[[0, 0]], m[:2]),
        pt.bitwise_and(k, m),
        pt.bitwise_or(k, m),
        pt.invert(k),
        pt.sign(k),
        pt.concatenate([k, 3 * m]),
        pt.stack([k[0], m[1]]),
        pt.outer(k, m),
        pt.eq(k, m).sum(),
        pt.cast(100 * k, "int8"),
        pt.sort(k),
        pt.arange(k[0], 1 + abs(m[0]) + abs(k[0])),
        pt.diag(k),
    ]
    f = pytensor.function([k, m], made, mode="FAST_COMPILE")
    for (low, high), (bottom, top) in (((-3, 2), (0, 4)), ((1, 3), (-4, -1)), ((0, 2), (0, 3))):
        bounds = IntegerBounds({k: (low, high), m: (bottom, top)})
        limits = [bounds.of(v) for v in made]
        for a in itertools.product(range(low, high + 1), repeat=3):
            for b in itertools.product((bottom, top), repeat=3):
                for v, value, (least, most) in zip(made, f(np.array(a), np.array(b)), limits, strict=True):
                    assert value.size == 0 or (least <= value.min() and value.max() <= most), v
