"""What a teacher is, and what all adapters share."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._dataset_rows import read_rows
from consilience._images import differ_in_size
from consilience._tables import as_values
from consilience._validation import n_rows, take_rows
from consilience._words import shorten
from consilience.exceptions import (
    ConsilienceError,
    InvalidInputError,
    LabelSpaceError,
    TeacherError,
)
from consilience.files.preprocess import ImagePreprocess
from consilience.labels import class_list
from consilience.rows import join_rows
from consilience.teachers._features import Observed, read_features
from consilience.teachers._outputs import FLOOR, LABEL_SMOOTHING, SUM_TOLERANCE, Output, ScoreReader
from consilience.teachers._remote_options import RemoteOptions

BATCH_SIZE = 1024
PREPARED_BYTES = 2**26
"""About the most memory that prepared images take at a time."""


@runtime_checkable
class TeacherLike(Protocol):
    """What you implement to bring a teacher of your own: three members; `as_teacher` adds the rest.

    Attributes
    ----------
    name : str
        For messages and reports.
    classes : (k,) sequence of str or int
        The class of each column.

    Examples
    --------
    >>> class Thermometer:
    ...     name, classes = "thermometer", ["cold", "warm"]
    ...     def predict_logits(self, X):
    ...         return [[0.0, row[0] - 20] for row in X]
    >>> from consilience import as_teacher
    >>> as_teacher(Thermometer()).predict_logits([[15], [30]]).tolist()
    [[0.0, -5.0], [0.0, 10.0]]
    """

    name: str
    classes: Any

    def predict_logits(self, X: Any) -> Any:
        """Return logits (n, k); a row of NaN where the teacher abstains."""
        ...


@dataclass(frozen=True)
class Input:
    """What a model takes.

    Attributes
    ----------
    name : str
    dtype : str
        Such as ``"float32"``; ``"text"`` for texts, ``"image"`` for images of any size.
    shape : tuple of int or None
        None where any length will do, such as that of a batch.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]


class Teacher(ABC):
    """A classifier that can be asked for logits: what `as_teacher` returns.

    A subclass defines `name`, `classes` and `predict_logits`. All other members have defaults that mean
    "none". An object of your own needs only the three members of `TeacherLike`; `as_teacher` also uses any
    others that it has.

    Attributes
    ----------
    name : str
        For messages and reports.
    classes : (k,) array
        The class of each column.
    batched : bool
        Whether `predict_logits` may be called with slices of X. Precomputed outputs get the whole X at once.
    n_jobs : int
        Number of processes in which a slow teacher runs.
    class_centres : (k, d) array or None
        The mean embedding of each class in the teacher's own data.
    file : Path or None
        The file that it was made of.

    Examples
    --------
    >>> from consilience import Teacher, as_teacher
    >>> teacher = as_teacher([[0.9, 0.1], [0.2, 0.8]], ["cat", "dog"], name="pets")
    >>> isinstance(teacher, Teacher), teacher.name, teacher.classes.tolist()
    (True, 'pets', ['cat', 'dog'])
    """

    name: str
    classes: NDArray[Any]
    file: Path | None = None
    served: str | None = None  # a hash of what a server says about a remote model
    batched: bool = True
    n_jobs: int = 1
    class_centres: NDArray[np.float64] | None = None

    @abstractmethod
    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return logits (n, k), float64; a row of NaN where the teacher abstains."""

    def embed(self, X: Any) -> NDArray[Any] | None:
        """Return features (n, d), for ranking and class centres; None where there are none."""
        return None

    def observe(self, X: Any) -> Observed:
        """Return logits and embeddings, in one pass over the model if possible."""
        return Observed(self.predict_logits(X), self.embed(X))

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The weights (k, d) of the last layer, which turn embeddings into logits up to a bias, or None."""
        return None

    def find_head(self, X: Any) -> None:  # noqa: B027  (nothing to do by default)
        """Find the last layer where only a pass shows it (torch), so that `class_weights` is complete."""

    def randomised(self, seed: int) -> Teacher | None:
        """Return a teacher of the same structure with random weights, or None."""
        return None

    @property
    def fingerprint(self) -> str | None:
        """The key of stored outputs: a text that changes whenever the outputs may change. None if unknown."""
        return None

    @property
    def inputs(self) -> tuple[Input, ...] | None:
        """What it takes, as far as its file says."""
        return None

    @property
    def column_kinds(self) -> Mapping[Any, str]:
        """What columns of a table hold, such as ``"text"``, by name and as far as its file says."""
        return {}

    @property
    def output(self) -> str | None:
        """What it gives before it is read as logits, as far as is known."""
        return None

    @property
    def settled(self) -> bool:
        """Whether it is known how to read the scores. If not, the first batch is larger."""
        return True

    def settle(self, X: Any) -> None:  # noqa: B027  (nothing to do by default)
        """Decide from some rows how to read the scores. Called before `fingerprint` is read."""

    def check_rows(self, X: Any) -> None:  # noqa: B027  (nothing to do by default)
        """Raise if X cannot be the rows that the outputs belong to, for outputs of the rows of one X."""

    def part(self, rows: slice | NDArray[np.intp]) -> Teacher | None:
        """Return a teacher of some rows, if this one holds the outputs of the rows of one X; else None."""
        return None

    def release(self) -> None:  # noqa: B027  (nothing to do by default)
        """Free memory that can be allocated again, such as an open session."""

    @contextmanager
    def _wording(self, X: Any) -> Iterator[None]:
        """Turn an error inside a foreign model into a TeacherError."""
        try:
            yield
        except ConsilienceError:
            raise
        except Exception as error:
            raise TeacherError(self.name, f"failed on {describe(X)}: {summary(error)}") from error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, classes: {shorten(self.classes, 5)})"


@dataclass(frozen=True)
class Options:
    """The keywords of `as_teacher`, checked."""

    output: Output = "auto"
    floor: float = FLOOR
    label_smoothing: float = LABEL_SMOOTHING
    batch_size: int = BATCH_SIZE
    device: str | None = None
    embed: Any = None
    fingerprint: str | None = None
    n_jobs: int = 1
    remote: RemoteOptions | None = None
    preprocess: ImagePreprocess | None = None
    half: bool | None = None


class Adapter(Teacher):
    """A teacher around a foreign model. Subclasses only fetch its raw scores and features."""

    _tolerance = SUM_TOLERANCE  # how far from one the sum of a row's probabilities may be
    _takes_arrays = False  # whether it takes arrays, which images of different sizes do not make
    preprocess: ImagePreprocess | None = None

    def __init__(
        self, name: str, classes: NDArray[Any], options: Options, *, output: Output | None = None
    ) -> None:
        given = options.output if output is None else output
        if given == "labels":
            raise TeacherError(
                name,
                "gives scores; {argument} is for arrays and files of hard labels. Drop it.",
                argument="output",
                value=given,
            )
        self.name, self.classes = name, classes
        self._embed, self._version = options.embed, options.fingerprint
        self.preprocess = options.preprocess
        self._reader = ScoreReader(name, len(classes), given, options.floor, self._tolerance)

    @abstractmethod
    def _scores(self, X: Any, rows: int) -> Any:
        """Return the raw scores (n, k) of the `rows` > 0 rows of X."""

    def _features(self, X: Any, rows: int) -> Any:
        """Return raw features of the `rows` > 0 rows of X; only called where `_embeddable` holds."""
        return self._embed(X)

    def _both(self, X: Any, rows: int) -> tuple[Any, Any]:
        """Return raw scores and features (or None), in one pass if possible."""
        return self._scores(X, rows), self._features(X, rows) if self._embeddable() else None

    def _embeddable(self) -> bool:
        """Tell whether there are features, as far as is known before a row is seen."""
        return callable(self._embed)

    def _width(self) -> int:
        """Return the number of features as far as it is known, for an X without rows."""
        return 0 if self.class_weights is None else self.class_weights.shape[1]

    def _model_fingerprint(self) -> str | None:
        """Return what identifies the model's content, or None."""
        return None

    @property
    def fingerprint(self) -> str | None:
        """A text that changes whenever the outputs may change; None if that cannot be known."""
        if self._version is not None:
            # with name and classes: two functions may both be called "v1"
            content: str | None = f"given {self._version} {self.name} {self.classes.tolist()}"
        elif callable(self._embed):  # a function has no content that could be compared
            content = None
        else:
            content = self._model_fingerprint()
        if content is None or self._reader.output == "auto":  # until a batch decides what the scores are
            return None
        reading = f"{self._reader.output} {self._reader.floor!r}"
        layer = self._embed if isinstance(self._embed, str) else ""  # the given text stands for functions
        facts = [type(self).__name__, content, reading, layer, str(len(self.classes))]
        if self.preprocess is not None:
            facts.append(json.dumps(self.preprocess.to_dict(), sort_keys=True))
        return hashlib.blake2b("\0".join(facts).encode(), digest_size=32).hexdigest()

    def raw_scores(self, X: Any) -> Any:
        """Return what the model itself gives (n, k): logits or probabilities, not yet checked."""
        X = read_rows(as_values(X))
        rows = n_rows(X)
        if rows == 0:  # scikit-learn and many others refuse an empty X
            return np.empty((0, len(self.classes)))
        with self._wording(X):
            return join_rows([self._scores(part, count) for part, count in self._prepared_parts(X, rows)])

    def _prepared_parts(self, X: Any, rows: int) -> Iterator[tuple[Any, int]]:
        """Yield rows as the model takes them, and their number; images are prepared part by part."""
        if self.preprocess is None:
            if self._takes_arrays and differ_in_size(X):
                raise TeacherError(
                    self.name,
                    "takes an array, and X has images of several sizes. Say how it wants them: under "
                    '"preprocess" on its card, or with preprocess=ImagePreprocess(size=...).',
                )
            yield X, rows
            return
        size = max(1, PREPARED_BYTES // self.preprocess.row_bytes)
        for start in range(0, rows, size):
            part = take_rows(X, slice(start, start + size)) if rows > size else X
            try:
                prepared = self.preprocess(part)
            except InvalidInputError as error:
                raise error.moved(start) from error.__cause__
            yield prepared, len(prepared)

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return logits (n, k), float64; a row of NaN where the teacher abstains."""
        X = as_values(X)
        raw, rows = self.raw_scores(X), n_rows(X)
        return self._reader.read(raw, rows) if rows else np.empty((0, len(self.classes)))

    @property
    def output(self) -> str | None:
        """What the model gives: logits, probabilities or costs; None until a batch shows it."""
        return None if self._reader.output == "auto" else self._reader.output

    def observe(self, X: Any) -> Observed:
        """Return logits and embeddings of one pass over the model."""
        X = read_rows(as_values(X))
        rows = n_rows(X)
        if rows == 0:
            empty = np.empty((0, self._width())) if self._embeddable() else None
            return Observed(np.empty((0, len(self.classes))), empty)
        with self._wording(X):
            both = [self._both(part, count) for part, count in self._prepared_parts(X, rows)]
        raw, features = join_rows([one for one, _ in both]), _joined([one for _, one in both])
        logits = self._reader.read(raw, rows)
        return Observed(logits, None if features is None else read_features(features, rows, self.name))

    def settle(self, X: Any) -> None:
        """Decide from some rows what the scores are, unless that is known. The fingerprint depends on it."""
        if not self.settled:
            self.predict_logits(X)

    @property
    def settled(self) -> bool:
        """Whether it is known what the scores are."""
        return self._reader.output != "auto"

    def embed(self, X: Any) -> NDArray[Any] | None:
        """Return features (n, d), or None where there are none."""
        if not self._embeddable():
            return None
        X = read_rows(as_values(X))
        rows = n_rows(X)
        if rows == 0:
            return np.empty((0, self._width()))
        with self._wording(X):
            features = _joined([self._features(part, count) for part, count in self._prepared_parts(X, rows)])
        return None if features is None else read_features(features, rows, self.name)


def _joined(features: list[Any]) -> Any:
    """Return the features of several parts as one; None where a part has none."""
    return None if any(part is None for part in features) else join_rows(features)


def class_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return classes as a 1-D array, or raise in the teacher's name."""
    try:
        return np.asarray(class_list(values))
    except LabelSpaceError as error:
        raise TeacherError(name, f"cannot be used: {error}") from error
    except Exception as error:  # what is not a list can raise anything
        raise TeacherError(
            name,
            f"has {{argument}} that cannot be read ({summary(error)}). Give a list of names.",
            argument="classes",
        ) from error


def own_or_given(own: ArrayLike, given: ArrayLike | None, name: str, *, binding: bool = True) -> NDArray[Any]:
    """Return the source's own classes, or the given ones, which rename them column by column.

    The same names in another order would swap classes, so they are refused as a slip. If the own classes are
    not `binding` (a file may hold a stale list), the number of classes may differ.
    """
    if given is None:
        return class_array(own, name)
    new = class_array(given, name)
    known = class_array(own, name) if binding else np.asarray(own)
    if binding and len(new) != len(known):
        raise TeacherError(
            name,
            f"has {len(known)} classes ({shorten(known, 5)}) and {{argument}} names {len(new)}. "
            "Give one name per column, or drop {argument}.",
            argument="classes",
        )
    if new.tolist() != known.tolist() and set(new.tolist()) == set(known.tolist()):
        raise TeacherError(
            name,
            f"has the columns {shorten(known, 5)} and {{argument}} gives the same names in another order. "
            "Drop {argument}, or give them in the order of the columns.",
            argument="classes",
        )
    return new


def given_classes(classes: ArrayLike | None, name: str, what: str) -> NDArray[Any]:
    """Return the given classes. Raise if there are none, because the source does not name its own."""
    if classes is None:
        raise TeacherError(
            name,
            f"is {what}, which does not name its classes. Give {{remedy}} one name per column.",
            remedy="classes",
        )
    return class_array(classes, name)


def check_embed_function(embed: Any, name: str, otherwise: str = "") -> None:
    """Raise unless `embed` is None or a function; `otherwise` names what else it may be."""
    if embed is not None and not callable(embed):
        choice = f"{otherwise}, or a function" if otherwise else "a function"
        raise TeacherError(
            name,
            f"has {{argument}}; give {choice} of X that returns features (n, d).",
            argument="embed",
            value=embed,
        )


def describe(X: Any) -> str:
    """Say what X is, for a message."""
    shape = getattr(X, "shape", None)
    kind = getattr(X, "dtype", None) or type(X).__name__
    return (
        f"X of shape {tuple(shape)} ({kind})" if shape is not None else f"X, a {type(X).__name__} of {len(X)}"
    )


def summary(error: BaseException, most: int = 300) -> str:
    """Return the type and the first line of a foreign error."""
    lines: Sequence[str] = str(error).strip().splitlines()
    text = lines[0] if lines else "no message"
    return f"{type(error).__name__}: {text[:most]}"
