"""Ties: counts that can only move together with another quantity.

If N is drawn given p, p is drawn given N, and either nearly determines the other, the two move along a ridge
in small steps, even though each conditional draw is exact. The draws show this: the effective sample size is
small, and the two are correlated.

A *series* is a scalar quantity followed along the draws.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm

from pymc_discrete.diagnostics.draws import labels_in_draws
from pymc_discrete.diagnostics.facts import Facts
from pymc_discrete.diagnostics.findings import SHOWN, Finding, check
from pymc_discrete.diagnostics.thresholds import CORRELATION_OF_TIES
from pymc_discrete.diagnostics.verdicts import effective_per_chain, slow
from pymc_discrete.model.equations import equations_of
from pymc_discrete.model.support import fixed_sums, is_nominal
from pymc_discrete.runtime.names import element_name

MOST_SERIES = 50  # the largest number of counts, and of continuous series, that are compared with one another
NAMED_IN_SUM = 6  # the largest number of counts in a weighted sum that is looked for
NAMED_PER_COUNT = 3  # the largest number of series that a message names as tied to a count
PAGE = "See 'Ties' in docs/which_sampler.md."
FIXED_SUM = (
    "two counts are drawn at a time, given their sum and all else, so that they go along a ridge in small "
    "steps. If it is tied to probabilities with a Dirichlet prior that nothing else reads, "
    "pm.DirichletMultinomial is the same model without them."
)
FIXED_SUMS_PAGE = "See 'When it mixes poorly' in docs/fixed_sums.md."
# (names of series that are tied, whether each has two values) -> a sentence that advises what to do
Advice = Callable[[Sequence[str], bool], str]


def sentence(tie: Finding) -> str:
    """The sentence about a count that can only move together with another quantity, in a chain or a run."""
    name, ess, total = tie.names[0], tie.measured["ess"], tie.measured["draws"]
    correlations = tie.measured.get("correlations", {})
    partners = [f"{other} (correlation {r:.2f})" for other, r in correlations.items()]
    is_tied = f"{name[0].upper()}{name[1:]} is tied to"
    has = f"and has {ess:.0f} effective draws of {total}"
    ridge = "each is drawn given the others, so that they go along a ridge in small steps."
    match tie.kind:
        case "tie of two values":
            return (
                f"{is_tied} {' and '.join(partners)}, {has}: one can hardly change while the others stay. "
                f"{tie.remedy} {PAGE}"
            )
        case "tie within a fixed sum":
            return f"{is_tied} {' and '.join(partners)}, {has}: {FIXED_SUM} {FIXED_SUMS_PAGE}"
        case "tie":
            return f"{is_tied} {' and '.join(partners)}, {has}: {ridge} {tie.remedy} {PAGE}"
        case "tie to a weighted sum":
            *parts, last = tie.names[1:]
            partner = f"a weighted sum of {', '.join(parts)} and {last}" if parts else last
            r = tie.measured["correlation"]
            return f"{is_tied} {partner} (correlation {r:.2f}), {has}: {ridge} {tie.remedy} {PAGE}"
        case _:
            names = ", ".join(tie.names)
            return (
                f"{names[0].upper()}{names[1:]} are tied to one another: their total varies little (its "
                f"variance is {tie.measured['share']:.0%} of that of its parts), and they have as few as "
                f"{ess:.0f} effective draws of {total}, since none goes far while the others stay. {PAGE}"
            )


def called(name: str, labels: Sequence[Sequence[Any]], i: int | None = None) -> str:
    """The name of a series in a message: the sum of a variable, or its element with the flat index i.

    Parameters
    ----------
    labels : the labels along each axis of the variable
    """
    if not labels:
        return repr(name)
    if i is None:
        return f"the sum of {name!r}"
    return repr(element_name(name, labels, np.unravel_index(i, [len(of_axis) for of_axis in labels])))


def ess_of_series(draws: np.ndarray) -> np.ndarray:
    """(series,) float, effective sample sizes over all chains, from draws (chains, draws, series)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        from arviz_stats.base import array_stats  # the import is slow, and is not needed while sampling

        return np.asarray(array_stats.ess(draws, chain_axis=0, draw_axis=1))


def is_slow(draws: np.ndarray, ess: np.ndarray) -> np.ndarray:
    """(series,) bool, whether series mix slowly, given draws (chains, draws, series) and `ess` (series,)."""
    rhat = np.full(len(ess), np.nan)
    if len(draws) > 1:
        from arviz_stats.base import array_stats  # the import is slow, and is not needed while sampling

        with np.errstate(divide="ignore", invalid="ignore"):
            rhat = np.asarray(array_stats.rhat(draws, chain_axis=0, draw_axis=1))
    return slow(effective_per_chain(ess, rhat, len(draws)))


def correlations(draws: np.ndarray) -> np.ndarray:
    """(series, series) float, correlations within chains, from draws (chains, draws, series).

    Each is the correlation of the values or of the ranks, whichever is farther from 0.
    """
    from scipy.stats import rankdata  # the import is slow, and is not needed while sampling

    def pearson(a: np.ndarray) -> np.ndarray:
        centred = (a - a.mean(axis=1, keepdims=True)).reshape(-1, a.shape[-1])
        scale = np.sqrt((centred**2).sum(axis=0))
        scaled = centred / np.where(scale == 0, np.inf, scale)
        return scaled.T @ scaled

    of_values, of_ranks = pearson(draws), pearson(rankdata(draws, axis=1))
    return np.where(np.abs(of_ranks) > np.abs(of_values), of_ranks, of_values)


def fixed_total(draws: np.ndarray) -> tuple[list[int], float]:
    """The series whose sum varies least, relative to the variances of the series, and how much it varies.

    The series are found greedily, starting from the best pair. The argument is draws (chains, draws, series).

    Returns
    -------
    chosen : list of int, indices of the series
    share : the variance of the sum of these series within chains, divided by the sum of their variances
    """
    centred = (draws - draws.mean(axis=1, keepdims=True)).reshape(-1, draws.shape[-1])
    cov = centred.T @ centred

    def share(chosen: list[int]) -> float:
        return float(cov[np.ix_(chosen, chosen)].sum() / np.diag(cov)[chosen].sum())

    numbers = range(len(cov))
    chosen = min(([i, j] for i in numbers for j in range(i)), key=share)
    while len(chosen) < len(cov):
        with_one_more = min(([*chosen, i] for i in numbers if i not in chosen), key=share)
        if share(with_one_more) >= share(chosen):
            break
        chosen = with_one_more
    return sorted(chosen), share(chosen)


def ties(
    counts: Mapping[str, np.ndarray],
    others: Mapping[str, np.ndarray],
    advice: Advice,
    of_fixed_sums: Mapping[str, Hashable] | None = None,
) -> list[Finding]:
    """The ties of slowly mixing counts to one another and to continuous series.

    Parameters
    ----------
    counts : {name in a message: (chains, draws)}, series that count something
    others : {name in a message: (chains, draws)}, continuous series
    advice : (names of tied series, whether each has two values) -> a sentence that advises what to do
    of_fixed_sums : {name: its vector}, for the counts that are elements of vectors with fixed sums, which are
        correlated by construction
    """
    of_fixed_sums = of_fixed_sums or {}
    names, ess, draws = slow_counts(counts)
    if not names:
        return []
    others = dict([*others.items()][:MOST_SERIES])
    all_draws = np.concatenate([draws, *(np.asarray(a, float)[..., None] for a in others.values())], axis=-1)
    size = all_draws.shape[0] * all_draws.shape[1]
    found: list[Finding] = []
    tied: set[str] = set()
    # the rows of the counts come first in the matrix of correlations; rows of other series are not needed
    for name, ess_of_name, correlation in zip(names, ess, correlations(all_draws), strict=False):
        partners = {
            other: float(r)
            for other, r in zip([*names, *others], correlation, strict=True)
            if other != name
            and abs(r) > CORRELATION_OF_TIES
            and (name not in of_fixed_sums or of_fixed_sums[name] != of_fixed_sums.get(other))
        }
        if name not in tied and partners:
            tied.update((name, *partners))
            within = name in of_fixed_sums
            found.append(tie_of(name, partners, counts, (ess_of_name, size), within, advice))
    free = [i for i, name in enumerate(names) if name not in tied and name not in of_fixed_sums]
    if len(free) > 1:
        chosen, share = fixed_total(draws[..., free])
        parts = [free[i] for i in chosen]
        if share < 1 - CORRELATION_OF_TIES:
            group = tuple(name for name in counts if name in {names[i] for i in parts})
            measured = {"share": share, "ess": ess[parts].min(), "draws": size}
            found.append(Finding("tie of a total", group, measured=measured))
    return found


def slow_counts(counts: Mapping[str, np.ndarray]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The slowest counts that move: names, effective draws (n,), and draws (chains, draws, n)."""
    moving = {name: draws for name, draws in counts.items() if (draws != draws[:, :1]).any(axis=1).all()}
    if not moving:
        return [], np.zeros(0), np.zeros((0, 0, 0))
    draws = np.stack([np.asarray(a, float) for a in moving.values()], axis=-1)
    ess = ess_of_series(draws)
    which = np.flatnonzero(is_slow(draws, ess))
    which = which[np.argsort(ess[which])][:MOST_SERIES]
    return [[*moving][i] for i in which], ess[which], draws[..., which]


def tie_of(
    name: str,
    partners: Mapping[str, float],
    counts: Mapping[str, np.ndarray],
    size: tuple[float, int],
    within: bool,
    advice: Advice,
) -> Finding:
    """The finding about a count that is correlated with other series, and so moves slowly.

    Parameters
    ----------
    partners : {series: correlation}
    size : the effective draws of the count, and the number of its draws
    within : whether the count is a part of a vector with a fixed sum
    """
    strongest = sorted(partners, key=lambda other: -abs(partners[other]))[:NAMED_PER_COUNT]
    series = [name, *strongest]
    two_valued = all(other in counts and len(np.unique(counts[other])) <= 2 for other in series)
    correlation = {other: partners[other] for other in strongest}
    measured = {"correlations": correlation, "ess": size[0], "draws": size[1]}
    names = (name, *partners)
    if within and not two_valued:
        return Finding("tie within a fixed sum", names, measured=measured)
    kind = "tie of two values" if two_valued else "tie"
    return Finding(kind, names, measured=measured, remedy=advice(series, two_valued))


def weighted_sums(
    counts: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray], advice: Advice
) -> list[Finding]:
    """The ties of slowly mixing continuous series to weighted sums of counts.

    The weights come from a regression on up to `NAMED_IN_SUM` counts, which are found one by one. The number
    of counts is limited by the effective draws, since some sum fits by chance if series move slowly.

    Parameters
    ----------
    counts : {name in a message: (chains, draws)}, series that count something
    others : {name in a message: (chains, draws)}, continuous series
    advice : (names of tied series, whether each has two values) -> a sentence that advises what to do
    """
    moving = {name: a for name, a in counts.items() if (a != a[:, :1]).any(axis=1).all()}
    names = [*moving][:MOST_SERIES]
    if len(names) < 2 or not others:
        return []
    x = centred(np.stack([moving[name] for name in names], axis=-1))
    series = np.stack([np.asarray(a, float) for a in [*others.values()][:MOST_SERIES]], axis=-1)
    ess = ess_of_series(series)
    found = []
    for i in np.flatnonzero(is_slow(series, ess)):
        y = centred(series[..., i : i + 1])[:, 0]
        chosen, share = regression(x, y, NAMED_IN_SUM)
        freedom = ess[i] - len(chosen) - 1
        adjusted = 1.0 - (1.0 - share) * (ess[i] - 1) / freedom if freedom > 0 else 0.0
        if adjusted > CORRELATION_OF_TIES**2:
            tied = ([*others][i], *(names[k] for k in chosen))
            measured = {"correlation": np.sqrt(share), "ess": ess[i], "draws": series[..., i].size}
            found.append(
                Finding("tie to a weighted sum", tied, measured=measured, remedy=advice(tied, False))
            )
    return found


def centred(draws: np.ndarray) -> np.ndarray:
    """(chains * draws, series), each series less its mean within the chain."""
    a = np.asarray(draws, float)
    return (a - a.mean(axis=1, keepdims=True)).reshape(-1, a.shape[-1])


def regression(x: np.ndarray, y: np.ndarray, most: int) -> tuple[list[int], float]:
    """The columns of x (n, m) that together explain most of y (n,), found one by one, and the share they
    explain.

    No more columns are taken than are needed for a correlation above `CORRELATION_OF_TIES`.
    """
    chosen: list[int] = []
    left, share = y, 0.0
    norms = np.sqrt((x**2).sum(axis=0))
    while len(chosen) < min(most, x.shape[1]) and share <= CORRELATION_OF_TIES**2:
        fit = np.abs(x.T @ left) / np.where(norms == 0, np.inf, norms)
        fit[chosen] = -1.0
        chosen.append(int(fit.argmax()))
        weights = np.linalg.lstsq(x[:, chosen], y, rcond=None)[0]
        left = y - x[:, chosen] @ weights
        share = 1.0 - float(left @ left) / max(float(y @ y), 1e-300)
    return chosen, share


# ---------------------------------------------------------------- ties in the draws of a run
def slowest(per_chain: Mapping[str, np.ndarray], names: Sequence[str]) -> list[tuple[str, int]]:
    """[(variable, index of an element)] of the slow elements of the named variables, the slowest first.

    Parameters
    ----------
    per_chain : {variable: (elements,)}, effective draws per chain
    """
    scores = [
        (float(of[i]), name, int(i))
        for name in names
        for of in [per_chain.get(name, np.zeros(0))]
        for i in np.flatnonzero(slow(of))
    ]
    return [(name, i) for _, name, i in sorted(scores)][:MOST_SERIES]


def said_of_ties(found: Sequence[Finding], facts: Facts) -> list[str]:
    return [sentence(tie) for tie in found[:SHOWN]]


@check(place=80, say=said_of_ties)
def ties_of_run(facts: Facts) -> list[Finding]:
    """Ties among the counts of a model, and between counts and continuous variables.

    The counts are the discrete scalars and the sums of discrete vectors; of a vector whose sum is not tied
    its slowest elements are compared in a second pass. Variables that are summed out are left out, since they
    are drawn anew in each draw.

    | `'N' is tied to 'p' (correlation -0.97), and has 6 effective draws`, `'p' is tied to a weighted sum of
    'x[1]' and 'x[4]'` | they move along a ridge in small steps | [ties](which_sampler.md#ties); a sum over
    the counts is named where it is possible |
    """
    if not facts.compared:
        return []
    series = SeriesOfRun(facts)
    model, draws = facts.model, series.draws
    summed = set(facts.tree["probabilities"].data_vars) if "probabilities" in facts.tree.children else set()
    nominal = {name for name in facts.discrete if name in draws and is_nominal(model, name)}
    apart = summed | in_equations(model)
    discrete = [name for name in facts.discrete if name in draws and name not in apart]
    # the values of a nominal variable are names and no counts, unless they are 0 and 1 only
    counted = [name for name in discrete if name not in nominal or draws[name].max() < 2]

    def advice(of: Sequence[str], two_valued: bool) -> str:
        names = list(dict.fromkeys(series.variable[s] for s in of))
        return facts.remedies.of_tie([name for name in names if name in counted], two_valued)

    others = series.slow([name for name in draws if draws[name].dtype.kind == "f"])
    found = ties(series.sums(counted), others, advice)
    named = {name for tie in found for name in tie.names}
    vectors = [name for name in counted if draws[name].ndim > 2]
    elements = series.slow([name for name in vectors if series.called(name) not in named])
    fixed = [name for name in discrete if fixed_sums(model[name]) is not None]
    found += ties(elements, others, advice, series.rows(fixed))
    if not found:
        each = [name for name in facts.discrete if name in draws and name not in nominal | summed]
        found += weighted_sums(series.first_elements(each), others, advice)
    return found


class SeriesOfRun:
    """Sums and elements of the variables of a run as series, under the names that messages use.

    Attributes
    ----------
    draws : {variable: (chains, draws, ...)}
    variable : {series: its variable}, for the series asked for so far
    """

    def __init__(self, facts: Facts):
        names = [name for name in facts.free if facts.posterior[name].size]
        self.draws = {name: facts.posterior[name].data for name in names}
        self.variable: dict[str, str] = {}
        self._per_chain = facts.per_chain
        self._axes = {name: labels_in_draws(facts.posterior[name]) for name in names}

    def called(self, name: str, i: int | None = None) -> str:
        """The name of the sum of a variable, or of its element i."""
        self.variable[series := called(name, self._axes[name], i)] = name
        return series

    def sums(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """The sums of some variables as series."""
        return {self.called(name): total(self.draws[name]) for name in names}

    def _elements(self, elements: Sequence[tuple[str, int]]) -> dict[str, np.ndarray]:
        return {self.called(name, i): draws_of_element(self.draws[name], i) for name, i in elements}

    def slow(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """The elements of some variables that mix slowly, as series, the slowest first."""
        return self._elements(slowest(self._per_chain, names))

    def first_elements(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """The first elements of each of some variables, as series."""
        return self._elements([(n, i) for n in names for i in range(min(self._size(n), MOST_SERIES))])

    def rows(self, names: Sequence[str]) -> dict[str, Hashable]:
        """{element: the row of its array}, for variables whose rows have fixed sums."""
        return {
            self.called(name, i): (name, i // self.draws[name].shape[-1])
            for name in names
            for i in range(self._size(name))
        }

    def _size(self, name: str) -> int:
        return int(np.prod(self.draws[name].shape[2:]))


def in_equations(model: pm.Model) -> set[str]:
    """Discrete variables that are tied by linear equations, which the model itself states."""
    try:
        equations = equations_of(model, [str(v.name) for v in model.discrete_value_vars])
    # An equation that no step can keep raises a ValueError; it is then sampled like any other term.
    except ValueError:
        return set()
    return {name for e in equations for name in e.coefficients}


def total(draws: np.ndarray) -> np.ndarray:
    """(chains, draws), the sums over all elements of a variable."""
    return draws.sum(axis=tuple(range(2, draws.ndim)), dtype=float)


def draws_of_element(draws: np.ndarray, i: int) -> np.ndarray:
    """(chains, draws), element i of a flattened variable."""
    index: tuple[Any, ...] = (
        (slice(None), slice(None), *np.unravel_index(i, draws.shape[2:])) if draws.ndim > 2 else ()
    )
    return draws[index]
