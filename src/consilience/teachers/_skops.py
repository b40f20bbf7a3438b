"""Fitted scikit-learn models in .skops files, as teachers.

A file is read once into memory. Before skops sees it, every entry is compared with the tables in
`_skops_types`, and every array with its size.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from consilience._optional import require
from consilience._sizes import size_text
from consilience._words import visible
from consilience.exceptions import TeacherError, UnsafeFileError
from consilience.files.arrays import ArrayFileError, NpzFile
from consilience.files.strict_json import parse_json
from consilience.teachers._base import Options, Teacher, summary
from consilience.teachers._files import open_source
from consilience.teachers._sklearn import is_estimator, sklearn_teacher
from consilience.teachers._skops_types import ALLOWED, REASONS, check_indices

MAX_BYTES = 2 * 2**30
"""The largest file that is read."""
MAX_SCHEMA = 64 * 2**20
"""The largest description in a file."""
_SCHEMA = "schema.json"
_MARKS = ("__class__", "__module__", "__loader__")
_REMEDY = (
    "Export the model to ONNX and give that; or, if you trust whoever made the file, load it with skops "
    "yourself and give the fitted model."
)


def skops_teacher(
    path: str | os.PathLike[str], classes: ArrayLike | None, name: str | None, options: Options
) -> Teacher:
    """Make a teacher of a .skops file that holds a fitted classifier."""
    source, shown, options, card = open_source(path, name, options)
    library = require("skops.io", extra="skops", purpose="A .skops file")
    size = source.stat().st_size
    if size > MAX_BYTES:
        raise TeacherError(
            shown, f"has a file of {size_text(size)}; a .skops file may have {size_text(MAX_BYTES)} at most."
        )
    data = source.read_bytes()  # once: what is checked is what is loaded
    found = check_content(data, source, shown)
    try:
        model = library.loads(data, trusted=sorted(found))
    except Exception as error:  # whatever a damaged description leads to
        raise TeacherError(
            shown, f"cannot be loaded from {source.name}: {visible(summary(error))}"
        ) from error
    problem = check_indices(model)
    if problem:
        raise UnsafeFileError(f"{source.name} is not loaded: {problem}. {_REMEDY}")
    if not is_estimator(model):
        raise TeacherError(
            shown, f"is no classifier: {source.name} holds a {type(model).__name__}. Save a fitted one."
        )
    names = card.classes if classes is None and card is not None else classes
    return sklearn_teacher(model, names, shown, options)


def check_content(data: bytes, source: Path, name: str) -> set[str]:
    """Return the types in a file; raise where one is not allowed, or where an array is not what it says.

    Parameters
    ----------
    data : bytes
        The content of the file.
    source : Path
    name : str
        Of the teacher, for messages.
    """
    try:
        with NpzFile(source, file=io.BytesIO(data)) as archive:
            if _SCHEMA not in archive.names:
                raise TeacherError(name, f"is no .skops file: {source.name} has no {_SCHEMA}.")
            schema = parse_json(archive.read_bytes(_SCHEMA, MAX_SCHEMA), _SCHEMA, foreign=True)
            found, arrays = _check_entries(schema, source)
            for array in sorted(arrays):
                if not array.endswith(".npy") or array.removesuffix(".npy") not in archive.names:
                    raise UnsafeFileError(
                        f"{source.name} is not loaded: it takes an array from {visible(array)[:100]!r}, "
                        "which is none of its arrays."
                    )
                archive.read(array.removesuffix(".npy"))
    except ArrayFileError as error:
        raise TeacherError(name, f"is no .skops file that can be read: {visible(str(error))}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, TeacherError | UnsafeFileError):
            raise
        raise TeacherError(
            name, f"is no .skops file that can be read: {_SCHEMA} is not JSON ({visible(summary(error))})."
        ) from error
    return found


def _check_entries(schema: Any, source: Path) -> tuple[set[str], set[str]]:
    """Return the types that a description names, and the files of arrays; raise where one is not allowed."""
    found, arrays, waiting = set[str](), set[str](), [schema]
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, list):
            waiting += entry
        if not isinstance(entry, dict):
            continue
        waiting += entry.values()
        if not any(mark in entry for mark in _MARKS):
            continue
        kind, module, name = (entry.get(mark) for mark in ("__loader__", "__module__", "__class__"))
        full = f"{module}.{name}"
        if not isinstance(kind, str) or full not in ALLOWED.get(kind, ()) or "." in str(name):
            what = REASONS.get(str(kind), "which is not on the list of types that a file may hold")
            raise UnsafeFileError(
                f"{source.name} is not loaded: it holds {visible(full)[:200]!r}, {what}. {_REMEDY}"
            )
        found.add(full)
        if "file" in entry and kind == "NdArrayNode":
            arrays.add(str(entry["file"]))
    return found, arrays
