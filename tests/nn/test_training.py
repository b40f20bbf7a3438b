"""How a torch student trains: half precision, callbacks that print, outputs with logits, texts."""

from __future__ import annotations

import dataclasses
import logging
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("skorch")

from skorch.callbacks import EpochScoring, GradientNormClipping, PrintLog  # noqa: E402
from torch import nn  # noqa: E402

from consilience import CrossTaskDistiller, Unifier, as_teacher  # noqa: E402
from consilience.exceptions import InvalidInputError  # noqa: E402
from consilience.nn import SoftCrossEntropy  # noqa: E402
from consilience.students import Network  # noqa: E402
from consilience.students._precision import half_type  # noqa: E402
from consilience.students._training import StudentNet  # noqa: E402
from consilience.students.base import PREPROCESSED  # noqa: E402

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
    student = fit(Recorder, precision=precision, callbacks=[GradientNormClipping(10.0)])
    expected = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(precision, torch.float32)
    assert set(student.module_.types) == {expected}
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


class Norms:
    """A callback that writes down the norm of gradients."""

    def __init__(self, found: dict[Any, float], key: Any) -> None:
        self.found, self.key = found, key

    def __call__(self, net: Any, named_parameters: Any, **_: Any) -> None:
        self.found[self.key] = sum(float(p.grad.norm()) for _, p in named_parameters)


def test_float16_scales_the_loss_and_callbacks_see_true_gradients() -> None:
    norms: dict[Any, float] = {}
    for half in (None, torch.float16):
        torch.manual_seed(0)
        net = StudentNet(nn.Linear(4, 3), SoftCrossEntropy(), half=half, verbose=0)
        net.initialize()
        net.on_grad_computed = Norms(norms, half)
        before = net.module_.weight.detach().clone()
        net.train_step((torch.tensor(X[:50]), torch.eye(3)[y[:50]]))
        assert not torch.equal(net.module_.weight, before)
    assert norms[torch.float16] == pytest.approx(norms[None], rel=0.05)


def test_features_for_distillation_are_in_single_precision() -> None:
    teacher = as_teacher(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)), [0, 1, 2])
    student = Network(max_iter=2, precision="bfloat16", random_state=0)
    distilled = CrossTaskDistiller(teacher, student, loss="fitnet", teacher_weight=1.0, random_state=0)
    assert distilled.fit(X, y).predict_proba(X).shape == (200, 3)


def test_callbacks_print_every_epoch_and_nothing_else_does(capsys: Any) -> None:
    def share(net: Any, data: Any, targets: Any = None) -> float:
        return 0.25

    callbacks = [PrintLog(), EpochScoring(share, name="share", lower_is_better=False)]
    student = fit(lr=1.0, patience=1, max_iter=20, validation_fraction=0.3, callbacks=callbacks)
    lines = capsys.readouterr().out.splitlines()
    assert "valid_loss" in lines[0]
    assert "share" in lines[0]
    assert len(lines) == 2 + student.n_iter_  # with the epoch at which it stops
    assert student.n_iter_ < 20
    fit(lr=1.0, patience=1, max_iter=20)
    assert capsys.readouterr().out == ""


def test_a_sink_of_ones_own_is_kept(caplog: Any) -> None:
    with caplog.at_level(logging.INFO):
        fit(max_iter=2, callbacks=[PrintLog(sink=logging.getLogger().info)])
    assert len(caplog.records) == 4


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
        logits = self.head(hidden)
        return (
            Output(logits, hidden) if self.kind is Output else self.kind([("h", hidden), ("logits", logits)])
        )


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


class Select(nn.Module):  # type: ignore[misc]
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x).logits


def test_a_network_wrapped_to_select_logits_keeps_its_embedding() -> None:
    inner = Named()
    plain, wrapped = as_teacher(inner, [0, 1, 2]), as_teacher(Select(inner), [0, 1, 2])
    np.testing.assert_array_equal(wrapped.embed(X), plain.embed(X))
    np.testing.assert_array_equal(wrapped.class_weights, plain.class_weights)


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
    ids = np.zeros((len(rows), 4), dtype=np.int64)
    for i, row in enumerate(rows):
        found = [WORDS.index(word) + 1 for word in row.split()][:4]
        ids[i, : len(found)] = found
    return ids


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


def test_a_dataset_of_texts_is_tokenized_batch_by_batch() -> None:
    class Texts(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return len(texts)

        def __getitem__(self, i: int) -> Any:
            return texts[i], i

    sizes = []

    def counting(rows: Any) -> Any:
        sizes.append(len(rows))
        return tokenize(rows)

    teachers = [by_word("red", "blue"), by_word("blue", "green")]
    student = Network(Bag, preprocess=counting, max_iter=2, batch_size=16)
    read = Unifier(teachers, student, random_state=0).fit(Texts())
    assert max(sizes) <= 16
    whole = Unifier(teachers, student, random_state=0).fit(texts)
    np.testing.assert_array_equal(read.predict_proba(texts), whole.predict_proba(texts))


@pytest.mark.parametrize(
    ("preprocess", "says"),
    [
        (None, "X holds texts. Give Network.module, preprocess=. a function"),
        (lambda rows: {"input_ids": tokenize(rows)}, "a dict with the keys 'input_ids'; expected one array"),
        (
            lambda rows: [[1] * len(row.split()) + [2] * (row == texts[0]) for row in rows],
            "different lengths",
        ),
        (lambda rows: tokenize(rows)[:5], "returned 5 rows for 120 rows of X"),
        (lambda rows: tokenize(rows)[:, 0], r"preprocess\(X\) has shape \(120,\)"),
    ],
)
def test_wrong_preprocessing_is_named(preprocess: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        Unifier([by_word("red", "blue")], Network(Bag, preprocess=preprocess)).fit(texts)


def test_another_width_than_in_training_is_named() -> None:
    student = Network(Bag, preprocess=lambda rows: tokenize(rows)[:, : len(rows)], max_iter=1)
    unified = Unifier([by_word("red", "blue"), by_word("red", "green")], student, random_state=0).fit(texts)
    with pytest.raises(InvalidInputError, match="Let preprocess pad or cut rows to one length"):
        unified.predict(texts[:2])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": "cuda:7"}, r"device='cuda:7' is not there: torch finds 'cpu'.* on this machine"),
        ({"device": "gpu"}, "device='gpu' is no device of torch. This machine has 'cpu'"),
        ({"precision": "half"}, "precision='half' is unknown"),
        ({"num_workers": -1}, "num_workers=-1 must be"),
    ],
)
def test_wrong_options_are_named(options: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        fit(**options)
