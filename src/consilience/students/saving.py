"""Write a fitted classifier as one file, with a card that says how it was made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience._version import __version__
from consilience._words import counted
from consilience.exceptions import InvalidInputError
from consilience.files.card import Card, carded
from consilience.files.export import TOLERANCE, check_export, finish, write_model
from consilience.files.made import KEY, date_now, figures, jsonable, settings
from consilience.files.ngram_model import write_model as write_text_model
from consilience.rows.images import ImagePreprocess
from consilience.rows.tables import columns_of, is_numeric, is_table, kind_of
from consilience.students.student import student_name
from consilience.teachers import Teacher
from consilience.teachers.folders import source_sha256

if TYPE_CHECKING:
    from consilience.students.classifier import StudentClassifier

PREPROCESSED = "What preprocess= of the student returned, such as token ids. The function is not in the file."
"""What a saved model says of its input if a function makes it."""
PREPARED = "Images, prepared as its card says under preprocess."
"""What a saved model says of its input if an `ImagePreprocess` makes it."""
MOST_NAMES = 100_000
"""With more classes of all teachers together, a card has only their numbers: the size of cards is limited."""


def save_classifier(model: StudentClassifier, target: Path, measured: Any) -> Path:
    """Write a fitted classifier and its card; see `StudentClassifier.save`."""
    student, origin = model.student_, model.origin()
    _check_target(student, target)
    preprocess = getattr(student, "preprocess", None)
    prepared = preprocess if isinstance(preprocess, ImagePreprocess) else None
    teachers = getattr(model, "teachers_", None)
    about = dict(origin.about)
    if preprocess is not None:
        about["input"] = PREPROCESSED if prepared is None else PREPARED
    details = {**about, KEY: describe_model(describe_fit(model), student, teachers, measured)}
    if teachers is not None:
        details["teachers"] = [teacher.name for teacher in teachers]
    if student.learns_from == "texts":
        named = student.model_.named(model.classes_, student.temperature_)
        write_text_model(target, named, description=origin.description, details=details)
        return target
    names = None
    if preprocess is None and hasattr(model, "feature_names_in_"):
        names = [str(name) for name in model.feature_names_in_]
    graph = _as_onnx(model, names, about)
    card = Card(
        name=target.stem,
        classes=tuple(model.classes_.tolist()),
        output="probabilities",
        description=origin.description,
        details=details,
        feature_names=None if names is None else tuple(names),
        preprocess=prepared,
    )
    with carded(target, card):
        write_model(graph, target)
    return target


def _check_target(student: Any, target: Path) -> None:
    """Raise unless the student can be saved under this name."""
    ending = ".npz" if student.learns_from == "texts" else ".onnx"
    if ending == ".onnx" and not hasattr(student, "to_onnx"):
        raise InvalidInputError(
            f"The student {student_name(student)} cannot be saved: it learns soft labels in a way of its own."
        )
    if target.suffix != ending:
        what = "save writes ONNX" if ending == ".onnx" else f"{student_name(student)} is saved as .npz"
        raise InvalidInputError(f"{what}; give a file name that ends in {ending}, not {target.name!r}.")
    if not target.parent.is_dir():
        raise InvalidInputError(f"The folder {str(target.parent)!r} does not exist. Make it first.")
    if target.is_dir():
        raise InvalidInputError(f"{str(target)!r} is a folder; give the name of a file.")


def _as_onnx(model: StudentClassifier, names: list[str] | None, about: dict[str, str]) -> Any:
    """Return the classifier as an ONNX model, after a comparison with its own probabilities."""
    student, encoder, example = model.student_, model.encoder_, model.example_
    graph, kinds = student.to_onnx(model.as_seen_(example)), _column_kinds(model)
    metadata = {"producer": "consilience", **about}
    if getattr(student, "preprocess", None) is not None:
        example = student.prepare(example)
    if names is not None:
        metadata["feature_names"] = json.dumps(names)
    if kinds is not None:
        metadata["feature_kinds"] = json.dumps(kinds)
    if encoder is not None:
        graph = encoder.prepend_to(graph)
    temperature = student.temperature_
    graph = finish(
        graph,
        classes=model.classes_,
        columns=getattr(student, "columns_", np.arange(len(model.classes_))),
        temperature=temperature,
        scores=student.scores,
        metadata=metadata,
        rows=example if encoder is None else None,
    )
    tolerance = TOLERANCE * max(10.0, temperature)  # probabilities to the power of the temperature
    check_export(graph, example, kinds, model.predict_proba(model.example_), tolerance)
    return graph


def _column_kinds(model: StudentClassifier) -> list[str] | None:
    """Return what each column holds if the saved model has an input for each; else None."""
    if model.encoder_ is not None:
        return None if model.encoder_.only_numbers else model.encoder_.kinds
    example, prepared = model.example_, getattr(model.student_, "preprocess", None) is not None
    mixed = is_table(example) and not is_numeric(example)
    return [kind_of(column) for column in columns_of(example)] if mixed and not prepared else None


def describe_fit(model: StudentClassifier) -> dict[str, Any]:
    """Return the settings of an estimator when it was fitted, and the checksum of its rows."""
    params, n_rows, sha256 = model.fit_record_
    about = {
        "estimator": type(model).__name__,
        "seed": jsonable(params["random_state"]),
        "settings": settings({name: value for name, value in params.items() if name != "aliases"}),
        "data": {"rows": n_rows, "sha256": sha256},
    }
    return {**about, "aliases": jsonable(params["aliases"])} if params.get("aliases") else about


def describe_model(
    fit: dict[str, Any], student: Any, teachers: Sequence[Teacher] | None, measured: Any
) -> dict[str, Any]:
    """Return everything that a card says about how a model was made: see `consilience.files.card`.

    Parameters
    ----------
    fit : dict
        What `describe_fit` returns.
    student : object
        The fitted student.
    teachers : sequence of Teacher or None
    measured : Evaluation, mapping or None
        See `consilience.files.made.figures`.
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
    classes = jsonable(teacher.classes.tolist()) if names else None
    known = classes if isinstance(classes, list) else counted(len(teacher.classes), "class")
    about = {"name": teacher.name, "classes": known}
    if teacher.served is not None:
        about["served"] = teacher.served
    if teacher.file is None:
        return {**about, "fingerprint": teacher.fingerprint}
    try:
        digest = source_sha256(teacher.file)
    except (OSError, InvalidInputError):  # gone since, or changed
        digest = None
    return {**about, "file": teacher.file.name, "sha256": digest}
