"""Models with an Op that has no JAX version: which variables enter a term with such an Op, and the errors."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pymc as pm

from pymc_discrete.model.initial import point_of
from pymc_discrete.model.logp import constants_of_data, of_known_shape, terms_of
from pymc_discrete.model.masks import with_fixed_sizes
from pymc_discrete.model.support import bounds_of_model
from pymc_discrete.model.untouched import terms_without_jax
from pymc_discrete.runtime.names import shown
from pymc_discrete.structure.rebuild import known_size, rebuild


def no_jax_version(
    names: list[str], error: NotImplementedError, instead: str | None = "pm.Metropolis"
) -> NotImplementedError:
    """The error for variables that enter a term with an Op without a JAX version.

    Parameters
    ----------
    names : the variables
    error : the error that JAX or PyTensor raised
    instead : a PyMC step that can sample them, if there is one
    """
    why = str(error).splitlines()[0].rstrip(".")
    other_step = "" if instead is None else f", or sample these variables with {instead}"
    return NotImplementedError(
        f"A term that depends on {shown(names)} has an Op without a JAX version: {why}. Write the term with "
        f"other Ops, or register one with pytensor.link.jax.dispatch.jax_funcify{other_step}."
    )


@contextmanager
def all_in_jax(who: str = "pmd.sample") -> Iterator[None]:
    """A context that replaces a NotImplementedError by one that names the Op and the remedy.

    Parameters
    ----------
    who : the function that needs the whole model in JAX, as the message names it

    Raises
    ------
    NotImplementedError
    """
    try:
        yield
    except NotImplementedError as error:
        op = re.search(r"`Op`: (.*)", str(error))
        line = str(error).splitlines()[0].rstrip(".")
        what = f"the Op {op[1].strip()}, which has no JAX version" if op else f"what JAX cannot do ({line})"
        register = ", or register a version with pytensor.link.jax.dispatch.jax_funcify" if op else ""
        raise NotImplementedError(
            f"{who} runs the whole model in JAX, and the model has {what}. Use pm.sample, with "
            f"step=pmd.AutoStep(...) for the discrete variables that it does not touch, or write it with "
            f"other Ops, the only way for counts of a Multinomial and permutations{register}."
        ) from error


def variables_without_jax(model: pm.Model, names: list[str]) -> dict[str, tuple[str, NotImplementedError]]:
    """{value variable: (name of a term, error)} of the variables that enter a term that JAX cannot run."""
    labels = [str(v.name) for v in model.free_RVs + model.observed_RVs + model.potentials]
    shapes = {str(v.name): v.type.shape for v in model.value_vars}
    if any(None in shape for shape in shapes.values()):
        shapes = {name: np.shape(value) for name, value in point_of(model).items()}
    typed = of_known_shape(model, shapes)
    raw = terms_of(model)
    of_known_shapes = rebuild(raw, typed | constants_of_data(raw), known_size)
    by_name = {str(v.name): v for v in typed.values()}
    bounds = lambda: {by_name[name]: b for name, b in bounds_of_model(model).items()}
    terms = with_fixed_sizes(of_known_shapes, bounds)
    return terms_without_jax(list(zip(labels, terms, strict=True)), names)
