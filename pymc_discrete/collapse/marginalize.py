"""Models without some of their discrete variables, which are summed out."""

import bisect
import itertools
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import Discrete
from pymc.distributions.transforms import Interval
from pymc.model.fgraph import fgraph_from_model, model_free_rv, model_from_fgraph, model_potential
from pymc.model.transform.conditioning import remove_value_transforms
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import TensorType

from pymc_discrete.collapse.marginal_op import SummedOut, call_from_numba_quietly
from pymc_discrete.collapse.sums import Sums
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.differences.from_model import density_of
from pymc_discrete.model.blocks import (
    DISCRETE,
    block_of,
    free,
    model_of,
    refuse_counts_as_floats,
    value_name,
)
from pymc_discrete.model.described import DescribedModel
from pymc_discrete.model.initial import for_long_chains, point_of
from pymc_discrete.model.support import reason_refused
from pymc_discrete.model.totals import totals_in
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.waiting import watched
from pymc_discrete.space.space import UNBOUNDED, Space

_log = logging.getLogger("pymc.discrete")

MARGINAL_POTENTIAL = "summed out"  # the name of the potential that is the sum, unless a variable has it


@watched("Summing variables out")
def marginalize(
    model: pm.Model | None = None, vars: Any = None, *, truncate: dict[str, tuple[int, int]] | None = None
) -> pm.Model:
    r"""A model without some of its discrete variables, which are summed out of its density.

    .. math:: p(\theta) = \sum_z p(z, \theta)

    The sum and its gradient are exact, by eliminating one site after another. The result is an ordinary
    model, for everything that PyMC has: NUTS, ADVI, `find_MAP`, SMC. Terms that the variables enter, observed
    ones too, are in one potential, ``summed out``; the names, transforms and dimensions of all other
    variables stay.

    Parameters
    ----------
    model : pm.Model, optional
        The default is the model of the `with` block.
    vars : list of variables or names, optional
        The discrete variables to sum out; by default all that can be summed out. A line of the log names the
        others: vectors whose elements change only together, such as a Multinomial, and variables that their
        distributions depend on.
    truncate : {name: (lower, upper)}, optional
        Sum a variable without bounds over these values only, inclusive.

    Returns
    -------
    pm.Model
        Deterministics that depend on the summed variables are left out; `recover` gives them back. The result
        for a model of `pymc.dims` is a model in plain tensors with the same names, dims and coordinates.

    Raises
    ------
    ValueError
        If a variable has no bounds and no `truncate`, or `truncate` has no value that is possible at the
        start, or the sum would be too large.
    NotImplementedError
        If a term joins too many sites.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 5, shape=2)
    ...     z = pm.Bernoulli("z", 0.3, shape=4)
    ...     y = pm.Normal("y", mu[z], 1, observed=[-1, 0, 2, 3])
    >>> [v.name for v in pmd.marginalize(model).free_RVs]
    ['mu']
    """
    model = model_of(model, vars)
    if vars is None and not free(model, DISCRETE):
        raise ValueError("There is nothing to sum out: the model has no discrete free variable.")
    names = block_to_sum_out(model, vars)
    numbered = (MARGINAL_POTENTIAL if n == 1 else f"{MARGINAL_POTENTIAL} {n}" for n in itertools.count(1))
    taken = {*model.named_vars} - {p.name for p in terms_that_read(model, names)[1]}
    name = next(name for name in numbered if name not in taken)
    plain = without_transforms(model)
    density = density_to_sum(plain, names, truncate)
    refuse_unbounded(density, plain)
    call_from_numba_quietly()
    with model_settings():
        kept = without(model, density, Sums(density, shared=True), name)
    if truncate:
        refuse_too_narrow(plain, kept, kept[name], density, [value_name(plain, k) for k in truncate])
    return kept


def block_to_sum_out(model: pm.Model, vars: Any) -> list[str]:
    """The names by which a log density knows `vars`; by default all discrete variables that can be summed
    out.

    A line of the log names the discrete variables that cannot be summed out, with the reason.

    Raises
    ------
    TypeError, ValueError
        For variables that cannot be summed out, and where there are none.
    """
    if vars is not None:
        return block_of(model, vars)
    discrete = free(model, DISCRETE)
    refuse_counts_as_floats(model, [str(v.name) for v in model.value_vars])
    left = {name: f"is {why}" for name in discrete if (why := reason_refused(model, name))}
    while more := {
        name: f"enters the distribution of {other!r}"
        for name in discrete
        for other in left
        if name not in left and reads(model[other], [name], model)
    }:
        left |= more
    why = "; ".join(f"{name!r} {reason}" for name, reason in left.items())
    names = [name for name in discrete if name not in left]
    if not names:
        raise ValueError(f"There is nothing that can be summed out: {why}.")
    if left:
        _log.info(f"Not summed out: {why}.")
    return names


def without_transforms(model: pm.Model) -> pm.Model:
    """The model without transforms of its variables, and without starting values."""
    plain = model_from_fgraph(fgraph_from_model(without_starts(model))[0], mutate_fgraph=True)
    plain = remove_value_transforms(plain)
    for rv in plain.free_RVs:  # PyMC may leave a transform's name in the value's name
        plain.rvs_to_values[rv].name = rv.name
    return plain


def without_starts(model: pm.Model) -> pm.Model:
    """The model without starting values: PyMC makes no graph of a model that has starting values."""
    bare = object.__new__(type(model))
    bare.__dict__.update(model.__dict__)
    bare.__dict__["rvs_to_initial_values"] = dict.fromkeys(model.rvs_to_initial_values)
    return bare


def density_to_sum(
    plain: pm.Model,
    names: list[str],
    truncate: dict[str, tuple[int, int]] | None,
    with_numbers: bool = False,
    totals: bool = False,
) -> ModelDensity:
    """The log density of a model, without transforms, as a function of the variables to sum out.

    Parameters
    ----------
    with_numbers : whether data and constants of the model may be inputs of the density, which models with
        other data then share
    totals : whether sums of counts may stand in the place of some counts, since they move more easily
    """
    check_truncate(truncate)
    truncate = {value_name(plain, k): bounds for k, bounds in (truncate or {}).items()}
    unknown = [name for name in truncate if name not in names]
    if unknown:
        raise ValueError(
            f"truncate names {shown(unknown)}, not among what is summed out: {', '.join(names)}."
        )
    for name, bounds in truncate.items():
        pair = isinstance(bounds, tuple | list) and len(bounds) == 2
        if not pair or (np.asarray(bounds[0]) > np.asarray(bounds[1])).any():
            raise ValueError(
                f"truncate[{name!r}] must be (lower, upper), both inclusive, as (0, 200), got {bounds!r}."
            )
    touched, potentials = terms_that_read(plain, names)
    whole = tuple(str(v.name) for v in [*touched, *potentials])
    with model_settings():
        described = DescribedModel(plain)
        in_place = totals_in(plain, names, described.point) if totals else {}
        block = described.block(names, support=truncate, totals=in_place)
        return density_of(block, "exact", "auto", with_numbers, whole=whole)


def check_truncate(truncate: Any) -> None:
    """Raise a TypeError unless `truncate` is a dictionary, or None."""
    if not isinstance(truncate, dict | None):
        raise TypeError(f"truncate must be a dictionary {{name: (lower, upper)}}, got {truncate!r}.")


def refuse_unbounded(density: ModelDensity, model: pm.Model) -> None:
    """Refuse variables of a model that have no bounds.

    Raises
    ------
    ValueError
    """
    missing = density.space.names_at(np.flatnonzero(unbounded(density.space)))
    if missing:
        sampled = "; or sample with pmd.sample(collapse=True), which leaves out nothing"
        raise ValueError(
            f"{shown(missing)} cannot be summed out as a whole: the support has no bound, or a far one. Say "
            f"from where to where to sum, truncate={{{missing[0]!r}: (0, 200)}}, and check with pmd.recover "
            f"how much mass that leaves out{sampled if model.continuous_value_vars else ''}."
        )


def refuse_too_narrow(
    plain: pm.Model, kept: pm.Model, total: Variable, density: ModelDensity, truncated: list[str]
) -> None:
    """Refuse upper bounds at which the density at the starting point is zero, if larger bounds make it
    positive.

    Parameters
    ----------
    plain : the model without transforms
    kept : the model without the variables that are summed out
    total : the potential of `kept` that is the sum
    truncated : names of the variables with an upper bound from `truncate`

    Raises
    ------
    ValueError
    """
    touched, potentials = terms_that_read(plain, density.names)
    with for_long_chains(plain):
        logp = plain.compile_logp(vars=[*touched, *potentials], mode="FAST_COMPILE")
    point = point_of(plain)
    upper = {name: density.space.unravel(density.space.upper)[name] for name in truncated}

    def possible(more: int) -> bool:
        """Whether the density is positive when every `truncated` variable is `more` above its upper bound."""
        return bool(logp(point | {name: values + more for name, values in upper.items()}) > -np.inf)

    # The density may be zero at the upper bounds and positive elsewhere. So the sum at the starting point is
    # computed as well, by a function that is compiled only if the density at the bounds is zero.
    if possible(0) or kept.compile_logp(vars=[total])(point_of(kept)) > -np.inf:
        return
    enough = next((2**k for k in range(31) if possible(2**k)), None)
    if enough is None:
        return  # no larger bound helps, and PyMC will say that the start is impossible
    needed = bisect.bisect_left(range(enough + 1), True, lo=enough // 2, key=possible)
    bounds = ", ".join(f"{name!r}: (..., {int(values.max()) + needed})" for name, values in upper.items())
    raise ValueError(
        f"None of the values of {shown(truncated)} that truncate= leaves is possible: the density is zero "
        f"where the chains start, as where an observed count is larger. Take truncate={{{bounds}}} at least, "
        "and more for the mass above."
    )


def unbounded(space: Space) -> np.ndarray:
    """(d,) bool, the sites without a lower or an upper bound."""
    return (space.lower <= -UNBOUNDED) | (space.upper >= UNBOUNDED)


def reads(variable: Variable, names: Sequence[str], model: pm.Model) -> bool:
    """Whether the term of `variable` reads one of the named variables directly, not only through another
    variable.
    """
    if str(variable.name) in names:
        return True
    stop = [rv for rv in model.basic_RVs if rv is not variable]
    return any(str(v.name) in names for v in ancestors([variable], blockers=stop) if v in stop)


def terms_that_read(model: pm.Model, names: Sequence[str]) -> tuple[list[Variable], list[Variable]]:
    """The random variables and the potentials whose terms the named variables enter."""
    return (
        [rv for rv in model.basic_RVs if reads(rv, names, model)],
        [p for p in model.potentials if reads(p, names, model)],
    )


def without(
    model: pm.Model, density: ModelDensity, sums: Sums, name: str, stretches: str | None = None
) -> pm.Model:
    """The model without the variables that `sums` sums out; one potential replaces all terms that they enter.

    Parameters
    ----------
    model : pm.Model, with its transforms
    density : ModelDensity of the variables to sum out, of the model without transforms
    sums : Sums of `density`
    name : the name of the potential
    stretches : the name of a new variable, a vector of integers that the methods of `sums` take as
        `stretches`: it holds the values of a site that are summed. None if all values of all sites are summed
    """
    names = density.names
    touched, potentials = terms_that_read(model, names)
    graph, new = fgraph_from_model(without_starts(model))
    data = shared_tensors([*touched, *potentials])
    dropped = [rv for rv in touched if str(rv.name) in names or rv in model.observed_RVs]
    gone = {str(v.name) for v in dropped}
    deterministics = [d for d in model.deterministics if {str(v.name) for v in ancestors([d])} & gone]
    for rv in touched:
        if rv not in dropped:
            replacement = flat(model, rv, new[rv], names)
            graph.replace(new[rv], replacement, import_missing=True)
            new[rv] = replacement
    numbers = density.numbers
    inputs = [
        pt.constant(numbers[name]) if name in numbers else new[model[name]]
        for name in (str(v.name) for v in density.graph.others)
    ]
    if stretches is not None:
        free = Unweighted.dist(sums.places)
        inputs.append(model_free_rv(free, free.type(name=stretches), None, stretches))
        graph.add_output(inputs[-1], import_missing=True)
        data = []  # the Op need not store the values of pm.Data, which are read anew for every run
    op = SummedOut(sums, stretches is not None, [np.array(v.get_value()) for v in data])
    total, *_ = op(*inputs, *(new.get(v, v) for v in data), return_list=True)
    graph.add_output(model_potential(total, name), import_missing=True)
    for v in [*deterministics, *potentials, *dropped]:
        graph.remove_output(graph.outputs.index(new[v]))
    for v in dropped:
        if v in model.observed_RVs:  # what remains in the model and reads v gets the observed values
            _, observed, *_ = new[v].owner.inputs
            graph.replace(new[v], observed.astype(v.type.dtype), import_missing=True)
    result = model_from_fgraph(graph, mutate_fgraph=True)
    left = [name for name in names if name in result.named_vars]
    if left:
        raise NotImplementedError(
            f"{shown(left)} cannot be summed out: a term that is left in the model still reads it. Leave it "
            "out of what is summed out, and sample it."
        )
    put_in_order(result, model)
    return result


def shared_tensors(variables: Sequence[Variable]) -> list[SharedVariable]:
    """The data, and other shared tensors whose values may be replaced, from which variables are computed."""
    inputs = graph_inputs(variables)
    return [v for v in inputs if isinstance(v, SharedVariable) and isinstance(v.type, TensorType)]


def put_in_order(result: pm.Model, model: pm.Model) -> None:
    """Give the variables of `result` the order and the starting values that they have in `model`."""
    order = {str(v.name): n for n, v in enumerate(model.basic_RVs)}
    result.free_RVs.sort(key=lambda v: order.get(str(v.name), len(order)))
    result.rvs_to_values = {rv: result.rvs_to_values[rv] for rv in [*result.free_RVs, *result.observed_RVs]}
    for rv, start in model.rvs_to_initial_values.items():
        if str(rv.name) in result.named_vars and start is not None and not isinstance(start, Variable):
            result.set_initval(result[str(rv.name)], start)


class UnweightedRV(RandomVariable):
    """Random integers of which every value has the same density, so that no value can be drawn."""

    name = "unweighted"
    signature = "->()"
    dtype = "int64"

    @classmethod
    def rng_fn(cls, rng: Any, size: Any) -> Any:
        raise NotImplementedError("The values over which a sum is taken have no distribution to draw from.")


class Unweighted(Discrete):
    """The PyMC distribution of integers with a log density of 0."""

    rv_op = UnweightedRV()

    @classmethod
    def dist(cls, n: int, **options: Any) -> Variable:
        """A vector of n such integers."""
        return super().dist([], shape=(n,), **options)

    def support_point(rv: Any, size: Any) -> Variable:
        return pt.zeros(size, dtype="int64")

    def logp(value: Any) -> Variable:
        return pt.zeros(value.shape)


def flat(model: pm.Model, rv: Variable, old: Variable, names: Sequence[str]) -> Variable:
    """A variable with a flat density that replaces `rv`, whose own density is now a part of the potential."""
    if not rv.type.dtype.startswith("float"):
        name = str(rv.name)
        why = reason_refused(model, name)
        remedy = f"Sum out {name!r} too." if why is None else f"{name!r} is {why}."
        raise NotImplementedError(
            f"{shown(list(names))} cannot be summed out alone: the distribution of {name!r}, which is "
            f"discrete, depends on it. {remedy}"
        )
    op, (_, value) = old.owner.op, old.owner.inputs
    transform = model.rvs_to_transforms[rv]
    if isinstance(transform, Interval):
        bounds = transform.args_fn(*rv.owner.inputs)
        if not all(b is None or isinstance(b, int | float | np.ndarray | Constant) for b in bounds):
            raise NotImplementedError(
                f"{shown(list(names))} cannot be summed out: it enters the density of {rv.name!r}, whose "
                "bounds are not constant. Give it constant bounds, or leave out what enters it."
            )
        transform = Interval(*bounds)
    shape = model.eval_rv_shapes()[rv.name]
    return model_free_rv(pm.Flat.dist(shape=shape), value, transform, op.name, *op.dims)
