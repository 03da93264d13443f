"""Seeded draws of every step and of pmd.sample on ten models, by two checkouts on this machine: equal to the
last bit or not.

python -m benchmarks.same_draws BEFORE AFTER [--models MODEL ...] [--samplers WORD ...]

BEFORE and AFTER are folders with checkouts of this repository. The draws of a model are made in a process of
their own. A line for each model says how many samplers have equal draws and names those that differ; the exit
status is 1 if there are any. A sampler that one checkout refuses must be refused by the other, with the same
message.

A child runs this file with the package of a checkout, which may be too old to have `benchmarks.harness`.
Hence only the parent imports the harness, within the functions that it calls.
"""

import argparse
import hashlib
import json
import logging
import os
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np

TUNE, DRAWS = 30, 30
RESULT = "BENCHMARK-RESULT "  # harness.RESULT, which a child cannot import
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
    P = pm.Dirichlet("P", np.ones((3, 3)) + np.eye(3))
    mu = pm.Normal("mu", 0, 2, shape=3, initval=[-1.0, 0.0, 1.0])
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
    """A dense density, in which no structure can be detected, and a Binomial prior."""
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
    """{name: function from the names of the discrete variables to a step}.

    Every step is there, with every option that leads to another compiled program.
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
    """Digest of the draws and statistics of a step, the other variables being fixed."""
    with model:
        step = make()
    point = model.initial_point()
    step.setup_chain(np.random.default_rng(3), tune=TUNE, draws=DRAWS)
    arrays = []
    for n in range(TUNE + DRAWS):
        if n == TUNE:
            step.stop_tuning()
        point, stats = step.step(point)
        arrays += [point[name] for name in sorted(point)]
        arrays += [value for s in stats for _, value in sorted(s.items())]
    return digest(np.array(a) for a in arrays)


def by_sample(model, pmd, make, dtype):
    """Digest of what pmd.sample returns with the step that `make` builds, or with its default for None."""
    step = None
    if make is not None:
        with model:
            step = make()
    options = {"chains": 2, "random_seed": 5, "progressbar": False, "compute_convergence_checks": False}
    idata = pmd.sample(DRAWS, tune=TUNE, model=model, step=step, dtype=dtype, **options)
    return digest(
        idata[group][name].values
        for group in ("posterior", "sample_stats")
        for name in sorted(idata[group].data_vars)
    )


def digest(arrays):
    sha = hashlib.sha256()
    for a in arrays:
        sha.update(str((a.dtype, a.shape)).encode())
        sha.update(np.ascontiguousarray(a).tobytes())
    return sha.hexdigest()[:16]


def draws_of(name, dtype, words):
    """In a child process: {sampler: digest of its draws, or the error that it raised}.

    words : only samplers with one of these in their names; empty for all
    """
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
    free = {rv.name for rv in model.free_RVs}
    discrete = [v.name for v in model.discrete_value_vars if v.name in free]
    continuous = [rv.name for rv in model.free_RVs if model.rvs_to_values[rv] in model.continuous_value_vars]
    runs = {k: partial(by_step, model, partial(make, discrete)) for k, make in steps(pmd).items()}
    if continuous:
        sliced = partial(pmd.ReparameterizedSlice, continuous)
        runs["ReparameterizedSlice"] = partial(by_step, model, sliced)
        runs["pmd.sample, ReparameterizedSlice"] = partial(by_sample, model, pmd, sliced, dtype)
    runs["pmd.sample"] = partial(by_sample, model, pmd, None, dtype)
    for step in IN_ONE_PROGRAM:
        make = partial(steps(pmd)[step], discrete)
        runs[f"pmd.sample, {step}"] = partial(by_sample, model, pmd, make, dtype)
    results = {}
    for sampler, run in runs.items():
        if words and not any(word in sampler for word in words):
            continue
        try:
            results[sampler] = run()
        except Exception as error:
            results[sampler] = f"{type(error).__name__}: {error}"
    return results


# ---------------------------------------------------------------- comparison, in the parent process
def draws_by(folder, name, dtype, words):
    """`draws_of` a model by the package in a folder."""
    from benchmarks import harness

    command = [sys.executable, str(Path(__file__).resolve()), "--one", name, dtype, "--samplers", *words]
    # the lowest level of optimization compiles in a third less time
    flags = {"PYTHONPATH": str(folder), "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    try:
        return harness.result_of(command, 3600, env=os.environ | flags, cwd=folder)
    except harness.NoResult as error:
        raise SystemExit(f"{folder}, {name}, {dtype}: {error}\n{error.stderr[-2000:]}") from None


def compare(args):
    """The number of samplers that differ."""
    kept = json.loads(args.keep.read_text()) if args.keep and args.keep.exists() else {}
    equal, differing, refused = 0, 0, 0
    for name in args.models:
        for dtype in args.dtypes:
            key = f"{name} {dtype}"
            before = kept[key] = kept.get(key) or draws_by(args.folders[0].resolve(), name, dtype, [])
            if args.keep:
                args.keep.write_text(json.dumps(kept, indent=1))
            if len(args.folders) == 1:
                print(name, dtype, len(before), "recorded", flush=True)
                continue
            after = draws_by(args.folders[1].resolve(), name, dtype, args.samplers)
            wrong = [sampler for sampler in after if after[sampler] != before.get(sampler)]
            right = [result for sampler, result in after.items() if sampler not in wrong]
            differing += len(wrong)
            refused += sum(":" in result for result in right)
            equal += sum(":" not in result for result in right)
            print(f"{key}: {len(right)} of {len(after)} equal", flush=True)
            for sampler in wrong:
                print(f"  {sampler}: {before.get(sampler)} -> {after[sampler]}", flush=True)
    print(f"{equal} equal to the last bit, {refused} refused with the same words, {differing} differ")
    return differing


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folders", nargs="*", type=Path, help="BEFORE and AFTER; or BEFORE alone, with --keep")
    p.add_argument("--models", nargs="+", default=[m.__name__ for m in MODELS])
    p.add_argument("--samplers", nargs="*", default=[], help="only those with one of these in their names")
    p.add_argument("--dtypes", nargs="+", default=["float64", "float32"])
    p.add_argument("--keep", type=Path, help="a file with the draws of BEFORE: read, and completed")
    p.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        print(RESULT + json.dumps(draws_of(*args.one, args.samplers)), flush=True)
    else:
        sys.exit(bool(compare(args)))


if __name__ == "__main__":
    main()
