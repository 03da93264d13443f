"""Messages: max-product for the best configuration, sum-product for marginals.

Lazaro-Gredilla, Dedieu and George 2021 (PMP), sections 2.3 and 2.4: all factors at once, damped.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from pymc_discrete.checks import check_not_negative, is_count, is_number
from pymc_discrete.factor_graphs.factor import Fields
from pymc_discrete.factor_graphs.graph import SumOfFactors
from pymc_discrete.factor_graphs.semiring import MAX, SUM, Semiring
from pymc_discrete.factor_graphs.wiring import Slot
from pymc_discrete.targets.jax_settings import default_settings


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("messages", "change", "sweeps"), meta_fields=("semiring",)
)
@dataclass(frozen=True)
class Result:
    """Where the messages ended; a pytree.

    Attributes
    ----------
    messages : pytree, to start again from
    change : (n_sweeps,) nats, the largest change of a message in each sweep, nan after the last
    sweeps : () int, how many were made
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
    """Update all messages at once, again and again.

    Parameters
    ----------
    graph : FactorGraph
    semiring : `MAX` or `SUM`
    n_sweeps : int, at most so many
    damping : float in [0, 1), the share of a message that stays (Alg. 1: 1/2)
    tolerance : nats; stop once no message changes by more
    messages : `Result.messages` of another run to start from; by default, messages that say nothing

    Raises
    ------
    TypeError, ValueError
        For what is no graph, semiring or number of sweeps.
    """
    if not isinstance(graph, SumOfFactors):
        raise TypeError(f"graph must be a FactorGraph, got {type(graph).__name__}.")
    if semiring not in (MAX, SUM):
        raise TypeError(f"semiring must be pmd.factor_graphs.MAX or SUM, got {semiring!r}.")
    check_sweeps(n_sweeps, damping)
    check_not_negative("tolerance", tolerance)
    fresh = start(graph)
    if messages is None:
        messages = fresh
    elif jax.tree.map(jnp.shape, messages) != jax.tree.map(jnp.shape, fresh):
        raise ValueError(
            "These messages are of another graph. Leave them out, or pass those of a run on this one."
        )

    def sweep(carried):
        t, messages, change, _ = carried
        # barriers here and in `update`: XLA would compute the messages again for their change, and the fields
        # again for every edge
        new = jax.lax.optimization_barrier(damped(update(graph, messages, semiring), messages, damping))
        moved = largest_change(new, messages)
        return t + 1, new, change.at[t].set(moved), moved

    def goes_on(carried):
        t, *_, moved = carried
        return (t < n_sweeps) & ((moved > tolerance) | (t == 0))

    change = jnp.full(n_sweeps, jnp.nan)
    t, messages, change, _ = jax.lax.while_loop(goes_on, sweep, (0, messages, change, jnp.inf))
    return Result(messages, change, t, semiring)


def check_sweeps(n_sweeps: Any, damping: Any) -> None:
    """Refuse a number of sweeps, or a share of the messages that stays, that means nothing."""
    if not is_count(n_sweeps, 1):
        raise ValueError(f"n_sweeps must be a positive integer, got {n_sweeps!r}.")
    if not (is_number(damping) and 0 <= damping < 1):
        raise ValueError(f"damping must be at least 0 and below 1, got {damping!r}.")


def start(graph: SumOfFactors) -> list[Any]:
    wiring = graph.wiring
    widths = [[wiring.widths[s.variables[0]] for s in slots] for slots in wiring.slots]
    return [f.start(p, w) for f, p, w in zip(wiring.factors, graph.parameters, widths, strict=True)]


def fields(graph: SumOfFactors, messages: list[Any]) -> list[Fields]:
    """[(K, n)] of every variable: its unary terms and all that its sites receive."""
    wiring, hard = graph.wiring, graph.wiring.hard
    found = [
        Fields(jnp.where(u > -jnp.inf, u, 0.0), (u == -jnp.inf).astype(int)) if hard else Fields(u, None)
        for u in graph.unary
    ]
    for factor, slots, parameters, own in zip(
        wiring.factors, wiring.slots, graph.parameters, messages, strict=True
    ):
        for slot, received in zip(slots, factor.received(parameters, own), strict=True):
            if hard:
                ruled_out = received == -jnp.inf
                for v, more in slot.gather(ruled_out.astype(int)):
                    found[v] = found[v]._replace(blocked=found[v].blocked + more)
                received = jnp.where(ruled_out, 0.0, received)
            for v, more in slot.gather(received):
                found[v] = found[v]._replace(finite=found[v].finite + more)
    return found


def update(graph: SumOfFactors, messages: list[Any], semiring: Semiring) -> list[Any]:
    """One sweep: every factor's messages from all that the sites receive."""
    wiring, of_sites = graph.wiring, jax.lax.optimization_barrier(fields(graph, messages))
    new = []
    for n, (factor, parameters, own) in enumerate(
        zip(wiring.factors, graph.parameters, messages, strict=True)
    ):
        there = at_edges(of_sites, wiring.slots[n])
        new.append(factor.update(parameters, there, own, semiring))
    return new


def at_edges(of_sites: list[Fields], slots: list[Slot]) -> list[Fields]:
    return [jax.tree.map(lambda *of_variables, s=slot: s.spread(of_variables), *of_sites) for slot in slots]


def damped(new: Any, old: Any, damping: float) -> Any:
    # what is impossible, or was, is not averaged
    return jax.tree.map(
        lambda a, b: jnp.where(jnp.isfinite(a) & jnp.isfinite(b), (1 - damping) * a + damping * b, a),
        new,
        old,
    )


def largest_change(new: Any, old: Any):
    """() nats, inf where something became impossible or possible."""
    changes = [
        jnp.where(a == b, 0.0, jnp.abs(a - b)).max(initial=0.0)
        for a, b in zip(*map(jax.tree.leaves, (new, old)), strict=True)
    ]
    return functools.reduce(jnp.maximum, changes, jnp.zeros(()))


# ---------------------------------------------------------------- what messages say
def ended(result: Result) -> Result:
    if not isinstance(result, Result):
        raise TypeError(f"Pass what run(graph, ...) returned, got {type(result).__name__}.")
    return result


def summed(result: Result) -> Result:
    if ended(result).semiring is not SUM:
        raise ValueError(
            f"Probabilities come of sum-product, and these messages are of {result.semiring.name}: "
            "run(graph, SUM)."
        )
    return result


@default_settings()
def decode(graph: SumOfFactors, result: Result):
    """(d,) int, every site at its best value: of `MAX` the best configuration, where max-product is exact (on
    trees).
    """
    received = fields(graph, ended(result).messages)
    parts = [f.value().argmax(axis=0) + v.lower for f, v in zip(received, graph.space.variables, strict=True)]
    return jnp.concatenate(parts)


@default_settings()
def marginals(graph: SumOfFactors, result: Result) -> dict[str, Any]:
    """{name: (*shape, K)}, probabilities of every site's values by sum-product (a run of `SUM`); exact on
    trees.
    """
    found = {}
    for f, v in zip(fields(graph, summed(result).messages), graph.space.variables, strict=True):
        found[v.name] = jax.nn.softmax(f.value(), axis=0).T.reshape(*v.shape, v.K)
    return found


@default_settings()
def bethe_log_partition(graph: SumOfFactors, result: Result):
    r"""() nats, Bethe's approximation of log Z at converged sum-product messages (a run of `SUM`); exact on
    trees.

    .. math:: \sum_f \log Z_f + \sum_i (1 - d_i) \log Z_i

    with the sums over a factor's and a site's values of what they receive (Yedidia, Freeman and Weiss 2001;
    section 2.3).
    """
    messages = summed(result).messages
    wiring, of_sites = graph.wiring, fields(graph, messages)
    degree = [jnp.zeros(v.size) for v in graph.space.variables]
    total = jnp.zeros(())
    for n, (factor, parameters, own) in enumerate(
        zip(wiring.factors, graph.parameters, messages, strict=True)
    ):
        slots = wiring.slots[n]
        there = at_edges(of_sites, slots)
        total += factor.log_partition(parameters, there, own)
        for slot, times in zip(slots, factor.degrees(), strict=True):
            for v, more in slot.gather(jnp.full((1, len(slot.index)), float(times))):
                degree[v] += more[0]
    for f, d in zip(of_sites, degree, strict=True):
        total += ((1 - d) * SUM.over(f.value(), axis=0)).sum()
    return total
