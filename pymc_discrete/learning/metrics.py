"""Measures of samples, of chains, and of couplings that were learned."""

import jax
import jax.numpy as jnp
import numpy as np
from arviz_stats.base import array_stats
from jax import Array
from jax.typing import ArrayLike

from pymc_discrete.runtime.checks import check_choice, check_switch, is_number
from pymc_discrete.runtime.jax_settings import default_settings

COMPARISONS_AT_ONCE = 2**24  # the number of comparisons of sites that are held in memory together
KERNELS = {
    "hamming": lambda x, y, scale: jnp.exp(-(x != y).sum(axis=-1, dtype=jnp.result_type(float)) / scale),
    "rbf": lambda x, y, scale: jnp.exp(-((x - y) ** 2).sum(axis=-1) / (2 * scale**2)),
}


@default_settings()
def squared_mmd(
    x: ArrayLike,
    y: ArrayLike,
    *,
    kernel: str = "hamming",
    scale: float | None = None,
    unbiased: bool = False,
) -> Array:
    r"""Squared maximum mean discrepancy of two sets of samples.

    .. math:: \frac1{N^2} \sum_{ij} k(x_i, x_j) + \frac1{M^2} \sum_{ij} k(y_i, y_j)
        - \frac2{NM} \sum_{ij} k(x_i, y_j)

    with the kernel "hamming", :math:`\exp(-\sum_s [x_s \ne y_s] / l)`, or "rbf",
    :math:`\exp(-\lVert x - y \rVert^2 / (2 l^2))`.

    Parameters
    ----------
    x, y : (N, d), (M, d), samples; N and M at least 2
    kernel : {"hamming", "rbf"}
    scale : positive float
        The scale l, by default d for "hamming": the kernel is then the exponential of minus the share of
        different sites.
    unbiased : bool
        Leave out the pairs i = j of the first two sums, and divide by N(N - 1) and M(M - 1). The expectation
        is then 0 for samples of one distribution, and single values may be negative.

    Returns
    -------
    () float

    Raises
    ------
    ValueError
        For arrays of other shapes, another kernel, and a scale that is not positive.

    References
    ----------
    Gretton, Borgwardt, Rasch, Schoelkopf and Smola 2012, A Kernel Two-Sample Test, Lemma 6 and Eq. 5.
    Lazaro-Gredilla, Dedieu and George 2021, section 5, for the kernel "hamming".
    """
    check_choice("kernel", kernel, KERNELS)
    check_switch("unbiased", unbiased)
    as_floats = jnp.result_type(float) if kernel == "rbf" else None
    x, y = jnp.asarray(x, as_floats), jnp.asarray(y, as_floats)
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or not x.shape[1]:
        raise ValueError(
            "squared_mmd compares samples (N, d) and (M, d) of the same sites, got arrays of shapes "
            f"{x.shape} and {y.shape}."
        )
    if min(len(x), len(y)) < 2:
        raise ValueError(
            "squared_mmd compares two samples, and one row says nothing of how a sample spreads: got "
            f"{len(x)} and {len(y)}."
        )
    if scale is None and kernel == "rbf":
        raise ValueError("The kernel 'rbf' needs a scale, the distance over which points count as near.")
    if scale is not None and not (is_number(scale) and scale > 0):
        raise ValueError(f"scale must be a positive number, got {scale!r}.")
    scale = x.shape[1] if scale is None else scale
    within = [mean_kernel(a, a, kernel, scale) for a in (x, y)]
    if unbiased:  # The pairs i = j that are left out have k(x_i, x_i) = 1.
        within = [(len(a) * mean - 1) / (len(a) - 1) for a, mean in zip((x, y), within, strict=True)]
    return within[0] + within[1] - 2 * mean_kernel(x, y, kernel, scale)


def mean_kernel(x: Array, y: Array, kernel: str, scale: float) -> Array:
    """() float, the mean of the kernel k over all pairs of a draw in x and a draw in y."""
    size = max(COMPARISONS_AT_ONCE // y.size, 1)
    return jax.lax.map(lambda a: KERNELS[kernel](a, y, scale).mean(), x, batch_size=min(size, len(x))).mean()


def hamming_distance_ess(draws: ArrayLike, reference: ArrayLike) -> float:
    """Effective sample size of the Hamming distance to a reference state.

    Parameters
    ----------
    draws : (chains, n, d) int
    reference : (d,) int, such as a state drawn uniformly

    Returns
    -------
    float, the bulk effective sample size of all chains together

    References
    ----------
    Grathwohl et al. 2021, App. F.1.
    """
    x = np.asarray(draws)
    if x.ndim != 3 or np.shape(reference) != x.shape[2:]:
        raise ValueError(
            "hamming_distance_ess takes draws (chains, n, d) and a reference (d,), got arrays of shapes "
            f"{x.shape} and {np.shape(reference)}."
        )
    distance = (x != np.asarray(reference)).sum(axis=-1).astype(float)
    return float(array_stats.ess(distance, chain_axis=0, draw_axis=1, method="bulk"))


def coupling_strengths(tables: ArrayLike) -> np.ndarray:
    r"""(E,) float, the norms :math:`\lVert J_{ij} \rVert_2` of tables (E, K, K) of pairs (`Potts`).

    References
    ----------
    Grathwohl et al. 2021, section 7.2.
    """
    return np.sqrt((np.asarray(tables) ** 2).sum(axis=(-2, -1)))


def recall_of_contacts(strengths: ArrayLike, contacts: ArrayLike) -> np.ndarray:
    """The share of all contacts that is found among the strongest 1, 2, ..., E pairs.

    Parameters
    ----------
    strengths : (E,) float, the strength of each pair, such as a result of `coupling_strengths`
    contacts : (E,) bool, whether each pair is a contact, a pair known to interact; one at least

    Returns
    -------
    (E,) float, from 0 to 1

    References
    ----------
    Grathwohl et al. 2021, Fig. 7.
    """
    s, true = np.asarray(strengths), np.asarray(contacts)
    if s.ndim != 1 or s.shape != true.shape or true.dtype != bool or not true.any():
        raise ValueError(
            "recall_of_contacts takes strengths (E,) and whether each of these pairs is a contact, (E,) "
            f"bool with one at least, got arrays of shapes {s.shape} and {true.shape}, of which "
            f"{true.sum()} are."
        )
    return np.cumsum(true[np.argsort(-s, kind="stable")]) / true.sum()


def coupling_rmse(learned: ArrayLike, true: ArrayLike) -> float:
    """Root mean square of the differences of two matrices (n, n) of couplings, all entries counted.

    References
    ----------
    Grathwohl et al. 2021, section 7.1.
    """
    a, b = np.asarray(learned, float), np.asarray(true, float)
    if a.shape != b.shape:
        raise ValueError(f"coupling_rmse takes two matrices of one shape, got {a.shape} and {b.shape}.")
    return float(np.sqrt(np.mean((a - b) ** 2)))
