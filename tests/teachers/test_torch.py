"""Torch modules."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from consilience.exceptions import TeacherError
from consilience.teachers import Torch, as_teacher

torch = pytest.importorskip("torch")

X = np.random.default_rng(0).normal(size=(10, 4))
CLASSES = ["a", "b", "c"]


class Spy(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Remembers how it was called; returns what it is told to."""

    def __init__(self, result: Any = None, dtype: Any = torch.float32) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3, dtype=dtype)
        self.norm = torch.nn.BatchNorm1d(4, dtype=dtype)
        self.result, self.seen = result, []

    def forward(self, x: Any) -> Any:
        self.seen.append((x.dtype, tuple(x.shape), torch.is_grad_enabled(), self.norm.training))
        if self.result is not None:
            return self.result(x)
        return self.layer(self.norm(x))


def test_it_runs_in_eval_mode_without_gradients_in_batches() -> None:
    module = Spy()
    Torch(module, CLASSES, batch_size=4).predict_logits(X)
    assert module.seen == [(torch.float32, (n, 4), False, False) for n in (4, 4, 2)]
    assert module.norm.num_batches_tracked == 0


def fail(x: Any) -> Any:
    raise RuntimeError("out of memory")


@pytest.mark.parametrize("result", [None, fail])
def test_every_submodule_gets_its_mode_back(result: Any) -> None:
    module = Spy(result)
    module.train()
    module.norm.eval()  # frozen, as in fine-tuning
    message = r"failed on X of shape \(10, 4\) \(float64\): RuntimeError: out of"
    with nullcontext() if result is None else pytest.raises(TeacherError, match=message):
        as_teacher(module, CLASSES).predict_logits(X)
    assert [part.training for part in module.modules()] == [True, True, False]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: (x, x), "returned a tuple, not a tensor of logits. Wrap the module"),
        (lambda x: {"scores": x}, "returned a dict, not a tensor of logits"),
        (lambda x: x[:, :1], "returned 1 column for 3 classes"),
        (lambda x: x[:, 0], r"returned an array of shape \(10,\)"),
        (lambda x: x[:5, :3], "returned 5 rows for 10 rows"),
    ],
)
def test_outputs_that_are_no_logits(result: Any, message: str) -> None:
    with pytest.raises(TeacherError, match=message):
        as_teacher(Spy(result), CLASSES).predict_logits(X)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("as_tensor", [True, False])
def test_floats_take_the_modules_dtype(dtype: Any, as_tensor: bool) -> None:
    module = Spy(dtype=dtype)
    logits = as_teacher(module, CLASSES).predict_logits(torch.tensor(X) if as_tensor else X)
    assert module.seen[0][0] == dtype
    assert logits.dtype == np.float64


def test_token_ids_stay_integers() -> None:
    module = torch.nn.Sequential(torch.nn.EmbeddingBag(7, 5), torch.nn.Linear(5, 3))
    assert as_teacher(module, CLASSES).predict_logits(np.arange(12).reshape(4, 3) % 7).shape == (4, 3)


def test_a_tensor_may_want_gradients_and_is_not_changed() -> None:
    module = torch.nn.Sequential(torch.nn.ReLU(inplace=True), torch.nn.Linear(4, 3))
    for wanted in (False, True):
        given = torch.tensor(X, dtype=torch.float32, requires_grad=wanted)
        assert as_teacher(module, CLASSES).predict_logits(given).shape == (10, 3)
        np.testing.assert_array_equal(given.detach().numpy(), X.astype(np.float32))
    logits = as_teacher(lambda X: torch.ones(len(X), 3, requires_grad=True) * 2, CLASSES).predict_logits(X)
    np.testing.assert_array_equal(logits, 2)


def test_device_moves_the_module() -> None:
    module = torch.nn.Linear(4, 3)
    assert Torch(module, CLASSES, device="cpu").predict_logits(X).shape == (10, 3)
    with pytest.raises(TeacherError, match=r"'Linear' cannot run: device='nonsense' is no device of torch"):
        Torch(module, CLASSES, device="nonsense").predict_logits(X)


def test_a_module_that_ends_in_softmax() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(dim=1))
    logits = as_teacher(module, CLASSES, output="probabilities").predict_logits(X)
    expected = module[0](torch.tensor(X, dtype=torch.float32)).log_softmax(1).detach().numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_classes_are_needed() -> None:
    with pytest.raises(TeacherError, match="'Linear' is a torch module, which does not name its classes"):
        as_teacher(torch.nn.Linear(4, 3))
