"""``consilience rank``."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.cli.app import (
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
    Teachers,
    app,
    check_cache,
    check_memory,
    check_report,
    engine_options,
    open_teachers,
    read_data,
)
from consilience.exceptions import InvalidInputError

if TYPE_CHECKING:
    from consilience.teachers import Teacher


@app.command()
def rank(
    teacher: Teachers,
    data: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Rows of your task: .npy, .npz (key X), .csv, .parquet or .txt (a text a line); a folder of "
            "such files or of images, or a pattern.",
        ),
    ],
    labels: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="The class of each row; any classes. Rows without one are left out."
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="transport, nce, leep, logme, h_score, n_leep, gbc, otce or transrate. "
            "Repeat for more columns; the first one ranks.  [default: transport]",
        ),
    ] = None,
    classes: Classes = None,
    embed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LAYER",
            help="The tensor of an ONNX graph that is the embedding of teacher NAME. "
            "Default: the input of its last layer.",
        ),
    ] = None,
    score: Annotated[
        str, typer.Option(help="The score of transport: likelihood, distance (the paper's eq. 24) or cost.")
    ] = "likelihood",
    temperature: Annotated[
        float, typer.Option(help="Temperature of both sides' probabilities. The paper uses 3.")
    ] = 1.0,
    bootstrap: Annotated[int, typer.Option(help="Number of resamples of the rows, for the intervals.")] = 200,
    memory: Memory = None,
    drop: Drop = None,
    cache: Cache = None,
    cache_limit: CacheLimit = None,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Also write the ranking to a .csv file.")
    ] = None,
    report: Report = None,
    seed: Annotated[int, typer.Option(help="Makes the intervals reproducible.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Rank teachers by how much each would help with your classes, even if it does not know them.

    \b
    Example:
        consilience rank --teacher birds.onnx --teacher pets.npz --data X.npy --labels y.npy
        consilience rank --teacher a.onnx --teacher b.onnx --data X.npy --labels y.csv \\
            --metric transport --metric logme --cache scores --csv ranking.csv
    """
    from consilience._validation import check_count
    from consilience.cli import console
    from consilience.files import readers
    from consilience.labels import read_labels
    from consilience.rank.rank import rank_teachers
    from consilience.run import Run

    readers.check_target(csv_file, (".csv",), "--csv", [data, labels], teacher)
    check_report(report)
    check_count("seed", seed, at_least=0)
    check_cache(cache, cache_limit)
    check_memory(memory)
    options = engine_options(engine, ray_address)
    sources = _sources(teacher, classes, embed)
    X = read_data(data, list(sources.values()), memory, drop)
    y = readers.read_labels(labels, len(X), "--labels")
    read_labels(y, len(X), where="--labels", at_least=2)  # says what is wrong in the option's name
    with console.progress_bars(quiet=quiet) as progress:
        ranking = rank_teachers(
            sources,
            X,
            y,
            metric=[_metric(name, score, temperature, bootstrap) for name in metric or ["transport"]],
            confidence=0.95 if bootstrap else None,
            random_state=seed,
            run=Run(
                memory=memory,
                cache=cache,
                cache_limit=cache_limit,
                engine=engine,
                engine_options=options,
                progress=progress,
            ),
        )
    view = ranking.to_dict() | {"seed": seed}
    if all(row["error"] is not None for row in view["teachers"]):
        first = view["teachers"][0]
        raise InvalidInputError(f"No teacher could be scored. {first['name']} {first['error']}")
    if csv_file is not None:
        write_ranking(csv_file, view)
    if report is not None:
        ranking.report(report)
    if as_json:
        console.show_json(view)
    else:
        console.console().print(console.escape(repr(ranking)), soft_wrap=True)


def _metric(name: str, score: str, temperature: float, bootstrap: int) -> Any:
    """Return a metric with its options."""
    from consilience.options import check_choice
    from consilience.rank.options import METRICS

    check_choice("metric", name, METRICS)
    options: dict[str, Any] = {"n_bootstrap": bootstrap} if bootstrap else {}
    if name == "transport":
        options |= {"score": score, "temperature": temperature}
    return METRICS[name](**options)


def _sources(
    files: Sequence[Path], classes: Sequence[str] | None, embed: Sequence[str] | None
) -> dict[str, Teacher]:
    """Return teachers by name."""
    from consilience.teachers import as_teacher

    teachers = open_teachers(files, classes)
    sources = {teacher.name: teacher for teacher in teachers}
    for name, layer in _layers(embed or (), list(sources)).items():
        place = list(sources).index(name)
        sources[name] = as_teacher(files[place], teachers[place].classes, name, embed=layer)
    return sources


def _layers(given: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the embedding of each teacher, from options such as ``birds=features``."""
    layers = {}
    for text in given:
        name, found, layer = text.partition("=")
        if not found or not layer or name not in names:
            raise InvalidInputError(
                f"--embed {text} must be NAME=LAYER with the name of a teacher: {', '.join(names)}."
            )
        layers[name] = layer
    return layers


def write_ranking(path: Path, view: Mapping[str, Any]) -> None:
    """Write the ranking to a .csv file, one line per teacher."""
    from consilience.files.disk import replacing

    others = [name for name in view["teachers"][0]["scores"] if name != view["metric"]]
    head = ["rank", "teacher", view["metric"], "low", "high", "wins", "seconds", *others, "warnings", "error"]
    with replacing(path) as file:
        lines = csv.writer(_Encoded(file), lineterminator="\n")
        lines.writerow(head)
        for row in view["teachers"]:
            cells = [row["rank"], row["name"], row["score"], *row["interval"], row["wins"], row["seconds"]]
            cells += [row["scores"].get(name) for name in others]
            lines.writerow([*cells, "; ".join(row["warnings"]), row["error"]])


class _Encoded:
    """Let csv write text to a binary file."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, text: str) -> None:
        self._file.write(text.encode())
