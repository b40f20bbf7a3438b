"""Text is gathered once, and again when anything that it depends on has changed."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from examples.language_identification import cleaning, kept
from examples.language_identification.texts import Texts, gather


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


def test_whatever_changes_the_rows_gathers_them_again(
    once: Callable[..., Texts], gathered: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for options in ({}, {"rows": 3}, {"seed": 1}, {"per_catalogue": 2}):
        assert once(**options) == once(**options)
    assert len(gathered) == 4
    (tmp_path / "own.txt").write_text("Ein anderer Satz.\n", encoding="utf-8")
    assert "Ein anderer Satz." in once().rows
    os.utime(tmp_path / "a-1-py3-none-any.whl", (0, 0))
    once()
    assert len(gathered) == 6
    monkeypatch.setattr(cleaning, "__file__", str(tmp_path / "own.txt"))  # other code
    once()
    assert len(gathered) == 7
