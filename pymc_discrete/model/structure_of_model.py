"""The key of a model's log density: models with equal keys have the same log density.

Graphs that were analysed and programs that were compiled for a model are used again for another model with an
equal key (see `runtime/reuse.py`). The key is computed from the graphs of the random variables, which is much
faster than to derive the log density.
"""

from collections.abc import Collection, Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import TensorType

from pymc_discrete.model.identity import Graphs, key_of_object
from pymc_discrete.model.in_tensors import in_tensors
from pymc_discrete.structure.numbers import NUMBER, Number
from pymc_discrete.structure.rebuild import rebuild


class Structure(NamedTuple):
    """The structure of a model's log density, and its numbers.

    Attributes
    ----------
    key : a key that is equal for models whose log densities differ in their `numbers` only
    numbers : {name of a number: its value in this model}
    leaves : {constant or shared variable of the model: the name of its number}
    """

    key: Hashable
    numbers: dict[str, np.ndarray]
    leaves: dict[Variable, str]


def key_of_model(model: pm.Model) -> Hashable:
    """The key of a model that contains the values of all its numbers, see `structure_of`."""
    return structure_of(model, None).key


class Snapshot(NamedTuple):
    """The content of a model at the time when something was made for it.

    Attributes
    ----------
    key : the key of the model, with all constants and data
    names : the names of its variables, potentials and Deterministics
    """

    key: Hashable
    names: list[str]

    @classmethod
    def of(cls, model: pm.Model) -> "Snapshot":
        return cls(key_of_model(model), [*model.named_vars])

    def is_of(self, model: pm.Model) -> bool:
        """Whether a model, its constants and its data are as they were when the snapshot was taken."""
        return self.key == key_of_model(in_tensors(model))

    def added(self, model: pm.Model) -> list[str]:
        """The names of variables, potentials and Deterministics added to a model after the snapshot."""
        return [name for name in model.named_vars if name not in self.names]


def structure_of(model: pm.Model, fixed: Collection[str] | None = ()) -> Structure:
    """The structure of a model: its variables, how they depend on one another, constants and transforms.

    Starting values and coordinates are no part of it. Functions of the user (of a `pm.CustomDist` or a
    transform) are equal to themselves only, and only as long as all that they read is the same.

    Parameters
    ----------
    fixed : names of numbers whose values become a part of the key; None means all numbers
    """
    content, numbers, leaves = content_of(model, fixed)
    return Structure(key_of_object(content), numbers, leaves)


def content_of(
    model: pm.Model, fixed: Collection[str] | None = ()
) -> tuple[list[Any], dict[str, np.ndarray], dict[Variable, str]]:
    """The objects of which the key of `structure_of` is made, and the numbers and leaves of the structure."""
    rvs = list(model.rvs_to_values)
    made = [*rvs, *model.potentials, *model.deterministics]
    known: dict[Variable, Hashable] = {value: ("value", n) for n, value in enumerate(model.value_vars)}
    numbers: dict[str, np.ndarray] = {}
    leaves: dict[Variable, str] = {}
    for n, (leaf, value) in enumerate(numbers_of(model).items() if fixed is not None else ()):
        name = f"{model.prefix_of_numbers if isinstance(model, MadeModel) else NUMBER}{n}"
        if fixed is not None and name not in fixed:
            numbers[name], leaves[leaf] = value, name
            known[leaf] = ("number", n, value.dtype.str, value.shape)
    values = list(model.rvs_to_values.values())
    groups = (made, values, model.free_RVs, model.observed_RVs, model.value_vars)
    names = [[str(v.name) for v in group] for group in groups]
    transforms = [model.rvs_to_transforms.get(rv) for rv in rvs]
    return [Graphs([*made, *values], known), names, transforms], numbers, leaves


# An array with a larger element is a part of the key of a program, and no argument of the program: the size
# of its elements decides how sums with it are updated.
LARGEST_NUMBER = 1e6
# A matrix of which half the elements are 0 is also a part of the key, since the zeros may say which sites
# interact. If the matrix is not square, this holds only up to this number of elements.
SMALL_MATRIX = 10**4

OBSERVED, OTHER = "observed", "other"


def numbers_of(model: pm.Model) -> dict[Variable, np.ndarray]:
    """{leaf: value} of the constants and data that can be arguments of programs, in the order of the graph.

    These are observed values, arrays of floats, and parameters of priors. Left out are integers that are used
    as indices, sizes or exponents, which decide the form of the graph; matrices that may be an adjacency
    matrix; and parameters that are 0 or 1, at which terms vanish from the graph.
    """
    made = [*model.rvs_to_values, *model.potentials, *model.deterministics]
    uses = uses_in(model, made)
    found: dict[Variable, np.ndarray] = {}
    # `vanishing` has the uses of parameters whose elements are all 0 or all 1, `plain` the uses of the others
    vanishing: set[Hashable] = set()
    plain: set[Hashable] = set()
    for leaf in dict.fromkeys([*graph_inputs(made), *model.rvs_to_values.values()]):
        value = value_of_leaf(leaf)
        if value is None or not may_be_argument(leaf, value, uses[leaf]):
            continue
        found[leaf] = value
        if not uses[leaf] & {OBSERVED, OTHER}:
            zero_or_one = (value == 0).all() or (value == 1).all()
            (vanishing if zero_or_one else plain).update(uses[leaf])
    # The parameters with the same use are either all numbers or all constants, so that variables with the
    # same role have the same graph.
    return {leaf: value for leaf, value in found.items() if not uses[leaf] & (vanishing - plain)}


def uses_in(model: pm.Model, made: list[Variable]) -> dict[Variable, set[Hashable]]:
    """{variable: the set of its uses}; a variable that is computed elementwise hands its uses to its inputs.

    The use of a parameter is the class of its distribution and the index of the parameter.

    Parameters
    ----------
    made : the variables that the model computes
    """
    uses: dict[Variable, set[Hashable]] = {}
    values = list(model.rvs_to_values.values())
    observed = set(model.observed_RVs)
    for v in (*made, *values):
        uses.setdefault(v, set()).add(OBSERVED if model.values_to_rvs.get(v) in observed else OTHER)
    for node in list(toposort([*made, *values]))[::-1]:
        for i, use in zip(node.inputs, uses_of_inputs(node, uses, observed), strict=True):
            uses.setdefault(i, set()).update(use)
    return uses


def uses_of_inputs(
    node: Apply, uses: Mapping[Variable, set[Hashable]], observed: set[Variable]
) -> list[set[Hashable]]:
    """For each input of a node the set of its uses; `uses` has the uses of the node's outputs."""
    of_inputs: list[set[Hashable]] = [{OTHER} for _ in node.inputs]
    if isinstance(node.op, RandomVariable):
        rv = node.outputs[1]
        counted = rv not in observed and not rv.type.dtype.startswith("float")
        params = node.op.dist_params(node)
        first = len(node.inputs) - len(params)
        for place, param in enumerate(params):
            # integers may be the bounds of a latent count, which decide how it is sampled
            if not (counted and not param.type.dtype.startswith("float")):
                of_inputs[first + place] = {(type(node.op), place)}
    elif getattr(node.op, "takes_numbers", False):
        of_inputs = [set() for _ in node.inputs]
    elif isinstance(node.op, Shape | Shape_i):
        # only the shape of the input is read, and the shape of a number is a part of the key
        of_inputs = [set()]
    elif isinstance(node.op, Elemwise | DimShuffle):
        of_output = uses[node.outputs[0]]
        fixed = all(value_of_leaf(i) is not None for i in graph_inputs(node.inputs))
        if fixed and not of_output & {OBSERVED, OTHER}:
            of_inputs = [of_output for _ in node.inputs]
    return of_inputs


def may_be_argument(leaf: Variable, value: np.ndarray, uses: set[Hashable]) -> bool:
    """Whether a constant or data may be an argument of a program, judged by its value and its uses."""
    if not value.size:
        return False
    # A constant with an infinite or very large element is no argument, since the element's size decides how
    # sums are updated. `uses` is empty if only Ops to which the size does not matter read the constant.
    if uses and (not np.isfinite(value).all() or (np.abs(value) > LARGEST_NUMBER).any()):
        return False
    if OTHER not in uses:
        return True
    # Any other Op needs an input of the constant's type, and an argument has this type only for float64 and a
    # known shape.
    same = leaf.type.dtype == "float64" and None not in leaf.type.shape
    return value.size > 1 and same and not may_be_adjacency(value)


def may_be_adjacency(value: np.ndarray) -> bool:
    """Whether zeros of a matrix may decide which sites interact: at least half of its elements are 0.

    Among large matrices only square ones count: else a design matrix with many zeros would become a part of
    programs.
    """
    square = value.ndim == 2 and value.shape[0] == value.shape[1]
    zeros = value.size - np.count_nonzero(value)
    return value.ndim > 1 and (square or value.size <= SMALL_MATRIX) and bool(zeros >= value.size / 2)


def value_of_leaf(leaf: Variable) -> np.ndarray | None:
    """The value of a constant or a shared tensor with 64 bits; None for other variables."""
    if not isinstance(leaf.type, TensorType):
        return None
    if isinstance(leaf, SharedVariable):
        value = np.array(leaf.get_value(borrow=True))
    elif isinstance(leaf, Constant):
        value = np.asarray(leaf.data)
    else:
        return None
    wide = {"f": "float64", "i": "int64", "u": "int64", "b": "bool"}.get(value.dtype.kind)
    return None if wide is None else value.astype(wide)


class MadeModel(pm.Model):
    """A model that the package has made from a user's model, for programs that read the numbers of both
    models.

    For example, a model of the variables that remain after others are summed out.

    Attributes
    ----------
    prefix_of_numbers : the prefix of the names of its numbers
    """

    prefix_of_numbers: str

    @classmethod
    def of(cls, model: pm.Model, prefix: str) -> "MadeModel":
        """A copy of a model, as a `MadeModel` whose numbers have names with the given prefix."""
        made = object.__new__(cls)
        made.__dict__.update(model.__dict__)
        made.prefix_of_numbers = prefix
        return made


def with_numbers(model: pm.Model, structure: Structure) -> pm.Model:
    """A model with the same log density and names, in which `Number`s replace the constants and data."""
    if not structure.leaves:
        return model
    numbers = {leaf: Number.of(name, structure.numbers[name]) for leaf, name in structure.leaves.items()}
    groups = ("free_RVs", "observed_RVs", "potentials", "deterministics")
    old = [v for group in groups for v in getattr(model, group)]
    values = list(model.rvs_to_values.values())
    new = rebuild([*old, *values], numbers)
    for before, after in zip(old, new, strict=False):
        after.name = before.name
    of = dict(zip([*old, *values], new, strict=True))
    copy = object.__new__(type(model))
    copy.__dict__.update(model.__dict__)
    copy.__dict__.update({group: [of[v] for v in getattr(model, group)] for group in groups})
    copy.__dict__.update(
        rvs_to_values={of[rv]: of[value] for rv, value in model.rvs_to_values.items()},
        values_to_rvs={of[value]: of[rv] for value, rv in model.values_to_rvs.items()},
        rvs_to_transforms={of[rv]: transform for rv, transform in model.rvs_to_transforms.items()},
        rvs_to_initial_values={of[rv]: value for rv, value in model.rvs_to_initial_values.items()},
    )
    return copy


def shared_values(model: pm.Model) -> list[tuple[SharedVariable, np.ndarray]]:
    """[(shared variable of the model, its value now)], for pm.Data and for mutable lengths of dimensions."""
    made = [*model.basic_RVs, *model.rvs_to_values.values(), *model.potentials, *model.deterministics]
    shared = [v for v in graph_inputs(made) if isinstance(v, SharedVariable) and hasattr(v.type, "dtype")]
    return [(v, np.array(v.get_value(), copy=True)) for v in shared]
