"""Command line, rows on disk, table and figure: what the experiments share."""

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path

import jax
import numpy as np

from benchmarks.experiments.samplers import SAMPLERS, NotThere
from benchmarks.run import environment

RESULTS = Path(__file__).parents[1] / "results" / "experiments"


def arguments(doc, samplers, *, steps, chains, seconds):
    """The options that all experiments have."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--short", action="store_true", help="a run of seconds, results in a temporary folder")
    p.add_argument(
        "--samplers",
        nargs="+",
        default=samplers,
        choices=list(SAMPLERS),
        metavar="NAME",
        help=f"any of: {', '.join(SAMPLERS)}",
    )
    p.add_argument(
        "--only",
        nargs="+",
        default=None,
        metavar="SETTING",
        help="settings to run, as the table names them; default all",
    )
    p.add_argument("--resume", action="store_true", help="run only the rows that the results do not have")
    p.add_argument("--steps", type=int, default=steps, help=f"per chain, after burn-in (default {steps})")
    p.add_argument("--chains", type=int, default=chains)
    p.add_argument(
        "--seconds",
        type=float,
        default=seconds,
        help="of sampling, per row: it ends earlier, ESS per step is scaled",
    )
    p.add_argument("--seed", type=int, default=0)
    p.add_argument(
        "--out",
        type=Path,
        default=None,
        help=f"folder, default {RESULTS.relative_to(Path(__file__).parents[2])}",
    )
    args = p.parse_args()
    warnings.simplefilter("ignore")
    if args.short:
        args.steps, args.chains, args.seconds = min(args.steps, 500), 2, 0.5
    args.out = args.out or (Path(tempfile.mkdtemp()) if args.short else RESULTS)
    return args


class Table:
    """Rows of one experiment: kept as JSON lines, so that a later run of some samplers replaces
    only theirs.
    """

    def __init__(self, name, args):
        suffix = "" if jax.config.jax_enable_x64 else "-float32"
        suffix += "" if jax.default_backend() == "cpu" else f"-{jax.default_backend()}"
        args.out.mkdir(parents=True, exist_ok=True)
        self.path, self.args = args.out / f"{name}{suffix}", args
        file = self.file(".jsonl")
        self.rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def file(self, suffix):
        return self.path.with_name(self.path.name + suffix)

    def run(self, setting, name, model, make_row):
        """Add the row {**make_row(sampler, kernel, params)} of one sampler, or say why there is none."""
        sampler = SAMPLERS[name]
        self.add(setting, name, lambda: make_row(sampler, *sampler.make(model)))

    def add(self, setting, name, make_row):
        """Add the row {**make_row()}, or say why there is none."""
        if self.args.only and setting not in self.args.only:
            return
        if self.args.resume and any((r["setting"], r["sampler"]) == (setting, name) for r in self.rows):
            return
        begin = time.perf_counter()
        try:
            row = make_row()
        except (NotThere, ValueError) as reason:  # our kernels refuse with a ValueError
            print(f"{setting}, {name}: skipped: {reason}", flush=True)
            return
        row = {"setting": setting, "sampler": name, **{k: tidy(v) for k, v in row.items()}}
        self.rows = [r for r in self.rows if (r["setting"], r["sampler"]) != (setting, name)]
        self.rows.append({**row, "x64": bool(jax.config.jax_enable_x64), **environment()})
        self.file(".jsonl").write_text("".join(json.dumps(r) + "\n" for r in self.rows))
        told = ", ".join(
            f"{k} {shown(v)}"
            for k, v in row.items()
            if k not in ("setting", "sampler") and not isinstance(v, list)
        )
        print(f"{setting}, {name} ({time.perf_counter() - begin:.0f} s): {told}", flush=True)

    def ordered(self):
        """Settings in their own order, samplers in that of the registry."""
        order = {
            name: n
            for n, name in enumerate(
                [*SAMPLERS, *(r["sampler"] for r in self.rows if r["sampler"] not in SAMPLERS)]
            )
        }
        settings = {s: n for n, s in enumerate(sorted({r["setting"] for r in self.rows}, key=natural))}
        return sorted(self.rows, key=lambda r: (settings[r["setting"]], order[r["sampler"]]))

    def write(self, title, notes=()):
        """The markdown table; lists (curves) are left to the figure."""
        rows = self.ordered()
        if not rows:
            print("Nothing was run.")
            return
        hidden = ("x64", "hardware", "versions", "commit", "date")
        columns = list(
            dict.fromkeys(
                k for r in rows for k, v in r.items() if k not in hidden and not isinstance(v, list)
            )
        )
        lines = [
            f"# {title}",
            "",
            *dict.fromkeys(header(r) for r in rows),
            "",
            *[f"- {n}" for n in notes],
            "",
        ]
        lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        lines += ["| " + " | ".join(shown(r.get(c, "")) for c in columns) + " |" for r in rows]
        self.file(".md").write_text("\n".join(lines) + "\n")
        print("\n".join(lines))
        print(f"written to {self.file('.md')}")

    def figure(self, draw, columns=1, size=(5.5, 4.0)):
        """`draw(axes, rows)` on one row of axes, saved as a picture; axes without a legend share one, empty
        ones are left out.
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
    import re

    return [float(part) if n % 2 else part for n, part in enumerate(re.split(r"(\d+(?:\.\d+)?)", text))]


def tidy(value):
    """Something JSON can hold."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def shown(value):
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return str(value)


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
