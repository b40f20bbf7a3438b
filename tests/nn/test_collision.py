"""Losses on soft labels in torch: parity with numpy, exactness, weights, transition, reductions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from consilience import InvalidInputError  # noqa: E402
from consilience.collision.entropy import collision_cross_entropy, renyi_cross_entropy  # noqa: E402
from consilience.kernels.collision.entropy import (  # noqa: E402
    collision_from_logits,
    gce_from_logits,
    shannon_from_logits,
)
from consilience.nn import CollisionCrossEntropy, GeneralisedCrossEntropy, RenyiCrossEntropy, SoftCrossEntropy  # noqa: E402

PAIRS = {
    "collision": (CollisionCrossEntropy(reduction="none"), collision_from_logits),
    "generalised": (
        CollisionCrossEntropy(0.5, reduction="none"),
        lambda z, y: collision_from_logits(z, y, 0.5),
    ),
    "cross-entropy": (SoftCrossEntropy(reduction="none"), shannon_from_logits),
    "gce": (GeneralisedCrossEntropy(reduction="none"), gce_from_logits),
    "renyi of order 2": (RenyiCrossEntropy(reduction="none"), collision_from_logits),
    "renyi of order 1": (RenyiCrossEntropy(1.0, reduction="none"), shannon_from_logits),
}
LOSS_CLASSES = (CollisionCrossEntropy, SoftCrossEntropy, GeneralisedCrossEntropy, RenyiCrossEntropy)


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    torch.manual_seed(0)


def with_gradient(loss: Any, logits: Any, target: Any) -> tuple[np.ndarray, np.ndarray]:
    z = torch.tensor(logits, requires_grad=True)
    rows = loss(z, torch.tensor(target))
    rows.sum().backward()
    return rows.detach().numpy(), z.grad.numpy()


@pytest.mark.parametrize("name", PAIRS)
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**16), scale=st.sampled_from([0.1, 3.0, 300.0]), zeros=st.booleans())
def test_torch_and_numpy_agree(name: str, seed: int, scale: float, zeros: bool) -> None:
    random = np.random.default_rng(seed)
    K = int(random.integers(1, 7))
    logits = scale * random.standard_normal((5, K))
    target = random.dirichlet(np.full(K, 0.3), 5)
    if zeros:
        target[:, 0] = 0.0
        target[0] = np.eye(K)[-1]
    loss, kernel = PAIRS[name]
    keep = target.sum(axis=1) > 0
    target[keep] /= target[keep].sum(axis=1, keepdims=True)
    for ours, theirs in zip(
        with_gradient(loss, logits[keep], target[keep]), kernel(logits[keep], target[keep]), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_one_hot_labels_and_indices_give_torchs_cross_entropy() -> None:
    logits, labels = torch.randn(20, 4, dtype=torch.float64) * 30, torch.arange(20) % 4
    weights = torch.tensor([0.5, 1.0, 2.0, 0.0])
    expected = torch.nn.functional.cross_entropy(logits, labels, weights.double(), reduction="none")
    for loss in (CollisionCrossEntropy, SoftCrossEntropy, RenyiCrossEntropy):
        rows = loss(weight=weights, reduction="none")(logits, labels)
        torch.testing.assert_close(rows, expected)
        hot = torch.nn.functional.one_hot(labels, 4).double()
        torch.testing.assert_close(loss(weight=weights, reduction="none")(logits, hot), expected)


@pytest.mark.parametrize("q", [0.0, 0.5])
def test_zeros_and_far_logits_are_exact_in_single_precision(q: float) -> None:
    logits = np.array([[0.0, -500.0, 500.0], [1e30, -1e30, 0.0]], dtype=np.float32)
    target = np.array([[0.0, 1.0, 0.0], [0.0, 0.5, 0.5]], dtype=np.float32)
    loss, gradient = with_gradient(CollisionCrossEntropy(q, reduction="none"), logits, target)
    expected, slope = collision_from_logits(logits, target, q)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    np.testing.assert_allclose(gradient, slope, atol=1e-6)


@pytest.mark.parametrize("make", LOSS_CLASSES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("weight", [None, [0.2, 1.0, 3.0]])
def test_a_row_counts_as_often_as_its_mass_and_the_weights_of_its_classes_say(
    make: Any, weight: Any, weighted: bool
) -> None:
    """A row counts w.y times, with the label w * y / w.y: Shannon's weighted sum says the same."""
    logits = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    y = torch.rand(9, 3, dtype=torch.float64).softmax(dim=1)
    w = torch.tensor(weight or [1.0] * 3, dtype=torch.float64)
    mass, times = y @ w, torch.arange(9.0) if weighted else torch.ones(9)
    expected = times * mass * make(reduction="none")(logits, y * w / mass[:, None])
    rows = make(weight=weight, reduction="none", weighted=weighted)(logits, times[:, None] * y)
    torch.testing.assert_close(rows, expected, rtol=1e-6, atol=0)
    slopes = [torch.autograd.grad(values.sum(), logits)[0] for values in (rows, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("make", LOSS_CLASSES)
@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ([1.5, -0.5], "have -0.5 in row 1"),
        ([np.nan, 1.0], "have nan in row 1"),
        ([np.inf, 0.0], "have inf in row 1"),
        ([1.0, 1.0], "sum to 2 in row 1"),
        ([0.0, 0.0], "sum to 0 in row 1"),
        ([0.5, 0.48], "sum to 0.98 in row 1"),
    ],
)
def test_targets_that_are_no_probabilities_are_refused(make: Any, row: Any, problem: str) -> None:
    target = torch.tensor([[0.5, 0.5], row, row])
    make(check_targets=False)(torch.zeros(3, 2), target)
    with pytest.raises(InvalidInputError, match=rf"Soft labels {problem} \(2 such rows\).*weighted=True"):
        make()(torch.zeros(3, 2), target)
    if "have" in problem:
        with pytest.raises(InvalidInputError, match=rf"Soft labels {problem}.*finite numbers of at least 0"):
            make(weighted=True)(torch.zeros(3, 2), target)
    else:
        assert make(weighted=True)(torch.zeros(3, 2), target).isfinite()


@pytest.mark.parametrize("make", LOSS_CLASSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1e-6, 1.0, 1e6])
def test_logits_of_any_size_give_finite_losses_and_gradients(
    make: Any, dtype: Any, temperature: float
) -> None:
    top = torch.finfo(dtype).max
    z = torch.tensor([[top, -top], [-top, top], [-top, -top], [top, 0.0]], dtype=dtype, requires_grad=True)
    loss = make(temperature=temperature)(z, torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5], [0.3, 0.7]]))
    loss.backward()
    assert loss.isfinite()
    assert z.grad.isfinite().all()
    if make is not GeneralisedCrossEntropy:  # it gives up on rows that do not fit
        assert loss > 1e20  # the second row is as wrong as can be
    # a logit of minus infinity rules a class out
    hidden = torch.tensor([[0.0, 1.0, -np.inf]], dtype=dtype, requires_grad=True)
    make()(hidden, torch.tensor([[0.5, 0.5, 0.0]])).backward()
    assert hidden.grad.isfinite().all()


def test_nan_logits_give_nan_and_so_do_their_gradients() -> None:
    for value in (np.nan, np.inf):
        loss, gradient = with_gradient(
            CollisionCrossEntropy(), np.array([[value, 0.0]]), np.array([[1.0, 0.0]])
        )
        assert np.isnan(loss)
        assert np.isnan(gradient).any()


def test_reductions_and_temperature() -> None:
    logits, target = torch.randn(6, 3), torch.rand(6, 3).softmax(dim=1)
    for make in (CollisionCrossEntropy, SoftCrossEntropy, GeneralisedCrossEntropy, RenyiCrossEntropy):
        rows = make(reduction="none", temperature=2.0)(logits, target)
        torch.testing.assert_close(rows, make(reduction="none")(logits / 2, target))
        torch.testing.assert_close(make(temperature=2.0)(logits, target), rows.mean())
        torch.testing.assert_close(make(reduction="sum", temperature=2.0)(logits, target), rows.sum())
        assert make()(logits[:0], target[:0]).item() == 0.0


def test_the_transition_corrects_observed_labels() -> None:
    Q = np.array([[0.8, 0.1, 0.0], [0.2, 0.6, 0.0], [0.0, 0.3, 1.0]])
    logits, labels = torch.randn(9, 3, dtype=torch.float64), torch.arange(9) % 3
    proba = logits.softmax(dim=1).numpy()
    rows = CollisionCrossEntropy(transition=Q, reduction="none")(logits, labels)
    np.testing.assert_allclose(rows, collision_cross_entropy(proba, labels.numpy(), transition=Q))
    np.testing.assert_allclose(rows, collision_from_logits(logits.numpy(), Q[labels.numpy()])[0], rtol=1e-12)
    # the weight is that of the label that was observed
    weighted = CollisionCrossEntropy(transition=Q, weight=[1.0, 2.0, 0.0], reduction="none")
    torch.testing.assert_close(weighted(logits, labels), rows * torch.tensor([1.0, 2.0, 0.0])[labels])


def test_renyi_agrees_with_numpy_at_other_orders() -> None:
    logits = torch.randn(5, 4, dtype=torch.float64)
    target = torch.rand(5, 4, dtype=torch.float64).softmax(dim=1)
    for alpha in (0.5, 3.0):
        expected = renyi_cross_entropy(logits.softmax(dim=1).numpy(), target.numpy(), alpha)
        np.testing.assert_allclose(RenyiCrossEntropy(alpha, reduction="none")(logits, target), expected)


@pytest.mark.parametrize(
    ("options", "logits", "target", "problem"),
    [
        ({}, torch.zeros(2, 3), torch.zeros(2, 2), "both must be"),
        ({}, torch.zeros(2), torch.zeros(2), "not"),
        ({}, torch.zeros(2, 3), torch.tensor([0, 3]), "from 0 to 3; expected 0 to 2"),
        ({}, torch.zeros(2, 3), torch.tensor([-1, 1]), "from -1 to 1"),
        (
            {"weight": [1.0, 1.0]},
            torch.zeros(2, 3),
            torch.zeros(2, 3),
            "weight has 2 entries for 3 classes",
        ),
        ({"transition": np.eye(2)}, torch.zeros(2, 3), torch.zeros(2, 3), r"not \(n, 2\)"),
    ],
)
def test_wrong_batches_are_refused(options: Any, logits: Any, target: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        CollisionCrossEntropy(**options)(logits, target)


@pytest.mark.parametrize(
    ("make", "options", "problem"),
    [
        *(
            (RenyiCrossEntropy, {"alpha": near}, r"must be 1, or differ from it by at least 0\.001")
            for near in (1.0 + 3e-16, 1.0005, 0.9995)
        ),
        *((RenyiCrossEntropy, {"alpha": far}, "from 1e-12 to") for far in (1e-308, 1e308)),
        (CollisionCrossEntropy, {"q": -0.1}, "q=-0.1"),
        (CollisionCrossEntropy, {"temperature": 0}, "temperature=0"),
        (CollisionCrossEntropy, {"temperature": 1e-308}, "temperature=1e-308 must be from 1e-6 to 1e6"),
        (CollisionCrossEntropy, {"q": 1e-308}, r"q=1e-308 must be 0, or from 1e-12 to 1e\+12"),
        (CollisionCrossEntropy, {"q": 1e308}, "must be 0, or from"),
        (CollisionCrossEntropy, {"ignore_index": 0.5}, "ignore_index=0.5 must be a whole number"),
        (CollisionCrossEntropy, {"weighted": 1}, "weighted=1 is unknown"),
        (CollisionCrossEntropy, {"reduction": "men"}, "Did you mean 'mean'"),
        (CollisionCrossEntropy, {"weight": [-1.0]}, "at least 0"),
        (CollisionCrossEntropy, {"transition": [[1.0, 0.0], [0.5, 0.5]]}, "transpose"),
    ],
)
def test_wrong_options_are_refused(make: Any, options: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        make(**options)


@pytest.mark.parametrize("make", [CollisionCrossEntropy, RenyiCrossEntropy])
@pytest.mark.parametrize("power", [1e-12, 0.999, 1.001, 1e12])
def test_powers_and_orders_in_range_give_finite_losses(make: Any, power: float) -> None:
    logits, y = np.array([[1.0, 2.0, -3.0]], dtype=np.float32), np.array([[0.2, 0.5, 0.3]], dtype=np.float32)
    loss, gradient = with_gradient(make(power), logits, y)
    assert np.isfinite(loss)
    assert np.isfinite(gradient).all()
    if make is RenyiCrossEntropy and abs(power - 1) < 0.1:
        assert loss == pytest.approx(with_gradient(SoftCrossEntropy(), logits, y)[0], abs=3e-3)


LOGITS = torch.randn(12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
INDICES = torch.tensor([0, 3, 1, -100, 2, 2, -100, 0, 1, 3, 3, 0])
SOFT = torch.softmax(
    torch.randn(12, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64), dim=1
)
SHANNON = [SoftCrossEntropy, lambda *a, **o: RenyiCrossEntropy(1.0, *a, **o)]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weight", [None, torch.tensor([0.5, 2.0, 0.0, 3.0], dtype=torch.float64)])
@pytest.mark.parametrize("target", [INDICES, SOFT], ids=["indices", "soft"])
@pytest.mark.parametrize("make", SHANNON)
def test_cross_entropy_is_torchs(make, target, weight, reduction):
    loss = make(weight=weight, reduction=reduction)
    for check in (True, False):
        loss.check_targets = check
        z, z_torch = (LOGITS.clone().requires_grad_() for _ in range(2))
        found = loss(z, target)
        expected = torch.nn.functional.cross_entropy(z_torch, target, weight=weight, reduction=reduction)
        torch.testing.assert_close(found, expected)
        found.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(z.grad, z_torch.grad)


@pytest.mark.parametrize(
    "make", [SoftCrossEntropy, CollisionCrossEntropy, GeneralisedCrossEntropy, RenyiCrossEntropy]
)
@pytest.mark.parametrize("target", [INDICES, SOFT], ids=["indices", "soft"])
def test_gradients_with_weights_and_ignored_rows(make, target):
    loss = make(weight=[0.5, 2.0, 1.0, 3.0])
    assert torch.autograd.gradcheck(lambda z: loss(z, target), (LOGITS.clone().requires_grad_(),))


def test_ignored_rows():
    loss = SoftCrossEntropy(ignore_index=-1, reduction="none")
    assert loss(torch.zeros(2, 2), torch.tensor([-1, 0]))[0] == 0
    assert SoftCrossEntropy()(torch.zeros(2, 2), torch.tensor([-100, -100])) == 0
    with pytest.raises(InvalidInputError, match="from -1 to 0; expected 0 to 1, or ignore_index=-100"):
        SoftCrossEntropy()(torch.zeros(3, 2), torch.tensor([-1, 0, -100]))


class Synced(torch.overrides.TorchFunctionMode):
    """Counts how often a value is brought to Python, for which a device would have to be waited for."""

    count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") in ("__bool__", "__int__", "__float__", "item", "tolist"):
            self.count += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("target", [INDICES, SOFT], ids=["indices", "soft"])
@pytest.mark.parametrize("check", [True, False])
def test_a_check_waits_for_the_device_once(target, check):
    loss = CollisionCrossEntropy(weight=[1.0, 2.0, 1.0, 1.0], check_targets=check)
    with Synced() as synced:
        loss(LOGITS, target)
    assert synced.count == int(check)
