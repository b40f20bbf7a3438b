"""The whole life of a model: three sites' pipelines on mixed tables become one model that is in service."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("click")
pandas = pytest.importorskip("pandas")
pytest.importorskip("skl2onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from click.testing import CliRunner  # noqa: E402
from sklearn.compose import make_column_transformer  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import OneHotEncoder, StandardScaler  # noqa: E402

from consilience import Unifier, as_teacher, load, suggest_aliases  # noqa: E402
from consilience.cli.app import app  # noqa: E402

CLASSES = ["cold", "flu", "migraine", "myocardial infarction", "well"]
# what each site knows, in its own words
SITES = {
    "north": {"cold": "cold", "flu": "flu", "myocardial infarction": "MI", "well": "well"},
    "south": {"flu": "flu", "myocardial infarction": "myocardial infarction", "well": "well"},
    "west": {"migraine": "migraine", "myocardial infarction": "myocardial infarction", "well": "well"},
}
TOLERANCE = 1e-5


def patients(n: int, seed: int) -> tuple[Any, np.ndarray]:
    """Return a table of mixed columns with gaps, and the class of each row."""
    rng = np.random.default_rng(seed)
    k = rng.integers(len(CLASSES), size=n)
    pain = np.array(["none", "none", "head", "chest", "none"])[k]
    frame = pandas.DataFrame(
        {
            "fever": rng.normal(np.array([37.6, 39.2, 36.9, 37.0, 36.8])[k], 0.4).round(2),
            "pulse": rng.normal(np.array([75, 90, 78, 115, 65])[k], 7).round(),
            "pain": np.where(rng.uniform(size=n) < 0.9, pain, "back"),
            "cough": rng.uniform(size=n) < np.array([0.9, 0.6, 0.05, 0.05, 0.05])[k],
            "seen": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(rng.integers(0, 365, n), unit="D"),
        }
    )
    frame.loc[::17, "fever"] = np.nan
    return frame, np.array(CLASSES)[k]


def site(seed: int, names: dict[str, str]) -> Any:
    """Return the pipeline that a site trained on its own patients, with its own encoding."""
    X, y = patients(500, seed)
    known = np.isin(y, list(names))
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    encoder = make_column_transformer(
        (numbers, ["fever", "pulse"]), (OneHotEncoder(handle_unknown="ignore"), ["pain", "cough"])
    )
    return make_pipeline(encoder, LogisticRegression(max_iter=500)).fit(
        X[known], [names[name] for name in y[known]]
    )


@dataclass
class Story:
    """What all stations share."""

    folder: Path
    X: Any
    y: np.ndarray
    unified: Unifier
    proba: np.ndarray  # of the rows X


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("story")
    sites = {name: site(seed, names) for seed, (name, names) in enumerate(SITES.items())}
    pool, _ = patients(800, 10)
    found = suggest_aliases(sites, pool)
    assert found.aliases == {"MI": "myocardial infarction"}
    unified = Unifier(sites, "logistic", aliases=found.aliases, random_state=0).fit(pool)
    assert unified.classes_.tolist() == CLASSES
    X, y = patients(200, 11)
    X.to_csv(folder / "rows.csv", index=False)
    pandas.DataFrame({"label": y}).to_csv(folder / "labels.csv", index=False)
    unified.save(folder / "unified.onnx")
    return Story(folder, X, y, unified, unified.predict_proba(X))


def run(*words: Any) -> Any:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done


def test_it_is_compared_evaluated_and_explained(story: Story) -> None:
    pool, _ = patients(800, 10)
    compared = story.unified.compare(pool, methods=("auto", "sd"), max_rows=400)
    assert compared.recommendation
    report = story.unified.evaluate(story.X, story.y, labels_only=False)
    assert report.scores.accuracy > 0.8  # 0.88 to 0.95 over seeds
    assert {row.name for row in report.compared} == {"vote", *SITES}
    explained = story.unified.explain(story.X[17:18])
    assert explained.decision == story.unified.predict(story.X)[17]
    assert list(explained.proba.values()) == pytest.approx(story.proba[17].tolist())


def test_the_saved_file_is_verified_and_loaded(story: Story) -> None:
    checks = json.loads(run("verify", story.folder / "unified.onnx", "--json").stdout)
    assert checks["passed"]
    loaded = load(story.folder / "unified.onnx")
    assert loaded.classes_.tolist() == CLASSES
    assert loaded.feature_names_in_.tolist() == list(story.X.columns)
    turned = story.X[story.X.columns[::-1]]
    np.testing.assert_allclose(loaded.predict_proba(turned), story.proba, atol=TOLERANCE)
    assert (loaded.predict(story.X) == story.unified.predict(story.X)).all()


def test_the_command_line_predicts_and_evaluates_the_same(story: Story) -> None:
    model, rows, out = (story.folder / name for name in ("unified.onnx", "rows.csv", "predictions.csv"))
    run("predict", model, "--data", rows, "--out", out)
    found = pandas.read_csv(out)
    assert (found["label"] == story.unified.predict(story.X)).all()
    np.testing.assert_allclose(found.drop(columns="label").to_numpy(), story.proba, atol=TOLERANCE)
    view = json.loads(
        run("evaluate", model, "--data", rows, "--labels", story.folder / "labels.csv", "--json").stdout
    )
    assert view["accuracy"] == pytest.approx(story.unified.score(story.X, story.y))


def test_plain_onnxruntime_gives_the_same(story: Story) -> None:
    session = onnxruntime.InferenceSession(story.folder / "unified.onnx")
    columns = dict(story.X.astype({"pain": object}))
    columns["seen"] = columns["seen"].astype("datetime64[s]").astype("int64").astype(float)
    feed = {name: column.to_numpy()[:, None] for name, column in columns.items()}
    (proba,) = session.run(["probabilities"], feed)
    np.testing.assert_allclose(proba, story.proba, atol=TOLERANCE)


def test_it_is_a_teacher_again(story: Story) -> None:
    teacher = as_teacher(story.folder / "unified.onnx")
    logits = Unifier([teacher], "logistic").score_teachers(story.X)
    np.testing.assert_allclose(
        np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), story.proba, atol=TOLERANCE
    )
