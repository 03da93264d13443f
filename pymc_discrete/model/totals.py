"""Counts whose totals take their place, such as survivors and recruits that are read as one population.

Where terms read a count g only as a part of a total T = g + e, T takes the place of g as an unknown: g is T -
e in its own term, and all other terms read T. The map from (g, e) to (T, e) is one to one, so that
probabilities stay the same. But the terms of a population's next year then read one site in place of two.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.basic import Add, Cast, Identity, Sub
from pytensor.tensor.elemwise import Elemwise

from pymc_discrete.model.support import (
    Bounds,
    ParameterBounds,
    bounds_of,
    is_constrained,
    is_nominal,
    limits_of,
)
from pymc_discrete.structure.bounds import IntegerBounds
from pymc_discrete.structure.linear_forms import Form, LinearForms, combined, end_of_form
from pymc_discrete.structure.rebuild import rebuild
from pymc_discrete.structure.scalar_ops import applies

# {name of a count whose place a total takes: {name of a part of the total: its coefficient in the total}}.
# The count is itself a part, with the coefficient 1 or -1.
Totals = dict[str, dict[str, int]]


def totals_in(model: pm.Model, names: Collection[str], point: Mapping[str, np.ndarray]) -> Totals:
    """The counts among some value variables whose totals may take their place.

    Such a count is read only as a part of one and the same total. If several parts of a total are such
    counts, the total takes the place of the part whose own distribution depends on the fewest other counts.

    Parameters
    ----------
    point : a point of the model, which determines all shapes
    """
    counts = {
        str(v.name): rv
        for v in model.discrete_value_vars
        if v.name in names and is_count(model, str(v.name), rv := model.values_to_rvs[v])
    }
    readers: dict[Variable, list[Apply]] = {}
    for node in toposort([*model.basic_RVs, *model.potentials]):
        for i in node.inputs:
            readers.setdefault(i, []).append(node)
    random = set(model.basic_RVs)
    forms = LinearForms(ParameterBounds({}), random.__contains__)
    parts: dict[frozenset[tuple[str, int]], list[str]] = {}
    for name, rv in counts.items():
        of_name = {
            str(model.rvs_to_values[other].name)
            for other in counts.values()
            if np.shape(point[str(model.rvs_to_values[other].name)]) == np.shape(point[name])
        }
        total = only_total(rv, readers, forms, {counts[n]: n for n in of_name}, random)
        if total is not None:
            parts.setdefault(frozenset(total.items()), []).append(name)
    order, among = list(counts), random.intersection(counts.values())
    found: Totals = {}
    for coefficients, names_of_parts in parts.items():
        best = min(names_of_parts, key=lambda n: (parents(counts[n], among), -order.index(n)))
        found[best] = dict(coefficients)
    return found


def is_count(model: pm.Model, name: str, rv: Variable) -> bool:
    """Whether a variable is a number that may be a part of a total, rather than a label or a 0/1 variable."""
    if rv.type.dtype != "int64" or is_nominal(model, name) or is_constrained(rv):
        return False
    low, high = bounds_of(rv) or (None, None)
    return low is None or high is None or bool(np.max(np.asarray(high) - np.asarray(low), initial=0) > 1)


def parents(rv: Variable, among: Collection[Variable]) -> int:
    """The number of random variables `among` on which the distribution of `rv` directly depends."""
    stop = [v for v in among if v is not rv]
    return sum(v in among and v is not rv for v in ancestors([rv], blockers=stop))


def only_total(
    rv: Variable,
    readers: Mapping[Variable, list[Apply]],
    forms: LinearForms,
    counts: Mapping[Variable, str],
    random: Collection[Variable],
) -> dict[str, int] | None:
    """{name of a part: its coefficient} of the one total as a part of which a count is always read.

    None where a node reads the count in another way, or where two different totals of the count are read.

    Parameters
    ----------
    readers : {variable of the graph: the nodes that read it}
    counts : {random variable: name} of the counts that may be parts of the total
    random : all random variables of the model
    """
    found: dict[str, int] | None = None
    same = [rv]  # the count and its copies, whose readers are still to be looked at
    while same:
        for node in readers.get(same.pop(), ()):
            (out, *others) = node.outputs
            scalar = getattr(node.op, "scalar_op", None) if isinstance(node.op, Elemwise) else None
            form: Form = {} if others or scalar is None or out in random else forms.of(out)
            if isinstance(scalar, Cast | Identity) and form == {rv: 1.0}:
                same.append(out)
                continue
            total = total_of(form, rv, counts) if isinstance(scalar, Add | Sub) and alike(out, form) else None
            if total is None or (found is not None and total != found):
                return None
            found = total
    return found


def alike(out: Variable, form: Form) -> bool:
    """Whether a linear form, as a tensor, has the same dimensions as each of its parts.

    The tensor may have more dimensions if a constant 0 was added, which is no part of the form.
    """
    parts = [None if v is None else v.type.broadcastable for v in form]
    n, whole = out.type.ndim, out.type.broadcastable
    return all(b is not None and (True,) * (n - len(b)) + b == whole for b in parts)


def total_of(form: Form, rv: Variable, counts: Mapping[Variable, str]) -> dict[str, int] | None:
    """A linear form of counts as {name: coefficient}; None if it has other variables, or only one part.

    The sign is chosen such that the first coefficient is positive, so that a - b and b - a are the same
    total.
    """
    if len(form) < 2 or abs(form.get(rv, 0)) != 1:
        return None
    if any(v not in counts or c != int(c) for v, c in form.items()):
        return None
    named = {counts[v]: int(c) for v, c in form.items() if v is not None}
    sign = 1 if named[min(named)] > 0 else -1
    return {name: sign * c for name, c in sorted(named.items())}


def counts_of_totals(totals: Totals) -> Totals:
    """{count: {name: coefficient}}, each count as a linear form of the total in its place and of other
    counts.
    """
    found: Totals = {}

    def of(name: str) -> dict[str, int]:
        if name not in totals:
            return {name: 1}
        if name not in found:
            sign = totals[name][name]
            value = {name: sign}
            for other, c in totals[name].items():
                for part, d in of(other).items() if other != name else ():
                    value[part] = value.get(part, 0) - sign * c * d
            found[name] = {part: c for part, c in value.items() if c}
        return found[name]

    return {name: of(name) for name in totals}


def in_totals(model: pm.Model, terms: list[Variable], totals: Totals) -> list[Variable]:
    """Terms of a model's log density, rewritten so that totals are unknowns.

    The value variables of the counts in `totals` then have the values of the totals.

    Parameters
    ----------
    terms : the terms as PyMC gives them, beginning with the terms of the free variables in their order
    """
    if not totals:
        return terms
    values = {str(v.name): v for v in model.value_vars}
    by_total = {
        values[name]: {values[part]: float(c) for part, c in parts.items()}
        for name, parts in counts_of_totals(totals).items()
    }
    forms = LinearForms(IntegerBounds({}), lambda v: False)
    replace: dict[Variable, Variable] = {}
    for node in toposort(terms):
        (out, *_) = node.outputs
        if applies(node, Add, Sub) and not forms.is_leaf(out):
            form = forms.of(out)
            if any(v in by_total for v in form) and alike(out, form):
                new = combined([(c, by_total.get(v, {v: 1.0})) for v, c in form.items()])
                replace[out] = tensor_of_form(new, out.type.ndim)
    for value, form in by_total.items():
        replace[value] = tensor_of_form(form, value.type.ndim)
    terms, possible = list(terms), dict[int, Any]()
    for name in totals:
        # A total less the other parts may be a value that the count cannot have, such as -1. The count's log
        # density is then taken at its nearest possible value, and replaced by -inf, because PyMC's log
        # density of a zero-inflated count has the derivative nan at negative values.
        value, rv = values[name], model.values_to_rvs[values[name]]
        number, (low, high) = model.free_RVs.index(rv), bounds_of(rv) or (None, None)
        within = value.type()
        (terms[number],) = rebuild([terms[number]], {value: within})
        clipped = now = replace[value]
        for b, closer, keeps in ((low, pt.maximum, pt.ge), (high, pt.minimum, pt.le)):
            if b is not None:
                b = pt.as_tensor(np.asarray(b).astype("int64"))
                clipped = closer(clipped, b)
                inside = keeps(now, b)
                possible[number] = possible[number] & inside if number in possible else inside
        replace[within] = clipped
    found = rebuild(terms, replace)
    for number, condition in possible.items():
        found[number] = pt.switch(condition, found[number], -np.inf)
    return found


def tensor_of_form(form: Form, ndim: int) -> Variable:
    """A linear form as a tensor of integers with `ndim` dimensions."""
    total: Any = None
    for v, c in sorted(form.items(), key=lambda item: item[1] < 0):  # positive terms come first
        part = pt.constant(np.int64(abs(c))) if v is None else v if abs(c) == 1 else v * np.int64(abs(c))
        if total is None:
            total = part if c > 0 else -part
        else:
            total = total + part if c > 0 else total - part
    return pt.shape_padleft(total, ndim - total.type.ndim) if total.type.ndim < ndim else total


def bounds_of_totals(model: pm.Model, totals: Totals) -> dict[str, Bounds]:
    """{count: the bounds (lower, upper) of the total in its place}; a side without a bound is None."""
    rvs = {str(v.name): rv for rv, v in model.rvs_to_values.items()}
    found: dict[str, Bounds] = {}
    for name, parts in totals.items():
        total = tensor_of_form({rvs[part]: float(c) for part, c in parts.items()}, rvs[name].type.ndim)
        ends: list[Any] = []
        for largest in (False, True):
            limits = [bounds_of(rvs[part]) or (None, None) for part in parts]
            each = [limit[int(largest == (c > 0))] for limit, c in zip(limits, parts.values(), strict=True)]
            missing = any(b is None or not np.isfinite(b).all() for b in each)
            end = (
                None if missing else sum(c * np.asarray(b) for c, b in zip(parts.values(), each, strict=True))
            )
            limit = end_of_form(total, largest, ParameterBounds({}), limits_of)
            if np.isfinite(limit):
                closer = np.minimum if largest else np.maximum
                end = np.asarray(limit) if end is None else closer(end, limit)
            ends.append(end)
        found[name] = (ends[0], ends[1])
    return found
