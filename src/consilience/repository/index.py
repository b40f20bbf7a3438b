"""The index of a repository: what its cards say, in one file, so that a listing need not open each.

The index is derived. Each line has the stamp of the card that it was made from; a line whose stamp is not
that of the card now is not used, and neither is one that cannot be read. Those cards are read again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from consilience.exceptions import ConsilienceError, InvalidInputError
from consilience.files.card import MAX_BYTES, parse_card
from consilience.repository.entry import ModelEntry, entry_of_card, read_entry
from consilience.repository.layout import Layout, Stamp, card_file

FILE = "index.jsonl"
VERSION = 1
MOST_BYTES = 2**30
_MOST_APPENDED = 64  # lines; more changes than this write the index anew
_SHARE_WRITTEN = 20  # where nothing can be appended, one change in so many models does


@dataclass(frozen=True)
class Known:
    """What is known of one folder: a model, or why there is none.

    Attributes
    ----------
    stamp : Stamp
        Of the card.
    entry : ModelEntry or None
    problem : str
        Why the card cannot be used; empty where it can.
    """

    stamp: Stamp
    entry: ModelEntry | None
    problem: str = ""


class Index:
    """What the cards of a repository say, read again where they changed.

    Parameters
    ----------
    layout : Layout
        Where the repository lies.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._known: dict[str, Known] = {}
        self._lines = 0  # of the file

    def read(self) -> Mapping[str, Known]:
        """Return what is known of each folder, in their order, and bring the file up to date."""
        stamps = self._layout.stamps()
        if not self._is_current(stamps):
            self._known = self._from_file(stamps) | {
                folder: known for folder, known in self._known.items() if known.stamp == stamps.get(folder)
            }
            changed = {
                folder: self._from_card(folder, stamp)
                for folder, stamp in stamps.items()
                if folder not in self._known
            }
            self._known = {folder: changed.get(folder) or self._known[folder] for folder in stamps}
            self._write(changed)
        return self._known

    def rebuild(self) -> Mapping[str, Known]:
        """Read every card, and write the file anew."""
        stamps = self._layout.stamps()
        self._known = {folder: self._from_card(folder, stamp) for folder, stamp in stamps.items()}
        self._write_all()
        return self._known

    def _is_current(self, stamps: Mapping[str, Stamp]) -> bool:
        return len(stamps) == len(self._known) and all(
            folder in self._known and self._known[folder].stamp == stamp for folder, stamp in stamps.items()
        )

    def _from_file(self, stamps: Mapping[str, Stamp]) -> dict[str, Known]:
        """Return what the file says of the cards as they are now; the last line of a folder counts."""
        data = self._layout.read_own(FILE, MOST_BYTES)
        lines = [] if data is None else data.split(b"\n")
        self._lines = 0
        if not lines or lines[0] != _header():
            return {}
        self._lines = len(lines)
        # made in one pass; a damaged line raises alone
        return {folder: known for line in lines[1:] for folder, known in _read_line(line, stamps)}

    def _from_card(self, folder: str, stamp: Stamp) -> Known:
        try:
            card = parse_card(self._layout.read_card(folder, MAX_BYTES), card_file(folder))
            return Known(stamp, entry_of_card(card, folder))
        except ConsilienceError as error:
            return Known(stamp, None, " ".join(str(error).split())[:500])

    def _write(self, changed: Mapping[str, Known]) -> None:
        """Add lines to the file, or write it anew if much has changed or old lines are many."""
        many = len(changed) > _MOST_APPENDED or self._lines > 2 * len(self._known) + _MOST_APPENDED
        if not self._layout.appends:  # others read a few cards sooner than we send thousands of lines
            many |= _SHARE_WRITTEN * len(changed) >= len(self._known)
        try:
            if many or self._lines == 0:
                self._write_all()
            elif changed and self._layout.appends:
                # a line of its own even if another process was killed in the middle of one
                if self._layout.append_own(FILE, b"\n" + _lines(changed)):
                    self._lines += len(changed) + 1
                else:
                    self._write_all()
        except (ConsilienceError, OSError):
            self._lines = 0  # a repository that may only be read has no index, or an old one

    def _write_all(self) -> None:
        if self._known:
            self._layout.write_own(FILE, _header() + b"\n" + _lines(self._known), durable=False)
            self._lines = len(self._known) + 1


def _header() -> bytes:
    return json.dumps({"consilience_repository_index": VERSION}).encode()


def _lines(known: Mapping[str, Known]) -> bytes:
    return b"".join(_line(folder, one) + b"\n" for folder, one in known.items())


def _line(folder: str, known: Known) -> bytes:
    content: dict[str, Any] = {"folder": folder, "stamp": list(known.stamp)}
    if known.entry is None:
        content["problem"] = known.problem
    else:
        content["model"] = known.entry.to_dict()
    return json.dumps(content, ensure_ascii=True).encode()


def _read_line(line: bytes, stamps: Mapping[str, Stamp]) -> Iterator[tuple[str, Known]]:
    """Yield what one line says, if it is about a card as it is now."""
    try:
        content = json.loads(line)
        folder = content["folder"]
        stamp = stamps.get(folder)
        if stamp is None or content["stamp"] != list(stamp):
            return
        if "problem" in content:
            yield folder, Known(stamp, None, str(content["problem"]))
        else:
            yield folder, Known(stamp, read_entry(content["model"], folder))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidInputError):
        return


def entries(known: Iterable[Known]) -> list[ModelEntry]:
    """Return the models among what is known."""
    return [one.entry for one in known if one.entry is not None]
