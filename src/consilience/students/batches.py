"""The rows of a network as tensors, read block by block and served in shuffled batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from consilience._validation import n_rows
from consilience._words import counted
from consilience.exceptions import InvalidInputError
from consilience.rows.tables import as_values
from consilience.rows.targets import (
    BUFFER,
    SAMPLED,
    Epochs,
    TargetRows,
    in_random_order,
    look_at,
)

if TYPE_CHECKING:
    from consilience.students.network import Network

Preprocess = Callable[[Any], Any]
Pair = tuple[Tensor, Tensor]
EPOCHS = 50
"""The most epochs of a student that does not say how many."""
EXAMPLE_ROWS = 64
"""Rows to look at if no mean and scale are wanted."""


class Plan(NamedTuple):
    """What a network trains on, and for how long."""

    rows: Tensor  # some of them: for the shape, the type, and mean and scale
    batches: ShuffledBatches
    measured: Pair | None  # held-out rows and their targets
    epochs: Epochs


def plan_training(student: Network, rows: TargetRows, seed: int, place: int = 0, workers: int = 1) -> Plan:
    """Hold rows out, and plan the training of a student on all others.

    Parameters
    ----------
    student : Network
    rows : TargetRows
    seed : int
    place, workers : int
        Which of how many processes that train together this is. All of them hold out the same rows and take
        the same number of steps, each on its part of the batch. The buffer is shared out, too.
    """
    if rows.n_rows == 0:
        raise InvalidInputError("X has no rows to train on.")
    if workers == 1:  # several have shares of their own, from all over the rows
        rows = in_random_order(rows, BUFFER, seed)
    scaled = student.standardize or (student.module is None and student.standardize is None)
    look = look_at(
        rows,
        seed,
        fraction=0.0 if student.validation is not None else float(student.validation_fraction),
        n_sample=SAMPLED if scaled else EXAMPLE_ROWS,
    )
    try:
        some = prepared(look.sample[0], student.preprocess)
        held = None if look.measured is None else prepared(look.measured[0], student.preprocess)
    except InvalidInputError:
        for block in rows.numbers:  # find the block, to tell which row it is
            _tensor_of(rows, block, rows.read(block)[0], student.preprocess)
        raise
    measured = None
    if look.measured is not None and held is not None:
        measured = held.to(some.dtype), weighted_targets(*look.measured[1:])
    share = look.rest if workers == 1 else look.rest.share(place, workers)
    blocks = Blocks(share, student.preprocess, some)
    n_train = look.rest.n_rows
    epochs = Epochs.of(n_train, student.max_iter or EPOCHS, limited=student.max_iter is None)
    row_bytes = some.dtype.itemsize * math.prod(some.shape[1:]) + 4 * rows.n_columns
    room = max(2 * student.batch_size, int(BUFFER / workers / row_bytes))
    batches = ShuffledBatches(
        blocks,
        epochs._replace(n_rows=max(1, n_train // workers)),
        batch_size=math.ceil(student.batch_size / workers),
        capacity=min(n_train, share.n_rows, room),
        seed=seed + place,
        num_workers=student.num_workers,
    )
    return Plan(some, batches, measured, epochs)


class Blocks(Dataset[Pair]):
    """The blocks of rows as tensors. A row's weight becomes part of its targets.

    Parameters
    ----------
    rows : TargetRows
    preprocess : callable, optional
        Applied to the rows of a block.
    like : (n, ...) tensor
        Rows that show the type.
    """

    def __init__(self, rows: TargetRows, preprocess: Preprocess | None, like: Tensor) -> None:
        self.rows, self.preprocess = rows, preprocess
        self.dtype, self.shape = like.dtype, tuple(like.shape[1:])
        self.nothing = like[:0], torch.empty((0, rows.n_columns))

    def __getitem__(self, block: int) -> Pair:
        X, targets, weights = self.rows.read(block)
        goals = weighted_targets(targets, weights)
        if not len(goals):
            return self.nothing
        found = _tensor_of(self.rows, block, X, self.preprocess)
        if tuple(found.shape[1:]) != self.shape:
            raise InvalidInputError(
                f"The rows of block {block} have shape (n, {', '.join(map(str, found.shape[1:]))}) and "
                f"those before (n, {', '.join(map(str, self.shape))}); expected one shape."
            )
        if found.is_floating_point() and not self.dtype.is_floating_point:
            raise InvalidInputError(
                f"Block {block} has numbers with a fraction, and blocks before have whole numbers only. "
                "Give all of X one type."
            )
        return found.to(self.dtype), goals


class ShuffledBatches:
    """Whole batches of the rows, in random order, epoch after epoch.

    Stretches of blocks are read in random order into a buffer. Once it is full, half of its rows, drawn at
    random, are served before more are read. If all rows fit, they are read once.

    Parameters
    ----------
    blocks : Blocks
    epochs : Epochs
    batch_size : int
    capacity : int
        Rows of the buffer.
    seed : int
        Of the order.
    num_workers : int
        Processes that read blocks. The order does not depend on their number.
    """

    def __init__(
        self,
        blocks: Blocks,
        epochs: Epochs,
        *,
        batch_size: int,
        capacity: int,
        seed: int,
        num_workers: int,
    ) -> None:
        self.blocks, self.epochs, self.batch_size, self.num_workers = blocks, epochs, batch_size, num_workers
        self.capacity = capacity
        alone = epochs.n_rows > batch_size and epochs.n_rows % batch_size == 1  # see _serve
        self.n_batches = epochs.n_rows // batch_size if alone else math.ceil(epochs.n_rows / batch_size)
        self._epoch, self._random = 0, np.random.default_rng(seed)
        self._batches = self._endless()

    def epoch(self) -> Iterator[Pair]:
        """Return the batches of the next epoch."""
        start, end = (self.epochs.end(epoch, self.n_batches) for epoch in (self._epoch - 1, self._epoch))
        self._epoch += 1
        return islice(self._batches, end - start)

    def skip(self, epochs: int) -> None:
        """Go on as if some epochs had been served. Their rows are read, since the order depends on them."""
        for _ in range(epochs):
            for _ in self.epoch():
                pass

    def _endless(self) -> Iterator[Pair]:
        half = max(1, self.capacity // (2 * self.batch_size)) * self.batch_size  # whole batches
        while True:
            parts, count, fits = list[Pair](), 0, True
            for part in self._read():
                parts.append(part)
                count += len(part[1])
                while count > self.capacity:
                    X, targets = map(torch.cat, zip(*parts, strict=True))
                    order, fits = self._order(count), False
                    yield from self._serve(X, targets, order[:half])
                    rest, count = order[half:], count - half
                    parts = [(X.index_select(0, rest), targets.index_select(0, rest))]
            if not count:
                raise InvalidInputError("X has no rows to train on.")
            X, targets = map(torch.cat, zip(*parts, strict=True))
            yield from self._serve(X, targets, self._order(count))
            while fits:
                yield from self._serve(X, targets, self._order(count))

    def _order(self, count: int) -> Tensor:
        return torch.from_numpy(self._random.permutation(count))

    def _serve(self, X: Tensor, targets: Tensor, order: Tensor) -> Iterator[Pair]:
        """Yield batches of rows in this order."""
        parts: Sequence[Tensor] = torch.split(order, self.batch_size)
        if len(parts) > 1 and len(parts[-1]) == 1 < self.batch_size:
            # Batch normalisation cannot train on a batch of one row. Each pass leaves out another row.
            parts = parts[:-1]
        for part in parts:
            yield X.index_select(0, part), targets.index_select(0, part)

    def _read(self) -> Iterator[Pair]:
        """Yield the blocks of one pass."""
        order = self.blocks.rows.shuffled(self._random)
        seed = int(self._random.integers(2**31))  # drawn in any case: workers are not to change the order
        if not self.num_workers:
            return map(self.blocks.__getitem__, order)
        return iter(
            DataLoader(
                self.blocks,
                batch_size=None,
                sampler=order,
                num_workers=self.num_workers,
                generator=torch.Generator().manual_seed(seed),
            )
        )


def _tensor_of(rows: TargetRows, block: int, X: Any, preprocess: Preprocess | None) -> Tensor:
    """Return the rows X of a block as a tensor, or raise with the number of the row that is wrong."""
    try:
        return prepared(X, preprocess)
    except InvalidInputError as error:
        if error.row is None:
            raise
        raise error.changed(row=rows.row_number(rows.places(block)[error.row])) from None


def weighted_targets(targets: Any, weights: Any) -> Tensor:
    """Return targets (b, k) times the weights (b,) of rows, if rows have weights, as a tensor."""
    if weights is not None:
        targets = targets * weights[:, None]
    return torch.from_numpy(np.require(targets, dtype=np.float32, requirements=["C", "W"]))


def prepared(X: Any, preprocess: Preprocess | None) -> Tensor:
    """Return rows in memory as a tensor (n, ...), after `preprocess`."""
    X = as_values(X)
    if preprocess is None:
        return as_tensor(X)
    found = preprocess(X)
    if isinstance(found, Mapping):
        raise InvalidInputError(
            f"preprocess returned a {type(found).__name__} with the keys {', '.join(map(repr, found))}; "
            "expected one array or tensor, such as found['input_ids']. The module can make a mask from it."
        )
    if isinstance(found, Sequence) and len({np.shape(row) for row in found}) > 1:
        raise InvalidInputError(
            "preprocess returned rows of different lengths; pad or cut them to one length."
        )
    rows = as_tensor(found, "preprocess(X)")
    if len(rows) != n_rows(X):
        raise InvalidInputError(
            f"preprocess returned {counted(len(rows), 'row')} for {counted(n_rows(X), 'row')} of X; expected "
            "one for each."
        )
    return rows


def as_tensor(X: Any, where: str = "X") -> Tensor:
    """Return X as a tensor (n, ...) of float32 or int64, or say what is wrong with it."""
    if hasattr(X, "toarray"):
        raise InvalidInputError(
            f"{where} is a sparse matrix; a torch module needs a dense array: X.toarray()."
        )
    rows = X.detach().cpu() if isinstance(X, Tensor) else _from_numpy(np.asarray(X), where)
    if rows.ndim < 2:
        raise InvalidInputError(
            f"{where} has shape {tuple(rows.shape)}; expected two dimensions or more, (n, ...)."
        )
    if not rows.is_floating_point() and rows.dtype != torch.bool:
        return rows.to(torch.int64)
    rows = rows.to(torch.float32)
    bad = ~rows.isfinite().flatten(1).all(dim=1)
    if bool(bad.any()):
        raise InvalidInputError(
            f"{where} is not finite in row {{row}} ({counted(int(bad.sum()), 'such row')}). "
            "Fill missing values first.",
            row=int(bad.nonzero()[0]),
        )
    return rows


def _from_numpy(values: NDArray[Any], where: str) -> Tensor:
    if values.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"{where} has entries of type {values.dtype}; a torch module needs numbers. "
            "Network({remedy}) takes a function that makes them, such as a tokenizer.",
            remedy="preprocess",
        )
    # torch has few unsigned types, and warns about read-only arrays.
    kind = np.float32 if values.dtype.kind in "bf" else np.int64
    return torch.from_numpy(np.require(values, dtype=kind, requirements=["C", "W"]))
