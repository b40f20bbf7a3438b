"""Text is gathered once, and again when anything that it depends on has changed."""

import os
import zipfile
from pathlib import Path
from unittest.mock import Mock

import pytest
from examples.language_identification import cleaning, kept
from examples.language_identification.texts import Texts, gather


def test_whatever_changes_the_rows_gathers_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = Mock(side_effect=gather)
    monkeypatch.setattr(kept, "gather", gathered)
    own, wheel = tmp_path / "own.txt", tmp_path / "a-1-py3-none-any.whl"
    own.write_text("Ein eigener Satz.\n", encoding="utf-8")
    with zipfile.ZipFile(wheel, "w") as archive:
        entries = (f'msgid "{i}"\nmsgstr "Das ist der Satz {"i" * i}."\n' for i in range(9))
        archive.writestr("a.po", "".join(entries))

    def once(**options: object) -> Texts:
        given = {"packages": (), "wheels": tmp_path, "transfer": [own]} | options
        return kept.gather_once(tmp_path / "kept", **given)

    for options in ({}, {"rows": 3}, {"seed": 1}, {"per_catalogue": 2}):
        assert once(**options) == once(**options)
    assert gathered.call_count == 4
    own.write_text("Ein anderer Satz.\n", encoding="utf-8")
    assert "Ein anderer Satz." in once().rows
    os.utime(wheel, (0, 0))
    once()
    assert gathered.call_count == 6
    monkeypatch.setattr(cleaning, "__file__", str(own))  # other code
    assert once() == once()
    assert gathered.call_count == 7
