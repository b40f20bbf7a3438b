"""The Sinkhorn loss: gradients, the twin on tensors, abstentions, warm starts, what is saved."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from consilience import ConvergenceWarning, InvalidInputError, sinkhorn  # noqa: E402
from consilience.nn import SinkhornLoss, _sinkhorn  # noqa: E402


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(6, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    teacher = 2 * torch.randn(6, 7, dtype=torch.float64, generator=generator)
    return student, teacher, torch.rand(7, 5, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("regularizer", ["entropy", "kl"])
@pytest.mark.parametrize(("gradient", "epsilon"), [("dual", 0.3), ("dual", 0.05), ("unrolled", 0.3)])
def test_gradients_are_those_of_finite_differences(batch, regularizer, gradient, epsilon):
    student, teacher, cost = batch
    loss = SinkhornLoss(
        cost, epsilon, 1.5, "none", regularizer=regularizer, gradient=gradient, tol=1e-12, max_iter=5000
    )
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


def test_stopped_early_the_unrolled_gradient_is_still_that_of_the_value(batch):
    student, teacher, cost = batch
    unrolled = SinkhornLoss(cost, 0.02, 1.0, gradient="unrolled", max_iter=3)
    assert torch.autograd.gradcheck(lambda x: unrolled(x, teacher), (student,))
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        SinkhornLoss(cost, 0.02, 1.0, max_iter=3)(student, teacher)


@pytest.mark.parametrize("epsilon", [0.5, 0.05, 0.01, 0.001])
def test_the_twin_gives_what_the_kernel_gives(batch, epsilon):
    student, teacher, cost = batch
    a, b = torch.softmax(teacher, dim=1), torch.softmax(3 * student.detach(), dim=1)
    b[0] = torch.eye(5, dtype=torch.float64)[2]
    kernel = _sinkhorn.solve(a, b, cost, epsilon, 1e-10, 50_000, None)
    twin = _sinkhorn.solve_on_device(a, b, cost, epsilon, 1e-10, 50_000, None)
    np.testing.assert_allclose(twin.value, kernel.value, atol=1e-12)
    np.testing.assert_allclose(twin.beta, kernel.beta, atol=1e-7)
    assert (twin.residual <= 1e-10).all()
    warm = _sinkhorn.solve_on_device(a, b, cost, epsilon, 1e-10, 50_000, kernel.beta)
    np.testing.assert_allclose(warm.beta, kernel.beta, atol=1e-7)
    if epsilon > 0.01:  # the kernel begins in single precision, which does not save iterations
        assert (twin.n_iter <= kernel.n_iter + 8).all()
        assert warm.n_iter.sum() < twin.n_iter.sum()


@pytest.mark.parametrize("epsilon", [0.05, 0.001])
def test_unrolled_iterations_in_log_domain_give_the_same(batch, epsilon):
    student, teacher, cost = batch
    for row in (student, teacher):
        row.data[0] = 0.0
        row.data[0, 1] = 3000.0  # probabilities of zero
    dual, unrolled = (
        SinkhornLoss(cost, epsilon, 1.0, gradient=gradient, tol=1e-10, max_iter=20_000)(student, teacher)
        for gradient in ("dual", "unrolled")
    )
    assert dual.item() == pytest.approx(unrolled.item(), abs=1e-9)
    slopes = [torch.autograd.grad(value, student)[0] for value in (dual, unrolled)]
    np.testing.assert_allclose(slopes[0], slopes[1], atol=1e-6)


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


def test_duals_are_remembered_by_sample(batch, monkeypatch):
    student, teacher, cost = batch
    counts = []
    solve = _sinkhorn.solve
    monkeypatch.setattr(
        _sinkhorn,
        "solve",
        lambda *args: counts.append(solve(*args)) or counts[-1],  # type: ignore[func-returns-value]
    )
    loss = SinkhornLoss(cost, 0.05, 1.0, tol=1e-8, n_samples=20)
    index = torch.tensor([3, 1, 4, 15, 9, 2])
    first = loss(student, teacher, index)
    again = loss(student.flip(0), teacher.flip(0), index.flip(0))
    assert first.item() == pytest.approx(again.item(), abs=1e-9)
    assert 2 * counts[1].n_iter.sum() < counts[0].n_iter.sum()
    assert loss.duals.isnan().all(dim=1).sum() == 14
    before = loss.duals.clone()
    loss.eval()(student + 1.0, teacher, index)
    assert torch.equal(loss.duals.nan_to_num(), before.nan_to_num())
    assert "duals" not in loss.state_dict()


def test_only_the_gradient_is_saved(batch):
    student, teacher, cost = batch
    saved = []
    loss = SinkhornLoss(cost, 0.05, 1.0, "sum", tol=1e-9)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        loss(student, teacher)
    shapes = [tuple(x.shape) for x in saved]
    assert shapes == [(6, 5)]


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
    with pytest.raises(InvalidInputError, match=r"\(6, 7\) and teacher logits \(6, 5\); expected \(n, 5\)"):
        loss(teacher, student)
    with pytest.raises(InvalidInputError, match=r"one index per row, and n_samples="):
        loss(student, teacher, torch.arange(6))
    bad = teacher.clone()
    bad[2, 3] = torch.inf
    with pytest.raises(InvalidInputError, match="not finite in row 2"):
        loss(student, bad)
    with pytest.raises(InvalidInputError, match="differentiated once"):
        torch.autograd.grad(loss(student, teacher), student, create_graph=True)
    for options, message in (
        ({"epsilon": -1.0}, "epsilon=-1.0"),
        ({"epsilon": "Auto"}, "Did you mean 'auto'"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"reduction": "avg"}, "reduction='avg'"),
        ({"gradient": "autograd"}, "gradient='autograd'"),
        ({"regularizer": "l2"}, "regularizer='l2'"),
        ({"n_samples": 0}, "n_samples=0"),
        ({"n_samples": 9, "gradient": "unrolled"}, "n_samples=9 .*'unrolled' cannot use them"),
        ({"epsilon": 1e-310}, "with epsilon=1e-310; expected"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            SinkhornLoss(cost, **options)
    with pytest.raises(InvalidInputError, match="cost has"):
        SinkhornLoss([[np.inf, 1.0]])


@pytest.mark.parametrize("gradient", ["dual", "unrolled"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_student_that_diverged_is_named_at_once(batch, monkeypatch, gradient, bad):
    student, teacher, cost = batch
    broken = student.detach().clone()
    broken[[3, 4], 1] = bad
    loss = SinkhornLoss(cost, 0.1, reduction="none", gradient=gradient)
    for name in ("solve", "unrolled"):  # not after ten thousand iterations
        monkeypatch.setattr(_sinkhorn, name, lambda *_: pytest.fail("iterates"))
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
        ({"index": torch.tensor([0, 1, 2, 3, 4, 9])}, "index has 9; expected 0 to 8"),
        ({"index": torch.tensor([0, 1, 2, 3, 4, -1])}, "index has -1; expected 0 to 8"),
        ({"index": torch.zeros(6)}, "index has type torch.float32; give whole numbers"),
        ({"index": torch.zeros(6, dtype=torch.bool)}, "index has type torch.bool"),
        ({"index": [0, 1, 2, 3, 4, 5]}, r"index has type list and n_samples is 9; give a tensor \(6,\)"),
        ({"index": torch.arange(5)}, r"index has shape \(5,\)"),
        ({"target": np.zeros((6, 7))}, "Teacher logits have type ndarray; give a tensor of floats"),
        ({"input": [[0.0] * 5] * 6}, "Student logits have type list"),
        ({"input": torch.zeros(6, 5, dtype=torch.int64)}, "Student logits have type torch.int64"),
        ({"input": torch.tensor(1.0)}, r"Student logits have shape \(\) and teacher logits \(6, 7\)"),
    ],
)
def test_batches_that_do_not_fit_are_refused(batch, change, message):
    student, teacher, cost = batch
    loss = SinkhornLoss(cost, n_samples=9)
    with pytest.raises(InvalidInputError, match=message):
        loss(**({"input": student, "target": teacher} | change))


def test_indices_of_any_whole_type_are_positions(batch):
    student, teacher, cost = batch
    loss = SinkhornLoss(cost, n_samples=9)
    # torch reads uint8 as a mask
    loss(student, teacher, torch.tensor([0, 1, 0, 3, 8, 5], dtype=torch.uint8))
    assert loss.duals.isfinite().all(dim=1).nonzero().ravel().tolist() == [0, 1, 3, 5, 8]


@pytest.mark.parametrize("convert", [torch.nn.Module.half, torch.nn.Module.bfloat16])
def test_half_precision_leaves_the_costs_alone(batch, convert):
    student, teacher, cost = batch
    cost = 1e6 * cost  # beyond float16
    exact = SinkhornLoss(cost)(student, teacher)
    loss = convert(SinkhornLoss(cost, n_samples=6))
    assert loss.cost.dtype == loss.duals.dtype == torch.float32
    assert loss(student, teacher, torch.arange(6)).item() == pytest.approx(exact.item(), rel=1e-6)


@pytest.mark.parametrize("gradient", ["dual", "unrolled"])
def test_classes_that_the_student_rules_out_get_nothing(batch, gradient):
    student, teacher, cost = batch
    masked = student.detach().clone()
    masked[:, 2] = -torch.inf
    masked.requires_grad_()
    others = [0, 1, 3, 4]
    value = SinkhornLoss(cost, 0.1, gradient=gradient)(masked, teacher)
    without = SinkhornLoss(cost[:, others], 0.1)(student[:, others], teacher)
    assert value.item() == pytest.approx(without.item(), abs=1e-9)
    (slope,) = torch.autograd.grad(value, masked)
    assert (slope[:, 2] == 0).all()
    assert slope.isfinite().all()
    with pytest.raises(InvalidInputError, match="Student logits are not finite in row 0"):
        SinkhornLoss(cost)(torch.full_like(student, -torch.inf), teacher)
