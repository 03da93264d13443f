"""Models with discrete unknowns as their communities write them, of which the first versions of this package
gave no draw within five minutes, or ended in an error. `benchmarks.public_models` samples them. But for the
crossbills, data are simulated from the models, with fixed seeds.
"""

from pathlib import Path

import numpy as np
import pandas as pd

CROSSBILLS = Path(__file__).parents[1] / "docs" / "gallery" / "data" / "crossbill.csv"


def multievent(n=250, occasions=8, seed=1):
    """Capture histories of breeders and others whose state is seen with uncertainty (multi-event model)."""
    import pymc as pm
    import pytensor.tensor as pt

    rng = np.random.default_rng(seed)
    psi = np.array([[0.55, 0.25, 0.2], [0.2, 0.65, 0.15], [0, 0, 1]])
    seen = np.array([[0.3, 0.45, 0.0, 0.25], [0.5, 0.0, 0.35, 0.15], [1, 0, 0, 0]])
    first = rng.integers(0, occasions - 1, n)
    y = np.zeros((n, occasions), int)
    for i, begin in enumerate(first):
        z = rng.choice(2, p=[0.6, 0.4])
        y[i, begin] = rng.choice(3, p=seen[z, 1:] / seen[z, 1:].sum()) + 1
        for t in range(begin + 1, occasions):
            z = rng.choice(3, p=psi[z])
            y[i, t] = rng.choice(4, p=seen[z])
    with pm.Model() as model:
        initial = pm.Dirichlet("initial", np.ones(2))
        phi = pm.Beta("phi", 1, 1, shape=2)  # survival
        change = pm.Beta("change", 1, 1, shape=2)  # of state
        p = pm.Beta("p", 1, 1, shape=2)  # to be seen
        sure = pm.Beta("sure", 1, 1, shape=2)  # that the state is known
        transitions = pt.stack(
            [
                pt.stack([phi[0] * (1 - change[0]), phi[0] * change[0], 1 - phi[0]]),
                pt.stack([phi[1] * change[1], phi[1] * (1 - change[1]), 1 - phi[1]]),
                pt.as_tensor([0.0, 0.0, 1.0]),
            ]
        )
        events = pt.stack(
            [
                pt.stack([1 - p[0], p[0] * sure[0], 0.0, p[0] * (1 - sure[0])]),
                pt.stack([1 - p[1], 0.0, p[1] * sure[1], p[1] * (1 - sure[1])]),
                pt.as_tensor([1.0, 0.0, 0.0, 0.0]),
            ]
        )
        at_first = pt.stack(
            [
                pt.stack([0.0, sure[0], 0.0, 1 - sure[0]]),
                pt.stack([0.0, 0.0, sure[1], 1 - sure[1]]),
                pt.as_tensor([1.0, 0.0, 0.0, 0.0]),
            ]
        )
        start = pt.concatenate([initial, [0.0]])
        states = pt.zeros(n, dtype="int64")  # of those that were caught before
        for t in range(occasions):
            here = np.flatnonzero(first <= t)
            new = (first[here] == t)[:, None]
            z = pm.Categorical(f"z_{t}", pt.switch(new, start, transitions[states[here]]), shape=len(here))
            pm.Categorical(f"y_{t}", pt.switch(new, at_first[z], events[z]), observed=y[here, t])
            states = states[here].set(z)
    return model


def markov_switching(T=300, seed=2):
    """Hamilton's autoregression of order two about a mean that switches between two regimes."""
    import pymc as pm
    import pytensor.tensor as pt

    rng = np.random.default_rng(seed)
    P, mu, sigma, phi = np.array([[0.93, 0.07], [0.12, 0.88]]), [1.0, -0.8], [0.5, 0.8], [0.4, 0.15]
    s = np.zeros(T, int)
    for t in range(1, T):
        s[t] = rng.choice(2, p=P[s[t - 1]])
    d = np.zeros(T)
    for t in range(T):
        lags = [phi[j] * d[t - 1 - j] for j in range(2) if t > j]
        d[t] = sum(lags) + rng.normal() * sigma[s[t]]
    y = d + np.take(mu, s)
    with pm.Model() as model:
        P = pm.Dirichlet("P", np.array([[8.0, 2.0], [2.0, 8.0]]))
        mu = pm.Normal("mu", [1.0, -1.0], 1.0)
        sigma = pm.HalfNormal("sigma", 1.0, shape=2)
        phi = pm.Normal("phi", 0, 0.5, shape=2)
        s = pm.Categorical("s", [0.5, 0.5], shape=T)
        pm.Potential("chain", pt.log(P)[s[:-1], s[1:]].sum() + (T - 1) * np.log(2))
        off = y - mu[s]
        mean = mu[s[2:]] + phi[0] * off[1:-1] + phi[1] * off[:-2]
        pm.Normal("y", mean, sigma[s[2:]], observed=y[2:])
    return model


def calcium(T=600, seed=3, form="scan"):
    """Spikes that a trace of fluorescence tells: calcium decays, and jumps with every spike."""
    import pymc as pm
    import pytensor
    import pytensor.tensor as pt

    rng = np.random.default_rng(seed)
    spikes, c = rng.random(T) < 0.05, np.zeros(T)
    for t in range(T):
        c[t] = 0.92 * (c[t - 1] if t else 0.0) + 1.0 * spikes[t]
    y = 0.3 + c + 0.25 * rng.normal(size=T)
    with pm.Model() as model:
        gamma = pm.Beta("gamma", 20, 2)
        rate = pm.Beta("rate", 1, 20)
        amplitude = pm.HalfNormal("amplitude", 1.0)
        baseline = pm.Normal("baseline", 0, 1)
        sigma = pm.HalfNormal("sigma", 0.5)
        s = pm.Bernoulli("s", rate, shape=T)
        if form == "scan":
            c = pytensor.scan(
                lambda s_t, c_t, gamma: gamma * c_t + s_t,
                sequences=[pt.cast(s, "float64")],
                outputs_info=[pt.zeros(())],
                non_sequences=[gamma],
                return_updates=False,
            )
        else:
            lags = np.arange(T)[:, None] - np.arange(T)
            c = pt.dot(pt.where(lags >= 0, gamma ** np.maximum(lags, 0), 0.0), pt.cast(s, "float64"))
        pm.Normal("y", baseline + amplitude * c, sigma, observed=y)
    return model


def calcium_matrix():
    """The same, by the matrix of the powers of the decay."""
    return calcium(form="matrix")


def volatility_with_jumps(T=500, seed=4):
    """Returns whose log variance is an autoregression, with rare jumps."""
    import pymc as pm
    import pytensor.tensor as pt

    rng = np.random.default_rng(seed)
    h = np.zeros(T)
    for t in range(1, T):
        h[t] = 0.95 * h[t - 1] + 0.2 * rng.normal()
    jumps = rng.random(T) < 0.03
    y = np.exp(h / 2 - 0.2) * rng.normal(size=T) + jumps * rng.normal(0, 4, T)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        step = pm.Exponential("step", 10)
        h = pm.GaussianRandomWalk("h", sigma=step, init_dist=pm.Normal.dist(0, 1), shape=T)
        lam = pm.Beta("lam", 2, 40)
        size = pm.HalfNormal("size", 5)
        jump = pm.Bernoulli("jump", lam, shape=T)
        xi = pm.Normal("xi", 0, 1, shape=T)
        pm.Normal("y", jump * size * xi, pt.exp((mu + h) / 2), observed=y)
    return model


def spatial_capture(M=150, side=24, nights=5, seed=5):
    """Animals of a population of unknown size, with centres on a grid of pixels, that traps catch."""
    import pymc as pm
    import pytensor.tensor as pt

    rng = np.random.default_rng(seed)
    xy = (np.stack(np.meshgrid(*[np.arange(side)] * 2), -1).reshape(-1, 2) + 0.5) / side * 12
    traps = np.stack(np.meshgrid(*[np.arange(6)] * 2), -1).reshape(-1, 2) * 1.2 + 3.0
    distance2 = ((xy[:, None] - traps) ** 2).sum(-1)
    N = 60
    centres = rng.integers(0, len(xy), N)
    caught = rng.binomial(nights, 0.3 * np.exp(-distance2[centres] / (2 * 0.8**2)))
    seen = caught[caught.sum(1) > 0]
    y = np.zeros((M, len(traps)), int)
    y[: len(seen)] = seen
    with pm.Model() as model:
        psi = pm.Beta("psi", 1, 1)
        p0 = pm.Beta("p0", 1, 1)
        sigma = pm.HalfNormal("sigma", 2)
        z = pm.Bernoulli("z", psi, shape=M)
        s = pm.Categorical("s", np.full(len(xy), 1 / len(xy)), shape=M)
        p = p0 * pt.exp(-pt.as_tensor(distance2)[s] / (2 * sigma**2))
        pm.Binomial("y", nights, z[:, None] * p, observed=y)
        pm.Deterministic("N", z.sum())
    return model


def integrated_population(T=12, seed=6):
    """Counts, nests and captures of one population: survivors and recruits in each year are unknown."""
    import pymc as pm
    import pytensor.tensor as pt

    rng = np.random.default_rng(seed)
    phi_j, phi_a, f, p = 0.3, 0.6, 2.8, 0.5
    young, adult = [30], [40]
    for _ in range(T - 1):
        n = young[-1] + adult[-1]
        young.append(rng.poisson(n * f / 2 * phi_j))
        adult.append(rng.binomial(n, phi_a))
    total = np.add(young, adult)
    counts = rng.normal(total, 5.0)
    nests = rng.binomial(total, 0.3) + 1
    fledged = rng.poisson(nests * f)
    released = np.full((2, T - 1), 60)
    m = np.zeros((2, T - 1, T), int)
    for age in range(2):
        for t in range(T - 1):
            survival = np.array([phi_j if age == 0 and u == t else phi_a for u in range(t, T - 1)])
            alive = np.cumprod(survival)
            cells = alive * p * (1 - p) ** np.arange(len(alive))
            m[age, t, t : T - 1] = 0
            drawn = rng.multinomial(released[age, t], [*cells, 1 - cells.sum()])
            m[age, t, t:] = drawn
    with pm.Model() as model:
        phi_j = pm.Beta("phi_juvenile", 1, 1)
        phi_a = pm.Beta("phi_adult", 1, 1)
        f = pm.Uniform("f", 0, 10)
        p = pm.Beta("p", 1, 1)
        sigma = pm.HalfNormal("sigma", 10)
        # capture and recapture
        for age, first in enumerate([phi_j, phi_a]):
            rows = []
            for t in range(T - 1):
                length = T - 1 - t
                alive = first * phi_a ** np.arange(length)
                cells = alive * p * (1 - p) ** np.arange(length)
                rows.append(pt.concatenate([pt.zeros(t), cells, [1 - cells.sum()]]))
            pm.Multinomial(f"m_{age}", released[age], pt.stack(rows), observed=m[age])
        # counts
        young = pm.Poisson("young_0", 30)
        adult = pm.Poisson("adult_0", 40)
        totals = [young + adult]
        for t in range(1, T):
            young = pm.Poisson(f"young_{t}", totals[-1] * f / 2 * phi_j)
            adult = pm.Binomial(f"adult_{t}", totals[-1], phi_a)
            totals.append(young + adult)
        pm.Normal("counts", pt.stack(totals), sigma, observed=counts)
        # nests
        pm.Poisson("fledged", nests * f, observed=fledged)
    return model


def visits_of_crossbills():
    """Of 267 squares: forest and elevation, standardised; of each visit: its square, its day from 1 April on,
    not standardised, and whether crossbills were seen.
    """
    squares = pd.read_csv(CROSSBILLS, comment="#")
    seen, days = (squares.filter(like=what).to_numpy() for what in ("seen", "day"))
    elevation, forest = ((a - a.mean()) / a.std() for a in squares[["elevation", "forest"]].to_numpy().T)
    square, visit = np.nonzero(~np.isnan(seen))
    return {
        "forest": forest,
        "elevation": elevation,
        "square": square,
        "day": days[square, visit],
        "y": seen[square, visit].astype(int),
    }


def crossbills():
    """Occupancy of squares; the day of a visit enters a logistic regression as it is, 13 to 114."""
    import pymc as pm

    data = visits_of_crossbills()
    ever = np.zeros(len(data["forest"]), int)
    np.maximum.at(ever, data["square"], data["y"])
    with pm.Model() as model:
        b = pm.Normal("occupancy", 0, 2, shape=4)
        a = pm.Normal("detection", 0, 2, shape=2)
        high = data["elevation"]
        psi = pm.math.invlogit(b[0] + b[1] * data["forest"] + b[2] * high + b[3] * high**2)
        z = pm.Bernoulli("z", psi, initval=ever)
        p = pm.math.invlogit(a[0] + a[1] * data["day"])
        pm.Bernoulli("y", z[data["square"]] * p, observed=data["y"])
    return model


def answers_by_skills(persons=500, items=20, skills=5, seed=7):
    """Which items ask for which skills, and simulated answers of persons who have some of them."""
    rng = np.random.default_rng(seed)
    Q = (rng.random((items, skills)) < 0.35).astype(int)
    Q[np.arange(items), np.arange(items) % skills] = 1
    ability = rng.normal(size=persons)
    has = rng.random((persons, skills)) < 1 / (
        1 + np.exp(-1.5 * (ability[:, None] - np.linspace(-1, 1, skills)))
    )
    able = (has[:, None] >= Q).all(2)
    right = np.where(able, 1 - rng.uniform(0.05, 0.25, items), rng.uniform(0.1, 0.3, items))
    return {"Q": Q, "y": (rng.random(right.shape) < right).astype(int)}


def dina():
    """Cognitive diagnosis: an item is solved by those who have all skills that it asks for, but for slips and
    guesses; skills depend on one ability (de la Torre and Douglas 2004).
    """
    import pymc as pm
    import pytensor.tensor as pt

    data = answers_by_skills()
    (persons, items), skills = data["y"].shape, data["Q"].shape[1]
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=persons)
        slope = pm.LogNormal("slope", 0, 0.5, shape=skills)
        place = pm.Normal("place", 0, 1.5, shape=skills)
        has = pm.Bernoulli("has", logit_p=slope * (theta[:, None] - place), shape=(persons, skills))
        s, g = pm.Beta("s", 1, 4, shape=items), pm.Beta("g", 1, 4, shape=items)
        able = pt.prod(has[:, None] ** data["Q"], axis=-1)
        pm.Bernoulli("y", pt.switch(pt.eq(able, 1), 1 - s, g), observed=data["y"])
    return model


MODELS = {
    made.__name__: made
    for made in (
        multievent,
        markov_switching,
        calcium,
        calcium_matrix,
        volatility_with_jumps,
        spatial_capture,
        integrated_population,
        crossbills,
        dina,
    )
}
