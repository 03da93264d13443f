"""pmd.sample next to JAGS (Linux): the same models, priors and data, two chains each, all on one core.

python -m benchmarks.jags --models B occupancy --seconds 30 --out benchmarks/results/NAME-jags
"""

import argparse
import contextlib
import json
import logging
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import time
import tty
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.models import mixture, mixture_summaries, n_mixture, n_mixture_summaries
from benchmarks.run import environment

CHAINS, TUNE = 2, 1000
CHUNK = 500  # draws of ours between two looks at the clock
PILOT = 100  # draws of JAGS from which the number of its draws is foretold
SIGMAS = 4.0


@dataclass(frozen=True)
class Versus:
    """A model for both.

    Attributes
    ----------
    pymc : () -> (pm.Model, names of its discrete variables); its data "y" are JAGS's
    summaries : {variable of the PyMC model: (draws, ...)} -> {summary: (draws,)}
    jags : {form of the model: text}
    watched : {what JAGS monitors: its shape}
    jags_summaries : {monitored: (draws, *shape)} -> {summary: (draws,)}
    start : initial values of JAGS
    data : what JAGS is given besides y
    """

    title: str
    pymc: Callable
    summaries: Callable
    jags: dict[str, str]
    watched: dict[str, tuple]
    jags_summaries: Callable
    start: Callable
    data: dict = field(default_factory=dict)


# ---------------------------------------------------------------- mixture and HMM
MIXTURE = """model {{
  for (k in 1:3) {{ mu0[k] ~ dnorm(0, 1 / 25) }}
  mu <- {mu}
  {z}
  for (i in 1:500) {{ y[i] ~ dnorm(mu[z[i]], 1) }}
  s1 <- sum(z)
  s2 <- inprod(z, z)
}}"""


def mixture_in_jags(z):
    """Means sorted in the model, as PyMC's transform has it; or free and thereby conjugate, and sorted when
    they are read.
    """
    return {
        "summaries": mixture_summaries,
        "jags": {
            "sorted means": MIXTURE.format(mu="sort(mu0)", z=z),
            "free means": MIXTURE.format(mu="mu0", z=z),
        },
        "watched": {"mu": (3,), "s1": (), "s2": ()},
        "jags_summaries": mixture_jags_summaries,
    }


def mixture_jags_summaries(a):
    """Sizes from the sums of z and z^2, which cost JAGS next to nothing; free means are relabelled, which
    leaves the posterior as it is.
    """
    s1, s2 = a["s1"] - 500, a["s2"] - 2 * a["s1"] + 500  # those of z = 0, 1, 2
    sizes = np.stack([500 - 1.5 * s1 + 0.5 * s2, 2 * s1 - s2, (s2 - s1) / 2], axis=1)
    order = a["mu"].argsort(1)
    sizes, means = np.take_along_axis(sizes, order, 1), np.take_along_axis(a["mu"], order, 1)
    return {f"size {k}": sizes[:, k] for k in range(3)} | {f"mean {k}": means[:, k] for k in range(3)}


HMM_MEANS, HMM_MATRIX = np.array([-2.0, 0.0, 2.0]), np.where(np.eye(3) > 0, 0.9, 0.05)


def hmm(T=500):
    import pymc as pm
    import pytensor.tensor as pt

    r = np.random.default_rng(7)
    true = [r.integers(3)]
    for _ in range(T - 1):
        true.append(r.choice(3, p=HMM_MATRIX[true[-1]]))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5, shape=3, transform=pm.distributions.transforms.ordered, initval=HMM_MEANS)
        z = pm.Categorical(
            "z", p=np.ones(3) / 3, shape=T
        )  # the uniform prior of z[0]; of the others, a constant
        pm.Potential("transitions", pt.constant(np.log(HMM_MATRIX))[z[:-1], z[1:]].sum())
        pm.Normal("y", mu[z], 1, observed=HMM_MEANS[true] + r.normal(size=T))
    return model, ["z"]


# ---------------------------------------------------------------- counts and occupancy
N_MIXTURE = """model {
  lam ~ dgamma(2, 0.5)
  p ~ dbeta(1, 1)
  for (i in 1:50) {
    N[i] ~ dpois(lam)
    for (j in 1:4) { y[i, j] ~ dbin(p, N[i]) }
  }
  total <- sum(N)
}"""

OCCUPANCY = """model {
  for (k in 1:2) { a[k] ~ dnorm(0, 1 / 1.5^2) }
  for (k in 1:2) { b[k] ~ dnorm(0, 1 / 1.5^2) }
  for (i in 1:200) {
    logit(psi[i]) <- a[1] + a[2] * x[i]
    z[i] ~ dbern(psi[i])
    for (j in 1:5) {
      logit(p[i, j]) <- b[1] + b[2] * w[i, j]
      y[i, j] ~ dbern(z[i] * p[i, j])
    }
  }
  occupied <- sum(z)
}"""


def occupancy_data(sites=200, visits=5):
    r = np.random.default_rng(6)
    x, w = r.normal(size=sites), r.normal(size=(sites, visits))
    z = r.random(sites) < 1 / (1 + np.exp(-x))
    return {"x": x, "w": w, "y": (z[:, None] & (r.random(w.shape) < 1 / (1 + np.exp(1.0 - w)))).astype(int)}


def occupancy():
    import pymc as pm

    data = occupancy_data()
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1.5, shape=2), pm.Normal("b", 0, 1.5, shape=2)
        z = pm.Bernoulli("z", logit_p=a[0] + a[1] * data["x"])
        pm.Bernoulli("y", p=z[:, None] * pm.math.invlogit(b[0] + b[1] * data["w"]), observed=data["y"])
    return model, ["z"]


def coefficients(a):
    return {f"{name}{k}": a[name][:, k] for name in "ab" for k in range(2)}


MODELS = {
    "B": Versus(
        title="Gaussian mixture, 500 points, 3 ordered means",
        pymc=mixture,
        start=lambda y: {"mu0": np.array([-3.0, 0.0, 3.5])},
        data={"w": np.full(3, 1 / 3)},
        **mixture_in_jags("for (i in 1:500) { z[i] ~ dcat(w) }"),
    ),
    "E": Versus(
        title="N-mixture, 50 sites, 4 visits",
        pymc=n_mixture,
        summaries=n_mixture_summaries,
        jags={"": N_MIXTURE},
        watched={"total": (), "lam": (), "p": ()},
        jags_summaries=lambda a: {"total N": a["total"], "lam": a["lam"], "p": a["p"]},
        start=lambda y: {"N": y.max(1) + 3},
    ),
    "occupancy": Versus(
        title="occupancy, 200 sites, 5 visits, a covariate on each level",
        pymc=occupancy,
        summaries=lambda a: {"occupied": a["z"].sum(1)} | coefficients(a),
        jags={"": OCCUPANCY},
        watched={"occupied": (), "a": (2,), "b": (2,)},
        jags_summaries=lambda a: {"occupied": a["occupied"]} | coefficients(a),
        start=lambda y: {"z": y.max(1)},
        data={name: value for name, value in occupancy_data().items() if name != "y"},
    ),
    "HMM": Versus(
        title="HMM, 500 times, 3 states with ordered means, known transitions",
        pymc=hmm,
        start=lambda y: {"mu0": HMM_MEANS},
        data={"w": np.full(3, 1 / 3), "A": HMM_MATRIX},
        **mixture_in_jags("z[1] ~ dcat(w)\n  for (t in 2:500) { z[t] ~ dcat(A[z[t - 1], ]) }"),
    ),
}


# ---------------------------------------------------------------- ours
def run_ours(spec, seconds, seed):
    """(summaries (chains, draws), seconds of sampling, seconds before, what else there is to tell)

    Seconds are those of the processor, beside those of the clock for sampling. The first chunk belongs to
    what is before: its end is the first time that is known after compiling and tuning.
    """
    import pymc_discrete as pmd

    model, _ = spec.pymc()
    times = []

    def callback(draws, done):
        times.append(np.array([time.process_time(), time.perf_counter()]))
        if times[-1][0] - times[0][0] >= seconds:
            raise KeyboardInterrupt  # as Ctrl-C does: what was drawn is returned

    options = {
        "progressbar": False,
        "compute_convergence_checks": False,
        "callback": callback,
        "chunk": CHUNK,
    }
    start = time.process_time()
    tree = pmd.sample(10**7, TUNE, CHAINS, model=model, random_seed=seed, **options)
    sampling = times[-1] - times[0]
    a = {name: values.to_numpy()[:, CHUNK:] for name, values in tree.posterior.data_vars.items()}
    summaries = in_chains([spec.summaries({name: v[c] for name, v in a.items()}) for c in range(CHAINS)])
    stats = tree.sample_stats.isel(draw=slice(CHUNK, None))
    told = {
        "n_steps": float(stats["n_steps"].mean()),
        "step_size": stats["step_size"].isel(draw=-1).to_numpy().tolist(),
    }
    told["diverging"] = float(stats["diverging"].mean())
    return summaries, sampling, times[0][0] - start, told


def in_chains(chains):
    return {name: np.stack([np.asarray(c[name], float) for c in chains]) for name in chains[0]}


# ---------------------------------------------------------------- JAGS
class Jags:
    """A JAGS process, asked one command at a time."""

    def __init__(self, folder):
        self.terminal, theirs = (
            pty.openpty()
        )  # from a pipe it would read ahead until there are 8 KiB of commands
        tty.setraw(theirs)
        self.process = subprocess.Popen(
            ["jags"], cwd=folder, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        os.close(theirs)
        self.version = self.answer().split()[3]  # Welcome to JAGS 4.3.1 on ...

    def ask(self, command):
        """Seconds until JAGS is ready for the next command: of the processor, of the clock."""
        start = self.seconds()
        os.write(self.terminal, f"{command}\n".encode())
        text = self.answer()
        if any(word in text.lower() for word in ("error", "failed", "cannot", "invalid", "unknown")):
            raise RuntimeError(f"JAGS on {command!r}: {text}")
        return self.seconds() - start

    def seconds(self):
        ticks = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return np.array([sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), time.perf_counter()])

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        os.close(self.terminal)

    def answer(self):
        """What it says up to its prompt."""
        text = b""
        while not text.endswith(b". "):
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise RuntimeError(f"JAGS ended: {text.decode()}")
            text += more
        return text.decode()


def r_text(values):
    """{name: array} as R's dump writes it."""
    lines = []
    for name, value in values.items():
        a = np.asarray(value)
        flat = f"c({', '.join(map(repr, a.T.reshape(-1).tolist()))})"  # columns first
        lines.append(
            f'"{name}" <- structure({flat}, .Dim = c({", ".join(map(str, a.shape))}))'
            if a.ndim > 1
            else f'"{name}" <- {flat}'
        )
    return "\n".join(lines) + "\n"


def run_jags(spec, text, modules, seconds, seed):
    """As `run_ours`; before sampling are compiling, adapting, and a burn-in as long as our tuning."""
    model, _ = spec.pymc()
    y = model.rvs_to_values[model["y"]].data
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "model.txt").write_text(text)
        (here / "data.txt").write_text(r_text({"y": y, **spec.data}))
        for c in range(CHAINS):
            rng = f'".RNG.name" <- "base::Mersenne-Twister"\n".RNG.seed" <- {seed * CHAINS + c + 1}\n'
            (here / f"start{c + 1}.txt").write_text(r_text(spec.start(y)) + rng)
        inits = [f'parameters in "start{c}.txt", chain({c})' for c in range(1, CHAINS + 1)]
        setup = [
            *(f"load {name}" for name in modules),
            'model in "model.txt"',
            'data in "data.txt"',
            f"compile, nchains({CHAINS})",
        ]
        with contextlib.closing(Jags(folder)) as jags:
            for command in [*setup, *inits, "initialize", f"adapt {TUNE}", f"update {TUNE}"]:
                jags.ask(command)
            jags.ask('samplers to "samplers.txt"')
            for name in spec.watched:
                jags.ask(f"monitor {name}")
            jags.ask(f"update {PILOT}")
            before, draws, sampling = jags.seconds()[0], PILOT, np.zeros(2)
            while sampling[0] < seconds:
                wanted = (seconds - sampling[0]) / max(sampling[0], 1e-3)
                size = int(np.ceil((draws - PILOT) * min(wanted + 0.02, 4))) or PILOT
                sampling += jags.ask(f"update {size}")
                draws += size
            jags.ask("coda *")
        chains = []
        for c in range(1, CHAINS + 1):
            values = np.loadtxt(here / f"CODAchain{c}.txt", usecols=1)
            a = coda(values, (here / "CODAindex.txt").read_text(), spec.watched)
            chains.append(spec.jags_summaries({name: v[PILOT:] for name, v in a.items()}))
        kinds = sorted({line.split("\t")[1] for line in (here / "samplers.txt").read_text().splitlines()})
    return in_chains(chains), sampling, before, {"samplers": kinds, "jags": jags.version}


def coda(values, index, watched):
    """{name: (draws, *shape)} of one chain's file."""
    rows = {
        name: values[int(first) - 1 : int(last)] for name, first, last in map(str.split, index.splitlines())
    }
    return {
        n: np.stack([rows[f"{n}[{k + 1}]"] for k in range(shape[0])], 1) if shape else rows[n]
        for n, shape in watched.items()
    }


# ---------------------------------------------------------------- comparison
def scored(model, sampler, summaries, sampling, before, told):
    import arviz as az

    found = {}
    for name, v in summaries.items():
        moves = (np.ptp(v, axis=1) > 0).all()  # of what stands still ArviZ takes every draw for effective
        moments = {"mean": v.mean(), "sd": v.std(), "ess": az.ess(v, method="bulk") if moves else 0.0}
        moments |= {f"mcse_{what}": az.mcse(v, method=what) for what in ("mean", "sd")}
        found[name] = {key: float(value) for key, value in moments.items()}
    worst = min(found, key=lambda name: found[name]["ess"])
    seconds, clock = map(float, sampling)
    out = {
        "model": model,
        "sampler": sampler,
        "draws": v.shape[1],
        "seconds": seconds,
        "clock_seconds": clock,
        "before": float(before),
    }
    out |= {
        "worst": worst,
        "min_ess": found[worst]["ess"],
        "speed": found[worst]["ess"] / seconds,
        "summaries": found,
        **told,
    }
    return out | environment()


def deviations(r, reference):
    """{(summary, "mean" or "sd"): z}"""
    return {
        (name, what): (a[what] - b[what]) / np.hypot(a[f"mcse_{what}"], b[f"mcse_{what}"])
        for name, a in r["summaries"].items()
        for b in [reference["summaries"][name]]
        for what in ("mean", "sd")
    }


COLUMNS = [
    "model", "sampler", "draws", "seconds", "min ESS", "ESS/s", "worst summary", "ours / JAGS", "s before sampling", "largest \\|z\\|",
]  # fmt: skip


def markdown(records):
    versions = records[0]["versions"] | {"JAGS": next((r["jags"] for r in records if "jags" in r), "not run")}
    told = ", ".join(f"{k} {v}" for k, v in versions.items())
    heads = dict.fromkeys("{hardware}; {date}; commit {commit}; ".format(**r) + told for r in records)
    lines, notes = [*heads, "", "| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"], []
    for model in dict.fromkeys(r["model"] for r in records):
        ours, *theirs = [r for r in records if r["model"] == model]
        best = max(theirs, key=lambda r: r["speed"])
        told = f"{ours['n_steps']:.1f} leapfrog steps a draw, {ours['diverging']:.1%} of draws diverge"
        notes.append(
            f"- {model}: {MODELS[model].title}. Ours: {told}. The best JAGS: {', '.join(best['samplers'])}."
        )
        for r in (ours, *theirs):
            cells = [
                model,
                r["sampler"],
                r["draws"],
                f"{r['seconds']:.1f}",
                f"{r['min_ess']:.0f}",
                f"{r['speed']:.3g}",
                r["worst"],
            ]
            ratio, size = "", ""
            if r is not ours:
                z = deviations(r, ours)
                ratio = f"{ours['speed'] / r['speed']:.2g}"
                ratio, size = f"**{ratio}**" if r is best else ratio, f"{np.abs(list(z.values())).max():.1f}"
                off = [
                    f"{what} of {name} (z = {v:.1f})" for (name, what), v in z.items() if not abs(v) <= SIGMAS
                ]
                notes += [f"- {model}: ours and {r['sampler']} **disagree**: {', '.join(off)}"] if off else []
            lines.append("| " + " | ".join(map(str, [*cells, ratio, f"{r['before']:.1f}", size])) + " |")
    return "\n".join([*lines, "", *notes, FOOTNOTE])


FOOTNOTE = f"""- Ours: `pmd.sample` with its defaults (NUTS, `AutoStep`, float64). All chains run one after another on one core.
- Seconds are of the processor, so that others on the machine do not count. Ours: between the ends of the first chunk ({CHUNK} draws) and of
  the last. JAGS: its `update` commands, without the output of draws; it monitors sums, where ours records every variable.
- s before sampling: compiling, tuning ({TUNE} draws; JAGS: `adapt {TUNE}` and `update {TUNE}`), and the first few draws, which are dropped.
- Draws are per chain, none is thinned. ESS: ArviZ's bulk ESS of both chains together, the least of all summaries.
- JAGS runs with and without its module glm; the ratio to its best is bold. Sorted means: `sort()` in the model. Free means: without it they
  are conjugate; labels are sorted afterwards.
- z: difference of a mean or an sd from ours, in Monte Carlo errors of both. More than {SIGMAS:.0f} would be listed.
"""


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    p.add_argument("--seconds", type=float, default=30, help="of sampling, per row")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--out", type=Path, help="path without suffix: writes .jsonl (records) and .md (table)")
    args = p.parse_args()
    for name in ("pymc", "pymc.discrete"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    if hasattr(os, "sched_setaffinity"):  # before JAX counts its threads
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if not shutil.which("jags"):
        p.error("there is no program `jags`")
    records = []
    for name in args.models:
        spec = MODELS[name]
        runs = {"**pmd.sample**": lambda spec=spec: run_ours(spec, args.seconds, args.seed)}
        for form, text in spec.jags.items():
            for modules in ((), ("glm",)):
                label = ", ".join(["JAGS", *filter(None, [form]), *modules])
                runs[label] = lambda spec=spec, text=text, modules=modules: run_jags(
                    spec, text, modules, args.seconds, args.seed
                )
        for label, run in runs.items():
            r = scored(name, label, *run())
            print(
                f"{name} {label}: {r['draws']} draws, {r['speed']:.3g} ESS/s, {r['clock_seconds']:.0f} s",
                file=sys.stderr,
                flush=True,
            )
            records.append(r)
    text = markdown(records)
    print(text)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.with_name(args.out.name + ".jsonl").write_text(
            "".join(json.dumps(r) + "\n" for r in records)
        )
        args.out.with_name(args.out.name + ".md").write_text(text)


if __name__ == "__main__":
    main()
