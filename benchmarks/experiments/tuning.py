"""Tuning: the values at which it ends from three starts, the acceptance there, and how close they are to the
best value.

python -m benchmarks.experiments.tuning [--only "Ising 20x20" ...] [--short]

Every kernel with a parameter is tuned as a step of `pm.sample` tunes it: `--steps` calls of `kernels.loop`,
5 transitions each. The starts are a tenth of the kernel's own, it, and ten times it. Then follow one chain of
`--seconds` at each of ten values, from an eighth of the tuned value to eight times it, and one at the tuned
value. They all start from one draw of block Gibbs, since the states after tuning are still far from typical.
"""

import time
from functools import partial

import jax
import numpy as np

from benchmarks import lattices
from benchmarks import models as examples
from benchmarks.experiments import models, report, runner
from pymc_discrete import target_from_model

SAMPLERS = ["GWG-adapt", "PAFS-adapt", "NB-adapt", "DMALA", "DLMC"]
TRANSITIONS, RECORDS, SWEEPS, GRID = 5, 256, 1000, np.geomspace(1 / 8, 8, 10)
ACCEPTABLE, NEAR_BEST = (0.53, 0.62), 0.8


def ising(p, coupling=0.4):
    return models.ising_in_field(np.zeros((p, p)), coupling)


def rbm(visible=784, hidden=25):
    """A random RBM as in Grathwohl et al. 2021, App. C."""
    r = np.random.default_rng(0)
    return models.rbm(
        r.normal(0, np.sqrt(0.05), (visible, hidden)), r.normal(size=visible), r.normal(size=hidden)
    )


def spike_and_slab():
    """Model A given the coefficients of its data. Those of inactive predictors are draws of the prior, and so
    plausible if the predictor were active.
    """
    model, _ = examples.spike_and_slab()
    r = np.random.default_rng(1)  # as spike_and_slab_data draws
    r.normal(size=(200, 100)), r.random(100)
    return model, {**model.initial_point(), "beta": r.normal(0, 2, 100)}


SETTINGS = {
    "Ising 20x20": lambda: (ising(20), None),
    "Ising 50x50": lambda: (ising(50), None),
    "Potts 30x30": lambda: (lattices.potts()[0], None),
    "RBM 784x25": lambda: (rbm(), None),
    "A given beta": spike_and_slab,
}


def main():
    args = report.arguments(__doc__, SAMPLERS, steps=500, chains=1, seconds=1.5)
    args.steps = min(args.steps, 100) if args.short else args.steps
    table = report.Table("tuning", args)
    for setting, make in SETTINGS.items():
        if setting not in (args.only or (["Ising 20x20"] if args.short else SETTINGS)):
            continue
        model, point = make()
        target = target_from_model(model, None if point is None else "gamma", initial_point=point)
        x = runner.random_starts(target.space, 1, args.seed)[0]
        at = runner.approximate_draw(target, x, jax.random.key(args.seed), SWEEPS)
        for name in args.samplers:
            table.run(setting, name, model, partial(measured, target=target, x=x, at=at, args=args))
    table.write(
        "Tuning",
        [
            f"tuned from: {args.steps} calls of {TRANSITIONS} or {TRANSITIONS + 1} transitions, from random "
            "states, started at a tenth of the kernel's own start, at it, and at ten times it, within the "
            "bounds. The rest of the row is at the middle one.",
            f"accept: over the sampling at the tuned value; outside: not within {ACCEPTABLE[0]} to "
            f"{ACCEPTABLE[1]}, nor at a bound.",
            "of best: ESS per second at the tuned value by that of the best of the ten grid values (an "
            f"eighth to eight times, within the bounds), {args.seconds:g} s of one chain each. The best of "
            "ten noisy numbers is too good by what the noise is.",
            "of fit: the same, read off a parabola through all eleven, log against log, that is less noisy.",
            "best at: that grid value by the tuned one. ones: sites whose value is 1. changes: sites that "
            "differ after a step; what the theory of the target acceptance maximises, and the only one of "
            "the three that is hardly noisy.",
        ],
    )
    table.figure(draw, columns=len(SAMPLERS), size=(4.2, 4.5))


def measured(sampler, kernel, params, *, target, x, at, args):
    """A row; tuning starts from the state x, sampling from the state `at`."""
    name, bounds, key = kernel.tuned.name, kernel.tuned.bounds(target.space), jax.random.key(args.seed)

    @jax.jit
    def many(key, state, target, value):
        def body(before, key):
            state, info = kernel.step(key, before, target, {**params, name: value})
            changes = (state.x != before.x).sum()
            return state, (state.logdensity, (state.x == 1).sum(), info.accept, changes)

        return jax.lax.scan(body, state, jax.random.split(key, RECORDS))

    def sample(value, key):
        """(ESS/s of the energy, of ones, sites changed per second, acceptance, steps per second)."""
        state, kept, spent, calls = kernel.init(at, target), [], 0.0, 0
        while spent < args.seconds:
            begin = time.perf_counter()
            state, out = jax.block_until_ready(many(jax.random.fold_in(key, calls), state, target, value))
            if calls:  # the first compiles
                spent += time.perf_counter() - begin
                kept.append([np.asarray(o) for o in out])
            calls += 1
        energy, ones, accept, jump = (np.concatenate(k) for k in zip(*kept, strict=True))
        return (
            runner.ess(energy[None]) / spent,
            runner.ess(ones[None]) / spent,
            jump.sum() / spent,
            accept.mean(),
            len(accept) / spent,
        )

    keys = jax.random.split(key, 3)
    tune = runner.tuner(kernel, params, target, TRANSITIONS)
    tuned = [
        tune(k, x, factor * params[name], args.steps) for factor, k in zip((0.1, 1, 10), keys, strict=True)
    ]
    value, tuning_accept = sorted(tuned)[1]
    values = np.unique(np.clip(value * GRID, *bounds))
    values = [value, *values[~np.isclose(values, value, rtol=1e-3)]]
    # in random order, so that a change of the machine's speed does not favour one end of the grid
    order = np.random.default_rng(args.seed).permutation(len(values))
    rates = np.array([sample(values[n], jax.random.fold_in(key, n)) for n in order])[np.argsort(order)]
    energy, ones, jump, accept, speed = rates.T
    ends = ["lower" * bool(value <= 1.02 * bounds[0]), "upper" * bool(value >= 0.98 * bounds[1])]
    inside = ACCEPTABLE[0] <= accept[0] <= ACCEPTABLE[1]
    row = {f"tuned from {f}": t[0] for f, t in zip(("a tenth", "start", "ten times"), tuned, strict=True)}
    row |= {
        "accept in tuning": tuning_accept,
        "accept": accept[0],
        "bound": "".join(ends),
        "outside": "" if inside or any(ends) else "yes",
    }
    row |= {"steps per s": speed[0], "ESS/s energy": energy[0], "ESS/s ones": ones[0], "changes/s": jump[0]}
    for what, ess in (("energy", energy), ("ones", ones), ("changes", jump)):
        best = int(np.argmax(ess[1:])) + 1
        row |= {
            f"{what} of best": ess[0] / ess[best],
            f"{what} best at": values[best] / value,
            f"{what} of fit": of_fit(values, ess),
        }
    curves = {"energy": energy, "ones": ones, "changes": jump, "accept": accept, "speed": speed}
    return row | {"grid": np.array(values)} | {f"grid {what}": curve for what, curve in curves.items()}


def of_fit(values, ess):
    """ESS at the first of `values`, relative to the largest ESS between the smallest and the largest value.

    Both are read off a parabola fitted to the logarithms.
    """
    log, some = np.log(np.array(values)), ess > 0
    if some.sum() < 4:
        return float("nan")
    curve = np.poly1d(np.polyfit(log[some], np.log(ess[some]), 2))
    return float(np.exp(curve(log[0]) - curve(np.linspace(log.min(), log.max(), 200)).max()))


def draw(axes, rows):
    for ax, name in zip(axes, SAMPLERS, strict=True):
        for n, setting in enumerate(SETTINGS):
            for r in (r for r in rows if (r["setting"], r["sampler"]) == (setting, name)):
                order = np.argsort(r["grid"])
                factor = np.array(r["grid"])[order] / r["grid"][0]
                for what, ls in (("changes", "-"), ("energy", ":")):
                    ess = np.array(r[f"grid {what}"])[order]
                    ax.plot(
                        factor,
                        ess / ess.max(),
                        ls,
                        color=f"C{n}",
                        marker=".",
                        label=setting if what == "changes" else None,
                    )
        ax.axvline(1, color="k", lw=0.8)
        ax.set_xscale("log", base=2)
        ax.set(
            title=name,
            xlabel="value by the tuned one",
            ylabel="per second, by the best (changes -, ESS of the energy :)",
            ylim=(0, 1.05),
        )


if __name__ == "__main__":
    main()
