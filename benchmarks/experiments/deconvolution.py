"""Blind deconvolution (PMP, section 5.6) at the paper's size: W 5x6x6, S 100x5x9x9, 100 images of 14x14, by
PMP and by GWG.

python -m benchmarks.experiments.deconvolution [--short]

The model and its images are those of examples/blind_deconvolution.py. GWG moves W and S, whose log density,
all gates summed out, is linear in each of them, so that its gradient gives the exact differences; from a draw
of the prior, and once with W held at the truth.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.experiments import report
from examples.blind_deconvolution import FLIPPED, ON_PLACE, ON_SHAPE, convolved, graph, made, shapes
from pymc_discrete import Space, kernels, target_from_logdensity
from pymc_discrete.factor_graphs import pmp

FEATURES, SIZE, SIDE, IMAGES = 5, 6, 14, 100
SWEEPS, DRAWS, MOVES = 250, 5, 50  # moves of GWG between two looks at the clock


def main():
    args = report.arguments(__doc__, [], steps=SWEEPS, chains=DRAWS, seconds=300)
    n, sweeps = (3, 20) if args.short else (IMAGES, args.steps)
    images = made(n, SIDE, seed=0)
    table, setting = report.Table("deconvolution", args), f"{n} images"
    density = log_density(images)
    for name, known in (("GWG", False), ("GWG, shapes known", True)):
        table.add(setting, name, lambda k=known: by_moves(images, density, k, args))
    table.add(setting, "PMP", lambda: by_messages(images, density, sweeps, args))
    table.write(
        "Blind deconvolution",
        [
            f"{FEATURES} shapes of {SIZE}x{SIZE} and their places in {SIDE}x{SIDE} images, "
            f"{images.mean():.1%} of whose pixels are on; made of 4 shapes of 5x5.",
            "wrong: share of pixels that the draw does not reconstruct, in %; log density: of shapes, "
            "places and images, up to a constant, nats; PMP: mean and best of its draws. s: per draw, or of "
            "the run.",
            "sweep: messages all renewed, or as many moves as there are unknowns.",
        ],
    )


def by_messages(images, density, sweeps, args):
    model = graph(images, FEATURES, SIZE, SIZE)
    draw = (
        jax.jit(lambda key, model: pmp(key, model, n_sweeps=sweeps).x)
        .lower(jax.random.key(0), model)
        .compile()
    )
    begin = time.perf_counter()
    draws = [np.asarray(draw(key, model)) for key in jax.random.split(jax.random.key(1), args.chains)]
    seconds = time.perf_counter() - begin
    found = [(x[model.space.numbers("S")], x[model.space.numbers("W")]) for x in draws]
    wrong = [100 * (convolved(S, W) != images).mean() for S, W in found]
    each = [float(density(S.astype(float), W.astype(float))) for S, W in found]
    told = {
        "wrong": np.mean(wrong),
        "best wrong": min(wrong),
        "log density": np.mean(each),
        "best log density": max(each),
    }
    return {"s": seconds / len(draws), "sweeps": float(sweeps), **told}


def by_moves(images, density, known, args):
    n, r = len(images), np.random.default_rng(0)
    bounds = {"S": (n, FEATURES, SIDE - SIZE + 1, SIDE - SIZE + 1)} | (
        {} if known else {"W": (FEATURES, SIZE, SIZE)}
    )
    space = Space.build(dict.fromkeys(bounds, (0, 1)), shapes=bounds)
    truth = np.zeros((FEATURES, SIZE, SIZE))
    truth[:4, :5, :5] = shapes()

    def parts(x):
        S = x[space.numbers("S")].reshape(bounds["S"])
        return S, (truth if known else x[space.numbers("W")].reshape(bounds["W"]))

    target = target_from_logdensity(lambda x: density(*parts(x)), space, differences="gradient")
    kernel, params = kernels.gibbs_with_gradients()
    run = jax.jit(lambda key, state: kernels.loop(kernel, key, state, target, params, MOVES)[0])
    x = (r.random(space.d) < np.where(np.arange(space.d) < np.prod(bounds["S"]), ON_PLACE, ON_SHAPE)).astype(
        int
    )
    state, moves = kernel.init(jnp.asarray(x), target), 0
    jax.block_until_ready(run(jax.random.key(0), state))
    begin = time.perf_counter()
    while time.perf_counter() - begin < args.seconds:
        state = jax.block_until_ready(run(jax.random.fold_in(jax.random.key(1), moves), state))
        moves += MOVES
    S, W = (np.asarray(a).astype(int) for a in parts(state.x))
    told = {"wrong": 100 * (convolved(S, W) != images).mean(), "log density": float(state.logdensity)}
    return {"s": time.perf_counter() - begin, "sweeps": moves / space.d, **told}


def log_density(images):
    """() nats of places S (n, f, h, w) and shapes W (f, a, b), floats, with a product for each OR: linear in
    every site.
    """
    n, rows, columns = images.shape
    h, w = rows - SIZE + 1, columns - SIZE + 1
    r, c, a, b = np.indices((rows, columns, SIZE, SIZE))
    i, j = r - a, c - b
    there = (i >= 0) & (i < h) & (j >= 0) & (j < w)
    place = np.where(there, i * w + j, h * w)  # the last is nowhere
    odds = lambda p: np.log(p / (1 - p))

    def density(S, W):
        at = jnp.concatenate([S.reshape(n, FEATURES, h * w), jnp.zeros((n, FEATURES, 1), S.dtype)], axis=2)[
            :, :, place
        ]
        on = 1 - jnp.prod(1 - at * W[:, None, None], axis=(1, 4, 5))
        agree = jnp.where(images == 1, on, 1 - on).sum()
        return -odds(FLIPPED) * agree + odds(ON_PLACE) * S.sum() + odds(ON_SHAPE) * W.sum()

    return density


if __name__ == "__main__":
    main()
