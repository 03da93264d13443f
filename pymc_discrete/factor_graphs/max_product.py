"""Message passing: max-product for the most probable configuration, sum-product for marginals.

Lazaro-Gredilla, Dedieu and George 2021 (PMP), sections 2.3 and 2.4. All messages are updated in parallel,
with damping.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from pymc_discrete.factor_graphs.factor import Fields
from pymc_discrete.factor_graphs.graph import SumOfFactors
from pymc_discrete.factor_graphs.semiring import MAX, SUM, Semiring
from pymc_discrete.factor_graphs.wiring import Slot
from pymc_discrete.runtime.checks import check_not_negative, is_integer_from, is_number
from pymc_discrete.runtime.jax_settings import default_settings


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("messages", "change", "sweeps"), meta_fields=("semiring",)
)
@dataclass(frozen=True)
class Result:
    """The result of message passing; a pytree.

    Attributes
    ----------
    messages : pytree, from which another run may start
    change : (n_sweeps,) nats, the largest change of a message in each sweep, nan after the last
    sweeps : () int, the number of sweeps made
    semiring : `MAX` or `SUM`
    """

    messages: Any
    change: Any
    sweeps: Any
    semiring: Semiring


@default_settings()
def run(
    graph: SumOfFactors,
    semiring: Semiring,
    *,
    n_sweeps: int = 200,
    damping: float = 0.5,
    tolerance: float = 0.0,
    messages: Any = None,
) -> Result:
    """Update all messages in parallel until they converge.

    Parameters
    ----------
    graph : FactorGraph
    semiring : `MAX` or `SUM`
    n_sweeps : int, largest number of sweeps
    damping : float in [0, 1), the weight of the old message in its average with the new message
    tolerance : nats; stop once no message changes by more
    messages : `Result.messages` of another run to start from; by default uniform messages

    Returns
    -------
    Result

    Raises
    ------
    TypeError, ValueError
        For invalid arguments, and for messages of another graph.
    """
    if not isinstance(graph, SumOfFactors):
        raise TypeError(f"graph must be a FactorGraph, got {type(graph).__name__}.")
    if semiring not in (MAX, SUM):
        raise TypeError(f"semiring must be pmd.factor_graphs.MAX or SUM, got {semiring!r}.")
    check_sweeps(n_sweeps, damping)
    check_not_negative("tolerance", tolerance)
    uniform = uniform_messages(graph)
    if messages is None:
        messages = uniform
    elif jax.tree.map(jnp.shape, messages) != jax.tree.map(jnp.shape, uniform):
        raise ValueError(
            "These messages are of another graph. Leave them out, or pass those of a run on this one."
        )

    def sweep(carried):
        t, messages, change, _ = carried
        # Without this barrier and the barrier in `updated_messages`, XLA computes the messages a second time
        # for their change, and the fields again for every edge.
        new = jax.lax.optimization_barrier(
            damped(updated_messages(graph, messages, semiring), messages, damping)
        )
        largest = largest_change(new, messages)
        return t + 1, new, change.at[t].set(largest), largest

    def unfinished(carried):
        t, *_, largest = carried
        return (t < n_sweeps) & ((largest > tolerance) | (t == 0))

    change = jnp.full(n_sweeps, jnp.nan)
    t, messages, change, _ = jax.lax.while_loop(unfinished, sweep, (0, messages, change, jnp.inf))
    return Result(messages, change, t, semiring)


def check_sweeps(n_sweeps: Any, damping: Any) -> None:
    """Refuse a number of sweeps below 1, and a damping outside [0, 1)."""
    if not is_integer_from(n_sweeps, 1):
        raise ValueError(f"n_sweeps must be a positive integer, got {n_sweeps!r}.")
    if not (is_number(damping) and 0 <= damping < 1):
        raise ValueError(f"damping must be at least 0 and below 1, got {damping!r}.")


def uniform_messages(graph: SumOfFactors) -> list[Any]:
    """The uniform messages of every factor."""
    wiring = graph.wiring
    widths = [[wiring.widths[s.variables[0]] for s in slots] for slots in wiring.slots]
    return [f.start(p, w) for f, p, w in zip(wiring.factors, graph.parameters, widths, strict=True)]


def fields(graph: SumOfFactors, messages: list[Any]) -> list[Fields]:
    """The fields (K, n) of every variable: its unary terms plus all messages that its sites receive."""
    wiring, hard = graph.wiring, graph.wiring.hard
    of_sites = [
        Fields(jnp.where(u > -jnp.inf, u, 0.0), (u == -jnp.inf).astype(int)) if hard else Fields(u, None)
        for u in graph.unary
    ]
    for factor, slots, parameters, of_factor in zip(
        wiring.factors, wiring.slots, graph.parameters, messages, strict=True
    ):
        for slot, received in zip(slots, factor.received(parameters, of_factor), strict=True):
            if hard:
                ruled_out = received == -jnp.inf
                for v, more in slot.gather(ruled_out.astype(int)):
                    of_sites[v] = of_sites[v]._replace(blocked=of_sites[v].blocked + more)
                received = jnp.where(ruled_out, 0.0, received)
            for v, more in slot.gather(received):
                of_sites[v] = of_sites[v]._replace(finite=of_sites[v].finite + more)
    return of_sites


def updated_messages(graph: SumOfFactors, messages: list[Any], semiring: Semiring) -> list[Any]:
    """One sweep: the new messages of every factor, given the fields of the sites."""
    # Without the barrier, XLA computes the fields again for every edge.
    wiring, of_sites = graph.wiring, jax.lax.optimization_barrier(fields(graph, messages))
    new = []
    for n, (factor, parameters, of_factor) in enumerate(
        zip(wiring.factors, graph.parameters, messages, strict=True)
    ):
        of_edges = at_edges(of_sites, wiring.slots[n])
        new.append(factor.update(parameters, of_edges, of_factor, semiring))
    return new


def at_edges(of_sites: list[Fields], slots: list[Slot]) -> list[Fields]:
    """[(K, E)], for each argument of some factors (a `Slot`) the fields of the sites at its edges."""
    return [jax.tree.map(lambda *of_variables, s=slot: s.spread(of_variables), *of_sites) for slot in slots]


def damped(new: Any, old: Any, damping: float) -> Any:
    """The average of new and old messages; where the new or the old message is infinite, the new message."""
    return jax.tree.map(
        lambda a, b: jnp.where(jnp.isfinite(a) & jnp.isfinite(b), (1 - damping) * a + damping * b, a),
        new,
        old,
    )


def largest_change(new: Any, old: Any):
    """() nats, the largest absolute change; inf if an entry changed to or from -inf."""
    changes = [
        jnp.where(a == b, 0.0, jnp.abs(a - b)).max(initial=0.0)
        for a, b in zip(*map(jax.tree.leaves, (new, old)), strict=True)
    ]
    return functools.reduce(jnp.maximum, changes, jnp.zeros(()))


# ---------------------------------------------------------------- results computed from messages
def checked_result(result: Result) -> Result:
    """The argument if it is a `Result`, else a TypeError."""
    if not isinstance(result, Result):
        raise TypeError(f"Pass what run(graph, ...) returned, got {type(result).__name__}.")
    return result


def checked_sum(result: Result) -> Result:
    """The argument if it is a `Result` of sum-product, else a TypeError or ValueError."""
    if checked_result(result).semiring is not SUM:
        raise ValueError(
            f"Probabilities come from sum-product, and these messages are of {result.semiring.name}: "
            "run(graph, SUM)."
        )
    return result


@default_settings()
def decode(graph: SumOfFactors, result: Result):
    """(d,) int, every site at the value with the largest field.

    For a run of `MAX` on a tree this is the most probable configuration, and on other graphs an approximation
    of the most probable configuration.
    """
    of_sites = fields(graph, checked_result(result).messages)
    parts = [f.value().argmax(axis=0) + v.lower for f, v in zip(of_sites, graph.space.variables, strict=True)]
    return jnp.concatenate(parts)


@default_settings()
def marginals(graph: SumOfFactors, result: Result) -> dict[str, Any]:
    """``{name: (*shape, K)}``, marginal probabilities of every site's values by a run of `SUM`.

    The probabilities are exact on trees.
    """
    by_name = {}
    for f, v in zip(fields(graph, checked_sum(result).messages), graph.space.variables, strict=True):
        by_name[v.name] = jax.nn.softmax(f.value(), axis=0).T.reshape(*v.shape, v.K)
    return by_name


@default_settings()
def bethe_log_partition(graph: SumOfFactors, result: Result):
    r"""() nats, Bethe's approximation of log Z at the converged messages of a run of `SUM`.

    .. math:: \sum_f \log Z_f + \sum_i (1 - d_i) \log Z_i

    with :math:`Z_f` and :math:`Z_i` the sums over the values of a factor and of a site, given the messages
    that the factor or the site receives, and :math:`d_i` the number of factors of a site (Yedidia, Freeman
    and Weiss 2001; Lazaro-Gredilla et al. 2021, section 2.3). The approximation is exact on trees.
    """
    messages = checked_sum(result).messages
    wiring, of_sites = graph.wiring, fields(graph, messages)
    degree = [jnp.zeros(v.size) for v in graph.space.variables]
    total = jnp.zeros(())
    for n, (factor, parameters, of_factor) in enumerate(
        zip(wiring.factors, graph.parameters, messages, strict=True)
    ):
        slots = wiring.slots[n]
        total += factor.log_partition(parameters, at_edges(of_sites, slots), of_factor)
        for slot, times in zip(slots, factor.degrees(), strict=True):
            for v, more in slot.gather(jnp.full((1, len(slot.index)), float(times))):
                degree[v] += more[0]
    for f, d in zip(of_sites, degree, strict=True):
        total += ((1 - d) * SUM.over(f.value(), axis=0)).sum()
    return total
