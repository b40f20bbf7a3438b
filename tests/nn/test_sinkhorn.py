"""The Sinkhorn loss: gradients, abstentions, what is saved."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from consilience import ConvergenceWarning, InvalidInputError, sinkhorn  # noqa: E402
from consilience.nn import SinkhornLoss  # noqa: E402


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(6, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    teacher = 2 * torch.randn(6, 7, dtype=torch.float64, generator=generator)
    return student, teacher, torch.rand(7, 5, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("regularizer", ["entropy", "kl"])
@pytest.mark.parametrize("epsilon", [0.3, 0.05])
def test_gradients_are_those_of_finite_differences(batch, regularizer, epsilon):
    student, teacher, cost = batch
    loss = SinkhornLoss(cost, epsilon, 1.5, "none", regularizer=regularizer, tol=1e-12, max_iter=5000)
    assert torch.autograd.gradcheck(lambda x: loss(x, teacher), (student,), atol=1e-6)


def test_values_and_gradients_are_those_of_arrays(batch):
    student, teacher, cost = batch
    for regularizer in ("entropy", "kl"):
        rows = SinkhornLoss(cost, 0.1, 2.0, "none", regularizer=regularizer)(student, teacher)
        p_S, p_T = (torch.softmax(z.detach() / 2.0, dim=1).numpy() for z in (student, teacher))
        expected = sinkhorn(p_T, p_S, cost.numpy(), 0.1, regularizer=regularizer)
        np.testing.assert_allclose(rows.detach().numpy(), expected.value, atol=1e-12)
        (slope,) = torch.autograd.grad(rows.sum(), student)
        g = expected.gradient
        by_hand = (g - (g * p_S).sum(axis=1, keepdims=True)) * p_S / 2.0  # eq. (15), with the temperature
        np.testing.assert_allclose(slope.numpy(), by_hand, atol=1e-12)


def test_single_and_half_precision(batch):
    student, teacher, cost = batch
    exact = SinkhornLoss(cost, 0.1)(student, teacher)
    (slope,) = torch.autograd.grad(exact, student)
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 1e-2)):
        short = student.detach().to(dtype).requires_grad_()
        value = SinkhornLoss(cost, 0.1)(short, teacher.to(dtype))
        value.backward()
        assert short.grad.dtype == dtype
        assert value.item() == pytest.approx(exact.item(), abs=tolerance)
        np.testing.assert_allclose(short.grad.double(), slope, atol=tolerance)


def test_rows_where_the_teacher_abstains_count_for_nothing(batch):
    student, teacher, cost = batch
    silent = teacher.clone()
    silent[[1, 4]] = torch.nan
    rows = SinkhornLoss(cost, 0.1, reduction="none")(student, silent)
    assert (rows[[1, 4]] == 0).all()
    mean = SinkhornLoss(cost, 0.1)(student, silent)
    assert mean.item() == pytest.approx(rows.sum().item() / 4)
    assert SinkhornLoss(cost, 0.1, reduction="sum")(student, silent).item() == pytest.approx(4 * mean.item())
    (slope,) = torch.autograd.grad(mean, student)
    assert (slope[[1, 4]] == 0).all()
    assert slope.isfinite().all()
    assert SinkhornLoss(cost, 0.1)(student, torch.full_like(teacher, torch.nan)).item() == 0.0


def test_only_the_gradient_is_saved(batch):
    student, teacher, cost = batch
    saved = []
    loss = SinkhornLoss(cost, 0.05, 1.0, "sum", tol=1e-9)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        loss(student, teacher)
    assert [tuple(x.shape) for x in saved] == [(6, 5)]


def test_the_cost_moves_and_is_saved_with_the_module(batch):
    student, teacher, cost = batch
    loss = SinkhornLoss(cost)
    assert loss.epsilon == pytest.approx(cost.std(correction=0).item() / 2)
    other = SinkhornLoss(torch.zeros(7, 5))
    other.load_state_dict(loss.state_dict())
    assert other.epsilon == loss.epsilon
    assert other(student, teacher).item() == loss(student, teacher).item()
    assert loss.float().cost.dtype == torch.float32
    assert loss(student, teacher).item() == pytest.approx(other(student, teacher).item(), abs=1e-6)
    assert "7 to 5 classes" in repr(loss)


def test_refusals_say_what_to_do(batch):
    student, teacher, cost = batch
    loss = SinkhornLoss(cost)
    bad = teacher.clone()
    bad[2, 3] = torch.inf
    with pytest.raises(InvalidInputError, match="not finite in row 2"):
        loss(student, bad)
    with pytest.raises(InvalidInputError, match="differentiated once"):
        torch.autograd.grad(loss(student, teacher), student, create_graph=True)
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        SinkhornLoss(cost, 0.02, 1.0, max_iter=3)(student, teacher)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": "Auto"}, "Did you mean 'auto'"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"reduction": "avg"}, "reduction='avg'"),
        ({"regularizer": "l2"}, "regularizer='l2'"),
        ({"epsilon": 1e-310}, "with epsilon=1e-310; expected"),
        ({"cost": [[np.inf, 1.0]]}, "cost has"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        SinkhornLoss(**{"cost": np.eye(2), **options})


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_student_that_diverged_is_named_at_once(batch, monkeypatch, bad):
    student, teacher, cost = batch
    broken = student.detach().clone()
    broken[[3, 4], 1 if bad > 0 or bad != bad else slice(None)] = bad
    loss = SinkhornLoss(cost, 0.1, reduction="none")
    # not after ten thousand iterations
    monkeypatch.setattr("consilience.kernels.transport.sinkhorn.solve", lambda *_: pytest.fail("iterates"))
    with pytest.raises(InvalidInputError, match=r"Student logits are not finite in row 3 \(2 such rows\)"):
        loss(broken, teacher)
    monkeypatch.undo()
    teacher[[3, 4]] = torch.nan  # where the teacher abstains the student's logits are not looked at
    rows = loss(broken, teacher)
    assert (rows[[3, 4]] == 0).all()
    assert rows.isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"input": torch.zeros(6, 7)},
            r"\(6, 7\) and teacher logits \(6, 7\); expected \(n, 5\) and \(n, 7\)",
        ),
        ({"target": np.zeros((6, 7))}, "Teacher logits have type ndarray; give a tensor of floats"),
        ({"input": [[0.0] * 5] * 6}, "Student logits have type list"),
        ({"input": torch.zeros(6, 5, dtype=torch.int64)}, "Student logits have type torch.int64"),
        ({"input": torch.tensor(1.0)}, r"Student logits have shape \(\) and teacher logits \(6, 7\)"),
    ],
)
def test_batches_that_do_not_fit_are_refused(batch, change, message):
    student, teacher, cost = batch
    loss = SinkhornLoss(cost)
    with pytest.raises(InvalidInputError, match=message):
        loss(**({"input": student, "target": teacher} | change))


@pytest.mark.parametrize("convert", [torch.nn.Module.half, torch.nn.Module.bfloat16])
def test_half_precision_leaves_the_costs_alone(batch, convert):
    student, teacher, cost = batch
    cost = 1e6 * cost  # beyond float16
    exact = SinkhornLoss(cost)(student, teacher)
    loss = convert(SinkhornLoss(cost))
    assert loss.cost.dtype == torch.float32
    assert loss(student, teacher).item() == pytest.approx(exact.item(), rel=1e-6)


def test_classes_that_the_student_rules_out_get_nothing(batch):
    student, teacher, cost = batch
    masked = student.detach().clone()
    masked[:, 2] = -torch.inf
    masked.requires_grad_()
    others = [0, 1, 3, 4]
    value = SinkhornLoss(cost, 0.1)(masked, teacher)
    without = SinkhornLoss(cost[:, others], 0.1)(student[:, others], teacher)
    assert value.item() == pytest.approx(without.item(), abs=1e-9)
    (slope,) = torch.autograd.grad(value, masked)
    assert (slope[:, 2] == 0).all()
    assert slope.isfinite().all()
