"""Rows of torch and of Ray, and rows that come in batches."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience.exceptions import InvalidInputError
from consilience.rows.images import joined_images
from consilience.rows.rows import HeldRows, Rows, block_rows, bytes_of, cut, growing, join_rows, take_rows
from consilience.rows.tables import as_values, differ_in_size, is_instance_of, is_table, to_arrow


def open_rows(X: Any) -> Rows:
    """Return the rows of a dataset of torch or Ray, of a torch DataLoader, or of an iterator of batches."""
    if is_instance_of(X, "torch.utils.data", "Dataset"):
        return TorchRows(X)
    return _of_ray(X) if is_instance_of(X, "ray.data", "Dataset") else _keep_batches(X)


class TorchRows(Rows):
    """Rows of a map-style torch dataset. An item of it is a row x, or a tuple that begins with it.

    Rows are tensors, arrays or lists of numbers, all of one shape; or texts, or images (PIL, or arrays of
    uint8).
    """

    local = True

    def __init__(self, dataset: Any) -> None:
        problem = "" if hasattr(dataset, "__len__") else " without a length"
        if is_instance_of(dataset, "torch.utils.data", "IterableDataset"):
            problem = ", an IterableDataset, whose rows cannot be read by number"
        if problem:
            raise InvalidInputError(
                f"X is a {type(dataset).__name__}{problem}. Rows are read several times: give a map-style "
                "Dataset, with __len__ and __getitem__."
            )
        self._dataset, few = dataset, min(2, len(dataset))
        self.borders = cut([len(dataset)], block_rows(bytes_of(self.take(np.arange(few))), few))

    def read(self, block: int) -> Any:
        """Return the rows of one block: a tensor, an array, or a list of texts or images."""
        return self.take(np.arange(len(self))[self.rows_of(block)])

    def take(self, rows: NDArray[np.intp]) -> Any:
        """Return some rows, by their positions. Only their items are read."""
        places = rows.tolist()
        together = getattr(self._dataset, "__getitems__", None)
        items = together(places) if together else [self._dataset[place] for place in places]
        found = [_row_of(item) for item in items]
        if any(isinstance(row, str | bytes) for row in found):
            return found
        if differ_in_size(found):
            return joined_images(found)
        try:
            if found and all(is_instance_of(row, "torch", "Tensor") for row in found):
                return sys.modules["torch"].stack(found)
            values = np.asarray(found)
            if values.dtype.kind == "O":
                raise ValueError(f"items are {type(found[0]).__name__}")
        except (ValueError, TypeError, RuntimeError) as error:
            shapes = sorted({str(tuple(np.shape(row))) for row in found})
            raise InvalidInputError(
                f"The items of the dataset cannot be joined to a batch; their shapes are "
                f"{', '.join(shapes[:3])} ({error}). Pad or resize them to one shape in the dataset."
            ) from error
        return values


def _row_of(item: Any) -> Any:
    """Return the row of an item: its first part if it is a tuple."""
    if isinstance(item, Mapping):
        raise InvalidInputError(
            f"The items of the dataset are dictionaries with the keys {', '.join(map(repr, item))}. Wrap it "
            "in a dataset whose items are the row x, or a tuple (x, ...)."
        )
    if isinstance(item, tuple) and not item:
        raise InvalidInputError("An item of the dataset is an empty tuple; expected x or (x, ...).")
    return item[0] if isinstance(item, tuple) else item


class RayRows(Rows):
    """Parts of rows that Ray holds, in memory or on the disks of the cluster.

    Parameters
    ----------
    parts : list of ObjectRef
        Of arrays, data frames or other rows.
    counts : list of int
        The rows of each.
    most : int
        Most rows of a block.
    texts : bool
        Whether the rows are texts, in the only column of the data frames.
    """

    on_ray = True

    def __init__(
        self, parts: Sequence[Any], counts: Sequence[int], most: int, *, texts: bool = False
    ) -> None:
        self._parts, self._texts = list(parts), texts
        self._starts = np.cumsum([0, *counts])
        self.borders = cut([int(self._starts[-1])], most)

    def read(self, block: int) -> Any:
        """Return the rows of one block."""
        import ray

        rows = self.rows_of(block)
        # a dataset may have many small parts: a block takes what it needs of each
        first, last = np.searchsorted(self._starts, [rows.start + 1, rows.stop]) - [1, 0]
        parts = zip(self._starts[first:last].tolist(), ray.get(self._parts[first:last]), strict=True)
        joined = join_rows(
            [take_rows(part, slice(max(0, rows.start - start), rows.stop - start)) for start, part in parts]
        )
        if self._texts:
            return joined.iloc[:, 0].tolist()
        return joined.reset_index(drop=True) if hasattr(joined, "iloc") else joined


def _of_ray(X: Any) -> Rows:
    """Return the rows of a ``ray.data.Dataset``.

    The dataset is executed once, in order, and stays in the object store of the cluster, which moves to disk
    what does not fit. A single column of arrays gives arrays, a single column of texts gives texts, and other
    columns give data frames.
    """
    ray = require("ray", extra="ray", purpose="A Ray dataset")
    ordered, X.context.execution_options.preserve_order = X.context.execution_options.preserve_order, True
    try:
        rows = X.materialize()
    finally:
        X.context.execution_options.preserve_order = ordered
    if not rows.count():
        raise InvalidInputError("X is a Ray dataset without rows; expected at least one.")
    columns, types = rows.schema().names, rows.schema().types
    single = len(columns) == 1
    is_array = single and rows.take_batch(1)[columns[0]].ndim > 1
    parts = rows.to_numpy_refs(column=columns[0]) if is_array else rows.to_pandas_refs()
    measure = ray.remote(num_cpus=0)(lambda part: (len(part), bytes_of(part)))
    counts, sizes = zip(*ray.get([measure.remote(part) for part in parts]), strict=True)
    texts = single and str(types[0]) in ("string", "large_string")
    return RayRows(parts, counts, block_rows(sum(sizes), sum(counts)), texts=texts)


def sent_to_ray(ray: Any, rows: Rows) -> Rows:
    """Return rows that every machine can read: those that lie in this process go to Ray's memory."""
    head = rows.head  # is sent along, so that no worker reads it again
    if not rows.local:
        return rows
    sent = RayRows([ray.put(block.X) for block in rows.blocks()], np.diff(rows.borders).tolist(), len(rows))
    sent.borders, sent.head = rows.borders, head
    return sent


def _keep_batches(batches: Iterable[Any]) -> Rows:
    """Return the rows of batches, written to temporary files: arrays, tables, or lists of texts.

    A batch that is a tuple (x, ...), or a list of this kind as a torch DataLoader makes it, counts with x.
    """
    loaded = is_instance_of(batches, "torch.utils.data", "DataLoader")
    parts = (_batch_of(batch, loaded) for batch in batches)
    first = next(parts, None)
    if first is None:
        raise InvalidInputError("X has no batches; expected at least one.")
    keep = _keep_tables if is_table(first) or _are_texts(first) else _keep_arrays
    return keep(first, parts)


def _batch_of(batch: Any, loaded: bool) -> Any:
    """Return the rows of a batch; `loaded` by a torch DataLoader, which makes lists of tuples."""
    if loaded and isinstance(batch, list) and not _are_texts(batch):
        batch = tuple(batch)
    rows = as_values(_row_of(batch))
    texts = list(rows) if isinstance(rows, tuple) or getattr(rows, "ndim", 2) == 1 else rows
    return texts if _are_texts(texts) else rows


def _are_texts(batch: Any) -> bool:
    return isinstance(batch, list) and bool(batch) and all(isinstance(text, str) for text in batch)


def _keep_arrays(first: Any, parts: Iterator[Any]) -> Rows:
    """Write arrays one after the other to a file without a name, from which all are mapped."""
    count, kind = 0, ""
    with tempfile.TemporaryFile() as file, growing():
        for number, part in enumerate(chain([first], parts)):
            values = part.detach().cpu().numpy() if hasattr(part, "detach") else np.asarray(part)
            if values.ndim < 2 or values.dtype.kind not in "biuf":
                raise InvalidInputError(
                    f"Batch {number} of X is a {type(part).__name__} ({values.dtype}, shape {values.shape}); "
                    "expected an array (n, ...) of numbers, a table, or a list of texts."
                )
            found = f"{values.dtype} {values.shape[1:]}"
            kind = kind or found
            if found != kind:
                raise InvalidInputError(
                    f"Batch {number} of X has rows of {found}, and the first of {kind}. Give batches of one "
                    "kind."
                )
            values.tofile(file)
            count += len(values)
        file.flush()
        return HeldRows(np.memmap(file, values.dtype, "r", shape=(count, *values.shape[1:])), held=False)


def _keep_tables(first: Any, parts: Iterator[Any]) -> Rows:
    from consilience.rows.arrow import Sliced, TableRows, gaps_of, kept_table

    table = kept_table(_alike(chain([first], parts)))
    rows = TableRows([Sliced(table)], table.schema, gaps_of(table), texts=isinstance(first, list))
    rows.local = True
    return rows


def _alike(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield tables or texts as tables of Arrow with the columns of the first."""
    arrow, schema = require("pyarrow", extra="tables", purpose="Batches of tables or texts"), None
    for number, part in enumerate(parts):
        try:
            texts = isinstance(part, list)
            table = to_arrow({"text": arrow.array(part, arrow.string())} if texts else part)
            schema = schema or table.schema
            if set(table.column_names) == set(schema.names):
                table = table.select(schema.names)  # columns may come in another order
            table = table.cast(schema)
        except (ValueError, TypeError, KeyError, NotImplementedError) as error:
            raise InvalidInputError(
                f"Batch {number} of X does not fit the first: {error}. Give batches of one kind."
            ) from error
        yield table
