"""Gone when the folders have moved."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from consilience.teachers import base
from consilience.teachers._remote_options import RemoteOptions
from consilience.teachers.base import Input as Input
from consilience.teachers.base import Teacher as Teacher
from consilience.teachers.base import check_embed_function as check_embed_function
from consilience.teachers.base import describe as describe
from consilience.teachers.base import own_or_given as own_or_given
from consilience.teachers.base import summary as summary

BATCH_SIZE = 1024


@dataclass(frozen=True)
class Options:
    """The keywords of `as_teacher`."""

    output: Any = "auto"
    floor: float = 1e-6
    smoothing: float = base.SMOOTHING
    batch_size: int = BATCH_SIZE
    device: str | None = None
    embed: Any = None
    columns: Any = None
    fingerprint: str | None = None
    remote: RemoteOptions | None = None
    preprocess: Any = None
    half: bool | None = None

    def of(self, names: Iterable[str]) -> dict[str, Any]:
        """Return some of them by name."""
        return {name: getattr(self, name) for name in names}


class Adapter(base.Adapter):
    """A teacher around a foreign model."""

    def _run(self, X: Any, rows: int, *, scores: bool, features: bool) -> tuple[Any, Any]:
        me: Any = self
        if scores and features:
            found: tuple[Any, Any] = me._both(X, rows)
            return found
        return (me._scores(X, rows) if scores else None, me._features(X, rows) if features else None)

    def _features(self, X: Any, rows: int) -> Any:
        return self._embed(X)

    def _both(self, X: Any, rows: int) -> tuple[Any, Any]:
        me: Any = self
        return me._scores(X, rows), self._features(X, rows)
