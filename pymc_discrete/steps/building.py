"""A step as it is made: its options, its target and its compiled programs."""

import inspect
import logging
from dataclasses import fields
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from pymc.blocking import PointType
from pymc.model import modelcontext
from pymc.util import get_random_generator

from pymc_discrete.checks import check_auto_or_count, check_choice
from pymc_discrete.kernels import Kernel, loop
from pymc_discrete.kernels.random import key_of_words
from pymc_discrete.kernels.settle import settle
from pymc_discrete.steps.compiling import announcing
from pymc_discrete.steps.sending import SentWhole
from pymc_discrete.steps.start import STARTS
from pymc_discrete.steps.without_jax import no_jax_version
from pymc_discrete.targets.blocks import block_of
from pymc_discrete.targets.from_model import ModelDensity, target_from_model
from pymc_discrete.targets.names import said_alike, shown
from pymc_discrete.targets.target import Target

_log = logging.getLogger("pymc.discrete")  # below PyMC's logger, so that it speaks and is silenced with it


class BuiltStep(SentWhole):
    """What a step is made of, all of it before JAX runs."""

    def __new__(cls, vars: Any = None, *more, **kwargs):
        if more:
            raise TypeError(
                f"{cls.__name__} takes its variables in one list, {cls.__name__}([...]), and options by name "
                "only."
            )
        model = modelcontext(kwargs.get("model"))
        values = {v.name: v for v in model.value_vars}
        kwargs.pop("_target", None)  # not among what the step is made of again in another process
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
        _target: Target | None = None,
    ):
        del compile_kwargs  # PyTensor's; this step compiles through JAX only
        self.model = modelcontext(model)
        self.blocked = blocked
        self._names = block_of(self.model, vars)
        values = {v.name: v for v in self.model.value_vars}
        self.vars = [values[name] for name in self._names]
        self._options = {"differences": differences, "support": support, "window": window}
        self._initial_point = initial_point
        check_auto_or_count("transitions", transitions, "transitions per draw")
        self.asked_transitions = transitions
        check_choice("start", start, STARTS)
        self.start = start
        self.rng = get_random_generator(rng)
        self.kernel, _ = self._make_kernel()
        self._build(_target)
        for text in self._density.graph.out_of_bounds:
            _log.warning(text)
        rows = self.target.describe()
        for names, text in said_alike(
            {n: f"{r['way']} differences, K={r['K']} ({r['reason']})" for n, r in rows.items()}
        ):
            _log.info(f"{type(self).__name__}: {shown(names)}: {text}")

    def _make_kernel(self) -> tuple[Kernel, Any]:
        raise TypeError(f"{type(self).__name__} has no kernel; use one of the steps of pymc_discrete.")

    def _build(self, target: Target | None = None) -> None:
        """Make what the step needs to draw; `target` where it is there already."""
        self._target = self.fresh_target() if target is None else target
        self._draw_compiled: Any = None
        self._settle_compiled: Any = None

    def fresh_target(self) -> Target:
        """A target that shares nothing with another."""
        point = self._initial_point
        point = None if point is None else {k: np.array(v) for k, v in point.items()}
        try:
            return target_from_model(self.model, self._names, initial_point=point, **self._options)
        except NotImplementedError as e:
            raise no_jax_version(self._names, e) from e

    def told_options(self) -> list[str]:
        """What the step was made with, "name=value"."""
        own = {
            f.name: getattr(self, f.name)
            for f in fields(self._state_class)
            if f.metadata.get("frozen") and f.name in self.__dict__
        }
        return [
            f"{name.removeprefix('asked_')}={value!r}" for name, value in {**self._options, **own}.items()
        ]

    def named(self) -> str:
        """The step and its variables, for a message."""
        return f"{type(self).__name__} for {shown(self._names)}"

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
                key = key_of_words(seed)
                state, info = loop(kernel, key, kernel.init(x, target), target, params, transitions)
                total = state.logdensity + target.context["untouched"]
                moved = jnp.sum(state.x != x)
                summary = jnp.stack([total, info.accept, info.accepted, moved, info.n_moves])
                return state.x, summary.astype(jnp.result_type(float))

            self._draw_compiled = announcing(jax.jit(draw), self.named())
        return self._draw_compiled

    @property
    def _settle(self):
        """The compiled way nearer to the bulk where the kernel itself stands still: (seed (2,) uint32, x
        (d,), others) -> x.
        """
        if self._settle_compiled is None:
            density = self.target.density

            def run(seed, x, others):
                return settle(key_of_words(seed), x, Target(density).with_inputs(others))

            self._settle_compiled = announcing(jax.jit(run), f"{self.named()}: leaving a bad start")
        return self._settle_compiled

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_target": None,
            "_draw_compiled": None,
            "_settle_compiled": None,
            "kernel": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.kernel, _ = self._make_kernel()


def check_options(cls: type, options: dict[str, Any]) -> None:
    """Refuse options that a step does not have, by the step's own name."""
    known = inspect.signature(BuiltStep.__init__).parameters
    for name in options:
        if name not in known:
            own = [p for p in inspect.signature(cls).parameters if p not in ("self", "vars", "options")]
            choice = ", ".join([*own, *(p for p in known if p not in ("self", "vars", "_target"))])
            raise TypeError(f"{cls.__name__} has no option {name!r}; it has {choice}.")
