"""A checksum of rows depends on values, not on how they are stored."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_matrix

from consilience.files.card import rows_sha256

pandas = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def frame():
    return pandas.DataFrame(
        {
            "age": [30, 40, 50],
            "city": ["Ulm", None, "Bonn"],
            "seen": pandas.to_datetime(["2024-01-01", None, "2024-03-01"]),
            "ill": [True, False, True],
        }
    )


def test_one_checksum_for_one_content(frame) -> None:
    X = np.arange(6.0).reshape(3, 2)
    for same in (
        X.astype(np.int8),
        X.astype(np.float32),
        np.asfortranarray(X),
        X.tolist(),
        pandas.DataFrame(X),
    ):
        assert rows_sha256(same) == rows_sha256(X)
    reordered = frame[["ill", "seen", "age", "city"]].astype({"age": float, "city": "category"})
    assert rows_sha256(reordered) == rows_sha256(frame)
    sparse = coo_matrix(([1.0, 1.0, 3.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    assert rows_sha256(sparse) == rows_sha256(csr_matrix([[0.0, 2.0], [3.0, 0.0]]))
    assert rows_sha256(["a", "b"]) == rows_sha256(np.array(["a", "b"]))


def test_another_content_has_another_checksum(frame) -> None:
    X = np.arange(6.0).reshape(3, 2)
    changed = frame.copy()
    changed.loc[1, "city"] = "Ulm"
    renamed = frame.rename(columns={"age": "years"})
    found = [
        rows_sha256(rows)
        for rows in (X, X[::-1], X.T, X.ravel(), -X, frame, frame[::-1], changed, renamed, frame[["age"]],
                     ["ab", "c"], ["a", "bc"], csr_matrix(X))
    ]  # fmt: skip
    assert None not in found
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("rows", [[{"a": 1}], [[1, 2], [3]], 5, np.array([1j])])
def test_rows_without_plain_content_have_none(rows) -> None:
    assert rows_sha256(rows) is None
