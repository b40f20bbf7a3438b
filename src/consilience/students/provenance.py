"""What a saved classifier says about how it was made: see `consilience.files.card`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from consilience._validation import n_rows
from consilience._version import __version__
from consilience._words import counted
from consilience.exceptions import InvalidInputError
from consilience.files.card import date_now, figures, jsonable, rows_sha256, settings_of
from consilience.students.estimator import student_name
from consilience.teachers import Teacher
from consilience.teachers.folders import source_sha256

MOST_NAMES = 100_000
"""With more classes of all teachers together, a card has only their numbers: the size of cards is limited."""
_ELSEWHERE = ("teachers", "aliases", "progress")  # the first two have a place of their own


def describe_fit(estimator: Any, X: Any, all_rows: int | None = None) -> dict[str, Any]:
    """Return the settings of an estimator and the checksum of the rows that it was fitted on.

    If X is a part of `all_rows` rows that were read block by block, there is no checksum.
    """
    data = {"rows": n_rows(X) if all_rows is None else all_rows}
    settings = settings_of(estimator, without=_ELSEWHERE)
    about = {
        "estimator": type(estimator).__name__,
        "seed": settings.get("random_state"),
        "settings": settings,
        "data": {**data, "sha256": rows_sha256(X) if all_rows is None else None},
    }
    if getattr(estimator, "aliases", None):
        about["aliases"] = jsonable(estimator.aliases)
    return about


def describe_model(
    fit: dict[str, Any], student: Any, teachers: Sequence[Teacher] | None, measured: Any
) -> dict[str, Any]:
    """Return everything that a card says about how a model was made.

    Parameters
    ----------
    fit : dict
        From `describe_fit`.
    student : object
        The fitted student.
    teachers : sequence of Teacher or None
    measured : Evaluation, mapping or None
        See `consilience.files.card.figures`.
    """
    about = {"version": __version__, "date": date_now(), **fit, "student": student_name(student)}
    if teachers is not None:
        few = sum(len(teacher.classes) for teacher in teachers) <= MOST_NAMES
        about["teachers"] = [describe_teacher(teacher, names=few) for teacher in teachers]
    found = figures(measured)
    return about if found is None else {**about, "measured": found}


def describe_teacher(teacher: Teacher, *, names: bool = True) -> dict[str, Any]:
    """Return a teacher's name and classes, and the checksum of its file or else its fingerprint.

    Without `names`, and with many classes, only their number is told.
    """
    classes: Any = jsonable(teacher.classes.tolist())
    if not names or not isinstance(classes, list):
        classes = counted(len(teacher.classes), "class")
    about = {"name": teacher.name, "classes": classes}
    if teacher.served is not None:
        about["served"] = teacher.served
    if teacher.file is not None:
        try:
            return {**about, "file": teacher.file.name, "sha256": source_sha256(teacher.file)}
        except (OSError, InvalidInputError):  # gone since, or changed
            return {**about, "file": teacher.file.name, "sha256": None}
    return {**about, "fingerprint": teacher.fingerprint}
