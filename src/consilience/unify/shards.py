"""Soft labels of any number of rows, as a folder of parquet files, each written where it is computed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience._progress import Progress, silent
from consilience.exceptions import InvalidInputError
from consilience.files.atomic import replacing
from consilience.kernels.arrays import Floats
from consilience.labels import LabelSpace
from consilience.rows import HeldRows, Rows, as_rows
from consilience.scoring.engines import BlockEngine, check_engine, engine_for
from consilience.scoring.store import ScoreStore, as_store
from consilience.soft_labels.estimate import Method, check_options
from consilience.soft_labels.methods import METHODS, Lateness, Options
from consilience.soft_labels.solver import SoftLabelSolver, check_size, rows_to_compare
from consilience.teachers import Teacher
from consilience.teachers.given import open_teachers

ROW = "row"
"""The column that holds the position of a row in X."""


@dataclass(frozen=True)
class WrittenLabels:
    """What was written.

    Attributes
    ----------
    folder : Path
    n_rows : int
    n_shards : int
        How many files.
    classes : (L,) array
        Each is a column of the files.
    """

    folder: Path
    n_rows: int
    n_shards: int
    classes: NDArray[Any]


def write_soft_labels(
    folder: str | os.PathLike[str],
    teachers: Any,
    X: Any,
    method: Method = "auto",
    *,
    temperature: Any = "auto",
    tol: float | None = None,
    max_iter: int | None = None,
    off_set: bool = False,
    batch_size: int = 4096,
    cache: ScoreStore | str | os.PathLike[str] | None = None,
    engine: str = "local",
    engine_options: Mapping[str, Any] | None = None,
    progress: Progress = silent,
) -> WrittenLabels:
    """Write soft labels of all rows to a folder of parquet files, in the pass that scores the rows.

    With ``engine="ray"`` the workers write them: neither logits nor soft labels travel. Each file has a
    column ``row`` with positions in X, and a column of probabilities (float32) for each class. The files are
    named by their first row, so a run that is repeated writes the same files again.

    Parameters
    ----------
    folder : path
        Missing, empty, or left by a run on the same rows that was stopped. With Ray, on storage that all
        machines share.
    teachers : sequence, dict, Ranking or teacher
        As in `Unifier`.
    X : rows, path, dataset or iterator of batches
        As in `Unifier`.
    method, temperature, tol, max_iter, off_set
        As in `estimate_soft_labels`, but no function of your own. The paper's methods solve each row by
        itself, in one pass. "auto" and "ranks" compare rows with up to 65,536 others, which are scored first.
    batch_size : int
        Rows per call of a teacher.
    cache : folder or ScoreStore, optional
        Keeps what teachers say: a run that was stopped goes on there.
    engine, engine_options
        Where teachers run; see docs/ray.md.
    progress : callable
        Called with ("scoring", rows done, rows in all), counted over all teachers.

    Returns
    -------
    WrittenLabels

    Examples
    --------
    >>> import tempfile
    >>> from consilience import as_teacher
    >>> teacher = as_teacher(lambda X: X[:, :2], ["a", "b"], output="logits", name="first columns")
    >>> written = write_soft_labels(tempfile.mkdtemp(), [teacher], np.eye(8), method="ce")
    >>> written.n_rows, written.classes.tolist()
    (8, ['a', 'b'])
    """
    require("pyarrow.parquet", extra="tables", purpose="Writing soft labels")
    if callable(method):
        raise InvalidInputError("method is a function; write_soft_labels takes the name of a method.")
    options = check_options(method, temperature, tol, max_iter, off_set)
    check_engine(engine, engine_options)
    source = as_rows(X)
    target = _folder(folder, source)
    names, opened, _ = open_teachers(teachers)
    space = LabelSpace([teacher.classes for teacher in opened], names=names)
    if ROW in [str(name) for name in space.classes.tolist()]:
        raise InvalidInputError(f"A class is called {ROW!r}, like the column of positions. Rename the class.")
    run, store = engine_for(engine, engine_options, source), as_store(cache)
    arguments: dict[str, Any] = {"batch_size": batch_size, "store": store, "progress": progress}
    compared = _compared(run, opened, space, source, method, arguments)
    solver = SoftLabelSolver(compared, space, method, options)
    write = _Writer(target, space.classes, solver, method, options)
    late, written = Lateness(), 0
    if len(compared) == len(source):  # all rows are scored already
        places = [source.rows_of(number) for number in range(source.n_blocks)]
        done: Iterator[Any] = ((rows, write(rows, compared[rows])) for rows in places)
    else:
        done = run(opened, space, source, finish=write, **arguments)
    for _, reached in done:
        known = reached[:, 0].astype(np.float64) if reached.shape[1] else None
        late.count(known, options.tol, len(reached))
        written += 1
    late.warn("ce" if method == "auto" else method, options, 3)
    return WrittenLabels(target, len(source), written, space.classes)


@dataclass(frozen=True)
class _Writer:
    """Solves a block and writes it, in this process or in a worker."""

    folder: Path
    classes: NDArray[Any]
    solver: SoftLabelSolver
    method: str
    options: Options

    def __call__(self, rows: slice, logits: NDArray[Any]) -> NDArray[np.float32]:
        """Return what the stopping rule reached (b, 1), or (b, 0) if the method has none."""
        import pyarrow
        import pyarrow.parquet

        packed = logits.astype(np.float64)
        check_size("logits", packed, self.method, self.options)
        Q, reached = self.solver.solve(packed)
        columns = np.ascontiguousarray(Q.T, dtype=np.float32)
        names = [str(name) for name in self.classes.tolist()]
        table = pyarrow.table(
            {ROW: np.arange(rows.start, rows.stop), **dict(zip(names, columns, strict=True))}
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self.folder / _shard(rows.start)) as file:
            pyarrow.parquet.write_table(table, file)
        return np.empty((len(Q), 0), np.float32) if reached is None else reached[:, None].astype(np.float32)


def _compared(
    run: BlockEngine,
    teachers: list[Teacher],
    space: LabelSpace,
    source: Rows,
    method: str,
    arguments: dict[str, Any],
) -> Floats:
    """Return the packed logits of the rows that others are compared with; none for methods by row."""
    if method in METHODS:
        return np.empty((0, space.n_columns))
    rows = rows_to_compare(len(source), space.n_columns)
    if rows is not None and any(teacher.part(slice(0, 0)) is not None for teacher in teachers):
        raise InvalidInputError(
            f"X has {len(source):,} rows, and some teachers are precomputed outputs. {{argument}} compares a "
            "sample of the rows; use {remedy}, which solves each row by itself.",
            argument="method",
            value=method,
            remedy=("method", "mf-lf"),
        )
    some = source if rows is None else HeldRows(source.take(rows))
    packed = np.empty((len(some), space.n_columns))
    for number, logits in run(teachers, space, some, **arguments):
        packed[some.rows_of(number)] = logits
    return packed


def _folder(folder: str | os.PathLike[str], source: Rows) -> Path:
    """Return the folder, or raise if it holds anything but files that are written again."""
    target = Path(folder).absolute()
    shards = {_shard(int(start)) for start in source.borders[:-1]}
    if target.exists() and not target.is_dir():
        raise InvalidInputError(f"{str(folder)!r} is a file; give a folder for soft labels.")
    others = [path.name for path in target.iterdir() if path.name not in shards] if target.is_dir() else []
    others = [name for name in others if not name.startswith(".")]
    if others:
        raise InvalidInputError(
            f"The folder {str(folder)!r} holds {others[0]!r}, which is not of this run. Give a new folder."
        )
    return target


def _shard(start: int) -> str:
    return f"rows-{start:012d}.parquet"
