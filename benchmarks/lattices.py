"""Models without continuous variables: C, an Ising lattice, and F, a Potts lattice, both with a free boundary."""

import numpy as np

# ---------------------------------------------------------------- C: Ising
ROWS, COLUMNS, COUPLING = 20, 20, 0.4


def neighbour_sum(s):
    """Sum of s_i s_j over lattice neighbours; s (..., ROWS, COLUMNS) of -1, 1."""
    return (s[..., :-1] * s[..., 1:]).sum((-2, -1)) + (s[..., :-1, :] * s[..., 1:, :]).sum((-2, -1))


def ising():
    import pymc as pm

    with pm.Model() as model:
        x = pm.Bernoulli("x", np.full((ROWS, COLUMNS), 0.5), shape=(ROWS, COLUMNS))
        s = 2 * x - 1
        pair = (s[:, :-1] * s[:, 1:]).sum() + (s[:-1] * s[1:]).sum()
        pm.Potential("energy", COUPLING * pair)
    return model, ["x"]


def ising_numpyro():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model():
        x = numpyro.sample("x", dist.Bernoulli(jnp.full((ROWS, COLUMNS), 0.5)))
        numpyro.factor("energy", COUPLING * neighbour_sum(2.0 * x - 1.0))

    return model


def ising_summaries(a):
    s = 2.0 * a["x"] - 1.0
    m = s.mean((-2, -1))
    return {"energy": -COUPLING * neighbour_sum(s), "magnetisation": m, "|magnetisation|": np.abs(m)}


# ---------------------------------------------------------------- F: Potts
SIDE, COLOURS = 30, 4
POTTS_COUPLING = 0.9  # critical at log(1 + sqrt(4)) = 1.0986 on the infinite lattice


def equal_neighbours(x):
    """Number of lattice neighbours of the same colour; x (..., SIDE, SIDE) int."""
    return (x[..., :-1] == x[..., 1:]).sum((-2, -1)) + (x[..., :-1, :] == x[..., 1:, :]).sum((-2, -1))


def potts():
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        x = pm.Categorical("x", p=np.full(COLOURS, 1 / COLOURS), shape=(SIDE, SIDE))
        pair = pt.eq(x[:, :-1], x[:, 1:]).sum() + pt.eq(x[:-1], x[1:]).sum()
        pm.Potential("energy", POTTS_COUPLING * pair)
    return model, ["x"]


def potts_numpyro():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model():
        x = numpyro.sample("x", dist.Categorical(jnp.full((SIDE, SIDE, COLOURS), 1 / COLOURS)))
        numpyro.factor("energy", POTTS_COUPLING * equal_neighbours(x))

    return model


def potts_summaries(a):
    """The largest colour's share plays the part of |magnetisation|; that of one colour tells whether colours change places."""
    shares = np.stack([(a["x"] == k).mean((-2, -1)) for k in range(COLOURS)])
    return {"energy": -POTTS_COUPLING * equal_neighbours(a["x"]), "largest share": shares.max(0), "share of colour 0": shares[0]}
