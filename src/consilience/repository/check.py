"""Check a repository: every file against the checksum on its card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from consilience._progress import Progress
from consilience.repository.index import Known
from consilience.repository.layout import DESCRIPTION, Layout, card_copy, card_file
from consilience.repository.listing import Finding, RepositoryCheck


def check_repository(layout: Layout, known: Mapping[str, Known], progress: Progress) -> RepositoryCheck:
    """Compare every file with its card; see `Repository.verify`."""
    findings: list[Finding] = []
    n_files = 0
    for place, (folder, one) in enumerate(known.items()):
        if one.entry is None:
            findings.append(Finding(folder, card_file(folder), "unreadable", f"{folder}: {one.problem}"))
        else:
            n_files += len(one.entry.files)
            findings += _of_model(layout, folder, one)
        progress("checking", place + 1, len(known))
    for name in layout.strangers():
        findings.append(Finding("", name, "extra", f"{name!r} belongs to no model of the repository."))
    return RepositoryCheck(len(known), n_files, tuple(findings))


def _of_model(layout: Layout, folder: str, one: Known) -> Iterator[Finding]:
    entry = one.entry
    if entry is None:
        return
    sizes, others = layout.files(folder)
    for path, about in entry.files.items():
        if path not in sizes:
            yield Finding(folder, path, "missing", f"{folder}: {path} is missing, or no regular file.")
        elif sizes[path] != about.n_bytes or layout.sha256(folder, path) != about.sha256:
            yield Finding(folder, path, "damaged", f"{folder}: {path} is not the file that was added.")
    cards = {card_file(folder), card_copy(entry) or ""}
    for path in cards & set(sizes) - {card_file(folder)}:
        if layout.sha256(folder, path) != layout.sha256(folder, card_file(folder)):
            yield Finding(folder, path, "damaged", f"{folder}: {path} is another card than the model's.")
    for path in [*sizes, *others]:
        if path not in entry.files and path not in cards and not DESCRIPTION.fullmatch(path):
            yield Finding(folder, path, "extra", f"{folder}: {path} was not added with the model.")
