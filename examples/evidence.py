"""Did the rate of coal mining disasters change, and how often? The evidence of three models.

The counts of 109 years from 1851 to 1961 (Jarrett 1979) are Poisson, with a rate that is the same for all
years, that changes once, or that changes twice, in years which are unknown. Rates are Exponential(1) a
priori, so that they can be integrated out by hand, and the sum over the years is exact: the estimates can be
checked.

    python examples/evidence.py [--chains 200] [--smc] [--short]
"""

import argparse
import itertools
import logging
import time
from pathlib import Path

import numpy as np
import pymc as pm
from scipy.special import gammaln, logsumexp

import pymc_discrete as pmd

HERE = Path(__file__).parent


def disasters(years: np.ndarray, counts: np.ndarray, changes: int) -> pm.Model:
    with pm.Model() as model:
        rate = pm.Exponential("rate", 1.0, shape=changes + 1)
        if not changes:
            pm.Poisson("disasters", rate[0], observed=counts)
            return model
        # changes in no order: how many of them lie before a year says which rate it has
        change = pm.DiscreteUniform("change", years[0], years[-1], shape=changes)
        pm.Poisson("disasters", rate[(years[:, None] >= change).sum(axis=1)], observed=counts)
    return model


def exact(years: np.ndarray, counts: np.ndarray, changes: int) -> float:
    """The log evidence: a sum over the years of the changes, with the rates integrated out."""
    possible = np.arange(years[0], years[-1] + 1)
    totals, places = np.append(0, np.cumsum(counts)), np.searchsorted(years, possible)

    def of_stretch(begin: int, end: int) -> float:
        total = totals[end] - totals[begin]
        return float(gammaln(total + 1) - (total + 1) * np.log(end - begin + 1))

    logs = [
        sum(itertools.starmap(of_stretch, itertools.pairwise((0, *sorted(ends), len(years)))))
        for ends in itertools.product(places, repeat=changes)
    ]
    return float(logsumexp(logs) - changes * np.log(len(possible)) - gammaln(counts + 1).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chains", type=int, default=200, help="chains in each direction")
    parser.add_argument("--smc", action="store_true", help="pm.sample_smc beside it")
    parser.add_argument("--short", action="store_true", help="few chains and temperatures, for a test run")
    args = parser.parse_args()
    options = {"chains": 32, "temperatures": 20} if args.short else {"chains": args.chains}
    data = np.genfromtxt(HERE / "data" / "coal_mining_disasters.csv", delimiter=",", skip_header=1)
    years, counts = data[~np.isnan(data).any(axis=1)].astype(int).T
    if args.short:
        logging.getLogger("pymc.discrete").setLevel(logging.ERROR)

    found = {}
    print(f"{'changes':>7}  {'':10}  {'log evidence':>16}  {'CPU s':>7}")

    def row(changes: int, what: str, value: float, error: float, begin: float) -> None:
        shown = f"{value:.2f} ± {error:.2f}"
        print(f"{changes:>7}  {what:10}  {shown:>16}  {time.process_time() - begin:7.0f}", flush=True)

    for changes in range(2 if args.short else 3):
        begin = time.process_time()
        row(changes, "exact", exact(years, counts, changes), 0.0, begin)
        begin = time.process_time()
        with disasters(years, counts, changes):
            found[changes] = pmd.log_evidence(random_seed=1, progressbar=False, **options)
        row(changes, "forward", *found[changes].forward[:2], begin)
        row(changes, "backward", *found[changes].backward[:2], begin)
        if args.smc:
            begin = time.process_time()
            with disasters(years, counts, changes):
                idata = pm.sample_smc(1000, chains=4, cores=1, random_seed=1, progressbar=False)
            of_chains = idata["sample_stats"]["log_marginal_likelihood"].values
            logs = [float(np.ravel(logs)[-1]) for logs in of_chains]
            row(changes, "sample_smc", np.mean(logs), np.std(logs, ddof=1) / 2, begin)
    print(found[1])
    print(f"one change against none: a Bayes factor of exp({found[1].value - found[0].value:.1f})")


if __name__ == "__main__":
    main()
