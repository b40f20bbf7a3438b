"""How well clusters agree with classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from consilience.exceptions import InvalidInputError


def clustering_accuracy(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    r"""Return the share of rows that are right under the best one-to-one match of clusters and classes.

    The numbers of clusters have no meaning, so the Hungarian algorithm assigns a class to each cluster:

    .. math:: \max_{m} \frac1n \sum_i [\, m(\mathrm{pred}_i) = \mathrm{true}_i \,],
        \qquad m \text{ one-to-one.}

    If there are more clusters than classes, the rows of the clusters left over count as wrong.

    Parameters
    ----------
    labels_true : (n,) array
        Classes: numbers or names.
    labels_pred : (n,) array
        Clusters: numbers or names.

    Returns
    -------
    float between 0 and 1.

    See Also
    --------
    sklearn.metrics.normalized_mutual_info_score, sklearn.metrics.adjusted_rand_score :
        Agreement without a match.

    Examples
    --------
    >>> clustering_accuracy(["cat", "cat", "dog", "dog"], [1, 1, 0, 1])
    0.75
    """
    counts = _contingency(
        _check_labels("labels_true", labels_true), _check_labels("labels_pred", labels_pred)
    )
    rows, columns = linear_sum_assignment(counts, maximize=True)
    return float(counts[rows, columns].sum() / counts.sum())


def _contingency(labels_true: NDArray[np.generic], labels_pred: NDArray[np.generic]) -> NDArray[np.intp]:
    """Return how many rows each class shares with each cluster."""
    if len(labels_true) != len(labels_pred):
        raise InvalidInputError(
            f"labels_true has {len(labels_true)} rows and labels_pred has {len(labels_pred)}."
        )
    classes, i = np.unique(labels_true, return_inverse=True)
    clusters, j = np.unique(labels_pred, return_inverse=True)
    flat = np.bincount(i * len(clusters) + j, minlength=len(classes) * len(clusters))
    return flat.reshape(len(classes), len(clusters))


def _check_labels(name: str, labels: ArrayLike) -> NDArray[np.generic]:
    values = np.asarray(labels)
    if values.ndim != 1 or len(values) == 0:
        raise InvalidInputError(f"{name} has shape {values.shape}; expected (n,), a label per row.")
    return values
