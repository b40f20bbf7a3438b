"""Teachers on servers, and serving, on the command line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from consilience import SoftLabelClassifier, as_teacher
from consilience.cli.commands import app
from consilience.students.server import ModelServer, ServedModel

pytest.importorskip("httpx")
pytest.importorskip("onnxruntime")

X = np.random.default_rng(0).normal(size=(60, 3))
Y = np.array(["ant", "bee", "cow"])[X.argmax(axis=1)]


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    SoftLabelClassifier("logistic", random_state=0).fit(X, Y).save(tmp_path / "zoo.onnx")
    np.save(tmp_path / "X.npy", X)
    with ModelServer(ServedModel(tmp_path / "zoo.onnx")) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server.url
        server.shutdown()


def test_inspect_shows_the_model_and_not_the_host(url: str) -> None:
    found = json.loads(run("inspect", url, "--json"))
    (teacher,) = found["teachers"]
    assert (teacher["name"], teacher["classes"]) == ("zoo", ["ant", "bee", "cow"])
    assert "127.0.0.1" not in json.dumps(found)


def test_scores_of_an_address_and_of_an_endpoint_file(url: str, tmp_path: Path) -> None:
    (tmp_path / "far.toml").write_text(f'url = "{url}"\n')
    for place, out in ((url, "a.npz"), (tmp_path / "far.toml", "b.npz")):
        printed = run("score", "-t", place, "--data", tmp_path / "X.npy", "--out", tmp_path / out, "--json")
        assert "127.0.0.1" not in printed
        found = as_teacher(tmp_path / out).predict_logits(X)
        np.testing.assert_allclose(found, as_teacher(url).predict_logits(X), atol=1e-6)


def test_a_recipe_keeps_an_address_as_it_is(url: str, tmp_path: Path) -> None:
    recipe, out = tmp_path / "score.toml", tmp_path / "scores.npz"
    run("score", "-t", url, "--data", tmp_path / "X.npy", "--out", out, "--write-config", recipe)
    run("score", "--config", recipe)
    assert as_teacher(out).classes.tolist() == ["ant", "bee", "cow"]


def test_the_folder_for_other_servers(url: str, tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    run("serve", tmp_path / "zoo.onnx", "--write", tmp_path / "repository", "--name", "beasts")
    assert (tmp_path / "repository" / "beasts" / "config.pbtxt").is_file()
