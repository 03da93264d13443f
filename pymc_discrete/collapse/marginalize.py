"""Models without some of their discrete variables, which are summed out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions.transforms import Interval
from pymc.model import modelcontext
from pymc.model.fgraph import fgraph_from_model, model_free_rv, model_from_fgraph, model_potential
from pymc.model.transform.conditioning import remove_value_transforms
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, graph_inputs

from pymc_discrete.collapse.marginal_op import SummedOut
from pymc_discrete.collapse.sums import Sums
from pymc_discrete.targets.blocks import block_of
from pymc_discrete.targets.density import ModelDensity
from pymc_discrete.targets.from_model import density_of
from pymc_discrete.targets.model_settings import model_settings
from pymc_discrete.targets.names import shown
from pymc_discrete.targets.space import UNBOUNDED


def marginalize(
    model: pm.Model | None = None, vars: Any = None, *, truncate: dict[str, tuple] | None = None
) -> pm.Model:
    r"""A model without some of its discrete variables, which are summed out of its density.

    .. math:: p(\theta) = \sum_z p(z, \theta)

    exactly, with its gradient, by eliminating one site after another. The result is an ordinary model, for
    everything that PyMC has: NUTS, ADVI, `find_MAP`, SMC. Terms that the variables enter, observed ones too,
    are in one potential, ``summed out``; the names, transforms and dimensions of all other variables stay.

    Parameters
    ----------
    model : pm.Model, optional
        By default that of the context.
    vars : list of variables or names, optional
        The discrete variables to sum out; by default all.
    truncate : {name: (lower, upper)}, optional
        Sum a variable without bounds over these values only, inclusive.

    Returns
    -------
    pm.Model
        Deterministics that depend on the summed variables are left out; `recover` gives them back.

    Raises
    ------
    ValueError
        If a variable has no bounds and no `truncate`, or the sum would be too large.
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
    model = modelcontext(model)
    names = block_of(model, vars)
    plain = without_transforms(model)
    density = density_to_sum(plain, names, truncate)
    with model_settings():
        sums = Sums(density)
    return without(model, plain, names, sums)


def without_transforms(model: pm.Model) -> pm.Model:
    """The model in terms of untransformed values, without start values."""
    plain = model_from_fgraph(fgraph_from_model(without_starts(model))[0], mutate_fgraph=True)
    return remove_value_transforms(plain)


def without_starts(model: pm.Model) -> pm.Model:
    """The same model without start values, which PyMC does not copy."""
    bare = object.__new__(type(model))
    bare.__dict__.update(model.__dict__)
    bare.__dict__["rvs_to_initial_values"] = dict.fromkeys(model.rvs_to_initial_values)
    return bare


def density_to_sum(model: pm.Model, names: list[str], truncate: dict[str, tuple] | None) -> ModelDensity:
    """The log density as a function of the variables to sum out, with bounds for all of them."""
    truncate = truncate or {}
    unknown = [name for name in truncate if name not in names]
    if unknown:
        raise ValueError(
            f"truncate names {shown(unknown)}, not among what is summed out: {', '.join(names)}."
        )
    point = model.initial_point()
    with model_settings():
        density = density_of(model, names, point, "exact", truncate, "auto", False)
    space = density.space
    without_bounds = (space.lower <= -UNBOUNDED) | (space.upper >= UNBOUNDED)
    missing = list(dict.fromkeys(space.sites[i][0] for i in np.flatnonzero(without_bounds)))
    if missing:
        example = f"truncate={{{missing[0]!r}: (0, 200)}}"
        raise ValueError(
            f"{shown(missing)} cannot be summed out as a whole: its support has no bound. Say from where to where "
            f"to sum, {example}, and check with pmd.recover how much mass that leaves out; or sample with "
            "step=pmd.CollapsedNUTS() or pmd.sample, which leave out nothing."
        )
    return density


def reads(variable: Variable, names: Sequence[str], model: pm.Model, itself: bool) -> bool:
    """Whether a term of the model reads one of the named variables, directly and not through another one."""
    stop = [rv for rv in model.basic_RVs if rv is not variable]
    if itself and str(variable.name) in names:
        return True
    return any(str(v.name) in names for v in ancestors([variable], blockers=stop) if v in stop)


def without(model: pm.Model, plain: pm.Model, names: list[str], sums: Sums) -> pm.Model:
    """The model with a potential in place of all terms that the named variables enter."""
    touched = [rv for rv in model.basic_RVs if reads(rv, names, model, True)]
    potentials = [p for p in model.potentials if reads(p, names, model, False)]
    graph, new = fgraph_from_model(without_starts(model))
    density = sums.density
    terms = [*(plain[str(v.name)] for v in [*touched, *potentials])]
    data = [
        v for v in graph_inputs(terms) if isinstance(v, SharedVariable) and str(v.name) in model.named_vars
    ]
    # what is left out: the variables, the terms, and deterministics that depend on the variables
    dropped = [rv for rv in touched if str(rv.name) in names or rv in model.observed_RVs]
    gone = {str(v.name) for v in dropped}
    # deterministics of observed variables stay possible through their data only
    deterministics = [d for d in model.deterministics if {str(v.name) for v in ancestors([d])} & gone]
    for v in [*touched, *potentials]:
        if v not in dropped and v not in potentials:
            graph.replace(new[v], flat(model, v, new[v], names), import_missing=True)
            new[v] = next(o for o in graph.outputs if o.name == v.name)
    others = [new[model[str(v.name)]] for v in density.graph.others]
    summed = SummedOut(sums, [np.array(v.get_value()) for v in data])
    inputs = [*others, *(new[model[str(v.name)]] for v in data)]
    graph.add_output(model_potential(summed(*inputs), "summed out"), import_missing=True)
    for v in [*deterministics, *potentials, *dropped]:
        graph.remove_output(graph.outputs.index(new[v]))
    result = model_from_fgraph(graph, mutate_fgraph=True)
    for rv, start in model.rvs_to_initial_values.items():
        if str(rv.name) in result.named_vars and start is not None and not isinstance(start, Variable):
            result.set_initval(result[str(rv.name)], start)
    return result


def flat(model: pm.Model, rv: Variable, old: Variable, names: list[str]) -> Variable:
    """A variable with the value and the transform of another one, whose density is part of the potential."""
    if not rv.type.dtype.startswith("float"):
        raise NotImplementedError(
            f"{shown(names)} cannot be summed out alone: the distribution of {rv.name!r}, which is discrete, "
            f"depends on it. Sum out {rv.name!r} too."
        )
    _, value = old.owner.inputs
    shape = model.initial_point()[model.rvs_to_values[rv].name].shape
    transform = model.rvs_to_transforms[rv]
    if isinstance(transform, Interval):
        transform = Interval(*(None if b is None else b for b in transform.args_fn(*rv.owner.inputs)))
    op = old.owner.op
    return model_free_rv(
        pm.Flat.dist(shape=rv.type.shape if None not in rv.type.shape else shape),
        value,
        transform,
        op.name,
        *op.dims,
    )
