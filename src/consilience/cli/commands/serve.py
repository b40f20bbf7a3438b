"""``consilience serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.app import Json, app


@app.command()
def serve(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="What unify or distil wrote: .onnx or .npz.")
    ],
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write a model repository for Triton, KServe and MLServer here, and stop."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the model. [default: the file's, without its ending]")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where to listen. With the default, only this machine can reach it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Where to listen; 0 takes a free port.")] = 8080,
    as_json: Json = False,
) -> None:
    """Serve a saved model by the Open Inference Protocol, for trying; or write what other servers need.

    \b
    Example:
        consilience serve unified.onnx
        consilience inspect http://127.0.0.1:8080/v2/models/unified
        consilience serve unified.onnx --write repository
    """
    from consilience._validation import check_count
    from consilience.cli import console
    from consilience.students.server import ModelServer, ServedModel, write_repository

    check_count("port", port, at_least=0, at_most=65535)
    if write is not None:
        folder = write_repository(model, write, name)
        view = {"model": str(model), "folder": str(folder)}
        show = console.show_json if as_json else lambda found: print(f"{found['folder']} is written.")
        show(view)
        return
    with ModelServer(ServedModel(model, name), host, port) as server:
        if as_json:
            console.show_json({"model": str(model), "url": server.url})
        else:
            print(f"The model is at {server.url}. Stop with Ctrl-C.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
