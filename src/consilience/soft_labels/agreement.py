"""How often teachers agree where they overlap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats
from consilience.labels import LabelSpace


class TeacherAgreement(NamedTuple):
    """How often two teachers decide for the same class, on rows where both decide for a class they share."""

    share: Floats  # (N, N), NaN where they share fewer than two classes or have no such row
    n_rows: NDArray[np.intp]  # (N, N) such rows
    n_shared: NDArray[np.intp]  # (N, N) classes that both know


def teacher_agreement(logits: Floats, space: LabelSpace) -> TeacherAgreement:
    """Compare the decisions of all pairs of teachers.

    A row counts for two teachers if both answer and each decides for a class that the other knows, too. One
    that does not know birds is not wrong to call a bird a cat.

    Parameters
    ----------
    logits : (n, m) array
        Packed logits.
    space : LabelSpace

    Examples
    --------
    >>> space = LabelSpace([["cat", "dog"], ["cat", "dog", "bird"]])
    >>> found = teacher_agreement(np.array([[1, 0, 1, 0, 0], [1, 0, 0, 1, 0], [1, 0, 0, 0, 1.0]]), space)
    >>> float(found.share[0, 1]), int(found.n_rows[0, 1])  # the third row is a bird
    (0.5, 2)
    """
    N, known = space.n_teachers, space.mask
    decided = np.full((N, len(logits)), -1)
    for i in range(N):
        block = logits[:, space.block(i)]
        answered = ~np.isnan(block[:, 0])
        decided[i, answered] = space.columns[space.block(i)][block[answered].argmax(axis=1)]
    answers = decided >= 0
    n_shared = known.T.astype(np.intp) @ known.astype(np.intp)
    share, n_rows = np.full((N, N), np.nan), np.zeros((N, N), dtype=np.intp)
    for i in range(N):
        for j in range(i + 1, N):
            both = answers[i] & answers[j] & known[decided[i], j] & known[decided[j], i]
            n_rows[i, j] = n_rows[j, i] = both.sum()
            if n_shared[i, j] >= 2 and both.any():
                share[i, j] = share[j, i] = (decided[i] == decided[j])[both].mean()
    return TeacherAgreement(share, n_rows, n_shared)
