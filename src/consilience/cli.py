"""The command line: parses, calls, prints.

Whatever is slow to import is imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from consilience.exceptions import ConsilienceError, ConsilienceWarning, InvalidInputError

try:
    import rich
    import typer
    from typer.core import TyperGroup
except ImportError as error:
    if (error.name or "").partition(".")[0] not in ("typer", "rich", "click"):
        raise
    print("The command line needs typer: pip install 'consilience[cli]'.", file=sys.stderr)
    raise SystemExit(2) from None

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from consilience.clustering import CollisionClustering
    from consilience.labels import LabelSpace
    from consilience.teachers import Teacher
    from consilience.unify import Unifier

_Estimator = TypeVar("_Estimator", "Unifier", "CollisionClustering")

del rich  # only its presence mattered; typer may come without it

# typer carries a click of its own since 0.26 and had the separate package before; this is either's
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

_STUDENTS = ("auto", "torch", "mlp", "logistic", "forest", "boosting")
_ARGUMENT = re.compile(
    r"\b(aliases|balance|batch_size|classes|lam|loss|max_epochs|method|n_clusters|n_init|n_jobs|neighbors|seed|student"
    r"|temperature|threshold|train)= ?"
)
_OPTIONS = {
    "n_clusters": "--clusters",
    "n_jobs": "--jobs",
}  # where an option is not called as the argument is
_BALANCE: dict[str, Any] = {"auto": "auto", "yes": True, "no": False}


class _OneSentence(TyperGroup):
    """Commands that answer bad input with one sentence on stderr and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        with _library_warnings():
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                raise typer.Exit(130) from None
            except _UsageError as error:
                _fail(error.format_message())  # type: ignore[attr-defined]
            except (ConsilienceError, OSError) as error:
                if isinstance(error, BrokenPipeError):
                    raise
                _fail(_sentence(error))


app = typer.Typer(
    cls=_OneSentence,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def main() -> None:
    """Run the command ``consilience``."""
    app(prog_name="consilience")


def _show_version(wanted: bool) -> None:
    if wanted:
        from consilience import __version__

        print(f"consilience {__version__}")
        raise typer.Exit


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Classes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=A,B,C",
        help="Classes of the teacher NAME (its file's name without the ending), in the order of its columns; "
        "or NAME=@FILE with one class per line, or a JSON list. Repeat for other teachers.",
    ),
]
Aliases = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help='JSON object with other names of classes: {"automobile": "car"}.'),
]


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """One classifier out of many.

    \b
    Example: see what it does, in less than a minute
        consilience demo
    """


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Makes the run reproducible.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the comparison (.png, .svg or .pdf).")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.onnx", help="Save the best unified model as ONNX.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Unify five private classifiers of handwritten digits, in every way, and compare.

    \b
    Example:
        consilience demo
        consilience demo --seed 1 --plot demo.png --save digits.onnx
    """
    from consilience import _console, _figures, _files

    _files.check_target(plot, _figures.FORMATS, "--plot")
    _files.check_target(save, (".onnx",), "--save")
    if plot is not None:
        _figures.check_figure_path(plot)
    from consilience.demo import run_demo

    with _console.progress_bars(quiet=quiet) as progress:
        result = run_demo(seed, progress=progress)
    view = {**result.to_dict(), "plot": _text(plot), "model": _text(save)}
    if save is not None and result.best_model is not None:
        result.best_model.save(save)
    if plot is not None:
        _figures.draw_demo(_figures.demo_figure(view), plot)
    if as_json:
        _console.show_json(view)
        return
    _console.show_demo(view)
    for what, path in (("The figure", plot), (f"The model of {view['best']}", save)):
        if path is not None:
            print(f"{what} is in {path}.")


@app.command()
def inspect(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES...", help="Teachers: .onnx, .npy, .npz or .parquet.")
    ],
    classes: Classes = None,
    aliases: Aliases = None,
    as_json: Json = False,
) -> None:
    """Show the label space of some teachers: who knows what, overlaps, components.

    \b
    Example:
        consilience inspect birds.onnx pets.npz
        consilience inspect birds.onnx pets.npy --classes pets=cat,dog,wren
    """
    from consilience import _console, _files
    from consilience.labels import LabelSpace

    teachers = _open_teachers(files, classes)
    # the view itself says what a warning would say
    space = LabelSpace(
        [teacher.classes for teacher in teachers],
        _files.read_aliases(aliases),
        names=[teacher.name for teacher in teachers],
        disconnected="ignore",
    )
    _tell_unused_aliases(space)
    view = _console.space_view(space, [_kind(file) for file in files])
    (_console.show_json if as_json else _console.show_space)(view)


@app.command()
def unify(
    teacher: Annotated[
        list[Path],
        typer.Option(
            "--teacher", "-t", metavar="FILE", help="A teacher: .onnx, .npy, .npz, .parquet. Repeat."
        ),
    ],
    data: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Unlabelled rows: .npy, .npz (key X), .csv or .parquet."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.onnx", help="Where the unified model goes.")
    ] = None,
    soft_labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where soft labels go: .npy (and a card), or .npz with classes."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Labels where they are known (-1, NaN or empty elsewhere), a row per row."
        ),
    ] = None,
    student: Annotated[str, typer.Option(help=f"One of {', '.join(_STUDENTS)}.")] = "auto",
    method: Annotated[str, typer.Option(help="One of mf-lf, ce, mf-p, mf-lv, sd.")] = "mf-lf",
    train: Annotated[str, typer.Option(help="estimate, or backprop (torch student).")] = "estimate",
    balance: Annotated[str, typer.Option(help="Balance the soft labels: auto, yes or no.")] = "auto",
    temperature: Annotated[float, typer.Option(help="Softens the teachers' outputs.")] = 3.0,
    classes: Classes = None,
    aliases: Aliases = None,
    threshold: Annotated[
        float, typer.Option(help="scikit-learn students ignore soft labels below this.")
    ] = 0.01,
    batch_size: Annotated[int, typer.Option(help="Rows per call of a teacher.")] = 4096,
    seed: Annotated[int, typer.Option(help="Makes the student reproducible.")] = 0,
    test_data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rows to measure the unified model on.")
    ] = None,
    test_labels: Annotated[Path | None, typer.Option(metavar="FILE", help="Their labels.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make one classifier out of many, from unlabelled rows.

    \b
    Example:
        consilience unify --teacher birds.onnx --teacher pets.npz --data X.npy --out unified.onnx
        consilience unify -t birds.onnx -t pets.onnx --data X.csv --soft-labels q.npz
    """
    from consilience import _console, _files
    from consilience._validation import check_choice, check_count, check_number
    from consilience.soft_labels import METHODS
    from consilience.unify import Unifier

    check_choice("student", student, _STUDENTS)
    check_choice("balance", balance, _BALANCE)
    check_choice("method", method, METHODS)
    check_choice("train", train, ("estimate", "backprop"))
    check_number("temperature", temperature, above=0)
    check_count("batch_size", batch_size)
    check_count("seed", seed, at_least=0)
    _check_outputs(out, soft_labels, train, test_data, test_labels)
    X = _files.read_rows(data, "--data")
    y = None if labels is None else _files.read_labels(labels, len(X), "--labels")
    test = _read_test(test_data, test_labels)
    with _console.progress_bars(quiet=quiet) as progress:
        unifier = Unifier(
            _open_teachers(teacher, classes),
            None if student == "auto" else student,
            method,  # type: ignore[arg-type]
            train,  # type: ignore[arg-type]
            _BALANCE[balance],
            temperature,
            aliases=_files.read_aliases(aliases),
            threshold=threshold,
            batch_size=batch_size,
            progress=progress,
            random_state=seed,
        )
        if out is None:
            Q: NDArray[np.float64] | None = unifier.estimate(X, y)
        else:
            Q = _fit(unifier, X, y, data, "The student").soft_labels_
            unifier.save(out)
    _tell_unused_aliases(unifier.label_space_)
    if soft_labels is not None and Q is not None:
        _files.write_soft_labels(soft_labels, Q, unifier.classes_)
    view = _console.unifier_view(unifier, [_kind(file) for file in teacher], len(X), y, test)
    view |= {"out": _text(out), "soft_labels": _text(soft_labels)}
    (_console.show_json if as_json else _console.show_unified)(view)


@app.command()
def cluster(
    data: Annotated[
        Path, typer.Option(metavar="FILE", help="Rows: .npy, .npz (key X), .csv or .parquet of numbers.")
    ],
    clusters: Annotated[int, typer.Option(help="How many clusters to find.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where each row's cluster goes: .npy or .csv.")],
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Labels where they are known (0, 1, ...; -1, NaN or empty elsewhere), a row per row.",
        ),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="True classes, to measure accuracy, NMI and ARI; never learnt from."
        ),
    ] = None,
    loss: Annotated[str, typer.Option(help="One of collision, mi, sela, mi-adm, iic.")] = "collision",
    lam: Annotated[
        float | None, typer.Option(help="Weight of equal sizes; about 1 where sizes may differ.")
    ] = None,
    neighbors: Annotated[int, typer.Option(help="Neighbours to average predictions over.")] = 10,
    n_init: Annotated[int, typer.Option(help="Starts, of which the best is kept.")] = 10,
    max_epochs: Annotated[int, typer.Option(help="Most rounds of a start.")] = 100,
    jobs: Annotated[int, typer.Option(help="Starts at a time.")] = 1,
    seed: Annotated[int, typer.Option(help="Makes the clusters reproducible.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find classes in rows without labels, or with few.

    \b
    Example:
        consilience cluster --data X.npy --clusters 10 --out labels.npy
        consilience cluster --data X.csv --clusters 10 --out labels.csv --labels partial.npy --truth y.npy
    """
    from consilience import _console, _files
    from consilience._validation import check_count
    from consilience.clustering import CollisionClustering

    _files.check_target(out, (".npy", ".csv"), "--out")
    check_count("seed", seed, at_least=0)
    check_count("n_jobs", jobs)
    rows = _files.read_rows(data, "--data")
    X = rows.reshape(len(rows), -1)
    y = None if labels is None else _files.whole_labels(_files.read_labels(labels, len(X), "--labels"))
    classes = None if truth is None else _files.read_labels(truth, len(X), "--truth")
    with _console.progress_bars(quiet=quiet) as progress:
        model = CollisionClustering(
            clusters,
            lam,
            loss,  # type: ignore[arg-type]
            neighbors=neighbors,
            n_init=n_init,
            max_epochs=max_epochs,
            n_jobs=jobs,
            progress=progress,
            random_state=seed,
        )
        _fit(model, X, y, data, "The model")
    _files.write_clusters(out, model.labels_)
    view = _console.clusters_view(model, X, y, classes) | {"out": str(out)}
    (_console.show_json if as_json else _console.show_clusters)(view)


def _read_test(data: Path | None, labels: Path | None) -> tuple[Any, Any] | None:
    if data is None or labels is None:
        return None
    from consilience import _files

    rows = _files.read_rows(data, "--test-data")
    return rows, _files.read_labels(labels, len(rows), "--test-labels")


def _fit(estimator: _Estimator, X: Any, y: Any, data: Path, who: str) -> _Estimator:
    try:
        estimator.fit(X, y)
    except ConsilienceError:
        raise
    except ValueError as error:  # scikit-learn checks X by itself
        raise InvalidInputError(f"{who} cannot learn from {data}: {_sentence(error)}") from error
    return estimator


@contextmanager
def _library_warnings() -> Iterator[None]:
    """Show this library's warnings as one line each, and no others."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, ConsilienceWarning):
            from consilience._console import show_warning

            show_warning(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConsilienceWarning)
        warnings.showwarning = show
        yield


def _fail(message: str) -> None:
    from consilience._console import show_error

    show_error(message)
    raise typer.Exit(2)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename} cannot be read or written: {error.strerror}."
    # the library speaks of arguments; here they are options
    words = re.sub(
        _ARGUMENT,
        lambda match: _OPTIONS.get(match[1], f"--{match[1].replace('_', '-')}") + " ",
        " ".join(str(error).split()),
    )
    return words or type(error).__name__


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _kind(file: Path) -> str:
    return file.suffix.lower().removeprefix(".")


def _check_outputs(
    out: Path | None, soft_labels: Path | None, train: str, test_data: Path | None, test_labels: Path | None
) -> None:
    from consilience import _files

    if out is None and soft_labels is None:
        raise InvalidInputError("Nothing to write: give --out FILE.onnx, --soft-labels FILE, or both.")
    _files.check_target(out, (".onnx",), "--out")
    _files.check_target(soft_labels, (".npy", ".npz"), "--soft-labels")
    if soft_labels is not None and train == "backprop":
        raise InvalidInputError(
            "--train backprop estimates no soft labels. Drop --soft-labels, or use --train estimate."
        )
    if (test_data is None) != (test_labels is None) or (test_data is not None and out is None):
        raise InvalidInputError("--test-data and --test-labels go together, and with --out.")
    if out is not None and soft_labels is not None and out.with_suffix("") == soft_labels.with_suffix(""):
        raise InvalidInputError(
            f"--out and --soft-labels would share the card {out.stem}.card.json. Give them different names."
        )


def _open_teachers(files: Sequence[Path], given: Sequence[str] | None) -> list[Teacher]:
    """Make a teacher of each file, named by its stem; by folder and stem where stems are not unique."""
    from consilience import _files
    from consilience.teachers import as_teacher

    stems = [file.stem for file in files]
    names = [
        stem if stems.count(stem) == 1 else f"{file.parent.name}/{stem}"
        for file, stem in zip(files, stems, strict=True)
    ]
    repeated = [file for i, file in enumerate(files) if names[i] in names[:i]]
    if repeated:
        raise InvalidInputError(f"{repeated[0]} is given twice, or has the name of another teacher.")
    classes = _files.parse_classes(given or (), names)
    return [as_teacher(file, classes.get(name), name) for file, name in zip(files, names, strict=True)]


def _tell_unused_aliases(space: LabelSpace) -> None:
    from consilience.labels import shorten

    if space.unused_aliases:
        warnings.warn(
            f"No teacher has a class that these aliases rename: {shorten(space.unused_aliases)}.",
            ConsilienceWarning,
            stacklevel=2,
        )
