"""Results as what ``--json`` prints, and what a terminal shows of that: tables, facts, sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from consilience._words import counted, percent, shorten
from consilience.cli.console import escape, facts_table, plain_table, table

MOST_OVERLAPS = 12
"""Show the overlaps of at most this many teachers as a matrix. JSON always has them."""
_FAMILIES = {"E": "estimated soft labels", "BS": "estimated and balanced", "BP": "backprop through the loss"}


def lines(text: str) -> list[str]:
    """Return text of the library as lines that are safe to print."""
    return [escape(line) for line in text.split("\n")]


def space_view(space: Any, kinds: Sequence[str]) -> dict[str, Any]:
    """Return the classes of each teacher and their overlaps, with the kinds of the teachers' files."""
    known = space.mask.astype(int)
    lists = [classes.tolist() for classes in space.class_lists]
    return {
        "n_classes": space.n_classes,
        "classes": space.classes.tolist(),
        "teachers": [
            {"name": name, "kind": kind, "n_classes": len(classes), "classes": classes}
            for name, kind, classes in zip(space.names, kinds, lists, strict=True)
        ],
        "overlaps": (known.T @ known).tolist(),
        "only_one_teacher": {
            name: space.classes[(known[:, i] == 1) & (known.sum(axis=1) == 1)].tolist()
            for i, name in enumerate(space.names)
        },
        "components": [group.tolist() for group in space.components()],
    }


def space(view: Mapping[str, Any]) -> Iterator[Any]:
    """Draw the result of `space_view`, and what models take and give."""
    from consilience.labels import BETWEEN_GROUPS

    teachers, groups = view["teachers"], view["components"]
    yield f"[bold]{counted(view['n_classes'], 'class')} from {counted(len(teachers), 'teacher')}[/]"
    which = {"which": lambda row: shorten(row["classes"])}
    yield table({"teacher": "name", "file": "kind", ">classes": "n_classes", **which}, teachers)
    if 1 < len(teachers) <= MOST_OVERLAPS:
        yield "\n[bold]Shared classes[/]"
        shared = plain_table("", *(f">{row['name']}" for row in teachers))
        for i, row in enumerate(view["overlaps"]):
            cells = [f"[dim]{n}[/]" if i == j else str(n or "·") for j, n in enumerate(row)]
            shared.add_row(escape(teachers[i]["name"]), *cells)
        yield shared
    if len(teachers) > 1:
        alone = {name: classes for name, classes in view["only_one_teacher"].items() if classes}
        said = [f"Only {escape(name)} knows {escape(shorten(classes))}." for name, classes in alone.items()]
        yield "\n".join(["", *(said or ["At least two teachers know every class."])])
    if len(groups) == 1:
        yield "One component: the teachers determine the probabilities of all classes."
    else:
        yield f"{len(groups)} components, which share no classes:"
        yield from (f"  {escape(shorten(group))}" for group in groups)
        yield f"Their outputs for a row do not determine how mass splits between them. {BETWEEN_GROUPS}"
    models = [row for row in teachers if row["inputs"] is not None]
    if models:
        yield "\n[bold]What the models take and give[/]"
        yield _interfaces(models)


def _interfaces(models: Sequence[Mapping[str, Any]], most: int = 20) -> Any:
    drawn = plain_table("teacher", "input", "type", "shape", "gives")
    for model in models:
        gives = f"{model['output'] or 'scores'} (n x {model['n_classes']})"
        for i, item in enumerate(model["inputs"][:most]):
            shape = " x ".join("n" if length is None else str(length) for length in item["shape"])
            first = (model["name"], gives) if i == 0 else ("", "")
            drawn.add_row(*map(escape, (first[0], item["name"], item["dtype"], shape, first[1])))
        if len(model["inputs"]) > most:
            drawn.add_row("", f"and {len(model['inputs']) - most} more")
    return drawn


def scored(view: Mapping[str, Any]) -> list[Any]:
    """Draw what ``consilience score`` wrote."""
    facts = {
        "teacher": view["teacher"],
        "classes": f"{view['n_classes']}: {shorten(view['classes'])}",
        "rows": f"{view['n_rows']}, abstains on {view['abstentions']}",
        "scores": view["out"],
    }
    return [facts_table(facts)]


def unified_view(
    unifier: Any, found: Any, space: Any, kinds: Sequence[str], n_rows: int, y: Any, test: Any = None
) -> dict[str, Any]:
    """Return a summary of a unifier.

    Parameters
    ----------
    unifier : Unifier
        Fitted, unless only soft labels were asked for.
    found : Estimate, or what `of_fitted` returns
        Its soft labels, and how they came about.
    space : LabelSpace
    kinds : sequence of str
        The kind of each teacher's file, such as ``"onnx"``.
    n_rows, y
        The rows of the transfer set, and their known labels.
    test : (X, y) or None
        Rows to measure the student's accuracy on.
    """
    from consilience.inspect.truth import read_truth

    student = getattr(unifier, "student_", None)
    truth = None if test is None else read_truth(test[1], len(test[1]), space, where="--test-labels", at_least=0)
    n_test = 0 if truth is None else len(truth.codes)
    method = found.method
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
                space.names, kinds, space.class_lists, found.n_abstentions, found.temperatures, strict=True
            )
        ],
        "n_classes": space.n_classes,
        "classes": space.classes.tolist(),
        "n_rows": n_rows,
        "n_labels": 0 if y is None else int((space.encode(y) >= 0).sum()),
        "method": method.name,
        "train": getattr(student, "train", "estimate"),
        "temperature": method.temperature,
        "pool_weights": found.pool_weights,
        "neighbor_weight": found.neighbor_weight,
        "teacher_temperatures": method.teacher_temperatures,
        "off_set": getattr(method, "off_set", False),
        "seed": unifier.random_state,
        **_about_student(unifier, student),
        "balanced": student is not None and unifier.class_weights_ is not None,
        "accuracy": truth.accuracy(space.encode(unifier.predict(test[0]))) if n_test and truth else None,
        "n_test": n_test,
        "seconds": found.seconds,
    }


def of_fitted(model: Any) -> Any:
    """Return the attributes of a fitted model by their names without the underscore."""

    class Fitted:
        def __getattr__(self, name: str) -> Any:
            return getattr(model, f"{name}_")

    return Fitted()


def _about_student(model: Any, student: Any) -> dict[str, Any]:
    from consilience.students.estimator import student_name

    encoding = getattr(model, "encoding_", None)  # what was done with the columns of a mixed table
    return {
        "student": None if student is None else student_name(student),
        "encoding": None if encoding is None else {str(name): note for name, note in encoding.items()},
    }


def _encoding(view: Mapping[str, Any], most: int = 20) -> Iterator[Any]:
    notes = list((view["encoding"] or {}).items())
    if len(notes) > most:
        notes = [*notes[:most], ("...", f"and {len(notes) - most} columns more")]
    if notes:
        yield table({"column": lambda row: row[0], "what the student learns from": lambda row: row[1]}, notes)


def _facts(view: Mapping[str, Any]) -> dict[str, str | None]:
    """Return what is said of every student: its classes, rows, seconds, accuracy and file."""
    return {
        "classes": f"{view['n_classes']}: {shorten(view['classes'])}",
        "rows": f"{view['n_rows']}, {view['n_labels']} of them labelled",
        "student": view["student"] or "none: only soft labels were asked for",
        "seconds": ", ".join(f"{step} {seconds:.1f}" for step, seconds in view["seconds"].items()),
        "accuracy": _of_test(view, "accuracy"),
        "model": view["out"],
    }


def _of_test(view: Mapping[str, Any], name: str) -> str | None:
    return None if view[name] is None else f"{percent(view[name])} of {view['n_test']} test rows"


def unified(view: Mapping[str, Any]) -> Iterator[Any]:
    """Draw the summary of ``consilience unify``."""
    calibrated = view["teacher_temperatures"] is not None
    columns: dict[str, Any] = {"teacher": "name", "file": "kind", ">classes": "n_classes"}
    columns[">abstains on"] = lambda row: f"{row['abstentions']} of {view['n_rows']} rows"
    if calibrated:
        columns[">temperature"] = lambda row: f"{row['temperature']:.2f}"
    yield table(columns, view["teachers"])
    yield from _encoding(view)
    shares = ", ".join(f"{name} {100 * share:.0f}%" for name, share in (view["pool_weights"] or {}).items())
    notes = {
        view["method"] + (f" ({shares})" if shares else ""): True,
        "off-set weighting": view["off_set"],
        "calibrated": calibrated,
        f"neighbours {100 * view['neighbor_weight']:.0f}%": view["neighbor_weight"] > 0,
        "balanced": view["balanced"],
    }
    method = {"method": ", ".join(note for note, holds in notes.items() if holds)}
    files = {"soft labels": view["soft_labels"], "report": view["report"]}
    yield ""
    yield facts_table(_facts(view) | method | files)


def distilled_view(distiller: Any, alone: Any, kinds: Sequence[str], test: Any) -> dict[str, Any]:
    """Return the results of a distiller, and of the same student trained without teachers, if there is one."""
    from consilience._validation import take_rows
    from consilience.labels import read_labels

    if test is not None:  # rows without a label have nothing to be compared with
        classes, codes = read_labels(test[1], where="--test-labels", at_least=0)
        test = take_rows(test[0], codes >= 0), classes[codes[codes >= 0]]
    n_test = 0 if test is None else len(test[1])
    checks, loss = {check.name: check for check in distiller.checks_}, distiller.resolved("loss")
    teachers = []
    for teacher, kind, weight in zip(distiller.teachers_, kinds, distiller.teacher_weights_, strict=True):
        check = checks.get(teacher.name)
        teachers.append(
            {
                "name": teacher.name,
                "kind": kind,
                "n_classes": len(teacher.classes),
                "weight": float(weight),
                "reliability": None if check is None else check.reliability,
                "added": None if check is None or math.isnan(check.added) else check.added,
                "held_out": None if check is None else check.n_rows,
            }
        )
    return {
        "teachers": teachers,
        "n_classes": len(distiller.classes_),
        "classes": distiller.classes_.tolist(),
        "n_labels": distiller.n_labels_,
        "loss": loss.name,
        "teacher_weight": distiller.teacher_weight,
        "temperature": loss.temperature,
        "seed": distiller.random_state,
        **_about_student(distiller, distiller.student_),
        "accuracy": float(distiller.score(*test)) if n_test else None,
        "accuracy_labels_only": float(alone.score(*test)) if n_test and alone is not None else None,
        "n_test": n_test,
        "seconds": distiller.seconds_,
    }


def distilled(view: Mapping[str, Any]) -> Iterator[Any]:
    """Draw the summary of ``consilience distil``."""

    def adds(row: Mapping[str, Any]) -> str:
        added = row["added"]
        return "-" if added is None else f"{added:.1f} nats over {row['held_out']} held-out rows"

    def weight(row: Mapping[str, Any]) -> str:
        return f"{row['weight']:.2f}" if row["weight"] else "dropped" if row["reliability"] == 0 else "0"

    columns: dict[str, Any] = {"teacher": "name", "file": "kind", ">classes": "n_classes", ">weight": weight}
    columns[">reliability"] = lambda row: "-" if row["reliability"] is None else f"{row['reliability']:.2f}"
    yield table(columns | {"what it adds to the labels": adds}, view["teachers"])
    yield from _encoding(view)
    more = f"teacher weight {view['teacher_weight']}, temperature {view['temperature']:g}"
    yield ""
    yield facts_table(
        _facts(view)
        | {"loss": f"{view['loss']}, {more}", "without teachers": _of_test(view, "accuracy_labels_only")}
    )


def clustered_view(model: Any, X: Any, y: Any, truth: Any) -> dict[str, Any]:
    """Return the clusters that a model found in rows X, with labels of some, and classes to compare with."""
    import numpy as np

    from consilience.cluster.accuracy import cluster_agreement
    from consilience.labels import read_labels

    confidence = model.predict_proba(X).max(axis=1)
    labelled = np.full(len(X), False) if y is None else read_labels(y, at_least=0).known
    groups = [model.labels_ == k for k in range(model.n_clusters)]
    return {
        "n_rows": len(X),
        "n_features": model.n_features_in_,
        "n_clusters": model.n_clusters,
        "loss": model.loss if isinstance(model.loss, str) else type(model.loss).__name__,
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


def clustered(view: Mapping[str, Any]) -> Iterator[Any]:
    """Draw the result of `clustered_view`."""
    columns: dict[str, Any] = {">cluster": "cluster", ">rows": "rows"}
    columns[">share"] = lambda row: percent(row["share"])
    columns[">mean confidence"] = lambda row: percent(row["confidence"])
    yield table(columns | ({">labelled rows": "labelled"} if view["n_labels"] else {}), view["clusters"])
    facts: dict[str, str | None] = {
        "rows": f"{view['n_rows']} of {counted(view['n_features'], 'feature')}",
        "loss": f"{view['loss']}, {view['objective']:.4f} after {counted(view['n_iter'], 'round')}",
        "clusters": view["out"],
        "report": view["report"],
    }
    agreement = view["agreement"]
    if agreement and agreement["n_rows"]:
        facts["accuracy"] = f"{percent(agreement['accuracy'])} of {agreement['n_rows']} rows, best match"
        facts["NMI"], facts["ARI"] = f"{agreement['nmi']:.3f}", f"{agreement['ari']:.3f}"
    yield ""
    yield facts_table(facts)


def checks(view: Mapping[str, Any]) -> list[Any]:
    """Draw the checks of ``consilience verify``."""
    words = {True: "passed", False: "failed", None: "not checked"}
    columns: dict[str, Any] = {"check": "name", "result": lambda row: words[row["passed"]]}
    failed = [check for check in view["checks"] if check["passed"] is False]
    ending = f"{counted(len(failed), 'check')} failed." if failed else "The model is what its card says."
    return [table(columns | {"what was found": "found"}, view["checks"], bold=failed), ending]


def predicted(view: Mapping[str, Any], most: int = 30) -> list[Any]:
    """Draw how many rows were given each class, the most frequent first."""
    rows = sorted(zip(view["classes"], view["counts"], strict=True), key=lambda row: -row[1])
    shown = [*rows[:most], *([("...", sum(n for _, n in rows[most:]))] if len(rows) > most else [])]
    columns: dict[str, Any] = {"class": lambda row: row[0], ">rows": lambda row: row[1]}
    columns[">share"] = lambda row: percent(row[1] / view["n_rows"])
    mean = percent(view["confidence"])
    facts = {"rows": str(view["n_rows"]), "mean confidence": mean, "predictions": view["out"]}
    return [table(columns, shown), facts_table(facts)]


def contents(view: Mapping[str, Any]) -> Iterator[Any]:
    """Draw the result of `ScoreStore.contents`."""
    from consilience._sizes import size_text

    if view["n_bytes_deleted"]:
        yield f"{size_text(view['n_bytes_deleted'])} deleted."
    if view["n_trainings"]:
        stopped = counted(view["n_trainings"], "stopped training")
        size = size_text(view["n_bytes_trainings"])
        yield f"{stopped}, {size}: the same command goes on with it; --clear deletes it."
    if not view["models"] and not view["n_trainings"]:
        yield "The cache is empty."
    if view["models"]:
        models = counted(len(view["models"]), "model")
        yield f"[bold]{models}, {view['n_rows']:,} rows, {size_text(view['n_bytes'])}[/]"
        columns: dict[str, Any] = {
            "model": lambda row: row["teacher"] or f"unknown ({row['key'][:8]})",
            ">classes": "n_classes",
            ">rows": lambda row: f"{row['n_rows']:,}",
            ">size": lambda row: size_text(row["n_bytes"]),
            ">files": "n_files",
            "last use": lambda row: (row["last_use"] or "")[:16].replace("T", " "),
        }
        yield table(columns, view["models"])


def demo(view: Mapping[str, Any]) -> Iterator[Any]:
    """Draw the result of `consilience.cli.demo.DemoResult.to_dict`."""
    supervised = {"name": "SPV", "how": "supervised, all rows pooled", "accuracy": view["supervised"]}
    supervised |= {"label_accuracy": None, "seconds": view["supervised_seconds"]}
    yield "[bold]The sites: each trains on its own rows and shares only its model[/]"
    yield _sites(view["sites"])
    yield f"\n[bold]One network out of five, from {view['n_transfer']} unlabelled rows[/]"
    yield _variants([*view["variants"], supervised], view["best"])
    yield "\n[bold]Three sites that share no digit, unified on the same unlabelled rows[/]"
    yield _sites(view["disjoint"]["sites"])
    yield _variants(view["disjoint"]["variants"])
    yield "\n[bold]In plain words[/]"
    yield from (f"- {escape(sentence)}" for sentence in view["sentences"])
    yield f"({view['seconds']:.0f} seconds, seed {view['seed']})"
    for what, file in (("The figure", view["plot"]), (f"The model of {view['best']}", view["model"])):
        if file is not None:
            yield f"{what} is in {escape(file)}."


def _sites(sites: Sequence[Mapping[str, Any]]) -> Any:
    columns: dict[str, Any] = {"site": "name", "model": "model", ">rows": "rows"}
    columns["digits it knows"] = lambda row: ", ".join(row["classes"])
    columns[">right on these"] = lambda row: percent(row["own_accuracy"])
    columns[">on all ten"] = lambda row: percent(row["accuracy"])
    return table(columns, sites)


def _variants(variants: Sequence[Mapping[str, Any]], best: str | None = None) -> Any:
    columns: dict[str, Any] = {
        "method": "name",
        "how": lambda row: row.get("how") or _FAMILIES[row["family"]],
        ">accuracy": lambda row: percent(row["accuracy"]),
        ">soft labels right": lambda row: percent(row["label_accuracy"]),
        ">seconds": lambda row: f"{row['seconds']:.1f}",
    }
    bold = [row for row in variants if row["name"] == best]
    drawn = table(columns, variants, bold=bold)
    if best is not None:
        drawn.rows[-2].end_section = True  # the last is the supervised benchmark
    return drawn
