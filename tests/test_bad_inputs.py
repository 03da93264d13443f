"""One table of (what is passed, the exception, the message): each names the variable or option and the
remedy.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.sparse as ps
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError

import pymc_discrete as pmd
from pymc_discrete.flows.flow import Flow
from pymc_discrete.flows.paths import PATHS
from pymc_discrete.flows.sources import SOURCES
from tests.models import model_of

pytestmark = pytest.mark.shares_programs


def everything():
    x = pm.Bernoulli("x", np.array([0.3, 0.6, 0.5]))
    k, c = pm.Poisson("k", 2.0), pm.Normal("c")
    pm.Normal("y", x.sum() + c + k, 1, observed=0.5)
    pm.Deterministic("d", 2 * x)
    pm.Multinomial("counts", n=5, p=np.ones(3) / 3)
    pm.DirichletMultinomial("mixed", n=5, a=np.ones(3))


def continuous_only():
    pm.Normal("c")


def transformed():
    pm.Bernoulli("x", pm.Beta("p", 1, 1))


def constrained_only():
    pm.Multinomial("counts", n=5, p=np.ones(3) / 3)


def custom():
    pm.CustomDist(
        "w",
        0.3,
        logp=lambda v, p: -p * v**2,
        random=lambda p, rng=None, size=None: np.zeros(size, "int64"),
        dtype="int64",
    )


def parity():
    x = pm.Bernoulli("x", np.full(12, 0.5))
    pm.Potential("parity", -3.0 * pt.mod(x.sum(), 2))


def another_x():
    with pm.Model():
        return pm.Bernoulli("x", np.array([0.3, 0.6, 0.5]))


def minibatch():
    x = pm.Bernoulli("x", 0.4, shape=3)
    pm.Normal("y", x.sum(), 1, observed=pm.Minibatch(np.arange(10.0), batch_size=2), total_size=10)


def made_sparse():
    x = pm.Bernoulli("x", 0.4, shape=3)
    pm.Potential("energy", ps.structured_dot(ps.csr_from_dense(pt.outer(x, x)), pt.ones((3, 1))).sum())


def truncated():
    pm.Bernoulli("x", 0.4, shape=3)
    pm.Truncated("g", pm.Geometric.dist(p=0.3), lower=2, upper=7)


MODELS = (
    everything,
    transformed,
    continuous_only,
    constrained_only,
    custom,
    parity,
    minibatch,
    made_sparse,
    truncated,
)
BAD_LENGTHS = (0, 0.5, -1, None, True, "long", np.nan, (2, 1), (0, 3), (1, 2.5), (1, 2, 3), [2])
BAD_STEPS = (0, -1, None, True, "small", np.nan, np.inf)
ON_OFF = ("recompute", "backtrack")


def build(*args, **options):
    """A step, GibbsWithGradients where none is named first, on a model."""
    step, build_model, *vars = args if isinstance(args[0], str) else ("GibbsWithGradients", *args)
    model = model_of(build_model)
    return getattr(pmd, step)(*(v(model) if callable(v) else v for v in vars), model=model, **options)


FREE = r"discrete free variable"
PAIR = r"'k'.*\(lower, upper\)"
WINDOW = r"window.*'k'.*'auto', 'geometric' or an integer of at least 1"
FLIPS = r"n_flips must be 'adapt' or a number of at least 1"
TRANSITIONS = r"transitions must be 'auto' or an integer of at least 1"
BALANCING = r"balancing must be one of 'sqrt', 'barker', 'min', 'max'"
TRUNCATED = (
    r"'g' is pm.Truncated of Geometric, which PyMC writes in floats"
    r".*pm.Categorical\('g', logit_p=pm.logp\(pm.Geometric.dist"
)
CONSTRAINED = r"is a constrained vector.*Categorical draws.*by hand"

# what is built: (model, vars, options); the exception; a regex of its message
BUILT = [
    ((everything, "nope"), {}, ValueError, rf"'nope'.*{FREE}s: 'x', 'k'"),
    ((everything, ["x", "nope"]), {}, ValueError, rf"'nope'.*{FREE}s: 'x', 'k'"),
    ((everything, 3), {}, (TypeError, ValueError), r"vars"),
    ((everything, [["x"]]), {}, TypeError, r"vars must be a variable.*got \[\['x'\]\]"),
    ((everything, ["x", "x"]), {}, ValueError, r"'x' is named twice in vars"),
    ((everything, "c"), {}, ValueError, r"'c' is continuous.*NUTS"),
    ((transformed, ["p"]), {}, ValueError, r"'p' is continuous.*NUTS"),
    (("CollapsedNUTS", transformed, ["q"]), {}, ValueError, r"'q' is no free variable.*It has 'p', 'x'"),
    ((everything, lambda m: m["c"]), {}, ValueError, r"'c' is continuous.*NUTS"),
    ((everything, "y"), {}, ValueError, rf"'y' is observed.*{FREE}s: 'x', 'k'"),
    ((everything, lambda m: [m["y"]]), {}, ValueError, rf"'y' is observed.*{FREE}s: 'x', 'k'"),
    ((everything, "d"), {}, ValueError, rf"'d' is no free random variable.*{FREE}s: 'x', 'k'"),
    ((everything, another_x()), {}, ValueError, rf"'x'.*model.*{FREE}s: 'x', 'k'"),
    (("DiscreteLangevin", everything, "counts"), {}, ValueError, rf"'counts' {CONSTRAINED}"),
    (("DiscreteLangevin", everything, ["x", "mixed"]), {}, ValueError, rf"'mixed' {CONSTRAINED}"),
    ((everything, []), {}, ValueError, r"vars is empty: name at least one"),
    ((continuous_only,), {}, ValueError, rf"no {FREE}.*Leave the step out"),
    (("DiscreteLangevin", constrained_only), {}, ValueError, rf"'counts' {CONSTRAINED}"),
    ((custom,), {}, ValueError, r"'w'.*step=pmd.AutoStep\(support=\{'w': \(lower, upper\)\}\)"),
    (
        (everything, "k"),
        {"support": {"k": (5, 2)}},
        ValueError,
        r"'k' is empty.*5 is above upper bound 2.*support=",
    ),
    (
        (everything, "k"),
        {"support": {"k": (0, np.nan)}},
        ValueError,
        r"'k'.*nan.*None where there is no bound",
    ),
    ((everything, "k"), {"support": {"k": (0, 2.5)}}, ValueError, r"'k' has a bound that is no integer"),
    ((everything, "k"), {"support": {"k": ("a", 2)}}, ValueError, PAIR + "|'k'.*no number.*Give"),
    ((everything, "k"), {"support": {"k": 3}}, ValueError, PAIR),
    ((everything, "k"), {"support": {"k": (0, 1, 2)}}, ValueError, PAIR),
    ((everything, "k"), {"support": {"q": (0, 2)}}, ValueError, r"support names 'q'.*block: .*k"),
    ((everything, "k"), {"support": {"x": (0, 1)}}, ValueError, r"support names 'x'.*block: .*k"),
    ((everything, "k"), {"support": (0, 2)}, (TypeError, ValueError), r"support must be.*\{"),
    ((everything, "x"), {"support": {"x": (np.zeros(2), np.ones(2))}}, ValueError, r"'x'.*shape.*\(3,\)"),
    *(
        ((everything, "k"), {"window": w}, ValueError, WINDOW)
        for w in (-1, 0, 1.5, True, np.nan, "wide", None, {"k": -1}, [1, 2])
    ),
    ((everything, "k"), {"window": {"q": 1}}, ValueError, r"window names 'q'.*block: .*k"),
    *(
        ((everything, "x"), {"balancing": b}, (TypeError, ValueError), BALANCING)
        for b in ("cube", None, ["sqrt"])
    ),
    (
        (everything, "x"),
        {"differences": "best"},
        ValueError,
        r"differences must be one of 'auto', 'exact', 'gradient'",
    ),
    *(
        ((everything, "x"), {"transitions": t}, ValueError, TRANSITIONS)
        for t in (0, -1, 1.5, True, None, "many")
    ),
    *(
        ((everything, "x"), {"n_flips": f}, ValueError, FLIPS)
        for f in (0.5, 0, -1, "x", np.nan, np.inf, True, None)
    ),
    ((everything, "x"), {"n_flip": 2}, TypeError, r"GibbsWithGradients.*'n_flip'"),
    *(
        ((everything, "x"), {"start": v}, ValueError, r"start must be one of 'point', 'dispersed'")
        for v in ("prior", None, 1)
    ),
    *(
        (("PathAuxiliary", everything, "x"), {"path_length": v}, ValueError, r"path_length must be")
        for v in BAD_LENGTHS
    ),
    *(
        (("PathAuxiliary", everything, "x"), {n: v}, ValueError, rf"{n} must be True or False")
        for n in ON_OFF
        for v in (1, None, "no")
    ),
    (
        ("PathAuxiliary", everything, "x"),
        {"n_flips": 2},
        TypeError,
        r"PathAuxiliary has no option 'n_flips'; it has path_length",
    ),
    (("PathAuxiliary", everything, "c"), {}, ValueError, r"'c' is continuous.*NUTS"),
    *(
        (
            ("DiscreteLangevin", everything, "x"),
            {"step_size": v},
            ValueError,
            r"step_size must be 'adapt' or a positive",
        )
        for v in BAD_STEPS
    ),
    *(
        (
            ("SwendsenWang", everything, "x"),
            {"clusters": v},
            ValueError,
            r"clusters must be 'auto' or a number",
        )
        for v in (*BAD_STEPS, 1.5)
    ),
    *(
        (
            ("DiscreteLangevin", everything, "x"),
            {"proposal": v},
            ValueError,
            r"proposal must be one of 'dlp', 'dlmc'",
        )
        for v in ("mala", None)
    ),
    (
        ("DiscreteLangevin", everything, "x"),
        {"adjusted": "no"},
        ValueError,
        r"adjusted must be True or False",
    ),
    (("DiscreteLangevin", everything, "x"), {"balancing": "cube"}, ValueError, BALANCING),
    (
        ("DiscreteLangevin", parity),
        {"differences": "gradient"},
        ValueError,
        r"blind for 'x'.*differences='exact'",
    ),
    ((parity,), {"differences": "gradient"}, ValueError, r"blind for 'x'.*differences='exact'"),
    (
        (minibatch,),
        {},
        ValueError,
        r"log density of 'y' draws random numbers, as pm.Minibatch does.*Observe the whole data",
    ),
    ((truncated,), {}, ValueError, TRUNCATED),
    ((truncated, "g"), {}, ValueError, TRUNCATED),
    (("ReparameterizedSlice", truncated), {}, ValueError, TRUNCATED),
    (("sample", truncated), {}, ValueError, TRUNCATED),
    (
        (made_sparse,),
        {},
        ValueError,
        r"'energy' takes 'x' through a sparse matrix.*Write it so, or with dense tensors",
    ),
]


def label(case):
    args, options, *_ = case
    shown = [
        v.__name__ if any(v is m for m in MODELS) else str(v) if isinstance(v, str | list | int) else "object"
        for v in args
    ]
    return "-".join([*shown, *map(str, options.items())])


@pytest.mark.parametrize(("args", "options", "error", "message"), BUILT, ids=map(label, BUILT))
def test_refused_when_built(args, options, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        build(*args, **options)


def nan_data():
    x = pm.Bernoulli("x", np.full(3, 0.4))
    weight = pm.Data("weight", np.array([0.0, 1.0, 1.0]))
    pm.Potential("energy", (x * weight).sum())
    weight.set_value(np.array([0.0, np.nan, 1.0]))


def nan_elsewhere():
    pm.Bernoulli("x", np.full(3, 0.4))
    pm.Potential("elsewhere", pm.Normal("c") * np.nan)


def infinite():
    x = pm.Bernoulli("x", np.full(3, 0.4))
    pm.Potential("energy", pt.switch(x.sum() > 1, np.inf, 0.0))


def counts():
    pm.Bernoulli("x", np.full(3, 0.4))
    pm.Poisson("k", 3.0)
    pm.Categorical("z", np.ones(3) / 3)


SPIKE = r"log density is {}.*'{}'.*nan in the data"
# where the chain starts; the message of the first step
STARTED = [
    (nan_data, {}, r"'weight' of shape \(3,\) that it reads holds nan"),
    (nan_elsewhere, {}, r"an array of shape \(\) that it reads holds nan"),
    (infinite, {"x": [1, 1, 0]}, SPIKE.format("inf", "energy")),
    (counts, {"x": [0, 2, 1]}, r"'x' starts outside its support: element 1 is 2.*initvals="),
    (counts, {"z": 3}, r"'z' starts outside its support.*3.*initvals="),
    (counts, {"k": -1}, r"'k' starts outside its support.*-1.*initvals="),
]


@pytest.mark.parametrize(
    ("build_model", "start", "message"), STARTED, ids=lambda v: getattr(v, "__name__", str(v)[:20])
)
def test_refused_at_the_first_step(build_model, start, message):
    model = model_of(build_model)
    step = pmd.GibbsWithGradients(model=model)
    step.setup_chain(np.random.default_rng(0), tune=0, draws=1)
    point = {**model.initial_point(), **{k: np.array(v) for k, v in start.items()}}
    with pytest.raises(SamplingError, match=f"(?s){message}"):
        step.step(point)


def test_without_a_model():
    with pytest.raises(TypeError, match=r"no model: call this within `with model:`, or pass model="):
        pmd.sample()


EVERYTHING = model_of(everything)
DRAWS = az.from_dict({"posterior": {"c": np.zeros((1, 3))}})
# the arguments of a function of whole models; the message, which names the argument
MISPLACED = [
    (pmd.marginalize, (["x"], EVERYTHING), r"model must be a pm.Model, got \['x'\]. vars is one"),
    (pmd.marginalize, (EVERYTHING, EVERYTHING), r"vars is a pm.Model.*model=\.\.\."),
    (pmd.target_from_model, (["x"], EVERYTHING), r"model must be a pm.Model, got \['x'\]. vars is one"),
    (pmd.AutoStep, (EVERYTHING,), r"vars is a pm.Model.*model=\.\.\."),
    (pmd.CollapsedNUTS, (EVERYTHING,), r"vars is a pm.Model.*model=\.\.\."),
    (pmd.recover, (None, EVERYTHING), r"idata must be a DataTree with a group 'posterior'.*a NoneType"),
    (pmd.recover, (EVERYTHING, DRAWS), r"idata must be a DataTree.*a Model: pmd.recover\(idata, model\)"),
    (pmd.recover, (DRAWS["posterior"], EVERYTHING), r"a DataTree of 'c'. Pass the whole DataTree"),
    (pmd.recover, (DRAWS["posterior"].to_dataset(), EVERYTHING), r"a Dataset of 'c'. Pass the whole"),
    (pmd.recover, (DRAWS, "model"), r"model must be a pm.Model, got 'model'"),
]


@pytest.mark.parametrize(("function", "arguments", "message"), MISPLACED)
def test_misplaced_arguments_are_named(function, arguments, message):
    with pytest.raises(TypeError, match=message):
        function(*arguments)


def test_options_of_recover_are_named():
    with pytest.raises(TypeError, match=r"truncate must be a dictionary.*got 5"):
        pmd.recover(DRAWS, EVERYTHING, truncate=5)
    with pytest.raises(ValueError, match=r"random_seed must be an integer of at least 0.*got -1"):
        pmd.recover(DRAWS, EVERYTHING, random_seed=-1)
    with pytest.raises(ValueError, match=r"no discrete free variable to recover.*before pmd.marginalize"):
        pmd.recover(DRAWS, model_of(continuous_only))


def observed_alone():
    x = pm.Bernoulli("x", np.array([0.3, 0.6, 0.5]))
    pm.Normal("y", x.sum(), 1, observed=0.5)
    pm.Poisson("n", 1.0 + x.sum(), observed=2)


def with_potential():
    x = pm.Bernoulli("x", np.array([0.3, 0.6, 0.5]))
    pm.Normal("y", x.sum(), 1, observed=0.5)
    pm.Potential("pull", 1.0 * x.sum())


def scaled():
    x = pm.Bernoulli("x", np.array([0.3, 0.6, 0.5]))
    pm.Normal("y", x.sum(), 1, observed=[0.5, 1.0], total_size=10)


def draws_like(**values):
    return {"draws": az.from_dict({"posterior": {k: np.asarray(v)[None] for k, v in values.items()}})}


ZEROS = draws_like(x=np.zeros((5, 3), int))
# the model, its variables, the options of fit_flow; the exception; a regex of its message
FLOWS = [
    (everything, "k", ZEROS, ValueError, r"'k' has no finite support of at most 256 values.*Bound it"),
    (everything, ["x", "counts"], ZEROS, ValueError, rf"'counts' {CONSTRAINED}"),
    (everything, "c", ZEROS, ValueError, r"'c' is continuous.*NUTS"),
    (everything, "nope", ZEROS, ValueError, rf"'nope'.*{FREE}s: 'x', 'k'"),
    (everything, "x", {}, TypeError, r"Pass either draws=.*or given="),
    (everything, "x", {**ZEROS, "given": ["y"]}, TypeError, r"Pass either draws=.*or given="),
    (everything, "x", {"draws": np.zeros((5, 3))}, TypeError, r"DataTree with a group 'posterior'.*ndarray"),
    (everything, "x", draws_like(c=np.zeros(5)), ValueError, r"draws have no 'x'; they have 'c'"),
    (everything, "x", draws_like(x=np.zeros((5, 2), int)), ValueError, r"of 'x' have shape \(2,\).*\(3,\)"),
    (everything, "x", draws_like(x=np.zeros((5, 3))), ValueError, r"of 'x' must be integers.*5 of float64"),
    (
        everything,
        "x",
        draws_like(x=[[0, 1, 2]]),
        ValueError,
        r"of 'x' hold 2, and the support of its element \[2\] is 0 to 1",
    ),
    (everything, "x", {**ZEROS, "path": "straight"}, ValueError, r"path must be one of 'linear'"),
    (everything, "x", {**ZEROS, "source": "data"}, ValueError, r"source must be one of 'mask', 'uniform'"),
    (everything, "x", {**ZEROS, "steps": 0}, ValueError, r"steps must be an integer of at least 1, got 0"),
    (everything, "x", {**ZEROS, "iterations": 2.5}, ValueError, r"iterations must be an integer"),
    (everything, "x", {"given": ["y"]}, ValueError, r"'k', 'c', 'counts', 'mixed' is unknown, too.*marginal"),
    (
        observed_alone,
        "x",
        {"given": "x"},
        ValueError,
        r"'x', which is not observed.*'y', 'n'.*observed=",
    ),
    (observed_alone, "x", {"given": ["y"]}, ValueError, r"'n' is observed, too, and not in given"),
    (observed_alone, "x", {"given": 3}, TypeError, r"given must be names of observed variables"),
    (scaled, "x", {"given": ["y"]}, ValueError, r"of 'y' is scaled by total_size=.*Leave total_size= out"),
    (with_potential, "x", {"given": ["y"]}, ValueError, r"'pull' is a potential.*fit a flow to draws="),
]


@pytest.mark.parametrize(("build_model", "names", "options", "error", "message"), FLOWS)
def test_what_a_flow_cannot_be_fitted_to(build_model, names, options, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        pmd.fit_flow(model_of(build_model), names, progressbar=False, **options)


def flow_for(**supports):
    """A flow that was made for other variables, which says that all values are equally probable."""
    space = pmd.Space.build(supports)
    logits = np.where(space.exists, 0.0, -np.inf)
    network = lambda params, x, t: logits
    return Flow.build(space, PATHS["linear"], SOURCES["mask"], network, (), [0.0, 0.5, 1.0])


FLOW_STEPS = [
    (lambda: "x", {}, TypeError, r"flow must be a Flow, as pmd.fit_flow.* got str"),
    (lambda: flow_for(q=(0, 1)), {}, ValueError, rf"'q'.*{FREE}s: 'x', 'k'"),
    (
        lambda: flow_for(x=(0, [1, 1])),
        {},
        ValueError,
        r"'x' has the shape \(3,\) in the model.*\(2,\) in the",
    ),
    (lambda: flow_for(x=(0, [1, 2, 1])), {}, ValueError, r"supports of 'x' in the model are others"),
    (lambda: flow_for(x=(0, [1, 1, 1])), {"turn": 0.3}, ValueError, r"turn must be one of the flow's times"),
    (lambda: flow_for(x=(0, [1, 1, 1])), {"blocked": False}, ValueError, r"moves its variables together"),
    (lambda: flow_for(x=(0, [1, 1, 1])), {"turns": 0.5}, TypeError, r"FlowStep has no option 'turns'"),
]


@pytest.mark.parametrize(("make", "options", "error", "message"), FLOW_STEPS)
def test_flows_that_a_step_refuses(make, options, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        pmd.FlowStep(make(), model=EVERYTHING, **options)


@pytest.mark.parametrize("when", ["built", "first step"])
def test_ops_without_a_jax_version(when):
    from pytensor.compile.ops import wrap_py

    @wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])
    def twice(a):
        return 2 * a

    with pm.Model() as model:
        x = pm.Bernoulli("x", np.full(3, 0.4))
        e = pt.kv(1, 1.0 + x).sum() if when == "built" else twice(x.sum().astype("float64"))
        pm.Potential("e", e)
    with pytest.raises(
        NotImplementedError, match=r"(?s)'x' has an Op without a JAX version.*jax_funcify.*pm.Metropolis"
    ):
        pmd.GibbsWithGradients(model=model).step(model.initial_point())


# ---------------------------------------------------------------- data and parameters, through every way in
def of_two_lengths():
    x = pm.Data("x", np.arange(4.0))
    pm.Normal("y", pm.Bernoulli("z", 0.5, shape=4) * x, 1.0, observed=np.zeros(4))
    pm.set_data({"x": np.arange(6.0)})


def that_do_not_broadcast():
    pm.Normal("y", pm.Bernoulli("z", 0.5, shape=3), 1.0, observed=np.zeros(4))


WAYS = {
    "sample": lambda: pmd.sample(progressbar=False),
    "AutoStep": lambda: pmd.AutoStep(),
    "marginalize": lambda: pmd.marginalize(),
    "log_evidence": lambda: pmd.log_evidence(progressbar=False),
}


@pytest.mark.parametrize("way", WAYS)
def test_shapes_that_do_not_fit_are_named(way):
    with (
        model_of(of_two_lengths),
        pytest.raises(ValueError, match=r"log density of 'y.*shapes do not fit: .*\(6,\).*pm.set_data"),
    ):
        WAYS[way]()
    with (
        model_of(that_do_not_broadcast),
        pytest.raises(ValueError, match=r"PyMC cannot write the log density of 'y': .*shapes"),
    ):
        WAYS[way]()


def test_parameters_outside_their_domain_are_named():
    with pm.Model() as model:
        pm.Bernoulli("z", [1.5, 0.5, 0.5])
        step = pmd.BlockGibbs()
        step.setup_chain(np.random.default_rng(1), tune=0, draws=5)
        with pytest.raises(SamplingError, match=r"through 'z' \(its parameters must meet 0 <= p <= 1\)"):
            step.step(model.initial_point())
        pm.Normal("y", model["z"], 1.0, observed=[1.0, 2.0, 3.0])
        with pytest.raises(ValueError, match=r"prior of 'z' cannot be drawn from: .*outside their domain"):
            pmd.log_evidence(progressbar=False)
