"""A real browser for tests: the system's Chromium, driven by Playwright, and axe-core from npm."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from support.requirements import need

AXE = "axe-core@4.14.1"
SIZES = {"phone": 390, "desktop": 1280}
_ARGUMENTS = ("--no-sandbox", "--disable-quic", "--disable-background-networking")
_LIMIT_MS = 120_000


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Debian's Chromium, or another system's; skips without one."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        need("chromium", "no chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS), timeout=_LIMIT_MS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visitor:
    """A window of the browser that notes whatever is wrong.

    Attributes:
        context: with its own cookies.
        page: its only tab.
        faults: what the console, the pages' scripts and requests to other hosts said.
    """

    context: BrowserContext
    page: Page
    faults: list[str] = field(default_factory=list)

    def sees(self, selector: str) -> str:
        """The text of the one element, once it is there."""
        return self.page.locator(selector).inner_text()

    def figure(self, chart: str) -> dict[str, Any]:
        """What plotly was given to draw: its data and the layout that it made of it."""
        self.page.wait_for_selector(f"#chart-{chart} .main-svg")
        found: dict[str, Any] = self.page.evaluate(
            "(id) => { const place = document.getElementById(id);"
            " return JSON.parse(JSON.stringify({data: place.data, layout: place.layout})); }",
            f"chart-{chart}",
        )
        return found


@contextmanager
def visiting(browser: Browser, base_url: str, *, width: int = 1280, scheme: str = "light", **options: Any) -> Iterator[Visitor]:  # fmt: skip  # noqa: E501
    """Open a window of a width and a colour scheme, in which all faults are noted."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, base_url=base_url, **options
    )
    context.set_default_timeout(_LIMIT_MS)
    page = context.new_page()
    visitor = Visitor(context, page)
    faults = visitor.faults
    page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request",
        lambda asked: None if asked.url.startswith((base_url, "data:")) else faults.append(asked.url),
    )
    try:
        yield visitor
    finally:
        context.close()


def axe_script() -> str:
    """The script of axe-core, fetched by npm once for each machine; skips where that cannot be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "dither-tests" / AXE.replace("@", "-")
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        npm = shutil.which("npm")
        if npm is None:
            need("node", "no npm on this machine")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
            options = ("--prefix", fresh, "--ignore-scripts", "--no-audit", "--no-fund", "--silent")
            ran = subprocess.run(
                [str(npm), "install", *options, AXE], capture_output=True, text=True, timeout=240, check=False
            )
            if ran.returncode != 0:
                need("node", f"npm cannot install {AXE}: {ran.stderr[-300:]}")
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(fresh, folder)
    return script.read_text(encoding="utf-8")


def violations(page: Page, script: str) -> list[str]:
    """What axe-core calls serious or critical on the page as it is; fails where it checked nothing."""
    page.evaluate(script)
    found = page.evaluate("axe.run()")
    assert len(found["passes"]) > 10, "axe-core looked at next to nothing"
    return [
        f"{each['id']} ({each['impact']}): {node['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def screenshots() -> Path:
    """The folder into which pictures for people go: ``DITHER_SCREENSHOTS``, or one beside temporary files."""
    folder = Path(os.environ.get("DITHER_SCREENSHOTS") or Path(tempfile.gettempdir()) / "dither-screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
