"""Devices with one memoised metric, for unit tests of the SDK."""

from pathlib import Path
from typing import Any

import pytest

from dither_client import Client, RecordResult, RecordStatus, memo
from dither_client.state import State
from dither_client.testing import FakeClock, MemoryTransport
from dither_protocol.registry import Metric, registry_from_document
from support.clients import make_client
from support.memo import memo_document

QUEUED = RecordResult(RecordStatus.QUEUED)
EXHAUSTED = RecordResult(RecordStatus.BUDGET_EXHAUSTED)
ALREADY = RecordResult(RecordStatus.ALREADY_REPORTED)
BOTH = pytest.mark.parametrize("mechanism", ["grr", "oue", "sue"])


def memo_client(folder: Path | None = None, **options: Any) -> tuple[Client, FakeClock]:
    """A client of one memoised metric, "mood", and its clock."""
    clock = FakeClock()
    document = options.pop("registry", None) or memo_document(options.pop("mechanism", "grr"))
    return make_client(MemoryTransport(), state_dir=folder, registry=document, clock=clock, **options), clock


def days(client: Client, clock: FakeClock, *values: str) -> list[RecordResult]:
    """One answer a day."""
    results = []
    for value in values:
        results.append(client.record("mood", value))
        clock.advance(days=1)
    return results


def last_answer(state: State) -> bytes:
    """The permanent answer that the state used last."""
    with state.transaction() as connection:
        return bytes(connection.execute("SELECT answer FROM memos").fetchone()[0])


def answer_of(client: Client, clock: FakeClock, value: str) -> bytes:
    """The permanent answer that the device uses for a value."""
    assert days(client, clock, value) == [QUEUED]
    return last_answer(client._state)


def mood_of(document: dict[str, Any]) -> Metric:
    """The metric "mood" of a registry."""
    return registry_from_document(document).metric("mood")


def permanent_of(state: State, metric: Metric, index: int) -> int:
    """The permanent answer for one value, as an integer."""
    with state.transaction() as connection:
        memo.report(connection, metric, index)
        row = connection.execute("SELECT answer FROM memos").fetchone()
    return int.from_bytes(row[0], "little")
