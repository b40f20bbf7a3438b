"""What users give as X, as rows in memory or as a source."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._sizes import parse_size, size_text
from consilience._tables import as_rows
from consilience.exceptions import InvalidInputError
from consilience.rows.arrow import as_arrow_source
from consilience.rows.batches import comes_in_batches, keep_batches
from consilience.rows.files import open_files
from consilience.rows.ray import as_ray_source
from consilience.rows.source import Source

SHARE_OF_MACHINE = 0.25
"""By default, work may take this share of the memory."""


def as_source(X: Any, option: str = "X") -> Source | None:
    """Return the source of rows that lie elsewhere, or None if X holds rows itself.

    Parameters
    ----------
    X : path, list of paths, dataset (Arrow, Hugging Face, Ray), iterator of batches, Source, or rows
        A path names a file, a folder of files, or several by a pattern such as ``"rows/*.parquet"``.
    option : str
        What named it, for messages.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/rows.npy", np.zeros((1000, 4), dtype=np.float32))
    >>> len(as_source(f"{folder}/rows.npy"))
    1000
    """
    if isinstance(X, Source):
        return X
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
    return as_arrow_source(X) if found is None else found


def as_rows_or_source(X: Any, option: str = "X") -> Any:
    """Return the source of rows that lie elsewhere, and other rows as `as_rows` gives them."""
    source = as_source(X, option)
    return as_rows(X) if source is None else source


def rows_that_fit(
    X: Any, first: NDArray[np.bool_], memory: Any, seed: int, most_others: int | None = None
) -> tuple[Any, NDArray[np.intp] | None]:
    """Return rows in memory: those of a source that are wanted first, and as many random others as fit.

    Parameters
    ----------
    X : rows or Source
    first : (n,) array of bool
        Rows to take before others, such as those with a label.
    memory : int, str or None
        The budget; see `memory_budget`. A quarter of it is for the rows.
    seed : int
    most_others : int, optional
        Most other rows, if not all rows fit.

    Returns
    -------
    rows : array, data frame or list
    places : (k,) array of int or None
        Their positions, in order; None if these are all.
    """
    if not isinstance(X, Source):
        return X, None
    most = max(1, int(memory_budget(memory) / 4 * len(X) / max(1, X.n_bytes)))
    if len(X) <= most:
        return X.read_all(), None
    random = np.random.default_rng(seed)
    chosen, others = np.flatnonzero(first), np.flatnonzero(~first)
    if len(chosen) > most:
        chosen = random.choice(chosen, most, replace=False)
    room = most - len(chosen) if most_others is None else min(most - len(chosen), most_others)
    rest = random.choice(others, min(len(others), room), replace=False)
    places = np.sort(np.concatenate([chosen, rest]))
    return X.take(places), places


def rows_in_memory(X: Any, memory: Any, option: str = "X") -> Any:
    """Return rows in memory, for work that needs all of them at once; raise where they do not fit.

    Parameters
    ----------
    X : rows, or anything that `as_source` takes
    memory : int, str or None
        The budget; see `memory_budget`.
    option : str
        What named X, for messages.
    """
    source = as_source(X, option)
    if source is None:
        return as_rows(X)
    budget = memory_budget(memory)
    if source.n_bytes > budget:
        raise InvalidInputError(
            f"This needs all rows in memory: {option} has {len(source):,} rows of about "
            f"{size_text(source.n_bytes)}, and memory is {size_text(budget)}. Give fewer rows, or more."
        )
    return source.read_all()


def memory_budget(memory: Any = None) -> int:
    """Return how many bytes work may take: a size such as ``"2GB"``, or by default a quarter of the machine.

    Examples
    --------
    >>> memory_budget("2GB")
    2000000000
    """
    if memory is not None:
        return parse_size("memory", memory)
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else [2**33]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of the container, of either version
        try:
            limits.append(int(Path("/sys/fs/cgroup", name).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return int(SHARE_OF_MACHINE * min(limits))


def _names_files(text: str) -> bool:
    try:
        return Path(text).exists() or bool(glob.glob(text, recursive=True))
    except (OSError, ValueError):  # no name at all: too long, or with a zero byte
        return False
