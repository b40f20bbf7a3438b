"""What a `Unifier` may be told, and what goes together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._sizes import parse_size
from consilience._validation import check_choice, check_count, check_number
from consilience.exceptions import InvalidInputError
from consilience.scoring.engines import check_engine
from consilience.soft_labels.estimate import check_options, method_name

LOSSES = ("cross-entropy", "collision")
from consilience.teachers.given import given_teachers

if TYPE_CHECKING:
    from consilience.unify.unifier import Unifier


def check_settings(unifier: Unifier) -> None:
    """Raise if a parameter of a Unifier is wrong, or if two do not go together."""
    check_options(unifier.method, unifier.temperature, unifier.tol, unifier.max_iter, unifier.off_set)
    check_choice("train", unifier.train, ("estimate", "backprop"))
    check_choice("balance", unifier.balance, ("auto", True, "sqrt", False))
    check_choice("loss", unifier.loss, LOSSES)
    check_choice("self_label", unifier.self_label, (True, False))
    check_choice("calibrate", unifier.calibrate, (None, "agreement"))
    check_number("smoothing", unifier.smoothing, at_least=0, below=1)
    check_count("batch_size", unifier.batch_size)
    if unifier.n_neighbors is not None:
        check_count("n_neighbors", unifier.n_neighbors, at_least=0)
    if unifier.memory is not None:
        parse_size("memory", unifier.memory)
    check_engine(unifier.engine, unifier.engine_options)
    given_teachers(unifier.teachers)
    if unifier.self_label and (unifier.train, unifier.loss) != ("estimate", "cross-entropy"):
        raise InvalidInputError(
            "self_label=True needs train='estimate' and loss='cross-entropy'; "
            f"they are {unifier.train!r} and {unifier.loss!r}."
        )
    if unifier.train == "backprop":
        _check_backprop(unifier)


def _check_backprop(unifier: Unifier) -> None:
    """Raise if a parameter needs soft labels, which ``train="backprop"`` does not make."""
    if unifier.method in ("sd", "ranks") or callable(unifier.method):
        raise InvalidInputError(
            "{argument} has no backprop form; use {remedy}.",
            argument="method",
            value=method_name(unifier.method),
            remedy=("train", "estimate"),
        )
    if unifier.loss != "cross-entropy":
        raise InvalidInputError(
            f"{{argument}} has the method's own loss; use {{remedy}} with {unifier.loss!r}.",
            argument="train",
            value="backprop",
            remedy=("train", "estimate"),
        )
    for name in ("balance", "off_set", "n_neighbors", "tol", "max_iter"):
        value = getattr(unifier, name)
        if value not in ("auto", False, None):
            raise InvalidInputError(
                "{argument} needs soft labels; use {remedy}.",
                argument=name,
                value=value,
                remedy=("train", "estimate"),
            )


def describe_settings(unifier: Unifier) -> dict[str, str]:
    """Return the options of a fitted Unifier that its file is to name."""
    backprop = unifier.train == "backprop"
    about = {
        "method": unifier.backprop_method if backprop else method_name(unifier.method),
        "train": unifier.train,
        "temperature": f"{unifier.resolved_temperature:g}",
    }
    if unifier.calibrate is not None:
        about["calibrate"] = unifier.calibrate
    if unifier.off_set:
        about["off_set"] = "True"
    if unifier.neighbor_weight_:
        about["neighbor_weight"] = f"{unifier.neighbor_weight_:.3g}"
    return about
