"""A repository of models: a folder with a folder per model."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from consilience._validation import check_choice, check_count, n_rows
from consilience._words import counted, shorten
from consilience.exceptions import ConsilienceError, ConsilienceWarning, InvalidInputError, shown, warn
from consilience.files.card import MAX_BYTES, card_bytes
from consilience.files.made import date_now, jsonable
from consilience.files.strict_json import checked
from consilience.labels import class_list, read_labels
from consilience.rank.rank import rank_teachers
from consilience.repository.cover import cover_classes
from consilience.repository.description import (
    as_reference,
    describe,
    kind_of_rows,
    read_descriptions,
    read_references,
    write_description,
    write_reference,
)
from consilience.repository.entry import (
    FACTS,
    ModelEntry,
    check_name,
    entry_of_card,
    folder_of,
    is_folder,
    read_entry,
)
from consilience.repository.listing import Described, Listing, RepositoryCheck, SearchResult
from consilience.repository.saving import card_of, name_of, stage_model
from consilience.repository.shelf import Shelf, card_file
from consilience.repository.shortlist import shortlist
from consilience.repository.signature import misfit, plain_rows
from consilience.rows import as_rows, rows_that_fit
from consilience.rows.images import ImagePreprocess
from consilience.run import Progress, Run, silent
from consilience.teachers import Teacher, as_teacher

Cost = str | Callable[[ModelEntry], float]


class Repository:
    """Models in a folder, each with its card: list them, check them, search them.

    Nothing in a repository is run but the models that you ask for: by onnxruntime, numpy or torch.

    Parameters
    ----------
    folder : path
        Made when the first model is added. An existing folder must be empty or a repository. A URL such as
        ``"s3://bucket/models"`` is reached through fsspec.
    copies : path, optional
        The folder of this machine to which models behind a URL are copied before they are opened; by default
        one in the cache of your user.

    Examples
    --------
    >>> import tempfile
    >>> Repository(tempfile.mkdtemp()).list()
    0 models
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, copies: str | os.PathLike[str] | None = None
    ) -> None:
        if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
            raise InvalidInputError("{argument} must be a folder.", argument="folder", value=folder)
        self._shelf = Shelf(folder, copies)

    @property
    def folder(self) -> Any:
        """The folder that the models lie in: a Path, or the text of a URL."""
        root = self._shelf.root
        return str(root) if root.local is None else root.local

    def add(
        self,
        model: Any,
        classes: ArrayLike | None = None,
        name: str | None = None,
        *,
        task: str = "",
        licence: str = "",
        source: str = "",
        description: str = "",
        metrics: Mapping[str, float] | None = None,
        preprocess: ImagePreprocess | Mapping[str, Any] | None = None,
        example: Any = None,
        reference: Any = None,
    ) -> ModelEntry:
        """Add a model. It is there as a whole or not at all, also if the process is killed.

        Parameters
        ----------
        model : path, classifier, torch module or teacher
            A file (``.onnx``, ``.skops``; ``.npz`` of a model of texts), a folder that `as_teacher` takes,
            a classifier of ours, or a fitted scikit-learn classifier or torch module: it is exported to ONNX.
        classes : (k,) sequence, optional
            The class of each column, where the model does not say.
        name : str, optional
            By default that of its card or its file. Capitals do not tell names apart.
        task, licence, source, description : str
            For the card. The source must be no path of this machine.
        metrics : mapping, optional
            How good it is: ``{"accuracy": 0.93}``.
        preprocess : ImagePreprocess or mapping, optional
            How images are prepared for the model, which whoever opens it then does; by default as its own
            card says.
        example : rows, optional
            A few rows, to export a fitted model; by default those given as `reference`.
        reference : rows, optional
            Reference rows to keep: see `set_reference`.
        """
        if reference is not None:
            as_reference(reference)  # now, while nothing is added yet
        facts = {
            "task": task,
            "licence": licence,
            "source": source,
            "metrics": {} if metrics is None else jsonable(metrics),
        }
        for key, value in facts.items():
            checked(key, value, FACTS[key])
        prepared = None if preprocess is None else ImagePreprocess.from_dict(preprocess)
        classes = None if classes is None else class_list(classes)
        name = check_name(name_of(model) if name is None else name)
        folder = folder_of(name)
        example = reference if example is None else example
        with self._shelf.adding(folder) as files:
            teacher, before = stage_model(model, classes, folder, files, example)
            about: dict[str, Any] = {"name": name, "description": description, "preprocess": prepared}
            card = card_of(files, folder, teacher, before, **about, **facts, added=date_now())
            teacher.release()
            entry = entry_of_card(card, folder)
            (files / f"{folder}.card.json").write_bytes(card_bytes(card))
        if reference is not None:
            self.set_reference(reference)
        try:
            failed = self._describe([entry], silent).failed.get(name)
        except (ConsilienceError, OSError) as error:  # that it has no description does not undo the add
            failed = str(error)
        if failed:
            warn(
                ConsilienceWarning(
                    f"{name!r} is added, but has no description, so search does not find it: {failed} "
                    "Mend this, and call describe()."
                )
            )
        return entry

    def remove(self, name: str) -> None:
        """Remove a model and everything that is kept of it, or what is there under a card that is damaged."""
        found = self._read(name)
        self._shelf.remove(folder_of(name), None if isinstance(found, str) else found)

    def list(
        self,
        *,
        classes: Sequence[Any] | None = None,
        task: str | None = None,
        licence: str | None = None,
        like: Any = None,
    ) -> Listing:
        """List models, all or some of them. No model is opened.

        Parameters
        ----------
        classes : sequence, optional
            Models that know at least one of these.
        task, licence : str, optional
            Models of this task and this licence.
        like : rows, optional
            Models that take such rows.
        """
        wanted = None if classes is None else set(class_list(classes))
        for key, value in {"task": task, "licence": licence}.items():
            if value is not None:
                checked(key, value, FACTS[key])
        known = self._read_all()
        found = [
            one
            for one in known.values()
            if not isinstance(one, str)
            and (wanted is None or not wanted.isdisjoint(one.classes))
            and (task is None or one.task == task)
            and (licence is None or one.licence == licence)
            and (like is None or not misfit(one, like))
        ]
        return Listing(tuple(found), {folder: one for folder, one in known.items() if isinstance(one, str)})

    def show(self, name: str) -> ModelEntry:
        """Return what is known of one model."""
        found = self._read(name)
        if isinstance(found, str):
            raise InvalidInputError(f"The model {name!r} cannot be used: {found}")
        return found

    def _read(self, name: object) -> ModelEntry | str:
        """Return a model, or why its card cannot be used; raise where there is none of that name."""
        found = self._find(name)
        if found is None:
            names = self.list().names
            listing = f"it has {shorten(names)}" if names else "it is empty"
            raise InvalidInputError(f"The repository has no model {shown(name)}; {listing}.")
        return found

    def _find(self, name: object) -> ModelEntry | str | None:
        folder = folder_of(name) if isinstance(name, str) else ""
        if not is_folder(folder) or not (self._shelf.root / folder).is_folder():  # or a link to one
            return None
        card = self._shelf.root / card_file(folder)
        return None if card.about() is None else read_entry(card.read(MAX_BYTES), folder)

    def _read_all(self) -> dict[str, ModelEntry | str]:
        """Return what is known of each folder, in their order."""
        return {folder: read_entry(data, folder) for folder, data in self._shelf.read_cards().items()}

    def path(self, name: str) -> Path:
        """Return the file or folder of a model, as ``--teacher`` takes it; from a URL, a copy of it."""
        return self._shelf.model_path(self.show(name))

    def verify(self, *, progress: Progress = silent) -> RepositoryCheck:
        """Compare every file with the checksum on its card; say which are damaged, missing or extra.

        What killed processes left is deleted, if nothing in it was written for an hour.

        Parameters
        ----------
        progress : callable
            Called with ("checking", models done, models in all).
        """
        return self._shelf.verify(self._read_all(), progress)

    def select(
        self,
        classes: Sequence[Any] | None = None,
        *,
        task: str | None = None,
        licence: str | None = None,
        like: Any = None,
    ) -> dict[str, Teacher]:
        """Return the teachers that know any of the classes, by name: `Unifier` takes them so.

        Parameters are those of `list`.
        """
        found = self.list(classes=classes, task=task, licence=licence, like=like)
        if not found:
            raise InvalidInputError("The repository has no such model. See list() for those that it has.")
        return {one.name: self[one.name] for one in found}

    def cover(
        self, classes: Sequence[Any], *, cost: Cost = "size", connected: bool = True, like: Any = None
    ) -> dict[str, Teacher]:
        """Return a small, cheap set of teachers that together know all the classes, by name.

        Parameters
        ----------
        classes : sequence
            The classes that are wanted.
        cost : {"size"}, name of a metric, or callable
            What a model costs: its bytes, a metric on its card (such as milliseconds), or a function of its
            `ModelEntry`. Models without that metric are left out.
        connected : bool
            Whether the teachers must be connected by shared classes, so that a unified model is determined.
        like : rows, optional
            Only models that take such rows.
        """
        return {
            name: self[name] for name in self.cover_names(classes, cost=cost, connected=connected, like=like)
        }

    def cover_names(
        self, classes: Sequence[Any], *, cost: Cost = "size", connected: bool = True, like: Any = None
    ) -> Sequence[str]:
        """Return the names of the models that `cover` opens."""
        wanted = class_list(classes)
        check_choice("connected", connected, (True, False))
        models = self.list(like=like).models
        costs = _costs(models, cost)
        known = {one.name: frozenset(one.classes) for one in models if one.name in costs}
        return cover_classes(known, wanted, costs, connected=connected)

    def set_reference(self, X: Any) -> None:
        """Keep unlabelled rows that every fitting model is asked about once; see `search`.

        A repository has one set of each kind of rows: texts, tables of some columns, numbers of some shape. A
        new set takes the place of an earlier one. Call `describe` afterwards.

        Parameters
        ----------
        X : array, list of texts or data frame
            A few hundred to a few thousand rows, like those of the tasks to come.
        """
        write_reference(self._shelf, X)

    def describe(self, *, progress: Progress = silent) -> Described:
        """Run the models that have no description yet over the reference rows that fit them.

        Parameters
        ----------
        progress : callable
            Called with ("describing", models done, models in all).
        """
        return self._describe(self.list().models, progress)

    def _describe(self, models: Sequence[ModelEntry], progress: Progress) -> Described:
        done, failed = [], {}
        for reference in read_references(self._shelf):
            fitting = [one for one in models if not misfit(one, reference.X)]
            known = read_descriptions(self._shelf, fitting, reference)
            waiting = [one for one in fitting if one.name not in known]
            for place, entry in enumerate(waiting):
                try:
                    teacher = self[entry.name]
                    write_description(self._shelf, entry, reference, describe(teacher, reference.X))
                    teacher.release()
                    done.append(entry.name)
                except (ConsilienceError, OSError) as error:
                    failed[entry.name] = " ".join(str(error).split())
                progress("describing", place + 1, len(waiting))
        return Described(tuple(dict.fromkeys(done)), failed)

    def search(
        self,
        X: Any,
        y: Any,
        top: int = 5,
        *,
        method: str = "auto",
        metric: Any = "transport",
        cache: Any = None,
        memory: float | str | None = None,
        progress: Progress = silent,
        random_state: int = 0,
    ) -> SearchResult:
        """Find the models that help most with a task, and run only a few of them.

        All models that take such rows are compared by their descriptions, which needs no run. The best `top`
        are then run on X and ranked by `rank_teachers`.

        Parameters
        ----------
        X : rows
            n rows of your task.
        y : (n,) sequence
            Their classes, which need not be those of any model; None where there is none.
        top : int
            How many models are run.
        method : str
            How descriptions are compared; see `consilience.repository.shortlist`.
        metric, cache, memory, progress, random_state
            As for `rank_teachers`.
        """
        top = check_count("top", top)
        random_state = check_count("random_state", random_state, at_least=0)
        rows, values = _labelled_rows(X, y, memory, random_state)
        listing = self.list()
        misfits = {one.name: why for one in listing if (why := misfit(one, rows))}
        fitting = [one for one in listing if one.name not in misfits]
        if not fitting:
            raise InvalidInputError(f"None of {counted(len(listing), 'model')} takes such rows. See list().")
        kind = kind_of_rows(plain_rows(rows))
        alike = [one for one in read_references(self._shelf) if one.kind == kind]
        found = read_descriptions(self._shelf, fitting, alike[0]) if alike else {}
        if not found:
            raise InvalidInputError(
                "No model that takes such rows has a description yet. Give reference rows like X with "
                "set_reference, and call describe()."
            )
        matches = shortlist(found, alike[0].X, rows, values, method=method, random_state=random_state)
        ranking = rank_teachers(
            {name: self[name] for name in list(matches)[:top]},
            rows,
            values,
            metric=metric,
            random_state=random_state,
            run=Run(cache=cache, progress=progress),
        )
        left = tuple(one.name for one in fitting if one.name not in found)
        return SearchResult(
            **vars(ranking), matches=matches, n_models=len(listing), misfits=misfits, undescribed=left
        )

    def __getitem__(self, name: str) -> Teacher:
        return as_teacher(self.path(name), name=self.show(name).name)

    def __len__(self) -> int:
        return len(self.list())

    def __iter__(self) -> Iterator[str]:
        return iter(self.list().names)

    def __contains__(self, name: object) -> bool:
        return isinstance(self._find(name), ModelEntry)

    def __repr__(self) -> str:
        return f"Repository({str(self._shelf.root)!r}: {counted(len(self), 'model')})"


def _costs(models: Sequence[ModelEntry], cost: Cost) -> dict[str, float]:
    """Return what each model costs, at least 0; models whose card lacks that metric are left out."""
    found: dict[str, Any] = {}
    if isinstance(cost, str):
        if models:
            check_choice("cost", cost, ["size", *sorted({name for one in models for name in one.metrics})])
        for one in models:
            if cost == "size" or cost in one.metrics:
                found[one.name] = one.n_bytes if cost == "size" else one.metrics[cost]
    elif callable(cost):
        for one in models:
            try:
                found[one.name] = cost(one)
            except Exception as error:  # whatever a foreign function raises
                raise InvalidInputError(
                    f"cost failed on the model {one.name!r}: {type(error).__name__}: {shown(str(error))}"
                ) from error
    else:
        raise InvalidInputError(
            '{argument} must be "size", the name of a metric, or a function.', argument="cost", value=cost
        )
    for name, value in found.items():
        if not isinstance(value, numbers.Real) or not 0 <= float(value) < math.inf:
            raise InvalidInputError(
                f"The cost of {name!r} is {shown(value)}; a cost is at least 0, and finite."
            )
    return found


def _labelled_rows(X: Any, y: Any, memory: Any, seed: int) -> tuple[Any, list[Any]]:
    """Return rows in memory and their labels. Of rows that do not fit, take labelled ones first, and warn."""
    given = as_rows(X).given
    labels = read_labels(y, n_rows(given), at_least=2)
    rows, places = rows_that_fit(given, labels.known, Run(memory=memory), seed)
    codes = labels.codes if places is None else labels.codes[places]
    if places is not None:
        warn(
            ConsilienceWarning(
                f"{len(codes):,} random rows of {len(labels.codes):,} are used, those with a label first: "
                "all of them would take more memory. Raise memory= for more."
            )
        )
    return rows, [None if code < 0 else labels.classes[code] for code in codes]
