"""The kit for apps' own tests: no network, a clock to set, and readable answers that no server takes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dither_client import RecordStatus
from dither_client.testing import IDENTITY_PARAMS, FakeClock, IdentityClient, MemoryTransport
from dither_client.transport import Delivered, Fetched, Retry
from dither_protocol.errors import Rejection, ValueDomainError
from dither_protocol.wire import decode_json, parse_envelope
from dither_server.admission import admit
from dither_server.catalogue import Catalogue
from support.clients import ENDPOINT, LINUX, NOON, make_client
from support.registries import small_registry


def test_the_memory_transport_keeps_what_it_is_given() -> None:
    """Bodies as bytes, batches as JSON, and the reports of distinct batches."""
    transport = MemoryTransport()
    first, second = b'{"reports":[{"a":1},{"b":2}]}', b'{"reports":[{"c":3}]}'
    assert transport.send(first) == Delivered(2, duplicate=False, rejected=0)
    assert transport.send(first) == Delivered(2, duplicate=False, rejected=0)
    assert transport.send(second) == Delivered(1, duplicate=False, rejected=0)
    assert transport.bodies == [first, first, second]
    assert len(transport.batches) == 3
    assert transport.reports == [{"a": 1}, {"b": 2}, {"c": 3}]
    transport.close()
    transport.after_fork()
    assert transport.bodies == []


def test_the_memory_transport_answers_by_script_and_the_last_answer_stays() -> None:
    """So an app can be tested offline, or with a server that refuses."""
    transport = MemoryTransport(Retry("http:503", 1.0), Delivered(1, duplicate=True, rejected=0))
    answers = [transport.send(b'{"reports":[]}') for _ in range(3)]
    assert answers == [Retry("http:503", 1.0)] + [Delivered(1, duplicate=True, rejected=0)] * 2


def test_the_memory_transport_publishes_a_registry_where_it_has_one() -> None:
    """None where the server cannot be reached."""
    assert MemoryTransport().fetch_registry("") is None
    assert MemoryTransport(registry={"a": 1}).fetch_registry("") == Fetched({"a": 1}, "memory")


def test_the_clock_stands_still_until_it_is_moved() -> None:
    """Forwards and back; a time without a zone is no time."""
    clock = FakeClock()
    assert clock() == clock() == datetime(2026, 1, 1, tzinfo=UTC)
    clock.advance(days=1, hours=2)
    assert clock() == datetime(2026, 1, 2, 2, tzinfo=UTC)
    clock.advance(days=-1)
    assert clock() == datetime(2026, 1, 1, 2, tzinfo=UTC)
    with pytest.raises(ValueError, match="zone"):
        FakeClock(datetime(2026, 1, 1))


def test_a_client_follows_the_clock_it_is_given() -> None:
    """The next day takes the next report."""
    clock = FakeClock(NOON)
    transport = MemoryTransport()
    with make_client(transport, clock=clock) as client:
        for _ in range(3):
            assert client.record("dark_mode", True).status is RecordStatus.QUEUED
            assert client.record("dark_mode", True).status is RecordStatus.ALREADY_REPORTED
            clock.advance(days=1)
    days = [(NOON + timedelta(days=i)).date().isoformat() for i in range(3)]
    assert [report["window"] for report in transport.reports] == days


@pytest.mark.parametrize("flag", [None, "", "0", "true"])
def test_without_the_flag_there_is_no_way_to_switch_the_noise_off(
    monkeypatch: pytest.MonkeyPatch, flag: str | None
) -> None:
    """Only DITHER_TESTING=1 counts."""
    if flag is None:
        monkeypatch.delenv("DITHER_TESTING", raising=False)
    else:
        monkeypatch.setenv("DITHER_TESTING", flag)
    with pytest.raises(RuntimeError, match="DITHER_TESTING=1"):
        IdentityClient(ENDPOINT, small_registry(), ingest_key="dik_x", transport=MemoryTransport())


def _identity(transport: MemoryTransport) -> IdentityClient:
    return IdentityClient(
        ENDPOINT, small_registry(), ingest_key="dik_x", transport=transport, clock=lambda: NOON, delay_s=3600
    )


def test_with_the_flag_answers_can_be_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The label itself, with all other rules as in the real client."""
    monkeypatch.setenv("DITHER_TESTING", "1")
    transport = MemoryTransport()
    with _identity(transport) as client:
        client.record("dark_mode", True)
        client.record("color", "violet", LINUX)
        assert client.record("dark_mode", False).status is RecordStatus.ALREADY_REPORTED
        with pytest.raises(ValueDomainError):
            client.record("color", "octarine", LINUX)
    assert {report["metric"]: report["data"] for report in transport.reports} == {
        "dark_mode": "true",
        "color": "violet",
    }


def test_a_real_server_rejects_every_readable_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its admission finds parameters that are nobody's, and takes the same answers from a real client."""
    monkeypatch.setenv("DITHER_TESTING", "1")
    catalogue = Catalogue(small_registry())
    verdicts: list[Any] = []
    for make in (_identity, make_client):
        transport = MemoryTransport()
        with make(transport) as client:
            client.record("dark_mode", True)
            client.record("color", "red", LINUX)
            client.record("first_color", "red")
        verdicts.append(
            [admit(catalogue, parse_envelope(decode_json(body)), NOON) for body in transport.bodies]
        )
    refused, taken = verdicts
    assert sum(verdict.accepted for verdict in refused) == 0
    assert [refusal.rejection for verdict in refused for refusal in verdict.refusals] == [
        Rejection.PARAMS_MISMATCH
    ] * 3
    assert sum(verdict.accepted for verdict in taken) == 3


def test_the_identity_params_can_be_no_hash() -> None:
    """Eight characters that are no hexadecimal number."""
    assert len(IDENTITY_PARAMS) == 8
    with pytest.raises(ValueError, match="invalid literal"):
        int(IDENTITY_PARAMS, 16)
