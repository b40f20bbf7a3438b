"""Students learn from arrays, for tests."""

from typing import Any

import numpy as np
from tests.rows.rows import target_rows

from consilience.run import Run


def learnt(
    student: Any,
    X: Any,
    Q: Any,
    class_weights: Any = None,
    row_weights: Any = None,
    *,
    block_rows: int = 2**14,
    **run: Any,
) -> Any:
    """Return a student that has learnt soft labels of rows in memory."""
    rows = target_rows(X, Q, row_weights, block_rows=block_rows)
    weights = np.ones(rows.n_columns) if class_weights is None else class_weights
    return student.learn(rows, weights, run=Run(**run))
