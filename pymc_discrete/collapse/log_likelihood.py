r"""The log likelihood of each observation with discrete variables summed out, for leave-one-out.

For an observation y_j it is :math:`\log p(y_j \mid y_{-j}, \theta)`, the log of the sum over all sites of the
product of all factors, less the log of the same sum without the factor of y_j. The second sum is not found by
dividing by the factor of y_j, which is wrong where a state cannot emit y_j: each observation gets a *switch*,
a binary site b_j, and the factor becomes p(y_j | z) where b_j = 1 and 1 where b_j = 0. The sums for the two
values of one switch, with all other switches on, are its cavity (see `cavities`).
"""

import logging
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray
from pymc.backends.arviz import coords_and_dims_for_inferencedata
from pymc.logprob.basic import logp
from pymc.model.fgraph import fgraph_from_model, model_free_rv, model_from_fgraph, model_potential
from pymc.stats import compute_log_likelihood
from pytensor.graph.basic import Variable
from xarray import DataTree

from pymc_discrete.collapse.cavities import cavities
from pymc_discrete.collapse.elimination import logsumexp
from pymc_discrete.collapse.marginalize import (
    density_to_sum,
    terms_that_read,
    without_starts,
    without_transforms,
)
from pymc_discrete.collapse.probabilities import named_dims
from pymc_discrete.collapse.ranges import NamedBounds, Ranges, tails
from pymc_discrete.collapse.sums import Sums
from pymc_discrete.model.blocks import DISCRETE, free
from pymc_discrete.model.initial import for_long_chains, point_of
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.runtime.names import shown

_log = logging.getLogger("pymc.discrete")

MARGINAL, COMPONENT = "marginal", "component"
KINDS_OF_LIKELIHOOD = (MARGINAL, COMPONENT)
BATCH = 2**18  # the number of table entries of the draws that are computed together
RANGE_DRAWS = 100  # the number of draws from which the range of a sum is chosen


class LogLikelihood:
    """The log likelihood of the observations of a model, given draws, with discrete variables summed out.

    Parameters
    ----------
    model : pm.Model
    names : the names of the discrete variables
    way : {"marginal", "component"}
        Whether there is one term for each observation, or for each component of connected sites.
    truncate : {name: (lower, upper)}, the values, inclusive, that a variable without bounds is summed over

    Attributes
    ----------
    observed : names of the observed variables that read the discrete ones
    switches : {observed variable: a binary variable, each element of which decides whether an observation
        counts}
    ranges : Ranges, for the variables that are summed over a range about their draws

    Raises
    ------
    ValueError, NotImplementedError
        Where the sum is too large.
    """

    def __init__(
        self, model: pm.Model, names: Sequence[str], way: str, truncate: dict[str, tuple] | None = None
    ):
        self.model, self.names, self.way = model, list(names), way
        plain = without_transforms(model)
        touched, _ = terms_that_read(plain, self.names)
        observed = [rv for rv in plain.observed_RVs if rv in touched]
        self.observed = [str(rv.name) for rv in observed]
        self.truncate = dict(truncate or {})
        self.ranges = Ranges(plain, self.names, truncate)
        if self.observed:
            with model_settings():
                self._switched, self.switches = with_switches(plain, observed)
            self._sums(self.ranges.about(point_of(plain)))  # raises an error if the sum is too large

    def _sums(self, ranges: NamedBounds) -> Sums:
        names = [*self.names, *self.switches.values()]
        try:
            with model_settings():
                return Sums(density_to_sum(self._switched, names, {**self.truncate, **ranges}))
        except (NotImplementedError, ValueError) as error:
            raise type(error)(
                f"log_likelihood={self.way!r} cannot be computed, with each observation counted as one more "
                f"site: {error} Or pass log_likelihood=True in idata_kwargs, for the one that is conditional "
                "on all variables."
            ) from error

    @property
    def needed(self) -> list[str]:
        """The names of the variables whose draws are read."""
        summed = set(self.names) - set(self.ranges.open)
        return [str(rv.name) for rv in self.model.free_RVs if rv.name not in summed]

    def of(self, tree: DataTree) -> xarray.Dataset:
        """The group `log_likelihood`, computed from draws of the variables that are `needed`.

        Observed variables that read no summed variable have the log likelihood of
        `pymc.compute_log_likelihood`.
        """
        posterior = tree["posterior"].to_dataset()
        conditioned = [name for name in free(self.model, DISCRETE) if name not in self.names]
        if conditioned:
            _log.info(
                f"log_likelihood={self.way!r}: {shown(self.names)} summed out, given the draws of "
                f"{shown(conditioned)}."
            )
        found = self._of_summed(posterior) if self.observed else xarray.Dataset()
        others = [str(rv.name) for rv in self.model.observed_RVs if rv.name not in self.observed]
        if others:
            # PyMC asks for draws of all variables, even of variables that the log likelihoods do not read.
            # Variables without draws get their starting values.
            chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
            for name, start in point_of(self.model).items():
                if name in self.names and name not in posterior:
                    axes = ["chain", "draw", *(f"{name} {n}" for n in range(np.ndim(start)))]
                    posterior[name] = (axes, np.broadcast_to(start, (chains, draws, *np.shape(start))))
            rest = compute_log_likelihood(
                DataTree.from_dict({"posterior": posterior}),
                var_names=others,
                model=self.model,
                extend_inferencedata=False,
                progressbar=False,
            )
            found = found.merge(rest)
        return found

    def _of_summed(self, posterior: xarray.Dataset) -> xarray.Dataset:
        """The log likelihoods of the observed variables that depend on summed variables."""
        chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
        _log.info(
            f"Computing log_likelihood={self.way!r} of {shown(self.observed)}: sums over {shown(self.names)} "
            f"in {chains * draws} draws ..."
        )
        few = np.unique(np.linspace(0, chains * draws - 1, RANGE_DRAWS).astype(int))
        wider: NamedBounds | None = self.ranges.about(posterior)
        while wider is not None:
            ranges, sums = wider, self._sums(wider)
            ordered = [
                posterior[str(v.name)].transpose("chain", "draw", ...) for v in sums.density.graph.others
            ]
            inputs = [a.values.reshape(chains * draws, *a.shape[2:]) for a in ordered]
            with model_settings():
                compute = jax.jit(lambda *inputs, sums=sums: self._of_draws(sums, inputs))
                if self.ranges.open:
                    _, left_out = compute(*(a[few] for a in inputs))
                    wider = self.ranges.wider(ranges, sums.density.space, self._of_all_sites(sums, left_out))
                    if wider is not None:
                        continue
                values, left_out = compute(*inputs)
            left_out = self._of_all_sites(sums, left_out)
            wider = self.ranges.wider(ranges, sums.density.space, left_out)
        self.ranges.warn(sums.density.space, left_out, f"The sum of log_likelihood={self.way!r}")
        return self._named(sums, np.asarray(values).reshape(chains, draws, -1), posterior)

    def _named(self, sums: Sums, values: np.ndarray, posterior: xarray.Dataset) -> xarray.Dataset:
        """Log likelihoods (chains, draws, n) as a Dataset with the names of variables, dimensions and
        coordinates.
        """
        known: dict[str, Any] = {n: posterior.coords[n].values for n in ("chain", "draw")}
        if self.way == COMPONENT:
            known["component"] = [label for label, _ in self._components(sums)]
            return xarray.Dataset({"components": (["chain", "draw", "component"], values)}, known)
        coords, dims = coords_and_dims_for_inferencedata(self.model)
        shapes = {m.name: m.shape for m in sums.density.space.members}
        arrays, start = {}, 0
        for name in self.observed:
            shape = shapes[self.switches[name]]
            axes, size = named_dims(name, shape, dims), int(np.prod(shape))
            of_this = values[..., start : start + size].reshape(*values.shape[:2], *shape)
            arrays[name] = (["chain", "draw", *axes], of_this)
            known |= {n: list(coords[n]) for n in axes if coords.get(n) is not None}
            start += size
        return xarray.Dataset(arrays, known)

    def _components(self, sums: Sums) -> list[tuple[str, int]]:
        """[(label, the index in `Elimination.roots`)] of each component that has an observation.

        The label is the name of the first summed site of the component, or of the observation if it reads no
        site.
        """
        space, number = sums.density.space, sums.elimination.components()
        shapes = {m.name: m.shape for m in space.members}
        observed = {switch: name for name, switch in self.switches.items()}
        labels: dict[int, str] = {}
        for i in np.argsort(np.isin(space.names, [*observed]), kind="stable"):
            name, flat = space.site(i)
            index = ", ".join(str(n) for n in np.unravel_index(flat, shapes[name]))
            labels.setdefault(int(number[i]), observed.get(name, name) + (f"[{index}]" if index else ""))
        seen = set(number[self._sites_of_switches(sums)].tolist())
        return [(label, n) for n, label in labels.items() if n in seen]

    def _sites_of_switches(self, sums: Sums) -> np.ndarray:
        """(n,) int, the binary site of each observation that decides whether the observation counts, in the
        order of `observed`.
        """
        space = sums.density.space
        return np.concatenate([space.numbers(self.switches[name]).ravel() for name in self.observed])

    def _cut(self, sums: Sums) -> np.ndarray:
        """(w,) int, the sites whose sum may leave out some of their values."""
        names = [*self.ranges.open, *self.truncate]
        sites = [sums.density.space.numbers(name).ravel() for name in names]
        return np.concatenate([np.zeros(0, int), *sites])

    def _of_all_sites(self, sums: Sums, left_out: Any) -> np.ndarray:
        """(2, d), the largest probability, in any of S draws, of values of each site below and above the
        values of the sum, from (S, 2, w) for the w sites whose sum may leave out values.
        """
        found = np.zeros((2, sums.density.space.d))
        if left_out is not None:
            found[:, self._cut(sums)] = np.asarray(left_out).max(0)
        return found

    # ------------------------------------------------------------ methods that JAX traces
    def _of_draws(self, sums: Sums, inputs: Sequence[Any]):
        """Log likelihoods (S, n), nats, of S draws, and the probabilities (S, 2, w) of values that their sums
        leave out; None if the sums leave out none.
        """
        batch = int(np.clip(BATCH // max(sums.elimination.order.entries, 1), 1, len(inputs[0])))
        return jax.lax.map(lambda one: self._of_draw(sums, one), tuple(inputs), batch_size=batch)

    def _of_draw(self, sums: Sums, inputs: Sequence[Any]):
        elimination = sums.elimination
        *tables, support = sums.tables(sums.density.without_parts(inputs))
        switches, columns = self._sites_of_switches(sums), np.arange(support.shape[1])
        on = support.at[switches].set(jnp.where(columns == 1, 0.0, -jnp.inf))
        around = cavities(elimination, [*tables, on])
        cut = self._cut(sums)
        left_out = self._left_out(sums, around, on)[:, cut] if len(cut) else None
        if self.way == MARGINAL:
            return around[-1][switches, 1] - around[-1][switches, 0], left_out
        off = support.at[switches].set(jnp.where(columns == 0, 0.0, -jnp.inf))
        with_them, without_them = (elimination.roots(elimination.joined([*tables, s])[1]) for s in (on, off))
        chosen = np.array([n for _, n in self._components(sums)])
        return (with_them - without_them)[chosen], left_out

    def _left_out(self, sums: Sums, around: list[Any], support: Any):
        """(2, d), the largest probability below and above the summed values of each site.

        The probabilities are computed given all observations, and given all but one of them.
        """
        space = sums.density.space
        last = jnp.asarray(space.upper - space.lower)[:, None]
        found = tails(jax.nn.softmax(around[-1] + support, axis=1), last)
        for group, cavity in zip(sums.elements.groups, around, strict=False):
            for column, sites in enumerate(group.sites.T):
                rest = cavity
                for axis in reversed([a for a in range(len(group.widths)) if a != column]):
                    rest = logsumexp(rest, 1 + axis)
                found = found.at[:, sites].max(tails(jax.nn.softmax(rest, axis=1), last[sites]))
        return jnp.nan_to_num(found)


def with_switches(plain: pm.Model, observed: list[Variable]) -> tuple[pm.Model, dict[str, str]]:
    """The model with observed variables replaced by potentials, of which a binary site for each element, its
    switch, decides whether the element counts.

    Parameters
    ----------
    plain : the model without transforms

    Returns
    -------
    model : pm.Model
    switches : {observed variable: the variable of its switches, which has the shape of its log density}
    """
    with for_long_chains(plain):
        densities = plain.compile_fn(
            plain.logp(vars=observed, sum=False),
            inputs=plain.value_vars,
            on_unused_input="ignore",
            mode="FAST_COMPILE",
        )
    shapes = [np.shape(value) for value in densities(point_of(plain))]
    graph, new = fgraph_from_model(without_starts(plain))
    switches: dict[str, str] = {}
    for rv, shape in zip(observed, shapes, strict=True):
        name, old = str(rv.name), new[rv]
        copy, value, *_ = old.owner.inputs
        switches[name] = f"~whether {name} counts"
        coin = pm.Bernoulli.dist(0.5, shape=shape)
        switch = model_free_rv(coin, coin.type(name=switches[name]), None, switches[name])
        graph.add_output(switch, import_missing=True)
        term = model_potential(pt.switch(switch, logp(copy, value, warn_rvs=False), 0.0), name)
        graph.add_output(term, import_missing=True)
        graph.remove_output(graph.outputs.index(old))
        # `old` is the observed variable; other terms that read it get the observed values in its place
        graph.replace(old, value.astype(old.type.dtype), import_missing=True)
    return model_from_fgraph(graph, mutate_fgraph=True), switches
