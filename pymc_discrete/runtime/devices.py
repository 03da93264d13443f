"""The devices and threads that compute the chains of a run."""

import logging
import os
from collections.abc import Sequence
from typing import Any

import jax

_log = logging.getLogger("pymc.discrete")


def spread_over(devices: Any, chains: int) -> tuple[list[jax.Device], int | None]:
    """The devices that share the chains evenly, and the number of threads that compute the chains on a CPU.

    By default as many of the available devices are used as divide the number of chains. If a single CPU is
    used, there is a thread for every core; otherwise the number of threads is None, and the calling thread
    computes all chains.

    Raises
    ------
    TypeError, ValueError
        If `devices` is no list of different devices, or the chains cannot be spread evenly.
    """
    if devices is not None:
        chosen = list(devices) if isinstance(devices, Sequence) else []
        if not (
            chosen and all(isinstance(d, jax.Device) for d in chosen) and len(set(chosen)) == len(chosen)
        ):
            raise TypeError(
                f"devices must be a list of different JAX devices, such as jax.devices(), got {devices!r}."
            )
        if chains % len(chosen):
            raise ValueError(
                f"{chains} chains cannot be spread evenly over {len(chosen)} devices. Give a multiple, or "
                "other devices."
            )
        return chosen, None
    available = jax.devices()
    used = next(n for n in range(min(chains, len(available)), 0, -1) if chains % n == 0)
    if jax.process_count() > 1 and used < len(available):
        raise ValueError(
            f"{chains} chains cannot be spread evenly over the {len(available)} devices of all processes. "
            "Give a multiple."
        )
    if used < min(chains, len(available)):
        _log.info(
            f"{chains} chains run on {used} of {len(available)} devices: a multiple of {len(available)} "
            "would use them all."
        )
    one_cpu = len(available) == 1 and available[0].platform == "cpu"
    return available[:used], cores() if one_cpu else None


def side_by_side(device: jax.Device) -> bool:
    """Whether the chains of a device are computed all at once: by an accelerator, and not by a CPU.

    On a CPU the chains run one after another, because `vmap` turns a `cond` into a `select`, for which both
    branches are computed.
    """
    return device.platform != "cpu"


def cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
