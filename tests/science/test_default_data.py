"""Experiments on data that need no file: the generated classes, and the options of the clustering tables."""

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.papers.sources import load


def test_generated_classes_come_in_groups_and_are_always_the_same() -> None:
    source = load("generated")
    assert np.array_equal(source.X, load("generated").X)
    groups = np.array(source.superclasses)
    assert len(groups) == len(np.unique(source.y)) == 20
    centres = np.stack([source.X[source.y == k].mean(axis=0) for k in range(20)])
    apart = ((centres[:, None] - centres) ** 2).sum(axis=2)
    same = groups[:, None] == groups
    others = ~np.eye(20, dtype=bool)
    assert apart[same & others].mean() < 0.7 * apart[~same].mean()
