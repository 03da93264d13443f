"""Gradient-informed sampling of discrete unknowns in PyMC models.

The stub `__init__.pyi` says where each public name is. A name is imported when it is first used, so that a
script waits only for the libraries that it needs (SPEC 1 of Scientific Python).
"""

from typing import Any

import lazy_loader

_imported, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    # This import stands in the function, so that `import pymc_discrete` alone imports nothing.
    from pymc_discrete.runtime.reuse import collection_paused

    with collection_paused():  # Garbage collection takes a fifth of the time of an import.
        return _imported(name)
