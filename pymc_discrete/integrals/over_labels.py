r"""The integrals over conjugate parameters of labels, as graphs.

An integral depends, for each label, on the sums of the statistics of the elements that read the parameter at
this label. The sums are vectors with one element for each label, so that a move changes two elements.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.random.basic import MultinomialRV

from pymc_discrete.integrals.families import (
    MULTIVARIATE_NORMAL_PRIOR,
    ConjugateLikelihood,
    Family,
    Reading,
    Refusal,
    known_value,
)
from pymc_discrete.integrals.multiples import to_power
from pymc_discrete.structure.analysis import Depends


@dataclass
class Read:
    """A variable whose distribution reads a conjugate parameter.

    Attributes
    ----------
    rv : the variable
    unknown : whether the variable is an unknown of the model, and no data
    labels : (...) int, the row of the parameter that each of its elements reads
    likelihood, reading : how the distribution of the variable reads the parameter
    """

    rv: Variable
    unknown: bool
    labels: Variable
    likelihood: ConjugateLikelihood
    reading: Reading


@dataclass
class ConjugateParameter:
    """A parameter that can be integrated out in closed form.

    Attributes
    ----------
    name : the name of its value variable
    rv : its random variable
    family : Family
    shape : the shape of the variable
    reads : the `Read`s of the parameter
    means : if the parameter is a precision, the Normal parameters whose priors read it, which are integrated
        out before it
    """

    name: str
    rv: Variable
    family: Family
    shape: tuple[int, ...]
    reads: list[Read]
    means: list["ConjugateParameter"] = field(default_factory=list)

    @property
    def batch(self) -> tuple[int, ...]:
        """The shape of the parameter, without the last axis if each label has a vector along this axis."""
        return self.shape[:-1] if self.family.vectors else self.shape

    @property
    def rows(self) -> int:
        """The number of labels at which the parameter has a number or a vector."""
        return int(np.prod(self.batch))

    @property
    def length(self) -> int:
        """The length of the vector that the parameter has for each label; 1 if it has a number instead."""
        return self.shape[-1] if self.family.vectors else 1

    @property
    def of_means(self) -> list[Read]:
        """The `Read`s of this precision by its `means`, and by the variables that read a mean."""
        means = {m.rv for m in self.means} | {r.rv for m in self.means for r in m.reads}
        return [r for r in self.reads if r.rv in means]


def prior_of(rv: Variable, family: Family) -> tuple[Any, ...] | None:
    """The parameters of a variable's prior as its family has them; None if the prior is not of the family."""
    return family.priors[type(rv.owner.op)](*rv.owner.op.dist_params(rv.owner))


# ---------------------------------------------------------------- likelihoods at the reference value
def at_reference(model: pm.Model, read: Read, p: ConjugateParameter, discrete: Depends) -> Variable:
    """The log of those factors of a likelihood that do not depend on a conjugate parameter.

    It is the log density at a reference value of the parameter, less the log, at this value, of the factor
    that depends on the parameter.

    Parameters
    ----------
    discrete : the tensors that depend on the discrete variables of the model
    """
    node, reading, of = read.rv.owner, read.reading, read.likelihood
    if reading.precision:
        # For a precision, the squared distance of the observation from the mean is in the log density and in
        # the factor, and cancels. It could be large, so the mean is replaced by the observation itself, where
        # it is 0.
        of = of._replace(params=[read.rv, *of.params[1:]])
    reference = p.family.reference(p.length)
    if p.family is MULTIVARIATE_NORMAL_PRIOR:
        reference = reference + centre_of(p, discrete)
    param = to_power(of.factor * reference + of.offset, reading.power)
    params = [param if n == reading.place else v for n, v in enumerate(of.params)]
    statistics = [of_floats(s) for s in reading.statistics(of)]
    factor, *params = model.replace_rvs_by_values([p.family.log_weights(statistics, p.length), *params])
    _, rv = node.op(*params, rng=node.op.rng_param(node), return_next_rng=True)
    logp = pm.logp(rv, model.rvs_to_values[read.rv], warn_rvs=False)
    # where a vector has one log density, the log factors of its elements are added up
    return logp - (factor.sum(-1) if factor.type.ndim > logp.type.ndim else factor)


# ---------------------------------------------------------------- integrals
def integral_over(p: ConjugateParameter, discrete: Depends) -> list[Variable]:
    """The log of the integral over a conjugate parameter, and the parameters of its distribution given all
    else.

    The log of the integral is a sum over the labels of the parameter.

    Parameters
    ----------
    discrete : the tensors that depend on the discrete variables of the model
    """
    if p.means:
        return integral_over_precisions(p, discrete)
    if p.family.name == "dirichlet":
        return integral_over_probabilities(p)
    return integral_over_vectors(p, discrete) if p.family.vectors else integral_over_numbers(p)


def integral_over_numbers(p: ConjugateParameter) -> list[Variable]:
    """The log of the integral over a parameter with a number for each label, and the parameters of its
    distribution given all else.
    """
    prior = prior_by_label(p)
    sums = sums_of_reads(p.reads, [r.reading.statistics(r.likelihood) for r in p.reads], p.rows)
    return [p.family.log_marginal(prior, sums).sum(), *p.family.posterior(prior, sums)]


def integral_over_precisions(p: ConjugateParameter, discrete: Depends) -> list[Variable]:
    """The log of the integral over precisions, and over the means that are integrated out before them; and
    the parameters of the distribution of the precisions given all else but the means.

    Suppose that the prior and the observations of a mean have precisions that are known multiples of the same
    unknown precision. Integrating the mean out leaves a power of the unknown precision and an exponential
    function of it, to which a Gamma prior is conjugate.
    """
    prior, of_means = prior_by_label(p), p.of_means
    others = [r for r in p.reads if r not in of_means]
    sums = sums_of_reads(others, [r.reading.statistics(r.likelihood) for r in others], p.rows)
    logs = []
    for mean in p.means:
        *more, log = left_by_mean(p, mean, discrete)
        same = mean.rows == p.rows
        more = [m if same else m.sum().reshape((1,)) for m in more]
        sums = [s + m for s, m in zip(sums, more, strict=True)] if sums else more
        logs.append(log.sum())
    return [p.family.log_marginal(prior, sums).sum() + pt.add(0.0, *logs), *p.family.posterior(prior, sums)]


def left_by_mean(p: ConjugateParameter, mean: ConjugateParameter, discrete: Depends) -> list[Variable]:
    r"""The factor that remains, for each label of a mean, after the mean is integrated out given the
    precision.

    With the prior's precision :math:`c \tau` and mean m, and observations y of factors f and precisions
    :math:`d \tau`, let :math:`P = \sum d f^2`, :math:`L = \sum d f y`. The integral over the mean is, up to
    factors without unknowns,

    .. math::
        \tau^{n / 2} (1 + P / c)^{-1/2} \exp\Bigl(-\frac{\tau}{2} \Bigl(\sum d y^2
        + \frac{c P m^2 - 2 c m L - L^2}{c + P}\Bigr)\Bigr)

    Observations and m are measured from the mean of all observations, since the difference of :math:`\sum d
    y^2` and :math:`L^2 / (c + P)` would be lost in rounding where they are far from 0.

    Returns
    -------
    statistics : for each label of the mean, the numbers that are added to the two sums of statistics from
        which the precision is integrated out
    log : for each label of the mean, the logarithm of (1 + P / c)^(-1/2)
    """
    precision = {r.rv: r.likelihood.factor for r in p.reads}
    prior_mean, _ = prior_by_label(mean)
    centre = centre_of(mean, discrete)
    m = prior_mean - centre
    c = pt.broadcast_to(precision[mean.rv], mean.shape).reshape((mean.rows,))
    each = []
    for r in mean.reads:
        d, f = precision[r.rv], r.likelihood.factor
        y = r.rv - r.likelihood.offset - f * centre
        each.append([pt.full_like(y, 0.5), 0.5 * d * y**2, d * f**2, d * f * y])
    halves, squares, P, L = sums_of_reads(mean.reads, each, mean.rows)
    both = c + P
    return [
        halves,
        squares + 0.5 * (c * P * m**2 - 2 * c * m * L - L**2) / both,
        -0.5 * pt.log1p(P / c),
    ]


def integral_over_vectors(p: ConjugateParameter, discrete: Depends) -> list[Variable]:
    """The log of the integral over a parameter with a Normal vector for each label, and the parameters of its
    distribution given all else, in coordinates in which the elements of a vector are independent.
    """
    mean, _ = prior_of(p.rv, p.family) or ()
    to_own, to_vectors, variances = Coordinates.of(p)
    centre = centre_of(p, discrete)
    at = lambda v, of: (pt.broadcast_to(v, of) - centre).reshape((-1, p.length)) @ to_own.T
    observed = pt.concatenate([at(r.rv - r.likelihood.offset, r.rv.shape) for r in p.reads])
    labels = pt.concatenate([pt.broadcast_to(r.labels, r.rv.shape[:-1]).ravel() for r in p.reads])
    count = sums_by_label(labels, pt.ones_like(labels, dtype="float64"), p.rows)
    columns = [sums_by_label(labels, observed[:, j], p.rows) for j in range(p.length)]
    m, sd = at(mean, p.shape), np.sqrt(variances)
    each = [p.family.log_marginal((m[:, j], sd[j]), (count, column)) for j, column in enumerate(columns)]
    own_mean, own_sd = p.family.posterior((m, sd), (count[:, None], pt.stack(columns, axis=1)))
    return [pt.add(0.0, *each).sum(), own_mean + pt.dot(to_own, centre), own_sd, pt.constant(to_vectors)]


def integral_over_probabilities(p: ConjugateParameter) -> list[Variable]:
    """The log of the integral over a parameter with a vector of probabilities for each label, and the
    parameters of its distribution given all else.
    """
    (a,), rows, V = prior_of(p.rv, p.family) or (), p.rows, p.length
    # The counts that one site may change are laid out as neighbours in memory. If the labels are unknown,
    # they are the counts of a category at all labels; if the categories are, the counts of a label.
    by_category = not any(r.unknown for r in p.reads)
    table = pt.broadcast_to(of_floats(a), p.shape).reshape((rows, V))
    prior = [(table.T if by_category else table).reshape((rows * V,))]
    index, stats, labels, totals = [], [], [], []
    for r in p.reads:
        (count,) = map(of_floats, r.reading.statistics(r.likelihood))
        # the variable has a vector with the count of each category, in place of a single category
        vectors = isinstance(r.rv.owner.op, MultinomialRV)
        own = pt.broadcast_to(r.labels, r.rv.shape[:-1] if vectors else r.rv.shape)
        labels.append(own.ravel())
        totals.append((count.sum(-1) if vectors else count).ravel())
        row, category = (own[..., None], np.arange(V)) if vectors else (own, r.rv)
        index.append((category * rows + row if by_category else row * V + category).ravel())
        stats.append(count.ravel())
    counts = [sums_by_label(pt.concatenate(index), pt.concatenate(stats), rows * V)]
    total = sums_by_label(pt.concatenate(labels), pt.concatenate(totals), rows)
    concentration = table.sum(-1)
    of_totals = pt.gammaln(concentration) - pt.gammaln(concentration + total)
    (posterior,) = p.family.posterior(prior, counts)
    posterior = posterior.reshape((V, rows)).T if by_category else posterior.reshape((rows, V))
    return [p.family.log_marginal(prior, counts).sum() + of_totals.sum(), posterior]


class Coordinates(NamedTuple):
    """Coordinates of vectors in which the covariances of a normal prior and of a normal likelihood are
    diagonal.

    Attributes
    ----------
    to_own : (d, d), the map from vectors to the coordinates, in which the likelihood's covariance is the
        identity
    to_vectors : (d, d), the inverse of `to_own`
    variances : (d,), the variances of the prior in the coordinates
    """

    to_own: np.ndarray
    to_vectors: np.ndarray
    variances: np.ndarray

    @classmethod
    def of(cls, p: ConjugateParameter) -> "Coordinates":
        """The coordinates for a parameter of vectors, from the covariances of its prior and its likelihoods.

        Raises
        ------
        Refusal
            If a covariance is not known, is not positive definite, or is not the same for all elements.
        """
        _, covariance = prior_of(p.rv, p.family) or ()
        prior = known_covariance(covariance, p.length, "its prior")
        S, *more = (known_covariance(r.likelihood.params[1], p.length, repr(str(r.rv.name))) for r in p.reads)
        if not all(np.array_equal(S, other) for other in more):
            raise Refusal("what reads it has different covariances")
        if min(np.linalg.eigvalsh(c)[0] for c in (prior, S)) <= 0:
            raise Refusal("a covariance is not positive definite")
        root = np.linalg.cholesky(S)
        white = np.linalg.inv(root)
        variances, axes = np.linalg.eigh(white @ prior @ white.T)
        return cls(axes.T @ white, root @ axes, variances)


def known_covariance(covariance: Variable, d: int, of: str) -> np.ndarray:
    """(d, d), a known covariance matrix; a column of variances becomes a diagonal matrix.

    Parameters
    ----------
    of : the owner of the covariance, for the message

    Raises
    ------
    Refusal
    """
    found = known_value(covariance)
    if found is None:
        raise Refusal(f"the covariance of {of} is not known")
    matrices = (found if found.shape[-1] == d else found * np.eye(d)).reshape((-1, d, d))
    if not (matrices == matrices[0]).all():
        raise Refusal(f"the covariance of {of} is not the same everywhere")
    return matrices[0]


# ---------------------------------------------------------------- sums of statistics
def prior_by_label(p: ConjugateParameter) -> list[Variable]:
    """The parameters of a conjugate prior, each as a vector with one element for each label."""
    params = prior_of(p.rv, p.family) or ()
    return [pt.broadcast_to(of_floats(v), p.batch).reshape((p.rows,)) for v in params]


def centre_of(mean: ConjugateParameter, discrete: Depends) -> Variable:
    """A centre of the observations of a mean, () or, for vectors, (d,), which does not depend on labels.

    The centre is the mean of the observations, less their offsets. An offset that depends on discrete
    variables is not subtracted, since the centre would depend on all of their sites.
    """
    around = []
    for r in mean.reads:
        factor, offset = r.likelihood.factor, r.likelihood.offset
        if isinstance(factor, Constant) and np.all(factor.data == 1):
            y = of_floats(r.rv) - (0.0 if offset in discrete else offset)
            around.append(pt.broadcast_to(y, r.rv.shape).reshape((-1, mean.length)))
    if not around:
        return pt.constant(np.zeros(mean.shape[-1:] if mean.family.vectors else ()))
    together = pt.concatenate(around)
    centre = together.sum(axis=0) / pt.maximum(together.shape[0], 1)
    return centre if mean.family.vectors else centre[0]


def of_floats(v: Any) -> Variable:
    """A tensor as it is if its elements are floats, else as float64."""
    v = pt.as_tensor(v)
    return v if v.type.dtype.startswith("float") else v.astype("float64")


def of_elements(v: Variable, rv: Variable) -> Variable:
    """A tensor as a vector, after it is broadcast to the shape of a random variable."""
    return pt.broadcast_to(v, rv.shape).ravel()


def sums_of_reads(reads: Sequence[Read], each: Sequence[Sequence[Any]], rows: int) -> list[Variable]:
    """[(rows,)], for each statistic its sums by label, over all elements that read a parameter.

    Parameters
    ----------
    reads : the variables that read the parameter
    each : for each variable in `reads` its statistics
    rows : the number of labels
    """
    if not reads:
        return []
    labels = pt.concatenate([of_elements(r.labels, r.rv) for r in reads])
    vectors = [
        pt.concatenate([of_elements(of_floats(s), r.rv) for s, r in zip(own, reads, strict=True)])
        for own in zip(*each, strict=True)
    ]
    return [sums_by_label(labels, v, rows) for v in vectors]


def sums_by_label(labels: Variable, numbers: Variable, size: int) -> Variable:
    """(size,), for each label the sum of those `numbers` that have this label."""
    return pt.inc_subtensor(pt.zeros(size)[labels], numbers)
