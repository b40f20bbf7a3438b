"""Options: each is declared once, with its name, default, check and sentence of help.

From a class of options come the signature, the check, its message, the command line and the reference page::

    class CE(Options):
        '''Cross-entropy, eq. (9).'''

        temperature: float = option(number(above=0), "T of eq. (2).", default=3.0)

This module imports little, so that the command line can read declarations before it loads a library.
"""

from __future__ import annotations

import difflib
import inspect
import math
import numbers
import operator
import re
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from consilience import exceptions
from consilience._words import parse_size
from consilience.exceptions import InvalidInputError, shown

_MOST = 2**32 - 1  # the largest seed of numpy; no count comes near it
_REQUIRED: Any = inspect.Parameter.empty
_SECTION = re.compile("^(Attributes|Returns|Yields|Raises|Warns|Notes|Examples)\n-", re.MULTILINE)
Returned = TypeVar("Returned")


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise unless `value` is one of `choices`, suggesting the nearest.

    Examples
    --------
    >>> check_choice("method", "mfp", ["ce", "mf-p"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    consilience.exceptions.InvalidInputError: method='mfp' is unknown; use 'ce' or 'mf-p'. Did you mean ...?
    """
    allowed = list(choices)
    if _is_one(value, allowed):
        return
    *texts, last = [repr(one) for one in allowed]
    listing = f"{', '.join(texts)} or {last}" if texts else last
    hint = did_you_mean(value if isinstance(value, str) else shown(value), allowed)
    raise InvalidInputError(f"{{argument}} is unknown; use {listing}.{hint}", argument=name, value=value)


def did_you_mean(given: str, words: Iterable[object]) -> str:
    """Return a hint at the nearest of some words; empty if none is near.

    Examples
    --------
    >>> did_you_mean("mfp", ["ce", "mf-p"])
    " Did you mean 'mf-p'?"
    """
    texts = [word for word in words if isinstance(word, str)]
    near = difflib.get_close_matches(given.lower(), texts, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


def _is_one(value: object, allowed: Iterable[object]) -> bool:
    """Tell whether a value is one of some: True is not 1 here, since balance=1 is a slip."""
    return any(value is one or (isinstance(value, str) and value == one) for one in allowed)


def check_number(
    name: str,
    value: object,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
) -> float:
    """Return `value` as a float, or raise unless it is a finite number within these bounds.

    Examples
    --------
    >>> check_number("dropout", 0.5, at_least=0, below=1)
    0.5
    >>> check_number("dropout", 1, at_least=0, below=1)
    Traceback (most recent call last):
    consilience.exceptions.InvalidInputError: dropout=1 must be below 1.
    """
    number = math.nan
    if not isinstance(value, bool) and isinstance(value, numbers.Real):  # numpy registers its own numbers
        with suppress(OverflowError, TypeError):  # a difference of times is a Real of numpy, too
            number = float(value)
    if not math.isfinite(number) or number <= above or number < at_least:
        bound = f" above {above:g}" if above > -math.inf else ""
        problem = f"a finite number{f' of at least {at_least:g}' if at_least > -math.inf else bound}"
    elif number < below and number <= at_most:
        return number
    else:
        problem = f"below {below:g}" if number >= below else f"at most {at_most:g}"
    raise InvalidInputError(f"{{argument}} must be {problem}.", argument=name, value=value)


def check_temperature(value: object, name: str = "temperature") -> float:
    """Return a temperature, or raise unless it is from 1e-6 to 1e6: logits over it must not overflow."""
    temperature = check_number(name, value, above=0)
    if not 1e-6 <= temperature <= 1e6:
        raise InvalidInputError("{argument} must be from 1e-6 to 1e6.", argument=name, value=value)
    return temperature


def check_count(name: str, value: object, *, at_least: int = 1, at_most: int = _MOST) -> int:
    """Return `value` as an int, or raise unless it is a whole number from `at_least` to `at_most`."""
    number = -_MOST
    if not isinstance(value, bool):
        with suppress(TypeError):  # a difference of times is an Integral of numpy's, and no number
            number = operator.index(value)  # type: ignore[arg-type]
    if not at_least <= number <= at_most:
        bound = f"at most {at_most}" if number > at_most else f"at least {at_least}"
        raise InvalidInputError(
            f"{{argument}} must be a whole number of {bound}.", argument=name, value=value
        )
    return number


def as_random_state(random_state: object) -> Any:
    """Return numpy's generator for a seed, a generator or None, or raise."""
    from sklearn.utils import check_random_state

    try:
        return check_random_state(random_state)
    except (ValueError, TypeError):  # sklearn: not a seed; numpy: a seed out of range
        raise InvalidInputError(
            f"{{argument}} must be a whole number from 0 to {_MOST}, a RandomState or None.",
            argument="random_state",
            value=random_state,
        ) from None


def check_fitted(estimator: object, attribute: str) -> None:
    """Raise unless an estimator has the attribute that `fit` gives it."""
    if not hasattr(estimator, attribute):
        raise exceptions.NotFittedError(f"This {type(estimator).__name__} is not fitted yet; call fit first.")


@dataclass(frozen=True)
class Check:
    """What an option may be.

    Attributes
    ----------
    run : callable
        Called with the name and the value; returns the value as it is used, or raises.
    says : str
        What may be given, for the reference page: ``float above 0``.
    read : callable or None
        Makes a value of a text on the command line; None if it cannot be given there.
    values : tuple
        What may be chosen from, if that is a list.
    make : callable or None
        Makes an object of a short name: ``"ce"`` -> ``CE()``.
    many : bool
        Whether the option may be repeated on the command line.
    """

    run: Callable[[str, Any], Any]
    says: str
    read: Callable[[str], Any] | None = None
    values: tuple[Any, ...] = ()
    make: Callable[[str], Any] | None = None
    many: bool = False


def choice(*values: Any, check: Check | None = None) -> Check:
    """One of some values, or what another check takes."""
    by_text = {value if isinstance(value, str) else repr(value).lower(): value for value in values}
    words = [one for one in (*(check.values if check else ()), *values) if isinstance(one, str)]

    def run(name: str, value: Any) -> Any:
        if check is None or _is_one(value, values):
            check_choice(name, value, values)
            return value
        try:
            return check.run(name, value)
        except InvalidInputError:
            if isinstance(value, str) and words:  # a word for a number: say which words there are
                check_choice(name, value, words)
            raise

    def read(text: str) -> Any:
        found = by_text.get(text.lower(), text)
        return check.read(text) if check and check.read and found is text else found

    if check is None:
        return Check(run, "{" + ", ".join(map(repr, values)) + "}", read, values)
    every = (*check.values, *values) if check.values else ()
    says = " or ".join([check.says, *map(repr, values)])
    return Check(run, says, read if check.read else None, every, check.make)


def optional(check: Check) -> Check:
    """None, or what another check takes."""
    return choice(None, check=check)


def flag() -> Check:
    """True or False."""
    return choice(True, False)


def number(**bounds: float) -> Check:
    """A finite number: `above`, `at_least`, `below`, `at_most`; see `check_number`."""
    return _within(check_number, float, bounds)


def count(**bounds: int) -> Check:
    """A whole number: `at_least` (1), `at_most`; see `check_count`."""
    return _within(check_count, int, bounds)


def temperature() -> Check:
    """A temperature, from 1e-6 to 1e6."""
    return replace(
        number(), run=lambda name, value: check_temperature(value, name), says="float from 1e-6 to 1e6"
    )


def _within(check: Callable[..., Any], kind: type, bounds: Mapping[str, Any]) -> Check:
    """Return the check of a number within bounds."""
    limits = "".join(f", {name.replace('_', ' ')} {value:g}" for name, value in bounds.items())

    def read(text: str) -> Any:
        with suppress(ValueError):  # the check says what is wrong with it
            return kind(text)
        return text

    return Check(lambda name, value: check(name, value, **bounds), kind.__name__ + limits, read)


def size() -> Check:
    """A size in bytes, such as ``"2GB"``."""
    return Check(parse_size, "size in bytes, int or str", str)


def anything(
    says: str,
    read: Callable[[str], Any] | None = None,
    *,
    words: Collection[str] = (),
    make: Callable[[str], Any] | None = None,
) -> Check:
    """Whatever the part that uses it takes, which checks it; but of texts only `words`, if there are any."""

    def run(name: str, value: Any) -> Any:
        if words and isinstance(value, str):
            check_choice(name, value, words)
        return value

    return Check(run, says, read, tuple(words), make)


def function_of_yours() -> Check:
    """What can be called."""

    def run(name: str, value: Any) -> Any:
        if not callable(value):
            raise InvalidInputError("{argument} must be a function.", argument=name, value=value)
        return value

    return Check(run, "callable")


def each(check: Check) -> Check:
    """Several of what another check takes; on the command line the option is repeated."""
    return replace(check, many=True)


def one_of(
    table: Mapping[str, Callable[[], Any]],
    kinds: type | tuple[type, ...],
    says: str,
    made_of: Callable[[Any], Any] | None = None,
) -> Check:
    """A short name of a table, which stands for an object with its defaults; or such an object, of `kinds`.

    `made_of` makes what is used of anything else, such as a function.
    """

    def run(name: str, value: Any) -> Any:
        made = value
        if not isinstance(value, kinds):
            if made_of is None or isinstance(value, str | numbers.Number | type | None):
                check_choice(name, value, table)
            made = make(value) if isinstance(value, str) or made_of is None else made_of(value)
        if isinstance(made, Options):
            made.check_options()
        return made

    def make(value: str) -> Any:
        return table[value]()

    return Check(run, says, str, tuple(table), make)


@dataclass(frozen=True)
class Option:
    """An option: what its class says of it."""

    default: Any
    check: Check
    help: str
    flags: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is _REQUIRED


def option(check: Check, help: str, *, default: Any = _REQUIRED, flag: str | None = None) -> Any:  # noqa: A002
    """Declare an option.

    Parameters
    ----------
    check : Check
    help : str
        A sentence or two, for the page and the command line.
    default : object
        Without one it must be given.
    flag : str, optional
        Its name on the command line, if that differs from the option's: ``"--teacher -t"``. Capital letters
        are those of an argument without a name.
    """
    return Option(default, check, help, flags=tuple(flag.split()) if flag else ())


@dataclass_transform(field_specifiers=(option,))
class Options:
    """Base of what has options: an annotated class attribute made by `option` declares one.

    The constructor stores them as they are, as scikit-learn asks; `check` looks at them.
    """

    _options: ClassVar[dict[str, Option]] = {}

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        own = {name: one for name, one in vars(cls).items() if isinstance(one, Option)}
        # those of bases first, and of two with one name that of the nearest class
        cls._options = dict(ChainMap(own, *(vars(base).get("_options", {}) for base in cls.__mro__[1:])))
        for name, declared in own.items():
            setattr(cls, name, declared.default)
        if own or sum(issubclass(base, Options) for base in cls.__bases__) > 1:
            cls.__init__ = _constructor(cls)  # type: ignore[method-assign]
        if cls._options and cls.__doc__:
            cls.__doc__ = with_parameters(cls.__doc__, cls._options)

    @classmethod
    def declared(cls) -> Mapping[str, Option]:
        """Return the options by name."""
        return cls._options

    def check_options(self) -> None:
        """Raise if an option is wrong."""
        for name in self._options:
            self.resolved(name)

    def resolved(self, name: str) -> Any:
        """Return an option as it is used: checked, and an object where a short name was given."""
        return self._options[name].check.run(name, getattr(self, name))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all options by name; with `deep`, those of objects too: ``method__temperature``."""
        found = {name: getattr(self, name) for name in self._options}
        for name, value in list(found.items()) if deep else ():
            if hasattr(value, "get_params") and not isinstance(value, type):
                found |= {f"{name}__{key}": inner for key, inner in value.get_params().items()}
        return found

    def set_params(self, **values: Any) -> Self:
        """Set options by name. ``method__temperature=2`` reaches into an object, or into a short name's."""
        for name, value in sorted(values.items()):  # an object before what reaches into it
            first, _, rest = name.partition("__")
            check_choice("parameter", first, self._options)
            current, make = getattr(self, first), self._options[first].check.make
            if not rest:
                setattr(self, first, value)
                continue
            if isinstance(current, str) and make is not None:
                current = make(current)
                setattr(self, first, current)
            current.set_params(**{rest: value})
        return self

    def __repr__(self) -> str:
        parts = [
            f"{name}={shown(getattr(self, name))}"
            for name, declared in self._options.items()
            if declared.required or not _same(getattr(self, name), declared.default)
        ]
        return f"{type(self).__name__}({', '.join(parts)})"


def _same(value: object, default: object) -> bool:
    return value is default or (isinstance(value, str | int | float) and value == default)


def _constructor(cls: type[Options]) -> Callable[..., None]:
    taken = parameters(cls.declared())
    signature = inspect.Signature(taken)

    def __init__(self: Options, *args: Any, **given: Any) -> None:  # noqa: N807
        vars(self).update(_bind(type(self).__name__, signature, args, given))

    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = inspect.Signature([itself, *taken])  # type: ignore[attr-defined]
    return __init__


def parameters(options: Mapping[str, Option], *, keyword: bool = False) -> list[inspect.Parameter]:
    """Return the parameters of a signature: required ones first."""
    kind = inspect.Parameter.KEYWORD_ONLY if keyword else inspect.Parameter.POSITIONAL_OR_KEYWORD
    ordered = sorted(options.items(), key=lambda item: not item[1].required)
    return [inspect.Parameter(name, kind, default=one.default) for name, one in ordered]


def _bind(name: str, signature: inspect.Signature, args: Any, given: Any) -> dict[str, Any]:
    """Return the arguments of a call by name, or raise a TypeError that suggests the nearest name."""
    try:
        bound = signature.bind(*args, **given)
    except TypeError as error:
        unknown = [key for key in given if key not in signature.parameters]
        hint = ""
        if unknown:
            takes = f" It takes {', '.join(signature.parameters)}."
            hint = "." + (did_you_mean(unknown[0], signature.parameters) or takes)
        raise TypeError(f"{name}() {error}{hint}") from None
    bound.apply_defaults()
    return dict(bound.arguments)


def takes(options: type[Options]) -> Callable[[Callable[..., Returned]], Callable[..., Returned]]:
    """Give a function the options of a class as keywords; its last parameter gets them, checked.

    Examples
    --------
    >>> class Loudness(Options):
    ...     volume: int = option(count(at_most=11), "How loud.", default=3)
    >>> @takes(Loudness)
    ... def say(word, options):
    ...     '''Say a word.'''
    ...     return word + "!" * options.volume
    >>> say("hey", volume=2)
    'hey!!'
    """

    def decorate(function: Callable[..., Returned]) -> Callable[..., Returned]:
        own = list(inspect.signature(function).parameters.values())[:-1]
        signature = inspect.Signature([*own, *parameters(options.declared(), keyword=True)])

        @wraps(function)
        def call(*args: Any, **given: Any) -> Returned:
            called = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
            bound = _bind(called, signature, args, given)
            chosen = options(**{name: bound.pop(name) for name in options.declared()})
            chosen.check_options()
            return function(*bound.values(), chosen)

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.options = options  # type: ignore[attr-defined]
        call.__doc__ = with_parameters(function.__doc__ or "", options.declared())
        return call

    return decorate


def with_parameters(text: str, options: Mapping[str, Option]) -> str:
    """Return a docstring with a section of parameters, or with these at the end of the section it has."""
    text = inspect.cleandoc(text)
    after = _SECTION.search(text)
    end = after.start() if after else len(text)
    head = text[:end].rstrip()
    if "\nParameters\n" not in head:
        head += "\n\nParameters\n----------"
    for name, one in options.items():
        if f"{name} : " not in text:
            default = "" if one.required or one.default is None else f", default {one.default!r}"
            head += f"\n{name} : {one.check.says}{default}\n    {one.help}"
    return f"{head}\n\n{text[end:]}".rstrip()
