"""Discrete Langevin proposals: all sites move at once, each drawn independently of the others."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.adaptation import Tuned
from pymc_discrete.kernels.balancing import BALANCING, LARGEST_DIFFERENCE, log_weights
from pymc_discrete.kernels.kernel import Kernel, State
from pymc_discrete.kernels.method import Method, kernel_function
from pymc_discrete.kernels.metropolis import Proposed, metropolis
from pymc_discrete.kernels.random import choose_or_stay, uniforms
from pymc_discrete.kernels.spread import has_units
from pymc_discrete.runtime.checks import check_choice, check_switch, is_number, is_word
from pymc_discrete.space.space import Space

LANGEVIN_PROPOSALS = ("dlp", "dlmc")
BOUNDS = {"dlp": (0.02, 1e4), "dlmc": (1e-5, 1e3)}  # the bounds within which "adapt" tunes the step size
INITIAL_STEP_SIZE = 0.5  # the tuned step size before the first draw
SMALL_TIME = 1e-20  # a smaller expected number of jumps equals the probability of a jump, up to rounding


class SiteProposals(NamedTuple):
    """The proposal distribution of each site: it goes to one of its neighbours, or stays.

    Attributes
    ----------
    move : (d, k) float, log weights of the moves
    stay : (d,) float, log weight of staying
    weights : (d, k) float, weights of the moves, divided by the largest weight of the site
    total : (d,) float, sum of a site's weights, including the weight of staying, between 1 and k + 1
    """

    move: Any
    stay: Any
    weights: Any
    total: Any

    @classmethod
    def of(cls, move, stay) -> "SiteProposals":
        """The proposals with log weights `move` (d, k) and `stay` (d,), which need not be normalised."""
        top = jnp.maximum(move.max(axis=1), stay)
        move, stay = move - top[:, None], stay - top
        weights = jnp.exp(move)
        return cls(move, stay, weights, weights.sum(axis=1) + jnp.exp(stay))

    def draw(self, u):
        """(d,) int, one choice per site: 0 to stay, k to go to neighbour k - 1.

        The uniforms u (d,) are in [0, 1). Small u lead to moves, since u has its finest resolution there.
        """
        move = choose_or_stay(u, self.weights, self.total)
        return jnp.where(move < self.weights.shape[1], move + 1, 0)

    def log_prob(self, chosen):
        """() float, log probability of (d,) choices as `draw` returns them."""
        chosen_log_weights = log_weight_of_choice(self.move, self.stay, chosen)
        return chosen_log_weights.sum() - sum_of_logs(self.total, self.move.shape[1] + 1)


class CachedProposals(NamedTuple):
    """The proposal distributions at a state, kept from the proposal that led to this state.

    Attributes
    ----------
    proposals : SiteProposals
    params : {"step_size", "scale"} for which the proposals were computed; nan where nothing is cached
    """

    proposals: SiteProposals
    params: dict[str, Any]


def empty_cache(x, differences, space: Space) -> CachedProposals:
    """A cache of the right shapes that holds for no values of the parameters."""
    d, k = space.d, 1 if flips_only(space) else space.K
    zeros = jnp.zeros((d, k), differences.dtype)
    nan = jnp.full((), jnp.nan, differences.dtype)
    return CachedProposals(
        SiteProposals(zeros, zeros[:, 0], zeros, zeros[:, 0]),
        {"step_size": nan, "scale": jnp.full(d, jnp.nan, differences.dtype)},
    )


def jumps(d, time, balancing: str) -> SiteProposals:
    """The proposals of "dlmc": a Markov chain of each site, run for `time`.

    The jump rate is the rate of leaving the most probable value, so it is the same from every value of a
    finite site. The barriers keep XLA from computing an exponential again at each of its uses.

    Parameters
    ----------
    d : (d, k) float, log weights of the moves in each site's conditional, relative to the current value
    time : () float, for how long each Markov chain runs
    balancing : name of a balancing function
    """
    # without this barrier, XLA computes an exponential or a logarithm again in every row that reads it
    once = jax.lax.optimization_barrier
    likeliest = jnp.maximum(d.max(axis=1), 0.0)
    if d.shape[1] == 1:
        others = -jnp.abs(d)
    else:
        all_values = jnp.pad(d, ((0, 0), (1, 0)))  # the current value, of log weight 0, comes first
        mode = jnp.arange(all_values.shape[1]) == all_values.argmax(axis=1)[:, None]
        others = jnp.where(mode, -jnp.inf, all_values - likeliest[:, None])
    # whether any value besides the likeliest is possible
    movable = others.max(axis=1) > -jnp.inf
    # the log odds of all other values against the likeliest value
    log_odds = jnp.where(movable, row_logsumexp(others), 0.0)
    odds = once(jnp.exp(log_odds))
    log_rest = once(jnp.log(1 + odds))
    log_rate = jnp.where(
        movable, row_logsumexp(log_weights(others, False, balancing)) - log_odds + log_rest, -jnp.inf
    )
    log_time = log_rate + jnp.log(time)
    time = once(jnp.exp(log_time))
    jump = once(-jnp.expm1(-time))
    log_jump = once(jnp.where(time < SMALL_TIME, log_time, jnp.log(jump)))
    move = (d - likeliest[:, None]) + (log_jump - log_rest)[:, None]
    if d.shape[1] == 1:
        up = d[:, 0] > 0
        weights = (jump * jnp.where(up, 1.0, jnp.where(movable, odds, 0.0)) / (1 + odds))[:, None]
        stayer = jnp.where(up, odds, 1.0)
    else:
        weights, stayer = jnp.exp(move), jnp.exp(-likeliest)
    stay = jnp.exp(-time) + jump * stayer / (1 + odds)
    # Where the probability of staying, a sum of two terms, comes close to underflow, its logarithm is found
    # from the logarithms of the terms instead.
    representable = stay.min() > 1e10 * jnp.finfo(stay.dtype).tiny
    log_stay = jax.lax.cond(
        representable, lambda: jnp.log(stay), lambda: jnp.logaddexp(-time, log_jump - log_rest - likeliest)
    )
    return SiteProposals(move, log_stay, weights, jnp.ones_like(log_stay))


def row_logsumexp(a):
    """(d,) float, the log of the sum of exponentials of each row of a (d, k); no row may be all -inf."""
    if a.shape[1] == 1:
        return a[:, 0]
    top = jnp.nan_to_num(a.max(axis=1), neginf=0.0)
    return top + jnp.log(jnp.exp(a - top[:, None]).sum(axis=1))


def log_weight_of_choice(move, stay, chosen):
    """(d,) float, the log weight of each site's choice in `chosen` (d,), which is 0 to stay, and k to go to
    neighbour k - 1.
    """
    if move.shape[1] == 1:
        return jnp.where(chosen > 0, move[:, 0], stay)
    of_move = jnp.take_along_axis(move, jnp.maximum(chosen - 1, 0)[:, None], axis=1)[:, 0]
    return jnp.where(chosen > 0, of_move, stay)


def sum_of_logs(a, most: float):
    """() float, the sum of the logarithms of a (d,) whose elements are in [1, most].

    One logarithm is taken of a product of several elements, of as many as cannot overflow in float32.
    """
    factors = int(30 / np.log10(most))
    padded = jnp.pad(a, (0, -a.shape[0] % factors), constant_values=1.0)
    return jnp.log(padded.reshape(factors, -1).prod(axis=0)).sum()


@dataclass(frozen=True)
class DiscreteLangevin(Method):
    r"""Discrete Langevin samplers: all sites move independently at once, accepted or rejected as a whole.

    With :math:`d_{ik}` the difference of site i at value k, "dlp" draws each site from

    .. math:: q_i(k | x) \propto g(e^{d_{ik}}) \exp(-\lVert k - x_i \rVert^2 / (2 \alpha s_i^2))

    with squared distance 1 between different nominal values and :math:`(k - x_i)^2` between ordinal ones.
    "dlmc" runs a Markov chain of each site for a time h, which jumps to values drawn from the site's
    conditional,

    .. math:: q_i = e^{-c_i h} I + (1 - e^{-c_i h}) \mathrm{softmax}(d_i),
        \quad c_i = \sum_{k \neq m} g(e^{d_{ik} - d_{im}}) / (1 - \mathrm{softmax}(d_i)_m)

    The jump rate is chosen such that the likeliest value m is left at the locally balanced rate. For two
    values this is the exact solution; for more values it is reversible with respect to the conditional at
    every h.

    Parameters
    ----------
    proposal : {"dlp", "dlmc"}
        "dlp" is the discrete Langevin proposal (DMALA); "dlmc" the continuous-time form, usually the better
        one.
    step_size : "adapt" or positive float, default "adapt"
        alpha of "dlp", the time h of "dlmc". "adapt" tunes it to an acceptance of 0.574 (Sun, Dai and
        Schuurmans 2022).
    adjusted : bool, default True
        False accepts every proposal (DULA): fast and biased, with a bias that grows with the step size.
        `accept` in the sampler statistics is then what the acceptance probability would have been.
    balancing : {"sqrt", "barker", "min", "max"}
        How a probability ratio t becomes a weight: sqrt(t) (the paper's), t/(1+t), min(1, t), max(1, t).

    Warns
    -----
    UserWarning
        With adjusted=False: the draws are biased.

    Notes
    -----
    The unit s is the standard deviation of the site in the first half of tuning, before that a guess from the
    support, or from the starting value of a site with a window; for sites with two values it is 1.

    Sampler statistics of its own: `discrete_step_size`.

    References
    ----------
    Zhang, Liu and Liu 2022, A Langevin-like Sampler for Discrete Distributions.
    Sun, Dai, Dai, Zhou and Schuurmans 2023, Discrete Langevin Samplers via Wasserstein Gradient Flow.
    Hauschulz 2024, Training Energy-Based Models by Learning to Sample with Discrete Flows.
    """

    reported: ClassVar[dict[str, str]] = {"discrete_step_size": "step_size"}
    proposal: str = "dlp"
    step_size: float | str = "adapt"
    adjusted: bool = True
    balancing: str = "sqrt"

    def __post_init__(self) -> None:
        check_choice("balancing", self.balancing, BALANCING)
        check_choice("proposal", self.proposal, LANGEVIN_PROPOSALS)
        check_switch("adjusted", self.adjusted)
        if not self._adapts and not (is_number(self.step_size) and self.step_size > 0):
            raise ValueError(f"step_size must be 'adapt' or a positive number, got {self.step_size!r}.")

    @property
    def _adapts(self) -> bool:
        return is_word(self.step_size, "adapt")

    @property
    def bias(self) -> str | None:
        if self.adjusted:
            return None
        return (
            "DiscreteLangevin(adjusted=False) samples a biased distribution; the bias falls with step_size. "
            "Leave adjusted=True for draws of the posterior."
        )

    def kernel(self) -> tuple[Kernel, dict[str, Any]]:
        proposal, balancing = self.proposal, self.balancing

        def site_proposals(x, differences, space: Space, params) -> SiteProposals:
            d, values, current = langevin_moves(x, differences, space)
            logg = log_weights(d, current, balancing)
            if proposal == "dlp":
                # the proposal of Zhang et al. 2022, and of Hauschulz 2024, Eq. 2.25
                distance = (values - x[:, None]).astype(logg.dtype)
                unit = jnp.where(space.nominal, 1.0, params["scale"])[:, None]
                squared = jnp.where(space.nominal[:, None], 1.0, (distance / unit) ** 2)
                stay = jnp.full(space.d, BALANCING[balancing](0.0))
                return SiteProposals.of(logg - squared / (2 * params["step_size"]), stay)
            return jumps(
                jnp.where(current | jnp.isneginf(d), -jnp.inf, jnp.minimum(d, LARGEST_DIFFERENCE)),
                params["step_size"],
                balancing,
            )

        def propose(key, target, state: State, params) -> Proposed:
            space, x = target.space, state.x
            cached = state.carry.params
            params = {
                name: jnp.broadcast_to(jnp.asarray(params[name], a.dtype), a.shape)
                for name, a in cached.items()
            }
            same = (params["step_size"] == cached["step_size"]) & jnp.all(params["scale"] == cached["scale"])
            from_x = jax.lax.cond(
                same,
                lambda: state.carry.proposals,
                lambda: site_proposals(x, state.differences, space, params),
            )
            chosen = from_x.draw(uniforms(key, (space.d,), from_x.total.dtype))
            y, back = destination(x, chosen, space)
            logdensity, differences = target.logdensity_and_differences(y)
            # Without the barrier XLA computes the log weights again at each of their uses.
            from_y = jax.lax.optimization_barrier(site_proposals(y, differences, space, params))
            proposed = State(y, logdensity, differences, CachedProposals(from_y, params))
            log_forward = jnp.where(from_x.weights.max() > 0, from_x.log_prob(chosen), jnp.inf)
            return Proposed(proposed, log_forward, from_y.log_prob(back), (chosen > 0).sum())

        tuned = Tuned("step_size", lambda space: BOUNDS[proposal]) if self._adapts else None
        params = {"step_size": INITIAL_STEP_SIZE if self._adapts else float(self.step_size), "scale": 1.0}
        kernel = metropolis(propose, empty_cache, tuned, self.adjusted)
        return kernel._replace(scaled=has_units) if proposal == "dlp" else kernel, params


discrete_langevin = kernel_function(DiscreteLangevin)


def flips_only(space: Space) -> bool:
    """Whether every site has two values, so that its only move is to the other one."""
    return space.K == 2 and not space.windowed.any()


def langevin_moves(x, differences, space: Space):
    """The moves of all sites: one move, to the other value, where every site has two values, else one per
    neighbour.

    Returns
    -------
    differences : (d, k) float, nats, the change of the log density by each move
    values : (d, k) int, the value that each move leads to
    current : (d, k) bool, whether this value is the current one
    """
    if flips_only(space):
        other = jnp.where(x - space.lower == 0, differences[:, 1], differences[:, 0])
        return other[:, None], (2 * space.lower + 1 - x)[:, None], np.zeros((space.d, 1), bool)
    values, _ = space.neighbours(x)
    return differences, values, ~space.windowed[:, None] & (values == x[:, None])


def destination(x, chosen, space: Space):
    """The state y (d,) to which the choices (d,) lead from x, and the choices (d,) that lead back."""
    if flips_only(space):
        return jnp.where(chosen > 0, 2 * space.lower + 1 - x, x), chosen
    column = jnp.maximum(chosen - 1, 0)
    values, _ = space.neighbours(x)
    y = jnp.where(chosen > 0, jnp.take_along_axis(values, column[:, None], axis=1)[:, 0], x)
    opposite = jnp.take_along_axis(jnp.asarray(space.opposite), column[:, None], axis=1)[:, 0]
    back = jnp.where(space.windowed, opposite, x - space.lower)
    return y, jnp.where(chosen > 0, back + 1, 0)
