"""What every teacher adapter promises."""

from __future__ import annotations

import functools
import pickle
import shutil
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from tests.teachers.model_folders import image_folder, images, sentence_folder, text_folder

from consilience import SoftLabelClassifier
from consilience.exceptions import TeacherError
from consilience.files.card import Card, card_path, write_card
from consilience.students.ngrams import Ngrams
from consilience.students.server import ModelServer, ServedModel
from consilience.teachers import (
    HardLabels,
    ImagePreprocess,
    Onnx,
    Teacher,
    TeacherLike,
    Torch,
    as_teacher,
    encode_sentences,
    join_classes,
    save_sentence_head,
)

CLASSES = ["ant", "bee", "cow"]
N = 40


@dataclass
class Case:
    """A teacher, an X, and what the source itself says about it."""

    teacher: Teacher
    X: Any
    proba: np.ndarray
    name: str
    tolerance: float = 1e-6


def data(n_classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(N) % n_classes
    X = rng.normal(size=(N, 4)) + 1.5 * np.eye(4)[y]
    return X.astype(np.float32), np.array(CLASSES)[y]


def logistic() -> tuple[LogisticRegression, np.ndarray]:
    X, y = data()
    return LogisticRegression(C=0.1).fit(X, y), X


def sklearn_case(tmp_path: Path) -> Case:
    model, X = logistic()
    return Case(as_teacher(model), X, model.predict_proba(X), "LogisticRegression")


def margin_case(tmp_path: Path) -> Case:
    X, y = data()
    model = LinearSVC().fit(X, y)
    return Case(as_teacher(model), X, softmax(model.decision_function(X), axis=1), "LinearSVC")


def pipeline_case(tmp_path: Path) -> Case:
    X, y = data()
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1)).fit(X, y)
    return Case(as_teacher(model, name="piped"), X, model.predict_proba(X), "piped")


def network() -> tuple[MLPClassifier, np.ndarray]:
    X, y = data()
    return MLPClassifier((6, 5), activation="tanh", solver="lbfgs", max_iter=8, random_state=0).fit(X, y), X


def network_case(tmp_path: Path) -> Case:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # stopped early, so that no probability is below the floor
        model, X = network()
    return Case(as_teacher(model), X, model.predict_proba(X), "MLPClassifier")


def lightgbm_case(tmp_path: Path) -> Case:
    lightgbm = pytest.importorskip("lightgbm")
    X, y = data()
    model = lightgbm.LGBMClassifier(n_estimators=3, min_child_samples=2, n_jobs=1, verbose=-1).fit(X, y)
    return Case(as_teacher(model), X, model.predict_proba(X), "LGBMClassifier")


def torch_module() -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    # begins in place and has a dropout: both would show
    return torch.nn.Sequential(torch.nn.ReLU(inplace=True), torch.nn.Dropout(0.5), torch.nn.Linear(4, 3))


def torch_proba(module: Any, X: np.ndarray) -> np.ndarray:
    torch = pytest.importorskip("torch")
    module.eval()
    with torch.no_grad():
        return softmax(module(torch.tensor(X)).numpy().astype(np.float64), axis=1)


def torch_case(tmp_path: Path) -> Case:
    X, _ = data()
    module = torch_module()
    return Case(Torch(module, CLASSES, batch_size=7), X, torch_proba(module, X), "Sequential")


def onnx_file(path: Path, model: Any, X: np.ndarray, *, zipmap: bool) -> Path:
    skl2onnx = pytest.importorskip("skl2onnx")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        path.write_bytes(skl2onnx.to_onnx(model, X[:1], options={"zipmap": zipmap}).SerializeToString())
    return path


def onnx_zipmap_case(tmp_path: Path) -> Case:
    model, X = logistic()
    path = onnx_file(tmp_path / "zipped.onnx", model, X, zipmap=True)
    return Case(Onnx(path, batch_size=7), X, model.predict_proba(X), "zipped", 1e-5)


def onnx_tensor_case(tmp_path: Path) -> Case:
    X, y = data()
    model = RandomForestClassifier(5, max_depth=2, random_state=0).fit(X, y)
    path = onnx_file(tmp_path / "forest.onnx", model, X, zipmap=False)
    return Case(as_teacher(str(path)), X, model.predict_proba(X), "forest", 2e-5)


def onnx_network_case(tmp_path: Path) -> Case:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, X = network()
    path = onnx_file(tmp_path / "layers.onnx", model, X, zipmap=False)
    return Case(Onnx(path, batch_size=7), X, model.predict_proba(X), "layers", 1e-5)


def export_torch(module: Any, path: Path, rows: int, *, dynamic: bool) -> Path:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    shapes = ({0: torch.export.Dim("n")},) if dynamic else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter deprecates its own parts
        torch.onnx.export(
            module.eval(),
            (torch.zeros(rows, 4),),
            str(path),
            dynamo=True,
            dynamic_shapes=shapes,
            verbose=False,
        )
    return path


def onnx_torch_case(tmp_path: Path) -> Case:
    X, _ = data()
    module = torch_module()[1:]
    path = export_torch(module, tmp_path / "exported.onnx", 2, dynamic=True)
    return Case(as_teacher(path, CLASSES), X, torch_proba(module, X), "exported", 1e-5)


def onnx_fixed_batch_case(tmp_path: Path) -> Case:
    X, _ = data()
    module = torch_module()[1:]
    path = export_torch(module, tmp_path / "fixed.onnx", 7, dynamic=False)
    return Case(as_teacher(path, CLASSES), X, torch_proba(module, X), "fixed", 1e-5)


def remote_case(tmp_path: Path) -> Case:
    pytest.importorskip("httpx")
    X, y = data()
    model = SoftLabelClassifier("logistic", random_state=0).fit(X, y)
    model.save(tmp_path / "far.onnx")
    server = ModelServer(ServedModel(tmp_path / "far.onnx"))  # its thread ends with the process
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return Case(as_teacher(server.url), X, model.predict_proba(X), "far", 1e-5)


def callable_case(tmp_path: Path) -> Case:
    model, X = logistic()

    def score(X: np.ndarray) -> Any:
        return model.predict_proba(X)

    return Case(as_teacher(score, CLASSES), X, model.predict_proba(X), "score")


def ranked(model: Any, X: np.ndarray) -> list[list[tuple[str, float]]]:
    proba = model.predict_proba(X)
    return [sorted(zip(CLASSES, row, strict=True), key=lambda pair: -pair[1]) for row in proba.tolist()]


def ranked_case(tmp_path: Path) -> Case:
    model, X = logistic()
    function = functools.partial(ranked, model)
    return Case(as_teacher(function, CLASSES, output="probabilities"), X, model.predict_proba(X), "ranked")


def joined_case(tmp_path: Path) -> Case:
    X, y = data()
    names = np.where((y == "bee") & (X[:, 0] > 0), "bumblebee", y)
    model = RandomForestClassifier(5, max_depth=2, random_state=0).fit(X, names)
    proba = model.predict_proba(X)
    joint = np.column_stack([proba[:, 0], proba[:, 1] + proba[:, 2], proba[:, 3]])
    teacher = join_classes(as_teacher(model, name="hive"), {"bee": ["bee", "bumblebee"]})
    return Case(teacher, X, joint, "hive", 1e-5)


class Own:
    """A teacher of the user's, with the three members of `TeacherLike`."""

    def __init__(self, model: LogisticRegression) -> None:
        self.name, self.classes, self._model = "own", model.classes_.tolist(), model

    def predict_logits(self, X: Any) -> Any:
        return self._model.decision_function(X) if len(X) else np.empty((0, 3))


def own_case(tmp_path: Path) -> Case:
    model, X = logistic()
    assert isinstance(Own(model), TeacherLike)
    return Case(as_teacher(Own(model)), X, model.predict_proba(X), "own")


def array_case(tmp_path: Path) -> Case:
    model, X = logistic()
    return Case(as_teacher(model.predict_proba(X), CLASSES), X, model.predict_proba(X), "array")


def logit_array_case(tmp_path: Path) -> Case:
    model, X = logistic()
    logits = model.decision_function(X)
    return Case(as_teacher(logits, CLASSES, name="raw"), X, softmax(logits, axis=1), "raw")


def npy_case(tmp_path: Path) -> Case:
    model, X = logistic()
    np.save(tmp_path / "saved.npy", model.predict_proba(X))
    return Case(as_teacher(tmp_path / "saved.npy", CLASSES), X, model.predict_proba(X), "saved")


def npz_case(tmp_path: Path) -> Case:
    model, X = logistic()
    np.savez(tmp_path / "packed.npz", proba=model.predict_proba(X), classes=np.array(CLASSES))
    return Case(as_teacher(tmp_path / "packed.npz"), X, model.predict_proba(X), "packed")


def npz_features_case(tmp_path: Path) -> Case:
    model, X = logistic()
    proba, classes = model.predict_proba(X), np.array(CLASSES)
    np.savez(tmp_path / "full.npz", proba=proba, classes=classes, embeddings=X, class_weights=model.coef_)
    return Case(as_teacher(tmp_path / "full.npz"), X, proba, "full")


def parquet_case(tmp_path: Path) -> Case:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    model, X = logistic()
    proba = model.predict_proba(X)
    pq.write_table(pa.table(dict(zip(CLASSES, proba.T, strict=True))), tmp_path / "table.parquet")
    return Case(as_teacher(tmp_path / "table.parquet"), X, proba, "table")


def text_case(tmp_path: Path) -> Case:
    _, y = data()
    X = np.array([f"{label} {i % 7}" for i, label in enumerate(y)])
    model = Ngrams(n_buckets=200, dim=4, max_iter=2, random_state=0).fit(X, y)
    return Case(as_teacher(model.save(tmp_path / "words.npz")), X, model.predict_proba(X), "words", 5e-3)


def text_folder_case(tmp_path: Path) -> Case:
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("transformers")
    path, module, tokens = text_folder(tmp_path / "bert")
    X = np.array(["the cat sat on a mat " * (1 + i % 3) + "dog " * (i % 5) for i in range(N)])
    with torch.no_grad():
        logits = module(**tokens(X.tolist(), padding=True, truncation=True, return_tensors="pt")).logits
    return Case(as_teacher(path), X, softmax(logits.numpy(), axis=1), "bert", 1e-5)


def image_folder_case(tmp_path: Path) -> Case:
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("transformers")
    path, module, processor = image_folder(tmp_path / "vit")
    X = images(N)
    with torch.no_grad():
        logits = module(**processor(list(X), return_tensors="pt")).logits
    return Case(as_teacher(path), X, softmax(logits.numpy(), axis=1), "vit", 1e-5)


def sentence_folder_case(tmp_path: Path) -> Case:
    pytest.importorskip("torch"), pytest.importorskip("transformers")
    path = sentence_folder(tmp_path / "intents")
    _, y = data()
    X = np.array([f"{'the cat ' * (i % 4)}{'a dog ' * (y[i] == 'bee')}{i % 7}" for i in range(N)])
    model = LogisticRegression().fit(encode_sentences(path, X), y)
    save_sentence_head(path, model)
    return Case(as_teacher(path), X, model.predict_proba(encode_sentences(path, X)), "intents", 1e-5)


def prepared_case(tmp_path: Path) -> Case:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    prepare = ImagePreprocess(6, resize_to=8, mean=0.5, std=0.25)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(108, 3))
    X = images(N)
    teacher = Torch(module, CLASSES, batch_size=7, preprocess=prepare)
    return Case(teacher, X, torch_proba(module, prepare(X)), "Sequential", 1e-5)


def skops_case(tmp_path: Path) -> Case:
    skops = pytest.importorskip("skops.io")
    X, y = data()
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1)).fit(X, y)
    skops.dump(model, tmp_path / "shelved.skops")
    return Case(as_teacher(tmp_path / "shelved.skops"), X, model.predict_proba(X), "shelved")


def label_case(tmp_path: Path) -> Case:
    X, y = data()
    proba = np.where(y[:, None] == np.array(CLASSES), 0.7 + 0.1, 0.1)
    return Case(HardLabels(y, CLASSES, label_smoothing=0.3, name="hard"), X, proba, "hard")


CASES: list[Callable[[Path], Case]] = [
    sklearn_case,
    margin_case,
    pipeline_case,
    network_case,
    lightgbm_case,
    torch_case,
    onnx_zipmap_case,
    onnx_tensor_case,
    onnx_network_case,
    onnx_torch_case,
    onnx_fixed_batch_case,
    remote_case,
    callable_case,
    ranked_case,
    joined_case,
    own_case,
    array_case,
    logit_array_case,
    npy_case,
    npz_case,
    npz_features_case,
    parquet_case,
    text_case,
    text_folder_case,
    image_folder_case,
    sentence_folder_case,
    prepared_case,
    skops_case,
    label_case,
]


# one teacher serves all tests of its kind: exporting a module to ONNX takes seconds
@pytest.fixture(scope="module", params=CASES, ids=lambda make: make.__name__.removesuffix("_case"))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return request.param(tmp_path_factory.mktemp("teacher"))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")
class TestTeacherContract:
    def test_is_a_teacher(self, case: Case) -> None:
        assert isinstance(case.teacher, Teacher)

    def test_name_and_classes(self, case: Case) -> None:
        assert case.teacher.name == case.name
        assert isinstance(case.teacher.classes, np.ndarray)
        assert case.teacher.classes.tolist() == CLASSES

    def test_logits_are_a_finite_float64_matrix(self, case: Case) -> None:
        logits = case.teacher.predict_logits(case.X)
        assert logits.shape == (N, 3)
        assert logits.dtype == np.float64
        assert np.isfinite(logits).all()

    def test_softmax_is_what_the_source_says(self, case: Case) -> None:
        logits = case.teacher.predict_logits(case.X)
        np.testing.assert_allclose(softmax(logits, axis=1), case.proba, atol=case.tolerance)

    def test_asking_twice_gives_the_same(self, case: Case) -> None:
        first = np.array(case.teacher.predict_logits(case.X))
        np.testing.assert_array_equal(case.teacher.predict_logits(case.X), first)

    def test_batches_do_not_matter(self, case: Case) -> None:
        if not case.teacher.batched:
            with pytest.raises(TeacherError, match=f"outputs for {N} rows and X has 11"):
                case.teacher.predict_logits(case.X[:11])
            return
        whole = case.teacher.predict_logits(case.X)
        parts = [case.teacher.predict_logits(case.X[i : i + 11]) for i in range(0, N, 11)]
        np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-5)

    def test_one_row_and_none(self, case: Case) -> None:
        if not case.teacher.batched:
            pytest.skip("precomputed outputs belong to one X")
        whole = case.teacher.predict_logits(case.X)
        assert case.teacher.predict_logits(case.X[:0]).shape == (0, 3)
        np.testing.assert_allclose(case.teacher.predict_logits(case.X[:1]), whole[:1], atol=1e-5)

    def test_the_input_is_not_changed(self, case: Case) -> None:
        before = case.X.copy()
        case.teacher.predict_logits(case.X)
        np.testing.assert_array_equal(case.X, before)

    def test_a_read_only_input_is_fine(self, case: Case) -> None:
        X = case.X.copy()
        X.flags.writeable = False
        np.testing.assert_array_equal(case.teacher.predict_logits(X), case.teacher.predict_logits(case.X))

    def test_it_can_be_renamed_and_stays_a_teacher(self, case: Case) -> None:
        renamed = as_teacher(case.teacher, classes=["x", "y", "z"], name="other")
        assert (renamed.name, renamed.classes.tolist()) == ("other", ["x", "y", "z"])
        assert renamed.batched == case.teacher.batched
        np.testing.assert_array_equal(renamed.predict_logits(case.X), case.teacher.predict_logits(case.X))

    def test_it_can_be_sent_to_another_process(self, case: Case, request: pytest.FixtureRequest) -> None:
        if "callable" in request.node.name:
            pytest.skip("a local function cannot be pickled")
        whole = np.array(case.teacher.predict_logits(case.X))
        there = pickle.loads(pickle.dumps(case.teacher))  # noqa: S301
        np.testing.assert_allclose(there.predict_logits(case.X), whole, atol=1e-6)


# what the cases above have besides logits: the number of features, and whether a file or model names itself
WIDTHS = {
    "sklearn": 4,
    "margin": 4,
    "pipeline": 4,
    "network": 5,
    "torch": 4,
    "npz_features": 4,
    "onnx_zipmap": 4,
    "onnx_network": 5,
    "onnx_torch": 4,
    "onnx_fixed_batch": 4,
    "text": 4,
    "text_folder": 16,
    "image_folder": 16,
    "sentence_folder": 16,
    "prepared": 108,
    "skops": 4,
}
ANONYMOUS = {
    "callable",
    "ranked",
    "own",
    "array",
    "logit_array",
    "npy",
    "npz",
    "npz_features",
    "parquet",
    "label",
}


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.id)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")
class TestEmbeddingContract:
    def test_embeddings_are_a_finite_matrix_or_none(self, case: Case, kind: str) -> None:
        seen = case.teacher.observe(case.X)
        assert (case.teacher.embed(case.X) is not None) == (kind in WIDTHS)
        assert (seen.embeddings is not None) == (kind in WIDTHS)
        if kind in WIDTHS:
            assert seen.embeddings.shape == (N, WIDTHS[kind])
            assert seen.embeddings.dtype in (np.float32, np.float64)
            assert np.isfinite(seen.embeddings).all()
            np.testing.assert_allclose(case.teacher.embed(case.X), seen.embeddings, atol=1e-6)

    def test_one_pass_gives_the_same_logits(self, case: Case) -> None:
        expected = case.teacher.predict_logits(case.X)
        np.testing.assert_allclose(case.teacher.observe(case.X).logits, expected, atol=1e-5)

    def test_weights_turn_embeddings_into_logits(self, case: Case, kind: str) -> None:
        weights = case.teacher.class_weights
        assert (weights is not None) == (kind in WIDTHS)
        if weights is None:
            return
        assert weights.shape == (3, WIDTHS[kind])
        seen = case.teacher.observe(case.X)
        bias = seen.logits - seen.embeddings @ weights.T
        # what is left is a bias per class and a constant per row, which softmax does not see
        rest = bias - bias.mean(axis=1, keepdims=True)
        np.testing.assert_allclose(rest, np.broadcast_to(rest[:1], rest.shape), atol=1e-4)

    def test_batches_do_not_matter(self, case: Case, kind: str) -> None:
        if kind not in WIDTHS:
            pytest.skip("no embedding")
        if not case.teacher.batched:
            for ask in (case.teacher.embed, case.teacher.observe):
                with pytest.raises(TeacherError, match=f"outputs for {N} rows and X has 11"):
                    ask(case.X[:11])
            return
        parts = [case.teacher.embed(case.X[i : i + 11]) for i in range(0, N, 11)]
        np.testing.assert_allclose(np.concatenate(parts), case.teacher.embed(case.X), atol=1e-5)
        assert case.teacher.embed(case.X[:0]).shape == (0, WIDTHS[kind])
        assert case.teacher.observe(case.X[:0]).logits.shape == (0, 3)
        assert case.teacher.observe(case.X[:0]).embeddings.shape == (0, WIDTHS[kind])

    def test_the_input_is_not_changed(self, case: Case) -> None:
        before = case.X.copy()
        case.teacher.observe(case.X)
        np.testing.assert_array_equal(case.X, before)

    def test_a_fingerprint_is_of_the_content(self, case: Case, kind: str) -> None:
        first = case.teacher.fingerprint
        assert (first is None) == (kind in ANONYMOUS)
        case.teacher.observe(case.X)
        assert case.teacher.fingerprint == first
        if kind != "callable":
            assert pickle.loads(pickle.dumps(case.teacher)).fingerprint == first  # noqa: S301

    def test_another_name_changes_none_of_it(self, case: Case, kind: str) -> None:
        renamed = as_teacher(case.teacher, classes=["x", "y", "z"], name="other")
        assert renamed.fingerprint == case.teacher.fingerprint
        assert (renamed.embed(case.X) is not None) == (kind in WIDTHS)
        if kind in WIDTHS:
            np.testing.assert_array_equal(renamed.embed(case.X), case.teacher.embed(case.X))
            np.testing.assert_array_equal(renamed.class_weights, case.teacher.class_weights)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")
class TestFileContract:
    def test_a_card_next_to_it_names_it_and_its_classes(self, case: Case, tmp_path: Path) -> None:
        if case.teacher.file is None:
            pytest.skip("made of no file")
        copy = tmp_path / case.teacher.file.name
        (shutil.copytree if case.teacher.file.is_dir() else shutil.copy)(case.teacher.file, copy)
        card = card_path(copy).with_name(f"{copy.name}.card.json") if copy.is_dir() else card_path(copy)
        write_card(card, Card("carded", ["x", "y", "z"]))
        carded = as_teacher(copy)
        assert (carded.name, carded.classes.tolist()) == ("carded", ["x", "y", "z"])
        assert as_teacher(copy, CLASSES, name="given").classes.tolist() == CLASSES
        assert as_teacher(copy, CLASSES, name="given").name == "given"
        np.testing.assert_allclose(carded.predict_logits(case.X), case.teacher.predict_logits(case.X))
        assert carded.fingerprint == case.teacher.fingerprint

    def test_a_function_may_embed(self, case: Case) -> None:
        if case.teacher.file is None:
            pytest.skip("made of no file")
        teacher = as_teacher(
            case.teacher.file, CLASSES, embed=lambda X: np.arange(2.0 * len(X)).reshape(-1, 2)
        )
        seen = teacher.observe(case.X)
        assert (teacher.fingerprint, teacher.class_weights) == (None, None)
        np.testing.assert_array_equal(seen.embeddings, np.arange(2.0 * N).reshape(-1, 2))
        np.testing.assert_allclose(seen.logits, case.teacher.predict_logits(case.X))


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("make", ["array", "labels", "npy"])
def test_precomputed_outputs_of_no_or_one_row(make: str, rows: int, tmp_path: Path) -> None:
    proba = np.full((rows, 3), 1 / 3)
    np.save(tmp_path / "few.npy", proba)
    source = {"array": proba, "labels": np.array(["bee"] * rows), "npy": tmp_path / "few.npy"}[make]
    assert as_teacher(source, CLASSES).predict_logits(np.zeros((rows, 4))).shape == (rows, 3)


def test_a_binary_margin_is_the_logit_of_the_second_class() -> None:
    X, y = data(2)
    model = LinearSVC().fit(X, y)
    proba = softmax(as_teacher(model).predict_logits(X), axis=1)
    np.testing.assert_allclose(proba[:, 1], expit(model.decision_function(X)), atol=1e-12)
