"""`CollapsedNUTS`: PyMC's NUTS with discrete variables summed out, within `pm.sample`."""

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from jax import Array
from pymc.blocking import PointType, StatsType
from pymc.exceptions import SamplingError
from pymc.util import get_random_generator

from pymc_discrete.collapse.collapsed import STRETCH_VARIABLE, Collapsed
from pymc_discrete.collapse.marginal_op import call_from_numba_quietly
from pymc_discrete.collapse.stretches import FarOut
from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.kernels.random import key_of_words
from pymc_discrete.model.analyses_on_disk import analyses_kept
from pymc_discrete.model.blocks import block_of, model_of
from pymc_discrete.model.in_tensors import values_by_name
from pymc_discrete.runtime.checks import check_options
from pymc_discrete.runtime.fork import refuse_after_fork
from pymc_discrete.runtime.jax_settings import jitted
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.starts.not_finite import NOT_FOUND, impossible
from pymc_discrete.starts.possible_start import possible_start, refuse_nan, say_moved
from pymc_discrete.starts.start import check_support
from pymc_discrete.steps.ahead import moved_by_another
from pymc_discrete.steps.draws_ahead import WhatMoves
from pymc_discrete.steps.integrated_nuts import IntegratedNUTS
from pymc_discrete.steps.nuts_in_jax import LogpAndGradient, NutsInJax
from pymc_discrete.steps.shared import LeftValues
from pymc_discrete.steps.suited import sampled_instead

_log = logging.getLogger("pymc.discrete")


class CollapsedNUTS(NutsInJax):
    r"""PyMC's NUTS for continuous variables, with discrete variables summed out and drawn again in the same
    step.

    NUTS moves :math:`\theta` on :math:`\log \sum_z p(z, \theta)`, which JAX computes with its gradient, and
    :math:`z` is then drawn from :math:`p(z \mid \theta)`. Variables without a bound, or with many values, are
    summed over some of their values, drawn anew in each step, which leaves the posterior invariant. Where all
    sites together are too many to sum out, as on a large lattice, each draw sums out a part of them, chosen
    at random, given the others.

    Parameters
    ----------
    vars : list of variables or names, optional
        Continuous variables, which NUTS moves, and discrete variables, which are summed out; by default all
        variables of the model.
    model : pm.Model, optional
    target_accept : float
        Acceptance that the step size is tuned to.
    max_treedepth : int
        The largest depth of a trajectory.
    integrate : None, "auto", or a list of variables or names
        Coefficients that are integrated out, see `GibbsWithGradients`. The discrete variables are then not
        summed out: the step that `AutoStep` chooses draws them, NUTS moves the other continuous variables,
        both with the coefficients integrated out, and the coefficients are drawn last. PyMC's log calls this
        step `IntegratedNUTS`.
    blocked, rng, initial_point, compile_kwargs
        As in PyMC's own steps; `compile_kwargs`, which is meant for PyTensor, has no effect.

    Raises
    ------
    ValueError
        If no continuous or no discrete variable is among `vars`, if there is a vector whose elements change
        only together, such as a Multinomial, or if the sum would be too large.
    NotImplementedError
        If a term joins too many sites.

    Notes
    -----
    The sampler statistics are the statistics of NUTS; `model_logp` is the log density of the model, with the
    discrete variables. With `integrate` there are also the statistics of the discrete step.

    A step cannot add groups to the result: `recover` adds the probabilities of the discrete variables, and
    the log likelihood with them summed out.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pm.sample(step=pmd.CollapsedNUTS())
    ...     idata = pm.sample(step=pmd.CollapsedNUTS(integrate="auto"))
    """

    def __new__(cls, vars: Any = None, **options: Any) -> Any:
        names = inspect.signature(CollapsedNUTS.__init__).parameters
        check_options("CollapsedNUTS", options, [n for n in names if n not in ("self", "vars")])
        if not options.get("blocked", True):
            raise ValueError("CollapsedNUTS moves all of its variables together: leave out blocked=False.")
        if options.get("integrate") is not None:
            return IntegratedNUTS(vars, **options)
        model = model_of(options.get("model"), vars, cls.__name__)
        values = values_by_name(model)
        continuous, discrete = cls.names_of(model, vars)
        return super().__new__(cls, [values[name] for name in [*continuous, *discrete]], **options)

    def __init__(
        self,
        vars: Any = None,
        *,
        model: pm.Model | None = None,
        target_accept: float = 0.8,
        max_treedepth: int = 10,
        integrate: Any = None,
        blocked: bool = True,
        rng: Any = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
    ):
        del compile_kwargs, integrate
        if pytensor.config.floatX != "float64":
            raise ValueError(
                "CollapsedNUTS needs 64 bits: sums over many states lose too much in float32. Set "
                'pytensor.config.floatX = "float64" before the model is made.'
            )
        self.model, self.blocked = model_of(model), blocked
        self._continuous, self.summed = self.names_of(self.model, vars)
        values = values_by_name(self.model)
        self.vars = [values[name] for name in [*self._continuous, *self.summed]]
        self.rng = get_random_generator(rng)
        self._initial_point = initial_point
        self.options = {"target_accept": target_accept, "max_treedepth": max_treedepth}
        self.tune, self._draws, self._last = True, 0, {}
        self._move_only(self._continuous)
        # this raises an error for variables that cannot be summed out
        with model_settings(), analyses_kept(self.model):
            parts = self.collapsed.parts()
        if parts:
            _log.info(parts)
        self._snapshot  # noqa: B018 the property is read so that the density belongs to the present model
        self._ahead_if_whole()
        # The sites after the last draw, to see whether another step moves them; None once another step has
        # moved them.
        self._sites: np.ndarray | None = None

    @classmethod
    def names_of(cls, model: pm.Model, vars: Any) -> tuple[list[str], list[str]]:
        """The names of the continuous and of the discrete value variables in the argument `vars`.

        Raises
        ------
        ValueError
            If there are no continuous or no discrete ones.
        """
        continuous, discrete = cls.divided_by_kind(model, vars)
        if not continuous or not discrete:
            lacks = "discrete" if continuous else "continuous"
            raise ValueError(
                f"CollapsedNUTS has no {lacks} variable: it moves continuous ones with discrete ones summed "
                "out. Use pm.NUTS or pmd.AutoStep."
            )
        return continuous, block_of(model, discrete)

    # ------------------------------------------------------------ built on first use
    @functools.cached_property
    def collapsed(self) -> Collapsed:
        """The model with the discrete variables summed out."""
        return Collapsed.of(self.model, self.summed)

    def _function_of(self, names: list[str]) -> LogpAndGradient:
        rest = {name: value for name, value in self._point().items() if name not in self.summed}
        rest[STRETCH_VARIABLE] = np.zeros(self.collapsed.sums.places, np.int64)
        call_from_numba_quietly()
        return LogpAndGradient(*ContinuousDensity.of(self.collapsed.model, names, rest))

    @functools.cached_property
    def _nuts(self) -> pm.NUTS:
        values = {str(v.name): v for v in self.collapsed.model.value_vars}
        return pm.NUTS(
            [values[name] for name in self._moving],
            model=self.collapsed.model,
            logp_dlogp_func=self._function,
            initial_point=self._point() | {STRETCH_VARIABLE: np.zeros(self.collapsed.sums.places, np.int64)},
            **self.options,
        )

    @functools.cached_property
    def _drawn(self) -> Callable[..., Any]:
        """The compiled function (seed, point, stretches, usual) -> (sites, log density of the model less the
        log density with the sites summed out).

        `stretches` says over which values sites are summed, and `usual` about which values stretches are
        laid.
        """
        names = [str(v.name) for v in self.model.value_vars if v.name not in self.summed]

        def draw(seed: Array, values: list[Array], stretches: Array, usual: Array) -> tuple[Array, Array]:
            point = dict(zip(names, values, strict=True)) | self.collapsed.density.numbers
            context = self.collapsed.context(point)
            total, x = self.collapsed.total_and_draw(key_of_words(seed), context, stretches, usual)
            return x, self.collapsed.density.logdensity(x, context) - total

        compiled = jitted(draw)
        return lambda seed, point, *args: compiled(seed, [point[name] for name in names], *args)

    @functools.cached_property
    def _stretches(self) -> Callable[..., Any]:
        return jitted(lambda seed, *args: self.collapsed.drawn_stretches(key_of_words(seed), *args))

    def _sum(self, rest: PointType, stretches: np.ndarray) -> float:
        """The log density, nats, with the discrete variables summed out."""
        self._function.hold(rest | {STRETCH_VARIABLE: stretches})
        return self._function.at(rest)

    # ------------------------------------------------------------ running a chain
    def on(self, model: pm.Model) -> "CollapsedNUTS":
        return type(self)(self.own_variables, model=model, **self.options)

    def moves(self) -> WhatMoves:
        return super().moves()._replace(instead=sampled_instead)

    def _discrete_part(self) -> tuple[list[Any], list[str]]:
        return [], self.summed

    @model_settings()
    def _in_turn(self, point: PointType) -> tuple[PointType, StatsType]:
        x = self.collapsed.density.space.ravel(point)
        if self._draws == 0:
            refuse_after_fork()
            check_support(self.collapsed.density.space, x)
            self._usual, self._far_out = x.astype(float), FarOut(*np.zeros((3, len(x)), int))
            self._sites = None
        elif self._sites is not None:
            moved = self.collapsed.density.space.names_at(np.flatnonzero(x != self._sites))
            if moved := [name for name in moved if name not in LeftValues.untouched(moved, point)]:
                _log.warning(moved_by_another("CollapsedNUTS", moved))
                self._sites = None
        LeftValues.taken(self.summed)
        seeds = self.rng.integers(2**32, size=(2, 2), dtype=np.uint32)
        stretches = np.asarray(self._stretches(seeds[0], x, self._usual))
        rest = {name: value for name, value in point.items() if name not in self.summed}
        if self._draws == 0 and self._sum(rest, stretches) == -np.inf:
            # No value in the stretches is possible, so that NUTS could not move: the chain starts at a
            # possible state instead.
            inputs = self.collapsed.inputs(point | self.collapsed.density.numbers)
            refuse_nan(self.model)
            given = x
            x = possible_start(self.collapsed.density, x, [np.asarray(a) for a in inputs], self.rng)
            say_moved(self.collapsed.density.space.names_at(np.flatnonzero(x != given)))
            self._usual = x.astype(float)
            stretches = np.asarray(self._stretches(seeds[0], x, self._usual))
            if self._sum(rest, stretches) == -np.inf:
                raise SamplingError(impossible(self.model, point, self.summed, NOT_FOUND))
        moved, stats = self._nuts_draw(rest | {STRETCH_VARIABLE: stretches})
        new = rest | moved
        sites, more = self._drawn(seeds[1], new, stretches, self._usual)
        sites = np.asarray(sites)
        announced = self._tune_draws + self._draws_wanted > 0
        if self._sites is not None or (self._draws == 0 and announced):
            self._sites = sites
        if not self.tune:
            out = self.collapsed.far_out(sites, self._usual, np)
            self._far_out = self._far_out.after(out, np)
            last = self._draws + 1 == self._tune_draws + self._draws_wanted
            if last and (said := self.collapsed.too_short(self._far_out, self._draws_wanted)):
                _log.warning(said)
        else:
            self._usual += 4.0 / (self._draws + 4.0) * (sites - self._usual)
        values = self.collapsed.density.space.unravel(sites)
        new = {name: new[name] if name in new else values[name].astype(point[name].dtype) for name in point}
        logp = stats[0]["model_logp"] + float(more)
        if not np.isfinite(logp):
            raise SamplingError(f"CollapsedNUTS: the log density of the model is {logp} after a draw.")
        return self._keep(new), [{**stats[0], "model_logp": logp}]
