"""The models of `to_answer`: in PyMC, in JAGS, and in NumPyro where its kernels can run them.

A to F, the occupancy model and the hidden Markov model are those of other benchmarks; what JAGS or NumPyro
lack of them is written here.
"""

import dataclasses

import numpy as np

from benchmarks import jags, lattices
from benchmarks.jags_program import JagsModel
from benchmarks.models import (
    MODELS,
    ModelSpec,
    coal_data,
    coal_mining,
    coal_summaries,
    spike_and_slab,
    spike_and_slab_data,
    spike_and_slab_summaries,
)

# ---------------------------------------------------------------- A in JAGS
REGRESSION = """model {
  for (j in 1:100) {
    gamma[j] ~ dbern(0.1)
    beta[j] ~ dnorm(0, 1 / 4)
    c[j] <- gamma[j] * beta[j]
  }
  mu <- X %*% c
  for (i in 1:200) { y[i] ~ dnorm(mu[i], 1) }
  residual <- y - mu
  square <- inprod(residual, residual)
  active <- sum(gamma)
}"""


def regression_in_jags():
    X, y = spike_and_slab_data()
    return JagsModel(
        title="",
        pymc=spike_and_slab,
        summaries=spike_and_slab_summaries,
        jags={"": REGRESSION},
        watched={"active": (), "square": ()},
        jags_summaries=lambda a: {
            "number active": a["active"],
            "log likelihood": -0.5 * (a["square"] + len(y) * np.log(2 * np.pi)),
        },
        start=lambda y: {},
        data={"X": X},
    )


# ---------------------------------------------------------------- C and F in JAGS
# A factor exp(f) of the density is an observed 1 whose probability is exp(f - its maximum).
def lattice_text(site, pair, watched):
    rows = [("i", "j", "i", "j + 1", "side", "side - 1"), ("i", "j", "i + 1", "j", "side - 1", "side")]
    loops = "\n".join(
        f"  for (i in 1:({m})) {{ for (j in 1:({n})) {{ same{k}[i, j] <- equals(x[{a}, {b}], x[{c}, {d}])\n"
        f"    y[{k}, i, j] ~ dbern({pair.format(same=f'same{k}[i, j]')}) }} }}"
        for k, (a, b, c, d, m, n) in enumerate(rows, 1)
    )
    return f"""model {{
  for (i in 1:side) {{ for (j in 1:side) {{ x[i, j] ~ {site} }} }}
{loops}
  same <- sum(same1) + sum(same2)
  {watched}
}}"""


def ones(side):
    y = np.ones((2, side, side))
    y[0, :, -1] = y[1, -1, :] = np.nan
    return {"side": side, "y": y}


def ising_in_jags():
    side, edges = lattices.SIDE, 2 * lattices.SIDE * (lattices.SIDE - 1)

    def summaries(a):
        m = 2 * a["up"] / side**2 - 1
        energy = -lattices.COUPLING * (2 * a["same"] - edges)
        return {"energy": energy, "magnetisation": m, "|magnetisation|": np.abs(m)}

    pair = f"exp({2 * lattices.COUPLING} * ({{same}} - 1))"
    return JagsModel(
        title="",
        pymc=lattices.ising,
        summaries=lattices.ising_summaries,
        jags={"": lattice_text("dbern(0.5)", pair, "up <- sum(x)")},
        watched={"same": (), "up": ()},
        jags_summaries=summaries,
        start=lambda y: {},
        data=ones(side),
    )


def potts_in_jags():
    side, colours = lattices.POTTS_SIDE, lattices.COLOURS

    def summaries(a):
        shares = a["size"] / side**2
        energy = -lattices.POTTS_COUPLING * a["same"]
        return {"energy": energy, "largest share": shares.max(1), "share of colour 0": shares[:, 0]}

    pair = f"exp({lattices.POTTS_COUPLING} * ({{same}} - 1))"
    sizes = f"for (k in 1:{colours}) {{ size[k] <- sum(equals(x, k)) }}"
    return JagsModel(
        title="",
        pymc=lattices.potts,
        summaries=lattices.potts_summaries,
        jags={"": lattice_text("dcat(w)", pair, sizes)},
        watched={"same": (), "size": (colours,)},
        jags_summaries=summaries,
        start=lambda y: {},
        data={**ones(side), "w": np.full(colours, 1 / colours)},
    )


# ---------------------------------------------------------------- D in JAGS
COAL = """model {
  tau ~ dcat(w)
  early ~ dexp(1)
  late ~ dexp(1)
  for (t in 1:years) { y[t] ~ dpois(ifelse(tau >= t, early, late)) }
}"""


def coal_in_jags():
    years, disasters = coal_data()
    return JagsModel(
        title="",
        pymc=coal_mining,
        summaries=coal_summaries,
        jags={"": COAL},
        watched={"tau": (), "early": (), "late": ()},
        jags_summaries=lambda a: {
            "switchpoint": a["tau"] + years.min() - 1,
            "early": a["early"],
            "late": a["late"],
        },
        start=lambda y: {},
        data={"y": disasters, "years": len(years), "w": np.full(len(years), 1 / len(years))},
    )


# ---------------------------------------------------------------- occupancy, hidden Markov model in NumPyro
def occupancy_numpyro():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.nn import sigmoid

    data = {name: jnp.asarray(value) for name, value in jags.occupancy_data().items()}

    def model():
        a = numpyro.sample("a", dist.Normal(jnp.zeros(2), 1.5))
        b = numpyro.sample("b", dist.Normal(jnp.zeros(2), 1.5))
        z = numpyro.sample("z", dist.Bernoulli(logits=a[0] + a[1] * data["x"]))
        seen = z[:, None] * sigmoid(b[0] + b[1] * data["w"])
        numpyro.sample("y", dist.Bernoulli(probs=seen), obs=data["y"])

    return model


def hmm_numpyro():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    model, _ = jags.hmm()
    y = jnp.asarray(model.rvs_to_values[model["y"]].data)
    transitions = jnp.log(jnp.asarray(jags.HMM_MATRIX))

    def density():
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.ordered_vector, (), (3,)))
        numpyro.factor("mu_prior", dist.Normal(0.0, 5.0).log_prob(mu).sum())
        z = numpyro.sample("z", dist.Categorical(jnp.full((len(y), 3), 1 / 3)))
        numpyro.factor("transitions", transitions[z[:-1], z[1:]].sum())
        numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)

    return density


# ---------------------------------------------------------------- Cormack-Jolly-Seber
ANIMALS, OCCASIONS, FIRST = 80, 6, 0.99


def captures_data():
    """(whether animals were seen, whether they are known to be alive), both (occasions, animals)."""
    r = np.random.default_rng(5)
    alive = np.ones((OCCASIONS, ANIMALS), int)
    for t in range(1, OCCASIONS):
        alive[t] = alive[t - 1] * (r.random(ANIMALS) < 0.8)
    seen = alive * (r.random(alive.shape) < 0.5)
    return seen, np.array([seen[t:].any(0) for t in range(OCCASIONS)]).astype(int)


def captures():
    import pymc as pm

    seen, known = captures_data()
    with pm.Model() as model:
        survival, capture, z = pm.Beta("survival", 1, 1), pm.Beta("capture", 1, 1), []
        for t in range(OCCASIONS):
            p = z[-1] * survival if t else FIRST
            z.append(pm.Bernoulli(f"z{t}", p, shape=ANIMALS, initval=known[t]))
            pm.Bernoulli(f"y{t}", z[t] * capture, observed=seen[t])
    return model, [f"z{t}" for t in range(OCCASIONS)]


def captures_numpyro():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    seen = jnp.asarray(captures_data()[0])

    def model():
        survival = numpyro.sample("survival", dist.Beta(1.0, 1.0))
        capture = numpyro.sample("capture", dist.Beta(1.0, 1.0))
        alive = None
        for t in range(OCCASIONS):
            p = jnp.full(ANIMALS, FIRST) if alive is None else alive * survival
            alive = numpyro.sample(f"z{t}", dist.Bernoulli(p))
            numpyro.sample(f"y{t}", dist.Bernoulli(alive * capture), obs=seen[t])

    return model


def captures_summaries(a):
    return {
        "survival": a["survival"],
        "capture": a["capture"],
        "alive at the end": a[f"z{OCCASIONS - 1}"].sum(1),
    }


CAPTURES = f"""model {{
  survival ~ dbeta(1, 1)
  capture ~ dbeta(1, 1)
  for (s in 1:{ANIMALS}) {{
    z[1, s] ~ dbern({FIRST})
    for (t in 2:{OCCASIONS}) {{ z[t, s] ~ dbern(z[t - 1, s] * survival) }}
    for (t in 1:{OCCASIONS}) {{ y[t, s] ~ dbern(z[t, s] * capture) }}
  }}
  alive <- sum(z[{OCCASIONS}, ])
}}"""


def captures_in_jags():
    seen, known = captures_data()
    return JagsModel(
        title="",
        pymc=captures,
        summaries=captures_summaries,
        jags={"": CAPTURES},
        watched={"survival": (), "capture": (), "alive": ()},
        jags_summaries=lambda a: {
            "survival": a["survival"],
            "capture": a["capture"],
            "alive at the end": a["alive"],
        },
        start=lambda y: {"z": known},
        data={"y": seen},
    )


# ---------------------------------------------------------------- raters of whom some do not look (MACE)
ITEMS, RATERS, CLASSES = 150, 5, 4


def raters_data():
    """Answers (items, raters). A rater looks, and gives the class, or guesses (Hovy et al. 2013)."""
    r = np.random.default_rng(9)
    truth, looks = r.integers(CLASSES, size=ITEMS), np.array([0.9, 0.8, 0.6, 0.4, 0.2])
    guesses = r.dirichlet(np.ones(CLASSES), size=RATERS)
    guess = np.stack([r.choice(CLASSES, size=ITEMS, p=p) for p in guesses], axis=1)
    return np.where(r.random((ITEMS, RATERS)) < looks, truth[:, None], guess)


def raters():
    import pymc as pm
    import pytensor.tensor as pt

    y = raters_data()
    with pm.Model() as model:
        looks = pm.Beta("looks", 1, 1, shape=RATERS)
        guess = pm.Dirichlet("guess", np.ones((RATERS, CLASSES)))
        truth = pm.Categorical("truth", p=np.ones(CLASSES) / CLASSES, shape=ITEMS)
        honest = pm.Bernoulli(
            "honest", p=looks, shape=(ITEMS, RATERS), initval=np.zeros((ITEMS, RATERS), int)
        )
        is_class = pt.eye(CLASSES)[truth]
        p = pt.switch(honest[:, :, None], is_class[:, None, :], guess[None, :, :])
        pm.Categorical("y", p=p, observed=y)
    return model, ["truth", "honest"]


def raters_numpyro():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    y = jnp.asarray(raters_data())

    def model():
        looks = numpyro.sample("looks", dist.Beta(jnp.ones(RATERS), jnp.ones(RATERS)))
        guess = numpyro.sample("guess", dist.Dirichlet(jnp.ones((RATERS, CLASSES))))
        truth = numpyro.sample("truth", dist.Categorical(jnp.full((ITEMS, CLASSES), 1 / CLASSES)))
        honest = numpyro.sample("honest", dist.Bernoulli(jnp.broadcast_to(looks, (ITEMS, RATERS))))
        p = jnp.where(honest[:, :, None] == 1, jnp.eye(CLASSES)[truth][:, None, :], guess[None])
        # NumPyro finds no start where a probability is 0
        numpyro.sample("y", dist.Categorical(probs=jnp.maximum(p, 1e-30)), obs=y)

    return model


def raters_summaries(a):
    looks = {f"looks {r}": a["looks"][:, r] for r in range(RATERS)}
    return looks | {"honest answers": a["honest"].sum((1, 2)), "class 0": (a["truth"] == 0).sum(1)}


RATERS_TEXT = f"""model {{
  for (r in 1:{RATERS}) {{
    looks[r] ~ dbeta(1, 1)
    guess[r, 1:{CLASSES}] ~ ddirch(alpha)
  }}
  for (i in 1:{ITEMS}) {{
    truth[i] ~ dcat(w)
    for (k in 1:{CLASSES}) {{ class[i, k] <- equals(truth[i], k) }}
    for (r in 1:{RATERS}) {{
      honest[i, r] ~ dbern(looks[r])
      for (k in 1:{CLASSES}) {{ p[i, r, k] <- ifelse(honest[i, r] == 1, class[i, k], guess[r, k]) }}
      y[i, r] ~ dcat(p[i, r, ])
    }}
  }}
  answers <- sum(honest)
  first <- sum(class[, 1])
}}"""


def raters_in_jags():
    return JagsModel(
        title="",
        pymc=raters,
        summaries=raters_summaries,
        jags={"": RATERS_TEXT},
        watched={"looks": (RATERS,), "answers": (), "first": ()},
        jags_summaries=lambda a: (
            {f"looks {r}": a["looks"][:, r] for r in range(RATERS)}
            | {"honest answers": a["answers"], "class 0": a["first"]}
        ),
        start=lambda y: {"honest": np.zeros((ITEMS, RATERS), int)},
        data={"y": raters_data() + 1, "alpha": np.ones(CLASSES), "w": np.full(CLASSES, 1 / CLASSES)},
    )


# ---------------------------------------------------------------- a mixture of twenty points
POINTS = 20


def points_data():
    r = np.random.default_rng(3)
    return np.where(r.random(POINTS) < 0.4, -2.0, 2.0) + r.normal(size=POINTS)


def points():
    import pymc as pm

    y = points_data()
    with pm.Model() as model:
        ordered = pm.distributions.transforms.ordered
        mu = pm.Normal("mu", 0, 5, shape=2, transform=ordered, initval=[-2.0, 2.0])
        z = pm.Categorical("z", p=np.ones(2) / 2, shape=POINTS)
        pm.Normal("y", mu[z], 1, observed=y)
    return model, ["z"]


def points_numpyro():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    y = jnp.asarray(points_data())

    def model():
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.ordered_vector, (), (2,)))
        numpyro.factor("mu_prior", dist.Normal(0.0, 5.0).log_prob(mu).sum())
        z = numpyro.sample("z", dist.Categorical(jnp.full((POINTS, 2), 1 / 2)))
        numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)

    return model


def points_summaries(a):
    return {"size": a["z"].sum(1), "mean 0": a["mu"][:, 0], "mean 1": a["mu"][:, 1]}


def points_in_jags():
    """Free means, which are conjugate; sorted when the draws are read."""

    def summaries(a):
        order = a["mu"].argsort(1)
        size = np.where(order[:, 1] == 1, a["size"], POINTS - a["size"])
        means = np.take_along_axis(a["mu"], order, 1)
        return {"size": size, "mean 0": means[:, 0], "mean 1": means[:, 1]}

    text = f"""model {{
  for (k in 1:2) {{ mu[k] ~ dnorm(0, 1 / 25) }}
  for (i in 1:{POINTS}) {{
    z[i] ~ dcat(w)
    y[i] ~ dnorm(mu[z[i]], 1)
  }}
  size <- sum(z) - {POINTS}
}}"""
    return JagsModel(
        title="",
        pymc=points,
        summaries=points_summaries,
        jags={"": text},
        watched={"mu": (2,), "size": ()},
        jags_summaries=summaries,
        start=lambda y: {"mu": np.array([-2.0, 2.0])},
        data={"w": np.full(2, 1 / 2)},
    )


# ---------------------------------------------------------------- all of them
def as_spec(name, **options):
    """The specification of a model that is written for JAGS."""
    model = jags.MODELS[name]
    return ModelSpec(name, model.title, model.pymc, model.summaries, **options)


def free_means(name):
    """The model in JAGS with free means only, which are conjugate and mix best."""
    return dataclasses.replace(jags.MODELS[name], jags={"free means": jags.MODELS[name].jags["free means"]})


SPECS = {name: MODELS[name] for name in "ABCDEF"} | {
    "occupancy": as_spec("occupancy", numpyro=occupancy_numpyro),
    "HMM": as_spec("HMM", numpyro=hmm_numpyro, start_values={"mu": jags.HMM_MEANS}),
    "CJS": ModelSpec(
        "CJS",
        "captures and recaptures, 80 animals, 6 occasions",
        captures,
        captures_summaries,
        captures_numpyro,
    ),
    "raters": ModelSpec(
        "raters",
        "MACE: 150 items, 5 raters, 4 classes, who looked and who guessed",
        raters,
        raters_summaries,
        raters_numpyro,
    ),
    "points": ModelSpec(
        "points",
        "Gaussian mixture, 20 points, 2 ordered means",
        points,
        points_summaries,
        points_numpyro,
        start_values={"mu": np.array([-2.0, 2.0])},
    ),
}
IN_JAGS = {
    "A": regression_in_jags,
    "B": lambda: free_means("B"),
    "C": ising_in_jags,
    "D": coal_in_jags,
    "E": lambda: jags.MODELS["E"],
    "F": potts_in_jags,
    "occupancy": lambda: jags.MODELS["occupancy"],
    "HMM": lambda: free_means("HMM"),
    "CJS": captures_in_jags,
    "raters": raters_in_jags,
    "points": points_in_jags,
}
