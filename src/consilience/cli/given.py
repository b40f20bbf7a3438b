"""What several commands are given: options of files, declared once, and how these files are opened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from consilience.cli import library
from consilience.cli.declared import path, target
from consilience.exceptions import InvalidInputError
from consilience.options import anything, count, each, option, optional
from consilience.run import Run

_COPIES = 3  # how often rows are in memory at most
_ROWS = (
    ".npy, .npz (key X), .csv, .parquet or .txt (a text a line); a folder of such files or of images, or a "
    "pattern such as 'rows/*.parquet'."
)

TEACHERS = option(
    each(path()),
    "A teacher: .onnx, .skops, .npy, .npz, .parquet or a model folder; or an address "
    "https://HOST/v2/models/NAME, or a .toml file with one. Repeat.",
    flag="--teacher -t",
)
DATA = option(path(), f"Rows: {_ROWS}")
LABELS = option(path(), "The class of each row; -1, NaN or empty where unknown.")
OPTIONAL_LABELS = option(path(), LABELS.help, default=None)
CLASSES = option(
    each(anything("NAME=A,B,C", str)),
    "Classes of teacher NAME, in column order. NAME is the file name without its ending. NAME=@FILE reads "
    "them from a file: one per line, or a JSON list. Repeat.",
    default=(),
)
ALIASES = option(path(), 'JSON object with aliases of classes: {"automobile": "car"}.', default=None)
DROP = option(
    each(anything("COLUMN", str)),
    "Leave out this column of the rows, such as a key or the label. Repeat for several.",
    default=(),
)
TEST_DATA = option(path(), "Rows to measure the student on.", default=None)
TEST_LABELS = option(path(), "Their labels.", default=None)
REPORT = option(target(".html", ".htm"), "Also write one page to show: see docs/report.md.", default=None)
SEED = option(count(at_least=0), "Makes the run reproducible.", default=0, flag="--seed")
MODEL = option(path(), "What unify or distil wrote: .onnx or .npz.", flag="MODEL")
# looked up when the options are asked for: teachers import numpy, and --help is quick without
SMOOTHING: Any = SimpleNamespace(
    declared=lambda: {"smoothing": library.TeacherOptions.declared()["smoothing"]}
)
RUN: Any = {name: Run.declared()[name] for name in ("memory", "cache", "cache_limit", "rows_per_call")}
RUN_ON_RAY: Any = RUN | {"engine": Run.declared()["engine"]}
RAY: Any = {
    "address": option(
        anything("HOST:PORT", str),
        "With --engine ray: the cluster. Default: the one that runs on this machine, or else a new one.",
        default=None,
        flag="--ray-address",
    ),
    "train_workers": option(
        optional(count()),
        "With --engine ray and a torch student: how many processes train it together, by Ray Train. By "
        "default it learns in this process.",
        default=None,
    ),
}


def open_teachers(
    files: Sequence[Path], given: Sequence[str], *, embed: Sequence[str] = (), **settings: Any
) -> list[Any]:
    """Make a teacher of each file, named by its stem, or by folder and stem if stems are not unique.

    `embed` has layers as NAME=LAYER; `settings` are attributes of all teachers.
    """
    stems = list(map(_stem, files))
    names = [
        stem if stems.count(stem) == 1 or library.is_address(file) else f"{file.parent.name}/{stem}"
        for file, stem in zip(files, stems, strict=True)
    ]
    repeated = [file for i, file in enumerate(files) if names[i] in names[:i]]
    if repeated:
        raise InvalidInputError(f"{shown(repeated[0])} is given twice, or has the name of another teacher.")
    classes, layers = library.parse_classes(given, names), dict(text.partition("=")[::2] for text in embed)
    for name, layer in layers.items():
        if not layer or name not in names:
            raise InvalidInputError(
                f"--embed {name} must be NAME=LAYER with the name of a teacher: {', '.join(names)}."
            )
    opened = []
    for file, name in zip(files, names, strict=True):
        opened.append(library.as_teacher(file, classes.get(name), name, embed=layers.get(name)))
        vars(opened[-1]).update(settings)
    return opened


def _stem(file: Path) -> str:
    """Return what a teacher is called after its file. A dot in the name of a folder begins no ending."""
    if library.is_address(file):
        return str(library.address_name(file))
    return file.absolute().name if file.is_dir() else file.stem


def kinds(files: Sequence[Path]) -> list[str]:
    """Return the ending of each teacher's file; "server" for an address, "folder" for a model folder."""
    places = ("server" if library.is_address(file) else "folder" if file.is_dir() else None for file in files)
    return [place or file.suffix.lower().removeprefix(".") for file, place in zip(files, places, strict=True)]


def shown(file: Path) -> str:
    """Return how a teacher's file is shown: an address by the name of its model, since outputs are shared."""
    return library.address_name(file) if library.is_address(file) else str(file)


def read_rows(file: Path, teachers: Sequence[Any], run: Run, drop: Sequence[str] = ()) -> Any:
    """Return the rows of --data, without some columns; in memory, if they are small.

    Cells of a .csv file are read as what these teachers take. A .txt file has a text per line.
    """
    rows = library.open_files(file, "--data", library.column_kinds(teachers), drop)
    return rows.all(run) if _COPIES * rows.n_bytes <= library.memory_budget(run) else rows


def first_rows(X: Any) -> Any:
    """Return rows of the same kind as those of --data, in memory."""
    return X.head if isinstance(X, library.Rows) else X


def read_labels(file: Path | None, X: Any, option: str = "--labels") -> Any:
    """Return the labels in a file, one for each row; None without a file."""
    return None if file is None else library.read_label_file(file, len(X), option)


def read_test(
    data: Path | None, labels: Path | None, X: Any, of: Path, drop: Sequence[str]
) -> tuple[Any, Any] | None:
    """Return the test rows, with the columns that --data has, and their labels; None if none are given."""

    if data is None:
        return None
    rows = library.read_alike(data, "--test-data", first_rows(X), str(of), drop)
    return rows, read_labels(labels, rows, "--test-labels")


def check_ending(out: Path, X: Any, student: Any) -> None:
    """Raise if --out has not the ending of what the student is saved as; before teachers are asked."""
    texts = library.holds_texts(first_rows(X))
    what, ending = ("A model of texts", ".npz") if texts else ("This model", ".onnx")
    refused = texts and isinstance(student, str) and student != "ngrams"  # by the library, which says why
    if out.suffix.lower() != ending and not refused:
        raise InvalidInputError(f"{what} is written as {ending}: use --out {out.with_suffix(ending)}.")
