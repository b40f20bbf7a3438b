"""The whole text that each command shows for a view; every figure of a view differs from the others."""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from typing import Any

import pytest

pytest.importorskip("rich")
pytest.importorskip("typer")

from consilience.cli import console
from consilience.cli.commands.distil import show_distilled
from consilience.cli.commands.rank import show_ranking

Shown = Callable[..., str]


@pytest.fixture(autouse=True)
def pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the output be 110 columns wide and without colours, wherever the tests run."""
    monkeypatch.setenv("COLUMNS", str(console.WIDTH))
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    """Return a function that draws a view and returns its text, without the spaces at the ends of lines."""

    def draw(show: Callable[[Any], None], view: Any) -> str:
        show(view)
        captured = capsys.readouterr()
        assert captured.err == ""
        return "\n".join(line.rstrip() for line in captured.out.splitlines()).strip("\n")

    return draw


SPACE: dict[str, Any] = {
    "n_classes": 8,
    "classes": list("abcdefgh"),
    "teachers": [
        {"name": "x[b]", "kind": "onnx", "n_classes": 4, "classes": ["a", "b", "c", "d"]},
        {"name": "y", "kind": "npy", "n_classes": 3, "classes": ["c", "d", "e"]},
        {"name": "z", "kind": "npz", "n_classes": 13, "classes": [f"k{i}" for i in range(13)]},
    ],
    "overlaps": [[4, 2, 0], [2, 3, 0], [0, 0, 13]],
    "only_one_teacher": {"x[b]": ["a", "b"], "y": [], "z": ["f"]},
    "components": [["a", "b", "c", "d", "e"], ["f", "g", "h"]],
}


def test_space(shown: Shown) -> None:
    assert shown(console.show_space, SPACE) == cleandoc(
        """
        8 classes from 3 teachers

         teacher   file   classes   which
         ────────────────────────────────────────────────────────────────────────────
         x[b]      onnx         4   a, b, c, d
         y         npy          3   c, d, e
         z         npz         13   k0, k1, k2, k3, k4, k5, k6, k7, k8, k9 and 3 more


        Shared classes

                x[b]   y    z
         ────────────────────
         x[b]      4   2    ·
         y         2   3    ·
         z         ·   ·   13


        Only x[b] knows a, b.
        Only z knows f.
        2 components, which share no classes:
          a, b, c, d, e
          f, g, h
        """
    ) + (
        "\nTheir outputs for a row do not determine how mass splits between them. "
        "The methods 'auto' and 'ranks' compare the groups by ranks, if every class occurs in X. "
        "The other methods give each group mass in proportion to its number of classes."
    )


def test_space_of_one_component(shown: Shown) -> None:
    view = {
        "n_classes": 2,
        "classes": ["a", "b"],
        "teachers": [
            {"name": name, "kind": "npy", "n_classes": 2, "classes": ["a", "b"]} for name in ("x", "y")
        ],
        "overlaps": [[2, 2], [2, 2]],
        "only_one_teacher": {"x": [], "y": []},
        "components": [["a", "b"]],
    }
    assert shown(console.show_space, view) == cleandoc(
        """
        2 classes from 2 teachers

         teacher   file   classes   which
         ────────────────────────────────
         x         npy          2   a, b
         y         npy          2   a, b


        Shared classes

             x   y
         ─────────
         x   2   2
         y   2   2


        At least two teachers know every class.
        One component: the teachers determine the probabilities of all classes.
        """
    )


UNIFIED: dict[str, Any] = {
    "teachers": [
        {"name": "birds", "kind": "onnx", "n_classes": 2, "abstentions": 5, "temperature": 1.254},
        {"name": "[pets]", "kind": "npz", "n_classes": 3, "abstentions": 0, "temperature": 0.676},
    ],
    "n_classes": 4,
    "classes": ["cat", "dog", "[i]", "wren"],
    "n_rows": 30,
    "n_labels": 7,
    "method": "auto",
    "train": "estimate",
    "temperature": 1.0,
    "pool_weights": {"ranks": 0.254, "mf-lf": 0.746},
    "neighbor_weight": 0.336,
    "calibrated": True,
    "off_set": True,
    "seed": 9,
    "student": "LogisticRegression",
    "encoding": None,
    "balanced": True,
    "accuracy": 0.8127,
    "n_test": 16,
    "seconds": {"scoring": 1.26, "soft labels": 0.04, "training": 12.0},
    "out": "u.onnx",
    "soft_labels": "q.npz",
    "report": "[u].html",
}


def test_unified(shown: Shown) -> None:
    assert shown(console.show_unified, UNIFIED) == cleandoc(
        """
         teacher   file   classes    abstains on   temperature
         ─────────────────────────────────────────────────────
         birds     onnx         2   5 of 30 rows          1.25
         [pets]    npz          3   0 of 30 rows          0.68


        classes      4: cat, dog, [i], wren
        rows         30, 7 of them labelled
        method       auto (ranks 25%, mf-lf 75%), off-set weighting, calibrated, neighbours 34%, balanced
        student      LogisticRegression
        seconds      scoring 1.3, soft labels 0.0, training 12.0
        accuracy     81.3% of 16 test rows
        model        u.onnx
        soft labels  q.npz
        report       [u].html
        """
    )


def test_unified_soft_labels_only(shown: Shown) -> None:
    plain = {"pool_weights": None, "method": "ce", "calibrated": False, "off_set": False, "balanced": False}
    plain |= {"neighbor_weight": 0.0}
    absent = {"student": None, "accuracy": None, "n_test": 0, "out": None, "report": None}
    assert shown(console.show_unified, UNIFIED | plain | absent) == cleandoc(
        """
         teacher   file   classes    abstains on
         ───────────────────────────────────────
         birds     onnx         2   5 of 30 rows
         [pets]    npz          3   0 of 30 rows


        classes      4: cat, dog, [i], wren
        rows         30, 7 of them labelled
        method       ce
        student      none: only soft labels were asked for
        seconds      scoring 1.3, soft labels 0.0, training 12.0
        soft labels  q.npz
        """
    )


@pytest.mark.parametrize(
    ("flag", "note"),
    [
        ("off_set", "off-set weighting"),
        ("calibrated", "calibrated"),
        ("neighbor_weight", "neighbours 100%"),
        ("balanced", "balanced"),
    ],
)
def test_each_note_has_its_own_flag(shown: Shown, flag: str, note: str) -> None:
    off = {"pool_weights": None, "calibrated": False, "off_set": False, "balanced": False}
    off |= {"neighbor_weight": 0.0}
    assert f"\nmethod       auto, {note}\n" in shown(console.show_unified, UNIFIED | off | {flag: True})


CLUSTERS: dict[str, Any] = {
    "n_rows": 40,
    "n_features": 1,
    "n_clusters": 3,
    "loss": "mi",
    "seed": 6,
    "clusters": [
        {"cluster": 0, "rows": 25, "share": 0.625, "confidence": 0.913, "labelled": 4},
        {"cluster": 1, "rows": 15, "share": 0.375, "confidence": 0.72, "labelled": 3},
        {"cluster": 2, "rows": 0, "share": 0.0, "confidence": None, "labelled": 0},
    ],
    "n_labels": 7,
    "objective": -0.56789,
    "n_iter": 17,
    "agreement": {"n_rows": 33, "accuracy": 0.8484, "nmi": 0.5126, "ari": -0.0314},
    "out": "[found].npy",
    "report": None,
}


def test_clusters(shown: Shown) -> None:
    assert shown(console.show_clusters, CLUSTERS) == cleandoc(
        """
         cluster   rows   share   mean confidence   labelled rows
         ────────────────────────────────────────────────────────
               0     25   62.5%             91.3%               4
               1     15   37.5%             72.0%               3
               2      0    0.0%                                 0


        rows      40 of 1 feature
        loss      mi, -0.5679 after 17 rounds
        clusters  [found].npy
        accuracy  84.8% of 33 rows, best match
        NMI       0.513
        ARI       -0.031
        """
    )


@pytest.mark.parametrize("agreement", [None, {"n_rows": 0, "accuracy": None, "nmi": None, "ari": None}])
def test_clusters_without_labels_or_truth(shown: Shown, agreement: dict[str, Any] | None) -> None:
    view = CLUSTERS | {"n_labels": 0, "agreement": agreement, "n_features": 12, "n_iter": 1}
    assert shown(console.show_clusters, view) == cleandoc(
        """
         cluster   rows   share   mean confidence
         ────────────────────────────────────────
               0     25   62.5%             91.3%
               1     15   37.5%             72.0%
               2      0    0.0%


        rows      40 of 12 features
        loss      mi, -0.5679 after 1 round
        clusters  [found].npy
        """
    )


DEMO: dict[str, Any] = {
    "sites": [
        {"name": "north", "model": "SVM", "rows": 81, "classes": ["0", "1"], "own_accuracy": 0.91,
         "accuracy": 0.23},
        {"name": "south", "model": "tree", "rows": 72, "classes": ["2"], "own_accuracy": 0.885,
         "accuracy": 0.114},
    ],
    "variants": [
        {"name": "SD", "family": "E", "accuracy": 0.813, "label_accuracy": 0.79, "seconds": 1.04},
        {"name": "SD-BS", "family": "BS", "accuracy": 0.826, "label_accuracy": 0.805, "seconds": 3.3},
        {"name": "CE-BP", "family": "BP", "accuracy": 0.917, "label_accuracy": None, "seconds": 2.26},
    ],
    "disjoint": {
        "sites": [
            {"name": "low", "model": "bayes", "rows": 63, "classes": ["3", "4", "5"], "own_accuracy": 0.94,
             "accuracy": 0.27},
        ],
        "variants": [
            {"name": "AUTO", "family": "BS", "accuracy": 0.853, "label_accuracy": 0.842, "seconds": 4.1}
        ],
    },
    "best": "CE-BP",
    "supervised": 0.975,
    "supervised_seconds": 1.56,
    "n_transfer": 477,
    "sentences": ["What [happened].", "What else."],
    "seconds": 30.2,
    "seed": 4,
}  # fmt: skip


def test_demo(shown: Shown) -> None:
    assert shown(console.show_demo, DEMO) == cleandoc(
        """
        The sites: each trains on its own rows and shares only its model

         site    model   rows   digits it knows   right on these   on all ten
         ────────────────────────────────────────────────────────────────────
         north   SVM       81   0, 1                       91.0%        23.0%
         south   tree      72   2                          88.5%        11.4%


        One network out of five, from 477 unlabelled rows

         method   how                           accuracy   soft labels right   seconds
         ─────────────────────────────────────────────────────────────────────────────
         SD       estimated soft labels            81.3%               79.0%       1.0
         SD-BS    estimated and balanced           82.6%               80.5%       3.3
         CE-BP    backprop through the loss        91.7%                           2.3

         SPV      supervised, all rows pooled      97.5%                           1.6


        Three sites that share no digit, unified on the same unlabelled rows

         site   model   rows   digits it knows   right on these   on all ten
         ───────────────────────────────────────────────────────────────────
         low    bayes     63   3, 4, 5                    94.0%        27.0%


         method   how                      accuracy   soft labels right   seconds
         ────────────────────────────────────────────────────────────────────────
         AUTO     estimated and balanced      85.3%               84.2%       4.1


        In plain words
        - What [happened].
        - What else.
        (30 seconds, seed 4)
        """
    )


def test_demo_marks_the_best(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    console.show_demo(DEMO)
    lines = capsys.readouterr().out.splitlines()
    bold = [name for name in ("SD-BS", "CE-BP") for line in lines if name in line and "\x1b[1m" in line]
    assert bold == ["CE-BP"]


def ranked(name: str, rank: int, score: float | None, **other: Any) -> dict[str, Any]:
    """Return one teacher of a ranking without remarks."""
    usual = {"interval": [None, None], "wins": None, "bar": 0.0, "warnings": [], "error": None}
    return {"rank": rank, "name": name, "score": score, "seconds": 7.7, "partial": False} | usual | other


RANKING: dict[str, Any] = {
    "metric": "leep",
    "n_rows": 50,
    "n_classes": 6,
    "confidence": 0.9,
    "seed": 2,
    "teachers": [
        ranked(
            "[all]", 1, -0.123456, interval=[-0.2346, -0.0123], wins=0.85, bar=1.0,
            scores={"leep": -0.123456, "logme": 1.5, "nce": -2.25, "gbc": 31.0},
        ),
        ranked(
            "two", 2, -0.65432, interval=[-0.789, -0.543], wins=0.146, bar=0.44,
            warnings=["is [rarely] sure."],
            scores={"leep": -0.65432, "logme": 0.75, "nce": None, "gbc": 12.3456},
        ),
        ranked("low", 3, -9.0, wins=0.004, scores={"leep": -9.0, "logme": 0.5, "nce": -3.0, "gbc": 2.0}),
        ranked("none", 4, None, error="gives [no] answer.", scores={}),
    ],
}  # fmt: skip


def test_ranking(shown: Shown) -> None:
    assert shown(show_ranking, RANKING) == cleandoc(
        """
        4 teachers on 50 rows of 6 classes

             teacher      leep   interval            wins   logme     nce
         ─────────────────────────────────────────────────────────────────────────────
         1   [all]     -0.1235   -0.235 to -0.0123    85%     1.5   -2.25   ██████████
         2   two       -0.6543   -0.789 to -0.543     15%    0.75           ████
         3   low            -9                         0%     0.5      -3   █


             teacher     gbc
         ───────────────────
         1   [all]        31
         2   two       12.35
         3   low           2

        two: is [rarely] sure.
        none comes last: it gives [no] answer.
        """
    ) + (
        "\n(Intervals cover 90% of the resamples of the rows. "
        "Wins: the share of resamples in which a teacher is the best.)"
    )


def test_ranking_marks_the_best(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    show_ranking(RANKING | {"teachers": RANKING["teachers"][:3]})
    lines = capsys.readouterr().out.splitlines()
    bold = [name for name in ("[all]", "two", "low") for line in lines if name in line and "\x1b[1m" in line]
    assert bold == ["[all]"]


def test_ranking_with_more_metrics_than_one_table_holds(shown: Shown) -> None:
    scores = {"leep": 2.5} | {f"m{i}": float(i) for i in range(1, 10)}
    view = RANKING | {"teachers": [ranked("x", 1, 2.5, bar=1.0, scores=scores)]}
    heads = [line.split() for line in shown(show_ranking, view).splitlines() if "teacher " in line]
    assert heads[1:] == [
        ["teacher", "leep", "m1", "m2"],
        ["teacher", "m3", "m4", "m5", "m6", "m7", "m8"],
        ["teacher", "m9"],
    ]


def test_ranking_without_intervals(shown: Shown) -> None:
    only = ranked("x", 1, 2.5, bar=0.26, scores={"leep": 2.5})
    view = RANKING | {"teachers": [only], "n_rows": 1, "n_classes": 1}
    assert shown(show_ranking, view) == cleandoc(
        """
        1 teacher on 1 row of 1 class

             teacher   leep
         ────────────────────────
         1   x          2.5   ███
        """
    )


DISTILLED: dict[str, Any] = {
    "teachers": [
        {"name": "[good]", "kind": "onnx", "n_classes": 5, "weight": 1.254, "reliability": 0.876,
         "added": 12.34, "held_out": 11},
        {"name": "bad", "kind": "npz", "n_classes": 6, "weight": 0.0, "reliability": 0.0,
         "added": -3.21, "held_out": 13},
        {"name": "off", "kind": "npy", "n_classes": 7, "weight": 0.0, "reliability": None,
         "added": None, "held_out": None},
    ],
    "n_classes": 3,
    "classes": ["cat", "dog", "[i]"],
    "n_rows": 60,
    "n_labels": 48,
    "loss": "sinkhorn",
    "teacher_weight": "auto",
    "temperature": 2.5,
    "seed": 8,
    "student": "MLPClassifier",
    "encoding": None,
    "accuracy": 0.8767,
    "accuracy_labels_only": 0.7123,
    "n_test": 81,
    "seconds": {"scoring": 0.26, "training": 3.0},
    "out": "s.onnx",
}  # fmt: skip


def test_distilled(shown: Shown) -> None:
    assert shown(show_distilled, DISTILLED) == cleandoc(
        """
         teacher   file   classes    weight   reliability   what it adds to the labels
         ──────────────────────────────────────────────────────────────────────────────────
         [good]    onnx         5      1.25          0.88   12.3 nats over 11 held-out rows
         bad       npz          6   dropped          0.00   -3.2 nats over 13 held-out rows
         off       npy          7         0             -   -


        classes           3: cat, dog, [i]
        rows              60, 48 of them labelled
        loss              sinkhorn, teacher weight auto, temperature 2.5
        student           MLPClassifier
        seconds           scoring 0.3, training 3.0
        accuracy          87.7% of 81 test rows
        without teachers  71.2% of 81 test rows
        model             s.onnx
        """
    )


def test_distilled_without_a_test(shown: Shown) -> None:
    view = DISTILLED | {"accuracy": None, "accuracy_labels_only": None, "n_test": 0, "teachers": []}
    assert shown(show_distilled, view) == cleandoc(
        """
         teacher   file   classes   weight   reliability   what it adds to the labels
         ────────────────────────────────────────────────────────────────────────────


        classes  3: cat, dog, [i]
        rows     60, 48 of them labelled
        loss     sinkhorn, teacher weight auto, temperature 2.5
        student  MLPClassifier
        seconds  scoring 0.3, training 3.0
        model    s.onnx
        """
    )


def test_json_is_what_was_given_and_shows_control_characters(shown: Shown) -> None:
    text = shown(console.show_json, {"name": "caf\u00e9\x7f\x80\x9b\x9f\u00a1", "figures": [0.5, None, 3]})
    assert text == cleandoc(
        """
        {
          "name": "caf\u00e9\\u007f\\u0080\\u009b\\u009f\u00a1",
          "figures": [
            0.5,
            null,
            3
          ],
          "warnings": []
        }
        """
    )


EVIL = "cat\x1b[2J\x9b31m"


def test_no_name_in_a_table_is_obeyed(shown: Shown) -> None:
    def named(view: dict[str, Any]) -> dict[str, Any]:
        return view | {"teachers": [teacher | {"name": EVIL} for teacher in view["teachers"]]}

    space = named(SPACE) | {"only_one_teacher": {EVIL: [EVIL]}, "components": [[EVIL], ["b"]]}
    broken = ranked(EVIL, 4, None, error=EVIL, warnings=[EVIL], scores={})
    ranking = named(RANKING)
    ranking["teachers"].append(broken)
    shows: list[tuple[Callable[[Any], None], dict[str, Any]]] = [
        (console.show_space, space),
        (
            console.show_unified,
            named(UNIFIED) | {"classes": [EVIL], "out": EVIL, "soft_labels": EVIL, "report": EVIL},
        ),
        (console.show_clusters, CLUSTERS | {"out": EVIL, "report": EVIL}),
        (console.show_demo, DEMO | {"sentences": [EVIL]}),
        (show_ranking, ranking),
        (show_distilled, named(DISTILLED) | {"classes": [EVIL], "out": EVIL}),
    ]
    for show, view in shows:
        text = shown(show, view)
        assert "cat\\x1b[2J\\x9b31m" in text
        assert "\x1b" not in text
        assert "\x9b" not in text


def test_an_error_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    console.show_error("cat\x1b[2J [bold]" + " long" * 60)
    assert capsys.readouterr() == ("", "Error: cat\\x1b[2J [bold]" + " long" * 60 + "\n")
