"""Rows that come in batches and only once: they are kept on disk, to be read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from consilience._dataset_rows import first_part
from consilience._optional import is_instance_of, require
from consilience._tables import as_values, is_table, to_arrow
from consilience.exceptions import InvalidInputError
from consilience.files.spool import Spool
from consilience.rows.arrow import KeptTable, TableRows
from consilience.rows.rows import Rows, SpooledRows


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
    if is_table(first) or _are_texts(first):
        return _keep_tables(first, parts)
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


def _keep_tables(first: Any, parts: Iterator[Any]) -> Rows:
    table = _as_arrow(first)
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
