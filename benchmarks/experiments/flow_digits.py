"""Energies of digits, learned with negatives of a flow and by persistent chains (DFS thesis, Table 4.3).

python -m benchmarks.experiments.flow_digits [--seconds 120] [--short]

The 8x8 digits in black and white and the network of `learn_digits`. A flow is trained along with the energy,
on its own draws (Algorithm 3 of the thesis), which a discrete Langevin step refines; a replay buffer keeps
its chains. As many iterations as take the same time.
"""

from functools import partial

import jax
import numpy as np
import optax

from benchmarks.experiments import report
from benchmarks.experiments.flow_energies import Bootstrapped, Trained
from benchmarks.experiments.iterations import seconds_each
from benchmarks.experiments.learn_digits import BUFFER, SETTINGS, energy_of, likelihood
from pymc_discrete import kernels, learning
from pymc_discrete.flows.model import FlowModel
from pymc_discrete.flows.networks import Perceptron
from pymc_discrete.flows.objectives import DFM

SETTING = SETTINGS["black and white"]
CHAINS, RATE, EMA, WARM_UP, ENERGY_L2 = 100, 1e-3, 0.99, 0.1, 1e-4
WARM = 1000  # iterations of the flow before those of the energy
STEPS, WEIGHED = 10_000, 1000  # of annealing; draws of the flow
WAYS = {
    "flow, refined by 10": (Bootstrapped, 10),
    "flow, refined by 40": (Bootstrapped, 40),
    "buffer of 10": (learning.ReplayBuffer, 10),
    "buffer of 40": (learning.ReplayBuffer, 40),
}


def main():
    args = report.arguments(__doc__, [], steps=STEPS, chains=CHAINS, seconds=120)
    table = report.Table("flow_digits", args)
    train, test = SETTING.images()
    for name, (make, transitions) in WAYS.items():
        table.add("black and white", name, partial(learned, make, transitions, train, test, args))
    table.write(
        "Energies of digits, learned with a flow and by persistent chains",
        [
            "As many iterations as the seconds allow, compiling and the first training of the flow not "
            f"counted; {CHAINS} negatives in an iteration, Adam with rate {RATE} after a warm-up, moving "
            f"average {EMA}, penalty {ENERGY_L2}. Transitions are those of DMALA.",
            f"log likelihood: nats per image of the test set, by {args.steps} steps of annealed importance "
            "sampling from independent pixels, as in `learn_digits`.",
            "negatives: the mean log density of negatives less that of data, nats, at the end, which is near "
            "0 where negatives are draws of the energy. flow alone: the same of draws of the flow, before "
            f"they are refined. k-hat, ESS: of the weights of {WEIGHED} draws of the flow for the energy.",
        ],
    )


def learned(make, transitions, train, test, args):
    """A row."""
    key_energy, key_flow, key_base = jax.random.split(jax.random.key(args.seed), 3)
    model = energy_of(SETTING.network(key_energy), SETTING.values, train)
    options = {"batch": CHAINS, "ema": EMA, "progressbar": False, "seed": args.seed}
    trained = None
    if make is Bootstrapped:
        network = Perceptron(model.space.d, model.space.K, key=key_flow)
        flow = FlowModel(model.space, network)
        base = np.asarray(jax.random.categorical(key_base, model.log_base, shape=(20_000, flow.space.d)))
        warm = learning.fit(
            flow, {"x": base}, objective=DFM(), iterations=10 if args.short else WARM, **options
        )
        flow.params = warm.params
        trained = Trained(flow, DFM(), optax.adam(RATE))
        sampler = Bootstrapped(trained, transitions)
    else:
        buffer = 200 if args.short else BUFFER
        sampler = make(*kernels.discrete_langevin(), transitions=transitions, size=buffer)
    options |= {"sampler": sampler, "chains": CHAINS, "energy_l2": ENERGY_L2}
    each = seconds_each(2 if args.short else 10, model, {"x": train}, **options)
    iterations = int(np.clip(args.seconds / each, 10, 50_000))
    optimizer = optax.adam(optax.linear_schedule(0.0, RATE, max(int(WARM_UP * iterations), 1)))
    fit = learning.fit(model, {"x": train}, optimizer=optimizer, iterations=iterations, **options)
    density = jax.jit(jax.vmap(model.density(fit.params).logdensity))
    of_data = density(train).mean()
    row = {"iterations": iterations, "ms per iteration": 1000 * each}
    row |= likelihood(model, fit.params, test, 50 if args.short else args.steps)
    row["negatives"] = float(density(fit.kept.x).mean() - of_data)
    if trained is not None:
        flow = trained.flow(fit.kept.params)
        found = flow.log_partition(model.target(fit.params), WEIGHED)
        row |= {"flow alone": float(density(found.x).mean() - of_data)}
        row |= {"k-hat": found.khat, "ESS": found.ess}
    return row


if __name__ == "__main__":
    main()
