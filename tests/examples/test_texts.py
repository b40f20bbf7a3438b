"""Text is gathered evenly, the same for the same seed, and without what nobody translated."""

import gzip
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from examples.language_identification.texts import gather, level, share
from hypothesis import given
from hypothesis import strategies as st

from consilience.exceptions import InvalidInputError

WORDS = np.array(["wer", "reitet", "so", "spät", "durch", "nacht", "und", "wind", "vater", "kind"])


def sentence(rng: np.random.Generator) -> str:
    return " ".join(rng.choice(WORDS, 5)).capitalize() + "."


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A large package of five languages, and a small one with a broken file."""
    folder = tmp_path_factory.mktemp("wheels")
    rng = np.random.default_rng(0)
    same = [sentence(rng) for _ in range(5)]
    with zipfile.ZipFile(folder / "large-1-py3-none-any.whl", "w") as archive:
        for tag in ("de", "en", "fr", "it", "nl"):
            count = 6 if tag == "nl" else 300
            archive.writestr(f"i18n/{tag}.json", json.dumps([*same, *(sentence(rng) for _ in range(count))]))
    with zipfile.ZipFile(folder / "small-1-py3-none-any.whl", "w") as archive:
        entries = "".join(f'msgid "{i}"\nmsgstr "{sentence(rng)}"\n\n' for i in range(7))
        archive.writestr("de.po", entries + f'msgid "{same[0]} No"\nmsgstr "{same[0]} No"\n')
        archive.writestr("fr.po", "no such format")
    return folder


def collect(wheels: Path, **options: object):
    return gather(packages=[], wheels=wheels, **options)


def test_catalogues_are_limited_and_counted(wheels: Path) -> None:
    found = collect(wheels, per_catalogue=20)
    large, small = found.sources
    assert (large.name, large.files, large.broken, large.messages) == ("large", 5, 0, 1231)
    assert (small.name, small.files, small.broken, small.messages) == ("small", 2, 1, 8)
    assert 80 <= large.rows <= 100
    assert small.rows == 7  # what equals its original is untranslated
    assert len(found.rows) == len(set(found.rows)) == large.rows + small.rows


def test_own_files_are_text_of_any_kind(tmp_path: Path) -> None:
    plain, table, packed = tmp_path / "a.txt", tmp_path / "b.tsv", tmp_path / "c.tsv.gz"
    plain.write_text(
        "\ufeffEin erster Satz. Und ein zweiter!\r\n\nkurz\nKein Punkt am Ende\n", encoding="utf-8"
    )
    table.write_text("deu\tDer Text der Tabelle.\n", encoding="utf-8")
    packed.write_bytes(gzip.compress("1\tfra\tUne phrase en français.".encode()))
    found = gather(transfer=[plain, table, packed], packages=(), rows=1, per_catalogue=1)
    assert sorted(found.rows) == [
        "Der Text der Tabelle.",
        "Ein erster Satz. Und ein zweiter!",
        "Kein Punkt am Ende",
        "Une phrase en français.",
        "kurz",
    ]
    assert [Path(source.name).name for source in found.sources] == ["a.txt", "b.tsv", "c.tsv.gz"]


def test_bad_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "b.gz").write_bytes(b"not packed")
    (tmp_path / "c.txt").write_text("42\n\n")
    for name, words in (("a.txt", "UTF-8"), ("b.gz", "no .gz file"), ("c.txt", "holds no text")):
        with pytest.raises(InvalidInputError, match=words):
            gather(transfer=[tmp_path / name], packages=())
    with pytest.raises(InvalidInputError, match="No package with message catalogues"):
        gather(packages=[])


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 200))
def test_shares_are_level_and_fill_the_total(counts: list[int], total: int) -> None:
    have = np.array(counts, dtype=np.intp)
    given_ = share(have, total, np.random.default_rng(0))
    assert (given_ <= have).all()
    assert given_.sum() == min(total, have.sum())
    limit = level(have, total)
    assert ((given_ >= np.minimum(have, limit)) & (given_ <= limit + 1)).all()
