"""Kernels compile and run wherever compiled code can be kept, and where it cannot."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.caching import FunctionCache
from numba.core.compiler import Compiler
from numba.core.errors import TypingError

import consilience
from consilience.kernels import numba_internals
from consilience.kernels.compiled import kernel, part

CALL = (
    "import numpy as np; from consilience.kernels.unify import distillation, packed;"
    "log_p, p = packed.block_softmax(np.zeros((3, 2)), np.array([0, 2]), 1.0);"
    "print(packed.__file__, p.sum())"
)


@part(allocates=True)
def twice(x):  # type: ignore[no-untyped-def]
    return 2 * x


@kernel()
def four_times(x):  # type: ignore[no-untyped-def]
    return twice(twice(x))


@part()
def same(x):  # type: ignore[no-untyped-def]
    return x


@part()
def first_of_four_times(x):  # type: ignore[no-untyped-def]
    return twice(twice(x))[0]


@kernel()
def returns_its_argument(x):  # type: ignore[no-untyped-def]
    return same(x)


@kernel()
def drops_an_array(x):  # type: ignore[no-untyped-def]
    return first_of_four_times(x)


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """Return a copy of the package beside which numba cannot keep code, not even when root runs the tests."""
    package = tmp_path / "site" / "consilience"
    shutil.copytree(Path(consilience.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "kernels" / "unify" / "__pycache__").write_text("a file, so that nobody can make this folder")
    return package.parent


def call(site: Path, temporary: Path) -> None:
    """Import the package of `site` and call a kernel, in a process without a home that can be written to."""
    hidden = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "PYTHONPATH", "PYTHONHOME")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    env |= {"HOME": "/dev/null/nobody", "TMPDIR": str(temporary), "PYTHONPATH": str(site)}
    env |= {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", CALL], env=env, cwd=site, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    path, total = done.stdout.split()
    assert path == str(site / "consilience" / "kernels" / "unify" / "packed.py")
    assert float(total) == 3.0


@pytest.mark.skipif(os.name == "nt", reason="paths of POSIX")
def test_a_package_that_cannot_be_written_to_keeps_its_code_in_a_private_temporary_folder(
    locked: Path, tmp_path: Path
) -> None:
    call(locked, tmp_path)
    folder = tmp_path / f"consilience-kernels-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    kept = list(folder.glob("*/packed.softmax_rows-*.nbc"))
    assert len(kept) == 1
    written = kept[0].stat().st_mtime_ns
    call(locked, tmp_path)
    assert kept[0].stat().st_mtime_ns == written  # the second process has found it


@pytest.mark.skipif(os.name == "nt", reason="paths of POSIX")
def test_a_temporary_folder_that_others_can_open_is_not_used(locked: Path, tmp_path: Path) -> None:
    folder = tmp_path / f"consilience-kernels-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    call(locked, tmp_path)
    assert list(folder.iterdir()) == []


def test_a_full_disk_does_not_break_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(FunctionCache, "save_overload", fail)
    assert four_times(3) == 12


def test_a_part_is_compiled_within_its_kernel_and_plain_in_python() -> None:
    assert four_times(np.arange(3)).tolist() == [0, 4, 8]
    assert twice("ab") == "abab"  # which no compiled form of it takes


@pytest.mark.parametrize("function", [returns_its_argument, drops_an_array])
def test_a_part_that_passes_arrays_on_must_say_so(function: Any) -> None:
    with pytest.raises(TypingError, match=r"allocates=True"):
        function(np.arange(3))


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_rests_while_a_kernel_compiles(
    enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    compile_extra = Compiler.compile_extra

    def watch(self: Any, function: Any) -> Any:
        seen.append(gc.isenabled())
        return compile_extra(self, function)

    monkeypatch.setattr(Compiler, "compile_extra", watch)
    monkeypatch.setattr(FunctionCache, "load_overload", lambda *_: None)  # so that it does compile
    was_enabled = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        assert kernel()(lambda x: x + 1)(1) == 2
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()
    assert seen
    assert not any(seen)


def test_code_is_kept_for_as_long_as_no_kernel_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.py").write_text("1")
    monkeypatch.setattr(numba_internals, "__file__", str(tmp_path / "compiled.py"))
    stamps = []
    for text in ("2", "2", "3"):
        (tmp_path / "two.py").write_text(text)
        numba_internals._digest_of_sources.cache_clear()
        stamps.append(numba_internals._digest_of_sources())
    numba_internals._digest_of_sources.cache_clear()
    assert stamps[0] == stamps[1] != stamps[2]


def test_a_numba_with_other_internals_compiles_the_same_kernels(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['consilience.kernels.numba_internals'] = None\n"
        "import numpy as np; from consilience import LabelSpace, estimate_soft_labels\n"
        "space = LabelSpace([['a', 'b'], ['b', 'c']])\n"
        "logits = np.log([[0.8, 0.2, 0.5, 0.5]])\n"
        "print(estimate_soft_labels(logits, space, temperature=1.0).round(3).tolist())"
    )
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[[0.667, 0.167, 0.167]]"
