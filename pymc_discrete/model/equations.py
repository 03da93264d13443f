"""Linear equations between the discrete variables of a model, which its log density compares with numbers.

A term `pt.switch(pt.all(pt.eq(A @ x, y)), 0, -inf)` says that A x = y. Sites of such an equation cannot
change alone, so the comparison is taken out of the log density and becomes a constraint of the space.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.distribution import DiracDeltaRV
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.raise_op import CheckAndRaise

from pymc_discrete.model.initial import point_of
from pymc_discrete.model.logp import terms_of
from pymc_discrete.model.support import is_nominal, is_permutation, unknown_sums
from pymc_discrete.runtime.names import shown
from pymc_discrete.structure.analysis import Analysis
from pymc_discrete.structure.comparisons import comparisons
from pymc_discrete.structure.degree import degree_after
from pymc_discrete.structure.numbers import AS_WRITTEN
from pymc_discrete.structure.rebuild import known_size, rebuild


class Equations(NamedTuple):
    """Linear equations A x = y, of one comparison in a log density or of unknown sums of vectors of counts.

    Attributes
    ----------
    name : the name of the term, or a text about the sums
    place : (index of the term, index of the comparison in the term), see `comparisons`; None for unknown sums
    coefficients : {value variable: (m, its size) int}, the columns of A for the elements of each variable;
        variables whose coefficients are all 0 are left out
    totals : (m,) int, the right-hand sides y
    shape : the shape of the comparison, whose elements are the m equations
    """

    name: str
    place: tuple[int, int] | None
    coefficients: dict[str, np.ndarray]
    totals: np.ndarray
    shape: tuple[int, ...]

    @property
    def joins(self) -> bool:
        """Whether some equation has two or more sites."""
        rows = np.concatenate([*self.coefficients.values(), np.zeros((len(self.totals), 0))], axis=1)
        return bool((np.count_nonzero(rows, axis=1) > 1).any())

    @property
    def labels(self) -> list[str]:
        """The name of each equation, for messages."""
        if not self.shape:
            return [repr(self.name)]
        places = [", ".join(map(str, index)) for index in np.ndindex(self.shape)]
        return [f"element {place} of {self.name!r}" for place in places]


class DegreeIn(Analysis[float]):
    """The degree of a tensor as a polynomial in given variables; inf where the degree is not known."""

    def __init__(self, variables: Collection[Variable]):
        super().__init__(dict.fromkeys(variables, 1))

    def at_leaf(self, var: Variable) -> float:
        return 0

    def after(self, node: Apply, values: list[float]) -> list[float]:
        degree = degree_after(node.op, node, values) if any(values) else 0
        return [degree] * len(node.outputs)


def equations_of(
    model: pm.Model, names: Collection[str], point: Mapping[str, np.ndarray] | None = None
) -> list[Equations]:
    """The linear equations between some discrete variables that the log density of a model states.

    Equations are looked for in each `pm.Potential` and each observed `pm.DiracDelta`, and in vectors of
    counts whose sum n is unknown (`pm.Multinomial("x", n, p)`). Equations that each have only one site tie no
    two sites, and stay in the log density.

    Parameters
    ----------
    names : value variables; a comparison that reads none of them, labels or permutations, or that is no
        linear function of them, is left as it is
    point : a point of the model, which determines all shapes; by default its initial point

    Raises
    ------
    ValueError
        For a comparison that is linear in some of the variables and also reads others, and for coefficients
        or totals that are no integers.
    """
    variables = [*model.free_RVs, *model.observed_RVs, *model.potentials]
    says = [v in model.potentials or isinstance(v.owner.op, DiracDeltaRV) for v in variables]
    found = []
    # The terms of the log density are computed only for a model that may state equations: PyMC takes seconds
    # to write the terms of hundreds of variables.
    for t, (variable, term) in enumerate(zip(variables, terms_of(model), strict=True) if any(says) else ()):
        if says[t]:
            for c, (comparison, _) in enumerate(comparisons(term)):
                point = point_of(model) if point is None else point
                equations = linear(model, str(variable.name), (t, c), comparison, names, point)
                found += [] if equations is None else [equations]
    found += totals_of(model, names, point)
    tied = {name for equations in found if equations.joins for name in equations.coefficients}
    # All variables of an equation are tied if one of them is tied by another equation. One pass for each
    # equation finds all that are tied, since a chain of equations is at most as long.
    for _ in found:
        tied |= {name for e in found if tied & set(e.coefficients) for name in e.coefficients}
    return [equations for equations in found if tied & set(equations.coefficients)]


def totals_of(
    model: pm.Model, names: Collection[str], point: Mapping[str, np.ndarray] | None
) -> list[Equations]:
    """The equations sum(x) - n = 0 of vectors x of counts whose sums n depend on other variables.

    Raises
    ------
    ValueError
        Where n is no sum of integer unknowns that change in the same step as x.
    """
    found = []
    for rv, n in [(rv, n) for rv in model.free_RVs if (n := unknown_sums(rv)) is not None]:
        name = str(model.rvs_to_values[rv].name)
        sides = model.replace_rvs_by_values([rv.sum(axis=-1), n])
        read = [str(v.name) for v in model.value_vars if v in set(ancestors(sides))]
        if not set(read) & set(names):
            continue
        left = [v for v in read if v not in names]
        if left:
            raise ValueError(
                f"{name!r} adds up to n, which depends on {shown(v for v in read if v != name)}: these can "
                f"only change together. Name {shown(left)} in the same step, where discrete."
            )
        point = point_of(model) if point is None else point
        equations = linear(model, f"sum of {name} less n", None, pt.eq(*sides), names, point, labels=True)
        if equations is None:
            raise ValueError(
                f"n of {name!r} is no linear function of counts: both have to change together, and no step "
                "finds by how much. Make n a variable of its own, or a sum of some."
            )
        found.append(equations)
    return found


def linear(
    model: pm.Model,
    name: str,
    place: tuple[int, int] | None,
    comparison: Variable,
    names: Collection[str],
    point: Mapping[str, np.ndarray],
    labels: bool = False,
) -> Equations | None:
    """The linear equations of the named variables that a comparison states; None where it states none.

    Parameters
    ----------
    labels : whether values of labels without an order may be read as numbers
    """
    above = set(ancestors([comparison]))
    read = [v for v in model.value_vars if v in above]
    sides, typed = with_constants(comparison.owner.inputs, read, point)
    inside = {str(v.name): typed[v] for v in read if v.name in names and v in typed}
    if not labels and any(is_nominal(model, v) for v in inside):
        return None
    if not inside or any(is_permutation(model.values_to_rvs[v]) for v in read):
        return None
    degree = DegreeIn(inside.values())
    if any(degree.of(side) > 1 for side in sides):
        return None
    others = [str(v.name) for v in typed if v.name not in inside]
    if others:
        raise ValueError(
            f"{name!r} compares {shown(inside)} with something of {shown(others)}: given that, sums of the "
            "counts are known, and neither can change without the other. Name all of them in one step, where "
            "they are discrete; else write what is known of the counts as a likelihood, such as pm.Normal, "
            "and not as an equality."
        )
    # the side of the comparison that depends on the variables comes first, then the side with the numbers
    return evaluated_equations(name, place, sorted(sides, key=degree.of, reverse=True), inside)


def with_constants(
    graphs: list[Variable], read: list[Variable], point: Mapping[str, np.ndarray]
) -> tuple[list[Variable], dict[Variable, Variable]]:
    """Graphs as functions of the value variables, with static shapes; all other inputs become constants.

    Returns
    -------
    graphs
    typed : {value variable that the graphs depend on: the same variable with a static shape}
    """
    typed: dict[Variable, Variable] = {
        v: pt.TensorType(v.type.dtype, shape=np.shape(point[v.name]))(name=v.name) for v in read
    }
    shared = {v: pt.constant(v.get_value()) for v in graph_inputs(graphs) if isinstance(v, SharedVariable)}

    def replaced(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
        if (size := known_size(node, inputs)) is not None:
            return size
        return [inputs[0]] if isinstance(node.op, CheckAndRaise) else None

    graphs = rebuild(graphs, typed | shared, replaced)
    reached = set(graph_inputs(graphs))
    return graphs, {v: new for v, new in typed.items() if new in reached}


def evaluated_equations(
    name: str, place: tuple[int, int] | None, sides: list[Variable], variables: dict[str, Variable]
) -> Equations:
    """The equations that a comparison of two sides states, where each side is linear in some variables.

    Totals and coefficients are read off the difference of the sides, evaluated where all sites are 0, and
    where one site after another is 1.
    """
    function = pytensor.function(list(variables.values()), sides, mode=AS_WRITTEN, on_unused_input="ignore")
    zeros = {v: np.zeros(var.type.shape, var.type.dtype) for v, var in variables.items()}

    def difference(values: dict[str, np.ndarray]) -> np.ndarray:
        left, right = (np.asarray(a) for a in function(*values.values()))
        try:
            shape = np.broadcast_shapes(left.shape, right.shape)
        except ValueError:
            raise ValueError(
                f"The two sides of the comparison in {name!r} have the shapes {left.shape} and "
                f"{right.shape}. Give one number for each sum."
            ) from None
        return np.broadcast_to(left - right, shape)

    constant = difference(zeros)
    columns: dict[str, np.ndarray] = {}
    for v, zero in zeros.items():
        units = np.eye(zero.size, dtype=zero.dtype).reshape(zero.size, *zero.shape)
        each = [(difference({**zeros, v: unit}) - constant).reshape(-1) for unit in units]
        columns[v] = np.stack(each, axis=1) if each else np.zeros((constant.size, 0))
    for what, array in (("total", -constant), ("coefficient", np.concatenate([*columns.values()], axis=1))):
        wrong = array[~(np.isfinite(array) & (array == np.round(array)))]
        if wrong.size:
            raise ValueError(
                f"{name!r} compares sums of {shown(variables)} with a {what} of "
                f"{wrong[0]:g}, which is no integer. Multiply both sides so that all are integers, rounded "
                "exactly."
            )
    coefficients = {v: column.astype(np.int64) for v, column in columns.items() if column.any()}
    return Equations(name, place, coefficients, -constant.reshape(-1).astype(np.int64), constant.shape)
