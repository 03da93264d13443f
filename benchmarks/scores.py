"""How good draws are: effective sample sizes and moments of summaries, and whether two samplers agree."""

import numpy as np


def bulk_ess(summaries):
    """{name: bulk ESS} of {name: (draws,) or (chains, draws)}.

    A summary that never moved has ESS 0; ArviZ would give it the number of draws.
    """
    import arviz as az

    out = {}
    for name, values in summaries.items():
        values = np.asarray(values, float)
        ess = 0.0 if np.ptp(values) == 0 else float(az.ess(np.atleast_2d(values), method="bulk"))
        out[name] = ess if np.isfinite(ess) else 0.0
    return out


def moments(summaries):
    """{name: {"mean", "sd", "ess", "rhat", "mcse_mean", "mcse_sd"}} of {name: (chains, draws)}.

    A summary has ESS 0, and no R-hat, where one of its chains never moved.
    """
    import arviz as az

    out = {}
    for name, v in summaries.items():
        moves = (np.ptp(v, axis=1) > 0).all()
        values = {"mean": v.mean(), "sd": v.std(), "ess": az.ess(v, method="bulk") if moves else 0.0}
        values["rhat"] = az.rhat(v) if moves and len(v) > 1 else np.nan
        values |= {f"mcse_{what}": az.mcse(v, method=what) for what in ("mean", "sd")}
        out[name] = {key: float(value) for key, value in values.items()}
    return out


def scored(summaries, seconds):
    """The entries of a record on draws {summary: (chains, draws)} that took so many seconds."""
    each = moments(summaries)
    worst = min(each, key=lambda name: each[name]["ess"])
    return {
        "draws": next(iter(summaries.values())).shape[1],
        "seconds": seconds,
        "worst": worst,
        "min_ess": each[worst]["ess"],
        "speed": each[worst]["ess"] / seconds,
        "summaries": each,
    }


def z_scores(record, reference):
    """{(summary, "mean" or "sd"): z}, the differences of two records in Monte Carlo errors of both."""
    return {
        (name, what): (a[what] - b[what]) / np.hypot(a[f"mcse_{what}"], b[f"mcse_{what}"])
        for name, a in record["summaries"].items()
        for b in [reference["summaries"][name]]
        for what in ("mean", "sd")
    }


def disagreements(records, sigmas=5.0):
    """A line for each mean that differs by more than `sigmas` Monte Carlo errors from the reference.

    The reference is the run with the largest ESS of that summary. Runs with an ESS below 50 are not compared.
    """
    ok = [r for r in records if r["status"] == "ok"]
    for summary in ok[0]["summaries"] if ok else []:
        reference = max(ok, key=lambda r: r["summaries"][summary]["ess"])
        a = reference["summaries"][summary]
        for r in ok:
            b = r["summaries"][summary]
            error = np.sqrt(a["sd"] ** 2 / max(a["ess"], 1) + b["sd"] ** 2 / max(b["ess"], 1))
            if min(b["ess"], a["ess"]) >= 50 and abs(a["mean"] - b["mean"]) > sigmas * error:
                yield (
                    f"means differ: {summary} is {b['mean']:.4g} by {r['sampler']} seed {r['seed']}, "
                    f"{a['mean']:.4g} by {reference['sampler']} seed {reference['seed']}"
                )
