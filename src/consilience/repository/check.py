"""Check a repository: every file against the checksum on its card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from consilience._progress import Progress
from consilience.files.storage import Entry
from consilience.repository.entry import ModelEntry
from consilience.repository.listing import Finding, RepositoryCheck
from consilience.repository.shelf import DESCRIPTION, OWN, Shelf, card_file


def check_repository(
    shelf: Shelf, known: Mapping[str, ModelEntry | str], progress: Progress
) -> RepositoryCheck:
    """Compare every file with its card; see `Repository.verify`."""
    findings: list[Finding] = []
    contents, n_files = shelf.contents(), 0
    for place, (folder, entry) in enumerate(known.items()):
        if isinstance(entry, str):
            findings.append(Finding(folder, f"{folder}.card.json", "unreadable", f"{folder}: {entry}"))
        else:
            n_files += len(entry.files)
            findings += _of_model(shelf, entry, contents.get(folder, {}))
        progress("checking", place + 1, len(known))
    strangers = {*contents, *contents.get("", ())} - {"", OWN, *known}
    for name in sorted(strangers):
        findings.append(Finding("", name, "extra", f"{name!r} belongs to no model of the repository."))
    return RepositoryCheck(len(known), n_files, tuple(findings))


def _of_model(shelf: Shelf, entry: ModelEntry, files: Mapping[str, Entry]) -> Iterator[Finding]:
    folder = entry.folder
    for path, about in entry.files.items():
        found = files.get(path)
        if found is None or found.kind != "file":
            yield Finding(folder, path, "missing", f"{folder}: {path} is missing, or no regular file.")
        elif found.size != about.n_bytes or shelf.sha256(found) != about.sha256:
            yield Finding(folder, path, "damaged", f"{folder}: {path} is not the file that was added.")
    card, copy = card_file(folder).partition("/")[2], files.get(entry.card_copy)
    if copy is not None and shelf.sha256(copy) != shelf.sha256(files[card]):
        text = f"{folder}: {entry.card_copy} is another card than the model's."
        yield Finding(folder, entry.card_copy, "damaged", text)
    for path in files.keys() - entry.files.keys() - {card, entry.card_copy}:
        if not DESCRIPTION.fullmatch(path):
            yield Finding(folder, path, "extra", f"{folder}: {path} was not added with the model.")
