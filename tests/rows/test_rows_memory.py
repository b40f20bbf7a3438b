"""How much memory work may take, and where arrays lie."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.exceptions import InvalidInputError
from consilience.rows import memory_budget, new_array
from consilience.rows import rows as memory
from consilience.run import Run


def test_the_budget_is_a_share_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_budget(Run(memory="2GB")) == 2 * 10**9
    assert memory_budget(Run(memory=17)) == 17
    everything = memory_budget(Run())
    monkeypatch.setattr(memory, "SHARE_OF_MACHINE", memory.SHARE_OF_MACHINE / 2)
    assert memory_budget(Run()) == pytest.approx(everything / 2, abs=2)
    assert 2**24 < everything < 2**44
    with pytest.raises(InvalidInputError, match="memory='much' must be a size"):
        memory_budget(Run(memory="much"))


@pytest.mark.parametrize(("size", "mapped"), [("1MB", False), ("1KB", True)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_an_array_lies_where_it_fits(size: str, mapped: bool, dtype: type) -> None:
    found = new_array((1000, 3), Run(memory=size), dtype)
    assert found.dtype == dtype
    assert isinstance(found, np.memmap) == mapped
    found[10:20] = 2
    assert found.sum() == 2 * 30  # zeros elsewhere
    assert new_array((0, 3), Run(memory=1)).shape == (0, 3)


def test_a_disk_that_is_too_small_is_said_before_any_work() -> None:
    with pytest.raises(InvalidInputError, match=r"temporary file cannot grow: .* Set .* TMPDIR"):
        new_array((2**50, 3), Run(memory=1))
