"""Tables of what the draws of discrete variables say: of each element, and of each variable as a whole."""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_discrete.diagnostics.chi_square import chi_square, share_rejected
from pymc_discrete.diagnostics.draws import (
    DISCRETE,
    Counts,
    batches,
    checked,
    counted,
    lp_of,
    per_element,
    posterior_of,
)
from pymc_discrete.diagnostics.effective import ess_of_indicators, ess_of_mean, hamming_ess
from pymc_discrete.diagnostics.indicators import indicators
from pymc_discrete.diagnostics.orders import in_one_order, orders_of, relabelled
from pymc_discrete.diagnostics.rhat import categorical_rhat, hamming_rhat, rhat_of_indicators
from pymc_discrete.diagnostics.standing import Leaving, remarkable
from pymc_discrete.diagnostics.verdicts import (
    MODES,
    RHAT,
    STRETCHES,
    Movement,
    known_of,
    too_few_moves,
    verdicts,
)
from pymc_discrete.runtime.names import alike, element

if TYPE_CHECKING:
    import pandas as pd

FEW = 8  # each of up to so many values, not further from 0, has a column; others are taken for counts
MOST = 0.95  # share of elements that must mix for the others to be no matter
QUANTILES = {"5%": 0.05, "median": 0.5, "95%": 0.95}


def summary(idata: Any, var_names: str | list[str] | None = None) -> "pd.DataFrame":
    """What the draws of discrete variables say, a row for each element.

    A variable with up to 8 values, from -8 to 8, has the probability of each; others are taken for counts,
    and have mean and quantiles. So has a Deterministic with other values than 0, 1 and those of the variables
    that the model draws, where the result says which these are.

    Parameters
    ----------
    idata : DataTree with a group posterior, of `pmd.sample` or `pm.sample`, or Dataset
    var_names : names of discrete variables; all variables of integers by default

    Returns
    -------
    pandas.DataFrame
        mode, P(mode)
            the commonest value, and its probability
        mcse P(mode)
            the Monte Carlo standard error of that: the root of P (1 - P) / ESS of 1[z = mode]
        entropy
            of the shares of all values, nats
        moved
            the share of draws that differ from the one before
        ess, rhat
            see `diagnostics.categorical_ess` and `diagnostics.categorical_rhat`; nan where nothing varies
        verdict
            ``ok``; ``fixed``, with one possible value; ``certain``, one value in all chains, as was to be
            expected; ``constant``, one value in all chains, without knowing how probable others are;
            ``labels``, chains or draws agree once labels are permuted; ``apart``, no chain moved and they
            differ; ``stuck``, a chain never moved though it should have; ``slow``, an R-hat above 1.01 or
            fewer than 100 effective draws for each chain
        P(k), mcse P(k)
            the probability of value k
        mean, mcse mean, 5%, median, 95%
            of counts; nan for others, as P(k) is for counts

    Raises
    ------
    ValueError
        If a name is not in the posterior, a variable is not of integers, or there are fewer than 4 draws.
    """
    import pandas as pd  # imported only here, as that takes long

    posterior = posterior_of(idata, var_names)
    judge, frames = Judge(idata, columns=values_with_columns(posterior)), []
    for name, draws in posterior.data_vars.items():
        columns = judge.of(str(name)).columns
        frames.append(pd.DataFrame(columns, index=list(row_names(draws))))
    table = pd.concat(frames) if frames else pd.DataFrame()
    few = [c for c in table.columns if c.startswith(("P(", "mcse P(")) and not c.endswith("(mode)")]
    first = ["mode", "P(mode)", "mcse P(mode)", "entropy", "moved", "ess", "rhat", "verdict"]
    counts = [c for c in table.columns if c not in (*first, *few)]
    return table[
        [*first, *sorted(few, key=lambda c: (int(c.split("(")[1][:-1]), c.startswith("mcse"))), *counts]
    ]


def summary_of_vectors(idata: Any, var_names: str | list[str] | None = None) -> "pd.DataFrame":
    """What the draws of discrete variables say of each variable as a whole, a row for each variable.

    Parameters
    ----------
    idata, var_names : as in `summary`

    Returns
    -------
    pandas.DataFrame
        elements
            their number
        moved
            the share of draws in which any element differs from the draw before
        ess, rhat
            of the vector, by Hamming distances: see `diagnostics.hamming_ess` and `diagnostics.hamming_rhat`
        worst ess, worst rhat
            of the worst element, `ess` being that of categories
        rejected between, rejected within, too few
            the share of elements, among those with a p-value, that `diagnostics.chi_square` rejects at a
            false discovery rate of 5 %, between chains and from the begin of chains to their end; the share
            of those that vary and have too few effective draws for a p-value between chains
        verdict
            how many elements have each verdict of `summary`, the most frequent first

    Raises
    ------
    ValueError
        As `summary`.
    """
    import pandas as pd  # imported only here, as that takes long

    posterior = posterior_of(idata, var_names)
    judge, rows = Judge(idata), {}
    for name, draws in posterior.data_vars.items():
        columns = judge.of(str(name)).columns
        between, within = (chi_square(draws, compare=c).data for c in ("chains", "stretches"))
        varies = ~np.isnan(between[..., 2])
        rhat, worst = hamming_rhat(draws)
        words, counts = np.unique(columns["verdict"], return_counts=True)
        of_elements = sorted(zip(counts, words, strict=True), reverse=True)
        rows[str(name)] = {
            "elements": int(np.prod(draws.shape[2:], dtype=int)),
            "moved": any_moved(draws.data),
            "ess": hamming_ess(draws),
            "rhat": rhat,
            "worst ess": least(columns["ess"]),
            "worst rhat": worst,
            "rejected between": share_rejected(between[..., 3]),
            "rejected within": share_rejected(within[..., 3]),
            "too few": float(np.isnan(between[..., 3])[varies].mean()) if varies.any() else np.nan,
            "verdict": ", ".join(f"{count} {word}" for count, word in of_elements),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def moved(data: Any, var_names: str | list[str] | None = None) -> Any:
    """The share of draws of each element that differ from the draw before.

    Parameters
    ----------
    data : array (chains, draws, ...) of integers, DataArray, Dataset, or DataTree with a group posterior
    var_names : names of discrete variables of a Dataset or DataTree; all of them by default

    Returns
    -------
    What was given without the axes of chains and draws, from 0 to 1
    """
    return per_element(lambda x: moves_of(x).mean(axis=1) / (x.shape[2] - 1), data, var_names)


def least(values: np.ndarray) -> float:
    """The least number that is not nan, or nan."""
    known = values[~np.isnan(values)]
    return float(known.min()) if len(known) else np.nan


def any_moved(draws: np.ndarray) -> float:
    """The share of draws (chains, draws, ...) in which any element differs from the draw before."""
    changed = np.zeros((draws.shape[0], draws.shape[1] - 1), bool)
    for x in batches(draws):
        changed |= (x[..., 1:] != x[..., :-1]).any(axis=0)
    return float(changed.mean())


def moves_of(x: np.ndarray) -> np.ndarray:
    """(sites, chains) int, how many draws of x (sites, chains, draws) differ from the one before."""
    return np.count_nonzero(x[..., 1:] != x[..., :-1], axis=2)


def stretches_of(x: np.ndarray) -> np.ndarray:
    """(sites, chains) int, in how many of `STRETCHES` parts of x (sites, chains, draws) some draw moved."""
    changed = x[..., 1:] != x[..., :-1]
    ends = np.linspace(0, changed.shape[2], STRETCHES + 1).astype(int)
    parts = [changed[..., a:b].any(axis=2) for a, b in pairwise(ends)]
    return np.sum(parts, axis=0)


def row_names(draws: xr.DataArray) -> Iterator[str]:
    """The name of each element: `z`, or `z[a, b]` with its coordinates."""
    axes = labels_in_draws(draws)
    for place in product(*(range(len(a)) for a in axes)):
        yield element(str(draws.name), axes, place)


def labels_in_draws(draws: xr.DataArray) -> list[Any]:
    """The labels of each axis of draws (chain, draw, ...): coordinates, or numbers where there are none."""
    return [draws.coords[d].values if d in draws.coords else range(draws.sizes[d]) for d in draws.dims[2:]]


class OfBatch(NamedTuple):
    """The statistics of a batch: columns (sites,), and what verdicts need."""

    columns: dict[str, np.ndarray]
    begin: np.ndarray
    moves: np.ndarray
    stretches: np.ndarray


class Judged(NamedTuple):
    """Statistics and verdicts of one variable, which the table, the log and the plots share.

    Attributes
    ----------
    columns : {column of `summary`: (elements,)}
    movement : Movement
    known : what the result has beside its draws, such as conditional probabilities
    orders : (chains, K) int, permutations of its labels to those of chain 0, if they make the chains agree
    switch : whether labels are permuted within chains
    """

    columns: dict[str, np.ndarray]
    movement: Movement
    known: Leaving | None = None
    orders: np.ndarray | None = None
    switch: bool = False

    @property
    def verdict(self) -> np.ndarray:
        """(elements,) str, see `diagnostics.verdicts.verdicts`."""
        return self.columns["verdict"]

    @property
    def suspect(self) -> np.ndarray:
        """(elements,) bool, which never moved in a chain, or have modes, for no known reason."""
        draws = self.movement.draws * len(self.movement.begin)
        in_modes = too_few_moves(self.movement, self.known) | (self.columns["rhat"] > MODES)
        odd = remarkable(self.known, self.verdict, draws) | np.isin(self.verdict, ("stuck", "apart"))
        return odd | (in_modes & (self.verdict != "labels"))


class Judge:
    """Statistics and verdicts of discrete variables, computed once for the table, the log and the plots.

    Parameters
    ----------
    idata : DataTree with a group posterior, or Dataset
    names : of all discrete variables that are drawn; by default as `posterior_of` finds them
    columns : {variable: the values whose probabilities have a column, or None for a count}, if it is not as
        in a table of one variable
    """

    def __init__(
        self,
        idata: Any,
        names: list[str] | None = None,
        columns: Mapping[str, np.ndarray | None] | None = None,
    ):
        self.tree = idata if isinstance(idata, xr.DataTree) else None
        self.all = idata if isinstance(idata, xr.Dataset) else idata["posterior"].to_dataset()
        self.names, self._columns = names, columns or {}
        lp = None if self.tree is None else lp_of(self.tree)
        self.lp = np.zeros((self.all.sizes["chain"], 1)) if lp is None else lp
        self._measured: dict[str, Judged] = {}
        self._orders: dict[tuple[str, ...], np.ndarray | None] = {}

    def measured(self, name: str) -> Judged:
        """The statistics of a variable's draws, without what else the result has."""
        if name not in self._measured:
            draws = self.draws(name)
            data = checked(draws.data)
            there = name in self._columns
            of_names = self._columns if there else values_with_columns(draws.to_dataset(name=name))
            parts = [of_batch(x, of_names[name]) for x in batches(data)]
            columns = {
                c: np.concatenate([part.columns[c] for part in parts])
                for c in (parts[0].columns if parts else ())
            }
            empty = np.zeros((len(data), 0), int)
            begin, moves, stretches = (
                np.concatenate([getattr(part, a) for part in parts]).T if parts else empty
                for a in ("begin", "moves", "stretches")
            )
            self._measured[name] = Judged(columns, Movement(begin, moves, stretches, data.shape[1]))
        return self._measured[name]

    def draws(self, name: str) -> xr.DataArray:
        """(chain, draw, ...), the draws of a variable."""
        return self.all[name].transpose("chain", "draw", ...)

    def of(self, name: str) -> Judged:
        """The statistics and verdicts of a variable."""
        columns, movement, *_ = self.measured(name)
        if not columns:
            return Judged(columns, movement)
        known = known_of(self.all, self.tree, name)
        few = too_few_moves(movement, known)
        # a standard error means nothing if the share of a value rests on a few moves
        unsure = {c: np.where(few, np.nan, a) for c, a in columns.items() if c.startswith("mcse")}
        unsure["ess"] = np.where(few, np.fmin(columns["ess"], movement.stretches.sum(axis=0)), columns["ess"])
        columns = {**columns, **unsure}

        def word(agree: np.ndarray | None = None, switch: bool = False) -> np.ndarray:
            return verdicts(
                movement, columns["rhat"], columns["ess"], known, agree, switch, self.observed(name)
            )

        found, orders, switch = word(), None, False
        if np.isin(found, ("apart", "stuck", "slow")).any():
            orders, switch = self.labels(name)
            agree = None
            if orders is not None:
                same = relabelled(orders, movement.begin)
                agree = (same == same[0]).all(axis=0)
            found = word(agree, switch)
        return Judged({**columns, "verdict": found}, movement, known, orders, switch)

    def labels(self, name: str) -> tuple[np.ndarray | None, bool]:
        """Permutations that make the labels of all chains agree, and whether labels switch within chains."""
        orders, data = self.orders(name), self.draws(name).data
        return orders, orders is None and data.ndim > 2 and labels_switch(data, self.lp)

    def orders(self, name: str) -> np.ndarray | None:
        """(chains, K) int, permutations that make the labels of all chains agree, or None.

        Scalars that are named alike (`z0`, `z1`, ...) share their labels.
        """
        group: tuple[str, ...] = (name,)
        if self.draws(name).ndim == 2:
            scalars = [n for n in self.discrete if self.all[n].ndim == 2]
            group = next((tuple(names) for names in alike(scalars) if name in names), group)
        if group not in self._orders:
            self._orders[group] = orders_of([self.draws(n).data for n in group], self.lp)
        return self._orders[group]

    @property
    def discrete(self) -> list[str]:
        """The discrete variables that are drawn."""
        if self.names is not None:
            return self.names
        recorded = self.all.attrs.get(DISCRETE)
        return json.loads(recorded) if recorded else [str(n) for n in posterior_of(self.all).data_vars]

    def observed(self, name: str) -> np.ndarray | None:
        """(elements,) bool, which elements of a variable are data, beside those that were missing."""
        missing = f"{name}_unobserved"
        if missing not in self.all:
            return None
        there = "observed_data" in (self.tree.children if self.tree is not None else ())
        data = self.tree["observed_data"].get(f"{name}_observed") if there else None  # type: ignore[index]
        whole, drawn = self.measured(name).movement, self.measured(missing).movement
        return in_between(whole, drawn, None if data is None else data.data.ravel())


def in_between(whole: Movement, drawn: Movement, data: np.ndarray | None) -> np.ndarray | None:
    """(elements,) bool, which elements of a variable are data: those that are not drawn, in the same order.

    Parameters
    ----------
    whole, drawn : of the variable, and of its elements that are drawn
    data : (elements,) the other elements, if they are known

    Returns
    -------
    None where the elements do not fit.
    """
    of_whole, of_drawn = (np.concatenate([m.begin, m.moves]).T for m in (whole, drawn))
    still = whole.still
    # after each element, how many of those before it may be drawn, and whether it is the last of these
    reached: list[dict[int, bool]] = [{0: False}]
    for i, element_of_whole in enumerate(of_whole):
        after: dict[int, bool] = {}
        for u in reached[-1]:
            if u < len(of_drawn) and (element_of_whole == of_drawn[u]).all():
                after[u + 1] = True
            if still[i] and (data is None or (i - u < len(data) and whole.begin[0, i] == data[i - u])):
                after.setdefault(u, False)
        reached.append(after)
    u = len(of_drawn)
    if u not in reached[-1]:
        return None
    observed = np.ones(len(of_whole), bool)
    for i in range(len(of_whole), 0, -1):
        # where both fit, what stood before must be reachable
        if reached[i][u] and u - 1 in reached[i - 1]:
            observed[i - 1], u = False, u - 1
    return observed


def labels_switch(data: np.ndarray, lp: np.ndarray) -> bool:
    """Whether the draws (chains, draws, ...) mix once the labels of each of them are permuted.

    lp : (chains, draws) float, log densities, nats
    """
    permuted = in_one_order(data, lp)
    if permuted is None:
        return False
    rhat = categorical_rhat(permuted)
    return bool((rhat[~np.isnan(rhat)] <= RHAT).mean() >= MOST)


def values_with_columns(posterior: xr.Dataset) -> dict[str, np.ndarray | None]:
    """{variable: the values whose probabilities have a column}, None for a count.

    A table is not made wider, by columns that are nan in all other rows, for a Deterministic such as a sum.
    """
    found = {str(name): values_of(checked(draws.data)) for name, draws in posterior.data_vars.items()}
    few = {name: v for name, v in found.items() if len(v) <= FEW and (abs(v) <= FEW).all()}
    drawn = set(json.loads(posterior.attrs[DISCRETE])) if DISCRETE in posterior.attrs else set(found)
    of_drawn = [v for name, v in few.items() if name in drawn]
    if of_drawn:
        usual = np.unique(np.concatenate([[0, 1], *of_drawn]))
        few = {name: v for name, v in few.items() if name in drawn or np.isin(v, usual).all()}
    return {name: few.get(name) for name in found}


def values_of(data: np.ndarray) -> np.ndarray:
    """The values in draws (chains, draws, ...), ascending; of many only the first `FEW` and one more."""
    values = np.zeros(0, int)
    for x in batches(data):
        values = np.union1d(values, counted(x).values)
        if len(values) > FEW:
            break
    return values


def of_batch(x: np.ndarray, values: np.ndarray | None) -> OfBatch:
    """The statistics of a batch x (sites, chains, draws).

    Parameters
    ----------
    values : the values of the variable, if each has a column
    """
    counts = counted(x)
    p, sites = counts.p, len(x)
    found = indicators(counts, every=values is not None)
    ess = ess_of_indicators(x, found)
    mode = p.argmax(axis=1)
    highest = p[np.arange(sites), mode]
    errors = errors_of(counts, found.site, found.first, found.last, ess)
    columns = {
        "mode": counts.values[mode],
        "P(mode)": highest,
        "mcse P(mode)": errors[np.arange(sites), mode],
        "entropy": -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1) + 0.0,
        "moved": moves_of(x).mean(axis=1) / (x.shape[2] - 1),
        "ess": found.least(ess, sites),
        "rhat": found.greatest(rhat_of_indicators(counts.shares_of_halves, counts.half, found), sites),
    }
    if values is not None:
        for v in values:
            k = np.flatnonzero(counts.values == v)
            columns[f"P({v})"] = p[:, k[0]] if len(k) else np.zeros(sites)
            columns[f"mcse P({v})"] = errors[:, k[0]] if len(k) else np.full(sites, np.nan)
    else:
        mean = p @ counts.values
        deviation = np.sqrt(np.maximum(p @ (counts.values.astype(float) ** 2) - mean**2, 0.0))
        below = np.cumsum(p, axis=1)
        of_mean = ess_of_mean(x.astype(float) - mean[:, None, None])
        columns |= {"mean": mean, "mcse mean": deviation / np.sqrt(of_mean)}
        columns |= {c: counts.values[(below >= q - 1e-12).argmax(axis=1)] for c, q in QUANTILES.items()}
    return OfBatch(columns, x[..., 0], moves_of(x), stretches_of(x))


def errors_of(
    counts: Counts, site: np.ndarray, first: np.ndarray, last: np.ndarray, ess: np.ndarray
) -> np.ndarray:
    """(sites, V) float, Monte Carlo standard errors of the probabilities; nan where the ESS is not known.

    Parameters
    ----------
    site, first, last, ess : (rows,), of indicators
    """
    p = counts.p
    errors = np.full(p.shape, np.nan)
    single = first == last
    site, k, n = site[single], first[single], ess[single]
    errors[site, k] = np.sqrt(p[site, k] * (1.0 - p[site, k]) / n)
    # of a site with two values the other indicator is 1 less this one
    two = (p > 0).sum(axis=1) == 2
    error = np.where(np.isnan(errors), 0.0, errors).max(axis=1)
    return np.where(two[:, None] & (p > 0), error[:, None], errors)
