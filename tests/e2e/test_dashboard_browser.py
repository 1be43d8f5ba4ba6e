"""The dashboard as a person uses it: a real browser against the live service."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import Browser

from dither_cli.parts import example_registry
from dither_protocol.registry import load_registry
from support.browser import SIZES, axe_script, screenshots, violations, visiting
from support.dashboard import HOSTILE, Site, fill, running_site
from support.dashboard_visit import (
    HANG_LIMIT_S,
    api_document,
    compare,
    n_is,
    shown_n,
    sign_in,
    wait,
    window_is,
)
from support.server import OPERATOR_KEY, bearer
from support.store import running_store

DEVICES = 3_000
SDK_CLIENTS = 200
METRICS = len(load_registry(example_registry()).metrics)
PAGES = ("/", "/metrics/dark_mode", "/metrics/hostile", "/metrics/language", "/metrics/rare", "/metrics/never",
         "/privacy", "/health")  # fmt: skip


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A service with several windows, dimensions and hostile labels; nothing is started without a browser."""
    with running_store() as valkey, running_site(tmp_path_factory.mktemp("site"), valkey) as found:
        fill(found)
        yield found


@contextmanager
def _demo(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """``dither demo --keep`` as a process: (process, base URL, operator token), as it prints them at its start."""
    command = [str(Path(sys.executable).with_name("dither")), "demo", "--keep", "--devices", str(DEVICES)]
    environ = os.environ | {"PYTHONUNBUFFERED": "1"}
    log = folder / "demo.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, text=True, env=environ, cwd=folder, start_new_session=True
        )
    try:
        deadline = time.monotonic() + HANG_LIMIT_S
        while not (found := re.search(r"watch it: (http://\S+)/login\?token=(\S+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield process, found[1], found[2]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def test_a_demo_is_watched_from_its_first_report_to_its_last(browser: Browser, tmp_path: Path) -> None:
    """The printed address signs in; the count grows without a reload to what was sent; the chart is the API's."""
    with _demo(tmp_path) as (process, base_url, token), visiting(browser, base_url) as visitor:
        page = visitor.page
        page.goto(f"/login?token={token}")
        assert page.url == f"{base_url}/", page.inner_text("body")
        before, everything = shown_n(visitor, "#counted"), (DEVICES + SDK_CLIENTS) * METRICS
        wait(visitor, f"Number(document.querySelector('#counted').dataset.n) > {before}")
        wait(visitor, n_is(everything, "#counted"))
        counts = f'.metric [data-n="{DEVICES + SDK_CLIENTS}"]'
        wait(visitor, f"document.querySelectorAll('{counts}').length === {METRICS}")
        for name in ("default_browser", "dark_mode"):
            page.goto(f"/metrics/{name}")
            compare(visitor.figure("values-version-1"), api_document(base_url, token, name))
            page.select_option("#dimensions", label="os = macos")
            page.wait_for_url("**dimensions=os%3Dmacos*")
            document = api_document(base_url, token, name, "os=macos")
            wait(visitor, n_is(document["n"]))
            compare(visitor.figure("values-version-1"), document)
        page.goto("/health")
        assert "balanced" in visitor.sees("#ledger")
        assert process.poll() is None
        assert visitor.faults == []


@pytest.mark.parametrize(
    ("size", "scheme", "checked"),
    [
        ("phone", "dark", True),
        ("desktop", "light", True),
        ("phone", "light", False),
        ("desktop", "dark", False),
    ],
)
def test_every_page_fits_and_breaks_nothing(
    browser: Browser, site: Site, size: str, scheme: str, checked: bool
) -> None:
    """On a phone and a desktop, light and dark: nothing is wider than the screen, and axe-core has no complaint."""
    axe = axe_script() if checked else None
    with visiting(browser, site.server.url, width=SIZES[size], scheme=scheme) as visitor:
        visitor.page.goto("/login")
        assert axe is None or violations(visitor.page, axe) == []
        sign_in(visitor)
        for path in PAGES:
            visitor.page.goto(path)
            visitor.page.wait_for_selector("#pulse[data-state=live]")
            if path in PAGES[1:4]:
                visitor.figure("values-version-1")
            assert axe is None or violations(visitor.page, axe) == [], path
            assert visitor.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
            name = path.strip("/").replace("/", "-") or "overview"
            visitor.page.screenshot(path=screenshots() / f"{name}-{size}-{scheme}.png", full_page=True)
        assert visitor.faults == []


def test_choices_change_the_page_in_place(browser: Browser, site: Site) -> None:
    """Dimension, norm_sub, window and span are switched by the keyboard; Back undoes, the address can be kept."""
    with visiting(browser, site.server.url) as visitor:
        page = visitor.page
        sign_in(visitor)
        page.goto("/metrics/dark_mode")
        everyone = api_document(site.server.url, OPERATOR_KEY, "dark_mode")
        compare(visitor.figure("values-version-1"), everyone)
        page.focus("#dimensions")
        page.keyboard.press("ArrowDown")
        linux = api_document(site.server.url, OPERATOR_KEY, "dark_mode", "os=linux")
        wait(visitor, n_is(linux["n"]))
        compare(visitor.figure("values-version-1"), linux)
        assert page.evaluate("document.activeElement.id") == "dimensions"
        page.focus("input[name=values]")
        page.keyboard.press("ArrowRight")
        wait(visitor, "document.querySelector('#chart-values-version-1').data[0].name === 'norm_sub'")
        bars, raw = visitor.figure("values-version-1")["data"]
        assert bars["x"] == [value["norm_sub"] for value in linux["values"]]
        assert raw["x"] == [
            value["estimate"] for value in linux["values"]
        ]  # the interval stays with the estimate
        page.click("#earlier")
        wait(visitor, f"!{window_is(linux)}")
        assert "window=" in page.url
        assert "values=norm_sub" in page.url
        kept = page.url
        page.go_back()
        wait(visitor, window_is(linux))
        page.goto(kept)
        assert page.is_checked("input[value=norm_sub]")
        page.select_option("#over", "7")
        wait(visitor, "document.querySelector('#nothing') !== null")
        assert "dimensions" not in page.url
        assert visitor.faults == []


def test_an_open_page_follows_and_what_a_person_did_stays(browser: Browser, site: Site) -> None:
    """New reports appear in numbers and chart; opened details, the focus and a scrolled table are left as they were."""
    with visiting(browser, site.server.url, width=SIZES["phone"]) as visitor:
        page = visitor.page
        sign_in(visitor)
        page.goto("/metrics/dark_mode")
        visitor.figure("values-version-1")
        block = "#block-values-version-1"
        page.click(f"{block} summary")
        page.evaluate("document.querySelector('#scroll-values-version-1').scrollLeft = 60")
        page.focus("#permalink-values-version-1")
        before = shown_n(visitor, f"{block} dd.big")
        site.send("dark_mode", 200, [0.2, 0.8])
        site.publish()
        wait(visitor, n_is(before + 200, f"{block} dd.big"))
        compare(visitor.figure("values-version-1"), api_document(site.server.url, OPERATOR_KEY, "dark_mode"))
        assert page.get_attribute(f"{block} details", "open") is not None
        assert page.evaluate("document.activeElement.id") == "permalink-values-version-1"
        assert page.evaluate("document.querySelector('#scroll-values-version-1').scrollLeft") == 60
        assert visitor.faults == []


def test_hostile_labels_stay_texts_in_charts(browser: Browser, site: Site) -> None:
    """Whatever labels hold, no element of theirs comes to be, none runs, and the whole text can be had."""
    with visiting(browser, site.server.url) as visitor:
        page = visitor.page
        dialogs: list[str] = []
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        sign_in(visitor)
        page.goto("/metrics/hostile")
        visitor.figure("history")
        ticks = page.locator("#chart-values-version-1 .ytick").all_text_contents()
        shown = {re.sub("[\u2068\u2069\u00a0 ]+", " ", tick).strip() for tick in ticks}
        assert {"<script>alert(1)</script>", "=cmd|' /C calc'!A0", "plain"} <= shown
        assert [tick for tick in shown if tick.startswith("<b>bold</b><img")]
        compare(visitor.figure("values-version-1"), api_document(site.server.url, OPERATOR_KEY, "hostile"))
        assert page.locator("main img, main b, main script").count() == 0
        titles = page.locator("#block-values-version-1 .label").evaluate_all(
            "all => all.map(each => each.title)"
        )
        assert set(titles) == set(HOSTILE)
        page.locator("#chart-values-version-1 .bars .point path").first.hover(force=True)
        page.wait_for_selector("#chart-values-version-1 .hoverlayer .hovertext")
        assert "<script>alert(1)</script>" in (
            page.locator(".hoverlayer .hovertext").first.text_content() or ""
        )
        assert dialogs == []
        assert visitor.faults == []


def test_a_picture_is_saved_with_its_facts(browser: Browser, site: Site, tmp_path: Path) -> None:
    """Both charts of a page can be saved as PNG, within the policy of the page; the CSV comes with its name."""
    with visiting(browser, site.server.url, accept_downloads=True) as visitor:
        sign_in(visitor)
        visitor.page.goto("/metrics/hostile")
        visitor.figure("history")
        for button in ("values-version-1", "history"):
            with visitor.page.expect_download() as download:
                visitor.page.click(f"[data-png={button}]")
            path = tmp_path / download.value.suggested_filename
            download.value.save_as(path)
            assert path.name.startswith("hostile-")
            assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
            assert path.stat().st_size > 10_000
        with visitor.page.expect_download() as download:
            visitor.page.click("#block-values-version-1 >> text=CSV")
        assert download.value.suggested_filename == "hostile-estimates.csv"
        assert visitor.faults == []


def test_a_page_says_when_it_is_no_longer_told(browser: Browser, site: Site) -> None:
    """Without its store the page keeps its numbers and says that they are old, then goes on; so it does signed out."""
    with visiting(browser, site.server.url) as visitor:
        page = visitor.page
        sign_in(visitor)
        page.goto("/metrics/language")
        page.wait_for_selector("#pulse[data-state=live]")
        n = visitor.sees("dd.big >> nth=0")
        site.valkey.stop()
        try:
            page.wait_for_selector("#pulse[data-state=late]")
            assert visitor.sees("dd.big >> nth=0") == n
        finally:
            site.valkey.start()
        page.wait_for_selector("#pulse[data-state=live]")
        visitor.context.clear_cookies()
        page.wait_for_selector("#pulse[data-state=out]")
        page.reload()
        assert "/login?next=" in page.url
        assert all("Failed to load resource" in fault for fault in visitor.faults), visitor.faults


def test_it_can_be_used_without_a_mouse_and_without_scripts(browser: Browser, site: Site) -> None:
    """The form, the link that skips, tables and choices work by keyboard alone, with JavaScript switched off."""
    with visiting(browser, site.server.url, java_script_enabled=False) as visitor:
        page = visitor.page
        page.goto("/metrics/dark_mode")
        page.locator(
            "input[type=password]:focus"
        ).wait_for()  # a page gives the focus a moment after it has loaded
        page.keyboard.type(OPERATOR_KEY)
        page.keyboard.press("Enter")
        page.wait_for_url("**/metrics/dark_mode")
        page.keyboard.press("Tab")
        assert page.locator(":focus").inner_text() == "Skip to content"
        page.keyboard.press("Enter")
        assert page.url.endswith("#main")
        document = api_document(site.server.url, OPERATOR_KEY, "dark_mode")
        cells = page.locator("#block-values-version-1 tbody tr >> nth=0 >> td").all()
        assert float(cells[0].get_attribute("data-number") or "") == document["values"][0]["estimate"]
        page.select_option("#dimensions", label="os = linux")
        page.click("#controls button.main")
        assert "dimensions=os%3Dlinux" in page.url
        linux = api_document(site.server.url, OPERATOR_KEY, "dark_mode", "os=linux")
        assert shown_n(visitor, "#block-values-version-1 dd.big") == linux["n"]
        page.click("text=Sign out")
        page.goto("/privacy")
        assert page.url.endswith("/login?next=%2Fprivacy")
        assert visitor.faults == []


def test_the_window_before_a_gap_is_reached(browser: Browser, site: Site) -> None:
    """An hour without reports can be shown, says that it has none, and leads back."""
    with visiting(browser, site.server.url) as visitor:
        sign_in(visitor)
        early = site.registry.metrics["dark_mode"].window_at(_start(site) - timedelta(hours=1))
        visitor.page.goto(f"/metrics/dark_mode?window={early.label}")
        assert early.label in visitor.sees("#nothing")
        visitor.page.click("#later")
        visitor.figure("values-version-1")
        assert visitor.faults == []


def _start(site: Site) -> Any:
    documents = requests.get(
        f"{site.server.url}/v1/metrics/dark_mode/estimates?dimensions=*",
        headers=bearer(OPERATOR_KEY),
        timeout=60,
    ).json()["versions"][0]["estimates"]
    return site.registry.metrics["dark_mode"].parse_window(documents[0]["window"]["label"]).start
