"""The base class of steps that may move all of their model, and then make their draws ahead."""

import functools
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import cloudpickle
import pymc as pm
from pymc.step_methods.compound import flat_statname

from pymc_discrete.engine.nuts_options import OfNuts
from pymc_discrete.engine.source import ChainSource
from pymc_discrete.steps.ahead import NUTS_STATISTICS, Ahead, AheadState, HasChain
from pymc_discrete.steps.served import FactsOfStep, Served, no_warning_of_forks, received


class WhatMoves(NamedTuple):
    """The steps and the NUTS that move the variables of a model in one program.

    Attributes
    ----------
    steps : the steps that draw discrete variables, or continuous ones by slice sampling
    summed : value variables that are summed out
    by_nuts : continuous value variables that NUTS moves
    of_nuts : options of NUTS
    slots : for NUTS and then for each step, the index of the dictionary that gets its statistics
    instead : (model, names) -> steps for the variables that would be summed out, if other steps have taken
        all continuous variables
    """

    steps: Sequence[Any]
    summed: Sequence[str]
    by_nuts: Sequence[str]
    of_nuts: OfNuts
    slots: Sequence[int]
    instead: Callable[[pm.Model, list[str]], list[Any]] | None = None


class DrawsAhead(HasChain):
    """A step that makes its draws ahead after `start_ahead` was called.

    Attributes
    ----------
    draws_ahead : whether `start_ahead` was called
    replicas : the number of replicas of each chain, int or "auto", as in `engine.ladder.Ladder`; None without
        tempering
    settings : the step and its options, in one line
    """

    model: pm.Model
    settings: str
    draws_ahead = False
    replicas: int | str | None = None

    @abstractmethod
    def moves(self) -> WhatMoves:
        """The steps and the NUTS that move the variables of the model."""

    @property
    def who(self) -> str:
        """The kind of the step, as named in messages."""
        return type(self).__name__

    def start_ahead(self) -> None:
        """From now on, make draws before PyMC asks for them."""
        self.draws_ahead, self._served = True, Served(self._source_for_others)
        self.__dict__["_state_class"] = AheadState

    def temper(self, replicas: int | str) -> None:
        """Give each chain replicas between the prior and the posterior, see `engine.ladder.Ladder`."""
        self.replicas, self.settings = replicas, f"{self.settings}; {replicas} replicas"

    def declare(self, *statistics: dict[str, Any]) -> None:
        """Set the statistics that PyMC records, given as dictionaries {statistic: (type, shape)}.

        The log density, `model_logp`, is in the last dictionary only.
        """
        shapes = [{n: s for n, s in of.items() if n != "model_logp"} for of in statistics]
        shapes[-1]["model_logp"] = NUTS_STATISTICS["model_logp"]
        types = [{name: dtype for name, (dtype, _) in of.items()} for of in shapes]
        if len(shapes) > 1:
            shapes = [{flat_statname(n, name): s for n, of in enumerate(shapes) for name, s in of.items()}]
        self.__dict__.update(stats_dtypes=types, stats_dtypes_shapes=shapes[0])

    def declared(self) -> tuple[Any, Any]:
        """The statistics that PyMC reads off the step: `stats_dtypes` and `stats_dtypes_shapes`."""
        return vars(self)["stats_dtypes"], vars(self)["stats_dtypes_shapes"]

    # ------------------------------------------------------------ built on first use
    @functools.cached_property
    def engines(self) -> Any:
        """The programs of the chains, made when they are needed."""
        moves = self.moves()
        own = [name for s in moves.steps for name in s.own_variables]
        moved = [*moves.summed, *own, *moves.by_nuts]
        made = programs().Engines(
            self.model, moves.steps, moves.summed, moved, moves.of_nuts, moves.instead, self.replicas
        )
        # JAX's warning about forks can be hidden only once JAX is running, which it is: `Engines` has asked
        # for its devices. The warning is hidden before the first chunk is made, which takes long: a user may
        # interrupt it, and the next call of `pm.sample` may fork.
        no_warning_of_forks()
        return made

    def _source_here(self) -> ChainSource:
        return programs().Course(self.engines, learns=True)

    def _source_for_others(self) -> ChainSource:
        return programs().Course(self.engines, learns=False)

    @functools.cached_property
    def ahead(self) -> Ahead:  # type: ignore[override]
        """The chains whose draws are made ahead."""
        made = Ahead(lambda: self._served.source(self._source_here), *self._of_ahead())
        made.go_on_from(self.__dict__.pop("_handed", None))
        return made

    def expect_chains(self, chains: int) -> None:
        """Note how many chains a run has, which PyMC says when it asks for the columns of its
        progress bar."""
        if self.draws_ahead:
            self.ahead.expect(chains)

    def _of_ahead(self) -> tuple[str, list[list[str]], list[str], list[int]]:
        moves = self.moves()
        own = [list(moves.summed), *([*s.own_variables] for s in moves.steps)]
        return self.who, own, [*moves.by_nuts], [*moves.slots]

    # ------------------------------------------------------------ pickling, for another process or a file
    @classmethod
    def _built(cls) -> set[str]:
        """Names of the attributes that are built on first use."""
        attributes = [item for c in cls.__mro__ for item in c.__dict__.items()]
        return {name for name, attribute in attributes if isinstance(attribute, functools.cached_property)}

    def __getstate__(self) -> dict[str, Any]:
        """The attributes of the step, without those that are built on first use."""
        left_out = {*self._built(), "_served"}
        state = {name: value for name, value in self.__dict__.items() if name not in left_out}
        return state | ({"_handed": self.ahead.state} if "ahead" in self.__dict__ else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.draws_ahead:
            self.start_ahead()

    def __reduce__(self) -> tuple[Any, ...]:
        # PyMC's models contain functions that `pickle` refuses and cloudpickle accepts
        sent = cloudpickle.dumps((type(self), self.__getstate__()))
        if not self.draws_ahead:
            return received, (None, sent)
        # other processes will run the chains: this process begins none ahead, and serves the step to them
        self.ahead.expect(0)
        address = self._served.address()
        return received, (
            FactsOfStep(
                os.getpid(),
                address,
                self._of_ahead(),
                self.settings,
                self.ahead.state,
                *self.declared(),
            ),
            sent,
        )


def programs() -> ModuleType:
    """The module that makes the programs of whole models; it imports JAX, and is imported when needed."""
    return import_module("pymc_discrete.engine.course")
