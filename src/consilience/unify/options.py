"""What a `Unifier` may be given."""

from __future__ import annotations

from typing import Any

from consilience.methods import METHOD
from consilience.options import Options, anything, choice, option
from consilience.students import STUDENT


class UnifierOptions(Options):
    """Options of `Unifier`."""

    teachers: Any = option(
        anything("teacher, list, dict or Ranking"),
        "Fitted classifiers, torch modules, paths, arrays, functions...: whatever `as_teacher` takes without "
        "further options, or teachers made with it. A list of them, a dict by name, what `rank_teachers` "
        "returned (all that have a score), or a single one.",
    )
    student: Any = option(
        STUDENT,
        "What learns: 'logistic', 'forest', 'boosting', 'mlp' or 'torch', for texts 'ngrams'; one of "
        "`consilience.students` with options, such as ``students.Logistic(loss='collision')``; a "
        "scikit-learn classifier; a `torch.nn.Module` or a factory of one. By default 'ngrams' for texts "
        "and a two-layer network otherwise: in torch if it is installed, else in scikit-learn.",
        default=None,
    )
    method: Any = option(
        METHOD,
        "How soft labels are made: 'auto', 'ranks', 'mf-lf', 'ce', 'mf-p', 'mf-lv' or 'sd'; one of "
        "`consilience.methods` with options, such as ``methods.CE(off_set=True)``; or a function of your "
        "own, see `methods.Own`. For a network with ``train='backprop'``, whose loss it learns, and 'auto' "
        "means 'mf-lf'.",
        default="auto",
    )
    balance: Any = option(
        choice("auto", True, "sqrt", False),
        "Weight each class by the inverse of its mean soft label (Sec. 3.5.2). 'auto' does so if the label "
        "sets differ, and not if they are all equal: the paper's finding. 'sqrt' takes the root of these "
        "weights. It is for many classes, some of which hardly occur: with full weights the student would "
        "learn them from the noise in the labels of other rows.",
        default="auto",
    )
    aliases: Any = option(
        anything("mapping or None"),
        "Other names of classes: ``{'automobile': 'car'}``; `suggest_aliases` finds some.",
        default=None,
    )
    disconnected: Any = option(
        choice("warn", "error", "ignore"),
        "What to do if teachers fall into groups that share no class; see `LabelSpace`. The methods 'auto' "
        "and 'ranks' compare such groups, if every class occurs in X.",
        default="warn",
    )
    random_state: Any = option(
        anything("int, RandomState or None"), "Makes the student reproducible.", default=None
    )
    run: Any = option(
        anything("Run or None"), "How the work is run: memory, cache, engine, progress.", default=None
    )
