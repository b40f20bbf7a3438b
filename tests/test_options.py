"""An option is declared once: its signature, check, help and place in a docstring follow."""

import copy
import inspect
import subprocess
import sys

import pytest
from sklearn.base import clone

import consilience.exceptions
from consilience.exceptions import ConvergenceWarning, InvalidInputError
from consilience.options import (
    Options,
    choice,
    count,
    flag,
    number,
    one_of,
    option,
    optional,
    takes,
)


class Warm(Options):
    """A method.

    Examples
    --------
    >>> 1
    1
    """

    temperature: float = option(number(above=0), "Softens.", default=3.0)
    max_iter: int | None = option(optional(count()), "Most iterations.", default=None)


class Cold(Warm):
    """A colder one."""

    temperature: float = option(number(above=0), "Softens less.", default=1.0)
    exact: bool = option(flag(), "Whether to be exact.", default=False)


METHOD = one_of({"warm": Warm, "cold": Cold}, Warm, "method")


class Verb(Options):
    """A verb.

    Attributes
    ----------
    a_ : int
    """

    student: object = option(optional(choice("logistic", "mlp")), "Who learns.", default=None)
    method: object = option(METHOD, "How.", default="warm")
    teachers: list = option(choice(1, 2), "Who teaches.")


def test_the_signature_is_that_of_the_declarations():
    assert str(inspect.signature(Verb)) == "(teachers, student=None, method='warm')"
    assert str(inspect.signature(Cold)) == "(temperature=1.0, max_iter=None, exact=False)"
    assert Verb(2, "mlp").get_params(deep=False) == {"student": "mlp", "method": "warm", "teachers": 2}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Cold(temperture=1), "Cold() got an unexpected keyword argument 'temperture'. Did you ..."),
        (lambda: Verb(), "Verb() missing a required argument: 'teachers'"),
        (lambda: Cold(1, 2, True, 4), "Cold() too many positional arguments"),
    ],
)  # fmt: skip
def test_a_slip_in_a_call_is_a_type_error(make, said):
    with pytest.raises(TypeError) as caught:
        make()
    assert str(caught.value).replace("mean 'temperature'?", "...") == said


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Cold(temperature=0), "temperature=0 must be a finite number above 0."),
        (Cold(max_iter=1.5), "max_iter=1.5 must be a whole number of at least 1."),
        (Cold(exact=1), "exact=1 is unknown; use True or False."),
        (Verb(1, "mpl"), "student='mpl' is unknown; use 'logistic' or 'mlp'. Did you mean 'mlp'?"),
        (Verb(1, method="cool"), "method='cool' is unknown; use 'warm' or 'cold'. Did you mean 'cold'?"),
    ],
)
def test_a_wrong_value_is_stored_and_found_by_the_check(made, said):
    with pytest.raises(InvalidInputError) as caught:
        made.check_options()
    assert str(caught.value) == said


def test_a_short_name_stands_for_an_object_and_parameters_reach_into_it():
    verb = Verb(1)
    assert isinstance(verb.resolved("method"), Warm)
    assert "method__temperature" not in verb.get_params()
    verb.set_params(method__temperature=2.0, student="mlp")
    assert isinstance(verb.method, Warm)
    assert verb.get_params()["method__temperature"] == 2.0
    verb.set_params(method__temperature=4.0, method="cold")  # whatever the order: first the object
    assert repr(verb.method) == "Cold(temperature=4.0)"
    with pytest.raises(InvalidInputError, match="Did you mean 'student'"):
        verb.set_params(studnet=1)


def test_clones_and_copies_are_equal_and_apart():
    for make in (clone, copy.deepcopy):
        verb = Verb(1, method=Cold(temperature=2.0))
        other = make(verb)
        other.set_params(method__temperature=5.0)
        assert (verb.method.temperature, other.method.temperature) == (2.0, 5.0)


def test_docstrings_get_a_section_of_parameters():
    assert inspect.cleandoc(Verb.__doc__).splitlines()[2:7] == [
        "Parameters",
        "----------",
        "student : {'logistic', 'mlp'} or None",
        "    Who learns.",
        "method : method, default 'warm'",
    ]
    assert Verb.__doc__.index("Attributes") > Verb.__doc__.index("Who teaches.")


def test_a_function_takes_options_as_keywords():
    @takes(Cold)
    def verb(X, y=None, options=None):
        """Do.

        Parameters
        ----------
        X : array
        """
        return X, y, options.temperature

    assert str(inspect.signature(verb)) == "(X, y=None, *, temperature=1.0, max_iter=None, exact=False)"
    assert verb(1, 2, temperature=4) == (1, 2, 4)
    assert "max_iter : int or None" in verb.__doc__
    with pytest.raises(InvalidInputError, match="temperature=-1"):
        verb(1, temperature=-1)
    with pytest.raises(TypeError, match="Did you mean 'max_iter'"):
        verb(1, maxiter=3)


def test_texts_of_the_command_line_become_values():
    check = choice("auto", check=number(above=0))
    assert (check.read("auto"), check.read("2")) == ("auto", 2.0)
    assert choice(True, False, "sqrt").read("true") is True
    assert count().read("x") == "x"


def test_a_representation_names_what_differs_from_the_default():
    assert repr(Cold(temperature=2.0)) == "Cold(temperature=2.0)"
    assert repr(Verb(1)) == "Verb(teachers=1)"


def test_declaring_is_light():
    code = (
        "import sys, consilience.exceptions as found, consilience.options, consilience.run\n"
        "print(sorted({'numpy', 'sklearn', 'scipy'} & set(sys.modules)), found.NotFittedError.__module__)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[] consilience.exceptions\n"


def test_a_warning_points_at_the_caller_outside_the_package():
    namespace = {"__name__": "consilience.somewhere"}
    code = (
        "from consilience.exceptions import warn, ConvergenceWarning\n"
        "def inner():\n    warn(ConvergenceWarning('slow'))\n"
        "def outer():\n    inner()\n"
    )
    exec(compile(code, consilience.exceptions.__file__, "exec"), namespace)  # noqa: S102
    with pytest.warns(ConvergenceWarning) as caught:
        namespace["outer"]()
    assert caught[0].filename == __file__
