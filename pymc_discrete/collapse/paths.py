"""Sums along paths, one site after another, for many paths at once.

The sites of a path have an order in which each site interacts at most with the next w sites, where w is the
width of the path: 1 in a chain or a tree, n in a chain in which a state depends on the n states before it. A
message is a table of w consecutive sites: for each combination of their values it has the logarithm of the
sum over all sites before them. A step sums out the first of these w sites and adds the site that follows
them; with K values of each site it takes K^(w + 1) operations. Halving the path in every stage takes K^(2 w +
1) for each site, and is faster on an accelerator, where many small operations one after another are slow.

Sites may have different numbers of values, if these repeat after e sites: a round is e steps, and functions
take lists of e arrays. In these, K is the number of values of the site that a step sums out, M is the number
of combinations of values of the w - 1 sites after it, and N is the number of values of the site that is
added.
"""

from typing import Any

import jax
import jax.numpy as jnp

# If an element of a matrix product is smaller than this, the product is computed in logarithms instead, since
# summands of the element may have been too small for a float of its type.
SMALLEST_PRODUCT = {"float64": 1e-250, "float32": 1e-30}


@jax.custom_vjp
def messages(unary, pairs):
    """The messages that arrive along paths: tables of w consecutive sites, each the logarithm of the sum over
    all sites before them.

    Parameters
    ----------
    unary : [(L, B, K) nats], the tables of the sites that are summed out in L rounds, of each of B paths
    pairs : [(L, B, K, M, N) nats], the tables of each of these sites with the w sites after it

    Returns
    -------
    arriving : [(L, B, K, M) nats], the message at each of the sites that are summed out; 0 at the first site
    last : (B, M, N) nats, the message at the w sites at the end
    """
    return _forward(unary, pairs)[0]


def first_message(unary, pairs):
    """(B, K, M) nats, the message at the first site, which is 0."""
    return jnp.zeros((*unary[0].shape[1:], pairs[0].shape[3]))


def site_summed(before, pair):
    """The message (B, M, N) nats after a site is summed out, and (B, K, M, N) the probabilities of its
    values, given the values of the sites after it.

    Parameters
    ----------
    before : (B, K, M) nats, the message that arrives at the site, plus the site's own table
    pair : (B, K, M, N) nats, the table of the site with the w sites after it
    """
    terms = before[..., None] + pair
    largest = finite_or_zero(terms.max(1, keepdims=True))
    weights = jnp.exp(terms - largest)
    total = weights.sum(1, keepdims=True)
    possible = total > 0
    some = jnp.where(possible, total, 1.0)
    new = (jnp.where(possible, jnp.log(some), -jnp.inf) + largest)[:, 0]
    return new, weights / some


def _forward(unary, pairs):
    def round_of(message, tables):
        arriving, probabilities = [], []
        for own, pair in zip(*tables, strict=True):
            arriving.append(message.reshape(pair.shape[:3]))
            message, p = site_summed(arriving[-1] + own[..., None], pair)
            probabilities.append(p)
        return message.reshape(start.shape), (arriving, probabilities)

    start = first_message(unary, pairs)
    last, (arriving, probabilities) = jax.lax.scan(round_of, start, (unary, pairs))
    return (arriving, last.reshape(shape_at_end(pairs))), probabilities


def shape_at_end(pairs):
    """(B, M, N), the shape of the message at the end of paths."""
    _, B, _, M, N = pairs[-1].shape
    return B, M, N


def _backward(probabilities, slopes):
    """The derivatives with respect to `unary` and `pairs`, the arguments of `messages`, from the derivatives
    `slopes` with respect to its results.

    The argument `probabilities` [(L, B, K, M, N)] has the probabilities of the values of each site given the
    sites after it.
    """

    def round_of(slope, given):
        of_sites, of_pairs = [], []
        for probability, more in [*zip(*given, strict=True)][::-1]:
            of_pairs.append(probability * slope.reshape(probability[:, 0].shape)[:, None])
            of_message = of_pairs[-1].sum(3)
            of_sites.append(of_message.sum(2))
            slope = of_message + more
        return slope.reshape(shape), (of_sites[::-1], of_pairs[::-1])

    arriving, last = slopes
    shape = last.shape
    _, found = jax.lax.scan(round_of, last, (probabilities, arriving), reverse=True)
    return found


messages.defvjp(_forward, _backward)


def largest_along(unary, pairs):
    """The messages along paths if each is the largest summand in place of the logarithm of a sum: the largest
    log weight that the sites before can have, for all combinations of values of w sites.

    Parameters
    ----------
    unary : [(L, B, K) nats], the tables of the sites that are taken out in L rounds, of each of B paths
    pairs : [(L, B, K, M, N) nats], the tables of each of these sites with the w sites after it

    Returns
    -------
    arriving : [(L, B, K, M) nats], the message at each of the sites; 0 at the first site
    last : (B, M, N) nats, the message at the w sites at the end
    """

    def round_of(message, tables):
        arriving = []
        for own, pair in zip(*tables, strict=True):
            arriving.append(message.reshape(pair.shape[:3]))
            message = ((arriving[-1] + own[..., None])[..., None] + pair).max(1)
        return message.reshape(start.shape), arriving

    start = first_message(unary, pairs)
    last, arriving = jax.lax.scan(round_of, start, (unary, pairs))
    return arriving, last.reshape(shape_at_end(pairs))


def assigned_backward(pick, given, weights, pairs, ends, counts, common=None):
    """[(L, B) int], the index of each site's value, from the end of each path to its start.

    Parameters
    ----------
    pick : (given, weights (B, K) nats) -> (B,) int, the index of the value that a site gets, such as a draw
    given : [(L, B, ...)], the first argument of `pick` for each site
    weights : [(L, B, K, M) nats], the table of each site plus the message that arrives at it
    pairs : [(L, B, K, M, N) nats], the tables of each site with the w sites after it; with `common`
        [(U, K, M, N) nats], the different ones among these tables
    common : [(L,) int], for the sites of each round, the index in `pairs` of the one table of all paths
    ends : (B, w) int, the indices of the values at the end of each path
    counts : e int, the numbers of values of the sites, which repeat after e sites
    """

    def round_of(after, given):
        found = []
        for step, (one, weight, pair) in [*enumerate(zip(*given, strict=True))][::-1]:
            *some, new = jnp.moveaxis(after, -1, 0)
            K = [counts[(step + n) % len(pairs)] for n in range(1, len(some) + 1)]
            place = jnp.ravel_multi_index(some, K, mode="clip") if some else jnp.zeros_like(new)
            each = jnp.arange(len(new))
            at = pair[each, :, place, new] if common is None else pairs[step][pair][:, place, new].T
            found.append(pick(one, weight[each, :, place] + at))
            after = jnp.stack([found[-1], *some], axis=-1)
        return after, found[::-1]

    each = pairs if common is None else [jnp.asarray(c) for c in common]
    index: Any = jax.lax.scan(round_of, ends, (given, weights, each), reverse=True)[1]
    return index


@jax.custom_vjp
def messages_in_common(unary, pairs, common):
    """The messages that arrive along paths which all have the same tables of a site and the next sites.

    A message is a table of w consecutive sites, the logarithm of the sum over all sites before them. The sums
    over the values of a site are then one product of matrices for all paths. Where an entry of the product is
    too small for a float, the sums over this site's values are taken in logarithms.

    Parameters
    ----------
    unary : [(L, B, K) nats], the tables of the single sites that are summed out in L rounds, of B paths
    pairs : [(U, K, M, N) nats], the different tables of a site and the next sites
    common : [(L,) int], for each site that is summed out, the index of its table in `pairs`

    Returns
    -------
    arriving : [(L, B, K, M) nats], the message at each of the sites that are summed out; 0 at the first site
    last : (B, M, N) nats, the message at the w sites at the end
    """
    return _forward_in_common(unary, pairs, common)[0]


def finite_or_zero(largest):
    """The largest of some numbers, which is then subtracted from each; 0 if all are -inf, since -inf less
    -inf is nan.
    """
    return jnp.where(jnp.isfinite(largest), largest, 0.0)


def exponentials(tables):
    """exp(tables - top) (U, K, M, N), in which no number is above 1, and top (U, M, N), the largest entry of
    `tables` over the K values.
    """
    top = finite_or_zero(tables.max(1))
    return jnp.exp(tables - top[:, None]), top


def _forward_in_common(unary, pairs, common):
    scaled = [exponentials(tables) for tables in pairs]

    def of_site(before, u, tables, weights, top):
        largest = finite_or_zero(before.max(1, keepdims=True))
        total = jnp.einsum("bkm,kmn->bmn", jnp.exp(before - largest), weights[u])
        positive = total > 0
        logs = jnp.where(positive, jnp.log(jnp.where(positive, total, 1.0)), -jnp.inf)
        product = logs + largest[:, 0, :, None] + top[u]
        small = total < SMALLEST_PRODUCT[str(total.dtype)]

        def lost():
            some, others = (jnp.asarray(a > -jnp.inf, float) for a in (before, tables[u]))
            return (small & (jnp.einsum("bkm,kmn->bmn", some, others) > 0)).any()

        apart = jax.lax.cond(small.any(), lost, lambda: jnp.array(False))
        return jax.lax.cond(apart, lambda: site_summed(before, tables[u][None])[0], lambda: product), apart

    def round_of(message, given):
        arriving, apart = [], []
        for own, u, tables, (weights, top) in zip(*given, pairs, scaled, strict=True):
            arriving.append(message.reshape(len(message), *tables.shape[1:3]))
            message, one_by_one = of_site(arriving[-1] + own[..., None], u, tables, weights, top)
            apart.append(one_by_one)
        return message.reshape(start.shape), (arriving, apart)

    start = jnp.zeros((*unary[0].shape[1:], pairs[0].shape[2]))
    last, (arriving, apart) = jax.lax.scan(round_of, start, (unary, common))
    last = last.reshape(len(last), *pairs[-1].shape[2:])
    return (arriving, last), (unary, pairs, common, arriving, last, apart)


def _backward_in_common(kept, slopes):
    unary, pairs, common, arriving, last, apart = kept
    scaled = [exponentials(tables) for tables in pairs]
    slope_arriving, slope_last = slopes

    def of_site(slope, before, new, u, one_by_one, tables, weights, top):
        possible = new > -jnp.inf
        some = jnp.where(possible, new, 0.0)
        slope = jnp.where(possible, slope, 0.0)

        def product():
            largest = finite_or_zero(before.max(1, keepdims=True))
            # The message is the logarithm of the matrix product, so that its derivatives `slope` are divided
            # by the elements of the product.
            divided = slope * jnp.exp(jnp.where(possible, largest[:, 0, :, None] + top[u] - some, 0.0))
            left = jnp.exp(before - largest)
            of_message = left * jnp.einsum("bmn,kmn->bkm", divided, weights[u])
            return of_message, weights[u] * jnp.einsum("bkm,bmn->kmn", left, divided)

        def each():
            of_pairs = jnp.exp(before[..., None] + tables[u] - some[:, None]) * slope[:, None]
            return of_pairs.sum(3), of_pairs.sum(0)

        return jax.lax.cond(one_by_one, each, product)

    def round_of(slope, given):
        of_sites, of_pairs = [], []
        steps = [*zip(*given, pairs, scaled, strict=True)][::-1]
        for before, new, u, one_by_one, more, tables, (weights, top) in steps:
            new, slope = (a.reshape(len(a), *tables.shape[2:]) for a in (new, slope))
            of_message, of_pair = of_site(slope, before, new, u, one_by_one, tables, weights, top)
            of_sites.append(of_message.sum(2))
            of_pairs.append(of_pair)
            slope = of_message + more
        return slope.reshape(last.shape), (of_sites[::-1], of_pairs[::-1])

    # The sum over a site's values is the message that arrives at the next site: for the last of every e
    # sites, at the first of the next e, and at the end of the path.
    first = jnp.concatenate([arriving[0][1:], last.reshape(1, *arriving[0].shape[1:])])
    before = [a + own[..., None] for a, own in zip(arriving, unary, strict=True)]
    given = (before, [*arriving[1:], first], common, apart, slope_arriving)
    _, (of_sites, of_pairs) = jax.lax.scan(round_of, slope_last, given, reverse=True)
    found = [jnp.zeros_like(t).at[u].add(of) for t, u, of in zip(pairs, common, of_pairs, strict=True)]
    return of_sites, found, None


messages_in_common.defvjp(_forward_in_common, _backward_in_common)
