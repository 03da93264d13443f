"""`pmd.sample` as it chooses, with variables summed out, with none, and JAGS.

python -m benchmarks.collapse --out benchmarks/results/NAME-collapse
"""

import time

import numpy as np

from benchmarks import answers, harness, scores, tied
from benchmarks.answers import IN_JAGS
from benchmarks.jags_program import run_jags
from benchmarks.to_answer import summaries_of

SPECS = answers.SPECS | tied.SPECS
CHAINS = 4
OURS = {"pmd.sample": {}, "as it is": {"collapse": False}, "collapse": {"collapse": True}}
# what cannot be summed out; of the first two, coefficients are integrated out by default
NO_SUM = ("A", "A'", "cheaters")
PEERS = {"JAGS": (), "JAGS, glm": ("glm",)}


def ours(spec, sampler, draws, tune):
    """(seconds until the first draws, {summary: (chains, draws)}, seconds of sampling)"""
    import pymc_discrete as pmd

    options = dict(OURS[sampler])
    model, names = spec.pymc()
    if sampler == "as it is":  # a step that is named integrates nothing out
        options["step"] = pmd.AutoStep(names, model=model)
    ends = []
    # CPU seconds, on one core about those of a clock where nothing else runs
    start = time.process_time()
    tree = pmd.sample(
        draws,
        tune=tune,
        chains=CHAINS,
        model=model,
        random_seed=1,
        progressbar=False,
        compute_convergence_checks=False,
        callback=lambda *_: ends.append(time.process_time()),
        **options,
    )
    sampling = (ends[-1] - ends[0]) * len(ends) / (len(ends) - 1)
    return ends[0] - start, summaries_of(spec, tree), sampling


# ---------------------------------------------------------------- rows
def options(p):
    harness.choice(p, "--models", ("E", "occupancy", "CJS", "B", "HMM", "raters", "A", *tied.SPECS))
    harness.choice(p, "--samplers", (*OURS, *PEERS))
    p.add_argument("--draws", type=int, default=2000, help="per chain, of ours")
    p.add_argument("--tune", type=int, help="draws of tuning, of ours; by default those of the model")
    p.add_argument("--seconds", type=float, default=10, help="of sampling, of JAGS")
    p.add_argument("--limit", type=float, default=300, help="seconds for a row")


def rows(args, records):
    with harness.empty_pytensor_cache() as env:
        for model in args.models:
            for sampler in args.samplers:
                here = model in IN_JAGS if sampler in PEERS else sampler != "collapse" or model not in NO_SUM
                if here:
                    yield harness.Row({"model": model, "sampler": sampler}, env)


def measure(args, model, sampler):
    spec = SPECS[model]
    if sampler in OURS:
        before, summaries, seconds = ours(spec, sampler, args.draws, args.tune or spec.tune)
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
    "R-hat",
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
            # records of older runs have no R-hat
            rhat = np.max([each.get("rhat", np.nan) for each in r["summaries"].values()])
            cells = [f"{r['before']:.1f}", f"{r['speed']:.3g}", per_draw, r["worst"], f"{rhat:.3f}"]
            lines.append([*start, *cells, f"{z:.1f}"])
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


FOOTNOTE = f"""- {CHAINS} chains, one core. Ours: 2000 draws of each (of LDA 100 after 200 of tuning), CPU
  seconds; s before sampling: until tuning ends. pmd.sample: as it chooses by itself; as it is: nothing summed
  or integrated out; collapse: all that can be. JAGS: seconds of a clock. ESS: ArviZ's bulk ESS of all chains,
  the least of all summaries; R-hat: ArviZ's, the largest of all summaries.
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
