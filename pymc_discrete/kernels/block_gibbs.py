"""Block Gibbs: exact conditionals, colour by colour or site by site."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pymc_discrete.kernels.balancing import LARGEST_DIFFERENCE
from pymc_discrete.kernels.categorical import running_sum
from pymc_discrete.kernels.kernel import Info, Kernel, State, evaluate
from pymc_discrete.targets.space import Variable, picked

UNROLLED = 8  # colours of one variable that are compiled one by one; more are looped over


def block_gibbs() -> tuple[Kernel, dict[str, float]]:
    r"""The block Gibbs kernel: one step draws every site from its conditional.

    Sites that do not interact are drawn together, one colour of the interaction graph after another; sites of a dense term are
    scanned one by one. A site with a window W(x) instead of a full support draws y from its window and x itself, and accepts with

    .. math:: \min\{1, Z(x) / Z(y)\}, \qquad Z(x) = p(x) + \sum_{w \in W(x)} p(w)

    A step reverses the order of its sweep by a fair coin, so that it is reversible and not only invariant. The sweeps of a draw
    (`sweeper`) keep one order: after a reversal the same sites are drawn twice running, and the first time is lost.

    Returns
    -------
    kernel : Kernel
    params : {}

    References
    ----------
    Geman and Geman 1984, Stochastic relaxation, Gibbs distributions, and the Bayesian restoration of images.
    Zanella 2020, Informed proposals for local MCMC in discrete spaces (the acceptance Z(x) / Z(y)).
    """

    def sweeper(target):
        check_exact(target)
        visits = visits_of(target)

        def sweep(key, x, params):
            carried = x, jnp.zeros(())
            for t, visit in enumerate(visits):
                carried = visit(jax.random.fold_in(key, t), carried, False)
            return told(carried, target.space)

        return sweep

    def init(x, target) -> State:
        return evaluate(jnp.asarray(x), target, nothing)

    def step(key, state: State, target, params: Any) -> tuple[State, Info]:
        check_exact(target)
        x, info = there_or_back(key, state.x, target)
        return init(x, target), info

    def refresh(state: State, target) -> State:
        return init(state.x, target)

    return Kernel(init, step, refresh, sweeper=sweeper), {}


def check_exact(target) -> None:
    if not target.exact:
        raise ValueError("Block Gibbs needs exact conditionals, and this target has first-order differences.")


def there_or_back(key, x, target) -> tuple[Any, Info]:
    """A sweep in either order, by a fair coin."""
    key_coin, key_visits = jax.random.split(key)
    backward, visits = jax.random.bernoulli(key_coin), visits_of(target)
    backs = len(visits) - 1

    def visit(t, carried):
        # there and back, where one of the two does nothing: all chains of a batch make the same visit, whatever their coins
        on = (t == backs) | ((t > backs) == backward)
        branches = [lambda c, v=v: v(jax.random.fold_in(key_visits, t), c, backward) for v in visits]
        return jax.lax.cond(on, lambda c: jax.lax.switch(backs - jnp.abs(t - backs), branches, c), lambda c: c, carried)

    start = (x, jnp.zeros(()))
    carried = jax.lax.fori_loop(0, 2 * backs + 1, visit, start) if backs else visits[0](key_visits, start, backward)
    return told(carried, target.space)


def told(carried, space) -> tuple[Any, Info]:
    """(x, what the sweep did) from where it ended and the sum of its acceptances."""
    x, accept = carried
    accept = 1.0 - (int(space.windowed.sum()) - accept) / space.d
    return x, Info(accept, accept, jnp.asarray(space.d))


def nothing(x, differences, space) -> tuple:
    return ()


def visits_of(target) -> list:
    """The visits that make a sweep: (key, (x, sum of acceptance), backward) -> the same after them."""
    visits = []
    for n in range(len(target.space.variables)):
        own = [sites for m, sites in target.colours if m == n]
        visits += [visit_colour(target, n, sites) for sites in own] if len(own) <= UNROLLED else [visit_colours(target, n, own)]
    return visits + [scan(target, n, sites) for n, sites in target.scanned]


def visit_colour(target, n: int, sites: np.ndarray):
    """Draw the sites of one colour together."""
    start, v = target.space.blocks[n]
    of = (target.logits if v.finite else target.rows)(n, sites)
    every = len(sites) == v.size
    place = np.zeros(v.size, int)
    place[sites] = np.arange(len(sites))
    mine = np.isin(np.arange(v.size), sites)

    def put(x, values):
        # a select by static places: scattering is slow; and behind a barrier, or XLA draws anew for every site it puts
        values = jax.lax.optimization_barrier(values)
        block = values if every else jnp.where(mine, values[place], x[start : start + v.size])
        return jax.lax.dynamic_update_slice(x, block, (start,))

    def visit(key, carried, backward):
        x, total = carried
        now = x[start : start + v.size] if every else x[start + sites]
        values, accept = draw(key, v, sites, now, of(x), lambda values: of(put(x, values)))
        return put(x, values), total + accept.sum()

    return visit


def visit_colours(target, n: int, colours: list[np.ndarray]):
    """Draw many colours in turn, in a loop over a padded table of their sites."""
    start, v = target.space.blocks[n]
    width = max(map(len, colours))
    table = np.stack([np.pad(sites, (0, width - len(sites)), mode="edge") for sites in colours])
    count = np.array([len(sites) for sites in colours])
    colour, place = np.full(v.size, -1), np.zeros(v.size, int)
    for c, sites in enumerate(colours):
        colour[sites], place[sites] = c, np.arange(len(sites))

    def visit(key, carried, backward):
        def body(t, carried):
            x, total = carried
            c = jnp.where(backward, len(colours) - 1 - t, t)
            sites = jnp.asarray(table)[c]
            of = (target.logits if v.finite else target.rows)(n, sites)

            def put(values):
                values = jax.lax.optimization_barrier(values)
                block = jnp.where(colour == c, values[place], x[start : start + v.size])
                return jax.lax.dynamic_update_slice(x, block, (start,))

            values, accept = draw(jax.random.fold_in(key, t), v, sites, x[start + sites], of(x), lambda values: of(put(values)))
            return put(values), total + jnp.where(np.arange(width) < jnp.asarray(count)[c], accept, 0.0).sum()

        return jax.lax.fori_loop(0, len(colours), body, carried)

    return visit


def scan(target, n: int, sites: np.ndarray):
    """Draw single sites in turn, carrying what they mix in."""
    start, v = target.space.blocks[n]

    def visit(key, carried, backward):
        def body(t, carried):
            x, total, u = carried
            t = jnp.where(backward, len(sites) - 1 - t, t)
            site = t if len(sites) == v.size else jnp.asarray(sites)[t]
            now = x[start + site]

            def after(value):
                return x.at[start + site].set(value), target.moved(n, site, value, x, u)

            def again(values):
                y, there = after(values[0])
                return target.row(n, site, y, there)

            values, accept = draw(jax.random.fold_in(key, t), v, site[None], now[None], target.row(n, site, x, u), again)
            y, there = jax.lax.cond(values[0] == now, lambda: (x, u), lambda: after(values[0]))
            return y, total + accept.sum(), there

        x, total = carried
        x, total, _ = jax.lax.fori_loop(0, len(sites), body, (x, total, target.carried(x)))
        return x, total

    return visit


def draw(key, v: Variable, rows, now, differences, again) -> tuple[Any, Any]:
    """New values of sites of one variable, given all others.

    Parameters
    ----------
    v : the variable
    rows : (r,) int, the sites, counted within it
    now : (r,) int, their values
    differences : (r, K) nats; for finite variables up to a constant a site, or (r, 1) the log odds of the upper of two values
    again : (values (r,)) -> (r, K) nats, the differences once the sites are there

    Returns
    -------
    values : (r,) int
    accept : (r,) float, acceptance probability of windowed sites, 0 (r, 1) for exact draws
    """
    exact = jnp.zeros((1,))
    differences = jax.lax.optimization_barrier(differences)  # computed once, though read several times
    if v.finite and (v.counts == 2).all():
        odds = differences[:, 0] if differences.shape[1] == 1 else differences[:, 1] - differences[:, 0]
        one = jax.random.uniform(key, now.shape) < jax.nn.sigmoid(odds)
        return (picked(v.lower, rows) + one).astype(now.dtype), exact
    if v.finite:
        k = choose(jax.random.uniform(key, now.shape), differences)
        return jnp.where(k < v.K, picked(v.lower, rows) + k, now).astype(now.dtype), exact
    d = jnp.minimum(differences, LARGEST_DIFFERENCE)
    u = jax.random.uniform(key, (2, *now.shape))
    # the current value is in the window: entry 0
    k = choose(u[0], jnp.concatenate([jnp.zeros_like(d[:, :1]), d], axis=1))
    offsets = jnp.asarray(np.append(0, np.asarray(v.offsets)), now.dtype)
    step = jnp.where(k <= v.K, offsets[jnp.minimum(k, v.K)], 0)
    gain = jnp.where(step == 0, 0.0, jnp.take_along_axis(d, jnp.maximum(k - 1, 0)[:, None], axis=1, mode="clip")[:, 0])
    there = jnp.minimum(jax.lax.optimization_barrier(again(now + step)), LARGEST_DIFFERENCE)
    # Zanella 2020: min{1, Z(x) / Z(y)}, with Z relative to p(x) and to p(y)
    log_ratio = log_window(d) - gain - log_window(there)
    accept = jnp.exp(jnp.minimum(log_ratio, 0.0))
    # an impossible value is left for any possible one
    accept = jnp.where((step == 0) | (gain >= LARGEST_DIFFERENCE), 1.0, jnp.where(jnp.isnan(accept), 0.0, accept))
    return jnp.where(u[1] < accept, now + step, now), accept


def log_window(d):
    """(r,) log of a site's window and its own value together, relative to its own."""
    top = jnp.maximum(d.max(axis=1), 0.0)
    return top + jnp.log(jnp.exp(-top) + jnp.exp(d - top[:, None]).sum(axis=1))


def choose(uniforms, log_weights):
    """(r,) int, inverse-CDF draws from the rows of `log_weights` (r, K); K where rounding leaves none. Weight 0 is never drawn."""
    K = log_weights.shape[1]
    log_weights = jnp.minimum(log_weights, jnp.finfo(log_weights.dtype).max)  # an error of the model: go there, and it is seen
    w = jnp.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    if K > 8:
        ends = running_sum(w)
        chosen = (ends > (uniforms * ends[:, -1])[:, None]) & (w > 0)
        return jnp.where(chosen, np.arange(K), K).min(axis=1)
    total = sum(w[:, k] for k in range(K))
    t, end, chosen = uniforms * total, jnp.zeros_like(total), jnp.full(uniforms.shape, K)
    for k in range(K):
        end = end + w[:, k]
        chosen = jnp.where((chosen == K) & (end > t) & (w[:, k] > 0), k, chosen)
    return chosen
