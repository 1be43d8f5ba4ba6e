"""Where the registry comes from: bundled with the app, or fetched from the server and cached in the state.

Of two registries the newer wins, whichever arrives first: one is older if it has a lower version of any metric. The
app's limits on epsilon hold for both (invariant P6).
"""

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dither_client.backoff import uniform_s
from dither_client.errors import StateError
from dither_client.log import logger
from dither_client.registry_trust import Refusal, RegistryRefusedError, open_signed, raise_highest
from dither_client.state import State, read_note, write_note
from dither_client.transport import Fetched, Transport, importing
from dither_protocol.errors import RegistryError
from dither_protocol.registry import Registry, parse_registry, registry_from_document

if TYPE_CHECKING:
    from dither_protocol.registry.envelope import SignedRegistry

_NOTE: Final = "registry"
_IN_USE: Final = "registry in use"
_NEXT_FETCH: Final = "next registry fetch"
REFRESH_S: Final = 6 * 3600.0
RETRY_S: Final = 300.0
_SAID_LETTERS: Final = 300


def read_registry(registry: Registry | Mapping[str, Any] | str | Path) -> Registry:
    """A registry from any of the forms that an app may bundle: the signed one is as good as TOML, no key is asked.

    Raises:
        OSError: the file cannot be read.
        RegistryError: it breaks a rule.
    """
    if isinstance(registry, Registry):
        return registry
    if isinstance(registry, str | Path):
        return _read_file(Path(registry).read_bytes())
    return registry_from_document(registry)


def _read_file(data: bytes) -> Registry:
    if data.lstrip()[:1] != b"{":
        return parse_registry(data)
    from dither_protocol.registry.envelope import parse_envelope  # noqa: PLC0415  the rarer form

    return parse_envelope(data).registry


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
        if "envelope" in document:
            return _read_file(document["envelope"].encode())
        return registry_from_document(document.get("document", document))
    except (RegistryError, ValueError, AttributeError):
        return None


class RegistrySource:
    """The registry that holds now.

    Args:
        bundled: the app's own; None where it has none.
        state: where a fetched one is cached.
        fetch: whether the server is asked for its own.
        keys: pinned public keys by id: a fetched registry, a cached one too, needs a signature by one of them. Empty:
            the server is trusted.

    Attributes:
        refused: how often a registry was not taken, by reason.
    """

    def __init__(
        self,
        bundled: Registry | None,
        state: State,
        *,
        fetch: bool,
        keys: Mapping[str, bytes] | None = None,
    ) -> None:
        self.current = bundled
        self.refused: Counter[Refusal] = Counter()
        self._state = state
        self._keys = keys or {}
        self._project = None if bundled is None else bundled.project
        self._etag = ""
        self._said: set[Refusal] = set()
        self.next_fetch_at: float | None = 0.0 if fetch else None
        """When the sender asks next, seconds since the epoch; None for never."""
        if fetch:
            try:
                self._use_cached()
            except StateError:
                self.next_fetch_at = 0.0  # what is cached could not be had: ask at once

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
            fetched = Fetched(cached[self._form], str(cached["etag"]))
        except (ValueError, KeyError, TypeError):
            return  # written by nobody we know, or before keys were pinned; the next fetch replaces it
        self._take(fetched, cached=True)

    @property
    def _form(self) -> str:
        """Under which name the cache holds what was fetched: the signature is checked again at every start."""
        return "envelope" if self._keys else "document"

    def _take(self, fetched: Fetched, *, cached: bool = False) -> None:
        """Use a fetched registry, and cache it, unless it is refused or older than the one in use."""
        try:
            with importing():  # a fork waits: its child could never load what is half loaded
                registry, signed = self._open(fetched)
            if self._project is not None and registry.project != self._project:
                raise RegistryRefusedError(Refusal.OTHER_PROJECT, "it is another project's")
            if self.current is not None and is_older(registry, self.current):
                return
            self._book(fetched, registry, signed, cached=cached)
        except RegistryRefusedError as error:
            self._refuse(error)
            return
        self.current = registry
        self._etag = fetched.etag
        if signed is not None:
            self._project = registry.project  # one key may sign for several projects, and a device is of one

    def _book(
        self, fetched: Fetched, registry: Registry, signed: "SignedRegistry | None", *, cached: bool
    ) -> None:
        """Raise the highest revision seen, and cache for the next start: both or nothing."""
        if cached and signed is None:
            return
        with self._state.transaction(durable=signed is not None) as connection:
            if signed is not None:
                raise_highest(connection, signed)
            if not cached:
                self._keep(connection, fetched, registry, replace=signed is not None)

    def _open(self, fetched: Fetched) -> "tuple[Registry, SignedRegistry | None]":
        if self._keys:
            signed = open_signed(fetched.document, self._keys)
            return signed.registry, signed
        try:
            return registry_from_document(fetched.document), None
        except RegistryError as error:
            raise RegistryRefusedError(Refusal.BROKEN, str(error)) from None

    def _refuse(self, error: RegistryRefusedError) -> None:
        """Count it, and say it once; of a broken one every time, since each may be broken in its own way."""
        self.refused[error.reason] += 1
        if error.reason is Refusal.BROKEN or error.reason not in self._said:
            self._said.add(error.reason)
            # What it says may be a stranger's words: keys of a document that is not ours.
            problem = "".join(
                letter if letter.isprintable() else "?" for letter in str(error)[:_SAID_LETTERS]
            )
            logger().warning("a registry is refused (%s): %s; what is in use stays", error.reason, problem)

    def refresh(self, transport: Transport, now: float) -> None:
        """Ask the server if it is time. A failure leaves what is in use, and is tried again."""
        if self.next_fetch_at is None or now < self.next_fetch_at:
            return
        fetched = (
            transport.fetch_registry(self._etag, signed=True)
            if self._keys
            else transport.fetch_registry(self._etag)
        )
        self.next_fetch_at = now + (RETRY_S if fetched is None else REFRESH_S) * (0.5 + uniform_s(1.0))
        try:
            with self._state.transaction() as connection:
                write_note(connection, _NEXT_FETCH, repr(self.next_fetch_at))
            if fetched is not None and fetched.document is not None:
                self._take(fetched)
        except StateError:
            self.next_fetch_at = now + RETRY_S  # what came could not be booked, and is not used: again soon
            raise

    def _keep(
        self, connection: sqlite3.Connection, fetched: Fetched, registry: Registry, *, replace: bool
    ) -> None:
        """Cache for the next start, unless another process has cached a newer one meanwhile.

        Args:
            connection: in a transaction.
            fetched: what came.
            registry: what it says.
            replace: the revision has decided already.
        """
        note = None if replace else read_note(connection, _NOTE)
        if note is not None:
            with suppress(RegistryError, ValueError, KeyError, TypeError):
                if is_older(registry, registry_from_document(json.loads(note)["document"])):
                    return
        write_note(connection, _NOTE, json.dumps({"etag": fetched.etag, self._form: fetched.document}))
