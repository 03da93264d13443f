"""Block Gibbs: exact conditionals, colour by colour or site by site."""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.balancing import LARGEST_DIFFERENCE
from pymc_discrete.kernels.kernel import Kernel
from pymc_discrete.kernels.lines import lines_beside, lines_of_equations
from pymc_discrete.kernels.method import Method, kernel_function
from pymc_discrete.kernels.random import choose, uniforms
from pymc_discrete.kernels.rounds import Round, Way, cost_of_draws, numbers_of_turns
from pymc_discrete.kernels.split_merge import draws_in_turn, splits_and_merges
from pymc_discrete.kernels.sweeps import draw_in_turn, sweeping
from pymc_discrete.runtime.names import shown
from pymc_discrete.space.constraints import FixedSums
from pymc_discrete.space.indexing import picked
from pymc_discrete.space.interactions import Sets
from pymc_discrete.space.space import Space, Variable

_log = logging.getLogger("pymc.discrete")

# Up to this number, the colours of a variable are compiled one by one; more colours are drawn in a loop.
UNROLLED = 8
# Two counts whose sum is fixed are drawn together, from the splits of the sum between them. Where there are
# more than MANY_SPLITS splits, a draw takes less time: it computes NEAR_SPLITS + 1 consecutive splits, the
# current one among them. One draw in ALL_SPLITS_EVERY computes all splits, so that every split can be
# reached.
MANY_SPLITS, NEAR_SPLITS, ALL_SPLITS_EVERY = 64, 32, 16
# Vectors of counts of which one is 1 above its lower bound, and the others at theirs, are drawn in batches,
# which limits memory. A batch costs at most this many additions by the estimate of `cost_of_draws`.
AT_ONCE = 1e7


@dataclass(frozen=True)
class BlockGibbs(Method):
    r"""Block Gibbs for discrete variables: exact conditionals, colour by colour or site by site.

    Where the terms of the log density are sparse, the graph of interacting sites is coloured, and the sites
    of a colour are drawn at once: a mixture, an occupancy or an outlier model has one colour, a hidden Markov
    model or a lattice two. Sites of a dense term (spike-and-slab, a Boltzmann machine) are drawn in turn, and
    the linear map that joins them is updated by one column per site.

    Integers with a window instead of a full support are drawn from their conditional on a random set of
    equally spaced values that contains the current one,

    .. math:: \{x + s (j - i) : j = 0, \dots, w\}, \qquad i \sim U\{0, \dots, w\},
        \quad s \sim U(\text{strides}).

    A set is as probable from each of its values as from any other, so no acceptance test is needed. Values of
    a site without an order, such as the cells of a map, have no near ones: the set is then the current
    value and w others, each drawn uniformly from the support.

    The counts of a `pm.Multinomial` or `pm.DirichletMultinomial` are drawn in random pairs, each given its
    sum: by random matchings that do not look at the state. The conditional of a pair has one degree of
    freedom, the value of its first site, which is drawn as a single site is; where it has many values, most
    draws look at consecutive ones around the current value only. Where the sum of a vector is 1, all of its
    counts are drawn at once. Random pairs of places of a `pmd.Permutation` keep or swap their values. Counts
    x of which a `pm.Potential` says that A x = y, `pt.switch(pt.all(pt.eq(A @ x, y)), 0, -np.inf)`, are drawn
    along integer vectors v with A v = 0, each from its conditional on the line x + t v. Counts that limit
    each other, as in `pm.Binomial("left", n=before, p=0.5)`, are drawn alone, and along lines in pairs of
    which both grow or one takes what the other gives.

    The clusters of a `pmd.Partition` are also split and merged (Jain and Neal 2004), once to four times in a
    sweep: two random sites of one cluster are taken apart, and the others of the cluster are divided between
    them by Gibbs scans of the two labels; or two clusters become one. The proposal is accepted or rejected.

    A sweep matches the sites of a permutation or of a fixed sum as often as it takes until each pair has met
    once, and draws along each of the short vectors that keep A x; or it does as much of that as is cheap, by
    counted operations (some 400 microseconds).

    Parameters
    ----------
    differences : {"auto", "exact"}
        Where the conditionals come from; "exact" evaluates every neighbour where "auto" takes a gradient.
        See `target_from_model`.
    transitions : "auto" or int
        Sweeps per draw; by default one, and more where they take no longer than the overhead of PyMC's loop.

    Raises
    ------
    ValueError
        Where a conditional is not exact.

    Notes
    -----
    Nothing is rejected but splits and merges, which do not count in `accept` and `accepted`: both are 1.

    A transition of the kernel alone reverses the order of its sweep with probability 1/2, which makes it
    reversible and not only invariant. The sweeps of a draw keep one order: after a reversal the last sites
    would be drawn again at once, and their first draw would be wasted.

    References
    ----------
    - Geman and Geman 1984, Stochastic relaxation, Gibbs distributions, and the Bayesian restoration of
      images.
    - Jain and Neal 2004, A split-merge Markov chain Monte Carlo procedure for the Dirichlet process mixture
      model.
    """

    constrained: ClassVar[bool] = True
    equations: ClassVar[bool] = True
    one_by_one: ClassVar[bool] = True

    def options_of_step(self, options: dict[str, Any]) -> dict[str, Any]:
        if options.get("differences") == "gradient":
            raise ValueError(
                f"{type(self).__name__} needs exact conditionals, and differences='gradient' asks for "
                "estimates. Pass 'auto' or 'exact'."
            )
        return options

    def check(self, target: Any) -> None:
        for name, description in target.describe().items():
            if not description["exact"]:
                raise ValueError(
                    f"{type(self).__name__} needs exact conditionals, and those of {name!r} are not: "
                    f"{description['reason']}. Use pmd.PathAuxiliary or pmd.GibbsWithGradients, or pass "
                    "differences='exact' to pay for exact ones."
                )
        for v in target.space.variables:
            if v.constraint is not None and not v.constraint.changing.any():
                names = shown([v.name])
                _log.info(f"BlockGibbs: {names} has one value that meets what is known: nothing is drawn.")

    def kernel(self) -> tuple[Kernel, dict[str, Any]]:
        return sweeping(visits_of), {}

    def expected_moves(self, space: Space, params: dict[str, Any]) -> float:
        return float(space.d)

    def operations(self, target: Any) -> float:
        more = [(turns - m.round.fewest) * m.round.operations for m, turns in taking_turns(target)]
        more += [cost_of_draws(target, n, 2 * draws_in_turn(v), 1) for n, v in split_and_merged(target.space)]
        return target.density.cost(one_site=False, stretches=True) + sum(more)

    def computations(self, target: Any) -> int:
        in_turn = sum(len(sites) for _, sites in target.interactions.scanned)
        in_turn += sum(turns * m.round.computations for m, turns in taking_turns(target))
        in_turn += sum(draws_in_turn(v) for _, v in split_and_merged(target.space))
        return max(len(target.interactions.colours) + in_turn, 1)

    def joint_moves(self, target: Any) -> dict[str, int]:
        if all(v.constraint is None and v.lines is None for v in target.space.variables):
            return {}
        moves = np.zeros(target.space.d, int)
        for m, turns in taking_turns(target):
            start, v = target.space.blocks[m.sets.n]
            of_set = v.lines.set_of(v.size) if m.kind == "lines" else v.constraint.set_of
            moves[start : start + v.size] += turns * np.isin(of_set, m.sets.sets)
        members = [m for m in target.space.members if m.size]
        most = {m.name: int(moves[m.start : m.start + m.size].max()) for m in members}
        return {name: number for name, number in most.items() if number > 1}


block_gibbs = kernel_function(BlockGibbs)


def visits_of(
    target,
    without: np.ndarray | None = None,
    drawing: Callable | None = None,
    candidates: Callable | None = None,
) -> list:
    """List of the visits that make up a sweep, each (key, x, backward) -> x.

    Parameters
    ----------
    target : Target
    without : (d,) bool, sites that have a colour and are left out of the sweep
    drawing : a function that draws sites, by default `draw_conditional`
    candidates : a function that chooses the candidate values along lines of many states, by default
        `candidates_in_stretch`
    """
    drawing, together = drawing or draw_conditional, taking_turns(target, candidates)

    def visits_together(kind: str) -> list:
        return [m.visit(turns) for m, turns in together if m.kind == kind]

    visits = []
    for n, start in enumerate(target.space.starts):
        colours = [sites for m, sites in target.interactions.colours if m == n]
        if without is not None:
            colours = [kept for sites in colours if len(kept := sites[~without[start + sites]])]
        visits += (
            [visit_colour(target, n, sites, drawing) for sites in colours]
            if len(colours) <= UNROLLED
            else [visit_colours(target, n, colours, drawing)]
        )
    visits += visits_together("coloured sets")
    visits += [scan(target, n, sites, drawing) for n, sites in target.interactions.scanned]
    visits += visits_together("scanned sets")
    if drawing is draw_conditional:
        visits += visits_together("lines")
        visits += [splits_and_merges(target, n) for n, _ in split_and_merged(target.space)]
    # Where every site has one possible value, there are no visits, and one that changes nothing stands in.
    return visits or [lambda key, x, backward: x]


def split_and_merged(space: Space) -> list[tuple[int, Variable]]:
    """[(index, variable)] of the variables that are a partition of more than one site."""
    return [(n, v) for n, v in enumerate(space.variables) if v.partition and v.size > 1]


def visit_colour(target, n: int, sites: np.ndarray, drawing: Callable):
    """A visit that draws the sites of one colour together; `sites` are counted within variable n."""
    start, v = target.space.blocks[n]
    differences_of = (target.logits if v.finite else target.rows)(n, sites)
    whole = len(sites) == v.size
    position = np.zeros(v.size, int)
    position[sites] = np.arange(len(sites))
    in_colour = np.isin(np.arange(v.size), sites)

    def visit(key, x, backward):
        now = x[start : start + v.size] if whole else x[start + sites]
        # The barrier keeps XLA from computing the draw again for every site that reads it. The new values are
        # put in place by a select with static indices, because a scatter is slow.
        values = jax.lax.optimization_barrier(
            drawing(
                uniforms_for(key, v, len(sites)),
                v,
                sites,
                now,
                lambda *candidates: differences_of(x, *candidates),
            )
        )
        block = values if whole else jnp.where(in_colour, values[position], x[start : start + v.size])
        return jax.lax.dynamic_update_slice(x, block, (start,))

    return visit


def visit_colours(target, n: int, colours: list[np.ndarray], drawing: Callable):
    """A visit that draws many colours in turn, in a loop over a table of the sites of each colour."""
    start, v = target.space.blocks[n]
    width = max(map(len, colours))
    table = np.stack([np.pad(sites, (0, width - len(sites)), mode="edge") for sites in colours])
    last = np.array([len(sites) - 1 for sites in colours])
    colour, position = np.full(v.size, -1), np.zeros(v.size, int)
    for c, sites in enumerate(colours):
        colour[sites], position[sites] = c, np.arange(len(sites))

    def visit(key, x, backward):
        def body(t, x):
            c = jnp.where(backward, len(colours) - 1 - t, t)
            sites = jnp.asarray(table)[c]
            differences_of = (target.logits if v.finite else target.rows)(n, sites)
            # The table is padded with repetitions of the last site of a colour. The copies use the same
            # uniforms, so that all of their draws are equal.
            u = uniforms_for(jax.random.fold_in(key, t), v, width)
            u = u[:, jnp.minimum(np.arange(width), jnp.asarray(last)[c])]
            values = drawing(
                u, v, sites, x[start + sites], lambda *candidates: differences_of(x, *candidates)
            )
            # The barrier keeps XLA from computing the draw again for every site that reads it.
            values = jax.lax.optimization_barrier(values)
            block = jnp.where(colour == c, values[position], x[start : start + v.size])
            return jax.lax.dynamic_update_slice(x, block, (start,))

        return jax.lax.fori_loop(0, len(colours), body, x)

    return visit


def scan(target, n: int, sites: np.ndarray, drawing: Callable):
    """A visit that draws single sites in turn; after every change, the tensors in which many sites mix are
    updated.
    """
    start, v = target.space.blocks[n]
    if v.finite and target.density.all_at_once(n):
        return scan_by_changes(target, n, sites, drawing)

    def visit(key, x, backward):
        u = uniforms_for(key, v, len(sites))

        def draw(t, x, carried):
            place = jnp.where(backward, len(sites) - 1 - t, t)
            site = place if len(sites) == v.size else jnp.asarray(sites)[place]
            differences = functools.partial(target.row, n, site, x, carried)
            (value,) = drawing(u[:, place][:, None], v, site[None], x[start + site][None], differences)
            return site, value, 0.0

        return draw_in_turn(target, n, len(sites), draw, x)[0]

    return visit


def scan_by_changes(target, n: int, sites: np.ndarray, drawing: Callable):
    """A visit that draws single sites in turn, as `scan`, with one evaluation for each site that changes.

    One evaluation gives the conditionals of all sites. These conditionals hold until a site changes, so that
    all sites up to the next one that changes are drawn from them.
    """
    start, v = target.space.blocks[n]

    def visit(key, x, backward):
        u, order = uniforms_for(key, v, len(sites)), jnp.arange(len(sites))
        order = jnp.where(backward, len(sites) - 1 - order, order)

        def to_next_change(state):
            t, x, carried = state
            now = x[start : start + v.size][sites]
            differences = lambda: target.all_rows(n, x, carried)[sites]
            # the barrier keeps XLA from computing all draws again wherever one of them is read
            values = jax.lax.optimization_barrier(drawing(u, v, sites, now, differences))
            left = jnp.where((values != now) & (order >= t), order, len(sites))
            place = jnp.argmin(left)
            # If no further site changes, some site is set to the value that it already has.
            t, value = left[place] + 1, jnp.where(left[place] < len(sites), values[place], now[place])
            site = jnp.asarray(sites)[place]
            # this barrier keeps XLA from copying x before it is changed in place
            carried, x = jax.lax.optimization_barrier((target.carried_after(n, site, value, x, carried), x))
            return t, x.at[start + site].set(value), carried

        first = (jnp.zeros_like(order[0]), x, target.carried(x))
        return jax.lax.while_loop(lambda state: state[0] < len(sites), to_next_change, first)[1]

    return visit


def visit_units(target, n: int, sets: np.ndarray, in_turn: bool):
    """A visit that draws sets of counts of which one is 1 above its lower bound and the others are at theirs.

    For each set the draw is which of its counts has this unit, given everything else.

    Parameters
    ----------
    n : the number of the variable
    sets : (R,) int, sets that do not interact, or that are drawn in turn
    in_turn : whether the sets are drawn one at a time; `Target.carried` is then updated after each set
    """
    start, v = target.space.blocks[n]
    sites = v.constraint.sites[sets]
    c = sites.shape[1]

    def drawn(u, of_sets, x, joined):
        """Two (r, 2) int arrays: for each set the site that loses its one unit and the site that gets the
        unit; and the new values of these two sites.

        Where the unit stays, its site stands twice, with its current value.
        """
        above = x[start + of_sets] - jnp.asarray(v.lower)[of_sets]
        place = (jnp.argmax(above, axis=1)[:, None] + np.arange(c)) % c
        order = jnp.take_along_axis(of_sets, place, axis=1)  # the count above its bound comes first
        pairs = jnp.stack(jnp.broadcast_arrays(order[:, :1], order[:, 1:]), axis=-1)
        # the barriers keep XLA from computing `values` and `d` again at each of their uses
        values = jax.lax.optimization_barrier((x[start + pairs] + np.array([-1, 1])).astype(x.dtype))
        d = target.joint_differences(n, pairs.reshape(-1, 2), values.reshape(-1, 1, 2), x, joined)
        d = jax.lax.optimization_barrier(jnp.minimum(d, LARGEST_DIFFERENCE).reshape(-1, c - 1))
        k = choose(u, jnp.pad(d, ((0, 0), (1, 0))))
        k = jnp.where(k < c, k, 0)[:, None]
        to = jnp.take_along_axis(order, k, axis=1)
        pair = jnp.concatenate([order[:, :1], to], axis=1)
        moved = x[start + pair] + jnp.where(k > 0, np.array([-1, 1]), 0)
        return pair, moved.astype(x.dtype)

    at_once = units_at_once(target, n, len(sites))

    def by_batches(key, x, backward):
        u = uniforms(key, (len(sites),))

        def body(t, x):
            # The last batch may be longer than the sets that are left: it repeats the last set, with the same
            # uniform.
            which = jnp.minimum(t * at_once + np.arange(at_once), len(sites) - 1)
            pair, moved = drawn(u[which], jnp.asarray(sites)[which], x, None)
            return x.at[start + pair].set(moved)

        return jax.lax.fori_loop(0, -(-len(sites) // at_once), body, x)

    def one_by_one(key, x, backward):
        def body(t, carried):
            x, joined = carried
            place = jnp.where(backward, len(sites) - 1 - t, t)
            u = uniforms(jax.random.fold_in(key, place), (1,))
            pair, moved = drawn(u, jnp.asarray(sites)[place][None], x, joined)
            for site, value in zip(pair[0], moved[0], strict=True):
                joined = target.carried_after(n, site, value, x, joined)
                x = x.at[start + site].set(value)
            return x, joined

        return jax.lax.fori_loop(0, len(sites), body, (x, target.carried(x)))[0]

    return one_by_one if in_turn else by_batches


def visit_sets(target, n: int, sets: np.ndarray, inner: bool, turns: int):
    """A visit that draws pairs of sites of each set, each pair given all other sites and the constraint.

    Parameters
    ----------
    n : the number of the variable
    sets : (R,) int, sets that do not interact
    inner : whether the pairs of a set may interact, and are drawn in turn
    turns : how many times the sites of a set are matched in pairs
    """
    sites = target.space.variables[n].constraint.sites[sets]

    def visit(key, x, backward):
        key_match, key_draws = jax.random.split(key)
        matched = matchings(key_match, sites, turns)

        def of_pairs(key, x, pairs):
            return drawn_pairs(
                key, target, n, pairs, x, lambda values: target.joint_differences(n, pairs, values, x)
            )

        def turn(key, x, pairs):
            if not inner:
                return of_pairs(key, x, pairs.reshape(-1, 2))
            # A backward sweep draws the pairs in the same order as a forward sweep: the order is random, and
            # as probable as its reverse.
            return jax.lax.fori_loop(
                0, pairs.shape[0], lambda t, x: of_pairs(jax.random.fold_in(key, t), x, pairs[t]), x
            )

        if turns == 1:
            return turn(key_draws, x, matched(0))
        # A backward sweep takes the turns in the same order as a forward sweep: the order is random, and as
        # probable as its reverse.
        return jax.lax.fori_loop(
            0, turns, lambda t, x: turn(jax.random.fold_in(key_draws, t), x, matched(t)), x
        )

    return visit


def scan_sets(target, n: int, sets: np.ndarray, turns: int):
    """A visit that draws single pairs of sites one after another, set by set.

    Parameters
    ----------
    n : the number of the variable
    sets : (R,) int, the sets
    turns : how many times the sites of a set are matched in pairs
    """
    start, v = target.space.blocks[n]
    sites = v.constraint.sites[sets]
    each = len(sets) * (sites.shape[1] // 2)

    def visit(key, x, backward):
        key_match, key_draws = jax.random.split(key)
        matched = matchings(key_match, sites, turns)

        # A backward sweep keeps the order of the turns, which is random and as probable as its reverse. It
        # reverses the fixed order of the sets within a turn.
        def turn(number, carried):
            pairs = jnp.moveaxis(matched(number), 0, 1).reshape(-1, 2)

            def body(t, carried):
                x, joined = carried
                place = jnp.where(backward, len(pairs) - 1 - t, t)
                pair = pairs[place]
                y = drawn_pairs(
                    jax.random.fold_in(key_draws, number * each + place),
                    target,
                    n,
                    pair[None],
                    x,
                    lambda values: target.joint_differences(n, pair[None], values, x, joined),
                )
                for site in pair:
                    value = y[start + site]
                    joined = target.carried_after(n, site, value, x, joined)
                    x = x.at[start + site].set(value)
                return x, joined

            return jax.lax.fori_loop(0, each, body, carried)

        return jax.lax.fori_loop(0, turns, turn, (x, target.carried(x)))[0]

    return visit


def tournament(c: int) -> int:
    """The number of rounds of a tournament in which each of c sites meets every other site once."""
    return c - 1 + c % 2


def matchings(key, sites: np.ndarray, turns: int) -> Callable:
    """(t) -> (c // 2, R, 2) int: sites (R, c) matched in pairs in turn t; if c is odd, one site is left out.

    The turns are rounds of a tournament in which every site of a set meets every other site once (the circle
    method): the sites stand on a circle of odd length, of which one site is the top of the turn, and two
    sites at the same distance to the left and to the right of the top are a pair. If c is even, the last site
    stands in the middle and meets the top. The next site on the circle is the top of the next turn; the first
    top and the direction are random. So every two sites are matched with the same probability, at most once
    in a tournament, and without sorting. The order of the pairs and the order of the turns are as probable as
    their reverse.
    """
    R, c = sites.shape
    length = tournament(c)
    u = uniforms(key, (2 if turns == 1 else 3, R, 1))
    first = (u[0] * length).astype(int)
    onward = 0 if turns == 1 else jnp.where(u[2] < 0.5, 1, -1)
    distance = np.arange(1, c // 2 + c % 2)

    def matching(t):
        top = first if turns == 1 else (first + onward * t) % length
        ends = jnp.stack([(top + distance) % length, (top - distance) % length], axis=-1)
        if c % 2 == 0:
            ends = jnp.concatenate([ends, jnp.stack([top, jnp.full_like(top, length)], axis=-1)], axis=1)
        ends = jnp.where(u[1, :, :, None] < 0.5, ends, ends[:, ::-1])
        pairs = jnp.take_along_axis(jnp.asarray(sites), ends.reshape(R, -1), axis=1, mode="promise_in_bounds")
        return jnp.moveaxis(pairs.reshape(ends.shape), 1, 0)

    return matching


class Together(NamedTuple):
    """Sets of sites that change together, with the visit that draws them in a sweep.

    Attributes
    ----------
    sets : Sets
    kind : "coloured sets", "scanned sets" or "lines"
        The property of `Interactions` that lists the sets; "lines" stands for `coloured_lines` and
        `scanned_lines`, whose sites may also change alone.
    round : the numbers of turns that a sweep may take, and what a turn costs
    visit : (number of turns) -> ((key, x, backward) -> x), which makes these turns
    """

    sets: Sets
    kind: str
    round: Round
    visit: Callable[[int], Callable]


def pairs_together(target, sets: Sets, in_turn: bool) -> list[Way]:
    """How a sweep draws some sets of sites that change in pairs: the turns it may take, and the visits.

    Parameters
    ----------
    in_turn : whether the sets are drawn one at a time
    """
    n, v = sets.n, target.space.variables[sets.n]
    c = v.constraint.sites.shape[1]
    if c < 2:
        return []
    of_units = np.isin(sets.sets, with_one_unit(v))
    units, others = sets.sets[of_units], sets.sets[~of_units]
    ways: list[Way] = []
    if len(units):
        batches = len(units) if in_turn else -(-len(units) // units_at_once(target, n, len(units)))
        one = Round(1, 1, batches, cost_of_draws(target, n, len(units) * c, 2))
        ways.append((one, lambda turns: visit_units(target, n, units, in_turn)))
    if len(others):
        pairs, values = len(others) * (c // 2), 2 if v.swaps else values_of_pair(v)
        after_another = pairs if in_turn else c // 2 if sets.inner else 1
        whole = Round(1, tournament(c), after_another, cost_of_draws(target, n, pairs * values, 2))
        if in_turn:
            ways.append((whole, lambda turns: scan_sets(target, n, others, turns)))
        else:
            ways.append((whole, lambda turns: visit_sets(target, n, others, sets.inner, turns)))
    return ways


def units_at_once(target, n: int, number: int) -> int:
    """How many of `number` vectors, each with one count 1 above its bound, are drawn in one batch."""
    c = target.space.variables[n].constraint.sites.shape[1]
    return int(np.clip(AT_ONCE / cost_of_draws(target, n, c, 2), 1, number))


def values_of_pair(v: Variable) -> int:
    """How many values most draws evaluate for the first count of a pair; the second follows from the fixed
    sum.
    """
    if not v.finite:
        return v.drawn_among + 1
    return v.K if v.K <= MANY_SPLITS else NEAR_SPLITS + 1


def with_one_unit(v: Variable) -> np.ndarray:
    """(R,) int, the sets of three or more counts in which one count is 1 above its bound, the others at their
    bounds.

    The counts of such a set indicate one of several categories. A set has as many states as counts, and one
    draw looks at all of the states.
    """
    if not isinstance(v.constraint, FixedSums) or not v.finite or v.constraint.sites.shape[1] <= 2:
        return np.zeros(0, int)
    return np.flatnonzero(v.constraint.totals - v.lower[v.constraint.sites].sum(axis=1) == 1)


def taking_turns(target, candidates: Callable | None = None) -> list[tuple[Together, int]]:
    """The sets of sites that change together, each with its number of turns in a sweep, in the order of the
    sweep.

    Parameters
    ----------
    candidates : a function that chooses the candidate values along lines of many states, by default
        `candidates_in_stretch`
    """
    candidates = candidates or candidates_in_stretch
    each, interactions = [], target.interactions
    for in_turn, groups in ((False, interactions.coloured_sets), (True, interactions.scanned_sets)):
        for sets in groups:
            kind, v = "scanned sets" if in_turn else "coloured sets", target.space.variables[sets.n]
            along = functools.partial(lines_of_equations, candidates=candidates)
            ways = pairs_together if v.constraint.in_pairs else along
            each += [Together(sets, kind, *way) for way in ways(target, sets, in_turn=in_turn)]
    for in_turn, groups in ((False, interactions.coloured_lines), (True, interactions.scanned_lines)):
        each += [Together(sets, "lines", *lines_beside(target, sets, candidates, in_turn)) for sets in groups]
    return list(zip(each, numbers_of_turns([m.round for m in each]), strict=True))


def drawn_pairs(key, target, n: int, pairs, x, differences: Callable):
    """x after pairs of sites of variable n were drawn, each given its constraint and all other sites.

    Parameters
    ----------
    pairs : (r, 2) int, sites counted within the variable
    differences : (values (r, C, 2)) -> (r, C) nats, the change of the log density if a pair takes values
    """
    start, v = target.space.blocks[n]
    now = x[start + pairs]

    def drawn(u, first):
        """(r, 2) int, the values of the pairs after a draw among C candidates each.

        `first` (r, C) is the value that each candidate gives to the first site of its pair; the value of the
        second site follows from the constraint.
        """
        # the barriers keep XLA from computing the values and the differences again at each of their uses
        values = jax.lax.optimization_barrier(v.constraint.candidates(first.astype(x.dtype), now))
        d = jax.lax.optimization_barrier(jnp.minimum(differences(values), LARGEST_DIFFERENCE))
        k = choose(u, d)[:, None, None]
        drawn = jnp.take_along_axis(values, k, axis=1, mode="clip")[:, 0]
        return jnp.where(k[:, 0] < values.shape[1], drawn, now)

    def of_all(key):
        return drawn(uniforms(key, (len(pairs),)), jnp.asarray(v.lower)[pairs[:, :1]] + np.arange(v.K))

    def of_near(key):
        u = uniforms(key, (2, len(pairs)))
        return drawn(u[0], spaced_values(u[1], NEAR_SPLITS, 1, now[:, 0]))

    if not v.finite:
        u = uniforms_for(key, v, len(pairs))
        values = drawn(u[0], stretch(u[1:], v, now[:, 0]))
    elif v.constraint.swaps or v.K <= MANY_SPLITS:
        values = of_all(key)
    else:
        key_whole, key_draw = jax.random.split(key)
        values = jax.lax.cond(uniforms(key_whole, ()) * ALL_SPLITS_EVERY < 1, of_all, of_near, key_draw)
    return x.at[start + pairs].set(values)


def uniforms_for(key, v: Variable, r: int):
    """The uniforms that `draw_conditional` needs for r sites: the first (r,) to choose a value, the others to
    find the values of a windowed variable.
    """
    more = 0 if v.finite else v.drawn_among if v.nominal else 2
    return uniforms(key, (1 + more, r))


def candidates_in_stretch(u, v: Variable, now):
    """Candidates laid by `stretch`, and the logarithm of the weight of each candidate: 0, since all
    weights are equal.
    """
    return stretch(u, v, now), 0.0


def draw_conditional(u, v: Variable, rows, now, differences):
    """(r,) int, new values of sites of one variable, given all others.

    Parameters
    ----------
    u : uniforms as `uniforms_for` returns them
    v : the variable
    rows : (r,) int, the sites, counted within the variable
    now : (r,) int, their current values
    differences : function
        For a finite variable, () -> (r, K) nats, log probabilities up to a constant per site; or (r, 1), the
        log odds of the upper one of two values. For a windowed variable, (candidates (r, K)) -> (r, K) nats,
        differences between the log density at each candidate and at the current value.
    """
    if not v.finite:
        # the barriers keep XLA from computing the candidates and the differences again at each of their uses
        found = scattered(u[1:], v, rows, now) if v.nominal else stretch(u[1:], v, now)
        values = jax.lax.optimization_barrier(found)
        d = jax.lax.optimization_barrier(jnp.minimum(differences(values), LARGEST_DIFFERENCE))
        k = choose(u[0], d)[:, None]
        return jnp.where(
            k < values.shape[1], jnp.take_along_axis(values, k, axis=1, mode="clip"), now[:, None]
        )[:, 0]
    # this barrier keeps XLA from computing the differences again at each of their uses
    d = jax.lax.optimization_barrier(differences())
    if (v.counts == 2).all():
        odds = d[:, 0] if d.shape[1] == 1 else d[:, 1] - d[:, 0]
        return (picked(v.lower, rows) + (u[0] < jax.nn.sigmoid(odds))).astype(now.dtype)
    k = choose(u[0], d)
    return jnp.where(k < v.K, picked(v.lower, rows) + k, now).astype(now.dtype)


def spaced_values(u, width: int, stride, now):
    """(r, width + 1) int, equally spaced values for every site, one of which is its current value.

    Parameters
    ----------
    u : (r,) uniforms, which choose the position of the current value
    stride : () or (r, 1) int, the distance from one value to the next
    now : (r,) int, current values
    """
    position = (u * (width + 1)).astype(now.dtype)
    return now[:, None] + stride * (np.arange(width + 1, dtype=now.dtype) - position[:, None])


def scattered(u, v: Variable, rows, now):
    """(r, w + 1) int, for every site its current value, and values from anywhere in its support.

    One of the values is then drawn in proportion to its probability p. This leaves p invariant: a chain goes
    from x to y with a probability proportional to p(y) times the mean of 1 / (p(x) + p(y) + the sum of p over
    the other values), and the mean is the same for a move from y to x. The same value may occur twice.

    Parameters
    ----------
    u : (w, r) uniforms, which choose the values from anywhere
    v : the variable, windowed and bounded
    rows : (r,) int, the sites, counted within the variable
    now : (r,) int, current values
    """
    lower, counts = picked(v.lower, rows), picked(v.counts, rows)
    values = lower + jnp.minimum((u * counts).astype(now.dtype), counts - 1)
    return jnp.concatenate([now[:, None], values.T.astype(now.dtype)], axis=1)


def stretch(u, v: Variable, now):
    """(r, w + 1) int, for every site equally spaced candidate values, one of which is its current value.

    Parameters
    ----------
    u : (2, r) uniforms, which choose the position of the current value among the candidates and the stride
    v : the variable
    now : (r,) int, current values
    """
    width, strides = (NEAR_SPLITS, np.ones(1, int)) if v.finite else v.stretches
    stride = jnp.asarray(strides, now.dtype)[(u[1] * len(strides)).astype(int)]
    return spaced_values(u[0], width, stride[:, None], now)
