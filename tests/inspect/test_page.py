"""Pages: one file, everything escaped, a policy that allows its own style and script only, written whole."""

import base64
import hashlib
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2")

from consilience import InvalidInputError
from consilience.exceptions import MissingDependencyError, WriteError
from consilience.inspect import page as pages
from consilience.inspect.drawing import LONGEST_NAME, curve, dots, drawing, heat, histogram, incidence
from consilience.inspect.page import check_report, render_page, write_page

EVIL = "<script>alert(1)</script>"


class Tags(HTMLParser):
    """Collect tags, attributes and text outside the style sheet and the script."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] not in (["script"], ["style"]):
            self.text.append(data)


def read(page: Any) -> Tags:
    tags = Tags()
    tags.feed(render_page(page))
    return tags


def of(*parts: Any) -> Any:
    return pages.page("t", "l", [], [pages.section("s", "", *parts)])


def example(name: str = "cat") -> Any:
    columns = [("class", "name", [name] * 12), ("share", "bar", [0.25, None] * 6)]
    parts = [
        pages.table(name, columns, note=name, marked=[1]),
        pages.facts({name: name}),
        pages.remarks([name]),
        drawing(incidence, name, rows=[name], columns=[name], cells=[[0]]),
        drawing(heat, name, rows=[name], columns=[name], values=[[0.5]]),
        drawing(histogram, name, counts=[1, 2]),
        drawing(dots, name, series=[name, name], rows=[(name, [[0.5, 0.4, 0.6], None])]),
        drawing(curve, name, values=[3.0, 2.0], across=name),
    ]
    return pages.page(name, name, [(name, name)], [pages.section(name, name, *parts), None])


def test_everything_from_data_is_escaped() -> None:
    plain, evil = read(example()), read(example(EVIL))
    # a label that was cut keeps the whole name in a title
    names, expected = ([tag for tag in found.tags if tag != "title"] for found in (evil, plain))
    assert names == expected
    assert evil.tags.count("script") == 1
    assert "".join(evil.text).count(EVIL) > 15
    quoted = read(example('x" onload="alert(1)'))
    assert not any(name == "onload" for _, name, _ in quoted.attributes)


def test_the_page_reaches_for_nothing_outside() -> None:
    found = read(example())
    links = [value for _, name, value in found.attributes if name in ("src", "href", "action", "xlink:href")]
    assert all(value == "data:," or (value or "").startswith("#s") for value in links)
    assert not {"iframe", "object", "embed", "img", "form", "base"} & set(found.tags)
    assert not any(name == "style" or name.startswith("on") for _, name, _ in found.attributes)


def test_the_policy_names_the_hashes_of_style_and_script() -> None:
    text = render_page(example())
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)[0].replace("&#39;", "'")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        content = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)[-1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_tables_and_drawings_have_captions_that_name_them() -> None:
    found = read(example())
    ids = {value for _, name, value in found.attributes if name == "id"}
    named = {value for _, name, value in found.attributes if name in ("aria-labelledby", "aria-controls")}
    assert named
    assert named <= ids
    assert found.tags.count("figure") == found.tags.count("figcaption") == 6
    assert [tag for tag in found.tags if re.fullmatch("h[1-6]", tag)] == ["h1", "h2"]


def test_long_tables_and_names_are_cut() -> None:
    table = pages.table("all", [("class", "name", ["x" * 5000] * 1000)])
    assert len(table["rows"]) == pages.MOST_ROWS
    assert "1,000 rows" in table["note"]
    assert len(table["rows"][0][0]) == LONGEST_NAME


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "r.html"
    assert write_page(target, example()) == target
    old = target.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "no space")))
    with pytest.raises(WriteError):
        write_page(target, example("dog"))
    assert target.read_bytes() == old
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_a_bad_path_is_refused_before_work(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "r.pdf", "'r.pdf' has another ending"),
        (tmp_path / "no" / "r.html", "does not exist. Make it first"),
        (7, "must be the path of a file"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            check_report(path)  # type: ignore[arg-type]


def test_without_jinja_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    says = r"A report needs jinja2: pip install 'consilience\[report\]'"
    with pytest.raises(MissingDependencyError, match=says):
        check_report(tmp_path / "r.html")


def test_values_read_as_people_write_them() -> None:
    values = [1234, None], [0.12345, None], [1234, 0]
    columns = list(zip("abc", ("count", "percent", "place"), values, strict=True))
    part = pages.table("numbers", columns)
    assert "1,234 12.3% 1234" in " ".join(" ".join(read(of(part)).text).split())
    assert pages.as_lines(part) == ["    a      b     c", "1,234  12.3%  1234", "                 0"]
    assert pages.as_lines(pages.table("numbers", columns, printed=1))[-1] == "and 1 more"
    turned = pages.table("numbers", columns, order=[1, 0], marked=[1])
    assert (turned["rows"], turned["marked"]) == (part["rows"][::-1], [0])
