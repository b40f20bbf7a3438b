"""What a repository answers: its models as a table, what a check found, and what a search found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from consilience._optional import require
from consilience._words import aligned, counted, shorten, size_text
from consilience.exceptions import visible
from consilience.rank.ranking import Ranking
from consilience.repository.entry import ModelEntry
from consilience.repository.signature import shown_inputs

MOST_SHOWN = 40
"""Models in a printed table."""


@dataclass(frozen=True)
class Listing:
    """Models of a repository, by name.

    Attributes
    ----------
    models : tuple of ModelEntry
    problems : mapping of str to str
        Folders whose card cannot be used, and why.

    Examples
    --------
    >>> import tempfile
    >>> from consilience import Repository
    >>> Repository(tempfile.mkdtemp()).list().names
    []
    """

    models: tuple[ModelEntry, ...]
    problems: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.models)

    def __iter__(self) -> Iterator[ModelEntry]:
        return iter(self.models)

    def __getitem__(self, place: int) -> ModelEntry:
        return self.models[place]

    @property
    def names(self) -> list[str]:
        """The names of the models."""
        return [one.name for one in self.models]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, ready for JSON."""
        models = [one.to_dict() | {"takes": shown_inputs(one)} for one in self.models]
        return {"models": models, "problems": dict(self.problems)}

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per model."""
        pandas = require("pandas", extra="tables", purpose="A data frame")
        names = ("name", "task", "licence", "source", "description", "kind", "n_bytes", "added")
        rows = []
        for one in self.models:
            found = {name: getattr(one, name) for name in names}
            rows.append(found | {"classes": len(one.classes), "takes": shown_inputs(one)} | {**one.metrics})
        return pandas.DataFrame(rows)

    def __repr__(self) -> str:
        cells = [
            (
                one.name,
                one.task,
                str(len(one.classes)),
                shown_inputs(one),
                one.licence,
                size_text(one.n_bytes),
                ", ".join(f"{name} {value:.3g}" for name, value in one.metrics.items()),
            )
            for one in self.models[:MOST_SHOWN]
        ]
        lines = [counted(len(self.models), "model")]
        if cells:
            lines += aligned(["model", "task", ">classes", "takes", "licence", ">size", "metrics"], cells)
        if len(self.models) > MOST_SHOWN:
            lines.append(f"and {len(self.models) - MOST_SHOWN} more; to_frame has them all")
        lines += [
            f"{visible(folder)} cannot be used: {visible(why)}" for folder, why in self.problems.items()
        ]
        return "\n".join(lines)


def shown_entry(entry: ModelEntry) -> str:
    """Return all that is known of a model, as lines of text."""
    facts = {
        "task": entry.task,
        "classes": f"{len(entry.classes)}: {shorten(entry.classes, 12)}",
        "takes": shown_inputs(entry),
        "columns": shorten(entry.feature_names or (), 12),
        "licence": entry.licence,
        "source": entry.source,
        "description": entry.description,
        "metrics": ", ".join(f"{name} {value:.4g}" for name, value in entry.metrics.items()),
        "preprocess": ", ".join(f"{name}: {value}" for name, value in entry.preprocess.items()),
        "files": ", ".join(f"{path} ({size_text(one.n_bytes)})" for path, one in entry.files.items()),
        "added": entry.added,
    }
    return "\n".join(
        [visible(entry.name), *(f"  {key}: {visible(text)}" for key, text in facts.items() if text)]
    )


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong in a repository.

    Attributes
    ----------
    model : str
        The folder of a model; empty for what belongs to none.
    file : str
    problem : {"damaged", "missing", "extra", "unreadable"}
    text : str
        The sentence.
    """

    model: str
    file: str
    problem: str
    text: str


@dataclass(frozen=True)
class RepositoryCheck:
    """What `Repository.verify` found.

    Attributes
    ----------
    n_models, n_files : int
        How many were checked.
    findings : tuple of Finding
        What is wrong; empty if all is well.

    Examples
    --------
    >>> import tempfile
    >>> from consilience import Repository
    >>> check = Repository(tempfile.mkdtemp()).verify()
    >>> check.passed, check.n_models
    (True, 0)
    """

    n_models: int
    n_files: int
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether every file is what its card says, and nothing else is there."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, ready for JSON."""
        return {"passed": self.passed, **vars(self), "findings": [vars(one) for one in self.findings]}

    def __repr__(self) -> str:
        checked = f"{counted(self.n_models, 'model')}, {counted(self.n_files, 'file')} checked"
        if self.passed:
            return f"{checked}: all is well"
        return "\n".join([f"{checked}:", *(visible(one.text) for one in self.findings)])


@dataclass(frozen=True)
class Described:
    """What `Repository.describe` did.

    Attributes
    ----------
    done : tuple of str
        Models that were run over the reference rows.
    failed : mapping of str to str
        Models that could not be, and why.
    """

    done: tuple[str, ...]
    failed: Mapping[str, str]

    def __repr__(self) -> str:
        lines = [f"{counted(len(self.done), 'model')} described"]
        return "\n".join([*lines, *(f"{name}: {why}" for name, why in self.failed.items())])


@dataclass(frozen=True, eq=False, repr=False)
class SearchResult(Ranking):
    """The ranking of the models that were run for a task, and what was known before.

    A `CrossTaskDistiller` or a `Unifier` takes it as its teachers.

    Attributes
    ----------
    matches : mapping of str to float
        The shortlist: the score of every model with a description, best first, from no run at all.
    n_models : int
        Models in the repository.
    misfits : mapping of str to str
        Models that cannot take these rows, and why.
    undescribed : tuple of str
        Models that fit but have no description yet, so they were not looked at; see `Repository.describe`.

    Examples
    --------
    >>> from consilience import as_teacher, rank_teachers
    >>> teacher = as_teacher([[0.9, 0.1], [0.2, 0.8]] * 10, ["wolf", "lion"], name="wild")
    >>> ranking = rank_teachers([teacher], range(20), ["dog", "cat"] * 10, metric="leep")
    >>> known = {"wild": 0.7, "cars": 0.1}
    >>> found = SearchResult(**vars(ranking), matches=known, n_models=2, misfits={}, undescribed=())
    >>> found.best.name, found.n_run, found.n_models
    ('wild', 1, 2)
    """

    matches: Mapping[str, float]
    n_models: int
    misfits: Mapping[str, str]
    undescribed: tuple[str, ...]

    @property
    def n_run(self) -> int:
        """How many models were run."""
        return len(self)

    @property
    def summary(self) -> str:
        """One sentence: how many models there are, were looked at, and were run."""
        return (
            f"{self.n_run} of {counted(self.n_models, 'model')} run; {len(self.matches)} compared by their "
            f"descriptions, {len(self.misfits)} take other rows"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the teachers themselves, ready for JSON."""
        return super().to_dict() | {
            "n_models": self.n_models,
            "n_run": self.n_run,
            "shortlist": dict(self.matches),
            "misfits": dict(self.misfits),
            "undescribed": list(self.undescribed),
        }

    def __repr__(self) -> str:
        lines = [self.summary, super().__repr__()]
        if self.undescribed:
            lines.append(
                f"{counted(len(self.undescribed), 'model')} without a description: call describe() once."
            )
        return "\n".join(lines)
