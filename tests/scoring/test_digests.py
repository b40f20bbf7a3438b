"""Digests of rows."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from consilience.scoring.digests import row_digests

X = np.random.default_rng(0).normal(size=(50, 3))


class TestDigests:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (X, X.astype(np.float32).astype(np.float64)),
            (X, X.astype(np.float32)),
            (np.zeros((1, 2, 3)), np.zeros((1, 3, 2))),
            (np.zeros((1, 4), np.int32), np.zeros((1, 4), np.float32)),
            (["ab"], ["a b"]),
            ([[1, "a"]], [["1", "a"]]),
            ([[True, 2]], [[1, 2]]),
            ([[1, 2.5]], [[1.0, 2.5]]),
            (["a", None], ["a", "None"]),
            (np.array([["a", "b"]]), np.array([["a, b", ""]])),
            (np.array([["1", "2"]], dtype=object), np.array([[1, 2]], dtype=object)),
            (pd.DataFrame({"a": [1.0]}), pd.DataFrame({"b": [1.0]})),
            (pd.DataFrame({"a": [1], "b": ["x"]}), pd.DataFrame({"a": [1.0], "b": ["x"]})),
            (
                pd.DataFrame({"a": [1, 2**60], "b": [0.5, 1]}),
                pd.DataFrame({"a": [1, 2**60 + 1], "b": [0.5, 1]}),
            ),
            (sp.csr_array(np.eye(2)), sp.csr_array(np.eye(2)[:, ::-1])),
            (sp.csr_array((1, 3)), sp.csr_array((1, 4))),
        ],
        ids=str,
    )
    def test_other_content_has_another_digest(self, one: Any, other: Any) -> None:
        assert (row_digests(one)[-1] != row_digests(other)[-1]).any()

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (X, np.asfortranarray(X)),
            (X, X.tolist()),
            (np.vstack([X, X])[::2], np.vstack([X, X])[::2].copy()),
            (np.array(["a", "bc"]), ["a", "bc"]),
            (np.array(["a", "bc"], dtype="U9"), np.array(["a", "bc"], dtype=object)),
            (
                pd.DataFrame({"a": [1, 2], "b": ["x", None]}),
                pd.DataFrame({"a": [1, 2], "b": ["x", None]}, index=[7, 8]),
            ),
            (sp.csr_array(np.eye(3)), sp.coo_array(np.eye(3))),
        ],
        ids=str,
    )
    def test_the_same_content_has_the_same_digest(self, one: Any, other: Any) -> None:
        np.testing.assert_array_equal(row_digests(one), row_digests(other))

    def test_tables_of_other_libraries_go_by_column(self) -> None:
        frame = pytest.importorskip("polars").DataFrame
        one, same = (frame({"a": [1, 2**60], "b": [0.5, 1.0]}) for _ in range(2))
        np.testing.assert_array_equal(row_digests(one), row_digests(same))
        for other in ({"a": [1, 2**60 + 1], "b": [0.5, 1.0]}, {"c": [1, 2**60], "b": [0.5, 1.0]}):
            assert (row_digests(one)[-1] != row_digests(frame(other))[-1]).any()

    def test_unsorted_and_repeated_entries_of_sparse_rows(self) -> None:
        tidy = sp.csr_array(np.array([[0.0, 3.0, 4.0]]))
        messy = sp.csr_array((np.array([4.0, 1.0, 2.0]), np.array([2, 1, 1]), np.array([0, 3])), shape=(1, 3))
        np.testing.assert_array_equal(row_digests(tidy), row_digests(messy))
        assert messy.nnz == 3  # the user's matrix is not tidied up

    def test_a_tensor_is_its_array(self) -> None:
        torch = pytest.importorskip("torch")
        np.testing.assert_array_equal(row_digests(torch.tensor(X)), row_digests(X))
        assert row_digests(torch.zeros(2, 3, dtype=torch.bfloat16)).shape == (2, 2)
        np.testing.assert_array_equal(row_digests(torch.tensor(X).to_sparse()), row_digests(X))

    @pytest.mark.parametrize(
        "rows", [[{"a": 1}], [[1], [1, 2]], np.array([object()], dtype=object), iter([1])]
    )
    def test_rows_without_plain_content_have_none(self, rows: Any) -> None:
        assert row_digests(rows) is None

    def test_no_rows_and_no_columns(self) -> None:
        assert row_digests(np.empty((0, 3))).shape == (0, 2)
        assert row_digests(np.empty((4, 0))).shape == (4, 2)
        assert row_digests([]).shape == (0, 2)
