"""``dither simulate`` as a person runs it, small, with everything going wrong that can."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser

from dither_cli.exit_codes import SIGNAL_EXIT
from support.serve_process import alive, wait_until

DITHER = str(Path(sys.executable).with_name("dither"))
DEVICES = 3_000


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    """Output, JSON file and page of one run in process with all faults on, over two days."""
    folder = tmp_path_factory.mktemp("simulate")
    file, html = folder / "result.json", folder / "result.html"
    options = ["--devices", str(DEVICES), "--days", "2", "--faults", "all", "--together", "4"]
    command = [DITHER, "simulate", *options, "--json", str(file), "--html", str(html)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout, file, html


def test_a_run_with_all_faults_loses_and_doubles_nothing(simulated: tuple[str, Path, Path]) -> None:
    """Exit 0 and PASS; every metric has the same number at each stage; what had to be refused was, by reason."""
    output, file, _ = simulated
    assert "PASS" in output
    document = json.loads(file.read_text())
    assert document["passed"] is True
    assert document["problems"] == []
    assert document["devices"] == 2 * DEVICES
    for line in document["metrics"]:
        numbers = {line[term] for term in ("sent", "accepted", "ledger_accepted", "counted", "published")}
        assert len(numbers) == 1
        assert numbers.pop() > DEVICES / 2
    assert document["reports"]["rejected"]["report-too-early"] > 0
    assert document["reports"]["rejected"]["payload-invalid"] > 0
    assert document["refused_batches"]["http:400"] > 0
    assert document["refused_batches"]["http:422"] > 0
    assert document["retries"]["cut"] > 0
    assert document["retries"]["swallow"] > 0
    assert document["reports"]["duplicate"] > 0
    # Windows of two days, and an old version of one metric beside its new one.
    assert len({each["window"] for each in document["errors"]}) >= 2
    assert {each["version"] for each in document["errors"]} == {1, 2}
    scopes = {each["scope"]: each for each in document["coverage"]["scopes"]}
    assert scopes["over all devices"]["intervals"] >= 80
    assert scopes["by dimension"]["intervals"] >= 80


def test_the_page_draws_its_charts_without_any_other_host(
    simulated: tuple[str, Path, Path], browser: Browser
) -> None:
    """Opened from the disk in a browser: five charts, no error, no request but for the file, no sideways scrolling."""
    _, _, html = simulated
    asked: list[str] = []
    faults: list[str] = []
    for width in (1280, 390):
        opened = browser.new_page(viewport={"width": width, "height": 900})
        opened.on("request", lambda request: asked.append(request.url))
        opened.on("pageerror", lambda error: faults.append(str(error)))
        opened.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        opened.goto(html.as_uri())
        opened.wait_for_function("document.querySelectorAll('.chart .main-svg').length >= 5")
        drawn = opened.evaluate("[...document.querySelectorAll('.js-plotly-plot')].map((each) => each.id)")
        assert sorted(drawn) == ["backlog", "coverage", "error", "latency", "throughput"]
        assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert "Passed" in opened.inner_text(".verdict")
        opened.close()
    assert faults == []
    assert {url for url in asked if not url.startswith(("data:", "blob:"))} == {html.as_uri()}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, since the store's socket lies below it."""
    with tempfile.TemporaryDirectory(prefix="d-") as short:
        yield Path(short)


def test_ctrl_c_in_the_middle_leaves_nothing(folder: Path) -> None:
    """As a terminal sends it, to the whole group: one line, the exit code of the signal, no process, no folder."""
    with (folder / "out").open("w") as out:
        running = subprocess.Popen(
            [DITHER, "simulate", "--devices", "100000", "--rate", "50"],
            env=os.environ | {"TMPDIR": str(folder)},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    log = "dither-simulate-*/state/logs/estimator.log"
    wait_until(lambda: any(folder.glob(log)), "the estimator")
    wait_until(lambda: "spawn_main" in _family_text(running.pid), "the processes of devices")
    family = psutil.Process(running.pid).children(recursive=True)
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(timeout=120) == SIGNAL_EXIT + signal.SIGINT
    said = (folder / "out").read_text()
    assert "dither simulate: stopped by SIGINT" in said
    assert "Traceback" not in said
    assert list(folder.glob("dither-simulate-*")) == []
    wait_until(lambda: not any(map(alive, family)), "the end of all processes")


def _family_text(pid: int) -> str:
    return " ".join(" ".join(child.cmdline()) for child in psutil.Process(pid).children(recursive=True))
