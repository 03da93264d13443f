"""Sites that change together: effective draws of whole calls, before and after sweeps took full rounds.

python -m benchmarks.moves --before FOLDER --out benchmarks/results/NAME-moves [--models A B]

A call of pmd.sample with 4 chains of 1,000 tuning draws and 1,000 draws, on one core, in a process of its own
that finds nothing compiled; seconds are those of the processor, from the call to its end. FOLDER is a
checkout of this repository as it was before; without it only the present state is measured. Counts that go
up and down by single steps, with and without a direction that is kept until a rejection (Gagnon and Maire
2024, Gustafson 1998), are written by hand, in JAX.
"""

import itertools
import sys
import time

import numpy as np

from benchmarks import harness, scores

CHAINS = 4


# ---------------------------------------------------------------- models: (summaries of the posterior)
def permutation(W):
    """A matching by weights W (n, n): summaries are the log density and how many places hold their own."""
    import pymc_discrete as pmd

    n = len(W)
    pmd.Permutation("x", n, W)
    return lambda p: {
        "log density": W[np.arange(n), p["x"]].sum(axis=-1),
        "own": (p["x"] == np.arange(n)).sum(axis=-1),
    }


def matching(sd, n=60):
    return permutation(sd * np.random.default_rng(1).normal(size=(n, n)))


def records(noise, n=60):
    """Records of two lists, which agree in two noisy numbers."""
    r = np.random.default_rng(1)
    a = r.normal(size=(n, 2))
    b = a + noise * r.normal(size=(n, 2))
    return permutation(-((a[:, None] - b) ** 2).sum(axis=-1) / (2 * noise**2))


def ranking(n=20, games=300):
    """An order of teams from games between them: each pair of places is a factor."""
    import pymc as pm
    import pytensor.tensor as pt

    import pymc_discrete as pmd

    r = np.random.default_rng(0)
    skill = np.sort(r.normal(size=n))[::-1]
    i, shift = r.integers(n, size=games), r.integers(1, n, size=games)
    j = (i + shift) % n
    won_by_i = r.random(games) < 1 / (1 + np.exp(-1.5 * (skill[i] - skill[j])))
    wins = np.zeros((n, n))
    np.add.at(wins, (np.where(won_by_i, i, j), np.where(won_by_i, j, i)), 1)
    first, second = np.triu_indices(n, 1)
    order, p = pmd.Permutation("order", n), pm.Uniform("p", 0.5, 1)
    won = pt.as_tensor(wins)[order[first], order[second]].sum()
    pm.Potential("games", won * pt.log(p) + (games - won) * pt.log1p(-p))
    return lambda post: (
        {"p": post["p"]}
        | {f"place of {k}": np.argsort(post["order"], axis=-1)[..., k] for k in (0, n // 2, n - 1)}
    )


def captures(occasions=4, animals=200):
    """Captures that may be misidentified (Link, Yoshizaki, Bailey and Pollock 2010, model M_t,alpha).

    An animal is at each occasion not caught, caught, or caught and taken for a new one, which then has a
    history of its own with this one capture. The counts of the latent histories are unknown, 81 for four
    occasions; those of the 15 histories that are seen are linear combinations of them.
    """
    import pymc as pm
    import pytensor.tensor as pt

    r = np.random.default_rng(3)
    latent = np.array(list(itertools.product(range(3), repeat=occasions)))
    seen = [h for h in itertools.product(range(2), repeat=occasions) if any(h)]
    A = np.zeros((len(seen), len(latent)), int)
    for k, history in enumerate(latent):
        if (history == 1).any():
            A[seen.index(tuple((history == 1).astype(int).tolist())), k] += 1
        for t in np.flatnonzero(history == 2):
            A[seen.index(tuple(np.eye(occasions, dtype=int)[t].tolist())), k] += 1

    def probabilities(xp, p, alpha):
        return xp.prod(xp.where(latent == 0, 1 - p, p * xp.where(latent == 1, alpha, 1 - alpha)), axis=1)

    y = A @ r.multinomial(animals, probabilities(np, np.full(occasions, 0.35), 0.9))
    size = pm.Gamma("size", 2, 0.01)
    p, alpha = pm.Beta("p", 1, 1, shape=occasions), pm.Beta("alpha", 9, 1)
    x = pm.Poisson("x", size * probabilities(pt, p, alpha), shape=len(latent))
    pm.Potential("seen", pt.switch(pt.all(pt.eq(A @ x, y)), 0.0, -np.inf))
    return lambda post: {
        "animals": post["x"].sum(axis=-1),
        "misidentified": post["x"] @ (latent == 2).sum(axis=1),
        "alpha": post["alpha"],
    }


def one_hot(n=300, K=8):
    """Labels of a mixture, written as Multinomials of one unit."""
    import pymc as pm

    r = np.random.default_rng(2)
    means = 3.0 * np.arange(K)
    y = r.normal(means[r.integers(K, size=n)], 1.0)
    w, mu = pm.Dirichlet("w", np.ones(K)), pm.Normal("mu", means, 1.0, shape=K)
    x = pm.Multinomial("x", 1, w, shape=(n, K), initval=np.eye(K, dtype=int)[r.integers(K, size=n)])
    pm.Normal("y", (x * mu).sum(axis=1), 1.0, observed=y)
    sizes = {f"size {k}": (lambda post, k=k: post["x"][..., k].sum(axis=-1)) for k in range(K)}
    return lambda post: (
        {f"mu {k}": post["mu"][..., k] for k in range(K)} | {name: of(post) for name, of in sizes.items()}
    )


def edges(n):
    """The edges of a graph of which the degree of each node is known; they are not equally probable."""
    import pymc as pm
    import pytensor.tensor as pt

    r = np.random.default_rng(0)
    ends = np.array(list(itertools.combinations(range(n), 2)))
    A = (ends[:, :, None] == np.arange(n)).any(axis=1).T.astype(int)
    logit = r.normal(size=len(ends))
    degrees = A @ (r.random(len(ends)) < 0.4)
    x = pm.Bernoulli("x", logit_p=logit, shape=len(ends))
    pm.Potential("degrees", pt.switch(pt.all(pt.eq(A @ x, degrees)), 0.0, -np.inf))
    return lambda post: {"log odds": post["x"] @ logit, "first edge": post["x"][..., 0]}


def tables(rows):
    """Counts with known sums, seen through noise."""
    import pymc as pm

    r = np.random.default_rng(1)
    counts = np.array([r.multinomial(30, r.dirichlet(np.ones(6))) for _ in range(rows)])
    x = pm.DirichletMultinomial("x", n=np.full(rows, 30), a=np.ones(6), shape=(rows, 6))
    pm.Normal("y", x, 3.0, observed=counts + 3.0 * r.normal(size=counts.shape))
    return lambda post: {f"count {k}": post["x"][..., 0, k] for k in range(6)}


COUNTS, MEAN, NOISE = 20, 100.0, 20.0


def data_of_counts():
    """(B (COUNTS / 2, COUNTS), y), of y = B x + noise."""
    r = np.random.default_rng(0)
    B = r.normal(size=(COUNTS // 2, COUNTS))
    return B, B @ r.poisson(MEAN, COUNTS) + NOISE * r.normal(size=len(B))


def counts():
    """Unbounded counts, of which noisy linear combinations are known."""
    import pymc as pm

    B, y = data_of_counts()
    x = pm.Poisson("x", MEAN, shape=COUNTS)
    pm.Normal("y", B @ x, NOISE, observed=y)
    return lambda post: of_counts(post["x"])


def of_counts(x):
    return {"sum": x.sum(axis=-1)} | {f"count {k}": x[..., k] for k in range(0, COUNTS, 5)}


MODELS = {
    "matching of 60, weights of sd 1": lambda: matching(1.0),
    "matching of 60, weights of sd 3": lambda: matching(3.0),
    "matching of 60, weights of sd 5": lambda: matching(5.0),
    "matching of 60, weights of sd 10": lambda: matching(10.0),
    "matching of 1,000, weights of sd 1": lambda: matching(1.0, 1000),
    "two lists of 60 records, noise 0.5": lambda: records(0.5),
    "two lists of 60 records, noise 0.2": lambda: records(0.2),
    "ranking of 20 by 300 games": ranking,
    "captures, misidentified: 81 counts, 15 equations": captures,
    "one-hot Multinomials, 300 of 8": one_hot,
    "edges of a graph of 8 nodes with known degrees": lambda: edges(8),
    "edges of a graph of 20 nodes with known degrees": lambda: edges(20),
    "20 vectors of 6 counts with known sums": lambda: tables(20),
    "200 vectors of 6 counts with known sums": lambda: tables(200),
    "20 counts of mean 100": counts,
}
WEIGHTED = [name for name in MODELS if name.startswith(("matching of 60", "two lists"))]
DEFAULT, PAS, PAFS = "default", "PathAuxiliary(recompute=True)", "PathAuxiliary()"
SINGLE, LIFTED = "single steps, by hand", "single steps, lifted, by hand"


# ---------------------------------------------------------------- by hand
def by_hand(draws, tune, lifted):
    """(chains, draws, COUNTS) counts, each of which in turn is tried one higher or lower in a draw; seconds.

    The seconds are those of the draws after tuning. The way is random, or, `lifted`, a direction that each
    count keeps until a proposal is rejected.
    """
    import jax
    import jax.numpy as jnp
    from jax.scipy.special import gammaln

    B, y = data_of_counts()
    Q, b = jnp.asarray(B.T @ B / NOISE**2), jnp.asarray(B.T @ y / NOISE**2)

    def move(k, carried):
        key, x, Qx, way = carried
        key_way, key_accept = jax.random.split(jax.random.fold_in(key, k))
        step = way[k] if lifted else jnp.where(jax.random.bernoulli(key_way), 1.0, -1.0)
        change = (
            step * (np.log(MEAN) + b[k] - Qx[k]) - Q[k, k] / 2 + gammaln(x[k] + 1) - gammaln(x[k] + step + 1)
        )
        accept = (x[k] + step >= 0) & (jnp.log(jax.random.uniform(key_accept)) < change)
        moved = jnp.where(accept, step, 0.0)
        return key, x.at[k].add(moved), Qx + moved * Q[:, k], way.at[k].set(jnp.where(accept, step, -step))

    def draw(carried, key):
        _, *carried = jax.lax.fori_loop(0, COUNTS, move, (key, *carried))
        return tuple(carried), carried[0]

    @jax.jit
    def chain(key, x):
        keys = jax.random.split(key, tune + draws)
        return jax.lax.scan(draw, (x, Q @ x, jnp.ones(COUNTS)), keys)[1][tune:]

    starts = np.random.default_rng(0).poisson(MEAN, (CHAINS, COUNTS)).astype(float)
    compiled = chain.lower(jax.random.key(0), starts[0]).compile()
    begin = time.process_time()
    found = np.stack([compiled(jax.random.key(c), x) for c, x in enumerate(starts)])
    return found, (time.process_time() - begin) * draws / (draws + tune)


# ---------------------------------------------------------------- rows
def options(p):
    harness.choice(p, "--models", MODELS)
    p.add_argument("--before", help="a checkout of this repository as it was before")
    p.add_argument("--draws", type=int, default=1000)
    p.add_argument("--tune", type=int, default=1000)
    p.add_argument("--limit", type=float, default=300, help="seconds for a row")


def rows(args, records):
    with harness.empty_pytensor_cache() as env:
        for model in args.models:
            samplers = [DEFAULT, *((PAS, PAFS) if model in WEIGHTED else ())]
            samplers += [SINGLE, LIFTED] if model == "20 counts of mean 100" else []
            for sampler in samplers:
                for state in ("before", "after") if args.before and sampler == DEFAULT else ("after",):
                    yield harness.Row({"model": model, "sampler": sampler, "state": state}, env)


def measure(args, model, sampler, state):
    if state == "before":
        sys.path.insert(0, args.before)
    begin = time.process_time()
    if sampler in (SINGLE, LIFTED):
        found, sampling = by_hand(args.draws, args.tune, sampler == LIFTED)
        return result_of(of_counts(found), time.process_time() - begin, sampling)
    import pymc as pm

    import pymc_discrete as pmd

    chunks = []
    steps = {PAS: {"path_length": "adapt", "recompute": True}, PAFS: {}}
    with pm.Model():
        of = MODELS[model]()
        begin = time.process_time()
        step = {"step": pmd.PathAuxiliary(**steps[sampler])} if sampler in steps else {}
        tree = pmd.sample(
            args.draws,
            tune=args.tune,
            chains=CHAINS,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
            callback=lambda *_: chunks.append(time.process_time()),
            **step,
        )
    seconds = time.process_time() - begin
    assert state == "after" or pmd.__file__.startswith(args.before), f"{pmd.__file__} is not in --before"
    posterior = {name: v.values for name, v in tree["posterior"].data_vars.items()}
    sampling = (chunks[-1] - chunks[0]) * len(chunks) / (len(chunks) - 1)
    return result_of(of(posterior), seconds, sampling)


def result_of(summaries, seconds, sampling):
    """The entries of a record; `sampling` are the seconds of the draws after tuning."""
    found = scores.scored(summaries, seconds)
    lags = [np.corrcoef(chain[:-1], chain[1:])[0, 1] for chain in summaries[found["worst"]]]
    return found | {"sampling": sampling, "lag 1": float(np.nan_to_num(np.mean(lags)))}


def progress(r):
    return (
        f"{r['min_ess']:.0f} effective draws ({r['worst']}) in {r['seconds']:.1f} s: {r['speed']:.3g} ESS/s"
    )


def markdown(args, records):
    columns = ["model", "sampler", "", "effective draws", "of", "a draw", "lag 1", "µs a draw"]
    columns += ["s, whole call", "a second", "R-hat"]
    lines = []
    for r in records:
        start = [
            r["model"],
            harness.label(r["sampler"], r["state"] == "after" and "hand" not in r["sampler"]),
        ]
        start.append(r["state"])
        if r["status"] != "ok":
            lines.append([*start, r["reason"][:80]])
            continue
        rhat = max(s["rhat"] for s in r["summaries"].values())
        n = CHAINS * r["draws"]
        per_draw = [f"{r['min_ess'] / n:.2g}", f"{r['lag 1']:.2f}", f"{1e6 * r['sampling'] / n:,.0f}"]
        whole = [f"{r['seconds']:.1f}", f"{r['speed']:,.3g}", f"{rhat:.2f}"]
        lines.append([*start, f"{r['min_ess']:,.0f}", r["worst"], *per_draw, *whole])
    return "\n".join(["# Moves of sites that change together", "", *harness.origins(records), "",
                      *harness.table(columns, lines), "", FOOTNOTE, ""])  # fmt: skip


FOOTNOTE = f"""- {CHAINS} chains of 1,000 tuning draws and 1,000 draws, one core, seconds of the processor.
  Effective draws: the least bulk ESS of the summaries, of which *of* names one; lag 1, its autocorrelation
  from draw to draw. *Before*: a sweep matches the sites of a set once, or draws it along as many lines as its
  lattice has dimensions. *After*: a full round, or as much of it as is cheap; one unit among several counts
  is drawn at once.
- Single steps by hand: in a draw each count is tried one higher or lower, in turn; *lifted*, each keeps its
  direction until a rejection. A sweep of BlockGibbs looks at 9 values of each count."""


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
            short={"models": ["ranking of 20 by 300 games"], "draws": 200, "tune": 100},
            keeps_other_rows=True,
        )
    )
