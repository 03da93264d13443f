"""Every message that names a remedy: what brings it and what it tells one to do, or why that is not run here.

A message is known by a piece of its text, as it stands in the code.
"""

import functools
import importlib
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from unittest import mock

import equinox as eqx
import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from arviz_base import from_dict
from pymc import dims
from pymc.dims import as_xtensor
from pytensor.raise_op import Assert

import pymc_discrete as pmd
from pymc_discrete.diagnostics.convergence import check_convergence
from pymc_discrete.space.linear_constraint import LinearConstraint
from pymc_discrete.variational.energy_posterior import block_of_all


class Row(NamedTuple):
    """A message, what brings it, and what it tells one to do: functions without arguments."""

    message: str
    wrong: Callable[[], Any]
    right: tuple[Callable[[], Any], ...]


ROWS: list[Row] = []


def row(message: str, wrong: Callable[[], Any], *right: Callable[[], Any]) -> None:
    ROWS.append(Row(message, wrong, right))


def once(make):
    """A function that makes functions, the same one of equal arguments, where these can be compared."""
    kept = functools.lru_cache(None, typed=True)(make)

    @functools.wraps(make)
    def made(*arguments, **options):
        try:
            return kept(*arguments, **options)
        except TypeError:  # a list or an array has no hash
            return make(*arguments, **options)

    return made


# ---------------------------------------------------------------- what is done with a model
@once
def on(build, do):
    """What is done with the model that `build` fills, in its context."""

    def done():
        with pm.Model() as model:
            build()
            return do(model)

    return done


@once
def step(kind, build, *vars, **options):
    """A step that is made."""
    return on(build, lambda model: getattr(pmd, kind)(*vars, **options))


@once
def target(build, *vars, **options):
    return on(build, lambda model: pmd.target_from_model(model, *vars, **options).describe())


class Begun(Exception):
    """All arguments were taken, and the work would begin."""


def sample(model=None, **options):
    """`pmd.sample`, up to where its program is made."""
    module = importlib.import_module("pymc_discrete.sampling.sample")
    with mock.patch.object(module, "Program", side_effect=Begun), suppress(Begun):
        pmd.sample(model=model, progressbar=False, **options)


def then(make, act):
    """What is done with what another function makes."""
    return lambda: act(make())


# ---------------------------------------------------------------- models
P = np.array([0.2, 0.3, 0.5])


def flags():
    pm.Bernoulli("z", 0.4, shape=3)


def many_clusters(most):
    """Sites of which almost surely each is a cluster, were there as many labels."""
    return lambda: pmd.Partition("z", "crp", concentration=100.0, shape=8, max_clusters=most)


def few_means(most):
    """Fewer means of clusters than there may be clusters, or as many."""

    def build():
        z = pmd.Partition("z", "crp", concentration=1.0, shape=5, max_clusters=most)
        pm.Normal("y", pm.Normal("mu", shape=3)[z], 1.0, observed=np.zeros(5))

    return build


def process_by_hand():
    """A Chinese restaurant process as a Potential."""
    z = pm.Categorical("z", np.full(4, 0.25), shape=4)
    pm.Potential("c", pt.gammaln(pt.maximum(pt.bincount(z, minlength=4), 1)).sum())


def switch():
    """A flag that chooses between two levels."""
    pm.Normal("y", pm.Normal("a") * pm.Bernoulli("z", 0.5), 1.0, observed=0.3)


def unbounded():
    """The same with a level that has no prior."""
    pm.Normal("y", pm.Flat("a") * pm.Bernoulli("z", 0.5), 1.0, observed=0.3)


def count():
    pm.Poisson("n", 3.0)


def cell():
    """Counts of a fixed sum."""
    pm.Multinomial("x", n=10, p=P)


def level():
    pm.Normal("a")


def labels(counted):
    def build():
        z = pm.Categorical("z", [0.2, 0.3, 0.5], shape=6)
        pm.Normal("y", counted(z), 1.0, observed=[1.0, 2.0, 3.0])

    return build


def repeated(write):
    """Values repeated by counts of a fixed total."""

    def build():
        counts = pm.Multinomial("counts", n=8, p=P)
        pm.Normal("y", write(pt.as_tensor([1.0, 2.0, 4.0]), counts), 1.0, observed=np.ones(8))

    return build


def by_positions(values, counts, n=8):
    """What a message writes in place of pt.repeat(values, counts)."""
    index = pt.ge(np.arange(n)[:, None], pt.cumsum(counts)).sum(axis=1)
    return values[pt.clip(index, 0, 3 - 1)]


def changepoint(write):
    def build():
        k = pm.DiscreteUniform("k", 1, 5)
        pm.Potential("p", write(k, pt.as_tensor(np.linspace(-1, 1, 6))))

    return build


def totals(build_counts):
    def build():
        x = build_counts()
        pm.Normal("y", x * 1.0, 5.0, observed=[2.0, 3.0, 5.0])

    return build


def partly_observed_counts():
    observed = np.ma.masked_array([[1, 2, 2], [0, 0, 0]], [[0, 0, 1], [0, 0, 1]])
    pm.Multinomial("x", n=[5, 4], p=P, observed=observed)


def missing_counts():
    x = pm.Multinomial("x", n=5, p=P, initval=[1, 2, 2])
    pm.Potential("known", pt.switch(pt.eq(x[1], 2), 0.0, -np.inf))


def choice(name, lower, upper):
    """A truncated count as its message writes it."""
    return lower + pm.Categorical(
        f"{name}_", logit_p=pm.logp(pm.Geometric.dist(0.3), np.arange(lower, upper + 1))
    )


def of_a_custom_distribution():
    pm.CustomDist("k", logp=lambda value: -0.5 * value, dtype="int64")


def parity():
    x = pm.Bernoulli("x", 0.5, shape=12)
    pm.Potential("parity", -3.0 * pt.mod(x.sum(), 2))


def covariance():
    """Flags that enter a covariance matrix, where exact differences are dear."""
    g = pm.Bernoulli("g", 0.3, shape=60)
    X = np.random.default_rng(17).normal(size=(80, 60))
    pm.MvNormal("y", np.zeros(80), cov=pt.eye(80) + pt.dot(X * (4.0 * g), X.T), observed=np.zeros(80))


def unseen_by_gradients():
    """A term that joins all sites, each of hundreds of values, and whose gradient is blind."""
    z = pm.DiscreteUniform("z", 0, 255, shape=400)
    x = pt.mod(pt.dot(np.ones((400, 400)), z), 7)
    pm.Potential("p", pt.linalg.det(pt.outer(x, x)))


def bounded():
    z, b = pm.Bernoulli("z", 0.5), pm.HalfNormal("b", 1.0)
    pm.Normal("y", z * b, 1.0, observed=1.0)


def logistic():
    a, z = pm.Normal("a"), pm.Bernoulli("z", 0.5)
    pm.Bernoulli("y", logit_p=a * z, observed=[0, 1, 1])


def skewed():
    z, b = pm.Bernoulli("z", 0.5), pm.StudentT("b", 3.0)
    pm.Normal("y", z * b, 1.0, observed=1.0)


def ordered_values():
    pmd.Permutation("x", 4)


TRIANGLE = [[1, 1, 0], [0, 1, 1], [1, 0, 1]]  # sums of pairs, of which the total is even


def table_of(total):
    """Two counts of at most 2 whose sum is known."""

    def build():
        x = pm.Binomial("x", 2, 0.5, shape=2)
        pm.Potential("total", pt.switch(pt.eq(x.sum(), total), 0.0, -np.inf))

    return build


def counted(n):
    pm.Binomial("y", pm.Poisson("n", 5.0), pm.Beta("p", 2, 2), observed=n)


def increments(write):
    def build():
        z = pm.Bernoulli("z", 0.5, shape=3)
        pm.Potential("p", (write(pt.zeros(3), 1.0 * z) * [1.0, 2.0, 3.0]).sum())

    return build


def of_lengths(changed):
    """Flags of a covariate, before the lengths of some data are changed."""

    def build():
        x, y = pm.Data("x", np.arange(4.0), dims="i"), pm.Data("seen", np.zeros(4), dims="i")
        pm.Normal("y", pm.Bernoulli("z", 0.5, dims="i") * x, 1.0, observed=y, dims="i")
        pm.set_data({name: np.zeros(6) for name in changed}, coords={"i": range(6)})

    return build


def flags_with_dims(read):
    """What reads the means that flags with named dims give."""

    def build():
        pm.modelcontext(None).add_coord("i", range(2))
        read(1.5 * dims.Bernoulli("z", 0.3, dims="i"))

    return build


INDEX = np.array([0, 0, 1])
MISSING = np.array([np.nan, 1.0])
HOLDS = Assert("it holds")

# ---------------------------------------------------------------- how a model is written
row(
    "pt.bincount needs a minlength= above",
    target(labels(pt.bincount)),
    target(labels(lambda z: pt.bincount(z, minlength=3))),
    target(labels(lambda z: pt.eq(z[:, None], np.arange(3)).sum(axis=0))),
)
row(
    "hold counts.sum() to n",
    step("BlockGibbs", repeated(pt.repeat)),
    step("BlockGibbs", repeated(by_positions)),
)
row(
    "says which of the values below n there are",
    target(labels(pt.unique)),
    target(labels(lambda z: pt.eq(z[:, None], np.arange(3)).any(axis=0) * 1.0)),
)
row(
    "Write x[index].set(x[index] + y).",
    target(increments(lambda x, y: pt.inc_subtensor(x[INDEX], y, ignore_duplicates=True))),
    target(increments(lambda x, y: x[INDEX].set(x[INDEX] + y))),
)


row(
    "pymc.dims does not take as missing",
    target(
        flags_with_dims(lambda mu: dims.Normal("y", mu, 1, observed=as_xtensor(MISSING, dims="i"))),
    ),
    target(
        flags_with_dims(lambda mu: pm.Normal("y", mu.values, 1, observed=np.ma.masked_invalid(MISSING))), "z"
    ),
)
row(
    "which PyTensor does not write without dims",
    target(flags_with_dims(lambda mu: dims.Potential("p", HOLDS(mu, pt.constant(True)).sum()))),
    target(
        flags_with_dims(
            lambda mu: dims.Potential("p", as_xtensor(HOLDS(mu.values, pt.constant(True)), dims="i").sum())
        )
    ),
)


def cell_of_unknown_sum():
    pm.Multinomial("x", n=pm.Poisson("n", 3.0), p=P)


row(
    "n and the counts have to change together. Sample both with pmd.BlockGibbs or pmd.AutoStep, or give n",
    step("PathAuxiliary", cell_of_unknown_sum, "x"),
    step("BlockGibbs", cell_of_unknown_sum),
    step("AutoStep", cell_of_unknown_sum),
    step("PathAuxiliary", cell, "x"),
)
row(
    "Write missing counts as Categorical draws, or make the vector unobserved",
    step("BlockGibbs", partly_observed_counts),
    step("BlockGibbs", missing_counts),
)
row(
    "lower + pm.Categorical(",
    step("BlockGibbs", lambda: pm.Truncated("x", pm.Geometric.dist(0.3), lower=1, upper=4)),
    step("BlockGibbs", lambda: pm.Deterministic("x", choice("x", 1, 4))),
)
row(
    "cannot be found from its distribution",
    target(of_a_custom_distribution),
    target(of_a_custom_distribution, support={"k": (0, None)}),
    step("AutoStep", of_a_custom_distribution, support={"k": (0, 7)}),
    on(of_a_custom_distribution, lambda model: pmd.marginalize(model, truncate={"k": (0, 7)})),
)
row(
    "it as Categorical draws, or sum it out by hand",
    step("DiscreteLangevin", totals(lambda: pm.Multinomial("x", n=10, p=P))),
    step("BlockGibbs", totals(lambda: pm.Multinomial("x", n=10, p=P))),
    step("AutoStep", totals(lambda: pm.Multinomial("x", n=10, p=P))),
    target(labels(lambda z: pt.eq(z[:, None], np.arange(3)).sum(axis=0))),
)
row(
    "which swap the values of two places",
    step("DiscreteLangevin", ordered_values),
    step("BlockGibbs", ordered_values),
    step("AutoStep", ordered_values),
)
row(
    "give what is known with initval=",
    on(
        lambda: None,
        lambda model: pmd.Permutation("x", 4, observed=np.ma.masked_array([0, 1, 2, 3], [0, 0, 1, 1])),
    ),
    step(
        "BlockGibbs",
        lambda: pm.Potential(
            "known",
            pt.switch(pt.eq(pmd.Permutation("order", 4, initval=[3, 0, 1, 2])[0], 3), 0.0, -np.inf),
        ),
    ),
)
row(
    "is a pm.Potential of an unweighted pmd.Permutation",
    on(lambda: None, lambda model: pmd.Permutation("x", 3, np.zeros((3, 3)) + pm.Normal("a"))),
    on(lambda: None, lambda model: pmd.Permutation("x", 3, np.zeros((3, 3)))),
)
row(
    "The support of {} is empty at element",
    step("BlockGibbs", count, support={"n": (5, 2)}),
    step("BlockGibbs", count, support={"n": (2, 5)}),
)
row(
    "Mend the sum, or the bounds of support=",
    step("BlockGibbs", cell, support={"x": (0, 2)}),
    step("BlockGibbs", cell, support={"x": (0, 4)}),
)
row(
    "Leave support= out; pm.Potential can say",
    step("BlockGibbs", ordered_values, support={"x": (0, 2)}),
    step("BlockGibbs", ordered_values),
)
row(
    "as shapes do not fit: {}",
    step("BlockGibbs", of_lengths(["x"])),
    step("BlockGibbs", of_lengths(["x", "seen"])),
)
row(
    "the bounds of its counts allow {}. Mend what was seen",
    step("BlockGibbs", table_of(5)),
    step("BlockGibbs", table_of(3)),
)

row(
    "meet all equations at once",
    lambda: LinearConstraint.build("x", TRIANGLE, [1, 1, 1], np.zeros(3, int), np.full(3, 2)),
    lambda: LinearConstraint.build("x", TRIANGLE, [1, 1, 2], np.zeros(3, int), np.full(3, 2)),
)
row(
    "together with the other equations of its counts",
    lambda: LinearConstraint.build("x", [[1, 1], [1, -1]], [4, 1], np.zeros(2, int), np.full(2, 2)),
    lambda: LinearConstraint.build("x", [[1, 1], [1, -1]], [4, 0], np.zeros(2, int), np.full(2, 2)),
)
row(
    "A weighted Permutation of {} values cannot be drawn",
    on(lambda: pmd.Permutation("x", 30, np.zeros((30, 30))), lambda model: pm.draw(model["x"])),
    on(lambda: pmd.Permutation("x", 30, np.zeros((30, 30))), lambda model: sample()),
)
row(
    "Pass max_clusters=, a number above any that is probable",
    on(lambda: None, lambda model: pmd.Partition("z", "crp", concentration=1.0, shape=300)),
    on(lambda: None, lambda model: pmd.Partition("z", "crp", concentration=1.0, shape=300, max_clusters=20)),
)
row(
    "Pass a larger max_clusters=",
    *(on(many_clusters(most), lambda model: pmd.sample(20, tune=20, progressbar=False)) for most in (3, 8)),
)
row(
    "components at most. Leave max_clusters= out",
    on(lambda: None, lambda model: pmd.Partition("z", "mfm", components=P, shape=5, max_clusters=4)),
    on(lambda: None, lambda model: pmd.Partition("z", "mfm", components=P, shape=5)),
)

row(
    "this is another prior of the number of clusters. Pass max_clusters=",
    on(few_means(None), lambda model: pmd.BlockGibbs(["z"])),
    on(few_means(3), lambda model: pmd.BlockGibbs(["z"])),
)
row(
    "Add it to coords=",
    on(lambda: None, lambda model: pmd.Partition("z", "crp", concentration=1.0, dims="who")),
    on(
        lambda: pm.modelcontext(None).add_coords({"who": "abc"}),
        lambda model: pmd.Partition("z", "crp", concentration=1.0, dims="who"),
    ),
)
row(
    "A pmd.Partition does it",
    on(process_by_hand, lambda model: pmd.BlockGibbs()),
    on(many_clusters(8), lambda model: pmd.BlockGibbs()),
)

# ---------------------------------------------------------------- steps and their variables
row(
    "vars is a pm.Model, and takes variables",
    on(flags, lambda model: pmd.AutoStep(model)),
    on(flags, lambda model: pmd.AutoStep(model=model)),
)
row("There is no model: call this", lambda: pmd.marginalize(), on(flags, lambda model: pmd.marginalize()))
row(
    "There is no model for pmd.",
    lambda: pmd.BlockGibbs(["z"]),
    on(flags, lambda model: pmd.BlockGibbs(["z"])),
    on(flags, lambda model: pmd.BlockGibbs(["z"], model=model)),
)
row(
    "Nothing in the model for this step to sample",
    on(level, lambda model: sample(step=pmd.BlockGibbs())),
    on(level, lambda model: sample()),
)
row(
    "discrete ({}): sample it with pmd.AutoStep",
    step("ReparameterizedSlice", lambda: [level(), flags()], ["a", "z"]),
    on(lambda: [level(), flags()], lambda model: [pmd.ReparameterizedSlice(["a"]), pmd.AutoStep(["z"])]),
)
row(
    "If it has a step of its own, name the variables of this one",
    step("AutoStep", lambda: [flags(), partly_observed_counts()]),
    step("AutoStep", lambda: [flags(), partly_observed_counts()], vars=["z"]),
)
row(
    "needs exact conditionals, and differences='gradient' asks",
    step("BlockGibbs", flags, differences="gradient"),
    step("BlockGibbs", flags, differences="exact"),
    step("BlockGibbs", flags, differences="auto"),
)
row(
    "The gradient is blind for",
    step("GibbsWithGradients", parity, differences="gradient"),
    step("GibbsWithGradients", parity, differences="exact"),
    step("GibbsWithGradients", parity),
)
row(
    "No affordable differences for",
    step("GibbsWithGradients", unseen_by_gradients),
    step("GibbsWithGradients", unseen_by_gradients, differences="exact"),
    step("GibbsWithGradients", lambda: pm.DiscreteUniform("z", 0, 255, shape=400)),
)
row(
    "needs exact conditionals, and those of",
    step("BlockGibbs", covariance),
    step("PathAuxiliary", covariance),
    step("GibbsWithGradients", covariance),
    step("BlockGibbs", covariance, differences="exact"),
)
row(
    "samples a biased distribution; the bias falls",
    step("DiscreteLangevin", flags, adjusted=False, step_size=0.1),
    step("DiscreteLangevin", flags, adjusted=True),
)
row(
    "PerturbAndMaxProduct is approximate",
    step("PerturbAndMaxProduct", flags),
    step("AutoStep", flags),
)
row(
    "SwendsenWang needs pairs of sites that interact",
    step("SwendsenWang", flags),
    step("BlockGibbs", flags),
)
row(
    "an integral joins all sites. Leave out integrate=",
    step("PerturbAndMaxProduct", switch, integrate=["a"]),
    step("BlockGibbs", switch, integrate=["a"]),
)
row(
    "CollapsedNUTS moves all of its variables together",
    step("CollapsedNUTS", switch, blocked=False),
    step("CollapsedNUTS", switch),
)
row(
    "CollapsedNUTS has no {} variable",
    step("CollapsedNUTS", level),
    on(level, lambda model: pm.NUTS(model=model, compile_kwargs={"mode": "FAST_COMPILE"})),
)
row(
    "CollapsedNUTS(integrate=) has no discrete variable",
    step("CollapsedNUTS", lambda: [switch(), pm.Gamma("g", 2.0, 1.0)], ["g"], integrate=["a"]),
    step("CollapsedNUTS", lambda: [switch(), pm.Gamma("g", 2.0, 1.0)], ["g", "z"], integrate=["a"]),
)
row(
    "cannot be integrated out: its values have bounds",
    step("BlockGibbs", bounded, integrate=["b"]),
    step("BlockGibbs", bounded),
)


def two_rates():
    z = pm.Bernoulli("z", 0.4, shape=3)
    pm.Poisson("y", pm.Gamma("a", 1, 1, shape=2)[z] * pm.Gamma("b", 1, 1), observed=[0, 2, 1])


row(
    "a distribution reads both",
    step("BlockGibbs", two_rates, integrate=["a", "b"]),
    step("BlockGibbs", two_rates, integrate=["a"]),
)
row(
    "which only a program that moves all of the model draws",
    target(logistic, integrate=["a"]),
    on(logistic, sample),
    target(logistic),
)
row(
    "integrate='auto' finds nothing",
    step("BlockGibbs", bounded, integrate="auto"),
    step("BlockGibbs", bounded),
)
row(
    "Leave out of integrate= what enters",
    step("BlockGibbs", skewed, integrate=["b"]),
    step("BlockGibbs", skewed),
)
row(
    "integrate= does not go with",
    step("AutoStep", lambda: [switch(), cell()], integrate=["a"]),
    on(
        lambda: [switch(), cell()],
        lambda model: [pmd.BlockGibbs(["z"], integrate=["a"]), pmd.BlockGibbs(["x"])],
    ),
)
row(
    "A flow moves its variables together",
    then(
        lambda: flow_of(z=(0, 1)), lambda flow: on(flags, lambda model: pmd.FlowStep(flow, blocked=False))()
    ),
    then(lambda: flow_of(z=(0, [1, 1, 1])), lambda flow: on(flags, lambda model: pmd.FlowStep(flow))()),
)


def flow_of(**supports):
    """A flow of some variables, which says that all values are equally probable."""
    from pymc_discrete.flows.flow import Flow
    from pymc_discrete.flows.paths import PATHS
    from pymc_discrete.flows.sources import SOURCES

    space = pmd.Space.build(supports)
    logits = np.where(space.exists, 0.0, -np.inf)
    return Flow.build(
        space, PATHS["linear"], SOURCES["mask"], lambda params, x, t: logits, (), [0.0, 0.5, 1.0]
    )


# ---------------------------------------------------------------- arguments of pmd.sample
def taken(build, wrong, *right):
    """What `pmd.sample` refuses, and what it takes: {option: value}, or functions in the model's context."""
    made = lambda given: given() if callable(given) else given
    return [on(build, lambda model, given=given: sample(**made(given))) for given in (wrong, *right)]


row(
    "is the class of a step, not a step",
    *taken(flags, {"step": pmd.BlockGibbs}, lambda: {"step": pmd.BlockGibbs()}),
)
row(
    "pmd.sample takes the steps of pymc_discrete",
    *taken(
        level,
        lambda: {"step": pm.Metropolis(compile_kwargs={"mode": "FAST_COMPILE"})},
        {"nuts": {"max_treedepth": 8}},
        lambda: {"step": pmd.ReparameterizedSlice()},
        lambda: {"step": pmd.CustomStep("a", lambda key, point, state: (point, state))},
    ),
)
row(
    "are for the continuous variables that it ",
    step("BlockGibbs", switch, "z", target_accept=0.9),
    step("BlockGibbs", switch, target_accept=0.9),
    step("BlockGibbs", switch, "z"),
)
row(
    "a step of pm.sample knows one chain",
    step("AutoStep", switch, nuts={"pooled": True}),
    step("AutoStep", switch),
    on(switch, lambda model: sample(model, nuts={"pooled": True})),
)
row(
    "temper= needs dtype=",
    *taken(switch, lambda: {"temper": True, "dtype": "float32"}, lambda: {"temper": True}),
)
row(
    "does not go with temper=",
    *taken(
        switch,
        lambda: {"temper": True, "nuts": {"pooled": True}},
        lambda: {"temper": True},
        lambda: {"nuts": {"pooled": True}},
    ),
)
row(
    "leaves the posterior as it is, and with temper=",
    *taken(
        switch,
        lambda: {"temper": True, "step": pmd.CustomStep("a", lambda key, point, state: (point, state))},
        lambda: {"step": pmd.CustomStep("a", lambda key, point, state: (point, state))},
        lambda: {"temper": True},
    ),
)
row(
    "has temper= here, which is for pm.sample",
    *taken(switch, lambda: {"step": pmd.AutoStep(temper=True)}, {"temper": True}),
)
row(
    "temper= needs the whole model in one JAX program",
    step("AutoStep", switch, temper=True, blocked=False),
    step("AutoStep", switch, temper=True),
)
row(
    "temper= moves between the prior and the posterior",
    on(unbounded, lambda model: sample(model, temper=True)),
    on(switch, lambda model: sample(model, temper=True)),
)
row(
    "has options of NUTS here",
    *taken(
        switch,
        lambda: {"step": pmd.CollapsedNUTS(target_accept=0.9)},
        lambda: {"step": pmd.CollapsedNUTS(), "target_accept": 0.9, "nuts": {"max_treedepth": 8}},
    ),
)
row(
    "summed out by a step, and not with collapse=False",
    *taken(
        switch,
        lambda: {"step": pmd.CollapsedNUTS(), "collapse": False},
        lambda: {"step": pmd.CollapsedNUTS()},
        {"collapse": False},
        lambda: {"step": pmd.AutoStep(["z"]), "collapse": False},
    ),
)
row("There is nothing to sum out", *taken(flags, {"collapse": True}, {}))
row(
    "cannot be summed out: a step was given for it",
    *taken(
        lambda: [switch(), pm.Bernoulli("w", 0.5)],
        lambda: {"step": pmd.BlockGibbs(["z"]), "collapse": ["z"]},
        lambda: {"step": pmd.BlockGibbs(["z"]), "collapse": ["w"]},
        {"collapse": ["z"]},
    ),
)
row(
    "Only one step can move with",
    *taken(
        lambda: [switch(), pm.Bernoulli("w", 0.5), pm.Gamma("g", 2.0, 1.0)],
        lambda: {"step": pmd.BlockGibbs(["z"], integrate=["a"]), "collapse": ["w"]},
        lambda: {"step": pmd.BlockGibbs(["z", "w"], integrate=["a"])},
    ),
)
row(
    "Without collapse= they are sampled as they are",
    *taken(
        lambda: [level(), sums_too_many()],
        {"collapse": True},
        {},
    ),
)


def sums_too_many():
    z = pm.Bernoulli("z", 0.5, shape=60)
    pm.Potential("p", -((pt.dot(np.random.default_rng(1).normal(size=60), z)) ** 2))


def pairs_of_chains(**more):
    """Two Markov chains in one variable, whose support point PyMC cannot write."""
    with warnings.catch_warnings(action="ignore"):  # when it is imported
        from pymc_extras import DiscreteMarkovChain
    P, first = np.array([[0.9, 0.1], [0.2, 0.8]]), pm.Categorical.dist([0.5, 0.5])
    DiscreteMarkovChain("z", P=P, init_dist=first, shape=(2, 3), **more)


def two_switches():
    switch()
    pm.Bernoulli("k", 0.5)


def sums_too_many_and_a_switch():
    sums_too_many()
    pm.Bernoulli("k", 0.5)


SUMMED = {"z": np.zeros((3, 60), int), "k": np.zeros(3, int)}

row(" To sum out {} alone: collapse=", *taken(switch, {"collapse": "all"}, {"collapse": ["z"]}))
row("collapse= needs dtype=", *taken(switch, {"collapse": True, "dtype": "float32"}, {"collapse": True}))
row(
    "pmd.sample takes the model by name",
    on(flags, lambda model: pmd.sample(model)),
    on(flags, lambda model: sample(model=model)),
)
row("return_inferencedata must be True", *taken(flags, {"return_inferencedata": False}, {}))
row(
    "must divide the {} chains",
    *taken(flags, {"superchains": 3, "chains": 4}, {"superchains": 3, "chains": 6}),
)
row(
    "Options of a step are given to the step",
    *taken(flags, {"transitions": 3}, lambda: {"step": pmd.AutoStep(transitions=3)}),
)
row(" has no {}=. {}", *taken(flags, {"nuts_sampler": "nutpie"}, {}))
row("All chains run in one program", *taken(flags, {"cores": 2}, {}))
row(
    "NUTS is blackjax's; its options are nuts=",
    *taken(level, {"nuts_sampler": "x"}, {"nuts": {"max_treedepth": 5}}),
)
row(
    "The options of NUTS are nuts=",
    *taken(level, {"nuts_sampler_kwargs": {}}, {"nuts": {"max_treedepth": 5}}),
)
row("pass initvals= for other starts", *taken(level, {"init": "adapt_diag"}, {"initvals": {"a": 0.3}}))
row("or to a folder with checkpoint=", *taken(level, {"trace": None}, {}))
row("and silence the logger 'pymc'", *taken(level, {"quiet": True}, {}))
row(
    "sums out discrete variables, which the model does not have",
    *taken(
        lambda: pm.Normal("y", pm.Normal("a"), 1.0, observed=0.5),
        {"idata_kwargs": {"log_likelihood": "marginal"}},
        {"idata_kwargs": {"log_likelihood": True}},
    ),
)
row(
    "needs the draws of {}: keep them with var_names=",
    *taken(
        switch,
        {"idata_kwargs": {"log_likelihood": "marginal"}, "var_names": ["z"]},
        {"idata_kwargs": {"log_likelihood": "marginal"}, "var_names": ["a"]},
        {"idata_kwargs": {"log_likelihood": "marginal"}},
    ),
)

# ---------------------------------------------------------------- sums and evidence
row(
    "has no start of its own for these parameters",
    on(pairs_of_chains, lambda model: pmd.AutoStep()),
    on(lambda: pairs_of_chains(initval=np.zeros((2, 3), int)), lambda model: pmd.AutoStep()),
)
row(
    "Say from where to where to sum",
    on(count, lambda model: pmd.marginalize(model)),
    on(count, lambda model: pmd.marginalize(model, truncate={"n": (0, 200)})),
)
row(
    "; or sample with pmd.sample(collapse=True)",
    on(lambda: counted(3), lambda model: pmd.marginalize(model)),
    *taken(lambda: counted(3), {"collapse": True})[:1],
)
row(
    "model has no discrete free variable to {}",
    on(switch, lambda model: pmd.recover(draws(a=np.zeros(3)), pmd.marginalize(model))),
    on(switch, lambda model: pmd.recover(draws(a=np.zeros(3)), model)),
    on(switch, lambda model: pmd.most_probable(draws(a=np.zeros(3)), model)),
)
row(
    "given='means' takes the means of all variables but",
    on(
        two_switches,
        lambda model: pmd.most_probable(draws(a=np.zeros(3), k=np.ones(3, int)), model, "z", given="means"),
    ),
    on(two_switches, lambda model: pmd.most_probable(draws(a=np.zeros(3), k=np.ones(3, int)), model, "z")),
)
row(
    "The most probable states are found where all states can be summed",
    on(sums_too_many_and_a_switch, lambda model: pmd.most_probable(draws(**SUMMED), model)),
    on(sums_too_many_and_a_switch, lambda model: pmd.most_probable(draws(**SUMMED), model, "k")),
)


def evidence(build, **options):
    """`pmd.log_evidence`, up to where its prior is drawn from."""

    def found(model):
        module = importlib.import_module("pymc_discrete.evidence.log_evidence")
        with mock.patch.object(module, "Annealing", side_effect=Begun), suppress(Begun):
            made = {k: v() if k == "draws" else v for k, v in options.items()}
            pmd.log_evidence(model, progressbar=False, **made)

    return on(build, found)


row(
    "step must be a function that makes the steps",
    on(switch, lambda model: pmd.log_evidence(model, step=pmd.PathAuxiliary())),
    evidence(switch, step=lambda: pmd.PathAuxiliary()),
)
row(
    "exact=True says that draws=",
    evidence(switch, exact=True),
    evidence(switch, exact=True, draws=lambda: draws(a=np.zeros(5), z=np.zeros(5, int))),
)
row("so that its evidence is 1. Pass observed=", evidence(flags), evidence(switch))
row(
    "The constant of a PyMC model is estimated by pmd.log_evidence",
    lambda: pmd.learning.log_partition(counts_of_ten(), temperatures=2, chains=2),
    evidence(totals(lambda: pm.Multinomial("x", n=10, p=P))),
)


# ---------------------------------------------------------------- draws
def ridge():
    """Counts of which sums are observed, and others of a fixed sum, which cannot be summed out."""
    x = pm.Poisson("x", pm.Gamma("lam", 2.0, 0.01) * P)
    pm.Normal("y", x[0] + 2 * x[1], 1.0, observed=250.0)
    pm.Multinomial("m", n=4, p=P)


def conclusions(model):
    """What is said of draws with the counts of `ridge`, two of which go up and down together."""
    rng = np.random.default_rng(1)
    way = np.cumsum(rng.integers(-2, 3, (2, 500)), axis=1)
    values = {
        "x": np.stack([300 - 2 * way, way + 200, rng.poisson(9, way.shape)], axis=-1),
        "m": rng.multinomial(4, P, way.shape),
        "lam": rng.gamma(2.0, 100.0, way.shape),
    }
    tree = from_dict({"posterior": values, "sample_stats": {"lp": rng.normal(size=way.shape)}})
    check_convergence(tree, model)


row(
    "Summed out they do not",
    on(ridge, conclusions),
    on(ridge, lambda model: sample(model, collapse=["x"])),
    on(ridge, lambda model: sample(model, step=pmd.CollapsedNUTS(["lam", "x"]))),
)


def draws(chains=1, **values):
    posterior = {k: np.broadcast_to(v, (chains, *np.shape(v))) for k, v in values.items()}
    return from_dict({"posterior": posterior})


def mixture(**more):
    """Draws of labels, and of means and weights of two components."""
    rng = np.random.default_rng(1)
    return from_dict(
        {
            "posterior": {
                "z": rng.integers(0, 2, (2, 50, 6)),
                "mu": rng.normal(size=(2, 50, 2)),
                "both": rng.normal(size=(2, 50, 2, 3)),
                "wide": rng.normal(size=(2, 50, 5)),
                "broken": np.full((2, 50, 2), np.nan),
                **more,
            }
        },
        dims={"mu": ["component"], "both": ["component", "axis"], "wide": ["other"], "broken": ["component"]},
    )


@once
def relabelled(*arguments, **options):
    return lambda: pmd.relabel(mixture(), *arguments, **options)


row(
    "probabilities= is for method=",
    relabelled("z", dims="component", probabilities=np.full((2, 50, 6, 2), 0.5)),
    relabelled("z", dims="component"),
)
row("Pass dims=, one or several", relabelled("z"), relabelled("z", dims="component"))
row(
    "is a dimension of {} itself, whose values are labels",
    relabelled("z", dims="z_dim_0"),
    relabelled("z", dims="component"),
)
row(
    "Pass those that have a value per label",
    relabelled("z", dims=["component", "other"]),
    relabelled("z", dims="component"),
)
row(
    "Pass as dims= the dimension that has one component per label",
    lambda: pmd.relabel(
        mixture(z=np.random.default_rng(1).integers(0, 5, (2, 50, 6))), "z", dims="component"
    ),
    lambda: pmd.relabel(mixture(z=np.random.default_rng(1).integers(0, 5, (2, 50, 6))), "z", dims="other"),
)
row(
    "is no variable of the posterior. It must have one value per label",
    relabelled("z", dims="component", order_by="nu"),
    relabelled("z", dims="component", order_by="mu"),
)


def by_first_axis():
    idata = mixture()
    idata.posterior["order"] = idata.posterior["both"].isel(axis=0, drop=True)
    return pmd.relabel(idata, "z", dims="component", order_by="order")


row("Make one: idata.posterior", relabelled("z", dims="component", order_by="both"), by_first_axis)
row(
    "must have finite numbers in all draws",
    relabelled("z", dims="component", order_by="broken"),
    relabelled("z", dims="component", order_by="mu"),
)
row(
    "Pass probabilities=, an array of shape",
    relabelled("z", dims="component", method="stephens"),
    relabelled("z", dims="component", method="stephens", probabilities=np.full((2, 50, 6, 2), 0.5)),
    relabelled("z", dims="component", method="ecr"),
)
row(
    "takes the draw of the largest log density",
    relabelled("z", dims="component", method="pivot"),
    relabelled("z", dims="component"),
)
row(
    "which needs none: pmd.relabel(idata",
    relabelled("z", dims="component", method="pivot"),
    relabelled("z", dims="component"),
)
row(
    "idata must be a DataTree with a group 'posterior'",
    lambda: pmd.relabel(np.zeros((2, 50)), "z"),
    relabelled("z", dims="component"),
)
# ---------------------------------------------------------------- targets, kernels, graphs, learning, flows
SPACE = lambda **of: pmd.Space.build(of)


def labelled():
    with pm.Model() as model:
        pm.Categorical("z", P)
    return pmd.target_from_model(model).space


def counts_of_ten():
    with pm.Model() as model:
        cell()
        return pmd.BlockGibbs(model=model).target


def tied_counts():
    with pm.Model() as model:
        table_of(3)()
        return pmd.BlockGibbs(model=model).target


def parities(differences):
    """A target with a quadratic term of all sites."""
    with pm.Model() as model:
        pm.Potential("p", -((pm.Bernoulli("z", 0.5, shape=4).sum() - 2.0) ** 2))
    return pmd.target_from_model(model, differences=differences)


def visited(kernel, target):
    """A step of a kernel, traced."""
    made, params = kernel
    step = lambda key, x: made.step(key, made.init(x, target), target, params)
    return jax.eval_shape(step, jax.random.key(0), target.space.ravel(target.density.start))


def begun(kernel, target):
    """The first state of a kernel."""
    made, _ = kernel
    x = target.space.ravel(target.density.start)
    return jax.eval_shape(lambda x: made.init(x, target), x)


row(
    "space must be a Space, got {}. Build one with pmd.Space.build",
    lambda: pmd.target_from_logdensity(lambda x: 0.0, {"x": (0, 1)}),
    lambda: pmd.target_from_logdensity(lambda x: 0.0, SPACE(x=(0, 1))),
)
row(
    "one_hot=True needs finite supports",
    lambda: pmd.target_from_logdensity(lambda x: 0.0, SPACE(x=(0, None)), one_hot=True),
    lambda: pmd.target_from_logdensity(lambda x: -1.0 * x.sum(), SPACE(x=(0, None))),
)
row("A space needs at least one variable", lambda: pmd.Space.build({}), lambda: SPACE(x=(0, 1)))
row(
    "this target has first-order differences",
    lambda: visited(pmd.kernels.block_gibbs(), parities("gradient")),
    lambda: visited(pmd.kernels.block_gibbs(), parities("auto")),
    lambda: begun(pmd.kernels.gibbs_with_gradients(), parities("gradient")),
)
row(
    "a factor graph has tables over all of them",
    on(count, lambda model: pmd.FactorGraph.from_model(model)),
    on(count, lambda model: pmd.FactorGraph.from_model(model, support={"n": (0, 5)})),
)
row("pmd.AutoStep() samples it exactly.", step("PerturbAndMaxProduct", parity), step("AutoStep", parity))
row(
    "kernel must be (Kernel, params), as pmd.kernels.block_gibbs() returns",
    lambda: pmd.learning.log_partition(parities("auto"), kernel=pmd.BlockGibbs),
    lambda: visited(pmd.kernels.block_gibbs(), parities("auto")),
)
row(
    "have no order, and the slope of fn",
    lambda: pmd.target_from_logdensity(lambda x: 0.0, labelled(), differences="gradient"),
    lambda: pmd.target_from_logdensity(
        lambda x: 1.0 * x.sum(), labelled(), differences="gradient", one_hot=True
    ),
)
row(
    "can only change two at a time",
    lambda: begun(pmd.kernels.discrete_langevin(), counts_of_ten()),
    lambda: [
        begun(kernel, counts_of_ten())
        for kernel in (
            pmd.kernels.block_gibbs(),
            pmd.kernels.gibbs_with_gradients(),
            pmd.kernels.path_auxiliary(path_length=2),
        )
    ],
)
row(
    "linear equations tie those of {}",
    lambda: begun(pmd.kernels.discrete_langevin(), tied_counts()),
    lambda: begun(pmd.kernels.block_gibbs(), tied_counts()),
)
row(
    "changes two sites at most, and linear equations tie",
    lambda: begun(pmd.kernels.gibbs_with_gradients(), tied_counts()),
    lambda: begun(pmd.kernels.block_gibbs(), tied_counts()),
)

row(
    "which q(z), a density, cannot describe",
    on(switch, lambda model: block_of_all(model)),
    on(switch, lambda model: block_of_all(pmd.marginalize(model))),
)


def fitted(build, **options):
    """A flow that is fitted, up to where its network would be trained."""

    def fit(model):
        with (
            mock.patch("pymc_discrete.flows.fit.fit", side_effect=Begun),
            mock.patch("pymc_discrete.flows.fit.Simulations.of", side_effect=Begun),
            suppress(Begun),
        ):
            pmd.fit_flow(model, ["z"], progressbar=False, **options)

    return on(build, fit)


def flags_and(*more):
    """Flags with an observation, and what else there is."""

    def build():
        z = pm.Bernoulli("z", 0.4, shape=3)
        pm.Normal("y", z.sum(), 1.0, observed=0.5)
        for add in more:
            add(z)

    return build


FLAGS = {"draws": draws(z=np.zeros((20, 3), int))}
row("Pass either draws=", fitted(flags), fitted(flags, **FLAGS), fitted(flags_and(), given=["y"]))
row(
    "which is not observed. The model observes",
    fitted(flags_and(), given=["z"]),
    fitted(flags_and(), given=["y"]),
)
row(
    "is unknown, too, and not among the variables of the flow",
    fitted(flags_and(lambda z: pm.Normal("a")), given=["y"]),
    fitted(flags_and(lambda z: pm.Normal("a")), **FLAGS),
)
row(
    "is scaled by total_size=",
    fitted(flags_and(lambda z: pm.Normal("x", z.sum(), observed=[0.5], total_size=10)), given=["y", "x"]),
    fitted(flags_and(lambda z: pm.Normal("x", z.sum(), observed=[0.5])), given=["y", "x"]),
)
row(
    "is a potential, and draws of the prior do not know of it",
    fitted(flags_and(lambda z: pm.Potential("pull", 1.0 * z.sum())), given=["y"]),
    fitted(flags_and(lambda z: pm.Potential("pull", 1.0 * z.sum())), **FLAGS),
)
row(
    "flow must be a Flow, as pmd.fit_flow",
    step("FlowStep", flags, "z"),
    then(lambda: flow_of(z=(0, [1, 1, 1])), lambda flow: on(flags, lambda model: pmd.FlowStep(flow))()),
)
row(
    "space must be a Space of finite supports",
    lambda: pmd.learning.Neural(SPACE(x=(0, None)), eqx.nn.MLP(1, "scalar", 4, 1, key=jax.random.key(0))),
    lambda: pmd.learning.Neural(
        pmd.Space.build({"x": (0, 1)}, shapes={"x": (64,)}),
        eqx.nn.MLP(64, "scalar", 4, 1, key=jax.random.key(0)),
    ),
)
row(
    "network must be an equinox.Module",
    lambda: pmd.learning.Neural(SPACE(x=(0, 1)), lambda x: 0.0),
    lambda: pmd.learning.Neural(SPACE(x=(0, 1)), eqx.nn.MLP(1, "scalar", 4, 1, key=jax.random.key(0))),
)


# ---------------------------------------------------------------- what is not run here
NOT_RUN = {
    "it says what an argument takes, and names no other way": (
        "pmd.recover(idata, model)",
        "pmd.most_probable(idata, model)",
        "pmd.fit_flow(model, ['z'], draws=idata)",
        "pmd.plot_probabilities(idata, 'z')",
        "factors holds {}, which is no factor",
        "semiring must be pmd.factor_graphs.MAX or SUM",
        "correlation={} is with the perturbation of a previous draw",
        "one of pmd.learning (Ising",
        "one of pmd.learning (PMP",
        "an objective of pmd.learning, or one of your own",
        "evaluate_every={} is more than iterations",
        "kernel must be a kernel of pmd.kernels",
        "start='data' needs observations",
        "target must be a Target, got {}: make one by",
        "target must be a Target, as pmd.target_from_model",
        "Make both of the same variables of one model",
        "Pass init= to begin with a state",
        "ReplayBuffer(..., size=) must be at least",
        "sampler and energy_l2 are of the likelihood",
        "; pm.sample does.",
    ),
    "it tells what is done, in the log or in a plot": (
        "are not kept, which would take",
        "Summed out at every inverse temperature",
        "draws of it say more, which var_names= keeps",
        "were not kept, since that is large",
        "Computing log_likelihood=",
        "The sum of log_likelihood=",
        "summed out, given the draws of",
        "A step that is named, such as pmd.BlockGibbs(),",
        "asked for with differences='gradient'",
        "labels switch {} chains: pmd.relabel first",
        "the names need not fit: pmd.relabel",
        "pmd.relabel puts them in one order",
        "white-space: pre",
        "{}; step={}.{})",
    ),
    "it is about plots, which take seconds to import and are drawn in tests/plots": (
        "The posterior has no variable with the values 0 and 1",
        " not of the values 0 and 1 alone",
        "data belongs to the elements of one variable",
        "is no variable of the groups observed_data",
        "is no dimension of the posterior with coordinates",
    ),
    "it is about files, processes, devices, packages or the width of floats": (
        "devices share each chain, but no array",
        "which is not installed",
        "This worker was forked after JAX",
        "is in no folder that exists",
        "could not be written",
        "cannot be made: {}. Give a folder",
        "is in use: {} is writing to it",
        "cannot look into all of",
        "is not available under pytensor.config.floatX",
        "cannot be integrated out in float32",
        "which loses small differences in float32",
        "Or pass dtype='float64' to pmd.sample",
        "Floats of {} bits are too short",
        'dtype="float64" sums them out',
        'dtype="float64" allows it',
    ),
    "it asks for more draws, chains, temperatures or training, or for another start of these": (
        "Raise temperatures=",
        "where {} are few: modes may have other weights",
        "so that no chain can start there",
        "became nan or +inf along the path",
        "The gradient of iteration {} is not finite",
        "FlowStep: fewer than one in a hundred proposals",
        "slices of q accepted their draw",
        "pass tune=1000 in place of tune=0",
        "reached the maximum tree depth",
        "a longer run, or other initvals=",
        "Pass initvals= of the continuous variables in the mode",
        "With temper= one program moves all variables, and another step moves {}",
        "With temper= one program moves all variables, and another step has moved one",
        "of a value of the worst there are",
        "Slow, the slowest first",
        "NUTS never moved in",
        "to the far end of the stretch",
        "starts outside its support: ",
        "initvals= that they allow",
        "pass initvals= for it",
        "is not finite at the start of a chain",
        "differences='exact' may pay",
    ),
    "it is chosen for the model in diagnostics/remedies.py, whose choices "
    "tests/diagnostics/test_warnings.py and tests/steps/test_every_step.py look at": (
        "With temper=True chains pass from mode to mode",
        "pmd.PathAuxiliary(path_length=5, recompute=True)",
        "pmd.FlowStep, whose flow is fitted to these draws",
        "pmd.BlockGibbs moves several along known sums",
        "a gradient misleads it",
        "balancing='barker'",
        "has no gradient that NUTS could follow",
        "while NUTS moves: pmd.sample(collapse=",
        "Add one: pmd.BlockGibbs(",
        "Either the data leave one value only",
    ),
    "the remedy is to write another model, or less of one": (
        "The evidence needs a proper prior",
        "Pass data of every variable, or use objective='likelihood'",
        "The pseudo-likelihood sums over all values",
        "The energy discrepancy perturbs every site",
        "Perturb-and-max-product draws from factor graphs",
        "The probabilities of a source of data are not known",
        "The sites of {} change only together, and a flow",
        "Write the model without it: bounds by a distribution",
        "the integral is infinite",
        "whose elements depend on one another: {}. Make the variable unobserved",
        "are estimates by a gradient, which may be off",
        "runs the whole model in JAX, and the model has",
        "Sample what has no gradient with step=pmd.ReparameterizedSlice",
        "constrain it (transform=pm.distributions.transforms.ordered, with an initval= in increasing order)",
        "This is label switching",
        "pmd.log_evidence tells, of the model with each of them",
    ),
    "it is brought by a few models only, whose tests look at what is said": (
        "all sites together are too many, and parts of them",
        "cannot be computed, with each observation counted",
        "that truncate= leaves is possible",
        "leaves out about {} of the probability",
        "Take wider bounds in truncate=",
        "need a table of {} GiB",
        "rows would take {} GiB. A step with integrate= does it",
        "were permuted, and the names along",
        "A Deterministic draws random numbers of its own",
        "has a size that differs from draw to draw",
        "or let pmd.sample sum such counts out",
        "The differences of {} were taken for exact",
        "integrate= needs one step for all variables, and that of",
        "Two values of {} change together, and their moves",
        "has no differences of sites that move together",
        "collapse=False samples {} and integrates out instead",
    ),
}
