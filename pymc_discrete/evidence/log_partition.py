"""Log partition functions of targets by annealed importance sampling from independent sites."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.evidence.annealed import Annealed, base_of, draw_base, log_base
from pymc_discrete.evidence.estimate import (
    LogZ,
    backward_estimate,
    check_temperatures,
    estimated_shares,
    forward_estimate,
)
from pymc_discrete.kernels import Kernel, block_gibbs, gibbs_with_gradients, loop
from pymc_discrete.kernels.random import key_of
from pymc_discrete.runtime.checks import check_count, check_switch
from pymc_discrete.runtime.jax_settings import default_settings
from pymc_discrete.space.space import Space
from pymc_discrete.space.target import Target

# The number of batches of draws of the base, each with as many draws as there are chains, in which draws of
# positive density are looked for.
BATCHES = 100


def log_partition(
    target: Target,
    *,
    base: dict[str, Any] | None = None,
    temperatures: Any = 1000,
    chains: int = 100,
    kernel: tuple[Kernel, dict[str, Any]] | None = None,
    transitions: int = 1,
    draws: Any = None,
    exact: bool = False,
    seed: int = 0,
) -> LogZ:
    r"""The logarithm of the sum of a target's density over all states, by annealed importance sampling.

    Chains go from a base of independent sites, whose constant is known, through the densities

    .. math:: f_t(x) = \beta_t f(x) + (1 - \beta_t) \log p_0(x), \qquad
        \log w = \sum_t (\beta_t - \beta_{t-1}) \bigl(f(x_{t-1}) - \log p_0(x_{t-1})\bigr)

    where x_t is drawn by a kernel that leaves f_t invariant. The mean of w is unbiased for Z. With `draws` of
    the target, chains also go back, and the mean of their weights estimates 1 / Z.

    Draws of the base at which the target's density is 0 are replaced by others, since no chain that goes back
    reaches such a state. The share of draws that are kept is a factor of both estimates.

    Parameters
    ----------
    target : Target
        Of finite sites: `pmd.target_from_logdensity(fn, space)`; of a factor graph, `graph.to_target()`; of a
        model of `pmd.learning`, `model.target(params)`.
    base : {name: (..., K)}, optional
        Probabilities of the values of each site; by default all are equal. Near the target's own marginals,
        such as the means of the data, fewer temperatures are needed.
    temperatures : int or (T + 1,) float
        The number of equal steps, or the inverse temperatures from 0 to 1.
    chains : int
    kernel : (Kernel, params), optional
        The result of `pmd.kernels.gibbs_with_gradients()` or of another function of `pmd.kernels`. Nothing is
        tuned here, since a kernel that adapts to the chains that are weighed makes the estimate biased. By
        default `block_gibbs` where differences are exact, else `gibbs_with_gradients`.
    transitions : int, of the kernel at every temperature
    draws : (n, d) int or {name: (n, ...)}, optional
        Draws of the target to go back from.
    exact : bool
        Whether `draws` are exact and independent, as from an enumeration, and not from a Markov chain. Only
        then is the backward estimate above log Z in expectation.
    seed : int

    Returns
    -------
    LogZ

    Raises
    ------
    TypeError, ValueError
        For a space on which no base of independent sites is possible, a density that is 0 at nearly all draws
        of the base, draws outside of the space or of density 0, and invalid options.

    References
    ----------
    Neal 2001, Annealed importance sampling. Grathwohl et al. 2021, Eq. 35. Grosse, Ghahramani and Adams 2015,
    Sandwiching the marginal likelihood using bidirectional Monte Carlo. Haldane 1945, On a method of
    estimating frequencies.

    Examples
    --------
    >>> space = pmd.Space.build({"x": (0, 1)}, shapes={"x": (3,)})
    >>> target = pmd.target_from_logdensity(lambda x: 1.0 * x[0] * x[1] - x[2], space)
    >>> found = pmd.learning.log_partition(target, temperatures=100)
    >>> abs(found.value - np.log((3 + np.e) * (1 + np.exp(-1)))) < 5 * found.error
    True
    """
    if not isinstance(target, Target):
        raise TypeError(
            f"target must be a Target, got {type(target).__name__}: make one by "
            "pmd.target_from_logdensity(fn, space), or by graph.to_target() of a factor graph."
        )
    check_count("chains", chains, 2)
    check_count("transitions", transitions, 1)
    check_count("seed", seed, 0)
    check_switch("exact", exact)
    path = check_temperatures(temperatures)
    if kernel is None:
        kernel = usual_kernel(target.exact)
    if not (isinstance(kernel, tuple) and len(kernel) == 2 and isinstance(kernel[0], Kernel)):
        raise TypeError(
            f"kernel must be (Kernel, params), as pmd.kernels.block_gibbs() returns, got {kernel!r}."
        )
    table = base_of(target.space, base)
    starts = None if draws is None else states_of(target.space, draws)
    key_start, key_forward, key_backward = jax.random.split(key_of(seed), 3)
    with target.density.running(traced=False):
        run = partial(
            weigh, target=target, base=table, params=kernel[1], kernel=kernel[0], transitions=transitions
        )
        first, tries = possible_draws(key_start, target, table, chains)
        share, share_back, variance = estimated_shares(chains, tries)
        found = forward_estimate(
            finite_log_weights(run(jax.random.split(key_forward, chains), x=first, path=path)),
            share,
            variance,
        )
        back = None
        if starts is not None:
            keys = jax.random.split(key_backward, len(starts))
            log_weights = finite_log_weights(run(keys, x=starts, path=path[::-1].copy()))
            back = backward_estimate(log_weights, share_back, variance)
    result = LogZ(found, back, exact and back is not None, path)
    result.complain()
    return result


@cache  # JAX compiles anew for each kernel object, so that one object is kept.
def usual_kernel(exact: bool) -> tuple[Kernel, dict[str, Any]]:
    """The default kernel: block Gibbs if differences are exact, else Gibbs-With-Gradients."""
    return block_gibbs() if exact else gibbs_with_gradients()


@default_settings()
def draw_starts(keys: Any, base: Any, space: Space) -> Any:
    """(n, d) int, draws of the base."""
    return jax.vmap(lambda key: draw_base(key, base, space))(keys)


@jax.jit
def target_log_densities(target: Target, x: Any) -> Any:
    """(n,) float, nats, the target's log density at x (n, d)."""
    return jax.vmap(target.logdensity)(x)


def possible_draws(key: Any, target: Target, base: Any, n: int) -> tuple[np.ndarray, int]:
    """(n, d) int, draws of the base at which the density is not 0, and the number of draws up to the n-th.

    Raises
    ------
    ValueError
        If draws of positive density are rare.
    """
    kept = np.empty((0, target.space.d), int)
    for batch in range(BATCHES):
        x = draw_starts(jax.random.split(jax.random.fold_in(key, batch), n), base, target.space)
        # A draw with a density of nan is kept: `finite_log_weights` raises an error for it.
        possible = np.flatnonzero(np.asarray(target_log_densities(target, x)) != -np.inf)[: n - len(kept)]
        kept = np.concatenate([kept, np.asarray(x)[possible]])
        if len(kept) == n:
            return kept, batch * n + int(possible[-1]) + 1
    raise ValueError(
        f"The density is 0 at all but {len(kept)} of {BATCHES * n} draws of the base, so that no chain can "
        "start there. Pass base= with probabilities near those of the target."
    )


@partial(jax.jit, static_argnames=("kernel", "transitions"))
def weigh(
    keys: Any, target: Target, base: Any, x: Any, path: Any, params: Any, kernel: Kernel, transitions: int
) -> Any:
    """(n,) float, nats, the log weights of chains that start at x (n, d); see `log_weight`."""
    return jax.vmap(lambda key, x: log_weight(key, target, base, x, path, kernel, params, transitions))(
        keys, x
    )


def log_weight(
    key: Any, target: Target, base: Any, x: Any, path: Any, kernel: Kernel, params: Any, transitions: Any
) -> Any:
    """() float, nats, the log weight of one chain along a path; pure JAX.

    Parameters
    ----------
    target : Target
    base : (d, K) float, nats, the log probabilities of the values of each site in the base
    x : (d,) int, a draw of the density at path[0]
    path : (T + 1,) float, inverse temperatures, from 0 to 1 or back
    kernel, params : the kernel and its frozen parameters
    transitions : the number of transitions of the kernel at every temperature
    """
    annealed = Annealed(target.density)

    def increment(t: Any, x: Any) -> Any:
        return (path[t + 1] - path[t]) * (target.logdensity(x) - log_base(base, x, target.space))

    def step(t: Any, carried: tuple[Any, Any]) -> tuple[Any, Any]:
        # The log weight grows by a term of the state before the move, not after it (Neal 2001).
        x, logw = carried
        logw = logw + increment(t, x)
        there = annealed.at(target, path[t + 1], base)
        state, _ = loop(kernel, jax.random.fold_in(key, t), kernel.init(x, there), there, params, transitions)
        return state.x, logw

    # A move at the last temperature would not change the weight.
    last = len(path) - 2
    x, logw = jax.lax.fori_loop(0, last, step, (x, jnp.zeros(())))
    return logw + increment(last, x)


def finite_log_weights(log_weights: Any) -> np.ndarray:
    """The log weights on the host.

    Raises
    ------
    ValueError
        If a log weight is nan or +inf.
    """
    weights = np.asarray(log_weights)
    if (np.isnan(weights) | (weights == np.inf)).any():
        raise ValueError(
            "The log density became nan or +inf along the path, or is -inf at some of the draws. It must be "
            "finite, or -inf where the density is 0, and draws= must have positive density."
        )
    return weights


def states_of(space: Space, draws: Any) -> np.ndarray:
    """(n, d) int, the draws that a user gives.

    Raises
    ------
    ValueError
        If the draws do not fit the space.
    """
    if isinstance(draws, dict):
        missing = [m.name for m in space.members if m.name not in draws]
        if missing:
            raise ValueError(f"draws lacks {missing[0]!r}. It must have every variable of the target.")
        draws = np.concatenate([np.asarray(draws[m.name]).reshape(-1, m.size) for m in space.members], axis=1)
    states = np.asarray(draws)
    if states.ndim != 2 or states.shape[1] != space.d or not len(states) or states.dtype.kind not in "iub":
        raise ValueError(
            f"draws must be integers (n, {space.d}), a row for each draw, got {states.dtype} of shape "
            f"{states.shape}."
        )
    states = states.astype(int)
    if not (space.contains(states)).all():
        raise ValueError("draws has values outside of the target's support.")
    return states
