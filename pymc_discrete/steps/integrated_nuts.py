"""PyMC's NUTS with coefficients integrated out, in `pm.sample`: the step of `CollapsedNUTS(integrate=)`."""

import functools
import logging
from typing import Any

import numpy as np
import pymc as pm
from pymc.blocking import PointType, StatsType
from pymc.exceptions import SamplingError
from pymc.step_methods.compound import BlockedStep
from pymc.util import get_random_generator

from pymc_discrete.differences.continuous import ContinuousDensity
from pymc_discrete.differences.from_model import coefficients_of
from pymc_discrete.model.blocks import model_of
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.model.in_tensors import values_by_name
from pymc_discrete.runtime.fork import refuse_after_fork
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.runtime.names import shown
from pymc_discrete.starts.not_finite import NOT_FOUND, impossible
from pymc_discrete.steps.discrete import DiscreteStep
from pymc_discrete.steps.nuts_in_jax import LogpAndGradient, NutsInJax
from pymc_discrete.steps.suited import steps_for

_log = logging.getLogger("pymc.discrete")


class IntegratedNUTS(NutsInJax):
    r"""NUTS for variances, a discrete step for the sites, and exact draws of coefficients, in one step.

    With :math:`\beta` the coefficients, :math:`z` the sites and :math:`\theta` the other continuous
    variables, a draw is

    1. :math:`\theta` by NUTS on :math:`\log \int p(\beta, z, \theta) \, d\beta`, which leaves
       :math:`p(\theta \mid z)` invariant;
    2. :math:`z` by the discrete step, which leaves :math:`p(z \mid \theta)` invariant;
    3. :math:`\beta` from :math:`p(\beta \mid z, \theta)`.

    None of the three reads the old :math:`\beta`, which does not fit the new :math:`\theta` and :math:`z`. So
    no other step, which would read it, may come between 1 and 3.

    Parameters
    ----------
    vars : the variables that the step moves, continuous and discrete; by default all variables of the model
    target_accept, max_treedepth : the acceptance that NUTS's step size is tuned to, and its largest depth
    integrate : "auto", or the coefficients that are integrated out
    model, blocked, rng, initial_point, compile_kwargs : as in PyMC's own steps
    """

    statistics_beside_nuts = DiscreteStep.stats_dtypes_shapes
    stats_dtypes_shapes = {  # noqa: RUF012 PyMC reads this attribute, and nothing changes it
        **DiscreteStep.stats_dtypes_shapes,
        **pm.NUTS.stats_dtypes_shapes,
    }

    def __new__(cls, vars: Any = None, **options: Any) -> Any:
        model = model_of(options.get("model"), vars, "CollapsedNUTS")
        continuous, discrete, integrated = cls.divided(model, vars, options["integrate"])
        if not continuous:
            shared = {name: options[name] for name in ("rng", "initial_point") if name in options}
            _log.info(
                f"CollapsedNUTS: a discrete step alone draws {shown([*discrete, *integrated])}, since no "
                f"continuous variable but {shown(integrated)}, integrated out, is among its variables."
            )
            described = DescribedModel(model, options.get("initial_point"))
            return steps_for(described, discrete, integrate=integrated, **shared)
        values = values_by_name(model)
        moved = [values[name] for name in [*continuous, *discrete, *integrated]]
        return BlockedStep.__new__(cls, moved, **options)

    def __init__(
        self,
        vars: Any = None,
        *,
        integrate: Any,
        model: pm.Model | None = None,
        target_accept: float = 0.8,
        max_treedepth: int = 10,
        blocked: bool = True,
        rng: Any = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
    ):
        del compile_kwargs
        self.model, self.blocked = model_of(model), blocked
        self._continuous, self._discrete, self.integrated = self.divided(self.model, vars, integrate)
        values = values_by_name(self.model)
        self.vars = [values[name] for name in [*self._continuous, *self._discrete, *self.integrated]]
        self.rng = get_random_generator(rng)
        self._initial_point = initial_point
        self.options = {"target_accept": target_accept, "max_treedepth": max_treedepth}
        self.tune, self._draws, self._last = True, 0, {}
        self._move_only(self._continuous)
        self.sites  # noqa: B018 the property is read so that it refuses what cannot be integrated out
        self._snapshot  # noqa: B018 the property is read so that the density belongs to the present model
        self._ahead_if_whole()

    @classmethod
    def divided(cls, model: pm.Model, vars: Any, integrate: Any) -> tuple[list[str], list[str], list[str]]:
        """The names of the variables that NUTS moves, of the discrete ones, and of those integrated out.

        Raises
        ------
        TypeError, ValueError
        """
        continuous, discrete = cls.divided_by_kind(model, vars)
        if not discrete:
            raise ValueError(
                "CollapsedNUTS(integrate=) has no discrete variable, whose draws would gain from it. Name "
                "one in vars, or use pm.NUTS."
            )
        integrated = list(coefficients_of(model, integrate, discrete))
        return [name for name in continuous if name not in integrated], discrete, integrated

    # ------------------------------------------------------------ built on first use
    @functools.cached_property
    def sites(self) -> DiscreteStep:
        """The step that draws the sites and, given these, the coefficients that are integrated out."""
        described = DescribedModel(self.model, self._initial_point)
        step = steps_for(
            described, self._discrete, integrate=self.integrated, initial_point=self._initial_point
        )
        assert isinstance(step, DiscreteStep)
        return step

    def _function_of(self, names: list[str]) -> LogpAndGradient:
        return LogpAndGradient(
            *ContinuousDensity.of(self.model, names, dict(self._point()), integrate=self.integrated)
        )

    @functools.cached_property
    def _nuts(self) -> pm.NUTS:
        values = {str(v.name): v for v in self.model.value_vars}
        return pm.NUTS(
            [values[name] for name in self._moving],
            model=self.model,
            logp_dlogp_func=self._function,
            initial_point=self._point(),
            **self.options,
        )

    # ------------------------------------------------------------ running a chain
    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        super().setup_chain(rng, tune, draws)
        self.sites.setup_chain(self.rng.spawn(1)[0], tune, draws)

    def stop_tuning(self) -> None:
        super().stop_tuning()
        if not self.draws_ahead:
            self.sites.stop_tuning()

    def on(self, model: pm.Model) -> Any:
        return type(self)(self.own_variables, model=model, integrate=self.integrated, **self.options)

    def _discrete_part(self) -> tuple[list[Any], list[str]]:
        return [self.sites], []

    @model_settings()
    def _in_turn(self, point: PointType) -> tuple[PointType, StatsType]:
        if self._draws == 0:
            refuse_after_fork()
            self.sites.check_start(point)
            values = self.sites.target.space.unravel(self.sites.possible(point))
            point = {
                name: values[name].astype(value.dtype) if name in values else value
                for name, value in point.items()
            }
            self._function.hold(point)
            if self._function.at(point) == -np.inf:
                raise SamplingError(impossible(self.model, point, self._discrete, NOT_FOUND))
        moved, stats = self._nuts_draw(point)
        new, of_sites = self.sites.step({**point, **moved})
        return self._keep(new), [{**stats[0], **of_sites[0]}]
