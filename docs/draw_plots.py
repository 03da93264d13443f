"""Draw the pictures of docs/plots.md, of models that are run for them.

python docs/draw_plots.py        # writes docs/images/plot_*.png
"""

import importlib.util
from pathlib import Path

import matplotlib
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_discrete as pmd

matplotlib.use("Agg")

ROOT = Path(__file__).parents[1]
# velocities of 82 galaxies, km/s: Roeder 1990, Journal of the American Statistical Association 85
# fmt: off
GALAXIES = [
    9172, 9350, 9483, 9558, 9775, 10227, 10406, 16084, 16170, 18419, 18552, 18600, 18927, 19052, 19070,
    19330, 19343, 19349, 19440, 19473, 19529, 19541, 19547, 19663, 19846, 19856, 19863, 19914, 19918,
    19973, 19989, 20166, 20175, 20179, 20196, 20215, 20221, 20415, 20629, 20795, 20821, 20846, 20875,
    20986, 21137, 21492, 21701, 21814, 21921, 21960, 22185, 22209, 22242, 22249, 22314, 22374, 22495,
    22746, 22747, 22888, 22914, 23206, 23241, 23263, 23484, 23538, 23542, 23666, 23706, 23711, 24129,
    24285, 24289, 24366, 24717, 24990, 25633, 26690, 26995, 32065, 32789, 34279,
]
# fmt: on
SAMPLING = {"chains": 4, "random_seed": 1, "progressbar": False}


def example(name: str):
    """A script of examples/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The two columns of a table of examples/data."""
    return np.genfromtxt(ROOT / "examples" / "data" / name, delimiter=",", skip_header=1, unpack=True)


def earthquakes() -> pm.Model:
    """Earthquakes a year, 1900-2006: each year is in one of three states (Zucchini et al. 2016)."""
    years, counts = table("earthquakes.csv")
    start = np.quantile(counts, [0.2, 0.5, 0.9])
    nearest = np.abs(counts[:, None] - start).argmin(axis=1)
    with pm.Model(coords={"year": years.astype(int), "rank": range(3), "next_rank": range(3)}) as model:
        rate = pm.Gamma(
            "rate", 4, 0.2, dims="rank", transform=pm.distributions.transforms.ordered, initval=start
        )
        change = pm.Dirichlet("change", np.ones((3, 3)) + 4 * np.eye(3), dims=("rank", "next_rank"))
        state = pm.Categorical("state", p=np.full(3, 1 / 3), dims="year", initval=nearest)
        pm.Potential("chain", pt.log(change)[state[:-1], state[1:]].sum())
        pm.Poisson("earthquakes", rate[state], observed=counts, dims="year")
    return model


def galaxies() -> pm.Model:
    """Groups of galaxies by their velocities (priors of Chib 1995)."""
    with pm.Model(coords={"galaxy": range(1, 83), "group": range(3)}) as model:
        w = pm.Dirichlet("w", np.ones(3), dims="group")
        mu = pm.Normal("mu", 20, 10, dims="group")
        variance = pm.InverseGamma("variance", 3, 20, dims="group")
        z = pm.Categorical("z", w, dims="galaxy")
        pm.Normal("velocity", mu[z], pm.math.sqrt(variance)[z], observed=np.array(GALAXIES) / 1000)
    return model


def save(name: str, collection) -> None:
    path = ROOT / "docs" / "images" / f"plot_{name}.png"
    collection.savefig(path, dpi=100)
    print(f"docs/images/{path.name}")


def main() -> None:
    with earthquakes():
        idata = pmd.sample(**SAMPLING)
        by_pymc = pm.sample(500, tune=500, cores=1, compute_convergence_checks=False, **SAMPLING)
    save("probabilities", pmd.plot_probabilities(idata, "state", data="earthquakes"))
    save("moves", pmd.plot_moves(by_pymc, "state"))

    with galaxies():
        idata = pmd.sample(**SAMPLING)
    save("coclustering", pmd.plot_coclustering(idata, "z"))
    save("chains", pmd.plot_chains(idata, "z"))

    selection = example("variable_selection")
    with selection.selection(*selection.columns()):
        idata = pmd.sample(step=pmd.BlockGibbs(["counts"], integrate=["effect"]), **SAMPLING)
    save("inclusion", pmd.plot_inclusion(idata, "counts"))

    with example("quickstart").coal_mining(*table("coal_mining_disasters.csv")):
        idata = pmd.sample(**SAMPLING)
    save("counts", pmd.plot_counts(idata, ["switchpoint", "disasters_unobserved"]))


if __name__ == "__main__":
    main()
