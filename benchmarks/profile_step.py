"""Where the time of a draw goes: milliseconds per step method of pm.sample, and the host's share of ours.

python -m benchmarks.profile_step A gwg-1 --draws 1000

For a step that holds its compiled callable as `_draw`, "compiled" is the time of that call until its
result is ready and "host" is the rest of the step: reading the point, random keys, copies, statistics.
"outside the steps" is what pm.sample does between steps: recording the draw and the callback.
"""

import contextlib
import time

import numpy as np

from benchmarks import harness
from benchmarks.models import MODELS
from benchmarks.recorder import Done, Recorder
from benchmarks.samplers import SAMPLERS


def timed(function, times, finish=lambda result: result):
    """`function`, with the seconds of every call appended to `times`; `finish` waits for its result."""

    def call(*args, **kwargs):
        start = time.perf_counter()
        result = finish(function(*args, **kwargs))
        times.append(time.perf_counter() - start)
        return result

    call.is_timed = True
    return call


def instrument(method, steps):
    """Time `method.step`, and its compiled draw as soon as it exists; append a row with both to `steps`."""
    import jax

    variables = ", ".join(v.name for v in method.vars)
    row = {"name": f"{type(method).__name__}({variables})", "step": [], "draw": []}
    steps.append(row)
    step = method.step

    def with_draw_timed(point):
        draw = vars(method).get("_draw")  # None before the first step, and in PyMC's own steps
        if draw is not None and not hasattr(draw, "is_timed"):
            method._draw = timed(draw, row["draw"], jax.block_until_ready)
        return step(point)

    method.step = timed(with_draw_timed, row["step"])


@contextlib.contextmanager
def instrumented(steps):
    """Inside, every chain of pm.sample has its steps timed."""
    from pymc.sampling import mcmc

    original = mcmc._iter_sample

    def iter_sample(*, step, **kwargs):
        methods = [step]
        while any(hasattr(m, "methods") for m in methods):  # a compound step may hold another
            methods = [inner for m in methods for inner in getattr(m, "methods", [m])]
        for method in methods:
            instrument(method, steps)
        return original(step=step, **kwargs)

    mcmc._iter_sample = iter_sample
    try:
        yield
    finally:
        mcmc._iter_sample = original


class CountingRecorder(Recorder):
    """Stops after a number of draws, whatever their ESS."""

    def __init__(self, spec, draws):
        super().__init__(spec, target=np.inf, limit=np.inf, min_seconds=np.inf)
        self.wanted = draws

    def add(self, arrays, seconds):
        super().add(arrays, seconds)
        if self.draws >= self.wanted:
            raise Done


def profile(model, sampler, draws, seed=0):
    """Markdown lines for one model and sampler."""
    steps = []
    recorder = CountingRecorder(MODELS[model], draws)
    with instrumented(steps), contextlib.suppress(Done):
        SAMPLERS[sampler].run(MODELS[model], seed, recorder)
    total = 1e3 * recorder.seconds / recorder.draws

    def mean(times):  # ms, after tuning
        return 1e3 * np.mean(times[-recorder.draws :])

    parts = []  # (name, ms per draw)
    for row in steps:
        ms = mean(row["step"])
        parts.append((row["name"], ms))
        if row["draw"]:
            compiled = mean(row["draw"])
            parts += [("... of it compiled", compiled), ("... of it host", ms - compiled)]
    parts.append(("outside the steps", total - sum(mean(row["step"]) for row in steps)))
    return [
        f"{model}, {sampler}: {total:.3f} ms per draw over {recorder.draws} draws",
        "",
        *harness.table(
            ["part", "ms per draw", "share"],
            [[name, f"{ms:.3f}", f"{ms / total:.0%}"] for name, ms in parts],
        ),
    ]


def main():
    p = harness.parser(__doc__)
    p.add_argument("model", choices=list(MODELS))
    p.add_argument(
        "sampler", choices=list(SAMPLERS), metavar="sampler", help="one that goes through pm.sample"
    )
    p.add_argument("--draws", type=int, default=1000)
    args = p.parse_args()
    harness.quiet()
    print("\n".join(profile(args.model, args.sampler, args.draws)))


if __name__ == "__main__":
    main()
