"""Score rows with teachers, block by block; what the cache knows is not asked.

Memory does not grow with the number of rows, and rows are read once for all teachers. A small array is one
block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience._version import __version__
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.files.card import Card, carded
from consilience.files.disk import replacing
from consilience.files.made import KEY, date_now
from consilience.labels import LabelSpace
from consilience.options import Options, anything, check_choice, count, number, option, optional
from consilience.rows.rows import Block, Rows, as_rows, new_array, take_rows
from consilience.rows.tables import rows_sha256
from consilience.run import Run, Tell
from consilience.scoring.batches import FIRST, SETTLE, Batch, Pace, ask, ask_batches
from consilience.scoring.store import ScoreStore, as_store
from consilience.teachers import Observed, Teacher

BlockScores = tuple[int, NDArray[np.float32]]
"""The number of a block, and the packed logits (b, m) of its rows."""
Finish = Callable[[slice, NDArray[np.float32]], NDArray[np.float32]]
"""What to make of the packed logits (b, m) of a block where they are: from its rows and these to (b, c)."""
Digests = NDArray[np.uint64] | None


class RayOptions(Options):
    """How to run on Ray: ``Run(engine="ray", engine_options={...})``."""

    address: str | None = option(
        anything("str or None"),
        "Of the cluster. By default the one that is connected or runs on this machine, else a new one here.",
        default=None,
    )
    workers: int | None = option(
        optional(count()),
        "Most actors that score at once. By default as many as the cluster has room for.",
        default=None,
    )
    num_cpus: float = option(number(at_least=0), "Processors that a worker reserves.", default=1)
    num_gpus: float = option(number(at_least=0), "Devices that a worker reserves.", default=0)
    timeout: float = option(
        number(above=0), "Stop with an error if no row is scored for this many seconds.", default=600.0
    )
    train_workers: int | None = option(
        optional(count()),
        "Processes that train a torch student together, by Ray Train. By default it learns in the process "
        "that calls `fit`.",
        default=None,
    )


def engine_options(run: Run) -> RayOptions:
    """Return how to run on Ray, checked; raise if options are given and the engine is another."""
    given, known = {} if run.engine_options is None else run.engine_options, RayOptions.declared()
    if run.engine == "local" and given:
        raise InvalidInputError(
            "{argument} are for {remedy}; drop them.", argument="engine_options", remedy=("engine", "ray")
        )
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            f"{{argument}} must be a dict; it may have {', '.join(known)}.",
            argument="engine_options",
            value=given,
        )
    for key in given:
        check_choice("engine_options", key, known)
    made = RayOptions(**given)
    made.check_options()
    return made


def open_cache(run: Run) -> ScoreStore | None:
    """Return the cache of a run, opened; None if it has none."""
    return None if run.cache is None else as_store(run.cache, run.cache_limit)


def with_open_cache(run: Run) -> Run:
    """Return the same `Run` with its cache opened, for a verb that asks teachers several times."""
    return run.changed(cache=open_cache(run), cache_limit=None)


def score(teachers: Sequence[Teacher], space: LabelSpace, rows: Rows, run: Run) -> NDArray[np.float32]:
    """Return the packed logits (n, m) of all teachers, in single precision; see `score_blocks`."""
    packed = new_array((len(rows), space.n_columns), run)
    for i, logits in score_blocks(teachers, space, rows, run):
        packed[rows.rows_of(i)] = logits
    return packed


def score_blocks(
    teachers: Sequence[Teacher], space: LabelSpace, rows: Rows, run: Run, finish: Finish | None = None
) -> Iterator[BlockScores]:
    """Yield the number and the packed logits (b, m) of every block: in order, or on Ray as they are done.

    Parameters
    ----------
    teachers : sequence of Teacher
        In the order of the blocks of `space`. One with ``batched = False`` gets all rows at once.
    space : LabelSpace
    rows : Rows
        Those that Ray holds are always scored on Ray.
    run : Run
        Rows in its cache are not scored again, and a run that was stopped goes on there. Progress is told as
        ("scoring", rows done, rows in all), counted over all teachers.
    finish : callable, optional
        What to make of the logits of a block, on Ray in the worker; its result is yielded instead.
    """
    if run.engine == "ray" or rows.on_ray:
        from consilience.scoring.ray import score_on_ray

        return score_on_ray(teachers, space, rows, run, finish)
    return score_here(teachers, space, rows, run, finish)


def score_here(
    teachers: Sequence[Teacher], space: LabelSpace, rows: Rows, run: Run, finish: Finish | None = None
) -> Iterator[BlockScores]:
    """Do what `score_blocks` does, in this process."""
    asked = open_teachers(teachers, rows, run, open_cache(run))
    tell = run.counter("scoring", len(teachers) * len(rows))
    for block in rows.blocks():
        packed = side_by_side(observe_all(asked, len(teachers), block, tell))
        yield block.number, packed if finish is None else finish(block.rows, packed)


def observe(teacher: Teacher, rows: Any, run: Run, embeddings: bool = True) -> Observed:
    """Return a teacher's logits (n, k) and embeddings (n, d), of one pass over the rows.

    The values have single precision. Embeddings are None if the teacher has none, or they are not wanted.

    Parameters
    ----------
    teacher : Teacher
    rows : Rows, array, sparse matrix, data frame or list
        n rows.
    run : Run
        As for `score_blocks`, but the teacher is always asked on this machine.
    embeddings : bool
        Whether embeddings are wanted, too.
    """
    rows = as_rows(rows)
    asked = Asked(teacher, rows, run, open_cache(run), embeddings)
    answers, tell = _Answers(teacher, len(rows), run, np.float64), run.counter("scoring", len(rows))
    # no rows are asked about, too: they may be of a wrong kind
    for block in rows.blocks() if len(rows) else [Block(0, slice(0, 0), rows.given)]:
        answers.put(block.rows, asked.observe(block, digests_of(block, [asked]), tell))
    return answers.all()


class WrittenScores(NamedTuple):
    """What was written: rows, those about which the teacher says nothing, and the rows' checksum if known."""

    n_rows: int
    n_abstentions: int
    rows_sha256: str | None


def write_scores(path: Path, teacher: Teacher, X: Any, run: Run) -> WrittenScores:
    """Write a teacher's logits for the rows of X, and a card that says for which rows they are.

    ``as_teacher(path)`` then says about X what the teacher says.

    Parameters
    ----------
    path : Path
        .npz (`logits` and `classes`), .npy or .parquet (a column per class); the card has the classes.
    teacher : Teacher
    X : array, sparse matrix, data frame, list or Rows
        n rows. Those that do not lie in memory have no checksum.
    run : Run
    """
    rows = as_rows(X)
    logits, digest = score([teacher], LabelSpace([teacher.classes]), rows, run), rows_sha256(rows.given)
    about = {"data": {"rows": len(rows), "sha256": digest}, "teachers": [{"name": teacher.name}]}
    card = Card(
        path.stem,
        tuple(teacher.classes.tolist()),
        "logits",
        description=f"What {teacher.name!r} says about {len(rows)} rows.",
        details={KEY: {"version": __version__, "date": date_now(), **about}},
    )
    with carded(path, card), replacing(path) as file:
        if path.suffix.lower() == ".npy":
            np.save(file, logits, allow_pickle=False)
        elif path.suffix.lower() == ".npz":
            np.savez_compressed(file, logits=logits, classes=teacher.classes)
        else:
            arrow = require("pyarrow", extra="tables", purpose="Writing parquet")
            parquet = require("pyarrow.parquet", extra="tables", purpose="Writing parquet")
            names = [str(name) for name in teacher.classes.tolist()]
            parquet.write_table(arrow.table([*logits.T], names=names), file)
    return WrittenScores(len(rows), int(np.isnan(logits[:, 0]).sum()), digest)


class Asked:
    """A teacher that is asked about one block after the other.

    The batches of a block do not depend on other blocks: some models answer in other last digits if they get
    other batches, and a block must have the same logits on every machine and after every stop.

    Parameters
    ----------
    teacher : Teacher
    rows : Rows
        All of them. The first show how to read the teacher's scores.
    run : Run
    store : ScoreStore, optional
        Where answers are kept. Not those of teachers without a fingerprint, or that hold the answers.
    embeddings : bool
        Whether embeddings are wanted, too.

    Attributes
    ----------
    held : bool
        Whether the answers for all rows are here: the teacher holds them, or it wants all rows at once.
    shelf : Shelf or None
        Where answers are kept; rows must then be told apart by their digests.
    """

    def __init__(
        self, teacher: Teacher, rows: Rows, run: Run, store: ScoreStore | None, embeddings: bool = False
    ) -> None:
        self.teacher, self._run, self._embeddings = teacher, run, embeddings
        self.shelf, self._whole = None, None
        self.held = teacher.part(slice(0, 0)) is not None
        if self.held:
            teacher.check_rows(rows.given)
        elif not teacher.batched:
            self._whole, self.held = ask(teacher, rows.all(run), len(rows), embeddings), True
        elif store is not None:
            # the rows that would decide without a cache: the fingerprint depends on it
            settle(teacher, rows, run)
            if teacher.fingerprint is not None:
                self.shelf = store.shelf(teacher.fingerprint, len(teacher.classes), teacher.name)

    def observe(self, block: Block, digests: Digests, tell: Tell = lambda count: None) -> Observed:
        """Return the logits (b, k) of a block in single precision, and its embeddings (b, d) if wanted.

        Parameters
        ----------
        block : Block
        digests : (b, 2) array or None
            Of its rows; None if rows have no plain content.
        tell : callable
            Called with the number of rows that were just answered.
        """
        if not self.held:
            return self._asked(block, digests, tell)
        tell(len_of(block))
        if self._whole is not None:
            return self._whole.take(block.rows)
        part: Any = self.teacher.part(block.rows)
        try:
            return ask(part, block.X, len_of(block), self._embeddings)
        except InvalidInputError as error:  # the part knows its own rows only
            raise error.moved(block.rows.start) from error.__cause__

    def _asked(self, block: Block, digests: Any, tell: Tell) -> Observed:
        """Return what the cache knows and the teacher answers."""
        count, shelf = len_of(block), None if digests is None else self.shelf
        answers = _Answers(self.teacher, count, self._run)
        missing = first = np.arange(count)  # first: of equal rows, the one that is asked about
        if shelf is not None:
            known, seen = shelf.find(digests, embeddings=self._embeddings)
            answers.put(known, seen.take(known))
            missing = np.flatnonzero(~known)
            tell(count - len(missing))
            if not len(missing):
                return answers.all()
            _, at, which = np.unique(digests[missing], axis=0, return_index=True, return_inverse=True)
            first = missing[at[which.ravel()]]
        wanted = np.unique(first)
        pace = Pace(self._run.rows_per_call, SETTLE if self.teacher.output is None else FIRST)
        try:
            for batch, seen in ask_batches(
                self.teacher, _batches(block, wanted, pace), len(wanted), pace, embeddings=self._embeddings
            ):
                if shelf is not None:
                    shelf.add(digests[batch.places], seen, embeddings=self._embeddings)
                answers.put(batch.places, seen)
                tell(len(batch.places))
        finally:
            if shelf is not None:
                shelf.flush()
        found = answers.all()
        if len(wanted) < len(missing):
            answers.put(missing, found.take(first))
            tell(len(missing) - len(wanted))
        return found


class _Answers:
    """Logits (n, k) and embeddings (n, d) of a teacher, which come part by part."""

    def __init__(self, teacher: Teacher, rows: int, run: Run, dtype: type = np.float32) -> None:
        self._teacher, self._rows, self._run = teacher, rows, run
        self._logits = new_array((rows, len(teacher.classes)), run, dtype)
        self._features: NDArray[Any] | None = None
        self._begun = False

    def put(self, places: Any, seen: Observed) -> None:
        """Note what the teacher says of some rows."""
        self._logits[places] = seen.logits
        if not len(seen.logits) and self._rows:
            return
        width = None if seen.embeddings is None else seen.embeddings.shape[1]
        if not self._begun and width is not None:
            self._features = new_array((self._rows, width), self._run)
        known, self._begun = None if self._features is None else self._features.shape[1], True
        if width != known:
            raise TeacherError(
                self._teacher.name,
                f"has embeddings of width {known} for some rows and {width} for others. If it was changed, "
                "give it another fingerprint, or clear the cache.",
            )
        if self._features is not None:
            self._features[places] = seen.embeddings

    def all(self) -> Observed:
        """Return what the teacher said."""
        return Observed(self._logits, self._features)


def open_teachers(
    teachers: Sequence[Teacher],
    rows: Rows,
    run: Run,
    store: ScoreStore | None,
    *,
    places: Iterable[int] | None = None,
    embeddings: bool = False,
) -> dict[int, Asked]:
    """Make teachers ready to be asked, by their places, which an error names; by default all."""
    opened = {}
    for i in range(len(teachers)) if places is None else places:
        with placed(i, len(teachers)):
            opened[i] = Asked(teachers[i], rows, run, store, embeddings)
    return opened


def observe_all(asked: Mapping[int, Asked], n_teachers: int, block: Block, tell: Tell) -> dict[int, Observed]:
    """Return what some teachers say of a block, by their places."""
    digests, seen = digests_of(block, asked.values()), {}
    for i, one in asked.items():
        with placed(i, n_teachers):
            seen[i] = one.observe(block, digests, tell)
    return seen


def side_by_side(seen: Mapping[int, Observed]) -> NDArray[np.float32]:
    """Return the logits (b, k) of some teachers."""
    return np.concatenate([one.logits for one in seen.values()], axis=1)


def settle(teacher: Teacher, rows: Rows, run: Run) -> None:
    """Decide from the first rows how to read a teacher's scores, unless that is known."""
    if teacher.output is None and len(rows):
        teacher.predict_logits(take_rows(rows.head, slice(0, min(SETTLE, run.rows_per_call))))


def len_of(block: Block) -> int:
    """Return the number of rows of a block."""
    return int(block.rows.stop - block.rows.start)


def digests_of(block: Block, asked: Iterable[Asked]) -> Digests:
    """Return the digests of the rows of a block, if a teacher needs them."""
    if all(one.shelf is None for one in asked):
        return None
    from consilience.scoring.digests import row_digests

    return row_digests(block.X)


@contextmanager
def placed(place: int, count: int) -> Iterator[None]:
    """Say which of `count` teachers an error is about."""
    try:
        yield
    except TeacherError as error:
        raise error.at(place, count) from error.__cause__


def _batches(block: Block, rows: NDArray[np.intp], pace: Pace) -> Iterator[Batch]:
    """Yield some rows of a block in order; at least one batch, so that no rows show errors, too."""
    if not len(rows):
        yield Batch(rows, block.X, block.rows.start)
    while len(rows):
        part, rows = rows[: pace.size], rows[pace.size :]
        follow = int(part[-1] - part[0]) == len(part) - 1  # then it is a view, where X is an array
        places: Any = slice(int(part[0]), int(part[-1]) + 1) if follow else part
        X = block.X if len(part) == len_of(block) else take_rows(block.X, places)
        yield Batch(part, X, block.rows.start)
