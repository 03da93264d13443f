"""Storage of the draws of a run: in memory, or in a folder from which an interrupted run can be resumed."""

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from pymc_discrete.runtime.seeds import new_seed

# the number of characters of a variable's name that are used in a file name; many file systems limit names to
# 255 bytes
LONGEST_NAME = 100
PROGRESS = "progress.json"
# the only setting that may differ from the run in the folder: if it is larger now, the run continues
GROWING = "draws"
# the file with the progress one chunk earlier; the chains' states of that time are kept, too
BEFORE = "progress-before.json"


class CheckpointError(RuntimeError):
    """The error for a checkpoint folder that cannot be written to, is damaged, or has a different run."""


def on_host(a: Any) -> np.ndarray:
    """The whole array as a NumPy array, even if several processes have parts of it."""
    if getattr(a, "is_fully_addressable", True):
        return np.asarray(a)
    return np.asarray(multihost_utils.process_allgather(a, tiled=True))


class Memory:
    """Draws in memory, in arrays that grow in place, so that no two copies are held at a time."""

    begun = False

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, str], dict[str, np.ndarray]] = {}
        self._done: dict[str, int] = {}

    def seed(self, asked: int | None) -> int:
        return new_seed() if asked is None else asked

    def done(self, part: str) -> int:
        return self._done.get(part, 0)

    def load_state(self, like: Any) -> Any:
        raise LookupError("nothing was kept")

    def write(
        self, part: str, count: int, groups: dict[str, dict[str, np.ndarray]], state: Callable[[], Any]
    ) -> None:
        first = self.done(part)
        for kind, group in groups.items():
            kept = self._arrays.setdefault((part, kind), {})
            for name, array in group.items():
                draws = array.swapaxes(0, 1)
                if name in kept:
                    # NumPy need not look for views of the array, since `read` is called only after the last
                    # `write`
                    kept[name].resize((first + count, *draws.shape[1:]), refcheck=False)
                    kept[name][first:] = draws
                else:
                    kept[name] = np.array(draws, order="C")
        self._done[part] = first + count

    def read(self, part: str, kind: str) -> dict[str, np.ndarray]:
        """{name: (chains, done, ...)}, without the draws of a `write` that was interrupted."""
        return {
            name: array[: self.done(part)].swapaxes(0, 1)
            for name, array in self._arrays.get((part, kind), {}).items()
        }


class Checkpoint:
    """Draws in a folder, from which a run can be resumed.

    `progress.json` holds the number of complete draws of each part ("warmup", "posterior"). It is replaced
    atomically after the draws, and the state after them, are on the disk; draws beyond these numbers are
    written again by the resumed run. The files `PART-KIND-NAME.npy` are arrays (chains, draws, ...), written
    in place and read by memory mapping.

    Parameters
    ----------
    folder : the folder, which is created if it does not exist
    settings : the settings that must be equal when the run is resumed, except `GROWING`, which may be larger
    lengths : {part: number of draws}

    Raises
    ------
    CheckpointError
        If the folder cannot be written to, is damaged, or holds a run with other settings.
    """

    def __init__(self, folder: str | os.PathLike, settings: dict[str, Any], lengths: dict[str, int]):
        self.folder, self.lengths = Path(folder), lengths
        self.settings = json.loads(json.dumps(settings))
        make_folder(self.folder)
        self.progress: dict[str, Any] = {
            "settings": self.settings,
            "seed": None,
            "done": dict.fromkeys(lengths, 0),
        }
        self.progress |= {"names": {}, "last": None, "chunks": 0, "state": None}
        if (self.folder / PROGRESS).exists():
            self._resume()

    @property
    def begun(self) -> bool:
        return self.progress["state"] is not None

    def seed(self, asked: int | None) -> int:
        """The seed of the run in the folder, which must equal `asked`; for a new run, `asked` or a
        new seed."""
        kept = self.progress["seed"]
        if kept is not None and asked is not None and asked != kept:
            raise CheckpointError(
                f"{self.folder} holds a run with another random_seed. Pass the same, or give another folder."
            )
        if kept is None:
            self.progress["seed"] = new_seed() if asked is None else asked
        return int(self.progress["seed"])

    def done(self, part: str) -> int:
        return int(self.progress["done"].get(part, 0))

    def _resume(self) -> None:
        try:
            progress = json.loads((self.folder / PROGRESS).read_text())
            progress = {name: progress[name] for name in self.progress}
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise CheckpointError(
                f"{self.folder / PROGRESS} is damaged: {error!r}. {self._remedy()}"
            ) from error
        for name, value in self.settings.items():
            kept = progress["settings"].get(name)
            if kept != value and not (name == GROWING and isinstance(kept, int) and kept < value):
                theirs, ours = where_unlike(kept, value)
                raise CheckpointError(
                    f"{self.folder} holds a run with {name}={theirs!r}, and this one has {name}={ours!r}. "
                    f"Ask for {'as many or more' if name == GROWING else 'the same'}, or give another folder."
                )
        self.progress = progress | {"settings": self.settings}
        last = progress["last"]
        if last is not None:
            for file, crc in last["crc"].items():
                if self._crc(file, last["first"], last["count"]) != crc:
                    raise CheckpointError(
                        f"Draws {last['first']} to {last['first'] + last['count']} in {self.folder / file} "
                        f"are not those that were written. {self._remedy()}"
                    )

    def _remedy(self) -> str:
        if (self.folder / BEFORE).exists():
            return (
                f"Those before are kept: rename {BEFORE} to {PROGRESS} to go on from there, or delete the "
                "folder to start again."
            )
        return "Delete the folder to start again."

    def _array(self, file: str) -> np.ndarray:
        try:
            return np.load(self.folder / file, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{self.folder / file} is missing or cut short: {error}. Its draws are lost: delete the "
                "folder to start again."
            ) from error

    # ------------------------------------------------------------ states
    def load_state(self, like: Any) -> Any:
        """The states of the chains after the last complete chunk, a pytree with the structure of `like`."""
        try:
            with (self.folder / self.progress["state"]).open("rb") as data, np.load(data) as file:
                leaves = [file[f"a{n}"] for n in range(len(file.files))]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise CheckpointError(
                f"{self.folder / self.progress['state']} is missing or damaged: {error!r}. {self._remedy()}"
            ) from error
        structure = jax.tree.structure(like)
        if len(leaves) != structure.num_leaves:
            raise CheckpointError(
                f"{self.folder / self.progress['state']} has {len(leaves)} arrays where the chains have "
                f"{structure.num_leaves}: another version of pymc_discrete wrote it. Go on with that "
                "version, or give another folder."
            )
        return jax.tree.unflatten(structure, leaves)

    # ------------------------------------------------------------ chunks
    def write(
        self, part: str, count: int, groups: dict[str, dict[str, np.ndarray]], state: Callable[[], Any]
    ) -> None:
        """Write the next `count` draws of a part, {kind: {name: (chains, count, ...)}}, and the states after
        them, which `state` returns.
        """
        first, crc = self.done(part), {}
        # `on_host` gathers arrays from all processes, so every process must call it
        leaves = {f"a{n}": on_host(leaf) for n, leaf in enumerate(jax.tree.leaves(state()))}
        if jax.process_index():  # only the first process writes
            names = {f"{part}-{kind}": list(group) for kind, group in groups.items()}
            self.progress["names"] = {**self.progress["names"], **names}
            self.progress["done"] = {**self.progress["done"], part: first + count}
            return
        try:
            for kind, group in groups.items():
                for name, array in group.items():
                    file = file_of(part, kind, name)
                    crc[file] = self._put(file, array, first, self.lengths[part])
            number = self.progress["chunks"] + 1
            # two files are used in turn, so that the file named in progress.json is never overwritten
            state_file = f"state-{number % 2}.npz"
            with (self.folder / state_file).open("wb") as out:
                np.savez(out, allow_pickle=False, **leaves)
                out.flush()
                os.fsync(out.fileno())
            progress = {
                **self.progress,
                "chunks": number,
                "state": state_file,
                "done": {**self.progress["done"], part: first + count},
            }
            progress["names"] = {
                **self.progress["names"],
                **{f"{part}-{kind}": list(group) for kind, group in groups.items()},
            }
            progress["last"] = {"first": first, "count": count, "crc": crc}
            if self.begun:
                self._replace(BEFORE, self.progress)
            self._replace(PROGRESS, progress)
        except OSError as error:
            raise CheckpointError(
                f"The draws after {first} of {part} could not be written to {self.folder}: {error}. Those "
                "before are kept; make room and call again to go on."
            ) from error
        self.progress = progress

    def _replace(self, name: str, progress: dict[str, Any]) -> None:
        new = self.folder / f"{name}.new"
        with new.open("w") as file:
            json.dump(progress, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.folder / name)

    def _put(self, file: str, array: np.ndarray, first: int, length: int) -> int:
        path = self.folder / file
        if path.exists():
            length = lengthened(path, length)
        shape = (array.shape[0], length, *array.shape[2:])
        if not path.exists() and first:
            raise CheckpointError(
                f"{path} is missing, and {first} draws with it. Delete the folder to start again."
            )
        if not path.exists():
            with path.open("wb") as new:
                header = {
                    "descr": np.lib.format.dtype_to_descr(array.dtype),
                    "fortran_order": False,
                    "shape": shape,
                }
                np.lib.format.write_array_header_2_0(new, header)
                new.truncate(new.tell() + int(np.prod(shape, dtype=np.int64)) * array.itemsize)
        with path.open("r+b") as out:
            begin, draw_bytes = data_offset(out), int(np.prod(shape[2:], dtype=np.int64)) * array.itemsize
            for chain, draws in enumerate(array):
                out.seek(begin + (chain * length + first) * draw_bytes)
                out.write(np.ascontiguousarray(draws).tobytes())
            out.flush()
            os.fsync(out.fileno())
        return zlib.crc32(np.ascontiguousarray(array).tobytes())

    def _crc(self, file: str, first: int, count: int) -> int:
        array = self._array(file)
        return zlib.crc32(np.ascontiguousarray(array[:, first : first + count]).tobytes())

    def read(self, part: str, kind: str) -> dict[str, np.ndarray]:
        """{name: (chains, done, ...)}, the draws of a part, memory-mapped."""
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices("the first process has written")
        done, names = self.done(part), self.progress["names"].get(f"{part}-{kind}", [])
        return {name: self._array(file_of(part, kind, name))[:, :done] for name in names}


def make_folder(folder: Path) -> None:
    """Make a folder for a checkpoint, if there is none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint={str(folder)!r} cannot be made: {error}. Give a folder that can be written to."
        ) from error


def is_complete(folder: Path) -> bool:
    """Whether a folder has all the draws of its run."""
    try:
        progress = json.loads((folder / PROGRESS).read_text())
        return bool(progress["done"]["posterior"] == progress["settings"]["draws"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def where_unlike(a: Any, b: Any) -> tuple[Any, Any]:
    """The two values of a setting; of two lists, only the items that the other list does not have."""
    if not (isinstance(a, list) and isinstance(b, list)):
        return a, b
    return [v for v in a if v not in b], [v for v in b if v not in a]


def file_of(part: str, kind: str, name: str) -> str:
    return f"{part}-{kind}-{safe(name)}.npy"


def safe(name: str) -> str:
    """A variable's name in a form for file names: ASCII, of limited length, unique for every name."""
    escaped = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else f"%{ord(c):x}." for c in name)
    if len(escaped) <= LONGEST_NAME:
        return escaped
    return f"{escaped[:LONGEST_NAME]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def lengthened(path: Path, length: int) -> int:
    """The length of a file's array (chains, draws, ...), after it is extended to at least `length` draws.

    The longer array is a copy that replaces the file once it is complete.
    """
    old = np.load(path, mmap_mode="r")
    if old.shape[1] >= length:
        return old.shape[1]
    copy = path.with_name(f"{path.name}.new")
    shape = (old.shape[0], length, *old.shape[2:])
    new = np.lib.format.open_memmap(copy, "w+", old.dtype, shape)
    for chain, draws in enumerate(old):
        new[chain, : old.shape[1]] = draws
    new.flush()
    del new, old, draws
    copy.replace(path)
    return length


def data_offset(file) -> int:
    """The position, in bytes, where the data of an open .npy file begin."""
    file.seek(0)
    version = np.lib.format.read_magic(file)
    np.lib.format.read_array_header_1_0(file) if version == (1, 0) else np.lib.format.read_array_header_2_0(
        file
    )
    return file.tell()
