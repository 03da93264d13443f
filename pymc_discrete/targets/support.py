"""The support of each discrete distribution of PyMC, as inclusive bounds; one rule per distribution."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor.random.basic as prb
from pymc.distributions.censored import CensoredRV
from pymc.distributions.discrete import DiscreteUniformRV, DiscreteWeibullRV
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.mixture import _BaseMixtureRV
from pymc.distributions.multivariate import LKJCorrRV, StickBreakingWeightsRV, WishartRV, ZeroSumNormalRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType

Bounds = tuple[Any, Any]  # (lower, upper), arrays or None where there is no fixed bound

_rules: dict[type, Callable[[Variable], Bounds]] = {}

CONSTRAINED = (prb.MultinomialRV,)
# continuous ones that fill no volume of their own coordinates
FLAT = (prb.DirichletRV, ZeroSumNormalRV, StickBreakingWeightsRV, LKJCorrRV, WishartRV)


def rule(*ops: type):
    def register(function):
        for op in ops:
            _rules[op] = function
        return function

    return register


def known(var: Variable) -> np.ndarray | None:
    """The value of a parameter, or None where it depends on another random variable."""
    for a in ancestors([var]):
        if isinstance(a.type, RandomType):
            return None
    return np.asarray(pytensor.function([], var, mode="FAST_COMPILE")())


def parameters(rv: Variable) -> list[Variable]:
    op = rv.owner.op
    if hasattr(op, "dist_params"):
        return list(op.dist_params(rv.owner))
    return [i for i in rv.owner.inputs if not isinstance(i.type, RandomType)]


def bounds_of(rv: Variable) -> Bounds | None:
    """The bounds of a random variable by the rule of its Op, or None where there is no rule."""
    if rv.owner is None:
        return None
    for cls in type(rv.owner.op).__mro__:
        if cls in _rules:
            return _rules[cls](rv)
    return None


@rule(prb.BernoulliRV)
def _(rv):
    return 0, 1


@rule(prb.PoissonRV, prb.NegBinomialRV, DiscreteWeibullRV)
def _(rv):
    return 0, None


@rule(prb.GeometricRV)
def _(rv):
    return 1, None


@rule(prb.BinomialRV, prb.BetaBinomialRV)
def _(rv):
    return 0, known(parameters(rv)[0])


@rule(DiscreteUniformRV)
def _(rv):
    lower, upper = parameters(rv)
    return known(lower), known(upper)


@rule(prb.HyperGeometricRV)
def _(rv):
    good, bad, n = (known(p) for p in parameters(rv))
    lower = 0 if n is None or bad is None else np.maximum(0, n - bad)
    uppers = [u for u in (good, n) if u is not None]
    return lower, np.minimum(*uppers) if len(uppers) == 2 else (uppers[0] if uppers else None)


@rule(prb.CategoricalRV)
def _(rv):
    # OrderedLogistic and OrderedProbit are CategoricalRV too
    (p,) = parameters(rv)
    K = p.type.shape[-1]
    if K is None:
        K = int(pytensor.function([], p.shape[-1], mode="FAST_COMPILE")())
    return 0, K - 1


@rule(DiracDeltaRV)
def _(rv):
    value = known(parameters(rv)[0])
    return value, value


@rule(_BaseMixtureRV)
def _(rv):
    # ZeroInflated* and Hurdle* are mixtures with a point mass
    _, *components = parameters(rv)
    found = [bounds_of(c) for c in components]
    if any(b is None for b in found):
        return None
    if len(found) == 1:  # one batched distribution, whose last dimension is the mixture's
        low, high = found[0]
        return over_components(low, np.min), over_components(high, np.max)
    lows, highs = zip(*found, strict=True)
    low = None if any(b is None for b in lows) else np.minimum.reduce(np.broadcast_arrays(*lows))
    high = None if any(b is None for b in highs) else np.maximum.reduce(np.broadcast_arrays(*highs))
    return low, high


def over_components(b: Any, reduce: Callable) -> Any:
    return b if b is None or np.ndim(b) == 0 else reduce(b, axis=-1)


@rule(TruncatedRV)
def _(rv):
    *base_inputs, lower, upper = rv.owner.inputs
    base = rv.owner.op.base_rv_op.make_node(*base_inputs).default_output()
    return tightest(bounds_of(base) or (None, None), known(lower), known(upper))


@rule(CensoredRV)
def _(rv):
    base, lower, upper = rv.owner.inputs
    found = bounds_of(base)
    return None if found is None else tightest(found, known(lower), known(upper))


def counts_as_floats(rv: Variable) -> str | None:
    """The name of the discrete distribution that a random variable of floats truncates, or None where it does not."""
    if not isinstance(rv.owner.op, TruncatedRV) or not rv.type.dtype.startswith("float"):
        return None
    base = rv.owner.op.base_rv_op
    discrete = base.make_node(*rv.owner.inputs[:-2]).default_output().type.dtype.startswith("int")
    return type(base).__name__.removesuffix("RV") if discrete else None


def tightest(bounds: Bounds, lower: np.ndarray | None, upper: np.ndarray | None) -> Bounds:
    """Bounds within [lower, upper]; a limit that depends on another variable is left to the target."""
    low, high = bounds
    if lower is not None and np.isfinite(lower).any():
        lower = np.ceil(lower)
        low = lower if low is None else np.maximum(low, lower)
    if upper is not None and np.isfinite(upper).any():
        upper = np.floor(upper)
        high = upper if high is None else np.minimum(high, upper)
    return low, high


def is_constrained(rv: Variable) -> bool:
    return isinstance(rv.owner.op, CONSTRAINED) or "DirichletMultinomial" in type(rv.owner.op).__name__


def can_take(rv: Variable) -> bool:
    """Whether a random variable is discrete, unconstrained and of a known support."""
    discrete = getattr(rv, "dtype", "float").startswith(("int", "uint", "bool"))
    return discrete and rv.owner is not None and not is_constrained(rv) and bounds_of(rv) is not None


def refused(model: pm.Model, name: str) -> str | None:
    """Why a variable cannot be moved one coordinate at a time, or None."""
    rv = next((rv for rv, v in model.rvs_to_values.items() if v.name == name), None)
    if rv is None or rv.owner is None:
        return None
    if is_constrained(rv):
        return (
            f"a constrained vector ({type(rv.owner.op).__name__.removesuffix('RV')}): its counts have a fixed sum, so a change of one site "
            "leaves the support. Write it as Categorical draws, or as a product of Binomials, or marginalise it"
        )
    if model.rvs_to_transforms.get(rv) is None and isinstance(rv.owner.op, FLAT):
        return (
            f"a constrained array ({type(rv.owner.op).__name__.removesuffix('RV')}) without its transform: it fills no volume, "
            "and a line through it leaves the support at once. Leave default_transform as it is"
        )
    if (base := counts_as_floats(rv)) is not None:
        return (
            f"pm.Truncated of {base}, which PyMC writes in floats with an interval transform, as if it were continuous: what is drawn are "
            f"no integers. Write it as a choice among its values, lower + pm.Categorical({rv.name!r}, logit_p=pm.logp(pm.{base}.dist(...), "
            "np.arange(lower, upper + 1)))"
        )
    return None


def support_of(model: pm.Model, name: str, given: Any = None) -> Bounds:
    """Bounds of a discrete free variable: those given by the user, else its distribution's.

    Raises
    ------
    ValueError
        Where neither says.
    """
    rv = next(rv for rv, v in model.rvs_to_values.items() if v.name == name)
    if given is not None:
        if not (isinstance(given, tuple | list) and len(given) == 2):
            raise ValueError(f"support for {name!r} must be (lower, upper), both inclusive, got {given!r}.")
        return tuple(given)
    found = bounds_of(rv)
    if found is None:
        raise ValueError(
            f"The support of {name!r} ({type(rv.owner.op).__name__}) cannot be found from its distribution. Pass "
            f"support={{{name!r}: (lower, upper)}}, both inclusive, None where there is no bound."
        )
    return found


def is_nominal(model: pm.Model, name: str) -> bool:
    """Whether the values of a discrete free variable are names without an order."""
    rv = next(rv for rv, v in model.rvs_to_values.items() if v.name == name)
    return rv.owner is not None and isinstance(rv.owner.op, prb.CategoricalRV)
