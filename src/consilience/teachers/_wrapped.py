"""Teachers around teachers: objects of users, and teachers under other names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.exceptions import TeacherError
from consilience.teachers._base import Input, Options, Teacher, TeacherLike, class_array, own_or_given
from consilience.teachers._features import Observed
from consilience.teachers._outputs import as_numbers


class Wrapped(Teacher):
    """A user's object with the three members of `TeacherLike`, and any of the other members."""

    def __init__(self, source: TeacherLike) -> None:
        self._source = source
        self.name = str(source.name)
        self.classes = class_array(source.classes, self.name)
        self.batched = bool(self._member("batched", True))
        self.n_jobs = int(self._member("n_jobs", None) or 1)  # None, as in scikit-learn, is one
        self.class_centres = self._member("class_centres", None)

    def _member(self, name: str, default: Any) -> Any:
        """Return an optional member of the object, or the default."""
        return getattr(self._source, name, default)

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return the object's logits (n, k)."""
        with self._wording(X):
            return as_numbers(self._source.predict_logits(X), self.name)

    def embed(self, X: Any) -> NDArray[Any] | None:
        """Return the object's features (n, d), or None."""
        embed = self._member("embed", None)
        with self._wording(X):
            return None if embed is None else embed(X)

    def observe(self, X: Any) -> Observed:
        """Return what the object observes, or its logits and embeddings."""
        observe = self._member("observe", None)
        if observe is None:
            return super().observe(X)
        with self._wording(X):
            seen = observe(X)
            return Observed(as_numbers(seen.logits, self.name), seen.embeddings)

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The object's weights (k, d), or None."""
        found = self._member("class_weights", None)
        return None if found is None else np.asarray(found)

    def find_head(self, X: Any) -> None:
        """Have the object look for its last layer."""
        self._member("find_head", super().find_head)(X)

    def randomised(self, seed: int) -> Teacher | None:
        """Return the object's random twin, or None."""
        twin = self._member("randomised", super().randomised)(seed)
        return twin if twin is None or isinstance(twin, Teacher) else Wrapped(twin)

    @property
    def fingerprint(self) -> str | None:
        """The object's fingerprint, or None."""
        found = self._member("fingerprint", None)
        return found if isinstance(found, str) else None

    @property
    def settled(self) -> bool:
        """Whether it is known how to read the object's scores; True by default."""
        return bool(self._member("settled", True))

    def settle(self, X: Any) -> None:
        """Have the object look at some rows."""
        self._member("settle", super().settle)(X)

    def release(self) -> None:
        """Have the object free memory."""
        self._member("release", super().release)()


class Relabelled(Teacher):
    """A teacher under another name, or with other names for its classes."""

    def __init__(self, teacher: Teacher, name: str, classes: NDArray[Any]) -> None:
        self._teacher, self.name, self.classes = teacher, name, classes
        self.batched, self.n_jobs = teacher.batched, teacher.n_jobs
        self.class_centres, self.file, self.served = teacher.class_centres, teacher.file, teacher.served

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return the teacher's own logits (n, k)."""
        logits: NDArray[np.float64] = self._called(self._teacher.predict_logits, X)
        return logits

    def _called(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a member of the teacher; its errors then carry this teacher's name."""
        try:
            return function(*arguments)
        except TeacherError as error:
            raise error.changed(teacher=self.name) from error

    def check_rows(self, X: Any) -> None:
        """Raise if X cannot be the rows that the outputs belong to."""
        self._called(self._teacher.check_rows, X)

    def part(self, rows: slice | NDArray[np.intp]) -> Teacher | None:
        """Return a teacher of some rows, under this name; None if the teacher is asked by batches."""
        part: Teacher | None = self._called(self._teacher.part, rows)
        return None if part is None else Relabelled(part, self.name, self.classes)

    def embed(self, X: Any) -> NDArray[Any] | None:
        """Return the teacher's own features (n, d), or None."""
        features: NDArray[Any] | None = self._called(self._teacher.embed, X)
        return features

    def observe(self, X: Any) -> Observed:
        """Return the teacher's own logits and embeddings."""
        seen: Observed = self._called(self._teacher.observe, X)
        return seen

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The teacher's own weights (k, d), or None."""
        return self._teacher.class_weights

    def find_head(self, X: Any) -> None:
        """Find the teacher's last layer."""
        self._called(self._teacher.find_head, X)

    def randomised(self, seed: int) -> Teacher | None:
        """Return the teacher's random twin, or None."""
        twin: Teacher | None = self._called(self._teacher.randomised, seed)
        return twin

    @property
    def fingerprint(self) -> str | None:
        """The teacher's own: its outputs are the same."""
        return self._teacher.fingerprint

    @property
    def inputs(self) -> tuple[Input, ...] | None:
        """What the teacher takes."""
        return self._teacher.inputs

    @property
    def output(self) -> str | None:
        """What the teacher gives."""
        return self._teacher.output

    @property
    def settled(self) -> bool:
        """Whether it is known how to read the teacher's scores."""
        return self._teacher.settled

    def settle(self, X: Any) -> None:
        """Decide how to read the teacher's scores."""
        self._called(self._teacher.settle, X)

    def release(self) -> None:
        """Free the teacher's memory."""
        self._teacher.release()


def relabel(
    obj: Teacher | TeacherLike, classes: ArrayLike | None, name: str | None, options: Options
) -> Teacher:
    """Return a teacher under the given name and classes, if any."""
    teacher = obj if isinstance(obj, Teacher) else Wrapped(obj)
    if options.output not in ("auto", "logits"):
        raise TeacherError(
            name or teacher.name,
            "is a teacher already and gives logits; drop {argument}.",
            argument="output",
            value=options.output,
        )
    if options.embed is not None or options.fingerprint is not None:
        raise TeacherError(
            name or teacher.name,
            "is a teacher already; give {argument} and {remedy} where it is made.",
            argument="embed",
            remedy="fingerprint",
        )
    if options.preprocess is not None:
        raise TeacherError(
            name or teacher.name,
            "is a teacher already; give {argument} where it is made.",
            argument="preprocess",
        )
    if classes is None and name in (None, teacher.name):
        return teacher
    shown = name or teacher.name
    return Relabelled(teacher, shown, own_or_given(teacher.classes, classes, shown))
