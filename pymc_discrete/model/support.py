"""The support of each discrete distribution of PyMC, as inclusive bounds; one rule per distribution."""

import math
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytensor.tensor.random.basic as prb
from pymc.distributions.censored import CensoredRV
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.distributions.discrete import DiscreteUniformRV, DiscreteWeibullRV
from pymc.distributions.distribution import DiracDeltaRV, PartialObservedRV
from pymc.distributions.mixture import _BaseMixtureRV
from pymc.distributions.multivariate import (
    ICARRV,
    DirichletMultinomialRV,
    LKJCorrRV,
    StickBreakingWeightsRV,
    WishartRV,
    ZeroSumNormalRV,
)
from pymc.distributions.truncated import TruncatedRV
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, walk
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import TensorType

from pymc_discrete.distributions.partition import PartitionRV, labels_and_clusters
from pymc_discrete.distributions.permutation import UniformPermutationRV, WeightedPermutationRV
from pymc_discrete.model.in_tensors import has_dims, without_dims
from pymc_discrete.structure.bounds import IntegerBounds, extent, is_whole
from pymc_discrete.structure.integers import INTEGERS
from pymc_discrete.structure.linear_forms import end_of_form

Bounds = tuple[Any, Any]  # (lower, upper): arrays, or None where there is no fixed bound

_rules: dict[type | str, Callable[[Variable], Bounds | None]] = {}
# Ops whose values are labels without an order
_nominal: set[type | str] = set()

# distributions of vectors of counts with the sum n, where n is the first parameter
WITH_SUMS = (prb.MultinomialRV, DirichletMultinomialRV)
# distributions of vectors that are permutations of 0, ..., n - 1
PERMUTATIONS = (UniformPermutationRV, WeightedPermutationRV)
# distributions of continuous arrays under a constraint, whose support has volume 0 in the space of their
# elements
FLAT = (prb.DirichletRV, ZeroSumNormalRV, StickBreakingWeightsRV, LKJCorrRV, WishartRV)


def rule(*ops: type | str, nominal: bool = False):
    """Register a function that gives the bounds of random variables of the given Ops.

    Parameters
    ----------
    ops : type or str
        Classes of Ops, or "module.class" for one of a package that need not be installed.
    nominal : bool
        Whether the values are labels without an order.
    """

    def register(function):
        for op in ops:
            _rules[op] = function
        _found.clear()
        _nominal.update(ops if nominal else ())
        return function

    return register


def known(var: Variable) -> np.ndarray | None:
    """The value of a parameter, or None if the parameter depends on another random variable."""
    if isinstance(var, Constant):
        return np.asarray(var.data)
    if any(isinstance(a.type, RandomType) for a in ancestors([var])):
        return None
    return np.asarray(pytensor.function([], var, mode="FAST_COMPILE")())


def parameter_bound(var: Variable, largest: bool) -> np.ndarray | None:
    """The value of a parameter, or its largest or smallest possible integer value; None where it has no
    bound.

    A parameter that depends on other random variables is bounded by their supports.
    """
    value = known(var)
    if value is not None:
        return value
    bounds = ParameterBounds({})
    limit = bounds.of(var)[int(largest)]
    if is_whole(var) and rule_of(var) is None:
        closer = min if largest else max
        limit = closer(limit, end_of_form(var, largest, bounds, limits_of))
    if not np.isfinite(limit):
        return None
    return np.asarray(math.ceil(limit) if largest else math.floor(limit))


def limits_of(rv: Variable) -> tuple[Variable | None, Variable | None] | None:
    """(lower, upper), the parameters that bound the values of a random variable; a lower bound None stands
    for 0.

    The result is None if the distribution has no such parameters.
    """
    op = None if rv.owner is None else rv.owner.op
    if isinstance(op, prb.BinomialRV | prb.BetaBinomialRV):
        return None, parameters(rv)[0]
    return None


class ParameterBounds(IntegerBounds):
    """Bounds of tensors computed from random variables, whose own bounds follow from their distributions."""

    def is_leaf(self, var: Variable) -> bool:
        return found(var) is not None

    def at_leaf(self, var: Variable) -> tuple[float, float]:
        if var.owner is not None:
            return extent(bounds_of(var) or (None, None))
        if isinstance(var, SharedVariable) and isinstance(var.type, TensorType):
            return super().at_leaf(pt.constant(var.get_value(borrow=True)))
        return super().at_leaf(var)

    def after_one(self, node: Apply, out: Variable, values: list[tuple[float, float]]) -> tuple[float, float]:
        if rule_of(out) is None:
            return super().after_one(node, out, values)
        limits = bounds_by_rule(out) if is_whole(out) else None
        return extent(limits or (None, None))


def parameters(rv: Variable) -> list[Variable]:
    """The parameters of a random variable's distribution."""
    op = rv.owner.op
    if hasattr(op, "dist_params"):
        return list(op.dist_params(rv.owner))
    return [i for i in rv.owner.inputs if not isinstance(i.type, RandomType)]


# The bounds of random variables that were computed before, and the values of the data that they depend on: a
# model asks for bounds many times, and the bounds of a variable follow from the bounds of its parents.
_found: WeakKeyDictionary[Variable, tuple[Bounds | None, dict[SharedVariable, Any]]] = WeakKeyDictionary()


def found(rv: Variable) -> tuple[Bounds | None] | None:
    """(bounds,) of a random variable, if computed before for the data that it has now; else None."""
    entry = _found.get(rv)
    if entry is None or any(data.get_value(borrow=True) is not value for data, value in entry[1].items()):
        return None
    return (entry[0],)


def bounds_of(rv: Variable) -> Bounds | None:
    """The bounds of a random variable by the rule of its Op, or None if there is no rule."""
    if rv.owner is None or rule_of(rv) is None:
        return None
    if found(rv) is None:
        # The bounds of parents are computed first, so that rules do not call each other recursively: chains
        # may be long.
        parents = ParameterBounds({})
        for i in rv.owner.inputs:
            parents.of(i)
    return bounds_by_rule(rv)


def bounds_of_model(model: pm.Model) -> dict[str, tuple[float, float]]:
    """{name of a discrete value variable: (lower, upper) of all its elements}, infinite where there is no
    bound.
    """
    values = {str(v.name): model.values_to_rvs[v] for v in model.discrete_value_vars}
    return {name: extent(bounds_of(rv) or (None, None)) for name, rv in values.items()}


def bounds_by_rule(rv: Variable) -> Bounds | None:
    """The bounds of a random variable by the rule of its Op, which must have one.

    The bounds of the variable's parents must have been computed before.
    """
    before = found(rv)
    if before is not None:
        return before[0]
    rule = rule_of(rv)
    assert rule is not None
    bounds = rule(rv)
    data: dict[SharedVariable, Any] = {}

    def inputs(var: Variable) -> list[Variable] | None:
        if var is not rv and var in _found:
            data.update(_found[var][1])
            return None
        return None if var.owner is None else var.owner.inputs

    for a in walk([rv], inputs, bfs=False):
        if isinstance(a, SharedVariable) and not isinstance(a.type, RandomType):
            data[a] = a.get_value(borrow=True)
    _found[rv] = bounds, data
    return bounds


def rule_of(rv: Variable) -> Callable[[Variable], Bounds | None] | None:
    """The rule for the bounds of a random variable, or None."""
    return None if rv.owner is None else next((_rules[key] for key in keys(rv) if key in _rules), None)


def keys(rv: Variable) -> Iterator[type | str]:
    """The keys under which a rule for a random variable may be registered, the most specific key first."""
    for cls in type(rv.owner.op).__mro__:
        yield cls
        yield f"{cls.__module__}.{cls.__qualname__}"


@rule(prb.BernoulliRV)
def _(rv):
    return 0, 1


@rule(prb.PoissonRV, prb.NegBinomialRV, DiscreteWeibullRV)
def _(rv):
    return 0, None


@rule("pymc_extras.distributions.discrete.GeneralizedPoissonRV")
def _(rv):
    return 0, None


@rule(prb.GeometricRV)
def _(rv):
    return 1, None


@rule(prb.BinomialRV, prb.BetaBinomialRV)
def _(rv):
    return 0, parameter_bound(parameters(rv)[0], largest=True)


@rule(*WITH_SUMS)
def _(rv):
    n = parameter_bound(parameters(rv)[0], largest=True)
    return 0, None if n is None else n[..., None]


@rule(*PERMUTATIONS, nominal=True)
def _(rv):
    return 0, length(rv) - 1


@rule(PartitionRV, nominal=True)
def _(rv):
    return 0, labels_and_clusters(rv)[0] - 1


@rule(DiscreteUniformRV)
def _(rv):
    lower, upper = parameters(rv)
    return parameter_bound(lower, largest=False), parameter_bound(upper, largest=True)


@rule(prb.HyperGeometricRV)
def _(rv):
    good, bad, n = parameters(rv)
    least, others = parameter_bound(n, largest=False), parameter_bound(bad, largest=True)
    uppers = [
        u for u in (parameter_bound(good, largest=True), parameter_bound(n, largest=True)) if u is not None
    ]
    return (
        0 if least is None or others is None else np.maximum(0, least - others),
        reduce(np.minimum, uppers) if uppers else None,
    )


@rule(prb.CategoricalRV, nominal=True)
def _(rv):
    # OrderedLogistic and OrderedProbit also make a CategoricalRV
    (p,) = parameters(rv)
    return 0, length(p) - 1


@rule("pymc_extras.distributions.timeseries.DiscreteMarkovChainRV", nominal=True)
def _(rv):
    # The values are the states 0, ..., K - 1 of the transition matrix (..., K, K), and the values of the
    # distribution of the initial states.
    P, _, initial, *_ = rv.owner.inputs
    K, first = length(P), bounds_of(initial)
    if first is None:
        return None
    return np.minimum(0, np.min(first[0])), None if first[1] is None else np.maximum(K - 1, np.max(first[1]))


@rule(PartialObservedRV)
def _(rv):
    # PyMC splits a partly observed variable into its observed and its missing elements, where the missing
    # ones are output 1. If their log densities cannot be separated, both parts are outputs of this Op.
    base, mask = rv.owner.inputs
    bounds, missing = bounds_of(base), known(mask)
    if bounds is None or missing is None:
        return None
    selected = missing if rv.owner.outputs.index(rv) == 1 else ~missing
    return tuple(
        b if b is None or np.ndim(b) == 0 else np.broadcast_to(b, selected.shape)[selected] for b in bounds
    )


def length(var: Variable) -> int:
    """The length of the last dimension of a tensor."""
    n = var.type.shape[-1]
    return int(pytensor.function([], var.shape[-1], mode="FAST_COMPILE")()) if n is None else n


@rule(DiracDeltaRV)
def _(rv):
    (value,) = parameters(rv)
    return parameter_bound(value, largest=False), parameter_bound(value, largest=True)


@rule(_BaseMixtureRV)
def _(rv):
    # ZeroInflated* and Hurdle* distributions are mixtures with a point mass
    _, *components = parameters(rv)
    bounds = [bounds_of(c) for c in components]
    if any(b is None for b in bounds):
        return None
    # a single component is one batched distribution, whose last dimension indexes the components
    if len(bounds) == 1:
        low, high = bounds[0]
        axis = -1 - rv.owner.op.ndim_supp
        return over_components(low, np.min, axis), over_components(high, np.max, axis)
    lows, highs = zip(*bounds, strict=True)
    low = None if any(b is None for b in lows) else np.minimum.reduce(np.broadcast_arrays(*lows))
    high = None if any(b is None for b in highs) else np.maximum.reduce(np.broadcast_arrays(*highs))
    return low, high


def over_components(b: Any, extreme: Callable, axis: int) -> Any:
    """A bound reduced over the axis of the components, if the bound has this axis."""
    return b if b is None or np.ndim(b) < -axis else extreme(b, axis=axis)


@rule(TruncatedRV)
def _(rv):
    *base_inputs, lower, upper = rv.owner.inputs
    base = rv.owner.op.base_rv_op.make_node(*base_inputs).default_output()
    return tightest(
        bounds_of(base) or (None, None),
        parameter_bound(lower, largest=False),
        parameter_bound(upper, largest=True),
    )


@rule(CensoredRV)
def _(rv):
    base, lower, upper = rv.owner.inputs
    bounds = bounds_of(base)
    if bounds is None:
        return None
    ends = []
    for end, largest, missing in zip(bounds, (False, True), (-np.inf, np.inf), strict=True):
        value, least, most = (
            missing if b is None else b
            for b in (end, parameter_bound(lower, largest), parameter_bound(upper, largest))
        )
        # Censoring turns a value beyond a limit into the limit, so that the limit is possible even if the
        # base distribution has no value within the limits.
        within = np.minimum(np.maximum(value, least), most)
        ends.append(np.maximum(within, least) if largest else within)
    return tuple(None if np.isinf(end).all() else end for end in ends)


def counts_as_floats(rv: Variable) -> str | None:
    """The name of the discrete distribution that was truncated to give a random variable of floats.

    The result is None for a random variable that is of integers, or no truncated discrete distribution.
    """
    if not isinstance(rv.owner.op, TruncatedRV) or not rv.type.dtype.startswith("float"):
        return None
    base = rv.owner.op.base_rv_op
    discrete = base.make_node(*rv.owner.inputs[:-2]).default_output().type.dtype.startswith("int")
    return type(base).__name__.removesuffix("RV") if discrete else None


def tightest(bounds: Bounds, lower: np.ndarray | None, upper: np.ndarray | None) -> Bounds:
    """The bounds of a variable, restricted to [lower, upper].

    A limit None depends on another variable; the log density is then -inf beyond this limit.
    """
    low, high = bounds
    if lower is not None and np.isfinite(lower).any():
        lower = np.ceil(lower)
        low = lower if low is None else np.maximum(low, lower)
    if upper is not None and np.isfinite(upper).any():
        upper = np.floor(upper)
        high = upper if high is None else np.minimum(high, upper)
    return low, high


# ---------------------------------------------------------------- scales of distributions without bounds
_deviations: dict[type | str, Callable[[Variable], Variable | None]] = {}


def deviation(*ops: type | str):
    """Register a function that gives the scale of a random variable as a PyTensor expression.

    `ops` are the classes of the random variables' Ops, or "module.class" for a package that need not be
    installed. The scale is the standard deviation, or, if that is longer, four times the distance over which
    the tail falls by a factor e.
    """

    def register(function):
        for op in ops:
            _deviations[op] = function
        return function

    return register


def deviation_of(rv: Variable) -> Variable | None:
    """The scale of a random variable by the rule of its Op, or None if there is no rule."""
    rule = (
        None if rv.owner is None else next((_deviations[key] for key in keys(rv) if key in _deviations), None)
    )
    return None if rule is None else rule(rv)


@deviation(prb.PoissonRV)
def _(rv):
    (mu,) = parameters(rv)
    return pt.sqrt(mu)


@deviation("pymc_extras.distributions.discrete.GeneralizedPoissonRV")
def _(rv):
    mu, lam = parameters(rv)
    return pt.sqrt(mu / (1 - lam) ** 3)


@deviation(prb.NegBinomialRV)
def _(rv):
    n, p = parameters(rv)
    # The tail falls by a factor e over a distance of about (1 - p) / p, since it falls as (1 - p)^k.
    return pt.maximum(pt.sqrt(n * (1 - p)), 4 * (1 - p)) / p


@deviation(prb.GeometricRV)
def _(rv):
    (p,) = parameters(rv)
    return pt.maximum(pt.sqrt(1 - p), 4 * (1 - p)) / p


@deviation(_BaseMixtureRV)
def _(rv):
    scales = [deviation_of(c) for c in parameters(rv)[1:]]
    widest = [pt.max(s) for s in scales if s is not None]
    return pt.max(pt.stack(widest)) if widest else None


def deviations(model: pm.Model, names: set[str], point: dict[str, np.ndarray]) -> dict[str, float]:
    """{name: the largest scale of the elements, see `deviation`}, given the other variables at a point.

    Where there is no rule, the scale is the square root of the value at the point, as for a Poisson count.
    """
    rvs = {str(v.name): rv for rv, v in model.rvs_to_values.items() if v.name in names}
    graphs = {name: graph for name, rv in rvs.items() if (graph := deviation_of(rv)) is not None}
    scales: dict[str, float] = {}
    if graphs:
        values = model.replace_rvs_by_values([pt.max(graph) for graph in graphs.values()])
        f = pytensor.function(
            model.value_vars, values, mode=Mode(linker="py", optimizer=None), on_unused_input="ignore"
        )
        with np.errstate(all="ignore"):
            largest = [float(a) for a in f(*(point[str(v.name)] for v in model.value_vars))]
        scales = {name: a for name, a in zip(graphs, largest, strict=True) if np.isfinite(a)}
    return {name: scales.get(name, float(np.sqrt(np.max(np.abs(point[name]), initial=0)))) for name in names}


def is_constrained(rv: Variable) -> bool:
    """Whether a discrete random variable is a vector whose elements cannot change alone."""
    if isinstance(rv.owner.op, PartialObservedRV):
        return is_constrained(rv.owner.inputs[0])
    return isinstance(rv.owner.op, (*WITH_SUMS, *PERMUTATIONS))


def is_permutation(rv: Variable) -> bool:
    """Whether the vectors of a random variable, along its last axis, are permutations."""
    return rv.owner is not None and isinstance(rv.owner.op, PERMUTATIONS)


def is_partition(rv: Variable) -> bool:
    """Whether the values of a random variable name the clusters of a partition."""
    return rv.owner is not None and isinstance(rv.owner.op, PartitionRV)


def partitions_of(model: pm.Model) -> list[str]:
    """The names of the free variables of a model that are partitions."""
    return [str(rv.name) for rv in model.free_RVs if is_partition(rv)]


def fixed_sums(rv: Variable) -> np.ndarray | None:
    """(...) int, the sums that vectors of counts have along their last axis.

    None for variables without a fixed sum or with an unknown sum, and for missing elements of a variable.
    """
    with_sums = rv.owner is not None and isinstance(rv.owner.op, WITH_SUMS)
    return known(parameters(rv)[0]) if with_sums else None


def unknown_sums(rv: Variable) -> Variable | None:
    """The sums of vectors of counts, if they depend on other random variables; else None."""
    with_sums = rv.owner is not None and isinstance(rv.owner.op, WITH_SUMS)
    return parameters(rv)[0] if with_sums and fixed_sums(rv) is None else None


def can_take(rv: Variable) -> bool:
    """Whether a random variable is discrete and has a known support and, if it has fixed sums, known sums.

    PyMC asks this for one variable at a time, and unknown sums change with other variables.
    """
    discrete = getattr(rv, "dtype", "float").startswith(("int", "uint", "bool"))
    if not discrete or rv.owner is None:
        return False
    # Only a variable that itself has dims is rewritten without them, since looking for dims among all that it
    # is computed from could be slow.
    rv = without_dims(rv) if has_dims(rv) else rv
    if bounds_of(rv) is None:
        return False
    return not is_constrained(rv) or is_permutation(rv) or fixed_sums(rv) is not None


def reason_refused(
    model: pm.Model, name: str, constrained: bool = False, equations: bool = False
) -> str | None:
    """Why a step cannot move a variable by changing one element at a time, or None if it can.

    Parameters
    ----------
    constrained : whether the step can change two elements of a vector together, where none can change alone
    equations : whether the step can change elements of several variables together, by linear equations
    """
    rv = next((rv for rv, v in model.rvs_to_values.items() if v.name == name), None)
    if rv is None or rv.owner is None:
        return None
    if is_constrained(rv) and (why := refused_vector(rv, constrained, equations)) is not None:
        return why
    if model.rvs_to_transforms.get(rv) is None and isinstance(rv.owner.op, FLAT):
        return (
            f"a constrained array ({type(rv.owner.op).__name__.removesuffix('RV')}) without its transform: "
            "it fills no volume, and a line through it leaves the support at once. Leave default_transform "
            "as it is"
        )
    if (base := counts_as_floats(rv)) is not None:
        return (
            f"pm.Truncated of {base}, which PyMC writes in floats with an interval transform, as if it were "
            "continuous: what is drawn are no integers. Write it as a choice among its values, lower + "
            f"pm.Categorical({rv.name!r}, logit_p=pm.logp(pm.{base}.dist(...), np.arange(lower, upper + 1)))"
        )
    return None


def refused_vector(rv: Variable, constrained: bool, equations: bool) -> str | None:
    """Why a step cannot move a vector whose elements cannot change alone, or None if it can.

    Parameters
    ----------
    constrained, equations : whether the step can change two elements of the vector together, and elements of
        several variables together, by linear equations
    """
    if isinstance(rv.owner.op, PartialObservedRV):
        return (
            "the missing part of a constrained vector, which the observed part restricts. Write missing "
            "counts as Categorical draws, or make the vector unobserved as a whole and hold what is known of "
            "it with pm.Potential, or sum it out by hand"
        )
    if is_permutation(rv):
        return (
            None
            if constrained
            else (
                "a permutation: each value stands in one place, so a change of one site leaves the support. "
                "Sample it with pmd.BlockGibbs or pmd.AutoStep, which swap the values of two places"
            )
        )
    what = f"a constrained vector ({type(rv.owner.op).__name__.removesuffix('RV')})"
    if unknown_sums(rv) is not None:
        if equations:
            return None
        return (
            f"{what} whose n depends on another variable: n and the counts have to change together. Sample "
            "both with pmd.BlockGibbs or pmd.AutoStep, or give n as a number or as data"
        )
    if constrained:
        return None
    return (
        f"{what}: its counts have a fixed sum, so a change of one site leaves the support. Sample it with "
        "pmd.BlockGibbs or pmd.AutoStep, which move units from one count to another, or write it as "
        "Categorical draws, or sum it out by hand"
    )


def support_of(model: pm.Model, name: str, given: dict[str, Any] | None = None) -> Bounds:
    """Bounds of a discrete free variable: the bounds given by the user, else the bounds of its distribution.

    Parameters
    ----------
    given : {name: (lower, upper)}, the user's bounds of this and other variables

    Raises
    ------
    ValueError
        If the user gives no bounds and there is no rule for the distribution.
    """
    given = given or {}
    rv = next(rv for rv, v in model.rvs_to_values.items() if v.name == name)
    support = given.get(name)
    if support is not None:
        if not (isinstance(support, tuple | list) and len(support) == 2):
            raise ValueError(f"support for {name!r} must be (lower, upper), both inclusive, got {support!r}.")
        return tuple(support)
    bounds = bounds_of(among(rv, model, given))
    if bounds is None:
        raise ValueError(
            f"The support of {name!r} ({type(rv.owner.op).__name__}) cannot be found from its distribution. "
            "Name the smallest and the largest value, both inclusive, None where there is none: "
            f"step=pmd.AutoStep(support={{{name!r}: (lower, upper)}}), in pm.sample and in pmd.sample, where "
            "every discrete step takes support=; to sum it out, "
            f"pmd.marginalize(model, truncate={{{name!r}: (lower, upper)}})."
        )
    return bounds


def check_within(tensor: Variable, name: str, lower: np.ndarray, upper: np.ndarray) -> None:
    """Refuse a tensor, given for the variable `name`, that may have values outside `lower`, ..., `upper`.

    What values the tensor may have follows from its distribution.

    Raises
    ------
    TypeError, ValueError
    """
    if tensor.type.dtype not in {"bool", *INTEGERS}:
        raise TypeError(
            f"The tensor given for {name!r} is of type {tensor.type.dtype}, and values of {name!r} are "
            "integers: give it a discrete variable."
        )
    smallest, largest = bounds_of(without_dims(tensor)) or (lower, upper)
    below = smallest is None or (np.asarray(smallest) < lower).any()
    if below or largest is None or (np.asarray(largest) > upper).any():
        raise ValueError(
            f"{name!r} is of {lower.min()} to {upper.max()} here, and the variable given for it may have "
            f"other values: it is of {extreme(smallest, np.min)} to {extreme(largest, np.max)}. Give it a "
            f"variable such as pm.DiscreteUniform({name!r}, {lower.min()}, {upper.max()})."
        )


def extreme(bound: Any, of: Callable[[Any], Any]) -> str:
    """A bound as text; of several elements, the extreme one."""
    return "no limit" if bound is None else f"{of(bound):g}"


def among(rv: Variable, model: pm.Model, given: dict[str, Any]) -> Variable:
    """A random variable, in which each parent with bounds in `given` is replaced by a uniform variable.

    The bounds that follow from the variable's distribution then follow from the given bounds of its parents.
    """
    parents = {}
    for parent, value in model.rvs_to_values.items():
        support = given.get(str(value.name))
        if parent is not rv and isinstance(support, tuple | list) and all(b is not None for b in support):
            uniform = pm.DiscreteUniform.dist(*map(np.asarray, support), size=parent.shape)
            parents[parent] = parent.type.filter_variable(uniform.astype(parent.type.dtype))
    return clone_replace(rv, parents) if parents.keys() & set(ancestors([rv])) else rv


def is_nominal(model: pm.Model, name: str) -> bool:
    """Whether the values of a discrete free variable are labels without an order."""
    rv = next(rv for rv, v in model.rvs_to_values.items() if v.name == name)
    return rv.owner is not None and any(key in _nominal for key in keys(rv))


IMPROPER = (FlatRV, HalfFlatRV, ICARRV)  # distributions whose density has no finite integral


def improper_priors(model: pm.Model) -> list[str]:
    """Names of the free variables whose prior is improper."""
    return [str(rv.name) for rv in model.free_RVs if isinstance(rv.owner.op, IMPROPER)]
