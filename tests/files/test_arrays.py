"""Files of arrays: what is read, and what damaged or hostile ones say."""

import io
import os
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience import InvalidInputError
from consilience.exceptions import UnsafeFileError
from consilience.files import arrays
from consilience.files.arrays import ArrayFileError, open_npy, open_npz


def read_npy(path: Path) -> Any:
    return open_npy(path).read()


def read_npz(path: Path) -> dict[str, Any]:
    with open_npz(path) as archive:
        return {name: archive.read(name) for name in archive.names}


VALUES = [
    np.arange(12.0).reshape(3, 4),
    np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)),
    np.array(["ab", "c"]),
    np.array(7),
    np.empty((0, 3)),
    np.empty((3, 0)),
    np.array(["", ""]),
    np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
    np.array(["2020-01-01"], dtype="M8[D]"),
    np.array([True, False]),
]


@pytest.mark.parametrize("values", VALUES, ids=lambda values: f"{values.dtype} {values.shape}")
def test_what_numpy_writes_is_read(values: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", values)
    found = read_npy(tmp_path / "a.npy")
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)
    assert open_npy(tmp_path / "a.npy").shape == values.shape
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "a.npz", first=values, second=np.arange(3))
        both = read_npz(tmp_path / "a.npz")
        assert list(both) == ["first", "second"]
        np.testing.assert_array_equal(both["first"], values)


def npy(values: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=True)
    return buffer.getvalue()


WHOLE = npy(np.arange(12.0).reshape(3, 4))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b"text", "does not begin like an .npy file"),
        (WHOLE[:7], "does not begin like"),
        (WHOLE[:60], "its header is damaged"),
        (WHOLE[:-8], "needs 224 bytes, and it has 216; the file was cut or damaged"),
        (WHOLE.replace(b"\x93NUMPY\x01", b"\x93NUMPY\x09"), "version 9.0 of the format, which is unknown"),
        (WHOLE.replace(b"'<f8'", b"'<f3'"), "its header is damaged"),
        (WHOLE.replace(b"'shape'", b"[shape]"), "its header is damaged"),
        (WHOLE.replace(b"(3, 4), }", b"(3,-4), }"), r"shape \(3, -4\)"),
        (WHOLE.replace(b"(3, 4), }      ", b"(10**400, 4), }"), "its header is damaged"),
        (
            WHOLE.replace(b"(3, 4), }              ", b"(99999999999999, 4), }"[:23].ljust(23)),
            "promises|damaged",
        ),
        (npy(np.array([{}], dtype=object)), "Python objects, which would have to be unpickled"),
        (b"PK\x03\x04" + bytes(30), "it is an archive, so call it .npz"),
    ],
)
def test_damaged_npy_files(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(ArrayFileError, match=rf"a\.npy cannot be read: .*{says}"):
        read_npy(path)


def test_a_file_that_changes_after_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(WHOLE)
    opened = open_npy(path)
    changes = {
        WHOLE[:-8]: "the file was cut or damaged",
        npy(np.zeros((3, 5))): r"now holds float64 of shape \(3, 5\), and held .*\(3, 4\)",
        npy(np.zeros((3, 4), dtype=np.float32)): r"now holds float32 of shape \(3, 4\), and held float64",
    }
    for content, says in changes.items():
        path.write_bytes(content)
        for read in (opened.read, lambda: opened.part(0, 2)):
            with pytest.raises(ArrayFileError, match=says):
                read()
    path.unlink()
    with pytest.raises(InvalidInputError, match=r"a\.npy cannot be read: No such file"):
        opened.read()
    os.mkfifo(path)  # opening it would wait for ever
    with pytest.raises(UnsafeFileError, match="not a regular file"):
        open_npy(path)


def archive(path: Path, members: dict[str, bytes], **options: Any) -> Path:
    with zipfile.ZipFile(path, "w", **options) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"logits.npy": b"text"}, "its member 'logits.npy' is no array: it does not begin like"),
        ({"logits": b"text"}, "its member 'logits' is no array"),
        ({"logits.npy": b""}, "the file is empty"),
        ({"logits.npy": WHOLE[:-8]}, "needs 224 bytes, and it has 216"),
        ({"logits.npy": WHOLE + b"more"}, "it has 228 bytes for an array of 224"),
        ({"logits.npy": npy(np.array([{}], dtype=object))}, "Python objects"),
        ({"logits.npy": WHOLE, "logits": WHOLE}, "two members of one name"),
    ],
)
def test_archives_of_what_is_no_array(members: dict[str, bytes], says: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", members)
    with pytest.raises(ArrayFileError, match=says):
        read_npz(path)


def test_a_small_archive_that_inflates_to_gigabytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "MAX_INFLATED", 10**6)
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, logits=np.zeros(2 * 10**6, np.uint8))
    with pytest.raises(ArrayFileError, match=r"kB and would inflate to 2 MB\. If that is meant, .*np\.savez"):
        read_npz(path)
    np.savez(path, logits=np.zeros(2 * 10**6, np.uint8))
    assert read_npz(path)["logits"].shape == (2 * 10**6,)
    np.savez_compressed(path, logits=np.zeros(9 * 10**5, np.uint8))
    assert read_npz(path)["logits"].shape == (9 * 10**5,)


def test_what_the_directory_says_is_not_believed(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", {"logits.npy": WHOLE})
    content = bytearray(path.read_bytes())
    entry = bytes(content).index(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = (2**31).to_bytes(4, "little")  # the size of the member
    path.write_bytes(bytes(content))
    with pytest.raises(ArrayFileError, match="promises more than the file holds"):
        read_npz(path)


def test_compression_can_be_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(3))
    with (
        pytest.raises(ArrayFileError, match="it is compressed"),
        open_npz(tmp_path / "a.npz", compressed=False),
    ):
        pass


@pytest.mark.parametrize(
    ("content", "says"), [(b"text", r"not a valid \.npz archive"), (None, "No such file")]
)
def test_other_files_are_no_archives(content: bytes | None, says: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InvalidInputError, match=says):
        read_npz(tmp_path / "a.npz")


@given(st.booleans(), st.integers(0, 2000), st.integers(1, 255))
@settings(max_examples=100, deadline=None)
def test_any_byte_changed_gives_an_array_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, zipped: bool, place: int, mask: int
) -> None:
    path = tmp_path_factory.mktemp("changed") / ("a.npz" if zipped else "a.npy")
    if zipped:
        np.savez_compressed(path, logits=np.arange(12.0).reshape(3, 4), classes=np.array(["a", "b"]))
    content = bytearray(path.read_bytes() if zipped else WHOLE)
    content[place % len(content)] ^= mask
    path.write_bytes(bytes(content))
    with suppress(InvalidInputError):
        read_npz(path) if zipped else read_npy(path)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(9, 4), (9, 2, 3), (9, 2, 3, 2), (9, 0)])
@pytest.mark.parametrize("kind", [np.uint8, np.float64, ">f4", bool])
def test_parts_of_an_npy_file(order: Any, shape: tuple[int, ...], kind: Any, tmp_path: Path) -> None:
    values = np.asarray(np.random.default_rng(0).integers(0, 200, shape).astype(kind), order=order)
    np.save(tmp_path / "X.npy", values)
    file = open_npy(tmp_path / "X.npy")
    for start, stop in [(0, 9), (3, 5), (8, 9), (4, 4)]:
        part = file.part(start, stop)
        assert part.dtype == values.dtype
        np.testing.assert_array_equal(part, values[start:stop])
