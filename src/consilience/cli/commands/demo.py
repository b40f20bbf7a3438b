"""``consilience demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.app import Json, Quiet, app, text


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Makes the run reproducible.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the comparison (.png, .svg or .pdf).")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.onnx", help="Save the best unified model as ONNX.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Compare every method; takes a minute.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Unify five private classifiers of handwritten digits, and compare the result with naive distillation.

    \b
    Example:
        consilience demo
        consilience demo --all
        consilience demo --seed 1 --plot demo.png --save digits.onnx
    """
    from consilience._validation import check_count
    from consilience._words import visible
    from consilience.cli import console, figures
    from consilience.files import readers

    check_count("seed", seed, at_least=0)
    readers.check_target(plot, figures.FORMATS, "--plot")
    readers.check_target(save, (".onnx",), "--save")
    if plot is not None:
        figures.check_figure_path(plot)
    from consilience.cli.demo import ALL, SOME, run_demo

    with console.progress_bars(quiet=quiet) as progress:
        result = run_demo(seed, variants=tuple(ALL) if every else SOME, progress=progress)
    view = {**result.to_dict(), "all": every, "plot": text(plot), "model": text(save)}
    if save is not None and result.best_model is not None:
        result.best_model.save(save)
    if plot is not None:
        figures.draw_demo(figures.demo_figure(view), plot)
    if as_json:
        console.show_json(view)
        return
    console.show_demo(view)
    for what, path in (("The figure", plot), (f"The model of {view['best']}", save)):
        if path is not None:
            print(f"{what} is in {visible(str(path))}.")
