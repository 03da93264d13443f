"""The block of a compiled chain in which a function of the user moves variables."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.exceptions import SamplingError
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs

from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.engine.block import BlockOfStep
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.statistic import Statistic
from pymc_discrete.kernels.random import key_of
from pymc_discrete.model.identity import key_of_object
from pymc_discrete.model.initial import point_of
from pymc_discrete.model.structure_of_model import key_of_model
from pymc_discrete.model.support import bounds_of
from pymc_discrete.runtime.jax_settings import SELDOM, jitted
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.reuse import PROGRAMS, Kept
from pymc_discrete.starts.not_finite import raise_not_finite, terms_at
from pymc_discrete.structure.jaxify import jaxify

# compiled draws by which functions of the user are checked before a run, kept for later runs
_kept: Kept[Callable] = Kept(PROGRAMS)


class CustomBlock(BlockOfStep):
    """A function of the user inside a compiled chain.

    Parameters
    ----------
    step : a `steps.custom.CustomStep`, with the function and the variables
    tune : number of tuning draws, which this block does not use
    points : which of its discrete variables a chain keeps together in one vector
    """

    leaves_impossible = False
    stats: Mapping[str, Statistic] = {"lp": Statistic(float)}

    def __init__(self, step: Any, tune: int, points: Points):
        self.step, self.points = step, points
        model = step.model
        names = step.own_variables
        point = point_of(model)
        self.density, self.numbers = ContinuousDensity.of(model, names, point, points.names, slopes=False)
        self.density.untouched.check_in_jax()
        self._rvs = [rv for rv in model.free_RVs if model.rvs_to_values[rv] in step.vars]
        self._values_of = {str(rv.name): str(model.rvs_to_values[rv].name) for rv in model.free_RVs}
        self._to_user, self._from_user = transformed(model, self._rvs)

    @property
    def key(self) -> Hashable:
        # The key has the key of the whole model, since the user's function may read the model's data, and
        # transforms may read the model's constants.
        return (type(self), key_of_model(self.step.model), self.density, key_of_object(self.step.function))

    def start(self, point: dict[str, np.ndarray]) -> Any:
        if self.step.init is None:
            return ()
        state = self.step.init(self.as_the_user_sees(self.points.packed(point)))
        return jax.tree.map(np.asarray, state)

    def logdensity(self, point: dict[str, np.ndarray]) -> float:
        return float(self.density.compiled("logdensity")(self.points.packed(point) | self.numbers))

    # ------------------------------------------------------------ points as the user sees them
    def as_the_user_sees(self, point: dict[str, Any]) -> dict[str, Any]:
        """{name: value} of all free variables at a point {variable or vector: array}, without PyMC's
        transforms.
        """
        by_name = self.points.by_name(point)
        values = {name: jnp.asarray(by_name[value]) for name, value in self._values_of.items()}
        return values | {
            name: jnp.asarray(function(by_name)).astype(values[name].dtype)
            for name, function in self._to_user.items()
        }

    def draw(self, key, t, point: dict[str, Any], state: Any):
        values = self.as_the_user_sees(point)
        moved, new_state = self.moved(key, values, state)
        new = dict(point)
        # variables are in the model's order, since a transform may depend on earlier variables
        for rv in self._rvs:
            name, value = str(rv.name), self._values_of[str(rv.name)]
            given = moved[name]
            if name in self._from_user:
                given = jnp.asarray(self._from_user[name](given, self.points.by_name(new)))
            new[value] = given.astype(point[value].dtype).reshape(point[value].shape)
        return new, new_state, {"lp": self.density.logdensity(new)}

    def moved(self, key, values: dict[str, Any], state: Any) -> tuple[dict[str, Any], Any]:
        """The new values of the step's variables, and the new state, from the user's function.

        Raises
        ------
        TypeError, ValueError
            If the function does not return a tuple (point, state) with a value of each variable of the step,
            or changes other variables.
        """
        who, result = self.step.named(), self.step.function(key, dict(values), state)
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], dict)):
            raise TypeError(
                f"The function of {who} must return (point, state), a dictionary {{name: array}} and the "
                f"state, got {type(result).__name__}."
            )
        returned, new_state = result
        own = [str(rv.name) for rv in self._rvs]
        missing = [name for name in own if name not in returned]
        if missing:
            raise ValueError(
                f"The function of {who} returned no value for {shown(missing)}. Its point must have every "
                "variable of the step."
            )
        for name, value in returned.items():
            if name not in values:
                raise ValueError(
                    f"The function of {who} returned {name!r}, which is no free variable of the model. It "
                    f"has {shown(values)}."
                )
            if name not in own and value is not values[name]:
                raise ValueError(
                    f"The function of {who} changed {name!r}, which is not among its variables. Name it in "
                    "vars, or leave it out of the returned point."
                )
        moved = {name: jnp.asarray(returned[name]) for name in own}
        for name, value in moved.items():
            if value.shape != values[name].shape:
                raise ValueError(
                    f"The function of {who} returned {name!r} of shape {value.shape}; the variable has the "
                    f"shape {values[name].shape}."
                )
            if values[name].dtype.kind != "f" and value.dtype.kind not in "iub":
                raise TypeError(
                    f"The function of {who} returned {name!r} as {value.dtype}; the variable is discrete. "
                    "Return integers, as .astype(int) gives."
                )
        before, after = (described_tree(s) for s in (state, new_state))
        if before != after:
            raise TypeError(
                f"The function of {who} returned a state of another structure, shape or type: {after}, "
                f"where it was given {before}. "
                + ("Pass init= to begin with a state." if not jax.tree.leaves(state) else "Keep it as it is.")
            )
        return moved, new_state

    def check_starts(self, points: list[dict[str, np.ndarray]]) -> None:
        point, state = self.points.packed(points[0]), self.start(points[0])
        draw = _kept.get((self.key, key_of_object(self.points.names)), lambda: jitted(self.draw, SELDOM))
        new, _, stats = draw(key_of(0), 0, point | self.numbers, state)
        new, who = self.points.by_name(new), self.step.named()
        for rv in self._rvs:
            name, value = str(rv.name), np.asarray(new[self._values_of[str(rv.name)]])
            if not np.isfinite(value).all():
                raise SamplingError(
                    f"The function of {who} made {name!r} nan or infinite, or moved it to the edge of its "
                    "support or beyond."
                )
            low, high = (bounds_of(rv) or (None, None)) if value.dtype.kind in "iub" else (None, None)
            if (low is not None and (value < low).any()) or (high is not None and (value > high).any()):
                raise SamplingError(
                    f"The function of {who} moved {name!r} out of its support: it is {shown_value(value)}."
                )
        lp, at = float(stats["lp"]), {name: np.asarray(value) for name, value in new.items()}
        if lp == -np.inf and self.logdensity(points[0]) > -np.inf:
            terms = shown(terms_at(self.density.graph, at).get("-inf", []))
            raise SamplingError(
                f"The function of {who} moved to where the log density is -inf, through "
                f"{terms or 'one of its terms'}. Return only points of the support, as given by the others."
            )
        if not lp < np.inf:
            raise_not_finite(self.density.graph, at, lp)


def transformed(model: pm.Model, rvs: list[Variable]) -> tuple[dict[str, Callable], dict[str, Callable]]:
    """PyMC's transforms of variables as JAX functions, in both directions.

    Returns
    -------
    to_user : {name: (point) -> value as the user sees it}, for all transformed variables
    from_user : {name: (value as the user sees it, point) -> value of the value variable}, for the transformed
        variables among `rvs`
    """
    values = {str(v.name): v for v in model.value_vars}
    with_transform = [rv for rv in model.free_RVs if model.rvs_to_transforms[rv] is not None]

    def function(outputs: list[Variable], first: list[Variable]) -> Callable:
        shared = [v for v in graph_inputs(outputs) if isinstance(v, SharedVariable)]
        constants = {v: pt.constant(v.get_value()) for v in shared if hasattr(v.type, "dtype")}
        compute = jaxify([*first, *values.values()], clone_replace(outputs, constants))
        return lambda *args: compute(*args[:-1], *(args[-1][name] for name in values))[0]

    to_user = {
        str(rv.name): function([graph], [])
        for rv, graph in zip(with_transform, model.replace_rvs_by_values(with_transform), strict=True)
    }
    from_user = {}
    for rv in (rv for rv in rvs if rv in with_transform):
        given = rv.type(name=f"{rv.name} as given")
        forward = model.rvs_to_transforms[rv].forward(given, *rv.owner.inputs)
        from_user[str(rv.name)] = function(model.replace_rvs_by_values([forward]), [given])
    return to_user, from_user


def described_tree(tree: Any) -> str:
    """The structure of a pytree, with the shapes and types of its leaves."""
    return str(jax.tree.map(lambda a: f"{jnp.result_type(a)}{list(jnp.shape(a))}", tree))


def shown_value(value: np.ndarray) -> str:
    """A value, or the range of an array, for a message."""
    return f"{value}" if value.ndim == 0 else f"from {value.min()} to {value.max()}"
