"""What a step learns of a chain: the parameters of its kernel, and how many transitions make a draw."""

from typing import Any

import numpy as np

from pymc_discrete.kernels import adaptation, spread
from pymc_discrete.steps.building import BuiltStep
from pymc_discrete.targets.names import shown

# What a draw costs besides its transitions, in microseconds: as many as cost no more come with it
HOST_COST = 100.0
TRANSITION = 2.0  # microseconds besides what is counted
OPERATIONS = 2500.0  # counted ones that a core does in a microsecond


class TunedStep(BuiltStep):
    """A built step that learns from its chain while tuning."""

    def __init__(self, vars: Any = None, **options: Any):
        super().__init__(vars, **options)
        self.tune, self.tune_draws, self.draws = True, 0, 0
        self._reset()

    def _reset(self) -> None:
        """What tuning learns of one chain, as it was before the chain."""
        _, self.params = self._make_kernel()
        tuned = self.kernel.tuned
        if tuned is not None:
            self._set(tuned.name, float(np.clip(self.params[tuned.name], *self._bounds)))
        self.adaptation = adaptation.start(1.0 if tuned is None else self.params[tuned.name])
        self.sums = None
        if self.kernel.scaled(self.target.space):
            self.sums = spread.no_sums(self.target.space)
            start = self.target.space.ravel(self._density.start)
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
        microseconds = TRANSITION * self._rounds + self._cost() / OPERATIONS
        one_pass = int(np.ceil(self.target.space.d / max(n_moves, 1.0)))
        return max(one_pass, int(HOST_COST / microseconds), 1)

    def _cost(self) -> float:
        """Counted operations of a transition."""
        return self._density.plan.cost(self._moves_one_site)

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
        self.adaptation = adaptation.update(
            self.adaptation, accept, n_moves, moved, self._bounds, self.tune_draws
        )
        if self.kernel.tuned is not None:
            self._set(self.kernel.tuned.name, float(np.exp(self.adaptation.log_value)))
        if self.sums is not None:
            seen, space = self.adaptation.seen, self.target.space
            self.sums, scale = spread.update(self.sums, self.params["scale"], x, seen, self.tune_draws, space)
            self._set("scale", scale)
        if self.asked_transitions == "auto":
            self.transitions = self._auto_transitions(self.adaptation.moves)

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
                f"{name}: fewer than one in a hundred moves of {shown(self._names)} was accepted in the "
                "second half of tuning: the chain all but stands still. Either only one value is possible, "
                "or a gradient misleads it: try differences='exact' or balancing='barker'."
            )
        lower = self._bounds[0]
        low = learned.accept < adaptation.TARGET_ACCEPT - 0.1
        if tuned is not None and learned.seen and low and np.exp(learned.mean) <= 1.05 * lower:
            found.append(
                f"{name}: {tuned.name} is at its lower bound {lower:g} and the acceptance is "
                f"{learned.accept:.2f}, below {adaptation.TARGET_ACCEPT}: these variables are hard for this "
                "proposal. Try pmd.BlockGibbs, or, where several sites must change together, "
                "pmd.PathAuxiliary(path_length=5, recompute=True)."
            )
        return found
