"""Indexing with indices that are known at compile time, by slices and broadcasts instead of gathers."""

import jax
import jax.numpy as jnp
import numpy as np


def picked(array: np.ndarray, rows):
    """`array[rows]`, or `array` if `rows` is None; a NumPy array unless `rows` is known at run time only."""
    if rows is None or isinstance(rows, np.ndarray):
        return array if rows is None else array[rows]
    return jnp.asarray(array)[rows]


def unique_pairs(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of pairs (n, 2) of integers >= 0, sorted, and the index of each pair among these
    rows.

    `np.unique` with an axis is slow for many rows, as it compares their bytes.
    """
    below = int(pairs[:, 1].max(initial=0)) + 1
    found, which = np.unique(pairs[:, 0].astype(np.int64) * below + pairs[:, 1], return_inverse=True)
    return np.stack([found // below, found % below], axis=1), which


def element_at(array, place: int):
    """(1,), the element of a flat array at a place that is known at compile time."""
    return array if array.shape == (1,) else jax.lax.slice_in_dim(array, place, place + 1)


def take(array, index: np.ndarray, rows=None):
    """`array[index[rows]]` for a flat array.

    Regular indices become slices and broadcasts, which XLA fuses; others become a gather. Axes along which
    the index does not vary have length 1 in the result; if the array is constant and all elements at the
    index are equal, all axes have length 1.

    Parameters
    ----------
    array : (n,) array
    index : (R, ...) int
        Known at compile time.
    rows : (r,) int, optional
        Entries of the first axis of the index; by default all.
    """
    if isinstance(rows, np.ndarray):  # `rows` is known at compile time, like the index
        index, rows = index[rows], None
    shape = index.shape if rows is None else (*jnp.shape(rows), *index.shape[1:])
    if index.size == 0:
        return jnp.zeros(shape, jnp.asarray(array).dtype)
    first = int(index.flat[0])
    same = isinstance(array, np.ndarray) and (array[index] == array[first]).all()
    if same or (index == first).all():
        one = array[first : first + 1] if isinstance(array, np.ndarray) else element_at(array, first)
        return jnp.reshape(one, (1,) * len(shape))
    if (
        rows is None
        and index.size == np.shape(array)[0]
        and (index.reshape(-1) == np.arange(index.size)).all()
    ):
        return jnp.asarray(array).reshape(shape)
    for axis in range(index.ndim - 1, -1, -1):  # an axis along which the index does not vary
        if index.shape[axis] > 1 and (index == index.take([0], axis)).all():
            if axis == 0:
                return take(array, index[0])[None]
            return take(array, index.take([0], axis), rows)
    if isinstance(array, np.ndarray) and rows is None:
        return array[index]
    if isinstance(array, np.ndarray):
        return jnp.asarray(array[index])[rows]
    if rows is None:
        flat_index = index.reshape(-1)
        step = int(flat_index[1] - flat_index[0])
        if step > 0 and (np.diff(flat_index) == step).all():
            return jnp.asarray(array)[first : int(flat_index[-1]) + 1 : step].reshape(shape)
        selected = index
    else:
        selected = jnp.asarray(index)[rows]
    return jnp.asarray(array).at[selected].get(mode="promise_in_bounds")
