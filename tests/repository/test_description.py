"""What is kept of a model, and that strangers' files cannot hold anything else."""

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from consilience import as_teacher
from consilience.exceptions import ConsilienceError, InvalidInputError, TeacherError
from consilience.repository.description import FLOOR, Description, describe

ROWS = np.random.RandomState(0).randn(40, 6)
MODEL = LogisticRegression().fit(ROWS, np.arange(40) % 3)
GOOD = {"classes": np.array(["a", "b"]), "answers": np.log(np.full((4, 2), 0.5, dtype=np.float16))}


def test_keeps_classes_answers_and_a_reduced_embedding() -> None:
    kept = describe(MODEL, ROWS)
    assert kept.classes.tolist() == [0, 1, 2]
    expected = np.maximum(log_softmax(MODEL.decision_function(ROWS), axis=1), FLOOR)
    np.testing.assert_allclose(kept.answers, expected, atol=2e-3)
    assert kept.embeddings.shape == (40, 6)
    # principal components keep the distances of the rows, up to one scale
    distances = np.linalg.norm(kept.embeddings[0] - kept.embeddings[1:].astype(float), axis=1)
    true = np.linalg.norm(ROWS[0] - ROWS[1:], axis=1)
    assert np.ptp(distances / true) < 0.01 * (distances / true).mean()


def test_is_compact() -> None:
    kept = describe(MODEL, ROWS)
    assert kept.n_bytes == 2 * 40 * 3 + 2 * 40 * 6 + kept.classes.nbytes
    wide = as_teacher(
        np.eye(40)[:, :3], ["a", "b", "c"], output="logits", embed=np.tile(ROWS, 50) + np.eye(40, 300)
    )
    embeddings = describe(wide, ROWS).embeddings
    assert embeddings.shape == (40, 16)


def test_rows_without_an_answer_are_kept_as_such() -> None:
    logits = np.zeros((40, 2))
    logits[3] = np.nan
    kept = describe(as_teacher(logits, ["a", "b"], output="logits"), ROWS)
    assert np.isnan(kept.answers).all(axis=1).nonzero()[0].tolist() == [3]
    with pytest.raises(TeacherError, match="abstains on every reference row"):
        describe(as_teacher(np.full((40, 2), np.nan), ["a", "b"], output="logits"), ROWS)


def test_one_row_is_no_reference() -> None:
    with pytest.raises(InvalidInputError, match="X has 1 reference rows; give at least 2"):
        describe(MODEL, ROWS[:1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": None}, "answers of a description have shape"),
        ({"answers": np.array([[object(), object()]])}, "type object"),
        ({"answers": np.zeros((4, 3))}, "a column per class"),
        ({"answers": np.zeros((0, 2))}, "shape"),
        ({"answers": np.zeros((4, 2), dtype=int)}, "type int"),
        ({"answers": np.full((4, 2), 1.0)}, "logarithms of probabilities"),
        ({"answers": np.array([[0.0, np.nan]])}, "logarithms of probabilities"),
        ({"answers": np.full((4, 2), np.nan)}, "not in all rows"),
        ({"answers": np.full((4, 2), -1e9)}, "up to 60000"),
        ({"answers": np.full((4, 2), -np.inf)}, "up to 60000"),
        ({"classes": np.array(["a", "a"])}, "more than once"),
        ({"classes": np.array([["a", "b"]])}, "of type list"),
        ({"classes": np.array(["a", None], dtype=object)}, "of type NoneType"),
        ({"classes": np.array([], dtype=str)}, "is empty"),
        ({"embeddings": np.zeros((3, 2))}, "for 4 rows"),
        ({"embeddings": np.full((4, 2), np.nan)}, "finite"),
        ({"embeddings": np.full((4, 2), 1e6)}, "up to 60000"),
    ],
)
def test_refuses_arrays_that_describe_nothing(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConsilienceError, match=message):
        Description(**(GOOD | change))
