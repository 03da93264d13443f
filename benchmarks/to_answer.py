"""Seconds from a call of pmd.sample to the first draw, and to 1,000 effective draws of every summary.

python -m benchmarks.to_answer --out benchmarks/results/to-answer-NAME
python -m benchmarks.to_answer --models A C

Each model has three processes: one finds how many draws are enough; the next begins without compiled programs
on disk (cold); the last has those that the one before left there (warm). The last two call pmd.sample three
times: at first, again, and with other data of the same shapes.
"""

import contextlib
import os
import tempfile
import time

import numpy as np

from benchmarks import harness, scores
from benchmarks.models import MODELS

WANTED = 1000  # effective draws
CHAINS = 4
MOST = 2**17  # draws per chain that are tried
CALLS = ("first", "again", "other data")


# ---------------------------------------------------------------- measurements
def summaries_of(spec, tree):
    """{summary: (chains, draws)} of a tree of draws."""
    posterior = tree["posterior"]
    names = list(posterior.data_vars)
    chains = [spec.summaries({n: posterior[n].values[c] for n in names}) for c in range(CHAINS)]
    return {name: np.stack([chain[name] for chain in chains]) for name in chains[0]}


def sample(spec, model, draws, **options):
    import pymc_discrete as pmd

    quiet = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
    return pmd.sample(draws, tune=spec.tune, chains=CHAINS, model=model, **quiet, **options)


def enough(spec):
    """The number of draws per chain, a power of two, that have enough effective draws."""
    model, _ = spec.pymc()
    draws = 256
    while draws < MOST:
        ess = min(scores.bulk_ess(summaries_of(spec, sample(spec, model, draws))).values())
        if ess >= WANTED:
            break
        draws *= 2 ** max(1, int(np.floor(np.log2(WANTED / max(ess, 1)))))
    return {"draws": int(min(draws, MOST)), "ess": ess}


def with_other_data(spec, seed):
    """The model with the last axis of its observed values permuted."""
    import pytensor.tensor as pt

    model, _ = spec.pymc()
    rng = np.random.default_rng(seed)
    for rv in model.observed_RVs:
        old = model.rvs_to_values[rv]
        new = pt.constant(rng.permutation(old.data, axis=-1), name=old.name)
        model.rvs_to_values[rv] = new
        model.values_to_rvs[new] = model.values_to_rvs.pop(old)
    return model


def calls(spec, draws):
    """Seconds to the first draw and to the last one, and programs compiled, of the three calls."""
    start = time.perf_counter()
    import pymc  # noqa: F401

    imported = time.perf_counter()
    import jax

    import pymc_discrete as pmd

    _ = pmd.sample  # imported when it is first used
    record = {"pymc_seconds": imported - start, "import_seconds": time.perf_counter() - imported}
    compiled = []

    def note(event, *_, **__):
        compiled.extend([event] * event.endswith("backend_compile_duration"))

    jax.monitoring.register_event_duration_secs_listener(note)
    model, _ = spec.pymc()
    for call, of_call in zip(CALLS, (model, model, with_other_data(spec, 1)), strict=True):
        compiled.clear()
        begin, chunks = time.perf_counter(), []
        tree = sample(spec, of_call, draws, callback=lambda *_, to=chunks: to.append(time.perf_counter()))
        end = time.perf_counter()
        ess = min(scores.bulk_ess(summaries_of(spec, tree)).values())
        record[call] = {
            "first_draw": chunks[0] - begin,
            "seconds": end - begin,
            "compiled": len(compiled),
            "ess": ess,
        }
    return record


# ---------------------------------------------------------------- rows
def options(p):
    p.add_argument("--models", nargs="+", default=list("ABCDEF"), choices=list(MODELS))
    p.add_argument("--limit", type=float, default=900, help="seconds for a row")


def rows(args, records):
    for model in args.models:
        with tempfile.TemporaryDirectory() as folder, harness.empty_pytensor_cache() as env:
            env = {**env, "PYMC_DISCRETE_CACHE": os.path.join(folder, "unused")}
            yield harness.Row({"model": model, "stage": "enough", "draws": 0}, env)
            enough_draws = [r["enough"] for r in records if r["model"] == model and "enough" in r]
            draws = enough_draws[-1] if enough_draws else 1000
            env = {**env, "PYMC_DISCRETE_CACHE": os.path.join(folder, "used")}
            for stage in ("cold", "warm"):
                yield harness.Row({"model": model, "stage": stage, "draws": draws}, env)


def measure(args, model, stage, draws):
    spec = MODELS[model]
    if stage == "enough":
        found = enough(spec)
        return {"enough": found["draws"], "ess": found["ess"]}
    return calls(spec, draws)


def progress(r):
    if r["stage"] == "enough":
        return f"{r['enough']} draws per chain"
    return "; ".join(f"{call}: {r[call]['first_draw']:.2f}, {r[call]['seconds']:.2f} s" for call in CALLS)


COLUMNS = [
    "model", "draws", "cold", "warm", "again", "other data", "cold, all", "warm, all", "again, all",
    "other data, all", "compiled: cold", "again", "other data", "least ESS",
]  # fmt: skip


def markdown(args, records):
    lines, importing = [], []
    for model in dict.fromkeys(r["model"] for r in records):
        stages = {r["stage"]: r for r in records if r["model"] == model and r["status"] == "ok"}
        if not {"cold", "warm"} <= set(stages):
            lines.append([model, "no result"])
            continue
        cold, warm = stages["cold"], stages["warm"]
        importing += [(r["import_seconds"], r["pymc_seconds"]) for r in (cold, warm)]
        which = (cold["first"], warm["first"], cold["again"], cold["other data"])
        seconds = [f"{c[key]:.2f}" for key in ("first_draw", "seconds") for c in which]
        compiled = [str(c["compiled"]) for c in (cold["first"], cold["again"], cold["other data"])]
        least = min(r[call]["ess"] for r in (cold, warm) for call in CALLS)
        lines.append([MODELS[model].title, cold["draws"], *seconds, *compiled, f"{least:.0f}"])
    ours, pymcs = (np.median([pair[n] for pair in importing]) if importing else np.nan for n in (0, 1))
    return "\n".join(
        [
            "# From the call to the answer",
            "",
            *harness.origins(records),
            f"pmd.sample, {CHAINS} chains, as many draws as have {WANTED:,} effective draws of every "
            "summary. Seconds from the call to the first draws on the host, and then to the last ones (all): "
            "cold, without programs on disk; warm, with those of the process before; again, the second call "
            "of the cold process; other data, its third call, with permuted observations. Compiled: programs "
            "in each call of the cold process. Importing is not counted: after `import pymc` "
            f"({pymcs:.1f} s) it takes {ours:.1f} s (median).",
            "",
            *harness.table(COLUMNS, lines),
            "",
        ]
    )


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        harness.main(
            harness.Benchmark(__doc__, rows, measure, markdown, progress, options, short={"models": ["C"]})
        )
