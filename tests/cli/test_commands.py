"""The command line, as a new user meets it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cli.running import done, refused, run, view_of

from consilience import as_teacher

NAMES = np.array(["setosa", "versicolor", "virginica"])


def command(*arguments: object, cwd: Path | None = None):
    """Run the true command in a process of its own."""
    code = "from consilience.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
    )


@pytest.fixture(scope="module")
def folder(irises: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ONNX teachers of two irises each, scores of the second, unlabelled rows, and what is wrong."""
    root = tmp_path_factory.mktemp("files")
    (root / "wide.csv").write_text("1,2\n3," + "4" * 200_000 + "\n")
    (root / "nul.csv").write_bytes(b"1,2\n3,\x004\n")
    (root / "to_list.json").write_text('{"setosa": ["iris"]}')
    (root / "first.csv").write_text("label\nvirginica\n" + '""\n' * 149)
    (root / "list.json").write_text('["setosa"]')
    shutil.copytree(irises, root, dirs_exist_ok=True)
    np.save(root / "late_scores.npy", np.load(root / "late.npz")["proba"])
    np.savetxt(root / "X.csv", np.load(root / "X.npy"), delimiter=",", header="a,b,c,d", comments="")
    np.savez(root / "stars.npz", proba=np.full((150, 2), 0.5), classes=np.array(["dwarf", "giant"]))
    np.save(root / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (root / "broken.npy").write_bytes(b"nothing of the kind")
    return root


def test_unify_makes_a_model_that_inspect_and_as_teacher_read(folder: Path, tmp_path: Path) -> None:
    out, soft, X = tmp_path / "unified.onnx", tmp_path / "q.npz", np.load(folder / "X.npy")
    y = np.load(folder / "y.npy").astype(object)
    y[::3], y[1:20:3] = "", "rose"
    (tmp_path / "y.csv").write_text("label\n" + "\n".join(f'"{label}"' for label in y) + "\n")
    teachers = ("--teacher", folder / "early.onnx", "--teacher", folder / "late.onnx")
    test = ("--test-data", folder / "X.npy", "--test-labels", tmp_path / "y.csv")
    files = ("--data", folder / "X.npy", "--out", out, "--soft-labels", soft, "--report", tmp_path / "u.html")
    summary = view_of("unify", *teachers, *files, *test, "--student", "logistic")
    assert summary["classes"] == NAMES.tolist()
    assert (summary["n_rows"], summary["n_test"]) == (150, 100)
    assert summary["balanced"]  # since the teachers know different classes
    assert set(summary["seconds"]) == {"scoring", "soft labels", "training"}
    assert (summary["out"], summary["soft_labels"]) == (str(out), str(soft))
    assert sum(summary["pool_weights"].values()) == pytest.approx(1)
    only = ("--data", folder / "X.npy", "--soft-labels", tmp_path / "only.npz")
    untrained = view_of("unify", *teachers, *only)
    for part in ("teachers", "pool_weights", "classes", "n_rows", "method", "temperature"):
        assert untrained[part] == summary[part]  # a student changes nothing about the soft labels
    teacher = as_teacher(out)
    assert teacher.classes.tolist() == NAMES.tolist()
    right = teacher.classes[teacher.predict_logits(X).argmax(axis=1)] == y
    assert summary["accuracy"] == pytest.approx(right[y != ""].mean())  # rows without a label do not count
    assert summary["accuracy"] > 0.7
    remark = "1 class that nobody knows, whose rows count as errors: 'rose' (7 rows)."
    assert [warning["message"] for warning in summary["warnings"]] == [f"--test-labels: {remark}"]
    assert "whose rows count as errors" in (tmp_path / "u.html").read_text()
    view = view_of("inspect", out, soft)
    assert view["overlaps"] == [[3, 3], [3, 3]]
    assert view["components"] == [NAMES.tolist()]


def test_only_soft_labels_train_no_student_and_known_labels_are_pinned(folder: Path, tmp_path: Path) -> None:
    out, labels = tmp_path / "q.npy", folder / "first.csv"
    result = done(
        "unify", "-t", folder / "early.onnx", "-t", folder / "late_scores.npy", "--data", folder / "X.csv",
        "--classes", "late_scores=versicolor,virginica", "--soft-labels", out, "--method", "ce",
        "--labels", labels,
    )  # fmt: skip
    assert "only soft labels were asked for" in result.stdout
    Q = np.load(out, allow_pickle=False)
    assert Q.shape == (150, 3)
    np.testing.assert_allclose(Q.sum(axis=1), 1)
    assert Q[0].tolist() == [0, 0, 1]
    assert (NAMES[Q.argmax(axis=1)] == np.load(folder / "y.npy")).mean() > 0.8
    assert as_teacher(out).classes.tolist() == NAMES.tolist()  # by its card
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q.card.json", "q.npy"]


def test_aliases_join_classes(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "aliases.json"
    path.write_text('{"dwarf": "setosa", "moon": "planet"}')
    view = view_of("inspect", folder / "early.onnx", folder / "stars.npz", "--aliases", path)
    assert len(view["components"]) == 1
    assert view["overlaps"][0][1] == 1
    files = ("--data", folder / "X.npy", "--soft-labels", tmp_path / "q.npz", "--aliases", path)
    unified = view_of("unify", "-t", folder / "early.onnx", "-t", folder / "stars.npz", *files)
    assert unified["classes"] == view["classes"]
    for told in (view, unified):
        assert "these aliases rename: moon." in told["warnings"][0]["message"]


def test_teachers_of_one_stem_are_told_apart_by_folder_and_capitals_do_not_matter(
    folder: Path, tmp_path: Path
) -> None:
    for site, source in (("a", "early"), ("b", "late")):
        (tmp_path / site).mkdir()
        (tmp_path / site / "MODEL.ONNX").write_bytes((folder / f"{source}.onnx").read_bytes())
    view = view_of("inspect", tmp_path / "a/MODEL.ONNX", tmp_path / "b/MODEL.ONNX")
    found = [(teacher["name"], teacher["kind"]) for teacher in view["teachers"]]
    assert found == [("a/MODEL", "onnx"), ("b/MODEL", "onnx")]


BAD = {
    "missing teacher": ("inspect no.onnx", "No such file"),
    "wrong teacher": ("inspect X.csv", "a teacher's file ends in"),
    "no classes": ("inspect late_scores.npy", "Give --classes one name per column"),
    "unknown name": ("inspect early.onnx --classes erly=a,b", "the teachers are early"),
    "no listing": ("inspect early.onnx --classes early", "is not NAME=A,B,C"),
    "same file twice": ("inspect early.onnx early.onnx", "given twice"),
    "no such command": ("inspekt", "Did you mean 'inspect'?"),
    "no data": ("unify -t early.onnx", "Missing option '--data'"),
    "nothing to write": ("unify -t early.onnx --data X.npy", "Nothing to write"),
    "pickled data": (
        "unify -t early.onnx --data objects.npy --soft-labels q.npy",
        "would have to be unpickled",
    ),
    "broken data": ("unify -t early.onnx --data broken.npy --soft-labels q.npy", "cannot be read"),
    "text data": ("unify -t early.onnx --data y.npy --soft-labels q.npy", "expected numbers"),
    "missing data": ("unify -t early.onnx --data no.npy --soft-labels q.npy", "does not exist"),
    "off-set without ce": (
        "unify -t early.onnx --data X.npy --soft-labels q.npy --off-set",
        "--off-set is an option of --method ce.",
    ),
    "wrong out": ("unify -t early.onnx --data X.npy --out u.pkl", "--out writes .onnx"),
    "no folder": ("unify -t early.onnx --data X.npy --out no/u.onnx", "Make it first"),
    "one card for two": (
        "unify -t early.onnx --data X.npy --out u.onnx --soft-labels u.npy",
        "different names",
    ),
    "method": ("unify -t early.onnx --data X.npy --out u.onnx --method mfp", "Did you mean 'mf-p'?"),
    "backprop": (
        "unify -t early.onnx --data X.npy --soft-labels q.npy --student torch --train backprop",
        "estimates no soft labels",
    ),
    "temperature": (
        "unify -t early.onnx --data X.npy --out u.onnx --temperature 0",
        "--temperature 0.0 must be",
    ),
    "half a test": (
        "unify -t early.onnx --data X.npy --out u.onnx --test-data X.npy",
        "--test-data needs --test-labels",
    ),
    "test labels": (
        "unify -t early.onnx --data X.npy --out u.onnx --test-data X.npy --test-labels X.npy",
        "--test-labels: X.npy has shape (150, 4)",
    ),
    "test data": (
        "unify -t early.onnx --data X.npy --out u.onnx --test-data y.npy --test-labels y.npy",
        "--test-data: y.npy",
    ),
    "no model to test": (
        "unify -t early.onnx --data X.npy --soft-labels q.npy --test-data X.npy",
        "needs --",
    ),
    "a test without a model": (
        "unify -t early.onnx --data X.npy --soft-labels q.npy --test-data X.npy --test-labels y.npy",
        "needs --",
    ),
    "figure": ("demo --plot figure.gif", "--plot writes .png"),
    "large cell": ("cluster --data wide.csv --clusters 2 --out c.npy", "Input X contains infinity"),
    "NUL in a table": ("cluster --data nul.csv --clusters 2 --out c.npy", "no numbers: 1."),
    "aliases to a list": ("inspect early.onnx --aliases to_list.json", "['iris']"),
    "aliases of a list": ("inspect early.onnx --aliases list.json", "must hold a JSON object"),
    "seed": ("demo --seed -1", "--seed -1 must be a whole number of at least 0"),
    "large seed": ("demo --seed 99999999999", "--seed 99999999999 must be a whole number of at most"),
    "remedy": (
        "unify -t early.onnx --data X.npy --out u.onnx --method sd --student torch --train backprop",
        "--method 'sd' has no loss of its own that a network could learn; use --train 'estimate'.",
    ),
}


@pytest.mark.parametrize(("words", "expected"), BAD.values(), ids=BAD)
def test_bad_input_exits_2_with_one_sentence(
    words: str, expected: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    assert expected in refused(*words.split())
    assert sorted(folder.iterdir()) == before


def test_warnings_of_the_library_only(folder: Path, tmp_path: Path) -> None:
    result = run(
        "unify", "-t", folder / "early.onnx", "-t", folder / "stars.npz", "--data", folder / "X.npy",
        "--soft-labels", tmp_path / "q.npy", "--json", "--quiet",
    )  # fmt: skip
    assert json.loads(result.stdout)["n_classes"] == 4
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("Warning: The teachers fall into 2 groups")


COMMANDS = [
    *("demo", "inspect", "score", "compare", "unify", "evaluate", "rank", "distil", "cluster", "verify"),
    *("predict", "serve", "cache", "repo"),
]


def test_help_lists_the_commands_in_the_order_of_work() -> None:
    result = run("--help")
    assert result.exit_code == 0
    listed = [
        line.split()[0] for line in result.stdout.partition("Commands:")[2].splitlines() if line[2:3].strip()
    ]
    assert listed == COMMANDS
    assert "consilience demo" in result.stdout


def test_help_and_version_import_nothing_slow() -> None:
    code = (
        "import sys\nfrom consilience.cli.app import app\n"
        "for arguments in (['--help'], ['rank', '--help'], ['--version']):\n"
        "    try: app(arguments)\n"
        "    except SystemExit as end: assert end.code == 0, end.code\n"
        "slow = ('numpy', 'sklearn', 'torch', 'numba', 'scipy', 'matplotlib')\n"
        "print([name for name in slow if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stdout.splitlines()[-2].startswith("consilience ")


def test_without_click_one_sentence() -> None:
    code = "import sys; sys.modules['click'] = None\nfrom consilience.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "The command line needs click and rich: pip install 'consilience[cli]'.\n"


EVIL = "cat\x1b]0;owned\x07\x1b[2J\x9b31m"


def test_escape_sequences_in_names_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    np.savez(tmp_path / "evil.npz", proba=np.full((4, 2), 0.5), classes=[EVIL, "dog"])
    for more in ((), ("--json",)):
        result = done("inspect", tmp_path / "evil.npz", *more)
        assert not any((c < " " and c != "\n") or "\x7f" <= c <= "\x9f" for c in result.stdout)
    assert json.loads(result.stdout)["classes"] == [EVIL, "dog"]
    np.save(tmp_path / "X.npy", np.zeros((4, 1)))
    files = ("--data", tmp_path / "X.npy", "--soft-labels", tmp_path / "q.npz")
    said = refused("unify", "-t", tmp_path / "evil.npz", *files, "--classes", f"evil={EVIL},{EVIL}")
    assert "\x1b" not in said
    assert "\\x1b" in said


def test_a_terminal_that_lacks_a_letter_gets_it_written_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("PYTHONUTF8", "0")
    np.savez(tmp_path / "seas.npz", proba=np.full((4, 2), 0.5), classes=["Kattegat", "北海"])
    good = command("inspect", "seas.npz", "--json", "--quiet", cwd=tmp_path)
    assert (good.returncode, good.stderr) == (0, "")
    assert r"\u5317\u6d77" in good.stdout
    assert json.loads(good.stdout)["classes"] == ["Kattegat", "北海"]
    bad = command("inspect", "北海.npz", "--quiet", cwd=tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith(r"Error: Teacher '\u5317\u6d77' cannot be used")
