"""How fast the n-gram student trains and predicts, against torch's embedding bag."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed.measures import Options, Result
from benchmarks.speed.problem import best_of
from consilience.files.ngram_model import Packed, Reading, pack, read_model
from consilience.kernels.ngrams import hash_ngrams, take_texts
from consilience.students.ngrams import Ngrams

CLASSES, WORDS, BATCH = 281, 6, 256


def make_texts(rows: int, seed: int) -> tuple[list[str], NDArray[np.float64]]:
    """Return texts of about 40 letters in made-up languages, and soft labels."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    # a language is a lexicon of 300 words; it shares half of them with others
    lexicon = ["".join(rng.choice(letters, rng.integers(3, 9))) for _ in range(CLASSES * 100)]
    owned = [rng.choice(len(lexicon), 300) for _ in range(CLASSES)]
    y = rng.integers(CLASSES, size=rows)
    texts = [" ".join(lexicon[i] for i in rng.choice(owned[k], WORDS)) for k in y]
    Q = np.full((rows, CLASSES), 0.1 / (CLASSES - 1))
    Q[np.arange(rows), y] = 0.9
    return texts, Q


def texts(options: Options) -> Iterator[Result]:
    """Train for an epoch, predict many and one, load."""
    rows = 4_000 if options.quick else 40_000
    X, Q = make_texts(rows, options.seed)
    sizes = {"rows": rows, "classes": CLASSES, "characters": int(np.mean([len(text) for text in X]))}
    model = Ngrams(max_iter=1, random_state=options.seed)
    ours = best_of(min(options.repeats, 2), lambda: model.fit(X, Q))
    peer = torch_epoch(X, Q, model, options.seed)
    note = "EmbeddingBag and Linear, SparseAdam and Adam, the same batches and n-grams"
    ratio = ours if peer is None else peer / ours
    unit = "s" if peer is None else "x"
    yield Result(
        "n-gram student: an epoch vs torch", ratio, unit, ours=ours, peer=peer, note=note, sizes=sizes
    )
    many = best_of(options.repeats, lambda: model.predict_logits(X))
    yield Result("n-gram student: texts in batches", rows / many, "rows/s", 20_000, ours=many, sizes=sizes)
    one = best_of(options.repeats, lambda: [model.predict_logits([text]) for text in X[:200]]) / 200
    yield Result("n-gram student: one text", one, "s", 0.001, at_least=False, ours=one, sizes=sizes)
    with tempfile.TemporaryDirectory() as folder:
        path = model.save(Path(folder) / "model.npz")
        megabytes = path.stat().st_size / 1e6
        loading = best_of(options.repeats, lambda: read_model(path))
    yield Result("n-gram student: its file", megabytes, "MB", 50, at_least=False, sizes=sizes)
    yield Result("n-gram student: loading", loading, "s", 0.3, at_least=False, ours=loading, sizes=sizes)


def torch_epoch(X: list[str], Q: NDArray[np.float64], model: Ngrams, seed: int) -> float | None:
    """Return the seconds that torch takes for an epoch of the same model, or None without torch."""
    try:
        import torch
    except ModuleNotFoundError:
        return None
    lo, hi = model.ngram_range
    packed: Packed = pack(X, Reading((lo, hi), lowercase=True, max_chars=1000))
    goals = torch.tensor(Q, dtype=torch.float32)
    rng = np.random.default_rng(seed)

    def epoch() -> None:
        torch.manual_seed(seed)
        bag = torch.nn.EmbeddingBag(model.n_buckets, model.dim, mode="sum", sparse=True)
        last = torch.nn.Linear(model.dim, CLASSES)
        steps = (torch.optim.SparseAdam(bag.parameters()), torch.optim.Adam(last.parameters()))
        order = rng.permutation(len(X))
        for start in range(0, len(X), BATCH):
            rows = order[start : start + BATCH]
            ids, bounds = hash_ngrams(*take_texts(*packed, rows), lo, hi, model.n_buckets)
            keep = rng.random(len(ids)) >= model.dropout
            counts = np.concatenate([[0], np.cumsum(keep)])[bounds]
            logits = last(bag(torch.tensor(ids[keep]).long(), torch.tensor(counts[:-1])))
            loss = -(goals[rows] * torch.log_softmax(logits, 1)).sum(1).mean()
            for step in steps:
                step.zero_grad()
            loss.backward()
            for step in steps:
                step.step()

    return best_of(1, epoch, at_least=0.0)


MEASURES: dict[str, Callable[[Options], Iterator[Result]]] = {"texts": texts}
