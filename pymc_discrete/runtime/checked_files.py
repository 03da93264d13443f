"""Files in the folder of `compile_cache`: whole or absent, with a checksum of what is in them."""

import hashlib
import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from pymc_discrete.runtime.compile_cache import usable_folder

_log = logging.getLogger("pymc.discrete")

# A file begins with these bytes; the checksum of the file's contents follows, and then the contents.
HEADER = b"pymc-discrete 2\n"
CHECKSUM = 32  # the number of bytes of the checksum


def checksum_of(content: bytes | memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=CHECKSUM).digest()


def checked_path(name: str, ending: str) -> Path | None:
    """The path of the file with the given name and ending; None if nothing is kept on disk."""
    folder = usable_folder()
    return folder and folder / f"{name}{ending}"


def read_checked(name: str, ending: str) -> bytes | None:
    """The content that `write_checked` has written for a name; None if there is none or it is damaged."""
    path = checked_path(name, ending)
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            header, given, content = file.read(len(HEADER)), file.read(CHECKSUM), file.read()
    except OSError:
        return None
    if header != HEADER or given != checksum_of(content):
        _log.debug(f"{path} is damaged, and is made anew.")
        return None
    return content


def write_checked(name: str, ending: str, content: bytes | memoryview) -> None:
    """Write a file, if files are kept on disk. Another process finds the whole file or none.

    Raises
    ------
    OSError
        For example where the disk is full. The file is then as it was before.
    """
    path = checked_path(name, ending)
    if path is None:
        return
    # The file is written under another name and renamed at the end.
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        new = Path(file.name)
        try:
            for part in (HEADER, checksum_of(content), content):  # not in one, since the content may be large
                file.write(part)
            file.flush()
            os.replace(new, path)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise
