"""The same posterior by all routes: discrete variables sampled, or summed out in each of the ways there are.

python -m benchmarks.routes --out benchmarks/results/NAME-routes

Differences from the first route are given in Monte Carlo errors of both. nutpie has to be installed for its
rows.
"""

import time

import numpy as np

from benchmarks import harness, scores

CHAINS, DRAWS, TUNE = 2, 1000, 500
LARGEST = 4.0


# ---------------------------------------------------------------- models
# each function: () -> (model, {discrete variable: (lower, upper)} where a fixed sum needs bounds)
def labels():
    import pymc as pm

    r = np.random.default_rng(1)
    y = np.where(r.random(40) < 0.4, -1.5, 1.5) + r.normal(size=40)
    with pm.Model() as model:
        ordered = pm.distributions.transforms.ordered
        mu = pm.Normal("mu", 0, 3, shape=2, transform=ordered, initval=[-1.0, 1.0])
        w, sd = pm.Beta("w", 2, 2), pm.HalfNormal("sd", 1)
        z = pm.Bernoulli("z", w, shape=40)
        pm.Normal("y", mu[z], sd, observed=y)
    return model, {}


def occupancy():
    import pymc as pm

    r = np.random.default_rng(2)
    x = r.normal(size=40)
    there = r.random(40) < 1 / (1 + np.exp(-0.5 - x))
    y = r.binomial(4, 0.3 * there)
    with pm.Model() as model:
        a, b, p = pm.Normal("a", 0, 1.5), pm.Normal("b", 0, 1.5), pm.Beta("p", 1, 1)
        z = pm.Bernoulli("z", logit_p=a + b * x, shape=40, initval=np.ones(40, int))
        pm.Binomial("y", 4, z * p, observed=y)
    return model, {}


def counts():
    import pymc as pm

    r = np.random.default_rng(3)
    y = r.binomial(r.poisson(6, 15)[:, None], 0.5, size=(15, 3))
    with pm.Model() as model:
        lam, p = pm.Gamma("lam", 3, 0.5), pm.Beta("p", 4, 4)
        N = pm.Poisson("N", lam, shape=15, initval=y.max(1) + 1)
        pm.Binomial("y", N[:, None], p, observed=y)
    return model, {"N": (0, 80)}


def chain():
    import pymc as pm
    import pytensor.tensor as pt

    r, states = np.random.default_rng(4), [0]
    for _ in range(59):
        states.append(states[-1] if r.random() < 0.85 else 1 - states[-1])
    y = 2.0 * np.array(states) + r.normal(size=60)
    with pm.Model() as model:
        stay, step = pm.Beta("stay", 8, 2), pm.HalfNormal("step", 3)
        low = pm.Normal("low", 0, 2)
        z = pm.Bernoulli("z", np.float64(0.5), shape=60)
        same = pt.eq(z[1:], z[:-1])
        pm.Potential("chain", pt.switch(same, pt.log(stay), pt.log1p(-stay)).sum())
        pm.Normal("y", low + step * z, 1, observed=y)
    return model, {}


def gate():
    import pymc as pm

    r = np.random.default_rng(5)
    x, y = r.normal(size=30), r.normal(size=30)
    with pm.Model() as model:
        g, h = pm.Bernoulli("g", 0.4), pm.Categorical("h", p=[0.2, 0.5, 0.3])
        a, b, s = pm.Normal("a"), pm.Normal("b"), pm.HalfNormal("s")
        pm.Normal("y", a + g * b * x + 0.3 * h, s, observed=y + 0.3 * x)
    return model, {}


MODELS = {f.__name__: f for f in (labels, occupancy, counts, chain, gate)}


# ---------------------------------------------------------------- routes
QUIET = {"progressbar": False, "random_seed": 1}
CHECKS = {"compute_convergence_checks": False}


def sampled(model, truncate):
    import pymc_discrete as pmd

    return pmd.sample(8 * DRAWS, tune=TUNE, chains=CHAINS, model=model, collapse=False, **QUIET, **CHECKS)


def collapsed_nuts(model, truncate):
    import pymc as pm

    import pymc_discrete as pmd

    with model:
        step = pmd.CollapsedNUTS()
        return pm.sample(DRAWS, tune=TUNE, chains=CHAINS, cores=1, step=step, **QUIET, **CHECKS)


def auto_step(model, truncate):
    import pymc as pm

    import pymc_discrete as pmd

    with model:
        step = pmd.AutoStep()
        return pm.sample(2 * DRAWS, tune=TUNE, chains=CHAINS, cores=1, step=step, **QUIET, **CHECKS)


def collapse(model, truncate):
    import pymc_discrete as pmd

    return pmd.sample(2 * DRAWS, tune=TUNE, chains=CHAINS, model=model, collapse=True, **QUIET, **CHECKS)


def marginalize(model, truncate):
    import pymc as pm

    import pymc_discrete as pmd

    with pmd.marginalize(model, truncate=truncate or None):
        tree = pm.sample(DRAWS, tune=TUNE, chains=CHAINS, cores=1, nuts_sampler="pymc", **QUIET, **CHECKS)
    return pmd.recover(tree, model, truncate=truncate or None)


def marginalize_nutpie(model, truncate):
    import pymc as pm

    import pymc_discrete as pmd

    try:
        import nutpie  # noqa: F401
    except ImportError as error:
        raise harness.CannotRun(str(error)) from error
    with pmd.marginalize(model, truncate=truncate or None):
        tree = pm.sample(DRAWS, tune=TUNE, chains=CHAINS, cores=1, nuts_sampler="nutpie", **QUIET, **CHECKS)
    return pmd.recover(tree, model, truncate=truncate or None)


ROUTES = {
    "sampled": sampled,
    "CollapsedNUTS": collapsed_nuts,
    "AutoStep, pm.sample": auto_step,
    "pmd.sample(collapse)": collapse,
    "marginalize, pm.sample": marginalize,
    "marginalize, nutpie": marginalize_nutpie,
}


# ---------------------------------------------------------------- rows
def measure(args, model, route):
    built, truncate = MODELS[model]()
    begin = time.perf_counter()
    posterior = ROUTES[route](built, truncate)["posterior"]
    summaries = {}
    for rv in built.free_RVs:
        v = posterior[rv.name].values
        if rv.dtype.startswith("int"):
            summaries[f"sum of {rv.name}"] = v.reshape(*v.shape[:2], -1).sum(-1).astype(float)
        else:
            flat = v.reshape(*v.shape[:2], -1)
            summaries |= {f"{rv.name}[{n}]": flat[..., n] for n in range(flat.shape[-1])}
    return scores.scored(summaries, time.perf_counter() - begin)


def rows(args, records):
    for model in args.models:
        for route in args.routes:
            yield harness.Row({"model": model, "route": route})


def options(p):
    harness.choice(p, "--models", MODELS)
    harness.choice(p, "--routes", ROUTES)
    p.add_argument("--limit", type=float, default=600, help="seconds for a row")


def progress(r):
    return f"{r['seconds']:.0f} s, least ESS {r['min_ess']:.0f}"


def markdown(args, records):
    lines = []
    for r in records:
        if r["status"] != "ok":
            lines.append([r["model"], r["route"], r["status"], r["reason"][:80]])
            continue
        first = next(o for o in records if o["model"] == r["model"] and o["status"] == "ok")
        zs = {} if first is r else scores.z_scores(r, first)
        worst = max(zs, key=lambda key: abs(zs[key]), default=None)
        z = "" if worst is None else f"{zs[worst]:+.1f}"
        same = "" if worst is None else "yes" if abs(zs[worst]) < LARGEST else "NO"
        what = "" if worst is None else " of ".join(reversed(worst))
        lines.append([r["model"], r["route"], same, z, what, f"{r['min_ess']:.0f}"])
    columns = ["model", "route", f"\\|z\\| < {LARGEST:g}", "largest z", "of", "least ESS"]
    return "\n".join(
        [
            "# The same posterior by all routes",
            "",
            *harness.origins(records),
            "",
            *harness.table(columns, lines),
            "",
        ]
    )


if __name__ == "__main__":
    harness.main(
        harness.Benchmark(
            __doc__,
            rows,
            measure,
            markdown,
            progress,
            options,
            packages=("nutpie",),
            short={"models": ["gate"], "routes": ["sampled", "CollapsedNUTS"]},
        )
    )
