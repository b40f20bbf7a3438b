"""Tables of mixed columns: what students learn from them, and what is said about it."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from consilience import (
    InvalidInputError,
    SoftLabelClassifier,
    TeacherError,
    Unifier,
    as_teacher,
)
from consilience._optional import installed
from consilience.students.table import MAX_VALUES, TableEncoder

pandas = pytest.importorskip("pandas")


def patients(n: int = 400, seed: int = 0) -> tuple[Any, np.ndarray]:
    """A frame with a column of each kind, and three classes that take most of them to tell."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    frame = pandas.DataFrame(
        {
            "age": rng.normal(40 + 15 * (y == 0), 5),
            "visits": rng.integers(0, 9, size=n),
            "ward": rng.choice(["north", "south", "east"], n),
            "smokes": rng.uniform(size=n) < np.where(y == 1, 0.95, 0.1),
            "since": pandas.Timestamp("2020-01-01") + pandas.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "key": [f"p{i}" for i in range(n)],
        }
    )
    frame["ward"] = frame["ward"].astype("category")
    frame["blood"] = np.where(rng.uniform(size=n) < np.where(y == 2, 0.9, 0.2), "A", "B")
    frame.loc[rng.uniform(size=n) < 0.1, "age"] = np.nan
    frame.loc[rng.uniform(size=n) < 0.1, "blood"] = None
    return frame, y


FRAME, Y = patients()
SEEN = 120  # rows to learn from where the export of forests takes long
TORCH = pytest.param(
    "torch", marks=pytest.mark.skipif(not installed("torch"), reason="torch is not installed")
)
STUDENTS = ["logistic", "forest", "boosting", TORCH]


@pytest.fixture(scope="module")
def logistic() -> Any:
    """A model of the whole frame."""
    return SoftLabelClassifier("logistic").fit(FRAME, Y)


def check_saved(model: Any, folder: Path, *tables: Any) -> Path:
    """Compare a model with its file, on tables that hold the same rows or others."""
    pytest.importorskip("skl2onnx")
    pytest.importorskip("onnxruntime")
    path: Path = model.save(folder / "model.onnx")
    teacher = as_teacher(path)
    for rows in tables:
        got = softmax(teacher.predict_logits(rows), axis=1)
        np.testing.assert_allclose(got, model.predict_proba(rows), atol=2e-5)
    return path


class TestEncoder:
    def test_says_what_it_did(self) -> None:
        notes = dict(TableEncoder().fit(FRAME).encoding_)
        assert list(notes) == list(FRAME.columns)
        assert notes.pop("age").startswith("number; missing values became the median 4")
        assert notes == {
            "visits": "number",
            "ward": "one-hot of 3 values",
            "smokes": "true or false, as 1 or 0",
            "since": "date: days since 1970, season, weekday, hour",
            "key": "dropped: 400 different texts, which hardly recur",
            "blood": "one-hot of 3 values, missing ones among them",
        }

    def test_is_a_pipeline_of_scikit_learn(self) -> None:
        columns = FRAME[["visits", "age", "ward", "smokes"]]
        expected = make_column_transformer(
            (SimpleImputer(strategy="median", add_indicator=True), ["visits", "age", "smokes"]),
            (OneHotEncoder(sparse_output=False), ["ward"]),
        ).fit_transform(columns.astype({"smokes": float}))
        np.testing.assert_allclose(TableEncoder().fit(columns).transform(columns), expected)

    def test_rare_values_share_a_column_with_unknown_ones(self) -> None:
        values = [f"v{i}" for i in range(MAX_VALUES)] * 5 + ["once", "twice", "twice"]
        encoder = TableEncoder().fit(pandas.DataFrame({"v": values}))
        note = f"one-hot of its {MAX_VALUES} most frequent values; 2 others share a column"
        assert encoder.encoding_ == {"v": note}
        rows = encoder.transform(pandas.DataFrame({"v": ["once", "never seen", "v3"]}))
        assert rows.shape == (3, MAX_VALUES + 1)
        np.testing.assert_array_equal(rows[0], rows[1])
        assert rows[2].argmax() != rows[0].argmax()

    def test_an_unknown_value_is_none_of_the_known(self) -> None:
        encoder = TableEncoder().fit(pandas.DataFrame({"v": ["a", "b", "a"]}))
        assert encoder.transform(pandas.DataFrame({"v": ["c", None]})).tolist() == [[0, 0], [0, 0]]

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            (pandas.array([1, None, 3], "Int64"), [1, 2, 3]),
            (pandas.array([True, None, True], "boolean"), [1, 1, 1]),
            ([Decimal("1.5"), Decimal("2.5"), None], [1.5, 2.5, 2.0]),
            (pandas.to_timedelta([1, 2, 3], unit="min"), [60, 120, 180]),
            ([True, None, False], [1, 0.5, 0]),
        ],
        ids=["Int64", "boolean", "decimal", "span", "objects"],
    )
    def test_columns_that_are_numbers(self, values: Any, expected: list[float]) -> None:
        frame = pandas.DataFrame({"v": values})
        assert TableEncoder().fit(frame).transform(frame)[:, 0].tolist() == expected

    @pytest.mark.parametrize(
        "values",
        [
            [datetime.date(1970, 1, 2), None, datetime.date(1970, 1, 4)],
            pandas.to_datetime(["1970-01-02", None, "1970-01-04"]),
            pandas.to_datetime(["1970-01-02 02:00", None, "1970-01-04 02:00"]).tz_localize("Etc/GMT-2"),
        ],
        ids=["date", "datetime", "zone"],
    )
    def test_dates(self, values: Any) -> None:
        frame = pandas.DataFrame({"v": values})
        days, weekdays, hours = TableEncoder().fit(frame).transform(frame)[:, [0, 3, 4]].T.tolist()
        assert days == [1, 2, 3]  # the median of the days, for the missing one
        assert (weekdays, hours) == ([4, 5, 6], [0, 0, 0])  # Friday, Saturday, Sunday

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ([[1, 2], [3, 4], [5, 6]], r"Column 'v' of X holds list .*give an array \(n, \.\.\.\)"),
            ([1j, 2j, 3j], "Column 'v' of X holds complex"),
            ([b"a", b"b", b"c"], "Column 'v' of X holds bytes"),
            ([1.0, np.inf, 2.0], "Column 'v' has inf in row 1"),
            ([None, None, None], "No column of X can be learnt from: 'v' is dropped: it has no values"),
            (["a", "a", "a"], "'v' is dropped: it has one value"),
        ],
        ids=["lists", "complex", "bytes", "infinite", "empty", "constant"],
    )
    def test_columns_that_cannot_be_used(self, values: Any, words: str) -> None:
        with pytest.raises(InvalidInputError, match=words):
            TableEncoder().fit(pandas.DataFrame({"v": values}))

    def test_a_column_that_changed_its_kind_is_named(self) -> None:
        encoder = TableEncoder().fit(FRAME)
        for name, cell, kind in (("age", "old", "numbers"), ("since", 3, "dates")):
            words = rf"Column '{name}' holds .* such as {cell!r}; .*on {kind} there"
            with pytest.raises(InvalidInputError, match=words):
                encoder.transform(FRAME.assign(**{name: cell}))

    def test_numbers_as_categories_are_one_value_however_written(self) -> None:
        frame = pandas.DataFrame({"v": pandas.Categorical([1, 2, 1])})
        encoder = TableEncoder().fit(frame)
        for values in ([1, 2, 1], [1.0, 2.0, 1.0], ["1", "2", "1"]):
            rows = encoder.transform(pandas.DataFrame({"v": values}))
            np.testing.assert_array_equal(rows, encoder.transform(frame))


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # of scikit-learn's network
@pytest.mark.parametrize("student", STUDENTS)
def test_students_learn_from_mixed_columns_and_save_what_was_fitted(student: Any, tmp_path: Path) -> None:
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    model = SoftLabelClassifier(student, random_state=0).fit(FRAME[:SEEN], Y[:SEEN])
    assert model.score(FRAME[300:], Y[300:]) > 0.75
    turned = FRAME[FRAME.columns[::-1]]
    np.testing.assert_array_equal(model.predict_proba(turned), model.predict_proba(FRAME))
    path = check_saved(model, tmp_path, FRAME, turned)
    inputs = {i.name: i.type for i in ort.InferenceSession(path).get_inputs()}
    assert inputs == {
        "age": "tensor(double)",
        "visits": "tensor(int64)",
        "ward": "tensor(string)",
        "smokes": "tensor(bool)",
        "since": "tensor(double)",
        "blood": "tensor(string)",
    }
    model.save(tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == path.read_bytes()
    assert onnx.load(path).graph.name == "consilience"


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_mixed_tables_of_other_libraries(library: str, logistic: Any) -> None:
    module = pytest.importorskip(library)
    table = module.from_pandas(FRAME) if library == "polars" else module.Table.from_pandas(FRAME)
    np.testing.assert_allclose(logistic.predict_proba(table), logistic.predict_proba(FRAME))
    again = SoftLabelClassifier("logistic").fit(table, Y)
    assert again.encoding_ == logistic.encoding_
    np.testing.assert_allclose(again.predict_proba(table), logistic.predict_proba(FRAME), atol=1e-6)


def test_missing_numbers_are_filled_but_for_students_that_take_them() -> None:
    numbers = FRAME[["visits", "age"]]
    assert SoftLabelClassifier("boosting", random_state=0).fit(numbers, Y).encoding_ is None
    model = SoftLabelClassifier("logistic").fit(numbers, Y)
    assert "missing values became the median" in model.encoding_["age"]


@pytest.mark.parametrize("student", ["logistic", "boosting"])
def test_a_table_of_numbers_is_saved_with_one_input(student: str, tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    numbers = FRAME[["visits", "age"]]
    model = SoftLabelClassifier(student, random_state=0).fit(numbers, Y)
    path = check_saved(model, tmp_path, numbers, numbers[["age", "visits"]], numbers.to_numpy())
    (entry,) = ort.InferenceSession(path).get_inputs()
    assert (entry.name, entry.type, entry.shape) == ("X", "tensor(double)", ["n", 2])


def test_an_export_that_is_wrong_for_missing_values_is_refused(tmp_path: Path) -> None:
    """skl2onnx 1.20 sends missing values to the wrong side of a forest's splits."""
    rows = FRAME[["visits", "age"]].to_numpy()
    model = SoftLabelClassifier("forest", random_state=0).fit(rows[:SEEN], Y[:SEEN])
    try:
        check_saved(model, tmp_path, rows)  # it is mended
    except InvalidInputError as error:
        assert "differ from its own" in str(error)  # noqa: PT017
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("student", "shape"), [("logistic", (120, 64)), pytest.param("torch", (120, 8, 8), marks=TORCH.marks)]
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_the_type_of_the_rows_is_kept(
    student: str, shape: tuple[int, ...], dtype: Any, tmp_path: Path
) -> None:
    ort = pytest.importorskip("onnxruntime")
    images = np.random.default_rng(0).integers(0, 256, size=shape).astype(dtype)
    y = (images.reshape(120, -1).mean(axis=1) > 127).astype(int)
    model = SoftLabelClassifier(student, random_state=0).fit(images, y)
    session = ort.InferenceSession(model.save(tmp_path / "model.onnx"))
    (entry,) = session.get_inputs()
    assert entry.type == {np.uint8: "tensor(uint8)", np.float32: "tensor(float)"}[dtype]
    probabilities, _ = session.run(None, {"X": images})
    np.testing.assert_allclose(probabilities, model.predict_proba(images), atol=1e-5)


def test_rows_of_a_mixed_table_may_come_without_names(logistic: Any) -> None:
    np.testing.assert_allclose(logistic.predict_proba(FRAME.to_numpy()), logistic.predict_proba(FRAME))
    with pytest.raises(InvalidInputError, match="X has 2 columns; the model was fitted on a table of 7"):
        logistic.predict_proba(FRAME.to_numpy()[:, :2])


COLUMNS = ["age", "visits", "ward", "blood"]


def pipeline() -> Any:
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), COLUMNS[2:]),
        (make_pipeline(SimpleImputer(), StandardScaler()), COLUMNS[:2]),
    )
    return make_pipeline(encoder, LogisticRegression(max_iter=500))


@pytest.fixture(scope="module")
def sites() -> list[Any]:
    """Pipelines of three sites on the same frame, each for two classes."""
    return [pipeline().fit(FRAME[k != Y], np.array(["flu", "cold", "none"])[Y[k != Y]]) for k in range(3)]


def test_teachers_get_the_frame_untouched(sites: Any) -> None:
    def watch(rows: Any) -> np.ndarray:
        assert rows.dtypes.equals(FRAME.dtypes)
        return np.tile([0.0, 1.0], (len(rows), 1))

    Unifier([*sites, as_teacher(watch, ["flu", "cold"], output="logits")], "logistic").fit(FRAME)


def test_a_pipeline_as_student_is_saved_with_an_input_per_column(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    rows = FRAME[[*COLUMNS, "key"]]
    filled = rows.assign(blood=rows["blood"].fillna("?"), ward=rows["ward"].astype(object))
    model = SoftLabelClassifier(pipeline()).fit(filled, Y)
    assert model.encoding_ is None  # it has its own encoders
    path = check_saved(model, tmp_path, filled, filled[filled.columns[::-1]])
    assert [i.name for i in ort.InferenceSession(path).get_inputs()] == [*COLUMNS, "key"]


@pytest.mark.parametrize("names", [["label", "probabilities", "X"], ["", "scores", "consilience_1"], None])
def test_names_of_columns_that_the_graph_uses_itself(names: list[str] | None, tmp_path: Path) -> None:
    frame = FRAME[["age", "blood", "smokes"]].set_axis(names or range(3), axis=1)
    check_saved(SoftLabelClassifier("logistic").fit(frame, Y), tmp_path, frame, frame.to_numpy())


def test_a_saved_model_reads_values_that_it_never_saw(tmp_path: Path) -> None:
    model = SoftLabelClassifier("logistic").fit(FRAME.assign(many=[f"v{i % 60}" for i in range(400)]), Y)
    assert "20 others share a column" in model.encoding_["many"]
    strange: list[dict[str, Any]] = [{"ward": "west"}, {"many": "new"}, {"blood": None, "age": np.nan}]
    check_saved(model, tmp_path, *(FRAME.assign(many="v0").assign(**one) for one in strange))


def test_a_saved_model_says_what_it_cannot_read(logistic: Any, tmp_path: Path) -> None:
    teacher = as_teacher(check_saved(logistic, tmp_path))
    with pytest.raises(TeacherError, match=r"cannot read X: Column 'age' holds .* such as 'old'"):
        teacher.predict_logits(FRAME.assign(age="old"))
    with pytest.raises(TeacherError, match=r"takes a table of 7 columns, and X has shape \(5,\)"):
        teacher.predict_logits(np.arange(5))


@pytest.mark.parametrize(
    ("student", "X", "words"),
    [
        ("ngrams", FRAME, r"X is a table .* Give the column that holds them as a list"),
        ("logistic", np.zeros((4, 2, 2)), r"\(4, 2, 2\), such as images have.*X.reshape\(len\(X\), -1\)"),
        ("logistic", np.array([["a", "1"]] * 4), "with texts in it. Give a pandas data frame"),
        ("logistic", np.array([["a", 1]] * 4, dtype=object), "with texts in it. Give a pandas data frame"),
        (
            "logistic",
            np.array([[1.0], [np.nan], [2.0], [3.0]]),
            "NaN or infinity in row 1 .*give a data frame",
        ),
    ],
    ids=["table", "image", "texts", "objects", "missing"],
)
def test_what_is_in_the_wrong_place_gets_advice(student: str, X: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        SoftLabelClassifier(student).fit(X, np.arange(len(X)) % 2)


@pytest.mark.parametrize(
    ("cells", "remark"),
    [
        (["31.01.2025", "01.02.2025", None], "dates"),
        (["2025/01/31 14:30", "2025/02/01 9:05"], "dates"),
        (["2025-01-31", "2025-02-01"], "dates"),
        ([f"{day:02}.{month:02}.2024" for day in range(1, 29) for month in range(1, 13)], "dates"),
        (["37,5", "-0,25", "38,1"], "decimal comma"),
        (["37,5", "38", "36,9"], "decimal comma"),
        (["1,250", "3,400", "12,800"], None),  # thousands, perhaps
        (["1.10.22", "2.4.7"], None),  # versions
        (["ward 7", "ward 8"], None),
        (["1.2", "3.4.5", "10.0.0.1"], None),
        (["31.01.2025", "unknown"], None),
    ],
)
def test_texts_that_look_like_dates_or_numbers_are_remarked_on(cells: list[Any], remark: str | None) -> None:
    note = TableEncoder().fit(pandas.DataFrame({"v": cells, "n": range(len(cells))})).encoding_["v"]
    assert ("they look like" in note) == (remark is not None)
    assert (remark or "") in note
