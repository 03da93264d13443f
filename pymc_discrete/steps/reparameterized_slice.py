"""The slice sampling step for continuous variables."""

import functools
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from pymc.blocking import PointType
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state

from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.engine.slice import STATISTICS_OF_SLICES
from pymc_discrete.engine.statistic import as_pymc_declares
from pymc_discrete.kernels import slice as slices
from pymc_discrete.kernels.random import key_of_words
from pymc_discrete.model.blocks import CONTINUOUS
from pymc_discrete.model.initial import point_of
from pymc_discrete.model.without_jax import no_jax_version
from pymc_discrete.runtime.checks import check_auto_or_count
from pymc_discrete.runtime.compiling import announced, announcing
from pymc_discrete.runtime.jax_settings import jitted
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.reuse import PROGRAMS, Kept
from pymc_discrete.starts.not_finite import raise_not_finite
from pymc_discrete.steps.base import HOST_COST, OPERATIONS, JaxStep
from pymc_discrete.steps.for_nuts import moved_in_jax

_kept: Kept[Callable[..., Any]] = Kept(PROGRAMS)

# the time of a slice update along one direction, in microseconds, besides its evaluations of the density
UPDATE = 2.0
EVALUATIONS = 8.0  # the mean number of evaluations of the density in a slice update
# the largest number of sweeps that "auto" chooses; if draws stay correlated, another step helps more than
# further sweeps
MOST_SLICE_SWEEPS = 4
STILL = 0.9  # if a larger share of updates stays in place, the user is warned


@dataclass_state
class ReparameterizedSliceState(StepMethodState):
    asked_sweeps: int | str = field(metadata={"frozen": True})
    tune: bool
    checked: bool
    drawn: int
    tune_draws: int
    widths: Any


class ReparameterizedSlice(JaxStep):
    """Slice sampling for continuous variables: exact, without gradients, with nothing to tune by hand.

    For densities that NUTS cannot sample: without a gradient, with kinks, jumps or regions of probability
    zero, with supports that depend on discrete variables, with tails that have no moments. Where NUTS works,
    it mixes faster, above all in many dimensions.

    Parameters
    ----------
    vars : RV, name or value variable, or a list of them, optional
        The variables to sample; by default every continuous free variable.
    sweeps : "auto" or int
        Sweeps per draw, each of as many updates as there are coordinates; by default 1, and up to 4 where
        they take no longer than the overhead of PyMC's loop.
    model, blocked, rng, initial_point, compile_kwargs
        As in PyMC's own steps; `compile_kwargs` has no effect, since this step compiles through JAX.

    Attributes
    ----------
    density : ContinuousDensity
    sweeps : int, sweeps per draw

    Raises
    ------
    ValueError, TypeError
        For variables or options that this step cannot take. The message gives the reason and the remedy.

    Notes
    -----
    A sweep updates, with probability 1/2 each, along the axes in random order, or along a random orthonormal
    frame scaled by the covariance of the tuning draws. Blocks of more than 500 coordinates are updated along
    the axes only. Each update draws a height under the density, and a point of the slice at that height by
    stepping out and shrinkage.

    *Invariance*: exact for any density, also where slices consist of several intervals. Directions and widths
    are frozen after tuning and independent of the point. Given them, Neal's procedure is reversible, because
    the intervals that lead from one point to another have the same probability from either point. The root
    search of Zoltowski, Cai and Adams 2021, App. E, is not reversible (bisection finds *a* root) and not used
    by this step; `differentiable_slice_sample` uses it, with an acceptance test.

    Values are in PyMC's unconstrained space, where the support of a bounded variable has no boundary. With
    `default_transform=None` the support has a boundary, and sampling is exact as well.

    Sampler statistics: `slice_expansions` and `slice_shrinkages` (of an update, mean over the draw),
    `slice_stayed` (share of updates that stayed in place), `lp`.

    References
    ----------
    Neal 2003, Slice sampling. Zoltowski, Cai and Adams 2021, Slice Sampling
    Reparameterization Gradients, Section 2.1.

    Examples
    --------
    >>> with pm.Model():
    ...     n = pm.Poisson("n", 3.0)
    ...     x = pm.Uniform("x", 0.0, 1.0 + n)
    ...     idata = pm.sample(step=[pmd.ReparameterizedSlice("x"), pmd.AutoStep("n")])  # doctest: +SKIP
    """

    name = "reparameterized_slice"
    kind = CONTINUOUS
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = as_pymc_declares(STATISTICS_OF_SLICES)
    _state_class = ReparameterizedSliceState
    columns: ClassVar[dict[str, tuple[str, str, Any]]] = {
        "slice_expansions": ("Expansions", "0.1f", 0.0),
        "slice_shrinkages": ("Shrinkages", "0.1f", 0.0),
    }

    def __init__(self, vars: Any = None, *, sweeps: int | str = "auto", **options: Any):
        super().__init__(vars, **options)
        check_auto_or_count("sweeps", sweeps, "sweeps per draw")
        self.asked_sweeps = sweeps
        _ = self.density  # this raises an error for models that cannot be sampled
        if self._is_whole() and moved_in_jax(self.model) is not None:
            self.draw_ahead()
        self._reset()

    # ------------------------------------------------------------ built on first use, without starting JAX
    @model_settings()
    def fresh_density(self) -> tuple[ContinuousDensity, dict[str, np.ndarray]]:
        """A density of the block, and its numbers for the model."""
        point = point_of(self.model) if self._initial_point is None else self._initial_point
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
            return ContinuousDensity.of(self.model, self._names, point, slopes=False)
        except NotImplementedError as e:
            raise no_jax_version(self._names, e, "pm.Slice") from e

    @functools.cached_property
    def density_and_numbers(self) -> tuple[ContinuousDensity, dict[str, np.ndarray]]:
        return self.fresh_density()

    @property
    def density(self) -> ContinuousDensity:
        return self.density_and_numbers[0]

    @property
    def numbers(self) -> dict[str, np.ndarray]:
        return self.density_and_numbers[1]

    @property
    def sweeps(self) -> int:
        if self.asked_sweeps != "auto":
            return int(self.asked_sweeps)
        microseconds = self.density.size * (UPDATE + EVALUATIONS * self.density.cost / OPERATIONS)
        return int(np.clip(HOST_COST / microseconds, 1, MOST_SLICE_SWEEPS))

    @functools.cached_property
    def _draw(self) -> Callable[..., Any]:
        """The compiled draw.

        (seed (2,) uint32, q (size,), others, widths, (learn, due, sweeps)) -> (widths, (4 + size,) float):
        the widths of the intervals, and in one array the log density, three statistics and the new q. `learn`
        says whether the draw enters the statistics from which widths follow, and `due` whether widths are
        computed anew after the draw.
        """
        return _kept.get(self.density, self._make_draw)

    def _make_draw(self) -> Callable[..., Any]:
        density = self.density

        def draw(
            seed: Array, q: Array, others: Any, widths: slices.Widths, flags: Array
        ) -> tuple[slices.Widths, Array]:
            key = key_of_words(seed)
            learn, due, sweeps = flags
            q, widths, info = slices.slice_draw(
                key, q, density.near(q, others), widths, learn > 0, due > 0, sweeps
            )
            total = density.block(q, others) + density.rest(others)
            return widths, jnp.concatenate([jnp.stack([total, *info]), q])

        return announcing(jitted(draw), self.named())

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_widths": self.widths}

    @property
    def widths(self) -> slices.Widths:
        """The results of tuning of the chain, as NumPy arrays; draws keep them as JAX arrays."""
        return jax.tree.map(np.asarray, self._widths)

    @widths.setter
    def widths(self, value: slices.Widths) -> None:
        self._widths = value

    @property
    def learned(self) -> slices.Widths:
        return self.widths

    # ------------------------------------------------------------ running a chain
    def _reset(self) -> None:
        super()._reset()
        self.widths = slices.initial_widths(self.density.size)
        self.drawn = 0

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
                full = {k: np.asarray(v) for k, v in point.items()} | self.numbers
                logp = float(self.density.compiled("logdensity")(full))
        except NotImplementedError as e:
            raise no_jax_version(self._names, e, "pm.Slice") from e
        if not logp < np.inf:
            raise_not_finite(self.density.graph, point | self.numbers, logp)

    def _move(self, point: PointType, first: bool) -> tuple[PointType, float, dict[str, Any]]:
        due = self.tune and slices.renewal_due(self.drawn, self.tune_draws)
        others = self.density.others(point | self.numbers_on_device)
        flags = np.array([self.tune, due, self.sweeps])
        q = self.density.ravel(point, np)
        self._widths, numbers = self._draw(self._seed(), q, others, self._widths, flags)
        numbers = np.asarray(numbers)
        logp, *means = numbers[:4].tolist()
        self.drawn += 1
        stats = dict(zip(STATISTICS_OF_SLICES, means, strict=True))
        return self.density.joined(numbers[4:], point), logp + self.density.untouched.on_host(others), stats

    def complaints(self, learned: slices.Widths, tune_draws: int) -> list[str]:
        if tune_draws < 100 or learned.stayed < STILL:
            return []
        still = "stands still" if len(self._names) == 1 else "stand still"
        return [
            f"{type(self).__name__}: {shown(self._names)} all but {still}: {100 * learned.stayed:.0f} of 100 "
            "slices hold no other point that floating point numbers tell apart. Look for a variable that is "
            "fixed by others, or for a scale far below the rounding of its location, and write the model so "
            "that it is free."
        ]
