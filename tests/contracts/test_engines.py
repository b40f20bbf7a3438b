"""What every engine does: one machine and Ray give the same blocks, errors and stored outputs."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from consilience import LabelSpace, TeacherError, as_teacher
from consilience.rows import HeldRows
from consilience.run import Run
from consilience.scoring import ScoreStore, score_blocks
from consilience.teachers import Function, Teacher

X = np.random.default_rng(0).normal(size=(300, 3))
Engine = Callable[..., Iterator[Any]]


@pytest.fixture(params=["local", "ray"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Each engine, on five blocks."""
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 64)
    if request.param == "local":
        yield scored_with()
        return
    request.getfixturevalue("ray_cluster")
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield scored_with(engine="ray", engine_options={"workers": 2, "timeout": 60.0})
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def scored_with(**options: Any) -> Engine:
    """Return what scores blocks with these options of a run, and more of them."""
    return lambda asked, space, rows, **more: score_blocks(asked, space, rows, Run(**options, **more))


def rising(rows: Any) -> Any:
    return np.column_stack([rows[:, 0], rows[:, 1] * 2])


def teachers(body: Any = rising) -> list[Teacher]:
    y = np.array(["a", "b", "c"])[np.random.default_rng(1).integers(0, 3, len(X))]
    return [
        as_teacher(LogisticRegression().fit(X, y), name="model"),
        as_teacher(np.where(X[:, :1] > 2, np.nan, X[:, :2]), ["c", "d"], "given", output="logits"),
        Function(body, ["d", "e"], "function", output="logits", fingerprint="v1"),
    ]


def packed(engine: Engine, asked: list[Teacher], rows: Any = X, **options: Any) -> np.ndarray:
    given = HeldRows(rows)
    space = LabelSpace([t.classes for t in asked], names=[t.name for t in asked])
    found = np.full((len(rows), space.n_columns), -1.0, np.float32)
    for number, logits in engine(asked, space, given, **options):
        assert logits.dtype == np.float32
        found[given.rows_of(number)] = logits
    return found


def never(rows: Any) -> Any:
    raise ValueError("asked again")


class TestEngines:
    def test_blocks_stand_side_by_side_and_are_stored(self, engine: Engine, tmp_path: Path) -> None:
        calls: list[tuple[str, int, int]] = []
        cache = ScoreStore(tmp_path / "scores")
        found = packed(engine, teachers(), cache=cache, progress=lambda *call: calls.append(call))
        want = np.hstack([teacher.predict_logits(X) for teacher in teachers()])
        np.testing.assert_allclose(found, want, rtol=1e-6)
        np.testing.assert_array_equal(found, packed(scored_with(), teachers()))
        # what one engine stored is there for the other
        np.testing.assert_array_equal(found, packed(scored_with(), teachers(never), cache=cache))
        done = [call[1] for call in calls]
        assert calls[-1] == ("scoring", 900, 900)
        assert done == sorted(done)

    def test_no_rows(self, engine: Engine) -> None:
        asked = [teachers()[0], teachers()[2]]
        space = LabelSpace([t.classes for t in asked], disconnected="ignore")
        assert list(engine(asked, space, HeldRows(X[:0]))) == []

    def test_the_first_error_is_raised_and_what_was_done_is_kept(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        def picky(rows: Any) -> Any:
            return np.where(np.isin(rows[:, :1], X[[150, 250], 0]), np.inf, rising(rows))

        cache = ScoreStore(tmp_path / "scores")
        with pytest.raises(TeacherError, match=r"'function' \(3 of 3\) .*inf in row 150 ") as error:
            packed(engine, teachers(picky), cache=cache)
        assert error.value.row == 150

        def only_missing(rows: Any) -> Any:
            return never(rows) if np.isin(rows[:, 0], X[:64, 0]).any() else rising(rows)

        found = packed(scored_with(), teachers(only_missing), cache=cache)
        np.testing.assert_array_equal(found, packed(scored_with(), teachers()))
