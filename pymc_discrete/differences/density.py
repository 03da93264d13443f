"""The log density of a model over a block of its discrete variables, as pure JAX functions."""

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt

from pymc_discrete.differences.parts.part import Part
from pymc_discrete.differences.plan import Plan
from pymc_discrete.differences.recursions import with_matrices
from pymc_discrete.differences.sum_of_parts import ContextOfModel, SumOfParts
from pymc_discrete.integrals.conjugate import read_from, without_conjugate
from pymc_discrete.integrals.integrate import integrated
from pymc_discrete.integrals.integrated_out import (
    ColumnCoefficients,
    ConjugateParameters,
    IntegratedOut,
    JointCoefficients,
)
from pymc_discrete.model.described import DescribedBlock
from pymc_discrete.model.identity import lasting_name
from pymc_discrete.model.in_32_bits import narrowed
from pymc_discrete.model.structure_of_model import Structure, with_numbers
from pymc_discrete.model.untouched import Untouched
from pymc_discrete.runtime.jax_settings import default_settings
from pymc_discrete.runtime.model_settings import model_settings, refuse_another_width, width_of_models
from pymc_discrete.runtime.names import shown
from pymc_discrete.structure.dependence import Dependence
from pymc_discrete.structure.jaxify import PYTENSOR
from pymc_discrete.structure.logp_graph import AUXILIARY
from pymc_discrete.structure.numbers import NUMBER, Number
from pymc_discrete.structure.rounding import rounding_of


class ModelDensity(SumOfParts):
    """The log density of a model over a block of its discrete variables.

    Parameters
    ----------
    block : DescribedBlock
    differences : {"auto", "exact", "gradient"}
        How the differences are computed, as in `target_from_model`.
    window : "auto", "geometric", int or {name: one of these}
        The neighbours of sites without a finite support, as in `target_from_model`.
    structure : Structure, optional
        The structure of the model, if its numbers are inputs of the density and no constants in it.
    join : bool
        Whether variables that play the same role in the model become parts of one vector of the space.
    integrate : names of value variables that are integrated out
    whole : names of variables and potentials whose terms are counted among the terms of the block, even if
        they do not depend on it

    Attributes
    ----------
    graph : LogpGraph
    totals : counts in whose places the space has totals: sums with other counts, which move more easily
    integrated : names of the value variables that are integrated out
    numbers : dict
        {name: value} of the inputs of the density that are data or constants of the model, or further
        variables, whose values a program draws.
    plan : Plan
        The part that computes the differences of each term.
    parts : list of Part
    untouched : Untouched
        The terms that do not depend on the block.
    width_of_jax : bool
        Whether numbers have as many bits as JAX is set to, 32 or 64, instead of those of PyTensor's floats.
    """

    width_of_jax = False

    def __init__(
        self,
        block: DescribedBlock,
        differences: str,
        window: Any,
        join: bool = True,
        structure: Structure | None = None,
        integrate: Sequence[str] = (),
        whole: Sequence[str] = (),
    ):
        super().__init__()
        self.names, self.totals, self.integrated = block.names, block.totals, tuple(integrate)
        self._asked = [differences, window, join, *integrate, *whole]
        each = block.space(window)
        written = block.model if structure is None else with_numbers(block.model, structure)
        terms, conjugate = without_conjugate(written, integrate, block.point)
        self.graph = block.graph(written, each, join, terms)
        if conjugate:
            self.graph = read_from(self.graph, conjugate, f"{NUMBER}for draws with {shown(self.names)}: ")
        if not width_of_models():
            self.graph = narrowed(self.graph, block.model, block.supports)
        labels = [str(v.name) for v in self.graph.values]
        groups = [self.graph.groups[v] for v in self.graph.values]
        self.space = each.grouped(groups, labels)
        self.graph.claim(whole)
        if together := [name for name in integrate if name not in {c.name for c in conjugate}]:
            self.graph = integrated(self.graph, together)
        with_matrices(self.graph)
        dependence = Dependence(self.graph, self.space.starts, self.space.d)
        self.plan = Plan(dependence, self.space, differences)
        if other := self._other_windows(window):
            self.space = block.space(**{"window": window, **other}).grouped(groups, labels)
            self.plan = Plan(dependence, self.space, differences)
        self.parts: list[Part] = self.plan.parts
        self.untouched = Untouched(self.graph)
        if self.totals:
            self.space.totals = block.by_totals(self.space)
        self._compile()
        self._start_at(block.point, self.graph.start)

    def _start_at(self, point: dict[str, np.ndarray], numbers: dict[str, np.ndarray]) -> None:
        names = {str(v.name) for v in self.graph.others if isinstance(v, Number)}
        self.numbers = {name: value for name, value in numbers.items() if name in names}
        self.numbers |= {name: value for name, value in point.items() if name.startswith(AUXILIARY)}
        self.start = {name: np.array(value) for name, value in point.items()}

    @property
    def identity(self) -> list[Any]:
        """A key: densities with equal keys compute the same, and share compiled programs."""
        graph = self.graph
        graphs = [graph.values, graph.others, *graph.terms, *self.untouched.in_jax]
        groups = [graph.groups[v] for v in [*graph.values, *graph.others]]
        shapes = [np.shape(value) for value in graph.start.values()]
        made_of = [groups, shapes, graph.integral, graph.conjugate, self.space, self.totals]
        return [graphs, made_of, self._asked, self.width_of_jax, width_of_models()]

    def lasting_name(self) -> str | None:
        return lasting_name(type(self), self)

    def for_model(
        self, point: dict[str, np.ndarray], numbers: dict[str, np.ndarray]
    ) -> "ModelDensity | None":
        """A density for another model of the same structure, which shares the compiled functions of this one.

        Parameters
        ----------
        point : the default starting point
        numbers : the numbers of the model's structure

        Returns
        -------
        ModelDensity, or None if the numbers make a comparison come out otherwise than this density's graph,
        in which its outcome is a constant, assumes
        """
        values = self.graph.derivation.of(numbers)
        if values is None:
            return None
        other = copy.copy(self)
        other._start_at(point, values)
        return other

    def _other_windows(self, window) -> dict[str, Any]:
        """Options of `Space.build` for windows that the user leaves at "auto", chosen by the cost of
        differences.

        Where differences are first-order estimates, only {x - 1, x + 1} are neighbours (Grathwohl et al.
        2021, footnote 1). Where differences are exact, Gibbs sampling evaluates as many values as are cheap.
        """
        windows = window if isinstance(window, dict) else dict.fromkeys(self.names, window)
        descriptions, groups = self.plan.describe(), [self.graph.groups[v] for v in self.graph.values]
        automatic = [
            not v.finite and all(windows.get(name, "auto") == "auto" for name in groups[n])
            for n, v in enumerate(self.space.variables)
        ]
        if not any(automatic):
            return {}
        near = [
            name
            for n, group in enumerate(groups)
            if automatic[n] and not all(descriptions[name]["exact"] for name in group)
            for name in group
        ]
        if near:
            return {"window": {**windows, **dict.fromkeys(near, 1)}}
        whole, widths = self.plan.wide()
        return {
            "whole": [name for n in whole if automatic[n] for name in groups[n]],
            "widths": {name: width for n, width in widths.items() if automatic[n] for name in groups[n]},
        }

    # ------------------------------------------------------------ the model around the block
    def running(self, traced: bool) -> AbstractContextManager:
        if self.width_of_jax:
            return default_settings()
        if traced:
            refuse_another_width()
            return default_settings()
        return model_settings()

    def default_inputs(self):
        full = self.numbers | self.start
        return [full[v.name] for v in self.graph.others]

    def split(self, point: dict[str, Any]):
        missing = [
            name
            for name in [*self.names, *(str(v.name) for v in self.graph.others)]
            if name not in point and name not in self.numbers
        ]
        if missing:
            raise ValueError(
                f"The point has no value for {', '.join(missing)}. Pass one as model.initial_point() gives "
                "it."
            )
        full = self.numbers | point
        inputs = [np.asarray(full[v.name]) for v in self.graph.others]
        return self.space.ravel(point), inputs, {k: np.asarray(v) for k, v in point.items()}

    def join(self, x: np.ndarray, point: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
        out = dict(self.start if point is None else point)
        out.update(
            {name: part.astype(self.start[name].dtype) for name, part in self.space.unravel(x).items()}
        )
        return out

    @cached_property
    def _rounding(self):
        terms = [t.sum() for _, t in self.graph.terms]
        return rounding_of(pt.add(pt.constant(0.0), *terms), [*self.graph.values, *self.graph.others])

    def rounding(self, point: dict[str, np.ndarray]) -> float:
        """The largest rounding error of the log density at a point, in units of the machine epsilon.

        The error is found from the graph, by `rounding_of`.
        """
        with PYTENSOR, np.errstate(all="ignore"):
            return float(self._rounding(*self.graph.arguments(self.numbers | point)))

    # ------------------------------------------------------------ variables that are integrated out
    @cached_property
    def _integrated(self) -> list[IntegratedOut]:
        graph, found = self.graph, list[IntegratedOut]()
        if graph.integral:
            way = ColumnCoefficients if graph.integral.columns else JointCoefficients
            found.append(way(graph.integral, self._inputs))
        if graph.conjugate:
            found.append(ConjugateParameters(graph.conjugate, self._inputs))
        return found

    def check_integral(self, point: dict[str, np.ndarray]) -> None:
        """Refuse to integrate variables out where the integral is infinite at a point, or would be infinite
        if gates had other values.

        Raises
        ------
        pymc.exceptions.SamplingError
        """
        if self._integrated:
            with self.running(traced=False):
                x, inputs, _ = self.split(point)
                values = self._values(jnp.asarray(x), self.without_parts(inputs))
                for of in self._integrated:
                    of.check(values)

    def draw_integrated(self, key, x, context: ContextOfModel) -> tuple[dict[str, Any], Any]:
        """A draw of the variables that are integrated out, given x, and the log density of the draw in nats.

        Returns
        -------
        values : {name: array}
        logdensity : ()
        """
        drawn, logdensity = dict[str, Any](), jnp.zeros(())
        values = self._values(x, context) if self._integrated else []
        for n, of in enumerate(self._integrated):
            new, density = of.draw(key if n == 0 else jax.random.fold_in(key, n), values)
            drawn |= new
            logdensity = logdensity + density
        return drawn, logdensity
