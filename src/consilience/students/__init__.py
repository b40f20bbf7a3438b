"""What learns soft labels, as classes of options, and what saves and serves the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._optional import lazy
from consilience.options import named

if TYPE_CHECKING:
    from consilience.students.logistic import Logistic
    from consilience.students.network import Network
    from consilience.students.ngrams import Ngrams
    from consilience.students.student import Classifier, Mlp, Student
    from consilience.students.trees import Boosting, Forest

__all__ = ["Boosting", "Classifier", "Forest", "Logistic", "Mlp", "Network", "Ngrams", "Student"]

STUDENT = named(
    "Student, classifier, torch.nn.Module, factory, name or None",
    {
        "logistic": "consilience.students.Logistic",
        "forest": "consilience.students.Forest",
        "boosting": "consilience.students.Boosting",
        "mlp": "consilience.students.Mlp",
        "torch": "consilience.students.Network",
        "ngrams": "consilience.students.Ngrams",
    },
)
"""The check of an option ``student=``."""

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Boosting": "trees",
        "Classifier": "student",
        "Forest": "trees",
        "Logistic": "logistic",
        "Mlp": "student",
        "Network": "network",
        "Ngrams": "ngrams",
        "Student": "student",
    },
)
