"""The dashboard over a live server and store: its numbers are the API's, and hostile texts stay texts."""

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from dither_protocol.registry import parse_registry
from dither_server.app import create_app
from support.dashboard import (
    HOSTILE,
    HOSTILE_DESCRIPTION,
    LONG,
    SWEDISH,
    Element,
    Site,
    fill,
    read_page,
    registry_text,
    running_site,
)
from support.serve_process import wait_until
from support.server import OPERATOR_KEY, settings
from support.store import running_store

PAGES = ("/", "/metrics/dark_mode", "/metrics/hostile", "/metrics/language", "/metrics/rare", "/metrics/never",
         "/privacy", "/health")  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A service with estimates of every kind, and a session."""
    with running_store() as valkey, running_site(tmp_path_factory.mktemp("site"), valkey) as found:
        fill(found)
        found.sign_in()
        yield found


def _api(site: Site, metric: str, **query: str) -> list[dict]:
    answer = requests.get(
        f"{site.server.url}/v1/metrics/{metric}/estimates",
        params=query,
        headers={"Authorization": f"Bearer {OPERATOR_KEY}"},
        timeout=60,
    ).json()
    return [document for version in answer["versions"] for document in version["estimates"]] + answer[
        "combined"
    ]


def _rows(block: Element) -> dict[str, list[Element]]:
    table = block.every("table")[0]
    return {
        row.attributes["data-value"]: row.every("td")
        for row in table.every("tr")
        if "data-value" in row.attributes
    }


def _numbers(cell: Element) -> list[float]:
    return [float(number) for number in cell.attributes["data-number"].split()]


def _facts(block: Element) -> dict[str, str]:
    return {
        each.one("dt").text: each.one("dd").text for each in block.every("dl", class_="facts")[0].every("div")
    }


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_whole_and_has_nothing_inline(site: Site, path: str) -> None:
    """Each page is well-formed HTML whose scripts are files of ours; no element has a handler of its own."""
    page = site.page(path)
    for script in page.root.every("script"):
        assert script.attributes["src"].startswith("/static/")
        assert not script.text
    for element in page.root.every():
        assert not [name for name in element.attributes if name.startswith("on")], element.attributes
        for name in ("src", "href", "action"):
            assert element.attributes.get(name, "/").startswith(("/", "#")), element.attributes
    assert page.root.one("html").attributes["lang"] == "en"
    assert len(page.root.every("h1")) == 1


@pytest.mark.parametrize(
    ("metric", "dimensions"),
    [("dark_mode", "*"), ("dark_mode", "os=linux"), ("hostile", "*"), ("language", "*")],
)
def test_the_numbers_of_a_page_are_those_of_the_api(site: Site, metric: str, dimensions: str) -> None:
    """Estimate, error, interval, norm_sub and mark of each value, to the last digit, and all the facts beside them."""
    document = _api(site, metric, dimensions=dimensions)[-1]
    page = site.page(f"/metrics/{metric}?dimensions={dimensions.replace('=', '%3D')}")
    block = page.root.one("section", id="block-values-version-1")
    rows = _rows(block)
    assert rows.keys() == {value["value"] for value in document["values"]}
    for value in document["values"]:
        estimate, error, interval, norm_sub, present, method = rows[value["value"]]
        assert _numbers(estimate) == [value["estimate"]]
        assert _numbers(error) == [value["std_error"]]
        assert _numbers(interval) == value["interval"]
        assert _numbers(norm_sub) == [value["norm_sub"]]
        assert present.text == ("yes" if value["present"] else "maybe not")
        assert method.text == value["interval_method"]
    facts = _facts(block)
    assert facts["n"].replace(" ", "") == str(document["n"])
    assert facts["Status"].startswith(document["status"])
    assert facts["Window"] == document["window"]["label"]
    assert (facts["Mechanism"], facts["Target"]) == (document["mechanism"], document["target"])
    assert facts["ε per report"] == f"{document['epsilon']:g}"
    assert facts["Interval"].startswith("95")
    assert facts["Revision"] == str(document["revision"])
    assert facts["Watermark"].startswith(document["watermark"][:10])


def test_the_chart_has_the_numbers_of_the_table(site: Site) -> None:
    """What the script draws is what the table says: bars, whiskers, and the line along time."""
    live = site.server.get("/live/metrics/dark_mode", key=None).json()
    documents = _api(site, "dark_mode", dimensions="*")
    chart = live["charts"]["values-version-1"]
    latest = {value["value"]: value for value in documents[-1]["values"]}
    assert set(chart["labels"]) == latest.keys()
    for place, label in enumerate(chart["labels"]):
        assert chart["estimate"][place] == latest[label]["estimate"]
        assert [chart["lower"][place], chart["upper"][place]] == latest[label]["interval"]
    along = live["charts"]["history"]
    assert along["windows"] == [document["window"]["label"] for document in documents]
    assert along["n"] == [document["n"] for document in documents]
    (line,) = along["lines"]  # of a boolean, one share says both
    assert line["label"] == "true"
    assert line["estimate"] == [document["values"][1]["estimate"] for document in documents]
    for needed in ("n = ", "epsilon", "target", "intervals", "window", "version", "revision", "watermark"):
        assert needed in chart["facts"], needed


def test_the_csv_has_the_numbers_of_the_api(site: Site) -> None:
    """Every value of the window with all its facts, and no label that a spreadsheet would run."""
    document = _api(site, "hostile", dimensions="*")[-1]
    answer = site.server.get(f"/metrics/hostile/estimates.csv?window={document['window']['label']}", key=None)
    assert answer.headers["Content-Type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [row["value"].removeprefix("'") for row in rows] == list(HOSTILE)
    assert [float(row["estimate"]) for row in rows] == [value["estimate"] for value in document["values"]]
    assert [float(row["upper"]) for row in rows] == [value["interval"][1] for value in document["values"]]
    assert all(row["n"] == "500" and row["mechanism"] == "oue" and row["watermark"] for row in rows)
    assert not [row["value"] for row in rows if row["value"].startswith("=")]
    every = site.server.get("/metrics/hostile/history.csv", key=None).content.decode()
    assert len(every.splitlines()) == 1 + 3 * len(HOSTILE)


def test_hostile_texts_are_shown_as_texts(site: Site) -> None:
    """Labels and descriptions with HTML, other directions and great length come out as they went in."""
    page = site.page("/metrics/hostile")
    labels = page.root.every("bdi", class_="label")
    assert {each.text for each in labels if each.attributes["title"] in HOSTILE} >= {
        " ".join(h.split()) for h in HOSTILE
    }
    assert [each for each in labels if each.attributes["title"] == LONG]
    assert HOSTILE_DESCRIPTION in page.root.one("p", class_="lead").text
    overview = site.page("/")
    assert HOSTILE_DESCRIPTION in overview.root.one("section", id="card-hostile").text
    for each in (page, overview, site.page("/privacy")):
        assert not each.root.every("img")
        assert all("src" in script.attributes for script in each.root.every("script"))


def test_the_ledger_is_that_of_the_api(site: Site) -> None:
    """Received and counted of every metric, as /v1/ledger has them, and the balance."""
    page = site.page("/health")
    found = {
        row.attributes["data-metric"]: [
            int(row.one("td", data_term=term).text.replace(" ", "")) for term in ("received", "counted")
        ]
        for row in page.root.one("section", id="ledger").every("tr")
        if "data-metric" in row.attributes
    }
    ledger = requests.get(
        f"{site.server.url}/v1/ledger", headers={"Authorization": f"Bearer {OPERATOR_KEY}"}, timeout=60
    ).json()
    assert found == {each["metric"]: [each["received"], each["counted"]] for each in ledger["metrics"]}
    assert found["hostile"] == [1500, 1500]
    assert "balanced" in page.root.one("section", id="ledger").text


def test_refused_reports_are_shown_by_reason_metric_and_version(site: Site) -> None:
    """Each row of the table is one of /v1/ledger; what was of no known version is in none."""
    table = site.page("/health").root.one("table", id="refused-versions")
    rows = [[cell.text for cell in row.every("th") + row.every("td")] for row in table.every("tr")[1:]]
    ledger = requests.get(
        f"{site.server.url}/v1/ledger", headers={"Authorization": f"Bearer {OPERATOR_KEY}"}, timeout=60
    ).json()
    assert rows == [
        ["dark_mode", "1 current", "2", "payload-invalid"],
        ["language", "1 current", "1", "report-too-old"],
    ]
    assert [list(map(str, each.values())) for each in ledger["rejected_by_version"]] == [
        [metric, version.partition(" ")[0], reason, reports] for metric, version, reports, reason in rows
    ]
    refused = {each["metric"]: each["rejected"] for each in ledger["metrics"] if each["rejected"]}
    assert refused == {
        "dark_mode": {"payload-invalid": 2},
        "_unknown": {"report-too-old": 1, "unknown-version": 1},
    }


@pytest.mark.parametrize("query", [{"level": "0.99"}, {"level": "0.8", "simultaneous": "true"}])
def test_other_intervals_are_those_of_the_api(site: Site, query: dict[str, str]) -> None:
    """In table, chart and CSV of a metric, of the window shown and of all windows of its history."""
    address = "&".join(f"{name}={value}" for name, value in query.items())
    documents = _api(site, "hostile", dimensions="*", **query)
    page = site.page(f"/metrics/hostile?{address}")
    block = page.root.one("section", id="block-values-version-1")
    for value in documents[-1]["values"]:
        cell = next(cells for label, cells in _rows(block).items() if label == value["value"])[2]
        assert _numbers(cell) == value["interval"]
    charts = site.server.get(f"/live/metrics/hostile?{address}", key=None).json()["charts"]
    for line in charts["history"]["lines"]:
        along = [
            each for document in documents for each in document["values"] if each["value"] == line["label"]
        ]
        assert list(zip(line["lower"], line["upper"], strict=True)) == [
            tuple(each["interval"]) for each in along
        ]
    text = site.server.get(f"/metrics/hostile/history.csv?{address}", key=None).text
    found = [[float(row["lower"]), float(row["upper"])] for row in csv.DictReader(io.StringIO(text))]
    assert found == [value["interval"] for document in documents for value in document["values"]]


def test_the_overview_tells_what_each_metric_is_worth(site: Site) -> None:
    """Latest n, leading shares with error and interval, method, target, epsilon; suppressed and silent are said."""
    page = site.page("/")
    card = page.root.one("section", id="card-language")
    assert card.one("p", class_="big").text == "600"
    values = _api(site, "language", dimensions="*")[-1]["values"]
    largest = [value["value"] for value in sorted(values, key=lambda value: -value["estimate"])]
    assert [row.one("th").text for row in card.every("tbody")[0].every("tr")] == largest
    for needed in ("oue", "ε = 1", "target population", "wilson", "version 1", "95"):
        assert needed in card.text, needed
    assert len(card.every("svg")) == 2
    rare = page.root.one("section", id="card-rare")
    assert rare.one("li", data_kind="suppressed")
    assert not rare.every("td")
    assert "No estimate yet" in page.root.one("section", id="card-never").text


def test_pages_are_told_apart_by_what_is_chosen(site: Site) -> None:
    """The window, the dimensions and norm_sub that an address asks for are what it shows; its link keeps the window."""
    windows = [document["window"]["label"] for document in _api(site, "dark_mode", dimensions="os=macos")]
    page = site.page(f"/metrics/dark_mode?window={windows[0]}&dimensions=os%3Dmacos&values=norm_sub")
    block = page.root.one("section", id="block-values-version-1")
    assert _facts(block)["Window"] == windows[0]
    chosen = {each.attributes["id"]: [o.text for o in each.every("option") if "selected" in o.attributes]
              for each in page.root.every("select")}  # fmt: skip
    assert chosen["window"] == [windows[0]]
    assert chosen["dimensions"] == ["os = macos"]
    link = page.root.one("a", id="permalink-values-version-1").attributes["href"]
    assert _facts(site.page(link).root.one("section", id="block-values-version-1"))["Window"] == windows[0]
    live = site.server.get("/live" + link, key=None).json()
    assert live["charts"]["values-version-1"]["mode"] == "norm_sub"
    assert math.isclose(sum(live["charts"]["values-version-1"]["norm_sub"]), 1.0)
    older = site.page("/metrics/dark_mode?window=2001-01-01T00")
    assert "Nothing is published about 2001-01-01T00" in older.root.one("section", id="nothing").text


def test_a_live_page_is_sent_again_only_when_it_changes(site: Site) -> None:
    """The same ETag gets 304 without a body, from either process; a new estimate gets a new page."""
    first = site.server.get("/live/metrics/dark_mode", key=None)
    tag = {"If-None-Match": first.headers["ETag"]}
    for _ in range(6):
        again = site.server.session.get(f"{site.server.url}/live/metrics/dark_mode", headers=tag, timeout=60)
        assert (again.status_code, again.content) == (304, b"")
    before = site.page("/metrics/dark_mode").root.every("dd", class_="big")[0].attributes["data-n"]
    site.send("dark_mode", 100, [0.5, 0.5])
    site.publish()
    changed = site.server.session.get(f"{site.server.url}/live/metrics/dark_mode", headers=tag, timeout=60)
    assert changed.status_code == 200
    now = read_page(changed.json()["main"]).root.every("dd", class_="big")[0].attributes["data-n"]
    assert int(now) == int(before) + 100


def test_the_session_holds_over_all_processes_without_the_key(site: Site) -> None:
    """A cookie that one process made is good for the other; no byte of the key is in it or in the log."""
    for _ in range(10):
        with requests.Session() as fresh:
            cookies = {cookie.name: cookie.value or "" for cookie in site.server.session.cookies}
            answer = fresh.get(
                f"{site.server.url}/health", cookies=cookies, timeout=60, allow_redirects=False
            )
            assert answer.status_code == 200
            assert not [value for value in cookies.values() if OPERATOR_KEY in value]
    assert OPERATOR_KEY not in site.server.log_text()


def test_an_empty_service_says_what_to_do_next(tmp_path: Path) -> None:
    """Without a report the overview shows the lines of an app and of a shell; no worker is an alarm."""
    with running_store() as valkey, running_site(tmp_path, valkey) as site:
        site.sign_in()
        empty = site.page("/").root.one("section", id="empty").text
        assert "from dither_client import Client" in empty
        assert 'dither.record("dark_mode", True, {"os": "linux"})' in empty
        assert f"{site.server.url}/v1/metrics/dark_mode/estimates" in empty
        assert site.page("/").root.one("li", data_kind="no-worker")
        assert "No reports yet" in site.page("/metrics/never").root.one("section", id="nothing").text
        site.publish()
        wait_until(
            lambda: not site.page("/health").root.every("li", data_kind="no-worker"), "the worker is seen"
        )


@pytest.mark.parametrize("more", ["", SWEDISH], ids=["same-labels", "other-labels"])
def test_versions_are_combined_or_stand_side_by_side(tmp_path: Path, more: str) -> None:
    """With the same labels one estimate over both comes first; with other labels each version has its own chart."""
    older = parse_registry(registry_text(1))
    with running_store() as valkey:
        create_app(settings(tmp_path, valkey.url, registry_text=registry_text(1)))  # announces version 1
        with running_site(tmp_path, valkey, version=2, more=more) as site:
            site.send("language", 400, [0.5, 0.3, 0.2], registry=older)
            site.send("language", 400, [0.5, 0.3, 0.2, 0.0][: 4 if more else 3])
            site.publish()
            site.sign_in()
            page = site.page("/metrics/language").root
            charts = site.server.get("/live/metrics/language", key=None).json()["charts"]
            at_once = site.page("/metrics/language?simultaneous=true").root
    rule = at_once.one("p", id="rule").text
    assert ("different labels" if more else "no simultaneous intervals over several versions") in rule
    assert len(at_once.one("div", class_="blocks beside").every("section")) == 2
    if more:
        assert "different labels" in page.one("p", id="rule").text
        assert charts.keys() == {"values-version-1", "values-version-2"}
        assert charts["values-version-1"]["range"] == charts["values-version-2"]["range"]
    else:
        block = page.one("section", id="block-values-combined")
        assert _facts(block)["n"] == "800"
        assert _facts(block)["ε per report"] == "1, 2"
        parts = [each.text for each in page.one("section", id="parts").every("summary")]
        assert parts == ["Version 2, n = 400", "Version 1, n = 400"]
        assert charts.keys() == {"values-combined"}
