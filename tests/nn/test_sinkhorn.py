"""The Sinkhorn loss: gradients, abstentions, what is saved."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from consilience import ConvergenceWarning, InvalidInputError, sinkhorn  # noqa: E402
from consilience.nn import SinkhornLoss  # noqa: E402

GENERATOR = torch.Generator().manual_seed(0)
STUDENT = torch.randn(6, 5, dtype=torch.float64, generator=GENERATOR, requires_grad=True)
TEACHER = 2 * torch.randn(6, 7, dtype=torch.float64, generator=GENERATOR)
COST = torch.rand(7, 5, dtype=torch.float64, generator=GENERATOR)


@pytest.mark.parametrize("regularizer", ["entropy", "kl"])
@pytest.mark.parametrize("epsilon", [0.3, 0.05])
def test_gradients_are_those_of_finite_differences(regularizer, epsilon):
    loss = SinkhornLoss(COST, epsilon, 1.5, "none", regularizer=regularizer, tol=1e-12, max_iter=5000)
    assert torch.autograd.gradcheck(lambda x: loss(x, TEACHER), (STUDENT,), atol=1e-6)


def test_values_are_those_of_arrays():
    for regularizer in ("entropy", "kl"):
        rows = SinkhornLoss(COST, 0.1, 2.0, "none", regularizer=regularizer)(STUDENT, TEACHER)
        p_S, p_T = (torch.softmax(z.detach() / 2.0, dim=1).numpy() for z in (STUDENT, TEACHER))
        expected = sinkhorn(p_T, p_S, COST.numpy(), 0.1, regularizer=regularizer)
        np.testing.assert_allclose(rows.detach().numpy(), expected.value, atol=1e-12)


def test_single_and_half_precision():
    exact = SinkhornLoss(COST, 0.1)(STUDENT, TEACHER)
    (slope,) = torch.autograd.grad(exact, STUDENT)
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 1e-2)):
        short = STUDENT.detach().to(dtype).requires_grad_()
        value = SinkhornLoss(COST, 0.1)(short, TEACHER.to(dtype))
        value.backward()
        assert short.grad.dtype == dtype
        assert value.item() == pytest.approx(exact.item(), abs=tolerance)
        np.testing.assert_allclose(short.grad.double(), slope, atol=tolerance)


def test_rows_where_the_teacher_abstains_count_for_nothing():
    silent = TEACHER.clone()
    silent[[1, 4]] = torch.nan
    rows = SinkhornLoss(COST, 0.1, reduction="none")(STUDENT, silent)
    assert (rows[[1, 4]] == 0).all()
    mean = SinkhornLoss(COST, 0.1)(STUDENT, silent)
    assert mean.item() == pytest.approx(rows.sum().item() / 4)
    assert SinkhornLoss(COST, 0.1, reduction="sum")(STUDENT, silent).item() == pytest.approx(4 * mean.item())
    (slope,) = torch.autograd.grad(mean, STUDENT)
    assert (slope[[1, 4]] == 0).all()
    assert slope.isfinite().all()
    assert SinkhornLoss(COST, 0.1)(STUDENT, torch.full_like(TEACHER, torch.nan)).item() == 0.0


def test_only_the_gradient_is_saved():
    saved = []
    loss = SinkhornLoss(COST, 0.05, 1.0, "sum", tol=1e-9)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        loss(STUDENT, TEACHER)
    assert [tuple(x.shape) for x in saved] == [(6, 5)]


def test_the_cost_moves_and_is_saved_with_the_module():
    loss = SinkhornLoss(COST)
    assert loss.epsilon == pytest.approx(COST.std(correction=0).item() / 2)
    other = SinkhornLoss(torch.zeros(7, 5))
    other.load_state_dict(loss.state_dict())
    assert other.epsilon == loss.epsilon
    assert other(STUDENT, TEACHER).item() == loss(STUDENT, TEACHER).item()
    assert loss.float().cost.dtype == torch.float32
    assert loss(STUDENT, TEACHER).item() == pytest.approx(other(STUDENT, TEACHER).item(), abs=1e-6)
    assert "7 to 5 classes" in repr(loss)


def test_a_second_derivative_and_too_few_iterations_are_told():
    with pytest.raises(InvalidInputError, match="differentiated once"):
        torch.autograd.grad(SinkhornLoss(COST)(STUDENT, TEACHER), STUDENT, create_graph=True)
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        SinkhornLoss(COST, 0.02, 1.0, max_iter=3)(STUDENT, TEACHER)


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
def test_a_student_that_diverged_is_named_at_once(monkeypatch, bad):
    broken = STUDENT.detach().clone()
    broken[[3, 4], 1 if bad > 0 or bad != bad else slice(None)] = bad
    loss = SinkhornLoss(COST, 0.1, reduction="none")
    # not after ten thousand iterations
    monkeypatch.setattr("consilience.kernels.transport.sinkhorn.solve", lambda *_: pytest.fail("iterates"))
    with pytest.raises(InvalidInputError, match=r"Student logits are not finite in row 3 \(2 such rows\)"):
        loss(broken, TEACHER)
    monkeypatch.undo()
    silent = TEACHER.clone()
    silent[[3, 4]] = torch.nan  # where the teacher abstains the student's logits are not looked at
    rows = loss(broken, silent)
    assert (rows[[3, 4]] == 0).all()
    assert rows.isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"input": torch.zeros(6, 7)},
            r"\(6, 7\) and teacher logits \(6, 7\); expected \(n, 5\) and \(n, 7\)",
        ),
        (
            {"target": TEACHER * torch.tensor([[1.0], [1.0], [torch.inf], [1.0], [1.0], [1.0]])},
            "finite in row 2",
        ),
        ({"target": np.zeros((6, 7))}, "Teacher logits have type ndarray; give a tensor of floats"),
        ({"input": [[0.0] * 5] * 6}, "Student logits have type list"),
        ({"input": torch.zeros(6, 5, dtype=torch.int64)}, "Student logits have type torch.int64"),
        ({"input": torch.tensor(1.0)}, r"Student logits have shape \(\) and teacher logits \(6, 7\)"),
    ],
)
def test_batches_that_do_not_fit_are_refused(change, message):
    loss = SinkhornLoss(COST)
    with pytest.raises(InvalidInputError, match=message):
        loss(**({"input": STUDENT, "target": TEACHER} | change))


@pytest.mark.parametrize("convert", [torch.nn.Module.half, torch.nn.Module.bfloat16])
def test_half_precision_leaves_the_costs_alone(convert):
    cost = 1e6 * COST  # beyond float16
    exact = SinkhornLoss(cost)(STUDENT, TEACHER)
    loss = convert(SinkhornLoss(cost))
    assert loss.cost.dtype == torch.float32
    assert loss(STUDENT, TEACHER).item() == pytest.approx(exact.item(), rel=1e-6)


def test_classes_that_the_student_rules_out_get_nothing():
    masked = STUDENT.detach().clone()
    masked[:, 2] = -torch.inf
    masked.requires_grad_()
    others = [0, 1, 3, 4]
    value = SinkhornLoss(COST, 0.1)(masked, TEACHER)
    without = SinkhornLoss(COST[:, others], 0.1)(STUDENT[:, others], TEACHER)
    assert value.item() == pytest.approx(without.item(), abs=1e-9)
    (slope,) = torch.autograd.grad(value, masked)
    assert (slope[:, 2] == 0).all()
    assert slope.isfinite().all()
