"""Rows in the memory of a Ray cluster: a Ray dataset, or rows of this process that workers have to see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from consilience._optional import is_instance_of, require
from consilience._validation import take_rows
from consilience.exceptions import InvalidInputError
from consilience.rows.rows import Rows, block_rows, bytes_of, cut, join_rows


class RaySource(Rows):
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

    def __init__(
        self, parts: Sequence[Any], counts: Sequence[int], most: int, *, texts: bool = False
    ) -> None:
        self._parts, self._texts = list(parts), texts
        self._starts = np.cumsum([0, *counts])
        self.borders = cut([int(self._starts[-1])], most)

    on_ray = True

    def read(self, block: int) -> Any:
        """Return the rows of one block."""
        import ray

        rows = self.rows_of(block)
        # a dataset may have many small parts: a block takes what it needs of each
        first = int(np.searchsorted(self._starts, rows.start, side="right")) - 1
        last = int(np.searchsorted(self._starts, rows.stop, side="left"))
        found = []
        for number, part in enumerate(ray.get(self._parts[first:last]), start=first):
            start = int(self._starts[number])
            found.append(take_rows(part, slice(max(0, rows.start - start), rows.stop - start)))
        joined = join_rows(found)
        if self._texts:
            return joined.iloc[:, 0].tolist()
        return joined.reset_index(drop=True) if hasattr(joined, "iloc") else joined


def as_ray_source(X: Any) -> Rows | None:
    """Return the source of a ``ray.data.Dataset``, or None if X is none. Ray is not imported for this.

    The dataset is executed once, in order, and stays in the object store of the cluster, which moves to disk
    what does not fit. A single column of arrays gives arrays, a single column of texts gives texts, and other
    columns give data frames.
    """
    if not is_instance_of(X, "ray.data", "Dataset"):
        return None
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
    measure = ray.remote(num_cpus=0)(_measure)
    counts, sizes = zip(*ray.get([measure.remote(part) for part in parts]), strict=True)
    texts = single and str(types[0]) in ("string", "large_string")
    return RaySource(parts, counts, block_rows(sum(sizes), sum(counts)), texts=texts)


def sent_to_ray(ray: Any, source: Rows) -> Rows:
    """Return a source that every machine can read: rows that lie in this process go to Ray's memory."""
    head = source.head  # is sent along, so that no worker reads it again
    if not source.local:
        return source
    parts = [ray.put(block.X) for block in source.blocks()]
    sent = RaySource(parts, np.diff(source.borders).tolist(), max(1, len(source)))
    sent.borders, sent.head = source.borders, head
    return sent


def _measure(rows: Any) -> tuple[int, int]:
    return len(rows), bytes_of(rows)
