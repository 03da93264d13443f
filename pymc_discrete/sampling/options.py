"""Checks of the arguments of `sample`, and hints for arguments of `pm.sample` that it does not have."""

import inspect
from collections.abc import Sequence
from os import PathLike
from typing import Any

import pymc as pm

from pymc_discrete.engine.nuts_options import check_target_accept
from pymc_discrete.runtime.checks import check_choice, check_count, suggested
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.progress import check_bar

DTYPES = ("float64", "float32")

# {argument of `pm.sample` that `pmd.sample` does not have: what to do instead}
SAID_INSTEAD = {
    "cores": "All chains run in one program, on every core or device; choose devices with devices=.",
    "mp_ctx": "There are no worker processes; leave it out.",
    "blas_cores": "There are no worker processes; leave it out.",
    "nuts_sampler": "NUTS is blackjax's; its options are nuts=.",
    "nuts_sampler_kwargs": "The options of NUTS are nuts=.",
    "init": (
        "Chains start jittered and learn their step size and mass matrix in Stan's stages; pass initvals= "
        "for other starts."
    ),
    "n_init": "There is no initialisation besides tuning; leave it out.",
    "jitter_max_retries": "Starts are drawn again until they are possible; leave it out.",
    "trace": "Draws go to memory, or to a folder with checkpoint=.",
    "keep_warning_stat": "There is no such statistic; leave it out.",
    "progressbar_theme": "The bar has PyMC's own colours; leave it out.",
    "quiet": "Pass progressbar=False, and silence the logger 'pymc'.",
    "backend": "The backend is JAX; leave it out.",
    "compile_kwargs": "The model is compiled by JAX; leave it out.",
}

# {name of an argument in Stan, JAGS, NIMBLE or NumPyro: the argument of `pmd.sample` that means the same}
CALLED = {
    **dict.fromkeys(["iter", "iter_sampling", "n_iter", "num_samples", "n_samples"], "draws"),
    **dict.fromkeys(["burn", "burnin", "n_burnin", "warmup", "iter_warmup", "num_warmup"], "tune"),
    **dict.fromkeys(["num_chains", "n_chains", "nchains"], "chains"),
    **dict.fromkeys(["n_thin", "thinning"], "thin"),
    **dict.fromkeys(["inits", "init_params"], "initvals"),
    **dict.fromkeys(["max_treedepth", "max_tree_depth", "max_depth"], "nuts"),
    "seed": "random_seed",
    "adapt_delta": "target_accept",
    "target_accept_prob": "target_accept",
}


def refuse(options: dict[str, Any], known: Sequence[str]) -> None:
    """Raise an error for the first of `options`; `sample` takes only the `known` arguments."""
    for name in options:
        if name in SAID_INSTEAD:
            raise TypeError(f"pmd.sample has no {name}=. {SAID_INSTEAD[name]}")
        if name in inspect.signature(pm.sample).parameters:
            raise TypeError(f"pmd.sample has no {name}=; pm.sample does.")
        meant = f" Did you mean {CALLED[name]!r}?" if name in CALLED else suggested(name, known)
        raise TypeError(
            f"pmd.sample has no option {name!r}.{meant} Options of a step are given to the step: "
            "step=pmd.AutoStep(...)."
        )


def check_arguments(
    counts: dict[str, tuple[Any, int]],
    target_accept: Any,
    chunk: Any,
    dtype: Any,
    return_inferencedata: Any,
    callback: Any,
    checkpoint: Any,
    model: Any,
    progressbar: Any,
) -> None:
    """Refuse invalid arguments of `sample` before any computation.

    Parameters
    ----------
    counts : {name of an argument that is a count: (its value, the smallest allowed value)}
    """
    if isinstance(counts["draws"][0], pm.Model):
        raise TypeError(
            "pmd.sample takes the model by name: pmd.sample(model=model). Its first argument is the number "
            "of draws."
        )
    for name, (value, least) in counts.items():
        check_count(name, value, least)
    if chunk != "auto":
        check_count("chunk", chunk, 1)
    check_target_accept(target_accept)
    check_choice("dtype", dtype, DTYPES)
    check_bar(progressbar)
    if not return_inferencedata:
        raise ValueError(
            "return_inferencedata must be True: pmd.sample keeps no MultiTrace. The DataTree holds the same "
            "draws."
        )
    if checkpoint is not None and not isinstance(checkpoint, str | PathLike):
        raise TypeError(f"checkpoint must be the path of a folder, got {checkpoint!r}.")
    if model is not None and not isinstance(model, pm.Model):
        raise TypeError(f"model must be a pm.Model, got {model!r}.")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function of (draws, done), got {callback!r}.")


def check_superchains(superchains: int | None, chains: int) -> int:
    """The number of points at which chains start: one for each superchain, or one for each chain."""
    if superchains is None:
        return chains
    check_count("superchains", superchains, 2)
    if chains % superchains or chains == superchains:
        raise ValueError(
            f"superchains={superchains} must divide the {chains} chains into groups of two or more. Pass "
            f"chains={2 * superchains}, or another multiple."
        )
    return int(superchains)


def check_collapse(collapse: Any, dtype: str, model: pm.Model) -> Any:
    """The argument `collapse`, checked: "auto", True, False or names; in float32 "auto" or False only."""
    if isinstance(collapse, str) and collapse != "auto":
        known = [str(v.name) for v in model.discrete_value_vars]
        named = [collapse] if collapse in known else known[:1]
        raise ValueError(
            "collapse must be 'auto' (what pays), True (all), False (none), or a list of discrete variables "
            f"or their names, got {collapse!r}."
            + (f" To sum out {named[0]!r} alone: collapse={named!r}." if named else "")
        )
    if not isinstance(collapse, bool | list | tuple | str):
        raise TypeError(
            "collapse must be 'auto', True, False, or a list of discrete variables or their names, got "
            f"{collapse!r}."
        )
    if collapse not in ("auto", False) and dtype != "float64":
        raise ValueError('collapse= needs dtype="float64": sums over many states lose too much in float32.')
    return collapse


def collapse_by_names(collapse: Any) -> Any:
    """The argument `collapse` with the names of variables in place of the variables."""
    return [getattr(v, "name", v) for v in collapse] if isinstance(collapse, list | tuple) else collapse


def check_tempered(dtype: str, nuts: dict[str, Any]) -> None:
    """Refuse options that do not go with `temper`."""
    if dtype != "float64":
        raise ValueError(
            'temper= needs dtype="float64": neighbours swap by differences of log likelihoods, which float32 '
            "rounds."
        )
    if nuts["pooled"]:
        raise ValueError(
            "nuts={'pooled': True} does not go with temper=: each chain has replicas and a schedule of its "
            "own. Leave one of them out."
        )


def check_names(model: pm.Model, var_names: Any) -> None:
    """Refuse `var_names` unless it is a list of variables of the model."""
    if var_names is None:
        return
    if isinstance(var_names, str) or not isinstance(var_names, Sequence):
        raise TypeError(f"var_names must be a list of names, got {var_names!r}.")
    if not var_names:
        raise ValueError("var_names is empty: name what is to be kept, or leave it out for everything.")
    known = [v.name for v in model.unobserved_value_vars]
    unknown = [n for n in var_names if n not in known]
    if unknown:
        raise ValueError(
            f"var_names has {shown(unknown)}, which the model does not have. It has {shown(known)}."
        )
