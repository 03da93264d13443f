"""Energy-based models whose log density is a neural network."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_discrete.differences.from_logdensity import target_from_logdensity
from pymc_discrete.learning.data import checked_data
from pymc_discrete.learning.models import Model
from pymc_discrete.model.support import check_within
from pymc_discrete.runtime.checks import check_count, check_way
from pymc_discrete.space.space import Space
from pymc_discrete.space.target import Target

# the weight of the uniform distribution in a base distribution, where the rest is frequencies in data
UNIFORM_SHARE = 0.02


class Neural(Model):
    r"""A network of the values, plus the log density of a base distribution in which sites are independent.

    .. math:: \log p(x) = f_\theta(x) + \sum_i \log p_i(x_i) - \log Z

    Parameters
    ----------
    space : Space
        A space whose supports are finite.
    network : equinox.Module
        The network is called as `network(a)` -> () or (1,) float, nats. If every site has two values, a (d,)
        float are the values counted from their lower bounds, and else a (d, K) float is the one-hot encoding
        of the values (see `Embedding`). The network computes in the precision of its own weights.
    base : {name: (N, ...) int}, optional
        Data to which the base distribution is fitted: the frequency of every value at every site, mixed with
        the uniform distribution, whose weight is 0.02. By default the base distribution is uniform.

    Attributes
    ----------
    space : Space
    log_base : (d, K) float, nats, log probabilities of the base distribution, -inf in padded columns

    Raises
    ------
    TypeError, ValueError
        For a space without bounds, a network that is not of the kind above, and data that do not fit the
        space.

    Notes
    -----
    Differences are by default estimates by a gradient (Grathwohl et al. 2021, Eq. 3 and 4): exact differences
    take an evaluation of the network for every value of every site. The network takes only visible variables.

    References
    ----------
    Grathwohl, Swersky, Hashemi, Duvenaud and Maddison 2021, section 8 and App. I.
    """

    def __init__(self, space: Space, network: Any, base: dict[str, Any] | None = None):
        if not isinstance(space, Space) or space.windowed.any() or space.constrained.any():
            raise ValueError(
                f"space must be a Space of finite supports whose sites change alone, got {space!r}: "
                "pmd.Space.build({'x': (0, 1)}, shapes={'x': (64,)})."
            )
        self.space = space
        self.params, self._static = eqx.partition(network, eqx.is_inexact_array)
        leaves = jax.tree.leaves(self.params)
        if not callable(network) or not leaves:
            raise TypeError(
                "network must be an equinox.Module with weights, such as eqx.nn.MLP(64, 'scalar', 256, 3, "
                f"key=jax.random.key(0)), got {network!r}."
            )
        self.one_hot = space.K > 2 or not (space.upper - space.lower == 1).all()
        self._dtype = jnp.result_type(*leaves)
        self.log_base = log_frequencies(space, base)
        encoded = jax.ShapeDtypeStruct((space.d, space.K) if self.one_hot else (space.d,), self._dtype)
        out = eqx.filter_eval_shape(network, encoded)
        if getattr(out, "shape", None) not in ((), (1,)):
            raise ValueError(
                f"network must return one float for an input of shape {encoded.shape}, it returns {out}."
            )
        self._targets = {
            way: target_from_logdensity(self._of_encoded, space, differences=way, one_hot=True)
            for way in ("exact", "gradient")
        }

    def start(self, key: Any) -> Any:
        """The weights of the network as it was given; `key` is not used."""
        return self.params

    def network(self, params: Any) -> Any:
        """The network with the weights `params`."""
        return eqx.combine(params, self._static)

    def density(self, params: Any) -> "NeuralDensity":
        return NeuralDensity(self, params)

    @property
    def base(self) -> dict[str, np.ndarray]:
        """{name: (*shape, K) float}, probabilities of the values of each site under the base distribution."""
        p = np.exp(self.log_base)
        return {
            v.name: p[start : start + v.size, : v.K].reshape(*v.shape, v.K) for start, v in self.space.blocks
        }

    def potential(self, params: Any, values: dict[str, Any]) -> Any:
        """The log density as a PyTensor expression, for `pm.Potential` in a PyMC model.

        Parameters
        ----------
        params : the weights
        values : {name: tensor of the variable's shape, or of (n, *shape)}, for every variable of the space
            With a first axis of length n the values are n independent states, whose log densities are added
            up.

        Returns
        -------
        scalar tensor, nats, up to a constant

        Raises
        ------
        TypeError, ValueError
            If a variable is missing or unknown, its shape is another, or it may have values that the space
            does not have.
        """
        variables = self.space.variables
        if set(values) != {v.name for v in variables}:
            raise ValueError(
                f"potential needs a tensor for each of {', '.join(v.name for v in variables)}; got "
                f"{', '.join(values) or 'none'}."
            )
        tensors = [pt.as_tensor(values[v.name]) for v in variables]
        for tensor, v in zip(tensors, variables, strict=True):
            shape = tuple(tensor.type.shape)
            if shape[len(shape) - len(v.shape) :] != v.shape or tensor.ndim > len(v.shape) + 1:
                raise ValueError(
                    f"{v.name!r} has shape {v.shape} in the space, and the tensor given for it has shape "
                    f"{shape}."
                )
            check_within(tensor, v.name, v.lower.reshape(v.shape), v.upper.reshape(v.shape))
        x = pt.concatenate([t.reshape((-1, v.size)) for t, v in zip(tensors, variables, strict=True)], axis=1)
        encoded = pt.eq((x - self.space.lower)[:, :, None], np.arange(self.space.K)).astype(
            pytensor.config.floatX
        )
        fixed = jax.tree.map(np.asarray, params)

        def network(encoded: Any) -> Any:
            return jax.vmap(lambda a: self._of_network(a, fixed))(encoded).sum().astype(encoded.dtype)

        base = np.where(np.isneginf(self.log_base), 0.0, self.log_base)
        return pytensor.wrap_jax(network)(encoded) + (encoded * base).sum()

    def _of_network(self, encoded: Any, params: Any) -> Any:
        """() float, the network's value f at the one-hot encoding (d, K)."""
        a = encoded if self.one_hot else encoded[:, 1]
        return jnp.asarray(self.network(params)(a.astype(self._dtype))).reshape(())

    def _of_encoded(self, encoded: Any, params: Any) -> Any:
        """() float, the log density of the one-hot encoding (d, K), in which padded columns are 0."""
        base = jnp.where(jnp.isneginf(self.log_base), 0.0, self.log_base)
        return self._of_network(encoded, params).astype(float) + (encoded * base).sum()


class NeuralDensity:
    """The density of a `Neural` with given weights.

    Parameters
    ----------
    model : Neural
    params : the weights
    """

    def __init__(self, model: Neural, params: Any):
        self.model, self.params = model, params

    @property
    def space(self) -> Space:
        return self.model.space

    def logdensity(self, x: Any) -> Any:
        """() float, nats, the log density of x (d,) int, up to a constant."""
        encoded = jnp.asarray(np.arange(self.space.K) == (x - self.space.lower)[:, None], float)
        return self.model._of_encoded(encoded, self.params)

    def to_target(self, differences: str = "auto") -> Target:
        """The target; "auto" estimates the differences by a gradient."""
        check_way(differences)
        way = "exact" if differences == "exact" else "gradient"
        return self.model._targets[way].with_inputs((self.params,))


class Embedding(eqx.Module):
    """A learned vector for every value, the same at all sites.

    Parameters
    ----------
    values : int, number of values K
    size : int, length of a vector
    key : JAX key

    Attributes
    ----------
    table : (values, size) float, the vector of each value

    References
    ----------
    Grathwohl et al. 2021, App. I.1.
    """

    table: jax.Array

    def __init__(self, values: int, size: int, *, key: Any):
        check_count("values", values, 2)
        check_count("size", size, 1)
        self.table = jax.random.normal(key, (values, size)) / np.sqrt(values)

    def __call__(self, encoded: jax.Array, *, key: Any = None) -> jax.Array:
        """(d, size) float, the vectors of the values with the one-hot encoding (d, K)."""
        return encoded @ self.table


def log_frequencies(space: Space, data: dict[str, Any] | None) -> np.ndarray:
    """(d, K) float, nats, log probabilities of independent sites, fitted to data; -inf in padded columns."""
    counts = space.upper - space.lower + 1
    exists = np.arange(space.K) < counts[:, None]
    frequencies = exists / counts[:, None]
    if data is not None:
        visible = checked_data(space, data)
        if missing := [v.name for v in space.variables if v.name not in visible]:
            raise ValueError(f"base must hold data of every variable; {', '.join(missing)} is missing.")
        x = np.concatenate([np.asarray(visible[v.name]).reshape(-1, v.size) for v in space.variables], axis=1)
        seen = (x[:, :, None] - space.lower[:, None] == np.arange(space.K)).mean(axis=0)
        frequencies = (1 - UNIFORM_SHARE) * seen + UNIFORM_SHARE * frequencies
    with np.errstate(divide="ignore"):
        return np.log(frequencies)
