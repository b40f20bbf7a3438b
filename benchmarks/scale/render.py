"""The tables of docs/large-data.md, from the result file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.results import markdown, source
from benchmarks.scale import on_paper
from benchmarks.scale.on_paper import Measured, Step

Record = Mapping[str, Any]
STREAM_GOAL, RAY_GOAL, FLAT_GOAL = 1.15, 1.5, 1.10
BUSY = 1.25
"""A loop that took this many times its processor time had to wait for others: its clock tells nothing."""


def render(records: Sequence[Record]) -> str:
    """Return all that was measured; nothing, if nothing was."""
    timed = [record for record in records if "name" in record]
    ended = [record for record in records if record["kind"] == "end to end"]
    parts = [_overhead(timed), _flatness(timed), _end_to_end(ended), _paper(timed), _sources(records)]
    return "\n\n".join(part for part in parts if part)


Key = tuple[int, int, str]


def best(records: Sequence[Record]) -> dict[Key, Record]:
    """Return the quickest record of each kind, by the depth of slow teachers and the rows.

    Only teachers of the same depth do the same work: on a busy machine the same microseconds may give
    another depth.
    """
    found: dict[Key, Record] = {}
    for record in records:
        key = (record["depth"], record["rows"], record["name"])
        if key not in found or record["seconds"] < found[key]["seconds"]:
            found[key] = record
    return found


def _overhead(timed: Sequence[Record]) -> str:
    quickest, rows = best(timed), []
    for (depth, count, name), record in sorted(quickest.items(), key=lambda item: item[0][:2]):
        loop = quickest.get((depth, count, "loop"))
        if loop is None or not depth:
            continue
        ratio, cpu = (record[unit] / loop["cpu_seconds"] for unit in ("seconds", "cpu_seconds"))
        rows.append(
            [
                name,
                f"{count:,}",
                f"{1e6 * loop['cpu_seconds'] / count:.0f}",
                f"{count / record['seconds']:,.0f}",
                f"{ratio:.2f}",
                "" if record["kind"] == "ray" else f"{cpu:.2f}",
                _goal(record, cpu, loop),
                f"{record['peak_bytes'] / 1e6:,.0f} MB",
            ]
        )
    if not rows:
        return ""
    head = [
        "what",
        "rows",
        "teachers, us a row",
        "rows/s",
        "time / loop",
        "CPU / loop",
        "goal",
        "peak memory",
    ]
    return (
        "**Overhead.** 15 quick teachers, 5 slow ones, 35 classes. The loop only draws the rows and asks the "
        "teachers. The others make soft labels, too. The best of several runs. All is compared with the "
        "processor time of the loop: it has one thread, so an idle machine takes that long. A stream is "
        "judged by its own processor time and, where the loop hardly waited, by the clock; "
        "Ray by the clock. Lines with one figure in the third column had the same teachers.\n\n"
        f"{markdown(head, rows)}"
    )


def _goal(record: Record, cpu: float, loop: Record) -> str:
    if record["kind"] == "stream":
        verdict = _verdict(cpu, STREAM_GOAL, f"at most {STREAM_GOAL:g}")
        if loop["seconds"] > BUSY * loop["cpu_seconds"]:
            return f"{verdict} in CPU; the loop waited too long to compare clocks"
        clock = record["seconds"] / loop["seconds"]
        return f"{verdict} in CPU, {_verdict(clock, STREAM_GOAL, f'by the clock ({clock:.2f})')}"
    if record["kind"] == "ray":
        without = (record["seconds"] - record.get("start", 0.0)) / loop["cpu_seconds"]
        return _verdict(without, RAY_GOAL, f"at most {RAY_GOAL:g} after its start ({without:.2f})")
    return ""


def _verdict(value: float, most: float, words: str) -> str:
    return f"{words}: {'met' if value <= most else '**not met**'}"


def _flatness(timed: Sequence[Record]) -> str:
    quickest, rows = best([record for record in timed if not record["depth"]]), []
    bases: dict[str, Record] = {}
    for (_, count, name), record in sorted(quickest.items(), key=lambda item: (item[0][2], item[0][1])):
        base = bases.setdefault(name, record)
        grown = record["peak_bytes"] / base["peak_bytes"]
        flat = record["kind"] in ("stream", "ray") and base is not record
        rows.append(
            [
                name,
                f"{count:,}",
                f"{1e6 * record['seconds'] / count:.1f}",
                f"{1e6 * record['cpu_seconds'] / count:.1f}",
                f"{record['peak_bytes'] / 1e6:,.0f} MB",
                _verdict(grown, FLAT_GOAL, f"{grown:.2f} of {base['rows']:,} rows") if flat else "",
            ]
        )
    if not rows:
        return ""
    head = ["what", "rows", "us a row", "CPU us a row", "peak memory", "memory flat within 10 %"]
    return (
        f"**Growth.** The same with 20 quick teachers, so that what we add shows.\n\n{markdown(head, rows)}"
    )


def _end_to_end(ended: Sequence[Record]) -> str:
    if not ended:
        return ""
    rows = []
    for r in ended:
        same = {True: "same bytes", False: "**differs**"}.get(r.get("same_bytes"), "")  # type: ignore[arg-type]
        rows.append(
            [
                f"{r['rows']:,}",
                r["student"],
                f"{r['limit'] / 1e9:g} GB, --memory {r['memory']}",
                f"{r['peak_bytes'] / 1e6:,.0f} MB",
                " and ".join(r["kills"]),
                " + ".join(f"{seconds:.0f}" for seconds in r["seconds"]) + " s",
                " -> ".join(f"{count / r['teachers'] / r['rows']:.0%}" for count in r["stored"]),
                ", ".join(f"{step} {seconds:.0f} s" for step, seconds in r["steps"].items()),
                same,
            ]
        )
    head = ["rows", "student", "limit", "peak memory", "killed during", "the three runs", "stored after each"]
    head += ["steps of the last run", "against a run that was left alone"]
    return (
        "**From parquet to a saved model**, by `consilience unify` with 4 ONNX teachers: killed with SIGKILL "
        "twice and started again. The limit is RLIMIT_DATA. `ulimit -v` would also count address space that "
        f"torch and onnxruntime reserve and never use.\n\n{markdown(head, rows)}"
    )


def _paper(timed: Sequence[Record]) -> str:
    quickest = best(timed)
    sizes = [
        (depth, count)
        for depth, count, name in quickest
        if depth and name == "stream, store" and (depth, count, "stream") in quickest
    ]
    sizes = [size for size in sizes if (*size, "loop") in quickest]
    if not sizes:
        return ""
    size = max(sizes, key=lambda one: one[1])
    found = Measured.of(*(quickest[(*size, name)] for name in ("loop", "stream", "stream, store")))
    workers, one = on_paper.on_workers(found), on_paper.at_one_machine(found)
    slow, slower = on_paper.slowest(workers), on_paper.slowest(one)
    first = (
        f"Scoring breaks first at {slow.where}: {slow.name} takes {_hours(slow.seconds)}. The machine that "
        f"gets all logits breaks first at {slower.where}: {slower.name} takes {_hours(slower.seconds)}, and "
        f"it keeps {_bytes(one[1].n_bytes)} of temporary files."
    )
    head = ["step", "bytes", "time", "bound by"]
    return (
        f"**On paper: {on_paper.ROWS:,} rows on {on_paper.NODES} machines.** Nobody has run this. Costs per "
        f"row are those of the {size[1]:,} rows above: {1e6 * found.teachers:.0f} us for the teachers, "
        f"{1e6 * found.soft_labels:.0f} us for soft labels, {1e6 * found.other:.0f} us for the rest, and "
        f"{found.store_bytes:.0f} bytes in the store. Assumed: {on_paper.CORES} cores a machine, each as "
        f"fast as one here; {_bytes(on_paper.NETWORK)}/s of network and {_bytes(on_paper.DISK)}/s of disk a "
        f"machine; shared storage of {_bytes(on_paper.SHARED)}/s in all; {4 * found.columns} bytes a row to "
        "read; no machine waits for another, and none fails.\n\n"
        f"The workers of `Run(engine='ray')`:\n\n{markdown(head, _steps(workers))}\n\n"
        f"In addition, the machine that starts it:\n\n"
        f"{markdown(head, _steps(one))}\n\n{first}"
    )


def _steps(steps: Sequence[Step]) -> list[list[str]]:
    return [
        [step.name, _bytes(step.n_bytes) if step.n_bytes else "", _hours(step.seconds), step.where]
        for step in steps
    ]


def _bytes(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2g} h" if seconds >= 3600 else f"{seconds / 60:.2g} min"


def _sources(records: Sequence[Record]) -> str:
    if not records:
        return "Nothing has been measured yet."
    cores = sorted({str(record["cores"]) for record in records})
    return f"{', '.join(cores)} cores. {source(records)}"
