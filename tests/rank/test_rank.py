"""Ranking teachers: order, intervals, failures, caching, determinism."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from consilience import InvalidInputError, as_teacher, cost_matrix, rank_teachers, sinkhorn
from consilience.kernels.held_out import stratified_folds
from consilience.kernels.linear_model import fit_softmax_regression, linear_logits
from consilience.rank import GBC, LEEP, NCE, NLEEP, OTCE, HScore, LogME, Ranking, Transport, TransRate
from consilience.rank.options import METRICS
from consilience.run import Run
from consilience.transport.distance import conditional_plan

X, Y = load_digits(return_X_y=True)
X = X / 16
ROWS = np.flatnonzero(Y >= 5)[1::6]  # the task: digits from five to nine


class Counting:
    """A teacher that counts how often it is asked, with features and a fingerprint."""

    fingerprint = "0" * 40

    def __init__(self, model: LogisticRegression, name: str = "counting") -> None:
        self.name, self.classes, self.calls, self._model = name, model.classes_, 0, model
        self.class_weights = model.coef_

    def predict_logits(self, X: Any) -> np.ndarray:
        self.calls += 1
        return self._model.decision_function(X)

    def embed(self, X: Any) -> np.ndarray:
        return np.asarray(X)


@pytest.fixture(scope="module")
def models() -> dict[str, LogisticRegression]:
    """Teachers of the same digits, of some of them, and of others."""
    train = np.arange(len(X)) % 2 == 0
    windows = {"same": (5, 10), "half": (3, 8), "other": (0, 5)}
    return {
        name: LogisticRegression(max_iter=500).fit(
            *(part[train & (low <= Y) & (high > Y)] for part in (X, Y))
        )
        for name, (low, high) in windows.items()
    }


def guesser(n: int, seed: int = 0) -> Any:
    proba = np.random.default_rng(seed).dirichlet(np.ones(4), n)
    return as_teacher(proba, classes=list("abcd"), name="guesser")


@pytest.mark.parametrize("metric", ["transport", "nce", "leep", "logme", "otce"])
def test_the_nearer_task_ranks_higher_and_a_guesser_last(models: dict[str, Any], metric: str) -> None:
    teachers = {"guesser": guesser(len(ROWS)), **models}
    ranking = rank_teachers(teachers, X[ROWS], Y[ROWS], metric=metric)
    assert ranking.rows[0].name == "same"
    assert ranking.rows[-1].name == "guesser" or metric == "otce"
    assert ranking.best is ranking.rows[0].teacher
    assert all(row.interval[0] <= row.score <= row.interval[1] for row in ranking)


@pytest.mark.parametrize("metric", sorted({*METRICS} - {"transport"}))
def test_scores_are_those_of_the_plain_functions(models: dict[str, Any], metric: str) -> None:
    """Each metric against `transferability` or a transcription, from what the teacher says and sees."""
    model, codes = models["half"], Y[ROWS] - 5
    logits = model.decision_function(X[ROWS])
    F = X[ROWS]  # a linear model's embedding is its input
    unit = F / np.linalg.norm(F, axis=1, keepdims=True)
    centres = model.coef_ / np.linalg.norm(model.coef_, axis=1, keepdims=True)
    share = softmax(logits, axis=1).mean(axis=0)
    expected = {
        "nce": lambda: NCE().score(logits, codes),
        "leep": lambda: LEEP().score(softmax(logits, axis=1), codes),
        "logme": lambda: LogME().score(F, codes),
        "h_score": lambda: HScore().score(F, codes),
        "n_leep": lambda: NLEEP().score(F, codes),
        "gbc": lambda: GBC().score(F, codes),
        "otce": lambda: OTCE().score(centres, np.arange(5), unit, codes, source_weight=share),
        "transrate": lambda: TransRate().score(F, codes),
    }
    row = rank_teachers([model], X[ROWS], Y[ROWS], metric=metric, confidence=None, folds=1).rows[0]
    assert row.error is None
    assert row.score == pytest.approx(expected[metric](), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("n_folds", [1, 2])
def test_probe_and_centres_come_from_different_folds(models: dict[str, Any], n_folds: int) -> None:
    """The rows of a fold meet a probe of that fold and centres of the other, if there is one."""
    model, codes = models["half"], Y[ROWS] - 5
    folds = stratified_folds(codes, n_folds, np.random.RandomState(0))
    F = X[ROWS].astype(np.float32) - X[ROWS].mean(axis=0).astype(np.float32)
    F *= np.sqrt(F.shape[1] / (F**2).sum(axis=1).mean())
    log_q, p_S = np.empty((2, len(ROWS), 5))
    for fold in range(n_folds):
        own = folds == fold
        known = own if n_folds == 1 else ~own
        M = cost_matrix(model, X[ROWS][known], codes[known])
        p_T = softmax(model.decision_function(X[ROWS][own]), axis=1)
        log_q[own] = np.log(p_T @ conditional_plan(M, 0.5 * M.std()))
        fit = fit_softmax_regression(F[own], codes[own], 5, weight_decay=1e-3)
        p_S[own] = softmax(linear_logits(F[own], fit.W).astype(float), axis=1)
    expected = max((p_S * log_softmax(a * log_q, axis=1)).sum(axis=1).mean() for a in np.linspace(0, 1, 201))
    row = rank_teachers([model], X[ROWS], Y[ROWS], folds=n_folds).rows[0]
    assert row.score == pytest.approx(expected, abs=1e-4)


def test_the_paper_s_number_is_the_mean_sinkhorn_distance(models: dict[str, Any]) -> None:
    model, codes = models["half"], Y[ROWS] - 5
    M = cost_matrix(model, X[ROWS], Y[ROWS])
    student = LogisticRegression(max_iter=500)
    p_T = softmax(model.decision_function(X[ROWS]) / 3, axis=1)
    p_S = softmax(np.log(student.fit(X[ROWS], codes).predict_proba(X[ROWS])) / 3, axis=1)
    for score, of in (("distance", "value"), ("cost", "cost")):
        metric = Transport(
            score=score, student=LogisticRegression(max_iter=500), temperature=3.0, epsilon=0.1
        )
        row = rank_teachers([model], X[ROWS], Y[ROWS], metric=metric, folds=1).rows[0]
        assert row.score == pytest.approx(-getattr(sinkhorn(p_T, p_S, M, 0.1), of).mean(), abs=1e-4)


def test_teachers_that_fail_come_last_with_the_reason_and_stop_nobody(models: dict[str, Any]) -> None:
    n = len(ROWS)

    def broken(X: Any) -> Any:
        raise RuntimeError("out of memory")

    class Blind(Counting):
        def embed(self, X: Any) -> np.ndarray:
            return np.full((len(X), 3), np.nan)

    teachers = {
        "broken": as_teacher(broken, classes=["a", "b"]),
        "constant": as_teacher(np.tile([0.3, 0.7], (n, 1)), classes=["a", "b"]),
        "silent": as_teacher(np.full((n, 2), np.nan), classes=["a", "b"]),
        "missing": "no/such/file.onnx",
        "same": models["same"],
        "nothing": 7,
        "blind": Blind(models["half"]),
    }
    ranking = rank_teachers(teachers, X[ROWS], Y[ROWS], metric=["transport", "logme"])
    assert ranking.rows[0].name == "same"
    expected = {
        "broken": "RuntimeError: out of memory",
        "constant": "gives the same answer for every row.",
        "silent": "abstains on every row.",
        "missing": "No such file",
        "nothing": "no classifier",
        "blind": "NaN or infinity",
    }
    assert [row.name for row in ranking.rows[1:]] == list(expected)
    assert all(expected[row.name] in str(row.error) for row in ranking.rows[1:])
    assert all(row.score == -np.inf for row in ranking.rows[1:])
    assert "failed: " in repr(ranking)
    with pytest.raises(InvalidInputError, match="No teacher could be scored"):
        _ = rank_teachers([7], X[ROWS], Y[ROWS]).best


def test_rows_without_a_label_are_left_out(models: dict[str, Any]) -> None:
    known = np.arange(len(ROWS)) % 3 > 0
    partial = np.where(known, Y[ROWS], -1)
    table = models["same"].predict_proba(X[ROWS])
    teachers = {"model": models["same"], "table": as_teacher(table, classes=range(5))}
    rest = {"model": models["same"], "table": as_teacher(table[known], classes=range(5))}
    for metric in ("transport", "leep"):
        ranking = rank_teachers(teachers, X[ROWS], partial, metric=metric)
        expected = rank_teachers(rest, X[ROWS][known], Y[ROWS][known], metric=metric)
        assert ranking.n_rows == known.sum()
        assert [(row.name, row.score) for row in ranking] == [(row.name, row.score) for row in expected]
        assert all(row.error is None for row in ranking)


def test_abstentions_count_as_guesses_and_are_told(models: dict[str, Any]) -> None:
    proba = models["same"].predict_proba(X[ROWS])
    gaps = proba.copy()
    gaps[Y[ROWS] == 9] = np.nan
    gaps[0] = np.nan
    teachers = {"gaps": as_teacher(gaps, classes=range(5)), "whole": as_teacher(proba, classes=range(5))}
    ranking = rank_teachers(teachers, X[ROWS], Y[ROWS], metric="leep")
    spoken = ~np.isnan(gaps[:, 0])
    (row,) = [row for row in ranking if row.name == "gaps"]
    told = LEEP().score(gaps[spoken], Y[ROWS][spoken], folds=2)
    assert row.score == pytest.approx(spoken.mean() * told + (~spoken).mean() * -np.log(5))
    assert f"Abstains on {(~spoken).sum()} of {len(ROWS)} rows" in row.warnings[0]
    assert "1 class" in row.warnings[0]
    assert row.warnings[0] in repr(ranking)


def test_a_higher_score_over_fewer_classes_comes_behind_and_wins_nothing(models: dict[str, Any]) -> None:
    easy = np.isin(Y[ROWS], (5, 6))
    proba = np.where(easy[:, None], models["same"].predict_proba(X[ROWS]), np.nan)
    teachers = {"easy": as_teacher(proba, classes=range(5)), "other": models["other"]}
    ranking = rank_teachers(teachers, X[ROWS], Y[ROWS], metric="gbc")
    assert [row.name for row in ranking] == ["other", "easy"]
    assert ranking.rows[1].score > ranking.rows[0].score
    assert [row.partial for row in ranking] == [False, True]
    assert [row.wins for row in ranking] == [1.0, 0.0]


def test_a_further_metric_that_fails_is_a_gap_in_its_column(models: dict[str, Any]) -> None:
    def broken(case: Any) -> Any:
        raise FloatingPointError("no digits left")

    ranking = rank_teachers(models, X[ROWS], Y[ROWS], metric=["leep", broken, "nce"], confidence=None)
    assert ranking.rows[0].error is None
    assert np.isnan(ranking.rows[0].scores["broken"])
    assert np.isfinite(ranking.rows[0].scores["nce"])
    assert "broken: FloatingPointError: no digits left" in ranking.rows[0].warnings
    assert rank_teachers(models, X[ROWS], Y[ROWS], metric=[broken, "leep"]).rows[0].error is not None


def test_intervals_widen_with_fewer_rows_and_follow_the_seed(models: dict[str, Any]) -> None:
    wide = rank_teachers(models, X[ROWS[::3]], Y[ROWS[::3]], random_state=1).rows[0].interval
    narrow = rank_teachers(models, X[ROWS], Y[ROWS], random_state=1)
    assert wide[1] - wide[0] > narrow.rows[0].interval[1] - narrow.rows[0].interval[0]
    again = rank_teachers(models, X[ROWS], Y[ROWS], random_state=1)
    assert [row.interval for row in again] == [row.interval for row in narrow]
    other = rank_teachers(models, X[ROWS], Y[ROWS], random_state=2)
    assert other.rows[0].interval != narrow.rows[0].interval
    assert sum(row.wins for row in narrow) == pytest.approx(1.0)


def test_a_second_ranking_runs_no_teacher_again(models: dict[str, Any], tmp_path: Path) -> None:
    teacher = Counting(models["half"])
    first = rank_teachers([teacher], X[ROWS], Y[ROWS], run=Run(cache=tmp_path / "scores"))
    assert teacher.calls > 0
    calls = teacher.calls
    rank_teachers([teacher], X[ROWS], Y[ROWS], metric="logme", run=Run(cache=tmp_path / "scores"))
    again = rank_teachers([teacher], X[ROWS], Y[ROWS], run=Run(cache=tmp_path / "scores"))
    assert teacher.calls == calls
    assert again.rows[0].score == first.rows[0].score


def test_names_texts_frames_and_the_table(models: dict[str, Any]) -> None:
    pandas = pytest.importorskip("pandas")
    names = np.array(["a five", "b six", "c seven", "d eight", "e nine"])[Y[ROWS] - 5]
    frame = pandas.DataFrame(X[ROWS])
    plain = rank_teachers(models, X[ROWS].tolist(), Y[ROWS], metric=["transport", "leep"])
    ranking = rank_teachers(models, X[ROWS], names.tolist(), metric=["transport", "leep"])
    assert [row.score for row in ranking] == pytest.approx([row.score for row in plain])
    table = ranking.to_frame()
    assert table.index.tolist() == [1, 2, 3]
    assert table["teacher"].tolist() == [row.name for row in ranking]
    assert table["leep"].tolist() == [row.scores["leep"] for row in ranking]
    assert json.loads(json.dumps(ranking.to_dict()))["teachers"][0]["name"] == "same"
    cells = "<td>same</td>", "<th>leep</th>", f"<td>{ranking[0].scores['leep']:.4g}</td>", "100.0%</td>"
    assert all(cell in ranking._repr_html_() for cell in cells)
    assert isinstance(ranking, Ranking)
    assert rank_teachers(list(models.values()), frame, names, metric="nce").rows[0].error is None


def test_a_printed_ranking_shows_further_metrics_and_wins(models: dict[str, Any]) -> None:
    teachers = {**models, "a/very/long/path/to/a/folder/and/more/model.onnx": models["same"], "bad": 7}
    ranking = rank_teachers(teachers, X[ROWS], Y[ROWS], metric=["transport", "leep", "logme"])
    title, _, head, *lines = repr(ranking).splitlines()
    assert title == f"5 teachers by transport, best first ({len(ROWS)} rows of 5 classes)"
    assert head.split() == ["rank", "teacher", "transport", "low", "high", "wins", "leep", "logme", "seconds"]
    for place, (row, line) in enumerate(zip(ranking.rows[:4], lines, strict=False), 1):
        name = row.name if len(row.name) < 40 else f"{row.name[:19]}…{row.name[-20:]}"
        figures = [f"{value:.4g}" for value in (row.score, *row.interval)] + [f"{100 * row.wins:.1f}%"]
        figures += [f"{row.scores[metric]:.4g}" for metric in ("leep", "logme")]
        assert line.split()[: 2 + len(figures)] == [str(place), name, *figures]
    assert "5  bad " in lines[4]
    assert "wins: the share of resamples" in lines[-1]
    short = repr(rank_teachers(models, X[ROWS], Y[ROWS], confidence=None)).splitlines()
    assert short[2].split() == ["rank", "teacher", "transport", "seconds"]
    assert "wins" not in "".join(short)


def test_progress_is_told(models: dict[str, Any]) -> None:
    told: list[tuple[str, int, int]] = []
    rank_teachers(
        models, X[ROWS], Y[ROWS], metric="nce", run=Run(progress=lambda *report: told.append(report))
    )
    assert told == [("ranking", place, 3) for place in (1, 2, 3)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"metric": "logmi"}, "metric='logmi' is unknown"),
        ({"metric": []}, "metric is empty"),
        ({"metric": None}, "metric=None is unknown"),
        ({"y": np.where(np.arange(len(ROWS)) < 9, Y[ROWS] - 7, -1)}, "y has the label -1"),
        ({"y": np.random.default_rng(0).normal(size=len(ROWS))}, "as measurements have; give classes"),
        ({"teachers": []}, "teachers is empty"),
        ({"teachers": 7}, "teachers is a int; give a list of teachers"),
        ({"y": np.zeros(len(ROWS))}, "one class"),
        ({"y": [1, 2]}, "y has 2 labels and X has"),
        ({"metric": Transport(student=7)}, "student is a int; give 'probe', a classifier"),
        ({"metric": Transport(student="mpl")}, "student='mpl' is unknown"),
        ({"metric": Transport(score="objective")}, "score='objective' is unknown"),
        ({"metric": Transport(temperature=0)}, "temperature=0 must be"),
        ({"metric": Transport(epsilon=-1.0)}, "epsilon=-1.0 must be"),
        ({"metric": Transport(weight_decay=-1)}, "weight_decay=-1 must be"),
        ({"metric": METRICS["leep"](n_bootstrap=0)}, "n_bootstrap=0 must be"),
        ({"folds": 0}, "folds=0 must be"),
        ({"confidence": 95}, "confidence=95 must be below 1"),
        ({"random_state": "x"}, "random_state='x' must be"),
        ({"run": Run(cache=7)}, "cache 7 must be"),
        ({"run": "fast"}, "run='fast' must be a consilience.Run"),
        ({"run": Run(engine="rey")}, "engine='rey' is unknown; .* Did you mean 'ray'"),
        ({"run": Run(engine="ray", engine_options={"time": 2})}, "Did you mean 'timeout'"),
    ],
)
def test_bad_input_gets_one_sentence(models: dict[str, Any], change: dict[str, Any], expected: str) -> None:
    options: dict[str, Any] = {"teachers": models, "X": X[ROWS], "y": Y[ROWS]} | change
    with pytest.raises(InvalidInputError, match=expected):
        rank_teachers(**options)


def right_class_share(case: Any) -> Any:
    """Score a teacher of the task's own digits by the probability that it gives to the label."""
    known = case.teacher.classes.tolist()
    columns = [known.index(label) if label in known else -1 for label in case.y]
    padded = np.hstack([case.proba, np.zeros((len(case.y), 1))])
    return padded[np.arange(len(columns)), columns]


def test_a_function_ranks(models: dict[str, Any]) -> None:
    ranking = rank_teachers(models, X[ROWS], Y[ROWS], metric=[right_class_share, "leep"])
    assert ranking.metric == "right_class_share"
    assert [row.name for row in ranking] == ["same", "half", "other"]
    best = models["same"].predict_proba(X[ROWS])[np.arange(len(ROWS)), Y[ROWS] - 5]
    assert ranking.rows[0].score == pytest.approx(best.mean())
    low, high = ranking.rows[0].interval
    assert low < best.mean() < high
    assert low == pytest.approx(best.mean() - 1.96 * best.std() / len(best) ** 0.5, abs=0.01)
    whole = rank_teachers(models, X[ROWS], Y[ROWS], metric=lambda case: float(right_class_share(case).mean()))
    assert [row.score for row in whole] == pytest.approx([row.score for row in ranking])
    assert whole.rows[0].interval[0] < whole.rows[0].interval[1]


def test_a_function_that_returns_no_score_is_named(models: dict[str, Any]) -> None:
    def wrong(case: Any) -> Any:
        return case.proba

    row = rank_teachers([models["same"]], X[ROWS], Y[ROWS], metric=wrong).rows[0]
    assert "metric 'wrong' returned an array of shape" in str(row.error)
    with pytest.raises(InvalidInputError, match="two metrics called 'wrong'"):
        rank_teachers([models["same"]], X[ROWS], Y[ROWS], metric=[wrong, wrong])

    def leep(case: Any) -> float:
        return 0.0

    with pytest.raises(InvalidInputError, match="two metrics called 'leep'"):
        rank_teachers([models["same"]], X[ROWS], Y[ROWS], metric=leep)


def test_one_teacher_a_ranking_and_teachers_of_one_name(models: dict[str, LogisticRegression]) -> None:
    options: dict[str, Any] = {"metric": "nce", "confidence": None}
    first = rank_teachers([*models.values(), lambda rows: 1 / 0], X[ROWS], Y[ROWS], **options)
    assert sorted(row.name for row in first) == [
        "LogisticRegression 1", "LogisticRegression 2", "LogisticRegression 3", "teacher 4",
    ]  # fmt: skip
    again = rank_teachers(first, X[ROWS], Y[ROWS], **options)
    assert [(row.name, row.score) for row in again] == [(row.name, row.score) for row in first][:3]
    (alone,) = rank_teachers(models["same"], X[ROWS], Y[ROWS], **options)
    assert alone.score == first[0].score
