"""Warn of names that do not fit what the teachers say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience._words import shorten, visible
from consilience.exceptions import AliasWarning, warn
from consilience.inspect.matching import LEAST_ROWS, Matched, answered_twice, match_columns
from consilience.kernels.arrays import Floats
from consilience.labels import LabelSpace

# How well a pair of columns must agree, how many pairs of two teachers must do so, and what share of the
# smaller label set they must be. One pair alone may be twins: dolphins for one teacher, whales for the other.
STRONG, PAIRS, SHARE = 0.65, 2, 0.25
# Two classes are mirror images: their two pairs are one fact, and rows of a third class decide it.
LEAST_CLASSES = 3
# What share of the names that two teachers share must be two classes, and how much better one of them must
# agree with another class, as in a list whose order was changed. Poor teachers agree with nothing.
SHARE_OF_NAMES, BETTER = 0.5, 0.3
# At most this many rows and columns, so that it costs little.
MOST_ROWS, MOST_COLUMNS = 2000, 500


def warn_of_unused(space: LabelSpace, *, labels_given: bool = False) -> None:
    """Warn of aliases that rename no class. Labels may use an alias that no teacher does."""
    classes = set(space.classes.tolist()) if labels_given else set()
    unused = [alias for alias in space.unused_aliases if space.renamed(alias) not in classes]
    if unused:
        warn(AliasWarning(f"No teacher has the classes that these aliases rename: {shorten(unused)}."))


def warn_of_names(logits: Floats, space: LabelSpace) -> None:
    """Warn if two teachers seem to use different names for the same classes, or the same for different ones.

    Only strong evidence counts: several classes of the two teachers must look like that.
    """
    if space.n_teachers < 2 or space.n_columns > MOST_COLUMNS:
        return
    rows = answered_twice(logits, space, MOST_ROWS)
    if len(rows) < LEAST_ROWS:
        return
    found = match_columns(logits[rows], space)
    renamed, confused = _suspects(found, space)
    for pairs, what in ((renamed, "different names for one class"), (confused, "one name for two classes")):
        if pairs:
            more = f"; and {len(pairs) - 3} more" if len(pairs) > 3 else ""
            warn(
                AliasWarning(
                    f"Some teachers seem to have {what}, judged by the rows that they rank first: "
                    f"{'; '.join(pairs[:3])}{more}. "
                    "Look at consilience.suggest_aliases(teachers, X), which shows rows that speak for it."
                )
            )


def _suspects(found: Matched, space: LabelSpace) -> tuple[list[str], list[str]]:
    """Return the pairs of teachers whose names do not fit, in words: two names for one, one for two."""
    renamed, confused = [], []
    for j in range(space.n_teachers):
        for i in range(j):
            one, other = space.block(i), space.block(j)
            agreement = found.correlation[one, other]
            if min(agreement.shape) < LEAST_CLASSES:
                continue
            same_name = space.columns[one][:, None] == space.columns[other]
            same_group = found.groups[one][:, None] == found.groups[other]
            joined = np.argwhere(same_group & ~same_name & (agreement >= STRONG))
            if len(joined) >= max(PAIRS, SHARE * min(agreement.shape)):
                lists = space.class_lists[i], space.class_lists[j]
                names = [
                    f"{visible(str(lists[0][k]))} = {visible(str(lists[1][other_k]))}"
                    for k, other_k in joined
                ]
                renamed.append(f"{_who(space.names, i, j)}: {shorten(names, 3)}")
            apart = same_name & (found.parts[one][:, None] != found.parts[other])
            enough = apart.sum() >= max(PAIRS, SHARE_OF_NAMES * same_name.sum())
            if enough and _has_better_match(agreement, apart):
                names = space.class_lists[i][apart.any(axis=1)].tolist()
                confused.append(f"{_who(space.names, i, j)}: {shorten(names, 3)}")
    return renamed, confused


def _has_better_match(agreement: Floats, apart: NDArray[np.bool_]) -> bool:
    """Tell whether one of these pairs agrees much less than one of its two columns does with another."""
    known = np.nan_to_num(agreement)
    best = np.maximum(known.max(axis=1)[:, None], known.max(axis=0))
    return bool((best - known)[apart].max() >= BETTER)


def _who(names: Sequence[str], i: int, j: int) -> str:
    return f"{visible(names[i])} and {visible(names[j])}"
