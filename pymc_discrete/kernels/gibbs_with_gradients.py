"""Gibbs-With-Gradients (Grathwohl et al. 2021), for binary, categorical and integer sites, one move or several at a time."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.balancing import check_balancing, log_weights
from pymc_discrete.kernels.categorical import draw_categorical
from pymc_discrete.kernels.kernel import Kernel, State
from pymc_discrete.kernels.metropolis import Proposal, metropolis
from pymc_discrete.targets.space import Space

LARGEST_MEAN = 10_000  # a proposal holds twice as many draws


class Move(NamedTuple):
    """Several moves of single sites, drawn from the same distribution.

    Attributes
    ----------
    site, column : (L,) int, which site goes to which of its neighbours
    step : (L,) int, the cyclic shift on a finite site, the offset on a windowed one: steps commute and invert by negation
    active : (L,) bool, the first so many count
    """

    site: Any
    column: Any
    step: Any
    active: Any


class Carry(NamedTuple):
    """The proposal's weights at a state.

    Attributes
    ----------
    weights : (d, K) float, divided by exp(top)
    top : () float, the largest log weight when all were last computed
    total : () float, the sum of the weights
    """

    weights: Any
    top: Any
    total: Any

    @property
    def log_scale(self):
        """What turns log weights into log probabilities; -inf where there is nowhere to go."""
        return self.top + jnp.log(self.total)


def largest_count(n_flips: float) -> int:
    """The most moves that a proposal with mean `n_flips` makes."""
    return 2 * int(np.ceil(n_flips)) - 1


def draw_count(u, v, mean):
    """A number of moves with the given mean: L ~ Uniform{1..2X-1}, X the mean rounded up or down at random.

    One move keeps a probability of at least 1/(2 mean - 1), so that no parity of the moves is conserved.
    """
    low = jnp.floor(mean)
    X = low + (u < mean - low)
    return 1 + jnp.floor(v * (2 * X - 1)).astype(int)


def _per_site(array: np.ndarray, site):
    """`array[site]`, the scalar where all entries are the same."""
    flat = array.reshape(-1)
    return flat[0] if (flat == flat[0]).all() else jnp.asarray(array)[site]


def _wrapped(space: Space, site, value):
    """A value brought back into a finite site's support; windowed sites as they are."""
    lower, count = _per_site(space.lower, site), _per_site(space.upper - space.lower + 1, site)
    cyclic = lower + jnp.remainder(value - lower, count)
    if space.windowed.all():
        return value
    return jnp.where(_per_site(space.windowed, site), value, cyclic) if space.windowed.any() else cyclic


def gibbs_with_gradients(n_flips: float = 1, balancing: str = "sqrt") -> tuple[Kernel, dict[str, float]]:
    """The Gibbs-With-Gradients kernel.

    With one move, Algorithm 1 (Eq. 3 to 6). With more, the multi-sample variant (App. D.2, Eq. 27): L moves are drawn independently
    from q(. | x) and made together; L is random with mean `n_flips`, and a site may be drawn more than once.

    Parameters
    ----------
    n_flips : float, at least 1
        Mean number of moves in a proposal.
    balancing : {"sqrt", "barker", "min", "max"}
        The function that turns a probability ratio into a weight; "sqrt" is the paper's.

    Returns
    -------
    kernel : Kernel
    params : {"n_flips": float}

    References
    ----------
    Grathwohl, Swersky, Hashemi, Duvenaud and Maddison 2021, Oops I Took A Gradient.
    """
    check_balancing(balancing)
    check_n_flips(n_flips)
    L = largest_count(n_flips)

    def log_weights_of(x, differences, space: Space, sites=None):
        if sites is None:
            column, windowed, place = space.column, space.windowed, x - space.lower
        else:
            column, windowed = jnp.asarray(space.column)[sites], jnp.asarray(space.windowed)[sites]
            place, differences = x[sites] - _per_site(space.lower, sites), differences[sites]
        current = (~windowed)[:, None] & (column == place[:, None])
        return log_weights(differences, current, balancing)

    def carry(x, differences, space: Space) -> Carry:
        logw = log_weights_of(x, differences, space)
        top = jnp.max(logw)
        weights = jnp.where(jnp.isneginf(logw), 0.0, jnp.exp(logw - top))
        return Carry(weights, top, weights.sum())

    def carried(x, differences, space: Space, before: Carry, touched) -> Carry:
        """The carry at x, with the weights of the touched sites computed anew."""
        logw = log_weights_of(x, differences, space, jnp.minimum(touched, space.d - 1))
        rows = jnp.where(jnp.isneginf(logw), 0.0, jnp.exp(logw - before.top))
        weights = before.weights.at[touched].set(rows, mode="drop")
        total = weights.sum()
        # far from where `top` was taken the weights could overflow or vanish
        limits = jnp.finfo(total.dtype)
        safe = (total > limits.tiny**0.5) & (total < limits.max**0.5)
        return jax.lax.cond(safe, lambda: Carry(weights, before.top, total), lambda: carry(x, differences, space))

    def log_probs(state: State, move: Move):
        # Grathwohl et al. 2021, Eq. 5 and 6, at the drawn entries
        d = state.differences[move.site, move.column]
        logw = log_weights(d, jnp.zeros_like(d, bool), balancing)
        return jnp.where(move.active, logw - state.carry.log_scale, 0.0)

    def draw(key, target, state: State, params):
        space = target.space
        u = jax.random.uniform(key, (L + 2,)) if L > 1 else jax.random.uniform(key, (1,))
        entry = draw_categorical(u[:L], state.carry.weights.reshape(-1))
        site, column = entry // space.K, entry % space.K
        active = jnp.ones(1, bool)
        if L > 1:
            active = jnp.arange(L) < draw_count(u[L], u[L + 1], params["n_flips"])
        where = jnp.asarray(space.column)[site, column] if space.windowed.any() or (space.K > 1) else column
        shift = jnp.remainder(where - (state.x[site] - _per_site(space.lower, site)), _per_site(space.upper - space.lower + 1, site))
        windowed = _per_site(space.windowed, site)
        step = jnp.where(windowed, where, shift)
        move = Move(site, column, step, active)
        log_q = jnp.where(jnp.isfinite(state.carry.log_scale), log_probs(state, move).sum(), jnp.inf)
        return move, log_q

    def apply(target, x, move: Move):
        space = target.space
        if L == 1:
            site = move.site[0]
            return x.at[site].set(_wrapped(space, site, x[site] + move.step[0]))
        total = jnp.zeros_like(x).at[move.site].add(jnp.where(move.active, move.step, 0))
        return _wrapped(space, np.arange(space.d), x + total)

    def reverse(target, x, move: Move) -> Move:
        space = target.space
        y = apply(target, x, move)
        back = _wrapped(space, move.site, y[move.site] - move.step) - _per_site(space.lower, move.site)
        if space.windowed.any():
            opposite = jnp.asarray(space.opposite)[move.site, move.column]
            back = jnp.where(_per_site(space.windowed, move.site), opposite, back)
        return Move(move.site, back, -move.step, move.active)

    def log_prob(target, state: State, move: Move, params):
        # Grathwohl et al. 2021, Eq. 27: the product over the moves; log P(L) is the same both ways
        return log_probs(state, move).sum()

    def arrive(target, state: State, y, move: Move) -> State:
        sites = jnp.where(move.active, move.site, target.space.d)
        touched = target.touched(sites).reshape(-1) if target.local else None
        if touched is not None and 2 * touched.shape[0] <= target.space.d:
            differences = target.update(y, state.differences, sites)
            weights = carried(y, differences, target.space, state.carry, touched)
        else:
            differences = target.differences(y)
            weights = carry(y, differences, target.space)
        if L == 1 and target.exact:
            known_density = state.logdensity + state.differences[move.site[0], move.column[0]]
            logdensity = jax.lax.cond(jnp.isneginf(state.logdensity), lambda: target.logdensity(y), lambda: known_density)
        else:
            logdensity = target.logdensity(y)
        return State(y, logdensity, differences, weights)

    def count(move: Move):
        return jnp.sum(move.active)

    kernel = metropolis(Proposal(draw, log_prob, apply, reverse, arrive, carry, count))
    return kernel, {"n_flips": float(n_flips)}


def check_n_flips(n_flips: Any) -> None:
    number = isinstance(n_flips, int | float | np.integer | np.floating) and not isinstance(n_flips, bool)
    if not (number and 1 <= n_flips <= LARGEST_MEAN):
        raise ValueError(
            f"n_flips must be a number of at least 1 (and at most {LARGEST_MEAN}), the mean number of moves in a proposal, got {n_flips!r}."
        )
