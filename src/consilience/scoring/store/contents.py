"""What is in a store, for people who wonder where their disk went."""

from __future__ import annotations

import datetime
from dataclasses import asdict, dataclass
from typing import Any

from consilience.files.storage import StoragePath
from consilience.files.strict_json import parse_json
from consilience.scoring.store.score_store import ScoreStore, is_old
from consilience.scoring.store.segments import Name, opened
from consilience.scoring.store.shelf import ABOUT

_MOST_BYTES = 10_000  # of a file that names a teacher


@dataclass(frozen=True)
class ShelfContents:
    """The outputs of one teacher.

    Attributes
    ----------
    key : str
        The name of its folder.
    teacher : str or None
        Its name, as far as it is known.
    n_classes : int or None
    n_rows : int
        Rows in its segments. A row counts twice if it is stored with embeddings and without.
    n_bytes : int
        With segments that are old or broken.
    n_segments : int
    n_loose : int
        Segments that wait to be joined to others.
    n_old : int
        Segments of an older version, which are not used.
    n_broken : int
        Segments that cannot be read.
    last_use : str or None
        In UTC.
    """

    key: str
    teacher: str | None
    n_classes: int | None
    n_rows: int
    n_bytes: int
    n_segments: int
    n_loose: int
    n_old: int
    n_broken: int
    last_use: str | None


@dataclass(frozen=True)
class StoreContents:
    """What is in a store.

    Attributes
    ----------
    folder : str
    shelves : list of ShelfContents
        Those that take most bytes first.
    n_trainings : int
        Checkpoints of trainings that were stopped.
    n_bytes_trainings : int
    """

    folder: str
    shelves: list[ShelfContents]
    n_trainings: int = 0
    n_bytes_trainings: int = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(shelf.n_bytes for shelf in self.shelves)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "folder": self.folder,
            "n_bytes": self.n_bytes,
            "n_rows": sum(shelf.n_rows for shelf in self.shelves),
            "n_trainings": self.n_trainings,
            "n_bytes_trainings": self.n_bytes_trainings,
            "models": [asdict(shelf) for shelf in self.shelves],
        }


def read_contents(store: ScoreStore) -> StoreContents:
    """Look through a store. Of each segment only the directory is read, and nothing counts as used."""
    shelves = [_of_shelf(store.root / key) for key in store.shelves()]
    shelves.sort(key=lambda shelf: (-shelf.n_bytes, shelf.key))
    return StoreContents(str(store.root), shelves, len(store.trainings()), store.trainings_size)


def _of_shelf(folder: StoragePath) -> ShelfContents:
    found = {entry.path.name: entry for entry in folder.entries()}
    texts = list(found)
    names = [name for name in map(Name.parse, texts) if name is not None]
    old = [text for text in texts if is_old(text)]
    broken = [name for name in names if not _is_sound(folder, name)]
    entries = [found[text] for text in (*map(str, names), *old)]
    teacher, n_classes = _about(folder / ABOUT)
    return ShelfContents(
        folder.name,
        teacher,
        n_classes,
        sum(name.rows for name in names if name not in broken),
        sum(entry.size for entry in entries),
        len(names),
        sum(name.place == "loose" for name in names),
        len(old),
        len(broken),
        _date(max(entry.used for entry in entries)) if entries else None,
    )


def _is_sound(folder: StoragePath, name: Name) -> bool:
    try:
        with opened(folder / str(name), folder.name, name, parts=True):
            return True
    except (ValueError, OSError):
        return False


def _about(path: StoragePath) -> tuple[str | None, int | None]:
    """Return the name and the number of classes of a teacher, where a file has them. It may be anyone's."""
    try:
        with path.reading() as file:
            found = parse_json(file.read(_MOST_BYTES).decode())
    except (OSError, ValueError, RecursionError):
        return None, None
    if not isinstance(found, dict):
        return None, None
    teacher, n_classes = found.get("teacher"), found.get("n_classes")
    return (
        teacher if isinstance(teacher, str) and teacher else None,
        n_classes if isinstance(n_classes, int) and not isinstance(n_classes, bool) else None,
    )


def _date(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
