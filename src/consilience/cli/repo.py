"""``consilience repo``: a repository of models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from consilience.cli import library
from consilience.cli.command import new_app
from consilience.cli.declared import path
from consilience.cli.given import DATA, LABELS, SEED, read_labels
from consilience.exceptions import InvalidInputError
from consilience.options import anything, count, each, flag, number, option
from consilience.run import Run

Result = tuple[dict[str, Any], Any]
_TEXT = anything("TEXT", str)
_NUMBER: Any = number()
FOLDER = option(_TEXT, "The repository; or a URL, such as s3://bucket/models.", flag="FOLDER")
NAME = option(_TEXT, "A model of the repository.", flag="NAME")
REFERENCE = option(path(), "Keep these rows, without labels, as reference rows for search.", default=None)


def add(
    folder: str = FOLDER,
    model: Path = option(path(), "A model: .onnx, .skops, .npz (of texts), or a folder.", flag="MODEL"),
    name: str | None = option(_TEXT, "Its name; by default the file's, without ending.", default=None),
    classes: str | None = option(
        _TEXT, "Its classes, in column order: A,B,C, if the file does not name them.", default=None
    ),
    task: str = option(_TEXT, "What it is for, in a few words.", default=""),
    licence: str = option(_TEXT, "Under which terms it may be used.", default=""),
    source: str = option(_TEXT, "Where it comes from: a public address or a sentence.", default=""),
    description: str = option(_TEXT, "A sentence for people.", default=""),
    metrics: Sequence[str] = option(
        each(anything("NAME=NUMBER", str)),
        "How good it is, such as accuracy=0.93. Repeat.",
        default=(),
        flag="--metric",
    ),
    reference: Path | None = REFERENCE,
) -> Result:
    """Add a model, with its card. It is there as a whole or not at all.

    Example:
        consilience repo add models birds.onnx --task birds --licence MIT --metric accuracy=0.93
    """

    entry = library.Repository(folder).add(
        model,
        None if classes is None else library.numbers_or_text([part.strip() for part in classes.split(",")]),
        name,
        task=task,
        licence=licence,
        source=source,
        description=description,
        metrics={name: _NUMBER.read(value) for name, _, value in (text.partition("=") for text in metrics)},
        reference=_rows(reference, "--reference"),
    )
    return entry.to_dict(), library.shown_entry(entry)


def remove(folder: str = FOLDER, name: str = NAME) -> Result:
    """Remove a model and everything that is kept of it.

    Example:
        consilience repo remove models birds
    """
    _open(folder).remove(name)
    return {"removed": name}, f"{name} is removed."


def list_(
    folder: str = FOLDER,
    classes: Sequence[str] = option(
        each(anything("CLASS", str)), "Models that know this. Repeat.", default=(), flag="--class"
    ),
    task: str | None = option(_TEXT, "Models of this task.", default=None),
    licence: str | None = option(_TEXT, "Models of this licence.", default=None),
) -> Result:
    """List the models.

    Example:
        consilience repo list models
        consilience repo list models --class crow --licence MIT
    """

    wanted = library.numbers_or_text(classes) if classes else None
    found = _open(folder).list(classes=wanted, task=task, licence=licence)
    return found.to_dict(), repr(found)


def show(folder: str = FOLDER, name: str = NAME) -> Result:
    """Show all that is known of one model, and where its file is.

    Example:
        consilience repo show models birds
    """
    opened = _open(folder)
    entry, file = opened.show(name), str(opened.path(name))
    return entry.to_dict() | {"path": file}, f"{library.shown_entry(entry)}\n  path: {file}"


def search(
    folder: str = FOLDER,
    data: Path = DATA,
    labels: Path = LABELS,
    top: int = option(count(), "How many models are run.", default=5),
    run: Any = {"cache": Run.declared()["cache"]},
    random_state: int = SEED,
) -> Result:
    """Find the models that help most with your classes; only the most promising are run.

    Example:
        consilience repo search models --data X.npy --labels y.npy --top 5
    """
    opened, X = _open(folder), _rows(data, "--data")
    found = opened.search(
        X, read_labels(labels, X), top, cache=run.cache, progress=run.report, random_state=random_state
    )
    return found.to_dict() | {"seed": random_state}, repr(found)


def verify(folder: str = FOLDER, run: Any = None) -> Result:
    """Compare every file with the checksum on its card. Exits with code 1 if something is wrong.

    Example:
        consilience repo verify models
    """
    found = _open(folder).verify(progress=run.report)
    return found.to_dict() | {"passed": found.passed}, repr(found)


def describe(folder: str = FOLDER, reference: Path | None = REFERENCE, run: Any = None) -> Result:
    """Run each model once over the reference rows, so that search can compare them.

    Example:
        consilience repo describe models --reference rows.npy
    """
    opened, rows = _open(folder), _rows(reference, "--reference")
    if rows is not None:
        opened.set_reference(rows)
    found = opened.describe(progress=run.report)
    return {"described": list(found.done), "failed": dict(found.failed)}, repr(found)


def cover(
    folder: str = FOLDER,
    classes: list[str] = option(each(_TEXT), "The classes that are wanted.", flag="CLASS..."),
    cost: str = option(_TEXT, "What a model costs: size, or a metric on its card.", default="size"),
    connected: bool = option(
        flag(), "Whether shared classes must connect the models, so that unify is determined.", default=True
    ),
) -> Result:
    """Find a small, cheap set of models that together know some classes.

    Example:
        consilience repo cover models cat tram
    """

    opened = _open(folder)
    names = opened.cover_names(library.numbers_or_text(classes), cost=cost, connected=connected)
    paths = {name: str(opened.path(name)) for name in names}
    return {"models": paths}, "\n".join(f"{name}  {file}" for name, file in paths.items())


def _open(folder: str) -> Any:

    if not library.storage_path(folder).is_root():
        raise InvalidInputError(f"{folder} is not a folder. Make a repository with consilience repo add.")
    return library.Repository(folder)


def _rows(file: Path | None, name: str) -> Any:

    return None if file is None else library.open_files(file, name).all(None)


repo = new_app(
    """Keep models in a repository, and find those that help.

    Example:
        consilience repo add models birds.onnx --task birds --licence MIT
        consilience repo list models
        consilience repo search models --data X.npy --labels y.npy
    """,
    "repo",
)
for function in (add, remove, list_, show, search, verify, describe, cover):
    repo.new(function)
