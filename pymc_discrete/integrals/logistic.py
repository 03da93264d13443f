r"""Logistic likelihoods as quadratic forms, given Polya-Gamma variables.

A likelihood of log odds :math:`\eta` with a successes in b trials is, with :math:`\kappa = a - b / 2`
(Polson, Scott and Windle 2013, Theorem 1),

.. math:: \frac{e^{a \eta}}{(1 + e^\eta)^b}
    = 2^{-b} e^{\kappa \eta} \int e^{-\omega \eta^2 / 2} \, p(\omega) \, d\omega, \quad
    \omega \sim PG(b, 0)

so that given :math:`\omega` it is a quadratic form in the coefficients of a linear :math:`\eta`, which can be
integrated out. Given all else, :math:`\omega \sim PG(b, \eta)`.

Fewer trials than one, as of a negative binomial count of 0 whose size is below 1, become more than one by a
further variable s, which is 1 with probability :math:`e^\eta / (1 + e^\eta)` and else 0:

.. math:: (1 + e^\eta)^{-b} = \sum_{s = 0}^1 \frac{e^{s \eta}}{(1 + e^\eta)^{b + 1}}
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.scalar.basic import Mul
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_discrete.model.structure_of_model import MadeModel
from pymc_discrete.runtime.names import shown
from pymc_discrete.structure.logp_graph import AUXILIARY
from pymc_discrete.structure.numbers import AS_WRITTEN, NUMBER
from pymc_discrete.structure.rebuild import rebuild, rewritten

# what only arranges or selects elements, of its first input
ARRANGES = (ViewOp, DimShuffle, Subtensor, AdvancedSubtensor, Reshape, SpecifyShape)


class Trials(NamedTuple):
    """Observed data as successes in trials.

    Attributes
    ----------
    successes, trials : a and b
    possible : whether the data have a positive probability at all
    """

    successes: Any
    trials: Any
    possible: Any


class Reading(NamedTuple):
    """How a distribution is a logistic likelihood.

    Attributes
    ----------
    place : of the probability among the distribution's parameters
    of_failure : whether it is that of a failure
    trials : (data, *parameters) -> Trials
    """

    place: int
    of_failure: bool
    trials: Callable[..., Trials]


READINGS: dict[type[Op], Reading] = {
    ptr.BernoulliRV: Reading(0, False, lambda y, p: Trials(y, pt.ones_like(y), pt.eq(y, 0) | pt.eq(y, 1))),
    ptr.BinomialRV: Reading(1, False, lambda y, n, p: Trials(y, n, pt.ge(y, 0) & pt.le(y, n))),
    ptr.NegBinomialRV: Reading(1, True, lambda y, n, p: Trials(y, y + n, pt.ge(y, 0) & pt.gt(n, 0))),
    ptr.GeometricRV: Reading(0, False, lambda y, p: Trials(pt.ones_like(y), y, pt.ge(y, 1))),
}


class Logistic(NamedTuple):
    """An observed variable with a logistic likelihood, of which coefficients may be integrated out.

    Attributes
    ----------
    name : of the variable
    precision : the name of its Polya-Gamma variables
    shift : that of what further variables s add to the successes less half the trials, None where all have
        one trial at least
    log_odds, trials : names of Deterministics
    least, most : of the trials, where they are known; else 0 and infinity
    of_trials : names of the continuous value variables that the trials depend on
    """

    name: str
    precision: str
    shift: str | None
    log_odds: str
    trials: str
    least: float
    most: float
    of_trials: list[str]


class Augmented(NamedTuple):
    """A model in which logistic likelihoods are quadratic forms, given further variables.

    Attributes
    ----------
    model : without these likelihoods and without the densities of the further variables, which nothing but
        their block moves
    likelihoods : what it has in their place
    start : {further variable: value}, at which the model has a density
    """

    model: pm.Model
    likelihoods: list[Logistic]
    start: dict[str, np.ndarray]

    @property
    def of_trials(self) -> list[str]:
        """Continuous value variables that numbers of trials depend on."""
        return list(dict.fromkeys(name for of in self.likelihoods for name in of.of_trials))


def augmented(model: pm.Model, names: Collection[str] | None = None) -> Augmented | None:
    """The model with those logistic likelihoods augmented that read some variables; None if there are none.

    Parameters
    ----------
    names : of continuous value variables; all by default
    """
    random = list(model.basic_RVs)
    read = {rv for rv, value in model.rvs_to_values.items() if names is None or value.name in names}
    found = []
    for rv in model.observed_RVs:
        log_odds = log_odds_of(rv, random)
        if log_odds is not None and not is_read(rv, model) and read & {*directly_read([log_odds], random)}:
            found.append((rv, log_odds))
    return with_quadratic_forms(model, found) if found else None


def refuse_outside_of_program(names: Collection[str], inputs: Collection[str]) -> None:
    """Refuse a density that reads variables which only the program of a whole model draws.

    Parameters
    ----------
    names : what is integrated out
    inputs : names of what the density reads

    Raises
    ------
    ValueError
    """
    if any(name.startswith(AUXILIARY) for name in inputs):
        raise ValueError(
            f"{shown(names)} cannot be integrated out here: with a logistic likelihood that takes "
            "Polya-Gamma variables, which only a program that moves all of the model draws. Use "
            "pmd.sample(), or in pm.sample the one step pmd.AutoStep() without vars; or leave integrate= out."
        )


# ---------------------------------------------------------------- what is found in a model
def log_odds_of(rv: Variable, random: Sequence[Variable]) -> Variable | None:
    """The log odds of a success that an observed variable has, None where it has no logistic likelihood.

    Parameters
    ----------
    random : all random variables of the model
    """
    reading = READINGS.get(type(rv.owner.op))
    if reading is None:
        return None
    p = rv.owner.op.dist_params(rv.owner)[reading.place]
    inputs = {v: v.type() for v in random}
    (graph,) = rebuild([p], inputs, lambda node, new: new[:1] if isinstance(node.op, ViewOp) else None)
    found = logit(graph)
    if found is None:
        (graph,) = rewritten([graph])
        found = logit(graph)
    if found is None:
        return None
    (found,) = rewritten([-found if reading.of_failure else found])
    return rebuild([found], {new: v for v, new in inputs.items()})[0]


def logit(p: Variable) -> Variable | None:
    """The log odds of a probability that is the sigmoid of something, None for any other."""
    node = p.owner
    if node is None:
        return None
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Sigmoid):
        return node.inputs[0]
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Mul):
        rest = [i for i in node.inputs if not (isinstance(i, Constant) and np.all(i.data == 1))]
        return (
            logit(rest[0]) if len(rest) == 1 and rest[0].type.broadcastable == p.type.broadcastable else None
        )
    if isinstance(node.op, ARRANGES):
        first = logit(node.inputs[0])
        return None if first is None else node.op.make_node(first, *node.inputs[1:]).outputs[0]
    return None


def directly_read(graphs: Sequence[Variable], random: Sequence[Variable]) -> list[Variable]:
    """The random variables that graphs read other than by way of further random variables."""
    inputs = [v for node in toposort(list(graphs), blockers=list(random)) for v in node.inputs]
    return [v for v in dict.fromkeys([*graphs, *inputs]) if v in {*random}]


def is_read(rv: Variable, model: pm.Model) -> bool:
    """Whether the rest of a model reads an observed variable."""
    random = list(model.basic_RVs)
    others = [v for other in random if other is not rv for v in other.owner.inputs]
    return rv in directly_read([*others, *model.potentials], random)


def known(v: Variable) -> np.ndarray | None:
    """The value of what is computed from constants and data, None for other variables."""
    if any(not isinstance(i, Constant | SharedVariable) for i in graph_inputs([v])):
        return None
    if any(isinstance(node.op, ptr.RandomVariable) for node in toposort([v])):
        return None
    return np.asarray(v.eval(mode=AS_WRITTEN))


# ---------------------------------------------------------------- the model without these likelihoods
def with_quadratic_forms(model: pm.Model, found: Sequence[tuple[Variable, Variable]]) -> Augmented:
    """The model with quadratic forms in the place of likelihoods.

    Parameters
    ----------
    found : [(observed variable, its log odds)]
    """
    made = MadeModel.of(model, f"{NUMBER}given Polya-Gamma variables: ")
    taken = {rv for rv, _ in found}
    free, values = list(model.free_RVs), dict(model.rvs_to_values)
    starts, transforms = dict(model.rvs_to_initial_values), dict(model.rvs_to_transforms)
    potentials, deterministics = list(model.potentials), list(model.deterministics)
    named, likelihoods, start = dict(model.named_vars), [], dict[str, np.ndarray]()
    kinds = {rv: str(value.name) for rv, value in values.items() if rv in free and is_float(rv)}

    def auxiliary(name: str, value: np.ndarray) -> Variable:
        rv = pm.Flat.dist(shape=value.shape)
        rv.name = name
        free.append(rv)
        values[rv] = pt.TensorType(rv.type.dtype, shape=value.shape)(name=name)
        starts[rv], transforms[rv], named[name], start[name] = value, None, rv, value
        return rv

    for rv, log_odds in found:
        name, data = str(rv.name), values.pop(rv)
        of_data = READINGS[type(rv.owner.op)].trials(data, *rv.owner.op.dist_params(rv.owner))
        trials = pt.broadcast_to(of_data.trials, data.shape)
        number, shape = known(trials), tuple(map(int, data.shape.eval()))
        precision = f"{AUXILIARY}Polya-Gamma variables of {name}"
        omega = auxiliary(precision, np.full(shape, 0.25))
        half, shift = of_data.successes - trials / 2, None
        if number is None or (number < 1).any():
            shift = f"{AUXILIARY}further successes of {name}"
            half = half + auxiliary(shift, np.zeros(shape))
        form = pt.switch(of_data.possible, half * log_odds - omega * log_odds**2 / 2, -np.inf)
        form.name = name
        potentials.append(form)
        outputs = [pt.broadcast_to(log_odds, data.shape), trials.astype(omega.type.dtype)]
        names = [f"{AUXILIARY}{what} of {name}" for what in ("log odds", "trials")]
        outputs = [output.copy(name=of) for output, of in zip(outputs, names, strict=True)]
        deterministics += outputs
        named |= {name: form, **dict(zip(names, outputs, strict=True))}
        likelihoods.append(
            Logistic(
                name,
                precision,
                shift,
                log_odds=names[0],
                trials=names[1],
                least=0.0 if number is None or not number.size else float(number.min()),
                most=np.inf if number is None or not number.size else float(number.max()),
                of_trials=[kinds[v] for v in directly_read([trials], model.basic_RVs) if v in kinds],
            )
        )
    made.__dict__.update(
        free_RVs=free,
        observed_RVs=[rv for rv in model.observed_RVs if rv not in taken],
        potentials=potentials,
        deterministics=deterministics,
        named_vars=named,
        rvs_to_values=values,
        values_to_rvs={value: rv for rv, value in values.items()},
        rvs_to_transforms={rv: of for rv, of in transforms.items() if rv not in taken},
        rvs_to_initial_values={rv: of for rv, of in starts.items() if rv not in taken},
    )
    return Augmented(made, likelihoods, start)


def is_float(v: Variable) -> bool:
    """Whether a variable holds real numbers."""
    return bool(v.type.dtype.startswith("float"))
