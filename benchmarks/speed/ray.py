"""What Ray costs: start, and the time of one machine over that of Ray with 1, 2 and 4 workers."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator

import numpy as np

from benchmarks.speed.measures import Options, Result
from benchmarks.speed.problem import best_of
from consilience import LabelSpace, as_teacher
from consilience.rows import HeldRows
from consilience.run import Run
from consilience.scoring import score_blocks

BLOCKS, COLUMNS, CLASSES = 32, 64, 10
SECONDS = 0.2  # that a teacher waits for each block, as one on another machine or a GPU would make it wait


def ray(options: Options) -> Iterator[Result]:
    """Score 32 blocks of 16,384 rows by a teacher that takes no time, and by one of 0.2 s a block."""
    import ray

    repeats = min(2, options.repeats)
    rows = (8 if options.quick else BLOCKS) * 2**14
    X = np.random.default_rng(options.seed).normal(size=(rows, COLUMNS))
    source, sizes = HeldRows(X), {"rows": rows, "columns": COLUMNS, "classes": CLASSES}
    space = LabelSpace([range(CLASSES)], names=["teacher"])

    def quick(part: np.ndarray) -> np.ndarray:
        return part[:, :CLASSES]

    def slow(part: np.ndarray) -> np.ndarray:
        time.sleep(SECONDS * len(part) / 2**14)
        return part[:, :CLASSES]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Ray's own
        start = time.perf_counter()
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield Result("Ray: start of a cluster here", time.perf_counter() - start, "s", sizes=sizes)
        for name, body in (("no time", quick), ("0.2 s a block", slow)):
            teacher = as_teacher(body, range(CLASSES), "teacher", output="logits")
            here = best_of(
                repeats, lambda teacher=teacher: list(score_blocks([teacher], space, source, Run()))
            )
            for workers in (1, 2, 4):
                chosen = Run(engine="ray", engine_options={"workers": workers})
                there = best_of(
                    repeats,
                    lambda teacher=teacher, chosen=chosen: list(
                        score_blocks([teacher], space, source, chosen)
                    ),
                )
                note = f"{(there - here) / source.n_blocks * 1000:.0f} ms a block more than here"
                title = f"Ray: {workers} workers, a teacher that takes {name}"
                yield Result(title, here / there, "x", ours=there, peer=here, note=note, sizes=sizes)
        ray.shutdown()


MEASURES = {"ray": ray}
