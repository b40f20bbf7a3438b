"""Ctrl-C and kill -9 lose at most a batch: the same call goes on, to the same result."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests import killed_run


@pytest.mark.parametrize(
    ("verb", "when", "by"),
    [
        ("unify", "scoring", "SIGKILL"),
        ("distil", "scoring", "SIGINT"),
        ("distil", "training", "SIGKILL"),
    ],
)
def test_the_same_call_goes_on(
    verb: str, when: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, values in killed_run.small_steps().items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    killed, left_alone = tmp_path / "killed", tmp_path / "alone"
    killed.mkdir()
    left_alone.mkdir()
    ended = subprocess.run(
        [sys.executable, killed_run.__file__, verb, killed, when, by], capture_output=True, check=False
    )
    assert ended.returncode in (-getattr(signal, by), 130), ended.stderr.decode()
    log, epochs = killed / "asked", killed / "epochs"
    before = log.read_text().split()
    if when == "scoring":
        assert killed_run.N / 2 <= len(before) < killed_run.N
    else:
        assert epochs.read_text().split() == ["1", "2", "3"]
        epochs.unlink()
    found = killed_run.run(verb, killed)
    np.testing.assert_allclose(found, killed_run.run(verb, left_alone), atol=1e-6)
    after = log.read_text().split()[len(before) :]
    assert len(set(before) & set(after)) <= (killed_run.BATCH if when == "scoring" else 0)
    assert len({*before, *after}) == killed_run.N
    if when == "training":
        assert epochs.read_text().split()[0] in ("3", "4")  # the checkpoint of epoch 2 or 3
        assert not list((killed / "cache").glob("training-*"))
