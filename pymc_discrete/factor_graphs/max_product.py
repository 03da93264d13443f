"""Messages: max-product for the best configuration, sum-product for marginals.

Lazaro-Gredilla, Dedieu and George 2021 (PMP), sections 2.3 and 2.4: all factors at once, damped.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pymc_discrete.factor_graphs.factor import Fields
from pymc_discrete.factor_graphs.graph import FactorGraph
from pymc_discrete.factor_graphs.semiring import SUM, Semiring
from pymc_discrete.factor_graphs.wiring import Slot


class Result(NamedTuple):
    """Where the messages ended.

    Attributes
    ----------
    messages : pytree, to start again from
    change : (n_sweeps,) nats, the largest change of a message in each sweep, nan after the last
    sweeps : () int, how many were made
    """

    messages: Any
    change: Any
    sweeps: Any


def run(
    graph: FactorGraph, semiring: Semiring, *, n_sweeps: int = 200, damping: float = 0.5, tolerance: float = 0.0, messages: Any = None
) -> Result:
    """Update all messages at once, again and again.

    Parameters
    ----------
    graph : FactorGraph
    semiring : `MAX` or `SUM`
    n_sweeps : int, at most so many
    damping : float in [0, 1), the share of a message that stays (Alg. 1: 1/2)
    tolerance : nats; stop once no message changes by more
    messages : those of another run to start from; by default, messages that say nothing
    """
    if n_sweeps < 1:
        raise ValueError(f"n_sweeps must be a positive integer, got {n_sweeps!r}.")
    messages = start(graph) if messages is None else messages

    def sweep(carried):
        t, messages, change, _ = carried
        # barriers here and in `update`: XLA would compute the messages again for their change, and the fields again for every edge
        new = jax.lax.optimization_barrier(damped(update(graph, messages, semiring), messages, damping))
        moved = largest_change(new, messages)
        return t + 1, new, change.at[t].set(moved), moved

    def goes_on(carried):
        t, *_, moved = carried
        return (t < n_sweeps) & ((moved > tolerance) | (t == 0))

    change = jnp.full(n_sweeps, jnp.nan)
    t, messages, change, _ = jax.lax.while_loop(goes_on, sweep, (0, messages, change, jnp.inf))
    return Result(messages, change, t)


def start(graph: FactorGraph) -> list[Any]:
    wiring = graph.wiring
    widths = [[wiring.widths[s.variables[0]] for s in slots] for slots in wiring.slots]
    return [f.start(p, w) for f, p, w in zip(wiring.factors, graph.parameters, widths, strict=True)]


def fields(graph: FactorGraph, messages: list[Any]) -> list[Fields]:
    """[(K, n)] of every variable: its unary terms and all that its sites receive."""
    wiring, hard = graph.wiring, graph.wiring.hard
    found = [Fields(jnp.where(u > -jnp.inf, u, 0.0), (u == -jnp.inf).astype(int)) if hard else Fields(u, None) for u in graph.unary]
    for factor, slots, parameters, own in zip(wiring.factors, wiring.slots, graph.parameters, messages, strict=True):
        for slot, received in zip(slots, factor.received(parameters, own), strict=True):
            if hard:
                ruled_out = received == -jnp.inf
                for v, more in slot.gather(ruled_out.astype(int)):
                    found[v] = found[v]._replace(blocked=found[v].blocked + more)
                received = jnp.where(ruled_out, 0.0, received)
            for v, more in slot.gather(received):
                found[v] = found[v]._replace(finite=found[v].finite + more)
    return found


def update(graph: FactorGraph, messages: list[Any], semiring: Semiring) -> list[Any]:
    """One sweep: every factor's messages from all that the sites receive."""
    wiring, of_sites = graph.wiring, jax.lax.optimization_barrier(fields(graph, messages))
    new = []
    for n, (factor, parameters, own) in enumerate(zip(wiring.factors, graph.parameters, messages, strict=True)):
        there = at_edges(of_sites, wiring.slots[n])
        new.append(factor.update(parameters, there, own, semiring))
    return new


def at_edges(of_sites: list[Fields], slots: list[Slot]) -> list[Fields]:
    return [jax.tree.map(lambda *of_variables, s=slot: s.spread(of_variables), *of_sites) for slot in slots]


def damped(new: Any, old: Any, damping: float) -> Any:
    # what is impossible, or was, is not averaged
    return jax.tree.map(lambda a, b: jnp.where(jnp.isfinite(a) & jnp.isfinite(b), (1 - damping) * a + damping * b, a), new, old)


def largest_change(new: Any, old: Any):
    """() nats, inf where something became impossible or possible."""
    changes = [jnp.where(a == b, 0.0, jnp.abs(a - b)).max(initial=0.0) for a, b in zip(*map(jax.tree.leaves, (new, old)), strict=True)]
    return functools.reduce(jnp.maximum, changes, jnp.zeros(()))


# ---------------------------------------------------------------- what messages say
def decode(graph: FactorGraph, messages: list[Any]):
    """(d,) int, every site at its best value: the best configuration where max-product is exact (on trees)."""
    parts = [f.value().argmax(axis=0) + v.lower for f, v in zip(fields(graph, messages), graph.space.variables, strict=True)]
    return jnp.concatenate(parts)


def marginals(graph: FactorGraph, messages: list[Any]) -> dict[str, Any]:
    """{name: (*shape, K)}, probabilities of every site's values by sum-product; exact on trees."""
    found = {}
    for f, v in zip(fields(graph, messages), graph.space.variables, strict=True):
        found[v.name] = jax.nn.softmax(f.value(), axis=0).T.reshape(*v.shape, v.K)
    return found


def bethe_log_partition(graph: FactorGraph, messages: list[Any]):
    r"""() nats, Bethe's approximation of log Z at converged sum-product messages; exact on trees.

    .. math:: \sum_f \log Z_f + \sum_i (1 - d_i) \log Z_i

    with the sums over a factor's and a site's values of what they receive (Yedidia, Freeman and Weiss 2001; section 2.3).
    """
    wiring, of_sites = graph.wiring, fields(graph, messages)
    degree = [jnp.zeros(v.size) for v in graph.space.variables]
    total = jnp.zeros(())
    for n, (factor, parameters, own) in enumerate(zip(wiring.factors, graph.parameters, messages, strict=True)):
        slots = wiring.slots[n]
        there = at_edges(of_sites, slots)
        total += factor.log_partition(parameters, there, own)
        for slot, times in zip(slots, factor.degrees(), strict=True):
            for v, more in slot.gather(jnp.full((1, len(slot.index)), float(times))):
                degree[v] += more[0]
    for f, d in zip(of_sites, degree, strict=True):
        total += ((1 - d) * SUM.over(f.value(), axis=0)).sum()
    return total
