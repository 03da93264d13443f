"""What all steps share: arguments, what is built from a model, the way to another process, a chain."""

import functools
import inspect
import logging
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import pymc as pm
from pymc.blocking import PointType, StatsType
from pymc.exceptions import SamplingError
from pymc.model import modelcontext
from pymc.step_methods.compound import BlockedStep
from pymc.util import get_random_generator
from rich.progress import TextColumn
from rich.table import Column

from pymc_discrete.steps.fork import refuse_after_fork
from pymc_discrete.steps.not_finite import impossible, raise_not_finite
from pymc_discrete.targets.blocks import DISCRETE, block_of
from pymc_discrete.targets.model_settings import model_settings
from pymc_discrete.targets.names import shown

_log = logging.getLogger("pymc.discrete")  # below PyMC's logger, so that it speaks and is silenced with it

# Microseconds that a draw costs in PyMC's loop besides its transitions: as many transitions as cost no more
# than this are made at every draw
HOST_COST = 100.0
OPERATIONS = 2500.0  # counted operations that a core does in a microsecond


class JaxStep(BlockedStep):
    """A PyMC step for a block of variables, whose draws are compiled by JAX.

    A subclass gives `name`, `kind`, its sampler statistics and state, and the methods below that raise
    NotImplementedError. What it builds from the model and its options is a `functools.cached_property`: built
    when it is first asked for, dropped where pm.Data changed, and built again in another process.

    Parameters
    ----------
    vars, model, blocked, rng, initial_point, compile_kwargs
        As in PyMC's own steps; `compile_kwargs`, which is PyTensor's, has no effect.

    Attributes
    ----------
    kind : which of the model's variables the step takes, "discrete" or "continuous"
    columns : {sampler statistic: (title, format, value before the first draw)}, what the progress bar shows
    checked : whether the start of the chain has been checked
    learned : what tuning has learned of the chain
    tune, tune_draws, draws : whether the chain is tuning, and its numbers of draws
    """

    kind: ClassVar[str] = DISCRETE
    columns: ClassVar[dict[str, tuple[str, str, Any]]] = {}
    learned: Any

    def __new__(cls, vars: Any = None, *more, **options):
        if more:
            raise TypeError(
                f"{cls.__name__} takes its variables in one list, {cls.__name__}([...]), and options by name "
                "only."
            )
        cls.check_options(options)
        model = modelcontext(options.get("model"))
        values = {v.name: v for v in model.value_vars}
        options.pop("_target", None)  # PyMC keeps the options, and the target must not be sent with them
        return super().__new__(cls, [values[name] for name in block_of(model, vars, cls.kind)], **options)

    def __init__(
        self,
        vars: Any = None,
        *,
        model: pm.Model | None = None,
        blocked: bool = True,
        rng: Any = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict | None = None,
    ):
        del compile_kwargs
        self.model, self.blocked = modelcontext(model), blocked
        self._names = block_of(self.model, vars, self.kind)
        values = {v.name: v for v in self.model.value_vars}
        self.vars = [values[name] for name in self._names]
        self.rng = get_random_generator(rng)
        self._initial_point = initial_point
        self._target_options: dict[str, Any] = {}
        self.tune, self.tune_draws, self.draws = True, 0, 0

    # ------------------------------------------------------------ options
    @classmethod
    def check_options(cls, options: dict[str, Any]) -> None:
        """Refuse options that the step does not have."""
        known = cls.option_names()
        for name in options:
            if name not in known and not name.startswith("_"):
                raise TypeError(f"{cls.__name__} has no option {name!r}; it has {', '.join(known)}.")

    @classmethod
    def option_names(cls) -> list[str]:
        """The options of the class's own constructor, then of those that it passes the others on to."""
        own = [c for c in cls.__mro__ if issubclass(c, JaxStep) and "__init__" in c.__dict__]
        every = [p for c in own for p in inspect.signature(c.__init__).parameters.values()]
        return [p.name for p in every if p.kind is p.KEYWORD_ONLY and not p.name.startswith("_")]

    def described(self) -> str:
        """The step, its variables and its options, in a line."""
        frozen = [f.name for f in fields(self._state_class) if f.metadata.get("frozen")]
        own = {name.removeprefix("asked_"): self.__dict__[name] for name in frozen if name in self.__dict__}
        options = [f"{name}={value!r}" for name, value in {**self._target_options, **own}.items()]
        return f"{type(self).__name__}({', '.join(self._names)}; {', '.join(options)})"

    def named(self) -> str:
        """The step and its variables, for a message."""
        return f"{type(self).__name__} for {shown(self._names)}"

    # ------------------------------------------------------------ what is built, none of which starts JAX
    @property
    def density(self) -> Any:
        """The model's log density over the block, with its `graph`."""
        raise NotImplementedError

    def check_density(self) -> None:
        """Refuse a density that the step cannot sample."""

    @classmethod
    def _built(cls) -> set[str]:
        every = [item for c in cls.__mro__ for item in c.__dict__.items()]
        return {name for name, attribute in every if isinstance(attribute, functools.cached_property)}

    def renew(self) -> None:
        """Build again where pm.Data changed."""
        if self.density.stale():
            self._initial_point = None  # whose shapes are those of the old data
            for name in self._built():
                self.__dict__.pop(name, None)
            self.check_density()
            self._reset()

    # ------------------------------------------------------------ another process, or a file
    def __getstate__(self) -> dict[str, Any]:
        """All but what is built."""
        built = self._built()
        return {name: value for name, value in self.__dict__.items() if name not in built}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __reduce__(self) -> tuple[Any, ...]:
        # PyMC's models hold functions that `pickle` alone refuses, so that cloudpickle makes the bytes
        return received, (cloudpickle.dumps((type(self), self.__getstate__())),)

    # ------------------------------------------------------------ a chain
    def _reset(self) -> None:
        """Begin a chain: forget what was learned of the one before."""
        self.checked = False

    def setup_chain(self, rng, tune: int, draws: int) -> None:
        super().setup_chain(rng, tune, draws)
        self.tune, self.tune_draws, self.draws = tune > 0, tune, draws
        self._reset()

    @model_settings()
    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        first = not self.checked
        if first:
            refuse_after_fork()
            self.renew()
            self.check_start(point)
            self.checked = True
        new, logp, stats = self._move(point, first)
        if not logp < np.inf:
            raise_not_finite(self.density.graph, new, logp)
        if logp == -np.inf and not self.tune:
            raise SamplingError(impossible(self.density.graph, new, self._names))
        return new, [{**stats, "model_logp": logp}]

    def check_start(self, point: PointType) -> None:
        """Refuse a start that the step cannot move from.

        Raises
        ------
        pymc.exceptions.SamplingError
        NotImplementedError
            Where the model has an Op without a JAX version.
        """
        raise NotImplementedError

    def _move(self, point: PointType, first: bool) -> tuple[PointType, float, dict[str, Any]]:
        """A draw, `first` of the chain or not: the point, the model's log density there, and statistics."""
        raise NotImplementedError

    def _seed(self) -> np.ndarray:
        """(2,) uint32, of one draw."""
        return self.rng.integers(2**32, size=2, dtype=np.uint32)

    def complaints(self, learned: Any, tune_draws: int) -> list[str]:
        """What a user should know of a chain whose tuning of so many draws has ended."""
        raise NotImplementedError

    def stop_tuning(self) -> None:
        super().stop_tuning()
        for complaint in self.complaints(self.learned, self.tune_draws):
            _log.warning(complaint)

    # ------------------------------------------------------------ progress bar
    @classmethod
    def _progressbar_config(cls, n_chains: int = 1) -> tuple[list[TextColumn], dict[str, list[Any]]]:
        columns = [
            TextColumn(f"{{task.fields[{name}]:{form}}}", table_column=Column(title, ratio=1))
            for name, (title, form, _) in cls.columns.items()
        ]
        return columns, {name: [first] * n_chains for name, (_, _, first) in cls.columns.items()}

    @classmethod
    def _make_progressbar_update_functions(cls) -> tuple[Callable[[dict[str, Any]], dict[str, Any]], ...]:
        return (lambda statistics: {name: statistics[name] for name in cls.columns},)


def received(sent: bytes) -> JaxStep:
    """The step that was sent."""
    kind, state = cloudpickle.loads(sent)
    step = object.__new__(kind)
    step.__setstate__(state)
    return step
