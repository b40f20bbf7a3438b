"""Distillation losses: their definitions written plainly, finite differences, abstentions, and training."""

from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import entropy

torch = pytest.importorskip("torch")

from consilience import InvalidInputError  # noqa: E402
from consilience.nn import distillation  # noqa: E402
from consilience.nn.distillation import (  # noqa: E402
    CrossTaskLoss,
    FitNetLoss,
    FunctionLoss,
    KDLoss,
    RelationLoss,
    RKDLoss,
    Term,
)
from consilience.students import Network  # noqa: E402

NAN = float("nan")


def pair(seed: int, n: int = 5, d: int = 3, e: int = 4) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(n, d, generator=generator, dtype=torch.float64, requires_grad=True),
        torch.randn(n, e, generator=generator, dtype=torch.float64),
    )


def losses() -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "kd": KDLoss(2.0),
        "rkd": RKDLoss(),
        "fitnet": FitNetLoss(4, 3).double(),
        "relation": RelationLoss(),
    }


@pytest.mark.parametrize("name", ["kd", "rkd", "fitnet", "relation"])
@pytest.mark.parametrize("seed", [0, 1])
def test_gradients_agree_with_finite_differences(name: str, seed: int) -> None:
    student, teacher = pair(seed, e=3 if name == "kd" else 4)
    assert torch.autograd.gradcheck(lambda S: losses()[name](S, teacher), (student,))


@pytest.mark.parametrize("name", ["kd", "rkd", "fitnet", "relation"])
def test_rows_of_which_the_teacher_says_nothing_have_no_gradient(name: str) -> None:
    student, teacher = pair(0, n=6, e=3 if name == "kd" else 4)
    silent = teacher.clone()
    silent[2] = NAN
    loss = losses()[name](student, silent)
    loss.backward()
    assert torch.isfinite(loss)
    assert student.grad[2].abs().max() == 0
    assert student.grad[[0, 1, 3, 4, 5]].abs().sum() > 0
    assert losses()[name](student, torch.full_like(teacher, NAN)) == 0


def test_kd_is_the_divergence_of_eq_2() -> None:
    student, teacher = pair(3, e=3)
    p_S, p_T = (np.exp(log_softmax(z.detach().numpy() / 3, axis=1)) for z in (student, teacher))
    expected = entropy(p_T, p_S, axis=1)
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.mean()}.items():
        got = KDLoss(3.0, reduction)(student, teacher).detach().numpy()
        np.testing.assert_allclose(got, value, rtol=1e-10)


def test_rkd_is_what_its_paper_defines() -> None:
    student, teacher = pair(4, n=4)

    def relations(phi: Any) -> tuple[list[float], list[float]]:
        pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
        lengths = [float(np.linalg.norm(phi[i] - phi[j])) for i, j in pairs]
        sides = {(i, j): (phi[i] - phi[j]) / np.linalg.norm(phi[i] - phi[j]) for i, j in pairs}
        sides |= {(i, i): np.zeros(phi.shape[1]) for i in range(4)}
        angles = [float(sides[i, j] @ sides[k, j]) for j in range(4) for i in range(4) for k in range(4)]
        return [length / np.mean(lengths) for length in lengths], angles

    def huber(a: list[float], b: list[float]) -> float:
        gap = np.abs(np.subtract(a, b))
        return float(np.where(gap < 1, gap**2 / 2, gap - 0.5).mean())

    (d_S, a_S), (d_T, a_T) = relations(student.detach().numpy()), relations(teacher.numpy())
    assert RKDLoss()(student, teacher).item() == pytest.approx(huber(d_S, d_T) + 2 * huber(a_S, a_T))
    assert RKDLoss(angle=0)(student, teacher).item() == pytest.approx(huber(d_S, d_T))


def test_relations_are_distributions_over_the_other_rows() -> None:
    student, teacher = pair(5, n=6)

    def relation(phi: Any) -> Any:
        D = np.linalg.norm(phi[:, None] - phi[None], axis=2)
        D = D / D[~np.eye(6, dtype=bool)].mean()
        return [np.exp(log_softmax(-np.delete(D[i], i) / 0.5)) for i in range(6)]

    pairs = zip(relation(teacher.numpy()), relation(student.detach().numpy()), strict=True)
    expected = np.mean([entropy(p_T, p_S) for p_T, p_S in pairs])
    assert RelationLoss(0.5)(student, teacher).item() == pytest.approx(expected)


@pytest.mark.parametrize("make", [RKDLoss, RelationLoss])
@pytest.mark.parametrize("gap", [0.0, 1e-9, 1e-5, None])
def test_rows_of_equal_features_do_not_throw_the_student_away(make: Any, gap: float | None) -> None:
    """As dead units make them: the angle at or towards a side of no length has no gradient to speak of."""
    torch.manual_seed(0)
    features = torch.zeros(6, 3) if gap is None else torch.randn(6, 3)
    features[1] = features[0] + (gap or 0.0)
    features.requires_grad_()
    make()(features, torch.randn(6, 4)).backward()
    assert features.grad.abs().max() < 100


def test_angles_of_large_batches_are_those_of_some_vertices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distillation, "MOST_ANGLES", 2 * 8 * 8)
    seen = []
    cosines = distillation._cosines
    monkeypatch.setattr(distillation, "_cosines", lambda *given: seen.append(cosines(*given)) or seen[-1])
    distillation.RKDLoss()(torch.randn(8, 3), torch.randn(8, 5))  # as many vertices for both widths
    assert [found.shape for found in seen] == [(2, 8, 8)] * 2


def test_cross_task_loss_is_eq_11_with_a_term_per_teacher() -> None:
    logits, teachers = pair(7, d=3, e=6)
    y = torch.tensor([0, 2, 1, 1, 0])
    target = torch.cat([torch.nn.functional.one_hot(y, 3), teachers], dim=1)
    terms = [Term(KDLoss(), slice(3, 6), 2.0), Term(KDLoss(), slice(6, 9), 0.5)]
    loss = CrossTaskLoss(3, terms)(logits, target)
    expected = torch.nn.functional.cross_entropy(logits, y)
    expected = expected + 2 * KDLoss()(logits, teachers[:, :3]) + 0.5 * KDLoss()(logits, teachers[:, 3:])
    assert loss.item() == pytest.approx(expected.item())


def test_rows_without_a_label_learn_from_the_teacher_alone() -> None:
    logits, teacher = pair(8, n=4, d=2, e=2)
    labels = torch.tensor([[1.0, 0], [0, 0], [0, 1.0], [0, 0]], dtype=torch.float64)
    target = torch.cat([labels, teacher], dim=1)
    loss = CrossTaskLoss(2, [Term(KDLoss(), slice(2, 4), 3.0)], labelled=0.5)(logits, target)
    supervised = torch.nn.functional.cross_entropy(logits[[0, 2]], torch.tensor([0, 1]))
    assert loss.item() == pytest.approx((supervised + 3 * KDLoss()(logits, teacher)).item())


def test_the_features_are_what_enters_the_head_and_the_hint_is_trained() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    embeddings = np.column_stack([X[:, 0] * 2, X[:, 1] - 1, X.sum(axis=1)])
    target = np.hstack([np.eye(2)[y], embeddings])
    criterion = CrossTaskLoss(2, [Term(FitNetLoss(3), slice(2, 5), 1.0, "features")])
    student = Network(
        lambda n_features, n_classes: torch.nn.Sequential(
            torch.nn.Linear(n_features, 7), torch.nn.Tanh(), torch.nn.Linear(7, n_classes)
        ),
        max_iter=150,
        lr=0.01,
        patience=None,
        validation_fraction=0.0,
        random_state=0,
    )
    student.fit(X, target, n_classes=2, criterion=criterion)
    hint = criterion.losses[0].hint
    assert (hint.in_features, hint.out_features) == (7, 3)
    features = student.module_[:2](torch.tensor(X))
    left = (hint(features).detach().numpy() - embeddings).var()
    assert left < 0.1 * embeddings.var()
    assert not student.module_[2]._forward_pre_hooks  # left as it was


def test_the_head_is_the_layer_that_runs_last_not_the_one_made_last() -> None:
    class Backwards(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(7, 2)
            self.gate = torch.nn.Linear(4, 2)  # as wide, made later, run before
            self.body = torch.nn.Linear(2, 7)

        def forward(self, X: Any) -> Any:
            return self.head(torch.tanh(self.body(self.gate(X))))

    X, y = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32), np.arange(20) % 2
    criterion = CrossTaskLoss(2, [Term(FitNetLoss(3), slice(2, 5), 1.0, "features")])
    Network(Backwards(), max_iter=1, patience=None, validation_fraction=0.0, random_state=0).fit(
        X, np.hstack([np.eye(2)[y], X[:, :3]]), n_classes=2, criterion=criterion
    )
    assert criterion.losses[0].hint.in_features == 7


def test_a_student_without_a_head_has_its_logits_as_features() -> None:
    logits, teacher = pair(9)
    criterion = CrossTaskLoss(3, [Term(RKDLoss(), slice(3, 7), 1.0, "features")])
    criterion.attach(torch.nn.Identity(), logits[:2])
    target = torch.cat([torch.zeros(5, 3, dtype=torch.float64), teacher], dim=1)
    assert criterion(logits, target).item() == pytest.approx(RKDLoss()(logits, teacher).item())


def test_hooks_are_removed_when_training_fails() -> None:
    module = torch.nn.Linear(3, 2)
    kept: list[Any] = []

    class Failing(CrossTaskLoss):
        def attach(self, module: Any, example: Any) -> None:
            super().attach(module, example)
            kept.append(module)

        def forward(self, logits: Any, target: Any) -> Any:
            raise RuntimeError("out of chalk")

    with pytest.raises(RuntimeError, match="chalk"):
        Network(module).fit(np.ones((4, 3)), np.eye(2)[[0, 1, 0, 1]], n_classes=2, criterion=Failing(2, []))
    assert len(kept) == 1
    assert not kept[0]._forward_pre_hooks


@pytest.mark.parametrize(
    ("loss", "shapes", "message"),
    [
        (KDLoss(), ((4, 3), (4, 2)), r"input has shape \(4, 3\) and target \(4, 2\); expected the same"),
        (RKDLoss(), ((4, 3), (5, 2)), r"expected \(n, d\) and \(n, e\), with the same n"),
        (FitNetLoss(2), ((4, 3), (4, 2)), "does not know n_features yet"),
    ],
)
def test_wrong_shapes_are_told(loss: Any, shapes: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        loss(*(torch.zeros(shape) for shape in shapes))


@pytest.mark.parametrize("mean", [False, True])
def test_a_function_sees_answered_rows_only_and_may_return_their_mean(mean: bool) -> None:
    student, teacher = pair(0, n=6)
    teacher[[1, 4]] = NAN
    answered, cost = [0, 2, 3, 5], np.arange(12.0).reshape(4, 3)

    def function(
        student_logits: Any, teacher_logits: Any, *, cost: Any, epsilon: float, temperature: float
    ) -> Any:
        assert (epsilon, temperature, student_logits.shape) == (0.5, 2.0, (4, 3))
        rows = (student_logits @ cost.T - teacher_logits).square().sum(dim=1)
        return rows.mean() if mean else rows

    by_hand = (student[answered] @ torch.tensor(cost).T - teacher[answered]).square().sum() / 6
    loss = FunctionLoss(function, cost, 0.5, 2.0)
    assert loss(student, teacher).item() == pytest.approx(by_hand.item())
    assert loss(student, torch.full_like(teacher, NAN)).item() == 0.0


@pytest.mark.parametrize("wrong", [3.0, torch.zeros(2), torch.zeros(5, 1), None])
def test_a_function_that_returns_something_else_is_told(wrong: Any) -> None:
    loss = FunctionLoss(lambda *_, **__: wrong, np.zeros((4, 3)), 0.1, 1.0)
    with pytest.raises(InvalidInputError, match=r"for 5 rows; expected a tensor of shape \(\) or \(5,\)"):
        loss(*pair(0))
