"""What learns soft labels, as classes of options, and what saves and serves the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._optional import lazy

if TYPE_CHECKING:
    from consilience.students.estimator import Student
    from consilience.students.expansion import Classifier, Mlp
    from consilience.students.logistic import Logistic
    from consilience.students.network import Network
    from consilience.students.ngrams import Ngrams
    from consilience.students.trees import Boosting, Forest

__all__ = ["Boosting", "Classifier", "Forest", "Logistic", "Mlp", "Network", "Ngrams", "Student"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Boosting": "trees",
        "Classifier": "expansion",
        "Forest": "trees",
        "Logistic": "logistic",
        "Mlp": "expansion",
        "Network": "network",
        "Ngrams": "ngrams",
        "Student": "estimator",
    },
)
