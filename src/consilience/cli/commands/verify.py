"""``consilience verify``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from consilience.cli.app import Json, app


@app.command()
def verify(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="What unify or distil wrote: .onnx or .npz.")
    ],
    teacher: Annotated[
        list[Path] | None,
        typer.Option(
            "--teacher", "-t", metavar="FILE", help="Check that the model was made from this teacher. Repeat."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check that the model learnt from these rows.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a saved model against its card, and run it. Exits with code 1 if a check fails.

    \b
    Example:
        consilience verify unified.onnx
        consilience verify unified.onnx --teacher birds.onnx --teacher pets.onnx --data X.csv
    """
    from consilience.cli import console
    from consilience.rows.files import open_files
    from consilience.students.verify import verify_model

    rows = None if data is None else open_files(data, "--data").all(None)
    found = verify_model(model, teachers=teacher or (), X=rows)
    view = {"model": str(model), **found.to_dict()}
    (console.show_json if as_json else show_checks)(view)
    if not found.passed:
        raise typer.Exit(1)


def show_checks(view: Mapping[str, Any]) -> None:
    """Draw the result of `Verification.to_dict`."""
    from consilience._words import counted
    from consilience.cli import console

    out = console.console()
    table = console.plain_table("check", "result", "what was found")
    words = {True: "passed", False: "[bold red]failed[/]", None: "not checked"}
    for check in view["checks"]:
        table.add_row(check["name"], words[check["passed"]], console.escape(check["found"]))
    out.print(table)
    failed = sum(check["passed"] is False for check in view["checks"])
    out.print(f"{counted(failed, 'check')} failed." if failed else "The model is what its card says.")
