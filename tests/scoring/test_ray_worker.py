"""What a worker of Ray sends: the whole answer, and nothing that it would keep. No cluster is needed."""

from __future__ import annotations

import gc
import queue
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from consilience.exceptions import ScoringError
from consilience.scoring import ray as engine
from consilience.scoring.ray_worker import Answer, as_table, from_table

pytest.importorskip("ray", reason="ray is not installed: pip install 'consilience[ray]'")


@pytest.mark.parametrize("turned", [False, True], ids=["C order", "Fortran order"])
def test_an_answer_is_read_as_it_was_written(turned: bool) -> None:
    logits = np.arange(12, dtype=np.float32).reshape(4, 3)
    given = Answer(7, np.asfortranarray(logits) if turned else logits, told=[UserWarning("late")])
    found = from_table(as_table(given))
    assert (found.number, found.error, str(found.told[0])) == (7, None, "late")
    np.testing.assert_array_equal(found.logits, logits)


def test_an_error_has_no_logits() -> None:
    found = from_table(as_table(Answer(3, None, ScoringError("no rows"))))
    assert (found.number, found.logits, str(found.error)) == (3, None, "no rows")


def test_nothing_is_kept_of_what_was_sent() -> None:
    logits = np.zeros((10, 2), np.float32)
    alive = weakref.ref(logits)
    as_table(Answer(0, logits))
    del logits
    gc.collect()
    assert alive() is None  # or a worker grows with every block


class Blocks:
    """A dataset of a thousand answers that counts how many were read."""

    read = 0

    def iter_batches(self, **_: Any) -> Any:
        for number in range(1000):
            self.read = number + 1
            yield as_table(Answer(number, np.zeros((1, 1), np.float32)))


def test_blocks_wait_for_their_reader_and_are_left_when_it_stops() -> None:
    run, blocks = object.__new__(engine._Run), Blocks()
    run._over, run._results = engine.Switch(), queue.Queue(2)
    thread = threading.Thread(target=run._collect, args=(blocks,))
    thread.start()
    first = run._results.get(timeout=10)
    assert isinstance(first, Answer)
    assert first.number == 0
    thread.join(timeout=0.2)
    assert thread.is_alive()
    assert blocks.read <= 4  # one read, two in the queue, one in hand
    run._over.event.set()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert blocks.read <= 4
