"""Where a training on many rows keeps its state, so that a killed run goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from consilience.files.storage import StoragePath
from consilience.scoring.store import ScoreStore


@contextmanager
def checkpoint_folder(store: ScoreStore | None, digest: str) -> Iterator[StoragePath | None]:
    """Give the folder for checkpoints of a training on targets of this digest: in the cache, if any."""
    if store is None:
        yield None
        return
    with suppress(OSError):  # scoring has said already that it cannot be written
        store.prepare()
    folder = store.root / f"training-{digest}"
    yield folder
    folder.delete_folder()  # empty: the training is over
