"""Between the command line and the world: what people see in a terminal, and the files they name.

Results are tables on stdout; bars and remarks go to stderr. Every table is drawn from the same mapping that
``--json`` prints, so that the two cannot disagree. Files are read without ever unpickling.
"""

from __future__ import annotations

import csv
import json
import os
import secrets
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import rich.box
import rich.console
import rich.progress
import rich.table
from numpy.typing import NDArray
from rich.markup import escape

from consilience._optional import require
from consilience._progress import Progress, silent
from consilience.card import Card, card_path, file_sha256, write_card
from consilience.exceptions import InvalidInputError
from consilience.labels import TIE_BREAK, LabelSpace, shorten

if TYPE_CHECKING:
    from consilience.unify import Unifier

WIDTH = 110
"""Columns of a table that goes to a file or a pipe, which have no width of their own."""

MOST_OVERLAPS = 12
"""Up to so many teachers the overlaps are shown as a matrix; beyond, only in JSON."""


def console(*, stderr: bool = False) -> rich.console.Console:
    """Return a console on stdout or stderr."""
    made = rich.console.Console(stderr=stderr, highlight=False)
    if not made.is_terminal:
        made.width = max(made.width, WIDTH)
    return made


def show_error(message: str) -> None:
    """Print one sentence on stderr."""
    console(stderr=True).print(f"[bold red]Error:[/] {escape(message)}", soft_wrap=True)


def show_warning(message: str) -> None:
    """Print a warning as one line on stderr."""
    line = " ".join(message.split())
    console(stderr=True).print(f"[yellow]Warning: {escape(line)}[/]", soft_wrap=True)


def show_json(values: Mapping[str, Any]) -> None:
    """Print a result for machines on stdout; plain print, so that no line is wrapped."""
    print(json.dumps(values, indent=2, ensure_ascii=False))


@contextmanager
def progress_bars(*, quiet: bool = False) -> Iterator[Progress]:
    """Draw what is reported as bars on stderr; nothing where that is no terminal."""
    target = console(stderr=True)
    if quiet or not target.is_terminal:
        yield silent
        return
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeElapsedColumn(),
    )
    with rich.progress.Progress(*columns, console=target, transient=True) as bars:
        tasks: dict[str, rich.progress.TaskID] = {}

        def report(task: str, done: int, total: int) -> None:
            if task not in tasks:
                tasks[task] = bars.add_task(task, total=total)
            bars.update(tasks[task], completed=done, total=total)

        yield report


def space_view(space: LabelSpace, kinds: Sequence[str]) -> dict[str, Any]:
    """Return who knows what, ready for JSON.

    Parameters
    ----------
    space : LabelSpace
    kinds : sequence of str
        What each teacher is made of, such as ``"onnx"``.
    """
    known = space.mask
    counts = known.astype(int)
    lists = [classes.tolist() for classes in space.class_lists]
    return {
        "n_classes": space.n_classes,
        "classes": space.classes.tolist(),
        "teachers": [
            {"name": name, "kind": kind, "n_classes": len(classes), "classes": classes}
            for name, kind, classes in zip(space.names, kinds, lists, strict=True)
        ],
        "overlaps": (counts.T @ counts).tolist(),
        "only_one_teacher": {
            name: space.classes[known[:, i] & (counts.sum(axis=1) == 1)].tolist()
            for i, name in enumerate(space.names)
        },
        "components": [group.tolist() for group in space.components()],
    }


def show_space(view: Mapping[str, Any]) -> None:
    """Draw what `space_view` gives."""
    out = console()
    teachers = view["teachers"]
    out.print(f"[bold]{_count(view['n_classes'], 'class')} from {_count(len(teachers), 'teacher')}[/]")
    table = _table("teacher", "file", ">classes", "which")
    for teacher in teachers:
        which = shorten(teacher["classes"])
        table.add_row(*map(escape, (teacher["name"], teacher["kind"], str(teacher["n_classes"]), which)))
    out.print(table)
    if 1 < len(teachers) <= MOST_OVERLAPS:
        out.print("\n[bold]Shared classes[/]")
        out.print(_overlaps([teacher["name"] for teacher in teachers], view["overlaps"]))
    alone = {name: classes for name, classes in view["only_one_teacher"].items() if classes}
    if len(teachers) > 1:
        out.print()
        for name, classes in alone.items():
            out.print(f"Only {escape(name)} knows {escape(shorten(classes))}.", soft_wrap=True)
        if not alone:
            out.print("Every class is known to two teachers or more.")
    groups = view["components"]
    if len(groups) == 1:
        out.print("One component: the teachers determine the probabilities of all classes.")
        return
    out.print(f"{len(groups)} components, which share no class:")
    for group in groups:
        out.print(f"  {escape(shorten(group))}", soft_wrap=True)
    out.print(
        f"The teachers do not determine how mass splits between them; tie-break: {TIE_BREAK}.", soft_wrap=True
    )


def unifier_view(
    unifier: Unifier, kinds: Sequence[str], n_rows: int, y: Any, test: tuple[Any, Any] | None
) -> dict[str, Any]:
    """Return what a unifier did, ready for JSON.

    Parameters
    ----------
    unifier : Unifier
        After `fit` or `estimate`.
    kinds : sequence of str
        What each teacher is made of, such as ``"onnx"``.
    n_rows : int
        Rows of the transfer set.
    y : sequence or None
        Its known labels.
    test : (X, y) or None
        Rows to measure the student on.
    """
    space = unifier.label_space_
    student = getattr(unifier, "student_", None)
    truth = space.encode(test[1], "--test-labels") if test and student else np.empty(0, np.intp)
    known = truth >= 0
    right = known[known]
    if test and student:
        right = (space.encode(unifier.predict(test[0])) == truth)[known]
    return {
        "teachers": [
            {"name": name, "kind": kind, "n_classes": len(classes), "abstentions": int(abstentions)}
            for name, kind, classes, abstentions in zip(
                space.names, kinds, space.class_lists, unifier.n_abstentions_, strict=True
            )
        ],
        "n_classes": space.n_classes,
        "classes": space.classes.tolist(),
        "n_rows": n_rows,
        "n_labels": 0 if y is None else int((space.encode(y) >= 0).sum()),
        "method": unifier.method,
        "train": unifier.train,
        "temperature": unifier.temperature,
        "seed": unifier.random_state,
        "student": None if student is None else _student_name(student),
        "balanced": student is not None and unifier.class_weights_ is not None,
        "accuracy": float(right.mean()) if len(right) else None,
        "n_test": len(right),
        "seconds": unifier.seconds_,
    }


def _student_name(student: Any) -> str:
    model = getattr(student, "estimator_", None)
    if model is None:
        return "torch network"
    return type(model[-1] if hasattr(model, "steps") else model).__name__


def show_unified(view: Mapping[str, Any]) -> None:
    """Draw the summary of ``consilience unify``."""
    out = console()
    table = _table("teacher", "file", ">classes", ">abstains on")
    for teacher in view["teachers"]:
        abstains = f"{teacher['abstentions']} of {view['n_rows']} rows"
        table.add_row(escape(teacher["name"]), escape(teacher["kind"]), str(teacher["n_classes"]), abstains)
    out.print(table)
    facts = {
        "classes": f"{view['n_classes']}: {shorten(view['classes'])}",
        "rows": f"{view['n_rows']}, {view['n_labels']} of them labelled",
        "method": view["method"] + (", balanced" if view["balanced"] else ""),
        "student": view["student"] or "none: only soft labels were asked for",
        "seconds": ", ".join(f"{step} {seconds:.1f}" for step, seconds in view["seconds"].items()),
        "accuracy": None
        if view["accuracy"] is None
        else f"{100 * view['accuracy']:.1f}% of {view['n_test']} test rows",
        "model": view["out"],
        "soft labels": view["soft_labels"],
    }
    grid = rich.table.Table.grid(padding=(0, 2))
    for name, fact in facts.items():
        if fact is not None:
            grid.add_row(f"[bold]{name}[/]", escape(fact))
    out.print()
    out.print(grid)


def show_demo(view: Mapping[str, Any]) -> None:
    """Draw what `consilience.demo.DemoResult.to_dict` gives."""
    out = console()
    out.print("[bold]The sites: each trains on its own rows and shows nobody but its model[/]")
    table = _table("site", "model", ">rows", "digits it knows", ">right on these", ">on all ten")
    for site in view["sites"]:
        figures = (_percent(site["own_accuracy"]), _percent(site["accuracy"]))
        table.add_row(site["name"], site["model"], str(site["rows"]), ", ".join(site["classes"]), *figures)
    out.print(table)
    out.print(f"\n[bold]One network out of five, from {view['n_transfer']} unlabelled rows[/]")
    table = _table("method", "how", ">accuracy", ">soft labels right", ">seconds")
    for variant in view["variants"]:
        style = "bold" if variant["name"] == view["best"] else None
        table.add_row(*_variant_cells(variant), style=style)
    table.add_section()
    table.add_row(
        "SPV", "supervised, all rows pooled", _percent(view["supervised"]), "",
        f"{view['supervised_seconds']:.1f}",
    )  # fmt: skip
    out.print(table)
    out.print("\n[bold]In plain words[/]")
    for sentence in view["sentences"]:
        out.print(f"- {escape(sentence)}", soft_wrap=not out.is_terminal)
    out.print(f"({view['seconds']:.0f} seconds, seed {view['seed']})")


_FAMILIES = {"E": "estimated soft labels", "BS": "estimated and balanced", "BP": "backprop through the loss"}


def _variant_cells(variant: Mapping[str, Any]) -> tuple[str, ...]:
    labels = variant["label_accuracy"]
    return (
        variant["name"],
        _FAMILIES[variant["family"]],
        _percent(variant["accuracy"]),
        "" if labels is None else _percent(labels),
        f"{variant['seconds']:.1f}",
    )


def _overlaps(names: Sequence[str], overlaps: Sequence[Sequence[int]]) -> rich.table.Table:
    table = _table("", *(f">{escape(name)}" for name in names))
    for i, (name, row) in enumerate(zip(names, overlaps, strict=True)):
        cells = [f"[dim]{count}[/]" if i == j else str(count or "·") for j, count in enumerate(row)]
        table.add_row(escape(name), *cells)
    return table


def _table(*headers: str) -> rich.table.Table:
    """Return an empty table; a header that begins with ">" is right-aligned."""
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        right = header.startswith(">")
        table.add_column(header.removeprefix(">"), justify="right" if right else "left")
    return table


def _count(number: int, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else plural}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def read_rows(path: Path, option: str) -> NDArray[Any]:
    """Return the rows (n, ...) of a .npy, .npz, .csv or .parquet file of numbers.

    Parameters
    ----------
    path : path
        An .npz has them under ``X``, or as its only array; a .csv may have a header.
    option : str
        What named the file, for messages.
    """
    values = _read_array(path, option, "X")
    if values.dtype.kind not in "biuf" or values.ndim < 2:
        raise InvalidInputError(
            f"{option}: {path} holds {values.dtype} of shape {values.shape}; "
            "expected numbers of shape (n, ...), a row per sample."
        )
    return values


def read_labels(path: Path, rows: int, option: str) -> NDArray[Any]:
    """Return the labels (n,) of a file like that of `read_rows`; None where there is none.

    An .npz has them under ``y``, or as its only array; a .csv or .parquet file is one column of them.
    """
    values = _read_array(path, option, "y")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (rows,):
        raise InvalidInputError(f"{option}: {path} has shape {values.shape}; expected ({rows},).")
    return values


def check_target(path: Path | None, suffixes: Sequence[str], option: str) -> None:
    """Refuse a file that could not be written; to be called before the long work."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise InvalidInputError(f"{option} writes {' or '.join(suffixes)}; {path.name!r} does not end so.")
    if not path.parent.is_dir():
        raise InvalidInputError(f"{option}: the folder {str(path.parent)!r} does not exist. Make it first.")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InvalidInputError(f"{option}: {str(path)!r} cannot be written.")
    if path.suffix.lower() == ".onnx":
        for module in ("onnx", "onnxruntime"):
            require(module, extra="onnx", purpose="Saving as ONNX")


def write_soft_labels(path: Path, Q: NDArray[np.float64], classes: NDArray[Any]) -> None:
    """Write soft labels (n, L): an .npz with the classes, or an .npy and a card that has them.

    Either can be a teacher again. A reader sees the old file or the new one, never half of one.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            if path.suffix.lower() == ".npz":
                np.savez_compressed(file, proba=Q, classes=classes)
            else:
                np.save(file, Q, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if path.suffix.lower() == ".npy":
        card = Card(path.stem, tuple(classes.tolist()), "probabilities", file_sha256(path), "Soft labels.")
        write_card(card_path(path), card)


def parse_classes(given: Sequence[str], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the classes of teachers from texts such as ``birds=crow,wren`` and ``pets=@pets.txt``."""
    parsed = {}
    for text in given:
        name, equals, listing = text.partition("=")
        if not equals or not listing:
            raise InvalidInputError(f"--classes {text!r} is not NAME=A,B,C or NAME=@FILE.")
        if name not in names:
            raise InvalidInputError(
                f"--classes names the teacher {name!r}; the teachers are {shorten(names)} "
                "(a file's name without its ending)."
            )
        if listing.startswith("@"):
            parsed[name] = read_classes(Path(listing[1:]))
        else:
            parsed[name] = numbers_or_text([part.strip() for part in listing.split(",")])
    return parsed


def read_classes(path: Path) -> list[Any]:
    """Return class names from a file with one per line, or from a JSON list."""
    text = _read_text(path)
    if path.suffix.lower() != ".json":
        return numbers_or_text([line.strip() for line in text.splitlines() if line.strip()])
    values = _parse_json(text, path)
    if not isinstance(values, list):
        raise InvalidInputError(f"{path} must hold a JSON list of classes.")
    return values


def read_aliases(path: Path | None) -> dict[str, Any] | None:
    """Return other names of classes from a JSON object."""
    if path is None:
        return None
    values = _parse_json(_read_text(path), path)
    if not isinstance(values, dict):
        raise InvalidInputError(f'{path} must hold a JSON object such as {{"automobile": "car"}}.')
    return values


def numbers_or_text(values: Sequence[str]) -> list[Any]:
    """Return integers where every value is one, as the classes of many models are; else text.

    Examples
    --------
    >>> numbers_or_text(["3", "7"]), numbers_or_text(["3", "cat"])
    ([3, 7], ['3', 'cat'])
    """
    try:
        return [int(value) for value in values]
    except ValueError:
        return list(values)


def _read_array(path: Path, option: str, key: str) -> NDArray[Any]:
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv, ".parquet": _read_parquet}
    suffix = path.suffix.lower()
    if suffix not in readers:
        raise InvalidInputError(f"{option} reads {', '.join(readers)}; {path.name!r} ends in none of these.")
    if not path.is_file():
        raise InvalidInputError(f"{option}: {path} does not exist, or is no file.")
    try:
        return readers[suffix](path, key)
    except InvalidInputError:
        raise
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        if "pickle" in reason.lower():
            reason = "it holds Python objects, which would have to be unpickled; save numbers or plain text"
        raise InvalidInputError(f"{option}: {path} cannot be read: {reason}.") from error


def _read_npy(path: Path, key: str) -> NDArray[Any]:
    values = np.load(path, allow_pickle=False)
    if not isinstance(values, np.ndarray):
        raise ValueError("it is an .npz under another name")
    return values


def _read_npz(path: Path, key: str) -> NDArray[Any]:
    if not zipfile.is_zipfile(path):
        raise ValueError("it is no .npz archive")
    with np.load(path, allow_pickle=False) as archive:
        found = archive.files if len(archive.files) == 1 else [name for name in archive.files if name == key]
        if not found:
            raise ValueError(f"it has {shorten(archive.files) or 'nothing'}; expected an array {key}")
        return np.asarray(archive[found[0]])


def _read_csv(path: Path, key: str) -> NDArray[Any]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = [line for line in csv.reader(file) if line]
    if not lines:
        raise ValueError("it is empty")
    return _read_label_lines(lines) if key == "y" else _read_number_lines(lines)


def _read_label_lines(lines: list[list[str]]) -> NDArray[Any]:
    if max(map(len, lines)) > 1:
        raise ValueError("it has several columns; labels are one")
    values = [line[0].strip() for line in lines]
    if values[0] in ("y", "label", "labels", "class", "target"):
        values = values[1:]
    known = iter(numbers_or_text([value for value in values if value]))
    return np.array([next(known) if value else None for value in values], dtype=object)


def _read_number_lines(lines: list[list[str]]) -> NDArray[np.float64]:
    header = not all(_is_number(cell) for cell in lines[0])
    rows = lines[header:]
    for number, row in enumerate(rows, start=1 + header):
        if len(row) != len(rows[0]):
            raise ValueError(f"line {number} has {len(row)} columns and the first has {len(rows[0])}")
        wrong = next((cell for cell in row if not _is_number(cell)), None)
        if wrong is not None:
            raise ValueError(f"line {number} has {wrong!r}, which is no number")
    if not rows:
        raise ValueError("it has a header and no rows")
    return np.array(rows, dtype=np.float64)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path, key: str) -> NDArray[Any]:
    parquet = require("pyarrow.parquet", extra="parquet", purpose="Reading parquet")
    with parquet.ParquetFile(path) as file:
        table = file.read()
    # pandas writes its index as one more column
    columns = [
        table.column(i).to_numpy()
        for i, name in enumerate(table.column_names)
        if not name.startswith("__index_level_")
    ]
    if not columns:
        raise ValueError("it has no columns")
    return np.column_stack(columns)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not a text file in UTF-8.") from error


def _parse_json(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} is not JSON: {error}.") from error
