"""Energies of densities of the plane, learned with negatives of a flow that is trained along (DFS thesis,
Algorithms 1, 3, 4 and B.1, Tables 4.1 and 4.2).

python -m benchmarks.experiments.flow_energies [--only moons pinwheel] [--ways bootstrapped] [--short]

Densities and bits are those of `flow_densities`. The energy is a network with three hidden layers, beside
independent bits with the means of the data. It is learned by draws of a flow, whose target it is, and by
chains of the discrete Langevin step alone.
"""

import time
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import harness
from benchmarks.experiments import report
from benchmarks.experiments.densities import (
    BASE,
    BITS,
    COMPARED,
    DENSITIES,
    RANGE,
    SPACE,
    discrepancies,
    independent,
    of_data,
    plane_of,
    points_of,
    weighed,
)
from pymc_discrete import kernels, learning
from pymc_discrete.flows.flow import sampled
from pymc_discrete.flows.kernel import back_and_forth
from pymc_discrete.flows.model import FlowModel, grid
from pymc_discrete.flows.networks import Perceptron
from pymc_discrete.flows.objectives import CVM, DFM, FlowObjective
from pymc_discrete.learning.data import Batch
from pymc_discrete.learning.samplers import PersistentChains, resampled

ITERATIONS, WIDTH, BATCH, RATE, EMA = 2000, 128, 128, 1e-3, 0.99
STEPS, INNER, REFINED, TURN, ENERGY_L2 = 20, 10, 10, 0.5, 0.1
WARM = 1000  # iterations of the flow before those of the energy


def main():
    args = report.arguments(__doc__, [], steps=0, chains=BATCH, seconds=0, more=options)
    if args.short:
        args.iterations, args.width = min(args.iterations, 10), min(args.width, 16)
    table, pictures = report.Table("flow_energies", args), {}
    for name in args.only or ([EVERY_WAY] if args.short else DENSITIES):
        plane = plane_of(name, args.short)
        table.add(name, "data", partial(of_data, plane))
        for way in args.ways:
            if name == EVERY_WAY or way not in RARE or args.only:
                label = way if args.width == WIDTH else f"{way}, width {args.width}"
                table.add(name, label, partial(learned, way, plane, args, pictures, name))
    table.write(
        "Energies of densities of the plane, learned with flows",
        [
            f"Networks of width {WIDTH} unless the name says otherwise, batches of {BATCH}, Adam with rate "
            f"{RATE}, moving average {EMA}, energies penalised by {ENERGY_L2} of their squares. Flows: "
            f"{STEPS} finite steps from masks, linear path, {WARM} iterations on independent bits at first.",
            f"naive: {INNER} iterations of the flow, on weighted draws of independent bits, for each of the "
            "energy (Algorithm 1). bootstrapped: one, on its own draws, weighted by the change of the "
            f"energy, after {REFINED} transitions of DMALA (3). back and forth: one, on what it made of data "
            f"from time {TURN} on, accepted or rejected (4, 5). leading: the energy "
            "follows the flow, which learns from data (B.1, alpha = 1/2). DMALA: a buffer of 2000 chains, "
            f"{REFINED} transitions.",
            f"NLL of test points, nats, log Z from {BASE} draws of independent bits, with its standard "
            "error; of data: by the counts of 256 times 256 cells. MMD^2 times 10,000 as in "
            "`flow_densities`, of as many draws by these weights; flow: of draws of the flow.",
        ],
    )
    picture(table, pictures)


def options(parser):
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--width", type=int, default=WIDTH, help="of the hidden layers")
    harness.choice(parser, "--ways", WAYS, default=list(WAYS))


# ---------------------------------------------------------------- negatives of a flow
class Kept(NamedTuple):
    """What a flow keeps between iterations of the energy.

    Attributes
    ----------
    params, optimizer : of the flow
    x : (n, d) int, its last draws
    log_p : (n,) float, nats, their unnormalised log densities when they were drawn
    accept : () float, the share of draws that were accepted
    tuning : of the kernel that refines draws
    """

    params: Any
    optimizer: Any
    x: Any
    log_p: Any
    accept: Any
    tuning: Any = ()


class Trained(NamedTuple):
    """A flow that is trained along.

    Attributes
    ----------
    model : FlowModel
    objective : FlowObjective
    optimizer : an optimiser of optax
    """

    model: FlowModel
    objective: FlowObjective
    optimizer: optax.GradientTransformation

    def begin(self, key, density, chains):
        x = self.draws(key, self.model.params, chains)
        log_p = jax.vmap(density.logdensity)(x)
        return Kept(self.model.params, self.optimizer.init(self.model.params), x, log_p, jnp.ones(()))

    def flow(self, params):
        return self.model.flow(params, grid(STEPS))

    def draws(self, key, params, n):
        """(n, d) int, draws of the flow."""
        return sampled(self.flow(params), jax.random.split(key, n))

    def step(self, key, kept, x, log_weights):
        """One iteration of the flow, on states x (n, d) with self-normalised weights."""
        weights = jax.nn.softmax(log_weights)
        loss, _ = self.objective.loss(key, self.model, kept.params, Batch(x, weights), None)
        updates, optimizer = self.optimizer.update(jax.grad(loss)(kept.params), kept.optimizer)
        return kept._replace(params=optax.apply_updates(kept.params, updates), optimizer=optimizer)

    def bootstrapped(self, key, density, kept):
        """One iteration on the last draws, weighted by how much the density has changed (Eq. 4.3)."""
        log_weights = jax.vmap(density.logdensity)(kept.x) - kept.log_p
        return self.step(key, kept, kept.x, log_weights)


class Sampler:
    """A sampler for `learning.fit`, whose draws are those of a flow.

    Parameters
    ----------
    trained : Trained
    """

    def __init__(self, trained):
        self.trained = trained

    def begin(self, key, density, chains):
        return self.trained.begin(key, density, chains)

    def conditional(self, key, graph, kept):
        raise NotImplementedError("Energies of hidden variables are not learned with flows.")


class Naive(Sampler):
    """Algorithm 1: the flow learns from draws of independent bits, weighted by the energy."""

    def draw(self, key, density, kept, chains, batch):
        log_q = jnp.asarray(density.model.log_base)
        key_draw, key_train = jax.random.split(key)

        def train(m, kept):
            key_x, key_step = jax.random.split(jax.random.fold_in(key_train, m))
            x = jax.random.categorical(key_x, log_q, shape=(chains, len(log_q)))
            log_weights = jax.vmap(density.logdensity)(x) - log_q[jnp.arange(len(log_q)), x].sum(axis=1)
            return self.trained.step(key_step, kept, x, log_weights)

        kept = jax.lax.fori_loop(0, INNER, train, kept)
        return self.trained.draws(key_draw, kept.params, chains), kept


class Bootstrapped(Sampler):
    """Algorithm 3: the flow learns from its own draws, after some transitions of a kernel."""

    def __init__(self, trained, refined=REFINED):
        super().__init__(trained)
        self.chains = learning.ContrastiveDivergence(*kernels.discrete_langevin(), transitions=refined)

    def begin(self, key, density, chains):
        tuning = self.chains.begin(key, density, chains).learned
        return super().begin(key, density, chains)._replace(tuning=tuning)

    def draw(self, key, density, kept, chains, batch):
        key_train, key_draw, key_move = jax.random.split(key, 3)
        kept = self.trained.bootstrapped(key_train, density, kept)
        start = PersistentChains(self.trained.draws(key_draw, kept.params, chains), kept.tuning)
        x, tuning = self.chains.move(key_move, density, start)
        return x, kept._replace(x=x, log_p=jax.vmap(density.logdensity)(x), tuning=tuning)


class BackAndForth(Sampler):
    """Algorithms 4 and 5: from data back along the flow and forth again, accepted or rejected."""

    def draw(self, key, density, kept, chains, batch):
        key_train, *keys = jax.random.split(key, 5)
        target = density.to_target()

        def moved(key_start, key_move):
            kernel, params = back_and_forth(self.trained.flow(kept.params), TURN)
            starts = resampled(key_start, batch, chains)

            def move(key, x):
                return kernel.step(key, kernel.init(x, target), target, params)

            state, info = jax.vmap(move)(jax.random.split(key_move, chains), starts)
            return state.x, info.accept.mean()

        negatives, accept = moved(*keys[:2])
        learned_from, _ = moved(*keys[2:])
        after = self.trained.step(key_train, kept, learned_from, jnp.zeros(chains))
        return negatives, after._replace(accept=accept)


class Leading:
    """Algorithm B.1, an objective: the flow learns from data, and the energy follows data and flow."""

    def __init__(self, trained):
        self.trained = trained

    def begin(self, key, model, params):
        return self.trained.begin(key, model.density(params), BATCH)

    def loss(self, key, model, params, batch, kept):
        key_again, key_train, *keys = jax.random.split(key, 4)
        kept = self.trained.bootstrapped(key_again, model.density(params), kept)
        before = self.trained.draws(keys[0], kept.params, BATCH)
        kept = self.trained.step(key_train, kept, batch.x, jnp.log(batch.weights))
        after = self.trained.draws(keys[1], kept.params, BATCH)
        log_p = jax.vmap(model.density(params).logdensity)(after)

        def loss(params):
            of_data, of_after, of_before = (
                jax.vmap(model.density(params).logdensity)(x) for x in (batch.x, after, before)
            )
            positive = (batch.weights @ of_data + of_after.mean()) / 2
            penalty = (of_data**2).mean() + (of_after**2).mean() + (of_before**2).mean()
            return of_before.mean() - positive + ENERGY_L2 * penalty

        return loss, kept._replace(x=after, log_p=log_p)


WAYS = {
    "EDFM, naive": (DFM(), Naive),
    "ECVM, naive": (CVM(), Naive),
    "EDFM*, bootstrapped": (DFM(), Bootstrapped),
    "ECVM*, bootstrapped": (CVM(), Bootstrapped),
    "DFM, back and forth": (DFM(), BackAndForth),
    "DFM, leading": (DFM(), Leading),
    "DMALA": (None, None),
}
RARE = ["ECVM, naive", "DFM, back and forth", "DFM, leading"]  # the ways of which one density has rows
EVERY_WAY = "2spirals"  # that density


# ---------------------------------------------------------------- rows
def learned(way, plane, args, pictures, name):
    """A row; draws of the energy and of the flow go into `pictures`."""
    key_energy, key_flow, key_warm, key_draws = jax.random.split(jax.random.key(args.seed), 4)
    network = eqx.nn.MLP(2 * BITS, "scalar", args.width, 3, jax.nn.swish, key=key_energy, dtype=jnp.float32)
    p = independent(plane.data)
    entropy = -(p * np.log(p) + (1 - p) * np.log1p(-p)).sum()
    # energies are about 0 at first, so that the penalty on their squares leaves them where they are
    network = eqx.tree_at(lambda n: n.layers[-1].bias, network, jnp.full(1, entropy, jnp.float32))
    model = learning.Neural(SPACE, network, base={"x": plane.data})
    objective, make = WAYS[way]
    options = {"optimizer": optax.adam(RATE), "batch": BATCH, "ema": EMA, "progressbar": False}
    begin, trained = time.perf_counter(), None
    if objective is None:
        buffer = learning.ReplayBuffer(*kernels.discrete_langevin(), transitions=REFINED, size=2000)
        of_way = {"sampler": buffer}
    else:
        flow = FlowModel(SPACE, Perceptron(2 * BITS, 2, width=args.width, depth=3, key=key_flow))
        base = np.asarray(jax.random.categorical(key_warm, model.log_base, shape=(20_000, 2 * BITS)))
        warm = min(WARM, 10 * args.iterations)
        first = learning.fit(flow, {"x": base}, objective=objective, iterations=warm, **options)
        flow.params = first.params
        trained = Trained(flow, objective, optax.adam(RATE))
        of_way = {"objective": make(trained)} if make is Leading else {"sampler": make(trained)}
    if "sampler" in of_way:
        of_way |= {"chains": BATCH, "energy_l2": ENERGY_L2}
    fitted = learning.fit(
        model, {"x": plane.data}, iterations=args.iterations, seed=args.seed, **options, **of_way
    )
    row = {"s": time.perf_counter() - begin, "iterations": args.iterations}
    found, draws = weighed(model, fitted.params, plane, 2000 if args.short else BASE)
    row |= found | discrepancies(draws, plane.tests[:COMPARED])
    shown = pictures.setdefault(name, {"data": points_of(plane.data)})
    shown[way] = points_of(draws[0])
    if trained is not None:
        if make is BackAndForth:
            row["accept"] = float(fitted.kept.accept)
        test = plane.tests[:COMPARED]
        keys = jax.random.split(key_draws, test[..., 0].size)
        of_flow = np.asarray(sampled(trained.flow(fitted.kept.params), keys)).reshape(test.shape)
        row |= {f"flow {k}": v for k, v in discrepancies(of_flow, test).items() if not k.endswith("se")}
        shown[f"flow, {way}"] = points_of(of_flow[0])
    return row


def picture(table, pictures):
    """Draws of each energy and of its flow, below one another for each density."""
    if not pictures:
        return
    import matplotlib.pyplot as plt

    ways = list(dict.fromkeys(way for of_ways in pictures.values() for way in of_ways))
    figure, axes = plt.subplots(
        len(ways), len(pictures), figsize=(2 * len(pictures), 2 * len(ways)), squeeze=False
    )
    for line, way in zip(axes, ways, strict=True):
        for ax, (name, of_ways) in zip(line, pictures.items(), strict=True):
            ax.set_visible(way in of_ways)
            ax.plot(*of_ways.get(way, np.zeros((0, 2))).T, ",", color="k")
            ax.set(xlim=(-RANGE, RANGE), ylim=(-RANGE, RANGE), xticks=[], yticks=[])
            if way == ways[0]:
                ax.set_title(name, fontsize=9)
        first = next(ax for ax, of_ways in zip(line, pictures.values(), strict=True) if way in of_ways)
        first.set_ylabel(way, fontsize=7)
    figure.savefig(table.file("-samples.png"), dpi=90, bbox_inches="tight")
    plt.close(figure)


if __name__ == "__main__":
    main()
