"""What `rank_teachers` may be given: the metrics, each with its options, and the options of the verb."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from consilience.exceptions import InvalidInputError
from consilience.options import (
    Check,
    Options,
    anything,
    choice,
    count,
    each,
    flag,
    function_of_yours,
    number,
    one_of,
    option,
    optional,
    temperature,
)


class Metric(Options):
    """A way to score teachers. Its subclasses are the metrics; a short name stands for one with defaults."""

    name: ClassVar[str]
    likelihood: ClassVar[Any] = False
    """Whether the score is a mean log-likelihood: rows without an answer then count as guesses."""
    highest: ClassVar[float] = math.inf
    """The largest score there can be; intervals end there."""

    n_bootstrap: int = option(
        count(),
        "Resamples of the rows behind the interval of a score.",
        default=200,
        flag="--bootstrap",
    )


class OutputMetric(Metric):
    """A metric that looks at the teacher's probabilities only."""

    def score(self, proba: Any, y: Any, *, folds: int = 1, random_state: int | None = 0) -> float:
        """Return the score of probabilities (n, m) and labels (n,).

        Rows without a label are left out. One fold is the paper's form; with 2 or more, what is learnt from
        the labels of some rows is tested on others. `random_state` seeds the folds.
        """
        from consilience.rank.arrays import score_outputs

        return score_outputs(self, proba, y, folds, random_state)


class FeatureMetric(Metric):
    """A metric that looks at the teacher's embedding only."""

    def score(self, embeddings: Any, y: Any, *, folds: int = 1, random_state: int | None = 0) -> float:
        """Return the score of embeddings (n, d) and labels (n,); options as in `OutputMetric.score`."""
        from consilience.rank.arrays import score_embeddings

        return score_embeddings(self, embeddings, y, folds, random_state)


class Transport(Metric):
    """Minus the Sinkhorn distance between teacher and student, or how likely one makes the other: eq. (24).

    "likelihood" (ours) ranks far better than the distance as printed; see docs/how/ranking.md.

    Examples
    --------
    >>> Transport(score="distance", temperature=3.0, epsilon=0.1)
    Transport(score='distance', temperature=3.0, epsilon=0.1)
    """

    name = "transport"

    score: str = option(
        choice("likelihood", "distance", "cost"),
        "'distance' is eq. (24) as printed, the mean of S_eps(p_T, p_S). 'likelihood' asks how probable the "
        "student's predictions p_S are under the transported label of the teacher. 'cost' is the plain "
        "<T, M>.",
        default="likelihood",
    )
    student: Any = option(
        anything("'probe', classifier, name of one, or function of a teacher", str),
        "Whose predictions p_S are. 'probe' is a linear one on the teacher's embedding (Approximation II). "
        "A classifier, or the name of one, is trained once, without any teacher (Approximation I). What "
        "takes a teacher, such as CrossTaskDistiller(None) or a function from a teacher to a classifier, is "
        "trained with each teacher (exact).",
        default="probe",
    )
    temperature: float = option(temperature(), "Of the softmax of both sides. The paper's is 3.", default=1.0)
    epsilon: Any = option(
        choice("auto", check=number(above=0)),
        "Of the Sinkhorn distance. 'auto' follows the spread of each teacher's costs.",
        default="auto",
    )
    normalize: bool = option(flag(), "Whether class centres are brought to unit length.", default=True)
    weight_decay: float = option(
        number(at_least=0),
        "Of the probe, on features scaled to a mean squared length of d.",
        default=1e-3,
    )

    @property
    def likelihood(self) -> bool:
        """Whether the score is a mean log-likelihood."""
        return self.score == "likelihood"


class NCE(OutputMetric):
    r"""How probable the labels are, given the teacher's most probable class: Tran et al. 2019.

    .. math:: -H(Y | Z) = \frac{1}{n} \sum_i \ln \hat P(y_i | z_i), \qquad z_i = \arg\max_z \theta(x_i)_z

    Examples
    --------
    >>> NCE().score([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], ["cat", "cat", "dog"])
    0.0
    """

    name, likelihood = "nce", True


class LEEP(OutputMetric):
    r"""How probable the labels are if each class of the teacher becomes a mix of yours: Nguyen et al. 2020.

    .. math:: \frac{1}{n} \sum_i \ln \sum_z \hat P(y_i | z) \, \theta(x_i)_z, \qquad
              \hat P(y, z) = \frac{1}{n} \sum_{i: y_i = y} \theta(x_i)_z

    Examples
    --------
    >>> round(LEEP().score([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], ["cat", "cat", "dog"]), 3)
    -0.385
    """

    name, likelihood = "leep", True


class LogME(FeatureMetric):
    r"""How probable the labels are under linear models on the embedding: You et al. 2021, eq. (2).

    .. math:: \frac{1}{K n} \sum_k \max_{\alpha, \beta} \ln p(y_k | F, \alpha, \beta)

    Here y_k is the one-hot column of class k, beta the precision of the noise, and alpha that of the weights;
    without the constants that the authors' code adds to denominators.

    Examples
    --------
    >>> LogME(n_bootstrap=1000)
    LogME(n_bootstrap=1000)
    """

    name = "logme"


class HScore(FeatureMetric):
    r"""How much of the labels' variance a linear model on the embedding explains: Bao et al. 2019.

    .. math:: \mathrm{tr}(\mathrm{cov}(f)^{-1} \, \mathrm{cov}(E[f | y]))

    With more features than rows, it is the number of classes minus one for any labels: use shrinkage.

    Examples
    --------
    >>> HScore(shrinkage=True)
    HScore(shrinkage=True)
    """

    name = "h_score"
    shrinkage: bool = option(
        flag(),
        "Use Ledoit and Wolf's estimate C of the covariance, and (1 - a) times the covariance between "
        "classes: Ibrahim et al. 2021, eq. (3). With folds, the covariance is shrunk in any case.",
        default=False,
    )


class NLEEP(FeatureMetric):
    """LEEP with clusters of the embedding for classes: Li et al. 2021, eq. (6) and (7).

    The clusters are those of a Gaussian mixture in the first principal components.

    Examples
    --------
    >>> NLEEP(energy=0.9)
    NLEEP(energy=0.9)
    """

    name, likelihood = "n_leep", True
    n_clusters: int | None = option(
        optional(count()),
        "By default the number of classes (theirs: five times as many). At most a fifth of the rows.",
        default=None,
    )
    energy: float = option(
        number(above=0, at_most=1), "The share of the variance that components hold.", default=0.8
    )


class GBC(FeatureMetric):
    """Whether each of your classes lies in its own place in the embedding: Pandy et al. 2022, eq. (4).

    It is minus the overlap (the Bhattacharyya coefficient) of Gaussians, summed over pairs of classes.

    Examples
    --------
    >>> GBC(covariance="diagonal")
    GBC(covariance='diagonal')
    """

    name, highest = "gbc", 0.0
    covariance: str = option(choice("spherical", "diagonal"), "Of the Gaussians.", default="spherical")
    n_components: int | None = option(
        optional(count()), "Principal components; None uses all features.", default=64
    )


class OTCE(Metric):
    r"""Whether the teacher's classes are near your rows and tell the label: Tan et al. 2021, eq. (3) to (7).

    .. math:: - \lambda_1 W_D - \lambda_2 H(Y | Y_s), \qquad W_D = \langle T, M \rangle

    T is the entropic transport plan between the teacher's rows and yours, and M are their squared distances.
    H is the conditional entropy of your labels given the teacher's, in the joint distribution from T. A
    ranking takes the teacher's class centres for its rows.

    Examples
    --------
    >>> OTCE(epsilon=0.5)
    OTCE(epsilon=0.5)
    """

    name, highest = "otce", 0.0
    epsilon: Any = option(
        choice("auto", check=number(above=0)),
        "The smoothness of the plan. 'auto' follows the spread of M.",
        default="auto",
    )
    distance_weight: float = option(
        number(at_least=0),
        "The first lambda. The paper fits both to tasks with a known outcome.",
        default=0.5,
    )
    entropy_weight: float = option(number(at_least=0), "The second lambda.", default=0.5)

    def score(
        self,
        source_embeddings: Any,
        source_y: Any,
        embeddings: Any,
        y: Any,
        *,
        source_weight: Any = None,
        folds: int = 1,
        random_state: int | None = 0,
    ) -> float:
        """Return the score of a teacher's rows, or centres, with their labels and weights, and of yours."""
        from consilience.rank.arrays import score_otce

        source = source_embeddings, source_y, source_weight
        return score_otce(self, source, embeddings, y, folds, random_state)


class TransRate(FeatureMetric):
    r"""How much shorter the labels make a code of the embedding: Huang et al. 2022, eq. (5).

    .. math:: \tfrac12 \ln \det (I + \tfrac{1}{n \epsilon} Z^T Z)
              - \sum_c \tfrac{n_c}{2n} \ln \det (I + \tfrac{1}{n_c \epsilon} Z_c^T Z_c)

    Z are the features minus their mean, with a mean squared length of one (ours), so that `epsilon` means
    the same for every teacher.

    Examples
    --------
    >>> TransRate(epsilon=1e-3)
    TransRate(epsilon=0.001)
    """

    name = "transrate"
    epsilon: float = option(number(above=0), "The distortion allowed in the code.", default=1e-4)
    n_shuffles: int = option(
        count(),
        "With 2 folds or more, the mean score of this many shuffles of the labels is subtracted (ours): "
        "features without information then score 0 on average.",
        default=5,
    )


class Own(Metric):
    """A function of yours: it gets a `Case` and returns a score, or a number for each row. Higher is better.

    Examples
    --------
    >>> Own(lambda case: case.proba.max(axis=1), n_bootstrap=1000).name
    '<lambda>'
    """

    function: Callable[[Any], Any] = option(function_of_yours(), "The function.")  # type: ignore[misc]

    @property
    def name(self) -> str:  # type: ignore[override]
        """What tables call it."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))


METRICS: dict[str, type[Metric]] = {
    one.name: one for one in (Transport, NCE, LEEP, LogME, HScore, NLEEP, GBC, OTCE, TransRate)
}
"""Every metric by its short name; `consilience.rank.metrics.SCORES` has the function of each."""


METRIC = one_of(METRICS, Metric, "str, Metric or callable", lambda given: Own(function=given))
"""The check of a single metric."""


def _metrics(name: str, value: Any) -> Mapping[str, Metric]:
    """Return the metrics by name, or raise unless each is known or a function, with its own name."""
    found: dict[str, Metric] = {}
    for one in value if isinstance(value, list | tuple) else [value]:
        metric = METRIC.run(name, one)
        if metric.name in found or (isinstance(metric, Own) and metric.name in METRICS):
            raise InvalidInputError(f"metric has two metrics called {metric.name!r}; give each its own name.")
        found[metric.name] = metric
    if not found:
        raise InvalidInputError("metric is empty; give the name of at least one.")
    return found


class RankOptions(Options):
    """Options of `rank_teachers`."""

    metric: Any = option(
        each(
            Check(
                _metrics,
                "str, Metric, callable, or list of these",
                str,
                tuple(METRICS),
                lambda name: METRICS[name](),
            )
        ),
        "'transport', 'nce', 'leep', 'logme', 'h_score', 'n_leep', 'gbc', 'otce' or 'transrate'; one of them "
        "with options, such as ``rank.Transport(score='distance')``; or a function that gets a "
        "`consilience.rank.metrics.Case` and returns a score, or a number for each row whose mean is the "
        "score. 'transport' answers which teacher to distil, 'logme' and 'h_score' whose embedding to reuse. "
        "Of several metrics, the first ranks.",
        default="transport",
    )
    folds: int = option(
        count(),
        "With 2 or more, what a metric learns from the labels of some rows is tested on others, so teachers "
        "that know nothing gain nothing by chance ('logme' and 'gbc' are as published in any case). 1 gives "
        "all metrics as published; with few rows per class, random teachers then often come first.",
        default=2,
    )
    confidence: float | None = option(
        optional(number(above=0, below=1)), "Of the intervals; None for no intervals.", default=0.95
    )
    random_state: int | None = option(
        optional(count(at_least=0)),
        "Seeds resamples, folds, mixtures and samples. None means 0, so a ranking never changes from run to "
        "run.",
        default=None,
    )
    run: Any = option(
        anything("Run or None"), "How the work is run: memory, cache, engine, progress.", default=None
    )
