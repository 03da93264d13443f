"""Targets against PyMC's own log density, over all neighbours of random points."""

import jax
import numpy as np
import pymc as pm
import pytest
from pytensor.compile.mode import Mode
from pytensor.link.vm import VMLinker

import pymc_discrete as pmd
from tests.tools import interpreted as interpreter

UNREWRITTEN = Mode(VMLinker(use_cloop=False, c_thunks=False), optimizer=None)
RNG = lambda seed: np.random.default_rng(seed)
both = interpreter.interpreted(lambda target, x: (target.logdensity(x), target.differences(x)))
of_states = interpreter.interpreted(
    lambda target, x, states: (jax.vmap(target.logdensity)(states), target.differences(x))
)


def oracle(model):
    """The model's log density; where PyMC refuses parameters or an index, the density is zero."""
    return with_zeros(model.compile_logp(mode="FAST_COMPILE"))


def unrewritten(model):
    """As `oracle`, by the graph as PyMC wrote it, node by node: for a model that has a few hundred states.

    PyTensor takes several times as long to rewrite such a graph as to evaluate it at these states.
    """
    return with_zeros(model.compile_logp(mode=UNREWRITTEN))


def with_zeros(f):
    """A compiled log density, as a function that is -inf where PyMC raises or finds nan."""

    def logp(point):
        try:
            with np.errstate(all="ignore"):
                value = float(f(point))
        except (pm.logprob.utils.ParameterValueError, IndexError):
            return -np.inf
        return -np.inf if np.isnan(value) else value

    return logp


def possible_states(target, logp, count=4):
    """The target at its start, and random states of positive density that meet all constraints."""
    rng, found = np.random.default_rng(1), []
    x, at = target.at(target.density.start)
    for _ in range(300):
        y = x.copy()
        for start, v in target.space.blocks:
            sites = slice(start, start + v.size)
            if v.constraint is not None:
                y[sites] = v.constraint.random(v.lower, v.upper, rng)
            else:
                y[sites] = rng.integers(v.lower, np.minimum(v.upper, 6) + 1)
        if np.isfinite(logp(at.point(y))):
            found.append(y)
        if len(found) == count:
            return at, found
    raise AssertionError("no states of positive density")


def random_points(model, target, r, n=2):
    """Points of positive density: continuous variables jittered, discrete ones walked to random
    neighbours.
    """
    logp, found, initial = oracle(model), [], model.initial_point()
    for _ in range(100):
        start = {
            k: v + 0.3 * r.normal(size=np.shape(v)) if v.dtype.kind == "f" else v for k, v in initial.items()
        }
        x, at = target.at(start)
        values, inside = at.space.neighbours(x)
        y = np.array([r.choice(np.append(v[i], now)) for v, i, now in zip(values, inside, x, strict=True)])
        for z in (y, np.where(r.random(len(x)) < 0.3, y, x)):
            point = at.point(z)
            if np.isfinite(logp(point)):
                found.append(point)
                break
        if len(found) == n:
            return found, logp
    raise AssertionError("no point of positive density")


def densities_and_differences(target, x, others=()):
    """((1 + n,), (d, K)) nats, the log densities of the state x and of n others, and the differences at x.

    Parameters
    ----------
    others : (n, d) int, at most d K states
    """
    # in an array of one size for all points, so that they share a program
    states = np.broadcast_to(x, (1 + target.space.d * target.space.K, len(x))).copy()
    states[1 : 1 + len(others)] = np.reshape(others, (len(others), len(x)))
    with pytest.MonkeyPatch.context() as patch:
        # two programs in one, each of which may be as large as any
        patch.setattr(interpreter, "LARGEST", 2 * interpreter.LARGEST)
        densities, differences = of_states(target, x, states)
    return densities[: 1 + len(others)], differences


def compare(model, names=None, *, how="auto", tolerance=1e-9, **options):
    """(got, want) differences over all finite neighbours; asserts where they must be 0, -inf or (if exact)
    equal.

    The tolerance is relative to 1 + |log density|: PyMC's value is a difference of sums, good to about 1e-13
    of their size; what is above that is the difference between PyTensor's unrewritten and rewritten formulas.
    """
    target = pmd.target_from_model(model, names, differences=how, **options)
    exact = target.exact
    points, logp = random_points(model, target, RNG(1))
    got, want = [], []
    for point in points:
        x, at = target.at(point)
        values, inside = at.space.neighbours(x)
        current = values == x[:, None]
        moves = [(i, k) for i, k in np.argwhere(inside & ~current)]
        there = np.array([np.where(np.arange(len(x)) == i, values[i, k], x) for i, k in moves])
        (density, *densities), d = densities_and_differences(at, x, there)
        assert d.shape == values.shape == inside.shape == (at.space.d, at.space.K)
        assert not np.isnan(d).any()
        assert (d[inside & current] == 0).all()
        assert (d[~inside] == -np.inf).all()
        base = logp(point)
        for (i, k), y, then in zip(moves, there, densities, strict=True):
            true = logp(at.point(y)) - base
            size = tolerance * (1 + abs(base) + (abs(true) if np.isfinite(true) else 0))
            np.testing.assert_allclose(
                then - density,
                true,
                atol=size,
                rtol=0,
                err_msg=f"log density at {at.space.sites[i]} -> {y[i]}",
            )
            if exact:
                np.testing.assert_allclose(
                    d[i, k], true, atol=size, rtol=0, err_msg=f"difference of {at.space.sites[i]} -> {y[i]}"
                )
            if np.isfinite(true):
                got.append(d[i, k])
                want.append(true)
    return target, np.array(got), np.array(want)


def assert_close(got, want):
    """Equal where infinite; elsewhere to rounding: sums of about 100 terms of size up to 1e2, over 100
    transitions.
    """
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    finite = np.isfinite(want)
    np.testing.assert_allclose(np.asarray(got)[finite], np.asarray(want)[finite], rtol=1e-10, atol=1e-10)
