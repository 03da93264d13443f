"""What comes out of sums: the error of `probabilities` beside that of counted draws, and leave-one-out.

python -m benchmarks.outputs --out benchmarks/results/NAME-outputs
"""

import numpy as np

from benchmarks import harness
from benchmarks.answers import SPECS

DRAWS = 500
QUIET = {"progressbar": False, "compute_convergence_checks": False}


# ---------------------------------------------------------------- probabilities
def errors(model, name, chains):
    """Standard deviations over chains of two estimates of p(z_i = k): the group's, and the share of draws.

    Both are root mean squares over sites and values whose probability is between 0.01 and 0.99.
    """
    import pymc_discrete as pmd

    idata = pmd.sample(DRAWS, tune=DRAWS, chains=chains, model=model, collapse=True, random_seed=1, **QUIET)
    of_group = idata["probabilities"][name].values
    values = idata["probabilities"][f"{name} value"].values
    draws = idata["posterior"][name].values
    counted = np.stack([(draws == k).mean(1) for k in values], axis=-1)
    mean = of_group.mean(0)
    unsure = (mean > 0.01) & (mean < 0.99)
    found = {
        way: float(np.sqrt(estimates.var(0, ddof=1)[unsure].mean()))
        for way, estimates in (("group", of_group), ("counted", counted))
    }
    # the two estimate the same
    z = (of_group - counted).mean(0)[unsure] / ((of_group - counted).std(0, ddof=1)[unsure] / chains**0.5)
    return found | {"estimates": int(unsure.sum()), "largest_z": float(abs(z).max())}


# ---------------------------------------------------------------- leave-one-out
def outliers_data(n=40):
    r = np.random.default_rng(11)
    x, out = np.linspace(-2, 2, n), r.random(n) < 0.15
    return x, 1.0 + 0.8 * x + r.normal(size=n) * np.where(out, 4.0, 0.4)


def outliers(by_hand):
    """A regression in which each observation may be an outlier: by an indicator, or as a mixture."""
    import pymc as pm

    x, y = outliers_data()
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 5), pm.Normal("b", 0, 5)
        narrow, wider = pm.HalfNormal("narrow", 1), pm.HalfNormal("wider", 5)
        share = pm.Beta("share", 1, 4)
        scales = pm.math.stack([narrow, narrow + wider])
        if by_hand:
            w = pm.math.stack([1 - share, share])
            pm.NormalMixture("y", w=w, mu=(a + b * x)[:, None], sigma=scales, observed=y)
        else:
            out = pm.Bernoulli("out", share, shape=len(y))
            pm.Normal("y", a + b * x, scales[out], observed=y)
    return model


def left_out(way, chains):
    """ArviZ's leave-one-out: elpd, its standard error, the share of Pareto k above 0.7."""
    import arviz as az
    import pymc as pm

    import pymc_discrete as pmd

    model = outliers(by_hand=way == "by hand")
    likelihood = {"given the indicators": True, "indicators summed out": "marginal", "by hand": True}[way]
    collapse = way != "by hand"
    idata = pmd.sample(
        4 * DRAWS,
        tune=2 * DRAWS,
        chains=chains,
        model=model,
        collapse=collapse,
        random_seed=1,
        idata_kwargs={"log_likelihood": likelihood},
        **QUIET,
    )
    loo = az.loo(idata, var_name="y", pointwise=True)
    k = np.asarray(loo.pareto_k)
    found = {"elpd": float(loo.elpd), "se": float(loo.se), "above": float((k > 0.7).mean())}
    found["largest_k"] = float(k.max())
    if way == "indicators summed out":  # the log likelihood of the model by hand, of the same draws
        theirs = idata.copy()
        del theirs["log_likelihood"]
        pm.compute_log_likelihood(theirs, model=outliers(by_hand=True), progressbar=False)
        difference = theirs["log_likelihood"]["y"].values - idata["log_likelihood"]["y"].values
        found["difference"] = float(abs(difference).max())
        found["elpd_by_hand"] = float(az.loo(theirs, var_name="y").elpd)
    return found


# ---------------------------------------------------------------- rows
WAYS = ("given the indicators", "indicators summed out", "by hand")
MODELS = {"B": "z", "HMM": "z"}


def options(p):
    p.add_argument("--chains", type=int, default=32, help="from which Monte Carlo errors are estimated")
    p.add_argument("--limit", type=float, default=500, help="seconds for a row")


def rows(args, records):
    yield from (harness.Row({"what": "probabilities", "case": model}) for model in MODELS)
    yield from (harness.Row({"what": "LOO", "case": way}) for way in WAYS)


def measure(args, what, case):
    if what == "LOO":
        return left_out(case, 4)
    model, _ = SPECS[case].pymc()
    return errors(model, MODELS[case], args.chains) | {"chains": args.chains}


def progress(r):
    if r["what"] == "LOO":
        return f"elpd {r['elpd']:.2f}, {100 * r['above']:.0f} % of k above 0.7"
    return f"{r['group']:.2g} beside {r['counted']:.2g}"


def markdown(args, records):
    good = [r for r in records if r["status"] == "ok"]
    probabilities = [
        [
            SPECS[r["case"]].title,
            f"{r['counted']:.2g}",
            f"{r['group']:.2g}",
            f"{r['group'] / r['counted']:.2f}",
            f"{r['largest_z']:.1f}",
        ]
        for r in good
        if r["what"] == "probabilities"
    ]
    left = [
        [
            r["case"],
            f"{r['elpd']:.2f}",
            f"{r['se']:.2f}",
            f"{100 * r['above']:.0f} %",
            f"{r['largest_k']:.2f}",
        ]
        for r in good
        if r["what"] == "LOO"
    ]
    same = [
        f"- Of the draws of 'indicators summed out', the log likelihood of the model by hand differs by at "
        f"most {r['difference']:.1g}; elpd {r['elpd']:.6f} and {r['elpd_by_hand']:.6f}."
        for r in good
        if "difference" in r
    ]
    head = ["model", "counted draws", "`probabilities`", "ratio", "largest \\|z\\|"]
    return "\n".join(
        [
            "# What comes out of sums",
            "",
            *harness.origins(records),
            "",
            "Monte Carlo error of p(z_i = k), one chain:",
            "",
            *harness.table(head, probabilities),
            "",
            "Leave-one-out of a regression, 40 observations, with indicators of outliers:",
            "",
            *harness.table(["log likelihood", "elpd", "se", "Pareto k above 0.7", "largest k"], left),
            "",
            f"- Errors: standard deviation over chains of {DRAWS} draws, root mean square over sites and",
            "  values of probability 0.01 to 0.99. z: their differences in Monte Carlo errors, the largest.",
            "- Labels of both models are identified, their means unknown.",
            *same,
            "",
        ]
    )


if __name__ == "__main__":
    harness.main(
        harness.Benchmark(
            __doc__, rows, measure, markdown, progress, options, short={"chains": 4}, one_core=False
        )
    )
