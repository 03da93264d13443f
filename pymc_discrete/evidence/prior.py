"""Draws of the prior of a model, and where given draws lie among its values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
from pymc.pytensorf import compile as compile_graph
from pytensor.graph.basic import Variable

# Draws are made one after another: a mode in which PyTensor compiles little.
MODE = "FAST_COMPILE"


class Prior:
    """The free variables of a model: draws from their prior, and their values in the model's own terms.

    Parameters
    ----------
    model : pm.Model, without observed variables
    fixed : names of variables that keep their starting values
    seed : of the draws
    """

    def __init__(self, model: pm.Model, fixed: tuple[str, ...], seed: int):
        self._start = {name: np.asarray(v) for name, v in model.initial_point().items() if name in fixed}
        self._rvs = [rv for rv in model.free_RVs if rv.name not in fixed]
        self._names = [str(model.rvs_to_values[rv].name) for rv in self._rvs]
        self._values = [value_of(model, rv) for rv in self._rvs]
        self._draw = compile_graph([], self._values, random_seed=seed, mode=MODE)

    def draw(self) -> dict[str, np.ndarray]:
        """{value variable: value} of one draw.

        Raises
        ------
        ValueError
            If a prior cannot be drawn from.
        """
        try:
            with np.errstate(all="ignore"):  # outside of an ordered transform's domain, values are nan
                values = self._draw()
        except NotImplementedError as error:
            raise ValueError(self._refusal(error)) from error
        return dict(zip(self._names, map(np.asarray, values), strict=True)) | self._start

    def _refusal(self, error: NotImplementedError) -> str:
        """Which variable cannot be drawn, and what to do."""
        for rv in self._rvs:
            try:
                compile_graph([], rv, mode=MODE)()
            except NotImplementedError:
                why = str(error).splitlines()[0].rstrip(".")
                return (
                    f"The prior of {rv.name!r} cannot be drawn from: {why}. The evidence needs a proper "
                    "prior: in place of pm.Flat, say, pm.Normal, and for a pm.CustomDist random=."
                )
        return str(error)

    @property
    def names(self) -> list[str]:
        """The names of the free variables."""
        return [str(rv.name) for rv in self._rvs]

    def converter(self) -> Callable[..., dict[str, np.ndarray]]:
        """A function ({free variable: value}) -> {value variable: value}."""
        convert = compile_graph(self._rvs, self._values, mode=MODE, on_unused_input="ignore")

        def convert_one(draw: dict[str, Any]) -> dict[str, np.ndarray]:
            given = [np.asarray(draw[str(rv.name)], rv.type.dtype) for rv in self._rvs]
            return dict(zip(self._names, map(np.asarray, convert(*given)), strict=True)) | self._start

        return convert_one


def value_of(model: pm.Model, rv: Variable) -> Variable:
    """The value variable of a random variable, as a function of the random variable."""
    transform = model.rvs_to_transforms[rv]
    return rv if transform is None else transform.forward(rv, *rv.owner.inputs)
