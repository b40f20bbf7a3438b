"""Students whose classifier learns soft labels itself."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from consilience._progress import Progress, silent
from consilience._validation import as_random_state
from consilience.options import anything, option
from consilience.rows.targets import TargetRows
from consilience.students.estimator import EstimatorStudent, Loss


@runtime_checkable
class LearnsSoftLabels(Protocol):
    """A classifier that learns soft labels itself, such as `consilience.students.Ngrams`.

    Optional members: ``save(path, *, classes, temperature, description, details)`` writes an ``.npz`` file
    that `consilience.as_teacher` reads. Without it the student cannot be saved. And
    ``fit_by_passes(rows, *, class_weights, loss, progress, memory)`` learns from rows that are read block by
    block.

    Examples
    --------
    >>> from consilience.students import Ngrams
    >>> isinstance(Ngrams(), LearnsSoftLabels)
    True
    """

    def fit_soft_labels(
        self,
        X: Any,
        Q: NDArray[np.float64],
        *,
        class_weights: NDArray[np.float64],
        row_weights: NDArray[np.float64] | None,
        loss: Loss,
        progress: Progress,
    ) -> Any:
        """Fit on soft labels Q (n, L), weighted by class (L,) and by row (n,); classes are 0 to L - 1."""
        ...

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, L)."""
        ...


class SoftLabelStudent(EstimatorStudent):
    """Fit a classifier that learns soft labels itself, without expansion.

    Attributes
    ----------
    estimator_, columns_, n_iter_
        See `EstimatorStudent`; it learns all L classes.
    """

    estimator: Any = option(anything("LearnsSoftLabels"), "It is cloned, never changed.")  # type: ignore[misc]
    progress: Progress = option(anything("callable"), "Passed to the estimator.", default=silent)

    def unfitted(self) -> Any:
        """Return the classifier to fit."""
        return self.estimator

    def fit(
        self,
        X: Any,
        Q: NDArray[np.float64],
        class_weights: NDArray[np.float64],
        row_weights: NDArray[np.float64] | None = None,
    ) -> SoftLabelStudent:
        """Fit on soft labels Q (n, L), weighted by class (L,) and by row (n,)."""
        self.check_options()
        estimator = self._seeded_clone(as_random_state(self.random_state))
        # What it returns is not used: it need not be the estimator.
        estimator.fit_soft_labels(
            X,
            Q,
            class_weights=class_weights,
            row_weights=row_weights,
            loss=self.loss,
            progress=self.progress,
        )
        self._keep(estimator, np.arange(Q.shape[1]))
        return self

    def fit_by_passes(
        self, rows: TargetRows, class_weights: NDArray[np.float64], *, progress: Progress, memory: int
    ) -> None:
        """Fit on soft labels that are read block by block, with so many bytes of memory."""
        self.check_options()
        estimator = self._seeded_clone(as_random_state(self.random_state))
        estimator.fit_by_passes(
            rows, class_weights=class_weights, loss=self.loss, progress=progress, memory=memory
        )
        self._keep(estimator, np.arange(rows.n_columns))
