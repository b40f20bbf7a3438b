"""Whatever users give as X, as `Rows`."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._dataset_rows import first_part
from consilience._optional import is_instance_of, require
from consilience._tables import as_values, is_table, to_arrow
from consilience.exceptions import InvalidInputError
from consilience.rows.files import open_files
from consilience.rows.memory import growing, memory_budget
from consilience.rows.parts import PURPOSE, TableRows
from consilience.rows.ray import as_ray_source
from consilience.rows.rows import HeldRows, Rows
from consilience.run import Run

_DATASETS = (
    ("pyarrow.dataset", "Dataset"),
    ("datasets", "Dataset"),
    ("datasets", "DatasetDict"),
    ("datasets", "IterableDataset"),
)


def as_rows(X: Any, option: str = "X") -> Rows:
    """Return whatever X is as `Rows`, to be read block by block; a small array is one block.

    Parameters
    ----------
    X : array, data frame, list, path, list of paths, dataset, iterator of batches, or Rows
        A path names a file, a folder of files, or several by a pattern such as ``"rows/*.parquet"``. A
        dataset is one of Arrow, Hugging Face, Ray or torch.
    option : str
        What named it, for messages.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/rows.npy", np.zeros((1000, 4), dtype=np.float32))
    >>> len(as_rows(f"{folder}/rows.npy"))
    1000
    >>> as_rows(np.eye(3)).n_blocks
    1
    """
    if isinstance(X, Rows):
        return X
    rows = _elsewhere(X, option)
    rows = HeldRows(X) if rows is None else rows
    rows.option = option
    return rows


def _elsewhere(X: Any, option: str) -> Rows | None:
    """Return rows that lie elsewhere, or None if X holds rows itself."""
    if isinstance(X, os.PathLike) or (isinstance(X, str) and X):
        if isinstance(X, str) and not _names_files(X):
            raise InvalidInputError(
                f"X is a single text, {X[:80]!r}; give a list of texts. If it is meant as a path: there is "
                "no file or folder of this name."
            )
        return open_files(X, option)
    if isinstance(X, list | tuple) and any(isinstance(path, os.PathLike) for path in X):
        if not all(isinstance(path, str | os.PathLike) for path in X):
            raise InvalidInputError(f"{option} is a list of paths and other things; give paths alone.")
        return open_files([Path(path) for path in X], option)
    if _comes_in_batches(X):
        return _keep_batches(X)
    found = as_ray_source(X)
    if found is not None or not any(is_instance_of(X, *kind) for kind in _DATASETS):
        return found
    require("pyarrow", extra="tables", purpose=PURPOSE)
    from consilience.rows.arrow import rows_of_dataset

    return rows_of_dataset(X)


def rows_that_fit(
    X: Any, first: NDArray[np.bool_], run: Run, seed: int, most_others: int | None = None
) -> tuple[Any, NDArray[np.intp] | None]:
    """Return rows in memory: those that are wanted first, and as many random others as fit.

    Parameters
    ----------
    X : rows or Rows
    first : (n,) array of bool
        Rows to take before others, such as those with a label.
    run : Run
        A quarter of its memory is for the rows.
    seed : int
    most_others : int, optional
        Most other rows, if not all rows fit.

    Returns
    -------
    rows : array, data frame or list
    places : (k,) array of int or None
        Their positions, in order; None if these are all.
    """
    if not isinstance(X, Rows):
        return X, None
    most = max(1, int(memory_budget(run) / 4 * len(X) / max(1, X.n_bytes)))
    if len(X) <= most:
        return X.all(None), None
    random = np.random.default_rng(seed)
    chosen, others = np.flatnonzero(first), np.flatnonzero(~first)
    if len(chosen) > most:
        chosen = random.choice(chosen, most, replace=False)
    room = most - len(chosen) if most_others is None else min(most - len(chosen), most_others)
    rest = random.choice(others, min(len(others), room), replace=False)
    places = np.sort(np.concatenate([chosen, rest]))
    return X.take(places), places


def _names_files(text: str) -> bool:
    try:
        return Path(text).exists() or bool(glob.glob(text, recursive=True))
    except (OSError, ValueError):  # no name at all: too long, or with a zero byte
        return False


def _comes_in_batches(X: Any) -> bool:
    """Tell whether X is a generator, another iterator, or a torch DataLoader."""
    is_iterator = hasattr(X, "__next__") and hasattr(X, "__iter__")
    return is_iterator or is_instance_of(X, "torch.utils.data", "DataLoader")


def _keep_batches(batches: Iterable[Any]) -> Rows:
    """Return the rows of batches, written to temporary files: arrays, tables, or lists of texts.

    A batch that is a tuple (x, ...), or a list of this kind as a torch DataLoader makes it, counts with x.
    """
    loaded = is_instance_of(batches, "torch.utils.data", "DataLoader")
    parts = (_rows_of(batch, loaded) for batch in batches)
    first = next(parts, None)
    if first is None:
        raise InvalidInputError("X has no batches; expected at least one.")
    if is_table(first) or _are_texts(first):
        return _keep_tables(first, parts)
    return _keep_arrays(first, parts)


def _rows_of(batch: Any, loaded: bool) -> Any:
    """Return the rows of a batch; `loaded` by a torch DataLoader, which makes lists of tuples."""
    if loaded and isinstance(batch, list) and not _are_texts(batch):
        batch = tuple(batch)
    rows = first_part(batch)
    if isinstance(rows, tuple):
        rows = list(rows)
    elif getattr(rows, "ndim", None) == 1 and not is_instance_of(rows, "torch", "Tensor"):
        texts = rows.tolist() if hasattr(rows, "tolist") else rows  # in an array or a series
        rows = texts if _are_texts(texts) else rows
    return as_values(rows)


def _are_texts(batch: Any) -> bool:
    return isinstance(batch, list) and bool(batch) and all(isinstance(text, str) for text in batch)


def _keep_arrays(first: Any, parts: Iterator[Any]) -> Rows:
    """Write arrays one after the other to a file without a name, from which all are mapped."""
    kind = _as_numbers(first, 0)
    count = 0
    with tempfile.TemporaryFile() as file, growing():
        for number, part in enumerate(chain([first], parts)):
            values = _as_numbers(part, number)
            if values.shape[1:] != kind.shape[1:] or values.dtype != kind.dtype:
                raise InvalidInputError(
                    f"Batch {number} of X has rows of {values.dtype} {values.shape[1:]}, and the first of "
                    f"{kind.dtype} {kind.shape[1:]}. Give batches of one kind."
                )
            values.tofile(file)
            count += len(values)
        file.flush()
        return HeldRows(np.memmap(file, kind.dtype, "r", shape=(count, *kind.shape[1:])), held=False)


def _as_numbers(batch: Any, number: int) -> Any:
    values = batch.detach().cpu().numpy() if hasattr(batch, "detach") else np.asarray(batch)
    if values.ndim < 2 or values.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"Batch {number} of X is a {type(batch).__name__} ({values.dtype}, shape {values.shape}); "
            "expected an array (n, ...) of numbers, a table, or a list of texts."
        )
    return values


def _keep_tables(first: Any, parts: Iterator[Any]) -> Rows:
    table = _as_arrow(first)
    from consilience.rows.arrow import KeptTable

    kept = KeptTable(table.schema)
    kept.append(table)
    for number, part in enumerate(parts, start=1):
        try:
            more = _as_arrow(part, texts=isinstance(first, list))
            if set(more.column_names) == set(table.column_names):
                more = more.select(table.column_names)  # columns may come in another order
            kept.append(more.cast(table.schema))
        except (ValueError, TypeError, KeyError, NotImplementedError) as error:
            raise InvalidInputError(
                f"Batch {number} of X does not fit the first: {error}. Give batches of one kind."
            ) from error
    kept.close()
    rows = TableRows([kept], table.schema, kept.gaps, texts=isinstance(first, list))
    rows.local = True
    return rows


def _as_arrow(part: Any, *, texts: bool = False) -> Any:
    arrow = require("pyarrow", extra="tables", purpose="Batches of tables or texts")
    if texts or isinstance(part, list):
        return arrow.table({"text": arrow.array(part, arrow.string())})
    return to_arrow(part)
