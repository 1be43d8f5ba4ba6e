"""Several windows and other intervals on the page of a metric, in a real browser over real published estimates."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser

from dither_protocol.storage import ROLLUPS
from support.browser import SIZES, axe_script, screenshots, violations, visiting
from support.dashboard import Site, running_site
from support.dashboard_visit import api_document, api_documents, compare, n_is, sign_in, wait
from support.server import OPERATOR_KEY
from support.store import running_store

DAYS = range(5, 14)
"""So many days ago; each is closed, and nine of them make the rollups over seven differ."""
REPORTS = 150
METRIC = "language"
PAGE = f"/metrics/{METRIC}"


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A service with closed days, and an open one; nothing is started without a browser."""
    with running_store() as valkey, running_site(tmp_path_factory.mktemp("site"), valkey) as found:
        for ago in DAYS:
            found.send_long_ago(METRIC, REPORTS + ago, [0.5, 0.3, 0.2], timedelta(days=ago))
        found.send(METRIC, 2 * REPORTS, [0.5, 0.3, 0.2])
        found.send("dark_mode", REPORTS, [0.7, 0.3])
        found.publish()
        yield found


def _api(site: Site, metric: str = METRIC, **query: str) -> dict[str, Any]:
    return api_document(site.server.url, OPERATOR_KEY, metric, **query)


def _last_window(document: dict[str, Any]) -> str:
    """The label by which it is chosen."""
    return str(document.get("windows", {}).get("last", document["window"]["label"]))


def _compare_history(figure: dict[str, Any], documents: list[dict[str, Any]]) -> None:
    """The lines along time and both edges of their bands are those of the documents, earliest first."""
    traces = figure["data"]
    shown = {
        re.sub("[\u2068\u2069\u00a0]", "", traces[at + 2]["name"]): traces[at : at + 3]
        for at in range(0, len(traces), 3)
    }
    assert len(shown) == len(documents[0]["values"])
    for place, value in enumerate(documents[0]["values"]):
        along = [document["values"][place] for document in documents]
        lower, upper, line = shown[value["value"]]
        assert [start[:10] for start in line["x"]] == [_last_window(document) for document in documents]
        assert line["y"] == [each["estimate"] for each in along]
        assert [lower["y"], upper["y"]] == [[each["interval"][end] for each in along] for end in (0, 1)]


def test_a_rollup_is_shown_with_the_numbers_of_the_api(browser: Browser, site: Site) -> None:
    """Chosen by the list: bars, whiskers, n, target and windows with reports are those over seven days."""
    with visiting(browser, site.server.url) as visitor:
        page = visitor.page
        sign_in(visitor)
        page.goto(PAGE)
        page.select_option("#over", "7")
        document = _api(site, rollup="7")
        assert document["n"] == sum(REPORTS + ago for ago in DAYS[:7])
        wait(visitor, n_is(document["n"]))
        compare(visitor.figure("values-version-1"), document)
        facts = " ".join(visitor.sees("#block-values-version-1 .facts").split())
        assert "7 of 7 with reports" in facts
        assert "Target reporters" in facts
        documents = api_documents(site.server.url, OPERATOR_KEY, METRIC, rollup="7")
        assert len(documents) == len(DAYS)
        _compare_history(visitor.figure("history"), documents)
        page.click("#earlier")
        wait(visitor, n_is(documents[-2]["n"]))
        compare(visitor.figure("values-version-1"), documents[-2])
        assert visitor.faults == []


def test_level_and_simultaneous_are_chosen_by_the_keyboard(browser: Browser, site: Site) -> None:
    """Whiskers, words, table and files follow, of single windows and of rollups; new reports come by themselves."""
    with visiting(browser, site.server.url, accept_downloads=True) as visitor:
        page = visitor.page
        sign_in(visitor)
        page.goto(PAGE)
        compare(visitor.figure("values-version-1"), _api(site))
        page.focus("#level")
        page.keyboard.press("ArrowDown")
        wait(
            visitor,
            "document.querySelector('#chart-values-version-1 + .actions a').href.includes('level=0.99')",
        )
        compare(visitor.figure("values-version-1"), _api(site, level="0.99"))
        assert page.evaluate("document.activeElement.id") == "level"
        page.focus("#simultaneous")
        page.keyboard.press("Space")
        wait(visitor, "document.querySelector('.facts').textContent.includes('all values at once')")
        wide = _api(site, level="0.99", simultaneous="true")
        compare(visitor.figure("values-version-1"), wide)
        assert page.url.endswith("level=0.99&simultaneous=true")
        page.select_option("#over", "7")
        rolled = _api(site, rollup="7", level="0.99", simultaneous="true")
        wait(visitor, n_is(rolled["n"]))
        compare(visitor.figure("values-version-1"), rolled)
        query = {"rollup": "7", "level": "0.99", "simultaneous": "true"}
        documents = api_documents(site.server.url, OPERATOR_KEY, METRIC, **query)
        _compare_history(visitor.figure("history"), documents)
        page.select_option("#over", "")
        wait(visitor, n_is(wide["n"]))
        site.send(METRIC, 100, [0.5, 0.3, 0.2])
        site.publish()
        wait(visitor, n_is(wide["n"] + 100))
        compare(visitor.figure("values-version-1"), _api(site, level="0.99", simultaneous="true"))
        with page.expect_download() as download:
            page.click("#block-values-version-1 >> text=CSV")
        rows = download.value.path().read_text().splitlines()
        assert all(",0.99,True," in row for row in rows[1:])
        assert visitor.faults == []


def test_levels_work_without_scripts_and_wrong_ones_say_so(browser: Browser, site: Site) -> None:
    """The form alone shows them; an address with a level that there is not answers 400 as a page."""
    with visiting(browser, site.server.url, java_script_enabled=False) as visitor:
        page = visitor.page
        sign_in(visitor)
        page.goto(PAGE)
        page.select_option("#level", label="80\u202f%")
        page.check("#simultaneous")
        page.click("#controls button.main")
        document = _api(site, level="0.8", simultaneous="true")
        for value in document["values"]:
            cell = page.locator(f"tr[data-value='{value['value']}'] td.interval").first
            shown = [float(end) for end in (cell.get_attribute("data-number") or "").split()]
            assert shown == value["interval"]
        assert page.is_checked("#simultaneous")
        answer = page.goto(f"{PAGE}?level=1.5")
        assert answer is not None
        assert answer.status == 400
        assert "level must be a number between 0.5 and 1" in visitor.sees("main")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_rollups_and_other_levels_fit_and_break_nothing(
    browser: Browser, site: Site, size: str, scheme: str
) -> None:
    """Nothing is wider than the screen, and axe-core has no complaint."""
    axe = axe_script()
    with visiting(browser, site.server.url, width=SIZES[size], scheme=scheme) as visitor:
        sign_in(visitor)
        choices = {"level": "level=0.99&simultaneous=true"} | {
            f"over-{count}": f"over={count}" for count in ROLLUPS[:2]
        }
        for name, choice in choices.items():
            visitor.page.goto(f"{PAGE}?{choice}")
            visitor.figure("values-version-1")
            assert violations(visitor.page, axe) == [], choice
            assert visitor.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, choice
            picture = screenshots() / f"metrics-{METRIC}-{name}-{size}-{scheme}.png"
            visitor.page.screenshot(path=picture, full_page=True)
        assert visitor.faults == []
