"""The time of an iteration of learning."""

import time

import jax

from pymc_discrete import learning


def seconds_each(few, model, data, **options):
    """Seconds of an iteration of `learning.fit`: the mean of 2 `few`, after `few` that compile.

    Those of the processor; of an accelerator, which computes beside it, those of the clock.
    """
    ends, now = [], time.process_time if jax.default_backend() == "cpu" else time.perf_counter

    def clock(params):
        jax.block_until_ready(params)
        ends.append(now())
        return 0.0

    learning.fit(model, data, iterations=3 * few, evaluate=clock, evaluate_every=few, **options)
    return max((ends[-1] - ends[0]) / (2 * few), 1e-5)
