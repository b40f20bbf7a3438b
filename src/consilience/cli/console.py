"""The output in a terminal.

Results are tables on stdout. Bars and remarks go to stderr. Each table is drawn from the mapping that
``--json`` prints, so the two cannot disagree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import rich.box
import rich.console
import rich.table
from rich.markup import escape as escape_markup

from consilience._words import counted, shorten, visible
from consilience.cli.log import current
from consilience.cli.progress import progress_bars as progress_bars
from consilience.inspect.evaluate import read_truth
from consilience.labels import BETWEEN_GROUPS, LabelSpace, read_labels
from consilience.students.student import student_name

if TYPE_CHECKING:
    from consilience.cluster.clustering import CollisionClustering
    from consilience.unify.unifier import Unifier

WIDTH = 110
"""Width of a table, in columns, if it goes to a file or a pipe."""

MOST_OVERLAPS = 12
"""Show the overlaps of at most this many teachers as a matrix. JSON always has them."""


def escape(text: str) -> str:
    """Return text from outside in a form that is safe to print: it shows markup and control characters.

    A class name or a path may contain escape sequences that move the cursor, or set colours or a title.

    Examples
    --------
    >>> escape("cat\x1b[2J")
    'cat\\\\x1b[2J'
    """
    return escape_markup(visible(text))


def console(*, stderr: bool = False) -> rich.console.Console:
    """Return a console on stdout or stderr."""
    made = rich.console.Console(stderr=stderr, highlight=False)
    if not made.is_terminal:
        made.width = max(made.width, WIDTH)
    return made


def show_error(message: str) -> None:
    """Print one sentence on stderr."""
    console(stderr=True).print(f"[bold red]Error:[/] {escape(message)}", soft_wrap=True)


def show_warning(message: str) -> None:
    """Print a warning as one line on stderr."""
    line = " ".join(message.split())
    console(stderr=True).print(f"[yellow]Warning: {escape(line)}[/]", soft_wrap=True)


def show_json(values: Mapping[str, Any]) -> None:
    """Print a result, and the warnings so far, as JSON on stdout. Plain print wraps no lines."""
    text = json.dumps({**values, "warnings": current().warnings}, indent=2, ensure_ascii=False)
    # json escapes only the control characters below 32
    print("".join(f"\\u{ord(c):04x}" if "\x7f" <= c <= "\x9f" else c for c in text))


def space_view(space: LabelSpace, kinds: Sequence[str]) -> dict[str, Any]:
    """Return the classes of each teacher and their overlaps, ready for JSON.

    Parameters
    ----------
    space : LabelSpace
    kinds : sequence of str
        The kind of each teacher's file, such as ``"onnx"``.
    """
    known = space.mask
    counts = known.astype(int)
    lists = [classes.tolist() for classes in space.class_lists]
    return {
        "n_classes": space.n_classes,
        "classes": space.classes.tolist(),
        "teachers": [
            {"name": name, "kind": kind, "n_classes": len(classes), "classes": classes}
            for name, kind, classes in zip(space.names, kinds, lists, strict=True)
        ],
        "overlaps": (counts.T @ counts).tolist(),
        "only_one_teacher": {
            name: space.classes[known[:, i] & (counts.sum(axis=1) == 1)].tolist()
            for i, name in enumerate(space.names)
        },
        "components": [group.tolist() for group in space.components()],
    }


def show_space(view: Mapping[str, Any]) -> None:
    """Draw the result of `space_view`."""
    out = console()
    teachers = view["teachers"]
    out.print(f"[bold]{counted(view['n_classes'], 'class')} from {counted(len(teachers), 'teacher')}[/]")
    table = plain_table("teacher", "file", ">classes", "which")
    for teacher in teachers:
        which = shorten(teacher["classes"])
        table.add_row(*map(escape, (teacher["name"], teacher["kind"], str(teacher["n_classes"]), which)))
    out.print(table)
    if 1 < len(teachers) <= MOST_OVERLAPS:
        out.print("\n[bold]Shared classes[/]")
        out.print(_overlaps([teacher["name"] for teacher in teachers], view["overlaps"]))
    unshared = {name: classes for name, classes in view["only_one_teacher"].items() if classes}
    if len(teachers) > 1:
        out.print()
        for name, classes in unshared.items():
            out.print(f"Only {escape(name)} knows {escape(shorten(classes))}.", soft_wrap=True)
        if not unshared:
            out.print("At least two teachers know every class.")
    _show_components(view["components"])


def _show_components(groups: Sequence[Sequence[Any]]) -> None:
    out = console()
    if len(groups) == 1:
        out.print("One component: the teachers determine the probabilities of all classes.")
        return
    out.print(f"{len(groups)} components, which share no classes:")
    for group in groups:
        out.print(f"  {escape(shorten(group))}", soft_wrap=True)
    out.print(
        f"Their outputs for a row do not determine how mass splits between them. {BETWEEN_GROUPS}",
        soft_wrap=True,
    )


def unifier_view(
    unifier: Unifier,
    estimate: Any,
    kinds: Sequence[str],
    n_rows: int,
    y: Any,
    test: tuple[Any, Any] | None,
) -> dict[str, Any]:
    """Return a summary of a unifier, ready for JSON.

    Parameters
    ----------
    unifier : Unifier
        Fitted, unless only soft labels were asked for.
    estimate : Estimate, or what has the same attributes
        Its soft labels, and how they came about.
    kinds : sequence of str
        The kind of each teacher's file, such as ``"onnx"``.
    n_rows : int
        Rows of the transfer set.
    y : sequence or None
        Known labels of the transfer set.
    test : (X, y) or None
        Rows to measure the student's accuracy on.
    """
    space = estimate.space
    student = getattr(unifier, "student_", None)
    accuracy, n_test = None, 0
    if test and student:
        truth = read_truth(test[1], len(test[1]), space, where="--test-labels", at_least=0)
        n_test = len(truth.codes)
        accuracy = truth.accuracy(space.encode(unifier.predict(test[0]))) if n_test else None
    return {
        "teachers": [
            {
                "name": name,
                "kind": kind,
                "n_classes": len(classes),
                "abstentions": int(abstentions),
                "temperature": float(temperature),
            }
            for name, kind, classes, abstentions, temperature in zip(
                space.names,
                kinds,
                space.class_lists,
                estimate.n_abstentions,
                estimate.temperatures,
                strict=True,
            )
        ],
        "n_classes": space.n_classes,
        "classes": space.classes.tolist(),
        "n_rows": n_rows,
        "n_labels": 0 if y is None else int((space.encode(y) >= 0).sum()),
        "method": estimate.method.name,
        "train": "estimate" if student is None else student.train,
        "temperature": estimate.method.temperature,
        "pool_weights": estimate.pool_weights,
        "neighbor_weight": estimate.neighbor_weight,
        "calibrated": estimate.method.teacher_temperatures is not None,
        "off_set": getattr(estimate.method, "off_set", False),
        "seed": unifier.random_state,
        "student": None if student is None else student_name(student),
        "encoding": encoding_view(unifier),
        "balanced": student is not None and unifier.class_weights_ is not None,
        "accuracy": accuracy,
        "n_test": n_test,
        "seconds": estimate.seconds,
    }


def encoding_view(model: Any) -> dict[str, str] | None:
    """Return what a fitted model does with each column of a mixed table; None for other rows."""
    encoding = getattr(model, "encoding_", None)
    return None if encoding is None else {str(name): note for name, note in encoding.items()}


def show_encoding(encoding: Mapping[str, str] | None, most: int = 20) -> None:
    """Draw what was done with each column, for the first of them."""
    if not encoding:
        return
    table = plain_table("column", "what the student learns from")
    for name, note in list(encoding.items())[:most]:
        table.add_row(escape(visible(name)), escape(note))
    if len(encoding) > most:
        table.add_row("...", f"and {len(encoding) - most} columns more")
    console().print(table)


def _method(view: Mapping[str, Any]) -> str:
    """Return the method, with what it pools."""
    if view["pool_weights"] is None:
        return str(view["method"])
    shares = ", ".join(f"{name} {100 * share:.0f}%" for name, share in view["pool_weights"].items())
    return f"{view['method']} ({shares})"


def show_unified(view: Mapping[str, Any]) -> None:
    """Draw the summary of ``consilience unify``."""
    out = console()
    calibrated = view["calibrated"]
    table = plain_table("teacher", "file", ">classes", ">abstains on", *[">temperature"] * calibrated)
    for teacher in view["teachers"]:
        abstains = f"{teacher['abstentions']} of {view['n_rows']} rows"
        cells = [escape(teacher["name"]), escape(teacher["kind"]), str(teacher["n_classes"]), abstains]
        table.add_row(*cells, *[f"{teacher['temperature']:.2f}"] * calibrated)
    out.print(table)
    show_encoding(view["encoding"])
    notes = {
        "off-set weighting": view["off_set"],
        "calibrated": calibrated,
        f"neighbours {100 * view['neighbor_weight']:.0f}%": view["neighbor_weight"] > 0,
        "balanced": view["balanced"],
    }
    facts = {
        "classes": f"{view['n_classes']}: {shorten(view['classes'])}",
        "rows": f"{view['n_rows']}, {view['n_labels']} of them labelled",
        "method": ", ".join([_method(view), *(note for note, holds in notes.items() if holds)]),
        "student": view["student"] or "none: only soft labels were asked for",
        "seconds": ", ".join(f"{step} {seconds:.1f}" for step, seconds in view["seconds"].items()),
        "accuracy": None
        if view["accuracy"] is None
        else f"{100 * view['accuracy']:.1f}% of {view['n_test']} test rows",
        "model": view["out"],
        "soft labels": view["soft_labels"],
        "report": view["report"],
    }
    out.print()
    out.print(facts_table(facts))


def clusters_view(model: CollisionClustering, X: Any, y: Any, truth: Any) -> dict[str, Any]:
    """Return the clusters found, ready for JSON.

    Parameters
    ----------
    model : CollisionClustering
        After `fit`.
    X : (n, d) array
    y : (n,) array or None
        Labels of some rows.
    truth : (n,) array or None
        Classes to compare with; rows without one are left out.
    """
    from consilience.cluster.report import cluster_agreement

    confidence = model.predict_proba(X).max(axis=1)
    labelled = np.full(len(X), False) if y is None else read_labels(y, at_least=0).known
    groups = [model.labels_ == k for k in range(model.n_clusters)]
    return {
        "n_rows": len(X),
        "n_features": model.n_features_in_,
        "n_clusters": model.n_clusters,
        "loss": model.loss,
        "seed": model.random_state,
        "clusters": [
            {
                "cluster": k,
                "rows": int(rows.sum()),
                "share": float(rows.mean()),
                "confidence": float(confidence[rows].mean()) if rows.any() else None,
                "labelled": int(labelled[rows].sum()),
            }
            for k, rows in enumerate(groups)
        ],
        "n_labels": int(labelled.sum()),
        "objective": model.objective_,
        "n_iter": model.n_iter_,
        "agreement": None if truth is None else cluster_agreement(truth, model.labels_, "--truth"),
    }


def show_clusters(view: Mapping[str, Any]) -> None:
    """Draw the result of `clusters_view`."""
    out = console()
    labels = view["n_labels"] > 0
    table = plain_table(
        ">cluster", ">rows", ">share", ">mean confidence", *([">labelled rows"] if labels else [])
    )
    for cluster in view["clusters"]:
        confidence = "" if cluster["confidence"] is None else _percent(cluster["confidence"])
        cells = [str(cluster["cluster"]), str(cluster["rows"]), _percent(cluster["share"]), confidence]
        table.add_row(*cells, *([str(cluster["labelled"])] if labels else []))
    out.print(table)
    facts: dict[str, str | None] = {
        "rows": f"{view['n_rows']} of {counted(view['n_features'], 'feature')}",
        "loss": f"{view['loss']}, {view['objective']:.4f} after {counted(view['n_iter'], 'round')}",
        "clusters": view["out"],
        "report": view["report"],
    }
    agreement = view["agreement"]
    if agreement and agreement["n_rows"]:
        facts["accuracy"] = f"{_percent(agreement['accuracy'])} of {agreement['n_rows']} rows, best match"
        facts["NMI"], facts["ARI"] = f"{agreement['nmi']:.3f}", f"{agreement['ari']:.3f}"
    out.print()
    out.print(facts_table(facts))


def facts_table(facts: Mapping[str, str | None]) -> rich.table.Table:
    """Return names and facts as a table without lines; leave out names without a fact."""
    grid = rich.table.Table.grid(padding=(0, 2))
    for name, fact in facts.items():
        if fact is not None:
            grid.add_row(f"[bold]{name}[/]", escape(fact))
    return grid


def show_demo(view: Mapping[str, Any]) -> None:
    """Draw the result of `consilience.cli.demo.DemoResult.to_dict`."""
    out = console()
    out.print("[bold]The sites: each trains on its own rows and shares only its model[/]")
    out.print(_site_table(view["sites"]))
    out.print(f"\n[bold]One network out of five, from {view['n_transfer']} unlabelled rows[/]")
    table = _variant_table(view["variants"], view["best"])
    table.add_section()
    table.add_row(
        "SPV", "supervised, all rows pooled", _percent(view["supervised"]), "",
        f"{view['supervised_seconds']:.1f}",
    )  # fmt: skip
    out.print(table)
    disjoint = view["disjoint"]
    out.print("\n[bold]Three sites that share no digit, unified on the same unlabelled rows[/]")
    out.print(_site_table(disjoint["sites"]))
    out.print(_variant_table(disjoint["variants"]))
    out.print("\n[bold]In plain words[/]")
    for sentence in view["sentences"]:
        out.print(f"- {escape(sentence)}", soft_wrap=not out.is_terminal)
    out.print(f"({view['seconds']:.0f} seconds, seed {view['seed']})")


_FAMILIES = {"E": "estimated soft labels", "BS": "estimated and balanced", "BP": "backprop through the loss"}


def _site_table(sites: Sequence[Mapping[str, Any]]) -> rich.table.Table:
    table = plain_table("site", "model", ">rows", "digits it knows", ">right on these", ">on all ten")
    for site in sites:
        figures = (_percent(site["own_accuracy"]), _percent(site["accuracy"]))
        table.add_row(site["name"], site["model"], str(site["rows"]), ", ".join(site["classes"]), *figures)
    return table


def _variant_table(variants: Sequence[Mapping[str, Any]], best: str | None = None) -> rich.table.Table:
    table = plain_table("method", "how", ">accuracy", ">soft labels right", ">seconds")
    for variant in variants:
        table.add_row(*_variant_cells(variant), style="bold" if variant["name"] == best else None)
    return table


def _variant_cells(variant: Mapping[str, Any]) -> tuple[str, ...]:
    labels = variant["label_accuracy"]
    return (
        variant["name"],
        _FAMILIES[variant["family"]],
        _percent(variant["accuracy"]),
        "" if labels is None else _percent(labels),
        f"{variant['seconds']:.1f}",
    )


def _overlaps(names: Sequence[str], overlaps: Sequence[Sequence[int]]) -> rich.table.Table:
    table = plain_table("", *(f">{escape(name)}" for name in names))
    for i, (name, row) in enumerate(zip(names, overlaps, strict=True)):
        cells = [f"[dim]{count}[/]" if i == j else str(count or "·") for j, count in enumerate(row)]
        table.add_row(escape(name), *cells)
    return table


def plain_table(*headers: str) -> rich.table.Table:
    """Return an empty table. Headers that begin with ">" are right-aligned."""
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        right = header.startswith(">")
        table.add_column(header.removeprefix(">"), justify="right" if right else "left")
    return table


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"
