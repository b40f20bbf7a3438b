"""Text is gathered once, and again when anything that it depends on has changed."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from examples.language_identification import cleaning, kept
from examples.language_identification.texts import Texts, gather

from consilience.exceptions import InvalidInputError


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Something for every time that text is gathered anew."""
    times: list[object] = []

    def counting(**options: object) -> Texts:
        times.append(options)
        return gather(**options)  # type: ignore[arg-type]

    monkeypatch.setattr(kept, "gather", counting)
    return times


@pytest.fixture
def once(tmp_path: Path) -> Callable[..., Texts]:
    (tmp_path / "own.txt").write_text("Ein eigener Satz.\n", encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "a-1-py3-none-any.whl", "w") as archive:
        archive.writestr(
            "a.po", "".join(f'msgid "{i}"\nmsgstr "Das ist der Satz {"i" * i}."\n' for i in range(9))
        )

    def call(**options: object) -> Texts:
        given = {"packages": (), "wheels": tmp_path, "transfer": [tmp_path / "own.txt"]} | options
        return kept.gather_once(tmp_path / "kept", **given)

    return call


def test_the_second_time_gives_the_same_without_gathering(
    once: Callable[..., Texts], gathered: list[object], tmp_path: Path
) -> None:
    first = once(rows=5)
    assert once(rows=5) == first
    assert first == gather(packages=(), wheels=tmp_path, transfer=[tmp_path / "own.txt"], rows=5)
    assert len(gathered) == 1


def test_whatever_changes_the_rows_gathers_them_again(
    once: Callable[..., Texts], gathered: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once()
    for number, options in enumerate(({"rows": 3}, {"seed": 1}, {"per_catalogue": 2}), start=2):
        once(**options)
        assert len(gathered) == number
    (tmp_path / "own.txt").write_text("Ein anderer Satz.\n", encoding="utf-8")
    assert "Ein anderer Satz." in once().rows
    os.utime(tmp_path / "a-1-py3-none-any.whl", (0, 0))
    once()
    assert len(gathered) == 6
    monkeypatch.setattr(cleaning, "__file__", str(tmp_path / "own.txt"))  # other code
    once()
    assert len(gathered) == 7
    once()
    assert len(gathered) == 7


def test_broken_files_and_folders_do_no_harm(
    once: Callable[..., Texts], gathered: list[object], tmp_path: Path
) -> None:
    first = once()
    (file,) = (tmp_path / "kept").iterdir()
    whole = file.read_bytes()
    for broken in (b"", whole[:-9], whole[:50] + b"x" + whole[51:], b"no gzip"):
        file.write_bytes(broken)
        assert once() == first
    assert len(gathered) == 5
    assert once() == first
    file.unlink()
    file.parent.rmdir()
    file.parent.write_text("a file in the place of the folder")
    assert once() == first
    with pytest.raises(InvalidInputError, match="no folder"):
        once(wheels=tmp_path / "none")
