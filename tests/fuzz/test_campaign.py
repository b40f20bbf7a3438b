"""A few seconds of the campaign in every test run, and what it stands on: valid calls, and all names."""

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("resource")
for extra in ("click", "onnxruntime", "pandas", "polars", "pyarrow", "torch"):
    pytest.importorskip(extra)

from tests.fuzz import calls, campaign  # noqa: E402

import consilience  # noqa: E402

SKIPPED = [f"consilience {name}" for name in ("demo", "cache", "unify", "distil", "compare")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        calls.make_files()
    return folder


@pytest.mark.parametrize("name", calls.CALLS)
def test_valid_calls_have_a_right_answer(
    name: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in SKIPPED:
        pytest.skip("takes long, and tests/cli has it")
    shutil.copytree(files, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("consilience.students.server.ModelServer.serve_forever", lambda _: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        campaign.check_answer(name, calls.CALLS[name].function(**calls.CALLS[name].valid), caught)


def test_drawn_calls_have_a_right_answer_or_an_error_of_ours() -> None:
    made, wrong = campaign.campaign(seed=0, n_calls=300, seconds=5)
    assert made
    assert not wrong


def test_wrong_answers_are_found() -> None:
    for name, answer in {
        "sinkhorn": np.array([0.5, np.nan]),
        "a unifier.predict_proba": np.array([[0.5, 0.6]]),
        "estimate_soft_labels": np.array([[1.5, -0.5]]),
    }.items():
        with pytest.raises(campaign.WrongAnswerError):
            campaign.check_answer(name, answer, [])


def test_every_public_name_is_tried() -> None:
    """A new public name comes into the campaign by itself, unless it is an error, a warning or a protocol."""
    exempt = {"Teacher", *(name for name in consilience.__all__ if name.endswith(("Error", "Warning")))}
    assert set(consilience.__all__) - exempt <= set(calls.CALLS)
