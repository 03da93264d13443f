"""Draws along lines x + t v, which change several sites of a variable at once by multiples of a vector v.

Sites that linear equations tie (`LinearConstraint`) can change in no other way; counts that limit each other
(`Variable.lines`) may also change alone.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.balancing import LARGEST_DIFFERENCE
from pymc_discrete.kernels.random import choose, uniforms
from pymc_discrete.kernels.rounds import Round, Way, cost_of_draws
from pymc_discrete.space.interactions import Sets
from pymc_discrete.space.linear_constraint import Lines, longest
from pymc_discrete.space.space import UNBOUNDED, Variable

# A function of a key that returns (sites, steps), both (T, R, m) int: each of R sets of sites is drawn along
# T directions, one after another, and in a direction m sites of the set change by multiples of `steps`.
Directions = Callable[[Any], tuple[Any, Any]]
# Sites that may also change alone are drawn from all states of a line with at most this many states, and on a
# longer line from a stretch.
LONGEST_WHOLE_LINE = 32
COMBINED = 2.0  # mean number of nonzero coefficients in a random combination of basis vectors


def lines_of_equations(target, sets: Sets, candidates: Callable, in_turn: bool) -> list[Way]:
    """How sets of sites that linear equations tie are drawn along lines, each line given all other sites.

    There are two visits. The first visit draws along short vectors, in random order: all of them where that
    is cheap, and at least as many as the lattice of a set has dimensions. The second visit draws along a
    random integer combination of a basis: every vector of the lattice has a positive probability, so that
    every state is reached from every other, even where all states between them are impossible (Diaconis and
    Sturmfels 1998 use a Markov basis for this). Directions do not depend on the state.

    Parameters
    ----------
    sets : the sets to draw; they must not interact, unless they are drawn in turn
    candidates : a function that lays candidate values about a current value, see
        `kernels.block_gibbs.candidates_in_stretch`
    in_turn : whether the sets are drawn one at a time; `Target.carried` is then updated after each set

    References
    ----------
    Diaconis and Sturmfels 1998, Algebraic algorithms for sampling from conditional distributions.
    """
    constraint = target.space.variables[sets.n].constraint
    ways: list[Way] = []
    moving = np.intersect1d(sets.sets, constraint.moving)
    if len(moving):
        lines = constraint.lines(moving)
        fewest = max(len(constraint.bases[s]) for s in moving)
        full = int(lines.number.max())
        ways.append(short_lines(target, sets.n, lines, fewest, full, constraint, candidates, in_turn))
    several = np.array([s for s in moving if len(constraint.bases[s]) > 1], int)
    if len(several):
        lattices = constraint.lattices(several)
        width = 1 + int((constraint.upper - constraint.lower)[lattices.sites].max())
        combined = visit(target, sets.n, random_combinations(lattices), width, candidates, in_turn)
        ways.append((round_of(target, sets.n, lattices, 1, 1, width, in_turn), lambda turns: combined))
    return ways


def lines_beside(target, sets: Sets, candidates: Callable, in_turn: bool) -> Way:
    """How some sets of sites are drawn along their lines (`Variable.lines`), in random order.

    A set is drawn along as many lines as it has sites, but along each line once at most; its sites may also
    change alone. `candidates` lays candidate values about a current value, and `in_turn` says whether the
    sets are drawn one at a time.
    """
    v = target.space.variables[sets.n]
    lines = v.lines.of(sets.sets)
    return short_lines(target, sets.n, lines, lines.turns, lines.turns, v, candidates, in_turn)


def short_lines(
    target, n: int, lines: Lines, fewest: int, full: int, bounds: Any, candidates: Callable, in_turn: bool
) -> Way:
    """The turns that a sweep may take along the lines of variable n, and the visit that takes them.

    Parameters
    ----------
    fewest : the number of turns that a sweep takes at least, whatever they cost
    full : the number of turns that try each line once
    bounds : an object with the bounds `lower` and `upper` (n,) of the sites
    """
    width = longest(lines, bounds.lower, bounds.upper)
    of_lines = lambda turns: visit(target, n, in_random_order(lines, turns), width, candidates, in_turn)
    return round_of(target, n, lines, fewest, full, width, in_turn), of_lines


def round_of(target, n: int, lines: Lines, fewest: int, full: int, width: int, in_turn: bool) -> Round:
    """The turns that a sweep may take along lines; in each turn every set is drawn along one of its lines."""
    sets, _, m = lines.sites.shape
    v = target.space.variables[n]
    values = (
        width
        if looks_at_whole_line(v, width)
        else min(width, LONGEST_WHOLE_LINE)
        if v.finite
        else v.drawn_among + 1
    )
    return Round(fewest, full, sets if in_turn else 1, cost_of_draws(target, n, sets * values, m))


def looks_at_whole_line(v: Variable, width: int) -> bool:
    """Whether a draw along a line looks at all states of the line; `width` is the most states that a line
    has.
    """
    return v.finite and (v.constraint is not None or width <= LONGEST_WHOLE_LINE)


def in_random_order(lines: Lines, turns: int) -> Directions:
    """`turns` lines of each set in random order; a set with fewer lines goes through them again."""
    R, M, _ = lines.sites.shape
    turn = np.arange(turns)[:, None] % lines.number

    def directions(key):
        u = jnp.where(np.arange(M) < lines.number[:, None], uniforms(key, (R, M)), 2.0)
        which = jnp.argsort(u, axis=1)[np.arange(R), turn]
        return jnp.asarray(lines.sites)[np.arange(R), which], jnp.asarray(lines.steps)[np.arange(R), which]

    return directions


def random_combinations(lattices: Lines) -> Directions:
    """One direction for each set, a random integer combination of its basis.

    The coefficients are independent. Each is 0 or, with a fixed probability, of random sign and of size j
    with probability 2^-j.
    """
    R, K, _ = lattices.steps.shape
    probability = np.minimum(0.5, COMBINED / lattices.number)[:, None]

    def directions(key):
        chosen, sign, size = uniforms(key, (3, R, K))
        size = 1 + jnp.floor(-jnp.log2(1.0 - size)).astype(int)
        coefficients = jnp.where(chosen < probability, jnp.where(sign < 0.5, -size, size), 0)
        steps = jnp.einsum("rk,rkm->rm", coefficients, lattices.steps)
        return jnp.asarray(lattices.sites[:, 0])[None], steps[None]

    return directions


def visit(target, n: int, directions: Directions, width: int, candidates: Callable, in_turn: bool):
    """A function (key, x, backward) -> x that draws sites of variable n along directions, one after another.

    Parameters
    ----------
    width : the largest number of states on a line, where the variable is finite
    """
    start = target.space.starts[n]

    def visit(key, x, backward):
        key_directions, key_draws = jax.random.split(key)
        sites, steps = directions(key_directions)
        if in_turn:
            sites, steps = (a.reshape(-1, 1, a.shape[-1]) for a in (sites, steps))

        def body(t, carried):
            x, joined = carried
            place = jnp.where(backward, len(sites) - 1 - t, t)
            line, key = (sites[place], steps[place]), jax.random.fold_in(key_draws, place)
            y = drawn_along(key, target, n, *line, x, width, candidates, joined)
            if not in_turn:
                return y, joined

            def after(k, carried):
                x, joined = carried
                site = line[0][0, k]
                joined = target.carried_after(n, site, y[start + site], x, joined)
                return x.at[start + site].set(y[start + site]), joined

            return jax.lax.fori_loop(0, sites.shape[-1], after, carried)

        return jax.lax.fori_loop(0, len(sites), body, (x, target.carried(x) if in_turn else None))[0]

    return visit


def drawn_along(key, target, n: int, sites, steps, x, width: int, candidates: Callable, joined):
    """x after sites of variable n are drawn from their conditional on lines x + t v, given all other sites.

    The candidates are all t that the bounds allow, or else a stretch: some values of t, laid at random about
    0, which is one of them. A stretch is used where a bound is missing, and where a line has many states and
    its sites may also change alone.

    Parameters
    ----------
    sites, steps : (r, m) int, for each line the sites that change, counted within the variable, and the
        elements of v
    joined : `target.carried(x)`, by which differences take less time, or None
    """
    start, v = target.space.blocks[n]
    now, moving = x[start + sites], steps != 0
    whole = looks_at_whole_line(v, width)
    u = uniforms(key, (1 if whole else 3, sites.shape[0]))
    if whole:
        # Sites move to x + t * steps. A site can take `room` steps back within its bounds, so that the least
        # t is minus the least room of the sites that move.
        room = jnp.where(steps > 0, now - jnp.asarray(v.lower)[sites], jnp.asarray(v.upper)[sites] - now)
        room = jnp.where(moving, room // jnp.maximum(jnp.abs(steps), 1), UNBOUNDED)
        first = jnp.where(moving.any(axis=1), -room.min(axis=1), 0)
        t, log_weights = first[:, None] + np.arange(width), 0.0
    else:
        t, log_weights = candidates(u[1:], v, jnp.zeros(sites.shape[:1], x.dtype))
    values = (now[:, None] + t[..., None] * steps[:, None]).astype(x.dtype)
    # the barriers keep XLA from computing the values and the differences again at each of their uses
    values = jax.lax.optimization_barrier(values)
    d = jnp.minimum(target.joint_differences(n, sites, values, x, joined), LARGEST_DIFFERENCE)
    k = choose(u[0], jax.lax.optimization_barrier(d) + log_weights)[:, None, None]
    drawn = jnp.take_along_axis(values, k, axis=1, mode="clip")[:, 0]
    return x.at[start + sites].set(jnp.where(k[:, 0] < values.shape[1], drawn, now))
