"""The results of the replicas of a run: the group `tempering` of a result, and a line for the log."""

from typing import Any, NamedTuple

import numpy as np
from xarray import Dataset

FEWEST_CHAINS = 4  # with fewer chains, no standard error of the log evidence is computed
FEW_ROUND_TRIPS = 10  # the number of round trips of a chain below which a warning is given


class Report(NamedTuple):
    """The results of the swaps of each chain after tuning.

    Attributes
    ----------
    betas : (chains, R) float, inverse temperatures; nan beyond the last rung
    rejections : (chains, R - 1) float, the rates at which swaps of neighbouring rungs were rejected; nan
        beyond the last rung
    round_trips : (chains,) int, the number of round trips
    iterations : int, the number of iterations of each chain
    log_evidence : (chains,) float, nats; nan where the lowest inverse temperature is not 0
    """

    betas: np.ndarray
    rejections: np.ndarray
    round_trips: np.ndarray
    iterations: int
    log_evidence: np.ndarray

    @classmethod
    def of(cls, betas: Any, rungs: Any, traffic: Any) -> "Report":
        """The report on chains, from the arrays (chains, ...) of their `Replicas`, copied to the host."""
        used = np.arange(betas.shape[1]) < np.asarray(rungs)[:, None]
        pairs = used[:, 1:]
        iterations = int(np.max(traffic.iterations))
        with np.errstate(invalid="ignore"):
            # For neighbouring rungs whose inverse temperatures differ by d, log E[exp(d L / 2)] at the lower
            # rung less log E[exp(-d L / 2)] at the upper one estimates the log ratio of the upper one's
            # normalising constant to the lower one's, L being the log likelihood (bridge sampling).
            ratios = np.where(pairs, traffic.up - traffic.down, 0.0)
        return cls(
            np.where(used, betas, np.nan),
            np.where(pairs, traffic.rejections / max(iterations, 1), np.nan),
            np.asarray(traffic.round_trips),
            iterations,
            np.where(betas[:, 0] == 0, ratios.sum(axis=1), np.nan),
        )

    @property
    def barrier(self) -> np.ndarray:
        """(chains,) float, the communication barrier Lambda, the sum of the rejection rates."""
        return np.nansum(self.rejections, axis=1)

    @property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Twice (chains,) float: the largest number of round trips per iteration that the chain's schedule
        allows, and that any schedule allows.

        References
        ----------
        Syed et al. 2022: 1 / (2 + 2 sum r / (1 - r)) for rejection rates r of this schedule, 1 / (2 + 2
        Lambda) for any schedule.
        """
        with np.errstate(divide="ignore"):
            odds = np.nansum(self.rejections / (1 - self.rejections), axis=1)
        return 1 / (2 + 2 * odds), 1 / (2 + 2 * self.barrier)

    @property
    def evidence(self) -> tuple[float, float]:
        """The mean of the chains' log evidence, and its standard error, which is nan for too few chains."""
        n = len(self.log_evidence)
        error = self.log_evidence.std(ddof=1) / np.sqrt(n) if n >= FEWEST_CHAINS else np.nan
        return float(self.log_evidence.mean()), float(error)

    def dataset(self) -> Dataset:
        """The group `tempering` of a result."""
        last = int(np.isfinite(self.betas).sum(axis=1).max())
        of_schedule, of_any = self.limits
        evidence, error = self.evidence
        chain, rung = ("chain",), ("chain", "rung")
        padded = np.pad(self.rejections, ((0, 0), (0, 1)), constant_values=np.nan)
        return Dataset(
            {
                "inverse_temperature": (rung, self.betas[:, :last]),
                "rejection_rate": (rung, padded[:, :last]),
                "barrier": (chain, self.barrier),
                "round_trips": (chain, self.round_trips),
                "round_trips_per_iteration": (chain, self.round_trips / max(self.iterations, 1)),
                "limit_of_schedule": (chain, of_schedule),
                "limit_of_any_schedule": (chain, of_any),
                "log_evidence": (chain, self.log_evidence),
            },
            coords={"chain": np.arange(len(self.betas)), "rung": np.arange(last)},
            attrs={"iterations": self.iterations, "log_evidence": evidence, "log_evidence_error": error},
        )

    def said(self) -> str:
        """The line for the log about the replicas."""
        replicas = np.isfinite(self.betas).sum(axis=1)
        several = f"{replicas.min()}" + (f" to {replicas.max()}" if replicas.max() > replicas.min() else "")
        evidence, error = self.evidence
        expected = int((self.limits[1] * self.iterations).sum())
        known = "" if np.isnan(evidence) else f"; log evidence {evidence:.6g}"
        known += f" +- {error:.2g}" if np.isfinite(error) else ""
        return (
            f"Tempering: {several} replicas a chain, communication barrier {self.barrier.mean():.3g}; "
            f"{int(self.round_trips.sum())} round trips between prior and posterior, of at most about "
            f"{expected}{known}."
        )

    def warnings(self) -> list[str]:
        """The warning that replicas seldom went from the prior to the posterior and back; else no text."""
        few = self.round_trips < FEW_ROUND_TRIPS
        if not few.any() or not self.iterations:
            return []
        return [
            f"Tempering: {int(self.round_trips.min())} round trips of a replica between prior and posterior "
            f"in one of the chains, where {FEW_ROUND_TRIPS} are few: modes may have other weights than these "
            "draws say. "
            "Draw more, let more replicas stand between them, as temper={'replicas': "
            f"{2 * int(np.isfinite(self.betas).sum(axis=1).max())}}}, or write a prior that is less wide."
        ]
