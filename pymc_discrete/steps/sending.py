"""Steps in bytes, for another process or a file."""

from typing import Any

import cloudpickle
from pymc.step_methods.compound import BlockedStep


class SentWhole(BlockedStep):
    """A step that any pickler takes: PyMC's models hold functions that `pickle` alone refuses, so cloudpickle
    makes the bytes.
    """

    def __getstate__(self) -> dict[str, Any]:
        """All but what is compiled."""
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __reduce__(self) -> tuple[Any, ...]:
        return received, (cloudpickle.dumps((type(self), self.__getstate__())),)


def received(sent: bytes) -> SentWhole:
    """The step that was sent."""
    kind, state = cloudpickle.loads(sent)
    step = object.__new__(kind)
    step.__setstate__(state)
    return step
