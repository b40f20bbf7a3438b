"""The classifier of texts: what it learns, what it refuses, and what a saved one says."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from tests.students.learning import learnt
from threadpoolctl import threadpool_info, threadpool_limits

from consilience import ConvergenceWarning, InvalidInputError, load
from consilience.exceptions import NotFittedError
from consilience.files.ngram_model import read_model
from consilience.kernels.embedding_bag import Descent
from consilience.rows import targets
from consilience.students import Ngrams, ngrams

SYLLABLES = {"a": ["ka", "to", "mi", "re"], "b": ["ka", "lo", "mi", "se"], "c": ["ka", "lo", "vu", "re"]}


def language(n: int, seed: int = 0, words: int = 2) -> tuple[list[str], np.ndarray]:
    """Texts of three made-up languages that share most of their syllables."""
    rng = np.random.default_rng(seed)
    y = rng.choice(sorted(SYLLABLES), n)
    texts = [
        " ".join("".join(rng.choice(SYLLABLES[label], 3)) for _ in range(words)).capitalize() for label in y
    ]
    return texts, y


def small(**options: Any) -> Ngrams:
    return Ngrams(**{"n_buckets": 4096, "dim": 16, "random_state": 0, **options})


@pytest.fixture(scope="module")
def fitted() -> Ngrams:
    return small().fit(*language(600))


def test_it_is_as_good_as_a_linear_model_of_counts(fitted: Ngrams) -> None:
    train, test = language(600), language(500, seed=1)
    peer = make_pipeline(
        CountVectorizer(analyzer="char_wb", ngram_range=(1, 4)), LogisticRegression(max_iter=300)
    ).fit(*train)
    assert peer.score(*test) < 0.99  # else the test says nothing
    assert fitted.score(*test) > peer.score(*test) - 0.02


def test_soft_labels_are_learnt_as_they_are() -> None:
    texts = ["ka ka", "lo lo", "mi mi"] * 20
    Q = np.array([[0.7, 0.2, 0.1], [0.1, 0.45, 0.45], [0.0, 0.0, 1.0]] * 20)
    model = small(dropout=0.0, max_iter=40).fit(texts, Q)
    np.testing.assert_allclose(model.predict_proba(texts[:3]), Q[:3], atol=0.02)
    assert len(model.losses_) == model.n_iter_ == 40
    assert model.losses_[-1] < model.losses_[0]
    entropy = -np.mean([np.sum(q[q > 0] * np.log(q[q > 0])) for q in Q])
    assert model.losses_[-1] == pytest.approx(entropy, abs=0.02)


def test_weights_of_classes_and_rows() -> None:
    texts, Q = ["ka"] * 40, np.tile([0.75, 0.25], (40, 1))
    options: dict[str, Any] = {"dropout": 0.0, "max_iter": 40}
    by_class = learnt(small(**options), texts, Q, [1.0, 3.0]).predict_proba(["ka"])
    np.testing.assert_allclose(by_class, [[0.5, 0.5]], atol=0.02)
    hard, weights = np.tile(np.eye(2), (20, 1)), np.array([1.0, 4.0] * 20)
    by_row = learnt(small(**options), texts, hard, None, weights).predict_proba(["ka"])
    np.testing.assert_allclose(by_row, [[0.2, 0.8]], atol=0.04)


def test_only_the_proportions_of_weights_matter() -> None:
    texts, y = language(60)
    Q, weights = np.eye(3)[np.searchsorted(sorted(SYLLABLES), y)], np.linspace(1, 2, 60)
    plain = learnt(small(max_iter=2), texts, Q, None, weights).predict_logits(texts)
    with pytest.raises(InvalidInputError, match="weight above 0"):
        learnt(small(), texts, Q, None, np.zeros(60))
    with pytest.raises(InvalidInputError, match="no rows"):
        learnt(small(), [], np.zeros((0, 2)))
    for factor in (2.0**-80, 2.0**80):
        scaled = learnt(small(max_iter=2), texts, Q, None, (factor * weights).astype(np.float32))
        np.testing.assert_array_equal(scaled.predict_logits(texts), plain)


def test_the_collision_loss_decides_between_what_the_labels_leave_open() -> None:
    texts, y = language(300)
    Q = np.where(y[:, None] == np.array(["a", "b", "c"]), 0.4, 0.3)
    shannon = small().fit(texts, Q).predict_proba(texts)
    collision = small(loss="collision").fit(texts, Q).predict_proba(texts)
    assert collision.max(axis=1).mean() > shannon.max(axis=1).mean() + 0.2


def test_a_seed_reproduces_and_another_does_not() -> None:
    texts, y = language(80)
    first = small(max_iter=2).fit(texts, y).predict_logits(texts)
    np.testing.assert_array_equal(small(max_iter=2).fit(texts, y).predict_logits(texts), first)
    assert (small(max_iter=2, random_state=1).fit(texts, y).predict_logits(texts) != first).any()


def steps_of(monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[tuple[int, float]]:
    """Return the n-grams and the learning rate of each step of a training on 60 texts."""
    seen = []

    class Watched(Descent):
        def step(self, ids: Any, bounds: Any, target: Any, lr: float, collision: bool) -> float:
            seen.append((len(ids), lr))
            return super().step(ids, bounds, target, lr, collision)

    monkeypatch.setattr("consilience.kernels.embedding_bag.Descent", Watched)
    small(**options).fit(*language(60))
    return seen


def test_the_learning_rate_falls_to_zero_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = [lr for _, lr in steps_of(monkeypatch, lr=0.3, max_iter=2, batch_size=20)]
    np.testing.assert_allclose(rates, 0.3 * np.array([6, 5, 4, 3, 2, 1]) / 6)


def test_dropout_leaves_out_its_part_of_the_ngrams(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [steps_of(monkeypatch, dropout=dropout, max_iter=1)[0][0] for dropout in (0.0, 0.25, 0.75)]
    assert np.divide(kept, kept[0]) == pytest.approx([1, 0.75, 0.25], abs=0.03)


@pytest.mark.parametrize("text", ["", "   ", "123 45\n", "\x00", "漢字", "\ud800", "ǆǆǆ"])
def test_texts_without_a_known_ngram_get_the_logits_of_no_text(text: str) -> None:
    # of two million buckets a handful is used, so that none is shared by chance
    model = small(n_buckets=2**21, dim=1, max_iter=1).fit(["ka", "lo"], ["a", "b"])
    np.testing.assert_array_equal(model.predict_logits([text])[0], model.model_.bias)
    assert (model.predict_logits(["ka"])[0] != model.model_.bias).any()


def test_what_is_beyond_max_chars_is_not_read(fitted: Ngrams, tmp_path: Path) -> None:
    long = "kato " * 200
    np.testing.assert_array_equal(
        fitted.predict_logits([long + "lolo" * 10**6]), fitted.predict_logits([long])
    )
    short = small(max_chars=4, max_iter=1).fit(["kato mi", "lore se"], ["a", "b"])
    saved = read_model(short.save(tmp_path / "short.npz"))
    np.testing.assert_array_equal(saved.predict_logits(["kato mi"]), saved.predict_logits(["katovu"]))


def test_case_matters_where_it_is_to() -> None:
    texts, y = ["Ka To", "ka to"] * 20, ["upper", "lower"] * 20
    scores = [small(lowercase=lowercase).fit(texts, y).score(texts, y) for lowercase in (False, True)]
    assert scores == [1.0, 0.5]


def test_one_class_is_enough_to_be_sure() -> None:
    assert small(max_iter=1).fit(["ka", "lo"], ["a", "a"]).predict_proba(["mi"]).tolist() == [[1.0]]


@pytest.mark.parametrize(
    "texts", [("ka", "lo"), np.array(["ka", "lo"]), np.array(["ka", "lo"], dtype=object)], ids=type
)
def test_any_sequence_of_texts_will_do(fitted: Ngrams, texts: Any) -> None:
    np.testing.assert_array_equal(fitted.predict_logits(texts), fitted.predict_logits(["ka", "lo"]))


@pytest.mark.parametrize(
    ("X", "says"),
    [
        ("one text", r"X is a str; expected a list of texts \(str\): put it in brackets"),
        (b"bytes", "X is a bytes; expected"),
        (["a", b"b"], r"X has b'b' in row 1, of type bytes; .* Decode bytes first"),
        (["a", None], "X has None in row 1, of type NoneType"),
        ([1.5], "X has 1.5 in row 0, of type float"),
        (np.zeros(3), "X has 0.0 in row 0"),
        (np.zeros((3, 2)), r"X has shape \(3, 2\)"),
        ({"a": 1}, "X is a dict; expected"),
        (7, "X is a int; expected"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(fitted: Ngrams, X: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        fitted.predict_proba(X)
    with pytest.raises(InvalidInputError, match=says):
        small().fit(X, ["a"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ngram_range": 3}, "ngram_range=3 must be two whole numbers"),
        ({"ngram_range": (0, 3)}, r"ngram_range\[0\]=0 must be a whole number of at least 1"),
        ({"ngram_range": (3, 2)}, r"ngram_range=\(3, 2\) must not fall"),
        ({"ngram_range": (1, 99)}, "end at 32 or less"),
        ({"n_buckets": 0}, "n_buckets=0"),
        ({"n_buckets": 2**40}, "n_buckets=1099511627776 must be .*at most"),
        ({"dim": 1.5}, "dim=1.5"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"batch_size": -1}, "batch_size=-1"),
        ({"max_chars": 0}, "max_chars=0"),
        ({"lr": 0}, "lr=0 must be a finite number above 0"),
        ({"dropout": 1.0}, "dropout=1.0 must be below 1"),
        ({"lowercase": "yes"}, "lowercase='yes' is unknown"),
    ],
)
def test_parameters_that_cannot_be_used(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        small(**options).fit(["a", "b"], ["x", "y"])


@pytest.mark.parametrize(
    ("y", "says"),
    [
        ([[0.5, 0.6], [0.5, 0.5]], "y sums to 1.1 in row 0"),
        (np.full((3, 2), 0.5), "y has 3 rows and X has 2 texts"),
        (["x"], "y has 1 rows and X has 2 texts"),
    ],
)
def test_labels_that_cannot_be_used(y: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        small().fit(["ka", "lo"], y)


def test_training_that_diverges_is_told_with_figures() -> None:
    with pytest.raises(InvalidInputError, match=r"diverged in epoch 1 \(loss nan\); lower lr=1e\+20"):
        small(lr=1e20).fit(*language(600))
    with pytest.warns(ConvergenceWarning, match=r"ended at a loss of .*, but a guess has 1\.099; lower lr=1"):
        small(lr=1e10, max_iter=1).fit(*language(600))


@pytest.mark.parametrize("batch_size", [1, 30_000_000])
def test_training_has_one_thread_however_large_a_batch(
    batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    step = Descent.step

    def watched(self: Descent, *args: Any) -> float:
        threads.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return step(self, *args)

    monkeypatch.setattr(Descent, "step", watched)
    with threadpool_limits(2, "blas"):
        assert max(pool["num_threads"] for pool in threadpool_info()) == 2  # else the test says nothing
        small(max_iter=1, batch_size=batch_size).fit(["ka", "lo"], ["a", "b"])
    assert set(threads) == {1}


def test_texts_without_a_label_are_left_out() -> None:
    texts = ["ka ka", "no", "lo lo", "ki"]
    some = small(max_iter=2).fit(texts, ["a", None, "b", "a"])
    kept = small(max_iter=2).fit(["ka ka", "lo lo", "ki"], ["a", "b", "a"])
    np.testing.assert_array_equal(some.predict_logits(texts), kept.predict_logits(texts))


def test_it_is_a_scikit_learn_classifier(fitted: Ngrams) -> None:
    assert is_classifier(fitted)
    for use in (clone(fitted).predict, Ngrams().predict_proba, Ngrams().save):
        with pytest.raises(NotFittedError):
            use(["a"])
    assert fitted.predict([]).shape == (0,)
    assert fitted.predict_proba([]).shape == (0, 3)


def test_a_saved_model_says_the_same_in_another_process_and_needs_no_compiler(
    fitted: Ngrams, tmp_path: Path
) -> None:
    texts, _ = language(200, seed=4)
    path = fitted.save(tmp_path / "model.npz")
    loaded = load(path)
    np.testing.assert_allclose(loaded.predict_proba(texts), fitted.predict_proba(texts), atol=5e-3)
    assert loaded.classes_.tolist() == fitted.classes_.tolist()
    code = (
        "import sys; from consilience.files.ngram_model import read_model; "
        f"model = read_model({str(path)!r}); "
        "print(model.predict_logits(['kato mi'])[0].tolist(), 'numba' in sys.modules, sep=';')"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    logits, compiler = result.stdout.strip().split(";")
    expected = read_model(path).predict_logits(["kato mi"])[0]
    np.testing.assert_allclose(json.loads(logits), expected, rtol=1e-5, atol=1e-5)
    assert compiler == "False"


def test_texts_read_block_by_block_teach_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=600)
    stems = np.array(["kalo", "miru", "tesa", "vopi"])[y]
    texts = [f"{stem[: rng.integers(2, 5)]} {'abc'[rng.integers(3)]}{rng.integers(9)}" for stem in stems]
    Q = 0.1 / 4 + 0.9 * np.eye(4)[y]
    options: dict[str, Any] = {"n_buckets": 1000, "dim": 8, "batch_size": 16, "max_iter": 5}
    scores = []
    for size in (2**14, 2**22):  # a window of about 50 texts, and one of all
        monkeypatch.setattr(ngrams, "BUFFER", size)
        found = [
            learnt(Ngrams(random_state=seed, **options), texts[:400], Q[:400], block_rows=32)
            for seed in (0, 1, 1)
        ]
        np.testing.assert_array_equal(found[1].model_.embeddings, found[2].model_.embeddings)
        scores.append(np.mean([(model.predict(texts[400:]) == y[400:]).mean() for model in found]))
    assert scores[0] > max(0.9, scores[1] - 0.02)


def test_passes_over_many_texts_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "EPOCH_ROWS", 50)
    monkeypatch.setattr(targets, "ROW_VISITS", 250)
    texts, Q = ["ant", "bee"] * 50, np.tile(np.eye(2), (50, 1))
    options: dict[str, Any] = {"n_buckets": 100, "dim": 4, "batch_size": 16}
    assert learnt(Ngrams(**options), texts, Q, block_rows=16).n_iter_ == 5  # 2.5 passes, in halves
    assert learnt(Ngrams(max_iter=4, **options), texts, Q, block_rows=16).n_iter_ == 8
