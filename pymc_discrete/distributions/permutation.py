r"""A distribution of permutations: uniform, or with a weight for each value in each place."""

import functools
import math
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.distributions.distribution import Discrete, SymbolicRandomVariable
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.pytensorf import convert_observed_data, normalize_rng_param
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.variable import TensorVariable

LARGEST_DRAWN = 16  # the length of the longest weighted permutation that can be drawn from its distribution


# ---------------------------------------------------------------- the random variables
class UniformPermutationRV(SymbolicRandomVariable):
    """Uniform permutations of 0, ..., n - 1, as the order of n uniform numbers."""

    name = "uniform_permutation"
    extended_signature = "[rng],[size],()->[rng],(n)"
    _print_name = ("Permutation", "\\operatorname{Permutation}")

    @classmethod
    def rv_op(cls, n: Any, *, size: Any = None, rng: Any = None) -> Variable:
        n, rng, size = pt.as_tensor(n), normalize_rng_param(rng), normalize_size_param(size)
        batch = () if rv_size_is_none(size) else tuple(size)
        length = int(constant_value(n))
        next_rng, u = pt.random.uniform(size=(*batch, length), rng=rng, return_next_rng=True)
        order = pt.specify_shape(pt.argsort(u, axis=-1), (*[None] * len(batch), length))
        return cls(inputs=[rng, size, n], outputs=[next_rng, order])(rng, size, n)


class WeightedPermutationRV(RandomVariable):
    """Permutations of 0, ..., n - 1, with a weight for every value in every place."""

    name = "weighted_permutation"
    signature = "(n,n)->(n)"
    dtype = "int64"
    _print_name = ("Permutation", "\\operatorname{Permutation}")

    def rng_fn(
        self, rng: np.random.Generator, weights: np.ndarray, size: tuple[int, ...] | None
    ) -> np.ndarray:
        n = weights.shape[-1]
        if n > LARGEST_DRAWN:
            raise ValueError(
                f"A weighted Permutation of {n} values cannot be drawn from its distribution: the time for "
                f"that grows as 2^n, and n may be {LARGEST_DRAWN} at most. Draw it by Markov chain, with "
                "pmd.sample() in a model that has no other variable."
            )
        batch = weights.shape[:-2] if size is None else size
        flat = np.broadcast_to(weights, (*batch, n, n)).reshape(-1, n, n)
        return np.array([drawn_permutation(rng, w) for w in flat], np.int64).reshape(*batch, n)


def drawn_permutation(rng: np.random.Generator, weights: np.ndarray) -> list[int]:
    """A permutation, drawn exactly: place by place, each given the places before it.

    Parameters
    ----------
    weights : (n, n) nats
    """
    from scipy.special import softmax  # the import is slow, and is not needed while sampling

    n = len(weights)
    rest, used, order = log_sums(np.asarray(weights, float).tobytes(), n), 0, []
    for place in range(n):
        free = [k for k in range(n) if not used >> k & 1]
        p = softmax([weights[place, k] + rest[used | 1 << k] for k in free])
        order.append(int(rng.choice(free, p=p)))
        used |= 1 << order[-1]
    return order


@functools.lru_cache(maxsize=8)
def log_sums(weights: bytes, n: int) -> np.ndarray:
    """(2^n,) nats, for every set of values the log of a sum over the ways to fill the places that the set
    leaves.

    A set of s values, the bits of its index, fills the places before s. The sum is over all ways in which the
    other values fill the places from s on, and has the terms exp(sum of weights). For the empty set, the sum
    is the permanent of exp(weights).

    Parameters
    ----------
    weights : (n, n) float64 as bytes, nats
    """
    w = np.frombuffer(weights).reshape(n, n)
    sets = np.arange(2**n)
    count = sum(sets >> k & 1 for k in range(n))
    total = np.full(2**n, -np.inf)
    total[-1] = 0.0
    for place in range(n - 1, -1, -1):
        of_size = sets[count == place]
        for k in range(n):
            without = of_size[of_size >> k & 1 == 0]
            total[without] = np.logaddexp(total[without], w[place, k] + total[without | 1 << k])
    return total


# ---------------------------------------------------------------- the log densities of the random variables
class UniformPermutation(Discrete):
    """The PyMC distribution whose random variable is `UniformPermutationRV`."""

    rv_type = UniformPermutationRV
    rv_op = UniformPermutationRV.rv_op

    @classmethod
    def dist(cls, n: int, **options: Any) -> TensorVariable:
        check_shape(options.get("shape"), n)
        return super().dist([n], **options)

    def support_point(rv, size, n):
        return in_all(np.arange(rv.type.shape[-1]), size)

    def logp(value, n):
        length = value.type.shape[-1]
        length = int(constant_value(n).flat[0]) if length is None else length
        return unless_invalid(value, length, -math.lgamma(length + 1.0))


class WeightedPermutation(Discrete):
    """The PyMC distribution whose random variable is `WeightedPermutationRV`."""

    rv_op = WeightedPermutationRV()

    @classmethod
    def dist(cls, weights: Any, **options: Any) -> TensorVariable:
        check_shape(options.get("shape"), weights.type.shape[-1])
        return super().dist([weights], **options)

    def support_point(rv, size, weights):
        from scipy.optimize import linear_sum_assignment  # the import is slow, and needed by few models

        given = constant_value(weights)
        flat = given.reshape(-1, *given.shape[-2:])
        # the most probable permutation
        best = np.stack([linear_sum_assignment(w, maximize=True)[1] for w in flat])
        return in_all(best.reshape(given.shape[:-1]), size)

    def logp(value, weights):
        n = weights.type.shape[-1]
        # `value` is clipped, since as an index out of bounds it would raise an error and not give -inf
        index = pt.clip(value, 0, n - 1)
        total = pt.take_along_axis(weights, index[..., None], axis=-1)[..., 0].sum(axis=-1)
        return unless_invalid(value, n, total)


def unless_invalid(value: TensorVariable, n: int, logp: Any) -> TensorVariable:
    """The log density (...), -inf where the value (..., n) is no permutation of 0, ..., n - 1."""
    return pt.switch(pt.any(pt.neq(pt.sort(value, axis=-1), np.arange(n)), axis=-1), -np.inf, logp)


def in_all(values: np.ndarray, size: Variable) -> TensorVariable:
    """`values` (..., n), repeated for every element of a batch of shape `size`."""
    return pt.as_tensor(values) if rv_size_is_none(size) else pt.alloc(values, *size, values.shape[-1])


# ---------------------------------------------------------------- the distribution that users write
class Permutation:
    r"""A permutation of 0, ..., n - 1: a ranking, a matching, an order.

    Every order is equally probable, or its probability is given by weights,

    .. math:: p(x) = \frac{1}{n!}, \qquad
        p(x) \propto \exp \sum_{i=0}^{n-1} W_{i, x_i}

    where :math:`x_i` is the value in place i. Vectors are along the last axis.

    Parameters
    ----------
    name : str
    n : int
        The number of values.
    weights : (..., n, n) float, optional
        W[..., i, k] is the term that value k in place i adds to the log density, in nats. Weights are numbers
        or `pm.Data`, and cannot depend on other random variables.
    shape : tuple of int, optional
        (..., n), for many permutations.
    **options
        The options of every PyMC distribution: `dims`, `observed`, `initval` and so on.

    Raises
    ------
    TypeError, ValueError
        For an n below 1, weights of a wrong shape, that are not finite, or that depend on random variables, a
        shape that does not end with n, observed values that are no permutation, and where a permutation is
        observed in part, or has weights and is observed.

    Notes
    -----
    With weights the log density lacks its normalising constant, the logarithm of the permanent of exp(W),
    which no known algorithm finds in less than exponential time. The constant does not depend on the order,
    so that samplers do not need it. A likelihood of the weights would need it, and weights may therefore not
    be random. For the same reason a weighted permutation is no component of a mixture.

    Draws (`pm.draw`, `pm.sample_prior_predictive`) are exact. With weights, a draw needs sums over all sets
    of values, so that n may be at most 16, and PyTensor remarks that permutations are drawn in Python.

    A chain starts at 0, ..., n - 1, or, with weights, at the most probable permutation (an assignment
    problem). `pmd.BlockGibbs`, `pmd.AutoStep` and `pmd.sample` sample it; PyMC's own steps propose vectors
    that are seldom permutations, and mix badly at best.

    Examples
    --------
    >>> with pm.Model():
    ...     order = pmd.Permutation("order", 5)
    ...     idata = pmd.sample()  # doctest: +SKIP
    """

    def __new__(cls, name: str, n: int, weights: Any = None, **options: Any) -> Any:
        n, weights = checked_weights(repr(name), n, weights)
        if has_missing(options.get("observed")):
            raise ValueError(
                f"{name!r} is observed in part: a permutation's missing values are those that the others "
                "leave. Make it unobserved as a whole, give what is known with initval=, and hold it with "
                "pm.Potential: pt.switch(pt.eq(order[0], 3), 0.0, -np.inf)."
            )
        check_observed(repr(name), n, options.get("observed"))
        if weights is None:
            return UniformPermutation(name, n, **options)
        if options.get("observed") is not None:
            raise ValueError(
                f"{name!r} is observed and has weights, which are numbers: it tells nothing of other "
                "variables, and its log density lacks the normalising constant, so that the evidence of the "
                "model would be wrong. Leave it out, or write a normalised likelihood as a pm.Potential."
            )
        return WeightedPermutation(name, weights, **options)

    @classmethod
    def dist(cls, n: int, weights: Any = None, **options: Any) -> TensorVariable:
        """The distribution without a name, as for every PyMC distribution; the arguments are those of the
        class.
        """
        n, weights = checked_weights("a Permutation", n, weights)
        return (
            UniformPermutation.dist(n, **options)
            if weights is None
            else WeightedPermutation.dist(weights, **options)
        )


def checked_weights(what: str, n: Any, weights: Any) -> tuple[int, TensorVariable | None]:
    """The number of values, and the weights with a known shape.

    Parameters
    ----------
    what : the name of the variable, for messages

    Raises
    ------
    TypeError, ValueError
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise TypeError(f"n of {what} is the number of its values, an integer, got {n!r}.")
    if n < 1:
        raise ValueError(f"{what} needs at least one value, got n = {n}.")
    if weights is None:
        return int(n), None
    weights = pt.as_tensor(weights)
    random = [a for a in ancestors([weights]) if isinstance(a.type, RandomType)]
    if random:
        raise ValueError(
            f"The weights of {what} depend on other random variables, and so does the normalising constant "
            "(a permanent), which the log density leaves out. Take weights that are numbers or pm.Data; a "
            "model whose constant is known, such as Plackett-Luce's, is a pm.Potential of an unweighted "
            "pmd.Permutation."
        )
    given = constant_value(weights)
    if given.ndim < 2 or given.shape[-2:] != (n, n):
        raise ValueError(
            f"The weights of {what} have the shape {given.shape}, and n = {n} values in as many places need "
            f"(..., {n}, {n}): W[..., i, k] is for value k in place i."
        )
    if given.dtype.kind not in "iufb":
        raise TypeError(f"The weights of {what} must be numbers, got {given.dtype}.")
    if not np.isfinite(given).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(given))[0])
        raise ValueError(
            f"The weights of {what} must be finite, got {given[where]} at {where}. Where a value must not "
            "stand in a place, say so with pm.Potential."
        )
    weights = weights.astype(pytensor.config.floatX)
    return int(n), pt.specify_shape(weights, (*weights.type.shape[:-2], int(n), int(n)))


def has_missing(observed: Any) -> bool:
    """Whether some observed values are masked or nan."""
    values = None if observed is None else convert_observed_data(observed)
    nan = isinstance(values, np.ndarray) and values.dtype.kind == "f" and bool(np.isnan(values).any())
    return nan or np.ma.is_masked(values)


def check_observed(what: str, n: int, observed: Any) -> None:
    """Refuse observed values (..., n) in which a vector does not have each of 0, ..., n - 1 once.

    Parameters
    ----------
    what : the name of the variable, for messages
    observed : numbers, pm.Data, or None
    """
    if observed is None:
        return
    values = constant_value(pt.as_tensor(convert_observed_data(observed)))
    if values.shape[-1:] != (n,):
        raise ValueError(
            f"The observed values of {what} have the shape {values.shape}, and a permutation of n = {n} "
            f"values needs (..., {n})."
        )
    wrong = np.argwhere((np.sort(values, axis=-1) != np.arange(n)).any(axis=-1))
    if not len(wrong):
        return
    where = tuple(wrong[0].tolist())
    vector = values[where]
    found, counts = np.unique(vector, return_counts=True)
    twice = found[counts > 1]
    absent = np.setdiff1d(np.arange(n), vector)
    foreign = np.setdiff1d(vector, np.arange(n))
    faults = [
        f"{of_kind[0]:g}{' and others' * (len(of_kind) > 1)} {fault}"
        for of_kind, fault in [(twice, "more than once"), (foreign, "from outside"), (absent, "not at all")]
        if len(of_kind)
    ]
    raise ValueError(
        f"{what} is observed{f' at {where}' * bool(where)} as a vector that is no permutation: it has "
        f"{', '.join(faults)}. Pass each of 0, ..., {n - 1} once."
    )


def check_shape(shape: Any, n: int) -> None:
    """Refuse a shape, given or by dims, that does not end with the number of values."""
    if shape is None:
        return
    last = tuple(shape)[-1] if np.ndim(shape) else shape
    if int(constant_value(pt.as_tensor(last))) != n:
        raise ValueError(
            f"The last axis of a Permutation has its {n} values, and its shape or dims give it "
            f"{int(constant_value(pt.as_tensor(last)))}."
        )


def constant_value(var: Variable) -> np.ndarray:
    """The value of a variable that needs no input; random variables that it depends on are drawn."""
    return np.asarray(pytensor.function([], var, mode="FAST_COMPILE")())
