from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import connected_components

from consilience.labels.space import connected_by_pattern, connected_classes


def test_a_class_in_no_block_is_a_component_of_its_own() -> None:
    ids = connected_classes(np.array([4, 1, 1, 3]), np.array([0, 2, 2, 4]), 6)
    assert ids.tolist() == [0, 1, 2, 1, 1, 3]


def test_components_of_many_patterns_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    lists = [rng.choice(15, size, replace=False) for size in (2, 3, 1, 4, 2, 3, 2)]
    columns, offsets = np.concatenate(lists), np.cumsum([0] + [len(values) for values in lists])
    patterns = rng.random((30, 7)) < 0.6
    patterns[3] = False
    together = connected_by_pattern(columns, offsets, 15, patterns)
    assert len(np.unique(together.max(axis=1))) > 3
    for active, ids in zip(patterns, together, strict=True):
        used = [values for values, answers in zip(lists, active, strict=True) if answers]
        own = np.concatenate([*used, []]).astype(int)
        borders = np.cumsum([0] + [len(values) for values in used])
        np.testing.assert_array_equal(ids, connected_classes(own, borders, 15))
        incidence = np.zeros((15, len(used)))
        incidence[own, np.repeat(np.arange(len(used)), np.diff(borders))] = 1
        np.testing.assert_array_equal(ids, connected_components(incidence @ incidence.T)[1])
