"""Teachers on servers, and serving, on the command line."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.cli.running import done, run, view_of
from tests.teachers.remote_server import CLASSES, Server, serving

from consilience import Repository, SoftLabelClassifier, as_teacher
from consilience.students.server import ModelServer, ServedModel

pytest.importorskip("httpx")
pytest.importorskip("onnxruntime")

X = np.random.default_rng(0).normal(size=(60, 3))
Y = np.array(["ant", "bee", "cow"])[X.argmax(axis=1)]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    SoftLabelClassifier("logistic", random_state=0).fit(X, Y).save(tmp_path / "zoo.onnx")
    np.save(tmp_path / "X.npy", X)
    with ModelServer(ServedModel(tmp_path / "zoo.onnx")).start() as server:
        yield server.url


def test_inspect_shows_the_model_and_not_the_host(url: str) -> None:
    found = view_of("inspect", url)
    (teacher,) = found["teachers"]
    assert (teacher["name"], teacher["classes"]) == ("zoo", ["ant", "bee", "cow"])
    assert "127.0.0.1" not in json.dumps(found)


def test_scores_of_an_address_and_of_an_endpoint_file(url: str, tmp_path: Path) -> None:
    (tmp_path / "far.toml").write_text(f'url = "{url}"\n')
    for place, out in ((url, "a.npz"), (tmp_path / "far.toml", "b.npz")):
        printed = done("score", "-t", place, "--data", tmp_path / "X.npy", "--out", tmp_path / out, "--json")
        assert "127.0.0.1" not in printed.stdout
        found = as_teacher(tmp_path / out).predict_logits(X)
        np.testing.assert_allclose(found, as_teacher(url).predict_logits(X), atol=1e-6)


def test_a_recipe_keeps_an_address_as_it_is(url: str, tmp_path: Path) -> None:
    recipe, out = tmp_path / "score.toml", tmp_path / "scores.npz"
    done("score", "-t", url, "--data", tmp_path / "X.npy", "--out", out, "--write-config", recipe)
    done("score", "--config", recipe)
    assert as_teacher(out).classes.tolist() == ["ant", "bee", "cow"]


def test_the_folder_for_other_servers(url: str, tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    done("serve", tmp_path / "zoo.onnx", "--write", tmp_path / "repository", "--name", "beasts")
    assert (tmp_path / "repository" / "beasts" / "config.pbtxt").is_file()


TOKEN = "s3cr3t-t0k3n-of-the-zoo"  # noqa: S105
LEAKS = {"the token": TOKEN.encode(), "the host": b"127.0.0.1"}


def test_no_secret_host_or_path_is_in_anything_that_a_run_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs write a cache, a model, a card, soft labels, a page, JSON and logs; then all of it is read."""
    pytest.importorskip("jinja2")
    rows = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONSILIENCE_ZOO", TOKEN)
    np.save("X.npy", rows)
    np.save("y.npy", np.array(CLASSES)[np.arange(300) % 3])
    SoftLabelClassifier("logistic", random_state=0).fit(
        rows, np.array(["bee", "dog"])[np.arange(300) % 2]
    ).save("pets.onnx")
    zoo = Server()
    with serving(zoo) as url:
        Path("far.toml").write_text(f'url = "{url}"\ntoken_env = "CONSILIENCE_ZOO"\nretries = 1\n')
        before = set(tmp_path.rglob("*"))
        words = "-t far.toml -t pets.onnx --data X.npy --student logistic --cache cache --log json --json"
        outputs = (
            "--out out.onnx --soft-labels q.npy --report page.html --test-data X.npy --test-labels y.npy"
        )
        printed = {"unify": run("unify", *words.split(), *outputs.split())}
        for command in (
            "rank -t far.toml -t pets.onnx --data X.npy --labels y.npy --cache cache --log json --json",
            "score -t far.toml --data X.npy --out scores.npz --log json --json",
            "inspect far.toml --log json --json",
            "unify -t far.toml -t pets.onnx --data X.npy --out again.onnx --write-config recipe.toml",
        ):
            printed[command] = run(*command.split())
        assert [one.exit_code for one in printed.values()] == [0] * 5, printed
        Repository("models").add("out.onnx", description="A zoo.").to_dict()
        zoo.fault = lambda handler, request: (
            handler.send(503, {"error": f"{TOKEN} at {handler.client_address}"}) or True
        )
        for flag in ("--log json", "--log text"):
            failed = run(*f"score -t far.toml --data X.npy --out no.npz {flag}".split())
            assert failed.exit_code != 0
            printed[f"failed {flag}"] = failed
    assert {seen.get("Authorization") for seen in zoo.headers} == {f"Bearer {TOKEN}"}
    written = {path: path.read_bytes() for path in set(tmp_path.rglob("*")) - before if path.is_file()}
    names = {path.relative_to(tmp_path).parts[0] for path in written}
    assert {
        "cache",
        "out.onnx",
        "out.card.json",
        "q.npy",
        "q.card.json",
        "page.html",
        "recipe.toml",
        "models",
    } <= names
    texts = {name: f"{one.stdout}{one.stderr}".encode() for name, one in printed.items()}
    for where, content in {**written, **texts}.items():
        for what, leak in {**LEAKS, "a path": str(tmp_path).encode()}.items():
            assert leak not in content, f"{what} is in {where}"
            assert leak not in str(where).removeprefix(str(tmp_path)).encode()
