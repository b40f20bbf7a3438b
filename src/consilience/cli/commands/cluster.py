"""``consilience cluster``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.app import Json, Quiet, Report, app, check_report, fit_on, text


@app.command()
def cluster(
    data: Annotated[
        Path, typer.Option(metavar="FILE", help="Rows: .npy, .npz (key X), .csv or .parquet of numbers.")
    ],
    clusters: Annotated[int, typer.Option(help="How many clusters to find.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Write each row's cluster here: .npy or .csv.")],
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
            metavar="FILE", help="True classes, to measure accuracy, NMI and ARI; never used to learn."
        ),
    ] = None,
    loss: Annotated[str, typer.Option(help="One of collision, mi, sela, mi-adm, iic.")] = "collision",
    lam: Annotated[
        float | None, typer.Option(help="How strongly equal sizes are enforced; about 1 if sizes may differ.")
    ] = None,
    n_neighbors: Annotated[int, typer.Option(help="Neighbours to average predictions over.")] = 10,
    n_init: Annotated[int, typer.Option(help="Number of starts; the best is kept.")] = 10,
    max_iter: Annotated[int, typer.Option(help="Most rounds of training.")] = 100,
    jobs: Annotated[
        int, typer.Option(help="How many models to train at a time, if some classes have labels.")
    ] = 1,
    report: Report = None,
    seed: Annotated[int, typer.Option(help="Makes the clusters reproducible.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find classes in rows with no labels, or with few.

    \b
    Example:
        consilience cluster --data X.npy --clusters 10 --out labels.npy
        consilience cluster --data X.csv --clusters 10 --out labels.csv --labels partial.npy --truth y.npy
    """
    from consilience._validation import check_choice, check_count
    from consilience.cli import console
    from consilience.cluster.clustering import CollisionClustering
    from consilience.cluster.options import LOSSES, Linear
    from consilience.files import readers
    from consilience.rows.files import open_files
    from consilience.run import Run

    readers.check_target(out, (".npy", ".csv"), "--out", [data, labels, truth])
    check_report(report)
    check_count("seed", seed, at_least=0)
    check_count("n_jobs", jobs)
    check_choice("loss", loss, LOSSES)
    rows = open_files(data, "--data").all(None)
    X = rows.reshape(len(rows), -1) if rows.ndim > 2 else rows
    y = None if labels is None else readers.read_labels(labels, len(X), "--labels")
    classes = None if truth is None else readers.read_labels(truth, len(X), "--truth")
    with console.progress_bars(quiet=quiet) as progress:
        model = CollisionClustering(
            clusters,
            loss if lam is None else LOSSES[loss]().set_params(lam=lam),
            Linear(max_iter=max_iter),
            n_neighbors=n_neighbors,
            n_init=n_init,
            random_state=seed,
            run=Run(n_jobs=jobs, progress=progress),
        )
        fit_on(model, X, y, data, "The model")
    readers.write_clusters(out, model.labels_)
    if report is not None:
        model.report(report, X, classes)
    view = console.clusters_view(model, X, y, classes) | {"out": str(out), "report": text(report)}
    (console.show_json if as_json else console.show_clusters)(view)
