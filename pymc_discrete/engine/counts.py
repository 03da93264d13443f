"""Counts of how often values occur, kept in place of draws for discrete variables of very many elements.

A thousand draws of a million labels in four chains are four gigabytes, from which a user reads only how often
each label had each value. These numbers are counted while the chains run.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from xarray import Dataset

from pymc_discrete.collapse.probabilities import dataset
from pymc_discrete.diagnostics.draws import name_of_totals
from pymc_discrete.engine.block import TUNE, Block
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.storage import on_host
from pymc_discrete.runtime.names import shown
from pymc_discrete.space.space import Space

MOST_ELEMENTS = 100_000  # of a variable with more elements, counts of values are kept in place of draws
# the draws of a variable with more than MOST_VALUES values are kept: its counts would take as much memory
MOST_VALUES = 16


class Counted(NamedTuple):
    """A variable whose draws are not kept.

    Attributes
    ----------
    lower : the smallest value of an element
    values : the number of consecutive integers that an element can be
    each : whether the values of each element are counted; false for a variable that is summed out, of which
        the mean of the exact probabilities of each value is known, a less noisy estimate than a count
    """

    name: str
    shape: tuple[int, ...]
    lower: int
    values: int
    each: bool

    @property
    def totals(self) -> str:
        """The name, in the result, of the totals: the numbers of elements that have each value."""
        return name_of_totals(self.name)

    @property
    def axis(self) -> str:
        """The name, in the result, of the axis along which the counts of an element's values stand."""
        return f"{self.name} value"


class CountsOfValues:
    """Counts of the values of some variables, over all transitions after tuning.

    Parameters
    ----------
    variables : the variables that are counted
    points : which of its discrete variables a chain keeps together in one vector
    tune : the number of tuning draws
    """

    def __init__(self, variables: Sequence[Counted] = (), points: Points | None = None, tune: int = 0):
        self.variables, self.points = tuple(variables), points or Points([])
        self.settings = {TUNE: np.asarray(tune)} if variables else {}

    @classmethod
    def of(
        cls, blocks: Sequence[Block], points: Points, tune: int, taken: Collection[str] = ()
    ) -> "CountsOfValues":
        """The counts for the variables of some blocks that have very many elements and few values.

        A variable is left out if its counts, or the axis of its values, would have a name in `taken`.
        """
        found = []
        for block in blocks:
            space = block.space
            if space is None or space.totals is not None:
                continue
            for m in space.members:
                here = slice(m.start, m.start + m.size)
                if m.size <= MOST_ELEMENTS or space.windowed[here].any():
                    continue
                low, high = int(space.lower[here].min()), int(space.upper[here].max())
                if high - low < MOST_VALUES:
                    each = m.name not in block.with_probabilities
                    variable = Counted(m.name, m.shape, low, high - low + 1, each)
                    if variable.totals not in taken and variable.axis not in taken:
                        found.append(variable)
        return cls(found, points, tune)

    @property
    def names(self) -> list[str]:
        """The variables that are counted."""
        return [v.name for v in self.variables]

    @property
    def key(self) -> Hashable:
        return self.variables

    def said(self, draws: int) -> str:
        """A line for the log about the counted variables; `draws` is the number of draws of all chains."""
        size = sum(int(np.prod(v.shape)) for v in self.variables) * draws / 2**30
        names, totals = shown(self.names), shown([v.totals for v in self.variables])
        return (
            f"Draws of {names} are not kept, which would take {size:.2g} GB: the group probabilities has how "
            f"probable each value of each element is, and {totals} how many elements have each value. To "
            f"keep them, name {names} in var_names=, beside all else that is to be kept: without draws, "
            f"pm.sample_posterior_predictive draws {names} from the prior."
        )

    # ------------------------------------------------------------ while a chain runs
    def start(self) -> dict[str, Any]:
        """The counts before the first draw, (size, values - 1) for each variable, and the number of
        transitions.
        """
        counts = {
            v.name: np.zeros((int(np.prod(v.shape)), v.values - 1), np.int32)
            for v in self.variables
            if v.each
        }
        return {**counts, TUNE: np.zeros((), np.int32)} if counts else {}

    def after(self, t, point: Mapping[str, Any], counts: dict[str, Any]) -> dict[str, Any]:
        """The counts after transition t, which has led to `point` {variable or vector: array}.

        Tuning draws are not counted. The smallest value of a variable has no count of its own: it occurs in
        all other transitions.
        """
        if not counts:
            return counts
        values = self.points.by_name(point)

        def more(counts: dict[str, Any]) -> dict[str, Any]:
            found = {TUNE: counts[TUNE] + 1}
            for v in self.variables:
                if v.each:
                    is_value = jnp.arange(v.lower + 1, v.lower + v.values)
                    found[v.name] = counts[v.name] + (values[v.name].reshape(-1, 1) == is_value)
            return found

        return jax.lax.cond(t >= point[TUNE], more, lambda counts: counts, counts)

    def totals(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """{name: (values,) int, the number of elements that have each value} at a point."""
        values = self.points.by_name(point)
        found = {}
        for v in self.variables:
            each = [(values[v.name] == v.lower + k).sum(dtype=np.int32) for k in range(v.values)]
            found[v.totals] = jnp.stack(each)
        return found

    # ------------------------------------------------------------ on the host
    def axes(self) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """The coordinates and the dims of the arrays with the number of elements that have each value."""
        coords = {v.axis: np.arange(v.lower, v.lower + v.values) for v in self.variables}
        return coords, {v.totals: [v.axis] for v in self.variables}

    def groups(
        self, counts: dict[str, Any], coords: Mapping[str, Any], dims: Mapping[str, Any]
    ) -> dict[str, Dataset]:
        """{"probabilities": how often each element had each value}, from the counts (chains, ...)."""
        counted = [v for v in self.variables if v.each]
        if not counted:
            return {}
        bounds = {v.name: (v.lower, v.lower + v.values - 1) for v in counted}
        space = Space.build(bounds, {v.name: v.shape for v in counted})
        transitions = np.maximum(on_host(counts[TUNE]), 1)[:, None, None]
        means = []
        for v in counted:
            above = on_host(counts[v.name]) / transitions
            means.append(np.concatenate([1.0 - above.sum(-1, keepdims=True), above], axis=-1))
        first = np.broadcast_to(space.lower, (len(transitions), space.d))
        return {"probabilities": dataset(space, first, means, np.zeros(space.d, bool), coords, dims)}
