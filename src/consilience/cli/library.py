"""What commands call of the library, imported when a command asks for it: ``--help`` is quick."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "BETWEEN_GROUPS": "labels",
    "CollisionClustering": "cluster.clustering",
    "CrossTaskDistiller": "distil.distiller",
    "LabelSpace": "labels",
    "ModelServer": "students.server",
    "Repository": "repository.repository",
    "Rows": "rows",
    "ScoreStore": "scoring.store",
    "ServedModel": "students.server",
    "TeacherOptions": "teachers.base",
    "Unifier": "unify.unifier",
    "address_name": "teachers.remote",
    "as_rows": "rows",
    "as_store": "scoring.store",
    "as_teacher": "teachers",
    "check_target": "files.readers",
    "cluster_agreement": "cluster.report",
    "column_kinds": "teachers.given",
    "draw_demo": "cli.figures",
    "evaluate_teacher": "inspect.evaluate",
    "holds_texts": "students.make",
    "is_address": "teachers.remote",
    "labels_of": "labels:read_labels",
    "load": "students.loaded",
    "memory_budget": "rows",
    "numbers_or_text": "files.readers",
    "open_files": "rows.files",
    "parse_classes": "files.readers",
    "plain": "inspect.page",
    "predict_file": "students.loaded",
    "rank_teachers": "rank.rank",
    "read_alike": "rows.files",
    "read_aliases": "files.readers",
    "read_bytes": "files.disk",
    "read_label_file": "files.readers:read_labels",
    "read_truth": "inspect.evaluate",
    "replacing": "files.disk",
    "run_demo": "cli.demo",
    "shown_entry": "repository.listing",
    "size_text": "_words",
    "storage_path": "files.storage",
    "student_name": "students.student",
    "suggest_aliases": "inspect.aliases",
    "take_rows": "_validation",
    "unknown_classes": "inspect.evaluate",
    "verify_model": "students.verify",
    "warn_of_unused": "inspect.matching",
    "write_aliases": "files.readers",
    "write_clusters": "files.readers",
    "write_repository": "students.server",
    "write_scores": "teachers.precomputed",
    "write_soft_labels": "files.readers",
}
"""The module of each name, and what it is called there, where that differs."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, _, there = _HOMES[name].partition(":")
    return getattr(importlib.import_module(f"consilience.{home}"), there or name)
