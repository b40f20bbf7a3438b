"""Write the reference of the command line from the commands themselves, as pages in `docs/cli`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from sphinx.application import Sphinx

INTRODUCTION = """\
# Command reference
Every command with its options, as `consilience COMMAND --help` prints them.
[The command line](../command-line.md) explains what they do and shows what they print.
[In operation](../operations.md) is about runs that nobody watches.

"""


def pages() -> dict[str, str]:
    """Return the Markdown of each page, by its name."""
    from consilience.cli.app import app

    found = {name: page(command, f"consilience {name}") for name, command in app.commands.items()}
    toctree = "\n".join(found)
    rows = [f"| [`{name}`]({name}.md) | {summary(app.commands[name])} |" for name in found]
    table = "\n".join(["| command | what it does |", "|---|---|", *rows])
    return {**found, "index": f"{INTRODUCTION}{table}\n\n```{{toctree}}\n:hidden:\n\n{toctree}\n```\n"}


def page(command: Any, path: str, level: int = 1) -> str:
    """Return the Markdown of one command and of the commands under it."""
    inner = getattr(command, "commands", {})
    parts = [f"{'#' * level} {path.removeprefix('consilience ')}", *described(command.help or "")]
    context = click.Context(command, info_name=path)
    if not inner:
        # what --help shows of each: "-t, --teacher FILE" and "A teacher: ... [required]"
        records = [one.get_help_record(context) for one in command.params]
        options = {label(names): as_text(text) for names, text in records}
        words = " ".join([path, "[OPTIONS]", *(name for name in options if not name.startswith("-"))])
        parts += [f"```text\n{words}\n```", f"```{{program}} {path}\n```"]
        parts += [f"```{{option}} {name}\n\n{text}\n```" for name, text in options.items()]
    parts += [page(one, f"{path} {name}", level + 1) for name, one in inner.items()]
    return "\n\n".join(parts) + "\n"


def described(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; its examples as code."""
    for paragraph in re.split(r"\n\s*\n", text.replace("\b", "").strip()):
        first, *rest = paragraph.strip("\n").splitlines()
        if first.strip().startswith("Example"):
            about = first.strip().removeprefix("Example").strip(": ")
            yield f"**Example**{': ' + about if about else ''}"
            yield "```text\n" + "\n".join(line.strip() for line in rest) + "\n```"
        else:
            yield as_text(" ".join(paragraph.split()))


def label(names: str) -> str:
    """Return the names of an option, the long one first for its anchor; of an argument, the name."""
    if not names.startswith("-"):
        return names.split()[0]
    short, _, long = names.partition(", ")
    if not long.startswith("--") or short.startswith("--"):
        return names
    value = long.partition(" ")[2]
    return f"{long}, {short} {value}".rstrip()


def as_text(text: str) -> str:
    """Return plain text as Markdown that shows it as it is: options are code, the rest is escaped."""
    text = re.sub(r"([\\`*_{}\[\]<>|])", r"\\\1", text)
    return re.sub(r"(?<![\w`-])(--[a-z][\w-]*)", r"`\1`", text)


def summary(command: Any) -> str:
    """Return the first sentence of a command's help."""
    return as_text(" ".join((command.help or "").strip().split("\n\n")[0].split()))


def write_pages(app: Sphinx) -> None:
    """Write the pages that changed, so that a build leaves the others alone."""
    folder = Path(app.srcdir) / "cli"
    folder.mkdir(exist_ok=True)
    wanted = {folder / f"{name}.md": text for name, text in pages().items()}
    for path, text in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in set(folder.glob("*.md")) - set(wanted):
        path.unlink()


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for them."""
    app.connect("builder-inited", write_pages, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
