"""Blind deconvolution (PMP, section 5.6) at the paper's size: W 5x6x6, S 100x5x9x9, 100 images of 14x14, by
PMP and by GWG.

python -m benchmarks.experiments.deconvolution [--short]

The model and its images are those of examples/blind_deconvolution.py. GWG moves W and S. With all gates
summed out, their log density is linear in each of them, so that its gradient gives the exact differences. It
starts from a draw of the prior; a second row has W fixed at the truth.
"""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.experiments import report
from examples.blind_deconvolution import FLIPPED, ON_PLACE, ON_SHAPE, convolved, graph, made, shapes
from pymc_discrete import Space, kernels, target_from_logdensity
from pymc_discrete.factor_graphs import pmp

FEATURES, SIZE, SIDE, IMAGES = 5, 6, 14, 100
SWEEPS, DRAWS, MOVES = 250, 5, 50  # moves of GWG per compiled call


def main():
    args = report.arguments(__doc__, [], steps=SWEEPS, chains=DRAWS, seconds=300)
    n, sweeps = (3, 20) if args.short else (IMAGES, args.steps)
    images = made(n, SIDE, seed=0)
    table, setting = report.Table("deconvolution", args), f"{n} images"
    density = log_density(images)
    for name, known in (("GWG", False), ("GWG, shapes known", True)):
        table.add(setting, name, partial(by_moves, images, density, known, args))
    table.add(setting, "PMP", partial(by_messages, images, density, sweeps, args))
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
    draw = jax.jit(lambda key, model: pmp(key, model, n_sweeps=sweeps).x)
    draw = draw.lower(jax.random.key(0), model).compile()
    begin = time.perf_counter()
    draws = [np.asarray(draw(key, model)) for key in jax.random.split(jax.random.key(1), args.chains)]
    seconds = time.perf_counter() - begin
    pairs = [(x[model.space.numbers("S")], x[model.space.numbers("W")]) for x in draws]
    wrong = [100 * (convolved(S, W) != images).mean() for S, W in pairs]
    densities = [float(density(S.astype(float), W.astype(float))) for S, W in pairs]
    return {
        "s": seconds / len(draws),
        "sweeps": float(sweeps),
        "wrong": np.mean(wrong),
        "best wrong": min(wrong),
        "log density": np.mean(densities),
        "best log density": max(densities),
    }


def by_moves(images, density, known, args):
    n, r = len(images), np.random.default_rng(0)
    sizes = {"S": (n, FEATURES, SIDE - SIZE + 1, SIDE - SIZE + 1)}
    sizes |= {} if known else {"W": (FEATURES, SIZE, SIZE)}
    space = Space.build(dict.fromkeys(sizes, (0, 1)), shapes=sizes)
    truth = np.zeros((FEATURES, SIZE, SIZE))
    truth[:4, :5, :5] = shapes()

    def parts(x):
        S = x[space.numbers("S")].reshape(sizes["S"])
        return S, (truth if known else x[space.numbers("W")].reshape(sizes["W"]))

    target = target_from_logdensity(lambda x: density(*parts(x)), space, differences="gradient")
    kernel, params = kernels.gibbs_with_gradients()
    run = jax.jit(lambda key, state: kernels.loop(kernel, key, state, target, params, MOVES)[0])
    prior = np.where(np.arange(space.d) < np.prod(sizes["S"]), ON_PLACE, ON_SHAPE)
    x = (r.random(space.d) < prior).astype(int)
    state, moves = kernel.init(jnp.asarray(x), target), 0
    jax.block_until_ready(run(jax.random.key(0), state))
    begin = time.perf_counter()
    while time.perf_counter() - begin < args.seconds:
        state = jax.block_until_ready(run(jax.random.fold_in(jax.random.key(1), moves), state))
        moves += MOVES
    seconds = time.perf_counter() - begin
    S, W = (np.asarray(a).astype(int) for a in parts(state.x))
    return {
        "s": seconds,
        "sweeps": moves / space.d,
        "wrong": 100 * (convolved(S, W) != images).mean(),
        "log density": float(state.logdensity),
    }


def log_density(images):
    """A function of places S (n, f, h, w) and shapes W (f, a, b), floats, to their log density, () nats.

    Every OR is written as a product, so that the log density is linear in every site.
    """
    n, rows, columns = images.shape
    h, w = rows - SIZE + 1, columns - SIZE + 1
    r, c, a, b = np.indices((rows, columns, SIZE, SIZE))
    i, j = r - a, c - b
    inside = (i >= 0) & (i < h) & (j >= 0) & (j < w)
    place = np.where(inside, i * w + j, h * w)  # h * w stands for a place outside, always off
    odds = lambda p: np.log(p / (1 - p))

    def density(S, W):
        outside = jnp.zeros((n, FEATURES, 1), S.dtype)
        places = jnp.concatenate([S.reshape(n, FEATURES, h * w), outside], axis=2)[:, :, place]
        on = 1 - jnp.prod(1 - places * W[:, None, None], axis=(1, 4, 5))
        agree = jnp.where(images == 1, on, 1 - on).sum()
        return -odds(FLIPPED) * agree + odds(ON_PLACE) * S.sum() + odds(ON_SHAPE) * W.sum()

    return density


if __name__ == "__main__":
    main()
