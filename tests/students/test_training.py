"""How a network trains: precision, callbacks, outputs with logits, texts, checkpoints, threads."""

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.rows.rows import target_rows  # noqa: E402
from torch import nn  # noqa: E402

from consilience import CrossTaskDistiller, Unifier, as_teacher  # noqa: E402
from consilience.exceptions import InvalidInputError  # noqa: E402
from consilience.nn import SoftCrossEntropy  # noqa: E402
from consilience.run import Run  # noqa: E402
from consilience.students import Network, training  # noqa: E402
from consilience.students.saving import PREPROCESSED  # noqa: E402
from consilience.students.training import (  # noqa: E402
    FILE,
    SMALL_STEP,
    half_type,
    multiplications_per_row,
)

rng = np.random.default_rng(0)
y = rng.integers(3, size=200)
X = (rng.normal(size=(200, 4)) + 4 * rng.normal(size=(3, 4))[y]).astype(np.float32)


def fit(module: Any = None, **options: Any) -> Network:
    options = {"max_iter": 15, "lr": 0.01, "patience": None, "random_state": 0, **options}
    return Network(module, **options).fit(X, np.eye(3)[y], n_classes=3, criterion=SoftCrossEntropy())


class Recorder(nn.Module):  # type: ignore[misc]
    """Remembers in which type its layer computed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.types = nn.Linear(4, 3), []

    def forward(self, x: Any) -> Any:
        out = self.layer(x)
        if self.training:
            self.types.append(out.dtype)
        return out


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16", "float16"])
def test_precision_of_training(precision: Any) -> None:
    student = fit(Recorder, precision=precision)
    assert set(student.module_.types) == {getattr(torch, precision.replace("auto", "float32"))}
    assert student.module_.layer.weight.dtype == torch.float32
    logits = student.predict_logits(X)
    assert logits.dtype == np.float64
    assert (logits.argmax(axis=1) == y).mean() > 0.9


def test_half_precision_by_device(monkeypatch: pytest.MonkeyPatch) -> None:
    for native, expected in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, n=native: n)
        assert half_type("auto", "cuda:0") == expected
    assert half_type("auto", "cpu") is None
    assert half_type("float32", "cuda") is None


def test_features_for_distillation_are_in_single_precision() -> None:
    teacher = as_teacher(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)), [0, 1, 2])
    student = Network(max_iter=2, precision="bfloat16", random_state=0)
    distilled = CrossTaskDistiller(teacher, student, loss="fitnet", teacher_weight=1.0, random_state=0)
    assert distilled.fit(X, y).predict_proba(X).shape == (200, 3)


def test_callbacks_see_every_epoch_and_may_end_the_training(capsys: Any) -> None:
    seen: list[Any] = []

    def look(trainer: Any) -> bool:
        seen.append((dict(trainer.history[-1]), trainer.optimizer.param_groups[0]["lr"]))
        trainer.optimizer.param_groups[0]["lr"] /= 2
        return len(trainer.history) == 4

    student = fit(callbacks=[look])
    assert seen == list(zip(student.history_, [0.01, 0.005, 0.0025, 0.00125], strict=True))
    assert student.n_iter_ == 4
    assert capsys.readouterr().out == ""


@dataclasses.dataclass
class Output:
    logits: Any
    hidden: Any = None


class Named(nn.Module):  # type: ignore[misc]
    """A network in the style of the transformers library."""

    def __init__(self, kind: Any = Output) -> None:
        super().__init__()
        self.body, self.head, self.kind = nn.Linear(4, 8), nn.Linear(8, 3), kind

    def forward(self, x: Any) -> Any:
        hidden = self.body(x).tanh()
        return self.kind(hidden=hidden, logits=self.head(hidden))


@pytest.mark.parametrize("kind", [Output, dict, OrderedDict])
def test_outputs_with_logits_are_understood(kind: Any) -> None:
    student = fit(lambda: Named(kind))
    assert isinstance(student.module_, Named)
    logits = student.predict_logits(X)
    assert (logits.argmax(axis=1) == y).mean() > 0.9
    teacher = as_teacher(student.module_, [0, 1, 2])
    np.testing.assert_allclose(teacher.predict_logits(X), logits, atol=1e-5)
    assert teacher.embed(X).shape == (200, 8)
    assert teacher.class_weights.shape == (3, 8)


WORDS = ["red", "blue", "green", "warm", "cold"]
texts = [" ".join(rng.choice(WORDS, size=3)) for _ in range(120)]


def by_word(first: str, second: str) -> Any:
    """Return a teacher of texts, by which of two words occurs more often."""

    def ask(rows: list[str]) -> Any:
        assert all(isinstance(row, str) for row in rows)
        return np.array([[row.count(first), row.count(second)] for row in rows], dtype=float)

    return as_teacher(ask, [first, second], output="logits")


def tokenize(rows: Any) -> Any:
    """Return token ids (n, 4), padded with 0."""
    ids = [[WORDS.index(word) + 1 for word in row.split()][:4] for row in rows]
    return np.array([row + [0] * (4 - len(row)) for row in ids], dtype=np.int64).reshape(-1, 4)


class Bag(nn.Module):  # type: ignore[misc]
    """A network of token ids (n, 4) whose output names its logits."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(6, 8), nn.Linear(8, 3)

    def forward(self, ids: Any) -> Any:
        return {"logits": self.head(self.table(ids).sum(dim=1))}


def test_teachers_take_texts_and_the_student_token_ids(tmp_path: Any) -> None:
    pytest.importorskip("onnxruntime")
    teachers = [by_word("red", "blue"), by_word("blue", "green")]
    student = Network(
        Bag,
        preprocess=tokenize,
        max_iter=60,
        lr=0.03,
        patience=None,
        validation=(["red warm", "green"], ["red", "green"]),
    )
    unified = Unifier(teachers, student, random_state=0).fit(texts)
    assert unified.student_.history_[-1]["valid_accuracy"] == 1
    assert unified.predict(["red red", "green warm green"]).tolist() == ["red", "green"]
    path = unified.save(tmp_path / "words.onnx")
    saved = as_teacher(path)
    np.testing.assert_array_equal(
        saved.classes[saved.predict_logits(tokenize(texts)).argmax(axis=1)], unified.predict(texts)
    )
    assert PREPROCESSED in path.with_suffix(".card.json").read_text(encoding="utf8")
    assert saved.embed(tokenize(texts)).shape == (120, 8)
    with pytest.raises(InvalidInputError, match="token ids"):
        saved.predict_logits(texts)


@pytest.mark.parametrize(
    ("preprocess", "says"),
    [
        (None, "X holds texts. Give Network.module, preprocess=. a function"),
        (lambda rows: {"input_ids": tokenize(rows)}, "a dict with the keys 'input_ids'; expected one array"),
        (
            lambda rows: [[1] * len(row.split()) + [2] * (i == 0) for i, row in enumerate(rows)],
            "different lengths",
        ),
        (lambda rows: tokenize(rows)[:5], "returned 5 rows for 120 rows of X"),
        (lambda rows: tokenize(rows)[:, 0], r"preprocess\(X\) has shape \(120,\)"),
    ],
)
def test_wrong_preprocessing_is_named(preprocess: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        Unifier([by_word("red", "blue")], Network(Bag, preprocess=preprocess)).fit(texts)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": "cuda:7"}, r"device='cuda:7' is no device of torch on this machine, which has cpu"),
        ({"device": "gpu"}, "device='gpu' is no device of torch on this machine, which has cpu"),
        ({"precision": "half"}, "precision='half' is unknown"),
        ({"num_workers": -1}, "num_workers=-1 must be"),
    ],
)
def test_wrong_options_are_named(options: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        fit(**options)


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "INTERVAL", 0.0)
    monkeypatch.setattr("consilience.students.batches.BUFFER", 2**12)  # some of the rows


def fit_by_epochs(
    folder: Path | None, *, killed_after: int | None = None, key: str = "0", **options: Any
) -> Any:
    """Train for six epochs; return the student and the epochs that were run, or None if it was killed."""
    epochs: list[int] = []

    def progress(task: str, done: int, total: int) -> None:
        epochs.append(done)
        if killed_after is not None and done > killed_after:
            raise MemoryError

    student = Network(**{"max_iter": 6, "random_state": 0, "lr": 0.01, **options})
    try:
        student.learn_loss(
            target_rows(X, np.eye(3)[y], block_rows=64),
            3,
            SoftCrossEntropy(),
            run=Run(progress=progress, cache=folder),
            key=key,
        )
    except MemoryError:
        return None, epochs
    return student, epochs


@pytest.mark.parametrize(
    "options", [{}, {"patience": 2, "lr": 0.1}, {"optimizer": "sgd"}, {"precision": "float16"}]
)
@pytest.mark.usefixtures("_often")
def test_a_killed_run_comes_to_the_same_result(tmp_path: Path, options: Any) -> None:
    whole, all_epochs = fit_by_epochs(None, **options)
    assert fit_by_epochs(tmp_path, killed_after=2, **options) == (None, [1, 2, 3])
    assert (tmp_path / "training-0" / FILE).exists()
    student, epochs = fit_by_epochs(tmp_path, **options)
    assert epochs == all_epochs[2:]
    np.testing.assert_array_equal(student.predict_logits(X), whole.predict_logits(X))
    assert student.history_ == whole.history_
    assert not (tmp_path / "training-0").exists()


@pytest.mark.parametrize(
    "change",
    [{"key": "1"}, {"random_state": 1}, {"lr": 0.02}, {"batch_size": 64}, {"optimizer": "adamw"}],
)
@pytest.mark.usefixtures("_often")
def test_another_training_starts_anew(tmp_path: Path, change: Any) -> None:
    fit_by_epochs(tmp_path, killed_after=2)
    _, epochs = fit_by_epochs(tmp_path, **change)
    assert epochs[0] == 1


@pytest.mark.usefixtures("_often")
def test_a_damaged_file_is_ignored(tmp_path: Path) -> None:
    fit_by_epochs(tmp_path, killed_after=2)
    file = tmp_path / "training-0" / FILE
    for content in (b"", file.read_bytes()[:-200], b"PK\x03\x04 nonsense"):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        student, epochs = fit_by_epochs(tmp_path, max_iter=1)
        assert (student is None, epochs) == (False, [1])


def test_checkpoints_are_not_written_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "INTERVAL", 60.0)
    fit_by_epochs(tmp_path, killed_after=4)
    assert not list((tmp_path / "training-0").iterdir())


@pytest.fixture
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


class Counting(nn.Linear):  # type: ignore[misc]
    """A layer that notes torch's number of threads."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__(n_features, n_classes)
        self.threads: set[int] = set()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if len(rows) > 2:  # not while it is only looked at
            self.threads.add(torch.get_num_threads())
        return super().forward(rows)


@pytest.mark.parametrize(("batch_size", "expected"), [(16, 1), (SMALL_STEP // 8 + 1, 3)])
@pytest.mark.usefixtures("_three_threads")
def test_small_steps_have_one_thread_and_large_ones_all(batch_size: int, expected: int) -> None:
    student = Network(Counting, max_iter=2, batch_size=batch_size, random_state=0)
    student.fit(X[:40], np.full((40, 2), 0.5), n_classes=2, criterion=SoftCrossEntropy())
    assert student.module_.threads == {expected}
    assert torch.get_num_threads() == 3
    student.predict_logits(X[:40])
    assert student.module_.threads == {expected, 1}  # the forty rows are little work in any case


def test_multiplications_are_counted_where_torch_can() -> None:
    rows = torch.zeros(2, 3, 8, 8)
    convolution = nn.Conv2d(3, 5, 3, padding=1)
    assert multiplications_per_row(convolution, rows) == 5 * 27 * 64
    assert multiplications_per_row(convolution, rows, "cuda") == float("inf")
    assert multiplications_per_row(nn.Sequential(nn.LSTM(8, 4)), torch.zeros(2, 5, 8)) == float("inf")
