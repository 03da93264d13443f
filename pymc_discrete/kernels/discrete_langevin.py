"""Discrete Langevin proposals: all sites move at once, each on its own."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.checks import check_choice, check_switch, is_number, is_word
from pymc_discrete.kernels.adaptation import Tuned
from pymc_discrete.kernels.balancing import BALANCING, LARGEST_DIFFERENCE, log_weights
from pymc_discrete.kernels.kernel import Kernel, State
from pymc_discrete.kernels.metropolis import Proposed, metropolis
from pymc_discrete.kernels.random import choose_or_stay, uniforms
from pymc_discrete.kernels.spread import has_units
from pymc_discrete.targets.space import Space

PROPOSALS = ("dlp", "dlmc")
BOUNDS = {"dlp": (0.02, 1e4), "dlmc": (1e-5, 1e3)}
START = 0.5
SHORT = 1e-20  # a time so short that its probability of a jump is the time itself, to rounding


class Rows(NamedTuple):
    """What each site may do: go to one of its neighbours, or stay.

    Attributes
    ----------
    move : (d, k) float, log weights
    stay : (d,) float, log weight
    weights : (d, k) float, of the moves, divided by the largest of the row
    total : (d,) float, their sum and that of staying, between 1 and k + 1
    """

    move: Any
    stay: Any
    weights: Any
    total: Any

    @classmethod
    def of(cls, move, stay) -> "Rows":
        top = jnp.maximum(move.max(axis=1), stay)
        move, stay = move - top[:, None], stay - top
        weights = jnp.exp(move)
        return cls(move, stay, weights, weights.sum(axis=1) + jnp.exp(stay))

    def draw(self, u):
        """(d,) int by u (d,) in [0, 1): 0 to stay, k to go to neighbour k - 1. Moves lie where u
        is finest.
        """
        move = choose_or_stay(u, self.weights, self.total)
        return jnp.where(move < self.weights.shape[1], move + 1, 0)

    def log_prob(self, chosen):
        """() float, log probability of (d,) choices as `draw` returns them."""
        return picked(self.move, self.stay, chosen).sum() - sum_of_logs(self.total, self.move.shape[1] + 1)


class Known(NamedTuple):
    """The rows at a state, found on the way back of the proposal that led there.

    Attributes
    ----------
    rows : Rows
    params : {"step_size", "scale"} that they are for, nan for none
    """

    rows: Rows
    params: dict[str, Any]


def nothing_known(x, differences, space: Space) -> Known:
    d, k = space.d, 1 if flips_only(space) else space.K
    none = jnp.zeros((d, k), differences.dtype)
    nan = jnp.full((), jnp.nan, differences.dtype)
    return Known(
        Rows(none, none[:, 0], none, none[:, 0]),
        {"step_size": nan, "scale": jnp.full(d, jnp.nan, differences.dtype)},
    )


def jumps(d, time, balancing: str) -> Rows:
    """The rows of "dlmc" after a time (), from the log weights d (d, k) of the moves in each site's
    conditional, where staying has 1.

    The rate is that at which the likeliest value is left, so that it is the same from every value of a finite
    site. Barriers stand between exponentials and their uses, which would each compute them again.
    """
    once = jax.lax.optimization_barrier
    likeliest = jnp.maximum(d.max(axis=1), 0.0)
    if d.shape[1] == 1:
        others = -jnp.abs(d)
    else:
        all_values = jnp.pad(d, ((0, 0), (1, 0)))  # staying first
        mode = jnp.arange(all_values.shape[1]) == all_values.argmax(axis=1)[:, None]
        others = jnp.where(mode, -jnp.inf, all_values - likeliest[:, None])
    somewhere = others.max(axis=1) > -jnp.inf
    log_odds = jnp.where(somewhere, log_sum(others), 0.0)  # of another value than the likeliest
    odds = once(jnp.exp(log_odds))
    log_rest = once(jnp.log(1 + odds))
    log_rate = jnp.where(
        somewhere, log_sum(log_weights(others, False, balancing)) - log_odds + log_rest, -jnp.inf
    )
    log_time = log_rate + jnp.log(time)
    time = once(jnp.exp(log_time))
    jump = once(-jnp.expm1(-time))
    log_jump = once(jnp.where(time < SHORT, log_time, jnp.log(jump)))
    move = (d - likeliest[:, None]) + (log_jump - log_rest)[:, None]
    if d.shape[1] == 1:
        up = d[:, 0] > 0
        weights = (jump * jnp.where(up, 1.0, jnp.where(somewhere, odds, 0.0)) / (1 + odds))[:, None]
        stayer = jnp.where(up, odds, 1.0)
    else:
        weights, stayer = jnp.exp(move), jnp.exp(-likeliest)
    stay = jnp.exp(-time) + jump * stayer / (1 + odds)
    certain = stay.min() > 1e10 * jnp.finfo(stay.dtype).tiny
    log_stay = jax.lax.cond(
        certain, lambda: jnp.log(stay), lambda: jnp.logaddexp(-time, log_jump - log_rest - likeliest)
    )
    return Rows(move, log_stay, weights, jnp.ones_like(log_stay))


def log_sum(a):
    """(d,) log of the summed exponentials of the rows of a (d, k), none of which is all -inf where it
    matters.
    """
    if a.shape[1] == 1:
        return a[:, 0]
    top = jnp.nan_to_num(a.max(axis=1), neginf=0.0)
    return top + jnp.log(jnp.exp(a - top[:, None]).sum(axis=1))


def picked(move, stay, chosen):
    """(d,) the entry of each site's choice."""
    if move.shape[1] == 1:
        return jnp.where(chosen > 0, move[:, 0], stay)
    moved = jnp.take_along_axis(move, jnp.maximum(chosen - 1, 0)[:, None], axis=1)[:, 0]
    return jnp.where(chosen > 0, moved, stay)


def sum_of_logs(a, most: float):
    """Sum of the logarithms of a (d,) in [1, most], a logarithm for every few of them."""
    few = int(30 / np.log10(most))
    padded = jnp.pad(a, (0, -a.shape[0] % few), constant_values=1.0)
    return jnp.log(padded.reshape(few, -1).prod(axis=0)).sum()


def discrete_langevin(
    proposal: str = "dlp", step_size: float | str = "adapt", adjusted: bool = True, balancing: str = "sqrt"
) -> tuple[Kernel, dict[str, Any]]:
    r"""Discrete Langevin kernels.

    With :math:`d_{ik}` the difference of site i at value k, "dlp" draws each site by

    .. math:: q_i(k | x) \propto g(e^{d_{ik}}) \exp(-\lVert k - x_i \rVert^2 / (2 \alpha s_i^2))

    with one-hot distances (1) between nominal values and :math:`(k - x_i)^2` between ordinal ones. "dlmc"
    runs, for a time h, a Markov chain of each site that jumps to a value drawn by the conditional,

    .. math:: q_i = e^{-c_i h} I + (1 - e^{-c_i h}) \mathrm{softmax}(d_i),
        \quad c_i = \sum_{k \neq m} g(e^{d_{ik} - d_{im}}) / (1 - \mathrm{softmax}(d_i)_m)

    at such a rate that the likeliest value m is left at the locally balanced rate: for two values the exact
    solution, for more reversible with respect to the conditional at every h.

    Parameters
    ----------
    proposal : {"dlp", "dlmc"}
    step_size : positive float, or "adapt"
        alpha of "dlp", the time h of "dlmc"; "adapt" tunes it to the optimal acceptance.
    adjusted : bool
        Accept or reject (DMALA); without, the chain is biased (DULA) and `accept` says what the acceptance
        would have been.
    balancing : {"sqrt", "barker", "min", "max"}

    Returns
    -------
    kernel : Kernel
    params : {"step_size": float, "scale": s, () or (d,) float, the unit of distance of each ordinal site}

    References
    ----------
    Zhang, Liu and Liu 2022, A Langevin-like Sampler for Discrete Distributions.
    Sun, Dai, Dai, Zhou and Schuurmans 2023, Discrete Langevin Samplers via Wasserstein Gradient Flow.
    """
    check_choice("balancing", balancing, BALANCING)
    check_choice("proposal", proposal, PROPOSALS)
    check_switch("adjusted", adjusted)
    adapt = is_word(step_size, "adapt")
    if not adapt and not (is_number(step_size) and step_size > 0):
        raise ValueError(f"step_size must be 'adapt' or a positive number, got {step_size!r}.")

    def rows(x, differences, space: Space, params) -> Rows:
        d, values, current = moves_of(x, differences, space)
        logg = log_weights(d, current, balancing)
        if proposal == "dlp":
            # Zhang et al. 2022, Eq. 4
            distance = (values - x[:, None]).astype(logg.dtype)
            unit = jnp.where(space.nominal, 1.0, params["scale"])[:, None]
            squared = jnp.where(space.nominal[:, None], 1.0, (distance / unit) ** 2)
            stay = jnp.full(space.d, BALANCING[balancing](0.0))
            return Rows.of(logg - squared / (2 * params["step_size"]), stay)
        return jumps(
            jnp.where(current | jnp.isneginf(d), -jnp.inf, jnp.minimum(d, LARGEST_DIFFERENCE)),
            params["step_size"],
            balancing,
        )

    def propose(key, target, state: State, params) -> Proposed:
        space, x = target.space, state.x
        known = state.carry.params
        asked = {
            name: jnp.broadcast_to(jnp.asarray(params[name], a.dtype), a.shape) for name, a in known.items()
        }
        same = (asked["step_size"] == known["step_size"]) & jnp.all(asked["scale"] == known["scale"])
        here = jax.lax.cond(same, lambda: state.carry.rows, lambda: rows(x, state.differences, space, asked))
        chosen = here.draw(uniforms(key, (space.d,), here.total.dtype))
        y, back = arrived(x, chosen, space)
        differences = target.differences(y)
        there_rows = jax.lax.optimization_barrier(rows(y, differences, space, asked))
        there = State(y, target.logdensity(y), differences, Known(there_rows, asked))
        forward = jnp.where(here.weights.max() > 0, here.log_prob(chosen), jnp.inf)
        return Proposed(there, forward, there_rows.log_prob(back), (chosen > 0).sum())

    tuned = Tuned("step_size", lambda space: BOUNDS[proposal]) if adapt else None
    params = {"step_size": START if adapt else float(step_size), "scale": 1.0}
    kernel = metropolis(propose, nothing_known, tuned, adjusted)
    return kernel._replace(scaled=has_units) if proposal == "dlp" else kernel, params


def flips_only(space: Space) -> bool:
    return space.K == 2 and not space.windowed.any()


def moves_of(x, differences, space: Space):
    """(differences (d, k), values (d, k), current (d, k)); k = 1 where every site has two values, else K."""
    if flips_only(space):
        place = x - space.lower
        other = jnp.where(place == 0, differences[:, 1], differences[:, 0])
        return other[:, None], (2 * space.lower + 1 - x)[:, None], np.zeros((space.d, 1), bool)
    values, _ = space.neighbours(x)
    return differences, values, ~space.windowed[:, None] & (values == x[:, None])


def arrived(x, chosen, space: Space):
    """(y (d,), the choices that lead back)."""
    if flips_only(space):
        return jnp.where(chosen > 0, 2 * space.lower + 1 - x, x), chosen
    column = jnp.maximum(chosen - 1, 0)
    values, _ = space.neighbours(x)
    y = jnp.where(chosen > 0, jnp.take_along_axis(values, column[:, None], axis=1)[:, 0], x)
    opposite = jnp.take_along_axis(jnp.asarray(space.opposite), column[:, None], axis=1)[:, 0]
    back = jnp.where(space.windowed, opposite, x - space.lower)
    return y, jnp.where(chosen > 0, back + 1, 0)
