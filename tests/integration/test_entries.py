"""The script by which the worker reads a stream, against what the stream holds."""

import random
from collections.abc import Iterator

import pytest

from dither_estimator.store import Store
from dither_protocol.registry import Registry
from dither_protocol.storage import ENTRY_FIELD
from support.store import Store as Valkey
from support.worker_store import partition_keys

pytestmark = pytest.mark.usefixtures("engine")

STREAM = partition_keys(0).stream
EVERYTHING = 1 << 20


@pytest.fixture
def store(valkey: Valkey, registry: Registry) -> Iterator[Store]:
    """The worker's view of an empty store."""
    store = Store(valkey.url)
    store.open()
    yield store
    store.close()


def _add(valkey: Valkey, *payloads: bytes) -> list[tuple[bytes, bytes]]:
    """Append entries; their ids and payloads."""
    client = valkey.client()
    return [(client.xadd(STREAM, {ENTRY_FIELD: payload}), payload) for payload in payloads]


def test_any_bytes_come_through(valkey: Valkey, store: Store) -> None:
    """Spaces, line ends, zeros and nothing at all: sizes say where a payload ends, not its content."""
    rng = random.Random(1)  # noqa: S311  a test's content
    payloads = [
        b"",
        b" ",
        b"\r\n",
        b"1 2 3",
        b"\0" * 40,
        *(rng.randbytes(rng.randrange(300)) for _ in range(90)),
        b"",
    ]
    added = _add(valkey, *payloads)
    assert store.entries(0, b"", 1_000, EVERYTHING) == added


def test_reading_goes_on_after_any_entry(valkey: Valkey, store: Store) -> None:
    """Whatever the size of a page, each entry comes once and in order; a marked checkpoint is one, too."""
    added = _add(valkey, *(bytes([number]) for number in range(70)))
    for count in (1, 15, 16, 17, 33, 70, 71):
        found: list[tuple[bytes, bytes]] = []
        while page := store.entries(0, found[-1][0] if found else b"", count, EVERYTHING):
            assert len(page) == min(count, len(added) - len(found))
            found += page
        assert found == added
    assert store.entries(0, added[68][0] + b".3", 10, EVERYTHING) == added[69:]


def test_a_page_ends_with_the_entry_that_is_too_much(valkey: Valkey, store: Store) -> None:
    """Up to the size and the one entry beyond it, so a page that is neither full nor too large is the last."""
    added = _add(valkey, *(b"x" * 10 for _ in range(40)))
    for size, entries in ((0, 1), (9, 1), (10, 2), (11, 2), (160, 17), (199, 20), (390, 40), (400, 40)):
        assert store.entries(0, b"", 100, size) == added[:entries], size
    assert store.entries(0, b"", 3, 200) == added[:3]


def test_what_is_no_batch_has_no_payload(valkey: Valkey, store: Store) -> None:
    """Entries of other fields are read all the same, so that they can be set aside; others than the first are found."""
    client = valkey.client()
    other = client.xadd(STREAM, {b"other": b"1"})
    second = client.xadd(STREAM, {b"other": b"1", ENTRY_FIELD: b"payload"})
    assert store.entries(0, b"", 10, EVERYTHING) == [(other, b""), (second, b"payload")]


def test_a_stream_that_is_not_there_is_empty(store: Store) -> None:
    """Before the first batch nothing is to be read."""
    assert store.entries(0, b"", 10, EVERYTHING) == []
