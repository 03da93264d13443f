"""Regressions with indicators, their coefficients integrated out or not, beside PyMC's own steps.

python -m benchmarks.integrals --out benchmarks/results/NAME-integrals

A: 200 rows, 100 columns, the noise known. A': 300 columns that are correlated 0.9; noise, scale of the
coefficients and inclusion probability unknown. L: a logistic regression, 500 rows, 100 columns correlated 0.6
with their neighbours, scale and inclusion probability unknown. mixed: a logistic regression with an effect of
each of 100 groups. items: a Rasch model of 20 items and 200 persons, items perhaps easier for a group. 100 to
50,000: that many columns, which are correlated 0.6 with their neighbours, 500 rows, the noise unknown, ten
columns count.

Whether every chain visits the columns that the others know is shown by the largest difference between an
inclusion probability of a chain and that of all chains.
"""

import time
from functools import partial

import numpy as np

from benchmarks import harness, scores
from benchmarks.memory import most_resident
from benchmarks.models import (
    item_bias,
    item_bias_data,
    logistic_selection,
    logistic_selection_data,
    logistic_selection_numpyro,
    logistic_selection_summaries,
    mixed_selection,
    mixed_selection_data,
    spike_and_slab,
    spike_and_slab_data,
    thousands,
    thousands_data,
)

CHAINS = 4
CORRELATION = 0.9
# {model with that many columns: draws}, of which only indicators and the noise are kept
THOUSANDS = {"100": 1000, "1,000": 1000, "10,000": 1000, "50,000": 100}
DRAWS = {
    "pmd.sample": 2000,
    "pmd.sample, by default": 2000,
    "pmd.sample, not integrated": 2000,
    "PyMC": 200,
    "pm.sample": 1000,
    "pm.sample, not integrated": 500,
    "NumPyro": 2000,
}


def correlated_data(n=200, p=300):
    r = np.random.default_rng(6)
    X = np.sqrt(CORRELATION) * r.normal(size=(n, 1)) + np.sqrt(1 - CORRELATION) * r.normal(size=(n, p))
    b = np.zeros(p)
    b[r.choice(p, 10, replace=False)] = r.normal(0, 1, 10)
    return X, X @ b + r.normal(size=n)


def correlated():
    import pymc as pm
    import pytensor.tensor as pt

    X, y = correlated_data()
    with pm.Model() as model:
        w, s, tau = pm.Beta("w", 1, 9), pm.HalfNormal("sigma", 2), pm.HalfNormal("tau", 2)
        g = pm.Bernoulli("gamma", w, shape=X.shape[1])
        b = pm.Normal("beta", 0, tau, shape=X.shape[1])
        pm.Normal("y", pt.dot(X, g * b), s, observed=y)
    return model, ["gamma"]


MODELS = {
    "A'": (correlated, correlated_data),
    "A": (spike_and_slab, spike_and_slab_data),
    "L": (logistic_selection, logistic_selection_data),
    "mixed": (mixed_selection, mixed_selection_data),
    "items": (item_bias, item_bias_data),
    **{
        name: (partial(thousands, p), partial(thousands_data, p=p))
        for name, p in {"100": 100, "1,000": 1_000, "10,000": 10_000, "50,000": 50_000}.items()
    },
}
# all that is normal given the indicators, by model
COEFFICIENTS = {"L": ["beta", "a"], "mixed": ["beta", "a", "u"], "items": ["beta", "a", "u"]}


def step_of(sampler, model):
    """The step of a sampler on one of the models, None for PyMC's own choice."""
    import pymc_discrete as pmd

    if sampler in ("PyMC", "pmd.sample, by default"):
        return None
    if sampler.endswith("not integrated"):
        return pmd.BlockGibbs(["gamma"])
    if sampler == "pm.sample":
        return pmd.CollapsedNUTS(integrate=COEFFICIENTS.get(model, ["beta"]))
    return pmd.BlockGibbs(["gamma"], integrate=COEFFICIENTS.get(model, ["beta"]))


def summaries_of(posterior, model):
    a = {name: v.values for name, v in posterior.data_vars.items()}
    if model == "L":
        return logistic_selection_summaries(a)
    if model in ("mixed", "items"):
        g, found = a["gamma"], {name: a[name] for name in ("w", "tau") if name in a}
        found |= {f"column {j}": g[..., j] for j in np.flatnonzero(np.abs(g.mean((0, 1)) - 0.5) < 0.45)}
        return (
            found
            | {f"u {j}": a["u"][..., j] for j in (0, 50)}
            | {"a": a["a"].reshape(*g.shape[:2], -1)[..., 0]}
        )
    if model in THOUSANDS:
        return {"number active": a["gamma"].sum(-1), "sigma": a["sigma"]}
    X, y = MODELS[model][1]()
    residual = y - (a["gamma"] * a["beta"]) @ X.T
    found = {"number active": a["gamma"].sum(-1), "squared error": (residual**2).sum(-1)}
    return found | {name: a[name] for name in ("w", "sigma", "tau") if name in a}


def measure(args, model, sampler):
    if sampler == "NumPyro":
        begin = time.perf_counter()
        return numpyro_draws(args, DRAWS[sampler]) | {"whole": time.perf_counter() - begin}
    import pymc as pm

    import pymc_discrete as pmd

    (built, _), ends = MODELS[model][0](), {}
    quiet = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
    run = {"draws": DRAWS[sampler], "tune": args.tune, "chains": CHAINS, **quiet}
    begin = time.perf_counter()
    if model in THOUSANDS:
        run["draws"] = THOUSANDS[model]
        run["tune"] = min(args.tune, THOUSANDS[model])
    with built:
        if sampler.startswith("pmd.sample"):
            chunks = []
            run["var_names"] = ["gamma", "sigma"] if model in THOUSANDS else None
            run["callback"] = lambda *_: chunks.append(time.process_time())
            tree = pmd.sample(step=step_of(sampler, model), **run)
            seconds = (chunks[-1] - chunks[0]) * len(chunks) / (len(chunks) - 1)
        else:

            def callback(trace, draw):
                if not draw.tuning:
                    now = time.process_time()
                    ends[draw.chain] = (ends.get(draw.chain, (now,))[0], now)

            tree = pm.sample(step=step_of(sampler, model), cores=1, callback=callback, **run)
            seconds = sum(last - first for first, last in ends.values())
    whole = time.perf_counter() - begin
    return of_draws(tree["posterior"], model, seconds) | {"whole": whole}


def of_draws(posterior, model, seconds):
    """What is recorded of draws that took some seconds, and of the process that made them."""
    gamma = posterior["gamma"].values
    shares = gamma.mean(1)
    return scores.scored(summaries_of(posterior, model), seconds) | {
        "apart": float(np.abs(shares - shares.mean(0)).max()),
        "inclusion": shares.mean(0).round(4).tolist(),
        "most_bytes": most_resident(),
    }


def numpyro_draws(args, draws):
    """NumPyro's DiscreteHMCGibbs around NUTS on model L, one chain after another, part by part."""
    import jax
    import numpyro
    import xarray
    from numpyro.infer import NUTS, DiscreteHMCGibbs

    numpyro.enable_x64()
    kernel, part, seconds, kept = DiscreteHMCGibbs(NUTS(logistic_selection_numpyro())), 100, 0.0, []
    states = [
        kernel.init(key, args.tune, None, (), {}) for key in jax.random.split(jax.random.PRNGKey(1), CHAINS)
    ]

    def one(state, _):
        state = kernel.sample(state, (), {})
        return state, kernel.postprocess_fn((), {})(state.z)

    run = jax.jit(lambda state: jax.lax.scan(one, state, None, part)).lower(states[0]).compile()
    for state in states:
        for _ in range(args.tune // part):
            state, _ = run(state)
        of_chain, begin = [], time.process_time()
        for _ in range(draws // part):
            state, values = jax.block_until_ready(run(state))
            of_chain.append(jax.tree.map(np.asarray, values))
        seconds += time.process_time() - begin
        kept.append(jax.tree.map(lambda *parts: np.concatenate(parts), *of_chain))
    values = jax.tree.map(lambda *chains: np.stack(chains), *kept)
    return of_draws(
        xarray.Dataset({n: (("chain", "draw", f"{n}_0")[: v.ndim], v) for n, v in values.items()}),
        "L",
        seconds,
    )


def rows(args, records):
    with harness.empty_pytensor_cache() as env:
        for model in args.models:
            for sampler in args.samplers:
                if sampler == "NumPyro" and model != "L":
                    continue
                yield harness.Row({"model": model, "sampler": sampler}, env)


def options(p):
    harness.choice(p, "--models", MODELS)
    harness.choice(p, "--samplers", DRAWS)
    p.add_argument("--tune", type=int, default=500)
    p.add_argument("--limit", type=float, default=900, help="seconds for a row")


def progress(r):
    return (
        f"{r['speed']:.3g} ESS/s, {r['min_ess'] / (CHAINS * r['draws']):.2g} a draw, apart {r['apart']:.2g}"
    )


def markdown(args, records):
    lines = []
    for r in records:
        start = [r["model"], harness.label(r["sampler"], r["sampler"] not in ("PyMC", "NumPyro"))]
        if r["status"] != "ok":
            lines.append([*start, r["reason"][:80]])
            continue
        reference = next((o for o in records if o["model"] == r["model"] and o["status"] == "ok"), r)
        z = 0.0
        if reference is not r:
            z = float(np.abs(list(scores.z_scores(r, reference).values())).max())
        per_draw = f"{r['min_ess'] / (CHAINS * r['draws']):.2g}"
        took = [f"{r['seconds'] / CHAINS / r['draws'] * 1e3:.2g}"]
        took += [f"{r['most_bytes'] / 1e9:.2g}" if "most_bytes" in r else ""]
        lines.append(
            [*start, f"{r['speed']:.3g}", per_draw, *took, r["worst"], f"{r['apart']:.2f}", f"{z:.1f}"]
        )
    columns = [
        "model",
        "sampler",
        "ESS/s",
        "ESS per draw",
        "ms a draw",
        "GB",
        "slowest summary",
        "chains apart",
        "largest \\|z\\|",
    ]
    return "\n".join(
        [
            "# Coefficients integrated out",
            "",
            *harness.origins(records),
            "",
            *harness.table(columns, lines),
            "",
            FOOTNOTE,
            "",
        ]
    )


FOOTNOTE = f"""- {CHAINS} chains, one core; seconds of the processor, of sampling only. ESS: ArviZ's bulk ESS,
  the least of all summaries. The machine was shared with other programs. GB: of the process, at most.
- pmd.sample integrates all coefficients out; by default effects of more than 20 elements that have no
  indicator are left to NUTS.
- chains apart: the largest difference between an inclusion probability of a chain and that of all chains.
- z: difference of a mean or sd from that of the first row, in Monte Carlo errors, the largest."""


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
            short={"models": ["A"], "samplers": ["pmd.sample"], "tune": 50},
            keeps_other_rows=True,
        )
    )
