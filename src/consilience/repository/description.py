"""What is kept so that models can be searched without being run: reference rows, and what each model said.

The file of reference rows is named after their checksum, so that damage shows.
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
from numpy.typing import NDArray
from scipy.special import log_softmax

from consilience._optional import require
from consilience._validation import n_rows
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.files.arrays import open_npz
from consilience.files.strict_json import listing, parse_json, plain_text, text
from consilience.labels import class_list
from consilience.rank.metrics import principal_components
from consilience.repository.entry import ModelEntry
from consilience.repository.shelf import OWN, Shelf
from consilience.repository.signature import look_at, plain_rows
from consilience.rows.tables import from_arrow, is_table, rows_sha256, to_arrow
from consilience.run import Run
from consilience.scoring import observe
from consilience.teachers import as_teacher

__all__ = ["Description", "describe"]

FLOOR = -12.0  # of a log-probability: below, half precision and a regression gain nothing
COMPONENTS = 16  # that are kept of an embedding
LARGEST = 6e4  # of a kept number: half precision ends here
FOLDER = f"{OWN}/reference"
MOST_BYTES = 2**30
"""Bytes that one set of reference rows may take."""
MOST_DESCRIPTION = 64 * 2**20
"""Bytes that the description of one model may take."""
_ABOUT = "model_and_rows"
_WANTED = "Reference rows must be numbers (n, ...), texts, or a table, and at least one row."


@dataclass(frozen=True, eq=False, repr=False)
class Description:
    """What a model said about the reference rows of a repository.

    It takes 2 bytes per reference row and class, and 32 bytes per reference row for the embedding. The arrays
    may come from a stranger's file, so they are checked; they are text and numbers only, and read-only.

    Parameters
    ----------
    classes : (k,) array
        Names, text or numbers.
    answers : (r, k) array of float16
        Logarithms of probabilities, a row of NaN where the model abstains.
    embeddings : (r, q) array of float16, optional
        Its embedding, reduced.
    """

    classes: NDArray[Any]
    answers: NDArray[np.float16]
    embeddings: NDArray[np.float16] | None = None

    def __post_init__(self) -> None:
        found = {"classes": np.asarray(class_list(self.classes, "classes of a description"))}
        answers = found["answers"] = _half("answers", self.answers)
        silent = np.isnan(answers).all(axis=1)
        good = silent | (np.isfinite(answers) & (answers <= 0.01)).all(axis=1)
        if answers.shape[1] != len(found["classes"]) or not good.all() or silent.all():
            wanted = (
                "logarithms of probabilities, a column per class, or NaN in a whole row but not in all rows"
            )
            raise _undescribed(answers, "answers", wanted)
        if self.embeddings is not None:
            found["embeddings"] = _half("embeddings", self.embeddings)
            if len(found["embeddings"]) != len(answers) or not np.isfinite(found["embeddings"]).all():
                raise _undescribed(
                    found["embeddings"], "embeddings", f"finite numbers for {len(answers)} rows"
                )
        for name, values in found.items():
            values.flags.writeable = False
            object.__setattr__(self, name, values)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays by name, for an ``.npz`` without pickles."""
        return {name: values for name, values in vars(self).items() if values is not None}

    @property
    def n_bytes(self) -> int:
        """The bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def __repr__(self) -> str:
        rows, classes = self.answers.shape
        return f"Description({classes} classes, {rows} reference rows, {self.n_bytes:,} bytes)"


def _half(name: str, values: Any) -> NDArray[np.float16]:
    """Return a copy (r, q) in half precision, or raise."""
    array = np.asarray(values)
    if array.dtype.kind != "f" or array.ndim != 2 or not array.size or (np.abs(array) > LARGEST).any():
        raise _undescribed(array, name, f"floats (r, q) up to {LARGEST:g}")
    return np.array(array, dtype=np.float16)


def _undescribed(array: NDArray[Any], name: str, expected: str) -> InvalidInputError:
    return InvalidInputError(
        f"{name} of a description have shape {array.shape} and type {array.dtype}; expected {expected}. "
        "Describe the model again."
    )


def describe(teacher: Any, X: Any) -> Description:
    """Run a model once over reference rows, and keep what a search needs.

    Parameters
    ----------
    teacher : Teacher
        Or whatever `as_teacher` takes.
    X : array, data frame or list
        r reference rows, without labels. They should look like the rows that people will search with.

    Returns
    -------
    Description

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> describe(LogisticRegression(max_iter=500).fit(X, y), X[::3])
    Description(3 classes, 50 reference rows, 724 bytes)
    """
    model = as_teacher(teacher)
    if n_rows(X) < 2:
        raise InvalidInputError(f"X has {n_rows(X)} reference rows; give at least 2, better some hundred.")
    seen = observe(model, X, Run())
    answered = ~np.isnan(seen.logits).any(axis=1)
    if not answered.any():
        raise TeacherError(model.name, "abstains on every reference row, so nothing can be kept of it.")
    answers = np.full(seen.logits.shape, np.nan, dtype=np.float16)
    answers[answered] = np.maximum(log_softmax(seen.logits[answered], axis=1), FLOOR)
    kept = seen.embeddings is not None and np.isfinite(seen.embeddings).all()
    return Description(model.classes, answers, _reduced(seen.embeddings) if kept else None)


def _reduced(embeddings: Any) -> NDArray[np.float16]:
    """Return the first principal components, with a mean squared length of one, in half precision."""
    F = np.asarray(embeddings, dtype=np.float64)
    F = F / max(float(np.abs(F).max()), np.finfo(np.float64).tiny)  # squares of large numbers would overflow
    Z = principal_components(F, min(COMPONENTS, *F.shape))
    length = float(np.sqrt((Z**2).sum() / len(Z)))
    return np.asarray(Z / length if length > 0 else Z, dtype=np.float16)


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
    what, shape, kind = look_at(X)
    if what == "images":
        raise InvalidInputError("Reference rows that are images must have one size. Resize them first.")
    if what == "table":
        return f"table of {', '.join(sorted(str(name) for name in X.columns))}"
    if what == "texts":
        return what
    if what == "other" or hasattr(X, "tocsr") or kind not in ("b", "i", "u", "f") or len(shape) < 2:
        raise InvalidInputError(_WANTED)
    return f"numbers {shape[1:]}"


def as_reference(X: Any) -> Reference:
    """Return rows as reference rows, or raise."""
    X = plain_rows(X)
    kind = kind_of_rows(X)
    X = [plain_text(str(row)) for row in X] if kind == "texts" else X
    sha256 = rows_sha256(X)
    if sha256 is None or n_rows(X) == 0:
        raise InvalidInputError(_WANTED)
    return Reference(sha256, kind, X)


def write_reference(shelf: Shelf, X: Any) -> Reference:
    """Keep reference rows; they take the place of an earlier set of their kind, and of damaged ones."""
    made = as_reference(X)
    ending, data = _encoded(made)
    name = f"{made.sha256}{ending}"
    before = [other for other, known in _found(shelf) if known is None or known.kind == made.kind]
    shelf.write(f"{FOLDER}/{name}", data)
    for other in {*before} - {name}:
        (shelf.root / FOLDER / other).delete()
    return made


def read_references(shelf: Shelf) -> list[Reference]:
    """Return the reference sets of a repository; raise where one is damaged."""
    found = []
    for name, known in _found(shelf):
        if known is None:
            raise InvalidInputError(
                f"The reference rows in {name} are damaged. Give them again with set_reference."
            )
        found.append(known)
    return found


def _found(shelf: Shelf) -> Iterator[tuple[str, Reference | None]]:
    """Yield the name of each file of reference rows, and the rows; None where they are damaged."""
    for entry in (shelf.root / FOLDER).entries():
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
                found[paths[path].name] = Description(**arrays)  # otherwise of other rows or another model
    return found


def _model_sha256(entry: ModelEntry) -> str:
    """Return one text for all files of a model."""
    text = " ".join(f"{path} {one.sha256}" for path, one in sorted(entry.files.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def _encoded(reference: Reference) -> tuple[str, bytes]:
    """Return the ending and the content of a file of reference rows."""
    X, data = reference.X, io.BytesIO()
    if reference.kind == "texts":
        return ".json", json.dumps(X, ensure_ascii=False).encode()
    if is_table(X):
        require("pyarrow.parquet", extra="tables", purpose="A table of reference rows").write_table(
            to_arrow(X), data
        )
        return ".parquet", data.getvalue()
    np.savez_compressed(data, allow_pickle=False, X=np.asarray(X))
    return ".npz", data.getvalue()


def _arrays(data: bytes) -> dict[str, Any]:
    with open_npz(Path("arrays.npz"), file=io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.names}


def _texts(data: bytes) -> list[str]:
    return list(listing(text(2**30), 2**30)(parse_json(data)))


def _table(data: bytes) -> Any:
    parquet = require("pyarrow.parquet", extra="tables", purpose="A table of reference rows")
    return from_arrow(parquet.read_table(io.BytesIO(data)))


_DECODERS = {".npz": lambda data: _arrays(data)["X"], ".json": _texts, ".parquet": _table}
