"""What a repository answers: its models as a table, and what a check of it found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from consilience._optional import require
from consilience._sizes import size_text
from consilience._words import aligned, counted, shorten, visible
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
        return {"models": [_row(one) for one in self.models], "problems": dict(self.problems)}

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per model."""
        pandas = require("pandas", extra="tables", purpose="A data frame")
        rows = [{**_row(one), "classes": len(one.classes)} for one in self.models]
        for row, one in zip(rows, self.models, strict=True):
            del row["metrics"]
            row.update(one.metrics)
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


def _row(one: ModelEntry) -> dict[str, Any]:
    return {
        "name": one.name,
        "task": one.task,
        "classes": list(one.classes),
        "takes": shown_inputs(one),
        "licence": one.licence,
        "source": one.source,
        "description": one.description,
        "kind": one.kind,
        "n_bytes": one.n_bytes,
        "added": one.added,
        "metrics": dict(one.metrics),
    }


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
        return {
            "passed": self.passed,
            "n_models": self.n_models,
            "n_files": self.n_files,
            "findings": [vars(one) for one in self.findings],
        }

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per finding."""
        pandas = require("pandas", extra="tables", purpose="A data frame")
        columns = ["model", "file", "problem", "text"]
        return pandas.DataFrame([vars(one) for one in self.findings], columns=columns)

    def __repr__(self) -> str:
        checked = f"{counted(self.n_models, 'model')}, {counted(self.n_files, 'file')} checked"
        if self.passed:
            return f"{checked}: all is well"
        return "\n".join([f"{checked}:", *(visible(one.text) for one in self.findings)])


def shown_entry(entry: ModelEntry) -> str:
    """Return all that is known of a model, as lines of text."""
    files = [f"{path} ({size_text(one.n_bytes)})" for path, one in entry.files.items()]
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
        "files": ", ".join(files),
        "added": entry.added,
    }
    return "\n".join(
        [visible(entry.name), *(f"  {key}: {visible(text)}" for key, text in facts.items() if text)]
    )
