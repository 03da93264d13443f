"""The base class of all steps: options, objects built from a model, pickling, the course of a chain."""

import functools
import inspect
import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pymc as pm
from pymc.blocking import PointType, StatsType
from pymc.exceptions import SamplingError
from pymc.step_methods.compound import BlockedStep
from pymc.util import get_random_generator
from rich.progress import TextColumn
from rich.table import Column

from pymc_discrete.diagnostics.watch import Watch
from pymc_discrete.engine.nuts_options import OfNuts
from pymc_discrete.model.blocks import DISCRETE, block_of, free, model_of
from pymc_discrete.model.in_tensors import values_by_name
from pymc_discrete.model.structure_of_model import Snapshot
from pymc_discrete.model.support import reason_refused
from pymc_discrete.runtime.checks import check_options
from pymc_discrete.runtime.fork import refuse_after_fork
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.runtime.names import shown, untransformed
from pymc_discrete.runtime.waiting import watched
from pymc_discrete.starts.not_finite import NOT_FOUND, impossible, raise_not_finite, read_by_impossible
from pymc_discrete.steps.ahead import NUTS_STATISTICS
from pymc_discrete.steps.draws_ahead import DrawsAhead, WhatMoves

_log = logging.getLogger("pymc.discrete")  # a child of PyMC's logger, with the same level and handlers

# The time, in microseconds, that PyMC's own loop takes for each draw. By default a draw makes at least as
# many transitions as can be computed in this time.
HOST_COST = 100.0
# the number of operations of a graph, in units of an addition, that a core does in a microsecond
OPERATIONS = 2500.0


class JaxStep(DrawsAhead, BlockedStep):
    """A PyMC step for a block of variables, whose draws are compiled by JAX.

    A subclass defines `name`, `kind`, its sampler statistics and state, and the abstract methods. Everything
    that the step builds from the model and its options is a `functools.cached_property`, which is built on
    first use, dropped when the model has changed (pm.Data, or a variable or potential that was added after
    the step was made), and built again in another process.

    Parameters
    ----------
    vars, model, blocked, rng, initial_point, compile_kwargs
        As in PyMC's own steps; `compile_kwargs`, which is meant for PyTensor, has no effect.

    Attributes
    ----------
    kind : which of the model's variables the step takes, "discrete" or "continuous"
    constrained : whether the step takes vectors whose elements cannot change alone
    equations : whether the step moves variables that linear equations tie, along vectors that keep the
        equations
    columns : {sampler statistic: (title, format, value before the first draw)}, columns of the progress bar
    checked : whether the start of the chain has been checked
    learned : what tuning has learned about the chain
    by_nuts, of_nuts : names of the continuous value variables that NUTS moves in the step's own program, and
        the options of this NUTS
    tune : whether the chain is tuning
    tune_draws : number of tuning draws of the chain
    draws : number of draws of the chain after tuning
    """

    kind: ClassVar[str] = DISCRETE
    constrained: ClassVar[bool] = False
    equations: ClassVar[bool] = False
    columns: ClassVar[dict[str, tuple[str, str, Any]]] = {}
    learned: Any
    by_nuts: Sequence[str] = ()
    of_nuts = OfNuts()

    @watched("Looking at the variables of a step")
    def __new__(cls, vars: Any = None, *positional: Any, **options: Any) -> Any:
        if positional:
            raise TypeError(
                f"{cls.__name__} takes its variables in one list, {cls.__name__}([...]), and options by name "
                "only."
            )
        cls.check_options(options)
        model = model_of(options.get("model"), vars, cls.__name__)
        values = values_by_name(model)
        # PyMC pickles the options with the step. A target among them, which was built already, is left out.
        options.pop("_target", None)
        names = block_of(model, vars, cls.kind, constrained=cls.constrained, equations=cls.equations)
        for name in free(model, cls.kind) if vars is None else ():
            if name not in names and (why := reason_refused(model, name, cls.constrained, cls.equations)):
                _log.info(f"{cls.__name__} leaves {name!r} to another step: it is {why}.")
        more = cls.also_moved(model, names, options)
        return super().__new__(cls, [values[name] for name in [*names, *more]], **options)

    def __init__(
        self,
        vars: Any = None,
        *,
        model: pm.Model | None = None,
        blocked: bool = True,
        rng: Any = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
    ):
        del compile_kwargs
        self.model, self.blocked = model_of(model), blocked
        self._names = block_of(
            self.model, vars, self.kind, constrained=self.constrained, equations=self.equations
        )
        values = values_by_name(self.model)
        self.vars = [values[name] for name in self._names]
        self.rng = get_random_generator(rng)
        self._initial_point = initial_point
        self._target_options: dict[str, Any] = {}
        self.tune, self.tune_draws, self.draws = True, 0, 0

    def _is_whole(self) -> bool:
        """Whether the step draws all variables of the model."""
        return len(self.vars) == len(self.model.value_vars)

    @property
    def own_variables(self) -> list[str]:
        """Names of the value variables that the step's own method draws."""
        return [str(v.name) for v in self.vars if v.name not in self.by_nuts]

    def draw_ahead(self, by_nuts: Sequence[str] = (), of_nuts: OfNuts = OfNuts()) -> None:  # noqa: B008
        """From now on, make draws before PyMC asks for them, together with draws of some more variables,
        which NUTS moves in the same program.
        """
        self.by_nuts, self.of_nuts = list(by_nuts), of_nuts
        self.settings = f"{self.described()} {of_nuts}" if by_nuts else self.described()
        values = values_by_name(self.model)
        self.vars = [*self.vars, *(values[name] for name in by_nuts)]
        if by_nuts:
            # This is logged, since PyMC prints all variables of a step after the step's name, as if NUTS
            # moved none of them.
            _log.info(f"{type(self).__name__}: NUTS moves {shown(by_nuts)} in the same program.")
            self.declare({**NUTS_STATISTICS, **self.stats_dtypes_shapes})
        self.start_ahead()

    def moves(self) -> WhatMoves:
        return WhatMoves([self], [], self.by_nuts, self.of_nuts, slots=[0, 0])

    @classmethod
    def also_moved(cls, model: pm.Model, names: list[str], options: dict[str, Any]) -> tuple[str, ...]:
        """Names of value variables of another kind that the step draws besides the ones in `names`."""
        return ()

    # ------------------------------------------------------------ options
    @classmethod
    def check_options(cls, options: dict[str, Any]) -> None:
        """Refuse options that the step does not have.

        Raises
        ------
        TypeError
            For the first unknown option.
        """
        check_options(cls.__name__, options, cls.option_names())

    @classmethod
    def option_names(cls) -> list[str]:
        """Names of the options of the class's constructor, then of the constructors of its base classes."""
        classes = [c for c in cls.__mro__ if issubclass(c, JaxStep) and "__init__" in c.__dict__]
        parameters = [p for c in classes for p in inspect.signature(c.__init__).parameters.values()]
        return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and not p.name.startswith("_")]

    def options(self) -> dict[str, Any]:
        """{name: value} of the options that change how the step moves."""
        frozen = [f.name for f in fields(type(self)._state_class) if f.metadata.get("frozen")]
        given = {name.removeprefix("asked_"): self.__dict__[name] for name in frozen if name in self.__dict__}
        return {**self._target_options, **given}

    def on(self, model: pm.Model) -> "JaxStep":
        """The same step for another model that has the same variables."""
        return type(self)(self._names, model=model, **self.options())

    def described(self) -> str:
        """The step, its variables and its options, in one line."""
        options = [f"{name}={value!r}" for name, value in self.options().items()]
        return f"{type(self).__name__}({', '.join(map(untransformed, self._names))}; {', '.join(options)})"

    def named(self) -> str:
        """The step and its variables, as messages name them."""
        return f"{type(self).__name__} for {shown(self._names)}"

    # ------------------------------------------------------------ built on first use, without starting JAX
    @property
    @abstractmethod
    def density(self) -> Any:
        """The model's log density over the block, with its `graph`."""

    @property
    @abstractmethod
    def numbers(self) -> dict[str, np.ndarray]:
        """{name: value} of the density's inputs that are data or constants of the model."""

    @functools.cached_property
    def numbers_on_device(self) -> dict[str, Any]:
        """`numbers` as JAX arrays, since NumPy arrays would be copied in every draw."""
        return {name: jnp.asarray(a) for name, a in self.numbers.items()}

    @functools.cached_property
    def _snapshot(self) -> Snapshot:
        """The content of the model at the time when the density was built."""
        return Snapshot.of(self.model)

    def check_density(self) -> None:
        """Refuse a density that the step cannot sample."""

    def renew(self) -> None:
        """Drop everything that was built and learned, if the model has changed."""
        if not self._snapshot.is_of(self.model):
            say_changed(self.named(), self._snapshot.added(self.model))
            # The initial point, and all that is built on first use, are dropped: they have the variables and
            # the shapes of data from before the change of the model.
            self._initial_point = None
            for name in self._built():
                self.__dict__.pop(name, None)
            self.check_density()
            self._reset()

    # ------------------------------------------------------------ running a chain
    def _reset(self) -> None:
        """Begin a new chain: forget what was learned of the previous one."""
        self.checked = False
        # reading the property takes the snapshot now, so that later changes of the model are noticed
        _ = self._snapshot

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        super().setup_chain(rng, tune, draws)
        self.tune, self.tune_draws, self.draws = tune > 0, tune, draws
        if self.draws_ahead:
            self.renew()
            self.ahead.set_up(self.rng, tune, draws)
        self._reset()

    @model_settings()
    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        if self.draws_ahead:
            return self.ahead.step(point)
        first = not self.checked
        if first:
            refuse_after_fork()
            self.renew()
            self.check_start(point)
            self.checked = True
        new, logp, stats = self._move(point, first)
        if not logp < np.inf:
            raise_not_finite(self.density.graph, self.numbers | new, logp)
        if logp == -np.inf and not self.tune:
            raise SamplingError(impossible(self.model, new, self._names))
        if logp == -np.inf and first and self.stopped_by_nuts() and not self._left_to_others(new):
            raise SamplingError(impossible(self.model, new, self._names, NOT_FOUND))
        return new, [{**stats, "model_logp": logp}]

    def stopped_by_nuts(self) -> bool:
        """Whether PyMC's NUTS runs beside the step, and would stop at an impossible start.

        PyMC's NUTS then gives no reason, so that the step raises its own error, although tuning might have
        left the impossible start.
        """
        return False

    def _left_to_others(self, point: PointType) -> bool:
        """Whether terms that are impossible at a point read discrete variables of other steps, which may draw
        possible values before NUTS runs.
        """
        others = {str(v.name) for v in self.model.discrete_value_vars} - set(self._names)
        return bool(others & read_by_impossible(self.model, point))

    @abstractmethod
    def check_start(self, point: PointType) -> None:
        """Refuse a start that the step cannot move from.

        Raises
        ------
        pymc.exceptions.SamplingError
        NotImplementedError
            Where the model has an Op without a JAX version.
        """

    @abstractmethod
    def _move(self, point: PointType, first: bool) -> tuple[PointType, float, dict[str, Any]]:
        """Make a draw.

        Parameters
        ----------
        point : the model's point
        first : whether it is the first draw of the chain

        Returns
        -------
        point : the new point
        logp : float, nats, the model's log density at the new point
        stats : {name: value} of the sampler statistics
        """

    def _seed(self) -> np.ndarray:
        """(2,) uint32, the seed of a draw."""
        return self.rng.integers(2**32, size=2, dtype=np.uint32)

    @abstractmethod
    def complaints(self, learned: Any, tune_draws: int) -> list[str]:
        """Warnings about a chain when its tuning ends.

        Parameters
        ----------
        learned : what tuning has learned about the chain
        tune_draws : number of tuning draws
        """

    def stop_tuning(self) -> None:
        super().stop_tuning()
        if self.draws_ahead:
            self.ahead.stop_tuning()
            return
        for complaint in self.complaints(self.learned, self.tune_draws):
            _log.warning(complaint)

    def use_learned(self, learned: Any) -> None:
        """Keep the results of tuning of a chain whose draws are made ahead."""

    def watch_from(self, draws: int, point: PointType) -> Watch | None:
        """A `Watch` for the draws of a chain after tuning, the first of which is `point`; None if draws are
        not watched.
        """
        return None

    # ------------------------------------------------------------ progress bar
    def _progressbar_config(self, n_chains: int = 1) -> tuple[list[TextColumn], dict[str, list[Any]]]:
        self.expect_chains(n_chains)
        columns = [
            TextColumn(f"{{task.fields[{name}]:{form}}}", table_column=Column(title, ratio=1))
            for name, (title, form, _) in self.columns.items()
        ]
        values = {name: [first] * n_chains for name, (_, _, first) in self.columns.items()}
        if not self.by_nuts:
            return columns, values
        of_nuts, values_of_nuts = pm.NUTS._progressbar_config(n_chains)
        return [*of_nuts, *columns], {**values_of_nuts, **values}

    def _make_progressbar_update_functions(self) -> tuple[Callable[[dict[str, Any]], dict[str, Any]], ...]:
        def update(statistics: dict[str, Any]) -> dict[str, Any]:
            shown = {name: statistics[name] for name in self.columns}
            if not self.by_nuts:
                return shown
            (of_nuts,) = pm.NUTS._make_progressbar_update_functions()
            return {**of_nuts(statistics), **shown}

        return (update,)


def say_changed(step: str, added: list[str]) -> None:
    """Log that a step is built anew, if its model has gained variables after the step was made."""
    if added:
        were = "was" if len(added) == 1 else "were"
        _log.info(f"{step} was made before {shown(added)} {were} added to the model, and is built anew.")
