"""Experiments on data that need no file: the generated classes, and the options of the clustering tables."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.papers import cluster
from benchmarks.papers.sources import load


def test_generated_classes_come_in_groups_and_are_always_the_same() -> None:
    source = load("generated")
    assert np.array_equal(source.X, load("generated").X)
    groups = np.array(source.superclasses)
    assert len(groups) == len(np.unique(source.y)) == 20
    centres = np.stack([source.X[source.y == k].mean(axis=0) for k in range(20)])
    apart = ((centres[:, None] - centres) ** 2).sum(axis=2)
    same = groups[:, None] == groups
    others = ~np.eye(20, dtype=bool)
    assert apart[same & others].mean() < 0.7 * apart[~same].mean()


def read(folder: Path, name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_clusters_by_the_papers_protocol_are_trials_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--rows", "150", "--trials", "1", "--results", str(tmp_path), "--resume"]
    cluster.main([*words, "--protocol", "paper"])
    cluster.main(words)
    cluster.main(words)
    assert capsys.readouterr().out.count("1 of 1 trials to run") == 2  # the third finds its trial
    ours, plain = read(tmp_path, "cluster.jsonl")
    assert ours["setting"] == {"data": "digits", "rows": 150, "table": "clusters", "protocol": "paper"}
    assert ours["scores"] != plain["scores"]
    page = cluster.render([ours, plain])
    assert "### Clusters, the paper's protocol, digits" in page
    assert "### Clusters, digits" in page
