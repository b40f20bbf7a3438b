"""The paper's protocol: who knows which classes and sees which rows."""

import numpy as np
import pytest
from benchmarks.papers.trials import SIZES, Trial, random_classes

from consilience import InvalidInputError

LABELS = np.repeat(np.arange(60), 700)


def counts(trial: Trial, y: np.ndarray) -> list[np.ndarray]:
    """Return how many rows of each of its classes a teacher has."""
    pairs = zip(trial.teacher_rows, trial.teacher_classes, strict=True)
    return [np.array([(y[rows] == name).sum() for name in own]) for rows, own in pairs]


@pytest.mark.parametrize("preset", SIZES)
@pytest.mark.parametrize("seed", range(5))
def test_a_trial_keeps_to_table_1_and_its_teachers_are_connected(preset: str, seed: int) -> None:
    sizes = SIZES[preset]
    trial = random_classes(LABELS, **sizes, random_state=seed)
    assert sizes["n_classes"][0] <= len(trial.classes) <= sizes["n_classes"][1]
    assert sizes["n_teachers"][0] <= trial.n_teachers <= sizes["n_teachers"][1]
    for own in trial.teacher_classes:
        assert sizes["n_teacher_classes"][0] <= len(own) <= sizes["n_teacher_classes"][1]
        assert len(np.unique(own)) == len(own)
    space = trial.label_space  # warns, an error here, when it is not connected
    np.testing.assert_array_equal(space.classes, trial.classes)


def test_rows_are_of_known_classes_within_bounds_and_have_one_teacher() -> None:
    trial = random_classes(LABELS, n_per_class=(50, 200), random_state=1)
    found = np.concatenate(counts(trial, LABELS))
    assert 50 <= found.min() < found.max() <= 200
    every = np.concatenate(trial.teacher_rows)
    assert len(np.unique(every)) == len(every)
    np.testing.assert_array_equal(trial.union_rows, np.sort(every))
    for rows, own in zip(trial.teacher_rows, trial.teacher_classes, strict=True):
        np.testing.assert_array_equal(np.unique(LABELS[rows]), own)


def test_scarce_rows_are_divided_and_still_not_shared() -> None:
    y = np.repeat(np.arange(10), 40)
    trial = random_classes(y, n_per_class=(50, 200), completely_overlapping=True, random_state=3)
    every = np.concatenate(trial.teacher_rows)
    assert len(np.unique(every)) == len(every)
    found = np.stack(counts(trial, y))
    assert found.min() >= 1
    assert trial.label_space.identical
    used = found.sum(axis=0)
    assert (used <= 40).all()
    assert (used > 40 - trial.n_teachers).all()  # but for rounding, all are used


def test_seeds_reproduce_and_differ() -> None:
    first, again, other = (random_classes(LABELS, random_state=seed) for seed in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(first.teacher_rows, again.teacher_rows, strict=True))
    np.testing.assert_array_equal(first.classes, again.classes)
    assert not np.array_equal(first.union_rows, other.union_rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_classes": (5, 70)}, r"n_classes=\(5, 70\) asks for up to 70 classes, but y has 60"),
        ({"n_classes": (10, 5)}, "n_classes=.* two whole numbers"),
        ({"n_teachers": 3}, "n_teachers=3 must be two whole numbers"),
        ({"n_teachers": (0, 3)}, "the first at least 1"),
        ({"n_teacher_classes": (1, 3)}, "the first at least 2"),
        ({"n_per_class": (0.5, 3)}, "n_per_class=.* two whole numbers"),
        (
            {"n_classes": (50, 50), "n_teachers": (2, 2)},
            "Allow more teachers, larger teachers or fewer",
        ),
    ],
)
def test_impossible_sizes_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        random_classes(LABELS, **options, random_state=0)
