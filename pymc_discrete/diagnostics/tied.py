"""Ties (strong dependence between variables that slows mixing) in the draws of a run."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from pymc.stats.convergence import SamplerWarning, WarningType
from xarray import DataTree

from pymc_discrete.diagnostics.remedies import Remedies
from pymc_discrete.diagnostics.summary import labels_in_draws
from pymc_discrete.diagnostics.ties import FEWEST, LARGEST_RHAT, MOST, called, ties, weighted_sums
from pymc_discrete.model.equations import equations_of
from pymc_discrete.model.support import fixed_sums, is_nominal

SHOWN = 3  # largest number of ties that are reported


class Slow:
    """Collects the elements of variables that mix slowly by PyMC's convergence checks.

    Attributes
    ----------
    checked : whether there were enough draws and chains for these checks
    """

    def __init__(self) -> None:
        self.checked = False
        self._scores: dict[str, list[np.ndarray]] = {}

    def note(self, warnings: list[SamplerWarning], part: DataTree) -> None:
        """Record the `warnings` about one part of the draws; the parts of a variable come in order."""
        if not part["posterior"].data_vars:
            return
        chains, draws = (part["posterior"].sizes[dim] for dim in ("chain", "draw"))
        self.checked |= chains > 1 and draws >= FEWEST
        measured = [w for w in warnings if w.kind is WarningType.CONVERGENCE and w.extra is not None]
        for name, variable in part["posterior"].data_vars.items():
            score = np.full(int(np.prod(variable.shape[2:], dtype=int)), np.inf)
            for values, rhat in [
                (w.extra[name], w.message.startswith("The rhat")) for w in measured if name in w.extra
            ]:
                flat = np.asarray(values, float).reshape(-1)
                score = np.fmin(score, too_large(flat) if rhat else flat / chains)
            self._scores.setdefault(str(name), []).append(score)

    def add(self, name: str, per_chain: np.ndarray, rhat: np.ndarray) -> None:
        """Record the effective draws per chain and the R-hats (elements,) of a variable."""
        self.checked = True
        self._scores[name] = [np.fmin(per_chain, too_large(rhat))]

    def worst(self, name: str) -> list[tuple[float, int]]:
        """[(effective draws per chain, index of the element)] of the slow elements, the slowest first."""
        score = np.concatenate(self._scores.get(name, [np.zeros(0)]))
        slow = np.flatnonzero(score < FEWEST)
        return [(float(score[i]), int(i)) for i in slow[np.argsort(score[slow])][:MOST]]


def too_large(rhat: np.ndarray) -> np.ndarray:
    """A number of effective draws for elements whose R-hat is too large, infinite for others.

    It is just below the limit, and the lower the larger R-hat.
    """
    return np.where(rhat > LARGEST_RHAT, FEWEST - 1 + 1 / rhat, np.inf)


def tied(tree: DataTree, model: pm.Model, slow: Slow, remedies: Remedies) -> list[str]:
    """Warnings about ties among the counts of a model, and between counts and continuous variables.

    The counts are the discrete scalars and the sums of discrete vectors; of a vector whose sum is not tied
    its slowest elements are compared in a second pass. Variables that are summed out, which have
    probabilities, are drawn anew in each draw.
    """
    posterior = tree["posterior"]
    summed = set(tree["probabilities"].data_vars) if "probabilities" in tree.children else set()
    free = [rv for rv in model.free_RVs if rv.name in posterior.data_vars and posterior[rv.name].size]
    draws = {str(rv.name): posterior[rv.name].data for rv in free}
    axes = {name: labels_in_draws(posterior.dataset[name]) for name in draws}
    # the values of a nominal variable are names and not counts, unless there are only 0 and 1
    moved = [rv for rv in free if rv.name not in summed | in_equations(model)]
    discrete = [rv for rv in moved if rv.dtype.startswith(("int", "uint", "bool"))]
    counted = [
        str(rv.name)
        for rv in discrete
        if not is_nominal(model, str(rv.name)) or draws[str(rv.name)].max() < 2
    ]
    sums = {called(name, axes[name]): total(draws[name]) for name in counted}
    variable = {series: name for name in counted for series in [called(name, axes[name])]}

    def slowest(names: list[str]) -> dict[str, np.ndarray]:
        worst = sorted((score, name, i) for name in names for score, i in slow.worst(name))[:MOST]
        variable.update({called(name, axes[name], i): name for _, name, i in worst})
        return {called(name, axes[name], i): element(draws[name], i) for _, name, i in worst}

    def advice(series: Sequence[str], two_valued: bool) -> str:
        names = list(dict.fromkeys(variable[s] for s in series))
        return remedies.of_tie([name for name in names if name in counted], two_valued)

    others = slowest([str(rv.name) for rv in free if rv.dtype.startswith("float")])
    all_ties = ties(sums, others, advice)
    named = {name for tie in all_ties for name in tie.names}
    vectors = [name for name in counted if draws[name].ndim > 2]
    elements = slowest([name for name in vectors if called(name, axes[name]) not in named])
    rows = {
        called(str(rv.name), axes[str(rv.name)], i): (rv.name, i // rv_shape[-1])
        for rv in discrete
        if fixed_sums(rv) is not None
        for rv_shape in [draws[str(rv.name)].shape[2:]]
        for i in range(int(np.prod(rv_shape)))
    }
    all_ties += ties(elements, others, advice, rows)
    if not all_ties:
        numbers = [rv for rv in free if rv.dtype.startswith("int") and not is_nominal(model, str(rv.name))]
        all_of = {}
        for name in [str(rv.name) for rv in numbers if rv.name not in summed]:
            for i in range(min(int(np.prod(draws[name].shape[2:])), MOST)):
                variable[series := called(name, axes[name], i)] = name
                all_of[series] = element(draws[name], i)
        all_ties += weighted_sums(all_of, others, advice)
    return [tie.text for tie in all_ties[:SHOWN]]


def in_equations(model: pm.Model) -> set[str]:
    """Discrete variables that are tied by linear equations, which the model says itself."""
    try:
        equations = equations_of(model, [str(v.name) for v in model.discrete_value_vars])
    except ValueError:  # one that no step moves along; it is sampled as any other term
        return set()
    return {name for e in equations for name in e.coefficients}


def total(draws: np.ndarray) -> np.ndarray:
    """(chains, draws) sums over all elements."""
    return draws.sum(axis=tuple(range(2, draws.ndim)), dtype=float)


def element(draws: np.ndarray, i: int) -> np.ndarray:
    """(chains, draws), element i of the raveled variable."""
    index: tuple[Any, ...] = (
        (slice(None), slice(None), *np.unravel_index(i, draws.shape[2:])) if draws.ndim > 2 else ()
    )
    return draws[index]
