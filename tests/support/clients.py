"""Clients of the SDK for tests: a fixed date, no network unless told, and a way to wait for the sender's thread."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dither_client import Client
from dither_client.testing import MemoryTransport
from dither_client.transport import Delivered, Outcome
from support.registries import small_registry

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
ENDPOINT = "http://127.0.0.1:9"  # the discard port: nobody listens
HANG_LIMIT_S = 30.0
LINUX = {"os": "linux"}


def make_client(transport: Any = None, **options: Any) -> Client:
    """A client of `small_registry` at noon of a fixed day; ``options`` as for `Client`, ``endpoint`` among them."""
    given = {
        "registry": small_registry(),
        "ingest_key": "dik_x",
        "clock": lambda: NOON,
        "exit_timeout_s": HANG_LIMIT_S,
    } | options
    return Client(given.pop("endpoint", ENDPOINT), transport=transport, **given)


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for something that another thread does; fails where it does not come about."""
    deadline = time.monotonic() + HANG_LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it did not come about")
        time.sleep(0.005)


def state_bytes(folder: Path) -> bytes:
    """The bytes of all files of a state directory, the write-ahead log among them."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


class GateTransport(MemoryTransport):
    """Holds every try until the test opens the gate; `entered` tells that one is being held."""

    def __init__(self, *outcomes: Outcome) -> None:
        super().__init__(*outcomes)
        self.entered = threading.Event()
        self.gate = threading.Event()

    def send(self, body: bytes) -> Outcome:
        """Wait, then answer as `MemoryTransport` does."""
        self.entered.set()
        if not self.gate.wait(HANG_LIMIT_S):
            return Delivered(0, duplicate=False, rejected=0)
        return super().send(body)


def record_two_colors(client: Client) -> None:
    """Two reports of one metric, of different dimensions: they share a batch."""
    for os in ("linux", "macos"):
        client.record("color", "red", {"os": os})
