"""Gone when the folders have moved."""

from typing import Any

from consilience.teachers.sklearn import Sklearn
from consilience.teachers.sklearn import is_estimator as is_estimator


def sklearn_teacher(model: Any, classes: Any, name: Any, options: Any) -> Sklearn:
    """Make a teacher of a fitted classifier."""
    return Sklearn(
        model,
        classes,
        name,
        **options.of(("output", "embed", "columns", "fingerprint", "floor", "smoothing")),
    )
