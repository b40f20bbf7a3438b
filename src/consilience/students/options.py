"""The options of students. To read them, neither torch nor scikit-learn is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from consilience.options import Options, anything, choice, count, flag, number, option, optional

Loss = Literal["cross-entropy", "collision"]


class StudentOptions(Options):
    """What every student takes."""

    loss: Loss = option(
        choice("cross-entropy", "collision"),
        "What the student minimises: Shannon's cross-entropy with the soft labels, or the collision "
        "cross-entropy, eq. (15) of CCE. With the latter, uncertain soft labels say little, and the student "
        "decides between the classes that they leave possible; its probabilities are nearer to 0 and 1. "
        "Classifiers of scikit-learn are refitted a few times.",
        default="cross-entropy",
    )
    self_label: bool = option(
        flag(),
        "Whether the student trains once more on its own findings: fair pseudo-labels of its predictions "
        "times the soft labels. A `Unifier` does this.",
        default=False,
    )
    random_state: Any = option(
        anything("int, RandomState or None"),
        "Makes the student reproducible. By default the seed of the estimator that trains it.",
        default=None,
    )


class WeightedOptions(StudentOptions):
    """What students around a classifier of scikit-learn take."""

    min_label: float = option(
        number(at_least=0, below=1),
        "Leave out classes of a row that are less probable than this.",
        default=0.01,
    )


class NetworkOptions(Options):
    """How a network is made and trained."""

    module: Any = option(
        anything("torch.nn.Module, callable or None"),
        "A module whose output is logits (n, L), or an output that has them as ``.logits`` or "
        '``["logits"]``; it is copied, never changed. Or a factory that makes one. Its arguments '
        "``n_features`` (values per row) and ``n_classes`` are passed by name. Two required arguments of "
        "other names get these two values in this order. Any other factory is called without arguments. None "
        "makes `default_module`.",
        default=None,
    )
    optimizer: Any = option(
        anything("{'adam', 'adamw', 'sgd'} or optimiser class", str),
        "How to minimise the loss.",
        default="adam",
    )
    lr: float = option(number(above=0), "Learning rate.", default=1e-3)
    max_iter: int | None = option(
        optional(count()),
        "The most epochs, that is passes over the rows; by default 50, but at most 20 million row visits, "
        "and at least one pass.",
        default=None,
    )
    patience: int | None = option(
        optional(count()),
        "Stop after this many epochs without a better validation loss and keep the best weights; None trains "
        "for `max_iter` and keeps the last weights.",
        default=5,
    )
    validation_fraction: float = option(
        number(at_least=0, below=1),
        "Share of the rows held out for `patience`. With fewer than 20 rows nothing is held out, nor with "
        "`validation`.",
        default=0.1,
    )
    callbacks: Sequence[Callable[[Any], Any]] = option(
        anything("sequence of callables"),
        "Each is called after every epoch with the `Trainer`: its ``history``, ``module`` and ``optimizer``. "
        "One that returns something true ends the training. They have a state that we do not know, so "
        "there are no checkpoints.",
        default=(),
    )
    device: str = option(anything("str", str), "Where to train, such as 'cpu' or 'cuda'.", default="cpu")
    weight_decay: float = option(number(at_least=0), "The optimiser's weight decay.", default=0.0)
    standardize: bool | None = option(
        optional(flag()),
        "Whether to scale each feature (or channel) of X to mean 0 and variance 1. The scaling becomes part "
        "of the module. None does so for the default module only.",
        default=None,
    )
    batch_size: int = option(count(), "Rows per step.", default=128)
    validation: Any = option(
        anything("(X, y) pair or None"),
        "Labelled rows to measure each epoch on, in place of held-out rows. `patience` then watches the "
        "cross-entropy with these labels. In an estimator such as `Unifier`, y has the names of classes, as "
        "in its `fit`; otherwise positions from 0. Rows without a label (None, NaN, -1) are left out.",
        default=None,
    )
    num_workers: int = option(
        count(at_least=0),
        "Processes that read blocks of rows in training. 0 reads them in this process. The order of rows is "
        "the same for every number.",
        default=0,
    )
    precision: str = option(
        choice("auto", "float32", "bfloat16", "float16"),
        "What layers compute in during training. Half precision is torch's autocast; weights, losses and "
        "predictions stay in single precision. 'auto' is half precision on CUDA devices (bfloat16 if the "
        "hardware has it) and single precision elsewhere.",
        default="auto",
    )
    preprocess: Callable[[Any], Any] | None = option(
        anything("callable or None"),
        "Turns rows, as the teachers see them, into numbers (n, ...) for the module: a tokenizer of texts, "
        "for example. It is called with some rows at a time, in training and prediction.",
        default=None,
    )
    train: Literal["estimate", "backprop"] = option(
        choice("estimate", "backprop"),
        "Learn soft labels that were estimated before, or (of a `Unifier`) the method's own loss of the "
        "teachers' outputs (UHC, Section 2.5).",
        default="estimate",
    )


class NgramsOptions(Options):
    """What a classifier of n-grams takes."""

    ngram_range: tuple[int, int] = option(
        anything("(int, int)"), "The fewest and the most characters of an n-gram.", default=(1, 4)
    )
    n_buckets: int = option(
        count(at_most=2**28),
        "Number of vectors. N-grams in the same bucket share a vector. A saved model takes 2 n_buckets dim "
        "bytes.",
        default=2**18,
    )
    dim: int = option(count(), "Length of a vector.", default=64)
    max_iter: int | None = option(
        optional(count()),
        "Passes over the texts; by default 10, but at most 20 million texts, and at least one pass.",
        default=None,
    )
    lr: float = option(number(above=0), "Learning rate at the start.", default=0.02)
    dropout: float = option(
        number(at_least=0, below=1), "Share of a text's n-grams that each pass leaves out.", default=0.5
    )
    lowercase: bool = option(flag(), "Whether to turn capitals into small letters.", default=True)
    max_chars: int = option(count(), "Read at most this many characters of a text.", default=1000)
    batch_size: int = option(count(), "Texts per step.", default=256)
