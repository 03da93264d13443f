"""The choice of continuous variables that are integrated out by default: coefficients, and parameters of
clusters.

A gate (an indicator, a switch) that multiplies a coefficient hardly changes while the coefficient stays. A
site on which the meaning of all coefficients depends hardly changes either, such as a change point between
two lines or two means: at other values of the site, other coefficients are probable. In the same way a new
cluster of a partition needs parameters that fit it.
"""

import logging
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from pymc.distributions.continuous import FlatRV
from pytensor.graph.basic import Variable

from pymc_discrete.differences.from_model import target_of
from pymc_discrete.integrals.augmented import augmented
from pymc_discrete.integrals.coefficients import Coefficients
from pymc_discrete.integrals.columns import form_by_columns
from pymc_discrete.integrals.conjugate import conjugate_in, conjugate_parameters
from pymc_discrete.integrals.integrate import gates_of, quadratic_in
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.model.logp import logp_graph
from pymc_discrete.model.of_labels import selected_by
from pymc_discrete.model.structure_of_model import key_of_model
from pymc_discrete.model.unread import unread, without_unread
from pymc_discrete.runtime.model_settings import model_settings, width_of_models
from pymc_discrete.runtime.names import merged_texts, shown
from pymc_discrete.runtime.reuse import MODELS, Kept
from pymc_discrete.structure.analysis import Depends
from pymc_discrete.structure.logp_graph import Columns, LogpGraph
from pymc_discrete.structure.sums import all_summands

_log = logging.getLogger("pymc.discrete")

# The largest number of coefficients of a block. A gradient with respect to the other unknowns factorises the
# matrix of the coefficients, in a time that grows with the cube of their number.
MOST_COEFFICIENTS = 300
# More than MOST_COEFFICIENTS coefficients are integrated out without a p x p array of all p coefficients,
# since few are active at once. This is the largest memory, in bytes, of the (n, p) data that multiply the
# coefficients (on the host and in a program) and of n x n arrays.
MOST_BYTES = 2.0**32
# The largest number of elements of a coefficient without gates, such as an effect of each group, that is
# integrated out given further variables. Given these, the matrix of all coefficients is new in each draw and
# is factorised for each gradient; NUTS that moves larger effects itself mixes as well and takes less time.
MOST_WITHOUT_GATE = 20
# A gate is a site that makes a coefficient active or not. For a site of another kind, each value has its own
# matrix of the coefficients: coefficients are integrated out with at most MOST_OTHER_SITES of these sites,
# and at most MOST_OPERATIONS operations for all of their values together.
MOST_OTHER_SITES, MOST_OPERATIONS = 3, 2.5e6

# the reason why nothing is integrated out in single precision
IN_32_BITS = 'in 32 bits the differences of large quadratic forms are lost. dtype="float64" allows it'

_kept: Kept[list[str]] = Kept(MODELS, "variables to integrate out")


def chosen_coefficients(
    described: DescribedModel,
    names: Sequence[str],
    moved: Sequence[str],
    sampled_by: str = "A step that is named, such as pmd.BlockGibbs(),",
) -> list[str]:
    """The coefficients to integrate out, if there are any; a line of the log names them.

    Parameters
    ----------
    described : the model
    names : discrete variables of one step
    moved : continuous variables that no step names
    sampled_by : the option, named in the log, by which the user has these coefficients sampled
    """
    reasons = dict[str, str]()
    try:
        found = coefficients_to_integrate(described, names, moved)
        if not found:
            reasons = why_of_coefficients(described, names, moved)
        elif not width_of_models():
            found, reasons = [], dict.fromkeys(found, IN_32_BITS)
        else:
            density = target_of(described, list(names), integrate=found, with_numbers=True).density
            if not density.exact:
                return []
    # What cannot be integrated out is left to the step that draws without integrating, which raises the error
    # if the model itself is not possible.
    except (NotImplementedError, ValueError):
        return []
    move = f"{shown(names)} {'moves' if len(names) == 1 else 'move'}"
    if found:
        given = augmented(described.model, found)
        of = f", given {given.described()}" if given else ""
        _log.info(f"Integrated out while {move}{of}: {shown(found)}. {sampled_by} leaves them to NUTS.")
    reasons |= why_of_clusters(described, names, set(moved) - {*found, *reasons})
    for left, why in merged_texts(reasons):
        _log.info(f"Not integrated out while {move}: {shown(left)}, since {why}.")
    return found


def why_of_clusters(
    described: DescribedModel, names: Sequence[str], moved: Collection[str]
) -> dict[str, str]:
    """{parameter of the clusters of a partition: the reason why it is not integrated out}.

    Parameters
    ----------
    names : discrete variables of one step
    moved : value variables that NUTS moves
    """
    model, reasons = described.model, dict[str, str]()
    selected = selected_by(model, described.block(names).partitions)
    found = conjugate_parameters(model, described.point) if selected else {}
    for rv in map(model.__getitem__, selected):
        name = str(model.rvs_to_values[rv].name)
        if name in moved and name in found:
            why = found[name]
            reasons[str(rv.name)] = why if isinstance(why, str) else "a distribution reads several unknowns"
    return reasons


def why_of_coefficients(
    described: DescribedModel, names: Sequence[str], moved: Sequence[str]
) -> dict[str, str]:
    """{coefficient: the reason why it is not integrated out}, where the reason is that answers are missing.

    A missing answer is a discrete variable whose distribution depends on coefficients, and on which nothing
    depends.

    Parameters
    ----------
    names : discrete variables of one step
    moved : continuous variables that no step names
    """
    missing = unread(described.model, names)
    rest = [name for name in names if name not in missing]
    if not missing or not rest:
        return {}
    point = {name: value for name, value in described.point.items() if name not in missing}
    try:
        found = coefficients_to_integrate(
            DescribedModel(without_unread(described.model, missing), point), rest, moved
        )
    except (NotImplementedError, ValueError):
        return {}
    it, depends = ("it", "depends") if len(missing) == 1 else ("them", "depend")
    why = (
        f"{shown(missing)}, on which nothing depends, {depends} on what would be integrated out. Leave {it} "
        f"out of the model, as missing answers out of the data, and draw {it} with "
        "pm.sample_posterior_predictive"
    )
    return dict.fromkeys(found, why)


def say_not_integrated(
    described: DescribedModel, names: Sequence[str], moved: Sequence[str], summed: Sequence[str]
) -> None:
    """Log which coefficients would be integrated out if the variables `summed` were not summed out."""
    try:
        found = coefficients_to_integrate(described, names, moved)
    except (NotImplementedError, ValueError):
        return
    if found:
        _log.info(
            f"Not integrated out while {shown(names)} {'moves' if len(names) == 1 else 'move'}: "
            f"{shown(found)}, since NUTS moves with {shown(summed)} summed out, and cannot do both. "
            f"collapse=False samples {shown(summed)} and integrates out instead."
        )


def coefficients_to_integrate(
    described: DescribedModel, names: Sequence[str], moved: Sequence[str]
) -> list[str]:
    """The coefficients to integrate out while discrete variables move; none where it does not pay.

    If the clusters of a partition have conjugate parameters, only these parameters are integrated out. With
    such parameters sampled, the chains of a stochastic block model found different numbers of groups.

    With p coefficients integrated out, a change of one gate takes p^2 operations, about as many as a sum over
    the data, and a change of any other site takes p^3 for each of its values.

    Parameters
    ----------
    names : discrete variables of one step
    moved : continuous variables that no step names
    """
    asked = (key_of_model(described.model), tuple(names), tuple(moved))
    return _kept.get(asked, lambda: _affordable(described, names, moved))


def bytes_of(columns: Columns) -> float:
    """The memory, in bytes, of a block that integrates out coefficients with q columns of n rows: two copies
    of the columns, and four n x n arrays.
    """
    q, n = columns.form[1].type.shape
    return 8.0 * (2 * q * n + 4 * n**2)


class QuadraticForm(NamedTuple):
    """A log density as a quadratic form in coefficients.

    Attributes
    ----------
    described : the DescribedModel
    graph : the graph of the model's log density
    coefficients : all variables in which the log density is jointly quadratic
    terms : the terms of the log density that read the coefficients
    """

    described: DescribedModel
    graph: LogpGraph
    coefficients: Coefficients
    terms: list[Variable]

    @property
    def names(self) -> list[str]:
        """The names of the coefficients."""
        return [str(v.name) for v in self.coefficients.variables]

    @classmethod
    def of(
        cls, described: DescribedModel, names: Sequence[str], moved: Sequence[str]
    ) -> "QuadraticForm | None":
        """A model's log density as a quadratic form in some of the variables `moved`, which no step names;
        None if it has no such form. The discrete variables `names` are those of one step.
        """
        model, block = described.model, described.block(names)
        graph = logp_graph(model, list(names), block.point, block.supports)
        chosen = quadratic_in(graph, model)
        if not chosen or not set(chosen) <= set(moved):
            return None
        coefficients = Coefficients([v for v in graph.others if v.name in chosen], graph)
        enters = Depends(coefficients.variables)
        terms = [t for _, t in [*graph.terms, *graph.untouched] if t in enters]
        return cls(described, graph, coefficients, terms)


def _affordable(described: DescribedModel, names: Sequence[str], moved: Sequence[str]) -> list[str]:
    model = described.model
    if partitions := described.block(names).partitions:
        conjugate = conjugate_in(model, partitions, described.point)
        if found := [name for name in conjugate if name in moved]:
            return found
    plain = [rv for rv in model.free_RVs if model.rvs_to_transforms[rv] is None]
    if not any(str(model.rvs_to_values[rv].name) in moved for rv in plain):
        return []
    with model_settings():
        if given := augmented(model, names):
            of_augmented = DescribedModel(given.model, described.point | given.start)
            form = QuadraticForm.of(of_augmented, names, moved)
            if form and (chosen := under_gates(form, names, MOST_WITHOUT_GATE)):
                return chosen
        # Further variables are drawn to fit the current values of the sites. Given them, a site that is no
        # gate would hardly move, so that such sites are allowed only without further variables.
        form = QuadraticForm.of(described, names, moved)
        return [] if form is None else under_gates(form, names) or of_few_sites(form, names)


def under_gates(form: QuadraticForm, names: Sequence[str], most_without: float = np.inf) -> list[str]:
    """The coefficients of a quadratic form, if sites gate them and integrating them is affordable; else none.

    Parameters
    ----------
    names : the names of the variables of the sites
    most_without : the largest number of elements of a coefficient without gates that is integrated out
    """
    coefficients = form.coefficients
    if coefficients.p <= MOST_COEFFICIENTS:
        if (gates := gates_of(form.terms, coefficients)) is None:
            return []
        gated = np.flatnonzero(gates.gated)
    else:
        if (columns := form_by_columns(form.terms, coefficients)) is None:
            return []
        if (size := bytes_of(columns)) > MOST_BYTES:
            p, n = columns.form[1].type.shape
            _log.info(
                f"Not integrated out while {shown(names)} {'moves' if len(names) == 1 else 'move'}: "
                f"{shown(form.names)}, since {p} columns and {n} rows would take {size / 2**30:.1f} GiB. "
                "A step with integrate= does it."
            )
            return []
        gated = columns.places
    return [
        str(v.name)
        for v in coefficients.variables
        if form.graph.size(v) <= most_without or np.isin(coefficients.places(v), gated).any()
    ]


def of_few_sites(form: QuadraticForm, names: Sequence[str]) -> list[str]:
    """The coefficients of a quadratic form, if only few sites enter it, in any way; else none."""
    model, supports, graph = form.described.model, form.described.block(names).supports, form.graph
    p = form.coefficients.p
    if p > MOST_COEFFICIENTS or any(bound is None for name in names for bound in supports[name]):
        return []
    flat = {str(model.rvs_to_values[rv].name) for rv in model.free_RVs if isinstance(rv.owner.op, FlatRV)}
    values = [np.broadcast_to(1 + np.subtract(*supports[v.name][::-1]), graph.shape(v)) for v in graph.values]
    enters = Depends(form.coefficients.variables)
    rows = sum(graph.size(part) for t in form.terms for part in all_summands(t, graph) if part in enters)
    work = sum(k.sum() for k in values) * p**2 * (rows + p)
    few = sum(k.size for k in values) <= MOST_OTHER_SITES and work <= MOST_OPERATIONS
    return form.names if few and not flat.intersection(form.names) else []
