"""The counted cost of functions of JAX in a log density."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pymc_discrete.structure.costs import COSTLY, of_jaxpr

A = np.ones((30, 20))


def looped(x):
    return jax.lax.scan(lambda carry, _: (jnp.tanh(carry), None), x, length=7)[0]


def convolved(x):
    return jax.lax.conv(x.reshape(1, 2, 5, 2), np.ones((3, 2, 2, 1)), (1, 1), "VALID")


CASES = {
    "a product with a matrix": (lambda x: A @ x, 2 * 30 * 20),
    "of many vectors": (lambda x: jax.vmap(lambda b: A @ b)(jnp.stack([x] * 4)), 4 * 2 * 30 * 20),
    "a function of each element": (jnp.tanh, 20 * COSTLY["tanh"]),
    "compiled, with a derivative of its own": (jax.nn.silu, 20 * COSTLY["sigmoid"]),
    "a loop": (looped, 7 * 20 * COSTLY["tanh"]),
    "a convolution": (convolved, 2 * (3 * 4 * 2) * 2 * 2),
}


@pytest.mark.parametrize("name", CASES)
def test_functions_of_jax(name):
    """What dominates is counted; moving and adding the elements comes on top."""
    function, least = CASES[name]
    cost = of_jaxpr(jax.make_jaxpr(function)(jax.ShapeDtypeStruct((20,), float)))
    assert least <= cost <= 1.5 * least + 10 * 20
