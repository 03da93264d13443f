"""Draws of the prior of a model; and given draws, converted to {value variable: value}."""

from typing import Any

import numpy as np
import pymc as pm
from pymc.pytensorf import compile as compile_graph

from pymc_discrete.model.initial import point_of
from pymc_discrete.runtime.compiling import QUICKLY_COMPILED
from pymc_discrete.tempering.prior_draws import transformed_value


class ModelPrior:
    """Draws of the free variables of a model from their prior; and given draws, converted to {value variable:
    value}.

    Parameters
    ----------
    model : pm.Model, without observed variables
    fixed : names of variables that keep their starting values
    seed : the seed of the draws
    """

    def __init__(self, model: pm.Model, fixed: tuple[str, ...], seed: int):
        self._start = {name: np.asarray(v) for name, v in point_of(model).items() if name in fixed}
        self._rvs = [rv for rv in model.free_RVs if rv.name not in fixed]
        self._names = [str(model.rvs_to_values[rv].name) for rv in self._rvs]
        self._draw = compile_graph([], self._rvs, random_seed=seed, mode=QUICKLY_COMPILED)
        values = [transformed_value(model, rv) for rv in self._rvs]
        self._convert = compile_graph(self._rvs, values, mode=QUICKLY_COMPILED, on_unused_input="ignore")

    def draw(self) -> dict[str, np.ndarray]:
        """One draw of the prior, as {value variable: value}.

        Raises
        ------
        ValueError
            If a prior cannot be drawn from.
        """
        try:
            drawn = [np.asarray(a) for a in self._draw()]
        except (NotImplementedError, ValueError) as error:
            raise ValueError(self._refusal(error)) from error
        return self._named(drawn)

    def convert(self, draw: dict[str, Any]) -> dict[str, np.ndarray]:
        """{value variable: value}, from a draw {free variable: value}."""
        return self._named([np.asarray(draw[str(rv.name)], rv.type.dtype) for rv in self._rvs])

    def _named(self, drawn: list[np.ndarray]) -> dict[str, np.ndarray]:
        """{value variable: value}, from the values of the free variables.

        A draw that was rounded to the end of its support is transformed to an infinite value. So it is first
        moved inside, to the next floating-point number.
        """
        with np.errstate(all="ignore"):  # Outside of the domain of an ordered transform, values are nan.
            values = [np.asarray(a) for a in self._convert(*drawn)]
            for k, value in enumerate(values):
                if not np.isinf(value).any():
                    continue
                for end in (np.inf, -np.inf):
                    inside = [*drawn[:k], np.nextafter(drawn[k], drawn[k].dtype.type(end)), *drawn[k + 1 :]]
                    moved = np.asarray(self._convert(*inside)[k])
                    values[k] = np.where(np.isfinite(values[k]), values[k], moved)
        return dict(zip(self._names, values, strict=True)) | self._start

    def _refusal(self, error: Exception) -> str:
        """The text of an error: the variable that cannot be drawn, and the remedy."""
        for rv in self._rvs:
            try:
                compile_graph([], rv, mode=QUICKLY_COMPILED)()
            except (NotImplementedError, ValueError):
                why = str(error).splitlines()[0].rstrip(".")
                remedy = (
                    "Look for nan, and for parameters outside their domain: model.debug() says which."
                    if isinstance(error, ValueError)
                    else "The evidence needs a proper prior: in place of pm.Flat, say, pm.Normal, and for a "
                    "pm.CustomDist random=."
                )
                return f"The prior of {rv.name!r} cannot be drawn from: {why}. {remedy}"
        return str(error)

    @property
    def names(self) -> list[str]:
        """The names of the free variables."""
        return [str(rv.name) for rv in self._rvs]
