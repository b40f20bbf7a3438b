"""Reports in a real browser: no message on its console, controls that work, nothing wider than the window."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jinja2")
pytest.importorskip("selenium")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from consilience import Unifier, as_teacher

EVIL = "<script>document.title = 'taken'</script>"


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a model of twelve classes from two teachers, with names that are hard to show."""
    rng = np.random.default_rng(0)
    names = [
        EVIL,
        "שלום",
        "🐈‍⬛",
        "a name that is long enough to be cut in drawings",
        *(f"class {k}" for k in range(8)),
    ]
    X, W = rng.normal(size=(200, 5)), rng.normal(size=(5, 12))
    truth = np.array(names, dtype=object)[(X @ W).argmax(axis=1)].astype(str)
    teachers = [
        as_teacher(lambda A, own=own: A @ W[:, own], [names[k] for k in own], f"<b>{own[0]}", output="logits")
        for own in (list(range(8)), list(range(4, 12)))
    ]
    path = tmp_path_factory.mktemp("report") / "unify.html"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unified = Unifier(teachers, "logistic", random_state=0).fit(X)
        return unified.report(path, X, truth, labels_only=False)


def open_page(browser: Any, page: Path, width: int = 1280, scheme: str = "light") -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.as_uri())


def classes_table(browser: Any) -> tuple[Any, Any]:
    """Return the part with the table of classes, and its table."""
    for part in browser.find_elements(By.CSS_SELECTOR, "[data-table]"):
        if part.find_element(By.TAG_NAME, "figcaption").text == "Balance of classes":
            return part, part.find_element(By.TAG_NAME, "table")
    raise AssertionError("no table of classes")


def column(browser: Any, table: Any, place: int) -> list[str]:
    script = (
        "return [...arguments[0].tBodies[0].rows].filter(r => !r.hidden)"
        ".map(r => r.cells[arguments[1]].textContent)"
    )
    return list(browser.execute_script(script, table, place))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_opens_without_a_message_and_fits_the_window(
    browser: Any, page: Path, width: int, scheme: str
) -> None:
    open_page(browser, page, width, scheme)
    assert browser.get_log("browser") == []
    assert browser.title == "One classifier out of 2"
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    dark = sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(","))) < 300
    assert dark == (scheme == "dark")


def test_a_head_sorts_by_click_and_by_keyboard(browser: Any, page: Path) -> None:
    open_page(browser, page)
    _, table = classes_table(browser)
    head = table.find_elements(By.TAG_NAME, "th")[3]
    button = head.find_element(By.TAG_NAME, "button")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
    button.click()
    assert head.get_attribute("aria-sort") == "descending"
    shares = [float(text.rstrip("%")) for text in column(browser, table, 3)]
    assert shares == sorted(shares, reverse=True)
    button.send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "ascending"
    assert [float(text.rstrip("%")) for text in column(browser, table, 3)] == shares[::-1]
    first = table.find_elements(By.TAG_NAME, "th")[0].find_element(By.TAG_NAME, "button")
    first.send_keys(Keys.SPACE)
    names = [name for name in column(browser, table, 0) if name.startswith("class ")]
    assert names == sorted(names)
    assert head.get_attribute("aria-sort") is None
    assert browser.get_log("browser") == []


def test_the_box_filters_rows(browser: Any, page: Path) -> None:
    open_page(browser, page)
    part, table = classes_table(browser)
    box = part.find_element(By.CSS_SELECTOR, "input")
    box.send_keys("CLASS 7")
    assert column(browser, table, 0) == ["class 7"]
    assert part.find_element(By.TAG_NAME, "output").text == "1 of 12 rows"
    box.send_keys(Keys.BACKSPACE * 7)
    assert len(column(browser, table, 0)) == 12


def test_without_script_everything_is_there(browser: Any, page: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_page(browser, page)
        part, table = classes_table(browser)
        assert len(table.find_elements(By.CSS_SELECTOR, "tbody tr")) == 12
        assert not part.find_element(By.CSS_SELECTOR, "input").is_displayed()
        assert not table.find_elements(By.TAG_NAME, "button")
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
