"""The alerts and the Grafana dashboard ask for what a live scrape gives, and the alerts fire when they should."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from dither_estimator.store import Store
from dither_estimator.worker import Worker
from dither_protocol.registry import parse_registry
from support.requirements import need
from support.server import OPERATOR_KEY, batch, running_server, write_files
from support.store import running_store

EXAMPLES = Path(__file__).parents[2] / "examples"
ALERTS: dict[str, Any] = yaml.safe_load((EXAMPLES / "alerts.yml").read_text(encoding="utf-8"))
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARD: dict[str, Any] = json.loads((EXAMPLES / "grafana-dashboard.json").read_text(encoding="utf-8"))
NAME = re.compile(r"\bdither_[a-z_]+")
LABELLED = re.compile(r"\b(dither_[a-z_]+)\{([^}]*)\}")

_REGISTRY = """
schema = 1
project = "example-editor"
[privacy]
max_epsilon_per_day = 8.0
max_epsilon_lifetime = 9000.0
[metrics.dark_mode]
version = 1
type = "boolean"
description = "Whether the dark theme is on"
epsilon = 1.0
mechanism = "rr"
expires = 2199-12-31
"""


def _expressions() -> Iterator[tuple[str, str]]:
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, str]]]:
    """Labels of every sample of a live service, by name."""
    folder = tmp_path_factory.mktemp("scraped")
    write_files(folder, _REGISTRY)
    metric, now = parse_registry(_REGISTRY).metric("dark_mode"), datetime.now(UTC)
    report = {
        "metric": metric.name, "version": 1, "params": metric.params_hash, "window": metric.window_at(now).label,
        "dimensions": {}, "data": 1,
    }  # fmt: skip
    with running_store() as valkey, running_server(folder, valkey.url) as server:
        server.post(batch(report, {}, until=(now + timedelta(days=1)).date()))
        store = Store(valkey.url)
        worker = Worker(store)
        while worker.tick():
            pass
        text = server.get("/metrics", OPERATOR_KEY).text
        store.close()
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


@pytest.mark.parametrize(("where", "expression"), list(_expressions()))
def test_every_name_and_label_is_in_a_scrape(
    scraped: dict[str, list[dict[str, str]]], where: str, expression: str
) -> None:
    """An expression about a series that does not exist is an alert that never fires, a panel that stays empty."""
    names = set(NAME.findall(expression))
    assert names
    assert names <= scraped.keys(), where
    for name, selectors in LABELLED.findall(expression):
        for label, operator, value in re.findall(r'(\w+)\s*(=~|!=|=)\s*"([^"]*)"', selectors):
            known = {labels[label] for labels in scraped[name]}
            assert operator == "=~" or value in known, (where, name, label, value)
    for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
        used = {label.strip() for label in labels.split(",")}
        assert any(used <= each.keys() for name in names for each in scraped[name]), (where, used)


def test_every_alert_says_what_it_is_about() -> None:
    """A severity, a summary and what to do; no name twice."""
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_the_dashboard_is_one() -> None:
    """Panels have ids of their own, do not overlap, and ask the chosen data source."""
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells
        assert panel["title"]
        assert panel["description"]
        assert panel["datasource"]["uid"] == "${datasource}"


# -- promtool --------------------------------------------------------------------------------------------------

NOW = 9_000
"""Seconds from the beginning of the series to the moment at which alerts are looked at."""

Case = tuple[dict[str, str], dict[str, str]]
"""Series by name, as promtool writes values, with which an alert fires, and with which it does not."""

_EXPIRES = 'dither_metric_expires_timestamp_seconds{metric="m"}'
_IN = {days: f"{NOW + days * 86_400}x150" for days in (-1, 10, 40)}
_RECEIVED = 'dither_reports_total{metric="m",outcome="received"}'
_REJECTED = 'dither_rejected_reports_total{metric="m",reason="payload-invalid"}'
_UNKNOWN = 'dither_rejected_reports_total{metric="_unknown",reason="unknown-metric"}'
CASES: dict[str, Case] = {
    "DitherNotScraped": ({"other": "1x150"}, {'dither_build_info{version="1"}': "1x150"}),
    "DitherStoreDown": ({"dither_store_up": "0x150"}, {"dither_store_up": "1x150"}),
    "DitherNotReady": (
        {'dither_alarm{alarm="not-ready"}': "1x150"},
        {'dither_alarm{alarm="not-ready"}': "0x150", 'dither_alarm{alarm="no-worker"}': "1x150"},
    ),
    "DitherBacklogNearMark": (
        {
            'dither_stream_backlog_bytes{partition="3"}': "71x150",
            "dither_stream_high_water_bytes": "100x150",
        },
        {
            'dither_stream_backlog_bytes{partition="3"}': "69x150",
            "dither_stream_high_water_bytes": "100x150",
        },
    ),
    "DitherImbalance": (
        {'dither_conservation_imbalance_reports{metric="m"}': "1x150"},
        {'dither_conservation_imbalance_reports{metric="m"}': "0x150"},
    ),
    "DitherKeysUnreadable": ({"dither_unreadable_keys": "1x150"}, {"dither_unreadable_keys": "0x150"}),
    "DitherLedgerUnsettled": (
        {"dither_conservation_unsettled_partitions": "1x150"},
        {"dither_conservation_unsettled_partitions": "0x150"},
    ),
    "DitherNoWorker": ({"dither_workers": "0x150"}, {"dither_workers": "1x150"}),
    "DitherEstimatorLate": (
        {'dither_oldest_uncounted_seconds{partition="1"}': "301x150"},
        {'dither_oldest_uncounted_seconds{partition="1"}': "299x150"},
    ),
    "DitherNothingPublished": (
        {"dither_publisher_up": "0x150", "dither_workers": "1x150"},
        {"dither_publisher_up": "0x150", "dither_workers": "0x150"},
    ),
    "DitherReportsSetAside": (
        {'dither_reports_total{metric="m",outcome="dead"}': "0x120 3x30"},
        {'dither_reports_total{metric="m",outcome="dead"}': "3x150"},
    ),
    "DitherReportsRejected": (
        {_RECEIVED: "0+100x150", _REJECTED: "0+6x150"},
        {_RECEIVED: "0+100x150", _REJECTED: "0+4x150", _UNKNOWN: "0+50x150"},
    ),
    "DitherUnknownReportsRejected": (
        {_RECEIVED: "0+100x150", _UNKNOWN: "0+6x150"},
        {_RECEIVED: "0+100x150", _UNKNOWN: "0+4x150", _REJECTED: "0+50x150"},
    ),
    "DitherCalibrationMisses": (
        {'dither_alarm{alarm="calibration",metric="m"}': "1x150"},
        {'dither_alarm{alarm="calibration",metric="m"}': "0x150"},
    ),
    "DitherMetricSilent": (
        {'dither_alarm{alarm="silent",metric="m"}': "1x150"},
        {'dither_alarm{alarm="silent",metric="m"}': "0x150"},
    ),
    "DitherMetricExpiresSoon": ({_EXPIRES: _IN[10]}, {_EXPIRES: _IN[40]}),
    "DitherMetricExpired": ({_EXPIRES: _IN[-1]}, {_EXPIRES: _IN[10]}),
    "DitherEpsilonOverPolicy": (
        {
            'dither_privacy_worst_case_epsilon{scope="day"}': "8.1x150",
            'dither_privacy_limit_epsilon{scope="day"}': "8x150",
            'dither_privacy_limit_epsilon{scope="lifetime"}': "9000x150",
        },
        {
            'dither_privacy_worst_case_epsilon{scope="day"}': "8x150",
            'dither_privacy_limit_epsilon{scope="day"}': "8x150",
        },
    ),
}


@pytest.fixture(scope="module")
def promtool() -> str:
    """Debian's package `prometheus` has it. A missing one skips, unless ``DITHER_REQUIRE`` names it."""
    found = shutil.which("promtool")
    if found is None:
        need("promtool", "promtool is not on this machine")
    return found


def test_every_alert_has_a_case() -> None:
    """One that fires, and one that must not."""
    assert CASES.keys() == {rule["alert"] for rule in RULES}


def test_promtool_accepts_the_rules(promtool: str) -> None:
    """Names, durations, expressions and templates."""
    done = subprocess.run(
        [promtool, "check", "rules", EXAMPLES / "alerts.yml"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_alerts_fire_when_they_should_and_only_then(promtool: str, tmp_path: Path) -> None:
    """Over two instances that say the same, an alert fires once for each thing that is wrong."""
    tests = []
    for alert, series_of in CASES.items():
        for fires, series in zip((True, False), series_of, strict=True):
            rows = [
                {"series": _of_instance(name, instance), "values": values}
                for name, values in series.items()
                for instance in ("a", "b")
            ]
            tests.append(
                {
                    "name": f"{alert} {'fires' if fires else 'is quiet'}",
                    "interval": "1m",
                    "input_series": rows,
                    "promql_expr_test": [
                        {
                            "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
                            "eval_time": f"{NOW}s",
                            "exp_samples": [{"labels": "{}", "value": int(fires)}],
                        }
                    ],
                }
            )
    file = tmp_path / "tests.yml"
    rules = {"rule_files": [str(EXAMPLES / "alerts.yml")], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(rules), encoding="utf-8")
    done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _of_instance(name: str, instance: str) -> str:
    return (
        f'{name[:-1]},instance="{instance}"}}' if name.endswith("}") else f'{name}{{instance="{instance}"}}'
    )
