"""The slice sampling step for continuous variables."""

import inspect
import logging
from dataclasses import field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from pymc.blocking import PointType, StatsType
from pymc.exceptions import SamplingError
from pymc.model import modelcontext
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator
from rich.progress import TextColumn
from rich.table import Column

from pymc_discrete.checks import check_auto_or_count
from pymc_discrete.kernels import slice as slices
from pymc_discrete.kernels.random import key_of_words
from pymc_discrete.steps.compiling import announced, announcing
from pymc_discrete.steps.fork import refuse_after_fork
from pymc_discrete.steps.not_finite import impossible, raise_not_finite
from pymc_discrete.steps.sending import SentWhole
from pymc_discrete.steps.tuning import HOST_COST, OPERATIONS
from pymc_discrete.steps.without_jax import no_jax_version
from pymc_discrete.targets.blocks import CONTINUOUS, block_of
from pymc_discrete.targets.continuous import ContinuousDensity
from pymc_discrete.targets.model_settings import model_settings
from pymc_discrete.targets.names import shown

_log = logging.getLogger("pymc.discrete")

UPDATE = 2.0  # microseconds of an update besides its evaluations
EVALUATIONS = 8.0  # of an update, in the mean
MOST_SWEEPS = 4  # a chain that they leave correlated needs another step, and not more of them
STILL = 0.9  # share of updates that go nowhere above which a chain is said to stand still


@dataclass_state
class ReparameterizedSliceState(StepMethodState):
    asked_sweeps: int | str = field(metadata={"frozen": True})
    tune: bool
    checked: bool
    drawn: int
    tune_draws: int
    widths: Any


class ReparameterizedSlice(SentWhole):
    """Slice sampling for continuous variables: no gradient, nothing to tune by hand, exact.

    For what NUTS cannot take: densities without a gradient, with kinks, jumps or regions of probability zero,
    supports that depend on discrete variables, tails without moments. Where NUTS works it mixes faster, above
    all in many dimensions.

    Parameters
    ----------
    vars : RV, name or value variable, or a list of them, optional
        What to sample; by default every continuous free variable.
    sweeps : "auto" or int
        Sweeps per draw, each of as many updates as there are coordinates; by default 1, and up to 4 while
        they cost less than the host's call.
    model, blocked, rng, initial_point, compile_kwargs
        As in PyMC's own steps; `compile_kwargs` has no effect, since this step compiles through JAX.

    Attributes
    ----------
    density : ContinuousDensity
    sweeps : int, sweeps per draw

    Raises
    ------
    ValueError, TypeError
        For variables or options that cannot be sampled so, each with the reason and the remedy.

    Notes
    -----
    A sweep updates along the axes in random order or, by a coin, along a random orthonormal frame made
    to the shape of the posterior as tuning saw it (blocks of more than 500 coordinates: along the axes only).
    Each update draws a height under the density and a point of that slice by stepping out and shrinkage.
    *Invariance*: exact, for any density, slices of several pieces included. Directions and widths are frozen
    after tuning and do not look at the point; given them Neal's procedure is reversible, because the
    intervals that lead from one point to another are as probable from there to here. The search of the
    paper's App. E is not (bisection finds *a* root), and is not used; `differentiable_slice_sample` uses it,
    with an acceptance test.

    Values are those of PyMC's unconstrained space: a bounded variable has no edge there. With
    `default_transform=None` it has one, which is exact too.

    Sampler statistics: `slice_expansions` and `slice_shrinkages` (of an update, mean over the draw),
    `slice_stayed` (share of updates that went nowhere), `lp`.

    References
    ----------
    Neal 2003, Slice sampling, Fig. 3 and 5. Zoltowski, Cai and Adams 2021, Slice Sampling
    Reparameterization Gradients, Section 2.1.

    Examples
    --------
    >>> with pm.Model():
    ...     n = pm.Poisson("n", 3.0)
    ...     x = pm.Uniform("x", 0.0, 1.0 + n)
    ...     idata = pm.sample(step=[pmd.ReparameterizedSlice("x"), pmd.AutoStep("n")])  # doctest: +SKIP
    """

    name = "reparameterized_slice"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "slice_expansions": (np.float64, []),
        "slice_shrinkages": (np.float64, []),
        "slice_stayed": (np.float64, []),
        "model_logp": (np.float64, []),
    }
    _state_class = ReparameterizedSliceState

    def __new__(cls, vars: Any = None, *more, **options):
        if more:
            raise TypeError(
                f"{cls.__name__} takes its variables in one list, {cls.__name__}([...]), and options by name "
                "only."
            )
        known = [p for p in inspect.signature(cls.__init__).parameters if p not in ("self", "vars")]
        for name in options:
            if name not in known:
                raise TypeError(f"{cls.__name__} has no option {name!r}; it has {', '.join(known)}.")
        model = modelcontext(options.get("model"))
        values = {v.name: v for v in model.value_vars}
        return super().__new__(cls, [values[name] for name in block_of(model, vars, CONTINUOUS)], **options)

    def __init__(
        self,
        vars: Any = None,
        *,
        sweeps: int | str = "auto",
        model: pm.Model | None = None,
        blocked: bool = True,
        rng: Any = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict | None = None,
    ):
        del compile_kwargs  # PyTensor's
        check_auto_or_count("sweeps", sweeps, "sweeps per draw")
        self.model, self.blocked, self.asked_sweeps = modelcontext(model), blocked, sweeps
        self._names = block_of(self.model, vars, CONTINUOUS)
        values = {v.name: v for v in self.model.value_vars}
        self.vars = [values[name] for name in self._names]
        self.rng = get_random_generator(rng)
        self._initial_point = initial_point
        self._build()
        self.tune, self.tune_draws = True, 0
        self._reset()

    # ------------------------------------------------------------ what is built, none of which starts JAX
    def _build(self) -> None:
        self._density: ContinuousDensity | None = self.fresh_density()
        self._draw_compiled: Any = None

    @model_settings()
    def fresh_density(self) -> ContinuousDensity:
        """A density that shares nothing with another."""
        point = self.model.initial_point() if self._initial_point is None else self._initial_point
        missing = [str(v.name) for v in self.model.value_vars if v.name not in point]
        if missing:
            raise ValueError(
                f"initial_point has no value for {', '.join(missing)}. Give every value variable, as "
                "model.initial_point() does."
            )
        if not any(np.size(point[name]) for name in self._names):
            has = "has" if len(self._names) == 1 else "have"
            raise ValueError(
                f"{shown(self._names)} {has} no elements: there is nothing to sample. Leave the step out."
            )
        try:
            return ContinuousDensity(self.model, self._names, {k: np.array(v) for k, v in point.items()})
        except NotImplementedError as e:
            raise no_jax_version(self._names, e, "pm.Slice") from e

    @property
    def density(self) -> ContinuousDensity:
        if self._density is None:  # in a worker, which got the model and not what was compiled from it
            self._build()
            assert self._density is not None
        return self._density

    @property
    def sweeps(self) -> int:
        if self.asked_sweeps != "auto":
            return int(self.asked_sweeps)
        microseconds = self.density.size * (UPDATE + EVALUATIONS * self.density.cost / OPERATIONS)
        return int(np.clip(HOST_COST / microseconds, 1, MOST_SWEEPS))

    @property
    def _draw(self):
        """The compiled draw: (seed (2,) uint32, q (size,), others, widths, (learn, due, sweeps)) -> (widths,
        statistics and q).
        """
        if self._draw_compiled is None:
            density = self.density

            def draw(seed, q, others, widths, flags):
                key = key_of_words(seed)
                learn, due, sweeps = flags
                q, widths, info = slices.draw(
                    key, q, density.near(q, others), widths, learn > 0, due > 0, sweeps
                )
                total = density.block(q, others) + density.rest(others)
                return widths, jnp.concatenate([jnp.stack([total, *info]), q])

            self._draw_compiled = announcing(jax.jit(draw), self.named())
        return self._draw_compiled

    def named(self) -> str:
        """The step and its variables, for a message."""
        return f"{type(self).__name__} for {shown(self._names)}"

    def renew(self) -> None:
        """Build again where pm.Data changed."""
        if self.density.stale():
            self._initial_point = None  # whose shapes are those of the old data
            self._build()
            self._reset()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_density": None, "_draw_compiled": None, "_widths": self.widths}

    @property
    def widths(self) -> slices.Widths:
        """What is learned of the chain; JAX's arrays between draws, NumPy's for those who ask."""
        return jax.tree.map(np.asarray, self._widths)

    @widths.setter
    def widths(self, value: slices.Widths) -> None:
        self._widths = value

    # ------------------------------------------------------------ a chain
    def _reset(self) -> None:
        self.widths = slices.start(self.density.size)
        self.checked, self.drawn = False, 0

    def setup_chain(self, rng, tune: int, draws: int) -> None:
        super().setup_chain(rng, tune, draws)
        self.tune, self.tune_draws = tune > 0, tune
        self._reset()

    @model_settings()
    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        if not self.checked:
            refuse_after_fork()
            self.renew()
            self.check_start(point)
            self.checked = True
        due = (
            self.tune and self.drawn < self.tune_draws and bool(slices.renewals(self.tune_draws)[self.drawn])
        )
        seed = self.rng.integers(2**32, size=2, dtype=np.uint32)
        others = self.density.others(point)
        flags = np.array([self.tune, due, self.sweeps])
        self._widths, found = self._draw(seed, self.density.ravel(point, np), others, self._widths, flags)
        found = np.asarray(found)
        logp, expansions, shrinkages, stayed = found[:4].tolist()
        logp += self.density.untouched.on_host(others)
        new = self.density.joined(found[4:], point)
        if not logp < np.inf:
            raise_not_finite(self.density.graph, new, logp)
        if logp == -np.inf and not self.tune:
            raise SamplingError(impossible(self.density.graph, new, self._names))
        self.drawn += 1
        stats = {
            "slice_expansions": expansions,
            "slice_shrinkages": shrinkages,
            "slice_stayed": stayed,
            "model_logp": logp,
        }
        return new, [stats]

    def check_start(self, point: PointType) -> None:
        """Refuse a start whose density is nan or +inf.

        Raises
        ------
        pymc.exceptions.SamplingError
        NotImplementedError
            Where the model has an Op without a JAX version.
        """
        try:
            with announced(f"{self.named()}: the log density, to check the start"):
                logp = float(jax.jit(self.density.logdensity)({k: np.asarray(v) for k, v in point.items()}))
        except NotImplementedError as e:
            raise no_jax_version(self._names, e, "pm.Slice") from e
        if not logp < np.inf:
            raise_not_finite(self.density.graph, point, logp)

    def stop_tuning(self) -> None:
        super().stop_tuning()
        for complaint in self.complaints(self.widths, self.tune_draws):
            _log.warning(complaint)

    def complaints(self, learned: slices.Widths, tune_draws: int) -> list[str]:
        """What a user should know of a chain whose tuning of so many draws has ended."""
        if tune_draws < 100 or learned.stayed < STILL:
            return []
        still = "stands still" if len(self._names) == 1 else "stand still"
        return [
            f"{type(self).__name__}: {shown(self._names)} all but {still}: {100 * learned.stayed:.0f} of 100 "
            "slices hold no other point that floating point numbers tell apart. Look for a variable that is "
            "fixed by others, or for a scale far below the rounding of its location, and write the model so "
            "that it is free."
        ]

    @staticmethod
    def _progressbar_config(n_chains: int = 1):
        columns = [
            TextColumn("{task.fields[expansions]:0.1f}", table_column=Column("Expansions", ratio=1)),
            TextColumn("{task.fields[shrinkages]:0.1f}", table_column=Column("Shrinkages", ratio=1)),
        ]
        return columns, {"expansions": [0.0] * n_chains, "shrinkages": [0.0] * n_chains}

    @staticmethod
    def _make_progressbar_update_functions():
        def update_stats(step_stats):
            return {
                "expansions": step_stats["slice_expansions"],
                "shrinkages": step_stats["slice_shrinkages"],
            }

        return (update_stats,)
