"""What a `Unifier` can be asked beside predictions: is it good, and why does it say so?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from numpy.typing import ArrayLike

from consilience._validation import check_fitted, n_rows
from consilience.inspect.truth import read_truth
from consilience.rows import as_rows
from consilience.run import resolve_run

if TYPE_CHECKING:
    from consilience.inspect.comparison import Comparison
    from consilience.inspect.evaluate import LabelsOnly
    from consilience.inspect.evaluation import Evaluation
    from consilience.inspect.explanation import Disagreements, Explanation
    from consilience.unify.unifier import Unifier


class Inspection:
    """Methods of `Unifier` that look at it, and leave it as it is."""

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of rows whose class is predicted.

        Parameters
        ----------
        X : array, sparse matrix, data frame or list
            n rows.
        y : (n,) sequence
            Their classes; they may be aliases, as in `fit`. Rows without a label are left out. A class that
            no teacher knows counts as an error.
        sample_weight : (n,) array, optional
            The weight of each row.
        """
        unified = cast("Unifier", self)
        check_fitted(unified, "student_")
        X = as_rows(X).given
        labels = read_truth(y, n_rows(X), unified.label_space_)
        return labels.accuracy(unified.predict_proba(X).argmax(axis=1), sample_weight)

    def evaluate(
        self,
        X: Any,
        y: Any,
        *,
        teachers: bool = True,
        labels_only: LabelsOnly = "auto",
        n_folds: int = 5,
        logits: ArrayLike | None = None,
        confidence: float = 0.95,
        n_bins: int = 15,
    ) -> Evaluation:
        """Measure how good it is on labelled rows, and beside what else one could do with them.

        Beside each teacher, the rows are those of its classes, and the question is which of these a row is.
        The vote gives every teacher one vote, for its decision; all classes share one more equally.

        Parameters
        ----------
        X : array, sparse matrix, data frame or list
            n rows.
        y : (n,) sequence
            Their labels, which may be aliases. Rows without one (None, NaN, -1) are left out. A class that
            nobody knows counts as an error, and a remark names it. If all labels are such, you get an error.
        teachers : bool
            Whether to ask the teachers about X, to compare with each and with their vote. Teachers that only
            hold outputs for other rows are left out.
        labels_only : {"auto", True, False}
            Whether to train the same kind of student on these labels alone, cross-validated: if it is as
            good, you need no teachers. ``"auto"`` does so with up to 5,000 labels.
        n_folds : int
            Folds of that cross-validation.
        logits : (n, m) array, optional
            The teachers' outputs for X, from `score_teachers`: then no teacher is asked.
        confidence : float
            Of the interval of the accuracy, which is Wilson's.
        n_bins : int
            Bins of the expected calibration error; they have equal width.

        Returns
        -------
        Evaluation
            It prints well, and has `to_dict` and `to_frame`.

        Warns
        -----
        CoverageWarning
            With the classes that got nearly lost: less than 10 % of at least five rows are found, or the
            class is never predicted.
        """
        from consilience.inspect.evaluate import evaluate_unifier

        return evaluate_unifier(
            cast("Unifier", self),
            self._in_memory(X),
            y,
            teachers=teachers,
            labels_only=labels_only,
            n_folds=n_folds,
            logits=logits,
            confidence=confidence,
            n_bins=n_bins,
        )

    def compare(
        self,
        X: Any,
        y: Any = None,
        *,
        methods: Sequence[Any] = ("auto", "ranks", "mf-lf", "ce", "sd"),
        balance: Sequence[Any] = (True, False),
        teacher_temperatures: Sequence[Any] = (None, "agreement"),
        self_label: Sequence[Any] = (False, True),
        student: Any = "auto",
        max_rows: int = 2000,
        logits: ArrayLike | None = None,
    ) -> Comparison:
        """Compare settings on rows that their students have not seen; fit need not have been called.

        Teachers are asked once. For each combination, a student learns the soft labels of either half of the
        rows and decides about the other half.

        With labels, the most accurate settings come first. Without, those with the largest *support*:
        agreement times coverage. A teacher's answer about a row weighs as much as the settings, taken
        together, believe that the row is one of its classes; agreement is the weighted share of answers that
        the student gives, too. Coverage is over how many of the classes its decisions spread: settings that
        lose classes have less. docs/evaluate.md has how well this ranks settings.

        Parameters
        ----------
        X : array, sparse matrix, data frame or list
            n rows, such as those that `fit` gets.
        y : (n,) sequence, optional
            Labels where they are known, as in `evaluate`. They only measure; no student learns them.
        methods, balance, teacher_temperatures, self_label : sequences
            What to combine; methods as in `Unifier`, by name or with options. The settings in use are
            always compared, too.
        student : classifier, name, "auto" or None
            What learns. ``"auto"`` is cheap: ``"logistic"`` for numbers, ``"ngrams"`` for texts, and this
            Unifier's own otherwise. None and others as in `Unifier`.
        max_rows : int
            Use at most this many rows, evenly spaced.
        logits : (n, m) array, optional
            The teachers' outputs for X, from `score_teachers`.

        Returns
        -------
        Comparison
            It prints well, has `to_dict` and `to_frame`, and a `recommendation`.
        """
        from consilience.inspect.compare import compare_settings

        return compare_settings(
            cast("Unifier", self),
            self._in_memory(X),
            y,
            methods=methods,
            balance=balance,
            teacher_temperatures=teacher_temperatures,
            self_label=self_label,
            student=student,
            max_rows=max_rows,
            logits=logits,
        )

    def explain(self, x: Any) -> Explanation:
        """Tell how the answer about one row comes about.

        Parameters
        ----------
        x : a row
            One row of X: ``X[17]``, a text, or an X with one row.

        Returns
        -------
        Explanation
            What each teacher says, at which temperature and weight, the soft label, and the student's answer.
            It prints well, and has `to_dict` and `to_frame`. The methods ``"auto"`` and ``"ranks"`` rank the
            row among up to 2,000 of those that `fit` has seen.
        """
        from consilience.inspect.explain import explain_row

        return explain_row(cast("Unifier", self), x)

    def disagreements(self, X: Any, *, max_rows: int = 100, logits: ArrayLike | None = None) -> Disagreements:
        """Find rows and pairs of classes where teachers contradict each other, or the student left them.

        Teachers contradict each other if both know both classes: one that does not know birds is not wrong to
        call a bird a cat. The worst comes first: both are sure, and the student puts its mass on the classes
        in question.

        Parameters
        ----------
        X : array, sparse matrix, data frame or list
            n rows.
        max_rows : int
            List at most this many rows. Pairs of classes are counted over all.
        logits : (n, m) array, optional
            The teachers' outputs for X, from `score_teachers`.

        Returns
        -------
        Disagreements
            It prints well, and has `to_dict` and `to_frame`.
        """
        from consilience.inspect.explain import find_disagreements

        return find_disagreements(cast("Unifier", self), self._in_memory(X), max_rows=max_rows, logits=logits)

    def report(
        self,
        path: str | os.PathLike[str],
        X: Any = None,
        y: Any = None,
        *,
        labels_only: LabelsOnly = "auto",
        logits: ArrayLike | None = None,
    ) -> Path:
        """Write one page to show: an HTML file that needs nothing else (docs/report.md).

        It has who knows what, where teachers agree, how sure the soft labels are, the balance of classes,
        hard rows, suggested aliases, settings and versions; with X and y also the evaluation. It holds names,
        figures and positions of rows, never the rows themselves.

        Parameters
        ----------
        path : path
            A file name that ends in ``.html``, in a folder that exists.
        X : array, sparse matrix, data frame or list, optional
            n rows to report on. Teachers are asked about them once. Without X, the page is about what `fit`
            kept: the soft labels, and the teachers' outputs for up to 2,000 rows.
        y : (n,) sequence, optional
            Labels of these rows, as in `evaluate`.
        labels_only : {"auto", True, False}
            Whether to train a student on these labels alone, for comparison; as in `evaluate`.
        logits : (n, m) array, optional
            The teachers' outputs for X, from `score_teachers`: then no teacher is asked.

        Returns
        -------
        Path
            Where the page is.
        """
        from consilience.inspect.report import write_report

        rows = None if X is None else self._in_memory(X)
        return write_report(cast("Unifier", self), path, rows, y, labels_only=labels_only, logits=logits)

    def _in_memory(self, X: Any) -> Any:
        """Return rows in memory; raise where those of a source do not fit."""
        return as_rows(X).all(resolve_run(cast("Unifier", self).run))
