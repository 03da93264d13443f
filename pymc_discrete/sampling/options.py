"""The arguments of `sample`: what they may be, and why an argument of `pm.sample` is not among them."""

import inspect
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from numbers import Real
from os import PathLike
from typing import Any

import jax
import numpy as np
import pymc as pm
from pymc.step_methods.compound import CompoundStep
from pymc.util import get_random_generator

from pymc_discrete.steps.auto import AutoStep
from pymc_discrete.steps.reparameterized_slice import ReparameterizedSlice
from pymc_discrete.steps.step import DiscreteStep
from pymc_discrete.targets.arguments import check_count
from pymc_discrete.targets.blocks import refuse_counts_as_floats
from pymc_discrete.targets.names import shown

_log = logging.getLogger("pymc.discrete")

DTYPES = ("float64", "float32")

# arguments of `pm.sample` that have no place here, and what to do instead
REFUSED = {
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
    "progressbar_theme": "progressbar= is True or False.",
    "quiet": "Pass progressbar=False, and silence the logger 'pymc'.",
    "backend": "The backend is JAX; leave it out.",
    "compile_kwargs": "The model is compiled by JAX; leave it out.",
}


def refuse(options: dict[str, Any], known: Sequence[str]) -> None:
    """An error for the first of the options, none of which `sample`, which has the `known` ones, has."""
    for name in options:
        if name in REFUSED:
            raise TypeError(f"pmd.sample has no {name}=. {REFUSED[name]}")
        if name in inspect.signature(pm.sample).parameters:
            raise TypeError(f"pmd.sample has no {name}=; pm.sample does.")
        near = get_close_matches(name, known, 1)
        meant = f" Did you mean {near[0]}=?" if near else ""
        raise TypeError(
            f"pmd.sample has no option {name!r}.{meant} Options of a step are given to the step: "
            "step=pmd.AutoStep(...)."
        )


def check(
    counts: dict[str, tuple[Any, int]],
    target_accept: Any,
    chunk: Any,
    dtype: Any,
    return_inferencedata: Any,
    callback: Any,
    checkpoint: Any,
    model: Any,
) -> None:
    """Refuse values that mean nothing, before any work.

    Parameters
    ----------
    counts : {name: (value, least)}
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
    if (
        isinstance(target_accept, bool)
        or not isinstance(target_accept, Real)
        or not 0 < float(target_accept) < 1
    ):
        raise ValueError(f"target_accept must be between 0 and 1, got {target_accept!r}.")
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(map(repr, DTYPES))}, got {dtype!r}.")
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


def chosen(name: str, given: Any, known: dict[str, Any]) -> dict[str, Any]:
    """`given`, whose keys must be among those of `known`."""
    if given is not None and not isinstance(given, dict):
        raise TypeError(f"{name} must be a dictionary with some of {', '.join(known)}, got {given!r}.")
    for key in given or {}:
        if key not in known:
            raise ValueError(f"{name} has no entry {key!r}; it has {', '.join(known)}.")
    return dict(given or {})


def seed_of(random_seed: Any) -> int | None:
    """One number from whatever `pm.sample` takes."""
    if random_seed is None:
        return None
    if isinstance(random_seed, int | np.integer) and 0 <= random_seed < 2**31:
        return int(random_seed)  # as it is, so that the seed told in the result gives the same draws
    try:
        return int(get_random_generator(random_seed).integers(2**31))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"random_seed must be an integer of at least 0, or what numpy takes for one, got {random_seed!r}."
        ) from error


def check_nuts(options: dict[str, Any]) -> dict[str, Any]:
    if "max_treedepth" in options:
        check_count("nuts['max_treedepth']", options["max_treedepth"], 1)
    for name in ("dense", "pooled"):
        if not isinstance(options.get(name, False), bool | np.bool_):
            raise ValueError(f"nuts[{name!r}] must be True or False, got {options[name]!r}.")
    return options


def check_names(model: pm.Model, var_names: Any) -> None:
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


def steps_of(
    model: pm.Model, step: Any, point: dict[str, np.ndarray]
) -> list[DiscreteStep | ReparameterizedSlice]:
    """The steps given, the continuous ones first, and `AutoStep` for the discrete variables, of the shapes in
    `point`, that they leave.
    """
    refuse_counts_as_floats(model, [str(v.name) for v in model.value_vars])
    asked = [] if step is None else list(step) if isinstance(step, list | tuple) else [step]
    flat = [s for given in asked for s in (given.methods if isinstance(given, CompoundStep) else [given])]
    for s in flat:
        if isinstance(s, type):
            raise TypeError(f"{s.__name__} is the class of a step, not a step: call it, step={s.__name__}().")
        if not isinstance(s, DiscreteStep | ReparameterizedSlice):
            raise TypeError(
                f"pmd.sample takes the steps of pymc_discrete, got {getattr(type(s), '__name__', s)}. "
                "Continuous variables get NUTS here (see nuts=), or pmd.ReparameterizedSlice; pm.sample "
                "takes all steps."
            )
        if s.model is not model:
            raise ValueError(
                f"{type(s).__name__} was made for another model. Make it in the context of the model that is "
                "sampled."
            )
    named = [v.name for s in flat for v in s.vars]
    twice = sorted({n for n in named if named.count(n) > 1})
    if twice:
        raise ValueError(
            f"{shown(twice)} {'belongs' if len(twice) == 1 else 'belong'} to two steps. Name each variable "
            "once."
        )
    left = [str(v.name) for v in model.discrete_value_vars if v.name not in named and np.size(point[v.name])]
    if left:
        made = AutoStep(left, model=model, initial_point=point, _all_in_jax=True)
        flat += getattr(made, "methods", [made])
    return sorted(flat, key=lambda s: not isinstance(s, ReparameterizedSlice))


def spread_over(devices: Any, chains: int) -> tuple[list[jax.Device], int]:
    """The devices that share the chains evenly, and how many threads compute on them.

    Where nobody chose devices and a CPU is the only one: a thread for every core.
    """
    if devices is not None:
        found = list(devices) if isinstance(devices, Sequence) else []
        if not found or not all(isinstance(d, jax.Device) for d in found) or len(set(found)) < len(found):
            raise TypeError(
                f"devices must be a list of different JAX devices, such as jax.devices(), got {devices!r}."
            )
        if chains % len(found):
            raise ValueError(
                f"{chains} chains cannot be spread evenly over {len(found)} devices. Give a multiple, or "
                "other devices."
            )
        return found, 1
    found = jax.devices()
    number = next(n for n in range(min(chains, len(found)), 0, -1) if chains % n == 0)
    if jax.process_count() > 1 and number < len(found):
        raise ValueError(
            f"{chains} chains cannot be spread evenly over the {len(found)} devices of all processes. Give a "
            "multiple."
        )
    if number < min(chains, len(found)):
        _log.info(
            f"{chains} chains run on {number} of {len(found)} devices: a multiple of {len(found)} would use "
            "them all."
        )
    return found[:number], cores() if len(found) == 1 and found[0].platform == "cpu" else 1


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def all_in_jax(who: str = "pmd.sample") -> Iterator[None]:
    """Say what is wrong with a model that JAX cannot run, and what runs it."""
    try:
        yield
    except NotImplementedError as error:
        found = re.search(r"`Op`: (.*)", str(error))
        said = str(error).splitlines()[0].rstrip(".")
        what = (
            f"the Op {found[1].strip()}, which has no JAX version"
            if found
            else f"what JAX cannot do ({said})"
        )
        register = ", or register a version with pytensor.link.jax.dispatch.jax_funcify" if found else ""
        raise NotImplementedError(
            f"{who} runs the whole model in JAX, and the model has {what}. Use pm.sample, with "
            f"step=pmd.AutoStep(...) for the discrete variables that it does not touch{register}."
        ) from error
