r"""Distributions of partitions, written as labels: which sites are in one cluster, and how many clusters
there are.

All of them are of Gibbs type (Gnedin and Pitman 2006): a partition P of n sites into k clusters of the sizes
:math:`n_1, \dots, n_k` has the probability

.. math:: p(P) = V_{n,k} \prod_{j=1}^k (1 - d)_{n_j - 1}

where :math:`(x)_m = x (x + 1) \cdots (x + m - 1)`. The kinds of partition differ in d and in the weights V.
"""

import math
from contextlib import suppress
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Discrete
from pymc.pytensorf import convert_observed_data
from pymc.util import check_dist_not_registered
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_discrete.distributions.permutation import constant_value, has_missing

# the largest default of `max_clusters`, since each site is tried with every label
MOST_CLUSTERS = 256
# a distribution of the number of components is truncated at this many more than the number of labels
MORE_COMPONENTS = 500
# Numbers of components beyond the truncation may have at most this probability together, where it is known.
# The sum of a vector of probabilities may differ from 1 by as much.
LEFT_OUT = 1e-6
# the parameters of each kind of partition
KINDS = {
    "crp": ("concentration",),
    "pitman-yor": ("concentration", "discount"),
    "mfm": ("components", "gamma"),
}


# ---------------------------------------------------------------- the random variable
class PartitionRV(RandomVariable):
    """Labels of n sites: a partition of Gibbs type whose clusters are named by labels drawn at random."""

    name = "partition"
    signature = "(),(),(k),()->(n)"
    dtype = "int64"
    _print_name = ("Partition", "\\operatorname{Partition}")

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> tuple[Any, ...]:
        return (dist_params[0],)

    def rng_fn(
        self,
        rng: np.random.Generator,
        n: np.ndarray,
        discount: np.ndarray,
        log_weights: np.ndarray,
        most: np.ndarray,
        size: tuple[int, ...] | None,
    ) -> np.ndarray:
        if not (log_weights > -np.inf).any():
            raise ValueError(
                "A Partition cannot be drawn, as its parameters are out of range. See what they are computed "
                "from: 0 <= discount < 1, concentration > -discount, gamma > 0, and those of the components."
            )
        return drawn_labels(rng, int(n), float(discount), log_weights)


def drawn_labels(rng: np.random.Generator, n: int, d: float, log_weights: np.ndarray) -> np.ndarray:
    """(n,) labels, drawn exactly: site by site, each given the sites before it; the clusters are named at the
    end.

    Parameters
    ----------
    d : the discount
    log_weights : (K,) nats, the factor of the density of labels that depends on the number of clusters only
    """
    K = len(log_weights)
    k = np.arange(1, K + 1)
    # rest[m, k]: the log of the sum, over all ways to place the sites after the first m, of the factor by
    # which these sites multiply the weight of a partition of the first m sites into k clusters: m - k d to
    # join any cluster, 1 to open a new one
    rest = np.full((n + 1, K + 2), -np.inf)
    rest[n, 1:-1] = log_weights - log_share_of_naming(k, K)
    for m in range(n - 1, 0, -1):
        few = k[:m]
        rest[m, few] = np.logaddexp(np.log(m - few * d) + rest[m + 1, few], rest[m + 1, few + 1])
    cluster, sizes = np.zeros(n, np.int64), [1]
    for m in range(1, n):
        of = len(sizes)
        if rng.random() < math.exp(rest[m + 1, of + 1] - rest[m, of]):
            cluster[m] = of
            sizes.append(1)
        else:
            cluster[m] = rng.choice(of, p=(np.array(sizes) - d) / (m - of * d))
            sizes[cluster[m]] += 1
    return rng.permutation(K)[cluster]


def log_share_of_naming(k: np.ndarray, K: int) -> np.ndarray:
    """The logarithm of (K - k)! / K!, one divided by the number of ways to name k clusters by K labels."""
    return np.array([math.lgamma(K - one + 1) - math.lgamma(K + 1) for one in k])


def labels_and_clusters(rv: TensorVariable) -> tuple[int, int]:
    """The number K of labels, and the largest number of clusters that more labels would allow."""
    _, _, log_weights, most = rv.owner.op.dist_params(rv.owner)
    return log_weights.type.shape[0], int(constant_value(most))


# ---------------------------------------------------------------- the log density of the random variable
class PartitionOfSites(Discrete):
    """The PyMC distribution whose random variable is `PartitionRV`."""

    rv_op = PartitionRV()

    @classmethod
    def dist(
        cls, n: int, discount: Variable, log_weights: Variable, most: int, **options: Any
    ) -> TensorVariable:
        return super().dist([n, discount, log_weights, most], **options)

    def support_point(rv, size, n, discount, log_weights, most):
        # The start has clusters of consecutive sites, about as many as a Chinese restaurant process of
        # concentration 1.
        n, K = rv.type.shape[-1], log_weights.type.shape[-1]
        few = min(K, math.ceil(math.log(n + 1)))
        return pt.as_tensor(np.arange(n) * few // n)

    def logp(value, n, discount, log_weights, most):
        K = log_weights.type.shape[-1]
        inside = (value >= 0) & (value < K)
        # `value` is clipped, since as an index out of bounds it would raise an error and not give -inf
        sizes = pt.inc_subtensor(pt.zeros(K)[pt.clip(value, 0, K - 1)], 1.0)
        # the logarithm of (1 - d)_{m - 1} for a cluster of m sites: 0 for m = 1, and for labels without sites
        of_sizes = pt.gammaln(pt.maximum(sizes, 1.0) - discount) - pt.gammaln(1.0 - discount)
        # An element for k = 0 clusters, which never occurs, is put before the weights. Otherwise PyTensor
        # moves the index k - 1 into the sums that compute the weights, and computes these sums again for
        # every k that is tried.
        of_number = pt.concatenate([[-np.inf], log_weights])[pt.sum(sizes > 0)]
        logp = pt.switch(inside, 0.0, -np.inf).sum() + pt.sum(of_sizes) + of_number
        return check_parameters(
            logp, pt.eq(value.shape[-1], n), msg="as many labels as the sites that it was made with"
        )


def log_weights_of_labels(log_v: Variable, discount: Variable, n: int, K: int, most: int) -> Variable:
    """(K,) nats, the log density of labels with k = 1, ..., K clusters, without the factors that depend on
    the sizes of the clusters.

    A partition has the probability V_{n,k}, which depends on the numbers n of sites and k of clusters, times
    such factors. The density of labels without the factors is V_{n,k}, divided by the number of ways to name
    k clusters and, if more than K clusters are possible, by the probability of at most K clusters.

    Parameters
    ----------
    log_v : (K,) log V_{n,k}
    discount : the parameter of the factors that depend on the sizes of the clusters
    most : the largest possible number of clusters
    """
    named = log_v + log_share_of_naming(np.arange(1, K + 1), K)
    if most <= K:
        return named
    return named - pt.logsumexp(log_v + folded(log_factorial_coefficients(discount, n, K)))


def log_factorial_coefficients(discount: Variable, n: int, K: int) -> Variable:
    r"""(K,), the logarithms of the sums of :math:`\prod_j (1 - d)_{n_j - 1}` over partitions into k clusters.

    Clusters have the sizes :math:`n_j`, d is the discount, and :math:`(x)_m = x (x + 1) \cdots (x + m - 1)`.
    The sums are the generalised factorial coefficients C(n, k; d) / d^k (Charalambides 2005), for d = 0 the
    unsigned Stirling numbers of the first kind, with S(m + 1, k) = S(m, k - 1) + (m - k d) S(m, k).

    Parameters
    ----------
    n : int
        A number of sites, at least K.
    """
    k = np.arange(1, K + 1)

    def of_next(m, log_s, d):
        # log_s[k - 1] is log S(m, k). There are no partitions of m sites into k > m clusters: for these k it
        # has the value S(k, k) = 1 from which the recursion starts, so that values and gradients are finite.
        # The ratio does not overflow, since it is at most S(m, m - 1) / S(m, m) = m (m - 1) (1 - d) / 2.
        ratio = pt.concatenate([pt.zeros(1), pt.exp(log_s[:-1] - log_s[1:])])
        return log_s + pt.log(pt.switch(k <= m, m - k * d + ratio, 1.0))

    return pytensor.scan(
        of_next,
        sequences=[np.arange(1, n, dtype=pytensor.config.floatX)],
        outputs_info=[pt.zeros(K)],
        non_sequences=[discount],
        return_updates=False,
    )[-1]


def pitman_yor_weights(concentration: Variable, discount: Variable, n: int, K: int) -> Variable:
    """(K,) log V_{n,k}, the factor of a partition's probability that only n and k enter, for Pitman-Yor.

    There are n sites and k = 1, ..., K clusters. With discount 0 this is the Chinese restaurant process.
    """
    # V_{n,k} = prod_{j=1}^{k-1} (a + j d) / (a + 1)_{n-1}, where a is the concentration and d the discount
    opened = pt.concatenate([pt.zeros(1), pt.cumsum(pt.log(concentration + np.arange(1, K) * discount))])
    return opened - (pt.gammaln(concentration + n) - pt.gammaln(concentration + 1))


def mixture_weights(log_p: Variable, gamma: Variable, n: int, K: int) -> Variable:
    r"""(K,) :math:`\log V_{n,k}` of a mixture of finite mixtures, where d = -gamma.

    Only the numbers n of sites and k = 1, ..., K of clusters enter this factor of a partition's probability.
    The symbol :math:`(\gamma)_m` of Miller and Harrison is :math:`\gamma (1 - d)_{m - 1}`.

    Parameters
    ----------
    log_p : (T,) log probabilities of t = 1, ..., T components
    """
    k, t = np.arange(1, K + 1)[:, None], np.arange(1, log_p.type.shape[0] + 1)
    factorial = np.array([math.lgamma(m + 1) for m in range(len(t) + 1)])
    # the logarithm of t! / (t - k)!, a factor that is 0 for t < k
    ways = np.where(t >= k, factorial[t] - factorial[np.maximum(t - k, 0)], -np.inf)
    # V_{n,k} is a sum over the number t of components: Miller and Harrison 2018, Eq. 3.2
    of_t = log_p - pt.logsumexp(log_p) + pt.gammaln(gamma * t) - pt.gammaln(gamma * t + n)
    return pt.logsumexp(ways.astype(pytensor.config.floatX) + of_t, axis=1) + k[:, 0] * pt.log(gamma)


def is_constant(var: Variable) -> bool:
    """Whether a variable is computed from constants alone; data may change, and are no constants."""
    return all(a.owner is not None or isinstance(a, Constant) for a in ancestors([var]))


def folded(var: Variable) -> Variable:
    """The value of a variable if it is constant, so that it is computed once; else the variable itself."""
    return pt.constant(constant_value(var)) if is_constant(var) else var


# ---------------------------------------------------------------- the distribution that users write
class Partition:
    r"""A partition of n sites into clusters, as labels 0, ..., K - 1 whose names mean nothing.

    This is the prior of a mixture with an unknown number of clusters. A partition P into k clusters of the
    sizes :math:`n_1, \dots, n_k` has the probability

    .. math::
        p(P) = \frac{a^k \, \Gamma(a)}{\Gamma(a + n)} \prod_{j=1}^k (n_j - 1)! \quad\text{("crp")}, \qquad
        p(P) = \frac{\prod_{j=1}^{k-1} (a + j d)}{(a + 1)_{n-1}} \prod_{j=1}^k (1 - d)_{n_j - 1}
        \quad\text{("pitman-yor")},

    .. math::
        p(P) = \sum_{t \ge k} \frac{t!}{(t - k)!} \frac{p(t)}{(\gamma t)_n} \prod_{j=1}^k (\gamma)_{n_j}
        \quad\text{("mfm")}

    where :math:`(x)_m = x (x + 1) \cdots (x + m - 1)`. Each of the K! / (K - k)! ways to name its clusters is
    equally probable, so that labels z have the probability :math:`p(z) = p(P) (K - k)! / K!`.

    Parameters
    ----------
    name : str
    kind : {"crp", "pitman-yor", "mfm"}
        The Chinese restaurant process, the clusters of a Dirichlet process; the process of Pitman and Yor,
        where the number of clusters grows as a power of n; or a mixture of finite mixtures, with an unknown
        number of components.
    concentration : float, optional
        The parameter a, above 0 for "crp" and above -d for "pitman-yor". Large values mean many clusters.
    discount : float, optional
        The parameter d of "pitman-yor", 0 <= d < 1.
    components : TensorVariable or (T,) float, optional
        The prior p(t) of the number of components t = 1, 2, ... of "mfm": a distribution of PyMC such as
        `1 + pm.Poisson.dist(1)` or `pm.Geometric.dist(0.1)`, or the probabilities of t = 1, ..., T.
    gamma : float, default 1
        The parameter of "mfm", above 0: the weights of the components have a symmetric Dirichlet distribution
        with this parameter.
    max_clusters : int, optional
        The number K of labels. By default it is the number of sites, or of components, if that is at most
        256. If more than K clusters are possible, the prior is conditioned on at most K clusters.
    **options
        The options of every PyMC distribution: `shape=n` or `dims`, `observed`, `initval` and so on.

    Raises
    ------
    TypeError, ValueError
        For an unknown kind; parameters that the kind does not have, that are missing, no scalars, or out of
        range; components that may be 0; more than one axis, or more than 256 clusters without `max_clusters`;
        observed values that are no labels, or only a part of them.

    Notes
    -----
    All parameters, and the parameters of the distribution of the components, may be random variables. If one
    of them is out of range, the log density is -inf.

    For the condition of at most K clusters, the probability is divided by the probability of at most K
    clusters, which is exact, by a recursion of n steps for all k. If d, or gamma, is random, the recursion is
    a part of the log density, and takes O(n K) operations in every evaluation.

    A distribution of the number of components is cut off at T = K + 500, and normalised. Probabilities, of
    whatever event, change by at most P(t > T), which must be below 1e-6 where it is known.

    A chain starts with about log n clusters of consecutive sites. Draws (`pm.draw`,
    `pm.sample_prior_predictive`) are exact; PyTensor remarks that they are drawn in Python.

    The parameters of a mixture have K elements, `mu[z]`; elements of labels without sites are draws of their
    prior, as in algorithm 8 of Neal (2000). Labels switch in every chain that mixes: look at the number of
    clusters, and at `pmd.coclustering`.

    References
    ----------
    - Pitman and Yor (1997). The two-parameter Poisson-Dirichlet distribution derived from a stable
      subordinator.
    - Neal (2000). Markov chain sampling methods for Dirichlet process mixture models.
    - Gnedin and Pitman (2006). Exchangeable Gibbs partitions and Stirling triangles.
    - Miller and Harrison (2018). Mixture models with a prior on the number of components.

    Examples
    --------
    >>> with pm.Model():
    ...     a = pm.Gamma("a", 2, 2)
    ...     z = pmd.Partition("z", "crp", concentration=a, shape=6)
    ...     mu = pm.Normal("mu", 0, 5, shape=6)
    ...     y = pm.Normal("y", mu[z], 1, observed=[-3.1, -2.8, -3.0, 2.9, 3.3, 3.1])
    ...     idata = pmd.sample()  # doctest: +SKIP
    """

    def __new__(
        cls,
        name: str,
        kind: str,
        *,
        concentration: Any = None,
        discount: Any = None,
        components: Any = None,
        gamma: Any = None,
        max_clusters: int | None = None,
        **options: Any,
    ) -> Any:
        what, observed = repr(name), options.get("observed")
        if has_missing(observed):
            raise ValueError(
                f"{what} is observed in part, and the names of labels mean nothing. Make it unobserved as a "
                "whole, and say with pm.Potential what is known: of two sites that are in one cluster, "
                "pt.switch(pt.eq(z[0], z[1]), 0.0, -np.inf)."
            )
        given = {
            "concentration": concentration,
            "discount": discount,
            "components": components,
            "gamma": gamma,
        }
        n = number_of_sites(what, options)
        parameters = checked_parameters(what, kind, given, n, max_clusters)
        check_labels(what, observed, parameters[1].type.shape[0])
        return PartitionOfSites(name, n, *parameters, **options)

    @classmethod
    def dist(
        cls,
        kind: str,
        *,
        concentration: Any = None,
        discount: Any = None,
        components: Any = None,
        gamma: Any = None,
        max_clusters: int | None = None,
        **options: Any,
    ) -> TensorVariable:
        """The distribution without a name, as for every PyMC distribution; the arguments are those of the
        class.
        """
        given = {
            "concentration": concentration,
            "discount": discount,
            "components": components,
            "gamma": gamma,
        }
        n = number_of_sites("a Partition", options)
        return PartitionOfSites.dist(
            n, *checked_parameters("a Partition", kind, given, n, max_clusters), **options
        )


def checked_parameters(
    what: str, kind: str, given: dict[str, Any], n: int, max_clusters: Any
) -> tuple[Variable, Variable, int]:
    """The discount d, the log weights (K,), and the largest number of clusters.

    The log weights are the log density of labels with k = 1, ..., K clusters, without the factors that depend
    on the sizes of the clusters; -inf if a parameter is out of range.

    Parameters
    ----------
    what : the name of the variable, for messages
    given : {parameter: what the user passed, or None}

    Raises
    ------
    TypeError, ValueError
    """
    if kind not in KINDS:
        raise ValueError(f"The kind of {what} is one of {', '.join(map(repr, KINDS))}, got {kind!r}.")
    foreign = [name for name, value in given.items() if value is not None and name not in KINDS[kind]]
    if foreign:
        raise TypeError(
            f"{what} is of kind {kind!r}, which has no {foreign[0]}, only {' and '.join(KINDS[kind])}."
        )
    missing = [name for name in KINDS[kind] if given[name] is None and name != "gamma"]
    if missing:
        raise TypeError(f"{what} is of kind {kind!r}, which needs {' and '.join(missing)}.")
    if max_clusters is not None and (
        isinstance(max_clusters, bool) or not isinstance(max_clusters, int | np.integer) or max_clusters < 1
    ):
        raise ValueError(
            f"The largest number of clusters of {what} is an integer above 0, got {max_clusters!r}."
        )
    if kind == "mfm":
        gamma = scalar(what, "gamma", 1.0 if given["gamma"] is None else given["gamma"])
        log_p = log_prior_of_components(what, given["components"], int(max_clusters or min(n, MOST_CLUSTERS)))
        if max_clusters is not None and log_p.type.shape[0] < max_clusters:
            raise ValueError(
                f"{what} is to have up to {max_clusters} clusters, and has {log_p.type.shape[0]} components "
                "at most. Leave max_clusters= out."
            )
        most = min(n, log_p.type.shape[0])
        check_parameter(what, "gamma", gamma, gamma > 0, "above 0")
        valid = gamma > 0
        gamma = pt.switch(valid, gamma, 1.0)
        discount = -gamma
    else:
        a = scalar(what, "concentration", given["concentration"])
        discount = scalar(what, "discount", 0.0 if kind == "crp" else given["discount"])
        most = n
        within = (discount >= 0) & (discount < 1)
        check_parameter(what, "discount", discount, within, "at least 0 and below 1")
        limit = "above 0 and finite" if kind == "crp" else "above minus the discount and finite"
        valid = (a > -discount) & (a < np.inf)
        check_parameter(what, "concentration", a, valid, limit)
        valid = within & valid
        # Parameters out of range, where the log density is -inf, are replaced by others, so that the log
        # density is not nan. A constant discount stays constant.
        a, discount = pt.switch(valid, a, 1.0), pt.switch(within, discount, 0.0)
    K = number_of_labels(what, most, max_clusters)
    log_v = mixture_weights(log_p, gamma, n, K) if kind == "mfm" else pitman_yor_weights(a, discount, n, K)
    discount = folded(discount)
    log_weights = log_weights_of_labels(log_v, discount, n, K, most)
    log_weights = check_parameters(log_weights, valid, msg=f"the parameters of a partition of kind {kind}")
    log_weights = folded(log_weights.astype(pytensor.config.floatX))
    return discount, pt.specify_shape(log_weights, (K,)), most


def scalar(what: str, parameter: str, value: Any) -> TensorVariable:
    """A parameter as a scalar of a float type."""
    value = pt.as_tensor(value)
    if value.type.ndim:
        raise TypeError(
            f"The {parameter} of {what} is one number, got {value.type.ndim} axes: it has one partition, and "
            "many are as many variables."
        )
    return value.astype(pytensor.config.floatX)


def check_parameter(what: str, parameter: str, value: Variable, within: Variable, limit: str) -> None:
    """Refuse a constant out of range; the log density checks random variables and data."""
    if is_constant(within) and not constant_value(within):
        raise ValueError(f"The {parameter} of {what} must be {limit}, got {float(constant_value(value))}.")


def log_prior_of_components(what: str, components: Any, K: int) -> TensorVariable:
    """(T,) log probabilities of t = 1, ..., T components, up to the last possible number if it is known.

    Parameters
    ----------
    K : the largest number of labels that is considered
    """
    components = pt.as_tensor(components)
    if components.type.ndim > 1:
        raise TypeError(
            f"The components of {what} are a distribution of their number, or a vector of its probabilities, "
            f"got {components.type.ndim} axes."
        )
    listed = components.type.ndim == 1
    check_kind_of_components(what, components, listed)
    log_p = pt.log(components) if listed else log_density_of_components(what, components, K)
    log_p = log_p.astype(pytensor.config.floatX)
    if is_constant(log_p):
        value = constant_value(log_p)
        total = float(np.exp(value).sum())
        if listed and not abs(total - 1) < LEFT_OUT:
            raise ValueError(
                f"The probabilities of 1, ..., {len(value)} components of {what} must be none below 0 and "
                f"add up to 1, got the sum {total:.6g}."
            )
        if not abs(total - 1) < LEFT_OUT:
            raise ValueError(
                f"The number of components of {what} is above {len(value)}, where the sum over it ends, with "
                f"probability {1 - total:.2g}. Pass a vector of probabilities of 1, 2, ... components, as "
                "long as you need."
            )
        log_p = pt.constant(value[: np.flatnonzero(value > -np.inf)[-1] + 1])
    if log_p.type.shape[0] is None:
        raise ValueError(
            f"The length of the probabilities of the components of {what} is unknown. Give it with "
            "pt.specify_shape(p, (10,)), for 10 of them."
        )
    return log_p


def check_kind_of_components(what: str, components: TensorVariable, listed: bool) -> None:
    """Refuse a vector of distributions, and a distribution of numbers that are no integers."""
    if not listed and components.type.dtype.startswith("float"):
        raise TypeError(
            f"The components of {what} are a continuous distribution, and their number is whole. Pass a "
            "discrete one, as 1 + pm.Poisson.dist(1), or a vector of probabilities of 1, 2, ... components."
        )
    model = pm.Model.get_context(error_if_none=False)
    known = set() if model is None else set(model.basic_RVs)
    random = [v for v in ancestors([components], blockers=known) if v not in known and is_random(v)]
    if listed and random:
        raise TypeError(
            f"The components of {what} are a vector of distributions. Pass one distribution of their number, "
            "or a vector of its probabilities, which may be a variable of the model."
        )


def is_random(v: Variable) -> bool:
    """Whether a tensor is drawn from a distribution."""
    return v.owner is not None and isinstance(v.owner.op, RandomVariable) and v is v.owner.outputs[1]


def log_density_of_components(what: str, components: TensorVariable, K: int) -> TensorVariable:
    """(T,) log probabilities of t = 1, ..., T components under a distribution of PyMC."""
    try:
        if components.owner is None:
            raise ValueError("it is a number")
        check_dist_not_registered(components)
        # Inputs stand in for random parameters while PyMC derives the log density: it does so in a copy of
        # the graph, which would have copies of the random parameters, too.
        model = pm.Model.get_context(error_if_none=False)
        fixed = {rv: rv.type() for rv in ([] if model is None else model.free_RVs)}
        alone = graph_replace(components, fixed, strict=False)
        log_p = pm.logp(alone, np.arange(K + MORE_COMPONENTS + 1), warn_rvs=False)
        log_p = graph_replace(log_p, {copy: rv for rv, copy in fixed.items()}, strict=False)
    except (ValueError, NotImplementedError, TypeError) as error:
        raise ValueError(
            f"The components of {what} are a distribution whose log density PyMC knows, made by .dist(), as "
            f"1 + pm.Poisson.dist(1), or a vector of probabilities of 1, 2, ... components: {error}"
        ) from error
    # Whether 0 components are possible is seen at parameters drawn from their priors. With an improper prior,
    # which cannot be drawn from, it is not checked.
    with suppress(NotImplementedError):
        if constant_value(log_p[0]) > -np.inf:
            raise ValueError(
                f"The components of {what} may be 0 in number. Take another distribution, such as "
                "1 + pm.Poisson.dist(1) in the place of pm.Poisson.dist(1)."
            )
    return log_p[1:]


def number_of_labels(what: str, most: int, max_clusters: int | np.integer | None) -> int:
    """The number K of labels: the user's, or the largest possible number of clusters."""
    if max_clusters is not None:
        return int(max_clusters)
    if most > MOST_CLUSTERS:
        raise ValueError(
            f"{what} may have up to {most} clusters, and every site would be tried with each. Pass "
            "max_clusters=, a number above any that is probable: the prior is then that given at most so "
            f"many clusters. Without it there may be {MOST_CLUSTERS}."
        )
    return most


def number_of_sites(what: str, options: dict[str, Any]) -> int:
    """The number n of sites, from the shape, the dims or the observed values."""
    shape, dims, observed = options.get("shape"), options.get("dims"), options.get("observed")
    if shape is None and dims is not None:
        lengths, dims = pm.modelcontext(None).dim_lengths, [dims] if isinstance(dims, str) else dims
        if unknown := [dim for dim in dims if dim not in lengths]:
            raise ValueError(f"The model has no dimension {unknown[0]!r}, that of {what}. Add it to coords=.")
        shape = tuple(lengths[dim] for dim in dims)
    elif shape is None and observed is not None:
        shape = convert_observed_data(observed).shape
    if shape is None and options.get("size") is None:
        raise ValueError(f"{what} has an unknown number of sites. Pass a shape, their number, or dims.")
    axes = () if shape is None else tuple(shape) if np.ndim(shape) else (shape,)
    if len(axes) != 1 or options.get("size") is not None:
        raise ValueError(
            f"{what} is one partition, a vector of labels, with a shape of one number: got {len(axes)} axes. "
            "Make a variable of each."
        )
    n, given = (int(constant_value(pt.as_tensor(v))) for v in (axes[0], length_of(observed, axes[0])))
    if given != n:
        raise ValueError(f"{what} has {n} sites by its shape, and {given} observed. Leave the shape out.")
    if n < 1:
        raise ValueError(f"{what} needs at least one site, got {n}.")
    return n


def length_of(observed: Any, by_default: Any) -> Any:
    """The number of observed labels; `by_default` if none are observed."""
    return by_default if observed is None else convert_observed_data(observed).shape[0]


def check_labels(what: str, observed: Any, K: int) -> None:
    """Refuse observed values that are not among the labels 0, ..., K - 1."""
    if observed is None:
        return
    values = constant_value(pt.as_tensor(convert_observed_data(observed)))
    wrong = np.flatnonzero((values != np.round(values)) | (values < 0) | (values >= K))
    if len(wrong):
        raise ValueError(
            f"{what} is observed as {values[wrong[0]]:g} at ({wrong[0]},), and labels are 0, ..., {K - 1}. "
            "Number its clusters from 0 on."
        )
