"""Diagnostics of a single chain in `pm.sample`: recorded after tuning, and reported when the chain ends.

A step sees one chain, with all variables of the model. The step can tell whether its own variables never
move, whether an index of models moves too rarely, and whether its variables are tied to one another or to
continuous ones. Diagnostics that compare chains (R-hat, labels that differ between chains) are beyond a step.
"""

from collections.abc import Sequence

import numpy as np
import pymc as pm
from pymc.blocking import PointType

from pymc_discrete.diagnostics.checks.never_moved import all_still
from pymc_discrete.diagnostics.checks.slow_elements import changed_only
from pymc_discrete.diagnostics.checks.ties import MOST_SERIES, called, sentence, ties
from pymc_discrete.diagnostics.known.leaving import leaving
from pymc_discrete.diagnostics.modes import of_models
from pymc_discrete.diagnostics.remedies import Remedies
from pymc_discrete.diagnostics.statistics.movement import MovementOfChain
from pymc_discrete.diagnostics.verdicts import few_stays, held_where_they_ended, unexplained, words_of_still
from pymc_discrete.runtime.names import labels_in, shown
from pymc_discrete.space.space import Space
from pymc_discrete.space.target import Target

MOST_KEPT = 2000  # the largest number of draws of a chain that a `Watch` keeps, evenly spaced
TIES_OF_CHAIN = 2  # the largest number of counts tied to other quantities that a chain reports


class Watch:
    """A record of the draws of a chain after tuning.

    The record has the sum of each variable of the step that counts something, and some elements of the
    continuous variables.

    Parameters
    ----------
    space : the sites of the step
    model : pm.Model
    joint : whether the step draws its sites jointly, and not each given the others
    complete : whether the step draws all discrete variables of the model
    one_by_one : whether the step draws each site from its conditional given the others
    draws : number of draws that the chain will have
    x : (d,) int, the first draw
    point : the model's point at the first draw
    used : the description `JaxStep.described` of the step
    """

    def __init__(
        self,
        space: Space,
        model: pm.Model,
        joint: bool,
        complete: bool,
        draws: int,
        x: np.ndarray,
        point: PointType,
        used: str = "",
        one_by_one: bool = True,
    ):
        self.draws, self.seen, self._drawn = draws, 0, (joint, complete, one_by_one)
        self._model = model
        self._remedies = Remedies(model, {m.name: used for m in space.members})
        self._first, self._still = np.array(x), np.ones(len(x), bool)
        members = [m for m in space.members if m.size]
        self._starts = np.array([m.start for m in members])
        self._alone = [m.name for m in members if m.size == 1]
        self._sites_alone = np.array([m.start for m in members if m.size == 1], int)
        self._movement = MovementOfChain(np.asarray(x)[self._sites_alone], draws)
        # Sums are recorded of variables that count something: not of a nominal variable with more than two
        # values, whose sum has no meaning, nor of sites that cannot change alone, whose sum is fixed.
        self._counted = [
            n
            for n, m in enumerate(members)
            if not (space.nominal[m.start] and space.exists[m.start].sum() > 2)
            and not space.constrained[m.start]
        ]
        self._count_names = [
            called(members[n].name, labels_in(model, members[n].name, members[n].shape))
            for n in self._counted
        ]
        self._variables = {s: members[n].name for s, n in zip(self._count_names, self._counted, strict=True)}
        self._elements: list[tuple[str, np.ndarray]] = []
        self._element_names: list[str] = []
        size, passed = max(sum(np.size(point[v.name]) for v in model.continuous_value_vars), 1), 0
        spacing = -(-size // MOST_SERIES)
        for v in model.continuous_value_vars:
            # the elements that are kept are evenly spaced among the elements of all continuous variables
            # together
            elements = np.arange(-passed % spacing, np.size(point[v.name]), spacing)
            passed += np.size(point[v.name])
            if len(elements):
                self._elements.append((v.name, elements))
                name, shape = str(model.values_to_rvs[v].name), np.shape(point[v.name])
                self._element_names += [called(name, labels_in(model, name, shape), int(i)) for i in elements]
        self._every = -(-draws // MOST_KEPT)
        self._kept = np.zeros((-(-draws // self._every), len(self._count_names) + len(self._element_names)))

    def note(self, x: np.ndarray, point: PointType) -> None:
        """Record one more draw: the sites x (d,) of the step, and the model's point."""
        self._still &= x == self._first
        if self.seen and self._alone:
            self._movement.note(np.asarray(x)[self._sites_alone])
        if self.seen % self._every == 0:
            elements = (np.reshape(point[name], -1)[flat] for name, flat in self._elements)
            self._kept[self.seen // self._every] = np.concatenate(
                [np.add.reduceat(x, self._starts)[self._counted], *elements]
            )
        self.seen += 1

    def conclusions(self, target: Target, point: PointType) -> list[str]:
        """The warnings about the chain, which has ended at `point`; `target` is the target of the step."""
        names = [*self._count_names, *self._element_names]
        series = dict(zip(names, self._kept.T[:, None], strict=True))
        counts = {name: series[name] for name in self._count_names}
        elements = {name: series[name] for name in self._element_names}
        found = ties(counts, elements, self._advice)[:TIES_OF_CHAIN]
        said = self._never_moved(target, point) + self._moved_too_rarely(target, point)
        return said + [sentence(tie) for tie in found]

    def _advice(self, series: Sequence[str], two_valued: bool) -> str:
        """A sentence that advises what to do if counts or continuous variables move slowly because they are
        correlated.

        Parameters
        ----------
        series : the names of sums and elements in messages
        two_valued : whether each has two values
        """
        names = [self._variables[name] for name in series if name in self._variables]
        return self._remedies.of_tie(names, two_valued)

    def _never_moved(self, target: Target, point: PointType) -> list[str]:
        still = {m.name: self._still[m.start : m.start + m.size] for m in target.space.members if m.size}
        if not any(of_variable.all() for of_variable in still.values()):
            return []
        names_of: dict[str, list[str]] = {}
        for name, known in leaving(target, self._model, [point], *self._drawn).items():
            verdict = words_of_still(known, still[name], self.draws)
            odd = unexplained(known, verdict, self.draws)
            if found := all_still(name, known, still[name], verdict, odd, self._remedies):
                names_of.setdefault(found.remedy, []).append(name)
        return [
            f"{shown(names)} never moved in the {self.draws} draws of a chain: {why}."
            for why, names in names_of.items()
        ]

    def _moved_too_rarely(self, target: Target, point: PointType) -> list[str]:
        """The sentence about an index of models that visits other models too rarely, see `too_few_moves`."""
        movement = self._movement.counted()
        few = few_stays(movement) & ~movement.immobile
        if not few.any():
            return []
        of_each, said = leaving(target, self._model, [point], *self._drawn), []
        for i, name in enumerate(self._alone):
            known = of_each[name]
            if not few[i] or known.probability is None or not known.is_among_models.any():
                continue
            if held_where_they_ended(movement, known.probability).all():
                where = f"in the {self.draws} draws of a chain, and where it ended it cannot"
                changed = changed_only(int(movement.moves[0, i]), where)
                said.append(f"{name!r} {changed}. {of_models(repr(name), known)}.")
        return said
