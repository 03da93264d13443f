"""Every method, for tests of all: a new one is found by its file and needs no line in them."""

from pymc_discrete.steps import methods


def others(*steps):
    """{name: step} of the methods whose steps are not among `steps`."""
    known = {getattr(step, "func", step) for step in steps}
    made = {name: getattr(methods, name) for name in methods.names_of_methods()}
    return {name: step for name, step in made.items() if step not in known}
