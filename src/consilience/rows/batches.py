"""Rows that come in batches and only once: they are kept on disk, to be read again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from consilience._dataset_rows import first_part
from consilience._optional import is_instance_of, require
from consilience._tables import as_values, is_table, to_arrow
from consilience.exceptions import InvalidInputError
from consilience.rows.memory import growing
from consilience.rows.parts import TableRows
from consilience.rows.rows import HeldRows, Rows


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
