"""The scripts of docs/, which make parts of its pages, as modules."""

import importlib.util

from tests.tools.processes import ROOT


def script(name):
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
