"""The files of a store: what they hold, and that damage never goes unnoticed."""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from consilience import ConsilienceWarning
from consilience.files.arrays import NpzFile
from consilience.scoring.store import ScoreStore, Segment, as_float32, shelf
from consilience.scoring.store.index import in_order
from consilience.scoring.store.segments import Name, content_of, names_of, row_sums, write_segment

DIGESTS = np.arange(12, dtype=np.uint64).reshape(6, 2)
LOGITS = np.random.default_rng(0).normal(size=(6, 3))
FEATURES = np.random.default_rng(1).normal(size=(6, 2)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the one segment of a store."""
    shelf = ScoreStore(tmp_path / "scores").shelf("teacher", 3)
    shelf.merge(Segment(DIGESTS, LOGITS, FEATURES), embeddings=True)
    (found,) = tmp_path.glob("*/*/*.npz")
    return found


def block(path: Path) -> Segment | None:
    return ScoreStore(path.parents[1]).shelf("teacher", 3).block(DIGESTS, embeddings=True)


def test_others_can_read_a_segment(path: Path) -> None:
    with np.load(path, allow_pickle=False) as archive:
        assert set(archive) == {"digests", "logits", "embeddings", "sums", "seal"}
        np.testing.assert_array_equal(archive["logits"], LOGITS)
        np.testing.assert_array_equal(archive["embeddings"], FEATURES)


def test_the_same_rows_make_the_same_file(path: Path) -> None:
    content = path.read_bytes()
    path.unlink()
    shelf = ScoreStore(path.parents[1]).shelf("teacher", 3)
    shelf.merge(Segment(DIGESTS, LOGITS, FEATURES), embeddings=True)
    assert path.read_bytes() == content


def test_no_flipped_bit_goes_unnoticed(path: Path) -> None:
    whole, told = path.read_bytes(), 0
    for place in range(0, len(whole), 3):
        content = bytearray(whole)
        content[place] ^= 1 << (place % 8)
        path.write_bytes(bytes(content))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = block(path)
        assert bool(caught) == (found is None), place
        assert path.exists() == (found is not None)
        told += found is None
        if found is not None:  # a date, or a mark that nothing depends on
            np.testing.assert_array_equal(found.logits, LOGITS)
            np.testing.assert_array_equal(found.embeddings, FEATURES)
    assert told > 300


@pytest.mark.parametrize("embeddings", [False, True])
def test_no_flipped_bit_goes_unnoticed_where_few_rows_are_read(
    path: Path, monkeypatch: pytest.MonkeyPatch, embeddings: bool
) -> None:
    monkeypatch.setattr(shelf, "FEW", 1)
    whole, told, wanted = path.read_bytes(), 0, [1, 4]
    for place in range(0, len(whole), 3):
        content = bytearray(whole)
        content[place] ^= 1 << (place % 8)
        path.write_bytes(bytes(content))
        kept = ScoreStore(path.parents[1]).shelf("teacher", 3)
        known: list[int] = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):  # by the digests of the file, and by an index
                for places, found in kept.find(DIGESTS[wanted], embeddings=embeddings):
                    rows = np.array(wanted)[places]
                    np.testing.assert_array_equal(found.logits, LOGITS[rows])
                    if embeddings:
                        np.testing.assert_array_equal(found.embeddings, FEATURES[rows])
                    known.extend(rows)
        assert known == wanted * 2 or caught, place
        told += bool(caught)
        path.unlink(missing_ok=True)
    assert told > 150


def test_a_damaged_row_is_noticed_where_few_rows_are_read(tmp_path: Path) -> None:
    """In a file so long that its CRC is not checked on the way."""
    random = np.random.default_rng(0)
    digests = in_order(random.integers(0, 2**64, size=(3000, 2), dtype=np.uint64))
    logits = random.normal(size=(3000, 3))
    store = ScoreStore(tmp_path / "scores")
    store.shelf("teacher", 3).merge(Segment(digests, logits, logits[:, :2]), embeddings=True)
    (path,) = tmp_path.glob("*/*/*.npz")
    whole, row = path.read_bytes(), 2000
    for values in (digests, logits, logits[:, :2]):
        content = bytearray(whole)
        content[whole.index(values[row].tobytes()) + 3] ^= 1
        path.write_bytes(content)
        with np.load(path) as archive, pytest.raises(zipfile.BadZipFile):
            [archive[name] for name in archive]
        kept = store.shelf("teacher", 3)
        kept._searched = True
        path.write_bytes(whole)
        assert len(list(kept.find(digests[[5]], embeddings=True))) == 1  # makes the index
        path.write_bytes(content)
        ((_, found),) = kept.find(digests[[row - 1]], embeddings=True)
        np.testing.assert_array_equal(found.logits, logits[[row - 1]])
        with pytest.warns(ConsilienceWarning, match="the checksum of a row of its .* is wrong"):
            assert list(kept.find(digests[[row]], embeddings=True)) == []
        assert not path.exists()


def test_few_rows_are_read_without_the_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "FEW", 1)
    kept = ScoreStore(path.parents[1]).shelf("teacher", 3)
    read: list[str] = []
    whole = NpzFile.read
    monkeypatch.setattr(NpzFile, "read", lambda file, name: read.append(name) or whole(file, name))
    for _ in range(3):
        ((places, found),) = kept.find(DIGESTS[[0, 5]], embeddings=True)
        np.testing.assert_array_equal(found.logits, LOGITS[[0, 5]])
        np.testing.assert_array_equal(found.digests, DIGESTS[[0, 5]])
        assert places.tolist() == [0, 1]
    # the first search reads the digests, the second makes the index of them, and the third reads none
    assert read == ["seal", "digests"] * 2 + ["seal"] * 2


@given(
    hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        st.tuples(st.integers(1, 5), st.integers(1, 5)),
        elements=st.floats(-9, 9, width=16),
    ),
    st.data(),
)
def test_each_changed_word_changes_the_sum_of_its_row_alone(values: np.ndarray, data: Any) -> None:
    digests = np.arange(2 * len(values), dtype=np.uint64).reshape(-1, 2)
    before = row_sums("logits", digests, values)
    changed = values.copy()
    place = data.draw(st.integers(0, values.nbytes - 1))
    changed.view(np.uint8).reshape(-1)[place] ^= 1 << data.draw(st.integers(0, 7))
    row = place // (values.nbytes // len(values))
    np.testing.assert_array_equal(
        before != row_sums("logits", digests, changed), np.arange(len(values)) == row
    )
    assert (before != row_sums("embeddings", digests, values)).all()
    assert (before != row_sums("logits", digests + np.uint64(1), values)).all()


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("other numbers", "its checksum is wrong"),
        ("no embeddings", "its checksum is wrong"),
        ("no seal", "it has no seal"),
        ("no sums", "it has no sums"),
        ("no digests", "it has no digests"),
        ("another order", "its checksum is wrong"),
        ("compressed", "it is compressed"),
        ("cut", "not a valid .npz archive"),
        ("another teacher", "its checksum is wrong"),
        ("another name", "it does not hold what its name says"),
    ],
)
def test_sound_archives_that_are_no_sound_segments(path: Path, damage: str, says: str) -> None:
    parts, method = members(path), zipfile.ZIP_STORED
    if damage == "other numbers":
        changed = io.BytesIO()
        np.save(changed, LOGITS + 1)
        parts["logits.npy"] = changed.getvalue()
    elif damage.startswith("no "):
        del parts[f"{damage[3:]}.npy"]
    elif damage == "another order":
        parts = dict(reversed(parts.items()))
    elif damage == "compressed":
        method = zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-30])
    elif damage == "another teacher":
        with path.open("wb") as file:
            write_segment(file, "0" * 40, Name.parse(path.name), DIGESTS, LOGITS, FEATURES)
    elif damage == "another name":
        name = Name("block", 6, content_of(DIGESTS), rounded=True, asked=True)
        with path.open("wb") as file:
            write_segment(file, path.parent.name, name, DIGESTS, LOGITS, FEATURES)
    with pytest.warns(ConsilienceWarning, match=f"is broken .*{says}.* computed again"):
        assert block(path) is None
    assert not path.exists()


@pytest.mark.parametrize(
    "text",
    [
        "block-6-00-xe.npz", f"block-0-{'0' * 32}-xe.npz", f"block-6-{'0' * 32}-xe.npz.tmp",
        f"block-6-{'0' * 32}-ex.npz", f"Block-6-{'0' * 32}-xe.npz", f"block-٣-{'0' * 32}-xe.npz",
    ],
)  # fmt: skip
def test_names_that_are_none_of_ours(text: str) -> None:
    assert Name.parse(text) is None


@given(st.booleans(), st.booleans(), st.integers(1, 10**9), st.sampled_from(["block", "loose"]))
def test_names_are_read_as_written(rounded: bool, asked: bool, rows: int, place: Any) -> None:
    name = Name(place, rows, content_of(DIGESTS), rounded, asked)
    assert Name.parse(str(name)) == name


def test_what_serves_and_what_covers() -> None:
    kinds = {
        f"{'r' if rounded else 'x'}{'e' if asked else 'l'}": Name("block", 6, "", rounded, asked)
        for rounded in (False, True)
        for asked in (False, True)
    }
    double, single = np.dtype(np.float64), np.dtype(np.float32)
    serves = {
        (embeddings, dtype): [kind for kind, name in kinds.items() if name.serves(embeddings, dtype)]
        for embeddings in (False, True)
        for dtype in (double, single)
    }
    assert serves == {
        (False, double): ["xl", "xe"],
        (False, single): ["xl", "xe", "rl", "re"],
        (True, double): ["xe"],
        (True, single): ["xe", "re"],
    }
    covers = {kind: [other for other in kinds if name.covers(kinds[other])] for kind, name in kinds.items()}
    assert covers == {
        "xl": ["xl", "rl"],
        "xe": ["xl", "xe", "rl", "re"],
        "rl": ["rl"],
        "re": ["rl", "re"],
    }
    assert [str(name)[-6:-4] for name in names_of(DIGESTS, False, single)][:4] == ["rl", "xl", "re", "xe"]


@given(hnp.arrays(np.float64, st.integers(0, 9), elements=st.floats(allow_infinity=False)))
def test_single_precision_tells_whether_it_rounds(values: np.ndarray) -> None:
    low, rounded = as_float32(values)
    assert low.dtype == np.float32
    assert rounded != np.array_equal(low.astype(np.float64), values, equal_nan=True)
    assert not np.isinf(low).any()
    if not rounded:
        np.testing.assert_array_equal(np.signbit(low), np.signbit(values))
