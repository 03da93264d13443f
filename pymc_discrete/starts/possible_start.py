"""Finds a possible start of a chain, for use where the given or drawn start is impossible."""

import logging
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pymc as pm
from jax import Array
from pymc.exceptions import SamplingError
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs

from pymc_discrete.collapse.at_once import affordable_sums
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.kernels.random import key_of_words
from pymc_discrete.kernels.search import search
from pymc_discrete.runtime.compiling import announcing
from pymc_discrete.runtime.jax_settings import SELDOM, jitted
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.reuse import PROGRAMS, Kept
from pymc_discrete.space.target import Target
from pymc_discrete.starts.softened import softened
from pymc_discrete.structure.numbers import NeedsValues

_log = logging.getLogger("pymc.discrete")

# A possible start of a chain is not searched for if one sweep of the search has more operations than this, as
# counted from the graph of the log density.
DEAREST_SWEEP = 1e8

_kept: Kept[Callable[..., Any] | None] = Kept(PROGRAMS)


def possible_start(density: ModelDensity, x: np.ndarray, inputs: Any, rng: np.random.Generator) -> np.ndarray:
    """(d,) int, the state x if its density is positive; else a state with positive density, or x if none is
    found.

    The usual cause of an impossible start is a latent count below the number that was observed of it. The
    start comes from the count's prior, which says nothing about the data, and a chain that starts near the
    mean of the prior may find no possible state among its neighbours.

    Parameters
    ----------
    density : the density of the block
    x : (d,) int, the state at which the chain would start
    inputs : the inputs of the density's context
    rng : a random generator, which is used only if x is impossible
    """
    target = Target(density)
    target._inputs = inputs
    if float(target.logdensity(x)) > -np.inf:
        return x
    search_of = _kept.get(("search", density), lambda: searching(density))
    if search_of is None:
        return x
    y, found = search_of(rng.integers(2**32, size=2, dtype=np.uint32), x, inputs)
    y = np.asarray(y).astype(x.dtype)
    if not found or not float(target.logdensity(y)) > -np.inf:
        return x
    return y


def say_moved(names: list[str]) -> None:
    """Log the names of the variables whose starting values were changed."""
    if names:
        _log.info(f"The start of {shown(names)} was impossible, and was moved to a possible one.")


def refuse_nan(model: pm.Model) -> None:
    """Raise an error if a model that cannot start reads nan from its data or constants.

    Raises
    ------
    pymc.exceptions.SamplingError
    """
    for v in graph_inputs([*model.basic_RVs, *model.potentials]):
        constant = v.data if isinstance(v, Constant) else None
        held = np.asarray(v.get_value(borrow=True) if isinstance(v, SharedVariable) else constant)
        if held.dtype.kind == "f" and np.isnan(held).any():
            what = repr(v.name) if v.name else "an array"
            raise SamplingError(
                f"The model cannot start: {what} of shape {held.shape} that it reads holds nan. Look for it "
                "in the data, above all in covariates, and leave these rows out or fill them in."
            )


def searching(density: ModelDensity) -> Callable[..., Any] | None:
    """A compiled search for a possible state: (seed (2,) uint32, x (d,), inputs) -> (state, found).

    If all sites can be drawn at once from their exact distribution, one draw takes the place of a search: it
    is possible if any state is. The result is None if a search costs too much, or if the differences that it
    needs cannot be computed exactly.
    """
    what = f"the search for a possible start of {shown(density.names)}"
    if sums := affordable_sums(density):

        def drawn(seed: Array, x: Array, inputs: Any) -> tuple[Array, Array]:
            total, y = sums.total_and_draw(key_of_words(seed), density.without_parts(inputs))
            return y, total > -jnp.inf

        return announcing(jitted(drawn, SELDOM), what)
    try:
        soft = softened(density)
    except (NeedsValues, NotImplementedError, ValueError):
        return None
    if soft.cost(False) > DEAREST_SWEEP:
        return None

    def searched(seed: Array, x: Array, inputs: Any) -> tuple[Array, Array]:
        return search(key_of_words(seed), x, lambda *levels: Target(soft).with_inputs([*inputs, *levels]))

    return announcing(jitted(searched, SELDOM), what)
