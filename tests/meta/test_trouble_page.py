"""docs/trouble.md quotes messages that the library still has."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "trouble.md").read_text(encoding="utf8")
QUOTED = re.findall(r"^> `(.+)`$", PAGE, re.M)
FOREIGN = "features, but"  # this one is scikit-learn's; the page says so


def _texts(node: ast.AST) -> str:
    """Return a text of the source, with a gap for each value that is put into it."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_texts(part) for part in node.values)
    return "\0"


@pytest.fixture(scope="module")
def messages() -> list[str]:
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.Constant) and isinstance(node.value, str)
            ):
                found.append(re.sub(r"\{\w+\}", "\0", _texts(node)))
    return found


def pattern(quoted: str) -> re.Pattern[str]:
    """Return what finds the source of a quoted message: "..." stands for at least one gap."""
    pieces = [re.escape(piece) for piece in re.split(r"\s*\.\.\.\s*", quoted)]
    return re.compile(r"(?:.*\0.*)?".join(pieces) if pieces[0] else r"(?:.*\0.*)?".join(pieces[1:]), re.S)


@pytest.mark.parametrize("quoted", [quoted for quoted in QUOTED if FOREIGN not in quoted])
def test_a_quoted_message_is_still_in_the_source(quoted: str, messages: list[str]) -> None:
    assert any(pattern(quoted).search(message) for message in messages), quoted


def test_the_page_has_messages_and_the_test_can_fail(messages: list[str]) -> None:
    assert len(QUOTED) == PAGE.count("\n> ") > 30
    assert not any(pattern("The ... is not there, and never was.").search(message) for message in messages)
