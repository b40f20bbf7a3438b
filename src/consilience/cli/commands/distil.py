"""``consilience distil``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.cli.app import (
    STUDENTS,
    BatchSize,
    Cache,
    CacheLimit,
    Classes,
    Drop,
    Json,
    Memory,
    Quiet,
    Seed,
    Student,
    TestData,
    TestLabels,
    app,
    check_cache,
    check_ending,
    check_memory,
    check_test_options,
    first_rows,
    fit_on,
    kind,
    measured,
    open_teachers,
    read_data,
    read_test,
    text,
)
from consilience.exceptions import InvalidInputError

if TYPE_CHECKING:
    from consilience.distil.distiller import CrossTaskDistiller
    from consilience.distil.losses import Loss


@app.command()
def distil(
    data: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The student's rows: .npy, .npz (key X), .csv, .parquet or .txt (a text a line); a folder "
            "of such files, or a pattern such as 'rows/*.parquet'.",
        ),
    ],
    labels: Annotated[
        Path,
        typer.Option(metavar="FILE", help="A label for each row; -1, NaN or empty where unknown."),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="FILE.onnx", help="Write the student to this file; a model of texts as .npz."),
    ],
    teacher: Annotated[
        list[Path] | None,
        typer.Option(
            "--teacher",
            "-t",
            metavar="FILE",
            help="A teacher: .onnx, .skops, .npy, .npz, .parquet, a model folder, an address or a .toml file "
            "with one. Repeat for several. Not needed with --loss none or --teacher-weight 0.",
        ),
    ] = None,
    student: Student = "auto",
    loss: Annotated[
        str, typer.Option(help="One of sinkhorn, kd (same classes), rkd, fitnet, refilled, none.")
    ] = "sinkhorn",
    teacher_weight: Annotated[
        str,
        typer.Option(
            help="Weight of the teachers next to the labels: a number, or auto: each has to earn it."
        ),
    ] = "auto",
    temperature: Annotated[float, typer.Option(help="Softens teachers and student alike.")] = 3.0,
    epsilon: Annotated[str, typer.Option(help="Regularisation of transport: auto, or a number.")] = "auto",
    cost: Annotated[
        str, typer.Option(help="Distance between classes: embedding, constant or random.")
    ] = "embedding",
    check: Annotated[
        bool, typer.Option(help="With --teacher-weight auto: drop teachers that know less than the labels.")
    ] = True,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also train the student without teachers, and show both.")
    ] = False,
    classes: Classes = None,
    memory: Memory = None,
    drop: Drop = None,
    cache: Cache = None,
    cache_limit: CacheLimit = None,
    batch_size: BatchSize = 4096,
    seed: Seed = 0,
    test_data: TestData = None,
    test_labels: TestLabels = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a student with its own labels and with teachers whose classes may differ.

    \b
    Example:
        consilience distil --teacher birds.onnx --data X.npy --labels y.npy --out student.onnx
        consilience distil -t birds.onnx -t pets.onnx --data X.npy --labels y.npy --out student.onnx \\
            --compare --test-data X_test.npy --test-labels y_test.npy
    """
    from consilience._validation import check_choice, check_count
    from consilience.cli import console
    from consilience.distil.distiller import CrossTaskDistiller
    from consilience.distil.losses import LOSSES
    from consilience.files import readers
    from consilience.run import Run

    check_choice("student", student, STUDENTS)
    check_choice("loss", loss, LOSSES)
    check_choice("cost", cost, ("embedding", "constant", "random"))
    check_count("seed", seed, at_least=0)
    check_cache(cache, cache_limit)
    check_memory(memory)
    files = teacher or []
    readers.check_target(out, (".onnx", ".npz"), "--out", [data, labels, test_data, test_labels], files)
    weight = _number(teacher_weight)
    if not files and loss != "none" and weight != 0:
        raise InvalidInputError("There is no teacher to learn from: give --teacher, or --loss none.")
    check_test_options(test_data, test_labels)
    if compare and test_data is None:
        raise InvalidInputError("--compare needs test rows: give --test-data and --test-labels.")
    teachers = open_teachers(files, classes)
    X = read_data(data, teachers, memory, drop)
    check_ending(out, X, student)
    y = readers.read_labels(labels, len(X), "--labels")
    test = read_test(test_data, test_labels, first_rows(X), data, drop=drop)
    with console.progress_bars(quiet=quiet) as progress:
        run = Run(
            memory=memory, cache=cache, cache_limit=cache_limit, rows_per_call=batch_size, progress=progress
        )
        distiller = CrossTaskDistiller(
            teachers or None,
            None if student == "auto" else student,
            _loss(loss, temperature=temperature, epsilon=_number(epsilon)),
            weight,
            "auto" if check else False,
            cost,
            random_state=seed,
            run=run,
        )
        fit_on(distiller, X, y, data, "The student")
        labels_only = None
        if compare:
            labels_only = CrossTaskDistiller(None, distiller.student, loss="none", random_state=seed, run=run)
            fit_on(labels_only, X, y, data, "The student")
    view = distiller_view(distiller, labels_only, [kind(file) for file in files], test)
    distiller.save(out, measured=measured(view))  # last: a run that fails writes nothing
    view |= {"n_rows": len(X), "out": text(out)}
    console.show_json(view) if as_json else show_distilled(view)


def _loss(name: str, **options: Any) -> Loss:
    """Return a loss with those of the options that it has."""
    from consilience.distil.losses import LOSSES

    kind = LOSSES[name]
    return kind(**{option: value for option, value in options.items() if option in kind.declared()})


def _number(value: str) -> Any:
    try:
        return float(value)
    except ValueError:
        return value  # "auto", or a word that the library complains about


def distiller_view(
    distiller: CrossTaskDistiller,
    labels_only: CrossTaskDistiller | None,
    kinds: list[str],
    test: tuple[Any, Any] | None,
) -> dict[str, Any]:
    """Return the results of a distiller, ready for JSON.

    Parameters
    ----------
    distiller : CrossTaskDistiller
        After `fit`.
    labels_only : CrossTaskDistiller or None
        The same student, trained without teachers.
    kinds : list of str
        The file type of each teacher, such as ``"onnx"``.
    test : (X, y) or None
        Rows to measure the accuracy on.
    """
    from consilience._validation import take_rows
    from consilience.cli.console import encoding_view
    from consilience.labels import read_labels
    from consilience.students.student import student_name

    if test is not None:  # rows without a label have nothing to be compared with
        classes, codes = read_labels(test[1], where="--test-labels", at_least=0)
        test = take_rows(test[0], codes >= 0), classes[codes[codes >= 0]]
    checks, loss = {check.name: check for check in distiller.checks_}, distiller.resolved("loss")
    teachers = []
    for teacher, file, weight in zip(distiller.teachers_, kinds, distiller.teacher_weights_, strict=True):
        check = checks.get(teacher.name)
        teachers.append(
            {
                "name": teacher.name,
                "kind": file,
                "n_classes": len(teacher.classes),
                "weight": float(weight),
                "reliability": None if check is None else check.reliability,
                "added": None if check is None or math.isnan(check.added) else check.added,
                "held_out": None if check is None else check.n_rows,
            }
        )
    return {
        "teachers": teachers,
        "n_classes": len(distiller.classes_),
        "classes": distiller.classes_.tolist(),
        "n_labels": distiller.n_labels_,
        "loss": loss.name,
        "teacher_weight": distiller.teacher_weight,
        "temperature": loss.temperature,
        "seed": distiller.random_state,
        "student": student_name(distiller.student_),
        "encoding": encoding_view(distiller),
        "accuracy": float(distiller.score(*test)) if test is not None and len(test[1]) else None,
        "accuracy_labels_only": float(labels_only.score(*test))
        if labels_only is not None and test is not None and len(test[1])
        else None,
        "n_test": 0 if test is None else len(test[1]),
        "seconds": distiller.seconds_,
    }


def show_distilled(view: Mapping[str, Any]) -> None:
    """Draw the summary of ``consilience distil``."""
    from consilience._words import shorten
    from consilience.cli.console import console, escape, facts_table, plain_table, show_encoding

    out = console()
    table = plain_table(
        "teacher", "file", ">classes", ">weight", ">reliability", "what it adds to the labels"
    )
    for teacher in view["teachers"]:
        added, reliability = teacher["added"], teacher["reliability"]
        adds = "-" if added is None else f"{added:.1f} nats over {teacher['held_out']} held-out rows"
        table.add_row(
            escape(teacher["name"]),
            escape(teacher["kind"]),
            str(teacher["n_classes"]),
            f"{teacher['weight']:.2f}" if teacher["weight"] else "dropped" if reliability == 0 else "0",
            "-" if reliability is None else f"{reliability:.2f}",
            adds,
        )
    out.print(table)
    show_encoding(view["encoding"])

    def share(name: str) -> str | None:
        return None if view[name] is None else f"{100 * view[name]:.1f}% of {view['n_test']} test rows"

    out.print()
    out.print(
        facts_table(
            {
                "classes": f"{view['n_classes']}: {shorten(view['classes'])}",
                "rows": f"{view['n_rows']}, {view['n_labels']} of them labelled",
                "loss": f"{view['loss']}, teacher weight {view['teacher_weight']}, "
                f"temperature {view['temperature']:g}",
                "student": view["student"],
                "seconds": ", ".join(f"{step} {seconds:.1f}" for step, seconds in view["seconds"].items()),
                "accuracy": share("accuracy"),
                "without teachers": share("accuracy_labels_only"),
                "model": view["out"],
            }
        )
    )
