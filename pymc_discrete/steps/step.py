"""One PyMC step for every kernel."""

import inspect
import logging
from dataclasses import field, fields
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from pymc.blocking import PointType, StatsType
from pymc.exceptions import SamplingError
from pymc.model import modelcontext
from pymc.step_methods.compound import BlockedStep, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator
from rich.progress import TextColumn
from rich.table import Column

from pymc_discrete.kernels import Kernel, adaptation, loop, spread
from pymc_discrete.kernels.settle import settle
from pymc_discrete.steps.checks import (
    STARTS,
    check_choice,
    check_start,
    check_transitions,
    dispersed,
    names_of,
    raise_not_finite,
    without_jax,
)
from pymc_discrete.steps.fork import refuse_after_fork
from pymc_discrete.targets.from_model import ModelDensity, block_of, target_from_model
from pymc_discrete.targets.target import Target

_log = logging.getLogger("pymc.discrete")  # below PyMC's logger, so that it speaks and is silenced with it

# What a draw costs besides its transitions, in microseconds: as many as cost no more come with it
HOST_COST = 100.0
TRANSITION = 2.0  # microseconds besides what is counted
OPERATIONS = 2500.0  # counted ones that a core does in a microsecond


@dataclass_state
class DiscreteStepState(StepMethodState):
    asked_transitions: int | str = field(metadata={"frozen": True})
    start: str = field(metadata={"frozen": True})
    tune: bool
    checked: bool
    impossible: bool
    tune_draws: int
    adaptation: Any
    sums: Any
    params: dict
    transitions: int


class DiscreteStep(BlockedStep):
    """A PyMC step that runs a kernel of `pymc_discrete` on a block of discrete variables.

    A subclass gives `name`, its options and `_make_kernel`, and `reported` for the parameters worth showing.

    Attributes
    ----------
    target : Target
    kernel : Kernel
    params : pytree of the kernel's parameters
    transitions : int, transitions per draw
    """

    name = "discrete_step"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "accept": (np.float64, []),
        "accepted": (np.float64, []),
        "discrete_n_moved": (np.int64, []),
        "model_logp": (np.float64, []),
    }
    _state_class: type = DiscreteStepState
    reported: ClassVar[dict[str, str]] = {}  # sampler statistic: the parameter that it shows

    def __new__(cls, vars: Any = None, *more, **kwargs):
        if more:
            raise TypeError(f"{cls.__name__} takes its variables in one list, {cls.__name__}([...]), and options by name only.")
        model = modelcontext(kwargs.get("model"))
        values = {v.name: v for v in model.value_vars}
        return super().__new__(cls, [values[name] for name in block_of(model, vars)], **kwargs)

    def __init__(
        self,
        vars: Any = None,
        *,
        differences: str = "auto",
        transitions: int | str = "auto",
        support: dict[str, tuple[Any, Any]] | None = None,
        window: Any = "auto",
        start: str = "point",
        model: pm.Model | None = None,
        blocked: bool = True,
        rng: Any = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict | None = None,
    ):
        del compile_kwargs  # PyTensor's; this step compiles through JAX only
        self.model = modelcontext(model)
        self.blocked = blocked
        self._names = block_of(self.model, vars)
        values = {v.name: v for v in self.model.value_vars}
        self.vars = [values[name] for name in self._names]
        self._options = {"differences": differences, "support": support, "window": window}
        self._initial_point = initial_point
        check_transitions(transitions)
        self.asked_transitions = transitions
        check_choice("start", start, STARTS)
        self.start = start
        self.rng = get_random_generator(rng)
        self.tune, self.tune_draws = True, 0
        self.checked = False
        self.impossible = False
        self.kernel, self.params = self._make_kernel()
        self._build()
        self._reset()
        for name, row in self.target.describe().items():
            _log.info(f"{type(self).__name__}: {name}: {row['way']} differences, K={row['K']} ({row['reason']})")

    def _make_kernel(self) -> tuple[Kernel, Any]:
        raise TypeError(f"{type(self).__name__} has no kernel; use one of the steps of pymc_discrete.")

    # ------------------------------------------------------------ building, all of it before JAX runs
    def _build(self) -> None:
        self._target = self.fresh_target()
        self._draw_compiled: Any = None
        self._settle_compiled: Any = None

    def fresh_target(self) -> Target:
        """A target that shares nothing with another."""
        point = self._initial_point
        point = None if point is None else {k: np.array(v) for k, v in point.items()}
        try:
            return target_from_model(self.model, self._names, initial_point=point, **self._options)
        except NotImplementedError as e:
            raise without_jax(self._names, e) from e

    def told_options(self) -> list[str]:
        """What the step was made with, "name=value"."""
        own = {f.name: getattr(self, f.name) for f in fields(self._state_class) if f.metadata.get("frozen") and f.name in self.__dict__}
        return [f"{name.removeprefix('asked_')}={value!r}" for name, value in {**self._options, **own}.items()]

    @property
    def target(self) -> Target:
        if self._target is None:  # in a worker, which got the model and not what was compiled from it
            self._build()
        return self._target

    @property
    def _density(self) -> ModelDensity:
        return cast(ModelDensity, self.target.density)

    @property
    def _draw(self):
        """The compiled draw: (seed (2,) uint32, x (d,), others, params, transitions) -> (x, summary)."""
        if self._draw_compiled is None:
            density, kernel = self.target.density, self.kernel

            def draw(seed, x, others, params, transitions):
                target = Target(density).with_inputs(others)
                key = jax.random.wrap_key_data(seed, impl="threefry2x32")
                state, info = loop(kernel, key, kernel.init(x, target), target, params, transitions)
                total = state.logdensity + target.context["untouched"]
                moved = jnp.sum(state.x != x)
                summary = jnp.stack([total, info.accept, info.accepted, moved, info.n_moves])
                return state.x, summary.astype(jnp.result_type(float))

            self._draw_compiled = jax.jit(draw)
        return self._draw_compiled

    def _settled(self, x: np.ndarray, others: list) -> np.ndarray:
        """x nearer to the bulk, while tuning, where the kernel itself stands still."""
        if self._settle_compiled is None:
            density = self.target.density

            def run(seed, x, others):
                return settle(jax.random.wrap_key_data(seed, impl="threefry2x32"), x, Target(density).with_inputs(others))

            self._settle_compiled = jax.jit(run)
        return np.asarray(self._settle_compiled(self._seed(), x, others))

    def _seed(self) -> np.ndarray:
        return self.rng.integers(2**32, size=2, dtype=np.uint32)

    # ------------------------------------------------------------ tuning
    def _reset(self) -> None:
        """What belongs to one chain, as it was before the chain."""
        self.checked = False
        self.impossible = False
        _, self.params = self._make_kernel()
        tuned = self.kernel.tuned
        if tuned is not None:
            self._set(tuned.name, float(np.clip(self.params[tuned.name], *self._bounds)))
        self.adaptation = adaptation.start(1.0 if tuned is None else self.params[tuned.name])
        self.sums = None
        if self.kernel.scaled(self.target.space):
            self.sums = spread.no_sums(self.target.space)
            start = np.concatenate([np.ravel(self._density.start[v.name]) for v in self.target.space.variables])
            self._set("scale", spread.guess(self.target.space, start))
        asked = self.asked_transitions
        self.transitions = self._auto_transitions(self.expected_moves()) if asked == "auto" else int(asked)

    def _set(self, name: str, value: Any) -> None:
        self.params = {**self.params, name: value}  # a saved state keeps its own

    @property
    def _bounds(self) -> tuple[float, float]:
        tuned = self.kernel.tuned
        return (1.0, 1.0) if tuned is None else tuned.bounds(self.target.space)

    def _auto_transitions(self, n_moves: float) -> int:
        """At least one pass over the sites, and more while they cost less than the host's call."""
        microseconds = TRANSITION * self._rounds + self._density.plan.cost(self._moves_one_site) / OPERATIONS
        one_pass = int(np.ceil(self.target.space.d / max(n_moves, 1.0)))
        return max(one_pass, int(HOST_COST / microseconds), 1)

    @property
    def _moves_one_site(self) -> bool:
        """Whether a transition changes one site only."""
        return False

    @property
    def _rounds(self) -> int:
        """How many computations of a transition have to wait for one another."""
        return 1

    def expected_moves(self) -> float:
        """Moves in a proposal before anything was measured."""
        return 1.0

    def _adapt(self, x: np.ndarray, accept: float, n_moves: float, moved: float) -> None:
        """After a tuning draw that ended at x."""
        self.adaptation = adaptation.update(self.adaptation, accept, n_moves, moved, self._bounds, self.tune_draws)
        if self.kernel.tuned is not None:
            self._set(self.kernel.tuned.name, float(np.exp(self.adaptation.log_value)))
        if self.sums is not None:
            seen, space = self.adaptation.seen, self.target.space
            self.sums, scale = spread.update(self.sums, self.params["scale"], x, seen, self.tune_draws, space)
            self._set("scale", scale)
        if self.asked_transitions == "auto":
            self.transitions = self._auto_transitions(self.adaptation.moves)

    # ------------------------------------------------------------ sampling
    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        if not self.checked:
            self._first(point)
        graph, space = self._density.graph, self.target.space
        x = self._ravel(point)
        if not self.checked and self.start == "dispersed":
            x = dispersed(x, self.target.at(point)[1], self.rng)
        self.checked = True
        others = [point[v.name] for v in graph.others]
        if self.tune and self.adaptation.stuck:
            x = self._settled(x, others)
        y, summary = self._draw(self._seed(), x, others, self.params, self.transitions)
        y, (logp, accept, accepted, moved, n_moves) = np.asarray(y), np.asarray(summary).tolist()
        if not logp < np.inf:
            raise_not_finite(self.target, point, y, logp)
        self.impossible = logp == -np.inf
        if self.impossible and not self.tune:
            self._raise_impossible()
        new = dict(point)
        for start, v in space.blocks:
            new[v.name] = y[start : start + v.size].reshape(v.shape).astype(point[v.name].dtype, copy=False)
        stats = {"accept": accept, "accepted": accepted, "discrete_n_moved": int(moved), "model_logp": logp}
        stats.update({stat: self.params[name] for stat, name in self.reported.items()})
        if self.tune:
            self._adapt(y, accept, n_moves, moved)
        return new, [stats]

    def _first(self, point: PointType) -> None:
        """Before a chain's first draw."""
        refuse_after_fork()
        self.renew()
        check_start(self.target, point, self._ravel(point))

    def renew(self) -> None:
        """Build again where pm.Data changed."""
        if self._density.stale():
            self._initial_point = None  # whose shapes are those of the old data
            self._build()
            self._reset()

    def _ravel(self, point: PointType) -> np.ndarray:
        if len(self._names) == 1:
            return np.asarray(point[self._names[0]], np.int64).reshape(-1)
        return np.concatenate([np.asarray(point[n], np.int64).reshape(-1) for n in self._names])

    def setup_chain(self, rng, tune: int, draws: int) -> None:
        super().setup_chain(rng, tune, draws)
        self.tune, self.tune_draws = tune > 0, tune
        self._reset()

    def stop_tuning(self) -> None:
        super().stop_tuning()
        self._freeze()
        if self.impossible:
            self._raise_impossible()
        for complaint in self.complaints(self.adaptation, self.tune_draws):
            _log.warning(complaint)

    def _raise_impossible(self) -> None:
        raise SamplingError(self.impossible_message())

    def impossible_message(self) -> str:
        return (
            f"The log density is -inf: the start of {names_of(self.target)} is impossible, and tuning found nothing possible near it. "
            "Pass initvals= that the data allow (a latent count no smaller than what was counted); if there are none, the model excludes "
            "its data."
        )

    def _freeze(self) -> None:
        """The tuned value is the mean over the second half of tuning."""
        tuned = self.kernel.tuned
        if tuned is not None and self.adaptation.seen:
            self._set(tuned.name, float(np.exp(self.adaptation.mean)))

    def complaints(self, learned: adaptation.Adaptation, tune_draws: int) -> list[str]:
        """What a user should know of a chain whose tuning of so many draws has ended."""
        found, tuned, name = [], self.kernel.tuned, type(self).__name__
        if tune_draws >= 100 and learned.accept < adaptation.STILL:
            found.append(
                f"{name}: fewer than one in a hundred moves of {names_of(self.target)} was accepted in the second half of tuning: the "
                "chain all but stands still. Either only one value is possible, or a gradient misleads it: try differences='exact' or "
                "balancing='barker'."
            )
        lower = self._bounds[0]
        low = learned.accept < adaptation.TARGET_ACCEPT - 0.1
        if tuned is not None and learned.seen and low and np.exp(learned.mean) <= 1.05 * lower:
            found.append(
                f"{name}: {tuned.name} is at its lower bound {lower:g} and the acceptance is {learned.accept:.2f}, below "
                f"{adaptation.TARGET_ACCEPT}: these variables are hard for this proposal. Try pmd.BlockGibbs, or, where several sites "
                "must change together, pmd.PathAuxiliary(path_length=5, recompute=True)."
            )
        return found

    # ------------------------------------------------------------ PyMC's bookkeeping
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_target": None, "_draw_compiled": None, "_settle_compiled": None, "kernel": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.kernel, _ = self._make_kernel()

    @staticmethod
    def _progressbar_config(n_chains: int = 1):
        columns = [
            TextColumn("{task.fields[accept]:0.2f}", table_column=Column("Accept", ratio=1)),
            TextColumn("{task.fields[moved]}", table_column=Column("Moved", ratio=1)),
        ]
        return columns, {"accept": [0.0] * n_chains, "moved": [0] * n_chains}

    @staticmethod
    def _make_progressbar_update_functions():
        def update_stats(step_stats):
            return {"accept": step_stats["accept"], "moved": step_stats["discrete_n_moved"]}

        return (update_stats,)


def check_options(cls: type, options: dict[str, Any]) -> None:
    """Refuse options that a step does not have, by the step's own name."""
    known = inspect.signature(DiscreteStep.__init__).parameters
    for name in options:
        if name not in known:
            own = [p for p in inspect.signature(cls).parameters if p not in ("self", "vars", "options")]
            choice = ", ".join([*own, *(p for p in known if p not in ("self", "vars"))])
            raise TypeError(f"{cls.__name__} has no option {name!r}; it has {choice}.")
