"""Models of `pymc.dims`, whose variables have named dimensions, written as equal models of plain tensors.

PyTensor writes graphs with dims in tensors before it computes anything. This module writes a whole model in
tensors when the user passes it, so that no other module has to know of dims. Variables have the names,
values, order of dimensions and coordinates that they have in the user's model.
"""

import weakref
from collections.abc import Mapping, Sequence
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions import transforms
from pymc.logprob.tensor import MeasurableDimShuffle
from pymc.logprob.transforms import Transform
from pymc.pytensorf import constant_fold
from pytensor.compile.mode import optdb
from pytensor.compile.ops import ViewOp, view_op
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.random.variable import RandomGeneratorSharedVariable
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorConstant
from pytensor.xtensor.basic import tensor_from_xtensor, xtensor_from_tensor
from pytensor.xtensor.random.type import XRandomGeneratorType, rng_to_xrng
from pytensor.xtensor.type import XTensorType
from xarray import DataArray

from pymc_discrete.structure.rebuild import rebuild

LISTS = ("free_RVs", "observed_RVs", "potentials", "deterministics", "data_vars")

# {model as the user wrote it: (the parts of that model, the same model in tensors)}
_made: WeakKeyDictionary[pm.Model, tuple[list[Any], pm.Model]] = WeakKeyDictionary()
# {model in tensors: the model as the user wrote it}
_written: WeakKeyDictionary[pm.Model, weakref.ref[pm.Model]] = WeakKeyDictionary()


def in_tensors(model: pm.Model) -> pm.Model:
    """A model written in plain tensors; the model itself, if nothing in it has dims (named dimensions).

    There is one model in tensors for each model of the user, and a call updates it if the user's model has
    changed.

    Parameters
    ----------
    model : the model as the user wrote it, or a result of this function

    Raises
    ------
    NotImplementedError
        For an operation that PyTensor does not write in tensors.
    ValueError
        For observed values that are nan.
    """
    written = written_by_user(model)
    parts, before = parts_of(written), _made.get(written)
    if before is None and not any(has_dims(v) for v in ancestors(variables_of(written))):
        return written
    if before is not None and list(map(id, before[0])) == list(map(id, parts)):
        return before[1]
    plain = object.__new__(type(written)) if before is None else before[1]
    plain.__dict__.update(attributes(written, plain))
    _made[written], _written[plain] = (parts, plain), weakref.ref(written)
    return plain


def written_by_user(model: pm.Model) -> pm.Model:
    """The model as the user wrote it, for a model that `in_tensors` returned; any other model is returned as
    it is.
    """
    written = _written[model]() if model in _written else None
    return model if written is None else written


def values_by_name(model: pm.Model) -> dict[str, Variable]:
    """{name: value variable} of the model as the user wrote it, whose variables PyMC knows."""
    return {str(v.name): v for v in written_by_user(model).value_vars}


def starts_by_name(model: pm.Model, starts: Mapping[Any, Any]) -> dict[str, Any]:
    """{name: start value in plain tensors}, from the user's {variable or name: start value}.

    None stands for the variable's own start, and values of Deterministics, which `pm.find_MAP` and draws have
    with those of the variables, follow from these: both are left out.
    """
    found: dict[str, Any] = {}
    computed = {v.name for v in model.deterministics}
    for key, start in starts.items():
        name = str(getattr(key, "name", key))
        if start is None or name in computed:
            continue
        dims = model.named_vars_to_dims.get(name, ())
        if isinstance(start, DataArray) and {*start.dims} == {*dims}:
            start = start.transpose(*dims).values
        elif isinstance(start, Variable) and has_dims(start):
            (start,) = lowered([start.transpose(*dims)])
        found[name] = start
    return found


def without_dims(rv: Variable) -> Variable:
    """A variable of a model in plain tensors; the variable itself, if it is computed without dims."""
    return lowered([rv], [rv])[0] if any(map(has_dims, ancestors([rv]))) else rv


def has_dims(variable: Variable) -> bool:
    """Whether a variable has named dimensions, or is a random generator for such variables."""
    return isinstance(variable.type, XTensorType | XRandomGeneratorType)


def variables_of(model: pm.Model) -> list[Variable]:
    """All variables that a model is made of, each once."""
    groups = [v for group in LISTS for v in getattr(model, group)]
    starts = [v for v in model.rvs_to_initial_values.values() if isinstance(v, Variable)]
    return list(dict.fromkeys([*groups, *model.rvs_to_values.values(), *starts]))


def parts_of(model: pm.Model) -> list[Any]:
    """All variables, transforms and starting values of a model; a change of one of them is a change of the
    model.
    """
    of_rvs = (model.rvs_to_values, model.rvs_to_transforms, model.rvs_to_initial_values)
    return [*variables_of(model), *(part for each in of_rvs for part in each.values())]


def attributes(model: pm.Model, plain: pm.Model) -> dict[str, Any]:
    """The attributes that a model with dims has when it is written in tensors, as the model `plain`."""
    old = variables_of(model)
    of = dict(zip(old, lowered(old, model.basic_RVs), strict=True))
    for rv in model.observed_RVs:
        value = model.rvs_to_values[rv]
        if not isinstance(of[value], SharedVariable):
            of[value] = pt.as_tensor(*constant_fold([of[value]], raise_not_constant=False))
        if has_dims(rv):
            refuse_missing(str(rv.name), of[value])
    for before, after in of.items():
        after.name = before.name

    def same(value: Any) -> Any:
        """The variable in tensors that replaces a variable; anything else is returned as it is."""
        return of.get(value, value) if isinstance(value, Variable) else value

    found = {name: same(value) for name, value in model.__dict__.items()}
    # PyMC keeps bound methods of the model in its dictionary, so the new model needs bound methods of its own
    found |= {n: MethodType(v.__func__, plain) for n, v in found.items() if isinstance(v, MethodType)}
    for group in LISTS:
        found[group] = type(found[group])(map(same, found[group]))
    for name in ("named_vars", "rvs_to_values", "values_to_rvs", "rvs_to_initial_values"):
        found[name] = type(found[name])({same(k): same(v) for k, v in found[name].items()})
    of_rvs = {of[rv]: of_tensors(transform, rv) for rv, transform in model.rvs_to_transforms.items()}
    return found | {"rvs_to_transforms": type(model.rvs_to_transforms)(of_rvs)}


def refuse_missing(name: str, value: Variable) -> None:
    """Refuse observed values with nan: in a model with dims, PyMC does not take them as unknowns.

    Raises
    ------
    ValueError
    """
    if isinstance(value, Constant | SharedVariable):
        data = value.data if isinstance(value, Constant) else value.get_value(borrow=True)
        if n := np.count_nonzero(np.isnan(data)):
            raise ValueError(
                f"{n} of the {np.size(data)} observed values of {name!r} are nan, which pymc.dims does not "
                "take as missing, so that the log density is nan. Leave out what is missing, or take a "
                f"distribution of PyMC's without dims, as pm.Normal({name!r}, mu.values, 1, "
                "observed=np.ma.masked_invalid(y)), whose missing elements are unknowns."
            )


# ---------------------------------------------------------------- graphs
def lowered(outputs: Sequence[Variable], rvs: Sequence[Variable] = ()) -> list[Variable]:
    """Graphs with dims as graphs of tensors; the outputs keep the order of their dimensions.

    Parameters
    ----------
    rvs : the outputs that are random variables; each becomes the output of one Op

    Raises
    ------
    NotImplementedError
        For an operation that PyTensor does not write in tensors.
    """
    leaves = {v: with_dims(in_tensor(v), v) for v in graph_inputs(outputs) if has_dims(v)}
    tensors = [
        tensor_from_xtensor(v) if has_dims(v) else v for v in rebuild(list(outputs), leaves, view_of_tensor)
    ]
    inputs = [v for v in graph_inputs(tensors) if not isinstance(v, Constant)]
    fg = FunctionGraph(inputs, tensors, clone=True)
    optdb.query("+lower_xtensor").rewrite(fg)
    for place, v in enumerate(outputs):
        if v in rvs:
            fg.replace(fg.outputs[place], drawn_in_order(fg.outputs[place]), import_missing=True)
    found = rebuild(list(fg.outputs), dict(zip(fg.inputs, inputs, strict=True)))
    for before, after in zip(outputs, found, strict=True):
        refuse_left(str(before.name), after)
    return found


def in_tensor(leaf: Variable) -> Variable:
    """An input of a graph (a constant, a shared variable or another leaf) without dims, of the same name and
    value.
    """
    if isinstance(leaf.type, XRandomGeneratorType):
        if not isinstance(leaf, SharedVariable):
            return random_generator_type(name=leaf.name)
        kind: Any = random_generator_type
        return RandomGeneratorSharedVariable(kind, None, None, container=leaf.container, name=leaf.name)
    kind = pt.TensorType(leaf.type.dtype, shape=leaf.type.shape)
    if isinstance(leaf, Constant):
        return TensorConstant(kind, np.asarray(leaf.data), name=leaf.name)
    # the new variable shares its content with the user's, so that pm.set_data changes both
    if isinstance(leaf, SharedVariable):
        return TensorSharedVariable(kind, None, None, container=leaf.container, name=leaf.name)
    return kind(name=leaf.name)


def with_dims(tensor: Variable, like: Variable) -> Variable:
    """A tensor as an xtensor with the dims of `like`; or, if `like` is a random generator of xtensors, a
    generator as one of these.
    """
    if isinstance(like.type, XRandomGeneratorType):
        return rng_to_xrng(tensor)
    return xtensor_from_tensor(tensor, dims=like.type.dims)


def view_of_tensor(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
    """The Op of `pm.Deterministic` for a variable with dims, written for a tensor; None for other Ops.

    PyTensor does not write this Op in tensors, since it takes variables of any type.
    """
    if not isinstance(node.op, ViewOp) or not has_dims(inputs[0]):
        return None
    return [with_dims(view_op(tensor_from_xtensor(inputs[0])), inputs[0])]


def drawn_in_order(rv: Variable) -> Variable:
    """A random variable whose dimensions are drawn in the order in which the model has them.

    PyTensor draws the variable in the order of its parameters, and then transposes the draw. This function
    transposes the parameters instead, so that the variable is the output of one Op. For vectors, whose own
    dimension is always the last in PyTensor, the transposition becomes an Op with a density.
    """
    if rv.owner is None or not isinstance(rv.owner.op, DimShuffle):
        return rv
    order, (drawn,) = rv.owner.op.new_order, rv.owner.inputs
    op = drawn.owner.op
    if getattr(op, "ndim_supp", 0):
        return MeasurableDimShuffle(input_ndim=len(order), new_order=order)(drawn)
    if not isinstance(op, RandomVariable):
        return rv
    rng, size, *params = drawn.owner.inputs
    # first come all dimensions of the variable, then the parameter's own dimension, if it is a vector
    moved = [param.dimshuffle(*order, *range(len(order), param.type.ndim)) for param in params]
    lengths = [size[axis] for axis in order] if isinstance(size.type, pt.TensorType) else None
    return op.make_node(rng, lengths, *moved).outputs[1]


def refuse_left(name: str, variable: Variable) -> None:
    """Refuse operations on variables with dims that PyTensor has not written in tensors.

    Raises
    ------
    NotImplementedError
    """
    for node in toposort([variable]):
        if any(map(has_dims, node.outputs)):
            raise NotImplementedError(
                f"{name!r} depends on the operation {node.op}, which PyTensor does not write without dims. "
                "Write this part in tensors: x.values is the tensor of x, and pymc.dims.as_xtensor(tensor, "
                "dims=...) gives it dims again."
            )


# ---------------------------------------------------------------- transforms
class OfTensors(Transform):
    """A transform of `pymc.dims`, for tensors.

    Parameters
    ----------
    transform : the transform of `pymc.dims`
    dims : the dims of the variable
    """

    def __init__(self, transform: Any, dims: tuple[str, ...]):
        self.transform, self.dims, self.name = transform, dims, transform.name

    def forward(self, value: Variable, *inputs: Variable) -> Variable:
        return self._of("forward", value)

    def backward(self, value: Variable, *inputs: Variable) -> Variable:
        return self._of("backward", value)

    def log_jac_det(self, value: Variable, *inputs: Variable) -> Variable:
        return self._of("log_jac_det", value)

    def _of(self, method: str, value: Variable) -> Variable:
        found = getattr(self.transform, method)(xtensor_from_tensor(pt.as_tensor(value), dims=self.dims))
        return lowered([found.transpose(*(dim for dim in self.dims if dim in found.type.dims))])[0]


def of_tensors(transform: Any, rv: Variable) -> Any:
    """A transform of a random variable, for tensors: PyMC's own transform, where one does the same."""
    if transform is None or not has_dims(rv):
        return transform
    # this import is cheap: a model with dims has imported the module already
    from pymc.dims.distributions import transforms as of_dims

    dims = rv.type.dims
    match transform:
        case of_dims.LogTransform():
            return transforms.log
        case of_dims.LogOddsTransform():
            return transforms.logodds
        case of_dims.CircularTransform():
            return transforms.circular
        case of_dims.SimplexTransform() if transform.core_dim == dims[-1]:
            return transforms.simplex
        case of_dims.ZeroSumTransform() if {*transform.dims} == {*dims[-len(transform.dims) :]}:
            return transforms.ZeroSumTransform([dims.index(dim) - len(dims) for dim in transform.dims])
        case of_dims.IntervalTransform() if not transform.lower.type.ndim and not transform.upper.type.ndim:
            lower, upper = (float(end.data) for end in (transform.lower, transform.upper))
            if np.isfinite([lower, upper]).any():
                return transforms.Interval(lower, upper)
    return OfTensors(transform, dims)
