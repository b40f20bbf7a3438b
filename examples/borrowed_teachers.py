"""You have new classes, five labels of each, and other people's models. Which models help, and how much?

A museum wants to sort its labels by number. It has five examples of each digit and a drawer of unsorted ones.
It borrows three models. The post office's model reads all digits and calls them by words. A bank's model
reads only 0 to 5. Somebody uploaded the third as a joke: it is confident and wrong. The museum ranks the
three, learns from those that help, and exports one ONNX model.

Run: python examples/borrowed_teachers.py
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from consilience import CrossTaskDistiller, as_teacher, rank_teachers

WORDS = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
X, digits = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
order = np.random.default_rng(1).permutation(len(X))
theirs, rest = order[:900], order[900:]
few = np.concatenate([rest[digits[rest] == digit][:5] for digit in range(10)])
drawer, test = np.split(rest[~np.isin(rest, few)], [400])
names = np.array([f"room {digit}" for digit in digits])  # the museum's own classes


def post_office(folder: Path) -> Path:
    """Train on all digits and send a file."""
    model = MLPClassifier((64,), max_iter=60, random_state=0).fit(X[theirs], WORDS[digits[theirs]])
    path = folder / "post.onnx"
    path.write_bytes(to_onnx(model, X[:1], options={"zipmap": False}).SerializeToString())
    return path


def bank() -> MLPClassifier:
    """Train on 0 to 5."""
    rows = theirs[digits[theirs] < 6]
    return MLPClassifier((64,), max_iter=60, random_state=0).fit(X[rows], WORDS[digits[rows]])


def joker(rows: np.ndarray) -> np.ndarray:
    """Give a confident answer that means nothing."""
    return 9.0 * np.eye(10)[[int(np.frombuffer(row.tobytes(), np.uint8).sum()) % 10 for row in rows]]


def main() -> float:
    """Rank the teachers and learn from them. Return the accuracy on unseen rows."""
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the joker is dropped, as printed below; networks stop early
        folder = Path(name)
        teachers = {
            "post": as_teacher(post_office(folder)),
            "bank": bank(),
            "joker": as_teacher(joker, WORDS, output="logits"),
        }
        print(rank_teachers(teachers, X[few], names[few], random_state=0))
        rows = np.concatenate([few, drawer])
        labels = [*names[few], *[None] * len(drawer)]
        labels_only = CrossTaskDistiller(None, "logistic", loss="none").fit(X[few], names[few])
        student = CrossTaskDistiller(teachers, "logistic", random_state=0).fit(X[rows], labels)
        for check, weight in zip(student.checks_, student.teacher_weights_, strict=True):
            print(f"{check.name}: weight {weight:.2f}, {check.reason}")
        back = as_teacher(student.save(folder / "museum.onnx"))
        answer = back.classes[back.predict_logits(X[test]).argmax(axis=1)]
        accuracy = float((answer == names[test]).mean())
        baseline = labels_only.score(X[test], names[test])
        print(f"{baseline:.0%} of {len(test)} rows right with five labels a class,")
        print(f"{accuracy:.0%} of {len(test)} rows right with the borrowed teachers")
        return accuracy


if __name__ == "__main__":
    main()
