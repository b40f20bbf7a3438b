"""Five vendors, one endpoint, one repository: make one reader of digits out of five that know a few each.

Three vendors deliver models: an ONNX file, a scikit-learn pipeline and a torch network. These go into a
repository, with their cards. The fourth sends scores for our rows and no model. The fifth keeps its model on
a server and answers over HTTP. We search the repository, take the models of our task, unify all five, and
serve the result, which is then a teacher behind an address, too.

Run: python examples/five_vendors.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience import Repository, SoftLabelClassifier, Unifier, as_teacher
from consilience.students.server import ModelServer, ServedModel

X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
order = np.random.default_rng(0).permutation(len(X))
X, y = X[order], y[order]
unlabelled, test = slice(1250, 1550), slice(1550, None)
KNOWN = {
    "north": [0, 1, 2, 3, 4],
    "east": [2, 3, 4, 5, 6],
    "south": [4, 5, 6, 7, 8],
    "west": [6, 7, 8, 9],
    "far": [8, 9, 0, 1],
}


def rows_of(vendor: str) -> tuple[Any, Any]:
    """Return the rows that a vendor has: 250 of its own, those of the digits that it knows."""
    place = 250 * list(KNOWN).index(vendor)
    own = slice(place, place + 250)
    known = np.isin(y[own], KNOWN[vendor])
    return X[own][known], y[own][known]


def north(folder: Path) -> Path:
    """Send an ONNX file."""
    model = LogisticRegression(max_iter=500).fit(*rows_of("north"))
    path = folder / "north.onnx"
    path.write_bytes(to_onnx(model, X[:1], options={"zipmap": False}).SerializeToString())
    return path


def east() -> Any:
    """Send a fitted pipeline of scikit-learn."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500)).fit(*rows_of("east"))


def south() -> torch.nn.Module:
    """Send a network of torch."""
    torch.manual_seed(0)
    rows, labels = rows_of("south")
    network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 5))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(200):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(torch.tensor(rows)), torch.tensor(labels - 4))
        loss.backward()
        optimiser.step()
    return network.eval()


def west(folder: Path) -> Path:
    """Send the scores of a forest for the unlabelled rows, and keep the forest."""
    forest = RandomForestClassifier(random_state=0).fit(*rows_of("west"))
    path = folder / "west.npz"
    np.savez(path, proba=forest.predict_proba(X[unlabelled]), classes=forest.classes_)
    return path


@contextmanager
def serving(model: Path) -> Iterator[str]:
    """Serve a saved model on this machine, and yield its address."""
    with ModelServer(ServedModel(model)).start() as server:
        yield server.url


def fill(repository: Repository, folder: Path) -> None:
    """Put three vendors' models into the repository; each is asked once about the reference rows."""
    repository.set_reference(X[unlabelled][:200])
    repository.add(north(folder), KNOWN["north"], "north", task="digits", licence="MIT", metrics={"ms": 1})
    repository.add(east(), name="east", task="digits", licence="own", metrics={"ms": 2}, example=X[:9])
    repository.add(south(), KNOWN["south"], "south", task="digits", metrics={"ms": 5}, example=X[:9])
    print(repository.list())


def look_around(repository: Repository) -> None:
    """Search for a task, and ask which models know some classes."""
    task = np.isin(y[:300], [4, 5])
    names = np.where(y[:300][task] == 4, "four", "five")  # names that no vendor uses
    found = repository.search(X[:300][task], names, top=2)
    print(f"\nWho helps to tell four from five? {found.best.name}. {found.summary}.")
    print(f"Who knows 1 and 7 together? {', '.join(repository.cover_names([1, 7], cost='ms'))}.")


def main() -> float:
    """Unify the vendors. Return the accuracy on rows that nobody has seen."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repository = Repository(folder / "models")
        fill(repository, folder)
        look_around(repository)
        SoftLabelClassifier("logistic", random_state=0).fit(*rows_of("far")).save(folder / "far.onnx")
        with serving(folder / "far.onnx") as url:
            teachers = {
                **repository.select(task="digits"),
                "west": west(folder),
                "far": as_teacher(url, name="far"),
            }
            unified = Unifier(teachers, student="logistic", random_state=0).fit(X[unlabelled])
        print(f"\nUnified: {unified.label_space_}")
        repository.add(unified.save(folder / "unified.onnx"), name="unified", task="digits")
        print(f"The repository has {', '.join(repository)}. {repository.verify()}.")
        with serving(repository.path("unified")) as url:
            back = as_teacher(url)
            proba = np.exp(back.predict_logits(X[test]))
        apart = np.abs(proba - unified.predict_proba(X[test])).max()
        print(f"Served and asked over HTTP, its probabilities differ by at most {apart:.0e}.")
        if apart > 1e-5:
            raise SystemExit("The served model is not the saved one.")
        accuracy = float((back.classes[proba.argmax(axis=1)] == y[test]).mean())
        print(f"It reads {accuracy:.0%} of {len(X[test])} new digits, and knows all {len(back.classes)}.")
        return accuracy


if __name__ == "__main__":
    main()
