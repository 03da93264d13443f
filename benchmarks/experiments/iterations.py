"""The time of an iteration of learning."""

import time

from pymc_discrete import learning


def seconds_each(few, model, data, **options):
    """Processor seconds of an iteration of `learning.fit`: the mean of 2 `few`, after `few` that compile."""
    ends = []

    def clock(params):
        ends.append(time.process_time())
        return 0.0

    learning.fit(model, data, iterations=3 * few, evaluate=clock, evaluate_every=few, **options)
    return max((ends[-1] - ends[0]) / (2 * few), 1e-5)
