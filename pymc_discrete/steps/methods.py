"""The step of each method: `from pymc_discrete.steps.methods import BlockGibbs` makes it.

A method is found by its name: `BlockGibbs` is a class in the file `block_gibbs.py` of one of `FOLDERS`.
"""

import inspect
import pkgutil
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec

from pymc_discrete.kernels.method import Method, snake_case
from pymc_discrete.runtime.docstrings import items, sections, written
from pymc_discrete.steps.base import JaxStep
from pymc_discrete.steps.discrete import DiscreteStep

FOLDERS = ("kernels", "collapse", "factor_graphs")


def __getattr__(name: str) -> type[DiscreteStep]:
    """The step of a method, made when it is first asked for."""
    method = method_named(name) if name[:1].isupper() else None
    if method is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = step = step_of(method)
    return step


def method_named(name: str) -> type[Method] | None:
    """The method with this name; None if there is none."""
    for folder in FOLDERS:
        place = f"pymc_discrete.{folder}.{snake_case(name)}"
        if find_spec(place) and hasattr(import_module(place), name):
            return getattr(import_module(place), name)
    return None


def names_of_methods() -> list[str]:
    """Names of all methods."""
    modules = [
        import_module(f"pymc_discrete.{folder}.{module.name}")
        for folder in FOLDERS
        for module in pkgutil.iter_modules(import_module(f"pymc_discrete.{folder}").__path__)
    ]
    classes = [c for module in modules for c in vars(module).values() if isinstance(c, type)]
    return sorted({c.__name__ for c in classes if issubclass(c, Method) and not inspect.isabstract(c)})


def step_of(method: type[Method]) -> type[DiscreteStep]:
    """The step that runs a method."""
    options = {f.name: option(f.name) for f in fields(method)}
    attributes = options | {
        "__module__": __name__,
        "__doc__": docstring(method),
        "__signature__": signature(method),
        "name": snake_case(method.__name__),
        "method_class": method,
        "constrained": method.constrained,
        "equations": method.equations,
    }
    return type(method.__name__, (DiscreteStep,), attributes)


def option(name: str) -> property:
    """An option of the method as an attribute of its step."""
    return property(lambda step: getattr(step.method, name), doc=f"The option `{name}`.")


def signature(method: type[Method]) -> inspect.Signature:
    """The signature of the step: variables, the options of the method, and the options of every step."""
    own = [p.replace(kind=p.KEYWORD_ONLY) for p in inspect.signature(method).parameters.values()]
    vars, *of_discrete = list(inspect.signature(DiscreteStep.__init__).parameters.values())[1:]
    of_step = [*of_discrete, *inspect.signature(JaxStep.__init__).parameters.values()]
    shared = [p for p in of_step if p.kind is p.KEYWORD_ONLY and not p.name.startswith("_")]
    return inspect.Signature([vars, *own, *shared])


def docstring(method: type[Method]) -> str:
    """The docstring of the step: the method's docstring, with the sections that every step has."""
    if not DiscreteStep.__doc__:  # docstrings are missing if Python runs with -OO
        return ""
    own, shared = sections(method), sections(DiscreteStep)
    of_method, of_step = items(own.get("Parameters", "")), items(shared["Parameters"])
    first = {"vars": of_step.pop("vars")}
    parts = {**shared, **own, "Parameters": "\n".join((first | of_method | of_step | of_method).values())}
    for heading in ("Raises", "Notes"):
        both = [sections_[heading] for sections_ in (own, shared) if sections_.get(heading)]
        parts[heading] = ("\n\n" if heading == "Notes" else "\n").join(both)
    if "Examples" not in own:
        parts["Examples"] = shared["Examples"].replace("BlockGibbs", method.__name__)
    return written(parts)
