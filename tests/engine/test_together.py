"""Chains that are computed all at once, as on an accelerator, draw what they draw one after another.

On a CPU the chains of a device run one after another, so that no other test meets `vmap` over the chains of
a run. Here small models are sampled in both ways on a CPU. What else an accelerator does in its own way, the
order in which sites are summed out and how values are added up by an index, is done so in both.

Integers are equal. Floats are equal but for the rounding of sums, which is tested after few draws: later it
would decide a proposal otherwise.
"""

import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.differences.parts.part import Part
from pymc_discrete.engine import counts, nuts_with_counts, run
from pymc_discrete.engine.block import Block
from pymc_discrete.engine.discrete import DiscreteBlock
from pymc_discrete.engine.program import Program
from pymc_discrete.flows.block import space_of
from pymc_discrete.flows.model import FlowModel
from pymc_discrete.flows.networks import Perceptron
from pymc_discrete.integrals import active, columns
from pymc_discrete.kernels import adaptation, scatter
from pymc_discrete.kernels.method import Method
from pymc_discrete.space.constraints import Constraint
from tests.conftest import stand_for_nuts
from tests.integrals.models import X, Y
from tests.tools.interpreted import interpreted
from tests.tools.running import QUIET

KINDS = (Block, Method, Part, Constraint)


class Case(NamedTuple):
    """A model, and what is in its program.

    Attributes
    ----------
    build : writes the model, and returns options of `pmd.sample`
    covers : the names of classes in its program that are of one of `KINDS`
    walks : whether a random walk stands for NUTS
    compiled : whether the program is compiled, as a user's is; by default it is interpreted where it can be
    """

    build: Callable
    covers: tuple[str, ...]
    walks: bool
    compiled: bool


CASES: dict[str, Case] = {}


def case(*covers: str, walks: bool = True, compiled: bool = False) -> Callable:
    def register(build: Callable) -> Callable:
        CASES[build.__name__] = Case(build, covers, walks, compiled)
        return build

    return register


# ---------------------------------------------------------------- methods, and ways to find differences
def lattice():
    s = 2 * pm.Bernoulli("x", 0.5, shape=(2, 3)) - 1
    pm.Potential("e", 0.4 * ((s[1:] * s[:-1]).sum() + (s[:, 1:] * s[:, :-1]).sum()))


@case("DiscreteBlock", "BlockGibbs", "Tables")
def pairs():
    lattice()
    return {"step": pmd.BlockGibbs()}


@case("GibbsWithGradients", "InPlace")
def counts_that_are_settled_in_32_bits():
    n = pm.Poisson("n", [2.0, 1.5], shape=2)
    pm.Normal("y", n[0] - 0.5 * n[1], 1.2, observed=1.4)
    return {"step": pmd.GibbsWithGradients(n_flips="adapt"), "dtype": "float32"}


@case("PathAuxiliary", "Incremental", "DiscreteLangevin", "Gradient", "Quadratic")
def terms_of_several_forms():
    """A block for each, with a method and a way to find differences of its own."""
    a, b, c = (pm.Bernoulli(name, 0.3, shape=d) for name, d in (("a", 6), ("b", 4), ("c", 6)))
    pm.Potential("softplus", pt.softplus(pt.dot(X[:5], a)).sum())
    pm.Potential("tanh", pt.tanh(pt.dot(X[:5, :4], b)).sum())
    pm.Normal("squares", pt.dot(X, c), 1.0, observed=Y)
    by_the_gradient = pmd.DiscreteLangevin("b", differences="gradient")
    return {"step": [pmd.PathAuxiliary("a"), by_the_gradient, pmd.BlockGibbs("c")]}


@case("SwendsenWang")
def clusters_with_counts_in_place_of_draws():
    lattice()
    return {"step": pmd.SwendsenWang(), "thin": 2}


@case("TreeGibbs", "PerturbAndMaxProduct")
def a_path_and_a_pair():
    z, x = pm.Categorical("z", p=np.ones(3) / 3, shape=5), pm.Bernoulli("x", 0.4, shape=2)
    pm.Potential("path", pt.as_tensor(X[:3, :3])[z[:-1], z[1:]].sum())
    pm.Potential("pair", 0.5 * x.prod())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it is biased
        return {"step": [pmd.TreeGibbs("z"), pmd.PerturbAndMaxProduct("x", n_sweeps=20)]}


@case("BackAndForth")
def moved_by_a_flow():
    pm.Bernoulli("x", 0.3, shape=4)
    space = space_of(pm.modelcontext(None), ["x"])
    learner = FlowModel(space, Perceptron(space.d, space.K, width=4, depth=1, key=jax.random.key(0)))
    flow = learner.flow(learner.start(None), (0.0, 0.4, 1.0))
    return {"step": [pmd.FlowStep(flow, turn=0.4), pmd.BlockGibbs()]}


# ---------------------------------------------------------------- sites that change together
@case("Permutations", "FixedSums", "LinearConstraint")
def an_order_and_shares_and_a_table_with_known_sums():
    pm.Normal("y", pt.as_tensor([0.0, 0.7, 1.1, 2.0])[pmd.Permutation("x", 4)], 1.0, observed=Y[:4])
    n = pm.Multinomial("n", 5, np.array([0.2, 0.3, 0.5]))
    pm.Normal("z", n[0] * n[1], 1.0, observed=2.5)
    t = pm.Poisson("t", np.array([[1.0, 2.0, 0.5], [1.5, 0.7, 1.1]]))
    for axis, known in ((0, [2, 3, 1]), (1, [4, 2])):
        pm.Potential(f"known {axis}", pt.switch(pt.all(pt.eq(t.sum(axis=axis), known)), 0.0, -np.inf))
    return {}


# ---------------------------------------------------------------- what is integrated or summed out
@case("ByLabel")
def labels_with_their_means_integrated_out():
    z = pm.Categorical("z", p=[0.2, 0.5, 0.3], shape=5)
    pm.Normal("y", pm.Normal("mu", 0, 2, shape=3)[z], 0.8, observed=Y[:5])
    return {"step": pmd.BlockGibbs(["z"], integrate=["mu"])}


def gated():
    """A regression of which each coefficient has a gate."""
    g, b = pm.Bernoulli("g", 0.4, shape=2), pm.Normal("b", 0.3, 1.2, shape=2)
    return pt.dot(X[:, :2], g * b)


@case("ActiveColumns")
def coefficients_of_many_columns():
    pm.Normal("y", gated(), 0.8, observed=Y)
    return {}


@case("FurtherVariables", "NutsBlock", "Swept")
def logistic():
    pm.Bernoulli("y", logit_p=gated(), observed=Y > 0)
    return {}


def mixture():
    z = pm.Categorical("z", p=[0.2, 0.5, 0.3], shape=4)
    pm.Normal("y", pm.Normal("mu", 0, 2, shape=3)[z], 0.8, observed=Y[:4])


@case("CollapsedBlock")
def summed_over_stretches():
    pm.Binomial("y", n=pm.Poisson("N", 4.0), p=pm.Beta("p", 1, 1), observed=3)
    return {"collapse": True}


# ---------------------------------------------------------------- continuous variables
@case("NutsBlock", walks=False)
def nuts():
    pm.Normal("y", pm.Bernoulli("x", 0.4) + pm.Normal("mu", shape=2), 1.0, observed=[0.5, 1.5])
    return {"step": pmd.BlockGibbs(), "nuts": {"max_treedepth": 2, "dense": False}}


@case("NutsBlock", walks=False, compiled=True)
def nuts_of_pooled_chains():
    """The one that is compiled with its devices, too."""
    pm.Normal("y", pm.Normal("mu", shape=2), 1.0, observed=[0.5, 1.5])
    return {"nuts": {"max_treedepth": 2, "pooled": True, "dense": False}}


@case("NutsWithCounts")
def nuts_along_counts():
    """Of a model that is quickly compiled: `AutoStep` would not move its count so."""
    pm.Normal("y", 0.3 * pm.DiscreteUniform("n", 0, 9) + pm.Normal("mu"), 1.0, observed=1.5)
    step = pmd.BlockGibbs()
    step.along = ["n"]
    return {"step": step, "collapse": False, "nuts": {"dense": False}}


@case("SliceBlock")
def slices():
    pm.Normal("y", pm.Normal("mu", shape=2), 1.0, observed=[0.5, 1.5])
    return {"step": pmd.ReparameterizedSlice(["mu"])}


@case("CustomBlock")
def of_the_user():
    def shifted(key, point, state):
        return {"mu": 0.5 * point["mu"] + jax.random.normal(key) + state}, 1 - state

    pm.Normal("mu")
    return {"step": pmd.CustomStep("mu", shifted, init=lambda point: jnp.zeros(()))}


# ---------------------------------------------------------------- what is beside the blocks
@case("SummedBlock")
def replicas_and_what_is_summed_out():
    mixture()
    return {"temper": {"replicas": 3}}


# ---------------------------------------------------------------- both ways
@pytest.fixture(autouse=True)
def as_on_an_accelerator(monkeypatch):
    """What an accelerator does but for how its chains are computed, and short stretches of tuning."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(scatter, "IN_TURN_UP_TO", 0)
    monkeypatch.setattr(run, "TUNING_CHUNK", 2)


def begin(self, function, *args, **static):
    """As `Program.begin`, but that the program is interpreted, where it calls no library."""
    made = vars(self).setdefault("interpreted", {})
    key = (function, *static.items())
    if key not in made:
        made[key] = Future()
        made[key].set_result(interpreted(partial(getattr(self, function), **static)))
    return made[key]


@pytest.fixture
def sampled(request, monkeypatch):
    """A function that samples a case, its chains together or not; and the programs that it made."""
    case, programs = CASES[request.getfixturevalue("name")], []
    if case.walks:
        stand_for_nuts(monkeypatch)
    if not case.compiled:
        monkeypatch.setattr(Program, "begin", begin)
        monkeypatch.setattr(jax, "shard_map", lambda function, **_: function)
    if case.build is coefficients_of_many_columns:
        monkeypatch.setattr(columns, "MOST_IN_TABLEAU", 0)
        monkeypatch.setattr(columns, "MOST_ROWS", np.inf)
        monkeypatch.setattr(active, "ACTIVE_AT_ONCE", 2)
    if case.build is nuts_along_counts:
        monkeypatch.setattr(nuts_with_counts, "DEEPEST_WITH_COUNTS", 2)
    if case.build is clusters_with_counts_in_place_of_draws:
        monkeypatch.setattr(counts, "MOST_ELEMENTS", 2)
    if case.build is counts_that_are_settled_in_32_bits:
        monkeypatch.setattr(adaptation, "STUCK_DRAWS", 0)
        monkeypatch.setattr("tests.tools.interpreted.LARGEST", 1_000_000)  # it has half as many
    start = Program.start

    def watch(self, points, *exact):
        programs.append(self)
        return start(self, points, *exact)

    monkeypatch.setattr(Program, "start", watch)

    with pm.Model() as model:
        options = {
            "draws": 2,
            "tune": 3,
            "chunk": 2,
            "chains": 2,
            "random_seed": 1,
            **QUIET,
            **case.build(),
        }

    def sample(together):
        monkeypatch.setattr("pymc_discrete.engine.program.side_by_side", lambda device: together)
        return pmd.sample(model=model, devices=jax.devices(), discard_tuned_samples=False, **options)

    return sample, programs


def classes_in(program):
    """The names of the classes of `KINDS` in a program."""
    found = {type(block) for block in program.blocks}
    for block in program.blocks:
        if isinstance(block, DiscreteBlock):
            found |= {type(block.step.method), *map(type, block.density.parts)}
            found |= {type(v.constraint) for v in block.space.variables if v.constraint}
    return {of.__name__ for of in found}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.by_default("pairs", "of_the_user")
def test_the_draws_are_those_of_chains_one_after_another(name, sampled):
    sample, programs = sampled
    alone, together = sample(False), sample(True)
    assert {program.together for program in programs} == {False, True}
    assert classes_in(programs[0]).issuperset(CASES[name].covers)
    assert alone.groups == together.groups
    for group in alone.groups[1:]:
        for of, a in alone[group].data_vars.items():
            b, where = together[group][of], f"{of} in {group}"
            if a.dtype.kind == "f":
                rounding = 1e-3 if name.endswith("in_32_bits") else 1e-8
                np.testing.assert_allclose(b, a, rounding, rounding, err_msg=where)
            else:
                np.testing.assert_array_equal(b, a, err_msg=where)


def test_every_kind_of_block_has_a_case():
    """Each block, method, constraint, and way to find differences; a new one needs a model here."""
    for module in pkgutil.walk_packages(pmd.__path__, "pymc_discrete."):
        if not module.name.startswith("pymc_discrete.plots"):
            importlib.import_module(module.name)
    wanted, left = set(), list(KINDS)
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        if not inspect.isabstract(kind) and kind.__module__.startswith("pymc_discrete."):
            wanted.add(kind.__name__)
    assert {name for case in CASES.values() for name in case.covers} == wanted
