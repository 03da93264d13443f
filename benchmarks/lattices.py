"""Models without continuous variables: C and I, Ising lattices, and F, a Potts lattice, all with a free
boundary.
"""

import numpy as np


def chessboard(side):
    """The sites of either colour, numbered row by row. No two sites of the same colour are neighbours."""
    colour = np.indices((side, side)).sum(0).ravel() % 2
    return [np.flatnonzero(colour == c) for c in (0, 1)]


def thrml_grid(node, side):
    """Nodes of THRML, the pairs of neighbours among them, and the two blocks that are sampled in turn."""
    from thrml import Block

    nodes = [node() for _ in range(side * side)]
    grid = np.arange(side * side).reshape(side, side)
    pairs = [
        *zip(grid[:, :-1].flat, grid[:, 1:].flat, strict=True),
        *zip(grid[:-1].flat, grid[1:].flat, strict=True),
    ]
    return (
        nodes,
        [(nodes[i], nodes[j]) for i, j in pairs],
        [Block([nodes[i] for i in sites]) for sites in chessboard(side)],
    )


# ---------------------------------------------------------------- C, I: Ising
SIDE, LARGE_SIDE, COUPLING = 20, 50, 0.4


def neighbour_sum(s):
    """Sum of s_i s_j over lattice neighbours; s (..., side, side) of -1, 1."""
    return (s[..., :-1] * s[..., 1:]).sum((-2, -1)) + (s[..., :-1, :] * s[..., 1:, :]).sum((-2, -1))


def ising(side=SIDE, coupling=COUPLING, fields=None):
    """`fields` (side, side) nats, by which each spin prefers to be up."""
    import pymc as pm

    with pm.Model() as model:
        x = pm.Bernoulli("x", np.full((side, side), 0.5), shape=(side, side))
        s = 2 * x - 1
        pair = (s[:, :-1] * s[:, 1:]).sum() + (s[:-1] * s[1:]).sum()
        pm.Potential("energy", coupling * pair)
        if fields is not None:
            pm.Potential("fields", (fields * s).sum())
    return model, ["x"]


def ising_numpyro(side=SIDE):
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model():
        x = numpyro.sample("x", dist.Bernoulli(jnp.full((side, side), 0.5)))
        numpyro.factor("energy", COUPLING * neighbour_sum(2.0 * x - 1.0))

    return model


def ising_thrml(side=SIDE, coupling=COUPLING, fields=None):
    """(sampling program, its blocks)"""
    import jax.numpy as jnp
    from thrml import SpinNode
    from thrml.models import IsingEBM, IsingSamplingProgram

    nodes, edges, blocks = thrml_grid(SpinNode, side)
    biases = jnp.zeros(len(nodes)) if fields is None else jnp.asarray(fields.ravel())
    model = IsingEBM(nodes, edges, biases, jnp.full(len(edges), coupling), jnp.array(1.0))
    return IsingSamplingProgram(model, blocks, []), blocks


def ising_summaries(a):
    s = 2.0 * a["x"] - 1.0
    m = s.mean((-2, -1))
    return {"energy": -COUPLING * neighbour_sum(s), "magnetisation": m, "|magnetisation|": np.abs(m)}


# ---------------------------------------------------------------- F: Potts
POTTS_SIDE, COLOURS = 30, 4
POTTS_COUPLING = 0.9  # the critical value on the infinite lattice is log(1 + sqrt(4)) = 1.0986


def equal_neighbours(x):
    """Number of lattice neighbours of the same colour; x (..., side, side) int."""
    return (x[..., :-1] == x[..., 1:]).sum((-2, -1)) + (x[..., :-1, :] == x[..., 1:, :]).sum((-2, -1))


def potts(coupling=POTTS_COUPLING):
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        x = pm.Categorical("x", p=np.full(COLOURS, 1 / COLOURS), shape=(POTTS_SIDE, POTTS_SIDE))
        pair = pt.eq(x[:, :-1], x[:, 1:]).sum() + pt.eq(x[:-1], x[1:]).sum()
        pm.Potential("energy", coupling * pair)
    return model, ["x"]


def potts_numpyro():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model():
        x = numpyro.sample("x", dist.Categorical(jnp.full((POTTS_SIDE, POTTS_SIDE, COLOURS), 1 / COLOURS)))
        numpyro.factor("energy", POTTS_COUPLING * equal_neighbours(x))

    return model


def potts_thrml(coupling=POTTS_COUPLING):
    """(sampling program, its blocks)"""
    import jax.numpy as jnp
    from thrml import Block, BlockGibbsSpec, CategoricalNode, FactorSamplingProgram
    from thrml.models import CategoricalGibbsConditional, SquareCategoricalEBMFactor

    _, edges, blocks = thrml_grid(CategoricalNode, POTTS_SIDE)
    weights = jnp.broadcast_to(coupling * jnp.eye(COLOURS), (len(edges), COLOURS, COLOURS))
    factor = SquareCategoricalEBMFactor([Block([i for i, _ in edges]), Block([j for _, j in edges])], weights)
    conditionals = [CategoricalGibbsConditional(COLOURS) for _ in blocks]
    return FactorSamplingProgram(BlockGibbsSpec(blocks, []), conditionals, [factor], []), blocks


def potts_summaries(a):
    """The largest colour's share corresponds to |magnetisation|; the share of one colour shows whether the
    largest colour changes.
    """
    shares = np.stack([(a["x"] == k).mean((-2, -1)) for k in range(COLOURS)])
    return {
        "energy": -POTTS_COUPLING * equal_neighbours(a["x"]),
        "largest share": shares.max(0),
        "share of colour 0": shares[0],
    }
