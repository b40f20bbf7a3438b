"""``consilience unify``."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from consilience.cli.app import (
    STUDENTS,
    Aliases,
    BatchSize,
    Cache,
    CacheLimit,
    Classes,
    Drop,
    Engine,
    Json,
    Memory,
    Quiet,
    RayAddress,
    Report,
    Seed,
    Student,
    Teachers,
    TestData,
    TestLabels,
    TrainWorkers,
    app,
    check_cache,
    check_ending,
    check_memory,
    check_report,
    check_test_options,
    engine_options,
    first_rows,
    fit_on,
    kind,
    measured,
    open_teachers,
    read_data,
    read_test,
    text,
)
from consilience.exceptions import CoverageWarning, InvalidInputError

_BALANCE: dict[str, Any] = {"auto": "auto", "yes": True, "sqrt": "sqrt", "no": False}


@app.command()
def unify(
    teacher: Teachers,
    data: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Unlabelled rows: .npy, .npz (key X), .csv, .parquet or .txt (a text a line); a folder of "
            "such files, or a pattern such as 'rows/*.parquet'.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.onnx", help="Write the unified model here; a model of texts as .npz."),
    ] = None,
    soft_labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write soft labels here: .npy (and a card), or .npz with classes."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Known labels, one per row of --data; -1, NaN or empty for unknown."
        ),
    ] = None,
    student: Student = "auto",
    method: Annotated[str, typer.Option(help="One of auto, ranks, mf-lf, ce, mf-p, mf-lv, sd.")] = "auto",
    train: Annotated[str, typer.Option(help="estimate, or backprop (torch student).")] = "estimate",
    balance: Annotated[str, typer.Option(help="Balance the soft labels: auto, yes, sqrt or no.")] = "auto",
    temperature: Annotated[
        float | None,
        typer.Option(help="Softens the teachers' outputs; by default 1 for auto and ranks, else 3."),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Divide each teacher's logits by a temperature of its own."),
    ] = False,
    off_set: Annotated[
        bool,
        typer.Option(
            "--off-set", help="With --method ce: weight a teacher by the mass of its classes on a row."
        ),
    ] = False,
    n_neighbors: Annotated[
        int | None,
        typer.Option(
            help="Average soft labels over this many nearest rows; 0 for none. [default: by student]"
        ),
    ] = None,
    tol: Annotated[
        float | None, typer.Option(help="When ce, mf-p or mf-lv stops; by default the method's own.")
    ] = None,
    max_iter: Annotated[
        int | None, typer.Option(help="Most iterations of ce, mf-p or mf-lv; by default the method's own.")
    ] = None,
    classes: Classes = None,
    aliases: Aliases = None,
    min_label: Annotated[
        float | None,
        typer.Option(help="scikit-learn students ignore soft labels below this. [default: 0.01]"),
    ] = None,
    memory: Memory = None,
    drop: Drop = None,
    cache: Cache = None,
    cache_limit: CacheLimit = None,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    train_workers: TrainWorkers = None,
    batch_size: BatchSize = 4096,
    seed: Seed = 0,
    test_data: TestData = None,
    test_labels: TestLabels = None,
    report: Report = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make one classifier out of many, from unlabelled rows.

    \b
    Example:
        consilience unify --teacher birds.onnx --teacher pets.npz --data X.npy --out unified.onnx
        consilience unify -t birds.onnx -t pets.onnx --data X.csv --soft-labels q.npz
        consilience unify -t news/ -t mails.npz --data texts.txt --out unified.npz
    """
    from consilience._validation import check_choice, check_count
    from consilience.cli import console
    from consilience.files import readers
    from consilience.inspect.evaluate import read_truth
    from consilience.labels import LabelSpace
    from consilience.run import Run
    from consilience.unify.unifier import Unifier

    check_choice("student", student, STUDENTS)
    check_choice("balance", balance, _BALANCE)
    check_choice("train", train, ("estimate", "backprop"))
    chosen = _method(
        method,
        temperature=temperature,
        teacher_temperatures="agreement" if calibrate else None,
        off_set=off_set or None,
        n_neighbors=n_neighbors,
        tol=tol,
        max_iter=max_iter,
    )
    _check_outputs(out, soft_labels, train, test_data)
    learner = _student(student, train, min_label)
    check_count("batch_size", batch_size)
    check_count("seed", seed, at_least=0)
    check_cache(cache, cache_limit)
    check_memory(memory)
    options = engine_options(engine, ray_address, train_workers)
    inputs = [data, labels, aliases, test_data, test_labels]
    readers.check_target(out, (".onnx", ".npz"), "--out", inputs, teacher)
    readers.check_target(soft_labels, (".npy", ".npz"), "--soft-labels", inputs, teacher)
    check_test_options(test_data, test_labels)
    check_report(report)
    if report is not None and out is None:
        raise InvalidInputError("--report shows the model that --out writes. Give --out, too.")
    teachers, other_names = open_teachers(teacher, classes), readers.read_aliases(aliases)
    X = read_data(data, teachers, memory, drop)
    check_ending(out, X, student)
    y = None if labels is None else readers.read_labels(labels, len(X), "--labels")

    def check_test_labels(y: Any) -> None:
        space = LabelSpace([one.classes for one in teachers], other_names, disconnected="ignore")
        truth = read_truth(y, len(y), space, where="--test-labels", at_least=0, some_known=True)
        if truth.remark is not None:
            warnings.warn(f"--test-labels: {truth.remark}", CoverageWarning, stacklevel=1)

    test = read_test(test_data, test_labels, first_rows(X), data, check_test_labels, drop)
    with console.progress_bars(quiet=quiet) as progress:
        unifier = Unifier(
            teachers,
            learner,
            chosen,
            balance=_BALANCE[balance],
            aliases=other_names,
            random_state=seed,
            run=Run(
                memory=memory,
                cache=cache,
                cache_limit=cache_limit,
                engine=engine,
                engine_options=options,
                rows_per_call=batch_size,
                progress=progress,
            ),
        )
        if out is None:
            found: Any = unifier.make_estimate(X, y)
        else:
            fitted = fit_on(unifier, X, y, data, "The student")
            found = SimpleNamespace(
                method=fitted.method_,
                space=fitted.label_space_,
                soft_labels=fitted.soft_labels_,
                n_abstentions=fitted.n_abstentions_,
                temperatures=fitted.temperatures_,
                pool_weights=fitted.pool_weights_,
                neighbor_weight=fitted.neighbor_weight_,
                seconds=fitted.seconds_,
            )
    view = console.unifier_view(unifier, found, [kind(file) for file in teacher], len(X), y, test)
    # files last: a run that fails writes none
    if out is not None:
        unifier.save(out, measured=measured(view))
    if soft_labels is not None and found.soft_labels is not None:
        readers.write_soft_labels(soft_labels, found.soft_labels, found.space.classes)
    if report is not None:
        unifier.report(report, *(test or ()), labels_only=False)
    view |= {"out": text(out), "soft_labels": text(soft_labels), "report": text(report)}
    (console.show_json if as_json else console.show_unified)(view)


def _method(name: str, **given: Any) -> Any:
    """Return the method with the options that were given, or say which it does not have."""
    from consilience.methods import METHODS, as_method

    made = as_method(name)
    for option, value in given.items():
        if value is None:
            continue
        if option not in made.declared():
            others = [other for other, method in METHODS.items() if option in method.declared()]
            raise InvalidInputError(
                f"{{argument}} is an option of {' and '.join(others)}; method is {name!r}.",
                argument=option,
                value=value,
            )
        made.set_params(**{option: value})
    return as_method(made)


def _student(name: str, train: str, min_label: float | None) -> Any:
    """Return the student with the options that were given."""
    if train == "backprop":
        from consilience.students import Network

        if name not in ("auto", "torch"):
            raise InvalidInputError(
                "{argument} needs a torch student; use {remedy}.",
                argument="train",
                value=train,
                remedy=("student", "torch"),
            )
        return Network(train="backprop")
    if min_label is None:
        return None if name == "auto" else name
    from consilience.students.make import as_student

    made = as_student(None if name == "auto" else name)
    if not hasattr(made, "min_label"):
        raise InvalidInputError(
            "{argument} is an option of scikit-learn students; use {remedy}.",
            argument="min_label",
            value=min_label,
            remedy=("student", "logistic"),
        )
    return made.set_params(min_label=min_label)


def _check_outputs(out: Path | None, soft_labels: Path | None, train: str, test_data: Path | None) -> None:
    if out is None and soft_labels is None:
        raise InvalidInputError("Nothing to write: give --out FILE.onnx, --soft-labels FILE, or both.")
    if soft_labels is not None and train == "backprop":
        raise InvalidInputError(
            "--train backprop estimates no soft labels. Drop --soft-labels, or use --train estimate."
        )
    if test_data is not None and out is None:
        raise InvalidInputError("--test-data measures the model that --out writes. Give --out, too.")
    if out is not None and soft_labels is not None and out.with_suffix("") == soft_labels.with_suffix(""):
        raise InvalidInputError(
            f"--out and --soft-labels would share the card {out.stem}.card.json. Give them different names."
        )
