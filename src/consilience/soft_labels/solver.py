"""Soft labels of any number of rows: what needs many rows at once is found from some of them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.compiled import one_thread
from consilience.kernels.unify.packed import make_layout
from consilience.kernels.unify.ranks import RankTable, rank_scores
from consilience.labels import LabelSpace
from consilience.methods import CE, MFLF, Method
from consilience.soft_labels.methods import SOLVERS, estimate_rows
from consilience.soft_labels.pool import ESTIMATES, choose_pool
from consilience.soft_labels.ranks import estimate_by_ranks

# Rows are compared with at most so many others, and with fewer if these had more logits than the second.
MOST_ROWS = 2**16
MOST_NUMBERS = 2**24
# Draws the rows to compare with. They depend on the number of rows and columns alone, so that rows in memory
# and rows that are streamed get the same soft labels.
SEED = 0
# Largest logit, also over the temperature, for methods that add logits up: such sums stay finite.
LARGEST_LOGIT = 1e300


def rows_to_compare(n_rows: int, n_columns: int) -> Ints | None:
    """Return the positions of the rows that others are compared with, in order; None means all.

    A random sample does for what depends on all rows: ranks, the weights of a pool, temperatures, neighbours.
    """
    most = max(1, min(MOST_ROWS, MOST_NUMBERS // max(1, n_columns)))
    if n_rows <= most:
        return None
    return np.sort(np.random.default_rng(SEED).choice(n_rows, most, replace=False, shuffle=False))


class SoftLabelSolver:
    """Makes soft labels of rows, block by block.

    Parameters
    ----------
    compared : (r, m) array
        Packed logits of the rows to compare with: among these rows are ranked, and from these the weights of
        a pool are chosen.
    space : LabelSpace
    method : Method
        One with a name: no function.

    Attributes
    ----------
    weights : dict or None
        The share of each estimate in the pool.
    ranks : (r, m) array or None
        Scores by rank of the rows to compare with, if the method uses them.
    """

    def __init__(self, compared: Floats, space: LabelSpace, method: Any) -> None:
        self.layout = make_layout(space.columns, space.offsets, space.n_classes)
        self.weights: dict[str, float] | None = None
        self.ranks: Floats | None = None
        self._compared, self._method = compared, method
        answering = (~np.isnan(compared[:, self.layout.offsets[:-1]])).any(axis=0)
        if method.name == "auto" and answering.sum() <= 1:  # nobody to compare it with: take its word
            self.weights = {name: float(name == "mf-lf") for name in ESTIMATES}
            self._method = MFLF(method.temperature)
        if self._method.name in SOLVERS:
            return
        self.ranks = rank_scores(compared, self.layout.offsets)
        if self._method.name == "auto":
            with one_thread():  # its products are small
                self._pool = choose_pool(self.ranks, compared, self.layout, method)
            self.weights = dict(zip(ESTIMATES, self._pool.weights.tolist(), strict=True))

    @cached_property
    def _table(self) -> RankTable:
        return RankTable(self._compared, self.layout.offsets)

    def solve(self, packed: Floats, ranks: Floats | None = None) -> tuple[Floats, Floats | None]:
        """Return soft labels (k, L) and what the stopping rule reached (k,), if the method has one.

        Parameters
        ----------
        packed : (k, m) array
            Packed logits.
        ranks : (k, m) array, optional
            Their scores by rank, if these are known: of rows among those to compare with.
        """
        if self._method.name in SOLVERS:
            return estimate_rows(packed, self.layout, self._method)
        z = self._table.scores(packed) if ranks is None else ranks
        if self._method.name == "ranks":
            return estimate_by_ranks(z, self.layout, self._method.temperature), None
        ce = CE(1.0, tol=self._method.tol, max_iter=self._method.max_iter)
        pooled = self._pool.logits(z, packed, self.layout, ce)
        return pooled.soft_labels(self._method.temperature), pooled.reached


def check_size(what: str, packed: Floats, method: Method) -> None:
    """Raise if logits are so large that sums of them, over the temperature, would overflow."""
    adds_logits = method.name == "auto" or (method.name in SOLVERS and SOLVERS[method.name].adds_logits)
    if not adds_logits or getattr(method, "off_set", False):
        return
    largest = max(float(packed.max(initial=0.0)), -float(packed.min(initial=0.0)))
    if np.isnan(largest):  # somebody abstains: fmax and fmin skip NaN, at several times the cost
        top, bottom = (float(f.reduce(packed, axis=None, initial=0.0)) for f in (np.fmax, np.fmin))
        largest = max(top, -bottom)
    limit = LARGEST_LOGIT * min(method.temperature, 1.0)
    if largest > limit:
        raise InvalidInputError(
            f"{what} reach {largest:g} in size; at temperature {method.temperature:g} the most is {limit:g}."
            " Clip them, or divide them by a number."
        )
