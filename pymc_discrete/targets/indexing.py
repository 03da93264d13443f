"""Indexing by what is known when a program is compiled: as slices and broadcasts, and not as gathers."""

import jax.numpy as jnp
import numpy as np


def picked(array: np.ndarray, rows):
    """`array[rows]`: static where `rows` is, everything where it is None."""
    if rows is None or isinstance(rows, np.ndarray):
        return array if rows is None else array[rows]
    return jnp.asarray(array)[rows]


def take(array, index: np.ndarray, rows=None):
    """`array[index]` for a flat array and a static index (R, ...); `rows` picks rows of the index, None is
    all of them.

    Regular indices become slices and broadcasts, which XLA fuses; the rest is a gather.
    """
    if isinstance(rows, np.ndarray):  # known when compiled: as static as the index
        index, rows = index[rows], None
    shape = index.shape if rows is None else (*jnp.shape(rows), *index.shape[1:])
    if index.size == 0:
        return jnp.zeros(shape, jnp.asarray(array).dtype)
    first = int(index.flat[0])
    if (index == first).all():
        return jnp.asarray(array)[first].reshape((1,) * len(shape))
    if (
        rows is None
        and index.size == np.shape(array)[0]
        and (index.reshape(-1) == np.arange(index.size)).all()
    ):
        return jnp.asarray(array).reshape(shape)
    for axis in range(index.ndim - 1, -1, -1):  # an axis along which nothing changes
        if index.shape[axis] > 1 and (index == index.take([0], axis)).all():
            if axis == 0:
                return take(array, index[0])[None]
            return take(array, index.take([0], axis), rows)
    if isinstance(array, np.ndarray) and rows is None:
        return array[index]
    if isinstance(array, np.ndarray):
        return jnp.asarray(array[index])[rows]
    if rows is None:
        line = index.reshape(-1)
        step = int(line[1] - line[0])
        if step > 0 and (np.diff(line) == step).all():
            return jnp.asarray(array)[first : int(line[-1]) + 1 : step].reshape(shape)
        where = index
    else:
        where = jnp.asarray(index)[rows]
    return jnp.asarray(array).at[where].get(mode="promise_in_bounds")
