"""Likelihoods that are quadratic forms given further variables, and models with these quadratic forms.

In a regression with a logistic or probit likelihood, coefficients have no normal conditional distribution.
But the likelihood is the integral, over further variables, of a likelihood that is a quadratic form in the
linear predictor; given the further variables, coefficients are integrated out as in a Normal regression. The
further variables are drawn given all else before each use, and are no part of the state of a chain.

An `Augmentation` makes quadratic forms of likelihoods of one kind. It is a file of this folder, and an entry
of `AUGMENTATIONS`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Variable

from pymc_discrete.integrals.logistic import LOGISTIC
from pymc_discrete.integrals.probit import ORDERED_PROBIT, PROBIT
from pymc_discrete.model.structure_of_model import MadeModel, key_of_model
from pymc_discrete.model.unread import is_read
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.reuse import MODELS, Kept
from pymc_discrete.structure.analysis import directly_read
from pymc_discrete.structure.logp_graph import AUXILIARY
from pymc_discrete.structure.numbers import NUMBER
from pymc_discrete.structure.rebuild import rebuild, rewritten


class Augmentation(Protocol):
    """The way in which likelihoods of one kind become quadratic forms.

    Attributes
    ----------
    called : the name of the further variables in messages
    """

    called: str

    def predictor(self, op: Any, params: Sequence[Variable]) -> Variable | None:
        """The variable in which the likelihood becomes a quadratic form; None for a distribution of another
        kind.

        Coefficients can be integrated out if this variable is linear in them.

        Parameters
        ----------
        op, params : the Op and the parameters of the observed variable's distribution
        """

    def others(self, op: Any, params: Sequence[Variable]) -> list[Variable]:
        """Tensors, besides the predictor and the data, on which the distribution of the further variables
        depends.

        Parameters
        ----------
        op, params : the Op and the parameters of the observed variable
        """

    def form(
        self,
        op: Any,
        params: Sequence[Variable],
        data: Variable,
        predictor: Variable,
        further: Callable[[str, np.ndarray], Variable],
    ) -> tuple[Variable, dict[str, Variable], tuple[Any, ...]]:
        """The logarithm of the likelihood of each element, given further variables.

        Parameters
        ----------
        op, params, data : the Op, the parameters and the data of the observed variable
        predictor : the variable in which the likelihood becomes a quadratic form
        further : (role, a value with a positive density) -> a new further variable, which has this role in
            the quadratic form

        Returns
        -------
        form : a quadratic form in the predictor; -inf for impossible data
        read : {role: tensor}, the tensors that a draw of the further variables reads
        facts : what holds at every state and a draw may use, such as bounds of the numbers of trials
        """

    def draw(self, key: Any, values: Mapping[str, Any], facts: tuple[Any, ...]) -> dict[str, Any]:
        """{role: (n,) array}, a draw of the further variables given all else, by their roles in the quadratic
        form.

        Parameters
        ----------
        values : {role: (n,) array}, the values of the tensors that the draw reads
        facts : what holds at every state and the draw may use, such as bounds of the numbers of trials
        """


AUGMENTATIONS: dict[str, Augmentation] = {
    "logistic": LOGISTIC,
    "probit": PROBIT,
    "ordered probit": ORDERED_PROBIT,
}


class Augmented(NamedTuple):
    """An observed variable whose likelihood is a quadratic form given further variables.

    Attributes
    ----------
    name : the name of the variable
    kind : the kind of the likelihood, a key of `AUGMENTATIONS`
    shape : the shape of the data
    variables : {role in the quadratic form: name} of the further variables
    read : {role: name of a Deterministic}, the tensors that a draw of the further variables reads
    facts : what holds at every state and a draw may use, such as bounds of the numbers of trials
    beside : names of the continuous value variables on which the distribution of the further variables
        depends in another way than through the predictor: these variables move while the further variables
        are integrated out
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    variables: dict[str, str]
    read: dict[str, str]
    facts: tuple[Any, ...]
    beside: list[str]

    def draw(self, key: Any, values: Mapping[str, Any]) -> dict[str, Any]:
        """{name: a draw} of the further variables, given {name of a Deterministic in `read`: its value}."""
        own = {role: values[name].reshape(-1) for role, name in self.read.items()}
        drawn = AUGMENTATIONS[self.kind].draw(key, own, self.facts)
        return {name: drawn[role].reshape(self.shape) for role, name in self.variables.items()}


class AugmentedModel(NamedTuple):
    """A model with quadratic forms in place of likelihoods, given further variables.

    Attributes
    ----------
    model : the model, in which the further variables have no densities of their own: these would depend on
        the further variables alone, which stay while anything else moves
    likelihoods : list of Augmented, the likelihoods that have become quadratic forms
    start : {further variable: value}, values at which the density of the model is positive
    """

    model: pm.Model
    likelihoods: list[Augmented]
    start: dict[str, np.ndarray]

    @property
    def beside(self) -> list[str]:
        """Names of continuous value variables that move while the further variables are integrated out."""
        return list(dict.fromkeys(name for of in self.likelihoods for name in of.beside))

    def described(self) -> str:
        """The further variables in words, for a message."""
        kinds = list(dict.fromkeys(of.kind for of in self.likelihoods))
        return " and ".join(
            f"{AUGMENTATIONS[kind].called} of {shown(of.name for of in self.likelihoods if of.kind == kind)}"
            for kind in kinds
        )


# {(key of a model, names of variables): whether the model has such likelihoods of these variables}
_any: Kept[bool] = Kept(MODELS, "whether likelihoods have quadratic forms")


def augmented(model: pm.Model, names: Collection[str] | None = None) -> AugmentedModel | None:
    """The model with a quadratic form in place of each logistic or probit likelihood whose predictor reads
    one of some variables; None if there is no such likelihood.

    Parameters
    ----------
    names : the names of value variables; by default all
    """
    asked = (key_of_model(model), None if names is None else tuple(sorted(names)))
    # Most models have no such likelihood, and to see that takes long.
    if not _any.get(asked, lambda: bool(likelihoods_in(model, names))):
        return None
    return with_quadratic_forms(model, likelihoods_in(model, names))


def likelihoods_in(model: pm.Model, names: Collection[str] | None) -> list[tuple[Variable, str, Variable]]:
    """[(observed variable, kind, predictor)] of the likelihoods of `augmented`."""
    random = list(model.basic_RVs)
    read = {rv for rv, value in model.rvs_to_values.items() if names is None or value.name in names}
    found = []
    for rv in model.observed_RVs:
        of = kind_and_predictor(rv, random)
        if of is not None and not is_read(rv, model) and read & {*directly_read([of[1]], random)}:
            found.append((rv, *of))
    return found


def refuse_outside_of_program(names: Collection[str], inputs: Collection[str]) -> None:
    """Refuse a density that reads further variables, which only the program of a whole model draws.

    Parameters
    ----------
    names : the names of the variables that are integrated out
    inputs : the names of the inputs of the density

    Raises
    ------
    ValueError
    """
    if any(name.startswith(AUXILIARY) for name in inputs):
        raise ValueError(
            f"{shown(names)} cannot be integrated out here: with a logistic or probit likelihood that takes "
            "further variables, which only a program that moves all of the model draws. Use pmd.sample(), or "
            "in pm.sample the one step pmd.AutoStep() without vars; or leave integrate= out."
        )


# ---------------------------------------------------------------- likelihoods found in a model
def kind_and_predictor(rv: Variable, random: Sequence[Variable]) -> tuple[str, Variable] | None:
    """The kind of the likelihood of an observed variable, a key of `AUGMENTATIONS`, and its predictor; else
    None.

    Parameters
    ----------
    random : all random variables of the model
    """
    op = rv.owner.op
    if not isinstance(op, pt.random.op.RandomVariable):
        return None
    inputs = {v: v.type() for v in random}
    params = rebuild(op.dist_params(rv.owner), inputs, without_views)
    for kind, augmentation in AUGMENTATIONS.items():
        found = augmentation.predictor(op, params)
        if found is None:  # a predictor may be recognised only once PyTensor has simplified the graph
            found = augmentation.predictor(op, rewritten(params))
        if found is not None:
            # The quadratic form leaves out factors of the likelihood that do not depend on the predictor, but
            # on a number of trials or a cutpoint. A continuous unknown in such a number or cutpoint is moved
            # while the further variables are integrated out. No block moves a discrete unknown so, and a
            # likelihood with one is left as it is.
            others = directly_read(augmentation.others(op, op.dist_params(rv.owner)), random)
            if any(not v.type.dtype.startswith("float") for v in others):
                return None
            (found,) = rewritten([found])
            return kind, rebuild([found], {new: v for v, new in inputs.items()})[0]
    return None


def without_views(node: Any, inputs: list[Variable]) -> list[Variable] | None:
    """[the input] of a node that is a view, as PyMC writes a Deterministic in a graph; None for others."""
    return inputs[:1] if isinstance(node.op, ViewOp) else None


# ---------------------------------------------------------------- the model without these likelihoods
class Making:
    """A model that is being made, in which observed variables become potentials.

    Parameters
    ----------
    model : pm.Model

    Attributes
    ----------
    start : {further variable: value}, values at which the density of the model is positive
    """

    def __init__(self, model: pm.Model):
        self._model, self.start = model, dict[str, np.ndarray]()
        self._free, self._values = list(model.free_RVs), dict(model.rvs_to_values)
        self._starts, self._transforms = dict(model.rvs_to_initial_values), dict(model.rvs_to_transforms)
        self._potentials, self._deterministics = list(model.potentials), list(model.deterministics)
        self._named = dict(model.named_vars)

    def further(self, name: str, value: np.ndarray) -> Variable:
        """A new variable with the given name and starting value, and without a density."""
        new = pm.Flat.dist(shape=value.shape)
        new.name = name
        self._free.append(new)
        self._values[new] = pt.TensorType(new.type.dtype, shape=value.shape)(name=name)
        self._starts[new], self._transforms[new], self._named[name] = value, None, new
        self.start[name] = value
        return new

    def replaced(self, rv: Variable, form: Variable, outputs: Sequence[Variable]) -> None:
        """Replace an observed variable by a potential of the same name, and add Deterministics: the
        `outputs`, which a draw of the further variables reads.
        """
        form.name = str(rv.name)
        for of in (self._values, self._starts, self._transforms):
            of.pop(rv, None)
        self._potentials.append(form)
        self._deterministics += outputs
        self._named |= {str(v.name): v for v in (form, *outputs)}

    def made(self) -> pm.Model:
        """The model with all replacements so far."""
        made = MadeModel.of(self._model, f"{NUMBER}given further variables: ")
        made.__dict__.update(
            free_RVs=self._free,
            observed_RVs=[rv for rv in self._model.observed_RVs if rv in self._values],
            potentials=self._potentials,
            deterministics=self._deterministics,
            named_vars=self._named,
            rvs_to_values=self._values,
            values_to_rvs={value: rv for rv, value in self._values.items()},
            rvs_to_transforms=self._transforms,
            rvs_to_initial_values=self._starts,
        )
        return made


def with_quadratic_forms(model: pm.Model, found: Sequence[tuple[Variable, str, Variable]]) -> AugmentedModel:
    """The model with quadratic forms, given further variables, in place of some likelihoods.

    Parameters
    ----------
    found : [(observed variable, kind of its likelihood, its predictor)]
    """
    making = Making(model)
    likelihoods = [as_quadratic_form(making, model, *each) for each in found]
    return AugmentedModel(making.made(), likelihoods, making.start)


def as_quadratic_form(
    making: Making, model: pm.Model, rv: Variable, kind: str, predictor: Variable
) -> Augmented:
    """Put a quadratic form in place of the likelihood of one observed variable.

    Parameters
    ----------
    making : the model that is being made, which is changed
    model : the model as it was before any replacement
    rv, kind, predictor : the observed variable, the kind of its likelihood, and its predictor
    """
    name, data, variables = str(rv.name), model.rvs_to_values[rv], dict[str, str]()
    predictor = pt.broadcast_to(predictor, data.shape)

    def further(role: str, value: np.ndarray) -> Variable:
        variables[role] = f"{AUXILIARY}{role} of {name}"
        return making.further(variables[role], value)

    params = rv.owner.op.dist_params(rv.owner)
    form, read, facts = AUGMENTATIONS[kind].form(rv.owner.op, params, data, predictor, further)
    outputs = {
        role: pt.broadcast_to(v, data.shape).astype("float64").copy(name=f"{AUXILIARY}{role} of {name}")
        for role, v in read.items()
    }
    making.replaced(rv, form, [*outputs.values()])
    others = directly_read(AUGMENTATIONS[kind].others(rv.owner.op, params), model.basic_RVs)
    beside = [str(model.rvs_to_values[v].name) for v in others if v.type.dtype.startswith("float")]
    shape, names = tuple(map(int, data.shape.eval())), {role: str(v.name) for role, v in outputs.items()}
    return Augmented(name, kind, shape, variables, names, facts, beside)
