"""Whatever users give as X, as `Rows`."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._optional import is_instance_of, require
from consilience.exceptions import InvalidInputError
from consilience.rows.batches import comes_in_batches, keep_batches
from consilience.rows.files import open_files
from consilience.rows.memory import memory_budget
from consilience.rows.parts import PURPOSE
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
    if comes_in_batches(X):
        return keep_batches(X)
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
