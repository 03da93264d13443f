"""Sums of factors over discrete sites, without PyMC, and the checks of their arguments."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.factor_graphs.factor import Factor
from pymc_discrete.factor_graphs.wiring import Slot
from pymc_discrete.runtime.jax_settings import default_settings
from pymc_discrete.space.space import Space, Variable


class Wiring:
    """The static structure of a factor graph: its sites, its factors, and the edges between them."""

    def __init__(self, space: Space, factors: Sequence[Factor]):
        if isinstance(factors, Factor):
            raise TypeError(
                f"factors must be a list of factors, got a {type(factors).__name__}. Put it into a list."
            )
        self.space, self.factors = space, tuple(factors)
        for factor in self.factors:
            if not isinstance(factor, Factor):
                raise TypeError(
                    f"factors holds {factor!r}, which is no factor: Pairwise, Table and the others of "
                    "pmd.factor_graphs are."
                )
        self.slots = [slots_of_factor(space, factor) for factor in self.factors]
        self.hard = any(f.hard for f in self.factors)

    @property
    def widths(self) -> list[int]:
        return [v.K for v in self.space.variables]


@jax.tree_util.register_pytree_node_class
class SumOfFactors:
    """A log density over discrete sites as a sum of unary terms and of factors, see `FactorGraph`.

    This base class has what message passing needs, and does not depend on PyMC.
    """

    @default_settings()
    def __init__(self, space: Space, factors: Sequence[Factor] = (), unary: dict[str, Any] | None = None):
        check_graph_space(space)
        self.wiring = Wiring(space, factors)
        if not isinstance(unary, dict | None):
            raise TypeError(
                f"unary must be a dictionary {{name: (*shape, K) nats}}, got {type(unary).__name__}."
            )
        given = unary or {}
        for name in given:
            if name not in {v.name for v in space.variables}:
                raise ValueError(
                    f"unary names {name!r}, which is no variable of the space: "
                    f"{', '.join(v.name for v in space.variables)}."
                )
        self.unary = [unary_of(v, given.get(v.name)) for v in space.variables]
        self.parameters = [
            {name: jnp.asarray(a, float) for name, a in f.parameters.items()} for f in self.wiring.factors
        ]

    def tree_flatten(self):
        return (self.unary, self.parameters), self.wiring

    @classmethod
    def tree_unflatten(cls, wiring, children):
        return cls._of(wiring, *children)

    @classmethod
    def _of(cls, wiring: Wiring, unary: list[Any], parameters: list[dict[str, Any]]) -> Self:
        graph = object.__new__(cls)
        graph.wiring, graph.unary, graph.parameters = wiring, unary, parameters
        return graph

    @property
    def space(self) -> Space:
        """The sites."""
        return self.wiring.space

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The factors as they were given; the current log potentials are in `parameters`."""
        return self.wiring.factors

    def __repr__(self) -> str:
        sites = ", ".join(f"{v.name}: {v.shape} of {v.K} values" for v in self.space.variables)
        kinds = Counter(type(f).__name__ for f in self.factors)
        return (
            f"FactorGraph({sites}; {', '.join(f'{n} {kind}' for kind, n in kinds.items()) or 'no factors'})"
        )

    def places(self, x) -> list[Any]:
        """For every variable, (n,) int: the positions of its values in x (d,) within the sites' supports."""
        return [jnp.asarray(x)[a : a + v.size] - v.lower for a, v in self.space.blocks]

    @default_settings()
    def logdensity(self, x):
        """() nats, the log density of x (d,) int up to the constant log Z; -inf outside the support.

        Raises
        ------
        TypeError, ValueError
            If x is no integer array of the shape (d,).
        """
        if isinstance(x, dict) or not np.issubdtype(jnp.result_type(x), np.integer):
            raise TypeError(
                f"x must be an array of integers, the values of all {self.space.d} sites in one row, got "
                f"{type_name(x)}."
            )
        if np.shape(x) != (self.space.d,):
            raise ValueError(
                f"x has the shape {np.shape(x)}; the values of all sites have {(self.space.d,)}. For several "
                "use jax.vmap."
            )
        places = self.places(x)
        inside = jnp.stack(
            [((p >= 0) & (p < v.counts)).all() for p, v in zip(places, self.space.variables, strict=True)]
        ).all()
        return jnp.where(
            inside, unnormalised_log_density(self.wiring, self.unary, self.parameters, places, jnp), -jnp.inf
        )

    @default_settings()
    def clamp(self, values: dict[str, Any]) -> Self:
        """The same graph with sites clamped to values: all other values get the log potential -inf.

        Parameters
        ----------
        values : {name: array of the variable's shape}
            The masked sites of a masked array (`np.ma.masked_array`) are left free.
        """
        if not isinstance(values, dict):
            raise TypeError(
                f"values must be a dictionary {{name: array of the variable's shape}}, got "
                f"{type(values).__name__}."
            )
        unary, names = list(self.unary), [v.name for v in self.space.variables]
        for name, value in values.items():
            if name not in names:
                raise ValueError(
                    f"clamp names {name!r}, which is no variable of the graph: {', '.join(names)}."
                )
            n = names.index(name)
            unary[n] = clamped(self.space.variables[n], unary[n], value)
        return self._of(self.wiring, unary, self.parameters)

    def perturbed(self, noise: list[Any]) -> Self:
        """The same graph with `noise` [(K, n)] nats added to its unary terms."""
        return self._of(self.wiring, [u + e for u, e in zip(self.unary, noise, strict=True)], self.parameters)


def unnormalised_log_density(
    wiring: Wiring, unary: list[Any], parameters: list[dict[str, Any]], places: list[Any], xp: Any
):
    """() nats, the log density up to log Z.

    Parameters
    ----------
    places : [(n,) int], for every variable the indices of the sites' values in their supports
    xp : `jax.numpy` or `pytensor.tensor`
    """
    total = sum(
        u[p, np.arange(v.size)].sum() for u, p, v in zip(unary, places, wiring.space.variables, strict=True)
    )
    for factor, slots, of_factor in zip(wiring.factors, wiring.slots, parameters, strict=True):
        total = total + factor.logdensity(of_factor, [s.spread(places, xp) for s in slots], xp)
    return total


# ---------------------------------------------------------------- checks and conversions of arguments
def check_graph_space(space: Space) -> None:
    """Refuse spaces with variables that have more than 256 values or no bounds."""
    if not isinstance(space, Space):
        raise TypeError(f"space must be a Space, got {type(space).__name__}. Build one with pmd.Space.build.")
    for v in space.variables:
        if not v.finite:
            raise ValueError(
                f"{v.name!r} has more than 256 values or no bound, and a factor graph has tables over all of "
                f"them. Give it bounds, support={{{v.name!r}: (lower, upper)}}."
            )


def unary_of(v: Variable, given: Any):
    """(K, n) nats, the unary terms `given` (*shape, K) of one variable; -inf beyond a site's support."""
    if given is None:
        given = np.zeros((*v.shape, v.K))
    if np.shape(given) != (*v.shape, v.K):
        raise ValueError(
            f"The unary terms of {v.name!r} have shape {np.shape(given)}; its sites and values ask for "
            f"{(*v.shape, v.K)}."
        )
    check_numbers(f"The unary terms of {v.name!r}", given)
    unary = jnp.where(
        np.arange(v.K)[:, None] < v.counts,
        jnp.moveaxis(jnp.asarray(given, float), -1, 0).reshape(v.K, v.size),
        -jnp.inf,
    )
    if len(impossible := impossible_sites(unary)):
        raise ValueError(
            f"The unary terms of {v.name!r} exclude every value of element {impossible[0]}: one at least "
            "must be possible."
        )
    return unary


def type_name(x: Any) -> str:
    """The name of the type of x, or of the type of an array's elements, for errors."""
    return type(x).__name__ if isinstance(x, dict) else f"{jnp.result_type(x)}"


def clamped(v: Variable, unary, given: Any):
    """The unary terms (K, n) with -inf for all values except `given`, in which sites may be masked."""
    free = (
        np.ma.getmaskarray(given) if isinstance(given, np.ma.MaskedArray) else np.zeros(np.shape(given), bool)
    )
    if np.shape(given) != v.shape:
        raise ValueError(
            f"clamp holds {v.name!r} at an array of shape {np.shape(given)}; its shape is {v.shape}."
        )
    values = (
        given
        if isinstance(given, jax.Array)
        else np.where(free, v.lower.reshape(v.shape), np.ma.getdata(given))
    )
    if values.dtype.kind not in "iufb":
        raise TypeError(f"clamp holds {v.name!r} at {values.dtype}. Give the values themselves, as numbers.")
    if isinstance(values, jax.core.Tracer):
        if not jnp.issubdtype(values.dtype, jnp.integer):
            raise TypeError(f"clamp holds {v.name!r} at traced values of {values.dtype}. Make them integers.")
    else:
        broken = np.flatnonzero(values != np.round(values))  # Nan, which equals nothing, is found, too.
        if len(broken):
            raise ValueError(
                f"clamp holds element {broken[0]} of {v.name!r} at {values.reshape(-1)[broken[0]]}, which is "
                "no integer. Mask what is free: np.ma.masked_array(values, mask)."
            )
        values = np.asarray(values).astype(int)
    place, free = values.reshape(-1) - v.lower, free.reshape(-1)
    if not isinstance(values, jax.core.Tracer):
        beyond = np.flatnonzero(~free & ((place < 0) | (place >= v.counts)))
        if len(beyond):
            raise ValueError(
                f"clamp holds element {beyond[0]} of {v.name!r} at {values.reshape(-1)[beyond[0]]}, outside "
                "its support."
            )
    clamped_unary = jnp.where(free | (np.arange(v.K)[:, None] == place), unary, -jnp.inf)
    if len(impossible := impossible_sites(clamped_unary)):
        raise ValueError(
            f"clamp leaves element {impossible[0]} of {v.name!r} no value: its unary terms, or an earlier "
            "clamp, exclude this one."
        )
    return clamped_unary


def impossible_sites(unary: Any) -> np.ndarray:
    """Sites of which unary terms (K, n) exclude every value; none if they are traced."""
    return (
        np.zeros(0, int)
        if isinstance(unary, jax.core.Tracer)
        else np.flatnonzero(np.isneginf(unary).all(axis=0))
    )


def check_numbers(what: str, given: Any) -> None:
    """Refuse log potentials that are no numbers, nan or +inf, unless they are traced."""
    if isinstance(given, jax.core.Tracer):
        return
    if np.asarray(given).dtype.kind not in "iufb":
        raise TypeError(f"{what} must be numbers, got {np.asarray(given).dtype}.")
    if np.isnan(given).any() or np.isposinf(given).any():
        raise ValueError(
            f"{what} hold nan or +inf. A log potential is a finite number, or -inf where something is "
            "impossible."
        )


def slots_of_factor(space: Space, factor: Factor) -> list[Slot]:
    """A `Slot`, the edges to its sites, for each argument of a factor, after a check of the factor."""
    kind, slots = type(factor).__name__, []
    for j, sites in enumerate(factor.sites):
        if len(sites) and (sites.min() < 0 or sites.max() >= space.d):
            bad = sites[(sites < 0) | (sites >= space.d)][0]
            raise ValueError(
                f"{kind} names site {bad}, and the space has sites 0 to {space.d - 1}. Take them from "
                "space.numbers(name)."
            )
        number = np.searchsorted(space.starts, sites, side="right") - 1
        numbers = np.unique(number) if len(number) else np.zeros(1, int)
        variables = [space.variables[n] for n in numbers]
        if len({v.K for v in variables}) > 1:
            names = ", ".join(f"{v.name!r} ({v.K} values)" for v in variables)
            raise ValueError(
                f"Argument {j} of {kind} mixes sites of {names}. Give each number of values a factor, or an "
                "argument, of its own."
            )
        for v in variables:
            if factor.binary and (v.counts != 2).any():
                most = v.counts[v.counts != 2][0]
                raise ValueError(
                    f"{kind} takes variables of two values, and some sites of {v.name!r} have {most}. Use "
                    "Table or Pairwise."
                )
        sizes = np.array([v.size for v in variables])
        # A `Slot` counts only the sites of its own variables. So the number of sites of other variables that
        # come before in the space is subtracted from each site's number.
        skipped = np.asarray(space.starts)[numbers] - (np.cumsum(sizes) - sizes)
        slots.append(
            Slot(
                tuple(numbers.tolist()),
                tuple(sizes.tolist()),
                sites - skipped[np.searchsorted(numbers, number)],
            )
        )
    for name, array in factor.parameters.items():
        check_numbers(f"The {name} of {kind}", array)
    factor.check([space.variables[slot.variables[0]].K for slot in slots])
    return slots
