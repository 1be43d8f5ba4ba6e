"""The client: record, flush, shutdown."""

import gc
import logging
import threading
import time
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dither_client import Client, RecordResult, RecordStatus
from dither_client.backoff import backoff_s
from dither_client.testing import MemoryTransport
from dither_client.transport import Delivered, Refused, Retry
from dither_protocol.errors import DimensionError, UnknownMetricError, ValueDomainError, ValueTypeError
from support.http import Answer, scripted_server
from support.registries import small_document, small_registry

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
ENDPOINT = "http://127.0.0.1:9"


def _client(transport: MemoryTransport, **options: Any) -> Client:
    options = {"registry": small_registry(), "ingest_key": "dik_x", "clock": lambda: NOON} | options
    return Client(ENDPOINT, transport=transport, **options)


def test_a_recorded_answer_arrives_as_the_wire_says() -> None:
    """One call, one report, with the window and params of its metric."""
    transport = MemoryTransport()
    with _client(transport) as client:
        assert client.record("color", "green", {"os": "linux"}) == RecordResult(RecordStatus.QUEUED)
    (report,) = transport.reports
    metric = small_registry().metric("color")
    assert len(metric.mechanism.pack(report.pop("data"))) == 1
    assert report == {
        "metric": "color",
        "version": 2,
        "params": metric.params_hash,
        "window": "2026-W48",
        "dimensions": {"os": "linux"},
    }


def test_the_first_answer_of_a_window_stands() -> None:
    """A second one is refused whatever its value, and costs nothing; the next window takes one again (P9)."""
    transport = MemoryTransport()
    now = [NOON]
    with _client(transport, clock=lambda: now[0]) as client:
        assert client.record("dark_mode", True).status is RecordStatus.QUEUED
        assert client.record("dark_mode", False).status is RecordStatus.ALREADY_REPORTED
        now[0] += timedelta(days=1)
        assert client.record("dark_mode", False).status is RecordStatus.QUEUED
    assert sorted(report["window"] for report in transport.reports) == ["2026-11-29", "2026-11-30"]


@pytest.mark.parametrize("source", ["registry", "app"])
def test_a_limit_of_the_registry_or_of_the_app_is_kept(source: str) -> None:
    """The stricter of both holds; what is refused leaves no report."""
    transport = MemoryTransport()
    options: dict[str, Any] = {"max_epsilon_per_day": 1.2}
    if source == "registry":
        options = {"registry": small_registry(max_epsilon_per_day=1.2)}
    with _client(transport, **options) as client:
        assert client.record("dark_mode", True).status is RecordStatus.QUEUED
        assert client.record("first_color", "red").status is RecordStatus.BUDGET_EXHAUSTED
    assert [report["metric"] for report in transport.reports] == ["dark_mode"]


def test_a_metric_above_the_apps_limit_is_never_answered() -> None:
    """Whatever a registry says, max_epsilon of the app holds (invariant P6)."""
    transport = MemoryTransport()
    with _client(transport, max_epsilon=1.0) as client:
        refused = RecordResult(RecordStatus.DROPPED, "epsilon_above_limit")
        assert client.record("color", "red", {"os": "linux"}) == refused
        assert client.record("dark_mode", True).status is RecordStatus.QUEUED
    assert [report["metric"] for report in transport.reports] == ["dark_mode"]


def test_an_expired_metric_is_not_answered() -> None:
    """After its last day a metric asks nothing any more."""
    document = small_document()
    document["metrics"]["dark_mode"]["expires"] = "2026-11-28"
    document["metrics"]["first_color"]["expires"] = "2026-11-28"
    with _client(MemoryTransport(), registry=document) as client:
        expired = RecordResult(RecordStatus.DROPPED, "metric_expired")
        assert client.record("dark_mode", True) == expired
        assert client.record("first_color", "red") == expired


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (("nope", True), UnknownMetricError),
        (("dark_mode", 1), ValueTypeError),
        (("dark_mode", "true"), ValueTypeError),
        (("color", True, {"os": "linux"}), ValueTypeError),
        (("color", float("nan"), {"os": "linux"}), ValueTypeError),
        (("color", "MARKER-octarine", {"os": "linux"}), ValueDomainError),
        (("color", "\ud800MARKER", {"os": "linux"}), ValueDomainError),
        (("color", "MARKER" * 10_000, {"os": "linux"}), ValueDomainError),
        (("color", "red"), DimensionError),
        (("color", "red", {"os": "MARKER-beos"}), DimensionError),
        (("color", "red", {"os": 5}), DimensionError),
        (("dark_mode", True, {"os": "linux"}), DimensionError),
    ],
    ids=lambda value: str(value)[:40].encode("ascii", "replace").decode(),
)
def test_a_programming_mistake_raises_and_never_repeats_the_value(call: Any, error: type[Exception]) -> None:
    """A clear error, nothing queued, and no value in the message."""
    transport = MemoryTransport()
    with _client(transport) as client:
        with pytest.raises(error) as caught:
            client.record(*call)
        assert "MARKER" not in "".join(traceback.format_exception_only(caught.value))
        assert caught.value.__context__ is None or caught.value.__suppress_context__
        assert client.pending_reports() == 0
    assert transport.bodies == []


def test_nothing_of_the_raw_value_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A value given to record() is found in no state file and in no log (invariant P1)."""
    marked = "MARKED-VALUE-7f3a"
    with caplog.at_level(logging.DEBUG):
        client = _client(MemoryTransport(Retry("network:down", 0.1)), state_dir=tmp_path)
        with pytest.raises(ValueDomainError):
            client.record("color", marked, {"os": "linux"})
        client.record("color", "red", {"os": "linux"})
        client.flush(0.2)
        for path in filter(Path.is_file, tmp_path.rglob("*")):
            assert marked.encode() not in path.read_bytes(), path
        client.shutdown(0.1)
    assert marked not in caplog.text


def test_a_retry_sends_the_same_bytes() -> None:
    """Two failures, then a receipt: three identical bodies (invariant P3)."""
    transport = MemoryTransport(
        Retry("network:x", 0.0, answered=False), Retry("http:503", 0.0), Delivered(1, False, 0)
    )
    with _client(transport) as client:
        client.record("color", "red", {"os": "linux"})
        result = client.flush(20)
    assert (result.sent, result.pending, result.timed_out) == (1, 0, False)
    assert len(transport.bodies) == 3
    assert len(set(transport.bodies)) == 1


def test_a_restart_sends_the_bytes_sealed_before(tmp_path: Path) -> None:
    """What a first run sealed and could not send, a second run sends unchanged, and the ledger remembers."""
    down = MemoryTransport(Retry("network:down", 0.1))
    first = _client(down, state_dir=tmp_path)
    first.record("color", "red", {"os": "linux"})
    assert first.flush(0.3).pending == 1
    first.shutdown(0.3)
    up = MemoryTransport()
    with _client(up, state_dir=tmp_path) as second:
        assert second.record("color", "blue", {"os": "linux"}).status is RecordStatus.ALREADY_REPORTED
        assert second.flush(20).sent == 1
    assert up.bodies == down.bodies[:1]


def test_a_restart_sends_by_itself_what_a_first_run_left(tmp_path: Path) -> None:
    """Neither record nor flush is needed for the queue of an earlier run to leave."""
    first = _client(MemoryTransport(Retry("network:down", 0.1)), state_dir=tmp_path, delay_s=0)
    first.record("dark_mode", True)
    first.shutdown(0.3)
    up = MemoryTransport()
    with _client(up, state_dir=tmp_path, delay_s=0) as second:
        deadline = time.monotonic() + 30
        while second.pending_reports() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(up.reports) == 1


def test_a_duplicate_answer_counts_as_delivered() -> None:
    """The first try had arrived, its answer was lost: nothing is sent again, nothing is counted twice."""
    transport = MemoryTransport(Retry("network:lost answer", 0.0, answered=False), Delivered(0, True, 0))
    with _client(transport) as client:
        client.record("dark_mode", True)
        result = client.flush(20)
    assert (result.sent, result.duplicate, result.pending) == (0, 1, 0)


def test_a_final_refusal_is_dropped_counted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """The batch goes, the reason stays."""
    with _client(MemoryTransport(Refused("http:400"))) as client, caplog.at_level(logging.WARNING):
        client.record("dark_mode", True)
        result = client.flush(20)
        assert (result.dropped, result.pending) == (1, 0)
        assert client.stats() == {"queued": 1, "dropped:http:400": 1}
    assert "1 reports dropped for good (http:400)" in caplog.text


def test_a_rejected_report_is_counted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """The server took the batch but not the report."""
    with _client(MemoryTransport(Delivered(0, False, 1))) as client, caplog.at_level(logging.WARNING):
        client.record("dark_mode", True)
        assert client.flush(20).rejected == 1
    assert "rejected 1 of 1" in caplog.text


def test_a_batch_that_nobody_would_accept_any_more_is_dropped_unsent(tmp_path: Path) -> None:
    """After `until` the bytes are worthless to everybody."""
    now = [NOON]
    client = _client(MemoryTransport(Retry("network:down", 0.1)), state_dir=tmp_path, clock=lambda: now[0])
    client.record("dark_mode", True)
    client.flush(0.3)
    client.shutdown(0.3)
    now[0] += timedelta(days=10)
    transport = MemoryTransport()
    with _client(transport, state_dir=tmp_path, clock=lambda: now[0]) as later:
        assert later.flush(20).dropped == 1
        assert later.stats() == {"dropped:expired": 1}
    assert transport.bodies == []


def test_shutdown_is_idempotent_and_record_drops_afterwards() -> None:
    """A closed client is harmless."""
    client = _client(MemoryTransport())
    assert client.shutdown() is True
    assert client.shutdown() is True
    assert client.record("dark_mode", True) == RecordResult(RecordStatus.DROPPED, "shut_down")
    assert client.flush().pending == 0
    assert client.pending_reports() == 0


def test_network_trouble_never_raises() -> None:
    """Nobody listens: the report stays, the app does not notice."""
    client = Client("http://127.0.0.1:9", small_registry(), ingest_key="dik_x", clock=lambda: NOON)
    client.record("dark_mode", True)
    result = client.flush(0.5)
    assert (result.pending, result.timed_out) == (1, True)
    assert client.shutdown(0.1) is False


def test_many_threads_may_record_at_once() -> None:
    """Eight threads, one winner per window, nothing lost and nothing doubled."""
    transport = MemoryTransport()
    with _client(transport) as client:
        results: list[RecordResult] = []
        threads = [
            threading.Thread(target=lambda: results.append(client.record("color", "red", {"os": "macos"})))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(r.status for r in results) == ["already_reported_this_window"] * 7 + ["queued"]
    assert len(transport.reports) == 1


def test_the_client_reaches_a_real_http_server() -> None:
    """The whole way through requests, with a lost answer on the first try."""
    with scripted_server(Answer(status=0), Answer()) as server:
        client = Client(server.url, small_registry(), ingest_key="dik_x", clock=lambda: NOON)
        client.record("dark_mode", True)
        assert client.flush(60).sent == 1
        client.shutdown()
    assert len(server.bodies) == 2
    assert server.bodies[0] == server.bodies[1]


def test_a_registry_may_come_from_a_file(tmp_path: Path) -> None:
    """A path is read as TOML."""
    path = tmp_path / "registry.toml"
    path.write_text(
        'schema = 1\nproject = "p"\n[metrics.m]\nversion = 1\ntype = "boolean"\n'
        'description = "d"\nepsilon = 1.0\nmechanism = "rr"\n'
    )
    transport = MemoryTransport()
    with _client(transport, registry=path) as client:
        client.record("m", True)
    assert repr(client) == "<Client project='p' state=memory>"
    assert len(transport.reports) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"ingest_key": ""},
        {"ingest_key": "two words"},
        {"ingest_key": "kéy"},
        {"ingest_key": "a\nb"},
        {"ingest_key": None},
        {"max_epsilon": 0},
        {"max_epsilon": float("nan")},
        {"max_epsilon": True},
        {"max_epsilon_per_day": -1.0},
        {"max_epsilon_lifetime": float("inf")},
    ],
    ids=str,
)
def test_a_bad_setting_is_refused_at_once(options: dict[str, Any]) -> None:
    """Mistakes show at the start, not at the first report."""
    with pytest.raises(ValueError, match=r"key|epsilon"):
        _client(MemoryTransport(), **options)


def test_backoff_grows_and_is_capped() -> None:
    """Uniform in [0, 2^(failures-1)] seconds, never above five minutes."""
    assert all(0 <= backoff_s(1) < 1 for _ in range(100))
    assert all(0 <= backoff_s(100) < 300 for _ in range(100))
    assert max(backoff_s(12) for _ in range(200)) > 30


def test_a_client_that_was_never_used_starts_no_thread() -> None:
    """The sender is lazy."""
    before = threading.active_count()
    client = _client(MemoryTransport())
    assert threading.active_count() == before
    client.shutdown()
    gc.collect()
