"""Draws of the prior of a model inside a JAX program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
from jax import Array
from pymc.distributions.continuous import SkewNormalRV, TruncatedNormalRV, WaldRV
from pymc.distributions.discrete import DiscreteUniformRV
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import graph_inputs
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType

from pymc_discrete.model.kept_for_models import KeptForModels
from pymc_discrete.model.structure_of_model import Structure, with_numbers
from pymc_discrete.structure.jaxify import jaxify
from pymc_discrete.structure.numbers import numbers_in
from pymc_discrete.structure.rebuild import known_size, rebuild


def discrete_uniform(key: Array, size: Any, low: Any, high: Any) -> Array:
    """Integers from `low` to `high`, both included."""
    return jax.random.randint(key, size, low, high + 1)


def skew_normal(key: Array, size: Any, mu: Any, sigma: Any, alpha: Any) -> Array:
    """A skew normal variable: a weighted sum of a half normal and a normal variable (Azzalini 1985)."""
    share = alpha / jnp.sqrt(1 + alpha**2)
    u, v = jax.random.normal(key, (2, *size))
    return mu + sigma * (share * jnp.abs(u) + jnp.sqrt(1 - share**2) * v)


def truncated_normal(key: Array, size: Any, mu: Any, sigma: Any, lower: Any, upper: Any) -> Array:
    return mu + sigma * jax.random.truncated_normal(key, (lower - mu) / sigma, (upper - mu) / sigma, size)


def multivariate_normal(key: Array, size: Any, mean: Any, cov: Any) -> Array:
    z = jax.random.normal(key, (*size, mean.shape[-1]))
    return mean + jnp.einsum("...ij,...j->...i", jnp.linalg.cholesky(cov), z)


def wald(key: Array, size: Any, mean: Any, scale: Any, shift: Any) -> Array:
    """A Wald variable by the method of Michael, Schucany and Haas 1976."""
    of_normal, of_uniform = jax.random.split(key)
    y = mean * jax.random.normal(of_normal, size) ** 2 / (2 * scale)
    # The smaller root of a quadratic equation, written as a quotient: the usual formula would lose digits in
    # the difference of two large numbers.
    x = mean / (1 + y + jnp.sqrt(y * (2 + y)))
    return shift + jnp.where(jax.random.uniform(of_uniform, size) <= mean / (mean + x), x, mean**2 / x)


def multinomial(key: Array, size: Any, n: Any, p: Any) -> Array:
    """Multinomial counts, one count after another, each given the counts before it."""
    K = p.shape[-1]
    p, left = jnp.broadcast_to(p, (*size, K)), jnp.broadcast_to(n, size).astype(int)
    rest = jnp.flip(jnp.cumsum(jnp.flip(p, -1), -1), -1)
    counts = []
    for k in range(K - 1):
        share = jnp.where(rest[..., k] > 0, p[..., k] / rest[..., k], 0.0)
        drawn = jax.random.binomial(jax.random.fold_in(key, k), left, jnp.clip(share, 0.0, 1.0), size)
        counts.append(drawn.astype(int))
        left = left - counts[-1]
    return jnp.stack([*counts, left], axis=-1)


def triangular(key: Array, size: Any, left: Any, mode: Any, right: Any) -> Array:
    u, at = jax.random.uniform(key, size), (mode - left) / (right - left)
    below = left + jnp.sqrt(u * (right - left) * (mode - left))
    return jnp.where(u < at, below, right - jnp.sqrt((1 - u) * (right - left) * (right - mode)))


# (key, size, *parameters) -> draw, for the random variables that remain after PyTensor has rewritten a graph
# for JAX: it makes half normal, log normal, negative binomial and some other variables from these. PyTensor
# has JAX versions of some of them, too, but its Categorical draws from other probabilities than it is given.
DRAWS_IN_JAX: dict[type[Op], Callable[..., Any]] = {
    ptr.NormalRV: lambda key, size, mu, sigma: mu + sigma * jax.random.normal(key, size),
    ptr.MvNormalRV: multivariate_normal,
    SkewNormalRV: skew_normal,
    TruncatedNormalRV: truncated_normal,
    ptr.UniformRV: lambda key, size, low, high: low + (high - low) * jax.random.uniform(key, size),
    ptr.TriangularRV: triangular,
    ptr.BetaRV: lambda key, size, a, b: jax.random.beta(key, a, b, size),
    ptr.DirichletRV: lambda key, size, a: jax.random.dirichlet(key, a, size),
    ptr.ExponentialRV: lambda key, size, scale: scale * jax.random.exponential(key, size),
    ptr.GammaRV: lambda key, size, shape, scale: scale * jax.random.gamma(key, shape, size),
    ptr.WeibullRV: lambda key, size, shape: jax.random.weibull_min(key, 1.0, shape, size),
    WaldRV: wald,
    ptr.ParetoRV: lambda key, size, b, scale: scale * jax.random.pareto(key, b, size),
    ptr.LaplaceRV: lambda key, size, mu, b: mu + b * jax.random.laplace(key, size),
    ptr.LogisticRV: lambda key, size, mu, s: mu + s * jax.random.logistic(key, size),
    ptr.GumbelRV: lambda key, size, mu, b: mu + b * jax.random.gumbel(key, size),
    ptr.CauchyRV: lambda key, size, mu, b: mu + b * jax.random.cauchy(key, size),
    ptr.HalfCauchyRV: lambda key, size, mu, b: mu + b * jnp.abs(jax.random.cauchy(key, size)),
    ptr.StudentTRV: lambda key, size, nu, mu, sigma: mu + sigma * jax.random.t(key, nu, size),
    ptr.BernoulliRV: lambda key, size, p: jax.random.bernoulli(key, p, size),
    ptr.BinomialRV: lambda key, size, n, p: jax.random.binomial(key, n, p, size),
    ptr.PoissonRV: lambda key, size, mu: jax.random.poisson(key, jnp.broadcast_to(mu, size)),
    ptr.CategoricalRV: lambda key, size, p: jax.random.categorical(key, jnp.log(p), shape=size),
    DiscreteUniformRV: discrete_uniform,
    ptr.IntegersRV: lambda key, size, low, high: jax.random.randint(key, size, low, high),
    ptr.MultinomialRV: multinomial,
}


class CannotDraw(NotImplementedError):
    """The error for a random variable of the prior that has no version for JAX."""


def convert(op: Op, node: Any, **options: Any) -> Callable:
    """A JAX function that computes an Op, as PyTensor's `jax_funcify` makes it, except for random variables:
    they are drawn by `DRAWS_IN_JAX`, with a JAX key in place of NumPy's generator.
    """
    if not isinstance(op, RandomVariable):
        return jax_funcify(op, node=node, **options)
    draw, dtype = DRAWS_IN_JAX.get(type(op)), node.outputs[1].type.dtype
    shape = node.outputs[1].type.shape
    if draw is None or None in shape:
        raise CannotDraw(f"{op.name} has no version for JAX")
    size = shape[: len(shape) - op.ndim_supp]

    def drawn(key: Array, size_of_graph: Any, *parameters: Any) -> tuple[Array, Array]:
        following, own = jax.random.split(key)
        value = draw(own, size, *(jnp.asarray(p) for p in parameters))
        return following, value.reshape(shape).astype(dtype)

    return drawn


class PriorDraws:
    """A JAX function that draws the free variables of a model from their prior.

    Parameters
    ----------
    model : pm.Model
    names : the value variables that are drawn: all variables of the prior

    Raises
    ------
    CannotDraw
        If the distribution of a variable has no version for JAX.
    """

    @classmethod
    def of(cls, model: pm.Model, names: list[str]) -> tuple["PriorDraws", dict[str, np.ndarray]]:
        """A `PriorDraws`, which all models of one structure share, and the numbers of the given model."""

        def make(structure: Structure) -> "PriorDraws":
            return cls(with_numbers(model, structure), names)

        def use(kept: "PriorDraws", numbers: dict[str, np.ndarray]) -> Any:
            return kept, {name: numbers[name] for name in kept.numbers}

        return _kept.get(model, tuple(names), make, use)

    def __init__(self, model: pm.Model, names: list[str]):
        chosen = [v for v in model.value_vars if v.name in names]
        self._names, rvs = [str(v.name) for v in chosen], [model.values_to_rvs[v] for v in chosen]
        self._bounded = [k for k, rv in enumerate(rvs) if model.rvs_to_transforms[rv] is not None]
        values = [transformed_value(model, rv) for rv in rvs]
        shared = [v for v in graph_inputs([*rvs, *values]) if isinstance(v, SharedVariable)]
        data = {v: pt.constant(v.get_value()) for v in shared if hasattr(v.type, "dtype")}
        graphs = rebuild([*rvs, *values], data, known_size)
        drawn, values = graphs[: len(rvs)], graphs[len(rvs) :]
        generators = [v for v in graph_inputs(graphs) if isinstance(v.type, RandomType)]
        read = numbers_in(graphs)
        self.numbers = [str(v.name) for v in read]
        inputs = [v.type(name=f"{name}, drawn") for v, name in zip(drawn, self._names, strict=True)]
        values = rebuild(values, dict(zip(drawn, inputs, strict=True)))
        self._graphs, self._transforms = ([*generators, *read], drawn), ([*inputs, *read], values)
        self._generators = len(generators)
        self._draw = jaxify(*self._graphs, convert)
        self._transform = jaxify(*self._transforms, convert)
        try:  # a JAX version by PyTensor shows only when it is traced what it does not support
            jax.eval_shape(self, jax.random.key(0), {str(v.name): v.value for v in read})
        except NotImplementedError as error:
            if len(names) == 1:
                raise CannotDraw(f"JAX has no draws of the prior of {str(rvs[0].name)!r}") from error
            for name in self._names:  # alone, the variable that JAX cannot draw raises an error with its name
                PriorDraws(model, [name])
            raise CannotDraw(f"JAX has no draws of the prior: {error}") from error

    @property
    def identity(self) -> list[Any]:
        """A key of everything that the object computes, by which a compiled program is found on disk."""
        return [*self._graphs, *self._transforms, self._names]

    def __call__(self, key: Array, point: dict[str, Any]) -> dict[str, Array]:
        """{value variable: value}, a draw of all variables from the model's prior.

        Parameters
        ----------
        point : {name: array}, which has the numbers of the model
        """
        numbers = [point[name] for name in self.numbers]
        drawn = self._draw(*jax.random.split(key, self._generators), *numbers)
        values = [*self._transform(*drawn, *numbers)]
        for k in self._bounded:
            # A draw that was rounded to the end of its support would have an infinite value: it moves inside
            # by one floating point number.
            for end in (1.0, -1.0):
                least = jnp.finfo(drawn[k].dtype).tiny  # programs for a CPU treat smaller numbers as 0
                next_to = jnp.nextafter(drawn[k], end * jnp.inf)
                next_to = jnp.where(jnp.abs(drawn[k]) < least, end * least, next_to)
                inside = [*drawn[:k], next_to, *drawn[k + 1 :]]
                moved = self._transform(*inside, *numbers)[k]
                values[k] = jnp.where(jnp.isfinite(values[k]), values[k], moved)
        return dict(zip(self._names, values, strict=True))


def transformed_value(model: pm.Model, rv: Variable) -> Variable:
    """The value variable of a random variable, as a function of the random variable's value."""
    transform = model.rvs_to_transforms[rv]
    return rv if transform is None else transform.forward(rv, *rv.owner.inputs)


_kept: KeptForModels[PriorDraws, Any] = KeptForModels("draws of priors")
