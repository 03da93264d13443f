"""The devices and threads that compute the chains of a run."""

import logging
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

_log = logging.getLogger("pymc.discrete")


# An array of fewer elements is not divided between the devices that share a chain: exchanging results takes
# longer than computing so few elements.
FEWEST_SHARED = 4096
CHAINS, SHARED = "chains", "rows"


class Layout:
    """Which device has which part of the arrays of a run.

    Either chains are spread over devices, or all devices share each chain: of an array of at least
    FEWEST_SHARED elements each device then has a part, along the array's longest axis. XLA computes each part
    on its device, and adds up sums over all devices. The two are not combined: if several groups of devices
    shared a chain each, a loop that ends earlier in one chain than in another would leave some devices
    waiting, since XLA exchanges some results between the devices of all groups.

    Parameters
    ----------
    devices : (n, 1) of jax.Device for chains that are spread, or a list; (1, n) for chains that are shared
    """

    def __init__(self, devices: Any):
        grid = np.asarray(devices, object)
        self.devices = grid.reshape(len(grid), -1)
        self.mesh = jax.sharding.Mesh(self.devices, (CHAINS, SHARED))
        self.key = tuple(grid.flat), self.devices.shape
        # The axes of the mesh along which `jax.shard_map` divides arrays. Where devices share chains, these
        # are the axis CHAINS alone, and XLA divides arrays along the axis SHARED.
        self.axes = {CHAINS} if self.devices.shape[1] > 1 else {CHAINS, SHARED}

    def shared_axis(self, shape: tuple[int, ...]) -> int | None:
        """The axis along which the devices that share a chain divide an array; None if each has all of it."""
        if self.devices.shape[1] == 1 or math.prod(shape) < FEWEST_SHARED:
            return None
        return int(np.argmax(shape))

    def _along(self, shape: tuple[int, ...], axis: int | None) -> list[str | None]:
        return [SHARED if n == axis else None for n in range(len(shape))]

    def _even(self, shape: tuple[int, ...]) -> list[str | None]:
        """The axis of the mesh that divides each axis of an array outside of programs, where JAX requires
        parts of equal size; None for an axis that is not divided.
        """
        axis = self.shared_axis(shape)
        even = axis is not None and shape[axis] % self.devices.shape[1] == 0
        return self._along(shape, axis if even else None)

    def of_chains(self, shape: tuple[int, ...]) -> NamedSharding:
        """The layout of an array (chains, ...) before and after a program."""
        return NamedSharding(self.mesh, PartitionSpec(CHAINS, *self._even(shape[1:])))

    def of_data(self, shape: tuple[int, ...]) -> NamedSharding:
        """The layout of an array, before a program, that all chains read."""
        return NamedSharding(self.mesh, PartitionSpec(*self._even(shape)))

    def shared(self, tree: Any) -> Any:
        """Arrays of one chain, or that all chains read, divided between the devices that share a chain.

        This is for use inside of a program only, where the parts may differ in size.
        """
        if self.devices.shape[1] == 1:
            return tree
        inside = jax.sharding.get_abstract_mesh()  # the mesh of the `shard_map` that is traced
        mesh = self.mesh if inside.empty else inside

        def divided(a: Any) -> Any:
            parts = self._along(jnp.shape(a), self.shared_axis(jnp.shape(a)))
            return jax.lax.with_sharding_constraint(a, NamedSharding(mesh, PartitionSpec(*parts)))

        return jax.tree.map(divided, tree)

    def as_before(self, states: Any) -> Any:
        """The states (chains, ...) after a program, with the layout that they had before it."""
        if self.devices.size == 1:
            return states
        of = lambda a: self.of_chains(jnp.shape(a))
        return jax.tree.map(lambda a: jax.lax.with_sharding_constraint(a, of(a)), states)

    def put(self, tree: Any, of: Callable[[tuple[int, ...]], NamedSharding]) -> Any:
        """Arrays of the host on the devices; each process passes whole arrays and keeps its own parts.

        Parameters
        ----------
        of : `of_chains` or `of_data`
        """

        def place(a: Any) -> jax.Array:
            a = np.asarray(a, jax.dtypes.canonicalize_dtype(a.dtype))
            return jax.make_array_from_callback(a.shape, of(a.shape), lambda index: a[index])

        return jax.tree.map(place, tree)


def spread_over(devices: Any, chains: int) -> tuple[np.ndarray, int | None]:
    """The devices of a run, in the form that `Layout` takes, and the number of threads for chains on a CPU.

    By default as many of the available devices are used as divide the number of chains. More devices than
    chains are used where `devices` names them: all devices then share each chain. If a single CPU is used,
    there is a thread for every core; otherwise the number of threads is None, and the calling thread computes
    all chains.

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
        if chains % len(chosen) and len(chosen) < chains:
            raise ValueError(
                f"{chains} chains cannot be spread evenly over {len(chosen)} devices. Give a multiple, or "
                "other devices."
            )
        return np.reshape(chosen, (-1, 1) if len(chosen) <= chains else (1, -1)), None
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
    return np.reshape(available[:used], (-1, 1)), cores() if one_cpu else None


def side_by_side(device: jax.Device) -> bool:
    """Whether the chains of a device are computed all at once: by an accelerator, and not by a CPU.

    On a CPU the chains run one after another, because `vmap` turns a `cond` into a `select`, for which both
    branches are computed.
    """
    return device.platform != "cpu"


def cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
