"""The result of a search: models ranked on a task, of which only the most promising were run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consilience._words import counted
from consilience.rank.ranking import RankedTeacher, Ranking

if TYPE_CHECKING:
    from consilience.teachers import Teacher


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Models for a task, best first; a `CrossTaskDistiller` or a `Unifier` takes it as its teachers.

    Attributes
    ----------
    ranking : Ranking
        Of the models that were run.
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
    >>> found = SearchResult(ranking, {"wild": 0.7, "cars": 0.1}, 2, {}, ())
    >>> found.best.name, found.n_run, found.n_models
    ('wild', 1, 2)
    """

    ranking: Ranking
    matches: Mapping[str, float]
    n_models: int
    misfits: Mapping[str, str]
    undescribed: tuple[str, ...]

    @property
    def n_run(self) -> int:
        """How many models were run."""
        return len(self.ranking)

    @property
    def best(self) -> Teacher:
        """The best teacher."""
        return self.ranking.best

    def scored_teachers(self) -> list[tuple[str, Teacher, float]]:
        """Return name, teacher and score of each teacher that has a score, best first."""
        return self.ranking.scored_teachers()

    def __len__(self) -> int:
        return len(self.ranking)

    def __iter__(self) -> Iterator[RankedTeacher]:
        return iter(self.ranking)

    def __getitem__(self, place: int) -> RankedTeacher:
        return self.ranking[place]

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the teachers themselves, ready for JSON."""
        return self.ranking.to_dict() | {
            "n_models": self.n_models,
            "n_run": self.n_run,
            "shortlist": dict(self.matches),
            "misfits": dict(self.misfits),
            "undescribed": list(self.undescribed),
        }

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per model that was run, and its place in the shortlist."""
        frame = self.ranking.to_frame()
        frame["shortlist"] = [self.matches.get(name) for name in frame["teacher"]]
        return frame

    def __repr__(self) -> str:
        lines = [self.summary, repr(self.ranking)]
        if self.undescribed:
            lines.append(
                f"{counted(len(self.undescribed), 'model')} without a description: call describe() once."
            )
        return "\n".join(lines)

    @property
    def summary(self) -> str:
        """One sentence: how many models there are, were looked at, and were run."""
        return (
            f"{self.n_run} of {counted(self.n_models, 'model')} run; {len(self.matches)} compared by their "
            f"descriptions, {len(self.misfits)} take other rows"
        )
