"""The command line: the parts that all commands share.

Slow imports happen inside the commands, so ``--help`` answers at once.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from consilience.exceptions import (
    ConsilienceError,
    ConsilienceWarning,
    InvalidInputError,
    InvalidTypeError,
    Spelling,
    as_keyword,
)

try:
    import rich
    import typer
    from typer.core import TyperGroup
except ImportError as error:
    if (error.name or "").partition(".")[0] not in ("typer", "rich", "click"):
        raise
    print("The command line needs typer: pip install 'consilience[cli]'.", file=sys.stderr)
    raise SystemExit(2) from None

from consilience.cli.command import App  # isort: skip
from consilience.cli.log import Log, new_log  # isort: skip

if TYPE_CHECKING:
    from consilience.cluster.clustering import CollisionClustering
    from consilience.distil.distiller import CrossTaskDistiller
    from consilience.teachers import Teacher
    from consilience.unify.unifier import Unifier

_Estimator = TypeVar("_Estimator", "Unifier", "CollisionClustering", "CrossTaskDistiller")

del rich  # we only needed to know that it is installed; typer may come without it

# since 0.26 typer has its own copy of click; before, it used the separate package. This works with both.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

_COPIES = 3  # how often rows are in memory at most
STUDENTS = ("auto", "torch", "mlp", "logistic", "forest", "boosting", "ngrams")
_OPTIONS = {
    "n_bins": "--bins",
    "n_bootstrap": "--bootstrap",
    "n_clusters": "--clusters",
    "n_folds": "--folds",
    "n_jobs": "--jobs",
    "random_state": "--seed",
}  # options whose name differs from the argument's


class _OneSentence(TyperGroup):
    """Commands that answer bad input with one sentence on stderr and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        exit_code = 1
        with new_log() as log:
            try:
                result = self._answer(ctx, log)
                exit_code = 0
                return result
            except typer.Exit as end:
                exit_code = end.exit_code
                raise
            finally:
                log.finish(exit_code)

    def _answer(self, ctx: Any, log: Log) -> Any:
        spell = spelling(self.commands.values())
        with _library_warnings(spell, log):
            try:
                result = super().invoke(ctx)
                sys.stdout.flush()  # here, and not when Python ends: a reader that has left is found in time
                return result
            except KeyboardInterrupt:
                raise typer.Exit(130) from None
            except _UsageError as error:
                _fail(log, error.format_message())  # type: ignore[attr-defined]
            except (ConsilienceError, OSError) as error:
                if isinstance(error, BrokenPipeError):
                    raise
                _fail(log, _sentence(error, spell))
            except (typer.Exit, typer.Abort):
                raise
            except Exception as error:  # a mistake of ours: in a log of JSON, its traceback is data, too
                if not log.is_json:
                    raise
                log.fail(_sentence(error), traceback=traceback.format_exc())
                raise typer.Exit(1) from error


def new_app() -> typer.Typer:
    """Return a command line without commands that behaves like this one. The examples build theirs on it."""
    return App(
        cls=_OneSentence,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )


app = new_app()


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
        help="Classes of teacher NAME, in column order. NAME is the file name without its ending. "
        "NAME=@FILE reads them from a file: one per line, or a JSON list. Repeat.",
    ),
]
Teachers = Annotated[
    list[Path],
    typer.Option(
        "--teacher",
        "-t",
        metavar="FILE",
        help="A teacher: .onnx, .skops, .npy, .npz, .parquet or a model folder; or an address "
        "https://HOST/v2/models/NAME, or a .toml file with one. Repeat.",
    ),
]
Cache = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Folder that stores the teachers' outputs, so no teacher runs twice; or a URL: s3://bucket/scores.",
    ),
]
CacheLimit = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Most bytes of --cache, such as 20GB: what was not used for longest is deleted."
    ),
]
Engine = Annotated[
    str, typer.Option(help="Where teachers run: local, or ray (a Ray cluster, or processes of this machine).")
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="With --engine ray: the cluster. Default: the one that runs on this machine, or else a new one.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Leave out this column of the rows, such as a key or the label. Repeat for several.",
    ),
]
TrainWorkers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="With --engine ray and a torch student: how many processes train it together, by Ray Train. "
        "[default: it learns in this process]",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="How much memory the work may take, such as 2GB: if it would take more, --data is read block by "
        "block. [default: a quarter of the machine's]",
    ),
]
Student = Annotated[str, typer.Option(help=f"One of {', '.join(STUDENTS)}.")]
BatchSize = Annotated[int, typer.Option(help="Rows per call of a teacher.")]
Seed = Annotated[int, typer.Option(help="Makes the run reproducible.")]
TestData = Annotated[Path | None, typer.Option(metavar="FILE", help="Rows to measure the student on.")]
TestLabels = Annotated[Path | None, typer.Option(metavar="FILE", help="Their labels.")]
Aliases = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help='JSON object with aliases of classes: {"automobile": "car"}.'),
]


Report = Annotated[
    Path | None, typer.Option(metavar="FILE.html", help="Also write one page to show: see docs/report.md.")
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


def check_test_options(data: Path | None, labels: Path | None) -> None:
    """Raise if only one of the two files is given."""
    if (data is None) != (labels is None):
        raise InvalidInputError("--test-data and --test-labels go together.")


def read_test(
    data: Path | None,
    labels: Path | None,
    X: Any,
    of: Path,
    check: Callable[[Any], object] | None = None,
    drop: Sequence[str] | None = None,
) -> tuple[Any, Any] | None:
    """Return the test rows and their labels; None if they are not given.

    Parameters
    ----------
    data, labels : Path or None
        Both or none: see `check_test_options`.
    X : rows
        The rows of the file `of`: test rows have the same columns, in any order.
    of : Path
    check : callable, optional
        Raises where the labels cannot be used.
    drop : sequence of str, optional
        Columns that --data has and X has not; test rows may have them or not.
    """
    if data is None or labels is None:
        return None
    from consilience.files import readers
    from consilience.rows.files import read_alike

    rows = read_alike(data, "--test-data", X, str(of), drop or ())
    y = readers.read_labels(labels, len(rows), "--test-labels")
    if check is not None:
        check(y)
    return rows, y


def measured(view: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a command has measured on test rows, for the card; None without test rows."""
    if view["accuracy"] is None:
        return None
    return {"accuracy": view["accuracy"], "n_rows": view["n_test"]}


def engine_options(
    engine: str, ray_address: str | None, train_workers: int | None = None
) -> dict[str, Any] | None:
    """Return the options of an engine, or raise if they do not go together."""
    from consilience._validation import check_choice
    from consilience.scoring.engines import ENGINES

    check_choice("engine", engine, ENGINES)
    given = {"address": ray_address, "train_workers": train_workers}
    options = {key: value for key, value in given.items() if value is not None}
    if options and engine != "ray":
        name = "--ray-address" if "address" in options else "--train-workers"
        raise InvalidInputError(f"{name} needs --engine ray.")
    return options or None


def check_memory(memory: str | None) -> None:
    """Raise if --memory is no size."""
    if memory is not None:
        from consilience._words import parse_size

        parse_size("memory", memory)


def check_cache(folder: str | None, limit: str | None) -> None:
    """Raise if there can be no cache there, or the limit is none."""
    from consilience.scoring.store import as_store

    as_store(folder, limit)


def check_report(path: Path | None) -> None:
    """Raise if a report could not be written there."""
    if path is not None:
        from consilience.inspect.page import check_report

        check_report(path, "--report")


def fit_on(estimator: _Estimator, X: Any, y: Any, data: Path, who: str) -> _Estimator:
    try:
        estimator.fit(X, y)
    except InvalidInputError as error:
        # an error of scikit-learn's own check does not name the file: add it
        cause, plain = error.__cause__, type(error) in (InvalidInputError, InvalidTypeError)
        if not plain or not isinstance(cause, ValueError | TypeError):
            raise
        raise InvalidInputError(f"{who} cannot learn from {data}: {_sentence(cause)}") from error
    except ConsilienceError:
        raise
    except ValueError as error:
        raise InvalidInputError(f"{who} cannot learn from {data}: {_sentence(error)}") from error
    return estimator


@contextmanager
def _library_warnings(spell: Spelling, log: Log) -> Iterator[None]:
    """Show the warnings of this library, one line each, and hide all others."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if isinstance(message, ConsilienceWarning):
            log.warn(message.worded(spell), type(message).__name__)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConsilienceWarning)
        warnings.showwarning = show
        yield


def _fail(log: Log, message: str) -> None:
    log.fail(message)
    raise typer.Exit(2)


def _sentence(error: Exception, spell: Spelling = as_keyword) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename} cannot be read or written: {error.strerror}."
    words = error.worded(spell) if isinstance(error, InvalidInputError) else str(error)
    return " ".join(words.split()) or type(error).__name__


def spelling(commands: Iterable[Any]) -> Spelling:
    """Return a function that writes an argument of the library as an option, if these commands have it."""
    every = [one for command in commands for one in getattr(command, "commands", {"": command}).values()]
    found = [option for command in every for option in command.params]
    options = {word for option in found for word in option.opts}
    switches = [option for option in found if getattr(option, "is_flag", False)]
    flags = {word for option in switches for word in (*option.opts, *option.secondary_opts)}

    def spell(name: str, value: str | None) -> str:
        option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
        flag = {"True": option, "False": option.replace("--", "--no-", 1)}.get(value or "")
        if flag in flags:
            return str(flag)
        if option not in options:
            return as_keyword(name, value)
        return option if value is None else f"{option} {value}"

    return spell


def text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def kind(file: Path) -> str:
    """Return the ending of a teacher's file; "server" for an address, "folder" for a model folder."""
    from consilience.teachers.remote import is_address

    if is_address(file):
        return "server"
    return "folder" if file.is_dir() else file.suffix.lower().removeprefix(".")


def shown(file: Path) -> str:
    """Return how a teacher's file is shown: an address by the name of its model, since outputs are shared."""
    from consilience.teachers.remote import address_name, is_address

    return address_name(file) if is_address(file) else str(file)


def read_data(
    path: Path, teachers: Sequence[Teacher], memory: str | None = None, drop: Sequence[str] | None = None
) -> Any:
    """Return the rows of --data, without those columns; in memory, if they are small.

    Cells of a .csv file are read as what these teachers take. A .txt file has a text per line.
    """
    from consilience.rows import memory_budget
    from consilience.rows.files import open_files
    from consilience.run import Run
    from consilience.teachers.given import column_kinds

    rows = open_files(path, "--data", column_kinds(teachers), drop or ())
    return rows.all(None) if _COPIES * rows.n_bytes <= memory_budget(Run(memory=memory)) else rows


def check_ending(out: Path | None, X: Any, student: str) -> None:
    """Raise if --out has not the ending of what the student is saved as; before teachers are asked."""
    from consilience.students.make import holds_texts

    texts = holds_texts(first_rows(X))
    if out is None or (texts and student not in ("auto", "ngrams")):  # a student that the library refuses
        return
    what, ending = ("A model of texts", ".npz") if texts else ("This model", ".onnx")
    if out.suffix.lower() != ending:
        raise InvalidInputError(f"{what} is written as {ending}: use --out {out.with_suffix(ending)}.")


def first_rows(X: Any) -> Any:
    """Return rows of the same kind as those of --data, in memory."""
    from consilience.rows import Rows

    return X.head if isinstance(X, Rows) else X


def open_teachers(files: Sequence[Path], given: Sequence[str] | None) -> list[Teacher]:
    """Make a teacher of each file, named by its stem, or by folder and stem if stems are not unique.

    A model folder has no stem: a dot in its name begins no ending.
    """
    from consilience.files import readers
    from consilience.teachers import as_teacher
    from consilience.teachers.remote import address_name, is_address

    stems = [
        address_name(file) if is_address(file) else file.absolute().name if file.is_dir() else file.stem
        for file in files
    ]
    names = [
        stem if stems.count(stem) == 1 or is_address(file) else f"{file.parent.name}/{stem}"
        for file, stem in zip(files, stems, strict=True)
    ]
    repeated = [file for i, file in enumerate(files) if names[i] in names[:i]]
    if repeated:
        raise InvalidInputError(f"{shown(repeated[0])} is given twice, or has the name of another teacher.")
    classes = readers.parse_classes(given or (), names)
    return [as_teacher(file, classes.get(name), name) for file, name in zip(files, names, strict=True)]
