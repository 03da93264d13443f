"""Gradient-informed sampling of discrete unknowns in PyMC models.

The stub `__init__.pyi` says where each public name is. A name is imported when it is first used, so that a
script waits only for the libraries that it needs (SPEC 1 of Scientific Python).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
