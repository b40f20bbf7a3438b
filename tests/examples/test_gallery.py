"""The examples of the gallery run, show what they promise, and draw it."""

import os
import runpy
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

plt = pytest.importorskip("matplotlib.pyplot")
for package in ("torch", "pandas", "onnxruntime", "skl2onnx", "httpx"):
    pytest.importorskip(package)

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "gallery"
EXAMPLES = sorted(path.stem.removeprefix("plot_") for path in FOLDER.glob("plot_*.py"))
MODULES = Path(os.environ.get("CONSILIENCE_NODE_MODULES") or ROOT / "node_modules")
SLOW = {"name_the_clusters", "out_of_memory"}  # of about ten seconds each
Names = dict[str, Any]


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Draw without a screen, and keep styles, figures, random numbers and files of an example to itself."""
    import torch

    monkeypatch.setattr(plt, "show", lambda: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    plt.switch_backend("agg")
    with plt.rc_context(), torch.random.fork_rng():
        plt.close("all")
        yield
        plt.close("all")


def run(name: str, seed: int = 0) -> Names:
    """Run an example with another seed. Return what it computed."""
    path = FOLDER / f"plot_{name}.py"
    code = path.read_text(encoding="utf8")
    assert "default_rng(0)" in code
    for call in ("default_rng", "manual_seed"):
        code = code.replace(f"{call}(0)", f"{call}({seed})")
    names: Names = {"__name__": "__main__"}
    exec(compile(code, path, "exec"), names)  # noqa: S102  (our own file)
    return names


def best_but(accuracy: dict[str, Any], name: str) -> Any:
    """Return the best accuracy of all others, place by place."""
    return np.max([value for key, value in accuracy.items() if key != name], axis=0)


def three_sites(found: Names) -> None:
    assert found["accuracy"]["unified"] > best_but(found["accuracy"], "unified") + 0.1
    assert found["knows"].sum(axis=1).tolist() == [3, 2, 3, 5]


def disjoint_label_sets(found: Names) -> None:
    paper, default = found["accuracy"].values()
    assert default > paper + 0.1
    assert "share no class" in str(found["caught"][0].message)


def torch_loop(found: Names) -> None:
    assert np.mean(found["ours_accuracy"][-10:]) > np.mean(found["naive_accuracy"][-10:]) + 0.08
    assert len(np.unique(found["answer"])) == 6  # the student's map


def onnx_and_browser(found: Names) -> None:
    assert found["difference"] < 1e-6
    assert found["accuracy"] > 0.85
    written = {path.name for path in found["folder"].iterdir()}
    assert written == {"low.onnx", "high.onnx", "unified.onnx", "unified.card.json", "index.html"}


def rank_repository(found: Names) -> None:
    truth, result = found["truth"], found["found"]
    assert result.n_run == 4 < len(truth) == 18
    assert truth[result.best.name] > found["baseline"] + 0.02
    assert found["correlation"] > 0.7
    assert all("random labels" not in name for name in list(result.matches)[:9])


def poisoned_teacher(found: Names) -> None:
    name = "teachers earn their weight"
    assert (found["accuracy"][name] > best_but(found["accuracy"], name) + 0.01).all()
    assert ((np.array(found["weights"]) > 0).any(axis=0) == [True, True, False]).all()


def name_the_clusters(found: Names) -> None:
    assert found["accuracy"]["all rows"] > found["accuracy"]["labelled rows only"] + 0.05
    assert len(found["chosen"]) == 17  # 1 %


def noisy_labels(found: Names) -> None:
    gain = np.subtract(found["robust"], found["plain"])
    assert (gain > [-0.03, 0.04, 0.05, 0.1, 0.2]).all()
    np.testing.assert_allclose(found["estimated"], found["rates"], atol=0.12)
    assert (found["noisy"] != found["y"])[found["suspicious"]].mean() > 0.5


def language_identification(found: Names) -> None:
    assert (found["accuracy"]["unified"] > best_but(found["accuracy"], "unified") + 0.1).all()
    right = found["unified"].predict(list(found["proverbs"])) == list(found["proverbs"].values())
    assert right.sum() >= 5


def out_of_memory(found: Names) -> None:
    (small, _, at_once), (first, _, by_blocks) = found["peaks"].values()
    assert by_blocks < 0.6 * at_once
    assert at_once > 3.5 * small
    assert by_blocks < 2.5 * first  # five times the rows
    assert found["agreement"] > 0.99


def remote_teacher(found: Names) -> None:
    assert found["accuracy"]["unified"] > best_but(found["accuracy"], "unified") + 0.08
    local = found["secret"].predict(found["X"][found["unlabelled"]])
    assert (found["said"]["laboratory (remote)"] == local).all()


def suggested_aliases(found: Names) -> None:
    pairs = {frozenset((pair.alias, pair.name)) for pair in found["found"].same_class}
    true = {frozenset(pair) for pair in zip(found["ENGLISH"][2:8], found["GERMAN"][2:8], strict=True)}
    assert pairs <= true
    assert len(pairs) >= 4
    assert len(found["unified"].classes_) == len(found["without"].classes_) - len(pairs)


def transport_plan(found: Names) -> None:
    goes = dict(zip(found["teacher"].classes, found["classes"][found["plan"].argmax(axis=1)], strict=True))
    assert [goes[word] for word in ("three", "four", "seven", "one")] == ["my 3", "my 4", "my 7", "my 8"]
    np.testing.assert_allclose(found["plan"].sum(axis=0), found["shares"], atol=1e-3)


CLAIMS: dict[str, Callable[[Names], None]] = {
    claim.__name__: claim
    for claim in (
        three_sites,
        disjoint_label_sets,
        torch_loop,
        onnx_and_browser,
        rank_repository,
        poisoned_teacher,
        name_the_clusters,
        noisy_labels,
        language_identification,
        out_of_memory,
        remote_teacher,
        suggested_aliases,
        transport_plan,
    )
}


def test_every_example_has_a_claim_and_a_place_in_the_gallery() -> None:
    order = runpy.run_path(str(ROOT / "docs" / "_ext" / "gallery_order.py"))
    assert sorted(CLAIMS) == sorted(order["ORDER"]) == EXAMPLES
    place = order["GalleryOrder"]("examples/gallery")
    assert place("plot_three_sites.py") < place("plot_noisy_labels.py") < place("plot_new.py")


@pytest.mark.usefixtures("drawing")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name in SLOW else ()) for name in EXAMPLES]
)
def test_an_example_shows_what_it_claims_in_figures(name: str) -> None:
    CLAIMS[name](run(name))
    assert plt.get_fignums()
    for number in plt.get_fignums():
        figure = plt.figure(number)
        figure.canvas.draw()  # a warning, such as of a missing character, is an error
        assert np.asarray(figure.canvas.buffer_rgba())[..., :3].std() > 5
        assert figure.get_suptitle() or any(axis.get_title() for axis in figure.axes)


@pytest.mark.nightly
@pytest.mark.usefixtures("drawing")
@pytest.mark.parametrize("name", EXAMPLES)
def test_claims_do_not_hang_on_the_seed(name: str) -> None:
    CLAIMS[name](run(name, seed=1))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.mark.skipif(
    not (MODULES / "onnxruntime-web").is_dir(),
    reason="no onnxruntime-web: set CONSILIENCE_NODE_MODULES to the folder node_modules that has it",
)
@pytest.mark.usefixtures("drawing")
def test_the_page_reads_digits_in_a_browser(browser: Any) -> None:
    found = run("onnx_and_browser")
    shutil.copytree(MODULES / "onnxruntime-web" / "dist", found["folder"] / "dist")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=found["folder"])) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.get(f"http://127.0.0.1:{server.server_address[1]}/index.html")
        script = "pixels.set(arguments[0]); read().then(arguments[1], (error) => arguments[1](String(error)))"
        probabilities = browser.execute_async_script(script, found["X"][found["test"]][0].tolist())
        np.testing.assert_allclose(probabilities, found["probabilities"][0], atol=1e-5)
        assert browser.find_element("tag name", "output").text == str(found["label"][0])
        server.shutdown()
