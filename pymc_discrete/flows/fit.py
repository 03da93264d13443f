"""Fits a discrete flow to draws of a posterior, or to a model's own draws of unknowns and data."""

from os import PathLike
from typing import Any

import jax
import numpy as np
import optax
import pymc as pm

from pymc_discrete.flows.amortised import AmortisedFlow, OfPairs, Simulations
from pymc_discrete.flows.block import draws_of, space_of
from pymc_discrete.flows.flow import Flow
from pymc_discrete.flows.joint import check_given, covariates, joint_target
from pymc_discrete.flows.model import FlowModel, grid
from pymc_discrete.flows.networks import Perceptron
from pymc_discrete.flows.objectives import DFM
from pymc_discrete.flows.paths import PATHS
from pymc_discrete.flows.sources import SOURCES
from pymc_discrete.kernels.random import key_of
from pymc_discrete.learning.fit import fit
from pymc_discrete.model.blocks import model_of
from pymc_discrete.runtime.checks import check_choice, check_count
from pymc_discrete.runtime.progress import check_bar
from pymc_discrete.runtime.seeds import new_seed, seed_of
from pymc_discrete.space.space import Space

FLOW_LEARNING_RATE = 1e-3  # the learning rate of Adam at the start; it falls to 0 along a cosine
AVERAGED = 0.995  # the weight of the past in the average of the network's weights
NETWORK = 2**20  # This number is folded into the seed for the first weights of the network.


def fit_flow(
    model: pm.Model | None = None,
    vars: Any = None,
    *,
    draws: Any = None,
    given: Any = None,
    pairs: int = 20_000,
    path: str = "quadratic",
    source: str = "mask",
    network: Any = None,
    steps: int = 32,
    iterations: int = 3000,
    batch: int = 256,
    checkpoint: str | PathLike[str] | None = None,
    random_seed: Any = None,
    progressbar: bool = True,
) -> Flow | AmortisedFlow:
    """Fit a discrete flow to draws of a posterior, or to draws of a model's unknowns and data.

    The flow is an approximation that draws all of its variables together, from any of the modes in the draws
    that it was fitted to. `FlowStep`, weights, and the draws of an `AmortisedFlow` correct it by the model's
    own density.

    Parameters
    ----------
    model : pm.Model, optional
        The default is the model of the `with` block.
    vars : RV, name or value variable, or a list of them, optional
        The discrete variables of the flow, each of a finite support whose elements can change alone; by
        default all discrete free variables that are no constrained vectors.
    draws : DataTree of `pm.sample` or `pmd.sample`
        Draws of the posterior, of chains from dispersed starts: the flow does not know modes that no chain
        visited. All chains count alike.
    given : names of observed variables, in place of `draws`
        The flow then approximates the posterior for any data of these variables, and is fitted to draws of
        the prior with data that they predict. All unknowns of the model must be among `vars`.
    pairs : int, number of draws of the prior with data
    path : {"quadratic", "linear", "cubic", "noise"}
        How the source becomes the target. "quadratic" and "noise" reveal few sites in the first steps.
    source : {"mask", "uniform"}
        Where the flow starts at time 0: with all sites masked, or with uniformly drawn values.
    network : equinox.Module, optional
        Called as `network(encoded, t)` -> d K logits of the values of each site, of any shape, given the
        one-hot encoding (d, K + 1) of the sites, of which the last column is the mask, and the time (); with
        `given`, it is called as `network(encoded, t, features)`, with the standardised data (m,). By default
        a perceptron with two layers of 256 units.
    steps : int
        Steps of the flow from source to target. In each, sites are drawn independently of one another.
    iterations, batch : int, the number of iterations of the training, and of draws in an iteration
    checkpoint : path of a file, optional
        As in `pmd.learning.fit`: an interrupted fit is resumed from the file.
    random_seed : int or what `pm.sample` takes, optional
    progressbar : bool

    Returns
    -------
    Flow
        For `FlowStep`. With `given`, an `AmortisedFlow`.

    Raises
    ------
    TypeError, ValueError
        For variables that a flow does not take, draws that do not fit the model, and invalid options, with
        the reason and the remedy.
    CheckpointError
        If the file cannot be written, is damaged, is in use by another process, or holds another fit.

    References
    ----------
    Gat et al. 2024, Discrete Flow Matching.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     z = pm.Bernoulli("z", 0.3, shape=10)
    ...     flow = pmd.fit_flow(draws=pmd.sample(chains=16))  # doctest: +SKIP
    """
    for name, value in (("steps", steps), ("iterations", iterations), ("batch", batch)):
        check_count(name, value, 1)
    check_count("pairs", pairs, 2)
    check_bar(progressbar)
    check_choice("path", path, PATHS)
    check_choice("source", source, SOURCES)
    model = model_of(model, vars)
    if (draws is None) == (given is None):
        raise TypeError(
            "Pass either draws=, a result of pm.sample or pmd.sample for this model and its data, or given=, "
            "the names of the observed variables for whose data the flow is to answer."
        )
    space = space_of(model, vars)
    names = [] if given is None else check_given(model, space, given)
    seed = seed_of(random_seed)
    seed = new_seed() if seed is None else seed
    options: dict[str, Any] = {
        "iterations": iterations,
        "batch": batch,
        "checkpoint": checkpoint,
        "progressbar": progressbar,
    }
    if given is None:
        learner = FlowModel(space, network or default_network(space, 0, seed), path, source)
        params = trained(learner, draws_of(space, draws), DFM(bound=True), seed, **options)
        return learner.flow(params, grid(steps))
    drawn = Simulations.of(model, space, names, pairs, seed)
    learner = FlowModel(space, network or default_network(space, drawn.size, seed), path, source)
    objective = OfPairs(DFM(bound=True), rows_of_sites(drawn.unknowns), drawn.features)
    params = trained(learner, drawn.unknowns, objective, seed, **options)
    flow = learner.flow(params, grid(steps), np.zeros(drawn.size, np.float32))
    return AmortisedFlow(flow, drawn, joint_target(model, space, names), covariates(model, names))


def default_network(space: Space, features: int, seed: int) -> Perceptron:
    """The default network of a flow over the sites of a space, given also `features` numbers of data."""
    key = jax.random.fold_in(key_of(seed), NETWORK)
    return Perceptron(space.d, space.K, features, depth=2, key=key)


def trained(
    learner: FlowModel,
    values: dict[str, np.ndarray],
    objective: Any,
    seed: int,
    iterations: int,
    **options: Any,
) -> Any:
    """The weights of the learner's network after it was trained on `values`, averaged over iterations."""
    schedule = optax.cosine_decay_schedule(FLOW_LEARNING_RATE, iterations)
    options = {"optimizer": optax.adam(schedule), "ema": AVERAGED, **options}
    return fit(learner, values, objective=objective, seed=seed, iterations=iterations, **options).params


def rows_of_sites(values: dict[str, np.ndarray]) -> np.ndarray:
    """(N, d) int, the sites of values {name: (N, *shape)}."""
    return np.concatenate([a.reshape(len(a), -1) for a in values.values()], axis=1)
