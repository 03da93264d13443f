"""Splits and merges: their transition matrices, enumerated in NumPy, and what the compiled moves do."""

import functools
import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.kernels import block_gibbs
from pymc_discrete.kernels.split_merge import RESTRICTED_SCANS, split_or_merge
from pymc_discrete.kernels.sweeps import always_accepted, sweep_kernel
from pymc_discrete.space import space
from tests.tools.enumeration import (
    check_matrix,
    check_runs,
    check_sweep,
    enumerate_target,
    evaluate,
    run_steps,
)
from tests.tools.transition_matrices import site_matrix

Y = np.array([-2.0, -1.4, 0.3, 0.5, 2.1, 1.2])


# ---------------------------------------------------------------- models
# Each returns the ranges of its sites, and options of the target. The partition is `z`.
def integrated():
    """Means of clusters are integrated out, so that labels are alike."""
    z = pmd.Partition("z", "crp", concentration=0.8, shape=5, max_clusters=3)
    pm.Normal("y", pm.Normal("mu", 0, 2, shape=3)[z], 1, observed=Y[:5])
    return [range(3)] * 5, {"integrate": ["mu"]}


def two_labels():
    z = pmd.Partition("z", "pitman-yor", concentration=0.5, discount=0.3, shape=6, max_clusters=2)
    pm.Poisson("y", pm.Gamma("rate", 2, 1, shape=2)[z], observed=[0, 1, 0, 4, 5, 2])
    return [range(2)] * 6, {"integrate": ["rate"]}


def labels_with_means():
    """Labels whose means are where they are: a label that is free is chosen by its mean."""
    z = pmd.Partition("z", "mfm", components=pm.Geometric.dist(0.3), shape=4, max_clusters=3)
    pm.Normal("y", pt.as_tensor([-1.0, 0.2, 1.3])[z], 0.7, observed=Y[1:5])
    return [range(3)] * 4, {}


def beside_others():
    """A spin before the partition, with which one of its sites interacts, sites that are kept apart, and
    sites that may not have all labels.
    """
    c = pm.Bernoulli("c", 0.4)
    z = pmd.Partition("z", "crp", concentration=pt.as_tensor([0.5, 2.0])[c], shape=4, max_clusters=3)
    pm.Potential("apart", pt.switch(pt.eq(z[0], z[3]), -np.inf, 0.0))
    pm.Potential("e", 0.8 * pt.eq(z[1], 2) * c + 0.5 * pt.eq(z[1], z[3]) + 0.6 * pt.eq(z[:2], z[2:]).sum())
    bounds = (np.array([0, 1, 0, 0]), np.array([2, 2, 1, 2]))
    return [range(2), range(3), range(1, 3), range(2), range(3)], {"support": {"z": bounds}}


MODELS = (integrated, two_labels, labels_with_means, beside_others)


@functools.cache
def enumerated(build):
    with pm.Model() as model:
        ranges, options = build()
    return enumerate_target(
        pmd.target_from_model(model, ["c", "z"] if "c" in model else ["z"], **options), ranges
    )


def kernel_of(target):
    """A kernel of splits and merges alone."""
    n = next(n for n, v in enumerate(target.space.variables) if v.partition)

    def step(key, x, target):
        return split_or_merge(target, n)(key, x, False), always_accepted(target.space)

    return sweep_kernel(lambda target: None, step)


# ---------------------------------------------------------------- the matrix
def split_merge_matrix(e):
    """(S, S) the probabilities of where a split or merge leads, and (S,) those of all proposals together."""
    space_of = e.target.space
    (member,) = (m for m in space_of.members if m.name == "z")
    where = member.start + np.arange(member.size)
    labels = range(space_of.lower[where].min(), space_of.upper[where].max() + 1)
    # Launch states may be out of the bounds of sites, where the log density need not be -inf.
    ranges = [labels if s in where else sorted({*e.states[:, s]}) for s in range(space_of.d)]
    every = np.array(list(itertools.product(*ranges)))
    log_p = dict(zip(map(tuple, every), evaluate(e.target, every)[0].tolist(), strict=True))
    within = lambda s, label: space_of.lower[s] <= label <= space_of.upper[s]
    density = lambda x: log_p[x] if all(itertools.starmap(within, enumerate(x))) else -np.inf
    number = {tuple(x): s for s, x in enumerate(e.states)}
    P, proposed = np.zeros((len(e.states),) * 2), np.zeros(len(e.states))
    pairs = list(itertools.permutations(where, 2))

    @functools.cache
    def splits(one, i, j, other):
        """[(state, probability, launch)]: where the scans lead from the merged state `one`, i to `other`."""
        own = one[i]
        free = [s for s in where if one[s] == own and s not in (i, j)]
        states = []
        for to_other in itertools.product((False, True), repeat=len(free)):
            x = np.array(one)
            x[i] = other
            x[[s for s, moved in zip(free, to_other, strict=True) if moved]] = other
            states.append(tuple(x))
        at = {x: s for s, x in enumerate(states)}
        scan = np.eye(len(states))
        for site in free:
            draw = np.zeros((len(states),) * 2)
            for x in states:
                alternatives = [(*x[:site], label, *x[site + 1 :]) for label in (own, other)]
                lp = np.array([log_p[y] if within(site, y[site]) else -np.inf for y in alternatives])
                # where both are impossible, the site stays as it is
                p = np.equal(alternatives, x).all(1) if (lp == -np.inf).all() else np.exp(lp - lp.max())
                for y, of_y in zip(alternatives, p / p.sum(), strict=True):
                    draw[at[x], at[y]] += of_y
            scan = scan @ draw
        launch = np.full(len(states), 1 / len(states)) @ np.linalg.matrix_power(scan, RESTRICTED_SCANS)
        return states, launch, scan

    def choices(one, i):
        """{label that is free in the merged state: probability}, by how well it fits site i."""
        used = {one[s] for s in where}
        free = [label for label in labels if label not in used and within(i, label)]
        lp = np.array([log_p[(*one[:i], label, *one[i + 1 :])] for label in free])
        if not len(free) or (lp == -np.inf).all():
            return {}
        p = np.exp(lp - lp.max())
        return dict(zip(free, p / p.sum(), strict=True))

    for s, x in enumerate(map(tuple, e.states)):
        for i, j in pairs:
            splitting = x[i] == x[j]
            one = tuple(x[j] if t in where and v == x[i] else v for t, v in enumerate(x))
            chosen = choices(one, i)
            if not splitting and density(one) == -np.inf:
                proposed[s] += 1
                continue
            if not chosen:
                proposed[s] += 1
            for other, of_label in chosen.items():
                if not splitting and other != x[i]:
                    continue
                states, launch, scan = splits(one, i, j, other)
                for k, y in enumerate(states):
                    if not splitting and y != x:
                        continue
                    if density(y) == -np.inf:
                        proposed[s] += of_label * (launch @ scan[:, k])
                        continue
                    with np.errstate(divide="ignore"):
                        log_ratio = density(y) - density(one) - np.log(of_label * scan[:, k])
                    accept = np.minimum(1, np.exp(np.minimum(log_ratio if splitting else -log_ratio, 0)))
                    weight = of_label * launch * scan[:, k] if splitting else launch
                    proposed[s] += weight.sum()
                    P[s, number[y if splitting else one]] += weight @ accept
    P, proposed = P / len(pairs), proposed / len(pairs)
    P[np.diag_indices(len(P))] += 1 - P.sum(1)
    return P, proposed


@functools.cache
def matrix_of(build):
    return split_merge_matrix(enumerated(build))


@pytest.mark.parametrize("build", MODELS)
def test_matrices(build):
    e, (P, proposed) = enumerated(build), matrix_of(build)
    if "c" in {m.name for m in e.target.space.members}:  # which these moves leave as it is
        both = [np.flatnonzero(e.states[:, 0] == c) for c in (0, 1)]
    else:
        both = [np.arange(len(e.states))]
    for states in both:
        pi = e.pi[states] / e.pi[states].sum()
        check_matrix(P[np.ix_(states, states)], pi, proposed[states])


# Moves where means are integrated out are compiled in `test_labels_with_a_window`.
@pytest.mark.slow
@pytest.mark.parametrize("build", [two_labels, labels_with_means, beside_others])
def test_compiled_moves(build):
    e = enumerated(build)
    check_runs(run_steps(e, kernel_of(e.target), None, runs=20_000, level=1), matrix_of(build)[0])


@pytest.mark.slow
def test_sweeps_of_block_gibbs():
    """All sites in turn, and then a split or merge; or in the other order."""
    e, (P, _) = enumerated(two_labels), matrix_of(two_labels)
    sites = [site_matrix(e, i) for i in range(e.target.space.d)]
    forward = functools.reduce(np.matmul, [*sites, P])
    both = (forward + functools.reduce(np.matmul, [P, *sites[::-1]])) / 2
    check_sweep(e.pi, both, forward)
    check_runs(run_steps(e, *block_gibbs(), runs=20_000, level=1), both)


@pytest.mark.slow
def test_labels_with_a_window(monkeypatch):
    monkeypatch.setattr(space, "LARGEST_SUPPORT", 2)
    with pm.Model() as model:
        ranges, options = integrated()
    e = enumerate_target(pmd.target_from_model(model, ["z"], window=1, **options), ranges)
    assert not e.target.space.variables[0].finite
    check_runs(run_steps(e, kernel_of(e.target), None, runs=20_000, level=1), matrix_of(integrated)[0])
