"""Keeps the summaries of one run and decides when the run ends."""

import math

import numpy as np

from benchmarks.scores import bulk_ess

FIRST_CHECK, CHECK_GROWTH = 100, 1.3  # ESS is computed at draw counts that grow by this factor
NUMBERS_AT_ONCE = 2**23  # the largest number of values from which summaries are computed in one call


class Done(Exception):
    """Raised out of a sampler when its run has reached the target or the limit."""


def of_chains(function, arrays):
    """{summary: (chains, draws)} of {variable: (chains, draws, ...)}, a few chains at a time.

    function : {variable: (draws, ...)} -> {summary: (draws,)}
    """
    chains, draws = next(iter(arrays.values())).shape[:2]
    together = max(1, NUMBERS_AT_ONCE // sum(a[0].size for a in arrays.values()))
    parts = []
    for first in range(0, chains, together):
        some = {name: a[first : first + together].reshape(-1, *a.shape[2:]) for name, a in arrays.items()}
        parts.append({name: np.reshape(values, (-1, draws)) for name, values in function(some).items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class Recorder:
    """Samplers call `ready` once after tuning, then `add` with every chunk of draws and the seconds it took.

    The time spent here is not part of those seconds. `add` raises Done when the smallest ESS is at least
    `target` and at least `min_seconds` were sampled (the ESS of a very short run is too large), or after
    `limit` seconds if there are `min_draws` draws by then.
    """

    def __init__(self, spec, target, limit, min_seconds, min_draws=0):
        self.spec, self.target, self.limit = spec, target, limit
        self.min_seconds, self.min_draws = min_seconds, min_draws
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
            self.ess = bulk_ess(self.summaries())
            if over or min(self.ess.values()) >= self.target:
                raise Done

    def summaries(self):
        """{summary: (chains, draws)}"""
        return {name: np.concatenate([c[name] for c in self.chunks], axis=1) for name in self.chunks[0]}

    def result(self):
        worst = min(self.ess, key=self.ess.get)
        moments = {name: (float(v.mean()), float(v.std())) for name, v in self.summaries().items()}
        return {
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


# ---------------------------------------------------------------- runs of a fixed time
def run_for(seconds, run, spec, seed, **options):
    """The recorder of a run of so many seconds of sampling.

    run : (spec, seed, recorder, **options) -> None, as the samplers in samplers.py are
    """
    recorder = Recorder(spec, math.inf, seconds, math.inf)
    try:
        run(spec, seed, recorder, **options)
    except Done:
        return recorder
    raise RuntimeError("the sampler ended by itself")


def setup_times(recorder):
    """The entries of a record on what precedes sampling."""
    return {"compile_seconds": recorder.compile_seconds, "tune_seconds": recorder.tune_seconds}


def joined(recorders):
    """(summaries (chains, draws), seconds of sampling, setup times) of chains that were run in turn.

    All chains are cut to the length of the shortest, and their seconds in proportion. Compile seconds are
    those of the first chain, tune seconds those of all.
    """
    draws = min(r.draws for r in recorders)
    chains = [r.summaries() for r in recorders]
    summaries = {name: np.concatenate([c[name][:, :draws] for c in chains]) for name in chains[0]}
    tune_seconds = sum(r.tune_seconds for r in recorders)
    seconds = sum(r.seconds / r.draws for r in recorders) * draws
    return summaries, seconds, setup_times(recorders[0]) | {"tune_seconds": tune_seconds}
