"""What stands for programs that take long to compile, in tests that are not about them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

FEW = 500  # numbers in the draws for which a program is interpreted


class Words(NamedTuple):
    """Keys of random numbers as integers, which the interpreter takes."""

    of_keys: Any


class Interpreting:
    """The module `jax`, whose `jit` interprets what is called for a few draws."""

    def __getattr__(self, name):
        return getattr(jax, name)

    @staticmethod
    def jit(function):
        def of_words(arguments):
            def keys_of(leaf):
                words = isinstance(leaf, Words)
                return jax.random.wrap_key_data(leaf.of_keys.astype(jnp.uint32)) if words else leaf

            return function(*jax.tree.map(keys_of, arguments, is_leaf=lambda leaf: isinstance(leaf, Words)))

        def words_of(leaf):
            keys = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            return Words(np.asarray(jax.random.key_data(leaf), np.int64)) if keys else leaf

        from tests.tools.interpreted import interpreted

        interpreter = interpreted(of_words)

        def run(*arguments):
            if sum(leaf.size for leaf in jax.tree.leaves(arguments)) > FEW:
                return jax.jit(function)(*arguments)
            return interpreter(jax.tree.map(words_of, arguments))

        return run


@pytest.fixture(scope="module")
def interpreted_sums():
    """Sums for PyTensor, and those of draws that exist already, are interpreted where they are few."""
    # imported here, since PyMC chooses the level of its log by what has been set up when it is imported
    from pymc_discrete.collapse import log_likelihood, marginal_op, recover
    from tests.tools.interpreted import interpreted_at_first

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marginal_op, "jitted", interpreted_at_first)
        for module in (log_likelihood, recover):
            patch.setattr(module, "jax", Interpreting())
        yield
