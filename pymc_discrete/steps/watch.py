"""What a step notes of its chain in `pm.sample` once tuning has ended, for a word when the chain ends.

A step sees one chain, of which it knows all variables: whether its own stand still, and whether they are tied
to one another or to continuous ones. What takes several chains (R-hat, labels that differ between chains) is
not for a step.
"""

import numpy as np
import pymc as pm
from pymc.blocking import PointType

from pymc_discrete.steps.standing import held, leaving
from pymc_discrete.steps.ties import MOST, called, ties
from pymc_discrete.targets.names import shown
from pymc_discrete.targets.space import Space
from pymc_discrete.targets.target import Target

ROWS = 2000  # draws that are kept, evenly spaced
SHOWN = 2  # ties that a chain reports


class Watch:
    """The draws of a chain after tuning, as far as they are to be judged.

    Parameters
    ----------
    space : of the step
    model : pm.Model
    drawn : joint and complete, see `standing.leaving`
    draws : how many there will be
    x, point : the first draw
    """

    def __init__(
        self,
        space: Space,
        model: pm.Model,
        drawn: tuple[bool, bool],
        draws: int,
        x: np.ndarray,
        point: PointType,
    ):
        self.draws, self.seen, self._drawn = draws, 0, drawn
        self._first, self._still = np.array(x), np.ones(len(x), bool)
        members = [m for m in space.members if m.size]
        self._starts = np.array([m.start for m in members])
        # the values of a category do not count anything, but for those of two
        self._counted = [
            n
            for n, m in enumerate(members)
            if not (space.nominal[m.start] and space.exists[m.start].sum() > 2)
        ]
        self._counts = [called(members[n].name, members[n].shape) for n in self._counted]
        self._beside: list[tuple[str, np.ndarray]] = []
        self._others: list[str] = []
        size, passed = max(sum(np.size(point[v.name]) for v in model.continuous_value_vars), 1), 0
        for v in model.continuous_value_vars:
            some = np.arange(
                -passed % -(-size // MOST), np.size(point[v.name]), -(-size // MOST)
            )  # evenly spaced among all
            passed += np.size(point[v.name])
            if len(some):
                self._beside.append((v.name, some))
                name, shape = str(model.values_to_rvs[v].name), np.shape(point[v.name])
                self._others += [called(name, shape, int(i)) for i in some]
        self._every = -(-draws // ROWS)
        self._rows = np.zeros((-(-draws // self._every), len(self._counts) + len(self._others)))

    def note(self, x: np.ndarray, point: PointType) -> None:
        """One more draw, of which x (d,) are the sites of the step."""
        self._still &= x == self._first
        if self.seen % self._every == 0:
            others = (np.reshape(point[value], -1)[some] for value, some in self._beside)
            self._rows[self.seen // self._every] = np.concatenate(
                [np.add.reduceat(x, self._starts)[self._counted], *others]
            )
        self.seen += 1

    def conclusions(self, target: Target, point: PointType) -> list[str]:
        """What to say of the chain, which has ended at a point; the target is the step's."""
        series = dict(zip([*self._counts, *self._others], self._rows.T[:, None], strict=True))
        counts, others = ({name: series[name] for name in names} for names in (self._counts, self._others))
        return self._standing(target, point) + [tie.text for tie in ties(counts, others)[:SHOWN]]

    def _standing(self, target: Target, point: PointType) -> list[str]:
        still = {m.name: self._still[m.start : m.start + m.size] for m in target.space.members if m.size}
        if not any(own.all() for own in still.values()):
            return []
        by_reason: dict[str, list[str]] = {}
        for name, known in leaving(target, [point], *self._drawn).items():
            if not known.several.any() or not still[name][known.several].all():
                continue
            other = None if known.probability is None else float(known.probability[0, known.several].sum())
            why = held(other, known.joint, self.draws)
            if why is not None:
                by_reason.setdefault(why, []).append(name)
        return [
            f"{shown(names)} never moved in the {self.draws} draws of a chain: {why}."
            for why, names in by_reason.items()
        ]
