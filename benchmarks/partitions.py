"""Partitions with an unknown number of clusters, from dispersed starts, beside other ways to sample them.

python -m benchmarks.partitions --out benchmarks/results/NAME-partitions

Velocities of 82 galaxies with an unknown concentration and spread, a block model of three planted groups of
60, the friendships of Zachary's karate club, and 10,000 points around 50 centres. By default means and
probabilities of edges are integrated out while labels move; clusters are split and merged. Beside it these
are left to NUTS, or the partition is written as labels with stick-breaking weights, or, for galaxies, single
sites are drawn by a program in NumPy that shares no code with the package (algorithm 3 of Neal 2000), with
slice sampling of the other two.
"""

import math
import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import harness, scores
from benchmarks.harness import CannotRun
from benchmarks.memory import most_resident

CHAINS = 4
SAMPLERS = ("pmd.sample", "parameters by NUTS", "stick-breaking", "NumPy, algorithm 3")
K = {"galaxies": 82, "blocks": 10, "club": 10, "many points": 100}
SITES = {"galaxies": 82, "blocks": 180, "club": 34, "many points": 10_000}
MEAN, SD = 20.0, 7.0  # the prior of means of galaxies
DATA = Path(__file__).parents[1] / "docs" / "gallery" / "data"


def velocities():
    """(82,) in 1,000 km/s: Roeder 1990."""
    return np.loadtxt(DATA / "galaxies.csv", skiprows=1) / 1000


def points():
    """(10000,) around 50 centres."""
    r = np.random.default_rng(2)
    return r.normal(0, 50, 50)[r.integers(0, 50, SITES["many points"])] + r.normal(size=SITES["many points"])


def edges_of(model):
    """(i, j, whether they are joined) of all pairs of nodes."""
    i, j = np.triu_indices(SITES[model], 1)
    if model == "club":
        pairs = np.loadtxt(DATA / "karate.csv", delimiter=",", skiprows=1, dtype=int) - 1
        joined = np.zeros((SITES[model],) * 2, int)
        joined[pairs[:, 0], pairs[:, 1]] = 1
        return i, j, joined[i, j]
    return i, j, (np.random.default_rng(5).random(len(i)) < np.where(i % 3 == j % 3, 0.3, 0.1)).astype(int)


def build(model, stick_breaking):
    """The model; labels of a partition, or with weights of their own."""
    import pymc as pm

    import pymc_discrete as pmd

    most = K[model]

    def labels(a, n):
        if stick_breaking:
            return pm.Categorical("z", pm.StickBreakingWeights("w", alpha=a, K=most - 1), shape=n)
        return pmd.Partition("z", "crp", concentration=a, shape=n, max_clusters=most)

    with pm.Model() as built:
        if model == "galaxies":
            z = labels(pm.Gamma("a", 2, 4), SITES[model])
            sd = pm.HalfNormal("sd", 2)
            pm.Normal("y", pm.Normal("mu", MEAN, SD, shape=most)[z], sd, observed=velocities())
        elif model == "many points":
            z = labels(pm.Gamma("a", 2, 1), SITES[model])
            pm.Normal("y", pm.Normal("mu", 0, 50, shape=most)[z], 1.0, observed=points())
        else:
            i, j, y = edges_of(model)
            z = labels(1.0, SITES[model])
            pm.Bernoulli("y", pm.Beta("P", 1, 1, shape=(most, most))[z[i], z[j]], observed=y)
    return built


def starts_of(n, most):
    """(4, n) labels: all in one cluster, in as many as there are, and at random in a few."""
    r = np.random.default_rng(1)
    return np.stack([np.zeros(n, int), np.arange(n) % most, r.integers(0, 3, n), r.integers(0, most // 2, n)])


def scored(model, z, seconds, whole):
    """The entries of a record on labels (chains, draws, sites), which do not depend on their names."""
    import arviz as az

    n, most = z.shape[-1], int(z.max()) + 1
    sizes = np.array([[np.bincount(one, minlength=most) for one in chain] for chain in z])
    summaries = {"clusters": (sizes > 0).sum(axis=-1), "pairs together": (sizes**2).sum(axis=-1)}
    # of many points, random pairs
    i, j = np.triu_indices(n, 1) if n < 1000 else np.random.default_rng(3).integers(0, n, (2, 1000))
    if model == "blocks":
        right = [[((one[i] == one[j]) == (i % 3 == j % 3)).mean() for one in chain] for chain in z]
        summaries["agreement"] = np.array(right)
    some = slice(None, None, 1 + len(i) // 1000)
    together = (z[..., i[some]] == z[..., j[some]]).astype(float)
    rare = np.abs(together.mean(axis=(0, 1)) - 0.5) > 0.45
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = [float(az.rhat(together[..., pair])) for pair in np.flatnonzero(~rare)]
    more = {"whole": whole, "rhat_together": max(rhat, default=1.0), "pairs": len(rhat)}
    more |= {"per_draw": seconds / (z.shape[0] * z.shape[1]), "memory": most_resident()}
    return scores.scored(summaries, seconds) | more


# ---------------------------------------------------------------- the program in NumPy
def log_marginal(count, total, sd):
    """The log of the integral over a cluster's mean, but for what is the same for all partitions."""
    precision = 1 / SD**2 + count / sd**2
    mean = (MEAN / SD**2 + total / sd**2) / precision
    return 0.5 * (mean**2 * precision - MEAN**2 / SD**2 - math.log(precision * SD**2))


def chain_of(y, z, draws, tune, r):
    """(draws, n) labels, by draws of single sites given all others, and slices of a and sd."""
    a, sd = 0.5, 1.0
    kept = np.zeros((draws, len(y)), int)
    for t in range(tune + draws):
        z = swept(y, z, a, sd, r)
        sizes, sums = np.bincount(z), np.bincount(z, y)
        of_clusters = [(c, s) for c, s in zip(sizes, sums, strict=True) if c]
        a = math.exp(sliced(partial(log_density_of_a, len(of_clusters), len(y)), math.log(a), r))
        sd = math.exp(sliced(partial(log_density_of_sd, y, of_clusters), math.log(sd), r))
        if t >= tune:
            kept[t - tune] = z
    return kept


def swept(y, z, a, sd, r):
    """(n,) labels after a draw of each, given all others."""
    z = np.unique(z, return_inverse=True)[1]
    count, total = np.bincount(z).tolist(), np.bincount(z, y).tolist()
    for i, of in enumerate(y):
        count[z[i]] -= 1
        total[z[i]] -= of
        logs = [
            math.log(c) + log_marginal(c + 1, s + of, sd) - log_marginal(c, s, sd) if c else -math.inf
            for c, s in zip(count, total, strict=True)
        ]
        logs.append(math.log(a) + log_marginal(1, of, sd))
        p = np.exp(np.array(logs) - max(logs))
        z[i] = np.searchsorted(np.cumsum(p), r.random() * p.sum())
        if z[i] == len(count):
            count.append(0)
            total.append(0.0)
        count[z[i]] += 1
        total[z[i]] += of
    return z


def log_density_of_a(clusters, n, v):
    """Of v = log a, with the prior Gamma(2, 4)."""
    a = math.exp(v)
    return (2 + clusters) * v - 4 * a + math.lgamma(a) - math.lgamma(a + n)


def log_density_of_sd(y, of_clusters, v):
    """Of v = log sd, with the prior HalfNormal(2), given (count, sum) of each cluster."""
    s = math.exp(v)
    integrals = sum(log_marginal(count, total, s) for count, total in of_clusters)
    return v - s**2 / 8 - len(y) * v - float((y**2).sum()) / (2 * s**2) + integrals


def sliced(logp, now, r, width=1.0):
    """A draw by slice sampling with stepping out (Neal 2003)."""
    level = logp(now) + math.log1p(-r.random())
    low = now - width * r.random()
    high = low + width
    while logp(low) > level:
        low -= width
    while logp(high) > level:
        high += width
    while True:
        new = r.uniform(low, high)
        if logp(new) > level:
            return new
        low, high = (new, high) if new < now else (low, new)


# ---------------------------------------------------------------- rows
def measure(args, model, sampler):
    begin = time.perf_counter()
    starts = starts_of(SITES[model], K[model])
    if sampler == "NumPy, algorithm 3":
        if model != "galaxies":
            raise CannotRun("is written for galaxies")
        r = np.random.default_rng(1)
        z = np.stack([chain_of(velocities(), start, args.draws, args.tune, r) for start in starts])
        whole = time.perf_counter() - begin
        return scored(model, z, whole, whole)
    import pymc_discrete as pmd

    chunks = []
    with build(model, sampler == "stick-breaking"):
        tree = pmd.sample(
            args.draws,
            tune=args.tune,
            chains=CHAINS,
            step=pmd.BlockGibbs(["z"]) if sampler == "parameters by NUTS" else None,
            initvals=None if sampler == "stick-breaking" else [{"z": start} for start in starts],
            callback=lambda *_: chunks.append(time.process_time()),
            progressbar=False,
            compute_convergence_checks=False,
            random_seed=1,
        )
    whole = time.perf_counter() - begin
    seconds = (chunks[-1] - chunks[0]) * len(chunks) / (len(chunks) - 1)
    return scored(model, tree["posterior"]["z"].values, seconds, whole)


def rows(args, records):
    with harness.empty_pytensor_cache() as env:
        for model in args.models:
            for sampler in args.samplers:
                yield harness.Row({"model": model, "sampler": sampler}, env)


def options(p):
    harness.choice(p, "--models", K)
    harness.choice(p, "--samplers", SAMPLERS)
    p.add_argument("--draws", type=int, default=1000)
    p.add_argument("--tune", type=int, default=1000)
    p.add_argument("--limit", type=float, default=600, help="seconds for a row")


def progress(r):
    return f"{r['speed']:.3g} ESS/s, {r['min_ess']:.0f} in all, whole call {r['whole']:.0f} s"


def markdown(args, records):
    lines = []
    for r in records:
        start = [r["model"], harness.label(r["sampler"], r["sampler"] == "pmd.sample")]
        if r["status"] != "ok":
            lines.append([*start, r["reason"][:80]])
            continue
        of = r["summaries"]
        mean = [f"{of[name]['mean']:.3g}" if name in of else "" for name in ("clusters", "agreement")]
        rhat = [f"{of['clusters']['rhat']:.3f}", f"{r['rhat_together']:.3f} ({r['pairs']})"]
        cost = [f"{1e3 * r['per_draw']:.3g}", f"{r['memory'] / 1e9:.2f}"] if "memory" in r else ["", ""]
        speed = [f"{r['min_ess']:.0f}", f"{r['speed']:.3g}", f"{r['whole']:.0f}"]
        lines.append([*start, *mean, *rhat, *speed, *cost])
    columns = ["model", "sampler", "clusters", "agreement", "R-hat of clusters", "R-hat of pairs", "ESS"]
    columns += ["ESS/s", "whole call, s", "ms a draw", "GB"]
    return "\n".join(
        ["# Partitions", "", *harness.origins(records), "", *harness.table(columns, lines), "", FOOTNOTE, ""]
    )


FOOTNOTE = f"""- {CHAINS} chains from one cluster, from as many as there are labels, and from a few at
  random; one core; as many draws of tuning as are kept. ESS/s of the processor's seconds of sampling, in
  NumPy with tuning.
- clusters: mean number. agreement: the mean share of pairs of nodes that are together, or not, as in the
  planted groups. R-hat of pairs: the largest of whether two sites are together, and of how many pairs: those
  among a thousand where the probability is from 0.05 to 0.95.
- ms a draw: of the processor, in sampling. GB: the largest memory of the process. many points: 200 draws.
- ESS: ArviZ's bulk ESS, the least of the number of clusters, the number of pairs and the agreement.
- stick-breaking is another model: weights of {K["galaxies"]} or {K["blocks"]} components, of which as
  many are clusters as have a site. Its chains have the starts of `pmd.sample`."""


if __name__ == "__main__":
    harness.main(
        harness.Benchmark(
            __doc__,
            rows,
            measure,
            markdown,
            progress,
            options,
            one_core=True,
            short={"models": ["galaxies"], "samplers": ["NumPy, algorithm 3"], "draws": 10, "tune": 10},
            keeps_other_rows=True,
        )
    )
