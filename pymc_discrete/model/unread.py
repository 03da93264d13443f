"""Random variables on which nothing else in a model depends, such as answers that are missing."""

from collections.abc import Collection

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_discrete.model.structure_of_model import MadeModel
from pymc_discrete.structure.analysis import Depends, directly_read
from pymc_discrete.structure.numbers import NUMBER


def is_read(rv: Variable, model: pm.Model) -> bool:
    """Whether another random variable or a potential of a model reads a random variable."""
    random = list(model.basic_RVs)
    others = [v for other in random if other is not rv for v in other.owner.inputs]
    return rv in directly_read([*others, *model.potentials], random)


def unread(model: pm.Model, names: Collection[str]) -> list[str]:
    """The names of value variables on which no other random variable and no potential depends."""
    return [
        str(v.name) for rv, v in model.rvs_to_values.items() if v.name in names and not is_read(rv, model)
    ]


def without_unread(model: pm.Model, names: Collection[str]) -> pm.Model:
    """A model without some value variables that are `unread`, and without the Deterministics that show them.

    The density of the other variables is unchanged, since the density of an unread variable, summed over all
    its values, is 1.
    """
    left_out = [rv for rv, value in model.rvs_to_values.items() if value.name in names]
    shows = Depends(left_out)
    gone = {*left_out, *(v for v in model.deterministics if v in shows)}

    def rest(variables: Collection[Variable]) -> list[Variable]:
        return [v for v in variables if v not in gone]

    def rest_of(by_variable: dict) -> dict:
        return {v: by_variable[v] for v in rest(by_variable)}

    made = MadeModel.of(model, f"{NUMBER}without what nothing reads: ")
    made.__dict__.update(
        free_RVs=rest(model.free_RVs),
        deterministics=rest(model.deterministics),
        named_vars={name: v for name, v in model.named_vars.items() if v not in gone},
        rvs_to_values=rest_of(model.rvs_to_values),
        values_to_rvs={value: rv for value, rv in model.values_to_rvs.items() if rv not in gone},
        rvs_to_transforms=rest_of(model.rvs_to_transforms),
        rvs_to_initial_values=rest_of(model.rvs_to_initial_values),
    )
    return made
