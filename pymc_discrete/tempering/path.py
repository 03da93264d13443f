r"""The path from the prior to the posterior, along which discrete variables are summed out if possible.

If a label is drawn, the log likelihood of its observation depends on the label, which alone makes swaps of
replicas fail. With labels summed out, the likelihood of the other variables is raised to a power,

.. math:: p_b(\theta) \propto p(\theta) \Bigl( \sum_z p(z \mid \theta)\, p(y \mid \theta, z) \Bigr)^b,

and the labels are drawn given the other variables, at b = 1. For a mixture of three normals, this gave a
barrier of 2.7 in place of 7.5, 7 replicas in place of 16, and 552 round trips in place of 165.
"""

import logging
from collections.abc import Sequence

import pymc as pm

from pymc_discrete.collapse.choice import work
from pymc_discrete.collapse.collapsed import Collapsed
from pymc_discrete.collapse.marginalize import marginalize
from pymc_discrete.model.support import improper_priors
from pymc_discrete.runtime.names import shown
from pymc_discrete.tempering.tempered import tempered

_log = logging.getLogger("pymc.discrete")

# With variables summed out, an evaluation of the log density may take at most this many times the counted
# work of an evaluation without sums, which then takes about 8 times as long. In a mixture of three normals, a
# replica makes about 8 times as many round trips with the labels summed out.
MOST_TIMES_ON_PATH = 24.0


def path(model: pm.Model, names: Sequence[str]) -> tuple[pm.Model, Collapsed | None]:
    """The tempered model, and the sums by which the discrete variables that it no longer has are drawn.

    Parameters
    ----------
    names : all discrete variables if they may be summed out, else none

    Raises
    ------
    ValueError
        If the model has no likelihood.
    NotImplementedError
        If the likelihood of a variable has no term of its own.
    """
    found = without_discrete(model, names) if names else None
    if found is None:
        return tempered(model), None
    left, drawn = found
    _log.info(
        f"Summed out at every inverse temperature: {shown(names)}, drawn given the rest. collapse=False "
        "draws them in turn."
    )
    return tempered(left), drawn


def without_discrete(model: pm.Model, names: Sequence[str]) -> tuple[pm.Model, Collapsed] | None:
    """The model without some discrete variables, and the sums by which these variables are drawn given all
    others.

    The result is None if the variables have no bounds or are too many, or if the sum takes too long; and also
    if the prior of another unknown depends on the variables, since it would become a part of the likelihood.
    """
    try:
        left = marginalize(model, [*names])
        if improper_priors(left):
            return None
        drawn = Collapsed.of(model, [*names])
    except (NotImplementedError, ValueError):
        return None
    if not drawn.whole or drawn.density.totals or work(drawn) > MOST_TIMES_ON_PATH:
        return None
    return left, drawn
