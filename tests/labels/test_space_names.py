from __future__ import annotations

import numpy as np

from consilience.labels import class_list


def test_class_list_gives_plain_python_values() -> None:
    values = class_list(np.array([3, 1], dtype=np.int32))
    assert values == [3, 1]
    assert all(type(value) is int for value in values)
    assert class_list((np.str_("a"), "b")) == ["a", "b"]
