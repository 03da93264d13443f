"""Curves of the other experiments on two axes, steps and seconds, and the seconds to a level.

python -m benchmarks.experiments.both_axes [--only learn_ising parity] [--short]

Nothing is run: all is made from the stored rows of `benchmarks/results/experiments`. The papers' axis is that
of steps (iterations of learning, transitions of a sampler); a user pays seconds.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import harness
from benchmarks.experiments import report

# A step of these is a pass over all sites, or an iteration without a chain. They have curves, and do not
# count where others are compared after equally many steps.
NOT_A_TRANSITION = ("BlockGibbs", "AutoStep", "RBM-Gibbs", "pseudo-likelihood")


@dataclass(frozen=True)
class Task:
    """An experiment whose rows hold curves.

    Attributes
    ----------
    read : row -> (steps (n,), seconds (n,), values (n,)) of its curve
    level : rows of a setting -> value that is to be reached
    says : what the level is
    rising : whether larger values are better
    groups : rows -> {setting: rows}
    settings : of which there is a picture
    """

    title: str
    read: Callable
    level: Callable
    says: str
    what: str
    steps: str = "steps"
    rising: bool = False
    log: bool = True
    groups: Callable = None
    settings: tuple = ()


def main():
    p = harness.parser(__doc__)
    harness.choice(p, "--only", TASKS)
    p.add_argument("--short", action="store_true", help="one experiment, with results in a temporary folder")
    args = p.parse_args()
    out = Path(tempfile.mkdtemp()) if args.short else report.RESULTS
    lines = [
        "# Equal steps, and seconds to a level",
        "",
        "Made from the stored rows by `python -m benchmarks.experiments.both_axes`. Hardware and versions "
        "are those of the experiments' own pages.",
        "",
        "- level: a value that is to be reached, named at each table. steps, seconds to it: the first time "
        "at which the stored curve is there; - where it never is.",
        "- at N: the curve's value after as many steps as every sampler of single transitions has made, N. "
        "A sweep of BlockGibbs or RBM-Gibbs is no such step.",
        "- Seconds are those of all chains together, on one core, without compiling and tuning.",
        "- Pictures with a logarithmic axis have values below 1e-6 at 1e-6.",
        "",
    ]
    for name in ["parity"] if args.short else args.only:
        task, rows = TASKS[name], harness.read(report.RESULTS / f"{name}.jsonl")
        rows = [row for row in rows if any(column.startswith("curve") for column in row)]
        groups = task.groups(rows) if task.groups else by_setting(rows)
        groups = dict(sorted(groups.items(), key=lambda group: report.natural(group[0])))
        path = out / f"{name}-both_axes.png"
        picture(task, groups, path)
        lines += [f"## {task.title}", "", f"Level: {task.says}. [Picture]({path.name})", ""]
        lines += [*table(task, groups), ""]
    harness.publish("\n".join(lines), out / "both_axes")


# ---------------------------------------------------------------- curves
def by_setting(rows):
    groups = {}
    for row in rows:
        groups.setdefault(row["setting"], []).append(row)
    return groups


def of_transitions(rows):
    """{setting and transitions in an iteration: rows}; those of a sampler without transitions in each."""
    groups = {}
    for setting, mine in by_setting(rows).items():
        counts = {row["sampler"].partition(", T=")[2] for row in mine} - {"", "1"}
        for count in counts:
            groups[f"{setting}, T={count}"] = [
                {**row, "sampler": row["sampler"].partition(", T=")[0]}
                for row in mine
                if row["sampler"].partition(", T=")[2] in ("", "1", count)
            ]
    return groups


def of_learning(row):
    seconds = np.array(row["seconds"])
    return 1000 * seconds / row["ms per iteration"], seconds, np.array(row["curve"])


def of_chains(name):
    def read(row):
        steps = np.array(row["curve steps"], float)
        return steps, row["chains"] * steps / row["steps per s"], np.array(row[f"curve {name}"])

    return read


def of_gradients(kept):
    """Curves with a value for every `kept` iterations."""

    def read(row):
        values = np.array(row["curve KL"])
        steps = kept * np.arange(len(values), dtype=float)
        return steps, row["s"] * steps / (kept * len(values)), values

    return read


def lowest_of_gibbs(rows):
    if rows[0]["setting"].startswith(
        "25x25"
    ):  # where Gibbs stays above the error of no couplings at all, -3.91
        return -4.0
    return min(min(row["curve"]) for row in rows if row["sampler"] == "Gibbs")


def with_curve(rows):
    return {
        key: own for key, mine in by_setting(rows).items() if (own := [r for r in mine if "curve KL" in r])
    }


TASKS = {
    "learn_ising": Task(
        "learn_ising (GWG, Fig. 6, 11; PAS, Fig. 8)",
        of_learning,
        lowest_of_gibbs,
        "the lowest log RMSE of Gibbs with as many transitions in an iteration; -4 at 25x25, where Gibbs "
        "stays above the error of no couplings at all, -3.91",
        "log RMSE",
        "iterations",
        log=False,
        groups=of_transitions,
        settings=(
            "10x10 theta=-0.1, T=5",
            "10x10 theta=0.1, T=5",
            "10x10 theta=0.2, T=5",
            "10x10 theta=0.25, T=5",
            "10x10 theta=0.3, T=5",
            "25x25 theta=0.25, T=5",
            "Erdos-Renyi 200, T=5",
        ),
    ),
    "factorial_hmm": Task(
        "factorial_hmm (GWG, Fig. 5; PAS, Fig. 5)",
        of_chains("energy"),
        lambda rows: 6900.0,
        "a log density of 6900, mean of the chains (it settles at about 7100). The rows by gradient were run "
        "on another machine, beside other work: their seconds do not compare",
        "log density",
        rising=True,
        log=False,
        settings=("N=1000 K=10",),
    ),
    "parity": Task(
        "parity (PAS, Fig. 1)",
        of_chains("error"),
        lambda rows: 0.5,
        "an error of the mean of 0.5",
        "error of the mean",
    ),
    "permutations": Task(
        "permutations (PAS, Fig. 2)",
        of_chains("energy"),
        lambda rows: {"sigma=3": 85.0, "sigma=5": 35.0, "sigma=10": 20.0}[rows[0]["setting"]],
        "an energy of 85, 35, 20 above the least at sigma = 3, 5, 10",
        "energy above the least",
    ),
    "rbm-float32": Task(
        "rbm, float32 (GWG, Fig. 3; PAS, Fig. 6, 7)",
        of_chains("MMD"),
        lambda rows: 0.07,
        "a squared MMD of 0.07 to draws of block Gibbs (the starts: 0.077; two sets of such draws: 0.0039)",
        "squared MMD",
    ),
    "slice_gaussian": Task(
        "slice_gaussian (Slice, Fig. 2)",
        of_gradients(10),
        lambda rows: 0.01,
        "KL of 0.01 nats, seconds of three seeds side by side",
        "KL, nats",
        "iterations",
        settings=("D=20, fit",),
        groups=with_curve,
    ),
    "slice_mixture": Task(
        "slice_mixture (Slice, Fig. 3)",
        of_gradients(10),
        lambda rows: 0.01,
        "KL of 0.01 nats, seconds of five seeds side by side",
        "KL, nats",
        "iterations",
        groups=with_curve,
    ),
}


# ---------------------------------------------------------------- tables and pictures
def ordered(rows):
    order = {name: n for n, name in enumerate(report.SAMPLERS)}
    return sorted(
        rows, key=lambda row: (order.get(row["sampler"], len(order)), report.natural(row["sampler"]))
    )


def table(task, groups):
    cells = []
    for setting, rows in groups.items():
        level, curves = task.level(rows), {row["sampler"]: task.read(row) for row in ordered(rows)}
        common = min(steps[-1] for name, (steps, *_) in curves.items() if name not in NOT_A_TRANSITION)
        for name, (steps, seconds, values) in curves.items():
            there = np.flatnonzero(values >= level if task.rising else values <= level)
            first = (f"{steps[there[0]]:,.0f}", f"{seconds[there[0]]:.3g}") if len(there) else ("-", "-")
            after = np.interp(common, steps, values) if name not in NOT_A_TRANSITION else None
            cells.append(
                [
                    setting,
                    name,
                    f"{level:.4g}",
                    *first,
                    f"{common:,.0f}",
                    "" if after is None else f"{after:.4g}",
                    f"{steps[-1]:,.0f}",
                    f"{seconds[-1]:.3g}",
                ]
            )
    columns = ["setting", "sampler", "level", f"{task.steps} to it", "seconds to it", "N", "at N"]
    return harness.table([*columns, f"all {task.steps}", "all seconds"], cells)


def picture(task, groups, path):
    """Two panels for each setting: steps on the left, seconds on the right."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    shown = task.settings or tuple(groups)
    figure, axes = plt.subplots(
        len(shown), 2, figsize=(9.5, 3.0 * len(shown)), squeeze=False, sharey="row", layout="constrained"
    )
    names = (row["sampler"] for setting in shown for row in ordered(groups[setting]))
    others = [n for n in dict.fromkeys(names) if n.partition("-")[0] not in report.FAMILIES]
    legend = {}
    for line, setting in zip(axes, shown, strict=True):
        for row in ordered(groups[setting]):
            steps, seconds, values = task.read(row)
            if row["sampler"] in others:
                look = {"label": row["sampler"], "lw": 1.2, "color": f"C{9 - others.index(row['sampler'])}"}
            else:
                look = {**report.style(row["sampler"]), "markevery": max(len(steps) // 8, 1)}
            for ax, at in zip(line, (steps, seconds), strict=True):
                (legend[row["sampler"]],) = ax.plot(
                    at, np.maximum(values, 1e-6) if task.log else values, **look
                )
        for ax, label in zip(line, (task.steps, "seconds of one core"), strict=True):
            ax.axhline(task.level(groups[setting]), color="k", lw=0.5, ls=":")
            ax.set(xscale="log", xlabel=label, title=setting)
            ax.xaxis.set_minor_formatter(NullFormatter())
            if task.log:
                ax.set_yscale("log")
        line[0].set_ylabel(task.what)
    figure.legend(legend.values(), legend, loc="outside right upper", fontsize=7)
    figure.savefig(path, dpi=100)
    plt.close(figure)


if __name__ == "__main__":
    main()
