"""Models whose shapes PyTensor does not know, as `dims=` and `pm.Data` of mutable coordinates make them."""

import contextlib
from unittest import mock

import numpy as np
import pytensor
from pymc.distributions.distribution import Distribution


def of_unknown_shape(a):
    """A shared tensor in the place of an array of known numbers; anything else as it is."""
    known = isinstance(a, np.ndarray) and a.ndim and a.dtype.kind in "fiub" and not np.isnan(a).any()
    if not known or isinstance(a, np.ma.MaskedArray):
        return a
    return pytensor.shared(a, shape=(None,) * a.ndim)


@contextlib.contextmanager
def unknown_shapes():
    """Here shapes of distributions are shared variables, as are arrays that they are given."""
    new = Distribution.__new__

    def made(cls, name, *args, shape=None, observed=None, **options):
        if observed is not None and shape is None:
            shape = np.shape(observed)
        if shape is not None:
            shape = shape if isinstance(shape, tuple | list) else (shape,)
            shape = [pytensor.shared(np.int64(n)) if isinstance(n, int | np.integer) else n for n in shape]
            options["shape"] = tuple(shape)
        args = [of_unknown_shape(a) for a in args]
        options = {
            k: of_unknown_shape(a) if k not in ("initval", "shape", "dims") else a for k, a in options.items()
        }
        return new(cls, name, *args, observed=of_unknown_shape(observed), **options)

    with mock.patch.object(Distribution, "__new__", made):
        yield
