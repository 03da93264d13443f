"""The file from which an interrupted fit is resumed."""

import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pymc_discrete.engine.storage import CheckpointError, where_unlike


class FitCheckpoint:
    """A file with the state of a fit, which is replaced as a whole and survives a killed process.

    Parameters
    ----------
    file : path of the file, in a folder that exists
    settings : the settings that must be equal when the fit is resumed, as JSON

    Raises
    ------
    CheckpointError
        If the file cannot be written or read, or holds a fit with other settings.
    """

    def __init__(self, file: str | os.PathLike[str], settings: dict[str, Any]):
        self.file, self.settings = Path(file), json.loads(json.dumps(settings))
        if not self.file.parent.is_dir():
            raise CheckpointError(
                f"checkpoint={str(self.file)!r} is in no folder that exists. Make the folder, or give "
                "another file."
            )

    def write(self, state: Any) -> None:
        """Write a state, a pytree of arrays, to the file."""
        leaves = {f"a{n}": np.asarray(leaf) for n, leaf in enumerate(jax.tree.leaves(state))}
        new = self.file.with_name(self.file.name + ".new")
        try:
            with new.open("wb") as out:
                np.savez(out, allow_pickle=False, settings=np.array(json.dumps(self.settings)), **leaves)
                out.flush()
                os.fsync(out.fileno())
            new.replace(self.file)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint={str(self.file)!r} could not be written: {error}. Make room, or give another "
                "file."
            ) from error

    def read(self, like: Any) -> Any:
        """The state in the file, with the structure of `like`; None if there is no file yet."""
        if not self.file.exists():
            return None
        try:
            with self.file.open("rb") as data, np.load(data) as file:
                settings = json.loads(str(file["settings"]))
                leaves = [file[f"a{n}"] for n in range(len(file.files) - 1)]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise CheckpointError(f"{self.file} is damaged: {error!r}. Delete it to begin again.") from error
        for name, ours in self.settings.items():
            if settings.get(name) != ours:
                kept, asked = where_unlike(settings.get(name), ours)
                raise CheckpointError(
                    f"{self.file} holds a fit with {name}={kept!r}, and this one has {name}={asked!r}. Ask "
                    "for the same, or give another file."
                )
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(like)]
        if [leaf.shape for leaf in leaves] != shapes:
            raise CheckpointError(
                f"{self.file} holds a fit of another model, sampler or optimiser: its arrays have the shapes "
                f"{[leaf.shape for leaf in leaves]}, and those of this one {shapes}. Give another file."
            )
        return jax.tree.unflatten(jax.tree.structure(like), leaves)
