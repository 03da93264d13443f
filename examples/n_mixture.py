"""How many birds are there, if only some are seen? An N-mixture with covariates, the counts summed out.

At each of 80 sites there are N birds, more of them in forest and fewer with altitude. Each of three visits
counts some of them, fewer in wind. N and the probability to be seen are tied: twice as many birds, each seen
half as often, give almost the same counts, and a sampler that moves one given the other creeps. So
`pmd.sample` sums N out while NUTS moves, over stretches that leave out nothing, and draws it again.
(Royle 2004, N-mixture models for estimating population size from spatially replicated counts. The data are
simulated, so that the truth is known.)

    python examples/n_mixture.py [--draws 2000] [--short]
"""

import argparse
import time

import arviz as az
import numpy as np
import pymc as pm

import pymc_discrete as pmd

SITES, VISITS = 80, 3
TRUTH = {"abundance": [1.0, 0.7, -0.5], "detection": [0.2, -0.6]}


def simulated(seed: int = 4) -> dict[str, np.ndarray]:
    """Covariates, counts (sites, visits) and, what nobody would know, the number of birds at each site."""
    r = np.random.default_rng(seed)
    forest, altitude, wind = r.normal(size=SITES), r.normal(size=SITES), r.normal(size=(SITES, VISITS))
    b, a = TRUTH["abundance"], TRUTH["detection"]
    N = r.poisson(np.exp(b[0] + b[1] * forest + b[2] * altitude))
    seen = r.binomial(N[:, None], 1 / (1 + np.exp(-a[0] - a[1] * wind)))
    return {"forest": forest, "altitude": altitude, "wind": wind, "N": N, "seen": seen}


def n_mixture(data: dict[str, np.ndarray]) -> pm.Model:
    coords = {
        "site": np.arange(SITES),
        "of abundance": ["intercept", "forest", "altitude"],
        "of detection": ["intercept", "wind"],
    }
    with pm.Model(coords=coords) as model:
        b = pm.Normal("abundance", 0, 1.5, dims="of abundance")
        a = pm.Normal("detection", 0, 1.5, dims="of detection")
        birds = pm.math.exp(b[0] + b[1] * data["forest"] + b[2] * data["altitude"])
        N = pm.Poisson("N", birds, dims="site")
        pm.Deterministic("total", N.sum())
        p = pm.math.invlogit(a[0] + a[1] * data["wind"])
        pm.Binomial("seen", n=N[:, None], p=p, observed=data["seen"])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2000, help="draws per chain")
    parser.add_argument("--short", action="store_true", help="few draws, for a test run")
    args = parser.parse_args()
    draws = 200 if args.short else args.draws

    data = simulated()
    begin = time.perf_counter()
    idata = pmd.sample(
        draws,
        tune=min(draws, 1000),
        chains=2 if args.short else 4,
        model=n_mixture(data),
        random_seed=1,
        progressbar=False,
    )
    posterior = idata["posterior"]
    print(f"{posterior['total'].size} draws in {time.perf_counter() - begin:.0f} s")

    table = az.summary(idata, var_names=["abundance", "detection"])
    table.insert(0, "truth", [*TRUTH["abundance"], *TRUTH["detection"]])
    print(table)

    low, high = np.quantile(posterior["total"], [0.05, 0.95])
    most = data["seen"].max(axis=1)
    print(f"\nseen at once, at most: {most.sum()} birds at {(most > 0).sum()} of {SITES} sites")
    print(f"there are {float(posterior['total'].mean()):.0f} (90 %: {low:.0f} to {high:.0f}); ", end="")
    print(f"in truth {data['N'].sum()}")

    # the mean of p(N = k | everything else) over all draws
    p = idata["probabilities"]["N"].mean("chain")
    someone = 1 - p.sel({"N value": 0})
    unseen = np.flatnonzero(most == 0)
    print(f"\nof {len(unseen)} sites where none was seen, birds are expected at ", end="")
    print(f"{float(someone[unseen].sum()):.1f}; in truth at {(data['N'][unseen] > 0).sum()}")
    print("site  forest  altitude  probability of 0, 1, 2, ... birds        truth")
    for i in unseen[np.argsort(someone.values[unseen])[[0, len(unseen) // 2, -1]]]:
        row = "  ".join(f"{float(p[i].sel({'N value': k})):.3f}" for k in range(5))
        print(f"{i:4d}  {data['forest'][i]:6.2f}  {data['altitude'][i]:8.2f}  {row}  {data['N'][i]:5d}")


if __name__ == "__main__":
    main()
