"""Blind deconvolution: which shapes, put where, made these images?

Binary images are made by placing a few unknown shapes at unknown places; where shapes overlap, a pixel is on
if one of them turns it on. The shapes W and the places S are all unknown, and permuting the shapes changes
nothing: a posterior in which samplers that move one unknown at a time get stuck at once.
Perturb-and-max-product draws shapes and places together, by messages through an AND for every pixel of every
shape at every place and an OR for every pixel of every image (Lazaro-Gredilla, Dedieu and George 2021,
section 5.6). Its draws are approximate.

    python examples/blind_deconvolution.py [--images 20] [--sweeps 250] [--draws 3] [--short]

With --images 100 it is as large as the paper's.
"""

import argparse
import time
from pathlib import Path

import jax
import matplotlib
import numpy as np

import pymc_discrete as pmd
from pymc_discrete.factor_graphs import LogicalAnd, LogicalOr, pmp

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
ON_SHAPE, ON_PLACE = 0.3, 0.001  # prior probabilities
FLIPPED = (
    5e-5  # of a pixel; with 0 what speaks against a wrong shape has no bound, and messages grow without end
)
# those that made the images: 5 x 5 pixels
SHAPES = """
.###.  #...#  #####  ..#..
#...#  .#.#.  #....  ..#..
#...#  ..#..  ###..  #####
#...#  .#.#.  #....  ..#..
.###.  #...#  #....  ..#..
"""


def shapes() -> np.ndarray:
    """(4, 5, 5)"""
    rows = [line.split() for line in SHAPES.strip().splitlines()]
    return np.array([[[pixel == "#" for pixel in row[f]] for row in rows] for f in range(4)]).astype(int)


def convolved(S: np.ndarray, W: np.ndarray) -> np.ndarray:
    """(n, h + a - 1, w + b - 1) images: shapes W (f, a, b) at places S (n, f, h, w)."""
    n, _, h, w = S.shape
    images = np.zeros((n, h + W.shape[1] - 1, w + W.shape[2] - 1), int)
    for f, a, b in np.argwhere(W):
        images[:, a : a + h, b : b + w] |= S[:, f]
    return images


def made(n: int, side: int, seed: int) -> np.ndarray:
    """(n, side, side) images of the four shapes, two or three in each."""
    r, W = np.random.default_rng(seed), shapes()
    S = np.zeros((n, len(W), side - 4, side - 4), int)
    for image in S:
        for _ in range(r.integers(2, 4)):
            image[tuple(r.integers(image.shape))] = 1
    return convolved(S, W)


def graph(images: np.ndarray, features: int, height: int, width: int) -> pmd.FactorGraph:
    """The factor graph of W (features, height, width), S (n, features, h, w), U, whether a pixel of a shape
    is on at a place, and X, the images before some of their pixels were flipped.
    """
    n, rows, columns = images.shape
    h, w = rows - height + 1, columns - width + 1
    sizes = {
        "W": (features, height, width),
        "S": (n, features, h, w),
        "U": (n, features, h, w, height, width),
        "X": images.shape,
    }
    space = pmd.Space.build(dict.fromkeys(sizes, (0, 1)), shapes=sizes)
    W, S, U, X = (space.numbers(name) for name in sizes)
    _, f, i, j, a, b = np.indices(U.shape)
    both = LogicalAnd(np.stack([S[..., None, None] + 0 * U, W[f, a, b]], axis=-1).reshape(-1, 2), U.ravel())
    pixel = X[np.arange(n).reshape(-1, 1, 1, 1, 1, 1), i + a, j + b].ravel()
    order = np.argsort(pixel, kind="stable")
    parents = np.split(U.ravel()[order], np.cumsum(np.bincount(pixel[order] - X.min()))[:-1])
    one = LogicalOr(parents, X.ravel())
    unary = {
        name: np.broadcast_to(np.log([1 - p, p]), (*sizes[name], 2))
        for name, p in (("W", ON_SHAPE), ("S", ON_PLACE))
    }
    unary["X"] = np.log(np.where(images[..., None] == [0, 1], 1 - FLIPPED, FLIPPED))
    return pmd.FactorGraph(space, [both, one], unary)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--side", type=int, default=14, help="of an image, in pixels")
    parser.add_argument("--features", type=int, default=5, help="shapes to look for: one more than there are")
    parser.add_argument(
        "--size", type=int, default=6, help="of a shape: a row and a column more than they have"
    )
    parser.add_argument("--sweeps", type=int, default=250)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="few small images, for a test run")
    parser.add_argument("--figure", type=Path, default=HERE / "blind_deconvolution.png")
    args = parser.parse_args()
    if args.short:
        args.images, args.side, args.sweeps, args.draws = 3, 9, 50, 1

    images = made(args.images, args.side, seed=0)
    model = graph(images, args.features, args.size, args.size)
    size = {v.name: v.size for v in model.space.variables}
    print(
        f"{size['W'] + size['S']} unknowns, {size['U']} ANDs, {size['X']} ORs; {images.mean():.2%} of the "
        "pixels are on"
    )
    draw = jax.jit(lambda key: pmp(key, model, n_sweeps=args.sweeps).x)
    found = []
    for key in jax.random.split(jax.random.key(1), args.draws):
        begin = time.perf_counter()
        x = np.asarray(draw(key))
        W, S = (x[model.space.numbers(name)] for name in "WS")
        wrong = (convolved(S, W) != images).mean()
        found.append(W)
        seconds = time.perf_counter() - begin
        print(
            f"{args.sweeps} sweeps in {seconds:.0f} s: {S.sum()} places, {wrong:.2%} of the pixels "
            "reconstructed wrongly"
        )

    figure, axes = plt.subplots(
        1 + args.draws, args.features, figsize=(1.6 * args.features, 1.6 * (1 + args.draws)), squeeze=False
    )
    for ax, image in zip(axes[0], images, strict=False):
        ax.imshow(image, cmap="gray_r")
    for row, W in zip(axes[1:], found, strict=True):
        for ax, shape in zip(row, W, strict=True):
            ax.imshow(shape, cmap="gray_r", vmin=0, vmax=1)
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
        ax.set_visible(ax.has_data())
    axes[0, 0].set_ylabel("images")
    for n, row in enumerate(axes[1:]):
        row[0].set_ylabel(f"draw {n + 1}")
    figure.savefig(args.figure, dpi=110, bbox_inches="tight")
    print(f"figure: {args.figure}")


if __name__ == "__main__":
    main()
