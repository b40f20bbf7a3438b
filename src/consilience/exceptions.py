"""Everything consilience raises or warns with.

ConsilienceError                    catch this to catch them all
├── InvalidInputError               (ValueError)     an argument or an array is not what it must be
│   ├── LabelSpaceError             class lists that do not make a label space
│   ├── TeacherError                a teacher that cannot be made, or whose output is wrong
│   └── UnsafeFileError             a file that reaches for what it must not
├── MissingDependencyError          (ImportError)    an extra is not installed
├── WriteError                      (OSError)        a file cannot be written: disk full, no permission
└── NotFittedError                  (scikit-learn's) used before fit; in consilience.unify.unifier, so that
                                    this file need not import scikit-learn
ConsilienceWarning                  (UserWarning)
├── ConvergenceWarning              a solver stopped before its tolerance
├── DisconnectedWarning             the teachers do not determine the split between groups of classes
└── CoverageWarning                 rows or classes about which no teacher says anything
"""

from __future__ import annotations


class ConsilienceError(Exception):
    """Base of every error that consilience raises."""


class InvalidInputError(ConsilienceError, ValueError):
    """An argument or an array is not what it must be."""


class LabelSpaceError(InvalidInputError):
    """The class lists do not make a label space."""


class TeacherError(InvalidInputError):
    """A teacher cannot be made, or gave an output that cannot be used.

    Parameters
    ----------
    name : str
        The teacher's name.
    problem : str
        A clause that follows the name: ``"returned 11 columns for 10 classes. ..."``.
    position : str
        Which of several teachers it is, such as ``"3 of 5"``; empty when it stands alone.
    """

    def __init__(self, name: str, problem: str, position: str = "") -> None:
        self.name, self.problem, self.position = name, problem, position
        where = f" ({position})" if position else ""
        super().__init__(f"Teacher {name!r}{where} {problem}")

    def at(self, index: int, count: int) -> TeacherError:
        """Return the same error with the teacher's place among `count` teachers."""
        return TeacherError(self.name, self.problem, f"{index + 1} of {count}")

    def __reduce__(self) -> tuple[type[TeacherError], tuple[str, str, str]]:
        return type(self), (self.name, self.problem, self.position)


class UnsafeFileError(InvalidInputError):
    """A file asks for something outside its folder, or for code to be run."""


class MissingDependencyError(ConsilienceError, ImportError):
    """An optional dependency is needed and not installed."""


class WriteError(ConsilienceError, OSError):
    """A file cannot be written: the disk is full, or its folder may not be changed."""

    def __str__(self) -> str:
        return str(self.args[-1])


class ConsilienceWarning(UserWarning):
    """Base of every warning that consilience gives."""


class ConvergenceWarning(ConsilienceWarning):
    """A solver stopped before it reached its tolerance."""


class DisconnectedWarning(ConsilienceWarning):
    """The teachers do not determine how mass splits between groups of classes."""


class CoverageWarning(ConsilienceWarning):
    """Rows or classes about which no teacher says anything."""
