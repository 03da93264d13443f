"""The observations that a model learns from."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.space.space import Space


class Batch(NamedTuple):
    """States of a model, with weights.

    Attributes
    ----------
    x : (S, d) int
    weights : (S,) float, which sum to 1
    """

    x: Any
    weights: Any


class Observations(NamedTuple):
    """The observations, and the draw of a batch in an iteration.

    Attributes
    ----------
    space : Space, the space of the model
    values : {name: (N, *shape) int}, the values of the visible variables
    probabilities : (N,) float, the probabilities with which observations are drawn
    batch : int, number of observations in an iteration; None for all observations
    """

    space: Space
    values: dict[str, Any]
    probabilities: np.ndarray
    batch: int | None

    @property
    def hidden(self) -> list[str]:
        """The names of the model's variables that the data do not hold."""
        return [v.name for v in self.space.variables if v.name not in self.values]

    def draw(self, key: Any) -> tuple[dict[str, Any], Any]:
        """{name: (S, *shape) int}, values of the visible variables for an iteration, and weights (S,)."""
        n, p = len(self.probabilities), jnp.asarray(self.probabilities)
        if self.batch is None:
            return self.values, p
        chosen = jax.random.choice(key, n, (self.batch,), p=p)
        return {name: a[chosen] for name, a in self.values.items()}, jnp.full(self.batch, 1 / self.batch)

    def ravelled(self, values: dict[str, Any]) -> Any:
        """(S, d) int, the sites of states, from the values of every variable."""
        rows = [values[v.name] for v in self.space.variables]
        return jnp.concatenate([a.reshape(len(a), -1) for a in rows], axis=1)


def normalised_weights(weights: Any, n: int) -> np.ndarray:
    """(n,) float, the `weights` of n observations divided by their sum; by default all equal."""
    p = np.ones(n) if weights is None else np.asarray(weights, float)
    if p.shape != (n,) or not ((p >= 0).all() and 0 < p.sum() < np.inf):
        raise ValueError(
            f"weights must be {n} numbers, one for each row of data, none negative and not all 0, got "
            f"{weights!r}."
        )
    return p / p.sum()


def checked_data(space: Space, data: dict[str, Any]) -> dict[str, Any]:
    """The data {name: (N, *shape)} as integer arrays, after a check that they fit the space.

    Raises
    ------
    TypeError, ValueError
    """
    if not isinstance(data, dict) or not all(np.ndim(a) for a in data.values()):
        raise TypeError(
            "data must be a dictionary {name of a variable: its values (N, *shape)}, a row for each "
            "observation."
        )
    known, lengths = {v.name: v for v in space.variables}, {name: len(a) for name, a in data.items()}
    if not data or set(data) - set(known):
        raise ValueError(
            f"data must name variables of the model ({', '.join(known)}), got {', '.join(data) or 'none'}."
        )
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise ValueError(f"data must hold as many rows of every variable, and at least one; got {lengths}.")
    for name, given in data.items():
        if np.ma.is_masked(given):
            raise ValueError(
                f"data of {name!r} have masked values, of which nothing is known here. Leave out the rows "
                "that have them, or fill them in."
            )
        v, values = known[name], np.asarray(given)
        if values.shape[1:] != v.shape:
            raise ValueError(
                f"The rows of {name!r} have shape {values.shape[1:]} in data, and {v.shape} in the model."
            )
        flat = values.reshape(len(values), v.size)
        if values.dtype.kind not in "iub":
            raise TypeError(
                f"data of {name!r} must be integers, got {values.dtype}: pass them as .astype(int)."
            )
        if (flat < v.lower).any() or (flat > v.upper).any():
            raise ValueError(
                f"data of {name!r} must be from {v.lower.min()} to {v.upper.max()}, got "
                f"{values.min()} to {values.max()}."
            )
    return {name: jnp.asarray(np.asarray(a, int)) for name, a in data.items()}
