"""Embeddings of n-grams: their gradient and steps."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from consilience.kernels.embedding_bag import Descent, batch_gradient, scatter
from consilience.kernels.ngrams import bag_inputs, bag_scales

N_BUCKETS, DIM, L = 7, 3, 4
# a bag with a bucket twice, an empty one, and one of buckets that others have too
IDS, BOUNDS = np.array([2, 5, 2, 0, 5, 6], dtype=np.int32), np.array([0, 3, 3, 6])


def parameters(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    E, W, b = (rng.normal(size=shape) for shape in ((N_BUCKETS, DIM), (DIM, L), (L,)))
    target = rng.dirichlet(np.ones(L), 3) * [[0.3], [2.0], [1.1]]
    target[1, 2] = 0.0
    return E, W, b, target


def loss_of(E, W, b, target, collision):
    """The loss in plain words, without the kernel."""
    total = 0.0
    for i in range(3):
        bag = IDS[BOUNDS[i] : BOUNDS[i + 1]]
        h = sum((E[k] for k in bag), np.zeros(DIM)) / np.sqrt(max(len(bag), 1))
        p = np.exp(h @ W + b)
        p /= p.sum()
        if collision:
            mass = target[i].sum()
            total -= mass * np.log((target[i] / mass) @ p)
        else:
            total -= target[i] @ np.log(p)
    return total


@pytest.mark.parametrize("collision", [False, True])
def test_the_gradient_is_that_of_finite_differences(collision):
    E, W, b, target = parameters()
    loss, by_h, by_W, by_b = batch_gradient(bag_inputs(E, IDS, BOUNDS), W, b, target, collision)
    assert loss == pytest.approx(loss_of(E, W, b, target, collision), rel=1e-6)
    sums = np.zeros((len(IDS), DIM))
    slots = np.full(N_BUCKETS, -1, dtype=np.int32)
    used = scatter(IDS, BOUNDS, by_h * bag_scales(BOUNDS)[:, None], slots, sums)
    assert (slots == -1).all()
    of_E = np.zeros_like(E)
    of_E[used] = sums[: len(used)]
    borders = np.cumsum([E.size, W.size])

    def total(flat):
        parts = np.split(flat, borders)
        return loss_of(parts[0].reshape(E.shape), parts[1].reshape(W.shape), parts[2], target, collision)

    numeric = approx_fprime(np.concatenate([E.ravel(), W.ravel(), b]), total, 1e-7)
    np.testing.assert_allclose(np.concatenate([of_E.ravel(), by_W.ravel(), by_b]), numeric, atol=3e-6)


def test_the_last_layer_takes_the_steps_of_torchs_adam():
    torch = pytest.importorskip("torch")
    E, W, b, target = (values.astype(np.float32) for values in parameters())
    layer = torch.nn.Linear(DIM, L)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(W.T))
        layer.bias.copy_(torch.tensor(b))
    adam = torch.optim.Adam(layer.parameters(), lr=0.05)
    descent = Descent(E, W, b)
    for _ in range(5):
        h = torch.tensor(bag_inputs(E, IDS, BOUNDS))  # before the step, which moves E as well
        loss = -(torch.tensor(target) * torch.log_softmax(layer(h), 1)).sum() / 3
        adam.zero_grad()
        loss.backward()
        adam.step()
        assert descent.step(IDS, BOUNDS, target, 0.05, False) / 3 == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_allclose(W, layer.weight.detach().numpy().T, atol=1e-5)
    np.testing.assert_allclose(b, layer.bias.detach().numpy(), atol=1e-5)


def test_an_embedding_moves_against_its_gradient_by_its_own_mean_square():
    E, W, b, target = (values.astype(np.float32) for values in parameters())
    before, mean_square = E.copy(), np.zeros(N_BUCKETS)
    descent = Descent(E, W, b)
    for step in (1, 2):
        start = E.copy()
        _, by_h, _, _ = batch_gradient(bag_inputs(E, IDS, BOUNDS), W.copy(), b.copy(), target, False)
        gradient = np.zeros((N_BUCKETS, DIM))
        for i in range(3):
            for k in IDS[BOUNDS[i] : BOUNDS[i + 1]]:
                gradient[k] += by_h[i] * bag_scales(BOUNDS)[i] / 3
        seen = np.unique(IDS)
        mean_square[seen] = 0.999 * mean_square[seen] + 0.001 * (gradient[seen] ** 2).mean(axis=1)
        rate = 0.01 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        descent.step(IDS, BOUNDS, target, 0.01, False)
        expected = start[seen] - rate * gradient[seen] / np.sqrt(mean_square[seen])[:, None]
        np.testing.assert_allclose(E[seen], expected, rtol=1e-4, atol=1e-6)
    unseen = np.setdiff1d(np.arange(N_BUCKETS), IDS)
    np.testing.assert_array_equal(E[unseen], before[unseen])


@pytest.mark.parametrize("collision", [False, True])
def test_rows_without_weight_and_impossible_targets_give_no_nan(collision):
    E, W, b, target = (values.astype(np.float32) for values in parameters())
    target[0] = 0.0
    W *= 1e4  # probabilities that are 0 in single precision
    target[2] = [1.0, 0.0, 0.0, 0.0]
    loss, by_h, by_W, by_b = batch_gradient(bag_inputs(E, IDS, BOUNDS), W, b, target, collision)
    assert np.isfinite(loss)
    assert all(np.isfinite(values).all() for values in (by_h, by_W, by_b))
    np.testing.assert_array_equal(by_h[0], 0.0)
