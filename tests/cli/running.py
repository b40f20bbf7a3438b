"""How tests of the command line run a command, and what they expect of every answer."""

import json
from typing import Any

import pytest

pytest.importorskip("click")

from click.testing import CliRunner, Result

from consilience.cli.app import app


def run(*words: object, **options: Any) -> Result:
    """Run a command in this process; its words may be paths and numbers."""
    return CliRunner().invoke(app, [str(word) for word in words], **options)


def done(*words: object) -> Result:
    """Run a command that works."""
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result


def view_of(*words: object) -> dict[str, Any]:
    """Return what a command that works prints as JSON."""
    view: dict[str, Any] = json.loads(done(*words, "--json").stdout)
    return view


def refused(*words: object) -> str:
    """Return the one sentence with which a command refuses its input."""
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr
