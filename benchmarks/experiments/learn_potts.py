"""Contacts found by a Potts model (GWG, section 7.2, Fig. 7 and 12, App. H), on sequences of a planted model.

python -m benchmarks.experiments.learn_potts [--seconds 300] [--short]

Sequences of 30 sites and 20 values come from a Potts model whose contacts are the 29 neighbours on a chain
and 45 other pairs. A model of all pairs is learned by persistent contrastive divergence with a group penalty
of 0.01, and by the pseudo-likelihood with the same penalty. Pairs are ordered by the norms of their tables.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.experiments import report
from benchmarks.experiments.iterations import seconds_each
from pymc_discrete import kernels, learning

D, K, FAR, SEQUENCES, STRENGTH = 30, 20, 45, 2000, 1.0
TRANSITIONS, BUFFER, BATCH, RATE, PENALTY = 50, 2560, 256, 0.001, 0.01
PSEUDO = "pseudo-likelihood"
SAMPLERS = {
    "GWG": (kernels.gibbs_with_gradients, TRANSITIONS),
    "PAFS": (kernels.path_auxiliary, TRANSITIONS),
    "DMALA": (kernels.discrete_langevin, TRANSITIONS),
    "BlockGibbs": (kernels.block_gibbs, 2),  # of D draws each
}


def main():
    args = report.arguments(__doc__, [], steps=2000, chains=BATCH, seconds=300)
    table = report.Table("learn_potts", args)
    sizes = (6, 4, 4, 200) if args.short else (D, K, FAR, SEQUENCES)
    truth = planted(*sizes[:3])
    data = drawn(truth, *sizes, args.steps)
    for name in [*SAMPLERS, PSEUDO]:
        table.add(f"D={sizes[0]}, K={sizes[1]}", name, lambda n=name: learned(n, truth, data, sizes, args))
    table.write(
        "Contacts by Potts models",
        [
            f"{SEQUENCES} sequences, {D - 1} + {FAR} contacts among {D * (D - 1) // 2} pairs. Buffer "
            f"{BUFFER}, batches of {BATCH}, T = {TRANSITIONS} transitions in an iteration (BlockGibbs: 2 "
            f"sweeps), Adam with rate {RATE}, group penalty {PENALTY}; as many iterations as the seconds "
            "allow.",
            "recall: the share of contacts among as many pairs as there are contacts; area: the mean recall "
            "over the number of pairs, 1 at best.",
        ],
    )
    table.figure(draw, columns=1)


def planted(d, k, far, seed=0):
    """(pairs (E, 2), whether a contact (E,), tables (E, K, K))."""
    r = np.random.default_rng(seed)
    pairs = np.stack(np.triu_indices(d, 1), axis=1)
    contact = pairs[:, 1] - pairs[:, 0] == 1
    contact[r.choice(np.flatnonzero(~contact), far, replace=False)] = True
    tables = np.where(contact[:, None, None], STRENGTH * r.normal(size=(len(pairs), k, k)), 0.0)
    return pairs, contact, tables


def drawn(truth, d, k, far, n, sweeps):
    """(n, d) int, ends of chains of block Gibbs sampling."""
    pairs, contact, tables = truth
    model = learning.Potts(d, k, pairs[contact])
    density = model.density({"tables": jnp.asarray(tables[contact]), "bias": jnp.zeros((d, k))})
    chains = learning.ContrastiveDivergence(*kernels.block_gibbs(), transitions=sweeps, start="uniform")
    kept = chains.begin(jax.random.key(0), density, n)
    return np.asarray(jax.jit(lambda kept: chains.draw(jax.random.key(1), density, kept, n)[0])(kept))


def learned(name, truth, data, sizes, args):
    d, k = sizes[:2]
    pairs, contact, _ = truth
    model = learning.Potts(d, k, pairs)
    zeros = jax.tree.map(jnp.zeros_like, model.start(jax.random.key(0)))
    options = {"batch": BATCH, "chains": BATCH, "group_l1": PENALTY, "params": zeros, "progressbar": False}
    if name == PSEUDO:
        options["objective"] = PSEUDO
    else:
        make, transitions = SAMPLERS[name]
        options["sampler"] = learning.ReplayBuffer(*make(), transitions=transitions, size=BUFFER)

    options["optimizer"] = optax.adam(RATE)
    each = seconds_each(2 if args.short else 5, model, {"x": data}, **options)
    iterations = int(np.clip(args.seconds / each, 10, 10_000))
    found = learning.fit(model, {"x": data}, iterations=iterations, **options)
    strengths = learning.coupling_strengths(found.params["tables"])
    recall = learning.recall_of_contacts(strengths, contact)
    return {
        "recall": recall[contact.sum() - 1],
        "area": recall.mean(),
        "iterations": iterations,
        "ms per iteration": 1000 * each,
        "curve": recall,
    }


def draw(axes, rows):
    for r in rows:
        axes[0].plot(np.arange(1, len(r["curve"]) + 1), r["curve"], label=r["sampler"])
    axes[0].set(xlabel="pairs, the strongest first", ylabel="recall of contacts")


if __name__ == "__main__":
    main()
