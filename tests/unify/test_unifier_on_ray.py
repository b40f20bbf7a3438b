"""A Unifier whose teachers run on Ray: the same soft labels, bit for bit."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from consilience import InvalidInputError, Run, Unifier, as_teacher

X, y = load_iris(return_X_y=True)


@pytest.fixture
def ray(ray_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, connected; three blocks of rows."""
    import ray

    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 64)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield ray
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def teachers() -> list[Any]:
    return [LogisticRegression(max_iter=500).fit(X[y != k], y[y != k]) for k in (0, 2)]


def unifier(engine: str = "local", given: Any = None, **options: Any) -> Unifier:
    if engine == "ray":
        options["engine_options"] = {"workers": 1, "timeout": 60}
    run = Run(engine=engine, **options)
    return Unifier(given or teachers(), student="logistic", random_state=0, run=run)


def test_soft_labels_are_those_of_one_machine(ray: Any) -> None:
    given = [*teachers(), as_teacher(np.eye(3)[y] * 0.8 + 0.1, [0, 1, 2], "given", output="logits")]
    found, want = (
        unifier(engine, given, memory=1000, rows_per_call=32).estimate(X) for engine in ("ray", "local")
    )
    np.testing.assert_array_equal(found, want)


def test_a_ray_dataset_is_scored_on_ray(ray: Any) -> None:
    data = ray.data.from_numpy([X[:40], X[40:]])
    fitted = unifier().fit(data)
    np.testing.assert_array_equal(fitted.soft_labels_, unifier(memory=1000).estimate(X))
    np.testing.assert_allclose(fitted.predict_proba(X), unifier().fit(X).predict_proba(X), atol=1e-3)


def test_the_engine_is_checked() -> None:
    with pytest.raises(InvalidInputError, match="engine='rey' is unknown"):
        unifier("rey").fit(X)
    with pytest.raises(InvalidInputError, match="engine_options= are for engine='ray'"):
        Unifier(teachers(), run=Run(engine_options={"workers": 2})).fit(X)
