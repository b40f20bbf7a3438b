"""What teachers share that hold the outputs for the rows of one X."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._validation import n_rows
from consilience.exceptions import ConsilienceWarning, TeacherError
from consilience.files.row_hash import rows_sha256
from consilience.teachers._base import Adapter, Teacher
from consilience.teachers._features import Observed


class Aligned(Adapter):
    """Outputs that belong to the rows of one X."""

    batched = False

    _rows: int
    _rows_sha256: str | None = None  # of the rows that the card names
    _stored_features: Any = None
    _stored_weights: NDArray[Any] | None = None

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The weights (k, d) that were stored with the embeddings, if any."""
        return self._stored_weights

    def _features(self, X: Any, rows: int) -> Any:
        return self._embed(X) if self._stored_features is None else self._stored_features

    def _embeddable(self) -> bool:
        return self._stored_features is not None or callable(self._embed)

    def _width(self) -> int:
        return 0 if self._stored_features is None else int(np.shape(self._stored_features)[1])

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return the logits (n, k) of all rows; only the number of rows of X matters."""
        self.check_rows(X)
        return super().predict_logits(X)

    def observe(self, X: Any) -> Observed:
        """Return the logits and embeddings of all rows; only the number of rows of X matters."""
        self.check_rows(X)
        return super().observe(X)

    def embed(self, X: Any) -> NDArray[Any] | None:
        """Return the embeddings of all rows, or None; only the number of rows of X matters."""
        self.check_rows(X)
        return super().embed(X)

    def part(self, rows: slice | NDArray[np.intp]) -> Teacher:
        """Return a teacher that holds the outputs of some of the rows."""
        other = copy(self)
        other._rows = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        other._rows_sha256 = None
        if self._stored_features is not None:
            other._stored_features = self._stored_features[rows]
        other._keep(rows)
        return other

    @abstractmethod
    def _keep(self, rows: slice | NDArray[np.intp]) -> None:
        """Forget the outputs of all other rows."""

    def check_rows(self, X: Any) -> None:
        """Raise unless X has as many rows; warn if it has other rows than the card names."""
        rows = n_rows(X)
        if rows != self._rows:
            raise TeacherError(
                self.name,
                f"holds outputs for {self._rows} rows and X has {rows}. "
                "Precomputed outputs belong to one X, row for row.",
            )
        # only cards that name their rows cost a checksum of X
        if self._rows_sha256 is not None and rows_sha256(X) not in (None, self._rows_sha256):
            self._rows_sha256 = None  # one warning is enough
            warnings.warn(
                ConsilienceWarning(
                    f"Teacher {self.name!r} holds outputs for other rows than X: the checksum on its card "
                    "is another. Outputs must belong to the same rows in the same order. If they do, and "
                    "only a number or a type is written in another way, there is nothing to mend."
                ),
                stacklevel=2,
            )
