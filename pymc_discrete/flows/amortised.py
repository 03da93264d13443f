"""A discrete flow of the posterior of a model for any data."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from arviz_base import from_dict
from scipy.special import logsumexp
from xarray import DataTree

from pymc_discrete.flows.flow import Flow
from pymc_discrete.flows.joint import prior_pairs
from pymc_discrete.flows.objectives import FlowObjective
from pymc_discrete.flows.weights import FlowWeights
from pymc_discrete.learning.data import Batch
from pymc_discrete.learning.objectives import Loss
from pymc_discrete.runtime.checks import check_count
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.seeds import new_seed, seed_of
from pymc_discrete.space.space import Space
from pymc_discrete.space.target import Target

LARGEST_FEATURE = 10.0  # Standardised data are clipped to this absolute value.
# Draws of the posterior are resampled from draws of the flow: PROPOSALS_PER_DRAW draws of the flow for each
# draw that is returned, but at least FEWEST_PROPOSALS in all.
PROPOSALS_PER_DRAW, FEWEST_PROPOSALS = 4, 1000


@dataclass(frozen=True, eq=False)
class Simulations:
    """Draws of the prior with the data that they predict, and how data become features.

    Attributes
    ----------
    unknowns : {name: (N, *shape) int}
    shapes : {name of data: its shape}
    types : {name of data: its type}
    mean, spread : (m,) float, the means and standard deviations of the data, ravelled
    features : (N, m) float32
    """

    unknowns: dict[str, np.ndarray]
    shapes: dict[str, tuple[int, ...]]
    types: dict[str, np.dtype]
    mean: np.ndarray
    spread: np.ndarray
    features: np.ndarray

    @property
    def size(self) -> int:
        """m, the number of features."""
        return self.features.shape[1]

    @classmethod
    def of(cls, model: pm.Model, space: Space, given: list[str], n: int, seed: int) -> "Simulations":
        """The simulations of n pairs of unknowns and data of a model."""
        unknowns, data = prior_pairs(model, space, given, n, seed)
        rows = np.concatenate([a.reshape(n, -1).astype(float) for a in data.values()], axis=1)
        mean, spread = rows.mean(axis=0), rows.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        shapes = {name: a.shape[1:] for name, a in data.items()}
        types = {name: a.dtype for name, a in data.items()}
        return cls(unknowns, shapes, types, mean, spread, standardised(rows, mean, spread))


def standardised(rows: np.ndarray, mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    return np.clip((rows - mean) / spread, -LARGEST_FEATURE, LARGEST_FEATURE).astype(np.float32)


@dataclass(frozen=True, eq=False)
class OfPairs:
    """An objective of flows for pairs of unknowns and data, of which each iteration draws some.

    Attributes
    ----------
    objective : FlowObjective
    x : (N, d) int, the unknowns
    features : (N, m) float32, the data
    """

    objective: FlowObjective
    x: np.ndarray
    features: np.ndarray

    def begin(self, key: Any, model: Any, params: Any) -> Any:
        return self.objective.begin(key, model, params)

    def loss(self, key: Any, model: Any, params: Any, batch: Batch, kept: Any) -> tuple[Loss, Any]:
        key_rows, key_loss = jax.random.split(key)
        rows = jax.random.randint(key_rows, (len(batch.x),), 0, len(self.x))
        drawn = Batch(jnp.asarray(self.x)[rows], batch.weights)
        return self.objective.loss(key_loss, model, params, drawn, kept, jnp.asarray(self.features)[rows])

    def __repr__(self) -> str:
        return f"OfPairs({self.objective!r}, {zlib.crc32(self.features.tobytes()):08x})"


class AmortisedFlow:
    """A flow of the unknowns of a model for any data; `fit_flow` with `given=` makes it.

    Attributes
    ----------
    flow : Flow, for data that are equal to the mean of the simulated data
    target : Target
        The log density of unknowns and data together, nats, with the data as its input.
    covariates : [(pm.Data of the model, the value with which the flow was fitted)]
    """

    def __init__(
        self, flow: Flow, pairs: Simulations, target: Target, covariates: list[tuple[Any, np.ndarray]]
    ):
        self.flow, self.target, self._pairs, self.covariates = flow, target, pairs, covariates

    @property
    def names(self) -> list[str]:
        """The names of the flow's variables."""
        return self.flow.names

    def given(self, data: Mapping[str, Any]) -> Flow:
        """The flow for some data, without weights: an approximation of the posterior.

        Parameters
        ----------
        data : {name: array of the shape in the model}

        Raises
        ------
        TypeError, ValueError
            For data of other names or shapes, and for nan.
        """
        return replace(self.flow, params=self._params(self._checked(data)))

    def log_partition(self, data: Mapping[str, Any], n: int = 1000, seed: int = 0) -> FlowWeights:
        """Draws of the flow for some data, weighted by the model's own density, and the data's log evidence.

        Parameters
        ----------
        data : {name: array of the shape in the model}
        n : int, number of draws
        seed : int

        Returns
        -------
        FlowWeights
            `value` is the log evidence of the data, as `Flow.log_partition` estimates it.
        """
        arrays = self._checked(data)
        target = self.target.with_inputs(tuple(map(jnp.asarray, arrays.values())))
        return replace(self.flow, params=self._params(arrays)).log_partition(target, n, seed)

    def posterior(self, data: Mapping[str, Any], draws: int = 1000, random_seed: Any = None) -> DataTree:
        """Draws of the posterior for some data: four times as many draws of the flow, at least 1,000, are
        resampled.

        Parameters
        ----------
        data : {name: array of the shape in the model}
        draws : int
        random_seed : int or what `pm.sample` takes, optional

        Returns
        -------
        xarray.DataTree
            With the group posterior, one chain, and the attributes `khat` (to be trusted below 0.7), `ess`
            (of the weights), `log_evidence` and `log_evidence_error`, in nats. The draws are exact as far as
            the weights can be trusted; modes that the flow never proposes stay unseen. Deterministics are
            not computed: `pm.compute_deterministics` does so.
        """
        check_count("draws", draws, 1)
        seed = seed_of(random_seed)
        seed = new_seed() if seed is None else seed
        found = self.log_partition(data, max(PROPOSALS_PER_DRAW * draws, FEWEST_PROPOSALS), seed)
        if not np.isfinite(found.value):
            raise ValueError(
                "The data are impossible at every draw of the flow, so that nothing can be said of the "
                "unknowns. Are they data that the model may predict?"
            )
        p = np.exp(found.log_weights - logsumexp(found.log_weights))
        x = found.x[np.random.default_rng(seed).choice(len(p), draws, p=p)]
        members = self.flow.space.members
        tree = from_dict(
            {
                "posterior": {
                    m.name: x[None, :, m.start : m.start + m.size].reshape(1, draws, *m.shape)
                    for m in members
                }
            }
        )
        tree.attrs.update(
            khat=found.khat, ess=found.ess, log_evidence=found.value, log_evidence_error=found.error
        )
        return tree

    def _params(self, data: dict[str, np.ndarray]) -> Any:
        """The weights of the network, and the features of the data."""
        row = np.concatenate([a.reshape(-1).astype(float) for a in data.values()])
        weights, _ = self.flow.params
        return weights, (standardised(row, self._pairs.mean, self._pairs.spread),)

    def _checked(self, data: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The data as arrays, in the order in which `given=` named the observed variables."""
        shapes = self._pairs.shapes
        if changed := [v.name for v, value in self.covariates if not np.array_equal(v.get_value(), value)]:
            raise ValueError(
                f"{shown(changed)} of the model has another value than when the flow was fitted, which "
                "answers for that one only. Fit it again, or set the value back with pm.set_data."
            )
        if not isinstance(data, Mapping):
            raise TypeError(f"data must be a dictionary {{name: array}} of {shown(shapes)}, got {data!r}.")
        if set(data) != set(shapes):
            raise ValueError(f"data must have {shown(shapes)}, got {shown(data) or 'none'}.")
        arrays = {}
        for name, shape in shapes.items():
            if np.ma.is_masked(data[name]):
                raise ValueError(
                    f"data of {name!r} have masked values, and the flow answers for whole data. Make what is "
                    "missing an unknown of the model."
                )
            a = np.asarray(data[name])
            if a.shape != shape:
                raise ValueError(f"data of {name!r} have shape {a.shape}, and {shape} in the model.")
            if a.dtype.kind not in "fiub" or not np.isfinite(a).all():
                raise ValueError(f"data of {name!r} must be numbers, and none of them nan.")
            arrays[name] = a.astype(self._pairs.types[name])
            if arrays[name].dtype.kind in "iub" and (arrays[name] != a).any():
                wrong = a[arrays[name] != a].flat[0]
                raise ValueError(f"data of {name!r} must be whole numbers, as in the model, got {wrong}.")
        return arrays
