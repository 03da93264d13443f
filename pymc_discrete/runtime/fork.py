"""Detects processes that were forked after JAX had started, in which JAX would hang."""

import os
import sys

_forked_with_jax = False


def jax_is_running() -> bool:
    """Whether a JAX backend has been initialised in this process."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(bridge is not None and getattr(bridge, "_backends", None))


def _record_fork() -> None:
    global _forked_with_jax
    _forked_with_jax = _forked_with_jax or jax_is_running()


if hasattr(os, "register_at_fork"):  # Windows cannot fork processes
    os.register_at_fork(after_in_child=_record_fork)


def refuse_after_fork() -> None:
    """Raise an error if JAX cannot run in this process.

    Raises
    ------
    RuntimeError
        In a process that was forked after JAX had run in its parent.
    """
    if _forked_with_jax:
        raise RuntimeError(
            "This worker was forked after JAX had already run in the main process (an earlier pmd.sample, "
            "or pm.sample with cores=1, say), and JAX hangs in such a process. Pass cores=1 to pm.sample, "
            "or mp_ctx='forkserver' (in a script, under `if __name__ == '__main__':`)."
        )
