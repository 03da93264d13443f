"""Draw the log density graph of a small regression with inclusion indicators, coloured by how each tensor
depends on the sites.

python docs/draw_graph.py        # writes docs/images/differences.png
"""

from pathlib import Path

import matplotlib
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import toposort

import pymc_discrete as pmd

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {
    "context": ("0.88", "does not depend on gamma: computed once per draw"),
    "sparse": ("#9fd3a8", "each element depends on one site: a table"),
    "linear": ("#8db8e8", "a linear map of such a tensor: one column per move"),
    "dense": ("#f2b48f", "the rest: evaluated on every move's changed map"),
}


def model() -> pm.Model:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 8))
    with pm.Model() as regression:
        gamma = pm.Bernoulli("gamma", 0.2, shape=8)
        beta = pm.Normal("beta", 0, 2, shape=8)
        pm.Bernoulli("y", logit_p=pt.dot(X, gamma * beta), observed=rng.integers(0, 2, 30))
    return regression


def main() -> None:
    target = pmd.target_from_model(model(), "gamma")
    plan = target.density.plan
    graph, dependence = plan.graph, plan.dependence
    frontier = {f.var for part in plan.incremental for f in part.frontier if f.node is not None}

    def kind(var) -> str:
        if not graph.depends(var):
            return "context"
        if var in frontier:
            return "linear"
        return "sparse" if dependence.of(var) is not None else "dense"

    outputs = [t for _, t in graph.terms]
    shown, edges = {}, []
    for node in toposort(outputs):
        if not any(graph.depends(i) for i in node.inputs):
            continue
        for i in node.inputs:
            if not (isinstance(i, Constant) and graph.size(i) == 1):
                shown.setdefault(i, None)
                edges.append((i, node.outputs[0]))
        shown.setdefault(node.outputs[0], None)
    level = {v: 0 for v in shown}
    for node in toposort(outputs):
        if node.outputs[0] in shown:
            level[node.outputs[0]] = 1 + max((level[i] for i in node.inputs if i in shown), default=0)
    for v in shown:  # context beside its first reader
        if not graph.depends(v):
            level[v] = min(level[o] for i, o in edges if i is v) - 1
    place, used = {}, {}
    for v in sorted(shown, key=lambda v: (level[v], kind(v) == "context")):
        used[level[v]] = used.get(level[v], -1) + 1
        place[v] = (used[level[v]] * 2.3, -1.0 * level[v])

    fig, ax = plt.subplots(figsize=(11, 0.75 * (max(level.values()) + 2)), layout="constrained")
    for a, b in edges:
        ax.annotate(
            "",
            place[b],
            place[a],
            arrowprops={"arrowstyle": "-|>", "color": "0.6", "shrinkA": 12, "shrinkB": 12},
        )
    for v, (x, y) in place.items():
        if v.owner is None:
            label = v.name or "data"
        else:
            label = str(getattr(v.owner.op, "scalar_op", v.owner.op)).split("{")[0]
        label = label.split("{")[0]
        shape = "x".join(map(str, graph.shape(v))) or "scalar"
        box = {"boxstyle": "round", "facecolor": COLOURS[kind(v)][0], "edgecolor": "0.4"}
        ax.text(x, y, f"{label} ({shape})", ha="center", va="center", fontsize=8, bbox=box)
    for colour, text in COLOURS.values():
        ax.scatter([], [], marker="s", s=90, color=colour, edgecolor="0.4", label=text)
    ax.legend(loc="lower right", fontsize=9, frameon=False)
    ax.set(xlim=(-1.6, 2.3 * max(used.values()) + 1.6), ylim=(-max(level.values()) - 0.8, 0.8))
    ax.axis("off")
    path = Path(__file__).parent / "images" / "differences.png"
    path.parent.mkdir(exist_ok=True)
    fig.savefig(path, dpi=110)
    print(f"docs/images/{path.name}")


if __name__ == "__main__":
    main()
