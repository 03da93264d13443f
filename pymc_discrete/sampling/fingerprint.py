"""Checksums of a run's model, starting values and steps, by which a checkpoint recognises its run."""

from typing import Any

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_discrete.engine.storage import CheckpointError
from pymc_discrete.model.identity import NotComparable, lasting_key


def fingerprint(model: pm.Model, outputs: list[Variable]) -> str:
    """A checksum of a model, its data and the recorded variables; the same in every process."""
    return checksum("the model", [*model.logp(sum=False), *outputs])


def starts_fingerprint(model: pm.Model, initvals: Any) -> str:
    """A checksum of the starting values that the model and `initvals` give."""
    shown = []
    for starts in [
        model.rvs_to_initial_values,
        *(initvals if isinstance(initvals, list | tuple) else [initvals]),
    ]:
        values = {str(getattr(k, "name", k)): v for k, v in (starts or {}).items() if v is not None}
        shown.append([(name, values[name]) for name in sorted(values)])
    return checksum("initvals", shown)


def checksum(what: str, thing: Any) -> str:
    """A checksum of an object with all that it holds, the same in every process.

    Raises
    ------
    CheckpointError
        If the object holds something that cannot be compared between processes; `what` is its name in the
        message.
    """
    try:
        return lasting_key(thing)
    except NotComparable as error:
        raise CheckpointError(
            f"checkpoint= needs to tell this run from others, and cannot look into all of {what}: {error}. "
            "Leave checkpoint= out, or compute the same from arrays, numbers and functions."
        ) from error
