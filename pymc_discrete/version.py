"""The version of the installed package, which its build takes from the repository's tags."""

from importlib.metadata import version

__version__ = version("pymc-discrete")
