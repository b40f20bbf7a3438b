"""Keep gathered text for the next run, since reading and cleaning a million messages takes a while.

A kept file is named after everything that its rows depend on, including the code, so it is never out of date.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from examples.language_identification import PER_CATALOGUE, catalogues, cleaning
from examples.language_identification import texts as texts_module
from examples.language_identification.texts import Source, Texts, gather

from consilience.exceptions import InvalidInputError
from consilience.files.disk import replacing
from consilience.run import Progress, silent
from consilience.scoring.store import ScoreStore


def check_cache(folder: Path) -> None:
    """Refuse a folder that could not keep the identifiers' answers; to be called before the long work.

    The folder is made if it is missing.

    Raises
    ------
    InvalidInputError
        It is a file, holds other files, or cannot be written.
    """
    try:
        ScoreStore(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except InvalidInputError as error:
        raise InvalidInputError(f"--cache: {error}") from None
    except OSError as error:
        raise InvalidInputError(
            f"--cache: the folder {str(folder)!r} cannot be written ({error.strerror or error}). "
            "Give another folder."
        ) from None


def gather_once(
    folder: Path,
    *,
    rows: int | None = None,
    per_catalogue: int = PER_CATALOGUE,
    packages: Sequence[str] | None = None,
    wheels: Path | None = None,
    transfer: Sequence[Path] = (),
    seed: int = 0,
    progress: Progress = silent,
) -> Texts:
    """Return the result of `texts.gather`, from `folder` if it is kept there.

    Parameters
    ----------
    folder : path
        Created if missing. Kept text is identified by the names and versions of packages, by the names, sizes
        and dates of wheels, and by the content of your own files. A package that changes without a new
        version is not noticed: delete the folder then.
    rows, per_catalogue, packages, wheels, transfer, seed, progress
        As in `texts.gather`.
    """
    limits = [rows, per_catalogue, None if packages is None else list(packages), seed]
    name = hashlib.sha256(json.dumps([limits, _state(packages, wheels, transfer)]).encode()).hexdigest()
    path = folder / f"{name[:32]}.json.gz"
    kept = _read(path)
    if kept is not None:
        return kept
    found = gather(
        rows=rows,
        per_catalogue=per_catalogue,
        packages=packages,
        wheels=wheels,
        transfer=transfer,
        seed=seed,
        progress=progress,
    )
    with contextlib.suppress(OSError):  # if nothing can be written, the next run gathers again
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(gzip.compress(json.dumps(asdict(found)).encode(), compresslevel=1))
    return found


def _state(
    packages: Sequence[str] | None, wheels: Path | None, transfer: Sequence[Path]
) -> list[list[list[object]]]:
    """Return everything that decides the rows, except limits and seed."""
    code = [Path(str(module.__file__)) for module in (catalogues, cleaning, texts_module)]
    there = [] if packages is not None and not packages else metadata.distributions()
    in_folder = [] if wheels is None else sorted(wheels.glob("*.whl"))
    return [
        [[_digest(path)] for path in code],
        [[name, version] for name, version in sorted((str(one.name), one.version) for one in there)],
        [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in in_folder],
        [[str(path), _digest(path)] for path in transfer],
    ]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read(path: Path) -> Texts | None:
    """Return the kept text, or None if there is none or the file is broken. gzip has a checksum."""
    try:
        found = json.loads(gzip.decompress(path.read_bytes()))
        return Texts(tuple(found["rows"]), tuple(Source(**one) for one in found["sources"]))
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
        return None
