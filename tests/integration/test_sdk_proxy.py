"""The SDK before a real server, through a proxy that drops a third of everything."""

import json
import time
from collections import defaultdict
from pathlib import Path

import pytest

from dither_client import Client, RecordStatus, backoff, transport
from support.faulty_proxy import FaultyProxy, faulty_proxy
from support.sdk_app import ask, document, make_client, number_of
from support.sdk_server import counting_server
from support.server import running_server, write_files
from support.store import Store, running_store

HANG_LIMIT_S = 120.0


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits: a lost answer is noticed after 0.15 s, and tried again after at most 0.02 s."""
    monkeypatch.setattr(transport, "READ_TIMEOUT_S", 0.15)
    monkeypatch.setattr(backoff, "BACKOFF_BASE_S", 0.002)
    monkeypatch.setattr(backoff, "BACKOFF_CAP_S", 0.02)


def _flush(client: Client) -> None:
    deadline = time.monotonic() + HANG_LIMIT_S
    while client.pending_reports():
        assert time.monotonic() < deadline, "not delivered within the hang limit"
        client.flush(5)


def _send(url: str, state: Path) -> set[int]:
    """Many little batches, some of several reports; the questions."""
    numbers = list(range(160))
    with make_client(url, str(state), unlinkable=True) as client:
        for number in numbers[:80]:
            assert ask(client, number).status is RecordStatus.QUEUED
        _flush(client)
    with make_client(url, str(state)) as client:
        for first in range(80, 160, 4):
            for number in range(first, first + 4):
                assert ask(client, number).status is RecordStatus.QUEUED
            _flush(client)
    return set(numbers)


def _check_tries(proxy: FaultyProxy, numbers: set[int]) -> None:
    """Every try of a batch is the same bytes, and no report is in two batches."""
    tries = defaultdict(set)
    homes = defaultdict(set)
    for body in proxy.bodies:
        batch = json.loads(body)
        tries[batch["batch"]].add(body)
        for report in batch["reports"]:
            homes[number_of(report)].add(batch["batch"])
    assert {batch: len(bodies) for batch, bodies in tries.items() if len(bodies) > 1} == {}
    assert {number: len(batches) for number, batches in homes.items() if len(batches) > 1} == {}
    assert set(homes) == numbers
    assert len(proxy.bodies) > len(tries)
    assert min(proxy.dropped) > 0


def test_counted_is_distinct_before_a_counting_server(tmp_path: Path) -> None:
    """Counted = distinct reports, whatever was dropped on the way, and each resend is what was sent first."""
    with counting_server() as server, faulty_proxy(server.url) as proxy:
        numbers = _send(proxy.url, tmp_path / "state")
        _check_tries(proxy, numbers)
        assert server.snapshot() == dict.fromkeys(numbers, 1)
        assert server.changed == []


def _toml() -> str:
    """The registry of the tests' app as an operator's file."""
    found = document()
    lines = [f"schema = {found['schema']}", f'project = "{found["project"]}"']
    for name, metric in found["metrics"].items():
        lines.append(f"[metrics.{name}]")
        for key, value in metric.items():
            shown = json.dumps(value)
            if isinstance(value, dict):
                shown = "{ " + ", ".join(f"{k} = {json.dumps(v)}" for k, v in value.items()) + " }"
            lines.append(f"{key} = {shown}")
    return "\n".join(lines)


def _outcomes(store: Store) -> dict[str, int]:
    total: dict[str, int] = defaultdict(int)
    with store.client(decode=True) as client:
        for key in client.keys("*:outcome:*"):
            for name, value in client.hgetall(key).items():
                total[name] += int(value)
    return total


def test_counted_is_distinct_before_the_real_server(tmp_path: Path) -> None:
    """The same with gunicorn and Valkey: accepted reports are the distinct ones, the rest were duplicates."""
    write_files(tmp_path, _toml())
    with (
        running_store() as store,
        running_server(tmp_path, store.url) as server,
        faulty_proxy(server.url) as proxy,
    ):
        numbers = _send(proxy.url, tmp_path / "state")
        _check_tries(proxy, numbers)
        outcomes = _outcomes(store)
        assert outcomes["accepted"] == len(numbers)
        assert outcomes["duplicate"] > 0
        assert outcomes["received"] == outcomes["accepted"] + outcomes["duplicate"]
