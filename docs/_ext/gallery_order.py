"""The order of the gallery: what most people look for first."""

from __future__ import annotations

from pathlib import Path

ORDER = (
    # unify
    "three_sites",
    "disjoint_label_sets",
    "suggested_aliases",
    "language_identification",
    "onnx_and_browser",
    "remote_teacher",
    "out_of_memory",
    # choose, and learn across tasks
    "rank_repository",
    "poisoned_teacher",
    "transport_plan",
    "torch_loop",
    # no labels, few, or wrong ones
    "name_the_clusters",
    "noisy_labels",
)


class GalleryOrder:
    """Sort examples as `ORDER` does, and new ones to the end."""

    def __init__(self, src_dir: str) -> None:
        self.src_dir = src_dir

    def __repr__(self) -> str:
        return "<GalleryOrder>"  # without an address: a build that changed nothing then reads no page again

    def __call__(self, filename: str) -> int:
        """Return the place of an example."""
        name = Path(filename).stem.removeprefix("plot_")
        return ORDER.index(name) if name in ORDER else len(ORDER)
