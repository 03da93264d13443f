"""What a run costs besides sampling: memory of pmd.sample, and seconds until the first draw.

python -m benchmarks.cost --out benchmarks/results/cost-NAME
python -m benchmarks.cost --items memory --draws 1000 4000 --chains 4
python -m benchmarks.cost --items compile --models A C
"""

import argparse
import contextlib
import json
import logging
import os
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path

from benchmarks.models import MODELS
from benchmarks.run import RESULT, environment, origins, record_of

MEMORY_MODEL = "I"
CHUNK = 50  # what pmd.sample takes by default for 1000 draws: a size of its own is compiled


# ---------------------------------------------------------------- in the child process
def memory(draws, chains, checkpoint, checks):
    """Largest resident memory of pmd.sample, and of what there was before."""
    import pymc_discrete as pmd

    model, _ = MODELS[MEMORY_MODEL].pymc()
    quiet = {"model": model, "random_seed": 0, "progressbar": False}
    pmd.sample(2, tune=2, chains=chains, compute_convergence_checks=False, **quiet)
    before, start = most_resident(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        idata = pmd.sample(
            draws,
            tune=2,
            chains=chains,
            checkpoint=Path(folder) / "run" if checkpoint else None,
            compute_convergence_checks=checks,
            **quiet,
        )
        kept = idata.posterior["x"].nbytes
        seconds, most = time.perf_counter() - start, most_resident()
    return {"before_bytes": before, "most_bytes": most, "draws_bytes": int(kept), "seconds": seconds}


def most_resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts kB


def first_draw(model, sampler):
    """Seconds from the call to the first draw, and those of the imports before."""
    start = time.perf_counter()
    run = FIRST[sampler](MODELS[model])
    begun = time.perf_counter()
    run()
    return {"import_seconds": begun - start, "first_draw_seconds": time.perf_counter() - begun}


class FirstDraw(Exception):
    """Raised by a callback when the first draw is there."""


def stop(*_, **__):
    raise FirstDraw


def until_first_draw(function, *args, **options):
    with contextlib.suppress(FirstDraw):
        function(*args, callback=stop, progressbar=False, **options)


def first_of_sample(spec):
    import pymc_discrete as pmd

    model, _ = spec.pymc()
    return lambda: until_first_draw(
        pmd.sample, 10 * CHUNK, tune=0, chains=1, chunk=CHUNK, model=model, random_seed=0
    )


def first_of_pm(spec, auto=False):
    import pymc as pm

    import pymc_discrete as pmd

    model, names = spec.pymc()

    def run():
        with model:
            step = [pmd.AutoStep(names)] if auto else None
            until_first_draw(
                pm.sample,
                1,
                tune=1,
                chains=1,
                cores=1,
                step=step,
                random_seed=0,
                compute_convergence_checks=False,
            )

    return run


def first_of_numpyro(spec):
    import jax
    from numpyro.infer import MCMC, NUTS, DiscreteHMCGibbs
    from numpyro.infer.gibbs import DiscreteGibbs

    from benchmarks.samplers import start_at

    if spec.numpyro is None:
        raise ValueError(spec.numpyro_missing)
    model = spec.numpyro()
    kernel = DiscreteHMCGibbs(NUTS(model, **start_at(spec))) if spec.continuous else DiscreteGibbs(model)
    mcmc = MCMC(kernel, num_warmup=1, num_samples=1, progress_bar=False)
    return lambda: (mcmc.run(jax.random.PRNGKey(0)), jax.block_until_ready(mcmc.get_samples()))


FIRST = {
    "pmd.sample": first_of_sample,
    "pm.sample, AutoStep": lambda spec: first_of_pm(spec, auto=True),
    "pm.sample": first_of_pm,
    "NumPyro DiscreteHMCGibbs": first_of_numpyro,
}


def one(item, *rest):
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    try:
        found = memory(*map(int, rest)) if item == "memory" else first_draw(*rest)
        return {"status": "ok"} | found | environment()
    except Exception as error:
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}"[:300]} | environment()


# ---------------------------------------------------------------- in the parent
def memory_records(args):
    for draws in args.draws:
        for chains in args.chains:
            for checkpoint in (0, 1):
                row = (draws, chains, checkpoint, int(args.checks))
                what = {
                    "item": "memory",
                    "draws": draws,
                    "chains": chains,
                    "checkpoint": bool(checkpoint),
                    "checks": args.checks,
                }
                yield record_of(what, ["benchmarks.cost", "--one", "memory", *map(str, row)], args.limit)


def compile_records(args):
    """Twice each: with an empty PyTensor cache, and with what the first run left there. JAX keeps nothing on
    disk.
    """
    for model in args.models:
        for sampler in FIRST:
            with tempfile.TemporaryDirectory() as scratch:
                env = os.environ | {
                    "PYTENSOR_FLAGS": f"{os.environ.get('PYTENSOR_FLAGS', '')},base_compiledir={scratch}".lstrip(
                        ","
                    )
                }
                for cache in ("cold", "warm"):
                    what = {"item": "compile", "model": model, "sampler": sampler, "cache": cache}
                    yield record_of(
                        what, ["benchmarks.cost", "--one", "compile", model, sampler], args.limit, env
                    )


def memory_table(records):
    spec = MODELS[MEMORY_MODEL]
    checks = "with" if records[0]["checks"] else "without"
    yield f"## Memory of pmd.sample, {spec.title}"
    yield from (
        "",
        *origins(records),
        f"Largest resident memory, {checks} convergence checks; before: after a run of two draws.",
        "",
    )
    yield "| draws | chains | draws themselves, MB | checkpoint | MB before | MB at most | MB more per MB of draws | s |"
    yield "|---" * 8 + "|"
    for r in records:
        row = f"| {r['draws']} | {r['chains']} | "
        if r["status"] != "ok":
            yield row + f"{r['status']}: {r['reason']} |" + " |" * 5
            continue
        mb = [r[key] / 2**20 for key in ("draws_bytes", "before_bytes", "most_bytes")]
        more = (mb[2] - mb[1]) / mb[0]
        yield (
            row
            + f"{mb[0]:.0f} | {'yes' if r['checkpoint'] else 'no'} | {mb[1]:.0f} | {mb[2]:.0f} | {more:.2f} | {r['seconds']:.1f} |"
        )
    yield ""


def compile_table(records):
    """A row per sampler, a column per model: seconds with an empty and with a warm PyTensor cache."""
    models = list(dict.fromkeys(r["model"] for r in records))
    yield "## Seconds until the first draw"
    yield from (
        "",
        *origins(records),
        "One chain, a fresh process; PyTensor's cache empty / warm. Importing is not counted.",
        "",
    )
    yield f"| sampler | importing | {' | '.join(models)} |"
    yield "|---" * (2 + len(models)) + "|"
    for sampler in FIRST:
        mine = [r for r in records if r["sampler"] == sampler]
        importing = min((r["import_seconds"] for r in mine if r["status"] == "ok"), default=float("nan"))
        cells = []
        for model in models:
            seconds = [
                f"{r['first_draw_seconds']:.1f}" if r["status"] == "ok" else "cannot"
                for r in mine
                if r["model"] == model
            ]
            cells.append(" / ".join(seconds))
        yield f"| {sampler} | {importing:.1f} | {' | '.join(cells)} |"
    yield ""
    reasons = {f"{r['sampler']}, {r['model']}: {r['reason']}" for r in records if r["status"] != "ok"}
    yield from [*(f"- {reason}" for reason in sorted(reasons)), ""]


ITEMS = {"memory": (memory_records, memory_table), "compile": (compile_records, compile_table)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--items", nargs="+", default=list(ITEMS), choices=list(ITEMS))
    p.add_argument("--draws", nargs="+", type=int, default=[1000, 4000, 16_000], help="of memory")
    p.add_argument("--chains", nargs="+", type=int, default=[4, 64], help="of memory")
    p.add_argument(
        "--checks", action="store_true", help="memory with convergence checks, as by default: slow"
    )
    p.add_argument("--models", nargs="+", default=list("ABCDEF"), choices=list(MODELS), help="of compile")
    p.add_argument("--limit", type=float, default=900, help="seconds for a row")
    p.add_argument("--out", type=Path, help="path without suffix: writes .jsonl (records) and .md (tables)")
    p.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        print(RESULT + json.dumps(one(*args.one)), flush=True)
        return
    lines, kept = [], []
    for item in args.items:
        records = []
        for record in ITEMS[item][0](args):
            records.append(record)
            print(
                *(v for k, v in record.items() if k not in ("hardware", "versions", "commit", "date")),
                file=sys.stderr,
                flush=True,
            )
        lines += ITEMS[item][1](records)
        kept += records
    print("\n".join(lines))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.with_name(args.out.name + ".md").write_text("\n".join(lines))
        args.out.with_name(args.out.name + ".jsonl").write_text("".join(json.dumps(r) + "\n" for r in kept))


if __name__ == "__main__":
    main()
