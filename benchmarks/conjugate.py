"""Labels with the parameters that they select integrated out, beside what `pmd.sample` does by default.

python -m benchmarks.conjugate --out benchmarks/results/NAME-conjugate

By default labels are summed out where they can be, and NUTS moves the parameters: a mixture of three normal
distributions, three latent classes of eight items, items of three kinds that five people rate, and topics of
twelve documents. Of a block model they cannot be.
"""

import time

import numpy as np

from benchmarks import harness, scores

CHAINS = 4
DRAWS = {"pmd.sample": 1000, "integrate": 1000}
K = 3


def mixture():
    import pymc as pm

    r = np.random.default_rng(1)
    x = np.array([-2.0, 0.0, 2.5])[r.integers(0, K, 500)] + r.normal(size=500)
    with pm.Model() as model:
        z = pm.Categorical("z", pm.Dirichlet("w", np.ones(K)), shape=500)
        pm.Normal("x", pm.Normal("mu", 0, 3, shape=K)[z], 1, observed=x)
    return model


def classes():
    import pymc as pm

    r = np.random.default_rng(2)
    y = r.random((300, 8)) < r.beta(1, 1, (K, 8))[r.integers(0, K, 300)]
    with pm.Model() as model:
        z = pm.Categorical("z", pm.Dirichlet("w", np.ones(K)), shape=300)
        pm.Bernoulli("y", pm.Beta("p", 1, 1, shape=(K, 8))[z], observed=y.astype(int))
    return model


def raters():
    import pymc as pm

    r = np.random.default_rng(3)
    z0 = r.integers(0, K, 100)
    y = np.where(r.random((100, 5)) < 0.7, z0[:, None], r.integers(0, K, (100, 5)))
    with pm.Model() as model:
        z = pm.Categorical("z", pm.Dirichlet("w", np.ones(K)), shape=100)
        given = pm.Dirichlet("t", np.ones((5, K, K)) + 2 * np.eye(K), shape=(5, K, K))
        pm.Categorical("y", given[np.arange(5)[None, :], z[:, None]], observed=y)
    return model


def topics():
    import pymc as pm

    r = np.random.default_rng(4)
    shares, words = r.dirichlet(np.full(4, 0.3), 12), r.dirichlet(np.full(40, 0.1), 4)
    document = np.sort(r.integers(0, 12, 600))
    w = [r.choice(40, p=words[r.choice(4, p=shares[d])]) for d in document]
    with pm.Model() as model:
        theta = pm.Dirichlet("theta", np.full(4, 0.3), shape=(12, 4))
        z = pm.Categorical("z", theta[document], shape=600)
        pm.Categorical("word", pm.Dirichlet("phi", np.full(40, 0.1), shape=(4, 40))[z], observed=w)
    return model


def blocks():
    import pymc as pm

    r, n = np.random.default_rng(5), 60
    i, j = np.triu_indices(n, 1)
    z0 = r.integers(0, K, n)
    y = r.random(len(i)) < np.where(z0[i] == z0[j], 0.4, 0.1)
    with pm.Model() as model:
        z = pm.Categorical("z", pm.Dirichlet("w", np.ones(K)), shape=n)
        pm.Bernoulli("y", pm.Beta("P", 1, 1, shape=(K, K))[z[i], z[j]], observed=y.astype(int))
    return model


MODELS = {f.__name__: f for f in (mixture, classes, raters, topics, blocks)}


def summaries_of(posterior):
    """Functions of the parameters that do not change when labels change their names."""
    shares = posterior["w" if "w" in posterior else "theta"].values
    return {
        "largest share": shares.max(-1).reshape(*shares.shape[:2], -1).mean(-1),
        "sum of squares": (shares**2).reshape(*shares.shape[:2], -1).sum(-1),
    }


def measure(args, model, sampler):
    import pymc_discrete as pmd

    with MODELS[model]():
        step = pmd.BlockGibbs(["z"], integrate="auto") if sampler == "integrate" else None
        chunks = []
        options = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
        begin = time.perf_counter()
        tree = pmd.sample(
            DRAWS[sampler],
            tune=args.tune,
            chains=CHAINS,
            step=step,
            callback=lambda *_: chunks.append(time.process_time()),
            **options,
        )
    whole = time.perf_counter() - begin
    seconds = (chunks[-1] - chunks[0]) * len(chunks) / (len(chunks) - 1)
    return scores.scored(summaries_of(tree["posterior"]), seconds) | {"whole": whole}


def rows(args, records):
    with harness.empty_pytensor_cache() as env:
        for model in args.models:
            for sampler in args.samplers:
                yield harness.Row({"model": model, "sampler": sampler}, env)


def options(p):
    harness.choice(p, "--models", MODELS)
    harness.choice(p, "--samplers", DRAWS)
    p.add_argument("--tune", type=int, default=1000)
    p.add_argument("--limit", type=float, default=300, help="seconds for a row")


def progress(r):
    return f"{r['speed']:.3g} ESS/s, {r['min_ess']:.0f} in all, whole call {r['whole']:.0f} s"


def markdown(args, records):
    lines = []
    for r in records:
        start = [r["model"], harness.label(r["sampler"], True)]
        if r["status"] != "ok":
            lines.append([*start, r["reason"][:80]])
            continue
        of_model = [o for o in records if o["model"] == r["model"] and o["status"] == "ok"]
        z = 0.0
        if of_model[0] is not r:
            z = float(np.abs(list(scores.z_scores(r, of_model[0]).values())).max())
        ess, rhat = f"{r['min_ess']:.0f}", max(s["rhat"] for s in r["summaries"].values())
        lines.append([*start, f"{r['speed']:.3g}", ess, f"{rhat:.3f}", f"{r['whole']:.0f}", f"{z:.1f}"])
    columns = ["model", "sampler", "ESS/s", "ESS", "R-hat", "whole call, s", "largest \\|z\\|"]
    return "\n".join(
        [
            "# Parameters of labels integrated out",
            "",
            *harness.origins(records),
            "",
            *harness.table(columns, lines),
            "",
            FOOTNOTE,
            "",
        ]
    )


FOOTNOTE = f"""- {CHAINS} chains, one core, 1,000 draws and as many of tuning; ESS/s of the processor's
  seconds of sampling. ESS: ArviZ's bulk ESS, the least of two summaries on which the names of labels
  have no influence.
- pmd.sample: what it does by default. integrate: `step=pmd.BlockGibbs(["z"], integrate="auto")`.
- z: difference of a mean or sd from that of the first row, in Monte Carlo errors, the largest. Chains of the
  block model are in two modes, of two groups and of three, that neither row joins: its means are those of the
  modes that chains came to."""


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
            short={"models": ["blocks"], "samplers": ["integrate"], "tune": 50},
            keeps_other_rows=True,
        )
    )
