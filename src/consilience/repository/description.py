"""What is kept of a model, so that it can be searched for without being run."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from consilience._validation import n_rows
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.labels import class_list
from consilience.rank.features import principal_components
from consilience.scoring.engine import observe
from consilience.teachers import as_teacher

__all__ = ["Description", "describe"]

FLOOR = -12.0  # of a log-probability: below, half precision and a regression gain nothing
COMPONENTS = 16  # that are kept of an embedding
MOST_ROWS, MOST_CLASSES = 100_000, 100_000
LARGEST = 6e4  # of a kept number: half precision ends here


class Description:
    """What a model said about the reference rows of a repository.

    It takes 2 bytes per reference row and class, and 32 bytes per reference row for the embedding.

    Parameters
    ----------
    arrays : mapping of arrays
        ``"classes"`` (k,): names, text or numbers. ``"answers"`` (r, k): logarithms of probabilities, a row
        of NaN where the model abstains. ``"embeddings"`` (r, q), optional: its embedding, reduced.
        They may come from a stranger's file, so they are checked.

    Attributes
    ----------
    arrays : mapping of arrays
        The same, read-only: text and numbers only, so they fit an ``.npz`` without pickles.
    classes : (k,) array
    answers : (r, k) array
    embeddings : (r, q) array or None
    n_bytes : int
    """

    __slots__ = ("arrays",)
    arrays: Mapping[str, NDArray[Any]]

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        object.__setattr__(self, "arrays", MappingProxyType(_checked(arrays)))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"A Description cannot be changed; make a new one instead of setting {name}.")

    @property
    def classes(self) -> NDArray[Any]:
        """The names (k,) of its classes."""
        return self.arrays["classes"]

    @property
    def answers(self) -> NDArray[np.float16]:
        """The logarithms (r, k) of its probabilities."""
        return self.arrays["answers"]

    @property
    def embeddings(self) -> NDArray[np.float16] | None:
        """Its reduced embedding (r, q), if it has one."""
        return self.arrays.get("embeddings")

    @property
    def n_bytes(self) -> int:
        """The bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def __repr__(self) -> str:
        rows, classes = self.answers.shape
        return f"Description({classes} classes, {rows} reference rows, {self.n_bytes:,} bytes)"


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
    seen = observe(model, X)
    answered = ~np.isnan(seen.logits).any(axis=1)
    if not answered.any():
        raise TeacherError(model.name, "abstains on every reference row, so nothing can be kept of it.")
    answers = np.full(seen.logits.shape, np.nan, dtype=np.float16)
    answers[answered] = np.maximum(log_softmax(seen.logits[answered], axis=1), FLOOR)
    kept: dict[str, NDArray[Any]] = {"classes": np.asarray(class_list(model.classes)), "answers": answers}
    if seen.embeddings is not None and np.isfinite(seen.embeddings).all():
        kept["embeddings"] = _reduced(seen.embeddings)
    return Description(kept)


def _reduced(embeddings: NDArray[Any]) -> NDArray[np.float16]:
    """Return the first principal components, with a mean squared length of one, in half precision."""
    F = np.asarray(embeddings, dtype=np.float64)
    F = F / max(float(np.abs(F).max()), np.finfo(np.float64).tiny)  # squares of large numbers would overflow
    Z = principal_components(F, min(COMPONENTS, *F.shape))
    length = float(np.sqrt((Z**2).sum() / len(Z)))
    return np.asarray(Z / length if length > 0 else Z, dtype=np.float16)


def _checked(arrays: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a description, or say what is wrong with them."""
    if not isinstance(arrays, Mapping):
        raise InvalidInputError(f"arrays is a {type(arrays).__name__}; give a mapping of names to arrays.")
    names, known = set(arrays), {"classes", "answers", "embeddings"}
    if not {"classes", "answers"} <= names <= known:
        raise InvalidInputError(
            f"A description has the arrays {sorted(map(str, names))}; expected 'classes', 'answers' and, "
            "if the model has one, 'embeddings'. Describe the model again."
        )
    classes = np.asarray(arrays["classes"])
    if classes.dtype.kind not in "Uiufb" or classes.ndim != 1 or not 1 <= len(classes) <= MOST_CLASSES:
        raise InvalidInputError(
            f"classes of a description have shape {classes.shape} and type {classes.dtype}; expected one "
            f"text or number per class, at most {MOST_CLASSES:,}. Describe the model again."
        )
    kept = {"classes": np.asarray(class_list(classes, "classes of a description"))}
    answers = _half("answers", arrays["answers"], len(classes))
    silent = np.isnan(answers)
    wrong = ~(silent.all(axis=1) | (np.isfinite(answers).all(axis=1) & (answers <= 0.01).all(axis=1)))
    if wrong.any() or silent.all():
        raise InvalidInputError(
            f"answers of a description are no log-probabilities in row {int(wrong.argmax())}; expected "
            "numbers up to 0, or NaN in a whole row, but not in all rows. Describe the model again."
        )
    kept["answers"] = answers
    if "embeddings" in arrays:
        kept["embeddings"] = _half("embeddings", arrays["embeddings"], None)
        if len(kept["embeddings"]) != len(answers) or not np.isfinite(kept["embeddings"]).all():
            raise InvalidInputError(
                f"embeddings of a description have shape {kept['embeddings'].shape}; expected finite "
                f"numbers for {len(answers)} rows. Describe the model again."
            )
    for array in kept.values():
        array.flags.writeable = False
    return kept


def _half(name: str, values: Any, columns: int | None) -> NDArray[np.float16]:
    """Return a copy (r, columns) in half precision, or raise."""
    array = np.asarray(values)
    fits = array.ndim == 2 and 1 <= len(array) <= MOST_ROWS and 1 <= array.shape[1] <= MOST_CLASSES
    if array.dtype.kind != "f" or not fits or columns not in (None, array.shape[1]):
        wanted = "q" if columns is None else columns
        raise InvalidInputError(
            f"{name} of a description have shape {array.shape} and type {array.dtype}; expected floats "
            f"(r, {wanted}), at most {MOST_ROWS:,} rows. Describe the model again."
        )
    if (np.abs(array) > LARGEST).any():
        raise InvalidInputError(f"{name} of a description reach {LARGEST:g}. Describe the model again.")
    return np.array(array, dtype=np.float16)
