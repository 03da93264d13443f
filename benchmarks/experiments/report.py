"""What the experiments share: options, rows on disk, table and figure.

All rows of an experiment are run in one process, since they share targets and compiled programs.
"""

import re
import tempfile
import time
import warnings
from pathlib import Path

import jax
import numpy as np

from benchmarks import harness
from benchmarks.experiments.samplers import SAMPLERS

RESULTS = Path(__file__).parents[1] / "results" / "experiments"


def arguments(doc, samplers, *, steps, chains, seconds, more=None):
    """The options that all experiments have, and those that `more(parser)` adds."""
    p = harness.parser(doc)
    p.add_argument("--short", action="store_true", help="a short run, with results in a temporary folder")
    harness.choice(p, "--samplers", SAMPLERS, default=samplers)
    p.add_argument(
        "--only", nargs="+", metavar="SETTING", help="settings as the table names them; default all"
    )
    p.add_argument("--resume", action="store_true", help="run only the rows that the results do not have")
    p.add_argument("--steps", type=int, default=steps, help=f"per chain, after burn-in (default {steps})")
    p.add_argument("--chains", type=int, default=chains)
    p.add_argument("--seconds", type=float, default=seconds, help="of sampling, at most")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--out", type=Path, help=f"folder, default {RESULTS.relative_to(harness.ROOT)}")
    if more:
        more(p)
    args = p.parse_args()
    warnings.simplefilter("ignore")
    if args.short:
        args.steps, args.chains, args.seconds = min(args.steps, 500), 2, 0.5
    args.out = args.out or (Path(tempfile.mkdtemp()) if args.short else RESULTS)
    return args


class Table:
    """Rows of one experiment.

    They are kept in a file, so that a later run of some samplers replaces only the rows of these.
    """

    def __init__(self, name, args):
        suffix = "" if jax.config.jax_enable_x64 else "-float32"
        suffix += "" if jax.default_backend() == "cpu" else f"-{jax.default_backend()}"
        args.out.mkdir(parents=True, exist_ok=True)
        self.path, self.args = args.out / f"{name}{suffix}", args
        self.records = harness.Records(self.path, keep=True)

    @property
    def rows(self):
        return self.records.records

    def file(self, suffix):
        return harness.with_suffix(self.path, suffix)

    def run(self, setting, name, model, make_row):
        """Add the row {**make_row(sampler, kernel, params)} of one sampler, or say why there is none."""
        sampler = SAMPLERS[name]
        self.add(setting, name, lambda: make_row(sampler, *sampler.make(model)))

    def add(self, setting, name, make_row):
        """Add the row {**make_row()}, or say why there is none."""
        if self.args.only and setting not in self.args.only:
            return
        key = {"setting": setting, "sampler": name}
        if self.args.resume and self.records.has(key):
            return
        begin = time.perf_counter()
        try:
            row = make_row()
        except (harness.CannotRun, ValueError) as reason:  # kernels of the package raise ValueError
            print(f"{setting}, {name}: skipped: {reason}", flush=True)
            return
        row = {k: to_json(v) for k, v in row.items()}
        x64 = bool(jax.config.jax_enable_x64)
        self.records.add(key, {**key, **row, "x64": x64, **harness.environment()})
        numbers = ", ".join(f"{k} {shown(v)}" for k, v in row.items() if not isinstance(v, list))
        print(f"{setting}, {name} ({time.perf_counter() - begin:.0f} s): {numbers}", flush=True)

    def ordered(self):
        """The rows: settings sorted by name and by the numbers in it, samplers as in the registry."""
        others = (r["sampler"] for r in self.rows if r["sampler"] not in SAMPLERS)
        order = {name: n for n, name in enumerate([*SAMPLERS, *others])}
        return sorted(self.rows, key=lambda r: (natural(r["setting"]), order[r["sampler"]]))

    def write(self, title, notes=()):
        """The Markdown table. Lists, which are curves, appear in the figure only."""
        rows = self.ordered()
        if not rows:
            print("Nothing was run.")
            return
        hidden = ("x64", *harness.PROVENANCE)
        numbers = ({k: v for k, v in r.items() if k not in hidden and not isinstance(v, list)} for r in rows)
        columns = list(dict.fromkeys(key for r in numbers for key in r))
        lines = [f"# {title}", "", *dict.fromkeys(header(r) for r in rows), ""]
        lines += [*(f"- {note}" for note in notes), ""]
        lines += harness.table(columns, [[shown(r.get(c, "")) for c in columns] for r in rows])
        harness.publish("\n".join(lines) + "\n", self.path)
        print(f"written to {self.file('.md')}")

    def figure(self, draw, columns=1, size=(5.5, 4.0)):
        """A picture of what `draw(axes, rows)` draws on one row of axes.

        Axes without a legend of their own share one. Axes without data are not shown.
        """
        if not self.rows:
            return
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(
            1, columns, figsize=(size[0] * columns, size[1]), squeeze=False, layout="constrained"
        )
        draw(axes[0], self.ordered())
        legend = {}
        for ax in axes[0]:
            ax.set_visible(ax.has_data())
            if ax.get_legend() is None:
                legend |= {label: line for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        figure.legend(legend.values(), legend, loc="outside right upper", fontsize=7)
        figure.savefig(self.file(".png"), dpi=110)
        plt.close(figure)


def header(row):
    v = row["versions"]
    width = "float64" if row["x64"] else "float32"
    return (
        f"{row['hardware']}; {width}; {row['date']}; commit {row['commit']}; jax {v['jax']}, pymc "
        f"{v['pymc']}."
    )


def natural(text):
    """Sort key: numbers within a text by value."""
    return [float(part) if n % 2 else part for n, part in enumerate(re.split(r"(\d+(?:\.\d+)?)", text))]


def to_json(value):
    """The value in a type that JSON can hold."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def shown(value):
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return str(value)


def listed(numbers):
    """{name: number} as text."""
    return ", ".join(f"{name} {number}" for name, number in numbers.items())


# colours of the lines
FAMILIES = {
    "RW": "k",
    "Gibbs": "0.45",
    "HB": "0.65",
    "LB": "y",
    "GWG": "C0",
    "PAFS": "C1",
    "PAS": "C2",
    "NB": "C3",
    "DMALA": "C4",
    "DLMC": "C5",
    "BlockGibbs": "m",
}


def style(name):
    """A line for every sampler: colour by family, dashes and markers by its length."""
    family, _, length = name.partition("-")
    n = {"": 0, "adapt": 0, "1": 1, "2": 2, "3": 3, "5": 4, "10": 5, "20": 6}.get(length, 2)
    look = {"ls": ("-", ":", "--", "-.")[n % 4], "marker": "*osv^Dx"[n], "ms": 4, "lw": 1.2, "label": name}
    return {"color": FAMILIES.get(family, f"C{6 + len(family) % 4}"), **look}
