"""Claims of a paper, checked by stated rules. A verdict is computed from figures, never typed.

A claim is a list of checks, one for each data set, and a check is a list of comparisons. A comparison is met
or not. The verdict counts them: all met, *holds*; at least half, *holds partly*; fewer, *does not hold here*.
A check of fewer than `LEAST_TRIALS` trials decides nothing and is left out of the count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import wilcoxon

from benchmarks.results import source

LEAST_TRIALS = 5  # with fewer, a signed-rank test cannot reject at ALPHA
ALPHA = 0.05

HOLDS, PARTLY, FAILS = "holds", "holds partly", "does not hold here"
UNDECIDED, UNTRIED = "not decided: too few trials", "not tried here"

Values = NDArray[np.float64]


def above(first: Values, second: Values) -> bool:
    """Return whether `first` is above `second` over the same trials (one-sided Wilcoxon signed-rank test).

    Examples
    --------
    >>> above(np.array([0.7, 0.8, 0.9, 0.8, 0.7]), np.array([0.6, 0.6, 0.8, 0.7, 0.5]))
    True
    """
    if len(first) < LEAST_TRIALS or np.array_equal(first, second):
        return False
    return bool(wilcoxon(first, second, alternative="greater").pvalue < ALPHA)


@dataclass(frozen=True)
class Check:
    """What one data set says about a claim.

    Attributes
    ----------
    where : str
        The data set.
    trials : int
        How many trials it had.
    figures : str
        Our figures, in words.
    comparisons : mapping of str to bool
        Whether each comparison of the rule is met, by name.
    """

    where: str
    trials: int
    figures: str
    comparisons: Mapping[str, bool]

    @property
    def decides(self) -> bool:
        """Whether there are enough trials, and something to compare."""
        return self.trials >= LEAST_TRIALS and bool(self.comparisons)


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, with the rule that decides about it.

    Attributes
    ----------
    title : str
        The claim in a few words, for headings.
    place : str
        Where the paper makes it.
    words : str
        The claim in a sentence or two.
    published : str
        The published figures.
    rule : str
        What counts as met, for each data set.
    checks : sequence of Check
        Ours.
    records : sequence of records
        The trials that were looked at; they give the commands.
    remark : str
        Why ours may differ, or why it was not tried.
    """

    title: str
    place: str
    words: str
    published: str
    rule: str
    checks: Sequence[Check]
    records: Sequence[Mapping[str, Any]] = field(default=())
    remark: str = ""

    @property
    def counted(self) -> tuple[int, int]:
        """How many comparisons are met, and how many there are."""
        found = [met for check in self.checks if check.decides for met in check.comparisons.values()]
        return sum(found), len(found)

    @property
    def verdict(self) -> str:
        """The verdict, by the rules of this module."""
        met, total = self.counted
        if not total:
            return UNDECIDED if self.checks else UNTRIED
        if met == total:
            return HOLDS
        return PARTLY if 2 * met >= total else FAILS


def summary(claims: Sequence[Claim]) -> str:
    """Return a table of claims, verdicts and counts as Markdown."""
    lines = ["| claim | in the paper | verdict | comparisons met | trials |", "|---|---|---|---|---|"]
    for claim in claims:
        met, total = claim.counted
        count = f"{met} of {total}" if total else ""
        lines.append(
            f"| [{claim.title}](#{anchor(claim.title)}) | {claim.place} | **{claim.verdict}** | {count} "
            f"| {_trials(claim.checks)} |"
        )
    return "\n".join(lines)


def details(claims: Sequence[Claim]) -> str:
    """Return a section for each claim as Markdown, and where the figures come from."""
    records = [record for claim in claims for record in claim.records]
    return "\n\n".join([*map(_section, claims), *([f"Run by {source(records)}"] if records else [])])


def anchor(title: str) -> str:
    """Return the name that Markdown gives to a heading.

    Examples
    --------
    >>> anchor("Balancing helps, with SD too")
    'balancing-helps-with-sd-too'
    """
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def _section(claim: Claim) -> str:
    lines = [f"### {claim.title}", claim.words, f"**Published:** {claim.published}"]
    if claim.checks:
        lines[-1] += f" **Counts as met:** {claim.rule}"
        rows = ["| data | ours | met |", "|---|---|---|", *map(_row, claim.checks)]
        lines.append("\n".join(rows))
    if claim.remark:
        lines.append(claim.remark)
    return "\n\n".join(lines)


def _row(check: Check) -> str:
    met = f"{sum(check.comparisons.values())} of {len(check.comparisons)}"
    missed = ", ".join(name for name, found in check.comparisons.items() if not found)
    if not check.decides:
        missed = f"fewer than {LEAST_TRIALS} trials decide nothing"
    return f"| {check.where} | {check.figures} | {met}{missed and f'; not {missed}'} |"


def _trials(checks: Sequence[Check]) -> str:
    counts = sorted({check.trials for check in checks})
    if not counts:
        return ""
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
