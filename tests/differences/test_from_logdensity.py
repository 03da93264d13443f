"""Targets of JAX functions: gradients in one-hot encodings, and one pass for the value and the gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pymc_discrete as pmd
from pymc_discrete.kernels import discrete_langevin, gibbs_with_gradients, path_auxiliary
from tests.tools.enumeration import check_kernel, enumerate_target

RNG = np.random.default_rng
# names without an order: of two, three and four values, counted from 2
NAMES = pmd.Space.build({"a": (0, 1), "b": (2, 4), "c": (0, 3)}, nominal=["a", "b", "c"])
RANGES = [range(low, up + 1) for low, up in zip(NAMES.lower, NAMES.upper, strict=True)]


def weights(seed: int, scale: float = 1.0):
    """h (d, K), J (d, K, d, K), whose blocks J_ii of one site are 0."""
    r, shape = RNG(seed), (NAMES.d, NAMES.K)
    J = scale * r.normal(size=shape + shape)
    J[np.arange(NAMES.d), :, np.arange(NAMES.d)] = 0
    return scale * r.normal(size=shape), J


def multilinear(x, h, J):
    return (h * x).sum() + jnp.einsum("ia,iajb,jb", x, J, x)


def network(x, h, J):
    """Not linear in the row of a site."""
    return 2.0 * jnp.tanh(0.5 * multilinear(x, h, J)) + jax.nn.softplus((x * h).sum(axis=1)).sum()


def of_names(function, differences, seed=0, scale=1.0):
    return pmd.target_from_logdensity(
        function, NAMES, differences=differences, one_hot=True, inputs=weights(seed, scale)
    )


def test_one_hot_gradient_is_exact_where_each_row_is_linear():
    """Eq. 4 against brute force, and the log density against one of its own."""
    by_gradient, exact = of_names(multilinear, "gradient"), of_names(multilinear, "exact")
    h, J = weights(0)
    for seed in range(4):
        x = RNG(seed).integers(NAMES.lower, NAMES.upper + 1)
        encoded = np.arange(NAMES.K) == (x - NAMES.lower)[:, None]
        logdensity, d = map(np.asarray, by_gradient.logdensity_and_differences(x))
        want = (h * encoded).sum() + np.einsum("ia,iajb,jb", encoded, J, encoded)
        np.testing.assert_allclose(logdensity, want, rtol=1e-12)
        np.testing.assert_allclose(d, np.asarray(exact.differences(x)), atol=1e-12)
        np.testing.assert_array_equal(d, np.asarray(by_gradient.differences(x)))


def test_a_gradient_of_names_is_alive_and_does_not_depend_on_their_numbers():
    """Elsewhere it is an estimate: its correlation with brute force is high, and to name the values in
    another order changes nothing.
    """
    h, J = weights(1, 0.5)
    order = [1, 0, 2, 3]  # of the values of "c", the last site, the only one of four
    swapped_h, swapped_J = h.copy(), J.copy()
    swapped_h[-1] = h[-1][order]
    swapped_J[-1] = J[-1][order]
    swapped_J[:, :, -1] = J[:, :, -1][:, :, order]
    first, brute = of_names(network, "gradient"), of_names(network, "exact")
    first, brute, renamed = (
        first.with_inputs((h, J)),
        brute.with_inputs((h, J)),
        first.with_inputs((swapped_h, swapped_J)),
    )
    got, want = [], []
    for seed in range(20):
        x = RNG(seed).integers(NAMES.lower, NAMES.upper + 1)
        d, exact = np.asarray(first.differences(x)), np.asarray(brute.differences(x))
        y = x.copy()
        y[-1] = order.index(x[-1])
        other = np.asarray(renamed.differences(y))
        np.testing.assert_allclose(other[:-1], d[:-1], atol=1e-12)
        np.testing.assert_allclose(other[-1], d[-1][order], atol=1e-12)
        moves = np.isfinite(exact) & (exact != 0)
        got.append(d[moves])
        want.append(exact[moves])
    assert np.corrcoef(np.concatenate(got), np.concatenate(want))[0, 1] > 0.8


KERNELS = {
    "gibbs with gradients": gibbs_with_gradients(),
    "gibbs with gradients, several": gibbs_with_gradients(2.0),
    "path auxiliary": path_auxiliary(path_length=2),
    "path auxiliary, no backtrack": path_auxiliary(path_length=2, backtrack=False),
    "langevin": discrete_langevin("dlp", 0.5),
    "langevin in continuous time": discrete_langevin("dlmc", 0.5),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_transition_is_one_pass(name):
    """The function is called once for the value and the gradient at the proposal, and once at a start."""
    calls = []

    def counted(x, h, J):
        calls.append(1)
        return network(x, h, J)

    target, (kernel, params) = of_names(counted, "gradient"), KERNELS[name]
    context = target.ready()

    def step(key, x, context):
        at = pmd.Target(target.density, context)
        return kernel.step(key, kernel.init(x, at), at, params)

    jax.eval_shape(step, jax.random.key(0), jnp.asarray(NAMES.lower), context)
    assert len(calls) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["path auxiliary, no backtrack", "langevin in continuous time"])
def test_kernels_leave_a_network_of_names_as_it_is(name):
    """Enumerated, with one-hot gradients that are estimates."""
    check_kernel(enumerate_target(of_names(network, "gradient", scale=0.5), RANGES), *KERNELS[name])


REFUSED = {
    "a window": (
        {"k": (0, None)},
        {"one_hot": True},
        "one_hot=True needs finite supports of at most 256 values, and 'k' has none",
    ),
    "a slope in names": (
        {"z": (0, 2)},
        {"differences": "gradient"},
        "The values of 'z' have no order, and the slope .* pass one_hot=True",
    ),
    "a word": ({"z": (0, 2)}, {"one_hot": "yes"}, "one_hot must be True or False, got 'yes'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    supports, options, message = REFUSED[name]
    space = pmd.Space.build(supports, nominal=[n for n in supports if n == "z"])
    with pytest.raises(ValueError, match=message):
        pmd.target_from_logdensity(lambda x: x.sum(), space, **options)


def test_names_of_two_values_have_a_slope():
    space = pmd.Space.build({"z": (0, 1)}, shapes={"z": (3,)}, nominal=["z"])
    target = pmd.target_from_logdensity(lambda x: x @ jnp.arange(3.0), space, differences="gradient")
    np.testing.assert_allclose(target.differences(np.array([0, 1, 0]))[:, 0], [0, -1, 0])
