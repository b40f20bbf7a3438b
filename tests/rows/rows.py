"""What every source must do, for the tests of all kinds."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from consilience._validation import take_rows
from consilience.rows import HeldRows, Rows, join_rows
from consilience.rows.targets import TargetRows


def target_rows(X: Any, targets: Any, weights: Any = None, *, block_rows: int = 2**14) -> TargetRows:
    """Return rows and targets that are in memory."""
    return TargetRows(HeldRows(X, rows_of_a_block=block_rows), np.asarray(targets, np.float32), weights)


def equal_rows(found: Any, expected: Any) -> None:
    """Compare rows of any kind; types count, and the categories of a part need not be those of the whole."""
    if hasattr(expected, "iloc"):
        a, b = found.reset_index(drop=True), expected.reset_index(drop=True)
        pd.testing.assert_frame_equal(a, b, check_categorical=False)
    elif isinstance(expected, list):
        assert found == expected
    elif issparse(expected):
        np.testing.assert_array_equal(found.toarray(), expected.toarray())
    elif hasattr(expected, "estimated_size"):
        assert found.equals(expected)
    else:
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def check_source(source: Rows, expected: Any, *, sent: bool = True) -> None:
    """Check that a source gives the same rows in whatever way it is read."""
    equal_rows(source.all(None), expected)
    parts = [source.read(block) for block in reversed(range(source.n_blocks))]
    equal_rows(join_rows(parts[::-1]), expected)
    for block in source.blocks([source.n_blocks - 1, 0]):
        equal_rows(block.X, take_rows(expected, block.rows))
    random = np.random.default_rng(0)
    for count in (1, len(source) // 2):
        rows = np.sort(random.choice(len(source), count, replace=False))
        equal_rows(source.take(rows), take_rows(expected, rows))
    assert [block for stretch in source.stretches for block in stretch] == list(range(source.n_blocks))
    assert source.shape == (len(source), *np.shape(source.head)[1:])
    assert len(source) == source.borders[-1]
    if sent:
        copy = pickle.loads(pickle.dumps(source))  # noqa: S301
        equal_rows(copy.read(copy.n_blocks - 1), parts[0])
        equal_rows(copy.all(None), expected)
