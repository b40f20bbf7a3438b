"""Clustering accuracy against all matches, by brute force."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience import InvalidInputError, clustering_accuracy


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_it_is_the_best_of_all_matches(pairs):
    true, pred = np.array(pairs).T
    best = max((np.array(match)[pred] == true).mean() for match in permutations(range(4)))
    assert clustering_accuracy(true, pred) == pytest.approx(best)


def test_names_and_spare_clusters():
    assert clustering_accuracy(["a", "a", "b", "b"], ["x", "x", "y", "y"]) == 1.0
    # the third cluster has no class left
    assert clustering_accuracy([0, 0, 1, 1], [0, 0, 1, 2]) == 0.75
    assert clustering_accuracy([0, 1, 2, 2], [0, 0, 0, 0]) == 0.5


@pytest.mark.parametrize("pred", [[], [[0], [1]], [0, 1, 2]])
def test_labels_that_do_not_fit_are_refused(pred):
    with pytest.raises(InvalidInputError, match="labels_pred"):
        clustering_accuracy([0, 1], pred)


def test_rows_without_a_class_are_left_out_and_without_a_cluster_count_as_wrong() -> None:
    assert clustering_accuracy(["cat", None, "dog", "dog"], [1, 5, 0, 0]) == 1.0
    assert clustering_accuracy([3, -1, 7, 7], [1, 1, 0, -1]) == pytest.approx(2 / 3)
