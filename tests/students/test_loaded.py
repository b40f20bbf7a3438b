"""What `save` wrote comes back as a scikit-learn classifier."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

import consilience
from consilience import InvalidInputError, SoftLabelClassifier, Unifier, as_teacher, load
from consilience.files.card import read_card
from consilience.rows.tables import rows_sha256
from consilience.students import Ngrams

pytest.importorskip("onnxruntime")
pandas = pytest.importorskip("pandas")
skl2onnx = pytest.importorskip("skl2onnx")


def patients(n: int, seed: int) -> tuple[Any, np.ndarray]:
    random = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "age": random.integers(20, 80, n),
            "city": random.choice(["Ulm", "Bonn", "Kiel"], n),
            "seen": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(random.integers(0, 90, n), "D"),
        }
    )
    frame.loc[::7, "age"] = np.nan
    y = np.where(frame["city"] == "Ulm", "well", np.where(frame["age"] > 50, "ill", "cured"))
    return frame, y


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Unifier, Any, np.ndarray]:
    """A unified model of a mixed table, with aliases, its rows and their classes."""
    X, y = patients(200, 0)
    sites = {
        name: SoftLabelClassifier("logistic", random_state=0).fit(X[y != none], labels[y != none])
        for name, none, labels in (("here", "ill", y), ("there", "well", np.where(y == "ill", "krank", y)))
    }
    unified = Unifier(sites, "logistic", aliases={"krank": "ill"}, random_state=3).fit(X)
    path = unified.save(tmp_path_factory.mktemp("saved") / "unified.onnx", measured={"accuracy": 0.5})
    return path, unified, X, y


def test_a_loaded_model_is_a_fitted_classifier(saved) -> None:
    path, unified, X, _ = saved
    model = load(path)
    check_is_fitted(model)
    assert is_classifier(model)
    assert clone(model) is model.fit(X) is model
    assert model.classes_.tolist() == unified.classes_.tolist()
    assert model.feature_names_in_.tolist() == ["age", "city", "seen"]
    assert model.n_features_in_ == 3
    np.testing.assert_allclose(model.predict_proba(X), unified.predict_proba(X), atol=1e-5)
    assert (model.predict(X) == unified.predict(X)).mean() > 0.99
    assert model.predict_proba(X[:0]).shape == (0, 3)
    assert Unifier.load is load is consilience.load


def test_columns_are_put_in_order_and_unknown_ones_are_named(saved) -> None:
    path, _, X, _ = saved
    model = load(path)
    np.testing.assert_array_equal(model.predict_proba(X[["seen", "age", "city"]]), model.predict_proba(X))
    with pytest.raises(
        consilience.TeacherError, match="lacks the column 'city' and has the unknown column 'town'"
    ):
        model.predict(X.rename(columns={"city": "town"}))


def test_its_score_reads_aliases_as_the_unifier_does(saved) -> None:
    path, unified, X, y = saved
    labels = np.where(y == "ill", "krank", y).astype(object)
    labels[::3] = None
    assert load(path).score(X, labels) == pytest.approx(unified.score(X, labels))
    assert load(path).score(X, labels) > load(path).score(X, np.where(y == "ill", "malade", y))


def test_it_is_a_teacher(saved) -> None:
    path, _, X, _ = saved
    model = load(path)
    np.testing.assert_array_equal(as_teacher(model).predict_logits(X), as_teacher(path).predict_logits(X))
    assert as_teacher(model).fingerprint == as_teacher(path).fingerprint is not None
    assert as_teacher(model, name="again").name == "again"
    again = Unifier([model], "logistic", random_state=0).fit(X)
    assert (again.predict(X) == model.predict(X)).mean() > 0.8


def test_a_matrix_of_numbers(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    fitted = SoftLabelClassifier("logistic", classes=[7, 3]).fit(X, np.where(X[:, 0] > 0, 7, 3))
    fitted.set_params(balance=True, random_state=2)  # the card has the settings of the fit
    model = load(fitted.save(tmp_path / "m.onnx"))
    made = model.card_.details["made"]
    assert (made["settings"]["balance"], made["seed"], "teachers" in made) == (False, None, False)
    assert (model.n_features_in_, hasattr(model, "feature_names_in_")) == (3, False)
    np.testing.assert_allclose(model.predict_proba(X), fitted.predict_proba(X), atol=1e-5)
    assert model.score(X, np.where(X[:, 0] > 0, 7, 3)) > 0.9


def test_a_model_of_texts(tmp_path: Path) -> None:
    texts = ["the cat sat", "der Hund lief", "a dog ran", "die Katze sass"] * 10
    student = Ngrams(n_buckets=256, dim=4, max_iter=3, random_state=0)
    fitted = SoftLabelClassifier(student).fit(texts, ["en", "de"] * 20)
    model = load(fitted.save(tmp_path / "m.npz", measured={"accuracy": 1.0}))
    assert (model.takes_texts, hasattr(model, "n_features_in_")) == (True, False)
    np.testing.assert_allclose(model.predict_proba(texts), fitted.predict_proba(texts), atol=2e-3)
    assert read_card(tmp_path / "m.card.json").details["made"]["student"] == "Ngrams"


def test_other_files_are_refused_with_advice(tmp_path: Path) -> None:
    X = np.eye(2, dtype=np.float32)
    foreign = skl2onnx.to_onnx(LogisticRegression().fit(X, [0, 1]), X)
    (tmp_path / "foreign.onnx").write_bytes(foreign.SerializeToString())
    np.savez(tmp_path / "scores.npz", proba=X, classes=["a", "b"])
    cases: dict[Any, str] = {
        tmp_path / "foreign.onnx": "is an ONNX model of others.* Use as_teacher",
        tmp_path / "scores.npz": "If these are the outputs of a model, use as_teacher",
        tmp_path / "no.onnx": "does not exist",
        tmp_path / "no.pkl": "load reads .onnx and .npz",
        5: "path=5 must be the path of a file",
    }
    for path, message in cases.items():
        with pytest.raises(InvalidInputError, match=message):
            load(path)


def test_the_card_says_how_the_model_was_made(saved, monkeypatch: pytest.MonkeyPatch) -> None:
    path, unified, X, _ = saved
    made = load(path).card_.details["made"]
    assert made["version"] == consilience.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", made["date"])
    assert (made["estimator"], made["student"], made["seed"]) == ("Unifier", "LogisticRegression", 3)
    assert made["aliases"] == {"krank": "ill"}
    assert made["data"] == {"rows": 200, "sha256": rows_sha256(X)}
    assert made["measured"] == {"accuracy": 0.5}
    assert set(made["settings"]) == set(unified.get_params(deep=False)) - {"teachers", "aliases", "progress"}
    assert [teacher["name"] for teacher in made["teachers"]] == ["here", "there"]
    # the model has no date, and the card only the one that is asked for
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    again = [unified.save(path.with_name(f"{name}.onnx")) for name in "ab"]
    assert again[0].read_bytes() == again[1].read_bytes() == path.read_bytes()
    named = {"name": "", "card_sha256": ""}  # these two differ
    cards = [json.loads(one.with_suffix(".card.json").read_text()) | named for one in again]
    assert cards[0] == cards[1]
    assert cards[0]["details"]["made"]["date"] == "1970-01-01T00:00:00Z"


def test_rows_that_lie_elsewhere_are_read_block_by_block(
    saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _, X, _ = saved
    X.to_parquet(tmp_path / "rows.parquet")
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 64)
    model = load(path)
    np.testing.assert_allclose(model.predict_proba(str(tmp_path / "rows.parquet")), model.predict_proba(X))
    assert model.predict(tmp_path / "rows.parquet").tolist() == model.predict(X).tolist()
