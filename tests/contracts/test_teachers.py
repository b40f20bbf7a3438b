"""What every teacher adapter promises."""

import pickle
import shutil
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
Y = np.array(CLASSES)[np.arange(N) % 3]
X = (np.random.default_rng(0).normal(size=(N, 4)) + 1.5 * np.eye(4)[np.arange(N) % 3]).astype(np.float32)
MODEL = LogisticRegression(C=0.1).fit(X, Y)
PROBA = MODEL.predict_proba(X)


@dataclass
class Case:
    """A teacher, rows, and what the source itself says about them."""

    teacher: Teacher
    name: str
    proba: np.ndarray
    X: Any = None
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        self.X = X if self.X is None else self.X


def sklearn_case(tmp_path: Path) -> Case:
    return Case(as_teacher(MODEL), "LogisticRegression", PROBA)


def margin_case(tmp_path: Path) -> Case:
    model = LinearSVC().fit(X, Y)
    return Case(as_teacher(model), "LinearSVC", softmax(model.decision_function(X), axis=1))


def lightgbm_case(tmp_path: Path) -> Case:
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.LGBMClassifier(n_estimators=3, min_child_samples=2, n_jobs=1, verbose=-1).fit(X, Y)
    return Case(as_teacher(model), "LGBMClassifier", model.predict_proba(X))


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
    module = torch_module()
    return Case(Torch(module, CLASSES, batch_size=7), "Sequential", torch_proba(module, X))


def onnx_file(path: Path, model: Any, *, zipmap: bool) -> Path:
    skl2onnx = pytest.importorskip("skl2onnx")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        path.write_bytes(skl2onnx.to_onnx(model, X[:1], options={"zipmap": zipmap}).SerializeToString())
    return path


def onnx_zipmap_case(tmp_path: Path) -> Case:
    path = onnx_file(tmp_path / "zipped.onnx", MODEL, zipmap=True)
    return Case(Onnx(path, batch_size=7), "zipped", PROBA, tolerance=1e-5)


def onnx_tensor_case(tmp_path: Path) -> Case:
    model = RandomForestClassifier(5, max_depth=2, random_state=0).fit(X, Y)
    path = onnx_file(tmp_path / "forest.onnx", model, zipmap=False)
    return Case(as_teacher(str(path)), "forest", model.predict_proba(X), tolerance=2e-5)


def exported(path: Path, rows: int, **options: Any) -> Case:
    torch, module = pytest.importorskip("torch"), torch_module()[1:]
    pytest.importorskip("onnxscript")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter deprecates its own parts
        given = (torch.zeros(rows, 4),)
        torch.onnx.export(module.eval(), given, str(path), dynamo=True, verbose=False, **options)
    return Case(as_teacher(path, CLASSES), path.stem, torch_proba(module, X), tolerance=1e-5)


def onnx_torch_case(tmp_path: Path) -> Case:
    torch = pytest.importorskip("torch")
    return exported(tmp_path / "exported.onnx", 2, dynamic_shapes=({0: torch.export.Dim("n")},))


def onnx_fixed_batch_case(tmp_path: Path) -> Case:
    return exported(tmp_path / "fixed.onnx", 7)


def remote_case(tmp_path: Path) -> Case:
    pytest.importorskip("httpx")
    model = SoftLabelClassifier("logistic", random_state=0).fit(X, Y)
    model.save(tmp_path / "far.onnx")
    server = ModelServer(ServedModel(tmp_path / "far.onnx")).start()  # its thread ends with the process
    return Case(as_teacher(server.url), "far", model.predict_proba(X), tolerance=1e-5)


def callable_case(tmp_path: Path) -> Case:
    return Case(as_teacher(lambda X: MODEL.predict_proba(X), CLASSES, "score"), "score", PROBA)


def ranked(X: np.ndarray) -> list[list[tuple[str, float]]]:
    proba = MODEL.predict_proba(X).tolist()
    return [sorted(zip(CLASSES, row, strict=True), key=lambda pair: -pair[1]) for row in proba]


def ranked_case(tmp_path: Path) -> Case:
    return Case(as_teacher(ranked, CLASSES, output="probabilities"), "ranked", PROBA)


def joined_case(tmp_path: Path) -> Case:
    names = np.where((Y == "bee") & (X[:, 0] > 0), "bumblebee", Y)
    model = RandomForestClassifier(5, max_depth=2, random_state=0).fit(X, names)
    proba = model.predict_proba(X)
    joint = np.column_stack([proba[:, 0], proba[:, 1] + proba[:, 2], proba[:, 3]])
    teacher = join_classes(as_teacher(model, name="hive"), {"bee": ["bee", "bumblebee"]})
    return Case(teacher, "hive", joint, tolerance=1e-5)


class Own:
    """A teacher of the user's, with the three members of `TeacherLike`."""

    name, classes = "own", CLASSES

    def predict_logits(self, X: Any) -> Any:
        return MODEL.decision_function(X) if len(X) else np.empty((0, 3))


def own_case(tmp_path: Path) -> Case:
    assert isinstance(Own(), TeacherLike)
    return Case(as_teacher(Own()), "own", PROBA)


def array_case(tmp_path: Path) -> Case:
    return Case(as_teacher(PROBA, CLASSES), "array", PROBA)


def npy_case(tmp_path: Path) -> Case:
    np.save(tmp_path / "saved.npy", MODEL.decision_function(X))
    return Case(as_teacher(tmp_path / "saved.npy", CLASSES), "saved", PROBA)


def npz_case(tmp_path: Path) -> Case:
    arrays = {"proba": PROBA, "classes": np.array(CLASSES), "embeddings": X, "class_weights": MODEL.coef_}
    np.savez(tmp_path / "full.npz", **arrays)
    return Case(as_teacher(tmp_path / "full.npz"), "full", PROBA)


def parquet_case(tmp_path: Path) -> Case:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(dict(zip(CLASSES, PROBA.T, strict=True))), tmp_path / "table.parquet")
    return Case(as_teacher(tmp_path / "table.parquet"), "table", PROBA)


def text_case(tmp_path: Path) -> Case:
    rows = np.array([f"{label} {i % 7}" for i, label in enumerate(Y)])
    model = Ngrams(n_buckets=200, dim=4, max_iter=2, random_state=0).fit(rows, Y)
    path = model.save(tmp_path / "words.npz")
    return Case(as_teacher(path), "words", model.predict_proba(rows), rows, 5e-3)


def text_folder_case(tmp_path: Path) -> Case:
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("transformers")
    path, module, tokens = text_folder(tmp_path / "bert")
    rows = np.array(["the cat sat on a mat " * (1 + i % 3) + "dog " * (i % 5) for i in range(N)])
    with torch.no_grad():
        logits = module(**tokens(rows.tolist(), padding=True, truncation=True, return_tensors="pt")).logits
    return Case(as_teacher(path), "bert", softmax(logits.numpy(), axis=1), rows, 1e-5)


def image_folder_case(tmp_path: Path) -> Case:
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("transformers")
    path, module, processor = image_folder(tmp_path / "vit")
    rows = images(N)
    with torch.no_grad():
        logits = module(**processor(list(rows), return_tensors="pt")).logits
    return Case(as_teacher(path), "vit", softmax(logits.numpy(), axis=1), rows, 1e-5)


def sentence_folder_case(tmp_path: Path) -> Case:
    pytest.importorskip("torch"), pytest.importorskip("transformers")
    path = sentence_folder(tmp_path / "intents")
    rows = np.array([f"{'the cat ' * (i % 4)}{'a dog ' * (Y[i] == 'bee')}{i % 7}" for i in range(N)])
    seen = encode_sentences(path, rows)
    model = LogisticRegression().fit(seen, Y)
    save_sentence_head(path, model)
    return Case(as_teacher(path), "intents", model.predict_proba(seen), rows, 1e-5)


def prepared_case(tmp_path: Path) -> Case:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    prepare, rows = ImagePreprocess(6, resize_to=8, mean=0.5, std=0.25), images(N)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(108, 3))
    teacher = Torch(module, CLASSES, batch_size=7, preprocess=prepare)
    return Case(teacher, "Sequential", torch_proba(module, prepare(rows)), rows, 1e-5)


def skops_case(tmp_path: Path) -> Case:
    skops = pytest.importorskip("skops.io")
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1)).fit(X, Y)
    skops.dump(model, tmp_path / "shelved.skops")
    return Case(as_teacher(tmp_path / "shelved.skops"), "shelved", model.predict_proba(X))


def label_case(tmp_path: Path) -> Case:
    proba = np.where(Y[:, None] == np.array(CLASSES), 0.7 + 0.1, 0.1)
    return Case(HardLabels(Y, CLASSES, label_smoothing=0.3, name="hard"), "hard", proba)


CASES: list[Callable[[Path], Case]] = [
    sklearn_case,
    margin_case,
    lightgbm_case,
    torch_case,
    onnx_zipmap_case,
    onnx_tensor_case,
    onnx_torch_case,
    onnx_fixed_batch_case,
    remote_case,
    callable_case,
    ranked_case,
    joined_case,
    own_case,
    array_case,
    npy_case,
    npz_case,
    parquet_case,
    text_case,
    text_folder_case,
    image_folder_case,
    sentence_folder_case,
    prepared_case,
    skops_case,
    label_case,
]
# what they have besides logits: the number of features, and whether a file or model names itself
WIDTHS = dict.fromkeys(
    ("sklearn", "margin", "torch", "npz", "onnx_zipmap", "onnx_torch", "onnx_fixed_batch", "text", "skops"), 4
) | {"text_folder": 16, "image_folder": 16, "sentence_folder": 16, "prepared": 108}
ANONYMOUS = {"callable", "ranked", "own", "array", "npy", "npz", "parquet", "label"}


# one teacher serves all tests of its kind: exporting a module to ONNX takes seconds
@pytest.fixture(scope="module", params=CASES, ids=lambda make: make.__name__.removesuffix("_case"))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return request.param(tmp_path_factory.mktemp("teacher"))


def numbered(X: Any) -> np.ndarray:
    return np.arange(2.0 * len(X)).reshape(-1, 2)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.id)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")
class TestTeacher:
    def test_it_says_what_its_source_says(self, case: Case) -> None:
        teacher = case.teacher
        assert isinstance(teacher, Teacher)
        assert isinstance(teacher.classes, np.ndarray)
        assert (teacher.name, teacher.classes.tolist()) == (case.name, CLASSES)
        logits = np.array(teacher.predict_logits(case.X))
        assert logits.dtype == np.float64
        np.testing.assert_allclose(softmax(logits, axis=1), case.proba, atol=case.tolerance)
        np.testing.assert_array_equal(teacher.predict_logits(case.X), logits)  # also when asked again

    def test_batches_do_not_matter(self, case: Case, kind: str) -> None:
        teacher, rows, seen = case.teacher, case.X, case.teacher.observe(case.X)
        if not teacher.batched:
            for ask in (teacher.predict_logits, teacher.embed, teacher.observe):
                if kind in WIDTHS or ask != teacher.embed:
                    with pytest.raises(TeacherError, match=f"outputs for {N} rows and X has 11"):
                        ask(rows[:11])
            return
        for size in (1, 11):
            parts = [teacher.predict_logits(rows[i : i + size]) for i in range(0, 3 * size, size)]
            np.testing.assert_allclose(np.concatenate(parts), seen.logits[: 3 * size], atol=1e-5)
        nothing = teacher.observe(rows[:0])
        assert teacher.predict_logits(rows[:0]).shape == nothing.logits.shape == (0, 3)
        if kind in WIDTHS:
            parts = [teacher.embed(rows[i : i + 11]) for i in range(0, N, 11)]
            np.testing.assert_allclose(np.concatenate(parts), seen.embeddings, atol=1e-5)
            assert teacher.embed(rows[:0]).shape == nothing.embeddings.shape == (0, WIDTHS[kind])

    def test_the_input_is_not_changed(self, case: Case) -> None:
        rows = case.X.copy()
        rows.flags.writeable = False
        logits = case.teacher.predict_logits(rows)
        np.testing.assert_allclose(case.teacher.observe(rows).logits, logits, atol=1e-5)
        np.testing.assert_array_equal(rows, case.X)

    def test_embeddings_are_a_finite_matrix_or_none(self, case: Case, kind: str) -> None:
        features, seen = case.teacher.embed(case.X), case.teacher.observe(case.X).embeddings
        if kind not in WIDTHS:
            assert features is seen is None
            return
        assert seen.shape == (N, WIDTHS[kind])
        assert seen.dtype in (np.float32, np.float64)
        assert np.isfinite(seen).all()
        np.testing.assert_allclose(features, seen, atol=1e-6)

    def test_weights_turn_embeddings_into_logits(self, case: Case, kind: str) -> None:
        weights = case.teacher.class_weights
        assert (weights is not None) == (kind in WIDTHS)
        if weights is not None:
            assert weights.shape == (3, WIDTHS[kind])
            seen = case.teacher.observe(case.X)
            bias = seen.logits - seen.embeddings @ weights.T
            # what is left is a bias per class and a constant per row, which softmax does not see
            rest = bias - bias.mean(axis=1, keepdims=True)
            np.testing.assert_allclose(rest, np.broadcast_to(rest[:1], rest.shape), atol=1e-4)

    def test_it_can_be_sent_to_another_process(self, case: Case, kind: str) -> None:
        first = case.teacher.fingerprint
        assert (first is None) == (kind in ANONYMOUS)
        whole = np.array(case.teacher.predict_logits(case.X))
        assert case.teacher.fingerprint == first
        if kind != "callable":  # a local function cannot be pickled
            there = pickle.loads(pickle.dumps(case.teacher))  # noqa: S301
            assert there.fingerprint == first
            np.testing.assert_allclose(there.predict_logits(case.X), whole, atol=1e-6)

    def test_another_name_changes_none_of_it(self, case: Case, kind: str) -> None:
        teacher, renamed = case.teacher, as_teacher(case.teacher, classes=["x", "y", "z"], name="other")
        assert (renamed.name, renamed.classes.tolist()) == ("other", ["x", "y", "z"])
        assert (renamed.batched, renamed.fingerprint) == (teacher.batched, teacher.fingerprint)
        np.testing.assert_array_equal(renamed.predict_logits(case.X), teacher.predict_logits(case.X))
        np.testing.assert_array_equal(renamed.embed(case.X), teacher.embed(case.X))
        np.testing.assert_array_equal(renamed.class_weights, teacher.class_weights)

    def test_a_card_next_to_its_file_names_it_and_its_classes(self, case: Case, tmp_path: Path) -> None:
        if case.teacher.file is None:
            pytest.skip("made of no file")
        copy = tmp_path / case.teacher.file.name
        (shutil.copytree if case.teacher.file.is_dir() else shutil.copy)(case.teacher.file, copy)
        card = card_path(copy).with_name(f"{copy.name}.card.json") if copy.is_dir() else card_path(copy)
        write_card(card, Card("carded", ["x", "y", "z"]))
        carded, given = as_teacher(copy), as_teacher(copy, CLASSES, name="given")
        assert (carded.name, carded.classes.tolist()) == ("carded", ["x", "y", "z"])
        assert (given.name, given.classes.tolist()) == ("given", CLASSES)
        np.testing.assert_allclose(carded.predict_logits(case.X), case.teacher.predict_logits(case.X))
        assert carded.fingerprint == case.teacher.fingerprint

    def test_a_function_may_embed_the_rows_of_its_file(self, case: Case) -> None:
        if case.teacher.file is None:
            pytest.skip("made of no file")
        teacher = as_teacher(case.teacher.file, CLASSES, embed=numbered)
        seen = teacher.observe(case.X)
        assert (teacher.fingerprint, teacher.class_weights) == (None, None)
        np.testing.assert_array_equal(seen.embeddings, numbered(case.X))
        np.testing.assert_allclose(seen.logits, case.teacher.predict_logits(case.X))


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("make", ["array", "labels", "npy"])
def test_precomputed_outputs_of_no_or_one_row(make: str, rows: int, tmp_path: Path) -> None:
    proba = np.full((rows, 3), 1 / 3)
    np.save(tmp_path / "few.npy", proba)
    source = {"array": proba, "labels": np.array(["bee"] * rows), "npy": tmp_path / "few.npy"}[make]
    assert as_teacher(source, CLASSES).predict_logits(np.zeros((rows, 4))).shape == (rows, 3)


def test_a_binary_margin_is_the_logit_of_the_second_class() -> None:
    model = LinearSVC().fit(X, Y == "bee")
    proba = softmax(as_teacher(model).predict_logits(X), axis=1)
    np.testing.assert_allclose(proba[:, 1], expit(model.decision_function(X)), atol=1e-12)
