"""Hidden Markov chains of several lags and with durations: effective draws of whole calls, before and after.

python -m benchmarks.markov_chains --before FOLDER --out benchmarks/results/NAME-markov-chains [--models A B]

A call of pmd.sample by default, with 4 chains of 200 tuning draws and 500 draws of 1,000 states, on one core,
in a process of its own that finds nothing compiled; seconds are those of the processor, from the call to its
end. FOLDER is a checkout of this repository as it was before a path of sites that interact with several that
follow them was summed from one end to the other.
"""

import sys
import time

import numpy as np

from benchmarks import harness, scores

CHAINS, T = 4, 1000


def sticky(K, lags, r):
    """(K, ..., K) probabilities of a state given those before it, most often the last one again."""
    P = 0.2 * r.dirichlet(np.ones(K), size=(K,) * lags)
    return P + 0.8 * np.eye(K)


def of_states(z):
    """Summaries of states (chain, draw, T)."""
    return {
        "mean state": z.mean(axis=-1),
        "switches": (np.diff(z, axis=-1) != 0).sum(axis=-1),
        "first": z[..., 0],
        "middle": z[..., T // 2],
    }


def seen(z, truth, r):
    import pymc as pm

    pm.Normal("y", z.astype(float), 1.0, observed=r.normal(truth, 1.0))


def lags(n, K, tables=1):
    """A chain of K states, each given the n before it; each step has one of some tables of probabilities."""
    import pymc as pm
    import pytensor.tensor as pt

    r = np.random.default_rng(1)
    P = np.stack([sticky(K, n, r) for _ in range(tables)])
    truth = [*r.integers(K, size=n)]
    for t in range(T - n):
        truth.append(r.choice(K, p=P[(t % tables, *truth[-n:])]))
    z = pm.Categorical("z", np.full(K, 1 / K), shape=T)
    steps = [z[i : T - n + i] for i in range(n + 1)]
    pm.Potential("steps", pt.log(pt.as_tensor(P))[(np.arange(T - n) % tables, *steps)].sum())
    seen(z, truth, r)
    return lambda post: of_states(post["z"])


def durations(K=3, longest=8):
    """A semi-Markov chain: a state and how many times it is still to be repeated."""
    import pymc as pm
    import pytensor.tensor as pt

    r = np.random.default_rng(2)
    change = (1 - np.eye(K)) * r.dirichlet(np.ones(K), K)
    change /= change.sum(axis=1, keepdims=True)
    lasts, left = r.dirichlet(np.full(longest, 2.0), K), np.arange(longest)
    to_state = np.where(left[None, :, None] > 0, np.eye(K)[:, None], change[:, None])
    to_left = np.where(
        left[:, None, None] > 0, np.eye(longest)[np.maximum(left - 1, 0)][:, None], lasts[None]
    )
    truth, stay = [0], [0]
    for _ in range(T - 1):
        truth.append(r.choice(K, p=to_state[truth[-1], stay[-1]]))
        stay.append(r.choice(longest, p=to_left[stay[-1], truth[-1]]))
    z = pm.Categorical("z", np.full(K, 1 / K), shape=T, initval=truth)
    d = pm.Categorical("d", np.full(longest, 1 / longest), shape=T, initval=stay)
    with np.errstate(divide="ignore"):
        states, of_left = (pt.as_tensor(np.log(table)) for table in (to_state, to_left))
    pm.Potential("states", states[z[:-1], d[:-1], z[1:]].sum())
    pm.Potential("durations", of_left[d[:-1], z[1:], d[1:]].sum())
    seen(z, truth, r)
    return lambda post: of_states(post["z"])


MODELS = {
    "2 lags, 3 states": lambda: lags(2, 3),
    "2 lags, 10 states": lambda: lags(2, 10),
    "3 lags, 3 states": lambda: lags(3, 3),
    "3 lags, 3 states, a table for each step": lambda: lags(3, 3, T - 3),
    "semi-Markov, 3 states of 1 to 8 steps": durations,
}


# ---------------------------------------------------------------- rows
def options(p):
    harness.choice(p, "--models", MODELS)
    p.add_argument("--before", help="a checkout of this repository as it was before")
    p.add_argument("--draws", type=int, default=500)
    p.add_argument("--tune", type=int, default=200)
    p.add_argument("--limit", type=float, default=300, help="seconds for a row")


def rows(args, records):
    with harness.empty_pytensor_cache() as env:
        for model in args.models:
            for state in ("before", "after") if args.before else ("after",):
                yield harness.Row({"model": model, "state": state}, env)


def measure(args, model, state):
    if state == "before":
        sys.path.insert(0, args.before)
    import pymc as pm

    import pymc_discrete as pmd

    with pm.Model():
        of = MODELS[model]()
        step = type(pmd.AutoStep()).__name__
        begin = time.process_time()
        tree = pmd.sample(
            args.draws,
            tune=args.tune,
            chains=CHAINS,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    seconds = time.process_time() - begin
    assert state == "after" or pmd.__file__.startswith(args.before), f"{pmd.__file__} is not in --before"
    # tuning draws take as long as others
    sampling = tree["posterior"].attrs["sampling_time"] * args.draws / (args.draws + args.tune)
    found = scores.scored(of({k: v.values for k, v in tree["posterior"].data_vars.items()}), seconds)
    return found | {"sampling": sampling, "step": step}


def progress(r):
    return f"{r['step']}: {r['min_ess']:.0f} effective draws in {r['seconds']:.1f} s, {r['speed']:.3g} ESS/s"


def markdown(args, records):
    columns = ["model", "", "step", "effective draws", "of", "a draw", "ms a draw", "a second of sampling"]
    columns += ["s, whole call", "a second", "R-hat"]
    lines = []
    for r in records:
        if r["status"] != "ok":
            lines.append([r["model"], r["state"], r["reason"][:80]])
            continue
        n = CHAINS * r["draws"]
        rhat = max(s["rhat"] for s in r["summaries"].values())
        lines.append(
            [
                r["model"],
                harness.label(r["state"], r["state"] == "after"),
                r["step"],
                f"{r['min_ess']:,.0f}",
                r["worst"],
                f"{r['min_ess'] / n:.2g}",
                f"{1e3 * r['sampling'] / n:.2g}",
                f"{r['min_ess'] / r['sampling']:,.3g}",
                f"{r['seconds']:.1f}",
                f"{r['speed']:,.3g}",
                f"{rhat:.2f}",
            ]
        )
    return "\n".join(
        ["# Hidden Markov chains of several lags", "", *harness.origins(records), "",
         *harness.table(columns, lines), "", FOOTNOTE, ""]
    )  # fmt: skip


FOOTNOTE = f"""- {T:,} states, {CHAINS} chains of 200 tuning draws and 500 draws, one core. Seconds of
  whole calls are those of the processor, of sampling those of the clock, on a machine that others use, too.
  Effective draws: the least bulk ESS of the mean state, the number of switches, the first and the middle
  state; *of* names it."""


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
            short={"models": ["2 lags, 3 states"], "draws": 50, "tune": 20},
            keeps_other_rows=True,
        )
    )
