"""The commands about models that exist: inspect, score, compare, evaluate, verify, predict, serve, cache."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from consilience._optional import require
from consilience._words import shorten
from consilience.cli import library, tables
from consilience.cli.console import escape, facts_table, show
from consilience.cli.declared import path, target
from consilience.cli.given import (
    ALIASES,
    CLASSES,
    DATA,
    DROP,
    LABELS,
    MODEL,
    OPTIONAL_LABELS,
    REPORT,
    RUN,
    SEED,
    SMOOTHING,
    TEACHERS,
    kinds,
    open_teachers,
    read_labels,
    read_rows,
    shown,
)
from consilience.exceptions import InvalidInputError
from consilience.methods import METHODS
from consilience.options import anything, choice, count, each, flag, number, option, optional, size
from consilience.students import STUDENT

Result = tuple[dict[str, Any], Any]


def inspect(
    files: list[Path] = option(each(path()), TEACHERS.help, flag="FILES..."),
    classes: Sequence[str] = CLASSES,
    aliases: Path | None = ALIASES,
    data: Path | None = option(path(), f"{DATA.help} Unlabelled, for --suggest.", default=None),
    suggest: bool = option(
        flag(),
        "Suggest which names are one class, and which are two, from rows of --data.",
        default=False,
    ),
    out: Path | None = option(
        target(".json"), "Write the suggested aliases here, for unify --aliases.", default=None
    ),
    drop: Sequence[str] = DROP,
    run: Any = RUN,
) -> Result:
    """Show the classes of some teachers, their overlaps and components, and what each takes and gives.

    Example:
        consilience inspect birds.onnx pets.npz
        consilience inspect birds.onnx pets.npy --classes pets=cat,dog,wren
        consilience inspect birds.onnx pets.npz --data X.npy --suggest --out aliases.json
    """
    given = library.read_aliases(aliases)
    teachers = open_teachers(files, classes)
    lists, names = [one.classes for one in teachers], [one.name for one in teachers]
    # the tables say what a warning would
    space = library.LabelSpace(lists, given, names=names, disconnected="ignore")
    view = tables.space_view(space, teachers, kinds(files))
    if data is None:
        library.warn_of_unused(space)
        return view, tables.space(view)
    X = read_rows(data, teachers, run, drop)
    found = library.suggest_aliases(teachers, X, aliases=given, run=run)
    view |= {"suggestions": found.to_dict(), "out": out}
    parts = [*tables.space(view), "", *map(escape, repr(found).split("\n"))]
    if out is not None:
        library.write_aliases(out, found.aliases)
        parts.append(f"\nThe aliases are in {out}. Look at the rows before you use them.")
    return view, parts


def score(
    teacher: Path = option(path(), TEACHERS.help.replace(" Repeat.", ""), flag="--teacher -t"),
    data: Path = DATA,
    out: Path = option(
        target(".npz", ".npy", ".parquet"), "Write its outputs here: .npz, .npy or .parquet; and a card."
    ),
    classes: Sequence[str] = CLASSES,
    drop: Sequence[str] = DROP,
    run: Any = RUN,
) -> Result:
    """Write what a teacher says about some rows, for others to unify: the model itself stays where it is.

    Example:
        consilience score --teacher birds.onnx --data X.csv --out birds_scores.npz
        consilience unify --teacher birds_scores.npz --teacher pets.onnx --data X.csv --out unified.onnx
    """
    (opened,) = open_teachers([teacher], classes)
    found = library.write_scores(Path(out), opened, read_rows(data, [opened], run, drop), run)
    view = {
        "teacher": shown(teacher),
        "data": data,
        "out": out,
        "n_rows": found.n_rows,
        "n_classes": len(opened.classes),
        "classes": opened.classes.tolist(),
        "abstentions": found.n_abstentions,
        "rows_sha256": found.rows_sha256,
    }
    facts = {
        "teacher": view["teacher"],
        "classes": f"{view['n_classes']}: {shorten(view['classes'])}",
        "rows": f"{view['n_rows']}, abstains on {view['abstentions']}",
        "scores": out,
    }
    return view, [facts_table(facts)]


def compare(
    teacher: list[Path] = TEACHERS,
    data: Path = DATA,
    labels: Path | None = OPTIONAL_LABELS,
    method: Sequence[str] = option(
        each(choice(*METHODS)),
        "A method to compare. Repeat.",
        default=("auto", "ranks", "mf-lf", "ce", "sd"),
    ),
    settings: Any = SMOOTHING,
    quick: bool = option(flag(), "Vary only the method and balancing.", default=False),
    student: str | None = option(
        STUDENT, "What learns; by default logistic, the cheapest, and for texts ngrams.", default=None
    ),
    max_rows: int = option(
        count(at_least=4), "Use at most this many rows, evenly spaced.", default=2000, flag="--rows"
    ),
    classes: Sequence[str] = CLASSES,
    aliases: Path | None = ALIASES,
    drop: Sequence[str] = DROP,
    run: Any = RUN,
    random_state: int = SEED,
) -> Result:
    """Compare ways to unify on your own rows, with labels or without.

    Example:
        consilience compare --teacher birds.onnx --teacher pets.npz --data X.npy
        consilience compare -t birds.onnx -t pets.npz --data X.npy --labels y.npy --quick
    """
    teachers = open_teachers(teacher, classes, **settings)
    X = read_rows(data, teachers, run, drop)
    unifier = library.Unifier(
        teachers, aliases=library.read_aliases(aliases), disconnected="ignore", random_state=random_state
    )
    found = unifier.compare(
        X,
        read_labels(labels, X),
        methods=method,
        teacher_temperatures=(None,) if quick else (None, "agreement"),
        self_label=(False,) if quick else (False, True),
        student=student or ("ngrams" if library.holds_texts(X) else "logistic"),
        max_rows=max_rows,
    )
    return found.to_dict() | {"seed": random_state}, repr(found)


def evaluate(
    model: Path = option(
        path(),
        "A model or its outputs: .onnx, .skops, .npz, .npy, .parquet, a model folder or an address.",
        flag="MODEL",
    ),
    data: Path = DATA,
    labels: Path = LABELS,
    teacher: Sequence[Path] = option(
        TEACHERS.check, "A teacher to compare the model with. Repeat.", default=(), flag="--teacher -t"
    ),
    student: str | None = option(
        STUDENT, "Also train this student on these labels alone, cross-validated; or auto.", default=None
    ),
    n_folds: int = option(count(at_least=2), "Folds of that cross-validation.", default=5, flag="--folds"),
    n_bins: int = option(count(), "Bins of the calibration error.", default=15, flag="--bins"),
    confidence: float = option(number(above=0, below=1), "Confidence of the intervals.", default=0.95),
    classes: Sequence[str] = CLASSES,
    aliases: Path | None = ALIASES,
    drop: Sequence[str] = DROP,
    run: Any = RUN,
    random_state: int = SEED,
    report: Path | None = REPORT,
) -> Result:
    """Measure a model on labelled rows, beside its teachers and their vote.

    Example:
        consilience evaluate unified.onnx --data X_test.npy --labels y_test.npy
        consilience evaluate unified.onnx --data X.csv --labels y.csv -t birds.onnx -t pets.onnx \\
            --student logistic
    """
    opened = open_teachers([model, *teacher], classes)
    X = library.as_rows(read_rows(data, opened, run, drop)).all(run)
    found = library.evaluate_teacher(
        opened[0],
        X,
        read_labels(labels, X),
        teachers=opened[1:],
        aliases=library.read_aliases(aliases),
        labels_only=student is not None,
        student=None if student == "auto" else student,
        n_folds=n_folds,
        confidence=confidence,
        n_bins=n_bins,
        run=run,
        random_state=random_state,
        where="--labels",
    )
    if report is not None:
        found.report(report)
    return {"model": model, **found.to_dict(), "seed": random_state}, repr(found)


def verify(
    model: Path = MODEL,
    teacher: Sequence[Path] = option(
        TEACHERS.check,
        "Check that the model was made from this teacher. Repeat.",
        default=(),
        flag="--teacher -t",
    ),
    data: Path | None = option(path(), "Check that the model learnt from these rows.", default=None),
) -> Result:
    """Check a saved model against its card, and run it. Exits with code 1 if a check fails.

    Example:
        consilience verify unified.onnx
        consilience verify unified.onnx --teacher birds.onnx --teacher pets.onnx --data X.csv
    """
    rows = None if data is None else library.open_files(data, "--data").all(None)
    view = {"model": model, **library.verify_model(model, teachers=teacher, X=rows).to_dict()}
    return view, tables.checks(view)


def predict(
    model: Path = MODEL,
    data: Path = DATA,
    out: Path = option(
        target(".csv", ".parquet", ".npz", ".npy", ".txt"),
        "Write predictions here: .csv or .parquet (label and probabilities), .npz, .npy (probabilities) or "
        ".txt (a label per line).",
    ),
    keep: Sequence[str] = option(
        each(anything("COLUMN", str)),
        "Copy this column of --data to --out, such as a key; for images: file. Repeat.",
        default=(),
    ),
    drop: Sequence[str] = DROP,
    batch_size: int = option(count(), "Rows that are in memory at a time.", default=4096),
    run: Any = None,
) -> Result:
    """Predict the rows of a file of any length.

    Example:
        consilience predict unified.onnx --data rows.csv --out predictions.csv --keep patient
        consilience predict languages.npz --data texts.txt --out labels.txt
    """
    found = library.predict_file(
        library.load(model),
        data,
        out,
        keep=keep,
        drop=drop,
        batch_size=batch_size,
        progress=run.report,
        option="--data",
    )
    view = {
        "model": model,
        "data": data,
        "out": out,
        "n_rows": found.n_rows,
        "n_classes": len(found.classes),
        "classes": found.classes.tolist(),
        "counts": found.counts.tolist(),
        "confidence": found.confidence,
    }
    return view, tables.predicted(view)


def serve(
    model: Path = MODEL,
    write: Path | None = option(
        path("DIR"), "Write a model repository for Triton, KServe and MLServer here, and stop.", default=None
    ),
    name: str | None = option(
        anything("NAME", str), "Name of the model. [default: the file's, without its ending]", default=None
    ),
    host: str = option(
        anything("HOST", str),
        "Where to listen. With the default, only this machine can reach it.",
        default="127.0.0.1",
    ),
    port: int = option(
        count(at_least=0, at_most=65535), "Where to listen; 0 takes a free port.", default=8080
    ),
) -> Result | None:
    """Serve a saved model by the Open Inference Protocol, for trying; or write what other servers need.

    Example:
        consilience serve unified.onnx
        consilience inspect http://127.0.0.1:8080/v2/models/unified
        consilience serve unified.onnx --write repository
    """
    if write is not None:
        folder = str(library.write_repository(model, write, name))
        return {"model": model, "folder": folder}, f"{folder} is written."
    with library.ModelServer(library.ServedModel(model, name), host, port) as server:
        address = {"model": model, "url": server.url}
        show(address, f"The model is at {server.url}. Stop with Ctrl-C.")
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return None


def cache(
    folder: str = option(anything("FOLDER", str), "What --cache named: a folder, or a URL.", flag="FOLDER"),
    limit: Any = option(
        optional(size()),
        "Delete what was not used for longest, until at most this is left: 20GB.",
        default=None,
    ),
    clear: bool = option(flag(), "Delete all that is stored, after a question.", default=False),
    yes: bool = option(flag(), "Ask no question.", default=False),
) -> Result:
    """Show what a cache holds: models, rows, bytes and last use; or make it smaller.

    Example:
        consilience cache scores
        consilience cache scores --limit 20GB
        consilience cache scores --clear
    """
    if clear and limit is not None:
        raise InvalidInputError("--clear and --limit exclude each other: --clear leaves nothing.")
    if not library.storage_path(folder).is_root():
        raise InvalidInputError(f"{folder} is not a folder. Give the folder that --cache named.")
    store = library.ScoreStore(folder)
    view = store.contents()
    before = view["n_bytes"] + view["n_bytes_trainings"]
    if clear:
        with suppress(click.Abort):  # there is nobody to ask
            yes = yes or click.confirm(f"Delete {library.size_text(before)} in {folder}?", err=True)
        if not yes:
            raise InvalidInputError("Nothing was deleted. To clear without a question, give --yes.")
        store.clear()
    elif limit is not None:
        store.trim(limit)
    view = store.contents()
    view["n_bytes_deleted"] = max(0, before - view["n_bytes"] - view["n_bytes_trainings"])
    return view, tables.contents(view)


def demo(
    seed: int = SEED,
    plot: Path | None = option(
        target(".png", ".svg", ".pdf"), "Draw the comparison (.png, .svg or .pdf).", default=None
    ),
    save: Path | None = option(target(".onnx"), "Save the best unified model as ONNX.", default=None),
    every: bool = option(flag(), "Compare every method; takes a minute.", default=False, flag="--all"),
    run: Any = None,
) -> Result:
    """Unify five private classifiers of handwritten digits, and compare the result with naive distillation.

    Example:
        consilience demo
        consilience demo --all
        consilience demo --seed 1 --plot demo.png --save digits.onnx
    """
    if plot is not None:
        require("matplotlib", extra="report", purpose="Drawing a figure")

    view, model = library.run_demo(seed, every=every, progress=run.report)
    view |= {"all": every, "plot": plot, "model": save}
    if save is not None:
        model.save(save)
    if plot is not None:
        library.draw_demo(view, plot)
    return view, tables.demo(view)
