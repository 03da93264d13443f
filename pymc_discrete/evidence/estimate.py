"""Estimates of a log normalising constant from the log weights of annealed importance sampling."""

import logging
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

_log = logging.getLogger("pymc.discrete")

# The forward and the backward estimate are said to disagree if they are further apart than LARGEST_GAP
# standard errors.
LARGEST_GAP = 4.0


class Estimate(NamedTuple):
    """One estimate of a log normalising constant.

    Attributes
    ----------
    value : float, nats
    error : float, nats
        The standard error of `value`, from the variance of the weights. It is too small if few weights
        dominate.
    ess : float
        The effective sample size of the weights, between 1 and their number.
    log_weights : (n,) float, nats, one for each chain
    """

    value: float
    error: float
    ess: float
    log_weights: np.ndarray


class Mean(NamedTuple):
    """The mean of weights that are given by their logarithms.

    Attributes
    ----------
    log : float, nats, the logarithm of the mean
    variance : float, the variance of the mean divided by its square
    ess : float
    """

    log: float
    variance: float
    ess: float


def mean_of(log_weights: np.ndarray) -> Mean:
    """The mean of n weights, from their logarithms (n,), of which some may be -inf."""
    n, largest = len(log_weights), log_weights.max()
    if largest == -np.inf:
        return Mean(-np.inf, np.inf, 0.0)
    w = np.exp(log_weights - largest)
    mean = w.mean()
    variance = w.var(ddof=1) / n if n > 1 else np.inf
    return Mean(float(largest + np.log(mean)), float(variance / mean**2), float(w.sum() ** 2 / (w**2).sum()))


def estimated_shares(kept: int, tries: int) -> tuple[float, float, float]:
    """Estimates of the probability that a draw is kept, if draws were made until `kept` were kept.

    Returns
    -------
    share : float, an unbiased estimate of the probability
    share_back : float, whose inverse is an unbiased estimate of the inverse of the probability
    variance : float, the variance of either estimate, divided by the square of the estimate

    References
    ----------
    Haldane 1945, On a method of estimating frequencies.
    """
    share_back = kept / tries
    return (kept - 1) / (tries - 1), share_back, (1 - share_back) / kept


def forward_estimate(log_weights: np.ndarray, share: float = 1.0, variance: float = 0.0) -> Estimate:
    r"""The estimate of chains that went from the base to the target.

    .. math:: \hat Z = \frac1n \sum_i w_i, \qquad \mathrm{E} \hat Z = Z,
        \qquad \mathrm{E} \log \hat Z \le \log Z

    Parameters
    ----------
    log_weights : (n,) float, nats
    share : an unbiased estimate of the normalising constant of the base
    variance : the variance of `share`, divided by its square

    References
    ----------
    Neal 2001, Annealed importance sampling.
    """
    mean = mean_of(log_weights)
    return Estimate(
        mean.log + float(np.log(share)), float(np.sqrt(mean.variance + variance)), mean.ess, log_weights
    )


def backward_estimate(log_weights: np.ndarray, share: float = 1.0, variance: float = 0.0) -> Estimate:
    r"""The estimate of chains that went from draws of the target to the base.

    .. math:: \hat Z = \Bigl(\frac1n \sum_i w_i\Bigr)^{-1}, \qquad \mathrm{E} \hat Z^{-1} = Z^{-1},
        \qquad \mathrm{E} \log \hat Z \ge \log Z

    if the draws are exact and independent. The inverse of `share` is an unbiased estimate of the inverse of
    the normalising constant of the base.

    Parameters
    ----------
    log_weights : (n,) float, nats
        Increments of the log density ratio along the path back: their mean estimates 1 / Z.
    share : an estimate of the normalising constant of the base
    variance : the variance of `share`, divided by its square

    References
    ----------
    Grosse, Ghahramani and Adams 2015, Sandwiching the marginal likelihood using bidirectional Monte Carlo.
    """
    mean = mean_of(log_weights)
    return Estimate(
        float(np.log(share)) - mean.log, float(np.sqrt(mean.variance + variance)), mean.ess, log_weights
    )


@dataclass(frozen=True, repr=False)
class LogZ:
    """A log normalising constant: estimates from below and, where there are draws of the target, from above.

    Attributes
    ----------
    forward : Estimate
        Unbiased for Z, so that its logarithm is below log Z in expectation.
    backward : Estimate or None
        Above log Z in expectation if the draws are exact; with draws of Markov chains a check and no bound.
    exact : bool
        Whether the draws that the chains back started from are exact.
    temperatures : (T + 1,) float, from 0 to 1, the inverse temperatures of the path
    """

    forward: Estimate
    backward: Estimate | None
    exact: bool
    temperatures: np.ndarray

    @property
    def value(self) -> float:
        """The forward estimate of log Z, nats."""
        return self.forward.value

    @property
    def error(self) -> float:
        """The standard error of the forward estimate, nats."""
        return self.forward.error

    def __repr__(self) -> str:
        lines = [
            f"log Z = {self.value:.3f} ± {self.error:.3f} nats, {len(self.temperatures) - 1} temperatures",
            line_of_estimate("forward", self.forward, "unbiased for Z; log Z is above it in expectation"),
        ]
        if self.backward is not None:
            what = (
                "from exact draws; log Z is below it in expectation"
                if self.exact
                else "from draws of chains: a check, no bound"
            )
            lines.append(line_of_estimate("backward", self.backward, what))
        return "\n".join(lines)

    def complain(self) -> None:
        """Log a warning where the estimates rest on few chains, or contradict each other."""
        for direction, estimate in (("forward", self.forward), ("backward", self.backward)):
            if estimate is not None and estimate.ess < 0.1 * len(estimate.log_weights):
                _log.warning(
                    f"The {direction} estimate of log Z rests on {estimate.ess:.1f} effective chains of "
                    f"{len(estimate.log_weights)}: its error is larger than {estimate.error:.2g}. Raise "
                    "temperatures=."
                )
        if self.backward is None:
            return
        gap = abs(self.forward.value - self.backward.value)
        error = np.hypot(self.forward.error, self.backward.error)
        if gap > LARGEST_GAP * error:
            _log.warning(
                f"The two estimates of log Z, {self.forward.value:.2f} forward and {self.backward.value:.2f} "
                f"backward, are {gap:.2f} nats apart, and their error is {error:.2f}. Raise temperatures=; "
                "if that does not bring them together, chains miss a mode."
            )


def line_of_estimate(direction: str, estimate: Estimate, what: str) -> str:
    """An estimate in one line."""
    return (
        f"  {direction:<8}  {estimate.value:.3f} ± {estimate.error:.3f}, ESS {estimate.ess:.0f} of "
        f"{len(estimate.log_weights)}; {what}"
    )


def check_temperatures(temperatures: Any) -> np.ndarray:
    """(T + 1,) float, the inverse temperatures of a path; an integer T stands for equal steps.

    Raises
    ------
    ValueError
    """
    if isinstance(temperatures, int | np.integer) and not isinstance(temperatures, bool):
        if temperatures < 1:
            raise ValueError(f"temperatures must be an integer of at least 1, got {temperatures!r}.")
        return np.linspace(0.0, 1.0, int(temperatures) + 1)
    try:
        path = np.asarray(temperatures, float)
    except (TypeError, ValueError):
        path = np.empty(0)
    if path.ndim != 1 or len(path) < 2 or path[0] != 0 or path[-1] != 1 or not (np.diff(path) > 0).all():
        raise ValueError(
            "temperatures must be a number of steps, or inverse temperatures that increase from 0 to 1, got "
            f"{temperatures!r}."
        )
    return path
