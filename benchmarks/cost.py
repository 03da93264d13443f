"""What a run costs besides sampling: memory of pmd.sample, and seconds until the first draw.

python -m benchmarks.cost --out benchmarks/results/cost-NAME
python -m benchmarks.cost --items memory --draws 1000 4000 --chains 4
python -m benchmarks.cost --items compile --models A C
"""

import contextlib
import resource
import tempfile
import time
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import CannotRun
from benchmarks.models import MODELS

MEMORY_MODEL = "I"
CHUNK = 50  # what pmd.sample chooses for 1000 draws; every size of a chunk is compiled separately


# ---------------------------------------------------------------- measurements
def memory(draws, chains, checkpoint, checks):
    """Largest resident memory of the process, before and after a call of pmd.sample."""
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
    """Seconds from the call to the first draw, and those of the imports and of building the model before."""
    start = time.perf_counter()
    run = FIRST[sampler](MODELS[model])
    call = time.perf_counter()
    run()
    return {"import_seconds": call - start, "first_draw_seconds": time.perf_counter() - call}


class FirstDraw(Exception):
    """Raised by a callback after the first draw."""


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
        raise CannotRun(spec.numpyro_missing)
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


# ---------------------------------------------------------------- rows
ITEMS = ("memory", "compile")


def options(p):
    harness.choice(p, "--items", ITEMS)
    p.add_argument("--draws", nargs="+", type=int, default=[1000, 4000, 16_000], help="of memory")
    p.add_argument("--chains", nargs="+", type=int, default=[4, 64], help="of memory")
    p.add_argument(
        "--checks", action="store_true", help="memory with convergence checks, as by default: slow"
    )
    p.add_argument("--models", nargs="+", default=list("ABCDEF"), choices=list(MODELS), help="of compile")
    p.add_argument("--limit", type=float, default=900, help="seconds for a row")


SHORT = {"draws": [100], "chains": [2], "models": ["C"]}


def rows(args, records):
    if "memory" in args.items:
        for draws in args.draws:
            for chains in args.chains:
                for checkpoint in (False, True):
                    size = {"draws": draws, "chains": chains, "checkpoint": checkpoint}
                    yield harness.Row({"item": "memory", **size, "checks": args.checks})
    if "compile" in args.items:
        # Twice each: with an empty PyTensor cache, and with what the first run left there. JAX's cache on
        # disk is off.
        for model in args.models:
            for sampler in FIRST:
                with harness.empty_pytensor_cache() as env:
                    for cache in ("cold", "warm"):
                        key = {"item": "compile", "model": model, "sampler": sampler, "cache": cache}
                        yield harness.Row(key, env)


def measure(args, item, **key):
    return memory(**key) if item == "memory" else first_draw(key["model"], key["sampler"])


def progress(r):
    if r["item"] == "memory":
        return f"{(r['most_bytes'] - r['before_bytes']) / 2**20:.0f} MB more, {r['seconds']:.1f} s"
    return f"importing {r['import_seconds']:.1f} s, first draw {r['first_draw_seconds']:.1f} s"


# ---------------------------------------------------------------- tables
def markdown(args, records):
    lines = []
    for item in dict.fromkeys(r["item"] for r in records):
        lines += TABLES[item]([r for r in records if r["item"] == item])
    return "\n".join(lines)


MEMORY_COLUMNS = [
    "draws", "chains", "draws themselves, MB", "checkpoint", "MB before", "MB at most",
    "MB more per MB of draws", "s",
]  # fmt: skip


def memory_table(records):
    checks = "with" if records[0]["checks"] else "without"
    lines = []
    for r in records:
        if r["status"] != "ok":
            lines.append([r["draws"], r["chains"], f"{r['status']}: {r['reason']}"])
            continue
        draws, before, most = (r[key] / 2**20 for key in ("draws_bytes", "before_bytes", "most_bytes"))
        memory = [f"{before:.0f}", f"{most:.0f}", f"{(most - before) / draws:.2f}"]
        checkpoint = "yes" if r["checkpoint"] else "no"
        lines.append([r["draws"], r["chains"], f"{draws:.0f}", checkpoint, *memory, f"{r['seconds']:.1f}"])
    return [
        f"## Memory of pmd.sample, {MODELS[MEMORY_MODEL].title}",
        "",
        *harness.origins(records),
        f"Largest resident memory, {checks} convergence checks; before: after a run of two draws.",
        "",
        *harness.table(MEMORY_COLUMNS, lines),
        "",
    ]


def compile_table(records):
    """A row per sampler, a column per model: seconds with an empty and with a warm PyTensor cache."""
    models = list(dict.fromkeys(r["model"] for r in records))
    lines = []
    for sampler in FIRST:
        mine = [r for r in records if r["sampler"] == sampler]
        importing = min((r["import_seconds"] for r in mine if r["status"] == "ok"), default=float("nan"))
        cells = []
        for model in models:
            runs = [r for r in mine if r["model"] == model]
            seconds = [f"{r['first_draw_seconds']:.1f}" if r["status"] == "ok" else "cannot" for r in runs]
            cells.append(" / ".join(seconds))
        lines.append([sampler, f"{importing:.1f}", *cells])
    reasons = {f"{r['sampler']}, {r['model']}: {r['reason']}" for r in records if r["status"] != "ok"}
    return [
        "## Seconds until the first draw",
        "",
        *harness.origins(records),
        "One chain, a fresh process; PyTensor's cache empty / warm. Importing is not counted.",
        "",
        *harness.table(["sampler", "importing", *models], lines),
        "",
        *(f"- {reason}" for reason in sorted(reasons)),
        "",
    ]


TABLES = {"memory": memory_table, "compile": compile_table}

if __name__ == "__main__":
    harness.main(harness.Benchmark(__doc__, rows, measure, markdown, progress, options, short=SHORT))
