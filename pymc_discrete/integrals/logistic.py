r"""Logistic likelihoods, which are quadratic forms given Polya-Gamma variables.

A likelihood of log odds :math:`\eta` with a successes in b trials is, with :math:`\kappa = a - b / 2`
(Polson, Scott and Windle 2013, Theorem 1),

.. math:: \frac{e^{a \eta}}{(1 + e^\eta)^b}
    = 2^{-b} e^{\kappa \eta} \int e^{-\omega \eta^2 / 2} \, p(\omega) \, d\omega, \quad
    \omega \sim PG(b, 0)

and given all else :math:`\omega \sim PG(b, \eta)`.

A number b of trials below 1, as for a negative binomial count of 0 whose size is below 1, is raised above 1
by a further trial, whose success s is 1 with probability :math:`e^\eta / (1 + e^\eta)` and else 0:

.. math:: (1 + e^\eta)^{-b} = \sum_{s = 0}^1 \frac{e^{s \eta}}{(1 + e^\eta)^{b + 1}}
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import Exp, Log, Mul
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_discrete.integrals.polya_gamma import LARGE_SHAPE, random_polyagamma
from pymc_discrete.model.support import known
from pymc_discrete.structure.rebuild import rebuild

# Ops that only arrange or select elements of their first input
ARRANGES = (DimShuffle, Subtensor, AdvancedSubtensor, Reshape, SpecifyShape)
LOG_ODDS, TRIALS = "log odds", "trials"
PRECISION, SUCCESSES = "Polya-Gamma variables", "further successes"


class Trials(NamedTuple):
    """Observed data as successes in trials.

    Attributes
    ----------
    successes, trials : the number a of successes in b trials, and b, for each element
    possible : whether the data have a positive probability at all
    """

    successes: Any
    trials: Any
    possible: Any


class LogisticForm(NamedTuple):
    """The way in which a distribution is a logistic likelihood.

    Attributes
    ----------
    place : the index of the probability among the distribution's parameters
    of_failure : whether this probability is that of a failure
    trials : (data, *parameters) -> Trials
    """

    place: int
    of_failure: bool
    trials: Callable[..., Trials]


LOGISTIC_FORMS: dict[type[Op], LogisticForm] = {
    ptr.BernoulliRV: LogisticForm(
        0, False, lambda y, p: Trials(y, pt.ones_like(y), pt.ge(y, 0) & pt.le(y, 1))
    ),
    ptr.BinomialRV: LogisticForm(1, False, lambda y, n, p: Trials(y, n, pt.ge(y, 0) & pt.le(y, n))),
    ptr.NegBinomialRV: LogisticForm(1, True, lambda y, n, p: Trials(y, y + n, pt.ge(y, 0) & pt.gt(n, 0))),
    ptr.GeometricRV: LogisticForm(0, False, lambda y, p: Trials(pt.ones_like(y), y, pt.ge(y, 1))),
}


class Logistic:
    """Logistic likelihoods as quadratic forms: an `Augmentation` (integrals/augmented.py)."""

    called = PRECISION

    def predictor(self, op: Any, params: Sequence[Variable]) -> Variable | None:
        """The log odds of a success; None for a distribution that is no logistic likelihood."""
        if (form := LOGISTIC_FORMS.get(type(op))) is None:
            return None
        found = logit(params[form.place])
        if found is None:
            return None
        (found,) = rebuild([-found if form.of_failure else found], {}, log_of_product)
        return found

    def others(self, op: Any, params: Sequence[Variable]) -> list[Variable]:
        """The tensors from which the numbers of trials are computed."""
        return [p for n, p in enumerate(params) if n != LOGISTIC_FORMS[type(op)].place]

    def form(
        self,
        op: Any,
        params: Sequence[Variable],
        data: Variable,
        predictor: Variable,
        further: Callable[[str, np.ndarray], Variable],
    ) -> tuple[Variable, dict[str, Variable], tuple[Any, ...]]:
        """The log likelihood given Polya-Gamma variables; the log odds and the numbers of trials, which a
        draw of these variables reads; and a lower and an upper bound of the numbers of trials.
        """
        of_data = LOGISTIC_FORMS[type(op)].trials(data, *params)
        trials = pt.broadcast_to(of_data.trials, data.shape)
        number, shape = known(trials), tuple(map(int, data.shape.eval()))
        omega = further(PRECISION, np.full(shape, 0.25))
        half = of_data.successes - trials / 2
        bounds = bounds_of_trials(number)
        if bounds[0] < 1:
            half = half + further(SUCCESSES, np.zeros(shape))
        form = pt.switch(of_data.possible, half * predictor - omega * predictor**2 / 2, -np.inf)
        return form, {LOG_ODDS: predictor, TRIALS: trials}, bounds

    def draw(self, key: Any, values: Mapping[str, Any], facts: tuple[Any, ...]) -> dict[str, Any]:
        """Draw the Polya-Gamma variables, and what further trials add to successes - trials / 2.

        There is one further trial where the number of trials is below 1; it adds 1/2 or -1/2.
        """
        log_odds, trials, (least, most) = values[LOG_ODDS], values[TRIALS], facts
        key, key_more = jax.random.split(key)
        few = trials < 1
        more = jax.random.uniform(key_more, trials.shape, trials.dtype)
        added = jnp.where(few, (more < jax.nn.sigmoid(log_odds)) - 0.5, 0.0)
        bounds = (max(least, 1.0), max(most, 1.0) + (least < 1))
        return {SUCCESSES: added, PRECISION: random_polyagamma(key, trials + few, log_odds, bounds)}


LOGISTIC = Logistic()


def bounds_of_trials(number: np.ndarray | None) -> tuple[float, float]:
    """A lower and an upper bound of numbers of trials; `number` is None if the numbers are unknown.

    The bounds are as wide as the program that draws Polya-Gamma variables allows, so that other data seldom
    need another program.
    """
    if number is None or not number.size:
        return 0.0, np.inf
    least = 0.0 if number.min() < 1 else 1.0
    if number.max() <= 1:
        return least, 1.0
    # less by 1 than the program allows, since numbers of trials below 1 are raised by 1
    return least, LARGE_SHAPE - 1 if number.max() <= LARGE_SHAPE - 1 else np.inf


def log_of_product(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
    """[a sum] for a node that is the logarithm of a product with an exponential; else None.

    For example log(exp(eta) * exposure) becomes eta + log(exposure).
    """
    if not is_scalar_op(node, Log) or not is_scalar_op(inputs[0].owner, Mul):
        return None
    factors = inputs[0].owner.inputs
    if not any(is_scalar_op(f.owner, Exp) for f in factors):
        return None
    return [pt.add(*(f.owner.inputs[0] if is_scalar_op(f.owner, Exp) else pt.log(f) for f in factors))]


def is_scalar_op(node: Apply | None, kind: type) -> bool:
    """Whether a node applies a scalar function of the given kind to each element."""
    return node is not None and isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, kind)


def logit(p: Variable) -> Variable | None:
    """The log odds of a probability that is the sigmoid of a tensor; None for any other probability."""
    node = p.owner
    if node is None:
        return None
    if is_scalar_op(node, Sigmoid):
        return node.inputs[0]
    if is_scalar_op(node, Mul):
        rest = [i for i in node.inputs if not (isinstance(i, Constant) and np.all(i.data == 1))]
        same = len(rest) == 1 and rest[0].type.broadcastable == p.type.broadcastable
        return logit(rest[0]) if same else None
    if isinstance(node.op, ARRANGES):
        first = logit(node.inputs[0])
        return None if first is None else node.op.make_node(first, *node.inputs[1:]).outputs[0]
    return None
