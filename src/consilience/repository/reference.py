"""Reference rows: unlabelled rows that every fitting model is asked about once, and what is kept of it."""

from __future__ import annotations

import hashlib
import io
import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from consilience._images import differ_in_size
from consilience._optional import require
from consilience._tables import is_table
from consilience._validation import n_rows
from consilience.exceptions import InvalidInputError
from consilience.files.arrays import ArrayFileError, read_npz
from consilience.files.row_hash import rows_sha256
from consilience.files.strict_json import parse_json
from consilience.repository.description import Description
from consilience.repository.entry import ModelEntry
from consilience.repository.layout import Layout
from consilience.repository.numbers import plain_rows
from consilience.rows.files import open_files

FILE = "reference.json"
MOST_DESCRIPTION = 64 * 2**20
"""Bytes that the description of one model may take."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MODEL, _ROWS = "model_sha256", "rows_sha256"
_WANTED = "Reference rows must be numbers (n, ...), texts, or a table."
_TEXTS = ("utf8", "borders")


@dataclass(frozen=True)
class Reference:
    """Reference rows, by their content.

    Attributes
    ----------
    sha256 : str
        The checksum of the rows.
    kind : str
        What rows they are; a repository has one set of each kind.
    file : str
    n_rows : int
    """

    sha256: str
    kind: str
    file: str
    n_rows: int


def kind_of_rows(X: Any) -> str:
    """Return what rows are like: texts, a table with its columns, or numbers of a shape.

    Examples
    --------
    >>> kind_of_rows(["a", "b"]), kind_of_rows(np.zeros((5, 64)))
    ('texts', 'numbers (64,)')
    """
    if is_table(X):
        return f"table of {', '.join(sorted(str(name) for name in X.columns))}"
    if isinstance(X, list | tuple) and X and all(isinstance(row, str) for row in X):
        return "texts"
    if differ_in_size(X):
        raise InvalidInputError("Reference rows that are images must have one size. Resize them first.")
    try:
        values = X if hasattr(X, "shape") else np.asarray(X)
    except (ValueError, TypeError, RuntimeError, OverflowError):  # ragged rows
        raise InvalidInputError(_WANTED) from None
    shape, kind = values.shape, getattr(getattr(values, "dtype", None), "kind", "")
    if len(shape) == 1 and shape[0] and all(isinstance(row, str) for row in np.asarray(values).tolist()):
        return "texts"
    if hasattr(X, "tocsr") or kind not in ("b", "i", "u", "f") or len(shape) < 2:
        raise InvalidInputError(_WANTED)
    return f"numbers {tuple(int(size) for size in values.shape[1:])}"


def read_references(layout: Layout) -> list[Reference]:
    """Return the reference sets of a repository; those that cannot be read are left out."""
    data = layout.read_own(FILE, 2**20)
    try:
        found = [] if data is None else parse_json(data.decode())
        return [
            Reference(one["sha256"], one["kind"], one["file"], int(one["n_rows"]))
            for one in found
            if _SHA256.fullmatch(one["sha256"]) and re.fullmatch(r"[0-9a-f]{64}\.(npz|parquet)", one["file"])
        ]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []


def check_reference(X: Any) -> tuple[Any, str, str]:
    """Return reference rows, their kind and their checksum, or raise."""
    X = plain_rows(X)
    kind, sha256 = kind_of_rows(X), rows_sha256(X)
    if sha256 is None or n_rows(X) == 0:
        raise InvalidInputError("Reference rows must be numbers, texts or a table, and at least one row.")
    return X, kind, sha256


def write_reference(layout: Layout, X: Any) -> Reference:
    """Keep reference rows; they take the place of an earlier set of their kind."""
    X, kind, sha256 = check_reference(X)
    known = read_references(layout)
    file = f"{sha256}.{'parquet' if is_table(X) else 'npz'}"
    made = Reference(sha256, kind, file, n_rows(X))
    if made not in known:
        layout.write_own(f"reference/{file}", _encoded(X, kind))
        kept = [one for one in known if one.kind != kind] + [made]
        layout.write_own(FILE, json.dumps([vars(one) for one in kept], indent=1).encode())
    return made


def load_reference(layout: Layout, reference: Reference) -> Any:
    """Read reference rows, and check that they are those that were kept."""
    path = layout.own_path(f"reference/{reference.file}")
    if path is None:
        raise InvalidInputError("The reference rows are gone. Give them again with set_reference.")
    X = _decoded(path)
    if rows_sha256(X) != reference.sha256:
        raise InvalidInputError("The reference rows are damaged. Give them again with set_reference.")
    return X


def description_file(reference: Reference) -> str:
    """Return the file name of what a model said about reference rows."""
    return f"description-{reference.sha256[:32]}.npz"


def write_description(
    layout: Layout, entry: ModelEntry, reference: Reference, description: Description
) -> None:
    """Keep the description of a model beside its card."""
    facts = {_MODEL: np.array(_model_sha256(entry)), _ROWS: np.array(reference.sha256)}
    data = io.BytesIO()
    np.savez_compressed(data, allow_pickle=False, **description.arrays, **facts)
    if data.tell() > MOST_DESCRIPTION:
        raise InvalidInputError(
            f"The description of {entry.name!r} takes {data.tell()} bytes; at most {MOST_DESCRIPTION} are "
            "kept."
        )
    layout.write_beside(entry.folder, description_file(reference), data.getvalue())


def read_description(layout: Layout, entry: ModelEntry, reference: Reference) -> Description | None:
    """Return the description of a model over reference rows; None where there is none that can be used."""
    path = layout.beside(entry.folder, description_file(reference), MOST_DESCRIPTION)
    if path is None:
        return None
    try:
        arrays = read_npz(path)
        facts = [str(arrays.pop(key)) for key in (_MODEL, _ROWS)]
        if facts != [_model_sha256(entry), reference.sha256]:
            return None  # of another model, or of other rows
        return Description(arrays)
    except (ArrayFileError, InvalidInputError, KeyError, ValueError, TypeError):
        return None


def _model_sha256(entry: ModelEntry) -> str:
    """Return one text for all files of a model."""
    text = " ".join(f"{path} {one.sha256}" for path, one in sorted(entry.files.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def _encoded(X: Any, kind: str) -> bytes:
    data = io.BytesIO()
    if is_table(X):
        require("pyarrow", extra="tables", purpose="A table of reference rows")
        (X if hasattr(X, "to_parquet") else X.to_pandas()).to_parquet(data, index=False)
    elif kind == "texts":
        texts = [str(row).encode("utf-8", "surrogatepass") for row in X]
        borders = np.cumsum([0, *map(len, texts)])
        utf8 = np.frombuffer(b"".join(texts), dtype=np.uint8)
        np.savez_compressed(data, allow_pickle=False, utf8=utf8, borders=borders)
    else:
        np.savez_compressed(data, allow_pickle=False, X=np.asarray(X))
    return data.getvalue()


def _decoded(path: Path) -> Any:
    if path.suffix == ".parquet":
        return open_files(path, "The reference").all(None)
    arrays = read_npz(path)
    if "X" in arrays:
        return arrays["X"]
    if set(arrays) != set(_TEXTS):
        raise InvalidInputError("The reference rows are damaged. Give them again with set_reference.")
    data, borders = arrays["utf8"].tobytes(), arrays["borders"].tolist()
    try:
        return [data[start:stop].decode("utf-8", "surrogatepass") for start, stop in pairwise(borders)]
    except (UnicodeDecodeError, TypeError) as error:
        raise InvalidInputError(
            "The reference rows are damaged. Give them again with set_reference."
        ) from error
