"""What the package promises as a whole: names, lazy imports, import time, documents that tell the truth."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import consilience

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "onnx", "onnxruntime", "ray", "matplotlib", "sklearn", "numba", "pandas")


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, consilience; print([m for m in {HEAVY} if m in sys.modules])"
    assert python(code) == "[]"


def test_importing_the_package_takes_less_than_a_second() -> None:
    code = "import time; t = time.perf_counter(); import consilience; print(time.perf_counter() - t)"
    assert min(float(python(code)) for _ in range(3)) < 1.0


def test_using_the_estimators_with_scikit_learn_loads_no_torch() -> None:
    code = (
        "import sys, numpy as np; from consilience import Unifier, as_teacher;"
        "t = as_teacher(lambda X: X[:, :2], ['a', 'b'], output='logits');"
        "Unifier([t], 'logistic').fit(np.eye(6)).predict(np.eye(6));"
        "from consilience import CollisionClassifier;"
        "CollisionClassifier(noise=0.2).fit(np.eye(4), [0, 1, 0, 1]).predict(np.eye(4));"
        "print([m for m in ('torch', 'onnx', 'onnxruntime', 'ray', 'matplotlib') if m in sys.modules])"
    )
    assert python(code) == "[]"


def test_every_public_name_exists_and_says_what_it_is() -> None:
    assert len(set(consilience.__all__)) == len(consilience.__all__) <= 36
    assert set(consilience.__all__) == set(consilience._EXPORTS)
    for name in consilience.__all__:
        value = getattr(consilience, name)
        assert inspect.getdoc(value), name
        assert name in dir(consilience)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'unfy'"):
        _ = consilience.unfy


def test_every_option_is_documented() -> None:
    names = ("LabelSpace", "as_teacher", "estimate_soft_labels", "Unifier", "Card")
    names += (
        "CollisionClassifier",
        "collision_cross_entropy",
        "collision_pseudo_labels",
        "CollisionClustering",
        "CrossTaskDistiller",
        "SoftLabelClassifier",
        "class_centres",
        "cost_matrix",
        "suggest_aliases",
    )
    for name in names:
        value = getattr(consilience, name)
        text = inspect.getdoc(value) or ""
        for option in inspect.signature(value).parameters:
            assert re.search(rf"^{option}\b.* : |^{option}, |, {option} : ", text, re.M), (name, option)


def test_the_version_is_one() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf8")
    assert f'version = "{consilience.__version__}"' in text
    assert f"## {consilience.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf8")


def test_no_source_file_unpickles_or_evaluates() -> None:
    banned = re.compile(
        r"\bimport pickle\b|allow_pickle=True|weights_only=False|(?<![\w.])(eval|exec)\(|joblib\.load"
    )
    for source in (ROOT / "src").rglob("*.py"):
        assert not banned.search(source.read_text(encoding="utf8")), source


def test_nobody_reads_the_prose_of_errors_back() -> None:
    """Errors carry data. Code that words them for others must not search their text."""
    for name in ("cli/app.py", "scoring/blocks.py", "exceptions.py"):
        source = (ROOT / "src" / "consilience" / name).read_text()
        assert not re.search(r"^import re$|^from re import", source, re.MULTILINE), name
