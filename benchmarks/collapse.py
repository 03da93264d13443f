"""`pmd.sample` with variables summed or integrated out, beside the same without, and JAGS.

python -m benchmarks.collapse --out benchmarks/results/NAME-collapse
"""

import time

import numpy as np

from benchmarks import harness, scores
from benchmarks.answers import IN_JAGS, SPECS
from benchmarks.jags_program import run_jags
from benchmarks.to_answer import summaries_of

CHAINS, DRAWS = 4, 2000
OURS = {
    "pmd.sample": {},
    "collapse": {"collapse": True},
    "collapse, dense": {"collapse": True, "nuts": {"dense": True}},
    "dense": {"nuts": {"dense": True}},
    "integrate": {},
}
INTEGRABLE = ("A",)  # the models whose coefficients can be integrated out; in the others something is summed
PEERS = {"JAGS": (), "JAGS, glm": ("glm",)}


def ours(spec, sampler):
    """(seconds until the first draws, {summary: (chains, draws)}, seconds of sampling)"""
    import pymc_discrete as pmd

    options = dict(OURS[sampler])
    model, names = spec.pymc()
    if sampler == "integrate":
        options["step"] = pmd.BlockGibbs(names, integrate="auto", model=model)
    ends = []
    start = time.perf_counter()
    tree = pmd.sample(
        DRAWS,
        tune=spec.tune,
        chains=CHAINS,
        model=model,
        random_seed=1,
        progressbar=False,
        compute_convergence_checks=False,
        callback=lambda *_: ends.append(time.perf_counter()),
        **options,
    )
    sampling = (ends[-1] - ends[0]) * len(ends) / (len(ends) - 1)
    return ends[0] - start, summaries_of(spec, tree), sampling


# ---------------------------------------------------------------- rows
def options(p):
    harness.choice(p, "--models", ("E", "occupancy", "CJS", "B", "HMM", "raters", "A"))
    harness.choice(p, "--samplers", (*OURS, *PEERS))
    p.add_argument("--seconds", type=float, default=10, help="of sampling, of JAGS")
    p.add_argument("--limit", type=float, default=300, help="seconds for a row")


def rows(args, records):
    with harness.empty_pytensor_cache() as env:
        for model in args.models:
            for sampler in args.samplers:
                other = sampler == "pmd.sample" or sampler in PEERS
                if other or (sampler == "integrate") == (model in INTEGRABLE):
                    yield harness.Row({"model": model, "sampler": sampler}, env)


def measure(args, model, sampler):
    spec = SPECS[model]
    if sampler in OURS:
        before, summaries, seconds = ours(spec, sampler)
    else:
        jags = IN_JAGS[model]()
        (text,) = jags.jags.values()
        summaries, (seconds, _), before, _ = run_jags(
            jags, text, PEERS[sampler], args.seconds, 1, CHAINS, spec.tune
        )
    return {"before": float(before)} | scores.scored(summaries, float(seconds))


def progress(r):
    return f"{r['speed']:.3g} ESS/s, {r['min_ess'] / (CHAINS * r['draws']):.2g} a draw"


COLUMNS = [
    "model",
    "sampler",
    "s before sampling",
    "ESS/s",
    "ESS per draw",
    "slowest summary",
    "largest \\|z\\|",
]


def markdown(args, records):
    lines, notes = [], []
    for model in dict.fromkeys(r["model"] for r in records):
        mine = [r for r in records if r["model"] == model]
        reference = next((r for r in mine if r["sampler"] == "pmd.sample" and r["status"] == "ok"), None)
        for r in mine:
            start = [model, harness.label(r["sampler"], r["sampler"] in OURS)]
            if r["status"] != "ok":
                lines.append([*start, r["reason"][:80]])
                continue
            z = 0.0
            if reference and r is not reference:
                z = float(np.abs(list(scores.z_scores(r, reference).values())).max())
            per_draw = f"{r['min_ess'] / (CHAINS * r['draws']):.2g}"
            lines.append(
                [*start, f"{r['before']:.1f}", f"{r['speed']:.3g}", per_draw, r["worst"], f"{z:.1f}"]
            )
        notes.append(f"- {model}: {SPECS[model].title}.")
    return "\n".join(
        [
            "# Variables summed or integrated out",
            "",
            *harness.origins(records),
            "",
            *harness.table(COLUMNS, lines),
            "",
            *notes,
            FOOTNOTE,
            "",
        ]
    )


FOOTNOTE = f"""- {CHAINS} chains, one core. Ours: {DRAWS} draws of each; s before sampling: until tuning ends.
  dense: the mass matrix of NUTS. ESS: ArviZ's bulk ESS of all chains, the least of all summaries.
- z: difference of a mean or sd from that of pmd.sample, in Monte Carlo errors, the largest."""


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
            short={"models": ["E"], "seconds": 1},
        )
    )
