"""R*: whether a classifier can tell which chain a draw comes from."""

from typing import Any

import numpy as np
import xarray as xr

from pymc_discrete.diagnostics.thresholds import FEWEST_DRAWS_OF_R_STAR
from pymc_discrete.runtime.checks import check_result
from pymc_discrete.runtime.names import shown

TRAINED = 0.7  # the share of the draws from which the classifier learns; it is tested on the others
CATEGORIES = 20  # a discrete variable with up to this many values is given to the classifier as indicators


def r_star(
    data: Any, var_names: str | list[str] | None = None, classifier: Any = None, random_seed: Any = None
) -> float:
    """R*: the accuracy with which a classifier tells the chains of draws apart, times the number of chains.

    R* is about 1 if the chains have mixed, and the number of chains if each can be told from all others. It
    shows differences that no single element shows, such as chains that differ in the correlation of two
    elements. Chains are split into halves, which are treated as chains, so that R* is at most twice the
    number of chains.

    Parameters
    ----------
    data : DataTree with a group posterior, or Dataset; discrete variables of up to 20 values enter as
        indicators of these, all others as numbers
    var_names : names of variables; all of the posterior by default
    classifier : an object with methods `fit` and `predict` as in scikit-learn; by default a forest of 200
        trees
    random_seed : int or numpy Generator, for the split of the draws, and of the default classifier

    Returns
    -------
    float

    Raises
    ------
    ImportError
        If scikit-learn is not installed and no classifier is given.
    TypeError
        If `data` is neither a DataTree with a group ``posterior`` nor a Dataset.
    ValueError
        For names that are not in the posterior, and fewer than 10 draws of each chain.

    References
    ----------
    Lambert and Vehtari 2022, R*: A robust MCMC convergence diagnostic with uncertainty using decision tree
    classifiers, Bayesian Analysis 17(2).
    """
    if not isinstance(data, xr.Dataset):
        check_result(data, "pmd.diagnostics.r_star(idata)")
        data = data["posterior"].to_dataset()
    posterior = data
    names = [var_names] if isinstance(var_names, str) else var_names
    if missing := [name for name in names or () if name not in posterior.data_vars]:
        there = shown(map(str, posterior.data_vars))
        raise ValueError(f"The posterior has no {shown(missing)}. It has {there}.")
    posterior = (posterior if names is None else posterior[names]).transpose("chain", "draw", ...)
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    if draws < FEWEST_DRAWS_OF_R_STAR:
        raise ValueError(
            f"At least {FEWEST_DRAWS_OF_R_STAR} draws of each chain are needed, got {draws}. Sample longer."
        )
    rng = np.random.default_rng(random_seed)
    if classifier is None:
        classifier = default_classifier(int(rng.integers(2**31)))
    half = draws // 2
    features = np.concatenate([columns_of(v.data) for v in posterior.data_vars.values()], axis=2)
    features = np.concatenate([features[:, :half], features[:, -half:]])
    chain = np.repeat(np.arange(2 * chains), half)
    order = rng.permutation(len(chain))
    to_train, to_judge = np.split(order, [int(TRAINED * len(order))])
    features = features.reshape(len(chain), -1)
    classifier.fit(features[to_train], chain[to_train])
    right = classifier.predict(features[to_judge]) == chain[to_judge]
    return float(2 * chains * right.mean())


def columns_of(draws: np.ndarray) -> np.ndarray:
    """(chains, draws, columns) float, the input of the classifier for draws (chains, draws, ...)."""
    flat = draws.reshape(*draws.shape[:2], -1)
    if flat.dtype.kind not in "biu":
        return flat.astype(float)
    values = np.unique(flat)
    if len(values) > CATEGORIES:
        return flat.astype(float)
    return (flat[..., None] == values[1:]).reshape(*flat.shape[:2], -1).astype(float)


def default_classifier(seed: int) -> Any:
    try:
        from sklearn.ensemble import RandomForestClassifier
    except ImportError as error:
        raise ImportError(
            "r_star trains a classifier of scikit-learn, which is not installed. Install it (pip install "
            "scikit-learn), or pass classifier= with methods fit and predict."
        ) from error
    return RandomForestClassifier(200, min_samples_leaf=3, random_state=seed)
