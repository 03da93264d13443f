"""Draw how a PyMC model becomes a chain, from the code: every box is a class or function and the first
sentence of its docstring.

python docs/draw_architecture.py        # writes docs/images/architecture.png
"""

import importlib
import inspect
import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

# (column, row, name of a class or function, colour): rows from the top
BOXES = {
    "model": (0, 0, None, "a PyMC model and some of its discrete variables"),
    "logp": (0, 1, "model.logp:logp_graph", None),
    "space": (1, 2, "space.space:Space", None),
    "dependence": (0, 2, "structure.dependence:Dependence", None),
    "plan": (0, 3, "differences.plan:Plan", None),
    "tables": (-1, 4, "differences.parts.tables:Tables", None),
    "in_place": (-0.33, 4, "differences.parts.in_place:InPlace", None),
    "incremental": (0.33, 4, "differences.parts.incremental:Incremental", None),
    "gradient": (1, 4, "differences.parts.gradient:Gradient", None),
    "density": (0, 5, "differences.density:ModelDensity", None),
    "interactions": (1, 5, "space.interactions:Interactions", None),
    "target": (0, 6, "space.target:Target", None),
    "kernel": (0, 7, "kernels.kernel:Kernel", None),
    "metropolis": (-0.66, 8, "kernels.metropolis:metropolis", None),
    "sweeping": (0.66, 8, "kernels.sweeps:sweeping", None),
    "step": (-0.66, 9, "steps.discrete:DiscreteStep", None),
    "block": (0.66, 9, "engine.discrete:DiscreteBlock", None),
}
ARROWS = [
    ("model", "logp"), ("logp", "dependence"), ("logp", "space"), ("space", "plan"), ("dependence", "plan"),
    ("plan", "tables"), ("plan", "in_place"), ("plan", "incremental"), ("plan", "gradient"),
    ("tables", "density"), ("in_place", "density"), ("incremental", "density"), ("gradient", "density"),
    ("interactions", "density"), ("density", "target"), ("target", "kernel"), ("kernel", "metropolis"),
    ("kernel", "sweeping"), ("metropolis", "step"), ("sweeping", "step"),
    ("metropolis", "block"), ("sweeping", "block"),
]  # fmt: skip
COLOURS = {
    "model": "#dbe9f6",
    "structure": "#dbe9f6",
    "differences": "#dbe9f6",
    "space": "#f6e3ee",
    "kernels": "#fde7cf",
    "steps": "#dff0d8",
    "engine": "#dff0d8",
    None: "0.93",
}
X, Y, HEIGHT = 5.4, 1.55, 1.1


def width_of(row: int) -> float:
    """Of the boxes of a row, which has the more of them the narrower they are."""
    return 3.4 if row == 4 else 4.7


def caption(name: str) -> tuple[str, str, str]:
    """(name, first line of the docstring, folder) of a class or function of the package."""
    module, attribute = name.split(":")
    thing = getattr(importlib.import_module(f"pymc_discrete.{module}"), attribute)
    first = inspect.cleandoc(thing.__doc__).split("\n\n")[0].replace("\n", " ")
    return attribute, first, module.split(".")[0]


def main() -> None:
    fig, ax = plt.subplots(figsize=(13, 13.5), layout="constrained")
    for a, b in ARROWS:
        (xa, ya, *_), (xb, yb, *_) = BOXES[a], BOXES[b]
        level = ya == yb
        begin = (xa * X, -ya * Y) if level else (xa * X, -ya * Y - HEIGHT / 2)
        end = (xb * X, -yb * Y) if level else (xb * X, -yb * Y + HEIGHT / 2)
        style = {"arrowstyle": "-|>", "color": "0.45", "linewidth": 1.2}
        if level:
            style |= {"shrinkA": 0, "shrinkB": 0}
            sign = 1 if xb > xa else -1
            begin = (begin[0] + sign * width_of(ya) / 2, begin[1])
            end = (end[0] - sign * width_of(yb) / 2, end[1])
        ax.annotate("", end, begin, arrowprops=style, zorder=1)
    for x, y, name, text in BOXES.values():
        title, first, folder = caption(name) if name else ("pm.Model", text, None)
        width = width_of(y)
        corner = (x * X - width / 2, -y * Y - HEIGHT / 2)
        style = "round,pad=0,rounding_size=0.12"
        box = FancyBboxPatch(
            corner, width, HEIGHT, style, facecolor=COLOURS[folder], edgecolor="0.4", zorder=2
        )
        ax.add_patch(box)
        module = "" if name is None else f"  ({name.split(':')[0].replace('.', '/')}.py)"
        ax.text(x * X, -y * Y + 0.4, title, ha="center", va="center", weight="bold", fontsize=10, zorder=3)
        if module:
            ax.text(
                x * X,
                -y * Y + 0.2,
                module.strip(),
                ha="center",
                va="center",
                fontsize=6.5,
                color="0.35",
                zorder=3,
            )
        lines = textwrap.wrap(first, 44 if width < 4 else 62)
        short = "\n".join(lines[:3]) + (" ..." if len(lines) > 3 else "")
        ax.text(x * X, -y * Y - 0.17, short, ha="center", va="center", fontsize=7.5, zorder=3)
    ax.set_xlim(-X - 1.9, X + 2.6)
    ax.set_ylim(-9 * Y - 0.8, 0.8)
    ax.axis("off")
    fig.savefig(Path(__file__).parent / "images" / "architecture.png", dpi=110)


if __name__ == "__main__":
    main()
