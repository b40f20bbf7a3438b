"""A few seconds of the campaign in every test run, and what it stands on: valid calls, all names, both limits."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("resource")
for extra in ("click", "onnxruntime", "pandas", "polars", "pyarrow", "torch"):
    pytest.importorskip(extra)

from tests.fuzz import calls, campaign  # noqa: E402

import consilience  # noqa: E402


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_valid_calls_have_a_right_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    campaign.make_folder()
    slow = ("consilience unify", "consilience distil", "consilience compare", "consilience demo")
    monkeypatch.setattr("consilience.students.server.ModelServer.serve_forever", lambda _: None)
    for name, call in calls.CALLS.items():
        if name.startswith(slow) or name in (
            "a shelf.remove",
            "consilience cache",
            "consilience repo remove",
        ):
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            campaign.check_answer(name, call.function(**call.valid), bool(caught))


def test_drawn_calls_have_a_right_answer_or_an_error_of_ours() -> None:
    made, found = campaign.campaign(seed=0, n_calls=1000, seconds=8)
    assert made > 20
    assert not found


def test_wrong_answers_are_found() -> None:
    for name, answer in {
        "sinkhorn": np.array([0.5, np.nan]),
        "a unifier.predict_proba": np.array([[0.5, 0.6]]),
        "estimate_soft_labels": np.array([[1.5, -0.5]]),
    }.items():
        with pytest.raises(campaign.Finding):
            campaign.check_answer(name, answer, warned=False)


def test_a_call_without_end_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "SECONDS", 0.0)
    with campaign.Worker() as worker:
        assert worker.ask(0, 1) == "no answer in 0.0 s"


def test_every_public_name_is_tried() -> None:
    """A new public name comes into the campaign by itself, unless it is an error, a warning or a protocol."""
    exempt = {"Teacher", *(name for name in consilience.__all__ if name.endswith(("Error", "Warning")))}
    assert set(consilience.__all__) - exempt <= set(calls.CALLS)
