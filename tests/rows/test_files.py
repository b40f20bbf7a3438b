"""Rows in one file, in several, or in a folder."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.rows.rows import check_source

from consilience.exceptions import InvalidInputError
from consilience.rows import as_rows, files
from consilience.rows.files import open_files

N = 57


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 8)


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "number": np.arange(N) / 7,
            "text": [f"ä{i % 5}" for i in range(N)],
            "category": pd.Categorical([f"k{i // 7}" for i in range(N)]),
            "true": np.arange(N) % 3 == 0,
            "when": pd.date_range("2020", periods=N, freq="h"),
            "gap": pd.array([None if i == 50 else i for i in range(N)], dtype="Int64"),
            "maybe": pd.array([None if i == 50 else i % 2 == 0 for i in range(N)], dtype="boolean"),
            "word": [None if i % 4 == 1 else "x" for i in range(N)],
        }
    )


@pytest.mark.parametrize("size", [3, 20, 1000])
def test_a_folder_of_parquet_is_one_table(size: int, tmp_path: Path) -> None:
    rows, folder = frame(), tmp_path / "rows"
    rows.to_parquet(tmp_path / "whole.parquet", index=False)
    (folder / "deep").mkdir(parents=True)
    rows[:30].to_parquet(folder / "a.parquet", row_group_size=size)
    rows[30:][rows.columns[::-1]].to_parquet(folder / "deep" / "b.parquet", row_group_size=size, index=False)
    for other in ("_SUCCESS", ".a.parquet", "_old.parquet", "read me.md"):
        (folder / other).write_text("no rows")
    whole = open_files(tmp_path / "whole.parquet").all(None)
    for given in (folder, str(folder), str(folder / "**" / "[!_]*.parquet"), folder / "**" / "[!_]*.parquet"):
        found = as_rows(given)
        check_source(found, whole)
    listed = as_rows([folder / "deep" / "b.parquet", str(folder / "a.parquet")])
    check_source(listed, pd.concat([whole[30:], whole[:30]])[whole.columns[::-1]])


def test_blocks_of_a_group_of_rows_are_a_stretch(tmp_path: Path) -> None:
    frame().to_parquet(tmp_path / "rows.parquet", row_group_size=20)
    found = as_rows(tmp_path)
    assert [list(stretch) for stretch in found.stretches] == [[0, 1, 2], [3, 4], [5, 6, 7]]


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        ("a,b\n1,2\n3,4\n", "a,b\n5,x\n6,7\n", "a,b\n1,2\n3,4\n5,x\n6,7\n"),
        ("a,b\n1,2\n3,4\n", "b,a\n5,x\n6,7\n", "a,b\n1,2\n3,4\nx,5\n7,6\n"),
        ("a,b\ntrue,2\nfalse,4\n", "a,b\n,5\ntrue,7\n", "a,b\ntrue,2\nfalse,4\n,5\ntrue,7\n"),
        ("a,b\n,2\n,4\n", "a,b\nx,5\ny,7\n", "a,b\n,2\n,4\nx,5\ny,7\n"),
        (
            "a\n2020-01-01\n",
            "a\n2020-01-01T10:00\n\n2021-01-01\n",
            "a\n2020-01-01\n2020-01-01T10:00\n2021-01-01\n",
        ),
        ("a\n1\n", "a\nna\n", "a\n1\nna\n"),
        ("a\nx\n", "a\nna\n", "a\nx\nna\n"),
        ("a\ntrue\n", "a\n1\n", "a\ntrue\n1\n"),
        ("1,2\n3,4\n", "5,6\n7,8\n", "1,2\n3,4\n5,6\n7,8\n"),
        ("1,2\n3,4\n", "5,\n6,7\n", "1,2\n3,4\n5,\n6,7\n"),
        ("1,x\n3,y\n", "5,u\n6,v\n", "1,x\n3,y\n5,u\n6,v\n"),
    ],
)
def test_two_csv_files_are_read_as_one_would_be(first: str, second: str, whole: str, tmp_path: Path) -> None:
    for name, text in {"a": first, "b": second, "whole": whole}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    found = open_files([tmp_path / "a.csv", tmp_path / "b.csv"])
    check_source(found, open_files(tmp_path / "whole.csv").all(None), sent=False)


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).normal(size=(N, 3)),
        np.asfortranarray(np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)),
        np.random.default_rng(0).integers(0, 255, (N, 4, 5, 3)).astype(np.uint8),
        np.asfortranarray(np.random.default_rng(0).normal(size=(N, 2, 3))),
    ],
)
def test_arrays_in_npy_and_npz(values: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", values[:20])
    np.save(tmp_path / "1.npy", values[20:])
    check_source(open_files(str(tmp_path / "*.npy")), values)
    np.savez_compressed(tmp_path / "X.npz", X=values, other=1)
    check_source(open_files(tmp_path / "X.npz"), values)


def test_texts(tmp_path: Path) -> None:
    texts = [f"zeile {i} ä" if i % 5 else "" for i in range(N)]
    (tmp_path / "a.txt").write_bytes("\r\n".join(texts[:20]).encode("utf-8-sig") + b"\r\n")
    (tmp_path / "b.txt").write_text("\n".join(texts[20:]))
    found = open_files(tmp_path)
    check_source(found, texts)
    assert found.shape == (N,)


def write(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    if isinstance(content, str):
        path.write_text(content)
    elif isinstance(content, dict):
        pd.DataFrame(content).to_parquet(path)
    else:
        np.save(path, content) if path.suffix == ".npy" else np.savez(path, X=content)
    return path


@pytest.mark.parametrize(
    ("ending", "first", "second", "message"),
    [
        (
            "csv",
            "a,b\n1,2\n",
            "a,c\n1,2\n",
            "1.csv lacks columns 'b' and has the other columns 'c', compared",
        ),
        ("csv", "1,2\n", "1,2,3\n", "1.csv holds 3 columns, and 0.csv 2 columns. Give files of one kind"),
        ("csv", "a,b\n1,2\n", "1,2\n", "1.csv has no header, and 0.csv has one. Give all files one"),
        ("csv", "1,2\n", "a,b\n1,2\n", "1.csv has a header, and 0.csv has none. Give all"),
        ("csv", "a,b\n1,2\n", "a,b\n", "1.csv cannot be read: it has a header and no rows"),
        ("csv", "1,2\n", 'a,"b\n1,2\n', "1.csv cannot be read"),
        (
            "npy",
            np.ones((3, 2)),
            np.ones((3, 2), "f4"),
            "float32 of shape .n, 2., and 0.npy float64 of shape",
        ),
        ("npy", np.ones((3, 2)), np.ones((3, 3)), "holds float64 of shape .n, 3., and 0.npy"),
        ("npz", np.ones((3, 2, 2)), np.ones((3, 2, 3)), "holds float64 of shape .n, 2, 3., and 0.npz"),
        ("npz", np.ones((3, 2)), np.ones((3, 2), "u1"), "holds uint8 .*, and 0.npz float64"),
        ("parquet", {"a": [1]}, {"a": [1], "b": [2]}, "has the other columns 'b', compared with 0.parquet"),
        (
            "parquet",
            {"a": [1]},
            {"a": ["x"]},
            "does not fit 0.parquet: .* int64 vs .*string. Write the column in one",
        ),
        ("parquet", {"a": [1]}, "no table", "1.parquet cannot be read"),
    ],
)
def test_files_that_do_not_fit_together(
    ending: str, first: Any, second: Any, message: str, tmp_path: Path
) -> None:
    paths = [write(tmp_path, f"{i}.{ending}", content) for i, content in enumerate((first, second))]
    with pytest.raises(InvalidInputError, match=f"^--data.*{message}"):
        open_files(paths, "--data")


def test_types_that_mean_the_same_fit_together(tmp_path: Path) -> None:
    first = write(tmp_path, "0.parquet", {"a": [1, 2], "b": ["x", "y"], "c": [None, None]})
    second = write(tmp_path, "1.parquet", {"a": [0.5], "b": pd.Categorical(["z"]), "c": ["w"]})
    assert open_files([first, second]).all(None)["b"].tolist() == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        ((), ".", "the folder .* has no rows; expected files that end in .csv, .parquet"),
        (
            ("a.csv", "b.txt", "c.txt"),
            ".",
            "has files of several kinds: 2 .txt, 1 .csv. Give files of one kind",
        ),
        ((), "rows.csv", "rows.csv does not exist. Give a file, a folder or a pattern"),
        ((), "rows", "rows does not exist. Give"),
        ((), "*.csv", "no file fits '.*csv'"),
        (("a.xlsx",), "a.xlsx", r"reads .csv, .* 'a.xlsx' ends in none of these"),
        (("a.txt",), "a.txt", "a.txt has no rows; expected at least one"),
    ],
)
def test_what_is_no_file_of_rows(make: tuple[str, ...], given: str, message: str, tmp_path: Path) -> None:
    for name in make:
        (tmp_path / name).write_text("")
    with pytest.raises(InvalidInputError, match=message):
        open_files(tmp_path / given)


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"a\n\n\nb\n\nc\n", ["a", "", "", "b", "", "c"]),
        (b"a\r\nb\r\n\r\nc", ["a", "b", "", "c"]),
        (b"a\rb\rc", ["a", "b", "c"]),
        ("\ufeffä\nb\nç\nd".encode(), ["ä", "b", "ç", "d"]),
        ("a\u2028x\x0b\nb\x85c\nc\x1c\n \td ".encode(), ["a\u2028x\x0b", "b\x85c", "c\x1c", " \td "]),
        (b"\n", [""]),
    ],
)
def test_every_line_of_a_txt_file_is_a_text(
    content: bytes, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LINES", 2)
    path = tmp_path / "texts.txt"
    path.write_bytes(content)
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 3)
    check_source(open_files(path), texts)


WRITERS: dict[str, Callable[[Path, Any], Any]] = {
    "npy": lambda path, values: np.save(path, values),
    "txt": lambda path, values: path.write_text("\n".join(map(str, values[:, 0]))),
    "parquet": lambda path, values: pd.DataFrame(values, columns=["a", "b"]).to_parquet(path),
}


@pytest.mark.parametrize("change", ["shorter", "longer", "other", "gone"])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_that_changes_while_it_is_read_is_refused(kind: str, change: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{kind}"
    values = np.arange(38.0).reshape(19, 2)
    WRITERS[kind](path, values)
    os.utime(path, ns=(0, 0))
    rows = open_files(path, "--data")
    rows.read(0)
    if change == "shorter":
        path.write_bytes(path.read_bytes()[:-7])
    elif change == "gone":
        path.unlink()
    else:
        WRITERS[kind](path, np.vstack([values, values]) if change == "longer" else values + 1)
    expected = "does not exist" if change == "gone" else "had 19 rows when it was opened, and has changed"
    with pytest.raises(InvalidInputError, match=f"--data: .*{expected}"):
        rows.read(1)
