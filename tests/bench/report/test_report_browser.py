"""The page in a browser: no errors, no network, and what its script does."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def said() -> list[str]:
    """Errors and requests of the page."""
    return []


@pytest.fixture
def page(browser: sync_api.Browser, matrix: Path, said: list[str]) -> Iterator[sync_api.Page]:
    """The report of `matrix`, at desktop width."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url))
    page.goto((matrix / "report.html").as_uri())
    yield page
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_opens_without_errors_and_without_a_network(
    page: sync_api.Page, said: list[str], theme: str, matrix: Path
) -> None:
    page.emulate_media(color_scheme=theme)
    assert said == [(matrix / "report.html").as_uri()]
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    drawn = page.evaluate("getComputedStyle(document.querySelector('figure svg path')).fill")
    assert drawn == paper  # figures are on the page's paper, in either theme


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_screen(page: sync_api.Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_a_heading_sorts_its_table_and_undefined_comes_last(page: sync_api.Page) -> None:
    table = page.locator("#comparison [data-workload=chat] table")
    heading = table.get_by_role("button", name="token states")
    column = table.locator("tbody tr")

    def backends() -> list[str]:
        return [row.split("\n")[0].strip() for row in column.locator("th").all_inner_texts()]

    assert backends() == ["contiguous", "paged"]
    table.get_by_role("button", name="requests/s").press("Enter")
    table.get_by_role("button", name="requests/s").press("Enter")
    assert backends() == ["paged", "contiguous"]
    heading.click()  # paged never was memory-bound
    assert backends() == ["contiguous", "paged"]
    heading.click()
    assert backends() == ["contiguous", "paged"]
    assert page.locator("th[aria-sort=descending]").count() == 1


def test_boxes_hide_what_they_name_in_tables_and_figures(page: sync_api.Page) -> None:
    rows = page.locator("main tr[data-backend=paged]")
    drawn = page.locator("#latency svg [data-backend=paged]")
    assert rows.first.is_visible()
    assert drawn.first.is_visible()
    page.get_by_label("paged", exact=True).uncheck()
    assert not any(row.is_visible() for row in rows.all())
    assert not any(part.is_visible() for part in drawn.all())
    page.get_by_label("chat", exact=True).uncheck()
    assert not page.locator("#comparison [data-workload=chat]").is_visible()
    assert not page.locator("#deployment [data-workload=chat]").is_visible()
    page.emulate_media(media="print")
    assert rows.first.is_visible()  # prints show all
    page.emulate_media(media="screen")
    page.get_by_role("button", name="show all").click()
    page.wait_for_function("!document.querySelector('.no-backend, .no-workload')")
    assert rows.first.is_visible()


def test_a_print_shows_all_columns_meanings_and_no_boxes(page: sync_api.Page) -> None:
    page.emulate_media(media="print")
    assert not page.locator("#filters").is_visible()
    assert page.locator("#comparison .formulas").first.is_visible()
