"""Metrics on arrays that estimate, only from outputs or features, how much a teacher can help.

Higher is better for all of them. `consilience.rank_teachers` computes them for many teachers. It also offers
the metric of "Selective Cross-Task Distillation" (SCTD), which needs a cost matrix and a probe.

The defaults are the papers' definitions, which judge rows by what they learnt from the same rows. With few
rows, teachers that know nothing then score well by chance. `folds=2` judges each row by the other fold
instead, and `n_shuffles` does the same for `transrate`. `rank_teachers` uses these forms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._validation import (
    as_numbers,
    as_random_state,
    check_choice,
    check_count,
    check_distributions,
    check_number,
    check_sharpness,
)
from consilience.exceptions import ConvergenceWarning, InvalidInputError, warn
from consilience.kernels.arrays import Floats
from consilience.kernels.held_out import held_out_folds
from consilience.kernels.rank import evidence
from consilience.kernels.rank.evidence import (
    Evidence,
    Spectrum,
    class_sums,
    entropy_rows,
    label_sums,
    leep_rows,
    maximum_evidence,
)
from consilience.kernels.rank.separability import (
    gaussian_overlap,
    h_score_rows,
    held_out_h_score,
    transrate_above_chance,
    transrate_value,
)
from consilience.kernels.transport import sinkhorn as transport
from consilience.labels import read_labels
from consilience.rank.mixture import cluster_posterior, principal_components

__all__ = [
    "feature_spectrum",
    "gbc",
    "h_score",
    "leep",
    "logme",
    "n_leep",
    "nce",
    "otce",
    "transrate",
]

Codes = NDArray[np.intp]

EVIDENCE_TOL = 1e-6  # nats per row in the last step
LARGEST = 1e100  # of a feature: its square must not overflow
COVARIANCES = ("spherical", "diagonal")


def feature_spectrum(embeddings: ArrayLike, *, centred: bool = False) -> Spectrum:
    """Return the eigendecomposition of features. Pass it to several metrics to compute it only once.

    Parameters
    ----------
    embeddings : (n, d) array
    centred : bool
        Whether to subtract the mean of the features: yes for `h_score` and `transrate`, no for `logme`.
    """
    check_choice("centred", centred, (True, False))
    return evidence.feature_spectrum(_matrix("embeddings", embeddings), centred)


def nce(proba: ArrayLike, y: ArrayLike, *, folds: int = 1, random_state: int | None = 0) -> float:
    r"""Return the negative conditional entropy of the labels given the teacher's most probable class.

    .. math:: -H(Y | Z) = \frac{1}{n} \sum_i \ln \hat P(y_i | z_i), \qquad z_i = \arg\max_z \theta(x_i)_z

    Tran et al., "Transferability and hardness of supervised classification tasks" (2019).

    Parameters
    ----------
    proba : (n, m) array
        The teacher's probabilities, or any scores: only the largest of each row counts.
    y : (n,) array
        Labels, numbers or names. Rows without one are left out, here and in all metrics below.
    folds : int
        1 is the paper's form. With 2 or more, P for a row is counted in the other folds, with one more row
        of their labels for each z. The only row of a class counts as a guess.
    random_state : int, optional
        Seeds the folds.

    Examples
    --------
    >>> nce([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], ["cat", "cat", "dog"])
    0.0
    """
    scores, codes, n_classes = _labelled(_matrix("proba", proba), y)
    sure = np.eye(scores.shape[1])[scores.argmax(axis=1)]
    return float(leep_rows(sure, codes, n_classes, _folds(codes, folds, random_state)).mean())


def leep(proba: ArrayLike, y: ArrayLike, *, folds: int = 1, random_state: int | None = 0) -> float:
    r"""Return the log expected empirical prediction.

    .. math:: \frac{1}{n} \sum_i \ln \sum_z \hat P(y_i | z) \, \theta(x_i)_z, \qquad
              \hat P(y, z) = \frac{1}{n} \sum_{i: y_i = y} \theta(x_i)_z

    Nguyen et al., "LEEP: A new measure to evaluate transferability of learned representations" (2020), eq.
    (2).

    Parameters
    ----------
    proba : (n, m) array
        The teacher's probabilities.
    y : (n,) array
    folds, random_state
        As in `nce`.

    Examples
    --------
    >>> round(leep([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], ["cat", "cat", "dog"]), 3)
    -0.385
    """
    theta = check_distributions("proba", proba)
    if theta.ndim != 2:
        raise InvalidInputError(f"proba has shape {theta.shape}; expected (n, m), one column per class.")
    theta, codes, n_classes = _labelled(theta, y)
    return float(leep_rows(theta, codes, n_classes, _folds(codes, folds, random_state)).mean())


def logme(embeddings: ArrayLike, y: ArrayLike, *, spectrum: Spectrum | None = None) -> float:
    r"""Return the logarithm of the maximum evidence per row, averaged over the classes.

    .. math:: \frac{1}{K n} \sum_k \max_{\alpha, \beta} \ln p(y_k | F, \alpha, \beta)

    Here y_k is the one-hot column of class k, beta the precision of the noise, and alpha that of the weights.
    You et al., "LogME: Practical assessment of pre-trained models for transfer learning" (2021), eq. (2),
    without the constants that their code adds to denominators.

    Parameters
    ----------
    embeddings : (n, d) array
        The teacher's features.
    y : (n,) array
    spectrum : from `feature_spectrum`, optional
        Of the same features, not centred.
    """
    F, codes, n_classes = _labelled(_matrix("embeddings", embeddings), y, spectrum=spectrum)
    found = maximum_evidence(_spectrum(F, spectrum, False), *label_sums(F, codes, n_classes))
    warn_of_evidence(found)
    return float(found.values.mean())


def h_score(
    embeddings: ArrayLike,
    y: ArrayLike,
    *,
    shrinkage: bool = False,
    folds: int = 1,
    random_state: int | None = 0,
    spectrum: Spectrum | None = None,
) -> float:
    r"""Return the H-score: how much of the features' variance lies between the classes.

    .. math:: \mathrm{tr}(\mathrm{cov}(f)^{-1} \, \mathrm{cov}(E[f | y]))

    Bao et al., "An information-theoretic approach to transferability in task transfer learning" (2019). With
    more features than rows, it is the number of classes minus one for any labels: use shrinkage.

    Parameters
    ----------
    embeddings : (n, d) array
    y : (n,) array
    shrinkage : bool
        Use Ledoit and Wolf's estimate C of the covariance, and (1 - a) times the covariance between classes:
        Ibrahim et al., "Newer is not always better" (2021), eq. (3). For folds=1.
    folds : int
        1 is the paper's form. With 2 or more, the class centres for a row come from the other folds, and the
        score is the variance of the labels that they explain: about 0 for features without information, and
        at most about the number of classes minus one.
    random_state : int, optional
        Seeds the folds.
    spectrum : from `feature_spectrum`, optional
        Of the same features, centred. Ignored with shrinkage.
    """
    F, codes, n_classes = _labelled(_matrix("embeddings", embeddings), y, spectrum=spectrum)
    held_out = _folds(codes, folds, random_state)
    if held_out is not None:
        if shrinkage:
            raise InvalidInputError(
                "shrinkage=True is for folds=1; with folds, the covariance is always shrunk."
            )
        return float(held_out_h_score(F, codes, n_classes, _spectrum(F, spectrum, True), held_out).mean())
    sums, counts = label_sums(F, codes, n_classes)
    if not shrinkage:
        return float(h_score_rows(F, codes, _spectrum(F, spectrum, True), sums, counts).mean())
    from sklearn.covariance import ledoit_wolf

    covariance, share = ledoit_wolf(F)
    G = sums / counts[:, None] - F.mean(axis=0)
    solved = np.linalg.lstsq(covariance, G.T, rcond=None)[0]
    return float((1.0 - share) * (counts / len(F)) @ np.einsum("kd,dk->k", G, solved))


def transrate(
    embeddings: ArrayLike,
    y: ArrayLike,
    *,
    epsilon: float = 1e-4,
    n_shuffles: int = 0,
    random_state: int | None = 0,
    spectrum: Spectrum | None = None,
) -> float:
    r"""Return the coding rate of the features minus their coding rate given the labels.

    .. math:: \tfrac12 \ln \det (I + \tfrac{1}{n \epsilon} Z^T Z)
              - \sum_c \tfrac{n_c}{2n} \ln \det (I + \tfrac{1}{n_c \epsilon} Z_c^T Z_c)

    Huang et al., "Frustratingly easy transferability estimation" (2022), eq. (5). Z are the features minus
    their mean. They are scaled to a mean squared length of one, so that `epsilon` means the same for every
    teacher (ours).

    Parameters
    ----------
    embeddings : (n, d) array
    y : (n,) array
    epsilon : float
        The distortion allowed when features are coded.
    n_shuffles : int
        0 is the paper's form. Otherwise subtract the mean score of this many shuffles of the labels (ours):
        features without information then score 0 on average.
    random_state : int, optional
        Seeds the shuffles.
    spectrum : from `feature_spectrum`, optional
        Of the same features, centred.
    """
    F, codes, n_classes = _labelled(_matrix("embeddings", embeddings), y, spectrum=spectrum)
    check_number("epsilon", epsilon, above=0)
    if check_count("n_shuffles", n_shuffles, at_least=0):
        rng = as_random_state(random_state)
        return transrate_above_chance(F, codes, n_classes, epsilon, n_shuffles, rng)
    return transrate_value(F, codes, n_classes, _spectrum(F, spectrum, True), epsilon)


def gbc(
    embeddings: ArrayLike, y: ArrayLike, *, covariance: str = "spherical", n_components: int | None = 64
) -> float:
    """Return the Gaussian Bhattacharyya coefficient: minus the overlap of the classes, summed over pairs.

    Each class is a Gaussian in the first principal components. Pandy et al., "Transferability estimation
    using Bhattacharyya class separability" (2022), eq. (4), who also use 64 components.

    Parameters
    ----------
    embeddings : (n, d) array
    y : (n,) array
    covariance : {"spherical", "diagonal"}
    n_components : int, optional
        None uses all features.
    """
    F, codes, n_classes = _labelled(_matrix("embeddings", embeddings), y)
    check_choice("covariance", covariance, COVARIANCES)
    if n_components is not None:
        F = principal_components(F, min(check_count("n_components", n_components), *F.shape))
    counts = np.bincount(codes)[:, None]
    means = label_sums(F, codes, n_classes)[0] / counts
    variances = label_sums((F - means[codes]) ** 2, codes, n_classes)[0] / counts
    if covariance == "spherical":
        variances[:] = variances.mean(axis=1, keepdims=True)
    # a class with a single row has no variance
    floor = max(1e-6 * float(F.var(axis=0).mean()), np.finfo(np.float64).tiny)
    return gaussian_overlap(means, np.maximum(variances, floor))


def n_leep(
    embeddings: ArrayLike,
    y: ArrayLike,
    *,
    n_clusters: int | None = None,
    energy: float = 0.8,
    folds: int = 1,
    random_state: int | None = 0,
) -> float:
    """Return LEEP with clusters of the features instead of the teacher's classes.

    The principal components that hold a share `energy` of the variance are clustered by a Gaussian mixture.
    Its posterior is theta. Li et al., "Ranking neural checkpoints" (2021), eq. (6) and (7).

    Parameters
    ----------
    embeddings : (n, d) array
    y : (n,) array
    n_clusters : int, optional
        Default: the number of classes (theirs: five times as many). At most a fifth of the rows.
    energy : float
        From 0 to 1.
    folds : int
        As in `nce`. The mixture sees no labels and comes from all rows.
    random_state : int, optional
        Seeds the start of the mixture, and the folds.
    """
    F, codes, n_classes = _labelled(_matrix("embeddings", embeddings), y)
    posterior = cluster_posterior(F, n_classes if n_clusters is None else n_clusters, energy, random_state)
    return float(leep_rows(posterior, codes, n_classes, _folds(codes, folds, random_state)).mean())


def otce(
    source_embeddings: ArrayLike,
    source_y: ArrayLike,
    embeddings: ArrayLike,
    y: ArrayLike,
    *,
    source_weight: ArrayLike | None = None,
    epsilon: float | str = "auto",
    weights: tuple[float, float] = (0.5, 0.5),
    folds: int = 1,
    random_state: int | None = 0,
) -> float:
    r"""Return the transferability by optimal transport between the teacher's data and yours.

    .. math:: - \lambda_1 W_D - \lambda_2 H(Y | Y_s), \qquad W_D = \langle T, M \rangle

    T is the entropic transport plan between the rows of both, and M are their squared distances. H is the
    conditional entropy of your labels given the source's, in the joint distribution from T. Tan et al.,
    "OTCE: A transferability metric for cross-domain cross-task representations" (2021), eq. (3) to (7).

    Parameters
    ----------
    source_embeddings : (n_s, d) array
        The teacher's features of its own rows, or the centres of its classes, each with its weight.
    source_y : (n_s,) array
    embeddings : (n, d) array
    y : (n,) array
    source_weight : (n_s,) array, optional
        Default: equal weights.
    epsilon : float or "auto"
        The smoothness of the plan. "auto" follows the spread of M.
    weights : pair of float
        The two lambdas. The paper fits them to tasks with a known outcome.
    folds, random_state
        As in `nce`, for the entropy. The plan sees no labels of yours and comes from all rows.
    """
    S, F = _matrix("source_embeddings", source_embeddings), _matrix("embeddings", embeddings)
    F, codes, _ = _labelled(F, y)
    source_classes, source_codes = read_labels(source_y, len(S), where="source_y")
    if (source_codes < 0).any():
        raise InvalidInputError("source_y has rows without a label; leave these rows out of the source.")
    if S.shape[1] != F.shape[1]:
        raise InvalidInputError(
            f"source_embeddings have {S.shape[1]} columns, but embeddings have {F.shape[1]}."
        )
    if np.shape(weights) != (2,):
        raise InvalidInputError(f"weights={weights!r} must be two numbers, for distance and for entropy.")
    first, second = (check_number("weights", weight, at_least=0) for weight in weights)
    mass = np.ones(len(S)) if source_weight is None else np.asarray(source_weight)
    if mass.dtype.kind not in "biuf":
        raise InvalidInputError(f"source_weight has type {mass.dtype}; give numbers of at least 0.")
    mass = mass.astype(np.float64)
    if mass.shape != (len(S),) or not (np.isfinite(mass) & (mass >= 0)).all() or not mass.sum() > 0:
        raise InvalidInputError(
            f"source_weight must be {len(S)} numbers of at least 0, not all 0; it has shape {mass.shape}."
        )
    mass = mass / mass.sum()
    held_out = _folds(codes, folds, random_state)
    classes = (source_codes, len(source_classes))
    return float(otce_rows(S, classes, mass, F, codes, held_out, epsilon, (first, second)).mean())


def otce_rows(
    S: Floats,
    source: tuple[Codes, int],
    mass: Floats,
    F: Floats,
    codes: Codes,
    folds: Codes | None,
    epsilon: float | str = "auto",
    weights: tuple[float, float] = (0.5, 0.5),
) -> Floats:
    """Return each row's contribution (n,) to `otce`; `source` has the codes of S, and their number."""
    distances = np.maximum((S**2).sum(axis=1)[:, None] + (F**2).sum(axis=1) - 2.0 * (S @ F.T), 0.0)
    plan = _plan(mass, np.full(len(F), 1 / len(F)), distances, epsilon) * len(F)
    entropy = entropy_rows(class_sums(plan, *source), codes, int(codes.max()) + 1, folds)
    return np.asarray(weights[1] * entropy - weights[0] * np.einsum("zi,zi->i", plan, distances))


def _folds(codes: Codes, folds: int, random_state: int | None) -> Codes | None:
    """Return the fold of each row, or None for one fold: all rows at once."""
    if check_count("folds", folds) == 1:
        return None
    found = held_out_folds(codes, folds, as_random_state(random_state))
    if (found < 0).all():
        raise InvalidInputError("y has one row of each class, so no row can be held out. Use folds=1.")
    return found


def _labelled(
    F: Floats, y: ArrayLike, name: str = "y", at_least: int = 2, spectrum: Spectrum | None = None
) -> tuple[Floats, Codes, int]:
    """Return the rows of F that have a label, their codes, and the number of classes."""
    labels = read_labels(y, len(F), where=name, at_least=at_least)
    if labels.known.all():
        return F, labels.codes, len(labels.classes)
    if spectrum is not None:
        raise InvalidInputError(
            f"{name} has rows without a label, and spectrum is of all rows. Leave these rows out of both."
        )
    return F[labels.known], labels.codes[labels.known], len(labels.classes)


def unit_scale(F: NDArray[Any]) -> NDArray[Any]:
    """Return features (n, d) minus their mean, scaled to a mean squared length of one."""
    Z = F - F.mean(axis=0, dtype=np.float64).astype(F.dtype)
    length = float(np.sqrt(np.square(Z, dtype=np.float64).sum() / max(len(Z), 1)))
    return np.asarray(Z / Z.dtype.type(length)) if length > 0 else Z


def _plan(a: Floats, b: Floats, cost: Floats, epsilon: float | str) -> Floats:
    """Return the entropic transport plan (m, n) between two distributions."""
    if isinstance(epsilon, str):
        check_choice("epsilon", epsilon, ("auto",))
        eps = transport.automatic_epsilon(cost)
    else:
        eps = check_number("epsilon", epsilon, above=0)
    check_sharpness(eps, cost)
    solved = transport.solve(a[None], b[None], cost, eps, 1e-6, 10_000)
    message = transport.shortfall(solved.residual, solved.n_iter, 1e-6, 10_000)
    if message:
        warn(ConvergenceWarning(message))
    return transport.plan(a, b, cost, eps, solved.alpha[0], solved.beta[0])


def _matrix(name: str, values: ArrayLike) -> Floats:
    """Return finite numbers (n, d) as float64, or raise."""
    expected = "expected numbers (n, d), one row per sample"
    array = as_numbers(name, values, expected)
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidInputError(f"{name} has shape {array.shape} and type {array.dtype}; {expected}.")
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise InvalidInputError(
            f"{name} has NaN or infinity in row {{row}} ({int(bad.sum())} such rows).", row=int(bad.argmax())
        )
    numbers = array.astype(np.float64, copy=False)
    largest = float(np.abs(numbers).max())
    if largest > LARGEST:
        raise InvalidInputError(
            f"{name} reach {largest:g} in size; divide them, so their squares can be summed."
        )
    return numbers


def _spectrum(F: Floats, given: Spectrum | None, centred: bool) -> Spectrum:
    if given is None:
        return evidence.feature_spectrum(F, centred)
    if given.n != len(F) or len(given.mean) != F.shape[1]:
        raise InvalidInputError(
            f"spectrum belongs to features ({given.n}, {len(given.mean)}), but embeddings have shape "
            f"{F.shape}."
        )
    if given.centred != centred:
        raise InvalidInputError(f"spectrum is of the wrong kind; use feature_spectrum(F, centred={centred}).")
    return given


def warn_of_evidence(found: Evidence) -> None:
    """Warn if the search for the maximum stopped while the evidence was still changing."""
    late = found.change > EVIDENCE_TOL
    if late.any():
        warn(
            ConvergenceWarning(
                f"The evidence of {int(late.sum())} of {len(late)} classes was still changing, by "
                f"{found.change.max():.1e} nats per row in the last step (tol {EVIDENCE_TOL:g})."
            )
        )
