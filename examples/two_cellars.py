"""Make one classifier for two wine cellars that exchange files but no rows.

Each cellar trains a model on its own rows and sends a file. One sends an ONNX model. The other sends only its
scores for the shared unlabelled rows, and abstains on rows it is not sure about. The two use different names
for one class. A coordinator unifies them, keeps the few labels it has, and sends one ONNX model back.

Run: python examples/two_cellars.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience import Unifier, as_teacher

X, codes = load_wine(return_X_y=True)
X = X.astype(np.float32)
order = np.random.default_rng(0).permutation(len(X))
X, codes = X[order], codes[order]
names = np.array(["barolo", "grignolino", "barbera"])
shared = slice(100, None)


def cellar_a(folder: Path) -> Path:
    """Train on two classes and send a model."""
    rows = np.isin(codes[:50], [0, 1])
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:50][rows], names[codes[:50][rows]])
    path = folder / "a.onnx"
    path.write_bytes(to_onnx(model, X[:1], options={"zipmap": False}).SerializeToString())
    return path


def cellar_b(folder: Path) -> Path:
    """Train on two classes, one of them shared, and send scores. Abstain on uncertain rows."""
    rows = np.isin(codes[50:100], [1, 2])
    labels = np.where(codes == 1, "Grignolino", "barbera")  # its own spelling
    model = RandomForestClassifier(random_state=0).fit(X[50:100][rows], labels[50:100][rows])
    proba = model.predict_proba(X[shared])
    proba[proba.max(axis=1) < 0.7] = np.nan
    path = folder / "b.npz"
    np.savez(path, proba=proba, classes=model.classes_)
    return path


def main() -> float:
    """Unify the cellars' files. Return the accuracy on the shared rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [cellar_a(folder), cellar_b(folder)]
        known = [None] * len(X[shared])
        known[:5] = names[codes[shared][:5]].tolist()
        unified = Unifier(
            files, student="logistic", method="ce", aliases={"Grignolino": "grignolino"}, random_state=0
        ).fit(X[shared], known)
        print(unified.label_space_)
        print(
            "abstentions:",
            dict(zip(unified.label_space_.names, unified.n_abstentions_.tolist(), strict=True)),
        )
        back = as_teacher(unified.save(folder / "unified.onnx"))
        answer = back.classes[back.predict_logits(X[shared]).argmax(axis=1)]
        accuracy = float((answer == names[codes[shared]]).mean())
        print(f"{accuracy:.0%} of {len(answer)} rows right, over all {len(back.classes)} classes")
        return accuracy


if __name__ == "__main__":
    main()
