"""The teachers that a user gives: one, a list, a dict by name, or a Ranking."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from consilience.exceptions import InvalidInputError, TeacherError
from consilience.files.ngram_model import is_text_model
from consilience.rows.tables import is_instance_of
from consilience.teachers.base import Teacher, TeacherLike, own_or_given, teacher_name
from consilience.teachers.classes import Renamed
from consilience.teachers.folders import ModelFolder, hub_advice
from consilience.teachers.function import Function
from consilience.teachers.onnx import Onnx
from consilience.teachers.outputs import Output, ensure
from consilience.teachers.precomputed import is_array, stored_teacher
from consilience.teachers.remote import Remote, is_address
from consilience.teachers.sklearn import Sklearn, Skops, is_estimator
from consilience.teachers.text_model import TextModel
from consilience.teachers.torch import Torch

Maker = Callable[..., Teacher]


def _npz(path: Any, classes: ArrayLike | None = None, name: str | None = None, **options: Any) -> Teacher:
    """Make a teacher of an .npz file: a model of texts, or outputs."""
    make: Maker = TextModel if is_text_model(path) else stored_teacher
    return make(path, classes, name, **options)


def renamed(
    obj: Any,
    classes: ArrayLike | None = None,
    name: str | None = None,
    *,
    output: Output = "auto",
    **options: Any,
) -> Teacher:
    """Return a teacher, an object of yours, or what a loaded classifier holds, with a name and classes."""
    obj = getattr(obj, "teacher_", obj)
    teacher = obj if isinstance(obj, Teacher) else Renamed(obj)
    shown = teacher_name(name, teacher.name)
    options["output"] = None if output in ("auto", "logits") else output
    for option, value in options.items():
        ensure(
            value is None,
            shown,
            "is a teacher already and gives logits; give {argument} where it is made, or drop it.",
            argument=option,
        )
    if classes is None and shown == teacher.name:
        return teacher
    return Renamed(teacher, shown, own_or_given(teacher.classes, classes, shown))


_FILES: dict[str, Maker] = {
    ".onnx": Onnx,
    ".npy": stored_teacher,
    ".npz": _npz,
    ".parquet": stored_teacher,
    ".skops": Skops,
    ".toml": Remote,
}

# the first test that holds decides; callables come last, since a torch module is callable, too
_OBJECTS: tuple[tuple[Callable[[Any], bool], Maker], ...] = (
    (lambda obj: not isinstance(obj, type) and isinstance(obj, Teacher | TeacherLike), renamed),
    (lambda obj: isinstance(getattr(obj, "teacher_", None), Teacher), renamed),
    (lambda obj: is_instance_of(obj, "torch.nn", "Module"), Torch),
    (lambda obj: is_instance_of(obj, "consilience.students.ngrams", "Ngrams"), TextModel),
    (is_estimator, Sklearn),
    (is_array, stored_teacher),
    (callable, Function),
)


def as_teacher(
    obj: Any,
    classes: ArrayLike | None = None,
    name: str | None = None,
    *,
    output: Output = "auto",
    embed: Any = None,
    columns: Any = None,
) -> Teacher:
    """Make a teacher out of a model, a function, an array or a file.

    It chooses the adapter. Each is a class of `consilience.teachers`, which has more options.

    Parameters
    ----------
    obj : object
        - a fitted scikit-learn-style classifier (`Sklearn`);
        - a `torch.nn.Module` that returns logits (`Torch`);
        - a path to an ``.onnx`` file (`Onnx`);
        - a path to a model folder of transformers, sentence-transformers or timm (docs/model-folders.md);
        - a path to a ``.skops`` file with a fitted scikit-learn classifier (docs/files.md);
        - an address ``https://HOST/v2/models/NAME`` of the Open Inference Protocol (docs/remote.md), or a
          path to a ``.toml`` file with one;
        - a `consilience.students.Ngrams`, or a path to the ``.npz`` file that it saved (`TextModel`);
        - a function ``f(X) -> (n, k)``, or one that returns a ranked answer per row (`Function`);
        - precomputed outputs, a row per row of the transfer set: an array or data frame (n, k)
          (`Precomputed`), hard labels (n,) that name classes (`HardLabels`), or a path to ``.npy``, ``.npz``
          or ``.parquet``;
        - a teacher, which is returned as it is (or under the given name and classes);
        - an object of your own with `name`, `classes` and `predict_logits` (see `TeacherLike`). Any other
          member of `Teacher` that it has is used, too.
    classes : (k,) sequence of str or int, optional
        The class of each column. By default those of the classifier, of the ONNX file, or of the card next
        to the file; `classes` renames them column by column. Hard labels must be among them.
    name : str, optional
        By default the card's name, the file's stem, the class of the model or the name of the function.
    output : {"auto", "logits", "probabilities", "costs", "labels"}
        What the source returns. "auto" knows it where the source says so, and otherwise decides on the first
        batch. Ranked answers need it. "costs" (of functions and arrays) are lower for more probable classes.
    embed : str, callable or array, optional
        The features of a row. By default the input of the last layer, if there is one. Or the name of a torch
        layer (its output; its input with ``":input"`` at the end), of a tensor of an ONNX graph, or of a step
        of a scikit-learn pipeline; or a function of X (for torch, of a batch as a tensor) that returns
        (n, d); or an array (n, d) for precomputed outputs.
    columns : sequence of str or int, optional
        Names or places of the columns of X that the source takes, in its order; by default all.

    Returns
    -------
    Teacher
        Its `predict_logits(X)` gives float64 logits (n, k); a row of NaN is an abstention. `Teacher` lists
        its other members (`embed`, `class_weights`, ...).

    Raises
    ------
    TeacherError
        The source cannot be used, now or when it is asked; the message has the remedy.
    UnsafeFileError
        An ONNX file or a model folder reaches for data outside its folder, or for code; or a ``.skops`` file
        holds a type that is not on the list.

    Examples
    --------
    >>> teacher = as_teacher([[0.9, 0.1], [0.2, 0.8]], classes=["cat", "dog"], name="pets")
    >>> teacher.classes.tolist()
    ['cat', 'dog']
    >>> teacher.predict_logits([0, 1]).round(2).tolist()
    [[-0.11, -2.3], [-1.61, -0.22]]
    """
    make = _maker(obj)
    if make is None:
        raise _no_source(obj, name)
    return make(obj, classes, name, output=output, embed=embed, columns=columns)


def is_source(obj: Any) -> bool:
    """Tell whether an object is of a kind that `as_teacher` takes.

    Examples
    --------
    >>> is_source("model.onnx"), is_source([[0.9, 0.1]]), is_source(None)
    (True, True, False)
    """
    return isinstance(obj, str | os.PathLike) or _maker(obj) is not None


def _maker(obj: Any) -> Maker | None:
    if not isinstance(obj, str | os.PathLike):
        return next((maker for test, maker in _OBJECTS if test(obj)), None)
    if is_address(obj):
        return Remote
    folder = os.fspath(obj) and os.path.isdir(obj)
    return _FILES.get(Path(obj).suffix.lower(), ModelFolder if folder else None)


def _no_source(obj: Any, name: str | None) -> TeacherError:
    kind = type(obj).__name__
    problem = (
        f"is a {kind}, which is no classifier. Give a fitted classifier, a torch module, a path, a function "
        "or an array; for a model that only has predict, give its predictions as an array."
    )
    if isinstance(obj, str | os.PathLike):
        kind = Path(obj).stem or str(obj)
        endings = f"a teacher's file ends in {', '.join(_FILES)}, or it is a model folder."
        problem = hub_advice(obj) or f"is given as {os.fspath(obj)!r}; {endings}"
    return TeacherError(teacher_name(name, kind), problem)


class GivenTeachers(NamedTuple):
    """The sources of teachers, before any is opened."""

    names: list[str | None]  # None where the source names itself
    sources: list[Any]
    scores: list[float] | None  # where a Ranking was given


class OpenedTeachers(NamedTuple):
    """Teachers, ready to be asked."""

    names: list[str]  # each once
    teachers: list[Teacher]
    scores: list[float] | None  # where a Ranking was given


def column_kinds(teachers: Sequence[Teacher]) -> dict[Any, str]:
    """Return what columns of a table hold, by name, where teachers say so and do not contradict each other.

    Parameters
    ----------
    teachers : sequence of Teacher
        With a `column_kinds` each.
    """
    found: dict[Any, set[str]] = {}
    for name, kind in itertools.chain.from_iterable(teacher.column_kinds.items() for teacher in teachers):
        found.setdefault(name, set()).update({kind} - {"unused"})
    return {name: kinds.pop() for name, kinds in found.items() if len(kinds) == 1}


def given_teachers(teachers: Any) -> GivenTeachers:
    """List what was given as teachers, without opening any.

    Parameters
    ----------
    teachers : sequence, mapping, Ranking or teacher
        A list of what `as_teacher` takes, a dict of such by name, what `rank_teachers` returned (teachers
        that failed are left out), or a single one.

    Examples
    --------
    >>> given_teachers({"birds": "birds.onnx", "pets": "pets.onnx"}).names
    ['birds', 'pets']
    >>> given_teachers("birds.onnx").sources
    ['birds.onnx']
    """
    if hasattr(teachers, "scored_teachers"):  # a Ranking
        ranked = teachers.scored_teachers()
        names, sources, scores = ([row[place] for row in ranked] for place in range(3))
        given = GivenTeachers(names, sources, scores)
    elif isinstance(teachers, Mapping):
        given = GivenTeachers([str(name) for name in teachers], list(teachers.values()), None)
    elif isinstance(teachers, Sequence) and not isinstance(teachers, str | bytes):
        given = GivenTeachers([None] * len(teachers), list(teachers), None)
    elif is_source(teachers):
        given = GivenTeachers([None], [teachers], None)
    else:
        raise InvalidInputError(
            f"teachers is a {type(teachers).__name__}; give a list of teachers, a dict of them by name, "
            "a Ranking, or one teacher."
        )
    if not given.sources:
        raise InvalidInputError(
            "teachers is empty, or a Ranking in which no teacher has a score; give at least one teacher."
        )
    return given


def open_teachers(teachers: Any) -> OpenedTeachers:
    """Make teachers of what was given; see `given_teachers`. An error says which of them it is about."""
    names, sources, scores = given_teachers(teachers)
    opened = []
    for i, (source, name) in enumerate(zip(sources, names, strict=True)):
        try:
            opened.append(as_teacher(source, name=name))
        except TeacherError as error:
            raise error.at(i, len(sources)) from error.__cause__
    return OpenedTeachers(distinct_names([teacher.name for teacher in opened]), opened, scores)


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return names with a number where several teachers share one.

    Examples
    --------
    >>> distinct_names(["forest", "SVC", "forest"])
    ['forest 1', 'SVC', 'forest 2']
    """
    counts, distinct = Counter(names), list[str]()
    for name in names:
        numbered = (f"{name} {i}" for i in itertools.count(1))
        taken = {*names, *distinct}
        distinct.append(name if counts[name] == 1 else next(one for one in numbered if one not in taken))
    return distinct
