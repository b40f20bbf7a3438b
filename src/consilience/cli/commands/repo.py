"""``consilience repo``: a repository of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.cli.app import Cache, Json, Quiet, Seed, app
from consilience.cli.command import App
from consilience.exceptions import InvalidInputError

if TYPE_CHECKING:
    from consilience.repository import Repository

repo = App(
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.add_typer(repo, name="repo")

Folder = Annotated[
    str, typer.Argument(metavar="FOLDER", help="The repository; or a URL, such as s3://bucket/models.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A model of the repository.")]
Reference = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Keep these rows, without labels, as reference rows for search."),
]


@repo.callback()
def _about() -> None:
    """Keep models in a repository, and find those that help.

    \b
    Example:
        consilience repo add models birds.onnx --task birds --licence MIT
        consilience repo list models
        consilience repo search models --data X.npy --labels y.npy
    """


@repo.command()
def add(
    folder: Folder,
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model: .onnx, .skops, .npz (of texts), or a folder.")
    ],
    name: Annotated[str | None, typer.Option(help="Its name. [default: the file's, without ending]")] = None,
    classes: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Its classes, in column order, if the file does not name them."),
    ] = None,
    task: Annotated[str, typer.Option(help="What it is for, in a few words.")] = "",
    licence: Annotated[str, typer.Option(help="Under which terms it may be used.")] = "",
    source: Annotated[str, typer.Option(help="Where it comes from: a public address or a sentence.")] = "",
    description: Annotated[str, typer.Option(help="A sentence for people.")] = "",
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="How good it is, such as accuracy=0.93. Repeat."),
    ] = None,
    reference: Reference = None,
    as_json: Json = False,
) -> None:
    """Add a model, with its card. It is there as a whole or not at all.

    \b
    Example:
        consilience repo add models birds.onnx --task birds --licence MIT --metric accuracy=0.93
    """
    from consilience.cli import console
    from consilience.files.readers import numbers_or_text
    from consilience.repository import Repository
    from consilience.repository.listing import shown_entry

    names = None if classes is None else numbers_or_text([part.strip() for part in classes.split(",")])
    entry = Repository(folder).add(
        model,
        names,
        name,
        task=task,
        licence=licence,
        source=source,
        description=description,
        metrics=_metrics(metric or ()),
        reference=_rows(reference, "--reference"),
    )
    _show(as_json, entry.to_dict(), shown_entry(entry), console)


@repo.command()
def remove(folder: Folder, name: Name, as_json: Json = False) -> None:
    """Remove a model and everything that is kept of it.

    \b
    Example:
        consilience repo remove models birds
    """
    from consilience.cli import console

    _open(folder).remove(name)
    _show(as_json, {"removed": name}, f"{name} is removed.", console)


@repo.command("list")
def list_models(
    folder: Folder,
    knows: Annotated[
        list[str] | None, typer.Option("--class", metavar="CLASS", help="Models that know this. Repeat.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Models of this task.")] = None,
    licence: Annotated[str | None, typer.Option(help="Models of this licence.")] = None,
    as_json: Json = False,
) -> None:
    """List the models.

    \b
    Example:
        consilience repo list models
        consilience repo list models --class crow --licence MIT
    """
    from consilience.cli import console
    from consilience.files.readers import numbers_or_text

    wanted = numbers_or_text(knows) if knows else None
    found = _open(folder).list(classes=wanted, task=task, licence=licence)
    _show(as_json, found.to_dict(), repr(found), console)


@repo.command()
def show(folder: Folder, name: Name, as_json: Json = False) -> None:
    """Show all that is known of one model, and where its file is.

    \b
    Example:
        consilience repo show models birds
    """
    from consilience.cli import console
    from consilience.repository.listing import shown_entry

    opened = _open(folder)
    entry, path = opened.show(name), str(opened.path(name))
    _show(as_json, entry.to_dict() | {"path": path}, f"{shown_entry(entry)}\n  path: {path}", console)


@repo.command()
def search(
    folder: Folder,
    data: Annotated[Path, typer.Option(metavar="FILE", help="Rows of your task.")],
    labels: Annotated[Path, typer.Option(metavar="FILE", help="The class of each row; any classes.")],
    top: Annotated[int, typer.Option(help="How many models are run.")] = 5,
    cache: Cache = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the models that help most with your classes; only the most promising are run.

    \b
    Example:
        consilience repo search models --data X.npy --labels y.npy --top 5
    """
    from consilience.cli import console
    from consilience.files import readers
    from consilience.rows.files import open_files

    opened = _open(folder)
    X = open_files(data, "--data").all(None)
    y = readers.read_labels(labels, len(X), "--labels")
    with console.progress_bars(quiet=quiet) as progress:
        found = opened.search(X, y, top, cache=cache, progress=progress, random_state=seed)
    _show(as_json, found.to_dict() | {"seed": seed}, repr(found), console)


@repo.command()
def verify(folder: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Compare every file with the checksum on its card. Exits with code 1 if something is wrong.

    \b
    Example:
        consilience repo verify models
    """
    from consilience.cli import console

    with console.progress_bars(quiet=quiet) as progress:
        found = _open(folder).verify(progress=progress)
    _show(as_json, found.to_dict(), repr(found), console)
    if not found.passed:
        raise typer.Exit(1)


@repo.command()
def describe(
    folder: Folder, reference: Reference = None, as_json: Json = False, quiet: Quiet = False
) -> None:
    """Run each model once over the reference rows, so that search can compare them.

    \b
    Example:
        consilience repo describe models --reference rows.npy
    """
    from consilience.cli import console

    opened, rows = _open(folder), _rows(reference, "--reference")
    if rows is not None:
        opened.set_reference(rows)
    with console.progress_bars(quiet=quiet) as progress:
        found = opened.describe(progress=progress)
    _show(as_json, {"described": list(found.done), "failed": dict(found.failed)}, repr(found), console)


@repo.command()
def cover(
    folder: Folder,
    classes: Annotated[list[str], typer.Argument(metavar="CLASS...", help="The classes that are wanted.")],
    cost: Annotated[str, typer.Option(help="What a model costs: size, or a metric on its card.")] = "size",
    connected: Annotated[
        bool,
        typer.Option(help="Whether shared classes must connect the models, so that unify is determined."),
    ] = True,
    as_json: Json = False,
) -> None:
    """Find a small, cheap set of models that together know some classes.

    \b
    Example:
        consilience repo cover models cat tram
    """
    from consilience.cli import console
    from consilience.files.readers import numbers_or_text

    opened = _open(folder)
    names = opened.cover_names(numbers_or_text(classes), cost=cost, connected=connected)
    paths = {name: str(opened.path(name)) for name in names}
    _show(as_json, {"models": paths}, "\n".join(f"{name}  {path}" for name, path in paths.items()), console)


def _open(folder: str) -> Repository:
    from consilience.files.storage import storage_path
    from consilience.repository import Repository

    if not storage_path(folder).is_root():
        raise InvalidInputError(f"{folder} is not a folder. Make a repository with consilience repo add.")
    return Repository(folder)


def _rows(file: Path | None, option: str) -> Any:
    from consilience.rows.files import open_files

    return None if file is None else open_files(file, option).all(None)


def _metrics(given: Sequence[str]) -> dict[str, float]:
    found = {}
    for text in given:
        name, _, number = text.partition("=")
        try:
            found[name] = float(number)
        except ValueError:
            raise InvalidInputError(f"--metric {text} must be NAME=NUMBER, such as accuracy=0.93.") from None
    return found


def _show(as_json: bool, view: Mapping[str, Any], text: str, console: Any) -> None:
    if as_json:
        console.show_json(view)
    else:
        for line in text.split("\n"):  # our own lines; what strangers wrote has none
            console.console().print(console.escape(line), soft_wrap=True)
