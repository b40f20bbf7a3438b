"""The commands that learn: unify, rank, distil, cluster."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from consilience.cli import library, tables
from consilience.cli.declared import path, target
from consilience.cli.given import (
    ALIASES,
    CLASSES,
    DATA,
    DROP,
    LABELS,
    OPTIONAL_LABELS,
    RAY,
    REPORT,
    RUN,
    RUN_ON_RAY,
    SEED,
    SMOOTHING,
    TEACHERS,
    TEST_DATA,
    TEST_LABELS,
    check_ending,
    kinds,
    open_teachers,
    read_labels,
    read_rows,
    read_test,
)
from consilience.cluster.options import ClusteringOptions
from consilience.distil.losses import DistilOptions
from consilience.exceptions import CoverageWarning, InvalidInputError, warn
from consilience.options import anything, each, flag, option
from consilience.rank.options import RankOptions
from consilience.run import Run
from consilience.unify.options import UnifierOptions

Result = tuple[dict[str, Any], Any]
_OUT = "a model of texts as .npz."


def unify(
    teacher: list[Path] = TEACHERS,
    data: Path = DATA,
    settings: Any = SMOOTHING,
    out: Path | None = option(target(".onnx", ".npz"), f"Write the unified model here; {_OUT}", default=None),
    soft_labels: Path | None = option(
        target(".npy", ".npz"),
        "Write soft labels here: .npy (and a card), or .npz with classes.",
        default=None,
    ),
    labels: Path | None = OPTIONAL_LABELS,
    options: Any = UnifierOptions,
    classes: Sequence[str] = CLASSES,
    aliases: Path | None = ALIASES,
    drop: Sequence[str] = DROP,
    run: Any = RUN_ON_RAY,
    ray: Any = RAY,
    random_state: int = SEED,
    test_data: Path | None = TEST_DATA,
    test_labels: Path | None = TEST_LABELS,
    report: Path | None = REPORT,
) -> Result:
    """Make one classifier out of many, from unlabelled rows.

    Example:
        consilience unify --teacher birds.onnx --teacher pets.npz --data X.npy --out unified.onnx
        consilience unify -t birds.onnx -t pets.onnx --data X.csv --soft-labels q.npz
        consilience unify -t news/ -t mails.npz --data texts.txt --out unified.npz
    """
    if out is None and soft_labels is None:
        raise InvalidInputError("Nothing to write: give --out FILE.onnx, --soft-labels FILE, or both.")
    if out is not None and soft_labels is not None and out.with_suffix("") == soft_labels.with_suffix(""):
        raise InvalidInputError(
            f"--out and --soft-labels would share the card {out.stem}.card.json. Give them different names."
        )
    if soft_labels is not None and getattr(options.get("student"), "train", "") == "backprop":
        raise InvalidInputError("--train backprop estimates no soft labels. Drop --soft-labels.")
    teachers = open_teachers(teacher, classes, **settings)
    X = read_rows(data, teachers, run, drop)
    y = read_labels(labels, X)
    unifier = library.Unifier(
        teachers, **options, aliases=library.read_aliases(aliases), random_state=random_state, run=run
    )
    if out is not None:
        check_ending(out, X, unifier.student)
    test = read_test(test_data, test_labels, X, data, drop)
    if test is not None:
        _check_truth(test[1], unifier.teachers, unifier.aliases)
    source = unifier.make_estimate(X, y) if out is None else unifier.fit(X, y)
    found = {name.rstrip("_"): value for name, value in vars(source).items()}
    found["space"] = found.get("label_space", found.get("space"))
    view = tables.unified_view(unifier, found, kinds(teacher), y, test) | {"n_rows": len(X)}
    if out is not None:
        unifier.save(out, measured=_measured(view))  # last: a run that fails writes nothing
    if soft_labels is not None:
        library.write_soft_labels(soft_labels, found["soft_labels"], found["space"].classes)
    if report is not None:
        unifier.report(report, *(test or ()), labels_only=False)
    view |= {"out": out, "soft_labels": soft_labels, "report": report}
    return view, tables.unified(view)


def _check_truth(y: Any, teachers: Sequence[Any], aliases: Any) -> None:
    """Read the labels of test rows before the work begins; warn if nobody knows some of their classes."""
    space = library.LabelSpace([one.classes for one in teachers], aliases, disconnected="ignore")
    truth = library.read_truth(y, len(y), space, where="--test-labels", at_least=0)
    for remark in library.unknown_classes(truth, space):
        warn(CoverageWarning(f"--test-labels: {remark}"))


def distil(
    data: Path = DATA,
    labels: Path = LABELS,
    out: Path = option(target(".onnx", ".npz"), f"Write the student to this file; {_OUT}"),
    teacher: Sequence[Path] = option(
        TEACHERS.check,
        f"{TEACHERS.help} Not needed with --loss none or --teacher-weight 0.",
        default=(),
        flag="--teacher -t",
    ),
    options: Any = DistilOptions,
    compare: bool = option(flag(), "Also train the student without teachers, and show both.", default=False),
    classes: Sequence[str] = CLASSES,
    drop: Sequence[str] = DROP,
    run: Any = RUN,
    random_state: int = SEED,
    test_data: Path | None = TEST_DATA,
    test_labels: Path | None = TEST_LABELS,
) -> Result:
    """Train a student with its own labels and with teachers whose classes may differ.

    Example:
        consilience distil --teacher birds.onnx --data X.npy --labels y.npy --out student.onnx
        consilience distil -t birds.onnx -t pets.onnx --data X.npy --labels y.npy --out student.onnx \\
            --compare --test-data X_test.npy --test-labels y_test.npy
    """

    if not teacher and options.get("loss") != "none" and options.get("teacher_weight") != 0:
        raise InvalidInputError("There is no teacher to learn from: give --teacher, or --loss none.")
    teachers = open_teachers(teacher, classes)
    X = read_rows(data, teachers, run, drop)
    y = read_labels(labels, X)
    test = read_test(test_data, test_labels, X, data, drop)
    distiller = library.CrossTaskDistiller(teachers or None, **options, random_state=random_state, run=run)
    check_ending(out, X, distiller.student)
    distiller.fit(X, y)
    alone = None
    if compare:
        alone = library.CrossTaskDistiller(
            None, distiller.student, loss="none", random_state=random_state, run=run
        )
        alone.fit(X, y)
    view = tables.distilled_view(distiller, alone, kinds(teacher), test)
    distiller.save(out, measured=_measured(view))  # last: a run that fails writes nothing
    view |= {"n_rows": len(X), "out": out}
    return view, tables.distilled(view)


def rank(
    teacher: list[Path] = TEACHERS,
    data: Path = DATA,
    labels: Path = LABELS,
    options: Any = RankOptions,
    classes: Sequence[str] = CLASSES,
    embed: Sequence[str] = option(
        each(anything("NAME=LAYER", str)),
        "The tensor of an ONNX graph that is the embedding of teacher NAME. Default: the input of its last "
        "layer.",
        default=(),
    ),
    drop: Sequence[str] = DROP,
    run: Any = RUN_ON_RAY,
    ray: Any = {"address": RAY["address"]},
    csv_file: Path | None = option(
        target(".csv"), "Also write the ranking to a .csv file.", default=None, flag="--csv"
    ),
    report: Path | None = REPORT,
    random_state: int = SEED,
) -> Result:
    """Rank teachers by how much each would help with your classes, even if it does not know them.

    Example:
        consilience rank --teacher birds.onnx --teacher pets.npz --data X.npy --labels y.npy
        consilience rank --teacher a.onnx --teacher b.onnx --data X.npy --labels y.csv \\
            --metric transport --metric logme --cache scores --csv ranking.csv
    """

    teachers = {one.name: one for one in open_teachers(teacher, classes, embed=embed)}
    X = read_rows(data, list(teachers.values()), run, drop)
    y = read_labels(labels, X)
    library.labels_of(y, len(X), where="--labels", at_least=2)  # says what is wrong in the option's name
    ranking = library.rank_teachers(teachers, X, y, **options, random_state=random_state, run=run)
    view = ranking.to_dict() | {"seed": random_state}
    first = view["teachers"][0]
    if first["error"] is not None:
        raise InvalidInputError(f"No teacher could be scored. {first['name']} {first['error']}")
    if csv_file is not None:
        write_ranking(csv_file, view)
    if report is not None:
        ranking.report(report)
    return view, repr(ranking)


def write_ranking(file: Path, view: Mapping[str, Any]) -> None:
    """Write the ranking to a .csv file, one line per teacher."""
    others = [name for name in view["teachers"][0]["scores"] if name != view["metric"]]
    head = ["rank", "teacher", view["metric"], "low", "high", "wins", "seconds", *others, "warnings", "error"]
    lines = [
        [
            *(row["rank"], row["name"], row["score"], *row["interval"], row["wins"], row["seconds"]),
            *(row["scores"].get(name) for name in others),
            *("; ".join(row["warnings"]), row["error"]),
        ]
        for row in view["teachers"]
    ]
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([head, *lines])
    with library.replacing(file) as opened:
        opened.write(written.getvalue().encode())


def cluster(
    data: Path = DATA,
    out: Path = option(target(".npy", ".csv"), "Write each row's cluster here: .npy or .csv."),
    options: Any = ClusteringOptions,
    labels: Path | None = OPTIONAL_LABELS,
    truth: Path | None = option(
        path(), "True classes, to measure accuracy, NMI and ARI; never used to learn.", default=None
    ),
    report: Path | None = REPORT,
    run: Any = {"n_jobs": Run.declared()["n_jobs"]},
    random_state: int = SEED,
) -> Result:
    """Find classes in rows with no labels, or with few.

    Example:
        consilience cluster --data X.npy --clusters 10 --out labels.npy
        consilience cluster --data X.csv --clusters 10 --out labels.csv --labels partial.npy --truth y.npy
    """

    rows = library.open_files(data, "--data").all(None)
    X = rows.reshape(len(rows), -1) if rows.ndim > 2 else rows
    y, classes = read_labels(labels, X), read_labels(truth, X, "--truth")
    model = library.CollisionClustering(**options, random_state=random_state, run=run)
    model.fit(X, y)
    library.write_clusters(out, model.labels_)
    if report is not None:
        model.report(report, X, classes)
    view = tables.clustered_view(model, X, y, classes) | {"out": out, "report": report}
    return view, tables.clustered(view)


def _measured(view: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a command has measured on test rows, for the card; None without test rows."""
    if view["accuracy"] is None:
        return None
    return {"accuracy": view["accuracy"], "n_rows": view["n_test"]}
