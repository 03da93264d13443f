"""Files whose functions register themselves; they are found by their folder."""

import pkgutil
from importlib import import_module


def import_files(folder: str) -> None:
    """Import all files of a folder of the package, such as "pymc_discrete.diagnostics.checks"."""
    for module in pkgutil.iter_modules(import_module(folder).__path__):
        import_module(f"{folder}.{module.name}")
