"""CrossTaskDistiller with a loss of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import CrossTaskDistiller, InvalidInputError

torch = pytest.importorskip("torch")

from consilience.students import Network  # noqa: E402


def network(epochs: int) -> Network:
    return Network(None, max_iter=epochs, batch_size=16, patience=None, validation_fraction=0.0)


def scaled_kd(
    student_logits: Any, teacher_logits: Any, *, cost: Any, epsilon: float, temperature: float
) -> Any:
    """Hinton's loss with the squared temperature, which loss="kd" leaves out."""
    log_S = torch.log_softmax(student_logits / temperature, dim=1)
    p_T = torch.softmax(teacher_logits / temperature, dim=1)
    return temperature**2 * torch.nn.functional.kl_div(log_S, p_T, reduction="none").sum(dim=1)


def test_an_own_loss_trains_as_the_same_loss_of_ours(digits: Any) -> None:
    X = np.concatenate([digits.X, digits.X_test[:30]])
    y = np.concatenate([digits.y, np.full(30, -1)])
    own, ours = (
        CrossTaskDistiller(
            digits.all_ten, network(5), weight, 3.0, loss=loss, check=True, random_state=0
        ).fit(X, y)
        for weight, loss in ((2.0, scaled_kd), (18.0, "kd"))
    )
    np.testing.assert_allclose(own.predict_proba(digits.X_test), ours.predict_proba(digits.X_test), atol=1e-4)
    assert own.checks_[0].reliability == ours.checks_[0].reliability > 0
    assert own.teacher_weights_.tolist() == ours.teacher_weights_.tolist()


def test_an_own_loss_gets_the_costs_of_its_teacher(digits: Any) -> None:
    seen = {}

    def watching(student_logits: Any, teacher_logits: Any, *, cost: Any, epsilon: float, **_: Any) -> Any:
        seen[tuple(cost.shape)] = (cost.detach().numpy(), epsilon, teacher_logits.shape[1])
        return student_logits.square().mean()

    teachers = [digits.first_six, digits.all_ten]
    model = CrossTaskDistiller(
        teachers, network(1), loss=watching, match_shares=False, check=False, random_state=0
    ).fit(digits.X, digits.y)
    for shape, cost in (((6, 10), model.costs_[0]), ((10, 10), model.costs_[1])):
        given, epsilon, width = seen[shape]
        np.testing.assert_allclose(given, cost, rtol=1e-5)
        assert epsilon == pytest.approx(0.5 * cost.std())
        assert width == shape[0]


def test_a_module_may_be_an_own_loss_and_stays_as_it_was(digits: Any) -> None:
    class Bridge(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = torch.nn.Linear(10, 6)

        def forward(self, student_logits: Any, teacher_logits: Any, **_: Any) -> Any:
            return (self.map(student_logits) - teacher_logits).square().mean(dim=1)

    bridge = Bridge()
    before = bridge.map.weight.detach().clone()
    model = CrossTaskDistiller(digits.first_six, network(5), 10.0, loss=bridge, random_state=0)
    model.fit(digits.X, digits.y)
    assert torch.equal(bridge.map.weight, before)
    assert model.history_[-1]["train_loss"] < model.history_[0]["train_loss"]


def test_an_own_loss_is_named_in_the_file(digits: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    model = CrossTaskDistiller(digits.all_ten, network(1), loss=scaled_kd, random_state=0)
    model.fit(digits.X, digits.y).save(tmp_path / "student.onnx")
    assert "scaled_kd" in (tmp_path / "student.card.json").read_text()


def test_what_cannot_be_an_own_loss_is_told(digits: Any) -> None:
    with pytest.raises(InvalidInputError, match="loss='scaled_kd', a function, needs a torch student"):
        CrossTaskDistiller(digits.all_ten, "logistic", loss=scaled_kd).fit(digits.X, digits.y)

    def plain(student_logits: Any, teacher_logits: Any) -> Any:
        return student_logits.sum()

    with pytest.raises(InvalidInputError, match=r"loss=plain cannot be called as loss\(stud.*'cost'"):
        CrossTaskDistiller(digits.all_ten, network(1), loss=plain).fit(digits.X, digits.y)
    with pytest.raises(InvalidInputError, match="loss=3 is unknown; use 'sinkhorn'"):
        CrossTaskDistiller(digits.all_ten, network(1), loss=3).fit(digits.X, digits.y)
