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
    check_choice,
    choice,
    count,
    either,
    flag,
    number,
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

    n_bootstrap: int = option(count(), "Resamples of the rows behind the interval of a score.", default=200)


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
        anything("'probe', classifier, name of one, or function of a teacher"),
        "Whose predictions p_S are. 'probe' is a linear one on the teacher's embedding (Approximation II). "
        "A classifier, or the name of one, is trained once, without any teacher (Approximation I). What "
        "takes a teacher, such as CrossTaskDistiller(None) or a function from a teacher to a classifier, is "
        "trained with each teacher (exact).",
        default="probe",
    )
    temperature: float = option(temperature(), "Of the softmax of both sides. The paper's is 3.", default=1.0)
    epsilon: Any = option(
        either("auto", check=number(above=0)),
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


class NCE(Metric):
    """How probable the labels are, given the teacher's most probable class: Tran et al. 2019.

    Examples
    --------
    >>> NCE(n_bootstrap=1000)
    NCE(n_bootstrap=1000)
    """

    name, likelihood = "nce", True


class LEEP(Metric):
    """How probable the labels are if each class of the teacher becomes a mix of yours: Nguyen et al. 2020.

    Examples
    --------
    >>> LEEP(n_bootstrap=1000)
    LEEP(n_bootstrap=1000)
    """

    name, likelihood = "leep", True


class LogME(Metric):
    """How probable the labels are under linear models on the embedding: You et al. 2021.

    Examples
    --------
    >>> LogME(n_bootstrap=1000)
    LogME(n_bootstrap=1000)
    """

    name = "logme"


class HScore(Metric):
    """How much of the labels' variance a linear model on the embedding explains: Bao et al. 2019.

    Examples
    --------
    >>> HScore(n_bootstrap=1000)
    HScore(n_bootstrap=1000)
    """

    name = "h_score"


class NLEEP(Metric):
    """LEEP with clusters of the embedding for classes: Li et al. 2021.

    Examples
    --------
    >>> NLEEP(n_bootstrap=1000)
    NLEEP(n_bootstrap=1000)
    """

    name, likelihood = "n_leep", True


class GBC(Metric):
    """Whether each of your classes lies in its own place in the embedding: Pandy et al. 2022.

    Examples
    --------
    >>> GBC(n_bootstrap=1000)
    GBC(n_bootstrap=1000)
    """

    name, highest = "gbc", 0.0


class OTCE(Metric):
    """Whether the teacher's classes are near your rows and tell the label: Tan et al. 2021.

    Examples
    --------
    >>> OTCE(n_bootstrap=1000)
    OTCE(n_bootstrap=1000)
    """

    name, highest = "otce", 0.0


class TransRate(Metric):
    """How much shorter the labels make a code of the embedding: Huang et al. 2022.

    Examples
    --------
    >>> TransRate(n_bootstrap=1000)
    TransRate(n_bootstrap=1000)
    """

    name = "transrate"


class Own(Metric):
    """A function of yours: it gets a `Case` and returns a score, or a number for each row. Higher is better.

    Examples
    --------
    >>> Own(lambda case: case.proba.max(axis=1), n_bootstrap=1000).name
    '<lambda>'
    """

    function: Callable[[Any], Any] = option(anything("callable"), "The function.")  # type: ignore[misc]

    @property
    def name(self) -> str:  # type: ignore[override]
        """What tables call it."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))


METRICS: dict[str, type[Metric]] = {
    one.name: one for one in (Transport, NCE, LEEP, LogME, HScore, NLEEP, GBC, OTCE, TransRate)
}
"""Every metric by its short name; `consilience.rank.metrics.SCORES` has the function of each."""


def _metrics(name: str, value: Any) -> Mapping[str, Metric]:
    """Return the metrics by name, or raise unless each is known or a function, with its own name."""
    given = list(value) if isinstance(value, list | tuple) else [value]
    if not given:
        raise InvalidInputError("metric is empty; give the name of at least one.")
    found: dict[str, Metric] = {}
    for one in given:
        if callable(one):
            metric: Metric = Own(function=one)
        elif isinstance(one, Metric):
            metric = one
        else:
            check_choice(name, one, METRICS)
            metric = METRICS[one]()
        metric.check_options()
        if metric.name in found or (isinstance(metric, Own) and metric.name in METRICS):
            raise InvalidInputError(f"metric has two metrics called {metric.name!r}; give each its own name.")
        found[metric.name] = metric
    return found


class RankOptions(Options):
    """Options of `rank_teachers`."""

    metric: Any = option(
        Check(_metrics, "str, Metric, callable, or list of these", str, tuple(METRICS)),
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
