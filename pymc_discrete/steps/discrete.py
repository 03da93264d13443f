"""One PyMC step for every method for discrete variables."""

import functools
import inspect
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import field, fields
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from jax import Array
from pymc.blocking import PointType
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state

from pymc_discrete.diagnostics.remedies import Remedies
from pymc_discrete.diagnostics.thresholds import ENOUGH_DRAWS
from pymc_discrete.diagnostics.watch import Watch
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.differences.from_model import coefficients_of, target_of
from pymc_discrete.engine.discrete import STATISTICS_OF_SITES, draw_of_block
from pymc_discrete.engine.nuts_options import OfNuts
from pymc_discrete.engine.statistic import Statistic, as_pymc_declares
from pymc_discrete.integrals.augmented import refuse_outside_of_program
from pymc_discrete.kernels import Kernel, adaptation
from pymc_discrete.kernels.method import Method
from pymc_discrete.kernels.random import key_of_words
from pymc_discrete.kernels.settle import settle
from pymc_discrete.kernels.tuning import Learned, Tuner, one_pass
from pymc_discrete.model.analyses_on_disk import analyses_kept
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.model.in_32_bits import check_in_32_bits
from pymc_discrete.model.in_tensors import values_by_name
from pymc_discrete.model.partitions_by_hand import partitions_by_hand
from pymc_discrete.model.support import partitions_of
from pymc_discrete.model.without_jax import no_jax_version
from pymc_discrete.runtime.checks import check_auto_or_count, check_choice
from pymc_discrete.runtime.compiling import announced, announcing
from pymc_discrete.runtime.jax_settings import jitted
from pymc_discrete.runtime.model_settings import width_of_models
from pymc_discrete.runtime.names import merged_texts, shown
from pymc_discrete.runtime.reuse import PROGRAMS, Kept
from pymc_discrete.space.target import Target
from pymc_discrete.starts.possible_start import possible_start, say_moved
from pymc_discrete.starts.start import KINDS_OF_START, check_start, dispersed, solved
from pymc_discrete.steps.ahead import moved_by_another
from pymc_discrete.steps.base import HOST_COST, OPERATIONS, JaxStep
from pymc_discrete.steps.for_nuts import for_nuts, moved_in_jax
from pymc_discrete.steps.shared import LeftValues, without_local

_log = logging.getLogger("pymc.discrete")

_kept: Kept[Callable[..., Any]] = Kept(PROGRAMS)

# The computations of a transition that run one after another take this many microseconds each, besides the
# time of their operations.
OVERHEAD = 2.0


@dataclass_state
class DiscreteStepState(StepMethodState):
    asked_method: str = field(metadata={"frozen": True})
    asked_transitions: int | str = field(metadata={"frozen": True})
    start: str = field(metadata={"frozen": True})
    tune: bool
    checked: bool
    tune_draws: int
    learned: Any
    params: dict[str, Any]
    transitions: int


class DiscreteStep(JaxStep):
    """A PyMC step that runs a method of `pymc_discrete` on a block of discrete variables.

    `methods.step_of` makes a class of every `Method`.

    Parameters
    ----------
    vars : RV, name or value variable, or a list of them, optional
        The variables to sample. By default these are all discrete free variables that the step can move and,
        in `pm.sample`, the continuous variables that PyMC would give to NUTS: one program then makes the
        draws of the whole model ahead.
    differences : {"auto", "exact", "gradient"}
        Where the local differences come from; see `target_from_model`.
    transitions : "auto" or int
        Transitions per draw; by default at least one pass over the sites. A draw makes one transition more
        with probability 1/2, because an even number of flips never changes the parity on a flat target.
    support : {name: (lower, upper)}, optional
        Inclusive bounds of variables whose distribution does not determine them.
    window : "auto", "geometric", int or {name: one of these}
        Neighbours of integers without bounds, or with more than 256 values where evaluating all of them is
        too expensive.
    start : {"point", "dispersed"}
        The start of a chain: PyMC's initial point (the same for every chain of a mixed model), or a random
        state of positive density.
    integrate : None, "auto", or a list of variables or names
        Continuous variables in which, given all else, the log density is a quadratic form, such as the
        coefficients of a regression with Normal priors and errors, or of a logistic or probit one, for which
        further variables are drawn in each transition; or parameters that labels select, ``phi[z]``, with a
        conjugate prior. They are integrated out while the discrete variables move, and drawn at the end of
        each draw. "auto" takes the variables with a conjugate prior; if there are none, it takes all
        variables with a quadratic form that share a term with the block. In `sample`, NUTS moves the other
        continuous variables while these are integrated out.
    target_accept : float, default 0.8
        Acceptance that the step size of NUTS is tuned to, where the step moves continuous variables.
    nuts : dict, optional
        Options of this NUTS: "max_treedepth" (10), the largest depth of a trajectory, and "dense" ("auto"),
        whether the mass matrix is dense. With `pmd.sample`, `target_accept` and `nuts` are given to `sample`
        itself.
    model, blocked, rng, initial_point, compile_kwargs
        As in PyMC's own steps; `compile_kwargs` has no effect, since this step compiles through JAX.

    Attributes
    ----------
    target : Target
    kernel : Kernel
    params : {name: value}, the kernel's parameters in use
    transitions : int, transitions per draw

    Raises
    ------
    ValueError
        For variables or options that this step cannot take. The message gives the reason and the remedy.

    Notes
    -----
    Sampler statistics: `accept` (mean acceptance probability over a draw's transitions), `accepted`
    (share accepted), `discrete_n_moved` (sites that ended the draw at another value), `lp`.

    Examples
    --------
    >>> with pm.Model():
    ...     z = pm.Bernoulli("z", 0.3, shape=10)
    ...     idata = pm.sample(step=pmd.BlockGibbs())  # doctest: +SKIP
    """

    # method_class: the class of the method; `method` is an object of this class with the step's options
    # prefix: the beginning of the names of `STATISTICS_OF_SITES` in this step, in place of "discrete_", so
    # that two steps for the same variables have different names
    # shared: whether another step may move the same variables; the other step then moves them out of bad
    # starts, and says where they stand still
    # learned: a `Learned`, what tuning has learned about the chain
    # integrated: names of the continuous variables that are integrated out
    # along: variables of the target's space that NUTS may move together with continuous ones, if AutoStep
    # chose the step
    name = "discrete_step"
    __signature__: ClassVar[inspect.Signature]
    method_class: ClassVar[type[Method] | None] = None
    prefix: ClassVar[str] = ""
    statistics: ClassVar[dict[str, Statistic]] = STATISTICS_OF_SITES
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = as_pymc_declares(STATISTICS_OF_SITES)
    _state_class: type = DiscreteStepState
    shared: ClassVar[bool] = False
    along: Sequence[str] = ()
    columns: ClassVar[dict[str, tuple[str, str, Any]]] = {
        "accept": ("Accept", "0.2f", 0.0),
        "discrete_n_moved": ("Moved", "", 0),
    }

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        if "__init__" in cls.__dict__:  # a user's class may take other arguments than its base class
            taken = inspect.signature(cls.__init__)
            cls.__signature__ = taken.replace(parameters=[*taken.parameters.values()][1:])
        if cls.method_class is not None:
            of_method = dict.fromkeys(cls.method_class.reported, Statistic(float))
            cls.statistics = {cls.named_here(n): s for n, s in STATISTICS_OF_SITES.items()} | of_method
            cls.stats_dtypes_shapes = as_pymc_declares(cls.statistics)

    @classmethod
    def named_here(cls, statistic: str) -> str:
        """The name, in the draws of this step, of one of `STATISTICS_OF_SITES` or of "lp"."""
        shared = cls.prefix and statistic in STATISTICS_OF_SITES
        return cls.prefix + statistic.removeprefix("discrete_") if shared else statistic

    def __init__(
        self,
        vars: Any = None,
        *,
        differences: str = "auto",
        transitions: int | str = "auto",
        support: dict[str, tuple[Any, Any]] | None = None,
        window: Any = "auto",
        start: str = "point",
        integrate: Any = None,
        target_accept: float = 0.8,
        nuts: dict[str, Any] | None = None,
        _target: Target | None = None,
        **options: Any,
    ):
        if self.method_class is None:
            raise TypeError(f"{type(self).__name__} has no method; use one of the steps of pymc_discrete.")
        of_method = [f.name for f in fields(self.method_class) if f.init and f.name in options]
        self.method = self.method_class(**{name: options.pop(name) for name in of_method})
        self.asked_method = repr(self.method)
        asked = self.method.options_of_step({"differences": differences, "integrate": integrate})
        super().__init__(vars, **options)
        of_nuts = OfNuts.of_step(target_accept, nuts)
        self._target_options = {
            "differences": asked["differences"],
            "support": support,
            "window": window,
        }
        self.integrated = self.also_moved(self.model, self._names, {"integrate": asked["integrate"]})
        if self.integrated:
            self._target_options["integrate"] = list(self.integrated)
            values = values_by_name(self.model)
            self.vars += [values[name] for name in self.integrated]
        check_auto_or_count("transitions", transitions, "transitions per draw")
        check_choice("start", start, KINDS_OF_START)
        self.asked_transitions, self.start = transitions, start
        if _target is not None:
            self.target = _target
        with analyses_kept(self.model):
            self._look_at_density()
        if not self.shared and self.blocked:
            by_nuts = moved_in_jax(self.model) if vars is None or self._is_whole() else None
            if by_nuts is not None:
                self.draw_ahead([name for name in by_nuts if name not in self.own_variables], of_nuts)
        if of_nuts != OfNuts() and not self.by_nuts:
            raise ValueError(
                f"target_accept= and nuts= of {type(self).__name__} are for the continuous variables that it "
                "moves by NUTS where it is not given vars, and it moves none. Leave them out, or pass "
                "target_accept= to pm.sample, whose NUTS moves the others."
            )
        self._reset()
        if self.method.bias is not None:
            warnings.warn(self.method.bias, UserWarning, stacklevel=2)

    def _look_at_density(self) -> None:
        """Refuse a density that the step cannot sample, and log how the step moves its variables."""
        self.check_density()
        for name, text in self.density.graph.out_of_bounds:
            if name in partitions_of(self.model):
                raise ValueError(
                    f"{text} Of a partition, whose density counts all labels as names of a cluster, this is "
                    f"another prior of the number of clusters. Pass max_clusters= of {name!r}, their number."
                )
            _log.warning(text)
        for text in partitions_by_hand(self.model, self._names):
            _log.warning(text)
        descriptions, moves = self.target.describe(), self.method.joint_moves(self.target)
        for names, text in merged_texts(
            {
                n: f"{d['way']} differences, K={d['K']} ({d['reason']}){said_of_moves(moves.get(n, 1))}"
                for n, d in descriptions.items()
            }
        ):
            _log.info(f"{type(self).__name__}: {shown(names)}: {text}")

    @classmethod
    def option_names(cls) -> list[str]:
        of_method = [f.name for f in fields(cls.method_class) if f.init] if cls.method_class else []
        return [*dict.fromkeys([*of_method, *super().option_names()])]

    def options(self) -> dict[str, Any]:
        of_step = {"transitions": self.asked_transitions, "start": self.start}
        return {**self._target_options, **of_step, **self.method.options()}

    def on(self, model: pm.Model) -> "DiscreteStep":
        of_step: dict[str, Any] = {"transitions": self.asked_transitions, "start": self.start}
        of_method = {f.name: getattr(self.method, f.name) for f in fields(self.method) if f.init}
        return type(self)(self._names, model=model, **self._target_options, **of_step, **of_method)

    @classmethod
    def also_moved(cls, model: pm.Model, names: list[str], options: dict[str, Any]) -> tuple[str, ...]:
        return coefficients_of(model, options.get("integrate"), names)

    # ------------------------------------------------------------ built on first use, without starting JAX
    @functools.cached_property
    def _kernel_and_params(self) -> tuple[Kernel, dict[str, Any]]:
        return self.method.kernel()

    @property
    def kernel(self) -> Kernel:
        return self._kernel_and_params[0]

    def check_density(self) -> None:
        self.method.check(self.target)

    def fresh_target(self) -> Target:
        """A new target of the block, which shares no compiled functions or contexts with any other."""
        point = self._initial_point
        point = None if point is None else {k: np.array(v) for k, v in point.items()}
        try:
            options = {**self._target_options, "with_numbers": self.method.with_numbers, "constrained": True}
            options["equations"] = self.equations
            return target_of(DescribedModel(self.model, point), self._names, **options)
        except NotImplementedError as e:
            raise no_jax_version(self._names, e) from e

    @functools.cached_property
    def _left(self) -> LeftValues:
        """The values with which the last draw ended, if the step shares its variables with another step."""
        return LeftValues()

    @functools.cached_property
    def target(self) -> Target:
        return self.fresh_target()

    @property
    def density(self) -> ModelDensity:
        return cast(ModelDensity, self.target.density)

    @property
    def numbers(self) -> dict[str, np.ndarray]:
        return self.density.numbers

    def tuner_for(self, target: Target) -> Tuner:
        """The tuner of the kernel for a target of the same block."""
        start = target.space.ravel(cast(ModelDensity, target.density).start)
        tuner = Tuner.of(*self._kernel_and_params, target.space, start)
        return tuner._replace(chosen=self.method.chosen(target))

    @functools.cached_property
    def tuner(self) -> Tuner:
        return self.tuner_for(self.target)

    @functools.cached_property
    def _draw(self) -> Callable[..., Any]:
        """The compiled draw: (seed (2,) uint32, x (d,), others, params, transitions) -> (x, numbers, values).

        The numbers are the statistics of the draw in the order of `STATISTICS_OF_SITES`, "lp", the mean
        number of moves in a proposal, and the means from which the kernel tunes itself. The values are those
        of the continuous variables that were integrated out.
        """
        return _kept.get(("draw", self.density, self.described()), self._make_draw)

    def _make_draw(self) -> Callable[..., Any]:
        density, kernel = self.density, self.kernel

        def drawn(
            seed: Array, x: Array, others: Any, params: Any, transitions: Array
        ) -> tuple[Array, Array, Any]:
            target = Target(density).with_inputs(others)
            new = draw_of_block(kernel, key_of_words(seed), x, target, params, transitions)
            # the numbers are one array, so that the host fetches them at once
            numbers = jnp.stack(
                [
                    *(new.statistics[name] for name in [*STATISTICS_OF_SITES, "lp"]),
                    new.n_moves,
                    *jax.tree.leaves(new.measured),
                ]
            )
            return new.x, numbers.astype(jnp.result_type(float)), new.integrated

        return announcing(jitted(drawn), self.named())

    @functools.cached_property
    def _settle(self) -> Callable[..., Any]:
        """The compiled function (seed (2,) uint32, x (d,), others) -> x, which moves a tuning chain out of a
        bad start.
        """
        return _kept.get(("settle", self.density), self._make_settle)

    def _make_settle(self) -> Callable[..., Any]:
        density = self.density

        def settled(seed: Array, x: Array, others: Any) -> Array:
            return settle(key_of_words(seed), x, Target(density).with_inputs(others))

        return announcing(jitted(settled), f"{self.named()}: leaving a bad start")

    # ------------------------------------------------------------ tuning
    def _reset(self) -> None:
        super()._reset()
        self.learned = self.tuner.start()
        self.params = self.tuner.params
        option = self.asked_transitions
        self.transitions = self._auto_transitions(self.expected_moves()) if option == "auto" else int(option)
        self.watch: Watch | None = None
        # The sites after the last draw, to see whether another step moves them; None if this is not watched.
        self._last: np.ndarray | None = None
        self._alone = self._names if self.shared else []  # variables that no other step has moved so far

    def _auto_transitions(self, n_moves: float) -> int:
        """Transitions per draw: one pass over the sites, or more if these take no longer than `HOST_COST`."""
        operations = self.method.operations(self.target)
        microseconds = OVERHEAD * self.method.computations(self.target) + operations / OPERATIONS
        return max(int(one_pass(self.target.space.d, n_moves)), int(HOST_COST / microseconds), 1)

    def expected_moves(self) -> float:
        """Mean number of moves in a proposal, as expected before the first draw."""
        return self.method.expected_moves(self.target.space, self.tuner.params)

    def _adapt(self, x: np.ndarray, accept: float, n_moves: float, n_changed: float, measured: Any) -> None:
        """Update the adaptation with a tuning draw that ended at x (d,)."""
        self.learned = self.tuner.update(
            self.learned, x, accept, n_moves, n_changed, self.tune_draws, measured=measured
        )
        self._use(tuning=True)
        if self.asked_transitions == "auto":
            self.transitions = self._auto_transitions(float(self.learned.adaptation.moves))

    def _use(self, tuning: bool) -> None:
        """Set the kernel's parameters to the values that tuning has found."""
        params = self.tuner.tuned(self.learned, tuning)
        # Parameters become Python floats, which are weakly typed in JAX: they take the precision of the
        # arrays that they are combined with.
        given = self.tuner.params
        self.params = {n: p if p is given[n] or np.ndim(p) else float(p) for n, p in params.items()}

    def use_learned(self, learned: Learned | None) -> None:
        if learned is not None:
            self.learned = jax.tree.map(lambda a: a.item() if np.ndim(a) == 0 else a, learned)
            self._use(tuning=False)

    def watch_from(self, draws: int, point: PointType) -> Watch | None:
        if draws < ENOUGH_DRAWS or self.shared:
            return None
        x, used = self.target.space.ravel(point), self.described()
        one_by_one = self.method.one_by_one
        return Watch(
            self.target.space, self.model, self.joint, self.complete, draws, x, point, used, one_by_one
        )

    def stop_tuning(self) -> None:
        if self.learned.adaptation.seen and not self.draws_ahead:
            self._use(tuning=False)
            if remark := self.remark(self.learned):
                _log.info(remark)
        super().stop_tuning()
        if self._alone and self.tune_draws > 1:
            _log.warning(without_local(type(self).__name__, self._alone))

    def remark(self, learned: Learned) -> str | None:
        """A line for the log about the parameters chosen for a chain when its tuning ended."""
        return self.method.remark(self.target, learned.adaptation.measured, shown(self._names))

    def complaints(self, learned: Learned, tune_draws: int) -> list[str]:
        name, tuned, measured = type(self).__name__, self.tuner.name, learned.adaptation
        own = self.method.complaint(measured.accept, shown(self._names))
        if own is not None:
            return [own] if own and tune_draws >= ENOUGH_DRAWS else []
        remedies, complaints = Remedies(self.model, dict.fromkeys(self._names, self.described())), []
        if tune_draws >= ENOUGH_DRAWS and measured.accept < adaptation.STUCK_SHARE:
            why = remedies.of_rejected_moves(self._names, self.density.exact)
            complaints.append(
                f"{name}: fewer than one in a hundred moves of {shown(self._names)} was accepted in the "
                "second half of tuning: the chain all but stands still. Either only one value is possible, "
                f"or {why}"
            )
        lower = self.tuner.bounds[0]
        low = measured.accept < adaptation.TARGET_ACCEPT - 0.1
        if tuned is not None and measured.seen and low and np.exp(measured.mean) <= 1.05 * lower:
            complaints.append(
                f"{name}: {tuned} is at its lower bound {lower:g} and the acceptance is "
                f"{measured.accept:.2f}, below {adaptation.TARGET_ACCEPT}: these variables are hard for this "
                f"proposal. {remedies.of_hard_proposal(self._names, self.density.exact)}"
            )
        return complaints

    # ------------------------------------------------------------ running a chain
    def check_start(self, point: PointType) -> None:
        refuse_outside_of_program(self.integrated, self.numbers)
        with announced(f"{self.named()}: the log density and its differences, to check the start"):
            check_start(self.target, point, solved(self.target.space, self.target.space.ravel(point)))

    def possible(self, point: PointType) -> np.ndarray:
        """(d,) int, the sites at a point if they are possible, else a possible state, if one is found."""
        space = self.target.space
        x = space.ravel(point)
        # the inputs have the shapes and types that `check_start` uses, so that nothing is compiled again
        inputs = self.density.split(point)[1]
        found = possible_start(self.density, solved(space, x), inputs, self.rng)
        say_moved(space.names_at(np.flatnonzero(found != x)))
        return found

    def _move(self, point: PointType, first: bool) -> tuple[PointType, float, dict[str, Any]]:
        space = self.target.space
        x = space.ravel(point)
        full = self.numbers_on_device | point
        others = [full[v.name] for v in self.density.graph.others]
        if self._last is not None and (moved := self._moved_elsewhere(x, point)):
            _log.warning(moved_by_another(type(self).__name__, moved))
            self._last = None
        if first:
            x = self.possible(point)
        else:
            self._alone = LeftValues.untouched(self._alone, point)
        if first and self.start == "dispersed":
            x = dispersed(x, self.target.at(point)[1], self.rng)
        if self.tune and self.learned.adaptation.stuck and not self.shared:
            x = np.asarray(self._settle(self._seed(), x, others))
        y, numbers, integrated = self._draw(self._seed(), x, others, self.params, self.transitions)
        y, numbers = np.asarray(y), np.asarray(numbers).tolist()
        *of_draw, logp, n_moves = numbers[: len(STATISTICS_OF_SITES) + 2]
        measured = jax.tree.unflatten(
            jax.tree.structure(self.kernel.measured), numbers[len(STATISTICS_OF_SITES) + 2 :]
        )
        statistics = {
            name: s.type(value) for (name, s), value in zip(STATISTICS_OF_SITES.items(), of_draw, strict=True)
        }
        if not self.shared and (self._last is not None or (first and self.tune_draws + self.draws > 0)):
            # The values are kept only if `setup_chain` announced the chain. Other values at the next draw
            # then mean that another step has changed them. Otherwise a caller may step from any point.
            self._last = y
        logp += self.density.untouched.on_host(others)
        new = dict(point)
        for name, part in [*space.unravel(y).items(), *integrated.items()]:
            new[name] = np.asarray(part, point[name].dtype)
        if logp < np.inf and space.windowed.any() and not width_of_models():
            for m in space.members:
                check_in_32_bits(m.name, new[m.name])
        stats = {self.named_here(name): value for name, value in statistics.items()}
        stats |= {stat: self.params[name] for stat, name in self.method.reported.items()}
        if self.shared:
            self._left.values.update({name: new[name] for name in self._names})
        else:
            LeftValues.taken(self._names)
        if self.tune:
            self._adapt(y, statistics["accept"], n_moves, statistics["discrete_n_moved"], measured)
        elif self.draws >= ENOUGH_DRAWS and not self.shared:
            self._note(y, new)
        return new, logp, stats

    def _moved_elsewhere(self, x: np.ndarray, point: PointType) -> list[str]:
        """Variables that a step which does not share them has moved since the last draw of this step."""
        moved = self.target.space.names_at(np.flatnonzero(x != self._last))
        return [name for name in moved if name not in LeftValues.untouched(moved, point)]

    def stopped_by_nuts(self) -> bool:
        return any(name not in self.integrated for name in for_nuts(self.model))

    @property
    def joint(self) -> bool:
        """Whether all sites are drawn from their joint conditional, given the variables outside the block."""
        return self.method.joint(self.target)

    @property
    def complete(self) -> bool:
        """Whether the block contains all discrete variables of the model."""
        return len(self.model.discrete_value_vars) == len(self._names)

    def _note(self, x: np.ndarray, point: PointType) -> None:
        """Record a draw after tuning; log the warnings about the chain after the last one."""
        if self.watch is not None and self.watch.seen == self.draws:
            # the warnings are logged already: the chain makes more draws than `setup_chain` announced
            return
        if self.watch is None:
            self.watch = self.watch_from(self.draws, point)
            assert self.watch is not None
        self.watch.note(x, point)
        if self.watch.seen == self.draws:
            for text in self.watch.conclusions(self.target, point):
                _log.warning(text)


def said_of_moves(number: int) -> str:
    """The end of the line that names a step: how many moves of several elements a transition makes."""
    return f"; {number:_} moves of several elements in each sweep" if number > 1 else ""
