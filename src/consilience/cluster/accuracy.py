"""How well clusters agree with classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

from consilience.exceptions import InvalidInputError
from consilience.labels import read_labels


def clustering_accuracy(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    r"""Return the share of rows that are right under the best one-to-one match of clusters and classes.

    The numbers of clusters have no meaning, so the Hungarian algorithm assigns a class to each cluster:

    .. math:: \max_{m} \frac1n \sum_i [\, m(\mathrm{pred}_i) = \mathrm{true}_i \,],
        \qquad m \text{ one-to-one.}

    If there are more clusters than classes, the rows of the clusters left over count as wrong.

    Parameters
    ----------
    labels_true : (n,) array
        Classes: numbers or names. Rows without one are left out.
    labels_pred : (n,) array
        Clusters: numbers or names. Rows without one count as wrong.

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
    classes, i = read_labels(labels_true, where="labels_true")
    clusters, j = read_labels(labels_pred, where="labels_pred")
    if len(i) != len(j):
        raise InvalidInputError(f"labels_true has {len(i)} rows and labels_pred has {len(j)}.")
    known = i >= 0
    counted = known & (j >= 0)
    flat = np.bincount(i[counted] * len(clusters) + j[counted], minlength=len(classes) * len(clusters))
    counts = flat.reshape(len(classes), len(clusters))
    rows, columns = linear_sum_assignment(counts, maximize=True)
    return float(counts[rows, columns].sum() / known.sum())


def cluster_agreement(truth: Any, labels: ArrayLike, where: str = "y") -> dict[str, Any]:
    """Tell how well clusters (n,) agree with classes (n,); rows without a class are left out.

    Examples
    --------
    >>> cluster_agreement(["cat", None, "dog"], [1, 0, 0])
    {'n_rows': 2, 'accuracy': 1.0, 'nmi': 1.0, 'ari': 1.0}
    """
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    found, clusters = read_labels(truth, where=where, at_least=0), np.asarray(labels)
    known, classes = found.known, found.codes[found.known]
    if not known.any():
        return {"n_rows": 0, "accuracy": None, "nmi": None, "ari": None}
    return {
        "n_rows": int(known.sum()),
        "accuracy": clustering_accuracy(classes, clusters[known]),
        "nmi": float(normalized_mutual_info_score(classes, clusters[known])),
        "ari": float(adjusted_rand_score(classes, clusters[known])),
    }
