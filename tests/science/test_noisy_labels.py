"""Fig. 2 of the collision paper on digits: soft targets for labels of which half are wrong.

Half of the labels are drawn anew; every loss is trained on eta * u + (1 - eta) * onehot of what is left. The
network is large enough to fit the noise and is trained until it does: that is where the losses part.
"""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

torch = pytest.importorskip("torch")

from consilience import CollisionClassifier  # noqa: E402
from consilience.students import Network  # noqa: E402

pytestmark = pytest.mark.nightly

ETA = 0.5
LOSSES = ("cross-entropy", "collision", "generalised-collision")


def network(n_features: int, n_classes: int) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Linear(n_features, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, n_classes)
    )


def run_trial(seed: int) -> dict[str, float]:
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    random = np.random.RandomState(seed)
    train, test = np.split(random.permutation(len(X)), [1200])
    replaced = random.uniform(size=len(train)) < ETA
    observed = np.where(replaced, random.randint(10, size=len(train)), y[train])
    accuracy = {}
    for loss in LOSSES:
        student = Network(
            network, lr=3e-3, max_iter=40, batch_size=64, patience=None, validation_fraction=0.0
        )
        model = CollisionClassifier(loss, student, noise=ETA, random_state=seed)
        accuracy[loss] = model.fit(X[train], observed).score(X[test], y[test])
    return accuracy


@pytest.fixture(scope="module")
def means() -> dict[str, float]:
    trials = [run_trial(seed) for seed in range(2)]
    return {loss: float(np.mean([trial[loss] for trial in trials])) for loss in LOSSES}


def test_collision_beats_shannon_by_ten_points_and_its_generalised_form_by_more(
    means: dict[str, float],
) -> None:
    assert means["collision"] >= means["cross-entropy"] + 0.10, means
    assert means["generalised-collision"] >= means["collision"] + 0.02, means
