"""Chains of counts, of which each limits the next: how long until a word is logged, and how well they mix.

`python -m benchmarks.count_chains sir_20 ...` prints a row for each model, each in a process of its own.
"""

import logging
import subprocess
import sys
import time

import numpy as np


def cohort(years, first=60):
    """Those who are left of a cohort, of whom some are seen in each year."""
    import pymc as pm

    rng = np.random.default_rng(1)
    alive = [first]
    for _ in range(years):
        alive.append(rng.binomial(alive[-1], 0.9))
    seen = rng.binomial(alive[1:], 0.6)
    with pm.Model() as model:
        phi = pm.Beta("phi", 2, 2)
        p = pm.Beta("p", 2, 2)
        N = first
        for t in range(years):
            N = pm.Binomial(f"N_{t + 1}", N, phi)
            pm.Binomial(f"seen_{t + 1}", N, p, observed=seen[t])
    return model


def reported_cases(weeks, population=500, first=5):
    """Simulated reports of an epidemic, week by week."""
    rng = np.random.default_rng(2)
    well, ill, cases = population - first, first, []
    for _ in range(weeks):
        infected = rng.binomial(well, 1 - np.exp(-0.9 * ill / population))
        removed = rng.binomial(ill, 0.5)
        well, ill = well - infected, ill + infected - removed
        cases.append(rng.binomial(infected, 0.6))
    return np.array(cases)


def sir(weeks, population=500, first=5):
    """The chain binomial of an epidemic: infections are seen in part, removals are not."""
    import pymc as pm

    cases = reported_cases(weeks, population, first)
    with pm.Model() as model:
        beta = pm.HalfNormal("beta", 2)
        gamma = pm.Beta("gamma", 5, 5)
        reported = pm.Beta("reported", 6, 4)
        well, ill = population - first, first
        for t in range(weeks):
            infections = pm.Binomial(f"infections_{t}", well, 1 - pm.math.exp(-beta * ill / population))
            removals = pm.Binomial(f"removals_{t}", ill, gamma)
            pm.Binomial(f"cases_{t}", infections, reported, observed=cases[t])
            well, ill = well - infections, ill + infections - removals
    return model


def dail_madsen(sites=100, years=5):
    """Counts of an open population: survivors and recruits of each site and year are unknown."""
    import pymc as pm
    import pytensor.tensor as pt

    rng = np.random.default_rng(3)
    N = [rng.poisson(6, sites)]
    for _ in range(years - 1):
        N.append(rng.binomial(N[-1], 0.7) + rng.poisson(2, sites))
    counts = rng.binomial(np.stack(N), 0.5)
    with pm.Model() as model:
        initial = pm.HalfNormal("initial", 10)
        phi = pm.Beta("phi", 1, 1)
        gamma = pm.HalfNormal("gamma", 5)
        p = pm.Beta("p", 1, 1)
        N = [pm.Poisson("N_1", initial, shape=sites)]
        for t in range(1, years):
            survivors = pm.Binomial(f"survivors_{t + 1}", N[-1], phi, shape=sites)
            recruits = pm.Poisson(f"recruits_{t + 1}", gamma, shape=sites)
            N.append(survivors + recruits)
        pm.Binomial("y", pt.stack(N), p, observed=counts)
    return model


MODELS = {
    "cohort_5": lambda: cohort(5),
    "cohort_10": lambda: cohort(10),
    "cohort_20": lambda: cohort(20),
    "cohort_40": lambda: cohort(40),
    "sir_20": lambda: sir(20),
    "sir_52": lambda: sir(52),
    "dail_madsen": dail_madsen,
}


class FirstLine(logging.Handler):
    """Notes when the first line was logged."""

    at = used = float("nan")

    def emit(self, record):
        if np.isnan(self.at):
            self.at, self.used = time.perf_counter(), time.process_time()


def measure(name: str, draws: int) -> str:
    """A row about one model, sampled with the defaults."""
    import arviz as az

    import pymc_discrete as pmd

    log = logging.getLogger("pymc.discrete")
    log.setLevel(logging.INFO)
    first = FirstLine()
    log.addHandler(first)
    model = MODELS[name]()
    began, busy = time.perf_counter(), time.process_time()
    idata = pmd.sample(draws, tune=draws, model=model, random_seed=1, progressbar=False)
    seconds, used = time.perf_counter() - began, time.process_time() - busy
    sampling = idata.posterior.attrs["sampling_time"]
    moving = [k for k, v in idata.posterior.data_vars.items() if v.dtype.kind == "f"]
    ess = az.ess(idata.posterior.dataset[moving])
    least = ", ".join(f"{k} {float(ess[k].min()):.0f}" for k in moving)
    rhat = max(float(v.max()) for v in az.rhat(idata.posterior.dataset[moving]).data_vars.values())
    took = (first.at - began, first.used - busy, seconds - sampling, seconds, used)
    return f"| {name} | {' | '.join(f'{t:.1f}' for t in took)} | {least} | {rhat:.2f} |"


def main(names: list[str]) -> None:
    columns = ["first line, s", "of processor", "before the first draw, s", "in all, s", "of processor"]
    print(" | ".join(["| model", *columns, "ESS of 4,000", "R-hat |"]))
    print("|---" * 8 + "|", flush=True)
    for name in names or MODELS:
        # a process of its own, so that no model has what another has compiled
        subprocess.run([sys.executable, "-m", "benchmarks.count_chains", "--one", name], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(measure(sys.argv[2], 1000), flush=True)
    else:
        main(sys.argv[1:])
