"""Learn your own soft labels with any student."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience._validation import check_choice, check_temperature, n_rows, take_rows
from consilience.exceptions import InvalidInputError
from consilience.kernels.linear_model import inverse
from consilience.rows.tables import as_values
from consilience.run import Run, resolve_run
from consilience.students.base import Origin, StudentClassifier, timed
from consilience.students.make import make_student
from consilience.students.training import encode_validation, encoder_of, fit_student, read_soft_labels

__all__ = ["SoftLabelClassifier"]


class SoftLabelClassifier(StudentClassifier):
    """Train any student on soft labels of your own: votes of annotators, or the outputs of a model.

    `Unifier` is for soft labels that several classifiers give, and `CollisionClassifier` for labels that are
    partly wrong.

    Parameters
    ----------
    student : classifier, torch.nn.Module, factory, name or None
        What learns; see `Unifier`.
    classes : (L,) sequence, optional
        The names of the columns of soft labels; by default 0 to L - 1. With hard labels, the classes in the
        order wanted; by default those that occur, sorted.
    balance : {False, True, "sqrt"}
        Weight each class by the inverse of its mean soft label, or by the root of it.
    temperature : float
        The temperature T of the soft labels, from 1e-6 to 1e6: 1 unless you softened them, as `Unifier` does.
        Probabilities are given at T = 1.
    random_state : int, RandomState or None
        Makes the student reproducible.
    run : Run, optional
        How the work is run: progress.

    Attributes
    ----------
    classes_ : (L,) array
    class_weights_ : (L,) array or None
        The balancing weights, where balancing is on.
    student_ : the fitted student
    seconds_ : dict
        How long training took.
    n_iter_ : int or None
        Epochs or iterations of the student, if it counts them.
    n_features_in_ : int
        Columns of X, if X has columns.
    feature_names_in_ : (d,) array
        Their names, if X is a table with names. New rows may have them in any order.
    encoding_ : dict or None
        What was done with each column of a table of mixed columns, in words; see docs/tables.md.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> votes = np.array([[5, 0], [4, 1], [1, 4], [0, 5]])
    >>> model = SoftLabelClassifier("logistic", classes=["low", "high"]).fit(X, votes / 5)
    >>> model.predict([[0.5], [2.5]]).tolist()
    ['low', 'high']
    """

    def __init__(
        self,
        student: Any = None,
        *,
        classes: Any = None,
        balance: Literal["sqrt"] | bool = False,
        temperature: float = 1.0,
        random_state: Any = None,
        run: Run | None = None,
    ) -> None:
        self.student = student
        self.classes = classes
        self.balance = balance
        self.temperature = temperature
        self.random_state = random_state
        self.run = run

    def fit(self, X: Any, y: Any) -> SoftLabelClassifier:
        """Train the student.

        Parameters
        ----------
        X : array, sparse matrix, data frame or list
            n rows, in the form that the student takes.
        y : (n, L) array of soft labels, or (n,) sequence of labels
            Rows of soft labels are probabilities and sum to 1. Rows without a label (None, NaN, -1) are left
            out.
        """
        check_choice("balance", self.balance, (False, True, "sqrt"))
        run = resolve_run(self.run)
        temperature = check_temperature(self.temperature)
        if y is None:
            raise InvalidInputError(
                "requires y to be passed, but the target y is None: give soft labels or labels."
            )
        X = as_values(X)
        classes, Q = read_soft_labels(y, self.classes)
        rows = n_rows(X)
        if len(Q) != rows:
            raise InvalidInputError(f"y has {len(Q)} rows and X has {rows}.")
        if rows == 0:
            raise InvalidInputError("X has no rows; the student needs some to learn from.")
        student = make_student(self.student, X=X, progress=run.progress, random_state=self.random_state)
        encode_validation(student, encoder_of(classes))
        known = ~np.isnan(Q[:, 0])
        if not known.all():
            X, Q = take_rows(X, known), Q[known]
        read = self._read_rows(student, X)
        class_weights, weights = self._class_weights(Q)
        seconds: dict[str, float] = {}
        with timed(seconds, "training"):
            fit_student(
                student,
                read.rows,
                Q,
                weights,
                loss=student.loss,
                temperature=temperature,
                progress=run.progress,
            )
        # only now, so that a fit that fails changes nothing
        self.classes_, self.class_weights_, self.seconds_ = classes, class_weights, seconds
        self._temperature = temperature
        self._keep_student(student, X, read)
        return self

    def _class_weights(self, Q: NDArray[Any]) -> tuple[NDArray[Any] | None, NDArray[Any]]:
        """Return the balancing weights (L,), or None, and the student's, which leave the mean weight at 1."""
        if self.balance is False:
            return None, np.ones(Q.shape[1])
        weights = inverse(Q.mean(axis=0))
        if self.balance == "sqrt":
            weights = np.sqrt(weights)
        return weights, weights / (weights * Q.mean(axis=0)).sum()

    def _student_temperature(self) -> float:
        return self._temperature

    def _origin(self) -> Origin:
        about = {"temperature": f"{self._temperature:g}"}
        return Origin(f"Trained on soft labels of {len(self.classes_)} classes.", about)
