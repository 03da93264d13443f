"""A target from a PyMC model and some of its discrete variables."""

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.model import modelcontext

from pymc_discrete.targets.blocks import block_of, value_name
from pymc_discrete.targets.conditionals import Conditionals
from pymc_discrete.targets.differences import Differences
from pymc_discrete.targets.in_32_bits import narrowed
from pymc_discrete.targets.jax_settings import default_settings
from pymc_discrete.targets.logp import logp_graph
from pymc_discrete.targets.model_settings import model_settings, refuse_another_width, width_of_models
from pymc_discrete.targets.plan import Plan, check_way
from pymc_discrete.targets.rounding import rounding_of
from pymc_discrete.targets.space import Space
from pymc_discrete.targets.support import deviations, is_nominal, support_of
from pymc_discrete.targets.target import Target


class ModelDensity:
    """The log density of a model over a block of its discrete variables.

    Parameters
    ----------
    model, names, point, differences, support, window : as in `target_from_model`, with every option given
    join : whether variables that play the same part in the model become parts of one vector of the space

    Attributes
    ----------
    width_of_jax : whether numbers are as wide as JAX is set, and not as PyTensor is
    """

    width_of_jax = False

    def __init__(
        self,
        model: pm.Model,
        names: list[str],
        point: dict[str, np.ndarray],
        differences: str,
        support,
        window,
        join: bool = True,
    ):
        self.model, self.names = model, names
        self.order = list(point)
        self.start = {name: np.array(value) for name, value in point.items()}
        supports = {name: support_of(model, name, (support or {}).get(name)) for name in names}
        shapes = {name: np.shape(point[name]) for name in names}
        scale = deviations(model, {name for name in names if any(b is None for b in supports[name])}, point)
        nominal = [name for name in names if is_nominal(model, name)]

        each = Space.build(supports, shapes, window, scale, nominal)
        self.graph = logp_graph(
            model, names, point, supports, {v.name: v.kind for v in each.variables} if join else None
        )
        if not width_of_models():
            self.graph = narrowed(self.graph, model, supports)
        labels = [str(v.name) for v in self.graph.values]
        groups = [self.graph.groups[v] for v in self.graph.values]
        self.space = each.grouped(groups, labels)
        self.plan = Plan(self.graph, self.space, differences)
        other = self._other_windows(window)
        if other:
            each = Space.build(
                supports, shapes, **{"window": window, "scale": scale, "nominal": nominal, **other}
            )
            self.space = each.grouped(groups, labels)
            self.plan = Plan(self.graph, self.space, differences)
        self._evaluate = Differences(self.plan)
        self.untouched = self._evaluate.untouched
        self.local = self.plan.local is not None
        self.exact = not self.plan.gradients

    def _other_windows(self, window) -> dict[str, Any]:
        """What `Space.build` is to be told of windows that are left to us, now that it is known what a
        difference costs.

        A first-order estimate is asked about {x - 1, x + 1} only (Grathwohl et al. 2021, footnote 1), and
        exact differences about as many values as are cheap.
        """
        asked = window if isinstance(window, dict) else dict.fromkeys(self.names, window)
        rows, groups = self.plan.describe(), [self.graph.groups[v] for v in self.graph.values]
        ours = [
            not v.finite and all(asked.get(name, "auto") == "auto" for name in groups[n])
            for n, v in enumerate(self.space.variables)
        ]
        if not any(ours):
            return {}
        near = [
            name
            for n, own in enumerate(groups)
            if ours[n] and not all(rows[name]["exact"] for name in own)
            for name in own
        ]
        if near:
            return {"window": {**asked, **dict.fromkeys(near, 1)}}
        whole, widths = self.plan.wide()
        return {
            "whole": [name for n in whole if ours[n] for name in groups[n]],
            "widths": {name: width for n, width in widths.items() if ours[n] for name in groups[n]},
        }

    def running(self, traced: bool) -> AbstractContextManager:
        if self.width_of_jax:
            return default_settings()
        if traced:
            refuse_another_width()
            return default_settings()
        return model_settings()

    @functools.cached_property
    def _rounding(self):
        terms = [t.sum() for _, t in self.graph.terms]
        return rounding_of(pt.add(pt.constant(0.0), *terms), [*self.graph.values, *self.graph.others])

    def rounding(self, point: dict[str, np.ndarray]) -> float:
        """By how much the log density may be off at a point, in nats over the spacing of floats at 1 (see
        `rounding_of`).
        """
        with np.errstate(all="ignore"):
            return float(self._rounding(*self.graph.arguments(point)))

    def stale(self) -> bool:
        """Whether pm.Data changed since the graph was built."""
        return any(not np.array_equal(v.get_value(borrow=True), value) for v, value in self.graph.shared)

    def prepare(self, inputs: Sequence[Any]) -> dict[str, Any]:
        return self._evaluate.context(
            [
                jnp.asarray(i, jax.dtypes.canonicalize_dtype(v.type.dtype))
                for i, v in zip(inputs, self.graph.others, strict=True)
            ]
        )

    def default_inputs(self):
        return [self.start[v.name] for v in self.graph.others]

    def split(self, point: dict[str, Any]):
        missing = [
            name for name in [*self.names, *(str(v.name) for v in self.graph.others)] if name not in point
        ]
        if missing:
            raise ValueError(
                f"The point has no value for {', '.join(missing)}. Pass one as model.initial_point() gives "
                "it."
            )
        inputs = [np.asarray(point[v.name]) for v in self.graph.others]
        return self.space.ravel(point), inputs, {k: np.asarray(v) for k, v in point.items()}

    def join(self, x: np.ndarray, point: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
        out = dict(self.start if point is None else point)
        out.update(
            {name: part.astype(self.start[name].dtype) for name, part in self.space.unravel(x).items()}
        )
        return out

    def logdensity(self, x, context):
        return self._evaluate.logdensity(x, context)

    def centred(self, x, context):
        return self._evaluate.centred(x, context)

    def differences(self, x, context):
        return self._evaluate.differences(x, context)

    def update(self, x, differences, sites, context):
        return self._evaluate.update(x, differences, sites, context)

    def touched(self, sites):
        return self._evaluate.touched(sites)

    @functools.cached_property
    def conditionals(self) -> Conditionals:
        return Conditionals(self._evaluate)

    def describe(self) -> dict[str, dict[str, Any]]:
        return self.plan.describe()


def target_from_model(
    model: pm.Model | None = None,
    vars: Any = None,
    *,
    differences: str = "auto",
    support: dict[str, tuple[Any, Any]] | None = None,
    window: Any = "auto",
    initial_point: dict[str, np.ndarray] | None = None,
) -> Target:
    """A target from a PyMC model and some of its discrete variables.

    Parameters
    ----------
    model : pm.Model, optional
        By default the model of the context.
    vars : RV, name or value variable, or a list of them
        The block; by default every discrete free variable that is no constrained vector.
    differences : {"auto", "exact", "gradient"}
        "auto" finds exact differences where the graph allows them at a bearable cost and takes the gradient
        elsewhere; "exact" never takes the gradient; "gradient" always does (Grathwohl et al. 2021, Eq. 3 and
        4).
    support : {name: (lower, upper)}, optional
        Inclusive bounds of variables whose distribution does not give them away; None where there is none.
    window : "auto", "geometric", int or {name: one of these}
        Neighbours of integers without a bound, or with more than 256 values that are too dear to look at all:
        offsets ±1, ±2, ±4, ..., or -w..w.
    initial_point : {value variable name: array}, optional
        Gives the shapes of the variables; by default `model.initial_point()`.

    Returns
    -------
    Target

    Raises
    ------
    ValueError
        For variables that cannot be sampled so, each with the reason and the remedy.
    """
    model = modelcontext(model)
    names = block_of(model, vars)
    check_way(differences)
    if support is not None and not isinstance(support, dict):
        raise TypeError(f"support must be a dictionary {{name: (lower, upper)}}, got {support!r}.")
    support = {value_name(model, k): v for k, v in (support or {}).items()}
    for name in support:
        if name not in names:
            raise ValueError(
                f"support names {name!r}, which is no variable of the block: {', '.join(names)}."
            )
    if isinstance(window, dict):
        window = {value_name(model, k): v for k, v in window.items()}
    point = model.initial_point() if initial_point is None else initial_point
    missing = [str(v.name) for v in model.value_vars if v.name not in point]
    if missing:
        raise ValueError(
            f"initial_point has no value for {', '.join(missing)}. Give every value variable, as "
            "model.initial_point() does."
        )
    if not any(np.size(point[name]) for name in names):
        raise ValueError(
            f"{', '.join(map(repr, names))} has no elements: there is nothing to sample. Leave the step out."
        )
    with model_settings():
        return Target(ModelDensity(model, names, dict(point), differences, support, window))
