"""Results as what ``--json`` prints, and what a terminal shows of that: tables, facts, sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from consilience._words import counted, percent, shorten
from consilience.cli import library
from consilience.cli.console import escape, facts_table, table

MOST_OVERLAPS = 12
"""Show the overlaps of at most this many teachers as a matrix. JSON always has them."""
MOST = 20
"""Show at most so many columns of a table, or classes. JSON always has them."""
_FAMILIES = {"E": "estimated soft labels", "BS": "estimated and balanced", "BP": "backprop through the loss"}
_TEACHER: dict[str, Any] = {"teacher": "{name}", "file": "{kind}", ">classes": "{n_classes}"}


def space_view(space: Any, teachers: Sequence[Any], kinds: Sequence[str]) -> dict[str, Any]:
    """Return what each teacher knows, takes and gives, and what they share; with the kinds of their files."""
    known = space.mask.astype(int)
    lists = [classes.tolist() for classes in space.class_lists]
    return {
        "n_classes": space.n_classes,
        "classes": space.classes.tolist(),
        "teachers": [
            {
                "name": one.name,
                "kind": kind,
                "n_classes": len(classes),
                "classes": classes,
                "inputs": one.inputs and [asdict(item) | {"shape": list(item.shape)} for item in one.inputs],
                "output": one.output,
            }
            for one, kind, classes in zip(teachers, kinds, lists, strict=True)
        ],
        "overlaps": (known.T @ known).tolist(),
        "only_one_teacher": {
            name: space.classes[(known[:, i] == 1) & (known.sum(axis=1) == 1)].tolist()
            for i, name in enumerate(space.names)
        },
        "components": [group.tolist() for group in space.components()],
    }


def space(view: Mapping[str, Any]) -> list[Any]:
    """Draw the result of `space_view`, and what models take and give."""
    teachers, groups = view["teachers"], view["components"]
    names, shared = [row["name"] for row in teachers], view["overlaps"]
    drawn = [
        f"[bold]{counted(view['n_classes'], 'class')} from {counted(len(teachers), 'teacher')}[/]",
        table({**_TEACHER, "which": lambda row: shorten(row["classes"])}, teachers),
    ]
    if 1 < len(teachers) <= MOST_OVERLAPS:
        columns: dict[str, Any] = {"": lambda i: names[i]}
        columns |= {f">{name}": lambda i, j=j: shared[i][j] or "·" for j, name in enumerate(names)}
        drawn += ["\n[bold]Shared classes[/]", table(columns, range(len(names))), ""]
    for name, classes in view["only_one_teacher"].items():
        if classes and len(teachers) > 1:
            drawn.append(f"Only {escape(name)} knows {escape(shorten(classes))}.")
    if len(groups) == 1:
        drawn.append("One component: the teachers determine the probabilities of all classes.")
    else:
        drawn.append(f"{len(groups)} components, which share no classes:")
        drawn += [f"  {escape(shorten(group))}" for group in groups]
        drawn.append(
            "Their outputs for a row do not determine how mass splits between them. " + library.BETWEEN_GROUPS
        )
    inputs = [row for teacher in teachers for row in _inputs(teacher)]
    if inputs:
        drawn += ["\n[bold]What the models take and give[/]", table(_named(inputs), inputs)]
    return drawn


def _named(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the columns of a table whose rows have them by name."""
    return {name: f"{{{name}}}" for name in rows[0]}


def _inputs(teacher: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return a line for each input of a model; outputs in files have none."""
    lines = [
        {
            "teacher": "",
            "input": item["name"],
            "type": item["dtype"],
            "shape": " x ".join("n" if length is None else str(length) for length in item["shape"]),
            "gives": "",
        }
        for item in teacher["inputs"] or []
    ]
    if lines:
        gives = f"{teacher['output'] or 'scores'} (n x {teacher['n_classes']})"
        lines[0] |= {"teacher": teacher["name"], "gives": gives}
    return _cut(lines, "input")


def _cut(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the first rows of a long table, and how many more there are, in the column `name`."""
    if len(rows) <= MOST:
        return rows
    return [*rows[:MOST], dict.fromkeys(rows[0], "") | {name: f"and {len(rows) - MOST} more"}]


def unified_view(
    unifier: Any, found: Mapping[str, Any], kinds: Sequence[str], y: Any, test: Any
) -> dict[str, Any]:
    """Return a summary of a unifier.

    Parameters
    ----------
    unifier : Unifier
        Fitted, unless only soft labels were asked for.
    found : mapping
        Its label space and soft labels, and how these came about.
    kinds : sequence of str
        The kind of each teacher's file, such as ``"onnx"``.
    y : (n,) sequence or None
        Known labels of the transfer set.
    test : (X, y) or None
        Rows to measure the student's accuracy on.
    """
    space, method, student = found["space"], found["method"], getattr(unifier, "student_", None)
    figures = zip(
        space.names, kinds, space.class_lists, found["n_abstentions"], found["temperatures"], strict=True
    )
    return {
        "teachers": [
            {
                "name": name,
                "kind": kind,
                "n_classes": len(classes),
                "abstentions": int(abstentions),
                "temperature": float(temperature),
            }
            for name, kind, classes, abstentions, temperature in figures
        ],
        "n_classes": space.n_classes,
        "classes": space.classes.tolist(),
        "n_labels": 0 if y is None else int((space.encode(y) >= 0).sum()),
        "method": method.name,
        "train": getattr(student, "train", "estimate"),
        "temperature": method.temperature,
        "pool_weights": found["pool_weights"],
        "neighbor_weight": found["neighbor_weight"],
        "calibrated": method.teacher_temperatures is not None,
        "off_set": getattr(method, "off_set", False),
        "seed": unifier.random_state,
        **_about_student(unifier, student),
        "balanced": student is not None and unifier.class_weights_ is not None,
        **measured(unifier, test),
        "seconds": found["seconds"],
    }


def measured(model: Any, test: Any) -> dict[str, Any]:
    """Return the accuracy of a model on test rows (X, y) and how many have a label, if there are any."""
    if test is None or model is None:
        return {"accuracy": None, "n_test": 0}
    n_test = int(library.labels_of(test[1], where="--test-labels", at_least=0).known.sum())
    return {"accuracy": float(model.score(*test)) if n_test else None, "n_test": n_test}


def _about_student(model: Any, student: Any) -> dict[str, Any]:
    encoding = getattr(model, "encoding_", None)  # what was done with the columns of a mixed table
    return {
        "student": None if student is None else library.student_name(student),
        "encoding": None if encoding is None else {str(name): note for name, note in encoding.items()},
    }


def _learnt(view: Mapping[str, Any], columns: dict[str, Any], more: Mapping[str, str | None]) -> list[Any]:
    """Draw teachers, what was done with the columns of a mixed table, and what is said of every student."""
    encoding = (view["encoding"] or {}).items()
    notes = _cut(
        [{"column": name, "what the student learns from": note} for name, note in encoding], "column"
    )
    facts = {
        "classes": f"{view['n_classes']}: {shorten(view['classes'])}",
        "rows": f"{view['n_rows']}, {view['n_labels']} of them labelled",
        "method": None,
        "student": view["student"] or "none: only soft labels were asked for",
        "seconds": ", ".join(f"{step} {seconds:.1f}" for step, seconds in view["seconds"].items()),
        "accuracy": _of_test(view, "accuracy"),
        "without teachers": None,
        "model": view["out"],
    }
    noted = [table(_named(notes), notes)] if notes else []
    return [table(_TEACHER | columns, view["teachers"]), *noted, "", facts_table({**facts, **more})]


def _of_test(view: Mapping[str, Any], name: str) -> str | None:
    return None if view[name] is None else f"{percent(view[name])} of {view['n_test']} test rows"


def unified(view: Mapping[str, Any]) -> list[Any]:
    """Draw the summary of ``consilience unify``."""
    shares = ", ".join(f"{name} {100 * share:.0f}%" for name, share in (view["pool_weights"] or {}).items())
    notes = {
        view["method"] + (f" ({shares})" if shares else ""): True,
        "off-set weighting": view["off_set"],
        "calibrated": view["calibrated"],
        f"neighbours {100 * view['neighbor_weight']:.0f}%": view["neighbor_weight"] > 0,
        "balanced": view["balanced"],
    }
    columns: dict[str, Any] = {">abstains on": f"{{abstentions}} of {view['n_rows']} rows"}
    more: dict[str, str | None] = {"method": ", ".join(note for note, holds in notes.items() if holds)}
    more |= {"soft labels": view["soft_labels"], "report": view["report"]}
    return _learnt(
        view, columns | ({">temperature": "{temperature:.2f}"} if view["calibrated"] else {}), more
    )


def distilled_view(distiller: Any, alone: Any, kinds: Sequence[str], test: Any) -> dict[str, Any]:
    """Return the results of a distiller, and of the same student without teachers, if there is one."""
    checks, loss = {check.name: check for check in distiller.checks_}, distiller.resolved("loss")
    weighted = zip(distiller.teachers_, kinds, distiller.teacher_weights_, strict=True)
    return {
        "teachers": [
            {
                "name": teacher.name,
                "kind": kind,
                "n_classes": len(teacher.classes),
                "weight": float(weight),
                "reliability": getattr(checks.get(teacher.name), "reliability", None),
                "added": library.plain(getattr(checks.get(teacher.name), "added", None)),  # NaN is null
                "held_out": getattr(checks.get(teacher.name), "n_rows", None),
            }
            for teacher, kind, weight in weighted
        ],
        "n_classes": len(distiller.classes_),
        "classes": distiller.classes_.tolist(),
        "n_labels": distiller.n_labels_,
        "loss": loss.name,
        "teacher_weight": distiller.teacher_weight,
        "temperature": loss.temperature,
        "seed": distiller.random_state,
        **_about_student(distiller, distiller.student_),
        **measured(distiller, test),
        "accuracy_labels_only": measured(alone, test)["accuracy"],
        "seconds": distiller.seconds_,
    }


def distilled(view: Mapping[str, Any]) -> list[Any]:
    """Draw the summary of ``consilience distil``."""
    columns: dict[str, Any] = {
        ">weight": lambda row: (
            f"{row['weight']:.2f}" if row["weight"] or row["reliability"] != 0 else "dropped"
        ),
        ">reliability": lambda row: "-" if row["reliability"] is None else f"{row['reliability']:.2f}",
        "what it adds to the labels": "{added:.1f} nats over {held_out} held-out rows",
    }
    more = f"teacher weight {view['teacher_weight']}, temperature {view['temperature']:g}"
    alone = {"without teachers": _of_test(view, "accuracy_labels_only")}
    return _learnt(view, columns, {"method": f"{view['loss']}, {more}", **alone})


def clustered_view(model: Any, X: Any, y: Any, truth: Any) -> dict[str, Any]:
    """Return the clusters that a model found in rows X, with labels of some, and classes to compare with."""
    confidence, found = model.predict_proba(X).max(axis=1), model.labels_
    labelled = found < 0 if y is None else library.labels_of(y, at_least=0).known
    groups = [found == k for k in range(model.n_clusters)]
    return {
        "n_rows": len(X),
        "n_features": model.n_features_in_,
        "n_clusters": model.n_clusters,
        "loss": model.loss if isinstance(model.loss, str) else repr(model.loss),
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
        "agreement": None if truth is None else library.cluster_agreement(truth, found, "--truth"),
    }


def clustered(view: Mapping[str, Any]) -> list[Any]:
    """Draw the result of `clustered_view`."""
    columns: dict[str, Any] = {
        ">cluster": "{cluster}",
        ">rows": "{rows}",
        ">share": "{share:.1%}",
        ">mean confidence": "{confidence:.1%}",
    }
    facts: dict[str, str | None] = {
        "rows": f"{view['n_rows']} of {counted(view['n_features'], 'feature')}",
        "loss": f"{view['loss']}, {view['objective']:.4f} after {counted(view['n_iter'], 'round')}",
        "clusters": view["out"],
        "report": view["report"],
    }
    agreement = view["agreement"]
    if agreement and agreement["n_rows"]:
        facts["accuracy"] = f"{percent(agreement['accuracy'])} of {agreement['n_rows']} rows, best match"
        facts |= {name.upper(): f"{agreement[name]:.3f}" for name in ("nmi", "ari")}
    known = {">labelled rows": "{labelled}"} if view["n_labels"] else {}
    return [table(columns | known, view["clusters"]), "", facts_table(facts)]


def checks(view: Mapping[str, Any]) -> list[Any]:
    """Draw the checks of ``consilience verify``."""
    words = {True: "passed", False: "failed", None: "not checked"}
    columns: dict[str, Any] = {
        "check": "{name}",
        "result": lambda row: words[row["passed"]],
        "what was found": "{found}",
    }
    failed = [check for check in view["checks"] if check["passed"] is False]
    ending = f"{counted(len(failed), 'check')} failed." if failed else "The model is what its card says."
    return [table(columns, view["checks"], bold=failed), ending]


def predicted(view: Mapping[str, Any]) -> list[Any]:
    """Draw how many rows were given each class, the most frequent first."""
    counts = sorted(zip(view["classes"], view["counts"], strict=True), key=lambda row: -row[1])
    rows = [
        {"class": name, ">rows": count, ">share": percent(count / view["n_rows"])} for name, count in counts
    ]
    mean = percent(view["confidence"])
    facts = {"rows": str(view["n_rows"]), "mean confidence": mean, "predictions": view["out"]}
    return [table(_named(rows), _cut(rows, "class")), facts_table(facts)]


def contents(view: Mapping[str, Any]) -> list[Any]:
    """Draw the result of `ScoreStore.contents`."""
    size_text, models, stopped = library.size_text, view["models"], view["n_trainings"]
    columns: dict[str, Any] = {
        "model": lambda row: row["teacher"] or f"unknown ({row['key'][:8]})",
        ">classes": lambda row: row["n_classes"],
        ">rows": "{n_rows:,}",
        ">size": lambda row: size_text(row["n_bytes"]),
        ">files": "{n_files}",
        "last use": lambda row: (row["last_use"] or "")[:16].replace("T", " "),
    }
    head = f"{counted(len(models), 'model')}, {view['n_rows']:,} rows, {size_text(view['n_bytes'])}"
    parts = {
        f"{size_text(view['n_bytes_deleted'])} deleted.": view["n_bytes_deleted"],
        f"{counted(stopped, 'stopped training')}, {size_text(view['n_bytes_trainings'])}: the same command "
        "goes on with it; --clear deletes it.": stopped,
        "The cache is empty.": not models and not stopped,
        f"[bold]{head}[/]": models,
    }
    return [*(text for text, holds in parts.items() if holds), *([table(columns, models)] if models else [])]


def demo(view: Mapping[str, Any]) -> list[Any]:
    """Draw the result of `consilience.cli.demo.run_demo`."""
    supervised = {"name": "SPV", "family": "supervised, all rows pooled", "accuracy": view["supervised"]}
    supervised |= {"label_accuracy": None, "seconds": view["supervised_seconds"]}
    compared = _variants([*view["variants"], supervised], view["best"])
    compared.rows[-2].end_section = True
    files = {"The figure": view["plot"], f"The model of {view['best']}": view["model"]}
    return [
        "[bold]The sites: each trains on its own rows and shares only its model[/]",
        _sites(view["sites"]),
        f"\n[bold]One network out of five, from {view['n_transfer']} unlabelled rows[/]",
        compared,
        "\n[bold]Three sites that share no digit, unified on the same unlabelled rows[/]",
        _sites(view["disjoint"]["sites"]),
        _variants(view["disjoint"]["variants"]),
        "\n[bold]In plain words[/]",
        *(f"- {escape(sentence)}" for sentence in view["sentences"]),
        f"({view['seconds']:.0f} seconds, seed {view['seed']})",
        *(f"{what} is in {escape(file)}." for what, file in files.items() if file is not None),
    ]


def _sites(sites: Sequence[Mapping[str, Any]]) -> Any:
    columns: dict[str, Any] = {
        "site": "{name}",
        "model": "{model}",
        ">rows": "{rows}",
        "digits it knows": lambda row: ", ".join(row["classes"]),
        ">right on these": "{own_accuracy:.1%}",
        ">on all ten": "{accuracy:.1%}",
    }
    return table(columns, sites)


def _variants(variants: Sequence[Mapping[str, Any]], best: str | None = None) -> Any:
    columns: dict[str, Any] = {
        "method": "{name}",
        "how": lambda row: _FAMILIES.get(row["family"], row["family"]),
        ">accuracy": "{accuracy:.1%}",
        ">soft labels right": "{label_accuracy:.1%}",
        ">seconds": "{seconds:.1f}",
    }
    return table(columns, variants, bold=[row for row in variants if row["name"] == best])
