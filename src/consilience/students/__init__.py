"""What learns soft labels, as classes of options, and what saves and serves the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._optional import lazy
from consilience.options import anything

if TYPE_CHECKING:
    from consilience.students.logistic import Logistic
    from consilience.students.network import Network
    from consilience.students.ngrams import Ngrams
    from consilience.students.student import Classifier, Mlp, Student
    from consilience.students.trees import Boosting, Forest

__all__ = ["Boosting", "Classifier", "Forest", "Logistic", "Mlp", "Network", "Ngrams", "Student"]

NAMES = {
    "logistic": "Logistic",
    "forest": "Forest",
    "boosting": "Boosting",
    "mlp": "Mlp",
    "torch": "Network",
    "ngrams": "Ngrams",
}
"""The class of each short name."""

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


STUDENT = anything(
    "Student, classifier, torch.nn.Module, factory, name or None",
    str,
    words=NAMES,
    make=lambda name: __getattr__(NAMES[name])(),
)
"""The check of an option ``student=``."""
