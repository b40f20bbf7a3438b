"""``consilience cache``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from consilience.cli.app import Json, app
from consilience.exceptions import InvalidInputError


@app.command()
def cache(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="What --cache named: a folder, or a URL.")],
    limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Delete what was not used for longest, until at most this is left: 20GB."
        ),
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="Delete all that is stored, after a question.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Ask no question.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a cache holds: models, rows, bytes and last use; or make it smaller.

    \b
    Example:
        consilience cache scores
        consilience cache scores --limit 20GB
        consilience cache scores --clear
    """
    from consilience._words import size_text
    from consilience.cli import console
    from consilience.files.storage import storage_path
    from consilience.scoring.store import ScoreStore

    if clear and limit is not None:
        raise InvalidInputError("--clear and --limit exclude each other: --clear leaves nothing.")
    if not storage_path(folder).is_root():
        raise InvalidInputError(f"{folder} is not a folder. Give the folder that --cache named.")
    store = ScoreStore(folder)
    view = store.contents()
    before = view["n_bytes"] + view["n_bytes_trainings"]
    if clear:
        if not yes:
            _confirm(f"Delete {size_text(before)} in {folder}?")
        store.clear()
    elif limit is not None:
        store.trim(limit)
    view = store.contents()
    view["n_bytes_deleted"] = max(0, before - view["n_bytes"] - view["n_bytes_trainings"])
    (console.show_json if as_json else show_contents)(view)


def _confirm(question: str) -> None:
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:  # there is nobody to ask
        raise InvalidInputError("Nothing was deleted. To clear without a question, give --yes.") from None
    if not agreed:
        raise InvalidInputError("Nothing was deleted.")


def show_contents(view: Mapping[str, Any]) -> None:
    """Draw the result of `ScoreStore.contents`."""
    from consilience._words import counted, size_text
    from consilience.cli import console

    out = console.console()
    if view["n_bytes_deleted"]:
        out.print(f"{size_text(view['n_bytes_deleted'])} deleted.")
    if view["n_trainings"]:
        stopped = counted(view["n_trainings"], "stopped training")
        size = size_text(view["n_bytes_trainings"])
        out.print(f"{stopped}, {size}: the same command goes on with it; --clear deletes it.")
    if not view["models"]:
        if not view["n_trainings"]:
            out.print("The cache is empty.")
        return
    models = counted(len(view["models"]), "model")
    out.print(f"[bold]{models}, {view['n_rows']:,} rows, {size_text(view['n_bytes'])}[/]")
    table = console.plain_table("model", ">classes", ">rows", ">size", ">files", "last use")
    for model in view["models"]:
        cells = (
            model["teacher"] or f"unknown ({model['key'][:8]})",
            "" if model["n_classes"] is None else str(model["n_classes"]),
            f"{model['n_rows']:,}",
            size_text(model["n_bytes"]),
            str(model["n_files"]),
            (model["last_use"] or "")[:16].replace("T", " "),
        )
        table.add_row(*map(console.escape, cells))
    out.print(table)
