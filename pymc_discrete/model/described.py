"""A model, and a block of its discrete variables, described once for all code that chooses how to
move them."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_discrete.model.equations import Equations, equations_of
from pymc_discrete.model.identity import key_of_object
from pymc_discrete.model.initial import point_of
from pymc_discrete.model.limits import limits_between, pairs_of
from pymc_discrete.model.logp import logp_graph
from pymc_discrete.model.support import (
    Bounds,
    deviations,
    fixed_sums,
    is_constrained,
    is_nominal,
    is_partition,
    is_permutation,
    support_of,
)
from pymc_discrete.model.totals import Totals, bounds_of_totals, counts_of_totals
from pymc_discrete.runtime.names import MADE
from pymc_discrete.space.linear_constraint import Lines
from pymc_discrete.space.space import SMALLEST, ByTotals, Linear, Space
from pymc_discrete.structure.logp_graph import LogpGraph

Point = Mapping[str, np.ndarray]


class DescribedModel:
    """A PyMC model at a point, with the properties by which it is chosen how variables move, each computed
    once.

    Parameters
    ----------
    model : pm.Model
    point : {value variable: array}, optional
        A point that gives the shapes of all variables; by default the initial point of the model.
    """

    def __init__(self, model: pm.Model, point: Point | None = None):
        self.model, self._given = model, point
        self._equations: dict[tuple[str, ...], list[Equations]] = {}
        self._lines: dict[tuple[str, ...], dict[tuple[str, ...], Lines]] = {}

    @cached_property
    def point(self) -> dict[str, np.ndarray]:
        """The point of the model that gives the shapes, {value variable: array}."""
        return point_of(self.model) if self._given is None else dict(self._given)

    @cached_property
    def discrete(self) -> list[str]:
        """The names of the discrete value variables."""
        return [str(v.name) for v in self.model.discrete_value_vars]

    @cached_property
    def continuous(self) -> list[str]:
        """The names of the continuous value variables."""
        return [str(v.name) for v in self.model.continuous_value_vars]

    def equations(self, names: Sequence[str]) -> list[Equations]:
        """The linear equations between some discrete variables that the log density states, see
        `equations_of`.

        Raises
        ------
        ValueError
            For an equation that no change of its variables can keep.
        """
        asked = tuple(names)
        if asked not in self._equations:
            self._equations[asked] = equations_of(self.model, asked, self._given)
        return self._equations[asked]

    def moved_together(self, names: Sequence[str]) -> list[str]:
        """The variables, of the named discrete variables, whose elements cannot change alone.

        Equations tie such elements, or the constraint of a vector (`is_constrained`).
        """
        tied = {name for e in self.equations(names) for name in e.coefficients}
        vectors = {str(v.name) for rv, v in self.model.rvs_to_values.items() if is_constrained(rv)}
        return [name for name in names if name in tied | vectors]

    def lines(self, names: Sequence[str]) -> dict[tuple[str, ...], Lines]:
        """The lines along which counts that limit each other move, among some variables, see `Space.build`.

        Counts in equations are left out, since equations have lines of their own.
        """
        asked = tuple(names)
        if asked not in self._lines:
            tied = {name for e in self.equations(names) for name in e.coefficients}
            alone = [name for name in names if name not in tied]
            lines = {each.names: pairs_of(each) for each in limits_between(self.model, alone, self.point)}
            self._lines[asked] = {group: of for group, of in lines.items() if of.number.any()}
        return self._lines[asked]

    def block(self, names: Sequence[str], **options: Any) -> "DescribedBlock":
        """The `DescribedBlock` of some discrete variables of the model, with the options of that class."""
        return DescribedBlock(self.model, list(names), self.point, **options)


class DescribedBlock:
    """The discrete variables of one density: their supports, shapes and constraints.

    Parameters
    ----------
    model : pm.Model
    names : the value variables of the block
    point : {value variable: array}, which gives the shapes of all variables
    support : {name: (lower, upper)}, optional
        Bounds that take precedence over the bounds of the distributions.
    equations : linear equations between the variables, which constrain the space and are taken out of the log
        density
    lines : lines along which variables move that are in no equation and limit each other, see `Space.build`
    totals : counts whose totals take their place in the space, see `model.totals`
    """

    def __init__(
        self,
        model: pm.Model,
        names: list[str],
        point: Point,
        *,
        support: Mapping[str, Any] | None = None,
        equations: Sequence[Equations] = (),
        lines: Mapping[tuple[str, ...], Lines] | None = None,
        totals: Totals | None = None,
    ):
        self.model, self.names, self.point, self._support = model, names, dict(point), dict(support or {})
        self.equations, self.lines, self.totals = list(equations), dict(lines or {}), totals or {}
        self.shapes = {name: np.shape(point[name]) for name in names}

    # ------------------------------------------------------------ the variables
    @cached_property
    def supports_of_values(self) -> dict[str, Bounds]:
        """{name: (lower, upper)} of the model's variables, where a side without a bound has None.

        In `supports`, the bounds of a total replace the bounds of a count whose place the total takes.
        """
        return {name: support_of(self.model, name, self._support) for name in self.names}

    @cached_property
    def supports(self) -> dict[str, Bounds]:
        """{name: (lower, upper)} of the unknowns of the space, where a side without a bound has None.

        Where a total takes the place of a count, the bounds are the bounds of the total.
        """
        return self.supports_of_values | bounds_of_totals(self.model, self.totals)

    @cached_property
    def scales(self) -> dict[str, float]:
        """{name of a variable without bounds: the scale of its window}.

        The offsets of a window are powers of two up to a multiple of the scale. A scale is therefore rounded
        down to a power of two, so that models whose windows are the same share what is compiled.
        """
        unbounded = {
            name for name, bounds in self.supports_of_values.items() if any(b is None for b in bounds)
        }
        found = deviations(self.model, unbounded, self.point)
        scales = {name: float(2 ** np.floor(np.log2(max(s, SMALLEST / 2)))) for name, s in found.items()}
        for name, parts in self.totals.items():
            scales[name] = max(scales.get(part, SMALLEST) for part in parts)
        return scales

    @cached_property
    def nominal(self) -> list[str]:
        """The variables whose values are labels without an order."""
        return [name for name in self.names if is_nominal(self.model, name)]

    @cached_property
    def sums(self) -> dict[str, np.ndarray]:
        """{name of a vector of counts whose sum is known: its sums}."""
        rvs = {str(v.name): rv for rv, v in self.model.rvs_to_values.items() if v.name in self.names}
        return {name: totals for name, rv in rvs.items() if (totals := fixed_sums(rv)) is not None}

    @cached_property
    def permutations(self) -> list[str]:
        """The variables whose values are permutations."""
        return [
            str(v.name)
            for rv, v in self.model.rvs_to_values.items()
            if v.name in self.names and is_permutation(rv)
        ]

    @cached_property
    def partitions(self) -> list[str]:
        """The variables whose values name the clusters of a partition."""
        return [
            str(v.name)
            for rv, v in self.model.rvs_to_values.items()
            if v.name in self.names and is_partition(rv)
        ]

    @cached_property
    def systems(self) -> dict[tuple[str, ...], tuple[np.ndarray, np.ndarray, list[str]]]:
        """{variables that linear equations A x = y join: (A, y, the name of each equation)}."""
        return systems_of(self.equations, self.sums, self.shapes)

    # ------------------------------------------------------------ objects built from the variables
    def space(self, window: Any, **widths: Any) -> Space:
        """The space of the values of the variables.

        Parameters
        ----------
        window : the neighbours of sites without a finite support, as `Space.build` takes it
        widths : options of `Space.build` that say which values of sites with a wide support are evaluated
        """
        tied = {name for together in self.systems for name in together}
        return Space.build(
            self.supports,
            self.shapes,
            window,
            self.scales,
            # an equation does arithmetic with the values of a label, which then have an order
            [name for name in self.nominal if name not in tied],
            sums={name: y for name, y in self.sums.items() if name not in tied},
            permutations=self.permutations,
            equations=self.systems,
            lines=self.lines,
            partitions=self.partitions,
            **widths,
        )

    def graph(
        self, written: pm.Model, each: Space, join: bool, terms: Sequence[Variable] | None = None
    ) -> LogpGraph:
        """The log density as a graph, see `logp_graph`.

        Parameters
        ----------
        written : the model, with `Number`s in place of its data and constants
        each : the space of the variables
        join : whether variables of one kind, at the same position of terms that are alike, become parts of
            one vector
        terms : the terms of the log density, if they differ from the terms that PyMC gives
        """
        alone = [v for v in each.variables if v.constraint is None and v.lines is None]
        constrained = [v.name.split(MADE) for v in each.variables if v.constraint is not None]
        return logp_graph(
            written,
            self.names,
            self.point,
            self.supports,
            {v.name: v.kind for v in alone} if join else None,
            united=[list(together) for together in [*self.systems, *self.lines]],
            constrained={name for names in constrained for name in names},
            # Comparisons that state equations are left out of the graph. An equation has the index of its
            # comparison's term among those that PyMC gives; if other terms are passed, nothing is left out.
            equal={e.place: e.shape for e in self.equations if e.place is not None and terms is None},
            totals=self.totals,
            terms=terms,
        )

    def by_totals(self, space: Space) -> ByTotals:
        """The map between the sites of a space, some of which are totals, and the values of the model."""
        own = Space.build(self.supports_of_values, self.shapes)
        order = np.concatenate([own.numbers(m.name).reshape(-1) for m in space.members])
        return ByTotals(
            Linear.of_arrays(self.totals, space.members),
            Linear.of_arrays(counts_of_totals(self.totals), space.members),
            own.lower[order],
            own.upper[order],
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that is equal for blocks with the same density, if their models have the same structure."""
        return (
            tuple(self.names),
            key_of_object(
                [self.supports_of_values, self.scales, self.sums, self.permutations, self.partitions]
            ),
            key_of_object({name: np.shape(value) for name, value in self.point.items()}),
            key_of_object(
                [[tuple(e) for e in self.equations], [(k, tuple(v)) for k, v in self.lines.items()]]
            ),
            key_of_object([self.totals, self.supports]),
        )


def systems_of(
    equations: Sequence[Equations], sums: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]]
) -> dict[tuple[str, ...], tuple[np.ndarray, np.ndarray, list[str]]]:
    """{variables that linear equations A x = y join: (A, y, the name of each equation)}.

    If a variable in an equation also has fixed sums, these become further equations.

    Parameters
    ----------
    sums : {variable: its fixed sums}
    shapes : {variable: shape}
    """
    groups: list[set[str]] = []
    for e in equations:
        joined = set(e.coefficients).union(*(g for g in groups if g & set(e.coefficients)))
        groups = [g for g in groups if not g & joined] + [joined]
    systems = {}
    for group in groups:
        names = tuple(name for name in shapes if name in group)
        blocks: list[dict[str, np.ndarray]] = []
        totals: list[np.ndarray] = []
        labels: list[str] = []
        for e in equations:
            if set(e.coefficients) <= group:
                blocks.append(e.coefficients)
                totals.append(e.totals)
                labels += e.labels
        for name in names:
            if name in sums:
                *batch, c = shapes[name]
                blocks.append({name: np.kron(np.eye(int(np.prod(batch)), dtype=int), np.ones(c, int))})
                totals.append(np.broadcast_to(sums[name], batch).reshape(-1))
                labels += [f"the sum of {name!r}" + (f"{list(i)}" if i else "") for i in np.ndindex(*batch)]
        sizes = {name: int(np.prod(shapes[name])) for name in names}
        matrix = np.concatenate(
            [
                np.concatenate(
                    [block.get(name, np.zeros((len(y), sizes[name]), int)) for name in names], axis=1
                )
                for block, y in zip(blocks, totals, strict=True)
            ]
        )
        systems[names] = (matrix, np.concatenate(totals), labels)
    return systems
