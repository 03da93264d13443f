"""Models of `pymc.dims`, whose variables have named dimensions, as the same models of plain tensors.

PyTensor lowers what is written with dims to tensors before it computes anything. Here that is done to a whole
model, at the place where the package is given one, so that nothing else in it knows of dims: variables have the
same names, values, order of dimensions and coordinates as in the user's model.
"""

import weakref
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions import transforms
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
from pytensor.tensor.random.variable import RandomGeneratorSharedVariable, random_generator_type
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorConstant
from pytensor.xtensor.basic import tensor_from_xtensor, xtensor_from_tensor
from pytensor.xtensor.random.type import XRandomGeneratorType, rng_to_xrng
from pytensor.xtensor.type import XTensorType

from pymc_discrete.structure.rebuild import rebuild

GROUPS = ("free_RVs", "observed_RVs", "potentials", "deterministics", "data_vars")

# {model as the user wrote it: what it is made of, the same model in tensors}
_made: WeakKeyDictionary[pm.Model, tuple[list[Any], pm.Model]] = WeakKeyDictionary()
# {model in tensors: the model as the user wrote it}
_written: WeakKeyDictionary[pm.Model, weakref.ref[pm.Model]] = WeakKeyDictionary()


def written_by_user(model: pm.Model) -> pm.Model:
    """The model as the user wrote it, of one that `in_tensors` returned; any other model itself."""
    written = _written[model]() if model in _written else None
    return model if written is None else written


def values_by_name(model: pm.Model) -> dict[str, Variable]:
    """{name: value variable}, as PyMC knows them, where the model is one that `in_tensors` returned."""
    return {str(v.name): v for v in written_by_user(model).value_vars}


def in_tensors(model: pm.Model) -> pm.Model:
    """The same model in plain tensors; the model itself, if it has no variables with dims in it.

    For a model it is one object, which is brought up to date here if the model has changed.

    Parameters
    ----------
    model : as the user wrote it, or what this function returned for it

    Raises
    ------
    NotImplementedError
        For an operation that PyTensor does not lower to tensors, and for vectors whose dimension is not last.
    """
    written = written_by_user(model)
    parts = parts_of(written)
    before = _made.get(written)
    if before is not None and len(before[0]) == len(parts):
        if all(a is b for a, b in zip(before[0], parts, strict=True)):
            return before[1]
    elif before is None and not any(has_dims(v) for v in ancestors(variables_of(written))):
        return written
    plain = object.__new__(type(written)) if before is None else before[1]
    plain.__dict__.update(attributes(written))
    _made[written], _written[plain] = (parts, plain), weakref.ref(written)
    return plain


def has_dims(variable: Variable) -> bool:
    """Whether a variable has named dimensions."""
    return isinstance(variable.type, XTensorType | XRandomGeneratorType)


def variables_of(model: pm.Model) -> list[Variable]:
    """All variables that a model is made of, each once."""
    groups = [v for group in GROUPS for v in getattr(model, group)]
    starts = [v for v in model.rvs_to_initial_values.values() if isinstance(v, Variable)]
    return list(dict.fromkeys([*groups, *model.rvs_to_values.values(), *starts]))


def parts_of(model: pm.Model) -> list[Any]:
    """What the model in tensors is made from."""
    of_rvs = (model.rvs_to_values, model.rvs_to_transforms, model.rvs_to_initial_values)
    return [*variables_of(model), *(part for each in of_rvs for part in each.values())]


def attributes(model: pm.Model) -> dict[str, Any]:
    """The attributes of a model in tensors, of one with dims."""
    old = variables_of(model)
    of = dict(zip(old, lowered(old, model.basic_RVs), strict=True))
    for rv, value in model.rvs_to_values.items():
        if rv in model.observed_RVs and not isinstance(of[value], SharedVariable):
            (of[value],) = constant_fold([of[value]], raise_not_constant=False)
            of[value] = pt.as_tensor(of[value])
    for before, after in of.items():
        after.name = before.name
    found = {**model.__dict__}
    kind = lambda name: type(getattr(model, name))
    for group in GROUPS:
        found[group] = kind(group)([of[v] for v in getattr(model, group)])
    found |= {
        "named_vars": kind("named_vars")({name: of[v] for name, v in model.named_vars.items()}),
        "rvs_to_values": kind("rvs_to_values")({of[rv]: of[v] for rv, v in model.rvs_to_values.items()}),
        "values_to_rvs": kind("values_to_rvs")({of[v]: of[rv] for v, rv in model.values_to_rvs.items()}),
        "rvs_to_transforms": kind("rvs_to_transforms")(
            {of[rv]: of_tensors(transform, rv) for rv, transform in model.rvs_to_transforms.items()}
        ),
        "rvs_to_initial_values": kind("rvs_to_initial_values")(
            {
                of[rv]: of[start] if isinstance(start, Variable) else start
                for rv, start in model.rvs_to_initial_values.items()
            }
        ),
    }
    found |= {name: of[v] for name, v in model.named_vars.items() if found.get(name) is v}
    return found


# ---------------------------------------------------------------- graphs
def lowered(outputs: Sequence[Variable], rvs: Sequence[Variable] = ()) -> list[Variable]:
    """Graphs with dims as graphs of tensors, the dimensions of each output in the same order.

    Parameters
    ----------
    rvs : those of the outputs that are random variables, of which each becomes the output of one Op
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
            drawn = in_order(fg.outputs[place], str(v.name))
            if drawn is not fg.outputs[place]:
                fg.replace(fg.outputs[place], drawn, import_missing=True)
    found = rebuild(list(fg.outputs), dict(zip(fg.inputs, inputs, strict=True)))
    refuse_left(list(zip(outputs, found, strict=True)))
    return found


def in_tensor(leaf: Variable) -> Variable:
    """A constant, shared variable or input of a graph as one without dims, of the same name and value."""
    if isinstance(leaf.type, XRandomGeneratorType):
        if isinstance(leaf, SharedVariable):
            return RandomGeneratorSharedVariable(
                random_generator_type, None, None, container=leaf.container, name=leaf.name
            )
        return random_generator_type(name=leaf.name)
    kind = pt.TensorType(leaf.type.dtype, shape=leaf.type.shape)
    if isinstance(leaf, Constant):
        return TensorConstant(kind, np.asarray(leaf.data), name=leaf.name)
    if isinstance(leaf, SharedVariable):  # of the same content, which pm.set_data changes
        return TensorSharedVariable(kind, None, None, container=leaf.container, name=leaf.name)
    return kind(name=leaf.name)


def with_dims(tensor: Variable, like: Variable) -> Variable:
    """A tensor, or a random generator, with the dims of another variable."""
    if isinstance(like.type, XRandomGeneratorType):
        return rng_to_xrng(tensor)
    return xtensor_from_tensor(tensor, dims=like.type.dims)


def view_of_tensor(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
    """What `pm.Deterministic` makes of a variable with dims, as the same of a tensor.

    PyTensor lowers what reads it, and not the Op itself, which has no dims of its own.
    """
    if not isinstance(node.op, ViewOp) or not isinstance(inputs[0].type, XTensorType):
        return None
    return [with_dims(view_op(tensor_from_xtensor(inputs[0])), inputs[0])]


def in_order(rv: Variable, name: str) -> Variable:
    """A random variable whose dimensions were put in another order, drawn in that order.

    The parameters are put in it instead.

    Raises
    ------
    NotImplementedError
        For vectors whose own dimension is not the last one then.
    """
    if rv.owner is None or not isinstance(rv.owner.op, DimShuffle):
        return rv
    order, (drawn,) = rv.owner.op.new_order, rv.owner.inputs
    op = drawn.owner.op
    if getattr(op, "ndim_supp", 0):
        raise NotImplementedError(
            f"The dims of {name!r}, whose values are vectors or matrices, end with another dim than its own, "
            "core_dims. Name these last: dims=(..., *core_dims)."
        )
    if not isinstance(op, RandomVariable):
        return rv
    rng, size, *params = drawn.owner.inputs
    batches = [p.type.ndim - n for p, n in zip(params, op.ndims_params, strict=True)]
    moved = [
        p.dimshuffle(
            *[
                axis - (len(order) - batch) if axis >= len(order) - batch else "x"
                for axis in order
            ],
            *range(batch, p.type.ndim),
        )
        for p, batch in zip(params, batches, strict=True)
    ]
    lengths = None if getattr(size.type, "ndim", None) is None else [size[axis] for axis in order]
    return op.make_node(rng, lengths, *moved).outputs[1]


def refuse_left(pairs: list[tuple[Variable, Variable]]) -> None:
    """Refuse operations with dims that PyTensor has left; `pairs` are of outputs before and after.

    Raises
    ------
    NotImplementedError
    """
    for before, after in pairs:
        for node in toposort([after]):
            if any(has_dims(v) for v in node.outputs):
                raise NotImplementedError(
                    f"PyTensor cannot write {type(node.op).__name__}, on which {before.name!r} depends, without "
                    "dims. Write that part in plain tensors: x.values is the tensor of x, and "
                    "pymc.dims.as_xtensor(tensor, dims=...) has dims again."
                )


# ---------------------------------------------------------------- transforms
class OfTensors(Transform):
    """A transform of variables with dims, for tensors.

    Parameters
    ----------
    transform : of `pymc.dims`
    dims : of the variable
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
        kept = [dim for dim in self.dims if dim in found.type.dims]
        return lowered([found.transpose(*kept)])[0]


def of_tensors(transform: Any, rv: Variable) -> Any:
    """A transform of a random variable, for tensors: PyMC's own, where there is one that does the same."""
    if transform is None or not isinstance(rv.type, XTensorType):
        return transform
    from pymc.dims.distributions import transforms as of_dims  # PyMC's dims are imported by those who use them

    dims = rv.type.dims
    match transform:
        case of_dims.LogTransform():
            return transforms.log
        case of_dims.LogOddsTransform():
            return transforms.logodds
        case of_dims.CircularTransform():
            return transforms.circular
        case of_dims.SimplexTransform() if dims[-1] == transform.core_dim:
            return transforms.simplex
        case of_dims.ZeroSumTransform() if set(dims[-len(transform.dims) :]) == {*transform.dims}:
            return transforms.ZeroSumTransform([dims.index(d) - len(dims) for d in transform.dims])
        case of_dims.IntervalTransform():
            ends = [end.data for end in (transform.lower, transform.upper)]
            if all(np.ndim(end) == 0 for end in ends) and np.isfinite(ends).any():
                return transforms.Interval(*(float(end) if np.isfinite(end) else None for end in ends))
    return OfTensors(transform, dims)
