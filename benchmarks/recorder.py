"""Keeps the summaries of one run and says when it is done."""

import numpy as np

FIRST_CHECK, CHECK_GROWTH = 100, 1.3  # ESS is computed at draw counts that grow by this factor
AT_ONCE = 2**23  # numbers that summaries are computed from together


class Done(Exception):
    """Raised out of a sampler when its run has reached the target or the limit."""


class CannotRun(Exception):
    """Raised by a sampler that does not take this model; the message says why."""


def min_ess(summaries):
    """Bulk ESS per summary, {name: (draws,) or (chains, draws)}; one that never moved has ESS 0 (ArviZ says
    `draws`).
    """
    import arviz as az

    out = {}
    for name, values in summaries.items():
        values = np.asarray(values, float)
        ess = 0.0 if np.ptp(values) == 0 else float(az.ess(np.atleast_2d(values), method="bulk"))
        out[name] = ess if np.isfinite(ess) else 0.0
    return out


def of_chains(function, arrays):
    """{summary: (chains, draws)} of {variable: (chains, draws, ...)}, some chains at a time."""
    chains, draws = next(iter(arrays.values())).shape[:2]
    together = max(1, AT_ONCE // sum(a[0].size for a in arrays.values()))
    parts = []
    for first in range(0, chains, together):
        some = {name: a[first : first + together].reshape(-1, *a.shape[2:]) for name, a in arrays.items()}
        parts.append({name: np.reshape(values, (-1, draws)) for name, values in function(some).items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class Recorder:
    """Samplers call `ready` once after tuning, then `add` with every chunk of draws and the seconds it took.

    Nothing done here is inside those seconds. `add` raises Done when the minimum ESS is at least `target` and
    at least `min_seconds` were sampled (an ESS from a blink of a chain is optimistic), or at `limit` seconds
    if there are `min_draws` by then.
    """

    def __init__(self, spec, target, limit, min_seconds, min_draws=0):
        self.spec, self.target, self.limit, self.min_seconds, self.min_draws = (
            spec,
            target,
            limit,
            min_seconds,
            min_draws,
        )
        self.chunks, self.draws, self.seconds, self.next_check = [], 0, 0.0, FIRST_CHECK
        self.compile_seconds = self.tune_seconds = float("nan")
        self.precision = "float64"
        self.nuts_seconds = None  # of the sampling seconds, where NUTS reports its own
        self.ess = {}

    def ready(self, compile_seconds, tune_seconds):
        self.compile_seconds, self.tune_seconds = compile_seconds, tune_seconds

    def add(self, arrays, seconds):
        """arrays : {variable: (draws, ...)}, seconds : float"""
        self.add_chains({name: values[None] for name, values in arrays.items()}, seconds)

    def add_chains(self, arrays, seconds):
        """arrays : {variable: (chains, draws, ...)}, seconds : float"""
        self.chunks.append(of_chains(self.spec.summaries, arrays))
        self.draws += next(iter(self.chunks[-1].values())).shape[1]
        self.seconds += seconds
        over = self.seconds >= self.limit and self.draws >= self.min_draws
        if over or (self.draws >= self.next_check and self.seconds >= self.min_seconds):
            self.next_check = CHECK_GROWTH * self.draws
            self.ess = min_ess(self.summaries())
            if over or min(self.ess.values()) >= self.target:
                raise Done

    def summaries(self):
        """{summary: (chains, draws)}"""
        return {name: np.concatenate([c[name] for c in self.chunks], axis=1) for name in self.chunks[0]}

    def result(self):
        worst = min(self.ess, key=self.ess.get)
        moments = {name: (float(v.mean()), float(v.std())) for name, v in self.summaries().items()}
        return {
            "status": "ok",
            "precision": self.precision,
            "reached": self.ess[worst] >= self.target,
            "compile_seconds": self.compile_seconds,
            "tune_seconds": self.tune_seconds,
            "draws": self.draws,
            "sampling_seconds": self.seconds,
            "nuts_share": self.nuts_seconds / self.seconds if self.nuts_seconds else None,
            "ms_per_draw": 1e3 * self.seconds / self.draws,
            "min_ess": self.ess[worst],
            "min_ess_per_second": self.ess[worst] / self.seconds,
            "worst": worst,
            "summaries": {n: {"ess": self.ess[n], "mean": m, "sd": s} for n, (m, s) in moments.items()},
        }
