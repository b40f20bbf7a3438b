"""Reference rows: unlabelled rows that every fitting model is asked about once, and what is kept of it.

Their file is named after their checksum, so that damage shows.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from consilience._images import differ_in_size
from consilience._optional import require
from consilience._tables import is_table
from consilience._validation import n_rows
from consilience.exceptions import InvalidInputError
from consilience.files.arrays import NpzFile
from consilience.files.row_hash import rows_sha256
from consilience.files.strict_json import listing, parse_json, plain_text, text
from consilience.repository.description import Description
from consilience.repository.entry import ModelEntry
from consilience.repository.numbers import plain_rows
from consilience.repository.shelf import OWN, Shelf

FOLDER = f"{OWN}/reference"
MOST_BYTES = 2**30
"""Bytes that one set of reference rows may take."""
MOST_DESCRIPTION = 64 * 2**20
"""Bytes that the description of one model may take."""
_ABOUT = "model_and_rows"
_WANTED = "Reference rows must be numbers (n, ...), texts, or a table."


@dataclass(frozen=True)
class Reference:
    """Reference rows.

    Attributes
    ----------
    sha256 : str
        The checksum of the rows.
    kind : str
        What rows they are; a repository has one set of each kind.
    X : array, list of texts or data frame
    """

    sha256: str
    kind: str
    X: Any

    @property
    def description_file(self) -> str:
        """The name of the file that holds what a model said about these rows."""
        return f"description-{self.sha256[:32]}.npz"


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


def as_reference(X: Any) -> Reference:
    """Return rows as reference rows, or raise."""
    X = plain_rows(X)
    kind = kind_of_rows(X)
    X = [plain_text(str(row)) for row in X] if kind == "texts" else X
    sha256 = rows_sha256(X)
    if sha256 is None or n_rows(X) == 0:
        raise InvalidInputError("Reference rows must be numbers, texts or a table, and at least one row.")
    return Reference(sha256, kind, X)


def write_reference(shelf: Shelf, X: Any) -> Reference:
    """Keep reference rows; they take the place of an earlier set of their kind, and of damaged ones."""
    made = as_reference(X)
    ending, data = _encoded(made)
    name = f"{made.sha256}{ending}"
    before = [other for other, known in _found(shelf) if known is None or known.kind == made.kind]
    shelf.write(f"{FOLDER}/{name}", data)
    for other in {*before} - {name}:
        shelf.root.at(f"{FOLDER}/{other}").delete()
    return made


def read_references(shelf: Shelf) -> list[Reference]:
    """Return the reference sets of a repository; raise where one is damaged."""
    found = dict(_found(shelf))
    damaged = [name for name, known in found.items() if known is None]
    if damaged:
        raise InvalidInputError(
            f"The reference rows in {damaged[0]} are damaged. Give them again with set_reference."
        )
    return [known for known in found.values() if known is not None]


def _found(shelf: Shelf) -> Iterator[tuple[str, Reference | None]]:
    """Yield the name of each file of reference rows, and the rows; None where they are damaged."""
    for entry in shelf.root.at(FOLDER).entries():
        name = Path(entry.path.name)
        if name.suffix in _DECODERS:
            known = None
            with contextlib.suppress(ValueError, KeyError, OSError, TypeError):
                known = as_reference(_DECODERS[name.suffix](entry.path.read(MOST_BYTES) or b""))
            yield name.name, known if known is not None and known.sha256 == name.stem else None


def write_description(shelf: Shelf, entry: ModelEntry, reference: Reference, made: Description) -> None:
    """Keep the description of a model beside its card."""
    data, about = io.BytesIO(), np.array([_model_sha256(entry), reference.sha256])
    np.savez_compressed(data, allow_pickle=False, **made.arrays, **{_ABOUT: about})
    if data.tell() > MOST_DESCRIPTION:
        raise InvalidInputError(
            f"The description of {entry.name!r} takes {data.tell()} bytes; at most {MOST_DESCRIPTION} are "
            "kept."
        )
    shelf.write(f"{entry.folder}/{reference.description_file}", data.getvalue())


def read_descriptions(
    shelf: Shelf, entries: Sequence[ModelEntry], reference: Reference
) -> dict[str, Description]:
    """Return what models said about reference rows, by their name; damaged descriptions count as none."""
    paths = {f"{entry.folder}/{reference.description_file}": entry for entry in entries}
    there = shelf.find(paths)
    found = {}
    for path, data in zip(there, shelf.root.read_all(list(there.values()), MOST_DESCRIPTION), strict=True):
        with contextlib.suppress(KeyError, ValueError, TypeError):
            arrays = _arrays(data or b"")
            if arrays.pop(_ABOUT).tolist() == [_model_sha256(paths[path]), reference.sha256]:
                found[paths[path].name] = Description(arrays)  # otherwise of other rows or another model
    return found


def _model_sha256(entry: ModelEntry) -> str:
    """Return one text for all files of a model."""
    text = " ".join(f"{path} {one.sha256}" for path, one in sorted(entry.files.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def _encoded(reference: Reference) -> tuple[str, bytes]:
    """Return the ending and the content of a file of reference rows."""
    X, data = reference.X, io.BytesIO()
    if is_table(X):
        require("pyarrow", extra="tables", purpose="A table of reference rows")
        (X if hasattr(X, "to_parquet") else X.to_pandas()).to_parquet(data, index=False)
        return ".parquet", data.getvalue()
    if reference.kind == "texts":
        return ".json", json.dumps(X, ensure_ascii=False).encode()
    np.savez_compressed(data, allow_pickle=False, X=np.asarray(X))
    return ".npz", data.getvalue()


def _arrays(data: bytes) -> dict[str, Any]:
    with NpzFile(Path("arrays.npz"), file=io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.names}


def _texts(data: bytes) -> list[str]:
    return list(listing(text(2**30), 2**30)(parse_json(data)))


def _table(data: bytes) -> Any:
    parquet = require("pyarrow.parquet", extra="tables", purpose="A table of reference rows")
    return parquet.read_table(io.BytesIO(data)).to_pandas(ignore_metadata=True)


_DECODERS = {".npz": lambda data: _arrays(data)["X"], ".json": _texts, ".parquet": _table}
