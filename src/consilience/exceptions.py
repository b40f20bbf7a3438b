"""Everything consilience raises or warns with.

ConsilienceError                    catch this to catch them all
├── InvalidInputError               (ValueError)     an argument or an array is not what it must be
│   ├── InvalidTypeError            (TypeError) rows of a type that no model can learn from
│   ├── LabelSpaceError             class lists or labels that do not make a label space
│   ├── TeacherError                a teacher that cannot be made, or whose output is wrong
│   └── UnsafeFileError             a file that reaches for what it must not
├── MissingDependencyError          (ImportError)    an extra is not installed
├── ScoringError                    (RuntimeError)   workers or servers that died, hang or cannot be reached
├── StorageError                    (OSError)        a bucket or a URL cannot be reached, read or written
├── WriteError                      (OSError)        a file cannot be written: disk full, no permission
└── NotFittedError                  (scikit-learn's) an estimator is used before fit
ConsilienceWarning                  (UserWarning)
├── ConvergenceWarning              a solver stopped before its tolerance
├── DisconnectedWarning             the teachers do not determine the split between groups of classes
├── CoverageWarning                 rows or classes about which no teacher says anything
└── AliasWarning                    names of classes that do not fit what the teachers say, or fit no class

Errors about input and all warnings carry data: `argument`, `value`, `remedy` and `row`. Their message has
slots for it, and the text is put together when it is shown. So a batch can move the row to where it is in X,
and the command line can say ``--batch-size 0`` where Python says ``batch_size=0``; nothing reads prose back.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import FrameType

    from sklearn.exceptions import NotFittedError as _SklearnNotFittedError

Spelling = Callable[[str, str | None], str]
"""How to write an argument: from its name and its value (None: without one) to text."""
_LONGEST = 200  # characters of a text of others in a message
_HALF = 1000  # characters of the longest message
_SLOTS = ("row", "remedy", "argument")


def visible(text: str) -> str:
    """Return text with control characters written out, so that a terminal shows them and does not obey them.

    Examples
    --------
    >>> print(visible("cat\x1b[2J"))
    cat\\x1b[2J
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def safe_text(text: str, most: int = _LONGEST) -> str:
    """Return a text of others for a message: one line, cut where it is long, and no slot.

    Examples
    --------
    >>> print(safe_text("{row}\x1b[2J"))
    \\x7brow}\\x1b[2J
    """
    text = visible(text)
    text = text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
    for slot in _SLOTS:
        text = text.replace(f"{{{slot}}}", f"\\x7b{slot}}}")
    return text


def shown(value: object) -> str:
    """Return the repr of a value for a message.

    Examples
    --------
    >>> shown("ce"), len(shown(10**5000)) < 300
    ("'ce'", True)
    """
    try:
        return safe_text(" ".join(repr(value).split()))  # arrays fill several lines
    except Exception:  # whatever a foreign repr raises; a whole number of 5,000 digits has none
        return (
            f"a very long {type(value).__name__}" if isinstance(value, int) else f"a {type(value).__name__}"
        )


def as_keyword(name: str, value: str | None) -> str:
    """Write an argument as Python does: ``batch_size=0``, or ``batch_size=`` without a value."""
    return f"{name}={value or ''}"


class _Worded:
    """A message with slots for data.

    Parameters
    ----------
    message : str
        ``"{argument}"``, ``"{remedy}"`` and ``"{row}"`` in it are slots for the data below.
    argument : str, optional
        The argument that is wrong.
    value : object
        What was given for it; leave it out where the message only names the argument. Its repr is kept.
    remedy : str or (str, object), optional
        The argument that helps, or that and its value.
    row : int, optional
        The row that is wrong, counted from 0.
    """

    def __init__(
        self,
        message: str = "",
        *,
        argument: str | None = None,
        value: object = ...,
        remedy: str | tuple[str, object] | None = None,
        row: int | None = None,
    ) -> None:
        super().__init__(message)  # type: ignore[call-arg]  # of the exception that this is mixed into
        self.message = message
        self.argument = argument
        self.value = None if value is ... else shown(value)
        self.remedy = (remedy, None) if isinstance(remedy, str) else remedy and (remedy[0], shown(remedy[1]))
        self.row = None if row is None else int(row)

    def worded(self, spell: Spelling = as_keyword) -> str:
        """Return the text, with arguments as `spell` writes them."""
        return self._filled(self.message, spell)

    def changed(self, **data: Any) -> Self:
        """Return a copy with other data: ``error.changed(row=30)``."""
        other = copy.copy(self)
        vars(other).update(data)
        return other

    def moved(self, start: int) -> Self:
        """Return a copy for rows that begin at row `start` of X."""
        return self if self.row is None else self.changed(row=self.row + start)

    @property
    def data(self) -> dict[str, Any]:
        """The data, for an error that quotes the message of this one: ``changed(**error.data)``."""
        return {name: getattr(self, name) for name in ("argument", "value", "remedy", "row")}

    def __str__(self) -> str:
        return self.worded()

    def _filled(self, message: str, spell: Spelling) -> str:
        """Return a message with its slots filled, control characters written out, and not too long."""
        slots = {
            "row": None if self.row is None else str(self.row),
            "remedy": self.remedy and spell(*self.remedy),
            "argument": self.argument and spell(self.argument, self.value),
        }
        for slot in _SLOTS:
            message = message if slots[slot] is None else message.replace(f"{{{slot}}}", str(slots[slot]))
        if len(message) > 2 * _HALF:  # the remedy is at its end
            message = f"{message[:_HALF]} ... {message[-_HALF:]}"
        return "\n".join(map(visible, message.split("\n")))


class ConsilienceError(Exception):
    """Base of every error that consilience raises.

    Attributes
    ----------
    argument : str or None
        The argument that is wrong.
    row : int or None
        The row that is wrong, counted from 0.
    teacher : str or None
        The teacher that failed.

    Examples
    --------
    >>> from consilience import as_teacher
    >>> try:
    ...     as_teacher("model.pkl")
    ... except ConsilienceError as error:
    ...     print(type(error).__name__, error.teacher)
    TeacherError model
    """

    argument: str | None = None
    row: int | None = None
    teacher: str | None = None


class InvalidInputError(_Worded, ConsilienceError, ValueError):
    """An argument or an array is not what it must be.

    Examples
    --------
    >>> print(InvalidInputError("{argument} must be positive.", argument="batch_size", value=0))
    batch_size=0 must be positive.
    """


class InvalidTypeError(InvalidInputError, TypeError):
    """Rows of a type that no model can learn from.

    Examples
    --------
    >>> print(InvalidTypeError("Rows hold a {argument}; give numbers.", argument="dict"))
    Rows hold a dict=; give numbers.
    """


class LabelSpaceError(InvalidInputError):
    """The class lists do not make a label space, or a label is none of its classes.

    Examples
    --------
    >>> from consilience import LabelSpace
    >>> LabelSpace([["cat", "cat"]])
    Traceback (most recent call last):
    consilience.exceptions.LabelSpaceError: class_lists[0] names cat more than once.
    """


class TeacherError(InvalidInputError):
    """A teacher cannot be made, or gave an output that cannot be used.

    Parameters
    ----------
    name : str
        The teacher's name.
    problem : str
        A clause that follows the name: ``"returned 11 columns for 10 classes. ..."``. It may have slots.
    position : str
        Which of several teachers it is, such as ``"3 of 5"``; empty where there is one teacher.
    **data
        The data of the slots: `argument`, `value`, `remedy` and `row`, as in `InvalidInputError`.

    Examples
    --------
    >>> error = TeacherError("pets", "has 3 columns for 2 classes.")
    >>> print(error.at(1, 5))
    Teacher 'pets' (2 of 5) has 3 columns for 2 classes.
    """

    def __init__(self, name: str, problem: str, position: str = "", **data: Any) -> None:
        super().__init__(problem, **data)
        self.args = (name, problem, position)  # what pickle and copy make it from
        self.teacher, self.position = name, position

    @property
    def problem(self) -> str:
        """What is wrong, without the teacher's name."""
        return self._filled(self.message, as_keyword)

    def worded(self, spell: Spelling = as_keyword) -> str:
        """Return the text, with arguments as `spell` writes them."""
        where = f" ({self.position})" if self.position else ""
        return f"Teacher {shown(self.teacher)}{where} {self._filled(self.message, spell)}"

    def at(self, index: int, count: int) -> TeacherError:
        """Return the same error with the teacher's place among `count` teachers."""
        return self.changed(position=f"{index + 1} of {count}")


class UnsafeFileError(InvalidInputError):
    """A file asks for something outside its folder, or for code to be run.

    Examples
    --------
    >>> try:
    ...     raise UnsafeFileError("model.onnx has its weights in '../weights', outside its folder.")
    ... except ValueError as error:  # it is one
    ...     print(error)
    model.onnx has its weights in '../weights', outside its folder.
    """


class MissingDependencyError(ConsilienceError, ImportError):
    """An optional dependency is needed and not installed.

    Examples
    --------
    >>> issubclass(MissingDependencyError, ImportError)
    True
    """


class ScoringError(ConsilienceError, RuntimeError):
    """Workers of a cluster, or the server of a teacher, died, hang or cannot be reached.

    What they scored before is in the store, if there is one.

    Examples
    --------
    >>> issubclass(ScoringError, RuntimeError)
    True
    """


class StorageError(ConsilienceError, OSError):
    """Storage behind a URL cannot be reached, read or written.

    Examples
    --------
    >>> issubclass(StorageError, OSError)
    True
    """


class WriteError(ConsilienceError, OSError):
    """A file cannot be written: the disk is full, or its folder may not be changed.

    Examples
    --------
    >>> print(WriteError(28, "No space left on device", "unified.onnx"))
    unified.onnx cannot be written: No space left on device. What was there is unchanged.
    """

    def __str__(self) -> str:
        return f"{self.filename} cannot be written: {self.strerror}. What was there is unchanged."


class ConsilienceWarning(_Worded, UserWarning):
    """Base of every warning that consilience gives.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", ConsilienceWarning)  # within this block they are errors
    """


class ConvergenceWarning(ConsilienceWarning):
    """A solver stopped before it reached its tolerance.

    Examples
    --------
    >>> import warnings
    >>> from consilience import sinkhorn
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = sinkhorn([[0.9, 0.1]], [[0.2, 0.8]], [[0, 1], [1, 0]], epsilon=0.01, max_iter=1)
    >>> print(str(caught[0].message)[:32])
    Sinkhorn stopped at max_iter=1 w
    """


class DisconnectedWarning(ConsilienceWarning):
    """The teachers do not determine how mass splits between groups of classes.

    Examples
    --------
    >>> import warnings
    >>> from consilience import LabelSpace, estimate_soft_labels
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = estimate_soft_labels([[1.0, 0, 2, 0]], LabelSpace([["a", "b"], ["c", "d"]]), "mf-lf")
    >>> caught[0].category.__name__
    'DisconnectedWarning'
    """


class CoverageWarning(ConsilienceWarning):
    """Rows or classes about which no teacher says anything.

    Examples
    --------
    >>> print(CoverageWarning("No teacher answers row {row}.", row=7))
    No teacher answers row 7.
    """


class AliasWarning(ConsilienceWarning):
    """Names of classes that do not fit what the teachers say about rows, or aliases that fit no class.

    Examples
    --------
    >>> print(AliasWarning("{argument} names a class that no teacher has.", argument="aliases"))
    aliases= names a class that no teacher has.
    """


def warn(warning: Warning) -> None:
    """Give a warning that points at the line of the caller outside this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_ours(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == __name__.partition(".")[0]


_NOT_FITTED = """An estimator is used before `fit`.

    Examples
    --------
    >>> from consilience import Unifier
    >>> Unifier([]).predict([[1.0]])
    Traceback (most recent call last):
    consilience.exceptions.NotFittedError: This Unifier is not fitted yet; call fit first.
    """
if TYPE_CHECKING:

    class NotFittedError(ConsilienceError, _SklearnNotFittedError):  # type: ignore[misc]
        """An estimator is used before `fit`."""


def __getattr__(name: str) -> Any:
    # made when it is first asked for: scikit-learn takes long to import, and --help does not need it
    if name != "NotFittedError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sklearn.exceptions import NotFittedError as Theirs

    body = {"__module__": __name__, "__doc__": _NOT_FITTED}
    return globals().setdefault(name, type(name, (ConsilienceError, Theirs), body))
