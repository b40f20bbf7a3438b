"""Check whether the weights of a teacher's last layer can replace its class centres (SCTD, Table 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience._validation import n_rows
from consilience._words import shorten
from consilience.exceptions import InvalidInputError
from consilience.kernels.transport.centres import nearest_other_mean, unit_rows
from consilience.labels import read_labels
from consilience.teachers import Observed, as_teacher
from consilience.transport.centres import TRUSTED_AGREEMENT, features, layer_weights, observed_rows

# With labels, the weights are trustworthy if they lose at most this much accuracy against the whole model.
TRUSTED_LOSS = 0.1


@dataclass(frozen=True)
class NcmAccuracy:
    """Accuracy of nearest-class-mean classifiers in a teacher's embedding: SCTD, Table 2.

    Attributes
    ----------
    model : float
        Accuracy of the whole model. Without labels it is 1: the model agrees with itself.
    true_centres : float
        Accuracy of the nearest class mean, where each row is left out of its own class's mean. Without
        labels, the predicted class counts as the class.
    weight_centres : float or None
        Accuracy of the nearest row of weights, eq. (8). None if the teacher has no weights.
    n_rows : int
        Number of rows compared.
    labelled : bool
        Whether y was given. Otherwise the model's own predictions take the place of labels.
    """

    model: float
    true_centres: float
    weight_centres: float | None
    n_rows: int
    labelled: bool

    @property
    def trustworthy(self) -> bool:
        """Whether the weights can replace the centres.

        With labels, they may be at most `TRUSTED_LOSS` worse than the model. Without, they must agree with it
        on at least `TRUSTED_AGREEMENT` of the rows; these rows need not belong to its classes.
        """
        if self.weight_centres is None:
            return False
        if self.labelled:
            return self.model - self.weight_centres <= TRUSTED_LOSS
        return self.weight_centres >= TRUSTED_AGREEMENT

    def __str__(self) -> str:
        verdict = "The weights can replace the class centres."
        if self.weight_centres is None:
            verdict = "The teacher has no weights on its embedding; its centres come from elsewhere."
        elif not self.trustworthy:
            verdict = (
                "The weights cannot replace the class centres; put true centres on the card, "
                "or use centres='predictions'."
            )
        what = "accuracy" if self.labelled else "agreement with the model's own predictions"
        weights = "-" if self.weight_centres is None else f"{self.weight_centres:.1%}"
        return (
            f"{what} on {self.n_rows} rows: model {self.model:.1%}, nearest true centre "
            f"{self.true_centres:.1%}, nearest weights {weights}. {verdict}"
        )


def ncm_accuracy(
    teacher: Any, X: Any, y: Any = None, *, normalize: bool = True, observed: Observed | None = None
) -> NcmAccuracy:
    """Check whether the weights of a teacher's last layer can replace its class centres: SCTD, Table 2.

    Parameters
    ----------
    teacher : teacher
        Or anything that `as_teacher` accepts.
    X : (n, ...) rows
    y : (n,) sequence, optional
        Labels. Rows without one, or of classes that the teacher does not know, are left out. Without y, the
        nearest-mean classifiers are compared with the model's own predictions, and X may be any rows.
    normalize : bool
        Whether to scale rows and centres to unit length, as in `cost_matrix`.
    observed : Observed, optional
        The result of `observe` for X.

    Returns
    -------
    NcmAccuracy

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.neural_network import MLPClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = MLPClassifier(64, max_iter=60, random_state=0, tol=1).fit(X / 16, y)
    >>> check = ncm_accuracy(model, X / 16, y)
    >>> check.labelled, check.n_rows
    (True, 1797)
    """
    source = as_teacher(teacher)
    seen = observed_rows(source, X, observed)
    known = source.classes.tolist()
    answered = ~np.isnan(seen.logits[:, 0])
    predicted = np.where(answered, np.argmax(np.nan_to_num(seen.logits), axis=1), -1)
    if y is None:
        truth = predicted
    else:
        names, codes = read_labels(y, n_rows(X))
        place = {name: i for i, name in enumerate(known)}
        own = np.array([place.get(name, -1) for name in names.tolist()])[codes]
        truth = np.where(answered & (codes >= 0), own, -1)
    rows = np.flatnonzero(truth >= 0)
    if len(rows) == 0:
        raise InvalidInputError(
            f"No row of X belongs to a class that teacher {source.name!r} knows ({shorten(known, 5)})."
        )
    points, truth = np.asarray(features(seen)[rows], dtype=np.float64), truth[rows]
    weights = layer_weights(source, X) if seen.embeddings is not None else None
    unit = unit_rows(points) if normalize else points
    near_weights = None if weights is None else (unit @ unit_rows(weights).T).argmax(axis=1)
    near_means = nearest_other_mean(points, truth, len(known), normalize)
    return NcmAccuracy(
        model=float(np.mean(predicted[rows] == truth)),
        true_centres=float(np.mean(near_means == truth)),
        weight_centres=None if near_weights is None else float(np.mean(near_weights == truth)),
        n_rows=len(rows),
        labelled=y is not None,
    )
