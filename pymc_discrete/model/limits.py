"""Counts that limit each other, as survivors are at most the animals alive before, and pairs of such counts.

One count of a chain can hardly change while all later counts stay: a person infected a week earlier is ill a
week longer. Two counts that change together can leave most of the others as they are: one week has one
infection more, and the next week has one less.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from scipy.sparse import coo_array, csr_array, eye_array, vstack
from scipy.sparse.csgraph import connected_components

from pymc_discrete.model.equations import AS_WRITTEN, DegreeIn, with_constants
from pymc_discrete.model.support import is_constrained, is_nominal, limits_of
from pymc_discrete.space.linear_constraint import Lines

MOST_COUNTS = 4096  # with more counts than this, no limits between them are looked for
# Each count chooses at most this many partners that grow when it grows, and as many that shrink when it
# grows.
PARTNERS = 2
# If finding the pairs of counts that change together needs more products of coefficients than this, about a
# second of work, no pairs are formed.
MOST_PRODUCTS = 1e8
# Two counts become a pair only if the cosine of the angle between two vectors, which say what each count
# changes alone (see `pairs_of`), is at least this large in absolute value.
LEAST_COSINE = 0.1


class Limits(NamedTuple):
    """Limits of counts, and of data, that are linear in counts.

    Attributes
    ----------
    names : the names of the value variables, which are connected by shared limits
    coefficients : sparse (m, n) float
        The coefficients of m limits as linear functions of the n elements of all variables, one variable
        after another.
    limited : (m,) int, the index of the element that each limit is a limit of; -1 for data
    """

    names: tuple[str, ...]
    coefficients: csr_array
    limited: np.ndarray


def limits_between(model: pm.Model, names: Sequence[str], point: Mapping[str, np.ndarray]) -> list[Limits]:
    """The limits among some counts: counts that are limits of one another, or that together limit data.

    A limit that is no linear function of the counts is left out.

    Parameters
    ----------
    point : a point of the model, which determines all shapes
    """
    by_name = {str(v.name): model.values_to_rvs[v] for v in model.discrete_value_vars}
    counts = {
        name: by_name[name]
        for name in names
        if not is_nominal(model, name) and not is_constrained(by_name[name])
    }
    if sum(np.size(point[name]) for name in counts) > MOST_COUNTS:
        return []
    rvs = set(counts.values())
    uppers = [(rv, (limits_of(rv) or (None, None))[1]) for rv in [*rvs, *model.observed_RVs]]
    uppers = [(rv, v) for rv, v in uppers if v is not None and not rvs.isdisjoint(ancestors([v]))]
    if not uppers:
        return []
    graphs = model.replace_rvs_by_values([v for _, v in uppers])
    above = set(ancestors(graphs))
    graphs, typed = with_constants(graphs, [v for v in model.value_vars if v in above], point)
    degree = DegreeIn([v for v in typed.values() if v.name in counts])
    limited = [str(model.rvs_to_values[rv].name) if rv in rvs else None for rv, _ in uppers]
    linear = [(name, graph) for name, graph in zip(limited, graphs, strict=True) if degree.of(graph) == 1]
    if not linear:
        return []
    return limits_in_groups(
        linear, list(typed.values()), {name: np.asarray(point[name]) for name in counts}, point
    )


def limits_in_groups(
    limits: list[tuple[str | None, Variable]],
    inputs: list[Variable],
    counts: dict[str, np.ndarray],
    point: Mapping[str, np.ndarray],
) -> list[Limits]:
    """The limits of each group of counts that share limits.

    Parameters
    ----------
    limits : [(the count that is limited, or None for data; the limit, which is linear in the counts)]
    inputs : the inputs of the graphs of the limits
    counts : {name: value}
    """
    names = list(counts)
    sizes = [counts[name].size for name in names]
    starts = dict(zip(names, np.cumsum([0, *sizes]).tolist(), strict=False))
    function = pytensor.function(
        inputs, [graph for _, graph in limits], mode=AS_WRITTEN, on_unused_input="ignore"
    )

    def values(at: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        limits_at = function(*(at[str(v.name)] for v in inputs))
        pairs = zip(limits, map(np.asarray, limits_at), strict=True)
        return [
            np.broadcast_to(a, a.shape if name is None else counts[name].shape).reshape(-1)
            for (name, _), a in pairs
        ]

    zeros = {**point, **{name: np.zeros_like(value) for name, value in counts.items()}}
    each = values(zeros)
    limited = np.concatenate(
        [
            np.full(a.size, -1) if name is None else starts[name] + np.arange(a.size)
            for (name, _), a in zip(limits, each, strict=True)
        ]
    )
    constant = np.concatenate(each)
    found: list[np.ndarray] = []  # for each count (3, n): values, rows, columns of its nonzero coefficients
    for name in names:
        for i in range(counts[name].size):
            unit = zeros[name].copy()
            unit.flat[i] = 1
            change = np.concatenate(values({**zeros, name: unit})) - constant
            changed = np.flatnonzero(change)
            found.append(np.stack([change[changed], changed, np.full(len(changed), starts[name] + i)]))
    entries, rows, columns = np.concatenate(found, axis=1)
    coefficients = csr_array((entries.astype(float), (rows, columns)), shape=(len(limited), sum(sizes)))
    # Groups are the connected components of a graph whose vertices are the variables and the limits. An edge
    # joins a variable with each limit that depends on it, and with each limit on it.
    variable = np.repeat(np.arange(len(names)), sizes)
    own = limited[rows] >= 0
    links = np.concatenate(
        [[variable[columns], len(names) + rows], [variable[limited[rows[own]]], len(names) + rows[own]]],
        axis=1,
    )
    vertices = len(names) + len(limited)
    _, group_of = connected_components(coo_array((np.ones(links.shape[1]), links), (vertices,) * 2))
    groups = []
    for group in np.unique(group_of[: len(names)]):
        inside = np.flatnonzero(group_of[variable] == group)
        some = np.flatnonzero(group_of[len(names) :] == group)
        if len(some):
            place = np.append(np.searchsorted(inside, np.arange(sum(sizes))), -1)
            members = tuple(name for n, name in enumerate(names) if group_of[n] == group)
            groups.append(Limits(members, coefficients[some][:, inside], place[limited[some]]))
    return groups


def pairs_of(limits: Limits) -> Lines:
    """Pairs of counts that change little else when they change together.

    A change of a count changes the count itself, the limits that it enters, and the distances of counts from
    their limits. Two counts are a pair if together they undo a part of what each changes alone, where both
    grow, or one grows and the other shrinks. For each count, the pairs that undo most are taken.

    Returns
    -------
    Lines, one set for all counts that limits join; counts without a pair are in no set. No pairs are formed
    where each of thousands of counts shares limits with most others.
    """
    m, n = limits.coefficients.shape
    some = np.flatnonzero(limits.limited >= 0)
    own = csr_array((np.ones(len(some)), (some, limits.limited[some])), shape=(m, n))
    changed = vstack([eye_array(n), limits.coefficients, (limits.coefficients - own)[some]]).tocsr()
    if (np.diff(changed.indptr).astype(float) ** 2).sum() > MOST_PRODUCTS:
        changed = csr_array((0, n))  # without coefficients there are no pairs
    products = (changed.T @ changed).tocoo()
    length = np.sqrt(products.tocsr().diagonal())
    i, j = products.coords
    cosine = products.data / (length[i] * length[j])
    pairs: dict[tuple[int, int], int] = {}
    for sign in (1, -1):
        undone = -sign * cosine
        near = (i != j) & (undone >= LEAST_COSINE)
        order = np.lexsort((j[near], -undone[near], i[near]))
        one, other = i[near][order], j[near][order]
        best = np.arange(len(one)) - np.searchsorted(one, one) < PARTNERS
        pairs |= {(min(a, b), max(a, b)): sign for a, b in np.stack([one, other], axis=1)[best].tolist()}
    _, set_of = connected_components(products)
    sets: dict[int, list[tuple[int, int, int]]] = {}
    for (a, b), sign in sorted(pairs.items()):
        sets.setdefault(int(set_of[a]), []).append((a, b, sign))
    number = np.array([len(of_set) for of_set in sets.values()], int)
    shape = (len(sets), int(number.max(initial=0)), 2)
    lines = Lines(np.zeros(shape, np.int64), np.zeros(shape, np.int64), number)
    for r, of_set in enumerate(sets.values()):
        for k, (a, b, sign) in enumerate(of_set):
            lines.sites[r, k], lines.steps[r, k] = (a, b), (1, sign)
    return lines
