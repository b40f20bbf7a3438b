"""Put a model into a staging folder: copy its files, or export a fitted one to ONNX; and write its card."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from consilience._validation import n_rows, take_rows
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.files.card import Card, CardOutput, card_path, find_card, find_folder_card
from consilience.files.disk import file_sha256, opened, replacing
from consilience.files.export import finish, sklearn_to_onnx, write_model
from consilience.files.storage import local_path
from consilience.labels import class_list
from consilience.repository.entry import KEY, VERSION, inside
from consilience.repository.signature import plain_rows
from consilience.rows.images import ImagePreprocess
from consilience.rows.tables import column_names, columns_of, is_instance_of, is_numeric, is_table, kind_of
from consilience.teachers import Teacher, as_teacher
from consilience.teachers.folders import PICKLES, list_files
from consilience.teachers.inputs import Columns
from consilience.teachers.onnx import Onnx, load_safely

ENDINGS = (".onnx", ".npz", ".skops")
"""Files that hold a model by themselves."""
NOT_COPIED = (*PICKLES, ".py", ".pyc")
"""Files of a checkpoint that nothing here reads: they could hold code."""


def name_of(model: Any) -> str:
    """Return the name that a model has by itself."""
    if isinstance(model, str | os.PathLike):
        path = local_path(model)
        return path.name if path.is_dir() else path.stem
    own = getattr(getattr(model, "teacher_", model), "name", None)
    return own if isinstance(own, str) else type(model).__name__


def stage_model(
    model: Any, classes: ArrayLike | None, folder: str, stage: Path, example: Any
) -> tuple[Teacher, Card | None]:
    """Write a model's files into a staging folder, named after its folder.

    Parameters
    ----------
    model : path, fitted classifier, torch module, or teacher with a file
    classes : (k,) sequence, optional
    folder : str
        The model's folder, which gives its file the name.
    stage : Path
    example : rows or None
        Rows for the export of a fitted model: their shape and type are the model's input.

    Returns
    -------
    teacher : Teacher
        Of the staged file.
    card : Card or None
        The card that the model had, or got from its own `save`.
    """
    source, card = _source_of(model), None
    if source is not None:
        file, card = _copied(source, folder, stage)
    elif callable(getattr(model, "save", None)) and hasattr(model, "classes_"):
        # a classifier of ours writes itself; which ending, it says in its error
        inner = getattr(getattr(model, "student_", None), "estimator_", model)
        texts = is_instance_of(inner, "consilience.students.ngrams", "Ngrams")
        file = stage / f"{folder}{'.npz' if texts else '.onnx'}"
        model.save(file)
        card = find_card(file)
        card_path(file).unlink(missing_ok=True)
    else:
        file = stage / f"{folder}.onnx"
        _export(model, classes, file, example)
    given = classes if classes is not None else None if card is None else card.classes
    output: Any = "auto" if card is None or card.output is None else card.output
    teacher = as_teacher(file, given, folder, output=output)
    if not teacher.batched:
        raise InvalidInputError(
            "A file of outputs belongs to the rows of one X, so it is no model that a repository could hold. "
            "Add the model that gave them."
        )
    return teacher, card


def card_of(
    files: Path,
    folder: str,
    teacher: Teacher,
    before: Card | None,
    *,
    name: str,
    description: str,
    preprocess: ImagePreprocess | None,
    **facts: Any,
) -> Card:
    """Return the card of a staged model.

    Parameters
    ----------
    files : Path
        The folder that its files were made in, whose name is a part of their path.
    folder : str
    teacher : Teacher
        Of the staged file.
    before : Card or None
        That the model had: it stands for what is not given here.
    name, description, preprocess
        As in a `Card`.
    facts
        What the repository keeps besides, see `ModelEntry`.
    """
    made = sorted(path for path in files.rglob("*") if path.is_file())
    named = {f"{files.name}/{path.relative_to(files).as_posix()}": path for path in made}
    place = folder if teacher.file is None else teacher.file.absolute().relative_to(files.absolute())
    file = f"{files.name}/{Path(place).as_posix()}"
    columns = teacher.columns if isinstance(teacher, Onnx) else Columns()
    kinds = teacher.column_kinds if columns.kinds is not None else {}
    classes = tuple(class_list(teacher.classes))
    base = before or Card(name, classes)
    part = {
        "version": VERSION,
        "file": file,
        "files": {path: [file_sha256(one), one.stat().st_size] for path, one in named.items()},
        "inputs": [[one.name, one.dtype, one.shape] for one in teacher.inputs or ()] or None,
        "column_kinds": {str(column): kind for column, kind in kinds.items()},
        **facts,
    }
    return replace(
        base,
        name=name,
        classes=classes,
        output=base.output or cast(CardOutput | None, teacher.output),
        sha256=file_sha256(named[file]) if file in named else None,
        description=description or base.description,
        details={**base.details, KEY: part},
        centres=base.centres if base.classes == classes else None,
        feature_names=base.feature_names if columns.names is None else tuple(columns.names),
        preprocess=preprocess or base.preprocess,
    )


def _source_of(model: Any) -> Path | None:
    """Return the file or folder of a model, or None where it is an object in memory."""
    if isinstance(model, str | os.PathLike):
        if "://" in os.fspath(model):
            raise InvalidInputError(
                f"{os.fspath(model)!r} is an address, and a repository holds files. Fetch the model first."
            )
        return local_path(model)
    file = getattr(getattr(model, "teacher_", model), "file", None)
    return file if isinstance(file, Path) else None


def _copied(source: Path, folder: str, stage: Path) -> tuple[Path, Card | None]:
    """Copy a model's files; return where its file is now, and the card that it has."""
    if source.is_dir():
        target = stage / folder
        for path in _tree(source):
            place = target / path
            place.parent.mkdir(parents=True, exist_ok=True)
            _copy(source / path, place)
        return target, find_folder_card(source)
    ending = source.suffix.lower()
    if not source.exists():
        raise InvalidInputError(f"The model {os.fspath(source)!r} does not exist.")
    if ending not in ENDINGS:
        raise InvalidInputError(
            f"A model's file ends in {', '.join(ENDINGS)}; {source.name!r} has another ending. Pickled "
            "models are not taken: give the fitted model itself, or export it to ONNX."
        )
    card = find_card(source)
    target = stage / f"{folder}{ending}"
    _copy(source, target)
    if ending == ".onnx":
        for extra in load_safely(source.resolve(), source.stem)[1]:
            if (stage / inside(extra.name)).exists() or extra.name.startswith(f"{folder}.card"):
                raise InvalidInputError(
                    f"{source.name} keeps weights in {extra.name!r}, a name that the repository needs. Give "
                    "the model another name."
                )
            _copy(extra, stage / extra.name)
    return target, card


def _tree(source: Path) -> list[str]:
    """Return the files of a checkpoint that are copied, by their paths; raise where one is a link."""
    listed = sorted(list_files(source, source.name))
    found = [inside(path) for path in listed if not path.lower().endswith(NOT_COPIED)]
    if not found:
        raise InvalidInputError(f"The folder {source.name!r} holds no model.")
    return found


def _copy(source: Path, target: Path) -> None:
    with opened(source, links=True) as read, replacing(target) as file:
        shutil.copyfileobj(read, file)


def _export(model: Any, classes: ArrayLike | None, file: Path, example: Any) -> None:
    """Export a fitted scikit-learn classifier or a torch module, as `Unifier.save` does with its student."""
    kind = type(model).__name__
    module = is_instance_of(model, "torch.nn", "Module")
    if not module and not hasattr(model, "predict_proba"):
        raise TeacherError(
            kind,
            f"is a {kind}, which a repository cannot hold. Give a file ({', '.join(ENDINGS)}), a folder, a "
            "fitted classifier with predict_proba, or a torch module.",
        )
    if example is None:
        raise InvalidInputError(
            f"To export a {kind}, some rows are needed: give {{remedy}} a few rows as the model takes them.",
            remedy="example",
        )
    example = _first_rows(example)
    names = classes if classes is not None else getattr(model, "classes_", None)
    if names is None:
        raise InvalidInputError(f"A {kind} does not name its classes. Give {{remedy}}.", remedy="classes")
    as_teacher(model, names).predict_logits(example)  # what fails here fails in words of ours
    if module:
        import torch

        from consilience.students.modules import module_to_onnx

        rows = torch.as_tensor(np.asarray(example))
        graph = module_to_onnx(model, rows.float() if rows.dtype == torch.float64 else rows)
    else:
        graph = sklearn_to_onnx(model, example)
    done = finish(
        graph,
        classes=names,
        columns=np.arange(len(np.asarray(names))),
        temperature=1.0,
        scores="logits" if module else "probabilities",
        metadata=_columns_metadata(example),
        rows=None if module else example,
    )
    write_model(done, file)


def _first_rows(example: Any) -> Any:
    """Return the rows that an export looks at, or raise where there are none."""
    with contextlib.suppress(TypeError, KeyError):
        rows = plain_rows(example)
        if n_rows(rows):
            return take_rows(rows, slice(0, 256))
    raise InvalidInputError(
        "{argument} must be a few rows: an array, a data frame or a list.", argument="example", value=example
    )


def _columns_metadata(example: Any) -> Mapping[str, str]:
    """Return what the file says of the columns: their names, and their kinds where each is an input."""
    about = {"producer": "consilience"}
    names = column_names(example)
    if names is not None:
        about["feature_names"] = json.dumps([str(name) for name in names])
    if is_table(example) and not is_numeric(example):
        about["feature_kinds"] = json.dumps([kind_of(column) for column in columns_of(example)])
    return about
