"""The base class of steps in which PyMC's NUTS moves on a density that JAX computes."""

import functools
import logging
from abc import abstractmethod
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pymc as pm
from jax import Array
from pymc.blocking import PointType, StatsType
from pymc.step_methods.compound import BlockedStep

from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.differences.invariants import separated
from pymc_discrete.engine.nuts_options import DEFAULTS, OfNuts
from pymc_discrete.model.blocks import CONTINUOUS, DISCRETE, free, value_name
from pymc_discrete.model.initial import point_of
from pymc_discrete.model.structure_of_model import Snapshot
from pymc_discrete.runtime.jax_settings import jitted
from pymc_discrete.runtime.names import shown
from pymc_discrete.steps.ahead import NUTS_STATISTICS
from pymc_discrete.steps.base import say_changed
from pymc_discrete.steps.draws_ahead import DrawsAhead, WhatMoves
from pymc_discrete.steps.for_nuts import moved_in_jax

_log = logging.getLogger("pymc.discrete")


class NutsInJax(DrawsAhead, BlockedStep):
    """A step that has continuous variables, which PyMC's NUTS moves, and other variables, which it draws
    itself.

    In a list of steps, as in `step=[pmd.AutoStep(), pm.Slice([a])]`, a step is made before the steps after
    it, and cannot see that one of those also moves `a`. Each of the two steps leaves the posterior invariant,
    so that both together are right; but the work is done twice, and `a` may be a variable that NUTS should
    not move. A variable that has moved since the last draw is therefore left to the other step, while the
    chain tunes.

    Everything that the step builds from the model is a `functools.cached_property`, which is built on first
    use, dropped when pm.Data has changed, and built again in another process.
    """

    name = "collapsed_nuts"
    default_blocked = True
    stats_dtypes_shapes = pm.NUTS.stats_dtypes_shapes
    statistics_beside_nuts: ClassVar[dict[str, Any]] = {}
    _make_progressbar_update_functions = staticmethod(pm.NUTS._make_progressbar_update_functions)

    model: pm.Model
    rng: np.random.Generator
    tune: bool
    options: dict[str, Any]
    _initial_point: PointType | None
    _continuous: list[str]
    _draws: int
    _last: PointType
    _tune_draws, _draws_wanted = 0, 0  # the numbers of draws that `setup_chain` announces

    @staticmethod
    def divided_by_kind(model: pm.Model, vars: Any) -> tuple[list[str], list[str]]:
        """The names of the continuous and of the discrete value variables among the given ones; None means
        all.

        Raises
        ------
        ValueError
            For a name that is no free variable.
        """
        continuous, discrete = free(model, CONTINUOUS), free(model, DISCRETE)
        if vars is None:
            return continuous, discrete
        given = [value_name(model, v) for v in (vars if isinstance(vars, list | tuple) else [vars])]
        unknown = [name for name in given if name not in [*continuous, *discrete]]
        if unknown:
            raise ValueError(
                f"CollapsedNUTS: {shown(unknown)} is no free variable of the model. It has "
                f"{shown([*continuous, *discrete])}."
            )
        return [n for n in continuous if n in given], [n for n in discrete if n in given]

    # ------------------------------------------------------------ draws that are made ahead
    @property
    def own_variables(self) -> list[str]:
        """Names of the value variables that the step moves."""
        return [str(v.name) for v in self.vars]

    @property
    def by_nuts(self) -> list[str]:
        """Names of the value variables that NUTS moves."""
        return self._continuous

    @abstractmethod
    def on(self, model: pm.Model) -> Any:
        """The same step for another model that has the same variables."""

    def moves(self) -> WhatMoves:
        steps, summed = self._discrete_part()
        slots = [0] * (1 + len(steps))
        return WhatMoves(steps, summed, self._continuous, self.of_nuts, slots)

    @property
    def of_nuts(self) -> OfNuts:
        """The options of NUTS."""
        nuts = {**DEFAULTS, "max_treedepth": self.options["max_treedepth"]}
        return OfNuts(self.options["target_accept"], nuts)

    @abstractmethod
    def _discrete_part(self) -> tuple[list[Any], list[str]]:
        """The steps that draw discrete variables, and the variables that are summed out."""

    @property
    def who(self) -> str:
        return "CollapsedNUTS"

    def named(self) -> str:
        """The step and its variables, as messages name them."""
        return f"CollapsedNUTS for {shown([v.name for v in self.vars])}"

    def _ahead_if_whole(self) -> None:
        """From now on, make draws before PyMC asks for them, if the step moves its whole model and JAX can
        move all variables.
        """
        if len(self.vars) == len(self.model.value_vars) and moved_in_jax(self.model) is not None:
            self.settings = f"{self.named()}; {self.options}"
            self.declare({**NUTS_STATISTICS, **self.statistics_beside_nuts})
            self.start_ahead()

    def _progressbar_config(self, n_chains: int = 1) -> tuple[list[Any], dict[str, list[Any]]]:
        self.expect_chains(n_chains)
        return pm.NUTS._progressbar_config(n_chains)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        return self.ahead.step(point) if self.draws_ahead else self._in_turn(point)

    @abstractmethod
    def _in_turn(self, point: PointType) -> tuple[PointType, StatsType]:
        """Make one draw, where other steps move some variables of the model."""

    # ------------------------------------------------------------ built on first use
    @functools.cached_property
    def _snapshot(self) -> Snapshot:
        """The content of the model at the time when the step built its densities."""
        return Snapshot.of(self.model)

    @functools.cached_property
    def _functions(self) -> dict[tuple[str, ...], "LogpAndGradient"]:
        """{continuous variables: the density in which NUTS moves them}, for the sets of variables needed so
        far.
        """
        return {}

    @abstractmethod
    def _function_of(self, names: list[str]) -> "LogpAndGradient":
        """The density of some continuous variables given all others."""

    @functools.cached_property
    def _function(self) -> "LogpAndGradient":
        names = tuple(self._moving)
        if names not in self._functions:
            self._functions[names] = self._function_of(self._moving)
        return self._functions[names]

    @property
    @abstractmethod
    def _nuts(self) -> pm.NUTS:
        """PyMC's NUTS step for the continuous variables in `_moving`, with the density of this class."""

    def _point(self) -> PointType:
        return point_of(self.model) if self._initial_point is None else self._initial_point

    # ------------------------------------------------------------ running a chain
    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        super().setup_chain(rng, tune, draws)
        self.tune, self._draws, self._last = tune > 0, 0, {}
        self._tune_draws, self._draws_wanted = tune, draws
        self._move_only(self._continuous)
        if not self._snapshot.is_of(self.model):
            say_changed(self.named(), self._snapshot.added(self.model))
            # the cached point is dropped, since it has the variables and shapes of data from before the
            # change
            self._initial_point = None
            for name in self._built():
                self.__dict__.pop(name, None)
            # reading the property takes the snapshot now, so that later changes of the model are noticed
            _ = self._snapshot
        if self.draws_ahead:
            self.ahead.set_up(self.rng, tune, draws)

    def _move_only(self, names: list[str]) -> None:
        """Let NUTS move only the named continuous variables; NUTS is built anew for them, without
        adaptation."""
        self._moving = list(names)
        for name in ("_function", "_nuts"):
            self.__dict__.pop(name, None)

    def _nuts_draw(self, point: PointType) -> tuple[PointType, StatsType]:
        """The new values of the variables that NUTS moves, and its statistics.

        Parameters
        ----------
        point : a point with all variables that the density reads
        """
        kept = self._last if self.tune else {}
        foreign = [name for name, value in kept.items() if not np.array_equal(point[name], value)]
        if foreign:
            _log.info(f"CollapsedNUTS leaves {shown(foreign)} to another step, which moves it as well.")
            self._move_only([n for n in self._moving if n not in foreign])
        if not self._moving:
            whole = self._functions[tuple(self._continuous)]
            whole.hold(point)
            nothing = {
                name: None if shape is None else np.zeros(shape, dtype)[()]
                for name, (dtype, shape) in self.stats_dtypes_shapes.items()
            }
            return {}, [{**nothing, "model_logp": whole.at(point)}]
        if foreign or self._draws == 0:
            self._nuts.setup_chain(self.rng.spawn(1)[0], int(self.tune), 0)
        self._function.hold(point)
        # PyMC's NUTS takes all variables of a point for its own, so it gets a point with only its variables
        return self._nuts.step({name: point[name] for name in self._function.names})

    def _keep(self, point: PointType) -> PointType:
        """Return the given point, the result of a draw, and remember the values of NUTS's variables in it.

        At the next draw, these values show whether another step has moved one of the variables.
        """
        self._last = {name: point[name] for name in self._moving}
        self._draws += 1
        return point

    def stop_tuning(self) -> None:
        super().stop_tuning()
        if self.draws_ahead:
            self.ahead.stop_tuning()
        elif self._moving:
            self._nuts.stop_tuning()


class LogpAndGradient:
    """A log density of continuous variables and its gradient, in the form that PyMC's NUTS needs.

    Parameters
    ----------
    density : ContinuousDensity, the log density as a JAX function
    numbers : {name: value}, data and constants of the model, which the density takes as arguments

    Attributes
    ----------
    names : the names of the variables, in the order of the coordinates
    """

    dtype = "float64"
    _raveled_inputs = True

    def __init__(self, density: ContinuousDensity, numbers: dict[str, np.ndarray]):
        self._extra_vars_shared: dict[str, Any] = {}
        self._density, self._numbers = density, numbers
        self.names = [str(v.name) for v in self._density.graph.values]
        self._prepare, self._evaluate = jitted(self._without_q), jitted(self._with_q)

    def _without_q(self, others: list[Any]) -> tuple[list[Any], Any]:
        """All that the density computes from variables which NUTS does not move: it stays the same for a
        whole draw.
        """
        q = jnp.zeros(self._density.size)
        values, self._from_there = separated(self._density.value_and_slope(q, others), q)
        return values, self._density.rest(others)

    def _with_q(self, values: list[Any], rest: Array, q: Array) -> tuple[Array, Array]:
        """The log density and its gradient at q, given what was computed of the variables that NUTS does not
        move.
        """
        value, slope = self._from_there(values, q)
        return value + rest, slope

    def hold(self, point: PointType) -> None:
        """Compute and store what the density needs of the variables of a point that NUTS does not move."""
        self._held = self._prepare(self._density.others(self._numbers | point))

    def at(self, point: PointType) -> float:
        """The log density, nats, at a point; of variables that NUTS does not move, `hold` has the values."""
        q = np.concatenate([np.ravel(point[name]) for name in self.names])
        return float(self._pytensor_function(q)[0])

    def _pytensor_function(self, q: np.ndarray) -> tuple[Any, np.ndarray]:
        value, slope = self._evaluate(*self._held, q)
        return np.float64(value), np.array(slope)
