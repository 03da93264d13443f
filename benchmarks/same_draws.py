"""Seeded draws of every step and of pmd.sample on ten models, by two checkouts on this machine: equal to the
last bit or not.

python -m benchmarks.same_draws BEFORE AFTER [--models MODEL ...] [--samplers WORD ...]

BEFORE and AFTER are folders with checkouts of this repository. The draws of a model are made in a process of
their own. A row says of each sampler whether all draws are equal; the exit status is 1 where some are not.
What a step or a model refuses must be refused by both.
"""

import argparse
import hashlib
import json
import logging
import os
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np

TUNE, DRAWS = 30, 30
RESULT = "SAME-DRAWS "
DATA = np.random.default_rng(0)
NORMAL, COUNTS = DATA.normal(size=(30, 8)), DATA.poisson(4.0, size=30)


# ---------------------------------------------------------------- models
def changepoint(pm, pt):
    """Counts, two of them missing, with a changepoint written by a switch."""
    y = np.ma.masked_array(COUNTS, np.isin(np.arange(30), [3, 17]))
    k = pm.DiscreteUniform("k", 0, 29)
    rate = pm.Exponential("rate", 1, shape=2)
    pm.Poisson("y", pt.switch(k >= np.arange(30), rate[0], rate[1]), observed=y)


def mixture(pm, pt):
    w, mu = pm.Dirichlet("w", np.ones(3)), pm.Normal("mu", 0, 5, shape=3, initval=[-1.0, 0.0, 1.0])
    z = pm.Categorical("z", p=w, shape=30)
    pm.Normal("y", mu[z], 1, observed=3 * NORMAL[:, 0])


def lattice(pm, pt):
    s = 2 * pm.Bernoulli("s", 0.5, shape=(6, 6)) - 1
    pm.Potential("pairs", 0.3 * ((s[1:] * s[:-1]).sum() + (s[:, 1:] * s[:, :-1]).sum()))


def selection(pm, pt):
    gamma, beta = pm.Bernoulli("gamma", 0.3, shape=8), pm.Normal("beta", 0, 2, shape=8)
    pm.Normal("y", pt.dot(NORMAL, gamma * beta), 1, observed=NORMAL @ np.array([2, 0, 0, -1, 0, 0, 0.5, 0]))


def counts(pm, pt):
    """An N-mixture: latent counts without a bound."""
    rate, p = pm.Gamma("rate", 2, 0.2), pm.Beta("p", 2, 2)
    N = pm.Poisson("N", rate, shape=5, initval=np.full(5, 12))
    pm.Binomial("y", n=N[:, None], p=p, observed=COUNTS[:15].reshape(5, 3))


def chain(pm, pt):
    P, mu = (
        pm.Dirichlet("P", np.ones((3, 3)) + np.eye(3)),
        pm.Normal("mu", 0, 2, shape=3, initval=[-1.0, 0.0, 1.0]),
    )
    z = pm.Categorical("z", p=np.ones(3) / 3, shape=30)
    pm.Potential("chain", pt.log(P[z[:-1], z[1:]]).sum())
    pm.Normal("y", mu[z], 1, observed=NORMAL[:, 1])


def scalars(pm, pt):
    """A hidden Markov chain as a list of scalars."""
    P, mu, z = np.array([[0.8, 0.2], [0.3, 0.7]]), pm.Normal("mu", 0, 2, shape=2, initval=[-1.0, 1.0]), []
    for t in range(8):
        z.append(pm.Categorical(f"z{t}", p=[0.5, 0.5] if t == 0 else pt.constant(P)[z[-1]]))
    pm.Normal("y", mu[pt.stack(z)], 1, observed=NORMAL[:8, 2])


def covariances(pm, pt):
    mu, z = pm.Normal("mu", 0, 2, shape=(2, 2)), pm.Categorical("z", p=[0.4, 0.6], shape=15)
    covs = pt.constant(np.array([[[1, 0.4], [0.4, 1]], [[0.5, 0], [0, 2.0]]]))
    pm.MvNormal("y", mu[z], cov=covs[z], observed=NORMAL[:15, :2])


def network(pm, pt):
    """A density that no structure is seen in, and a Binomial prior."""
    x = pm.Binomial("x", 3, 0.5, shape=8)
    pm.Potential("net", pt.tanh(pt.dot(pt.tanh(pt.dot(x, NORMAL[:8])), NORMAL[8:16])).sum())


def tanks(pm, pt):
    """A wide support, a slice of unknown length, and a continuous unknown that slice sampling may take."""
    N, k = pm.DiscreteUniform("N", 256, 2560), pm.DiscreteUniform("k", 0, 30)
    mu = pm.Normal("mu", 0, 1)
    pm.DiscreteUniform("y", 1, N, observed=[10, 256, 202, 97])
    pm.Potential("after", -0.5 * ((pt.constant(NORMAL[:, 3])[k:] - mu) ** 2).sum())


MODELS = (changepoint, mixture, lattice, selection, counts, chain, scalars, covariances, network, tanks)


# ---------------------------------------------------------------- samplers
IN_ONE_PROGRAM = (
    "GibbsWithGradients n_flips=adapt",
    "PathAuxiliary",
    "DiscreteLangevin dlmc",
    "PerturbAndMaxProduct",
)


def steps(pmd):
    """Every step, with every option that is a program of its own: {name: names of the discrete variables ->
    step}.
    """
    g, p, d = pmd.GibbsWithGradients, pmd.PathAuxiliary, pmd.DiscreteLangevin
    return {
        "AutoStep": pmd.AutoStep,
        "GibbsWithGradients": g,
        "GibbsWithGradients n_flips=3": lambda v: g(v, n_flips=3),
        "GibbsWithGradients n_flips=adapt": lambda v: g(v, n_flips="adapt"),
        "GibbsWithGradients gradient": lambda v: g(v, differences="gradient"),
        "GibbsWithGradients exact": lambda v: g(v, differences="exact"),
        "PathAuxiliary": p,
        "PathAuxiliary recompute": lambda v: p(v, recompute=True, path_length=3),
        "PathAuxiliary without backtracking": lambda v: p(v, backtrack=False),
        "DiscreteLangevin dlp": lambda v: d(v, proposal="dlp"),
        "DiscreteLangevin dlmc": lambda v: d(v, proposal="dlmc"),
        "DiscreteLangevin gradient": lambda v: d(v, proposal="dlmc", differences="gradient"),
        "BlockGibbs": pmd.BlockGibbs,
        "TreeGibbs": pmd.TreeGibbs,
        "PerturbAndMaxProduct": pmd.PerturbAndMaxProduct,
    }


def by_step(model, make):
    """What a step draws for fixed values of the other variables."""
    with model:
        step = make()
    point = model.initial_point()
    step.setup_chain(np.random.default_rng(3), tune=TUNE, draws=DRAWS)
    seen = []
    for n in range(TUNE + DRAWS):
        if n == TUNE:
            step.stop_tuning()
        point, stats = step.step(point)
        seen.append(
            [np.asarray(point[name]) for name in sorted(point)]
            + [np.asarray(v) for s in stats for _, v in sorted(s.items())]
        )
    return digest(a for draw in seen for a in draw)


def by_sample(model, pmd, step, dtype):
    options = {"chains": 2, "random_seed": 5, "progressbar": False, "compute_convergence_checks": False}
    idata = pmd.sample(DRAWS, tune=TUNE, model=model, step=step, dtype=dtype, **options)
    return digest(
        idata[group][name].values
        for group in ("posterior", "sample_stats")
        for name in sorted(idata[group].data_vars)
    )


def by_sliced_sample(model, pmd, continuous, dtype):
    return by_sample(model, pmd, made(model, lambda: pmd.ReparameterizedSlice(continuous)), dtype)


def digest(arrays):
    found = hashlib.sha256()
    for a in arrays:
        found.update(str((a.dtype, a.shape)).encode())
        found.update(np.ascontiguousarray(a).tobytes())
    return found.hexdigest()[:16]


def draws_of(name, dtype, words):
    """{sampler: digest of its draws, or what it raised}, in the child process."""
    import pymc as pm
    import pytensor
    import pytensor.tensor as pt

    pytensor.config.floatX = dtype
    import pymc_discrete as pmd

    for logger in ("pymc", "pymc.discrete"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    with warnings.catch_warnings(), pm.Model() as model:
        next(m for m in MODELS if m.__name__ == name)(pm, pt)
    discrete = [v.name for v in model.discrete_value_vars]
    free = {rv.name for rv in model.free_RVs}
    continuous = [rv.name for rv in model.free_RVs if model.rvs_to_values[rv] in model.continuous_value_vars]
    discrete = [n for n in discrete if n in free]
    asked = {k: (lambda make=make: by_step(model, lambda: make(discrete))) for k, make in steps(pmd).items()}
    if continuous:
        asked["ReparameterizedSlice"] = lambda: by_step(model, lambda: pmd.ReparameterizedSlice(continuous))
        asked["pmd.sample, ReparameterizedSlice"] = partial(by_sliced_sample, model, pmd, continuous, dtype)
    asked["pmd.sample"] = lambda: by_sample(model, pmd, None, dtype)
    for step in IN_ONE_PROGRAM:
        make = steps(pmd)[step]
        asked[f"pmd.sample, {step}"] = lambda make=make: by_sample(
            model, pmd, made(model, lambda: make(discrete)), dtype
        )
    results = {}
    for sampler, run in asked.items():
        if words and not any(w in sampler for w in words):
            continue
        try:
            results[sampler] = run()
        except Exception as error:
            results[sampler] = f"{type(error).__name__}: {error}"
    return results


def made(model, make):
    with model:
        return make()


# ---------------------------------------------------------------- comparison
def child(folder, name, dtype, words):
    command = [sys.executable, str(Path(__file__).resolve()), "--one", name, dtype, "--samplers", *words]
    env = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
    }  # compiles in a third less time
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=3600)
    for line in done.stdout.splitlines():
        if line.startswith(RESULT):
            return json.loads(line.removeprefix(RESULT))
    raise SystemExit(f"{folder}, {name}, {dtype}: {done.stderr[-2000:]}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folders", nargs="*", type=Path)
    p.add_argument("--models", nargs="+", default=[m.__name__ for m in MODELS])
    p.add_argument(
        "--samplers", nargs="*", default=[], help="only those with one of these words in their names"
    )
    p.add_argument("--dtypes", nargs="+", default=["float64", "float32"])
    p.add_argument(
        "--keep", type=Path, help="a file that keeps the draws of BEFORE, and gives them where it has them"
    )
    p.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        print(RESULT + json.dumps(draws_of(*args.one, args.samplers)), flush=True)
        return
    kept = json.loads(args.keep.read_text()) if args.keep and args.keep.exists() else {}
    equal, differ, refused = 0, 0, 0
    for name in args.models:
        for dtype in args.dtypes:
            before = kept.get(f"{name} {dtype}") or child(args.folders[0].resolve(), name, dtype, [])
            kept[f"{name} {dtype}"] = before
            if args.keep:
                args.keep.write_text(json.dumps(kept, indent=1))
            if len(args.folders) == 1:
                print(name, dtype, len(before), "recorded", flush=True)
                continue
            after = child(args.folders[1].resolve(), name, dtype, args.samplers)
            wrong = [s for s in after if after[s] != before.get(s)]
            differ += len(wrong)
            refused += sum(":" in r for s, r in after.items() if s not in wrong)
            equal += sum(":" not in r for s, r in after.items() if s not in wrong)
            print(f"{name} {dtype}: {len(after) - len(wrong)} of {len(after)} equal", flush=True)
            for s in wrong:
                print(f"  {s}: {before.get(s)} -> {after[s]}", flush=True)
    print(f"{equal} equal to the last bit, {refused} refused with the same words, {differ} differ")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
