"""The one writer of files: whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from consilience.exceptions import ConsilienceError, InvalidInputError, WriteError


@contextmanager
def replacing(target: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file next to `target` that takes its place when the block ends without an error.

    A reader sees the old file or the new one, never half of one. A link is replaced, not followed.

    Parameters
    ----------
    target : path
        The file; its folder must exist. A folder, a pipe or a device is refused.
    durable : bool
        Whether to wait until the file is on disk. If not, a power cut may lose it or damage it.
    """
    # not tempfile: only their owner may read its files, and os.replace would keep it that way
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        if os.path.lexists(target) and stat.S_IFMT(target.lstat().st_mode) not in (
            stat.S_IFREG,
            stat.S_IFLNK,
        ):
            raise InvalidInputError(f"{target} is a folder, a pipe or a device. Give the name of a file.")
        with temporary.open("xb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, target)
        if durable:
            _sync_folder(target.parent)
    except ConsilienceError:  # ours, or of what gave the content
        raise
    except OSError as error:
        raise WriteError(error.errno, error.strerror or str(error), str(target)) from error
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, where folders can be opened (not on Windows)."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
