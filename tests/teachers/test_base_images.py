"""Images as rows: each teacher prepares them itself, wherever it runs and wherever they lie."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.scoring.ask import observe
from tests.teachers.model_folders import change_json, image_onnx

from consilience import Card, Run, Unifier, load
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.files.card import find_card
from consilience.students import Network
from consilience.students.server import ModelServer, ServedModel
from consilience.teachers import Function, ImagePreprocess, Onnx, Remote, Torch, as_teacher

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")
CLASSES = ["red", "green", "blue"]
N = 30
PREPARE = ImagePreprocess(12, resize_to=16, mean=(0.5, 0.4, 0.3), std=0.25)
SQUASH = ImagePreprocess((8, 10), "squash", interpolation="bicubic", layout="hwc", colour="bgr")


def pictures(one_size: bool = False) -> list[np.ndarray]:
    """Images of three colours, with some noise."""
    rng = np.random.default_rng(0)
    found = []
    for i in range(N):
        height, width = (20, 30) if one_size else rng.integers(14, 40, 2)
        values = rng.normal(60, 20, (height, width, 3))
        values[..., i % 3] += 120
        found.append(np.clip(values, 0, 255).astype(np.uint8))
    return found


X = pictures()
Y = [CLASSES[i % 3] for i in range(N)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for i, values in enumerate(X):
        Image.fromarray(values).save(tmp_path / "images" / f"{i:02}.png")
    return tmp_path / "images"


def network(shape: tuple[int, ...]) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(int(np.prod(shape)), 3)).eval()


def onnx_file(path: Path, **card: Any) -> Path:
    pytest.importorskip("onnx")
    last = network(PREPARE.row_shape)[1]
    weights, bias = last.weight.detach().numpy().T, last.bias.detach().numpy()
    return image_onnx(path, weights, bias, PREPARE.row_shape, Card(path.stem, CLASSES, "logits", **card))


def mean_colours(rows: np.ndarray) -> np.ndarray:
    """Return the mean (n, 3) of each channel, as logits."""
    assert rows.shape[1:] == SQUASH.row_shape
    return rows.mean(axis=(1, 2))[:, ::-1] * 5


TORCH = Torch(network(PREPARE.row_shape), CLASSES, preprocess=PREPARE)
MEANS = Function(mean_colours, CLASSES, output="logits", preprocess=SQUASH, fingerprint="1")


def expected(name: str) -> np.ndarray:
    if name == "function":
        return mean_colours(SQUASH(X))
    with torch.no_grad():
        return network(PREPARE.row_shape)(torch.tensor(PREPARE(X))).numpy()


@pytest.mark.parametrize("name", ["torch", "onnx", "function"])
def test_every_kind_of_rows(name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = as_teacher(onnx_file(tmp_path / "net.onnx", preprocess=PREPARE))
    teacher, paths = {"torch": TORCH, "onnx": onnx, "function": MEANS}[name], sorted(folder.iterdir())
    for rows in (X, tuple(X), [Image.open(path) for path in paths], paths):
        np.testing.assert_allclose(teacher.predict_logits(rows), expected(name), atol=1e-5)
    same = np.stack(pictures(one_size=True))
    np.testing.assert_allclose(teacher.predict_logits(same), teacher.predict_logits(list(same)), atol=1e-6)
    assert teacher.predict_logits([]).shape == (0, 3)
    monkeypatch.setattr("consilience.teachers.base.PREPARED_BYTES", 7 * PREPARE.row_bytes)
    seen = teacher.observe(X)
    np.testing.assert_allclose(seen.logits, expected(name), atol=1e-5)
    assert (seen.embeddings is None) == (name == "function")


def test_parts_of_prepared_images_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.teachers.base.PREPARED_BYTES", 7 * PREPARE.row_bytes)
    asked: list[int] = []

    def means(rows: np.ndarray) -> np.ndarray:
        asked.append(len(rows))
        return rows.mean((2, 3))

    Function(means, CLASSES, output="logits", preprocess=PREPARE).predict_logits(X)
    assert asked == [7, 7, 7, 7, 2]


def test_a_wrong_image_is_named_by_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.teachers.base.PREPARED_BYTES", 7 * PREPARE.row_bytes)
    rows = [*X[:20], X[20] / 255, *X[21:]]
    with pytest.raises(InvalidInputError, match="X has float64 in row 20; the pixels of an image are uint8"):
        observe(TORCH, rows, batch_size=9)


def test_the_fingerprint_has_the_preprocessing() -> None:
    others = (replace(PREPARE), replace(PREPARE, mean=0.5), replace(PREPARE, resize="squash"))
    module = network(PREPARE.row_shape)
    none, *prints = (Torch(module, CLASSES, preprocess=one).fingerprint for one in (None, PREPARE, *others))
    assert None not in (none, prints[0])
    assert prints[0] == prints[1]
    assert len({none, *prints}) == 4


def test_the_caller_wins_over_the_card(tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "net.onnx", preprocess={"size": 12, "resize": "squash"})
    np.testing.assert_allclose(Onnx(path, preprocess=PREPARE).predict_logits(X), expected("onnx"), atol=1e-5)
    assert np.abs(as_teacher(path).predict_logits(X) - expected("onnx")).max() > 0.01
    change_json(path.with_suffix(".card.json"), preprocess={"size": 10**9})
    with pytest.raises(InvalidInputError, match=r"net.card.json: size=1000000000 must be .* at most 4096"):
        as_teacher(path)


def test_images_of_several_sizes_need_a_preprocess(tmp_path: Path) -> None:
    message = r"takes an array, and X has images of several sizes. Say how it wants them: .*ImagePreprocess"
    for source in (network((3, 12, 12)), onnx_file(tmp_path / "a.onnx")):
        with pytest.raises(TeacherError, match=message):
            as_teacher(source, CLASSES).predict_logits(X)
    own = as_teacher(lambda rows: [rows[i][0, 0] for i in range(N)], CLASSES, output="logits")
    assert own.predict_logits(X).shape == (N, 3)  # a function may take anything


def test_a_preprocess_is_one() -> None:
    with pytest.raises(InvalidInputError, match=r"preprocess=.* must be an ImagePreprocess of consilience"):
        Function(mean_colours, CLASSES, preprocess={"size": 3})


def test_unify_and_save_and_serve(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("httpx")
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 8)
    options: dict[str, Any] = {"output": "logits", "preprocess": PREPARE}
    pair = Function(lambda rows: rows.mean((2, 3))[:, :2] * 9, CLASSES[:2], "pair", **options)
    prepare = ImagePreprocess(6, mean=0.5, std=0.25)
    student = Network(network(prepare.row_shape), preprocess=prepare, lr=0.02, max_iter=60)
    unified = Unifier([MEANS, pair], student=student, random_state=0, run=Run(memory="100KB")).fit(folder)
    assert np.mean(unified.predict(folder) == np.array(Y)) > 0.9
    path = unified.save(tmp_path / "unified.onnx")
    assert find_card(path).preprocess == prepare
    np.testing.assert_allclose(load(path).predict_proba(X), unified.predict_proba(X), atol=1e-5)
    with ModelServer(ServedModel(path)).start() as server:
        remote = as_teacher(server.url)
        np.testing.assert_allclose(np.exp(remote.predict_logits(X)), unified.predict_proba(X), atol=1e-4)
        own = Remote(server.url, preprocess=ImagePreprocess(6, "squash", mean=0.5, std=0.25))
        assert np.abs(own.predict_logits(X) - remote.predict_logits(X)).max() > 1e-3
