"""Models that hold one number in each kind of place where a graph, or what it calls, can hold one."""

import functools
import types
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import scipy.sparse
from pymc.distributions import transforms
from pymc.exceptions import ImputationWarning
from pymc.logprob.transforms import Transform
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.link.jax.ops import wrap_jax
from pytensor.scalar import float64
from pytensor.scalar.basic import Composite
from pytensor.sparse import as_sparse_variable, structured_dot
from pytensor.tensor.elemwise import Elemwise

import pymc_discrete as pmd


# ---------------------------------------------------------------- graphs of a vector x
def scan(w: float, x):
    return pytensor.scan(
        lambda z, before: w * before + z, sequences=x, outputs_info=pt.zeros(()), return_updates=False
    ).sum()


def scan_of_array(w: float, x):
    weights = np.array([[1.0, 0.0, 0.0], [0.0, w, 0.0], [0.0, 0.0, 2.0]])
    step = pytensor.scan(
        lambda before: pt.dot(weights, before), outputs_info=x, n_steps=2, return_updates=False
    )
    return step.sum()


def scan_of_sparse(w: float, x):
    matrix = as_sparse_variable(scipy.sparse.csr_matrix(np.diag([1.0, w, 2.0])))
    step = pytensor.scan(
        lambda before: structured_dot(matrix, before),
        outputs_info=x[:, None],
        n_steps=2,
        return_updates=False,
    )
    return step.sum()


def inner_graph(w: float, x):
    v = pt.vector("v", shape=(3,))
    return OpFromGraph([v], [w * v])(x).sum()


def inner_graph_in_scan(w: float, x):
    s = pt.scalar("s")
    op = OpFromGraph([s], [w * s])
    return pytensor.scan(
        lambda z, before: op(before) + z, sequences=x, outputs_info=pt.zeros(()), return_updates=False
    ).sum()


def composite(w: float, x):
    v = float64("v")
    return Elemwise(Composite([v], [v * w]))(x).sum()


def sparse(w: float, x):
    matrix = as_sparse_variable(scipy.sparse.csr_matrix(np.diag([1.0, w, 2.0])))
    return structured_dot(matrix, x[:, None]).sum()


# ---------------------------------------------------------------- Ops of the user
class Blackbox(Op):
    """An Op whose attributes hold a number, and whose computation JAX is told."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dvector()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] * self.number()

    def number(self):
        return np.ravel(next(iter(self.__dict__.values())))[0]


@jax_funcify.register(Blackbox)
def _(op, **options):
    return lambda x: x * op.number()


class WithProps(Blackbox):
    __props__ = ("w",)


class SaysItIsEqual(Blackbox):
    """It says that it is equal to others of other data, as Ops that forget an attribute do."""

    __props__ = ()


class Slotted:
    __slots__ = ("w",)

    def __init__(self, w):
        self.w = w


def in_class(w: float, x):
    kind = type("OfNumber", (Blackbox,), {"weight": w, "number": lambda self: self.weight})
    return kind()(x).sum()


def in_code(w: float, x):
    number = eval(f"lambda self: {w}")
    kind = type("OfCode", (Blackbox,), {"number": number})
    return kind()(x).sum()


def in_jax_function(w: float, x):
    kind = type("OfJax", (Blackbox,), {})
    jax_funcify.register(kind, lambda op, **options: lambda v: v * w)
    return kind()(x).sum()


def blackbox(make: Callable, kind=Blackbox):
    return lambda w, x: kind(w=make(w))(x).sum()


# ---------------------------------------------------------------- functions that JAX calls
def in_jax(function: Callable[[float], Callable]):
    """What `wrap_jax` calls."""
    return lambda w, x: wrap_jax(function(w), allow_eval=True)(x).sum()


def closure(w: float):
    return lambda v: v * w


def nested_closure(w: float):
    def inner(v):
        return v * w

    def outer(v):
        return inner(v)

    return outer


def default(w: float):
    return lambda v, w=w: v * w


def only_by_name(w: float):
    def function(v, *, w=w):
        return v * w

    return function


def literal(w: float):
    return eval(f"lambda v: v * {w}")


def literal_of_an_array(w: float):
    return eval(f"lambda v: v * jnp.array((1.0, {w}, 2.0))", {"jnp": jnp})


def global_name(w: float):
    return eval("lambda v: v * W", {"W": w})


def global_function(w: float):
    return eval("lambda v: scaled(v)", {"scaled": closure(w)})


def global_module(w: float):
    module = types.ModuleType("settings_of_the_user")
    module.weight = w
    return eval("lambda v: v * settings.weight", {"settings": module})


def partial(w: float):
    return functools.partial(lambda v, w: v * w, w=w)


def compiled(w: float):
    return jax.jit(lambda v: v * w)


def with_derivative(w: float):
    function = jax.custom_jvp(lambda v: v * 2.0)
    function.defjvp(lambda values, slopes: (values[0] * 2.0, slopes[0] * w))
    return function


class Callable_:
    def __init__(self, w):
        self.w = w

    def __call__(self, v):
        return v * self.w

    def method(self, v):
        return v * self.w


def attribute_of_a_function(w: float):
    def function(v):
        return v * function.w

    function.w = w
    return function


# ---------------------------------------------------------------- models
def potential(term: Callable):
    """A model with a term, a function (w, x) of three normal variables."""

    def build(w: float) -> pm.Model:
        with pm.Model() as model:
            pm.Potential("e", term(w, pm.Normal("x", shape=3)))
        return model

    return build


def variables(make: Callable):
    """A model whose variables `make(w)` makes."""

    def build(w: float) -> pm.Model:
        with pm.Model() as model:
            make(w)
        return model

    return build


class Shifted(Transform):
    """A transform of the user."""

    name = "shifted"

    def __init__(self, w):
        self.w = w

    def forward(self, value, *inputs):
        return value - self.w

    def backward(self, value, *inputs):
        return value + self.w

    def log_jac_det(self, value, *inputs):
        return pt.zeros_like(value)


def of_data(w: float) -> None:
    pm.Normal("x", pm.Data("d", np.array([1.0, w, 2.0])), shape=3)


def after_set_data(w: float) -> pm.Model:
    with pm.Model() as model:
        pm.Normal("x", pm.Data("d", np.zeros(3)), shape=3)
    pm.set_data({"d": np.array([1.0, w, 2.0])}, model=model)
    return model


def masked(w: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        pm.Normal("y", pm.Normal("m"), observed=np.ma.masked_invalid([w, np.nan, 1.0]))


def marginalized(w: float) -> pm.Model:
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3, shape=3)
        x = pm.Normal("x", shape=3)
        pm.Potential("e", (pt.sin(w * x) * z).sum())
    return pmd.marginalize(model, ["z"])


def marginalized_scan(w: float) -> pm.Model:
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3)
        pm.Potential("e", scan(w, pm.Normal("x", shape=3)) * z)
    return pmd.marginalize(model, ["z"])


TERMS = {
    "a constant": lambda w, x: w * x.sum(),
    "a constant array": lambda w, x: (np.array([1.0, w, 2.0]) * x).sum(),
    "a constant of 32 bits": lambda w, x: (np.float32(w) * x).sum(),
    "an exponent": lambda w, x: (pt.abs(x) ** (1 + w)).sum(),
    "a shared variable": lambda w, x: (pytensor.shared(np.array([1.0, w, 2.0])) * x).sum(),
    "a sparse constant": sparse,
    "a sparse shared variable": lambda w, x: structured_dot(
        pytensor.shared(scipy.sparse.csc_matrix(np.diag([1.0, w, 2.0]))), x[:, None]
    ).sum(),
    "a constant in a scan": scan,
    "a constant array in a scan": scan_of_array,
    "a sparse constant in a scan": scan_of_sparse,
    "an inner graph": inner_graph,
    "an inner graph in a scan": inner_graph_in_scan,
    "a composite": composite,
    "an index": lambda w, x: x[round(2 * w) - 1],
    "a property of an Op": lambda w, x: pt.cumsum(pt.outer(x, x), axis=int(w > 0.7))[0, 0],
    "bounds of a gradient": lambda w, x: pytensor.gradient.grad_clip(x, -w, w).sum(),
    # Ops of the user
    "an attribute": blackbox(lambda w: w),
    "an array": blackbox(lambda w: np.array([w, 1.0])),
    "a nested attribute": blackbox(lambda w: {"weights": [w, (1.0, {2.0})]}, WithProps),
    "an attribute in no property": blackbox(lambda w: w, SaysItIsEqual),
    "an attribute of 3,000 elements": blackbox(lambda w: [*[0.0] * 1500, w, *[0.0] * 1500], SaysItIsEqual),
    "an object": blackbox(Callable_),
    "a partial function": blackbox(partial),
    "a namespace": blackbox(lambda w: types.SimpleNamespace(w=w), SaysItIsEqual),
    "an object with slots": blackbox(Slotted),
    "a subclass of float": blackbox(type("Weight", (float,), {})),
    "an array of JAX": blackbox(jnp.asarray),
    "an array of objects": blackbox(lambda w: np.array([w, "a"], dtype=object)),
    "a masked array": blackbox(lambda w: np.ma.masked_array([w, 1.0], [False, True])),
    "a sparse matrix": blackbox(lambda w: scipy.sparse.coo_matrix(np.diag([1.0, w]))),
    "a random generator": blackbox(lambda w: np.random.default_rng(int(10 * w))),
    "an attribute of a class": in_class,
    "the code of a method": in_code,
    "its version for JAX": in_jax_function,
    # functions
    **{
        f"a function: {make.__name__}": in_jax(make)
        for make in (
            closure,
            nested_closure,
            default,
            only_by_name,
            literal,
            literal_of_an_array,
            global_name,
            global_function,
            global_module,
            compiled,
            with_derivative,
            attribute_of_a_function,
        )
    },
    "a function: a method": in_jax(lambda w: Callable_(w).method),
}
VARIABLES = {
    "a parameter": lambda w: pm.Normal("x", w, 1.0),
    "a scale": lambda w: pm.Normal("x", 0.0, w),
    "a probability": lambda w: pm.Bernoulli("z", w),
    "probabilities": lambda w: pm.Categorical("z", [w, 1 - w]),
    "data": lambda w: pm.Normal("y", pm.Normal("m"), observed=[w, 1.0]),
    "masked data": masked,
    "pm.Data": of_data,
    "observed pm.Data": lambda w: pm.Normal("y", pm.Normal("m"), observed=pm.Data("d", [w, 1.0])),
    "the size of a population": lambda w: pm.Normal(
        "y", pm.Normal("m"), observed=np.ones(3), total_size=round(100 * w)
    ),
    "the length of a dimension": lambda w: pm.Normal("x", shape=round(10 * w)),
    "a transform": lambda w: pm.Normal("x", transform=transforms.Interval(-w, 9.0)),
    "a transform of the user": lambda w: pm.Normal("x", transform=Shifted(w)),
    "a bound": lambda w: pm.Uniform("x", 0.0, w),
    "a truncation": lambda w: pm.Truncated("x", pm.Normal.dist(), lower=w),
    "a censoring": lambda w: pm.Censored("y", pm.Normal.dist(pm.Normal("m")), None, w, observed=[0.1, w]),
    "weights of a mixture": lambda w: pm.NormalMixture("x", [w, 1 - w], [0.0, 3.0]),
    "a component of a mixture": lambda w: pm.Mixture(
        "x", [0.3, 0.7], [pm.Normal.dist(w), pm.Normal.dist(3.0)]
    ),
    "an autoregression": lambda w: pm.AR("x", [w], init_dist=pm.Normal.dist(), steps=3),
    "a random walk": lambda w: pm.GaussianRandomWalk("x", sigma=w, init_dist=pm.Normal.dist(), steps=3),
    "a correlation": lambda w: pm.LKJCorr("x", n=2, eta=w),
    "an adjacency": lambda w: pm.ICAR("x", W=np.eye(3)[::-1] * (1 - np.eye(3)), sigma=w),
    "a deterministic": lambda w: pm.Deterministic("d", w * pm.Normal("x")),
    "a log density of the user": lambda w: pm.CustomDist("x", logp=lambda v: -w * v**2),
    "parameters of the user's": lambda w: pm.CustomDist("x", w, logp=lambda v, m: -m * v**2),
    "a distribution of the user": lambda w: pm.CustomDist(
        "x", dist=lambda size: w * pm.Normal.dist(size=size)
    ),
    "an Op in a log density of the user": lambda w: pm.CustomDist(
        "x", logp=lambda v: SaysItIsEqual(w=w)(v[None])[0]
    ),
}
PLACES: dict[str, Callable[[float], pm.Model]] = {
    **{name: potential(term) for name, term in TERMS.items()},
    **{name: variables(make) for name, make in VARIABLES.items()},
    "pm.set_data": after_set_data,
    "a sum over states": marginalized,
    "a scan in a sum over states": marginalized_scan,
}
