"""What every student is: options that say how it learns, and after `fit` what it has learnt."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from consilience._validation import check_fitted
from consilience.options import Options, anything, choice, flag, number, option

Loss = Literal["cross-entropy", "collision"]
LOSSES = ("cross-entropy", "collision")


class Student(Options):
    """What learns soft labels. It is cloned before it is fitted, so one object can serve many fits.

    Examples
    --------
    >>> from consilience.students import Logistic
    >>> isinstance(Logistic(loss="collision"), Student)
    True
    """

    scores: ClassVar[str] = "probabilities"
    train = "estimate"
    takes_missing: ClassVar[bool] = False

    loss: Loss = option(
        choice(*LOSSES),
        "What the student minimises: Shannon's cross-entropy with the soft labels, or the collision "
        "cross-entropy, eq. (15) of CCE. With the latter, uncertain soft labels say little, and the student "
        "decides between the classes that they leave possible; its probabilities are nearer to 0 and 1. "
        "Classifiers of scikit-learn are refitted a few times.",
        default="cross-entropy",
    )
    self_label: bool = option(
        flag(),
        "Whether the student trains once more on its own findings: fair pseudo-labels of its predictions "
        "times the soft labels. A `Unifier` does this.",
        default=False,
    )
    random_state: Any = option(
        anything("int, RandomState or None"),
        "Makes the student reproducible. By default the seed of the estimator that trains it.",
        default=None,
    )


class EstimatorStudent(Student):
    """Wraps a classifier with `predict_proba` and learns soft labels with it.

    A subclass has `fit`, which ends with `_keep`.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier. Its classes are positions among the L classes.
    columns_ : (k,) array of int
        Which of the L classes it learnt.
    n_iter_ : int or None
        The classifier's own ``n_iter_``, if it has one.
    """

    @abstractmethod
    def unfitted(self) -> Any:
        """Return the classifier to fit; it is cloned, never changed."""

    @abstractmethod
    def fit(
        self,
        X: Any,
        Q: NDArray[np.float64],
        class_weights: NDArray[np.float64],
        row_weights: NDArray[np.float64] | None = None,
    ) -> Self:
        """Fit on soft labels Q (n, L), weighted by class (L,) and by row (n,)."""

    def predict_scores(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, k) of the classes in `columns_`."""
        check_fitted(self, "estimator_")
        return np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)

    def predict_all(self, X: Any, n_classes: int) -> NDArray[np.float64]:
        """Return probabilities (n, L) of all L classes: zero for those that it did not learn."""
        scores = self.predict_scores(X)
        proba = np.zeros((len(scores), n_classes))
        proba[:, self.columns_] = scores
        return proba

    def _keep(self, estimator: Any, columns: NDArray[np.intp]) -> None:
        """Make a fitted classifier the one to predict with."""
        self.estimator_ = estimator
        self.columns_ = columns
        self.n_iter_: int | None = _iterations(estimator)

    def _seeded_clone(self, random: np.random.RandomState) -> Any:
        """Return an unfitted copy with every `random_state` of None set: one seed reproduces it all."""
        estimator = clone(self.unfitted())
        seeds = {
            name: int(random.randint(2**31 - 1))
            for name, value in sorted(estimator.get_params(deep=True).items())
            if (name == "random_state" or name.endswith("__random_state")) and value is None
        }
        return estimator.set_params(**seeds) if seeds else estimator


def min_label() -> Any:
    """Return the option of students that repeat a row for each of its classes."""
    return option(
        number(at_least=0, below=1),
        "Leave out classes of a row that are less probable than this.",
        default=0.01,
    )


def _iterations(estimator: Any) -> int | None:
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    n_iter = getattr(last, "n_iter_", None)
    return None if n_iter is None else int(np.max(n_iter))


def student_name(student: Any) -> str:
    """Return what a student is, in a word or two: the class of its model, or "torch network"."""
    if student.scores == "logits":
        return "torch network"
    model = getattr(student, "estimator_", None) or student.unfitted()
    return type(model[-1] if hasattr(model, "steps") else model).__name__
