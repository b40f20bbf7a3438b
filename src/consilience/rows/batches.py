"""Rows that come in batches and only once: they are kept on disk, to be read again."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from consilience._dataset_rows import first_part
from consilience._optional import is_instance_of, require
from consilience._tables import as_frame, as_values, is_table
from consilience.exceptions import InvalidInputError
from consilience.files.spool import Spool
from consilience.rows.files import FileSource
from consilience.rows.rows import Rows, SpooledRows

_TEXT = "text"  # the column of texts


def comes_in_batches(X: Any) -> bool:
    """Tell whether X is a generator, another iterator, or a torch DataLoader."""
    is_iterator = hasattr(X, "__next__") and hasattr(X, "__iter__")
    return is_iterator or is_instance_of(X, "torch.utils.data", "DataLoader")


def keep_batches(batches: Iterable[Any]) -> Rows:
    """Return the rows of batches, written to temporary files: arrays, tables, or lists of texts.

    A batch that is a tuple (x, ...), or a list of this kind as a torch DataLoader makes it, counts with x.
    """
    loaded = is_instance_of(batches, "torch.utils.data", "DataLoader")
    parts = (_rows_of(batch, loaded) for batch in batches)
    first = next(parts, None)
    if first is None:
        raise InvalidInputError("X has no batches; expected at least one.")
    if is_table(first):
        return _KeptTables(first, parts)
    if _are_texts(first):
        return _KeptTables(first, parts)
    return SpooledRows(_keep_arrays(first, parts))


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


def _keep_arrays(first: Any, parts: Iterator[Any]) -> Spool:
    values = _as_numbers(first, 0)
    spool = Spool(values.shape[1:], values.dtype)
    spool.append(values)
    for number, part in enumerate(parts, start=1):
        more = _as_numbers(part, number)
        if more.shape[1:] != values.shape[1:] or more.dtype != values.dtype:
            raise InvalidInputError(
                f"Batch {number} of X has rows of {more.dtype} {more.shape[1:]}, and the first of "
                f"{values.dtype} {values.shape[1:]}. Give batches of one kind."
            )
        spool.append(more)
    return spool


def _as_numbers(batch: Any, number: int) -> Any:
    values = batch.detach().cpu().numpy() if hasattr(batch, "detach") else np.asarray(batch)
    if values.ndim < 2 or values.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"Batch {number} of X is a {type(batch).__name__} ({values.dtype}, shape {values.shape}); "
            "expected an array (n, ...) of numbers, a table, or a list of texts."
        )
    return values


class _KeptTables(Rows):
    """Tables or texts in a temporary parquet file, which is gone with this object."""

    local = True

    def __init__(self, first: Any, parts: Iterator[Any]) -> None:
        arrow = require("pyarrow", extra="tables", purpose="Batches of tables or texts")
        parquet = require("pyarrow.parquet", extra="tables", purpose="Batches of tables or texts")
        self._texts = isinstance(first, list)
        folder = tempfile.mkdtemp(prefix="consilience-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = Path(folder) / "rows.parquet"
        table = self._as_arrow(arrow, first)
        with parquet.ParquetWriter(path, table.schema) as writer:
            writer.write_table(table)
            for number, part in enumerate(parts, start=1):
                try:
                    more = self._as_arrow(arrow, part)
                    if set(more.column_names) == set(table.column_names):
                        more = more.select(table.column_names)  # columns may come in another order
                    writer.write_table(more.cast(table.schema))
                except (ValueError, TypeError, KeyError, NotImplementedError) as error:
                    raise InvalidInputError(
                        f"Batch {number} of X does not fit the first: {error}. Give batches of one kind."
                    ) from error
        self._source = FileSource([path])
        self.borders = self._source.borders

    def read(self, block: int) -> Any:
        """Return the rows of one block."""
        frame = self._source.read(block)
        return frame[_TEXT].tolist() if self._texts else frame

    def _as_arrow(self, arrow: Any, part: Any) -> Any:
        if self._texts:
            return arrow.table({_TEXT: arrow.array(part, arrow.string())})
        return arrow.Table.from_pandas(as_frame(part), preserve_index=False)
