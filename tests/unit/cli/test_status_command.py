"""What ``dither status`` says and how it ends, by what a server answers."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dither_cli.exit_codes import ExitCode
from dither_cli.main import cli
from support.http import Answer, scripted_server

_TERMS: dict[str, Any] = {
    "received": 1_000, "accepted": 990, "counted": 900, "duplicate": 4, "rejected": {"a": 5, "b": 1}, "dead": 0,
    "in_flight": 90, "imbalance": 0,
}  # fmt: skip
_STATUS: dict[str, Any] = {
    "as_of": "2026-11-29T12:00:00Z", "project": "example-editor", "version": "0.1.0", "failing": [], "trouble": None,
    "alarms": [],
    "ledger": {
        "balanced": True, "unsettled": [], "unreadable": [], "total": _TERMS,
        "metrics": [
            {"metric": "dark_mode", **_TERMS, "latest": {"window": "2026-11-29", "n": 900, "status": "open"}},
            {"metric": "_unknown", **_TERMS, "imbalance": 3, "latest": None},
        ],
    },
    "counting": {
        "waiting_s": 75.0, "high_water_bytes": 2_000,
        "workers": [
            {"name": "one", "lives": True, "silent_s": 0.5, "partitions": [0], "publishing": True},
            {"name": "two", "lives": False, "silent_s": 9.0, "partitions": [1], "publishing": False},
        ],
        "partitions": [
            {"partition": 0, "waiting_s": 75.0, "backlog_bytes": 500, "dead_entries": 2},
            {"partition": 1, "waiting_s": None, "backlog_bytes": 0, "dead_entries": 1},
        ],
    },
}  # fmt: skip


def _run(document: dict[str, Any], *options: str) -> Result:
    with scripted_server() as script:
        script.registry = [Answer(200, json.dumps(document).encode(), {"Content-Type": "application/json"})]
        environ = {"DITHER_URL": script.url, "DITHER_KEY": "viewer", "COLUMNS": "110"}
        return CliRunner(env=environ).invoke(cli, ["status", *options])


@pytest.mark.parametrize(
    ("levels", "code", "first"),
    [
        ([], ExitCode.OK, "no alarms"),
        (["note"], ExitCode.OK, "no alarms"),
        (["note", "warn"], ExitCode.FAILED, "warn browser: text of warn"),
        (["note", "warn", "bad"], ExitCode.FAILED, "bad  browser: text of bad"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_it_ends_with_1_where_somebody_should_act(
    levels: list[str], code: ExitCode, first: str, options: tuple[str, ...]
) -> None:
    """A note is none of these. The worst is said first, and JSON ends the same way."""
    alarms = [
        {"metric": "browser", "level": level, "kind": "k", "text": f"text of {level}"} for level in levels
    ]
    result = _run(_STATUS | {"alarms": alarms}, *options)
    assert result.exit_code == code
    if options:
        assert json.loads(result.output)["alarms"] == alarms
    else:
        assert result.output.splitlines()[1] == first
        assert all(f"text of {level}" in result.output for level in levels)


def test_reports_workers_and_store() -> None:
    """By metric and in all, the workers that live, how long the oldest batch has waited, how full the store is."""
    result = _run(_STATUS)
    assert "workers: 1 living, one publishes; lag 1.2 min" in result.output
    assert "store: largest backlog 500 B, 25.00 % of the mark; 3 batches set aside" in result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert ["dark_mode", "1,000", "900", "4", "6", "0", "90", "0", "2026-11-29", "900"] in rows
    assert ["_unknown", "1,000", "900", "4", "6", "0", "90", "3"] in rows
    assert ["all", "1,000", "900", "4", "6", "0", "90", "0"] in rows


def test_partitions_that_could_not_be_measured() -> None:
    """They are in no number, so that is said."""
    document = json.loads(json.dumps(_STATUS))
    document["ledger"]["unsettled"] = [3]
    assert "partition 3 could not be measured in time" in _run(document).output


def test_a_store_that_cannot_be_read() -> None:
    """There are no numbers; why is said."""
    alarm = {"metric": None, "level": "bad", "kind": "not-ready", "text": "The check 'store-writable' fails."}
    away = {
        "ledger": None,
        "counting": None,
        "trouble": "the store is unavailable (timeout)",
        "alarms": [alarm],
    }
    result = _run(_STATUS | away)
    assert result.exit_code == ExitCode.FAILED
    assert result.output.splitlines()[1:] == [
        "bad  The check 'store-writable' fails.",
        "store: cannot be read: the store is unavailable (timeout)",
    ]
