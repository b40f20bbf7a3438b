"""``consilience distil``, as a new user meets it."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from tests.cli.running import done, refused, view_of

pytest.importorskip("onnx")

from skl2onnx import to_onnx

from consilience import CrossTaskDistiller, as_teacher


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two teachers of which one knows nothing, sixty rows with labels, and rows to test on."""
    root = tmp_path_factory.mktemp("files")
    X, y = load_digits(return_X_y=True)
    random = np.random.RandomState(0)
    order = random.permutation(len(y))  # in the file, rows of one writer follow each other
    rest = order[900:]
    few = random.permutation(np.concatenate([rest[y[rest] == digit][:6] for digit in range(10)]))
    order = np.concatenate([order[:900], few, np.setdiff1d(rest, few)])
    X, y = (X[order] / 16).astype(np.float32), y[order]
    for name, labels in {"good": y[:900], "mixed": random.permutation(y[:900])}.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LogisticRegression(max_iter=50).fit(X[:900], labels)
        options = {"zipmap": False}
        (root / f"{name}.onnx").write_bytes(to_onnx(model, X[:1], options=options).SerializeToString())
    np.save(root / "X.npy", X[900:960])
    np.save(root / "y.npy", y[900:960])
    some = y[900:960].astype(float)
    some[-10:] = np.nan
    np.save(root / "some.npy", some)
    np.save(root / "more.npy", X[900:1160])
    np.save(root / "some_of_more.npy", np.where(np.arange(260) < 60, y[900:1160], np.nan))
    np.save(root / "X_test.npy", X[1160:])
    np.save(root / "y_test.npy", y[1160:])
    return root


def files(folder: Path, out: Path, *teachers: str) -> list[object]:
    given = [part for name in teachers or ("good",) for part in ("--teacher", folder / f"{name}.onnx")]
    return [*given, "--data", folder / "X.npy", "--labels", folder / "y.npy", "--out", out]


def test_a_student_is_trained_compared_and_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, fit = [], CrossTaskDistiller.fit

    def watched(self: CrossTaskDistiller, *rows: object) -> CrossTaskDistiller:
        fitted.append(self)
        return fit(self, *rows)

    monkeypatch.setattr(CrossTaskDistiller, "fit", watched)
    out = tmp_path / "student.onnx"
    options = [*files(folder, out, "good", "mixed"), "--student", "logistic", "--compare", "--seed", 4]
    options[5:8:2] = folder / "more.npy", folder / "some_of_more.npy"
    options += ["--test-data", folder / "X_test.npy", "--test-labels", folder / "y_test.npy"]
    view = view_of("distil", *options)
    assert [(one.student, one.random_state, one.loss) for one in fitted] == [
        ("logistic", 4, "sinkhorn"),
        ("logistic", 4, "none"),
    ]
    good, mixed = view["teachers"]
    assert good["weight"] > 0
    assert (mixed["weight"], mixed["reliability"]) == (0.0, 0.0)
    told = " ".join(warning["message"] for warning in view["warnings"])
    assert "'mixed' was dropped" in told
    assert "--check false keeps it." in told
    X, y = np.load(folder / "X_test.npy"), np.load(folder / "y_test.npy")
    teacher = as_teacher(out)
    right = (teacher.classes[teacher.predict_logits(X).argmax(axis=1)] == y).mean()
    assert view["accuracy"] == pytest.approx(right)
    assert view["accuracy"] > view["accuracy_labels_only"] > 0.7
    assert (view["n_rows"], view["n_labels"], view["n_classes"]) == (260, 60, 10)
    assert "Distilled with 2 teachers" in (tmp_path / "student.card.json").read_text()
    shown = done("distil", *options).stdout
    assert all(words in shown for words in (f"{100 * right:.1f}% of {len(y)}", "dropped", "without teachers"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--loss", "sinkhron"], "--loss 'sinkhron' is unknown"),
        (["--student", "mlpp"], "--student 'mlpp' is unknown"),
        (["--epsilon", "tiny"], "--epsilon 'tiny' is unknown; use 'auto'"),
        (["--epsilon", "-1"], "--epsilon -1.0 must be a finite number above 0"),
        (["--compare"], "--compare needs --test-data"),
        (["--test-data", "X.npy"], "--test-data needs --test-labels"),
        (["--loss", "rkd", "--student", "logistic"], "--loss 'rkd' needs a torch student"),
        (["--out", "student.pkl"], "--out"),
        (["--labels", "nowhere.npy"], "nowhere.npy"),
    ],
)
def test_bad_input_is_told_in_one_sentence(
    folder: Path, tmp_path: Path, change: list[str], message: str
) -> None:
    assert message in refused("distil", *files(folder, tmp_path / "s.onnx"), *change)


def test_labels_only_need_no_teacher(folder: Path, tmp_path: Path) -> None:
    arguments = files(folder, tmp_path / "s.onnx")[2:]
    arguments[3] = folder / "some.npy"
    for options in (["--loss", "none"], ["--teacher-weight", 0]):
        view = view_of("distil", *arguments, "--student", "logistic", *options)
        assert (view["teachers"], view["warnings"]) == ([], [])
    assert "give --teacher, or --loss none" in refused("distil", *arguments)
