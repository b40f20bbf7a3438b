"""What a teacher is, and what all adapters share."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._validation import n_rows, take_rows
from consilience._words import shorten
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.files.card import Card, find_card
from consilience.files.disk import file_sha256, opened
from consilience.labels import class_list
from consilience.options import Check, Options, anything, choice, count, number, option, with_parameters
from consilience.rows import join_rows
from consilience.rows.images import ImagePreprocess
from consilience.rows.tables import as_values, differ_in_size
from consilience.teachers.inputs import Input
from consilience.teachers.outputs import (
    SUM_TOLERANCE,
    Observed,
    Output,
    ScoreReader,
    describe,
    ensure,
    foreign,
    in_the_name_of,
    read_features,
)

SMOOTHING = 0.001
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
    output : str or None
        What it gives before it is read as logits; None until some rows have shown how to read its scores.
    smoothing : float
        Of its k classes, it gives each a probability of at least smoothing / k; with 0, its outputs are taken
        as they are.
    file : Path or None
        The file that it was made of.
    inputs : tuple of Input or None
        What it takes, as far as its file says.
    column_kinds : mapping
        What columns of a table hold, such as ``"text"``, by name and as far as its file says.

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
    output: str | None = "logits"
    smoothing: float = SMOOTHING
    class_centres: NDArray[np.float64] | None = None
    inputs: tuple[Input, ...] | None = None
    column_kinds: Mapping[Any, str] = MappingProxyType({})

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
        """The weights (k, d) of the last layer, which turn embeddings into logits up to a bias, or None.

        Some networks show their last layer only when they run, so ask once more after the first pass.
        """
        return None

    def randomised(self, seed: int) -> Teacher | None:
        """Return a teacher of the same structure with random weights, or None."""
        return None

    @property
    def fingerprint(self) -> str | None:
        """The key of stored outputs: a text that changes whenever the outputs may change. None if unknown."""
        return None

    def check_rows(self, X: Any) -> None:  # noqa: B027  (nothing to do by default)
        """Raise if X cannot be the rows that the outputs belong to, for outputs of the rows of one X."""

    def part(self, rows: slice | NDArray[np.intp]) -> Teacher | None:
        """Return a teacher of some rows, if this one holds the outputs of the rows of one X; else None."""
        return None

    def release(self) -> None:  # noqa: B027  (nothing to do by default)
        """Free memory that can be allocated again, such as an open session."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, classes: {shorten(self.classes, 5)})"


def filled_text(name: str, value: Any) -> Any:
    """Return None, or a text that is not empty; the check of an option."""
    if value is None or (isinstance(value, str) and value):
        return value
    raise InvalidInputError("{argument} must be a text that is not empty.", argument=name, value=value)


def _images(name: str, value: Any) -> Any:
    if value is None or isinstance(value, ImagePreprocess):
        return value
    raise InvalidInputError(
        "{argument} must be an ImagePreprocess of consilience.teachers.", argument=name, value=value
    )


class TeacherOptions(Options):
    """What every kind of teacher takes, besides its source, its classes and its name."""

    output: Output = option(
        choice("auto", "logits", "probabilities", "costs", "labels"),
        "What the source returns. 'auto' knows it where the source says so, and otherwise decides on "
        "the first batch. 'costs' (of functions and arrays) are lower for more probable classes.",
        default="auto",
    )
    embed: Any = option(
        anything("str, callable or array"),
        "The features of a row, by default the input of the last layer: the name of a layer, a tensor or a "
        "step, a function of X that returns (n, d), or an array (n, d) for precomputed outputs.",
        default=None,
    )
    columns: Any = option(
        anything("sequence of str or int"),
        "Names or places of the columns of X that the source takes, in its order; by default all.",
        default=None,
    )
    fingerprint: str | None = option(
        Check(filled_text, "str"),
        "A text that stands for this version of the model, so that its outputs can be stored. Change it when "
        "the model changes. Functions need one; for most else it is computed from the content.",
        default=None,
    )
    floor: float = option(
        number(above=0, below=0.5), "Probabilities become log(max(p, floor)).", default=1e-6
    )
    smoothing: float = option(
        number(at_least=0, below=1),
        "Of k classes, each gets a probability of at least smoothing / k; with 0, outputs are taken as they "
        "are.",
        default=SMOOTHING,
    )


class ModelOptions(TeacherOptions):
    """What models take that are asked by batches."""

    batch_size: int = option(count(), "Most rows of a call, or of a request to a server.", default=1024)
    preprocess: ImagePreprocess | None = option(
        Check(_images, "ImagePreprocess"),
        "How images are prepared (docs/images.md), by default as the card says. X is then a folder of "
        "images, paths, PIL images or arrays of pixels, of any sizes.",
        default=None,
    )


class Adapter(Teacher):
    """A teacher around a foreign model. Subclasses say how it is asked."""

    _tolerance = SUM_TOLERANCE  # how far from one the sum of a row's probabilities may be
    _takes_arrays = False  # whether it takes arrays, which images of different sizes do not make
    _gives_costs = False
    _embeds_batches = False  # whether a function given as embed= is called by `_run`

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        declared = getattr(vars(cls).get("__init__"), "options", None)
        if declared is not None:
            cls.__doc__ = with_parameters(cls.__doc__ or "", declared.declared())

    def __init__(
        self, name: str, classes: NDArray[Any], options: Any, *, output: Output | None = None
    ) -> None:
        """Keep what all have in common; `output` is what the source gives, where it says so."""
        given = output if output is not None and options.output == "auto" else options.output
        if given == "labels" or (given == "costs" and not self._gives_costs):
            only = "files of hard labels" if given == "labels" else "functions"
            raise TeacherError(
                name,
                f"gives scores; {{argument}} is for arrays and {only}. Drop it.",
                argument="output",
                value=given,
            )
        self.name, self.classes, self.smoothing = name, classes, options.smoothing
        self._embed, self._version, self._columns = options.embed, options.fingerprint, options.columns
        self.preprocess: ImagePreprocess | None = getattr(options, "preprocess", None)
        self._reader = ScoreReader(name, len(classes), given, options.floor, self._tolerance)

    @abstractmethod
    def _run(self, X: Any, rows: int, features: bool) -> tuple[Any, Any]:
        """Return raw scores (n, k) of the `rows` > 0 rows of X, and features (n, d) or None.

        Features need not be found where they are not asked for.
        """

    def _embeddable(self) -> bool:
        """Tell whether there are features, as far as is known before a row is seen."""
        return self._embed is not None

    def _model_fingerprint(self) -> str | None:
        """Return what identifies the model's content, or None."""
        return None

    @property
    def fingerprint(self) -> str | None:
        """A text that changes whenever the outputs may change; None if that cannot be known."""
        if self._version is not None:
            # with name and classes: two functions may both be called "v1"
            content: str | None = f"given {self._version} {self.name} {self.classes.tolist()}"
        else:  # a function has no content that could be compared
            content = None if callable(self._embed) else self._model_fingerprint()
        if content is None or self.output is None:
            return None
        facts = (
            *(type(self).__name__, content, self._reader.output, self._reader.floor, len(self.classes)),
            self._embed if isinstance(self._embed, str) else None,  # the given text stands for functions
            None if self._columns is None else list(self._columns),
            None if self.preprocess is None else self.preprocess.to_dict(),
        )
        return hashlib.blake2b(repr(facts).encode(), digest_size=32).hexdigest()

    def _look(self, X: Any, features: bool) -> tuple[Any, Any]:
        """Return raw scores and, if asked for, checked features of one pass over the model."""
        X = as_values(X)
        rows, features = n_rows(X), features and self._embeddable()
        if rows == 0:  # scikit-learn and many others refuse an empty X
            width = 0 if self.class_weights is None else self.class_weights.shape[1]
            return np.empty((0, len(self.classes))), np.empty((0, width)) if features else None
        own = features and (self._embeds_batches or not callable(self._embed))
        scores, seen = [], []
        with foreign(self.name, f"failed on {describe(X)}"):
            if self._columns is not None:
                with foreign(self.name, f"takes the columns {shorten(self._columns)}, and X lacks one"):
                    chosen = list(self._columns)
                    X = X[chosen] if hasattr(X, "columns") else X[:, chosen]
            for part, count in self._prepared(X, rows):
                given, found = self._run(part, count, own)
                scores.append(given)
                seen.append(self._embed(part) if features and not own else found)
            raw = join_rows(scores)
            known = features and all(found is not None for found in seen)
            embeddings = read_features(join_rows(seen), rows, self.name) if known else None
        return raw, embeddings

    def _prepared(self, X: Any, rows: int) -> Iterator[tuple[Any, int]]:
        """Yield rows as the model takes them, and their number; images are prepared part by part."""
        if self.preprocess is None:
            ensure(
                not self._takes_arrays or not differ_in_size(X),
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

    def raw_scores(self, X: Any) -> Any:
        """Return what the model itself gives (n, k): logits or probabilities, not yet checked."""
        return self._look(X, features=False)[0]

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return logits (n, k), float64; a row of NaN where the teacher abstains."""
        return self._reader.read(self.raw_scores(X), n_rows(as_values(X)))

    def observe(self, X: Any) -> Observed:
        """Return logits and embeddings of one pass over the model."""
        raw, features = self._look(X, features=True)
        return Observed(self._reader.read(raw, n_rows(as_values(X))), features)

    def embed(self, X: Any) -> NDArray[Any] | None:
        """Return features (n, d), or None where there are none."""
        return self._look(X, features=True)[1] if self._embeddable() else None

    @property
    def output(self) -> str | None:  # type: ignore[override]
        """What the model gives: logits, probabilities or costs; None until a batch shows it."""
        return None if self._reader.output == "auto" else self._reader.output

    def _take_card(self, file: Path, card: Card | None) -> None:
        """Remember the file that the teacher was made of, and the centres on its card."""
        self.file = file.absolute()
        if card is not None and card.centres is not None:
            self.class_centres = np.asarray(card.centres, dtype=np.float64)


def open_source(path: Any, name: str | None, options: TeacherOptions) -> tuple[Path, str, Card | None]:
    """Return a file's path, the teacher's name and the card next to the file.

    The card's name, output and preparation of images are used where the caller left them open.
    """
    source = Path(path)
    shown = teacher_name(name, source.stem)
    with in_the_name_of(shown), opened(source, links=True):
        pass
    card = find_card(source)
    if card is not None:
        shown = name or card.name
        if options.output == "auto":
            options.output = card.output or "auto"
        if isinstance(options, ModelOptions):
            options.preprocess = options.preprocess or card.preprocess
    return source, shown, card


class KnownFiles:
    """Files as they were when they were checked.

    Attributes
    ----------
    changed : bool
        Whether one of them is another file now, or gone.
    digest : str
        A hash of their contents.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = list(paths)
        self._stats = self._look()

    def _look(self) -> list[tuple[int, ...]]:
        stats = [path.lstat() for path in self._paths]
        return [(one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns) for one in stats]

    @property
    def changed(self) -> bool:
        try:
            return self._stats != self._look()
        except OSError:
            return True

    @cached_property
    def digest(self) -> str:
        return " ".join(file_sha256(path) for path in self._paths)


def teacher_name(name: Any, default: str) -> str:
    """Return the given name of a teacher, checked, or the default."""
    if name is not None and not isinstance(name, str):
        raise InvalidInputError("{argument} must be a text or None.", argument="name", value=name)
    return name or default


def class_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return classes as a 1-D array, or raise in the teacher's name."""
    with in_the_name_of(name), foreign(name, "has classes that cannot be read. Give a list of names"):
        return np.asarray(class_list(values))


def own_or_given(
    own: ArrayLike | None,
    given: ArrayLike | None,
    name: str,
    *,
    binding: bool = True,
    what: str = "",
) -> NDArray[Any]:
    """Return the source's own classes, or the given ones, which rename them column by column.

    The same names in another order would swap classes, so they are refused as a slip. If the own classes are
    not `binding` (a file may hold a stale list), the number of classes may differ. `what` says what
    the source is that has none.
    """
    if own is None and given is None:
        about = f"is {what}, which " if what else ""
        raise TeacherError(
            name, f"{about}does not name its classes. Give {{remedy}} one name per column.", remedy="classes"
        )
    if own is None or given is None:
        return class_array(own if given is None else given, name)  # type: ignore[arg-type]  # one is there
    new = class_array(given, name)
    known = class_array(own, name) if binding else np.asarray(own)
    ensure(
        not binding or len(new) == len(known),
        name,
        f"has {len(known)} classes ({shorten(known, 5)}) and {{argument}} names {len(new)}. "
        "Give one name per column, or drop {argument}.",
        argument="classes",
    )
    ensure(
        new.tolist() == known.tolist() or {*new.tolist()} != {*known.tolist()},
        name,
        f"has the columns {shorten(known, 5)} and {{argument}} gives the same names in another order. "
        "Drop {argument}, or give them in the order of the columns.",
        argument="classes",
    )
    return new


def check_embed_function(embed: Any, name: str, otherwise: str = "") -> None:
    """Raise unless `embed` is None or a function; `otherwise` names what else it may be."""
    choices = f"{otherwise}, or a function" if otherwise else "a function"
    ensure(
        embed is None or callable(embed),
        name,
        f"has {{argument}}; give {choices} of X that returns features (n, d).",
        argument="embed",
        value=embed,
    )
