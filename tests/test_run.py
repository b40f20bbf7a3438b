"""How work is run: given, set for a program, or the default."""

import copy
import re
import threading

import pytest
from sklearn.base import clone

from consilience.exceptions import InvalidInputError
from consilience.run import Run, resolve_run, using


def test_the_given_run_wins_over_using_over_the_default():
    assert resolve_run(None).memory is None
    with using(memory="2GB"):
        assert resolve_run(None).memory == "2GB"
        assert resolve_run(Run(memory="1GB")).memory == "1GB"
        with using(cache="scores"):
            assert (resolve_run(None).memory, resolve_run(None).cache) == ("2GB", "scores")
    assert resolve_run(None).memory is None


def test_a_run_is_frozen_and_kept_by_reference():
    run = Run(memory="2GB")
    assert clone(run) is run
    assert copy.deepcopy(run) is run
    with pytest.raises(AttributeError, match="frozen"):
        run.memory = "1GB"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: resolve_run(Run(memory="2 cups")), "memory='2 cups' must be a size"),
        (lambda: resolve_run(Run(rows_per_call=0)), "rows_per_call=0 must be a whole number of at least 1"),
        (lambda: resolve_run(Run(engine="spark")), "engine='spark' is unknown; use 'local' or 'ray'"),
        (lambda: resolve_run("2GB"), "run='2GB' must be a consilience.Run or None"),
        (lambda: using(memroy="2GB").__enter__(), "Did you mean 'memory'"),
    ],
)
def test_slips_are_told(make, said):
    with pytest.raises(InvalidInputError, match=re.escape(said)):
        make()


def test_another_thread_has_its_own_default():
    found = []
    with using(memory="2GB"):
        thread = threading.Thread(target=lambda: found.append(resolve_run(None).memory))
        thread.start()
        thread.join()
    assert found == [None]  # so whoever starts threads passes the run on
