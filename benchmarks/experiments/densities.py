"""Densities of the plane in 32 bits: points, their log densities, and how well a model has learned them.

Points of the plane become two numbers of 16 bits in Gray code.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from pymc_discrete import Space, learning

BITS, RANGE = 16, 4.0
POINTS, COUNTED = 20_000, 2_000_000  # points to learn from, and those that the density is counted from
CELLS = 8  # bits of each coordinate that the density depends on
REPEATS, CHECKED = 10, 2000  # samples of test points, and the points of each
COMPARED = 5  # samples of test points that an energy is compared with
BASE = 250_000  # draws of independent bits, for log Z and as draws of an energy
SPACE = Space.build({"x": (0, 1)}, shapes={"x": (2 * BITS,)})


def scaled(points):
    """Points whose largest coordinate is below `RANGE`."""
    return points / np.abs(points).max() * 0.95 * RANGE


def bits_of(points):
    """(n, 32) int, Gray codes of points (n, 2)."""
    numbers = ((points + RANGE) / (2 * RANGE) * 2**BITS).astype(int).clip(0, 2**BITS - 1)
    gray = numbers ^ (numbers >> 1)
    return (gray[:, :, None] >> np.arange(BITS)[::-1] & 1).reshape(len(points), -1)


def points_of(bits):
    """(n, 2) float, the points with these Gray codes (n, 32)."""
    binary = np.bitwise_xor.accumulate(np.asarray(bits).reshape(-1, 2, BITS), axis=2)
    return (binary @ 2 ** np.arange(BITS)[::-1] + 0.5) / 2**BITS * 2 * RANGE - RANGE


# ---------------------------------------------------------------- points
def rings(r, n):
    """Two circles."""
    radius, angle = r.choice([1.0, 2.0], n), 2 * np.pi * r.random(n)
    return radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) + 0.1 * r.normal(size=(n, 2))


def moons(r, n):
    """Two half circles, one within the other's reach."""
    angle, which = np.pi * r.random(n), r.integers(2, size=n)
    x = np.where(which, 1 - np.cos(angle), np.cos(angle)) - 0.5
    y = np.where(which, 0.5 - np.sin(angle), np.sin(angle)) - 0.25
    return np.stack([x, y], 1) + 0.1 * r.normal(size=(n, 2))


def eight(r, n):
    """Eight normals on a circle."""
    angle = 2 * np.pi * r.integers(8, size=n) / 8
    return 4 * np.stack([np.cos(angle), np.sin(angle)], 1) + 0.5 * r.normal(size=(n, 2))


def pinwheel(r, n):
    """Five bent arms."""
    radial, tangential = 1 + 0.3 * r.normal(size=n), 0.05 * r.normal(size=n)
    angle = 2 * np.pi * r.integers(5, size=n) / 5 + 0.25 * np.exp(radial)
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1).reshape(-1, 2, 2)
    return np.einsum("ni,nij->nj", np.stack([radial, tangential], 1), turn)


def spirals(r, n):
    """Two arms."""
    t = 3 * np.pi * np.sqrt(r.random(n))
    arm = np.stack([-np.cos(t) * t, np.sin(t) * t], 1)
    return np.where(r.integers(2, size=n)[:, None], arm, -arm) / 3 + 0.1 * r.normal(size=(n, 2))


def swissroll(r, n):
    """One arm."""
    t = 1.5 * np.pi * (1 + 2 * r.random(n))
    return np.stack([t * np.cos(t), t * np.sin(t)], 1) + r.normal(size=(n, 2)) * 0.5


def checkerboard(r, n):
    """Every other square."""
    x, y = 4 * r.random(n) - 2, r.random(n) - 2 * r.integers(2, size=n)
    return np.stack([x, y + np.floor(x) % 2], 1)


DENSITIES = {
    "swissroll": swissroll,
    "circles": rings,
    "moons": moons,
    "8gaussians": eight,
    "pinwheel": pinwheel,
    "2spirals": spirals,
    "checkerboard": checkerboard,
}


# ---------------------------------------------------------------- densities
class Plane(NamedTuple):
    """A density of the plane.

    Attributes
    ----------
    data : (POINTS, 32) int
    tests : (n, N, 32) int, n samples that are not learned from
    log_cells : (256, 256) float, nats, log probabilities of the states of each cell
    """

    data: np.ndarray
    tests: np.ndarray
    log_cells: np.ndarray

    def log_density(self, x):
        """() float, nats, of x (32,) bits; -inf where no point was counted."""
        bits = jnp.cumsum(x.reshape(2, BITS)[:, :CELLS], axis=1) % 2  # Gray code
        row, column = bits @ 2 ** np.arange(CELLS)[::-1]
        return jnp.asarray(self.log_cells)[row, column]


def plane_of(name, short):
    """The density with this name."""
    repeats, checked = (2, 200) if short else (REPEATS, CHECKED)
    counted = 20_000 if short else COUNTED
    shown = POINTS + repeats * checked
    points = scaled(DENSITIES[name](np.random.default_rng(0), counted + shown))
    bits = bits_of(points[:shown])
    cells = ((points[shown:] + RANGE) / (2 * RANGE) * 2**CELLS).astype(int).clip(0, 2**CELLS - 1)
    counts = np.bincount(cells @ [2**CELLS, 1], minlength=4**CELLS).reshape(2**CELLS, 2**CELLS)
    with np.errstate(divide="ignore"):
        log_cells = np.log(counts / counted) - 2 * (BITS - CELLS) * np.log(2)
    return Plane(bits[:POINTS], bits[POINTS:].reshape(repeats, checked, 2 * BITS), log_cells)


def independent(data):
    """(32,) float, the probabilities of ones of independent bits, with 0.02 of a uniform distribution."""
    return 0.98 * data.mean(axis=0) + 0.01


# ---------------------------------------------------------------- how well they are learned
def discrepancies(draws, test):
    """The columns of MMD^2 of samples (n, N, 32) from as many samples of the data."""
    ways = {
        "H-MMD^2": lambda x, y: learning.squared_mmd(x, y, scale=10.0, unbiased=True),
        "E-MMD^2": lambda x, y: learning.squared_mmd(
            points_of(x), points_of(y), kernel="rbf", scale=0.1, unbiased=True
        ),
    }
    row = {}
    for name, way in ways.items():
        each = 1e4 * np.array([float(way(x, y)) for x, y in zip(draws, test, strict=True)])
        row |= {name: each.mean(), f"{name} se": each.std(ddof=1) / np.sqrt(len(each))}
    return row


def of_data(plane):
    """What no model can be better than."""
    nll = -np.asarray(jax.vmap(plane.log_density)(jnp.asarray(plane.tests[0])))
    return {"NLL": nll[np.isfinite(nll)].mean()}


def weighed(model, params, plane, n):
    """The columns of the likelihood, and draws of the model as many as test points, by draws of its base."""
    key_base, key_choice = jax.random.split(jax.random.key(5))
    log_base, test = jnp.asarray(model.log_base), plane.tests[:COMPARED]
    x = jax.random.categorical(key_base, log_base, shape=(n, len(log_base)))
    log_p = jax.jit(lambda x: jax.lax.map(model.density(params).logdensity, x, batch_size=1000))
    log_q = lambda x: log_base[jnp.arange(len(log_base)), x].sum(axis=-1)
    log_w = log_p(x) - log_q(x)
    log_z = logsumexp(log_w) - jnp.log(n)
    w = jnp.exp(log_w - log_w.max())
    nll = log_z - log_p(jnp.asarray(test[0])).mean()
    row = {"NLL": float(nll), "+-": float(w.std() / w.mean() / jnp.sqrt(n))}
    chosen = jax.random.choice(key_choice, n, (test[..., 0].size,), p=w / w.sum())
    return row, np.asarray(x[chosen]).reshape(test.shape)
