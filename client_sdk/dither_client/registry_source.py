"""Where the registry comes from: bundled with the app, or fetched from the server and cached in the state.

Of two registries the newer wins, whichever arrives first: one is older if it has a lower version of any metric. The
app's limits on epsilon hold for both (invariant P6).
"""

import json
import sqlite3
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from dither_client.backoff import uniform_s
from dither_client.errors import StateError
from dither_client.log import logger
from dither_client.state import State, read_note, write_note
from dither_client.transport import Fetched, Transport
from dither_protocol.errors import RegistryError
from dither_protocol.registry import Registry, load_registry, registry_from_document

_NOTE: Final = "registry"
_IN_USE: Final = "registry in use"
_NEXT_FETCH: Final = "next registry fetch"
REFRESH_S: Final = 6 * 3600.0
RETRY_S: Final = 300.0


def read_registry(registry: Registry | Mapping[str, Any] | str | Path) -> Registry:
    """A registry from any of the forms that an app may bundle.

    Raises:
        OSError: the file cannot be read.
        RegistryError: it breaks a rule.
    """
    if isinstance(registry, Registry):
        return registry
    if isinstance(registry, str | Path):
        return load_registry(registry)
    return registry_from_document(registry)


def is_older(registry: Registry, than: Registry) -> bool:
    """Whether any metric of both has a lower version in ``registry``."""
    return any(
        name in than.metrics and metric.version < than.metrics[name].version
        for name, metric in registry.metrics.items()
    )


def remember_in_use(connection: sqlite3.Connection, registry: Registry) -> None:
    """Note the registry that the app runs with, for the person at the device who asks `python -m dither_client`."""
    text = json.dumps(registry.document)
    if read_note(connection, _IN_USE) != text:
        write_note(connection, _IN_USE, text)


def in_use(connection: sqlite3.Connection) -> Registry | None:
    """The registry that the app ran with last; None where none was noted, or none that this version reads."""
    note = read_note(connection, _IN_USE) or read_note(connection, _NOTE)
    if note is None:
        return None
    try:
        document = json.loads(note)
        return registry_from_document(document.get("document", document))
    except (RegistryError, ValueError, AttributeError):
        return None


class RegistrySource:
    """The registry that holds now.

    Args:
        bundled: the app's own; None where it has none.
        state: where a fetched one is cached.
        fetch: whether the server is asked for its own.
    """

    def __init__(self, bundled: Registry | None, state: State, *, fetch: bool) -> None:
        self.current = bundled
        self._state = state
        self._etag = ""
        self.next_fetch_at: float | None = 0.0 if fetch else None
        """When the sender asks next, seconds since the epoch; None for never."""
        if fetch:
            with suppress(StateError):
                self._use_cached()

    def _use_cached(self) -> None:
        with self._state.transaction() as connection:
            note = read_note(connection, _NOTE)
            next_fetch = read_note(connection, _NEXT_FETCH)
        with suppress(ValueError):
            at = float(next_fetch or 0)
            # Kept over restarts: a program that runs every minute must not show that to the server.
            self.next_fetch_at = at if at <= time.time() + 2 * REFRESH_S else 0.0
        if note is None:
            return
        try:
            cached = json.loads(note)
            fetched = Fetched(cached["document"], str(cached["etag"]))
        except (ValueError, KeyError, TypeError):
            return  # written by nobody we know; the next fetch replaces it
        self._take(fetched)

    def _take(self, fetched: Fetched) -> bool:
        """Use a fetched registry unless it is broken or older than the one in use."""
        try:
            registry = registry_from_document(fetched.document)
        except RegistryError as error:
            logger().warning("the server's registry is refused: %s", error)
            return False
        if self.current is not None and is_older(registry, self.current):
            return False
        self.current = registry
        self._etag = fetched.etag
        return True

    def refresh(self, transport: Transport, now: float) -> None:
        """Ask the server if it is time. A failure leaves what is in use, and is tried again."""
        if self.next_fetch_at is None or now < self.next_fetch_at:
            return
        fetched = transport.fetch_registry(self._etag)
        self.next_fetch_at = now + (RETRY_S if fetched is None else REFRESH_S) * (0.5 + uniform_s(1.0))
        with self._state.transaction() as connection:
            write_note(connection, _NEXT_FETCH, repr(self.next_fetch_at))
        if fetched is not None and fetched.document is not None and self._take(fetched):
            self._keep(fetched)

    def _keep(self, fetched: Fetched) -> None:
        """Cache for the next start, unless another process has cached a newer one meanwhile."""
        with self._state.transaction() as connection:
            note = read_note(connection, _NOTE)
            if note is not None and self.current is not None:
                with suppress(RegistryError, ValueError, KeyError, TypeError):
                    if is_older(self.current, registry_from_document(json.loads(note)["document"])):
                        return
            write_note(connection, _NOTE, json.dumps({"etag": fetched.etag, "document": fetched.document}))
